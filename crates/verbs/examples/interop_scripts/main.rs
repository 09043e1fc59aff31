//! The conformance scripts against Linux's own adapter, `rdma_rxe`: boots the guest of the interop
//! matrix, and runs `roxe script --peer rxe` where roxe's interface is.
//!
//! `cargo xtask interop scripts` builds guest and program, says where they are, and judges what is
//! printed here: a JSON object a script, and before them one that names the kernel. Scripts that
//! are known to differ are run once, and FOLDER/captures has their frames; others have three goes.
//! One that is known to come true is run behind those: a guest that is gone differs, too.

#[path = "../interop/agent.rs"]
#[allow(dead_code, reason = "only the guest asks here")]
mod agent;
#[path = "../interop/guest.rs"]
#[allow(dead_code, reason = "the matrix does more with it")]
mod guest;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;

use std::error::Error;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use guest::{Guest, INTERFACE};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop_scripts: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How `roxe script` ends says no more than what it prints: some scripts are to fail.
fn run() -> Outcome {
    const USAGE: &str = "usage: interop_scripts KERNEL INITRD FOLDER ROXE [OPTION…] -- [SCRIPT…] \
                         -- [LISTED…] -- [LAST…]";
    let mut words = std::env::args_os().skip(1).map(PathBuf::from);
    let mut path = || words.next().ok_or(USAGE);
    let [kernel, initrd, folder, roxe] = [path()?, path()?, path()?, path()?];
    let words: Vec<PathBuf> = words.collect();
    let mut parts = words.split(|word| word.as_os_str() == "--");
    let mut part = || parts.next().ok_or(USAGE);
    let [options, often, once, last] = [part()?, part()?, part()?, part()?];
    std::fs::create_dir_all(&folder)?;
    Guest::with(&kernel, &initrd, &folder, |guest| {
        println!("{}", serde_json::json!({ "kernel": guest.kernel }));
        // Scripts and both ends have the same addresses, so that nothing needs to be exchanged.
        let theirs = THEIRS.map(|it| format!("/usr/bin/ip address add {it} dev eth0\n"));
        guest.shell(&theirs.concat())?;
        for address in OURS {
            let line = format!("address add {address} dev {INTERFACE}");
            let done = Command::new("ip").args(line.split(' ')).status()?;
            if !done.success() {
                return Err(format!("ip {line}: {done}").into());
            }
        }
        let script = || {
            let mut script = guest::mortal(&roxe);
            script.args(["script", "--peer", "rxe", "--json", "--slack", SLACK]).args(options);
            script
        };
        std::fs::create_dir_all(folder.join("captures"))?;
        let play = |scripts: &[PathBuf]| -> Outcome {
            if !scripts.is_empty() {
                script().args(["--goes", GOES]).args(scripts).status()?;
            }
            // Another kernel than the one that was prepared lacks what scripts need.
            match guest.end() {
                None => Ok(()),
                Some(end) => Err(format!(
                    "the guest's kernel {end}; its last words:\n{}",
                    guest.last_words()
                )
                .into()),
            }
        };
        play(often)?;
        // What is known to differ is recorded, each by itself.
        for file in once {
            let into = folder.join("captures").join(capture_of(file));
            script().arg("--capture").arg(into).arg(file).status()?;
        }
        play(last)
    })
}

/// The name of a script's recording: its folder and its name.
fn capture_of(script: &Path) -> String {
    let part = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let folder = part(script.parent().and_then(Path::file_name));
    format!("{folder}-{}.pcapng", part(script.file_stem()))
}

/// A busy machine is no fault of Linux's.
const GOES: &str = "3";

/// Patience with an emulated host, in milliseconds.
const SLACK: &str = "1000";

/// The addresses of scripts: the device's, its second one, and its peers'.
const THEIRS: [&str; 3] = ["192.0.2.1/24", "192.0.2.9/24", "2001:db8::1/64 nodad"];
const OURS: [&str; 7] = [
    "192.0.2.2/24",
    "192.0.2.3/24",
    "192.0.2.7/24",
    "192.0.2.8/24",
    "192.0.2.10/24",
    "192.0.2.77/24",
    "2001:db8::2/64 nodad",
];
