//! Whether what the adapters count is what their recordings show.
//!
//! A second opinion: it knows of a queue pair only its PSN and path MTU, and counts by itself what
//! was sent again, what came twice, what came behind a gap.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::ChildStdout;
use std::sync::{Arc, Mutex, PoisonError};

use roxe_net::capture_file::{
    CaptureReader, CaptureWriter, Direction, LinkType, NewInterface, NewRecord, Record, Timestamp,
};
use roxe_wire::opcode::{Operation, Service};
use roxe_wire::{DropReason, Frame, NakCode, Packet, Psn, Syndrome, icrc};

use crate::Outcome;

/// What is known of the queue pairs of both hosts.
#[derive(Clone, Default)]
pub(crate) struct Sides(Arc<Mutex<BTreeMap<(String, u32), Known>>>);

/// Of a queue pair: its peer, the PSN it expects first, its path MTU.
#[derive(Clone, Copy)]
struct Known {
    peer: u32,
    expects: Psn,
    path_mtu: u32,
}

impl Sides {
    pub(crate) fn add(&self, side: &str, [qpn, peer, expects, path_mtu]: [&str; 4]) -> Outcome {
        let known = Known {
            peer: peer.parse()?,
            expects: Psn::new(expects.parse()?),
            path_mtu: path_mtu.parse()?,
        };
        self.lock().insert((side.to_owned(), qpn.parse()?), known);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, u32), Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// That of the one side whose peer is `qpn`, and that with the number `qpn`.
    fn find(&self, side: &str, is: impl Fn(u32, &Known) -> bool) -> Option<Known> {
        let all = self.lock();
        all.iter().find(|((of, qpn), known)| of == side && is(*qpn, known)).map(|(_, it)| *it)
    }
}

/// The last frames of a recording, for whoever wants to know what happened.
#[derive(Clone, Default)]
pub(crate) struct Tail(Arc<Mutex<VecDeque<Last>>>);

/// A frame's headers.
struct Last {
    time: Timestamp,
    direction: Option<Direction>,
    data: Vec<u8>,
    wire_len: u32,
}

impl Tail {
    fn keep(&self, record: &Record<'_>) {
        let mut frames = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut data = if frames.len() == FRAMES {
            frames.pop_front().map(|oldest| oldest.data).unwrap_or_default()
        } else {
            Vec::new()
        };
        data.clear();
        data.extend_from_slice(&record.data[..record.data.len().min(HEADERS)]);
        let Record { time, direction, wire_len, .. } = *record;
        frames.push_back(Last { time, direction, data, wire_len });
    }

    /// Writes them to a file.
    pub(crate) fn write(&self, path: &Path, name: &str) -> Outcome {
        let mut writer = CaptureWriter::create(path)?;
        let link_type = LinkType::ETHERNET;
        let description = "the last frames";
        let snap_len = HEADERS as u32;
        let interface = NewInterface { name, description, link_type, snap_len };
        let interface = writer.add_interface(interface)?;
        for frame in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let Last { time, direction, ref data, wire_len } = *frame;
            let record = NewRecord { interface, time, data, wire_len, direction, comment: None };
            writer.write(&record)?;
        }
        Ok(writer.flush()?)
    }
}

/// How much is kept: as much as headers take, of so many frames.
const HEADERS: usize = 96;
const FRAMES: usize = 200_000;

/// What a recording shows.
#[derive(Default)]
pub(crate) struct Seen {
    frames: u64,
    sent: BTreeMap<&'static str, u64>,
    received: BTreeMap<&'static str, u64>,
    /// Frames that arrived damaged.
    damaged: BTreeMap<&'static str, u64>,
    counts: BTreeMap<&'static str, u64>,
}

/// Where each queue pair is.
#[derive(Default)]
struct Places {
    /// By the number of the peer: the PSN behind all that was sent.
    sent: BTreeMap<u32, (Psn, u32)>,
    /// By the own number: the PSN that comes next.
    expected: BTreeMap<u32, (Psn, u32)>,
}

/// Reads a recording while it is made.
pub(crate) fn read(capture: ChildStdout, side: &str, sides: &Sides, tail: &Tail) -> Outcome<Seen> {
    let mut reader = CaptureReader::new(capture)?;
    let (mut seen, mut places) = (Seen::default(), Places::default());
    while let Some(record) = reader.next()? {
        seen.frames += 1;
        tail.keep(&record);
        let frame = Frame::parse(record.raw_frame()).map_err(|why| format!("a frame: {why}"))?;
        let judged = Packet::parse(frame.body)
            .and_then(|packet| icrc::check(&frame.icrc_cover(), frame.body).map(|()| packet));
        match (record.direction, judged) {
            (Some(Direction::Outbound), Ok(packet)) => {
                *seen.sent.entry(packet.opcode.name).or_default() += 1;
                places.sent(&packet, side, sides, &mut seen)?;
            }
            (Some(Direction::Outbound), Err(why)) => {
                return Err(format!("frame {}: sent, but {why}", record.number).into());
            }
            (_, Ok(packet)) => {
                *seen.received.entry(packet.opcode.name).or_default() += 1;
                places.received(&packet, side, sides, &mut seen)?;
            }
            // An opcode that is damaged is known by the checksum.
            (_, Err(DropReason::ReservedOpcode { .. })) => seen.damaged("icrc_bad"),
            (_, Err(why)) => seen.damaged(why.name()),
        }
    }
    match reader.truncated() {
        Some(truncation) => Err(truncation.to_string().into()),
        None => Ok(seen),
    }
}

impl Seen {
    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    fn damaged(&mut self, name: &'static str) {
        *self.damaged.entry(name).or_default() += 1;
    }
}

impl Places {
    fn sent(&mut self, packet: &Packet<'_>, side: &str, sides: &Sides, seen: &mut Seen) -> Outcome {
        let (bth, operation) = (&packet.headers.bth, packet.opcode.operation);
        if operation == Operation::Acknowledge {
            let syndrome = packet.headers.aeth.ok_or("an ACK without AETH")?.syndrome;
            seen.count(match syndrome {
                Syndrome::Ack(_) => "ack_sent",
                Syndrome::RnrNak(_) => "send_rnr_err",
                Syndrome::Nak(NakCode::PsnSequenceError) => "nak_sequence_sent",
                Syndrome::Nak(_) => "nak_fatal_sent",
            });
        }
        if packet.opcode.service != Service::Rc || operation.is_response() {
            return Ok(());
        }
        let dest = bth.dest_qp.get();
        let (behind, mtu) = match self.sent.get(&dest) {
            Some(&place) => place,
            None => {
                let known = sides.find(side, |_, known| known.peer == dest);
                (bth.psn, known.ok_or("a packet to an unknown queue pair")?.path_mtu)
            }
        };
        let again = bth.psn.since(behind) < 0;
        if again {
            seen.count("retrans_pkts");
        }
        let end = end(packet, mtu);
        self.sent.insert(dest, (if end.since(behind) > 0 { end } else { behind }, mtu));
        Ok(())
    }

    fn received(
        &mut self,
        packet: &Packet<'_>,
        side: &str,
        sides: &Sides,
        seen: &mut Seen,
    ) -> Outcome {
        let (bth, operation) = (&packet.headers.bth, packet.opcode.operation);
        if let (Operation::Acknowledge, Some(aeth)) = (operation, packet.headers.aeth)
            && aeth.syndrome == Syndrome::Nak(NakCode::PsnSequenceError)
        {
            seen.count("NAKs received");
        }
        let service = packet.opcode.service;
        if !matches!(service, Service::Rc | Service::Uc) || operation.is_response() {
            return Ok(());
        }
        let own = bth.dest_qp.get();
        let (expected, mtu) = match self.expected.get(&own) {
            Some(&place) => place,
            None => {
                let known = sides.find(side, |qpn, _| qpn == own);
                let known = known.ok_or("a packet for an unknown queue pair")?;
                (known.expects, known.path_mtu)
            }
        };
        let ahead = bth.psn.since(expected);
        if ahead != 0 && (service == Service::Uc || ahead > 0) {
            seen.count("out_of_sequence");
        } else if ahead < 0 {
            seen.count("duplicate_request");
        } else {
            match operation {
                Operation::Write if packet.opcode.position.starts() => {
                    seen.count("rx_write_requests");
                }
                Operation::ReadRequest => seen.count("rx_read_requests"),
                _ if operation.is_atomic() => seen.count("rx_atomic_requests"),
                _ => {}
            }
        }
        // An unreliable connection goes on with the next message, wherever it begins.
        let goes_on = ahead == 0 || service == Service::Uc && packet.opcode.position.starts();
        let next = if goes_on { end(packet, mtu) } else { expected };
        self.expected.insert(own, (next, mtu));
        Ok(())
    }
}

/// The PSN behind a request: a READ takes as many as its answer has packets.
fn end(packet: &Packet<'_>, mtu: u32) -> Psn {
    let packets = match (packet.opcode.operation, packet.headers.reth) {
        (Operation::ReadRequest, Some(reth)) => reth.dma_len.div_ceil(mtu).max(1),
        _ => 1,
    };
    Psn::new(packet.headers.bth.psn.get().wrapping_add(packets))
}

/// Lines of a table, and what is wrong.
#[derive(Default)]
pub(crate) struct Verdict {
    lines: Vec<String>,
    wrong: Vec<String>,
}

impl Verdict {
    pub(crate) fn must(&mut self, is: bool, what: String) {
        if !is {
            self.wrong.push(what);
        }
    }

    fn equal(&mut self, side: &str, what: &str, counted: u64, shown: u64) {
        let mark = if counted == shown { "" } else { "  <- differs" };
        self.lines.push(format!("{side:<5} {what:<44} {counted:>12} {shown:>12}{mark}"));
        self.must(counted == shown, format!("{side}: {what}: {counted} counted, {shown} shown"));
    }

    pub(crate) fn counters_equal_capture(
        &mut self,
        side: &str,
        counters: &BTreeMap<String, u64>,
        seen: &Seen,
    ) {
        let of = |name: &str| counters.get(name).copied().unwrap_or(0);
        let sum = |of: &BTreeMap<&str, u64>| of.values().sum::<u64>();
        let [sent, received, damaged] = [&seen.sent, &seen.received, &seen.damaged].map(sum);
        self.equal(side, "capture_frames", of("capture_frames"), seen.frames);
        self.equal(side, "capture_lost", of("capture_lost"), 0);
        self.equal(side, "rdma_tx_packets", of("rdma_tx_packets"), sent);
        self.equal(side, "rdma_rx_packets", of("rdma_rx_packets"), received);
        for name in COUNTED {
            self.equal(side, name, of(name), seen.counts.get(name).copied().unwrap_or(0));
        }
        for name in DropReason::NAMES {
            let shown = seen.damaged.get(name).copied().unwrap_or(0);
            if of(name) != 0 || shown != 0 {
                self.equal(side, name, of(name), shown);
            }
        }
        let naks = seen.counts.get("NAKs received").copied().unwrap_or(0);
        self.must(
            of("packet_seq_err") <= naks,
            format!("{side}: more sequence NAKs counted than received, {naks}"),
        );
        // The bad network is between the recording and the port.
        let faults = |way: &str, packets: u64| {
            let of = |what: &str| of(&format!("fault_{way}_{what}"));
            packets + of("duplicated") - of("dropped") - of("overflow")
        };
        self.equal(side, "tx_packets, behind faults", of("tx_packets"), faults("tx", sent));
        let arrived = faults("rx", of("rx_packets"));
        self.equal(side, "rx_packets, behind faults", arrived, received + damaged);
        self.equal(side, "tx_unsendable", of("tx_unsendable"), 0);
    }

    /// What one sent the other got, but for what the kernel says it threw away on either side.
    pub(crate) fn nothing_lost_between(&mut self, ends: [(&BTreeMap<String, u64>, &str); 2]) {
        let [a, b] = ends;
        for ((sender, from), (receiver, to)) in [(a, b), (b, a)] {
            let of =
                |whose: &BTreeMap<String, u64>, name: &str| whose.get(name).copied().unwrap_or(0);
            let lost = of(receiver, "xsk_rx_dropped")
                + of(receiver, "xsk_rx_ring_full")
                + of(sender, KERNEL_TX_DROPPED);
            let got = of(receiver, "rx_packets") + lost;
            self.equal(
                &format!("{from}>{to}"),
                &format!("tx_packets; rx_packets and {lost} that found no room"),
                of(sender, "tx_packets"),
                got,
            );
        }
    }

    pub(crate) fn tell(self) -> Outcome {
        println!("\n{:<5} {:<44} {:>12} {:>12}", "host", "", "counted", "recorded");
        self.lines.iter().for_each(|line| println!("{line}"));
        match self.wrong.first() {
            Some(first) => Err(format!("{} things are wrong: {first}", self.wrong.len()).into()),
            None => {
                println!("\nall data verified, memory flat, counters equal the recordings");
                Ok(())
            }
        }
    }
}

/// The counter of a host's interface, as the host tells it.
pub(crate) const KERNEL_TX_DROPPED: &str = "kernel_tx_dropped";

/// Counters that a recording shows.
const COUNTED: [&str; 10] = [
    "retrans_pkts",
    "ack_sent",
    "nak_sequence_sent",
    "nak_fatal_sent",
    "send_rnr_err",
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "duplicate_request",
    "out_of_sequence",
];

/// What went, by opcode.
pub(crate) fn table([a, b]: [&Seen; 2]) {
    let names: std::collections::BTreeSet<_> =
        [&a.sent, &a.received, &b.sent, &b.received].into_iter().flat_map(BTreeMap::keys).collect();
    let (one, other) = ("from a to b", "from b to a");
    println!("{:<36} {one:>26} {other:>26}", "");
    println!("{:<36} {:>12} {:>13} {:>12} {:>13}", "opcode", "sent", "arrived", "sent", "arrived");
    for name in names {
        let of = |map: &BTreeMap<&str, u64>| map.get(name).copied().unwrap_or(0);
        let [out, into, back, home] = [&a.sent, &b.received, &b.sent, &a.received].map(of);
        println!("{name:<36} {out:>12} {into:>13} {back:>12} {home:>13}");
    }
}
