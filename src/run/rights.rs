//! What AF_XDP takes, handed on from `roxe` to the program.
//!
//! From a program that gets capabilities by its own file the loader hides our libraries. From one
//! that has them of who starts it (ambient ones) it does not, so that the file of `roxe` is the one
//! to give them to.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::{env, fs, io};

use rustix::process::{geteuid, getuid};
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_ambient_set, configure_capability_in_ambient_set,
    set_capabilities,
};

/// What AF_XDP takes; CAP_IPC_LOCK for its frames.
const AF_XDP: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK);

/// Has whatever this thread becomes next keep what AF_XDP takes, as far as we have it. Of root
/// nothing changes: what it starts is root's too.
pub(super) fn hand_on() -> io::Result<()> {
    if is_root() {
        return Ok(());
    }
    let mut sets = capabilities(None)?;
    let given = sets.permitted & AF_XDP;
    sets.inheritable |= given;
    set_capabilities(None, sets)?;
    Ok(given.iter().try_for_each(|one| configure_capability_in_ambient_set(one, true))?)
}

/// Gives up what the file of `roxe` gave: who waits for a program needs none of it, and only a
/// process that may no more than the program lets it open files by /proc. What starts with rights
/// of that file gets them anew.
pub(super) fn give_up() -> io::Result<()> {
    if is_root() {
        return Ok(());
    }
    let mut sets = capabilities(None)?;
    let is_ambient = |one: &CapabilitySet| capability_is_in_ambient_set(*one).unwrap_or(false);
    sets.permitted = sets.permitted.iter().filter(is_ambient).collect();
    sets.effective &= sets.permitted;
    Ok(set_capabilities(None, sets)?)
}

fn is_root() -> bool {
    getuid().is_root() || geteuid().is_root()
}

/// Variables such as LD_LIBRARY_PATH, which the loader takes from a program with capabilities of
/// its file, and the kernel still has: they are meant for the program that we start.
pub(super) fn hidden_variables() -> Vec<(OsString, OsString)> {
    let all = fs::read("/proc/self/environ").unwrap_or_default();
    let variable = |text: &[u8]| {
        let (name, value) = text.split_at(text.iter().position(|byte| *byte == b'=')?);
        let [name, value] = [name, &value[1..]].map(OsStr::from_bytes);
        let is_hidden = !name.is_empty() && env::var_os(name).is_none();
        is_hidden.then(|| (name.to_owned(), value.to_owned()))
    };
    all.split(|byte| *byte == 0).filter_map(variable).collect()
}
