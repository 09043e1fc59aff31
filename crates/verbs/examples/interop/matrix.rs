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
use crate::guest::{self, Guest, INTERFACE};
use crate::ours::Ours;
use crate::report::{Progress, Row, Verdict};
use crate::theirs::Theirs;

/// What is to be done.
pub(crate) struct Plan {
    batches: Vec<Batch>,
}

const MTUS: [Mtu; 5] = [Mtu::B256, Mtu::B512, Mtu::B1024, Mtu::B2048, Mtu::B4096];

impl Plan {
    /// All, or a reduced one in which each operation, direction, path MTU and family is met.
    pub(crate) fn new(reduced: bool, only: &[String]) -> Self {
        let mut batches = Vec::new();
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
                            batches.push(batch);
                        }
                    }
                }
            }
        }
        Self { batches }
    }
}

/// Does them all. Whether all were right.
pub(crate) fn run(guest: &mut Guest, plan: &Plan, folder: &Path, roxe: &Path) -> Outcome<bool> {
    eprintln!("guest: Linux {}, booted in {:.1?}", guest.kernel, guest.booted);
    let mut progress = Progress::new(plan.batches.len());
    for (number, batch) in plan.batches.iter().enumerate() {
        let start = Clock::now();
        let capture = folder.join(format!("{}.pcapng", batch.to_string().replace(' ', "-")));
        let verdict = match not_applicable(batch) {
            Some(why) => Verdict::NotApplicable(why.to_owned()),
            None => match often_enough(batch, number as u32 + 1, &capture, roxe) {
                Ok(()) => {
                    let _ = fs::remove_file(&capture);
                    Verdict::Right
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
    Ok(progress.finish())
}

/// Why a batch cannot be.
fn not_applicable(batch: &Batch) -> Option<&'static str> {
    (batch.family == Family::Vlan).then_some(
        "adapters on interfaces send no VLAN tags yet, and the host kernel here has no VLANs",
    )
}

/// An unreliable service may lose what a busy machine has no room for: it has three goes.
fn often_enough(batch: &Batch, seed: u32, capture: &Path, roxe: &Path) -> Outcome {
    let goes = if batch.op.service() == ServiceType::Rc { 1 } else { 3 };
    let mut done = one(batch, seed, capture, roxe);
    for _ in 1..goes {
        if done.is_ok() {
            break;
        }
        done = one(batch, seed, capture, roxe);
    }
    done
}

fn one(batch: &Batch, seed: u32, capture: &Path, roxe: &Path) -> Outcome {
    let [here, there] = batch.family.addresses();
    let device = format!("xdp:{INTERFACE},mode=native,capture={}", capture.display());
    let ours: Box<dyn End> = Box::new(Ours::open(&device, here)?);
    let theirs: Box<dyn End> = Box::new(Theirs::open(guest::HOST, "rxe0", there)?);
    let mut ends = [ours, theirs];
    let before = ends[1].counters()?;
    batch.run(&mut ends, seed)?;
    let after = [ends[0].counters()?, ends[1].counters()?];
    drop(ends);
    must_be_clean("roxe", &after[0], &BTreeMap::new(), OURS)?;
    must_be_clean("rxe", &after[1], &before, THEIRS)?;
    judge(roxe, capture)
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

fn must_be_clean(
    name: &str,
    after: &BTreeMap<String, u64>,
    before: &BTreeMap<String, u64>,
    benign: &[&str],
) -> Outcome {
    let counted = |(key, value): (&String, &u64)| {
        let more = value - before.get(key).unwrap_or(&0);
        (more > 0 && !benign.contains(&key.as_str())).then(|| format!("{key} {more}"))
    };
    let counted: Vec<String> = after.iter().filter_map(counted).collect();
    if counted.is_empty() {
        return Ok(());
    }
    Err(format!("{name} counts: {}", counted.join(", ")).into())
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
