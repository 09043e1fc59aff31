//! Stock programs: those of rdma-core and perftest on rxe, against `roxe pingpong` and `roxe perf`.

use std::fs;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant as Clock};

use crate::Outcome;
use crate::guest::{Running, mortal};
use crate::peer::Peer;

/// A program of the peer's, with what it is told.
pub(crate) struct Program(pub(crate) &'static str);

#[rustfmt::skip]
pub(crate) const PROGRAMS: &[Program] = &[
    Program("ibv_rc_pingpong -n 200"),
    Program("ibv_rc_pingpong -n 200 -e"),
    Program("ibv_rc_pingpong -n 200 -e -c"),
    Program("ibv_rc_pingpong -n 50 -e -s 1000003 -m 4096"),
    Program("ibv_uc_pingpong -n 200"),
    Program("ibv_uc_pingpong -n 200 -e"),
    Program("ibv_uc_pingpong -n 200 -e -c"),
    Program("ibv_ud_pingpong -n 200"),
    Program("ibv_ud_pingpong -n 200 -e"),
    Program("ibv_ud_pingpong -n 200 -e -c"),
    Program("ibv_srq_pingpong -n 200"),
    Program("ibv_srq_pingpong -n 200 -e"),
    Program("ibv_srq_pingpong -n 200 -e -c"),
    Program("ib_send_bw -n 500"),
    Program("ib_send_lat -n 500"),
    Program("ib_write_bw -n 500"),
    Program("ib_write_lat -n 500"),
    Program("ib_read_bw -n 500"),
    Program("ib_read_lat -n 500"),
    Program("ib_atomic_bw -n 500"),
    Program("ib_atomic_lat -n 500"),
    Program("ib_atomic_bw -n 500 -A CMP_AND_SWAP"),
    Program("ib_send_bw -n 500 -c UC"),
    Program("ib_send_lat -n 500 -c UC"),
    Program("ib_write_bw -n 500 -c UC"),
    Program("ib_write_lat -n 500 -c UC"),
    Program("ib_send_bw -n 500 -c UD"),
    Program("ib_send_lat -n 500 -c UD"),
    Program("ib_send_bw -n 200 -q 4"),
    Program("ib_write_bw -n 200 -q 4"),
    Program("ib_read_bw -n 200 -q 4"),
    Program("ib_atomic_bw -n 200 -q 4"),
    Program("ib_send_bw -n 5 -a"),
    Program("ib_send_lat -n 5 -a"),
    Program("ib_write_bw -n 5 -a"),
    Program("ib_write_lat -n 5 -a"),
    Program("ib_read_bw -n 5 -a"),
    Program("ib_read_lat -n 5 -a"),
    Program("ib_send_bw -n 500 -s 64 --inline_size 64"),
    Program("ib_send_lat -n 500 -s 64 --inline_size 64"),
    Program("ib_write_bw -n 500 -s 64 --inline_size 64"),
    Program("ib_write_lat -n 500 -s 64 --inline_size 64"),
];

/// Those of the reduced matrix, and whether roxe is the client of one.
pub(crate) const FEW: &[(&str, bool)] = &[
    ("ibv_rc_pingpong -n 200 -e -c", true),
    ("ibv_uc_pingpong -n 200 -e -c", false),
    ("ibv_ud_pingpong -n 200 -e -c", true),
    ("ibv_srq_pingpong -n 200 -e -c", false),
    ("ib_send_bw -n 500", true),
    ("ib_write_lat -n 500", false),
    ("ib_read_bw -n 500", true),
    ("ib_atomic_lat -n 500", false),
    ("ib_send_bw -n 500 -c UD", true),
    ("ib_write_bw -n 200 -q 4", false),
    ("ib_send_bw -n 500 -s 64 --inline_size 64", true),
];

/// Longer than the kit lets one take.
const PATIENCE: Duration = Duration::from_secs(160);

/// Whether a program of the two only waited for what never came.
pub(crate) fn waited_in_vain(why: &str) -> bool {
    const SIGNS: [&str; 4] = [
        // Of `timeout`: of coreutils at either end, and of busybox, whose program is terminated.
        "exit status 124",
        "exit status: 124",
        "exit status 143",
        // What roxe says then.
        "UC and UD lose what the network does",
    ];
    SIGNS.iter().any(|it| why.contains(it))
}

impl Program {
    const fn is_pingpong(&self) -> bool {
        matches!(self.0.as_bytes(), [b'i', b'b', b'v', ..])
    }

    /// Packets that are lost are lost for good, and the programs wait for them.
    pub(crate) fn is_reliable(&self) -> bool {
        !["uc_", "ud_", "-c U"].iter().any(|it| self.0.contains(it))
    }

    /// Its name alone.
    pub(crate) fn name(&self) -> &'static str {
        self.0.split(' ').next().unwrap_or(self.0)
    }

    /// The path MTU that it asks for, if it asks for one.
    pub(crate) fn path_mtu(&self) -> u64 {
        let asked = self.0.split_once("-m ").and_then(|(_, mtu)| mtu.parse().ok());
        asked.unwrap_or_default()
    }

    /// What the peer's host runs.
    fn theirs(&self, peer: &Peer<'_>, port: u16, server: Option<IpAddr>) -> String {
        let own = match self.is_pingpong() {
            true => format!("-g {}", peer.gid),
            false => format!("-x {} -F -u 18", peer.gid),
        };
        let server = server.map_or(String::new(), |it| it.to_string());
        format!("run {} -d {} {own} -p {port} {server}", self.0, peer.device)
    }

    /// What roxe is told, for the same.
    fn ours(&self, port: u16, device: &str, server: Option<IpAddr>) -> Vec<String> {
        let (name, words) = self.0.split_once(' ').unwrap_or((self.0, ""));
        let (command, name) = match name.strip_prefix("ibv_") {
            Some(name) => ("pingpong", name.trim_end_matches("_pingpong")),
            None => ("perf", name.trim_start_matches("ib_")),
        };
        // An emulated host answers late.
        let own = if self.is_pingpong() { "" } else { "-u 18" };
        let server = server.map_or(String::new(), |it| it.to_string());
        let line = format!("{command} {name} -d {device} {words} {own} -p {port} {server}");
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Runs both ends, roxe as the client or as the server. Both must exit with 0.
    pub(crate) fn run(&self, peer: &Peer<'_>, roxe: &Path, side: &Side<'_>) -> Outcome {
        let &Side { is_client, port, device, here } = side;
        let wish = |line: String| peer.wish(PATIENCE, &line);
        // Does not outlive the peer's program by much; and whoever ends `timeout` ends it, too.
        let mut ours = mortal("timeout");
        ours.args(["--kill-after=5", &PATIENCE.as_secs().to_string()])
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .arg(roxe);
        ours.args(self.ours(port, device, is_client.then_some(peer.agent.ip())))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let theirs = self.theirs(peer, port, (!is_client).then_some(here));
        thread::scope(|scope| {
            let start = |script| scope.spawn(|| wish(script));
            const FAILED: &str = "the thread of the peer's program failed";
            let (mut running, theirs) = if is_client {
                let theirs = start(theirs);
                // Nobody else is asked whether it listens: it takes the first connection.
                if let Err(deaf) = wish(format!("listens {port}")) {
                    // What kept it from that says more.
                    let why = theirs.join().map_err(|_| FAILED)?;
                    let why = why.map_or_else(|why| why.to_string(), |said| last(&said).to_owned());
                    return Err(format!("{why}; {deaf}").into());
                }
                (Running(ours.spawn()?), theirs)
            } else {
                let mut child = Running(ours.spawn()?);
                wait_for_listener(&mut child.0, port)?;
                (child, start(theirs))
            };
            let child = &mut running.0;
            let theirs = theirs.join().map_err(|_| FAILED)?;
            if theirs.is_err() {
                // Whoever is alone waits in vain.
                thread::sleep(Duration::from_secs(1));
                let _ = child.kill();
            }
            let (status, complaint) = ended(child)?;
            match theirs {
                Ok(_) if status.success() => Ok(()),
                Ok(said) => Err(format!("{complaint}; {}", last(&said)).into()),
                Err(why) => Err(format!("{why}; {complaint}").into()),
            }
        })
    }
}

/// How one of our ends is.
pub(crate) struct Side<'a> {
    pub(crate) is_client: bool,
    /// Of TCP: of each run another.
    pub(crate) port: u16,
    pub(crate) device: &'a str,
    pub(crate) here: IpAddr,
}

/// How roxe ended, and what it said of that.
fn ended(child: &mut Child) -> Outcome<(ExitStatus, String)> {
    let [mut out, mut err] = [String::new(), String::new()];
    child.stdout.take().ok_or("no output")?.read_to_string(&mut out)?;
    child.stderr.take().ok_or("no errors")?.read_to_string(&mut err)?;
    let status = child.wait()?;
    Ok((status, format!("roxe: {status}: {}", err.trim())))
}

/// Until roxe listens, which runs in this host's namespace.
///
/// # Errors
/// It does not, or it has ended, with what it said.
fn wait_for_listener(roxe: &mut Child, port: u16) -> Outcome {
    let start = Clock::now();
    let wanted = format!(":{port:04X}");
    while start.elapsed() < Duration::from_secs(30) {
        for table in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
            let sockets = fs::read_to_string(table)?;
            let listens = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                matches!(words[..], [_, local, _, "0A", ..] if local.ends_with(&wanted))
            };
            if sockets.lines().any(listens) {
                return Ok(());
            }
        }
        if roxe.try_wait()?.is_some() {
            return Err(format!("{}; it did not listen", ended(roxe)?.1).into());
        }
        thread::sleep(Duration::from_millis(50));
    }
    Err("roxe does not listen".into())
}

fn last(text: &str) -> &str {
    text.trim_end().lines().last().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest;

    #[test]
    fn who_got_wrong_data_did_not_wait_in_vain() {
        let peer = |status: u8, said: &str| {
            let ended = guest::ended(&format!("{said}\nstatus {status}\n"), "run ibv_uc_pingpong");
            waited_in_vain(&ended.expect_err("it failed").to_string())
        };
        assert!(peer(143, "Terminated") && peer(124, ""));
        assert!(!peer(1, "invalid data in page 0"));
        assert!(!waited_in_vain("roxe: exit status: 1: roxe: invalid data in page 0"));
        let roxe = "nothing more came within 10 s after 7 messages: do packets get through? UC and \
                    UD lose what the network does";
        assert!(waited_in_vain(&format!("roxe: exit status: 1: roxe: {roxe}")));
    }
}
