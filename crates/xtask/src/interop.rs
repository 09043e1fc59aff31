//! `cargo xtask interop`: the adapter against Linux's own, `rdma_rxe`, in a virtual machine.

mod archive;
mod image;
mod kernel;

use std::time::Instant;

use anyhow::Result;

use crate::tell;

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let start = Instant::now();
    let image = image::build(arguments.first().map_or("6.1", |it| it))?;
    tell!("{} {} {:?}", image.kernel.display(), image.initrd.display(), start.elapsed());
    Ok(())
}
