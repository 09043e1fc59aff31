//! The matrix: how each cell of it went.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant as Clock};

use roxe_verbs::ServiceType;

use crate::Outcome;
use crate::batch::{Batch, Family};
use crate::end::End;
use crate::faults::Fault;
use crate::guest::INTERFACE;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::plan::{Item, Play, Port};
use crate::programs::{Program, Side};
use crate::report::{Progress, Row, Verdict};
use crate::scenario::{self, Scenario};
use crate::theirs::Theirs;

/// Does them all. Whether all were right.
pub(crate) fn run(
    peer: &Peer<'_>,
    plan: &[Item],
    folder: &Path,
    roxe: &Path,
    keep: bool,
) -> Outcome<bool> {
    let mut progress = Progress::new(plan.len());
    let mut bad = None;
    for (seed, item) in (1..).zip(plan) {
        let network = match &item.play {
            Play::Faulty(fault, _) | Play::Soak(fault, _) => Some(*fault),
            _ => None,
        };
        let network = network.filter(|_| peer.guest.is_some());
        let start = Clock::now();
        let (table, row, column) = item.place();
        let file = item.name().replace([' ', ',', '%', '\''], "-");
        let capture = folder.join(format!("{file}.pcapng"));
        let cell = Cell { peer, item, seed, capture: &capture, roxe };
        let mut cells = item.cells();
        let verdict = match item.not_applicable(peer) {
            Some(why) => Verdict::NotApplicable(why),
            None => {
                // One of an earlier run shows nothing of this one.
                let _ = fs::remove_file(&capture);
                match cell.play_in(&mut bad, network)? {
                    Ok(Played { messages, but }) => {
                        if !keep {
                            let _ = fs::remove_file(&capture);
                        }
                        cells = messages.unwrap_or(cells);
                        but.map_or(Verdict::Right, Verdict::But)
                    }
                    Err(why) if capture.exists() => {
                        Verdict::Wrong(format!("{why} (recorded: {file}.pcapng)"))
                    }
                    Err(why) => Verdict::Wrong(why.to_string()),
                }
            }
        };
        progress.row(&Row {
            kernel: &peer.name,
            port: item.port.name(),
            table,
            row,
            column,
            cells,
            seconds: start.elapsed().as_secs_f64(),
            verdict,
        });
    }
    Ok(progress.finish())
}

/// What makes the guest's network bad, if anything does; nothing where that is not known.
type Bad<'f> = Option<Option<&'f Fault>>;

/// A cell that is played.
struct Cell<'a> {
    peer: &'a Peer<'a>,
    item: &'a Item,
    seed: u32,
    capture: &'a Path,
    roxe: &'a Path,
}

/// How something went that was right.
#[derive(Default)]
struct Played {
    /// How many messages there were, if that was not known before.
    messages: Option<usize>,
    /// What it was not right without.
    but: Option<String>,
}

/// 134 ms, where packets are lost.
const LOSSY_TIMEOUT: u8 = 15;

/// TCP ports of programs begin here.
const FIRST_PORT: u16 = 20_000;

/// How often a batch is tried.
const GOES: usize = 3;

impl Cell<'_> {
    /// Makes the network as bad as it is to be, and plays. A guest whose kernel does not survive
    /// it is reset for a second go: whatever a kernel receives, that is no fault of the sender's.
    ///
    /// # Errors
    /// There is no guest any more, so that nothing else can be played.
    fn play_in<'f>(
        &self,
        bad: &mut Bad<'f>,
        network: Option<&'f Fault>,
    ) -> Outcome<Outcome<Played>> {
        let first = self.go(bad, network);
        let Some(died) = self.mend(bad, &first)? else { return Ok(first) };
        let second = self.go(bad, network);
        self.mend(bad, &second)?;
        Ok(second.map(|Played { messages, but }| {
            let but = but.map_or_else(|| died.clone(), |but| format!("{died}; {but}"));
            Played { messages, but: Some(but) }
        }))
    }

    /// Resets the guest if its kernel has not survived what failed; says that it did.
    fn mend(&self, bad: &mut Bad<'_>, done: &Outcome<Played>) -> Outcome<Option<String>> {
        let (Err(why), Some(guest)) = (done, self.peer.guest) else { return Ok(None) };
        let Some(end) = guest.end() else { return Ok(None) };
        eprintln!("the guest's kernel {end}; its last words:\n{}", guest.last_words());
        *bad = None;
        guest.reset()?;
        Ok(Some(format!("its kernel {end} in the first go, and was reset ({why})")))
    }

    fn go<'f>(&self, bad: &mut Bad<'f>, network: Option<&'f Fault>) -> Outcome<Played> {
        let is_it = |it: Option<&Fault>| it.map(|it| it.name) == network.map(|it| it.name);
        if let Some(guest) = self.peer.guest.filter(|_| !bad.is_some_and(is_it)) {
            // It may stop half-way.
            *bad = None;
            network.map_or_else(|| Fault::end(guest), |it| it.begin(guest))?;
            *bad = Some(network);
        }
        self.play()
    }

    fn play(&self) -> Outcome<Played> {
        match &self.item.play {
            Play::Batch(batch) => {
                return Ok(Played { messages: None, but: self.often_enough(batch)? });
            }
            Play::Soak(_, how_long) => {
                return Ok(Played { messages: Some(self.soak(*how_long)?), but: None });
            }
            // What both count is no question then, nor what was sent again.
            Play::Faulty(_, batch) => {
                batch.run_with(&mut self.ends()?, self.seed, LOSSY_TIMEOUT)?;
            }
            Play::Scenario(scenario, from) => self.scenario(scenario, *from)?,
            Play::Reboot(from) => self.reboot(*from)?,
            Play::Program(program, is_client) => self.program(program, *is_client)?,
        }
        Ok(Played::default())
    }

    /// The device string, and our address.
    fn device(&self) -> Outcome<(String, IpAddr)> {
        let [here, _] = self.peer.addresses(self.item.family())?;
        // A soak is too much to be recorded.
        let capture = match &self.item.play {
            Play::Soak(..) => String::new(),
            _ => format!(",capture={}", self.capture.display()),
        };
        let device = match (&self.peer.via, self.item.port, self.item.family()) {
            (Some(via), ..) => via.clone(),
            (None, Port::Xdp, Family::Vlan) => {
                format!("xdp:{INTERFACE},mode=native,own={here}/24,vlan={}", Family::VLAN)
            }
            (None, Port::Xdp, _) => format!("xdp:{INTERFACE},mode=native"),
            // What a socket receives comes without the identification of IPv4, which the ICRC
            // covers, and rxe counts there.
            (None, Port::Udp, _) => format!("udp:{here},verify=off"),
        };
        Ok((device + &capture, here))
    }

    fn ours(&self) -> Outcome<Box<dyn End>> {
        let (device, here) = self.device()?;
        Ok(Box::new(Ours::open(&device, here)?))
    }

    fn theirs(&self) -> Outcome<Box<dyn End>> {
        let [_, there] = self.peer.addresses(self.item.family())?;
        Ok(Box::new(Theirs::open(self.peer, there)?))
    }

    /// What the peer counted beside traffic. Of an adapter whose counters are not known, only
    /// losses by the names that others have for them.
    fn counted(&self, after: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> Counted {
        let mut counted = Counted::of(after, before, THEIRS);
        if !self.peer.is_rxe {
            counted.0.retain(|name, _| LOSSES.contains(&name.as_str()));
        }
        counted
    }

    fn ends(&self) -> Outcome<[Box<dyn End>; 2]> {
        Ok([self.ours()?, self.theirs()?])
    }

    /// A busy machine may lose packets between the two, which both count and an unreliable service
    /// does not survive: there are three goes. What a reliable one does must be right in each.
    /// Says what was counted of losses where none was without.
    fn often_enough(&self, batch: &Batch) -> Outcome<Option<String>> {
        let mut done = self.batch(batch);
        for _ in 1..GOES {
            let again = match &done {
                Ok(lost) => lost.is_some(),
                Err(_) => batch.op.service() != ServiceType::Rc,
            };
            if !again {
                break;
            }
            done = self.batch(batch);
        }
        done
    }

    /// Says what was counted of losses, if anything was.
    fn batch(&self, batch: &Batch) -> Outcome<Option<String>> {
        let mut ends = self.ends()?;
        let before = ends[1].counters()?;
        batch.run(&mut ends, self.seed)?;
        let after = [ends[0].counters()?, ends[1].counters()?];
        drop(ends);
        let ours = Counted::of(&after[0], &BTreeMap::new(), OURS).losses("roxe", &[])?;
        let theirs = self.counted(&after[1], &before).losses(self.peer.kind(), &[])?;
        // What a socket receives over IPv4 is recorded with an identification that it had not.
        if self.item.port == Port::Xdp || self.item.family() == Family::V6 {
            judge(self.roxe, self.capture)?;
        }
        let lost = [ours, theirs].into_iter().flatten();
        let lost = lost.reduce(|one, other| format!("{one}; {other}"));
        Ok(lost.map(|it| format!("not without losses on the way: {it}")))
    }

    fn scenario(&self, scenario: &Scenario, from: usize) -> Outcome {
        let mut ends = self.ends()?;
        let before = ends[1].counters()?;
        scenario.play(&mut ends, from)?;
        let after = [ends[0].counters()?, ends[1].counters()?];
        drop(ends);
        // A peer that is slow may be asked again.
        let late = [OURS, LATE, REPEATED].concat();
        let ours = Counted::of(&after[0], &BTreeMap::new(), &late);
        let ours = ours.losses("roxe", scenario.roxe[from]);
        let theirs = self.counted(&after[1], &before);
        let due = if self.peer.is_rxe { scenario.rxe[1 - from] } else { &[] };
        match (ours, theirs.losses(self.peer.kind(), due)) {
            (Ok(_), Ok(_)) => Ok(()),
            (Err(ours), Err(theirs)) => Err(format!("{ours}; {theirs}").into()),
            (Err(one), _) | (_, Err(one)) => Err(one),
        }
    }

    fn soak(&self, how_long: Duration) -> Outcome<usize> {
        let mut ends = self.ends()?;
        let before = ends[1].counters()?;
        let messages = scenario::soak(&mut ends, how_long)?;
        let after = [ends[0].counters()?, ends[1].counters()?];
        let ours = [OURS, REPEATED].concat();
        Counted::of(&after[0], &BTreeMap::new(), &ours).losses("roxe", &[])?;
        self.counted(&after[1], &before).losses(self.peer.kind(), &[])?;
        Ok(messages)
    }

    fn program(&self, program: &Program, is_client: bool) -> Outcome {
        let (device, here) = self.device()?;
        let mut port = FIRST_PORT + (self.seed % 10_000) as u16 * GOES as u16;
        let side = |port| Side { is_client, port, device: &device, here };
        let mut done = program.run(self.peer, self.roxe, &side(port));
        for _ in 1..GOES {
            if done.is_ok() || program.is_reliable() {
                break;
            }
            port += 1;
            done = program.run(self.peer, self.roxe, &side(port));
        }
        done
    }

    fn reboot(&self, from: usize) -> Outcome {
        scenario::rebooted(self.ends()?, from, |end| {
            if from == 0 {
                self.peer.guest.ok_or("whose host is it?")?.reset()?;
                return self.theirs();
            }
            drop(end);
            self.ours()
        })
    }
}

/// What may be counted where nothing goes wrong.
#[rustfmt::skip]
const OURS: &[&str] = &[
    "ack_sent", "capture_files", "capture_frames", "multicast_copies", "owned_rx", "owned_tx",
    "rcvd_pkts",
    "rdma_rx_bytes", "rdma_rx_packets", "rdma_tx_bytes", "rdma_tx_packets", "rx_atomic_requests",
    "rx_bytes", "rx_calls", "rx_joined", "rx_packets", "rx_read_requests", "rx_write_requests",
    "sent_pkts", "tx_bytes", "tx_calls", "tx_joined", "tx_kicks", "tx_packets", "xdp_announced",
    "xdp_owned", "xdp_passed", "xdp_redirected",
    // What the guest's kernel tells groups of routers.
    "xdp_extension",
];
/// An acknowledgement that `ack_deferred` counts was handled a little later, by a work queue.
const THEIRS: &[&str] = &["ack_deferred", "rcvd_pkts", "rdma_recvs", "rdma_sends", "sent_pkts"];

/// What is counted where packets were lost, or sent again.
#[rustfmt::skip]
const LOSSES: &[&str] = &[
    "completer_retry_err", "duplicate_request", "ghost_response", "implied_nak_seq_err",
    "local_ack_timeout_err", "nak_sequence_sent", "out_of_seq_request", "out_of_sequence",
    "packet_seq_err", "rcvd_seq_err", "retrans_pkts", "rx_socket_overflow", "rxe_out_of_sequence",
    // This host was too slow.
    "xsk_fill_ring_empty", "xsk_rx_dropped", "xsk_rx_ring_full",
];

/// Packets that were on their way to a queue pair when it ended.
const LATE: &[&str] = &["wrong_qp_state"];

/// What is answered again.
const REPEATED: &[&str] = &["atomic_replayed", "duplicate_dropped", "read_replayed"];

/// What was counted beside traffic.
struct Counted(BTreeMap<String, u64>);

impl Counted {
    fn of(after: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>, benign: &[&str]) -> Self {
        let more = |(key, value): (&String, &u64)| {
            let more = value.saturating_sub(*before.get(key).unwrap_or(&0));
            (more > 0 && !benign.contains(&key.as_str())).then(|| (key.clone(), more))
        };
        Self(after.iter().filter_map(more).collect())
    }

    /// What was counted of losses. Whatever else is not `due` is an error, and so is what is due
    /// and was not counted.
    fn losses(mut self, name: &str, due: &[&str]) -> Outcome<Option<String>> {
        let missing: Vec<_> = due.iter().filter(|key| self.0.remove(**key).is_none()).collect();
        let (lost, wrong): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(key, _)| LOSSES.contains(&key.as_str()));
        let list = |of: &[(&String, &u64)]| {
            let words: Vec<_> = of.iter().map(|(key, value)| format!("{key} {value}")).collect();
            format!("{name} counts {}", words.join(", "))
        };
        if !wrong.is_empty() {
            return Err(list(&wrong).into());
        }
        if !missing.is_empty() {
            return Err(format!("{name} does not count {missing:?}").into());
        }
        Ok((!lost.is_empty()).then(|| list(&lost)))
    }
}

/// Whether the protocol was obeyed in a recording.
fn judge(roxe: &Path, capture: &Path) -> Outcome {
    let output = Command::new(roxe).arg("check").arg(capture).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Err(format!("roxe check: {}", said.lines().next().unwrap_or("failed")).into())
}
