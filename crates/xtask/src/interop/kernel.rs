//! A Debian kernel as QEMU boots it quickest: uncompressed, with the modules that a guest needs in
//! the order in which they load.
//!
//! An x86 `vmlinuz` says in its setup header where its compressed payload lies (the kernel's
//! document "The Linux/x86 Boot Protocol"). Unpacked here instead of in the guest, it boots in half
//! the time, by its PVH note.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, mem, thread};

use anyhow::{Context as _, Result, bail, ensure};

/// What a guest loads, and what that needs with it.
#[rustfmt::skip]
const WANTED: &[&str] = &[
    "virtio_pci", "virtio_net", "crc32_generic", "crc32c_generic", "rdma_rxe", "ib_uverbs",
    // Networks that are bad, and VLANs.
    "sch_netem", "sch_prio", "sch_ingress", "cls_u32", "cls_matchall", "act_mirred", "ifb", "8021q",
];

/// What a guest has and loads when it is asked to: the connection manager.
const LATER: &[&str] = &["rdma_ucm"];

/// Needed through the crypto interface, which modules do not say.
const HIDDEN: &[(&str, &str)] = &[("rdma_rxe", "crc32_generic"), ("libcrc32c", "crc32c_generic")];

/// What decides which modules a guest has, and their order.
pub(crate) fn wanted() -> String {
    let hidden = HIDDEN.iter().map(|(of, needed)| format!("{of}:{needed}"));
    let named = WANTED.iter().chain(LATER).map(|name| (*name).to_owned());
    named.chain(hidden).collect::<Vec<_>>().join(" ")
}

/// Unpacks the kernel out of a `vmlinuz`.
pub(crate) fn unpack(image: &[u8]) -> Result<Vec<u8>> {
    let word = |at: usize| {
        let bytes = image.get(at..at + 4).context("a vmlinuz is longer")?;
        Ok::<_, anyhow::Error>(u32::from_le_bytes(bytes.try_into()?) as usize)
    };
    let sectors = match image.get(0x1f1) {
        Some(0) | None => 4,
        Some(&sectors) => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + word(0x248)?;
    let payload = image.get(start..start + word(0x24c)?).context("its payload is cut off")?;
    // Behind the payload stands its unpacked size, which xz and zstd do not expect.
    let payload = &payload[..payload.len().saturating_sub(4)];
    match payload {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => filter("xz", payload),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => filter("zstd", payload),
        _ => bail!("the kernel is packed with neither xz nor zstd"),
    }
}

/// The version that Debian gives a kernel, out of what an unpacked one says of itself, if that is
/// the kernel with this release: `6.1.0-57-amd64` is a name of its interface.
pub(crate) fn version(kernel: &[u8], release: &str) -> Option<String> {
    let head = format!("Linux version {release} ");
    let at = kernel.windows(head.len()).position(|window| window == head.as_bytes())?;
    let line = kernel[at..].split(|byte| matches!(byte, 0 | b'\n')).next()?;
    let line = String::from_utf8_lossy(line);
    let (_, version) = line.rsplit_once(" Debian ")?;
    version.split(' ').next().map(str::to_owned)
}

/// Modules with their names in the order in which they load.
pub(crate) type Modules = Vec<(String, Vec<u8>)>;

/// Those that a guest loads, and those that it may load later.
pub(crate) fn modules(folder: &Path) -> Result<[Modules; 2]> {
    let mut found = BTreeMap::new();
    look(folder, &mut found)?;
    let mut loading = Loading { found, order: Vec::new() };
    WANTED.iter().try_for_each(|name| loading.visit(name))?;
    let at_once = mem::take(&mut loading.order);
    LATER.iter().try_for_each(|name| loading.visit(name))?;
    Ok([at_once, loading.order])
}

/// Where each module of a folder is.
fn look(folder: &Path, found: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            look(&path, found)?;
        } else if let Some((name, _)) = name.split_once(".ko") {
            found.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

struct Loading {
    found: BTreeMap<String, PathBuf>,
    order: Modules,
}

impl Loading {
    /// What a module needs, then itself. What is built into the kernel is no module.
    fn visit(&mut self, name: &str) -> Result<()> {
        let Some(path) = self.found.remove(name) else { return Ok(()) };
        let bytes = fs::read(&path).with_context(|| format!("{}", path.display()))?;
        let module = match path.extension().and_then(|it| it.to_str()) {
            Some("xz") => filter("xz", &bytes)?,
            Some("zst") => filter("zstd", &bytes)?,
            _ => bytes,
        };
        let hidden = HIDDEN.iter().filter(|(of, _)| *of == name);
        for needed in hidden.map(|(_, it)| (*it).to_owned()).chain(depends(&module)) {
            self.visit(&needed)?;
        }
        self.order.push((name.to_owned(), module));
        Ok(())
    }
}

/// What stands behind `depends=` in a module's information.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let rest = &module[at + KEY.len()..];
    let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
    let names = String::from_utf8_lossy(&rest[..end]).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// What a program that unpacks makes of some bytes.
fn filter(program: &str, packed: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(program)
        .arg("-dcq")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    let mut input = child.stdin.take().context("a pipe that was asked for")?;
    let output = thread::scope(|scope| {
        // Whoever reads only as much as it needs closes the pipe early.
        scope.spawn(move || drop(input.write_all(packed)));
        child.wait_with_output()
    })?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "{program} does not unpack it");
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_depends_on_is_read_from_its_information() {
        let module = b"\x7fELF license=GPL\0depends=ib_core,udp-tunnel\0name=x\0";
        assert_eq!(depends(module), ["ib_core", "udp_tunnel"]);
        assert_eq!(depends(b"\0depends=\0"), [""; 0]);
        assert_eq!(depends(b"nothing"), [""; 0]);
    }

    #[test]
    fn the_version_of_a_kernel_is_that_of_its_release() {
        let kernel =
            b"\x7fELF\0Linux version 6.1.0-9-amd64 (debian-kernel@x (gcc-12 (Debian 12.2.0)) \
                       #1 SMP PREEMPT_DYNAMIC Debian 6.1.42-1 (2026-01-01)\n\0 Debian 7\0";
        assert_eq!(version(kernel, "6.1.0-9-amd64").as_deref(), Some("6.1.42-1"));
        assert_eq!(version(kernel, "6.1.0-8-amd64"), None);
        assert_eq!(version(b"", "6.1"), None);
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        assert!(unpack(b"").is_err());
        assert!(unpack(&[0; 0x2000]).is_err());
    }
}
