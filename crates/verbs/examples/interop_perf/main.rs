//! The same work by Linux's own adapter, `rdma_rxe`, and by roxe, in the same two guests.
//!
//! As root: two guests of the interop matrix boot in QEMU behind taps on one bridge, in a network
//! namespace. perftest's programs measure rxe, `roxe perf` with the same flags roxe, on AF_XDP and
//! over UDP; they take turns. `cargo xtask interop perf` builds guests and program, says where they
//! are, and makes a table of what is printed here: a JSON object a run, and before them one about
//! the guests.

#[path = "../interop/agent.rs"]
#[allow(dead_code, reason = "only the guest asks here")]
mod agent;
#[path = "../interop/guest.rs"]
#[allow(dead_code, reason = "the matrix does more with it")]
mod guest;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
mod work;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use guest::Guest;
use work::{Adapter, Work};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop_perf: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    const USAGE: &str = "usage: interop_perf KERNEL INITRD FOLDER ROUNDS [WORD…]";
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or(USAGE);
    let [kernel, initrd, folder] = [word()?, word()?, word()?].map(PathBuf::from);
    let rounds: usize = word()?.parse().map_err(|_| USAGE)?;
    let only: Vec<String> = words.collect();
    let works: Vec<&Work> = work::ALL.iter().filter(|work| work.has(&only)).collect();
    if works.is_empty() {
        return Err("nothing that is measured has such a name".into());
    }
    std::fs::create_dir_all(&folder)?;
    eprintln!("two guests boot");
    Guest::pair(&kernel, &initrd, &folder, |guests| {
        let [server, client] = guests;
        eprintln!("guests: Linux {}, booted in {:.1?}", client.kernel, client.booted);
        let mode = mode(client)?;
        println!("{}", serde_json::json!({ "kernel": client.kernel, "af_xdp": mode }));
        let mut port = FIRST_PORT;
        // There and back, so that nobody is always the first, and adapters change less often.
        let mut turns = Adapter::ALL;
        for round in 1..=rounds {
            for work in &works {
                for adapter in turns {
                    let figure = measure(server, client, adapter, work, &mut port)?;
                    let (name, of, unit) = (work.name, adapter.name(), work.metric.unit());
                    eprintln!("{round} of {rounds}: {name}, {of}: {figure:.1} {unit}");
                    let row = serde_json::json!({
                        "row": name, "adapter": of, "unit": unit, "figure": figure,
                        "less_is_better": work.metric.less_is_better(),
                    });
                    println!("{row}");
                }
                turns.reverse();
            }
        }
        Ok(())
    })
}

/// How AF_XDP is had in the guest, in the words of `roxe devinfo`.
fn mode(guest: &Guest) -> Outcome<String> {
    let said = guest.shell(&format!("{}\nroxe devinfo -v -d {XDP}", Adapter::Xdp.comes()))?;
    let mode = said.lines().find_map(|line| line.trim().strip_prefix("mode:"));
    let mode = mode.and_then(|mode| mode.split_once(": ")).map(|(_, mode)| mode.trim().to_owned());
    mode.ok_or_else(|| format!("roxe devinfo names no mode: {said}").into())
}

/// One run. One that fails is begun anew, twice at most; a guest whose kernel does not survive it
/// is reset.
fn measure(
    server: &Guest,
    client: &Guest,
    adapter: Adapter,
    work: &Work,
    port: &mut u16,
) -> Outcome<f64> {
    let mut go = || {
        *port += 1;
        attempt(server, client, adapter, work, *port)
    };
    for _ in 0..2 {
        match go() {
            Ok(figure) => return Ok(figure),
            Err(why) => eprintln!("once more: {}, {}: {why}", work.name, adapter.name()),
        }
        for guest in [server, client] {
            if let Some(end) = guest.end() {
                eprintln!("its kernel {end}, and is reset:\n{}", guest.last_words());
                guest.reset()?;
            }
        }
    }
    go()
}

/// Has both guests change to an adapter and do the work; says what the client's program measured.
fn attempt(
    server: &Guest,
    client: &Guest,
    adapter: Adapter,
    work: &Work,
    port: u16,
) -> Outcome<f64> {
    let patience = Duration::from_secs(work::LONGEST_S + 20);
    let script = |guest: &Guest, to: Option<&Guest>| {
        let line = work.line(adapter, guest.address, port, to.map(|it| it.address));
        format!("{}\n{line}", adapter.comes())
    };
    thread::scope(|scope| {
        let answers = scope.spawn(|| server.shell_for(patience, &script(server, None)));
        // Nobody else is asked whether it listens: it takes the first connection.
        let listens = server.shell(&format!(
            "for go in $(seq 300); do\n\
             grep -q ':{port:04X} .* 0A' /proc/net/tcp /proc/net/tcp6 && exit; sleep 0.1\n\
             done; echo 'nobody listens at port {port}'; exit 1"
        ));
        let said = listens.and_then(|_| client.shell_for(patience, &script(client, Some(server))));
        let answered = answers.join().map_err(|_| "the thread of the server failed")?;
        match (said, answered) {
            (Ok(said), Ok(_)) => {
                work.metric.read(&said).ok_or_else(|| format!("no figure in: {said}").into())
            }
            (Err(why), Ok(_)) | (Ok(_), Err(why)) => Err(why),
            // What kept the server from its work says more.
            (Err(client), Err(server)) => Err(format!("{server}; {client}").into()),
        }
    })
}

/// roxe's adapter on the guest's interface.
const XDP: &str = "xdp:eth0";

/// Of the TCP ports at which programs meet: of each run another.
const FIRST_PORT: u16 = 20_000;
