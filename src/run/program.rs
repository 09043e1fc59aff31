//! The program: how it is begun, so that it ends with us, and whether it can use our libraries.
//!
//! The libraries lie in `../lib/roxe` beside this program where it is installed, and in `lib` where
//! it was built.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, id};

use anyhow::Result;
use rustix::fs::getxattr;
use rustix::process::{
    Pid, Signal, getegid, getgid, getppid, getuid, set_parent_process_death_signal,
};

use super::rights;
use crate::outcome::{Outcome, complain};

/// A command that begins the program by way of this one, which sees to it that the program does
/// not outlive us: the kernel tells only the process that asks, and only of a parent that it still
/// has.
///
/// It hands on to the program what AF_XDP takes, if it shall.
pub(super) fn begin(hands_on: bool, program: &OsStr, arguments: &[OsString]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("run").args(["--begun-by", &id().to_string()]);
    command.args(hands_on.then_some("--hand-on")).arg("--").arg(program).args(arguments);
    command.envs(rights::hidden_variables());
    command
}

/// Becomes the program, which gets our libraries and dies when its parent does, whatever that dies
/// of. Returns only if there is no such program.
///
/// The libraries are named here and not to the command that comes here: of a `roxe` with
/// capabilities the loader would take them out.
pub(super) fn become_it(
    parent: u32,
    hands_on: bool,
    program: &OsStr,
    arguments: &[OsString],
) -> Result<Outcome> {
    // Where it cannot be asked for, the program runs all the same.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    if getppid() != parent {
        return Ok(Outcome::Lacking); // It died before we could ask.
    }
    if hands_on {
        // Where it fails, the library says what it lacks.
        let _ = rights::hand_on();
    }
    let hidden = rights::hidden_variables();
    let mut command = Command::new(program);
    if let Some(libraries) = libraries()? {
        let is_path = |(name, _): &&(OsString, OsString)| name == LIBRARY_PATH;
        let theirs = hidden.iter().find(is_path).map(|(_, value)| value.clone());
        command.envs(hidden);
        command.env(LIBRARY_PATH, before(libraries, theirs.or_else(|| env::var_os(LIBRARY_PATH))));
    }
    let error = command.args(arguments).exec();
    complain(format_args!("{}: {error}", program.to_string_lossy()));
    Ok(Outcome::Lacking)
}

/// The folder of the libraries.
pub(super) fn libraries() -> io::Result<Option<PathBuf>> {
    let program = env::current_exe()?.canonicalize()?;
    let beside = program.parent().unwrap_or_else(|| Path::new("/"));
    let places = [beside.join("../lib/roxe"), beside.join("lib")];
    Ok(places.into_iter().find(|place| place.join(LIBRARY).exists()))
}

fn before(first: PathBuf, others: Option<OsString>) -> OsString {
    let mut path = first.into_os_string();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    path
}

pub(super) const LIBRARY: &str = "libibverbs.so.1";

/// The variable in which the loader finds folders of libraries.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Why a program does not get the libraries that are named to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deaf {
    /// It has none but its own.
    Static,
    /// It runs as somebody else, or may more than we: then nobody may name it libraries.
    Privileged,
}

impl fmt::Display for Deaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => {
                "it is linked statically, so that it does not use our libraries and finds no \
                 adapter of ours"
            }
            Self::Privileged => {
                "it gets other rights when it is started (setuid, setgid or capabilities), so \
                 that the loader hides our libraries from it: start it as the user whose rights \
                 it gets, or take capabilities from it (`setcap -r`) and give them to `roxe`"
            }
        })
    }
}

/// Whether the program will not see our libraries. `None` too where that cannot be seen.
pub(super) fn is_deaf(program: &OsStr) -> Option<Deaf> {
    let path = find(program)?;
    if gets_rights(&path) {
        return Some(Deaf::Privileged);
    }
    let mut head = Vec::new();
    File::open(path).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    is_static(&head)?.then_some(Deaf::Static)
}

/// Where the program is that would be started.
fn find(program: &OsStr) -> Option<PathBuf> {
    if Path::new(program).components().count() > 1 {
        return Some(program.into());
    }
    let can_run = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(can_run)
}

fn gets_rights(path: &Path) -> bool {
    const SETUID: u32 = 0o4000;
    const SETGID: u32 = 0o2000;
    let Ok(about) = fs::metadata(path) else { return false };
    let other_user = about.mode() & SETUID != 0 && about.uid() != getuid().as_raw();
    let groups = [getgid(), getegid()].map(|group| group.as_raw());
    let other_group = about.mode() & SETGID != 0 && !groups.contains(&about.gid());
    // Of root, capabilities of a file make nothing more.
    let room: &mut [u8] = &mut [0; 64];
    let capable = !getuid().is_root() && getxattr(path, "security.capability", room).is_ok();
    other_user || other_group || capable
}

/// Whether a program of ELF, 64 bits and little endian, names no loader. `None` where it is none.
fn is_static(head: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let two = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let eight = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let table = usize::try_from(eight(32)?).ok()?;
    let (size, count) = (usize::from(two(54)?), usize::from(two(56)?));
    let end = table.checked_add(size.checked_mul(count)?)?;
    let kinds = head.get(table..end)?.chunks(size.max(4)).map(|entry| entry.first_chunk::<4>());
    Some(!kinds.flatten().any(|kind| u32::from_le_bytes(*kind) == INTERPRETER))
}

/// Of a file so much is read: its table of segments lies at the beginning.
const HEAD: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with one segment of this kind.
    fn elf(kind: u32) -> Vec<u8> {
        let mut head = vec![0; 64 + 56];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (head[32], head[54], head[56]) = (64, 56, 1);
        head[64..68].copy_from_slice(&kind.to_le_bytes());
        head
    }

    #[test]
    fn who_names_a_loader_is_not_static() {
        assert_eq!(is_static(&elf(3)), Some(false));
        assert_eq!(is_static(&elf(1)), Some(true));
        assert_eq!(is_static(b"#!/bin/sh"), None);
    }

    #[test]
    fn a_broken_header_is_nothing_to_tell_of() {
        let whole = elf(3);
        assert!((0..whole.len()).all(|len| is_static(&whole[..len]).is_none()));
        let mut wild = whole;
        wild[32..40].fill(0xff);
        assert_eq!(is_static(&wild), None);
        let mut empty = elf(3);
        (empty[54], empty[56]) = (0, 9);
        assert_eq!(is_static(&empty), Some(true));
    }

    #[test]
    fn programs_are_found_as_they_are_started() {
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find(OsStr::new("./sh")), Some("./sh".into()));
        assert_eq!(find(OsStr::new("no-such-program")), None);
        assert_eq!(is_deaf(OsStr::new("sh")), None);
    }
}
