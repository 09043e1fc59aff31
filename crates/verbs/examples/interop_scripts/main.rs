//! The conformance scripts against Linux's own adapter, `rdma_rxe`: boots the guest of the interop
//! matrix, and runs `roxe script --peer rxe` where roxe's interface is.
//!
//! `cargo xtask interop scripts` builds guest and program, says where they are, and judges what is
//! printed here: a JSON object a script, and before them one that names the kernel.

#[path = "../interop/agent.rs"]
#[allow(dead_code, reason = "only the guest asks here")]
mod agent;
#[path = "../interop/guest.rs"]
#[allow(dead_code, reason = "the matrix does more with it")]
mod guest;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use guest::{Guest, INTERFACE};
use namespace::is_root;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    if !is_root() {
        return ExitCode::from(3);
    }
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("interop_scripts: {error}");
            ExitCode::from(2)
        }
    }
}

/// Says how `roxe script` ended.
fn run() -> Outcome<u8> {
    const USAGE: &str = "usage: interop_scripts KERNEL INITRD FOLDER ROXE OPTION-OR-SCRIPT…";
    let mut words = std::env::args_os().skip(1).map(PathBuf::from);
    let mut path = || words.next().ok_or(USAGE);
    let [kernel, initrd, folder, roxe] = [path()?, path()?, path()?, path()?];
    let words: Vec<PathBuf> = words.collect();
    if words.is_empty() {
        return Err(USAGE.into());
    }
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
        let ended = Command::new(&roxe)
            .args(["script", "--peer", "rxe", "--json", "--slack", "2000"])
            .args(&words)
            .status()?;
        Ok(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2))
    })
}

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
