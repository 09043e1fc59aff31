//! Each rule, broken by a short sequence of frames and kept by one that looks much like it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

use roxe_trace::{
    ConversationSummary, IcrcVerdict, Note, Observation, Outside, Rule, Seen, Tracer,
};
use roxe_wire::mad::Mad;
use roxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CnpReserved, Credits, Deth, Frame, FrameTemplate, Headers,
    ImmDt, IpPair, MacAddress, Msn, NakCode, Opcode, PKey, Packet, Path, Payload, Psn, QKey, Qpn,
    RKey, RawFrame, Reth, Room, Syndrome, TrafficClass, cnp_bth,
};

const A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 11);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// A frame to be observed.
struct Sent {
    bytes: Vec<u8>,
}

/// A frame from one host to another.
fn frame(from: Ipv4Addr, to: Ipv4Addr, opcode: &str, headers: Headers, payload: &[u8]) -> Sent {
    let opcode = Opcode::by_name(opcode).expect(opcode);
    let payload = Payload::bytes(payload);
    let bth = Bth { opcode: opcode.code, pad: payload.pad(), ..headers.bth };
    packet(from, to, &Packet { opcode, headers: Headers { bth, ..headers }, payload }, 1)
}

/// A frame with this IP identification.
fn packet(from: Ipv4Addr, to: Ipv4Addr, packet: &Packet<'_>, identification: u16) -> Sent {
    let template = FrameTemplate::new(&Path {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: None,
        ip: IpPair::V4 { source: from, destination: to },
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    });
    let at = template.headers_len();
    let mut bytes = vec![0; at + packet.len()];
    let cover =
        template.write(u16::try_from(packet.len()).unwrap(), identification, &mut bytes).unwrap();
    packet.emit(Room::whole(&mut bytes[at..]), &cover).unwrap();
    Sent { bytes }
}

/// The same with another IP identification: sent on its own.
fn identified(identification: u16, sent: &Sent) -> Sent {
    let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
    let (IpAddr::V4(from), IpAddr::V4(to)) = (frame.ip.source(), frame.ip.destination()) else {
        unreachable!("these are IPv4")
    };
    packet(from, to, &Packet::parse(frame.body).unwrap(), identification)
}

fn bth(dest_qp: u32, psn: u32) -> Headers {
    let bth = Bth { dest_qp: Qpn::new(dest_qp), psn: Psn::new(psn), ..Bth::default() };
    Headers { bth, ..Headers::default() }
}

/// A request of `a` to queue pair 2 of `b`.
fn request(opcode: &str, psn: u32, len: usize) -> Sent {
    frame(A, B, opcode, bth(2, psn), &vec![7; len])
}

/// A request with an RETH that announces `dma_len` bytes.
fn rdma(opcode: &str, psn: u32, dma_len: u32, len: usize) -> Sent {
    let reth = Some(Reth { va: 0x1000, r_key: RKey(3), dma_len });
    frame(A, B, opcode, Headers { reth, ..bth(2, psn) }, &vec![7; len])
}

/// A READ of the last `dma_len` bytes of another, which asked for `before` bytes more.
fn rest(psn: u32, before: u64, dma_len: u32) -> Sent {
    let reth = Some(Reth { va: 0x1000 + before, r_key: RKey(3), dma_len });
    frame(A, B, "RC_READ_REQUEST", Headers { reth, ..bth(2, psn) }, &[])
}

/// The same with another address in its RETH.
fn at(sent: Sent, va: u64) -> Sent {
    let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
    let packet = Packet::parse(frame.body).unwrap();
    let reth = packet.headers.reth.map(|reth| Reth { va, ..reth });
    let payload = packet.payload.pieces()[0];
    self::frame(A, B, packet.opcode.name, Headers { reth, ..packet.headers }, payload)
}

fn immediate(psn: u32, value: u32) -> Sent {
    let imm_dt = Some(ImmDt(value));
    frame(A, B, "RC_SEND_ONLY_IMM", Headers { imm_dt, ..bth(2, psn) }, &[])
}

fn atomic(psn: u32, va: u64) -> Sent {
    let atomic_eth = Some(AtomicEth { va, r_key: RKey(3), swap_add: 1, compare: 0 });
    frame(A, B, "RC_FETCH_ADD", Headers { atomic_eth, ..bth(2, psn) }, &[])
}

/// An answer of `b` to queue pair 1 of `a`.
fn answer(opcode: &str, psn: u32, syndrome: Syndrome, msn: u32, len: usize) -> Sent {
    let aeth = Some(Aeth { syndrome, msn: Msn::new(msn) });
    frame(B, A, opcode, Headers { aeth, ..bth(1, psn) }, &vec![7; len])
}

fn ack(psn: u32, msn: u32) -> Sent {
    answer("RC_ACKNOWLEDGE", psn, Syndrome::Ack(Credits::INVALID), msn, 0)
}

fn nak(psn: u32, msn: u32) -> Sent {
    answer("RC_ACKNOWLEDGE", psn, Syndrome::Nak(NakCode::PsnSequenceError), msn, 0)
}

fn data(opcode: &str, psn: u32, len: usize) -> Sent {
    answer(opcode, psn, Syndrome::Ack(Credits::INVALID), 1, len)
}

fn data_msn(opcode: &str, psn: u32, len: usize, msn: u32) -> Sent {
    answer(opcode, psn, Syndrome::Ack(Credits::INVALID), msn, len)
}

/// The part of a READ response that has no AETH.
fn middle(psn: u32, len: usize) -> Sent {
    frame(B, A, "RC_READ_RESPONSE_MIDDLE", bth(1, psn), &vec![7; len])
}

fn original(psn: u32, original: u64) -> Sent {
    let aeth = Some(Aeth { syndrome: Syndrome::Ack(Credits::INVALID), msn: Msn::new(1) });
    let atomic_ack_eth = Some(AtomicAckEth { original });
    let headers = Headers { aeth, atomic_ack_eth, ..bth(1, psn) };
    frame(B, A, "RC_ATOMIC_ACKNOWLEDGE", headers, &[])
}

fn datagram(to: Ipv4Addr, qp: u32, q_key: QKey) -> Sent {
    let deth = Some(Deth { q_key, reserved: 0, source_qp: Qpn::new(9) });
    frame(A, to, "UD_SEND_ONLY", Headers { deth, ..bth(qp, 0) }, &[0; 4])
}

fn cnp(becn: bool, psn: u32) -> Sent {
    let bth = Bth { becn, psn: Psn::new(psn), ..cnp_bth(Qpn::new(1), PKey::DEFAULT) };
    let cnp_reserved = Some(CnpReserved::default());
    frame(B, A, "CNP", Headers { bth, cnp_reserved, ..Headers::default() }, &[])
}

/// Shows a frame to a tracer.
fn show(
    tracer: &mut Tracer,
    number: u64,
    (frame, packet): (&Frame<'_>, &Packet<'_>),
    icrc: IcrcVerdict,
    observation: &mut Observation,
) {
    let outside = &Outside::of(frame);
    tracer.observe(&Seen { number, time_ns: 0, outside, packet, icrc }, observation);
}

/// Shows the frames to a tracer; gives the notes on each, and the rules broken with the frame, from
/// 1.
fn observe(frames: &[Sent]) -> (Vec<Vec<Note>>, Vec<(u64, Rule)>) {
    observe_by(&mut Tracer::default(), frames)
}

fn observe_by(tracer: &mut Tracer, frames: &[Sent]) -> (Vec<Vec<Note>>, Vec<(u64, Rule)>) {
    let mut observation = Observation::default();
    let (mut notes, mut broken) = (Vec::new(), Vec::new());
    for (number, sent) in (1..).zip(frames) {
        let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
        let packet = Packet::parse(frame.body).unwrap();
        let icrc = IcrcVerdict::of(&frame);
        show(tracer, number, (&frame, &packet), icrc, &mut observation);
        notes.push(observation.notes.clone());
        broken.extend(observation.findings.iter().map(|finding| (number, finding.rule)));
    }
    (notes, broken)
}

fn broken(frames: &[Sent]) -> Vec<(u64, Rule)> {
    observe(frames).1
}

fn notes(frames: &[Sent]) -> Vec<Vec<Note>> {
    observe(frames).0
}

/// A frame with a byte changed, and its ICRC as it was.
fn flipped(mut sent: Sent, at: usize) -> Sent {
    sent.bytes[at] ^= 1;
    sent
}

fn with_udp_checksum(mut sent: Sent, checksum: u16) -> Sent {
    sent.bytes[40..42].copy_from_slice(&checksum.to_be_bytes());
    sent
}

/// The sum over the pseudo-header, as a sender leaves it that lets its adapter do the rest.
fn partial_udp_checksum(sent: &Sent) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
    };
    let sum = words(&sent.bytes[26..34]) + 17 + words(&sent.bytes[38..40]);
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

/// What breaks each rule, and at which frame.
#[rustfmt::skip]
fn violations() -> Vec<(Rule, u64, Vec<Sent>)> {
    let only = |psn| request("RC_SEND_ONLY", psn, 4);
    vec![
        (Rule::Icrc, 1, vec![flipped(only(1), 54)]),
        (Rule::UdpChecksum, 1, vec![with_udp_checksum(only(1), 0x1234)]),
        (Rule::OpcodeSequence, 2, vec![request("RC_SEND_FIRST", 1, 256), only(2)]),
        (Rule::OpcodeSequence, 2, vec![request("RC_SEND_FIRST", 1, 256), request("RC_WRITE_LAST", 2, 4)]),
        (Rule::OpcodeSequence, 2, vec![only(1), request("RC_SEND_LAST", 2, 4)]),
        // Found when the gap between them is filled.
        (Rule::OpcodeSequence, 3, vec![request("RC_SEND_FIRST", 1, 256), request("RC_SEND_LAST", 3, 4), only(2)]),
        (Rule::PayloadLength, 1, vec![request("RC_SEND_FIRST", 1, 255)]),
        (Rule::PayloadLength, 2, vec![request("RC_SEND_FIRST", 1, 256), request("RC_SEND_LAST", 2, 0)]),
        (Rule::PayloadLength, 2, vec![request("RC_SEND_FIRST", 1, 256), request("RC_SEND_LAST", 2, 257)]),
        (Rule::PayloadLength, 1, vec![rdma("RC_READ_REQUEST", 1, 4, 4)]),
        (Rule::PathMtu, 2, vec![request("RC_SEND_FIRST", 1, 256), request("RC_SEND_MIDDLE", 2, 512)]),
        (Rule::PathMtu, 3, vec![rdma("RC_READ_REQUEST", 1, 1000, 0), data("RC_READ_RESPONSE_FIRST", 1, 256), middle(2, 512)]),
        (Rule::WriteLength, 1, vec![rdma("RC_WRITE_ONLY", 1, 5, 4)]),
        (Rule::WriteLength, 2, vec![rdma("RC_WRITE_FIRST", 1, 261, 256), request("RC_WRITE_LAST", 2, 4)]),
        (Rule::WriteLength, 1, vec![rdma("RC_WRITE_FIRST", 1, 256, 256)]),
        (Rule::WriteLength, 2, vec![rdma("RC_WRITE_FIRST", 1, 300, 256), request("RC_WRITE_MIDDLE", 2, 256),
            request("RC_WRITE_MIDDLE", 3, 256)]),
        (Rule::MessageLength, 1, vec![rdma("RC_WRITE_FIRST", 1, (1 << 31) + 1, 256)]),
        (Rule::Retransmission, 2, vec![only(1), request("RC_SEND_ONLY", 1, 5)]),
        (Rule::Retransmission, 2, vec![only(1), rdma("RC_WRITE_ONLY", 1, 4, 4)]),
        (Rule::Retransmission, 3, vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256), only(2)]),
        (Rule::Retransmission, 2, vec![rdma("RC_WRITE_ONLY", 1, 4, 4), at(rdma("RC_WRITE_ONLY", 1, 4, 4), 0x2000)]),
        (Rule::Retransmission, 2, vec![rdma("RC_READ_REQUEST", 1, 4, 0), at(rdma("RC_READ_REQUEST", 1, 4, 0), 0x2000)]),
        (Rule::Retransmission, 2, vec![rdma("RC_READ_REQUEST", 1, 4, 0), rdma("RC_READ_REQUEST", 1, 5, 0)]),
        (Rule::Retransmission, 2, vec![atomic(1, 8), atomic(1, 16)]),
        (Rule::Retransmission, 2, vec![immediate(1, 7), immediate(1, 8)]),
        (Rule::Retransmission, 3, vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256), rest(2, 256, 345)]),
        (Rule::Retransmission, 3, vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256), rest(2, 0, 344)]),
        (Rule::AckPsn, 4, vec![only(1), ack(1, 1), ack(2, 1), only(2)]),
        (Rule::Msn, 4, vec![only(1), ack(1, 1), only(2), ack(2, 1)]),
        (Rule::Msn, 4, vec![only(1), ack(1, 1), only(2), ack(2, 3)]),
        (Rule::ReadResponse, 2, vec![rdma("RC_READ_REQUEST", 1, 100, 0), data("RC_READ_RESPONSE_ONLY", 1, 99)]),
        (Rule::ReadResponse, 3, vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256),
            data("RC_READ_RESPONSE_LAST", 2, 88)]),
        (Rule::ReadResponse, 4, vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256),
            middle(2, 256), middle(3, 256)]),
        // Nobody asked to begin again there.
        (Rule::ReadResponse, 3, vec![rdma("RC_READ_REQUEST", 1, 1000, 0), data("RC_READ_RESPONSE_FIRST", 1, 256),
            data("RC_READ_RESPONSE_FIRST", 3, 256)]),
        (Rule::AtomicResponse, 4, vec![atomic(1, 8), original(1, 5), atomic(1, 8), original(1, 6)]),
        (Rule::ResponseKind, 2, vec![only(1), data("RC_READ_RESPONSE_ONLY", 1, 4)]),
        (Rule::ResponseKind, 2, vec![only(1), original(1, 0)]),
        (Rule::AtomicAlignment, 1, vec![atomic(1, 12)]),
        (Rule::AtomicAlignment, 1, vec![at(rdma("RC_ATOMIC_WRITE", 1, 8, 8), 12)]),
        (Rule::Destination, 1, vec![frame(A, B, "RC_SEND_ONLY", bth(0xff_ffff, 1), &[])]),
        (Rule::Destination, 1, vec![frame(A, GROUP, "RC_SEND_ONLY", bth(2, 1), &[])]),
        (Rule::Destination, 1, vec![frame(A, GROUP, "UC_SEND_ONLY", bth(0xff_ffff, 1), &[])]),
        (Rule::Destination, 1, vec![frame(A, B, "RC_SEND_ONLY", bth(0, 1), &[])]),
        (Rule::Destination, 1, vec![datagram(B, 0xff_ffff, QKey(1))]),
        (Rule::Destination, 1, vec![datagram(GROUP, 5, QKey(1))]),
        (Rule::Cnp, 1, vec![cnp(false, 0)]),
        (Rule::Cnp, 1, vec![cnp(true, 7)]),
        (Rule::ManagementQKey, 1, vec![datagram(B, 1, QKey(1))]),
    ]
}

#[test]
fn what_breaks_a_rule_is_found_where_it_does() {
    for (rule, number, frames) in violations() {
        assert_eq!(broken(&frames), [(number, rule)], "{rule}");
    }
}

#[test]
fn every_rule_is_tried() {
    let tried: BTreeSet<Rule> = violations().into_iter().map(|(rule, ..)| rule).collect();
    let missing = Rule::ALL.into_iter().filter(|rule| !tried.contains(rule));
    // A frame that is no packet never comes here.
    assert_eq!(missing.collect::<Vec<_>>(), [Rule::Format]);
}

/// What looks suspicious and is not.
#[rustfmt::skip]
fn legal() -> Vec<(&'static str, Vec<Sent>)> {
    let only = |psn| request("RC_SEND_ONLY", psn, 4);
    let sent = only(1);
    let partial = partial_udp_checksum(&sent);
    vec![
        ("a checksum that is left to the adapter", vec![with_udp_checksum(sent, partial)]),
        ("a capture that begins in the middle of a message", vec![request("RC_SEND_MIDDLE", 5, 256), request("RC_SEND_LAST", 6, 1)]),
        ("a gap within a message", vec![request("RC_SEND_FIRST", 1, 256), request("RC_WRITE_LAST", 4, 4)]),
        ("a message of many packets", vec![rdma("RC_WRITE_FIRST", 1, 600, 256), request("RC_WRITE_MIDDLE", 2, 256),
            request("RC_WRITE_LAST", 3, 88), only(4)]),
        ("a full last packet", vec![request("RC_SEND_FIRST", 1, 1024), request("RC_SEND_LAST", 2, 1024)]),
        ("a message of nothing", vec![request("RC_SEND_ONLY", 1, 0), rdma("RC_WRITE_ONLY", 2, 0, 0)]),
        ("one ACK for many messages", vec![only(1), only(2), only(3), ack(3, 3)]),
        ("an ACK in the middle of a message", vec![request("RC_SEND_FIRST", 1, 256), ack(1, 0), request("RC_SEND_LAST", 2, 4), ack(2, 1)]),
        ("an ACK for old PSNs with a newer count", vec![only(1), only(2), ack(1, 2), ack(2, 2)]),
        ("a ghost of an old ACK", vec![only(1), ack(1, 1), only(2), ack(2, 2), ack(1, 1)]),
        ("a NAK, and all again", vec![only(1), only(2), only(3), nak(2, 1), only(2), only(3), ack(3, 3)]),
        ("a frame that the capture missed", vec![only(1), ack(1, 1), ack(2, 2), only(3), ack(3, 3)]),
        ("a READ of unknown path MTU", vec![rdma("RC_READ_REQUEST", 1, 600, 0), only(4), data("RC_READ_RESPONSE_FIRST", 1, 256)]),
        ("a small READ, which tells no path MTU", vec![rdma("RC_READ_REQUEST", 1, 64, 0), request("RC_SEND_ONLY", 2, 1000)]),
        ("a READ that begins again where it was asked to", vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256),
            rest(2, 256, 344), data("RC_READ_RESPONSE_FIRST", 2, 256), data("RC_READ_RESPONSE_LAST", 3, 88)]),
        ("a READ that goes on where it was asked to", vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256),
            rest(2, 256, 344), middle(2, 256), data("RC_READ_RESPONSE_LAST", 3, 88)]),
        ("a READ whose end is asked for again", vec![rdma("RC_READ_REQUEST", 1, 600, 0), data("RC_READ_RESPONSE_FIRST", 1, 256),
            middle(2, 256), rest(3, 512, 88), data("RC_READ_RESPONSE_ONLY", 3, 88)]),
        ("answers to an earlier question for the rest", vec![rdma("RC_READ_REQUEST", 1, 1000, 0), data("RC_READ_RESPONSE_FIRST", 1, 256),
            rest(2, 256, 744), rest(3, 512, 488), data("RC_READ_RESPONSE_FIRST", 2, 256),
            data("RC_READ_RESPONSE_FIRST", 3, 256)]),
        ("a READ counted when it is accepted", vec![rdma("RC_READ_REQUEST", 1, 300, 0), only(3),
            answer("RC_READ_RESPONSE_FIRST", 1, Syndrome::Ack(Credits::INVALID), 1, 256), ack(3, 2)]),
        ("an atomic answered twice", vec![atomic(1, 8), original(1, 5), atomic(1, 8), original(1, 5)]),
        ("PSNs and counts over the wrap", vec![only(0xff_fffe), ack(0xff_fffe, 0xff_ffff), only(0xff_ffff), only(0), ack(0, 1)]),
        ("queue pairs used anew", vec![only(1), ack(1, 1), rdma("RC_WRITE_ONLY", 1, 4, 4), ack(1, 1)]),
        ("another connection with another path MTU", vec![request("RC_SEND_FIRST", 1, 256), request("RC_SEND_LAST", 2, 256),
            request("RC_SEND_FIRST", 5_000_000, 1024), request("RC_SEND_LAST", 5_000_001, 1024)]),
        ("another path MTU behind a gap when all was acknowledged", vec![request("RC_SEND_FIRST", 1, 256), request("RC_SEND_LAST", 2, 256), ack(2, 1),
            request("RC_SEND_FIRST", 500, 1024), request("RC_SEND_LAST", 501, 1024)]),
        ("another path MTU before all that was acknowledged", vec![request("RC_SEND_FIRST", 100, 256), request("RC_SEND_LAST", 101, 256), ack(101, 1),
            request("RC_SEND_FIRST", 50, 1024), request("RC_SEND_LAST", 51, 1024)]),
        ("another connection in the middle of a message where all was acknowledged", vec![only(5), only(6), ack(6, 1),
            request("RC_SEND_FIRST", 4, 256), request("RC_SEND_MIDDLE", 5, 256), request("RC_SEND_LAST", 6, 1), only(7)]),
        ("queue pairs of UC used anew", vec![frame(A, B, "UC_SEND_ONLY", bth(2, 1), &[1; 4]), frame(A, B, "UC_SEND_ONLY", bth(2, 1), &[1; 8])]),
        ("packets lost behind a READ of unknown path MTU", vec![rdma("RC_READ_REQUEST", 0, 8192, 0), request("RC_SEND_LAST", 4, 10),
            request("RC_SEND_FIRST", 5, 4096), request("RC_SEND_LAST", 6, 4), data("RC_READ_RESPONSE_FIRST", 0, 4096),
            data("RC_READ_RESPONSE_LAST", 1, 4096), request("RC_SEND_FIRST", 2, 4096), request("RC_SEND_MIDDLE", 3, 4096),
            request("RC_SEND_LAST", 4, 10), ack(6, 3)]),
        ("requests alone, and a READ that begins again", vec![rdma("RC_READ_REQUEST", 1, 8192, 0), rest(3, 2048, 6144),
            request("RC_SEND_FIRST", 9, 1024)]),
        ("an answer of a connection whose requests are not seen", vec![only(100), ack(5000, 7), only(101), only(102)]),
        ("a READ as long as half a circle, and its end", vec![only(50), rdma("RC_READ_REQUEST", 100, 1 << 31, 0),
            data("RC_READ_RESPONSE_FIRST", 100, 256), data("RC_READ_RESPONSE_LAST", 100 + (1 << 23) - 1, 256)]),
        ("far PSNs: another connection", vec![only(1), ack(1, 1), only(5_000_000), ack(5_000_000, 1)]),
        ("a CNP", vec![only(1), cnp(true, 0)]),
        ("a datagram to a group", vec![datagram(GROUP, 0xff_ffff, QKey(1))]),
        ("a management datagram", vec![datagram(B, 1, QKey::GSI)]),
        ("UC, and what was lost of it", vec![frame(A, B, "UC_SEND_FIRST", bth(2, 1), &[1; 256]), frame(A, B, "UC_SEND_ONLY", bth(2, 3), &[])]),
    ]
}

#[test]
fn what_is_legal_is_not_held_against_anybody() {
    for (what, frames) in legal() {
        assert_eq!(broken(&frames), [], "{what}");
    }
}

/// NCCL numbers the packets of all its connections from 0.
#[test]
fn equal_psns_of_two_connections_prove_nothing() {
    let to = |qp, psn, operation: &str| {
        let reth = Some(Reth { va: 0, r_key: RKey(3), dma_len: 4 });
        let payload = if operation == "RC_WRITE_ONLY" { &[7; 4][..] } else { &[] };
        frame(A, B, operation, Headers { reth, ..bth(qp, psn) }, payload)
    };
    let from = |qp, opcode: &str, psn, payload: &[u8]| {
        let aeth = Some(Aeth { syndrome: Syndrome::Ack(Credits::INVALID), msn: Msn::new(psn + 1) });
        frame(B, A, opcode, Headers { aeth, ..bth(qp, psn) }, payload)
    };
    let frames = [
        to(0x20, 0, "RC_WRITE_ONLY"),
        to(0x21, 0, "RC_WRITE_ONLY"),
        from(0x11, "RC_ACKNOWLEDGE", 0, &[]),
        from(0x10, "RC_ACKNOWLEDGE", 0, &[]),
        to(0x20, 1, "RC_WRITE_ONLY"),
        to(0x21, 1, "RC_READ_REQUEST"),
        // Only one of the two has sent a READ.
        from(0x11, "RC_READ_RESPONSE_ONLY", 1, &[7; 4]),
        from(0x10, "RC_ACKNOWLEDGE", 1, &[]),
        to(0x20, 2, "RC_WRITE_ONLY"),
        from(0x10, "RC_ACKNOWLEDGE", 2, &[]),
    ];
    let mut tracer = Tracer::default();
    let (notes, broken) = observe_by(&mut tracer, &frames);
    assert_eq!(broken, []);
    assert_eq!(tracer.summary().unclear_answers, 2);
    assert_eq!(notes[2..4], [[Note::RequestUnclear], [Note::RequestUnclear]]);
    assert!(matches!(notes[6][..], [Note::AnswersRead { frame: 6, part: 1, of: Some(1) }]));
    assert!(matches!(notes[7][..], [Note::Acknowledges { first: 1, last: 5, packets: 2 }]));
}

/// A count of messages is judged however many packets there were before.
#[test]
fn the_msn_is_judged_for_ever() {
    let mut frames = vec![request("RC_SEND_ONLY", 0, 4), ack(0, 1)];
    for k in 1..30 {
        let psn = k * 1_000_001;
        frames.push(rdma("RC_READ_REQUEST", psn - 1_000_000, 256_000_000, 0));
        frames.push(data_msn("RC_READ_RESPONSE_FIRST", psn - 1_000_000, 256, 2 * k));
        frames.push(request("RC_SEND_ONLY", psn, 4));
        frames.push(ack(psn, 2 * k + 1));
    }
    assert_eq!(broken(&frames), []);
    for at in (5..frames.len()).step_by(4) {
        let right = std::mem::replace(&mut frames[at], ack(0, 0));
        let psn = u32::try_from(at / 4).unwrap() * 1_000_001;
        frames[at] = ack(psn, 0x1234);
        assert_eq!(broken(&frames[..=at]), [(at as u64 + 1, Rule::Msn)], "{psn}");
        frames[at] = right;
    }
}

#[test]
fn a_corrupted_frame_teaches_nothing() {
    let first = flipped(request("RC_SEND_ONLY", 1, 4), 54);
    let frames = [first, request("RC_SEND_ONLY", 900_000, 4), ack(900_000, 1)];
    let notes = notes(&frames);
    assert_eq!(notes[0], [Note::Dropped]);
    assert!(!notes[1].contains(&Note::Restart), "{:?}", notes[1]);
}

#[test]
fn a_step_back_has_a_reason_and_what_follows_has_it_too() {
    let only = |psn| request("RC_SEND_ONLY", psn, 4);
    let frames = [only(1), only(2), only(3), nak(2, 1), only(2), only(3), only(2), only(3)];
    let texts: Vec<String> = notes(&frames)[3..]
        .iter()
        .map(|notes| notes.iter().map(Note::to_string).collect::<Vec<_>>().join("; "))
        .collect();
    assert_eq!(
        texts,
        [
            "acknowledges frame 1; asks again from frame 2 on",
            "retransmission of frame 2 (NAK in frame 4)",
            "retransmission of frame 3 (NAK in frame 4)",
            "retransmission of frame 2 (no NAK seen)",
            "retransmission of frame 3",
        ]
    );
}

#[test]
fn two_connections_between_the_same_hosts_are_told_apart_by_what_is_answered() {
    let to = |from, to, opcode: &str, qp, psn| frame(from, to, opcode, bth(qp, psn), &[1; 4]);
    let answer = |qp, psn| {
        let aeth = Some(Aeth { syndrome: Syndrome::Ack(Credits::INVALID), msn: Msn::new(1) });
        frame(B, A, "RC_ACKNOWLEDGE", Headers { aeth, ..bth(qp, psn) }, &[])
    };
    let frames = [
        to(A, B, "RC_SEND_ONLY", 0x20, 100),
        to(A, B, "RC_SEND_ONLY", 0x21, 700_000),
        answer(0x11, 700_000),
        answer(0x10, 100),
    ];
    let mut tracer = Tracer::default();
    let mut observation = Observation::default();
    let mut seen = Vec::new();
    for (number, sent) in (1..).zip(&frames) {
        let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
        let packet = Packet::parse(frame.body).unwrap();
        let icrc = IcrcVerdict::Good;
        show(&mut tracer, number, (&frame, &packet), icrc, &mut observation);
        seen.push((observation.conversation, observation.source_qp));
    }
    assert_eq!(seen[2], (seen[1].0, Some(Qpn::new(0x21))));
    assert_eq!(seen[3], (seen[0].0, Some(Qpn::new(0x20))));
    assert_ne!(seen[0].0, seen[1].0);
    let conversations = tracer.conversations();
    assert_eq!(conversations.len(), 2);
    assert_eq!(conversations[0].one, (IpAddr::V4(A), Some(Qpn::new(0x10))));
}

/// The frames of a handshake, each with its number.
fn handshake(first: u64) -> [(u64, Sent); 2] {
    let mut request = [0; Mad::LEN];
    request[..4].copy_from_slice(&[1, 7, 2, 3]);
    request[17] = 0x10;
    let mut reply = request;
    reply[17] = 0x13;
    // Queue pairs 0xabc of A and 0xdef of B.
    request[24 + 33..24 + 35].copy_from_slice(&[0x0a, 0xbc]);
    reply[24 + 13..24 + 15].copy_from_slice(&[0x0d, 0xef]);
    let deth = Some(Deth { q_key: QKey::GSI, reserved: 0, source_qp: Qpn::GSI });
    let headers = Headers { deth, ..bth(1, 0) };
    let request = frame(A, B, "UD_SEND_ONLY", headers, &request);
    [(first, request), (first + 1, frame(B, A, "UD_SEND_ONLY", headers, &reply))]
}

/// Whatever has to be forgotten when a handshake is seen.
#[test]
fn a_handshake_is_learned_when_memory_is_full() {
    for others in 16_378..16_386 {
        let mut tracer = Tracer::default();
        let mut observation = Observation::default();
        let sent = request("RC_SEND_ONLY", 1, 4);
        let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
        let mut packet = Packet::parse(frame.body).unwrap();
        for number in 1..=others {
            packet.headers.bth.dest_qp = Qpn::new(u32::try_from(number).unwrap() + 0x1000);
            show(&mut tracer, number, (&frame, &packet), IcrcVerdict::Good, &mut observation);
        }
        for (number, sent) in handshake(others + 1) {
            let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
            let packet = Packet::parse(frame.body).unwrap();
            show(&mut tracer, number, (&frame, &packet), IcrcVerdict::Good, &mut observation);
        }
        packet.headers.bth.dest_qp = Qpn::new(0xdef);
        show(&mut tracer, 50_000, (&frame, &packet), IcrcVerdict::Good, &mut observation);
        assert_eq!(observation.source_qp, Some(Qpn::new(0xabc)), "{others}");
    }
}

/// However many connections there are, memory is bounded and nothing is lost from the totals.
#[test]
fn many_connections_are_forgotten_but_counted() {
    let mut tracer = Tracer::default();
    let mut observation = Observation::default();
    let sent = request("RC_SEND_ONLY", 1, 4);
    let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
    let mut packet = Packet::parse(frame.body).unwrap();
    for number in 1..=40_000 {
        packet.headers.bth.dest_qp = Qpn::new(u32::try_from(number).unwrap() + 1);
        show(&mut tracer, number, (&frame, &packet), IcrcVerdict::Good, &mut observation);
    }
    assert!(tracer.forgotten() > 0 && tracer.conversations().len() <= 16_384);
    assert_eq!(tracer.summary().frames, 40_000);
}

/// The notes on each frame, in words.
fn told(frames: &[Sent]) -> Vec<String> {
    let in_words =
        |notes: &Vec<Note>| notes.iter().map(Note::to_string).collect::<Vec<_>>().join("; ");
    notes(frames).iter().map(in_words).collect()
}

#[test]
fn a_message_whose_first_packet_came_broken_begins_with_the_packet_sent_again() {
    let first = || request("RC_SEND_FIRST", 10, 256);
    let last = || request("RC_SEND_LAST", 11, 8);
    let frames =
        [flipped(first(), 60), last(), nak(10, 0), first(), last(), ack(11, 1), last(), ack(11, 1)];
    assert_eq!(
        told(&frames),
        [
            "the receiver drops it",
            "ends a message of which packets are missing",
            "asks again from its PSN on",
            "fills a gap (NAK in frame 3); message 1: SEND",
            "retransmission of frame 2 (NAK in frame 3); ends message 1 (2 packets, 264 B)",
            "acknowledges frames 4–5 (2 packets)",
            "retransmission of frame 2 (no NAK seen), though frame 6 acknowledged it",
            "acknowledged before",
        ]
    );
}

#[test]
fn a_message_whose_last_packet_came_late_ends_with_it() {
    let frames = [
        request("RC_SEND_FIRST", 1, 256),
        request("RC_SEND_ONLY", 3, 4),
        nak(2, 0),
        request("RC_SEND_LAST", 2, 8),
        request("RC_SEND_ONLY", 3, 4),
        ack(3, 2),
    ];
    let told = told(&frames);
    assert_eq!(told[1], "gap of 1 PSN before; message 2: SEND of 4 B");
    assert_eq!(told[2], "acknowledges frame 1; asks again from its PSN on");
    assert_eq!(told[3], "fills a gap (NAK in frame 3); ends message 1 (2 packets, 264 B)");
    assert_eq!(told[5], "acknowledges frames 4–5 (2 packets)");
    assert_eq!(broken(&frames), []);
}

/// The first packet comes again before the last one was ever sent.
#[test]
fn a_message_goes_on_where_its_hole_was_filled() {
    let frames = [
        request("RC_SEND_ONLY", 1, 4),
        request("RC_SEND_MIDDLE", 3, 256),
        request("RC_SEND_FIRST", 2, 256),
        request("RC_SEND_MIDDLE", 3, 256),
        request("RC_SEND_LAST", 4, 1),
    ];
    let told = told(&frames);
    assert_eq!(told[2], "fills a gap (no NAK seen); message 2: SEND");
    assert_eq!(told[4], "ends message 2 (3 packets, 513 B)");
}

#[test]
fn psns_are_counted_from_the_lowest_near_the_start() {
    let relative = |frames: &[Sent]| -> Vec<Option<i32>> {
        let (mut tracer, mut observation) = (Tracer::default(), Observation::default());
        let mut found = Vec::new();
        for (number, sent) in (1..).zip(frames) {
            let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
            let packet = Packet::parse(frame.body).unwrap();
            let icrc = IcrcVerdict::of(&frame);
            show(&mut tracer, number, (&frame, &packet), icrc, &mut observation);
            found.push(observation.relative_psn);
        }
        let counts = tracer.summary();
        assert_eq!(counts.frames, frames.len() as u64);
        let conversations = tracer.conversations();
        assert_eq!(conversations.len(), 1);
        assert_eq!(conversations[0].counts, counts, "every frame has its place");
        found
    };
    let first = || request("RC_SEND_FIRST", 10, 256);
    let last = || request("RC_SEND_LAST", 11, 8);
    let frames = [flipped(first(), 60), last(), nak(10, 0), first(), last()];
    assert_eq!(relative(&frames), [None, Some(1), Some(0), Some(0), Some(1)]);
    // Nobody could know at frame 2 what is still to come.
    assert_eq!(relative(&[last(), nak(10, 0), first(), last()]), [Some(0), None, Some(0), Some(1)]);
}

#[test]
fn a_frame_that_the_network_doubled_is_not_sent_again() {
    let one = identified(7, &request("RC_SEND_ONLY", 1, 4));
    let two = || identified(8, &request("RC_SEND_ONLY", 2, 4));
    let again = identified(9, &request("RC_SEND_ONLY", 2, 4));
    let answer = || identified(3, &ack(2, 2));
    let frames = [one, two(), two(), again, identified(2, &ack(1, 1)), answer(), answer()];
    let told = told(&frames);
    assert_eq!(told[2], "the same frame as 2, doubled by the network");
    assert_eq!(told[3], "retransmission of frame 2 (no NAK seen)");
    assert_eq!(told[6], "the same frame as 6, doubled by the network");
    // Nobody is known to count by the first frame, but no packet is sent again so soon.
    for (second_ns, is_doubled) in [(1_000, true), (9_191, true), (9_192, false)] {
        let bytes = request("RC_SEND_ONLY", 1, 4).bytes;
        let frame = Frame::parse(RawFrame::ethernet(&bytes)).unwrap();
        let (packet, outside) = (&Packet::parse(frame.body).unwrap(), &Outside::of(&frame));
        let (mut tracer, mut observation) = (Tracer::default(), Observation::default());
        for (number, time_ns) in [(1, 1_000), (2, second_ns)] {
            let seen = Seen { number, time_ns, outside, packet, icrc: IcrcVerdict::Good };
            tracer.observe(&seen, &mut observation);
        }
        let doubled = observation.notes.contains(&Note::Doubled { of: 1 });
        assert_eq!(doubled, is_doubled, "{second_ns}: {:?}", observation.notes);
    }
    // Whoever gives all packets one identification says nothing by it.
    let frames = [request("RC_SEND_ONLY", 1, 4), request("RC_SEND_ONLY", 1, 4)];
    assert_eq!(self::told(&frames)[1], "retransmission of frame 1 (no NAK seen)");
    for number in [0, 1] {
        let only = |psn| identified(number, &request("RC_SEND_ONLY", psn, 4));
        let told = self::told(&[only(1), only(2), only(2)]);
        assert_eq!(told[2], "retransmission of frame 2 (no NAK seen)");
    }
}

#[test]
fn the_kinds_of_notes_are_all_listed() {
    let kinds: BTreeSet<&str> = Note::KINDS.into_iter().collect();
    assert_eq!(kinds.len(), Note::KINDS.len());
    for (what, frames) in legal() {
        for note in notes(&frames).iter().flatten() {
            assert!(kinds.contains(note.kind()), "{what}: {}", note.kind());
        }
    }
}

/// The frames as a capture shows them that keeps `kept` bytes of each.
fn cut(frames: &[Sent], kept: usize) -> (Vec<String>, Vec<(u64, Rule)>, u64) {
    let (mut tracer, mut observation) = (Tracer::default(), Observation::default());
    let (mut told, mut broken) = (Vec::new(), Vec::new());
    for (number, sent) in (1..).zip(frames) {
        let first = &sent.bytes[..kept.min(sent.bytes.len())];
        let raw = RawFrame { first, ..RawFrame::ethernet(&sent.bytes) };
        let frame = Frame::parse(raw).unwrap();
        let packet = Packet::parse_start(frame.body).unwrap();
        let icrc = IcrcVerdict::of(&frame);
        show(&mut tracer, number, (&frame, &packet), icrc, &mut observation);
        let notes: Vec<String> = observation.notes.iter().map(Note::to_string).collect();
        told.push(notes.join("; "));
        broken.extend(observation.findings.iter().map(|finding| (number, finding.rule)));
    }
    (told, broken, tracer.summary().gaps)
}

/// Ethernet, IPv4, UDP and BTH.
const KEPT: usize = 14 + 20 + 8 + 12;

#[test]
fn a_packet_whose_headers_are_cut_takes_its_psns_and_breaks_no_rule() {
    let read = || rdma("RC_READ_REQUEST", 4, 600, 0);
    let frames = [
        rdma("RC_WRITE_FIRST", 1, 260, 256),
        request("RC_WRITE_LAST", 2, 4),
        atomic(3, 8),
        read(),
        original(3, 5),
        data("RC_READ_RESPONSE_FIRST", 4, 256),
        middle(5, 256),
        data("RC_READ_RESPONSE_LAST", 6, 88),
        request("RC_SEND_ONLY", 7, 4),
        read(),
        ack(7, 4),
        original(3, 6),
    ];
    let (told, broken, gaps) = cut(&frames, KEPT);
    assert_eq!((broken, gaps), (vec![], 0));
    assert_eq!(told[0], "message 1: WRITE");
    assert_eq!(told[1], "ends message 1 (2 packets, 260 B)");
    assert_eq!(told[3], "message 3: READ");
    assert_eq!(told[4], "answers FETCH_ADD of frame 3");
    assert_eq!(told[5], "answers READ of frame 4 (part 1)");
    assert_eq!(told[7], "answers READ of frame 4 (part 3)");
    assert_eq!(told[8], "message 4: SEND of 4 B");
    assert_eq!(told[9], "retransmission of frame 4 (no NAK seen), though frame 6 acknowledged it");
    // Whole, they show that the atomic is answered with another value.
    assert!(self::broken(&frames).contains(&(12, Rule::AtomicResponse)));
}

#[test]
fn a_cut_packet_and_a_whole_one_may_be_the_same() {
    let write = |va| at(rdma("RC_WRITE_ONLY", 1, 4, 4), va);
    let (mut tracer, mut observation) = (Tracer::default(), Observation::default());
    for (number, va, kept) in [(1, 0x1000, KEPT), (2, 0x1000, 78), (3, 0x2000, KEPT)] {
        let sent = write(va);
        let raw = RawFrame { first: &sent.bytes[..kept], ..RawFrame::ethernet(&sent.bytes) };
        let frame = Frame::parse(raw).unwrap();
        let packet = Packet::parse_start(frame.body).unwrap();
        assert_eq!(packet.has_all_headers(), kept > KEPT);
        show(&mut tracer, number, (&frame, &packet), IcrcVerdict::Unknown, &mut observation);
        assert_eq!(observation.findings, [], "{number}");
    }
    assert_eq!(tracer.summary().retransmissions, 2);
}

/// The network lets some packets wait; the sender counts in the IP identification.
#[test]
fn what_was_overtaken_is_late_and_not_sent_again() {
    let only = |id, psn| identified(id, &request("RC_SEND_ONLY", psn, 4));
    let frames = || {
        [
            only(10, 1),
            only(11, 2),
            only(12, 3),
            only(15, 6),
            nak(4, 3),
            only(16, 4),
            only(17, 5),
            only(18, 6),
            only(13, 4),
            only(14, 5),
            only(19, 6),
        ]
    };
    let told = told(&frames());
    assert_eq!(told[5], "fills a gap (NAK in frame 5); message 5: SEND of 4 B");
    assert_eq!(told[7], "retransmission of frame 4 (NAK in frame 5)");
    assert_eq!(told[8], "late: sent before frame 6, which repeats it");
    assert_eq!(told[9], "late: sent before frame 7, which repeats it");
    assert_eq!(told[10], "retransmission of frame 4 (no NAK seen)");
    let counts = {
        let mut tracer = Tracer::default();
        observe_by(&mut tracer, &frames());
        tracer.summary()
    };
    assert_eq!((counts.retransmissions, counts.gaps), (4, 1), "two copies, one repetition");
    // What fills a gap was not asked for if it was sent before the NAK came.
    let late = [only(10, 1), only(11, 2), only(12, 3), only(14, 5), nak(4, 3), only(13, 4)];
    assert_eq!(
        self::told(&late)[5],
        "fills a gap (late: sent before frame 4); message 5: SEND of 4 B"
    );
    // Numbers that are no count tell nothing.
    let ids = [(40_000, 1), (7, 2), (30_000, 3), (21_000, 5), (20_990, 4), (29_999, 3)];
    let told = self::told(&ids.map(|(id, psn)| only(id, psn)));
    assert_eq!(told[4], "fills a gap (no NAK seen); message 5: SEND of 4 B");
    assert_eq!(told[5], "retransmission of frame 3 (no NAK seen)");
}

#[test]
fn a_packet_whose_message_is_not_all_there_says_so() {
    let frames = [
        request("RC_SEND_MIDDLE", 1, 256),
        request("RC_SEND_LAST", 2, 4),
        request("RC_SEND_FIRST", 3, 256),
        request("RC_SEND_LAST", 5, 4),
    ];
    let told = told(&frames);
    assert_eq!(told[0], "in a message of which packets are missing");
    assert_eq!(told[1], "ends a message of which packets are missing");
    assert_eq!(told[3], "gap of 1 PSN before; ends a message of which packets are missing");
}

/// Nothing tells who the other half of its connection is.
#[test]
fn a_conversation_knows_the_numbers_that_its_frames_were_shown_with() {
    let other = || frame(A, B, "RC_SEND_ONLY", bth(3, 500), &[7; 4]);
    let back = || frame(B, A, "RC_SEND_ONLY", bth(1, 900), &[7; 4]);
    // What comes back is taken for the other half of the first, until it answers the second.
    let frames = [request("RC_SEND_ONLY", 1, 4), back(), other(), ack(500, 1)];
    let (mut tracer, mut observation) = (Tracer::default(), Observation::default());
    let mut shown = Vec::new();
    for (number, sent) in (1..).zip(&frames) {
        let frame = Frame::parse(RawFrame::ethernet(&sent.bytes)).unwrap();
        let packet = Packet::parse(frame.body).unwrap();
        show(&mut tracer, number, (&frame, &packet), IcrcVerdict::of(&frame), &mut observation);
        shown.extend(observation.conversation.map(NonZeroU32::get));
    }
    assert_eq!(shown, [1, 1, 2, 2]);
    let conversations = tracer.conversations();
    let numbers = |it: &ConversationSummary| {
        (it.number.get(), it.also.iter().map(|also| also.get()).collect::<Vec<_>>())
    };
    assert_eq!(conversations.iter().map(numbers).collect::<Vec<_>>(), [(1, vec![]), (2, vec![1])]);
    assert_eq!(conversations.iter().map(|it| it.counts.frames).collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn a_congestion_notification_joins_no_conversation_by_guess() {
    let other = frame(A, B, "RC_SEND_ONLY", bth(0x77, 5), &[]);
    let mut tracer = Tracer::default();
    observe_by(&mut tracer, &[other, cnp(true, 0)]);
    assert_eq!(tracer.conversations().len(), 2);
    // What answers the requests proves it, before or after.
    let mut tracer = Tracer::default();
    observe_by(&mut tracer, &[cnp(true, 0), request("RC_SEND_ONLY", 1, 4), ack(1, 1)]);
    let [conversation] = &tracer.conversations()[..] else { panic!("one conversation") };
    assert_eq!((conversation.counts.frames, conversation.counts.cnps), (3, 1));
    assert_eq!(conversation.service, roxe_wire::opcode::Service::Rc);
}
