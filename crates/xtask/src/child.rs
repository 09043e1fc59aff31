//! Child processes: how they are started, watched and heard.
//!
//! A child dies with us: `setpriv` asks the kernel for that, so that a killed run leaves nothing
//! behind. Output is either passed through or kept for whoever reads it afterwards; kept output
//! shows a sign of life now and then.

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{tell, tools, workspace};

/// A command that runs at the root of the work tree and dies with us.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = if tools::on_path("setpriv").is_some() {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(workspace::root());
    command
}

/// `cargo` with these arguments, separated by blanks.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = command(workspace::cargo());
    command.args(arguments.split_whitespace());
    command
}

/// Runs a command whose output the user sees. True if it succeeded.
pub(crate) fn show(mut command: Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    Ok(status.success())
}

/// Listens to children.
pub(crate) struct Listener {
    /// Who is heard, for the signs of life.
    pub(crate) name: String,
    /// Passes the output on as it comes.
    pub(crate) verbose: bool,
}

/// What a child left behind.
pub(crate) struct Heard {
    pub(crate) success: bool,
    /// Standard output and error as they came.
    pub(crate) output: String,
}

impl Listener {
    /// Runs a command to its end and keeps what it says.
    pub(crate) fn hear(&self, mut command: Command) -> Result<Heard> {
        let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
        command
            .env("CARGO_TERM_COLOR", "never")
            .stdin(Stdio::null())
            .stdout(writer.try_clone().context("cannot make a pipe")?)
            .stderr(writer);
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        // The command holds the pipe's writing end; while it lives, the pipe has no end.
        drop(command);

        let output = self.collect(&mut child, &chunks(reader));
        let success = child.wait().context("cannot wait for a child")?.success();
        Ok(Heard { success, output: String::from_utf8_lossy(&output).into_owned() })
    }

    /// Until the pipe ends, or the child has ended and whatever it left running is silent.
    fn collect(&self, child: &mut Child, chunks: &Receiver<Vec<u8>>) -> Vec<u8> {
        let started = Instant::now();
        let mut next_sign = SIGN_OF_LIFE;
        let mut output = Vec::new();
        loop {
            match chunks.recv_timeout(Duration::from_secs(1)) {
                Ok(chunk) => {
                    if self.verbose {
                        let _ = std::io::stderr().write_all(&chunk);
                    }
                    output.extend(chunk);
                }
                Err(RecvTimeoutError::Disconnected) => return output,
                Err(RecvTimeoutError::Timeout) if matches!(child.try_wait(), Ok(Some(_))) => {
                    return output;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if started.elapsed() >= next_sign && !self.verbose {
                tell!("  … {}: {} s, {}", self.name, next_sign.as_secs(), last_line(&output));
                next_sign += SIGN_OF_LIFE;
            }
        }
    }
}

fn chunks(mut reader: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut room = [0; 8192];
        while let Ok(len @ 1..) = reader.read(&mut room) {
            if sender.send(room[..len].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn last_line(output: &[u8]) -> String {
    let tail = &output[output.len().saturating_sub(1000)..];
    let tail = String::from_utf8_lossy(tail);
    let line = tail.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("nothing said yet").chars().take(80).collect()
}

/// How often a silent child is spoken of.
const SIGN_OF_LIFE: Duration = Duration::from_secs(20);
