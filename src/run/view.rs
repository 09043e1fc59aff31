//! The files about adapters that some programs look at, seen by this process and its children only.
//!
//! UCX takes a device only if it has a node in `/dev/infiniband`, NCCL and others look up the types
//! of addresses below `/sys/class/infiniband`. Where a folder of that name is already, it stays.

use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use roxe_verbs::{DeviceEntry, Gid};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change,
    mount_move,
};
use rustix::thread::UnshareFlags;

/// Makes it. A part that cannot be made is left out.
///
/// # Errors
/// This process may not have mounts of its own.
pub(super) fn make(entries: &[DeviceEntry]) -> io::Result<()> {
    let [needs_nodes, needs_files] =
        ["/dev/infiniband", "/sys/class/infiniband"].map(|folder| !Path::new(folder).exists());
    if !needs_nodes && !needs_files {
        return Ok(());
    }
    // What must not be shared are tables of descriptors, and those stay as they are.
    #[expect(deprecated, reason = "the other one is unsafe for the sake of descriptors")]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let nodes = match needs_nodes {
        true => extend("/dev", |folder| nodes(folder, entries)),
        false => Ok(()),
    };
    let files = match needs_files {
        true => extend("/sys/class", |folder| files(folder, entries)),
        false => Ok(()),
    };
    nodes.and(files)
}

/// Puts a folder in place of another that has all of that and more.
fn extend(folder: &str, more: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let stage = std::env::temp_dir().join(format!("roxe-view-{}", std::process::id()));
    fs::create_dir(&stage)?;
    let made = mount("roxe", &stage, "tmpfs", MountFlags::NOSUID, Some(c"mode=755"))
        .map_err(io::Error::from)
        .and_then(|()| copy(Path::new(folder), &stage))
        .and_then(|()| more(&stage))
        .and_then(|()| Ok(mount_move(&stage, folder)?));
    // Gone with the namespace, if it was not moved away.
    let _ = fs::remove_dir(&stage);
    made
}

/// All that is in a folder, without a copy of anything.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (there, here) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(there)?, here)?;
        } else if kind.is_dir() {
            fs::create_dir(&here)?;
            mount_bind_recursive(there, here)?;
        } else {
            File::create(&here)?;
            mount_bind(there, here)?;
        }
    }
    Ok(())
}

/// A node for each adapter, of the device that swallows everything: nobody reads or writes there.
fn nodes(dev: &Path, entries: &[DeviceEntry]) -> io::Result<()> {
    let folder = dev.join("infiniband");
    fs::create_dir(&folder)?;
    (0..entries.len()).try_for_each(|index| {
        let node = folder.join(format!("uverbs{index}"));
        File::create(&node)?;
        Ok(mount_bind("/dev/null", node)?)
    })
}

/// What the kernel says of adapters.
fn files(class: &Path, entries: &[DeviceEntry]) -> io::Result<()> {
    let verbs = class.join("infiniband_verbs");
    write(&verbs, "abi_version", "6")?;
    for (index, entry) in entries.iter().enumerate() {
        let folder = verbs.join(format!("uverbs{index}"));
        write(&folder, "ibdev", &entry.name)?;
        write(&folder, "abi_version", "1")?;
        adapter(&class.join("infiniband").join(&entry.name), entry)?;
    }
    Ok(())
}

fn adapter(folder: &Path, entry: &DeviceEntry) -> io::Result<()> {
    let (interface, addresses) = entry.place();
    let guid = entry.guid();
    let words: Vec<_> = guid.chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
    let guid = words.join(":");
    for (name, text) in [
        ("node_type", "1: CA"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hw_rev", "0"),
        ("board_id", "roxe"),
        ("hca_type", "roxe"),
        ("node_desc", "roxe"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
    ] {
        write(folder, name, text)?;
    }
    if let Some(interface) = &interface {
        fs::create_dir_all(folder.join("device/net").join(interface))?;
    }
    port(&folder.join("ports/1"), interface.as_deref().unwrap_or_default(), &addresses)
}

fn port(folder: &Path, interface: &str, addresses: &[IpAddr]) -> io::Result<()> {
    for (name, text) in [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("link_layer", "Ethernet"),
        ("rate", "10 Gb/sec (1X QDR)"),
        ("lid", "0x0"),
        ("sm_lid", "0x0"),
        ("lid_mask_count", "0"),
        ("cap_mask", "0x04010000"),
        ("pkeys/0", "0xffff"),
    ] {
        write(folder, name, text)?;
    }
    for (index, address) in addresses.iter().enumerate() {
        let Gid(bytes) = Gid::from_ip(*address);
        let words: Vec<_> =
            bytes.chunks(2).map(|it| format!("{:02x}{:02x}", it[0], it[1])).collect();
        write(folder, &format!("gids/{index}"), &words.join(":"))?;
        write(folder, &format!("gid_attrs/types/{index}"), "RoCE v2")?;
        write(folder, &format!("gid_attrs/ndevs/{index}"), interface)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let file: PathBuf = folder.join(name);
    fs::create_dir_all(file.parent().unwrap_or(folder))?;
    fs::write(file, format!("{text}\n"))
}
