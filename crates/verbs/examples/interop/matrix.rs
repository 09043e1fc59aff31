//! The matrix: how each cell of it went.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant as Clock};

use roxe_verbs::ServiceType;

use crate::batch::{Batch, Family, Missing, TIMEOUT};
use crate::end::End;
use crate::faults::Fault;
use crate::guest::INTERFACE;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::plan::{Item, Play, Port};
use crate::programs::{self, Program, Side};
use crate::report::{Progress, Row, Verdict};
use crate::scenario::{self, Scenario};
use crate::theirs::Theirs;
use crate::{Failure, Outcome};

/// Does them all. Whether all were right.
pub(crate) fn run(
    peer: &Peer<'_>,
    plan: &[Item],
    folder: &Path,
    roxe: &Path,
    keep: bool,
) -> Outcome<bool> {
    // Whoever reads the rows knows by that whether they are all.
    println!("{}", serde_json::json!({ "planned": plan.len() }));
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
                cell.forget();
                match cell.play_in(&mut bad, network)? {
                    Ok(Played { messages, but }) => {
                        if !keep {
                            cell.forget();
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
const GOES: u16 = 3;

impl Cell<'_> {
    /// Removes its recordings.
    fn forget(&self) {
        for capture in [self.capture, &self.second_capture()] {
            let _ = fs::remove_file(capture);
        }
    }

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
            let played = self.play()?;
            network.map_or(Ok(()), |it| it.must_have_met(guest))?;
            *bad = Some(network);
            return Ok(played);
        }
        self.play()
    }

    fn play(&self) -> Outcome<Played> {
        let but = |but| Played { messages: None, but };
        match &self.item.play {
            Play::Batch(batch) => self.often_enough(batch).map(but),
            Play::Soak(_, how_long) => {
                Ok(Played { messages: Some(self.soak(*how_long)?), but: None })
            }
            // What both count is no question then, nor what was sent again.
            Play::Faulty(_, batch) => {
                batch.run(&mut self.ends(self.capture)?, self.seed, LOSSY_TIMEOUT)?;
                Ok(Played::default())
            }
            Play::Scenario(scenario, from) => {
                self.scenario(scenario, *from).map(|()| Played::default())
            }
            Play::Reboot(from) => self.reboot(*from).map(|()| Played::default()),
            Play::Program(program, is_client) => self.program(program, *is_client).map(but),
        }
    }

    /// The device string, with a recording of this name, and our address.
    fn device(&self, capture: &Path) -> Outcome<(String, IpAddr)> {
        let [here, _] = self.peer.addresses(self.item.family())?;
        let capture = match self.is_recorded() {
            false => String::new(),
            true => format!(",capture={}", capture.display()),
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

    /// A soak is too much for that.
    const fn is_recorded(&self) -> bool {
        !matches!(self.item.play, Play::Soak(..))
    }

    fn ours(&self, capture: &Path) -> Outcome<Box<dyn End>> {
        let (device, here) = self.device(capture)?;
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

    fn ends(&self, capture: &Path) -> Outcome<[Box<dyn End>; 2]> {
        Ok([self.ours(capture)?, self.theirs()?])
    }

    /// Plays something; says what ours counted but for what is `benign`, and what the peer counted
    /// beside traffic.
    ///
    /// # Errors
    /// Ours has recorded no frame, or rxe has counted none: what they count is no witness then.
    fn counting<T>(
        &self,
        benign: &[&str],
        play: impl FnOnce(&mut [Box<dyn End>; 2]) -> Outcome<T>,
    ) -> Outcome<(T, [Counted; 2])> {
        let mut ends = self.ends(self.capture)?;
        let before = [BTreeMap::new(), ends[1].counters()?];
        let played = play(&mut ends)?;
        let after = [ends[0].counters()?, ends[1].counters()?];
        drop(ends);
        let ours = Counted::of(&after[0], &before[0], &[]);
        if self.is_recorded() && !ours.has_any(&["capture_frames"]) {
            return Err("roxe has recorded no frame".into());
        }
        let theirs = Counted::of(&after[1], &before[1], &[]);
        // Of a queue pair that is gone it counts nothing.
        let is_gone = matches!(&self.item.play, Play::Scenario(it, from) if it.is_gone(1, *from));
        if self.peer.is_rxe && !is_gone && !theirs.has_any(&["rcvd_pkts", "sent_pkts"]) {
            return Err("rxe counts no packet at all".into());
        }
        let ours = Counted::of(&after[0], &before[0], benign);
        Ok((played, [ours, self.counted(&after[1], &before[1])]))
    }

    /// A busy machine may lose packets between the two, which both count and an unreliable service
    /// does not survive: there are three goes. What arrives must be right in each, and of a
    /// reliable service all must. Says what was counted of losses where none was without, or what
    /// did not arrive at first.
    fn often_enough(&self, batch: &Batch) -> Outcome<Option<String>> {
        let is_lost = |why: &Failure| batch.op.service() != ServiceType::Rc && why.is::<Missing>();
        goes(|_| self.batch(batch), is_lost)
    }

    /// Says what was counted of losses, if anything was.
    fn batch(&self, batch: &Batch) -> Outcome<Option<String>> {
        let ((), [ours, theirs]) =
            self.counting(OURS, |ends| batch.run(ends, self.seed, TIMEOUT))?;
        let lost = [ours.losses("roxe", &[])?, theirs.losses(self.peer.kind(), &[])?];
        // What a socket receives over IPv4 is recorded with an identification that it had not.
        if self.item.port == Port::Xdp || self.item.family() == Family::V6 {
            judge(self.roxe, self.capture)?;
        }
        let lost = lost.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"));
        Ok(lost.map(|it| format!("not without losses on the way: {it}")))
    }

    fn scenario(&self, scenario: &Scenario, from: usize) -> Outcome {
        // A peer that is slow may be asked again.
        let late = [OURS, LATE, REPEATED].concat();
        let ((), [ours, theirs]) = self.counting(&late, |ends| scenario.play(ends, from))?;
        let due = if self.peer.is_rxe { scenario.rxe[1 - from] } else { &[] };
        match (ours.losses("roxe", scenario.roxe[from]), theirs.losses(self.peer.kind(), due)) {
            (Ok(_), Ok(_)) => Ok(()),
            (Err(ours), Err(theirs)) => Err(format!("{ours}; {theirs}").into()),
            (Err(one), _) | (_, Err(one)) => Err(one),
        }
    }

    fn soak(&self, how_long: Duration) -> Outcome<usize> {
        let benign = [OURS, REPEATED].concat();
        let (messages, [ours, theirs]) =
            self.counting(&benign, |ends| scenario::soak(ends, how_long))?;
        let lost = [ours.losses("roxe", &[])?, theirs.losses(self.peer.kind(), &[])?];
        match lost.iter().any(Option::is_some) {
            true => Ok(messages),
            false => Err("neither end counts a loss, so the network was a good one".into()),
        }
    }

    /// Says what went wrong with it at first, if packets were lost that nobody sends again.
    fn program(&self, program: &Program, is_client: bool) -> Outcome<Option<String>> {
        let (device, here) = self.device(self.capture)?;
        let first = FIRST_PORT + (self.seed % 10_000) as u16 * GOES;
        let go = |go| {
            let side = Side { is_client, port: first + go, device: &device, here };
            program.run(self.peer, self.roxe, &side).map(|()| None)
        };
        goes(go, |why| !program.is_reliable() && programs::waited_in_vain(&why.to_string()))
    }

    fn reboot(&self, from: usize) -> Outcome {
        scenario::rebooted(self.ends(self.capture)?, from, |end| {
            if from == 0 {
                self.peer.guest.ok_or("whose host is it?")?.reset()?;
                return self.theirs();
            }
            drop(end);
            // What was recorded before stays.
            self.ours(&self.second_capture())
        })
    }

    /// The recording of an adapter that was opened again.
    fn second_capture(&self) -> PathBuf {
        self.capture.with_extension("again.pcapng")
    }
}

/// Does something until it is right and nothing is to be said of it, but not again after what is
/// not `lost`. Says what was to be said of the last go, or why the first did not do.
fn goes(
    mut go: impl FnMut(u16) -> Outcome<Option<String>>,
    is_lost: impl Fn(&Failure) -> bool,
) -> Outcome<Option<String>> {
    let mut first = None;
    let mut done = go(0);
    for number in 1..GOES {
        match &done {
            Ok(None) => break,
            Ok(Some(_)) => {}
            Err(why) if is_lost(why) => {
                first.get_or_insert_with(|| format!("not at once: {why}"));
            }
            Err(_) => break,
        }
        done = go(number);
    }
    done.map(|but| but.or(first))
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

    fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(*name))
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
    // What it finds, or why it could not read it.
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    Err(format!("roxe check: {}", said.lines().next().unwrap_or("failed")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loss_is_tried_again_and_is_told() {
        let lost = |why: &Failure| why.is::<Missing>();
        let play = |outcomes: Vec<Outcome<Option<String>>>| {
            let mut left = outcomes.into_iter();
            let done = goes(|_| left.next().expect("no go too many"), lost);
            (done.map_err(|why| why.to_string()), left.count())
        };
        let missing = || Err(Missing("1 of 2 came".to_owned()).into());
        let note = || Some("rxe counts losses".to_owned());
        assert_eq!(play(vec![Ok(None), Ok(None)]), (Ok(None), 1));
        assert_eq!(play(vec![Err("bad data".into()), Ok(None)]), (Err("bad data".to_owned()), 1));
        let told = Some("not at once: 1 of 2 came".to_owned());
        assert_eq!(play(vec![missing(), Ok(None), Ok(None)]), (Ok(told), 1));
        assert_eq!(play(vec![missing(), Ok(note()), Ok(note())]), (Ok(note()), 0));
        assert_eq!(play(vec![missing(), missing(), missing()]), (Err("1 of 2 came".to_owned()), 0));
        let wrong = vec![missing(), Err("bad data".into()), Ok(None)];
        assert_eq!(play(wrong), (Err("bad data".to_owned()), 1));
    }
}
