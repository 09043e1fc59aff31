//! The matrix: which batches there are, and how each went.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant as Clock;

use roxe_verbs::{Mtu, ServiceType};

use crate::Outcome;
use crate::batch::{Batch, Direction, Family, Op};
use crate::end::End;
use crate::faults::{FAULTS, Fault, batches};
use crate::guest::{self, Guest, INTERFACE};
use crate::ours::Ours;
use crate::report::{Progress, Row, Verdict};
use crate::theirs::Theirs;

/// What is to be done.
pub(crate) struct Plan {
    batches: Vec<Batch>,
    /// And over bad networks.
    faulty: Vec<(&'static Fault, Batch)>,
}

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

impl Plan {
    /// All, or a reduced one in which each operation, direction, path MTU and family is met.
    pub(crate) fn new(reduced: bool, only: &[String]) -> Self {
        let mut clean = Vec::new();
        for family in Family::ALL {
            for (at, op) in Op::ALL.into_iter().enumerate() {
                for direction in Direction::ALL {
                    for (number, path_mtu) in MTUS.into_iter().enumerate() {
                        let batch = Batch { op, direction, path_mtu, family };
                        let small = match family {
                            Family::V4 => number == (at + direction as usize) % MTUS.len(),
                            _ => direction == Direction::Both && number == (at + 3) % MTUS.len(),
                        };
                        let name = batch.to_string();
                        let meant = only.iter().all(|word| name.contains(word.as_str()));
                        if meant && (small || !reduced) {
                            clean.push(batch);
                        }
                    }
                }
            }
        }
        let mut faulty: Vec<_> =
            FAULTS.iter().flat_map(|fault| batches().map(move |batch| (fault, batch))).collect();
        faulty.retain(|(fault, batch)| {
            let name = faulty_name(fault, batch);
            only.iter().all(|word| name.contains(word.as_str()))
        });
        if reduced {
            // Of each network both at once, with an operation of its own.
            faulty.retain(|(_, batch)| batch.direction == Direction::Both);
            faulty = faulty.chunks(6).enumerate().map(|(at, of)| of[at % of.len()]).collect();
        }
        Self { batches: clean, faulty }
    }
}

/// Does them all. Whether all were right.
pub(crate) fn run(guest: &mut Guest, plan: &Plan, folder: &Path, roxe: &Path) -> Outcome<bool> {
    eprintln!("guest: Linux {}, booted in {:.1?}", guest.kernel, guest.booted);
    let mut progress = Progress::new(plan.batches.len() + plan.faulty.len());
    for (number, batch) in plan.batches.iter().enumerate() {
        let start = Clock::now();
        let capture = folder.join(format!("{}.pcapng", batch.to_string().replace(' ', "-")));
        let verdict = match not_applicable(batch) {
            Some(why) => Verdict::NotApplicable(why.to_owned()),
            None => match often_enough(batch, number as u32 + 1, &capture, roxe) {
                Ok(lost) => {
                    let _ = fs::remove_file(&capture);
                    lost.map_or(Verdict::Right, Verdict::Lossy)
                }
                Err(why) => Verdict::Wrong(format!("{why} (recorded: {})", capture.display())),
            },
        };
        progress.row(&Row {
            kernel: &guest.kernel,
            port: "xdp",
            name: batch.to_string(),
            cells: batch.sizes().len(),
            seconds: start.elapsed().as_secs_f64(),
            verdict,
        });
    }
    let mut seed = plan.batches.len() as u32;
    for network in plan.faulty.chunk_by(|one, other| std::ptr::eq(one.0, other.0)) {
        let fault = network[0].0;
        fault.begin(guest)?;
        for (_, batch) in network {
            seed += 1;
            let start = Clock::now();
            let name = faulty_name(fault, batch);
            let verdict = match over(batch, seed, folder) {
                Ok(()) => Verdict::Right,
                Err(why) => Verdict::Wrong(why.to_string()),
            };
            let (cells, seconds) = (batch.sizes().len(), start.elapsed().as_secs_f64());
            progress.row(&Row {
                kernel: &guest.kernel,
                port: "xdp",
                name,
                cells,
                seconds,
                verdict,
            });
        }
        fault.end(guest)?;
    }
    Ok(progress.finish())
}

/// A batch over a bad network: what both count is no question then, nor what was sent again.
fn over(batch: &Batch, seed: u32, folder: &Path) -> Outcome {
    let [here, there] = batch.family.addresses();
    let name = batch.to_string().replace(' ', "-");
    let capture = folder.join(format!("faulty-{name}-{seed}.pcapng"));
    let device = format!("xdp:{INTERFACE},mode=native,capture={}", capture.display());
    let ours: Box<dyn End> = Box::new(Ours::open(&device, here)?);
    let theirs: Box<dyn End> = Box::new(Theirs::open(guest::HOST, "rxe0", there)?);
    let done = batch.run_with(&mut [ours, theirs], seed, LOSSY_TIMEOUT);
    done.map_err(|why| format!("{why} (recorded: {})", capture.display()))?;
    Ok(fs::remove_file(capture)?)
}

/// 134 ms, where packets are lost.
const LOSSY_TIMEOUT: u8 = 15;

fn faulty_name(fault: &Fault, batch: &Batch) -> String {
    let Batch { op, direction, path_mtu, family } = batch;
    format!("{}, {} {} {path_mtu} {}", op.name(), fault.name, direction.name(), family.name())
}

/// Why a batch cannot be.
fn not_applicable(batch: &Batch) -> Option<&'static str> {
    (batch.family == Family::Vlan).then_some(
        "adapters on interfaces send no VLAN tags yet, and the host kernel here has no VLANs",
    )
}

/// A busy machine may lose packets between the two, which both count and an unreliable service
/// does not survive: there are three goes. What a reliable one does must be right in each. Says
/// what was counted of losses where none was without.
fn often_enough(batch: &Batch, seed: u32, capture: &Path, roxe: &Path) -> Outcome<Option<String>> {
    let mut done = one(batch, seed, capture, roxe);
    for _ in 1..GOES {
        let again = match &done {
            Ok(lost) => lost.is_some(),
            Err(_) => batch.op.service() != ServiceType::Rc,
        };
        if !again {
            break;
        }
        done = one(batch, seed, capture, roxe);
    }
    done
}

/// How often a batch is tried.
const GOES: usize = 3;

/// Says what was counted of losses, if anything was.
fn one(batch: &Batch, seed: u32, capture: &Path, roxe: &Path) -> Outcome<Option<String>> {
    let [here, there] = batch.family.addresses();
    let device = format!("xdp:{INTERFACE},mode=native,capture={}", capture.display());
    let ours: Box<dyn End> = Box::new(Ours::open(&device, here)?);
    let theirs: Box<dyn End> = Box::new(Theirs::open(guest::HOST, "rxe0", there)?);
    let mut ends = [ours, theirs];
    let before = ends[1].counters()?;
    batch.run(&mut ends, seed)?;
    let after = [ends[0].counters()?, ends[1].counters()?];
    drop(ends);
    let ours = counted("roxe", &after[0], &BTreeMap::new(), OURS)?;
    let theirs = counted("rxe", &after[1], &before, THEIRS)?;
    judge(roxe, capture)?;
    Ok([ours, theirs].into_iter().flatten().reduce(|one, other| format!("{one}; {other}")))
}

/// What may be counted where nothing goes wrong.
#[rustfmt::skip]
const OURS: &[&str] = &[
    "ack_sent", "capture_files", "capture_frames", "multicast_copies", "rcvd_pkts",
    "rdma_rx_bytes", "rdma_rx_packets", "rdma_tx_bytes", "rdma_tx_packets", "rx_atomic_requests",
    "rx_bytes", "rx_packets", "rx_read_requests", "rx_write_requests", "sent_pkts", "tx_bytes",
    "tx_kicks", "tx_packets", "xdp_passed", "xdp_redirected",
    // What the guest's kernel tells groups of routers.
    "xdp_extension",
];
const THEIRS: &[&str] = &["rcvd_pkts", "rdma_recvs", "rdma_sends", "sent_pkts"];

/// What is counted where packets were lost, or sent again.
#[rustfmt::skip]
const LOSSES: &[&str] = &[
    "ack_deferred", "completer_retry_err", "duplicate_request", "ghost_response",
    "implied_nak_seq_err", "local_ack_timeout_err", "nak_sequence_sent", "out_of_seq_request",
    "out_of_sequence", "packet_seq_err", "rcvd_seq_err", "retrans_pkts",
];

/// What was counted of losses. Whatever else is not `benign` is an error.
fn counted(
    name: &str,
    after: &BTreeMap<String, u64>,
    before: &BTreeMap<String, u64>,
    benign: &[&str],
) -> Outcome<Option<String>> {
    let more = |(key, value): (&String, &u64)| {
        let more = value.saturating_sub(*before.get(key).unwrap_or(&0));
        (more > 0 && !benign.contains(&key.as_str())).then(|| (key.clone(), more))
    };
    let (lost, wrong): (Vec<_>, Vec<_>) =
        after.iter().filter_map(more).partition(|(key, _)| LOSSES.contains(&key.as_str()));
    let list = |of: &[(String, u64)]| {
        let words: Vec<_> = of.iter().map(|(key, value)| format!("{key} {value}")).collect();
        format!("{name} counts {}", words.join(", "))
    };
    if !wrong.is_empty() {
        return Err(list(&wrong).into());
    }
    Ok((!lost.is_empty()).then(|| list(&lost)))
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
