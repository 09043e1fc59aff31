//! Without AF_XDP no frame of ours reaches another device.

use roxe_sim::script::{Played, Site, Terms};

use crate::cli::ScriptArguments;
use crate::outcome::{Outcome, complain};

/// There is none.
pub(super) enum Peer {}

impl Peer {
    pub(super) fn reach(_: &str, _: &ScriptArguments) -> Result<Self, Outcome> {
        complain(
            "--peer takes AF_XDP, without which this program was built: `cargo build --release -p \
             roxe` (docs/library.md)",
        );
        Err(Outcome::Lacking)
    }

    pub(super) fn about(&self) -> &str {
        match *self {}
    }

    pub(super) fn play(&mut self, _: impl Fn(&Terms, &mut dyn Site) -> Played) -> Played {
        match *self {}
    }
}
