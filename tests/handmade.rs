//! The captures `pcaps/made_*.pcap`: what Linux' software adapter cannot be made to send.
//!
//! Each is written here frame by frame, through the wire crate, and must equal the file. A change
//! is taken over with
//!
//! ```text
//! ROXE_UPDATE=1 cargo nextest run --test handmade
//! ```

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roxe::wire::opcode::Service;
use roxe::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CnpReserved, Credits, Deth, Feth, FlushPlacement,
    FlushSelectivity, FrameTemplate, Headers, Ieth, ImmDt, IpPair, MacAddress, Msn, NakCode,
    Opcode, PKey, Packet, Path, Payload, Psn, QKey, Qpn, RKey, Reth, RnrTimer, Room, Syndrome,
    TrafficClass, VlanTag, XrcSrqNumber, Xrceth, cnp_bth,
};
use roxe_net::capture_file::{LinkType, NewRecord, PcapWriter, Timestamp};

/// A capture in the making.
struct Capture {
    writer: PcapWriter<Vec<u8>>,
    now_ns: u64,
}

impl Capture {
    fn new() -> Self {
        let writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0).unwrap();
        Self { writer, now_ns: 1_767_225_600_000_000_000 }
    }

    /// Adds a frame 10 µs later.
    fn frame(&mut self, bytes: &[u8]) {
        self.cut_frame(bytes, bytes.len());
    }

    /// Adds the first `kept` bytes of a frame.
    fn cut_frame(&mut self, bytes: &[u8], kept: usize) {
        let record = NewRecord {
            time: Timestamp::from_nanos(self.now_ns),
            data: &bytes[..kept],
            wire_len: u32::try_from(bytes.len()).unwrap(),
            ..NewRecord::default()
        };
        self.writer.write(&record).unwrap();
        self.now_ns += 10_000;
    }

    /// Compares with the file, or writes it.
    fn is(self, name: &str) {
        let bytes = self.writer.finish().unwrap();
        let path = format!("{}/pcaps/{name}", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("ROXE_UPDATE").is_some() {
            fs::write(&path, &bytes).unwrap();
        }
        assert!(fs::read(&path).unwrap_or_default() == bytes, "{name} is another");
    }
}

/// One of two hosts, `a` and `b`, as it sends to the other.
#[derive(Clone, Copy)]
struct Sender {
    path: Path,
    /// The other side's queue pair.
    to: Qpn,
}

const A: (MacAddress, [u8; 4]) = (MacAddress([2, 0, 0, 0, 0, 0x0a]), [192, 0, 2, 10]);
const B: (MacAddress, [u8; 4]) = (MacAddress([2, 0, 0, 0, 0, 0x0b]), [192, 0, 2, 11]);

/// `a` and `b`, who talk from queue pair 0x4a to 0x4b and back.
fn hosts() -> (Sender, Sender) {
    let sender = |from: (MacAddress, [u8; 4]), to: (MacAddress, [u8; 4]), qp| Sender {
        path: Path {
            ethernet: (to.0, from.0),
            vlan: None,
            ip: IpPair::V4 { source: from.1.into(), destination: to.1.into() },
            traffic_class: TrafficClass(0x6a),
            hop_limit: 64,
            flow_label: 0,
            source_port: 0xc04a,
        },
        to: Qpn::new(qp),
    };
    (sender(A, B, 0x4b), sender(B, A, 0x4a))
}

impl Sender {
    /// A frame with these headers; opcode, destination and pad count are filled in, and MigReq is
    /// set as hardware does.
    fn send(&self, opcode: &str, headers: Headers, payload: &[u8]) -> Vec<u8> {
        let opcode = Opcode::by_name(opcode).expect(opcode);
        let payload = Payload::bytes(payload);
        let bth = Bth {
            opcode: opcode.code,
            dest_qp: if headers.bth.dest_qp == Qpn::new(0) { self.to } else { headers.bth.dest_qp },
            pad: payload.pad(),
            mig_req: opcode.service != Service::Cnp,
            ..headers.bth
        };
        let packet = Packet { opcode, headers: Headers { bth, ..headers }, payload };
        let template = FrameTemplate::new(&self.path);
        let at = template.headers_len();
        let mut bytes = vec![0; at + packet.len()];
        let len = u16::try_from(packet.len()).unwrap();
        let cover = template.write(len, 0x1c46, &mut bytes).unwrap();
        packet.emit(Room::whole(&mut bytes[at..]), &cover).unwrap();
        bytes
    }

    fn ack(&self, psn: u32, syndrome: Syndrome, msn: u32) -> Vec<u8> {
        self.send("RC_ACKNOWLEDGE", Headers { aeth: aeth(syndrome, msn), ..at(psn) }, &[])
    }

    fn marked(mut self) -> Self {
        self.path.traffic_class.0 |= 3;
        self
    }
}

fn at(psn: u32) -> Headers {
    Headers { bth: Bth { psn: Psn::new(psn), ..Bth::default() }, ..Headers::default() }
}

/// The same, with AckReq.
fn asking(psn: u32) -> Headers {
    let mut headers = at(psn);
    headers.bth.ack_req = true;
    headers
}

fn aeth(syndrome: Syndrome, msn: u32) -> Option<Aeth> {
    Some(Aeth { syndrome, msn: Msn::new(msn) })
}

fn reth(dma_len: u32) -> Option<Reth> {
    Some(Reth { va: 0x7f00_0000_1000, r_key: RKey(0x1234), dma_len })
}

fn credits(buffers: u32) -> Syndrome {
    Syndrome::Ack(Credits::for_buffers(buffers))
}

/// Ethernet's shortest frame has 60 bytes.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// Hardware: one ACK for many messages, credits that mean something, MigReq, reserved bits that are
/// set, padding, congestion marks and notifications, a ghost, a READ begun again in the middle.
#[test]
fn hardware() {
    let (a, b) = hosts();
    let mut capture = Capture::new();
    let full = [0x55; 1024];
    // Four messages, the last of which asks for an answer: one ACK.
    for psn in 100..103 {
        capture.frame(&padded(a.send("RC_SEND_ONLY", at(psn), b"hi")));
    }
    let mut last = asking(103);
    last.bth.reserved_6 = 0x10;
    last.bth.solicited = true;
    capture.frame(&padded(a.send("RC_SEND_ONLY", last, b"")));
    capture.frame(&padded(b.ack(103, credits(24), 4)));
    // A congested switch marks packets on their way; the receiver says so.
    let write = Headers { reth: reth(2048 + 10), ..at(104) };
    capture.frame(&a.marked().send("RC_WRITE_FIRST", write, &full));
    let cnp = Headers {
        bth: cnp_bth(b.to, PKey::DEFAULT),
        cnp_reserved: Some(CnpReserved::default()),
        ..Headers::default()
    };
    capture.frame(&padded(b.send("CNP", cnp, &[])));
    capture.frame(&a.marked().send("RC_WRITE_MIDDLE", at(105), &full));
    let last = Headers { imm_dt: Some(ImmDt(0xfeed_beef)), ..asking(106) };
    capture.frame(&padded(a.send("RC_WRITE_LAST_IMM", last, &[7; 10])));
    // The ACK for it takes one buffer; an older one is doubled on its way.
    capture.frame(&padded(b.ack(106, credits(16), 5)));
    capture.frame(&padded(b.ack(103, credits(24), 4)));
    // No buffer for the next.
    let receiver_not_ready = Syndrome::RnrNak(RnrTimer::from_bits(12));
    capture.frame(&padded(a.send("RC_SEND_ONLY", asking(107), b"early")));
    capture.frame(&padded(b.ack(107, receiver_not_ready, 5)));
    capture.frame(&padded(a.send("RC_SEND_ONLY", asking(107), b"early")));
    capture.frame(&padded(b.ack(107, credits(0), 6)));
    // A READ whose second response is lost: the rest is asked for again, and begins with a FIRST.
    let read = |psn, skip: u64| Headers {
        reth: Some(Reth {
            va: 0x7f00_0000_1000 + skip,
            r_key: RKey(0x1234),
            dma_len: 3000 - u32::try_from(skip).unwrap(),
        }),
        ..asking(psn)
    };
    let first = |psn| Headers { aeth: aeth(credits(32), 7), ..at(psn) };
    capture.frame(&a.send("RC_READ_REQUEST", read(108, 0), &[]));
    capture.frame(&b.send("RC_READ_RESPONSE_FIRST", first(108), &full));
    capture.frame(&b.send("RC_READ_RESPONSE_LAST", first(110), &full[..952]));
    capture.frame(&a.send("RC_READ_REQUEST", read(109, 1024), &[]));
    capture.frame(&b.send("RC_READ_RESPONSE_FIRST", first(109), &full));
    capture.frame(&b.send("RC_READ_RESPONSE_LAST", first(110), &full[..952]));
    // An error that ends it.
    capture.frame(&a.send("RC_WRITE_ONLY", Headers { reth: reth(4), ..asking(111) }, b"last"));
    capture.frame(&padded(b.ack(111, Syndrome::Nak(NakCode::RemoteAccessError), 7)));
    capture.is("made_hardware.pcap");
}

/// The annexes: XRC, FLUSH, ATOMIC WRITE; and a datagram to a group, over IPv6.
#[test]
fn annexes() {
    let (a, b) = hosts();
    let mut capture = Capture::new();
    let none = Syndrome::Ack(Credits::INVALID);
    let done = |psn, msn| Headers { aeth: aeth(none, msn), ..at(psn) };
    let feth = Feth {
        placement: FlushPlacement { persistence: true, ..FlushPlacement::default() },
        selectivity: FlushSelectivity::Range,
        reserved: 0,
    };
    capture.frame(&a.send("RC_WRITE_ONLY", Headers { reth: reth(8), ..at(500) }, b"12345678"));
    let flush = Headers { feth: Some(feth), reth: reth(8), ..asking(501) };
    capture.frame(&a.send("RC_FLUSH", flush, &[]));
    capture.frame(&padded(b.send("RC_READ_RESPONSE_ONLY", done(501, 2), &[])));
    let write = Headers { reth: reth(8), ..asking(502) };
    capture.frame(&a.send("RC_ATOMIC_WRITE", write, b"pointer!"));
    capture.frame(&padded(b.send("RC_READ_RESPONSE_ONLY", done(502, 3), &[])));

    let (a, b) = (Sender { to: Qpn::new(0x5b), ..a }, Sender { to: Qpn::new(0x5a), ..b });
    let xrceth = Some(Xrceth { reserved: 0, xrc_srq: XrcSrqNumber::new(0x77) });
    let xrc = |headers: Headers| Headers { xrceth, ..headers };
    capture.frame(&a.send("XRC_SEND_FIRST", xrc(at(0xff_fffe)), &[1; 256]));
    let last = Headers { ieth: Some(Ieth { r_key: RKey(0x99) }), ..xrc(asking(0xff_ffff)) };
    capture.frame(&a.send("XRC_SEND_LAST_INV", last, &[2; 3]));
    capture.frame(&padded(b.send("XRC_ACKNOWLEDGE", done(0xff_ffff, 1), &[])));
    let read = Headers { reth: reth(300), ..xrc(asking(0)) };
    capture.frame(&a.send("XRC_READ_REQUEST", read, &[]));
    capture.frame(&b.send("XRC_READ_RESPONSE_FIRST", done(0, 2), &[3; 256]));
    capture.frame(&b.send("XRC_READ_RESPONSE_LAST", done(1, 2), &[3; 44]));
    let atomic_eth = AtomicEth { va: 0x1000, r_key: RKey(5), swap_add: 1, compare: 0 };
    let swap = Headers { atomic_eth: Some(atomic_eth), ..xrc(asking(2)) };
    capture.frame(&a.send("XRC_CMP_SWAP", swap, &[]));
    let answer = AtomicAckEth { original: 0xdead_beef_0000_0001 };
    let answer = Headers { atomic_ack_eth: Some(answer), ..done(2, 3) };
    capture.frame(&padded(b.send("XRC_ATOMIC_ACKNOWLEDGE", answer, &[])));

    let group: Ipv6Addr = "ff15::beef".parse().unwrap();
    let mut datagram = a;
    datagram.path.ethernet.0 = MacAddress([0x33, 0x33, 0, 0, 0xbe, 0xef]);
    datagram.path.ip = IpPair::V6 { source: "2001:db8::a".parse().unwrap(), destination: group };
    datagram.path.flow_label = 0xa_bcde;
    datagram.to = Qpn::MULTICAST;
    let deth = Deth { q_key: QKey::RDMA_CM, reserved: 0, source_qp: Qpn::new(0x5c) };
    let headers = Headers { deth: Some(deth), imm_dt: Some(ImmDt(1)), ..at(0) };
    capture.frame(&datagram.send("UD_SEND_ONLY_IMM", headers, b"to all"));
    capture.is("made_annexes.pcap");
}

/// Around the packets: tags, other traffic, frames that the capture cut, opcodes of a
/// manufacturer. Nothing here is anybody's fault.
#[test]
fn around() {
    let (a, b) = hosts();
    let mut capture = Capture::new();
    let tagged = |vlan| Sender { path: Path { vlan: Some(VlanTag(vlan)), ..a.path }, to: a.to };
    let plain = a.send("RC_SEND_ONLY", asking(1), b"plain");
    capture.frame(&plain);
    capture.frame(&padded(tagged(0xa000).send("RC_SEND_ONLY", asking(2), b"priority tag")));
    let inner = padded(tagged(0x0064).send("RC_SEND_ONLY", asking(3), b"two tags"));
    let mut outer = inner[..12].to_vec();
    outer.extend([0x88, 0xa8, 0x60, 0xc8]);
    outer.extend(&inner[12..]);
    capture.frame(&outer);
    capture.frame(&padded(b.ack(3, Syndrome::Ack(Credits::INVALID), 3)));
    // Cut behind the headers, and within them.
    let long = a.send("RC_WRITE_ONLY", Headers { reth: reth(1000), ..asking(4) }, &[9; 1000]);
    capture.cut_frame(&long, 96);
    capture.cut_frame(&long, 60);
    capture.cut_frame(&long, 30);
    // Not RoCE: ARP, another port, a fragment of something else.
    let mut other = plain.clone();
    other[12..14].copy_from_slice(&[0x08, 0x06]);
    capture.frame(&other);
    let mut other = plain.clone();
    other[36..38].copy_from_slice(&53u16.to_be_bytes());
    capture.frame(&other);
    other[20] = 0x20;
    capture.frame(&other);
    // An opcode that means something to somebody.
    let mut manufacturers = plain;
    manufacturers[42] = 0xe3;
    seal(&mut manufacturers);
    capture.frame(&manufacturers);
    capture.is("made_around.pcap");
}

/// Makes the ICRC of an IPv4 frame right again.
fn seal(bytes: &mut [u8]) {
    let raw = roxe::wire::RawFrame::ethernet(bytes);
    let frame = roxe::wire::Frame::parse(raw).unwrap();
    let icrc = roxe::wire::icrc::expected(&frame.icrc_cover(), frame.body).unwrap();
    let end = bytes.len() - frame.padding;
    bytes[end - 4..end].copy_from_slice(&icrc.to_le_bytes());
}

/// Makes an IPv4 header's checksum right again.
fn seal_ip(bytes: &mut [u8], header_len: usize) {
    bytes[24..26].fill(0);
    let mut sum: u32 = bytes[14..14 + header_len]
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    bytes[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Frames with something wrong, one each.
#[test]
fn broken() {
    let (a, b) = hosts();
    let mut capture = Capture::new();
    let good = a.send("RC_SEND_ONLY", asking(1), b"good");
    capture.frame(&good);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    // 2: a bit of the payload flipped.
    capture.frame(&with(&|bytes| bytes[54] ^= 1));
    // 3: IP options, 4: a fragment, 5: the IP checksum, 6: lengths that contradict each other.
    capture.frame(&with(&|bytes| {
        bytes.splice(34..34, [1, 1, 1, 0]);
        bytes[14] = 0x46;
        bytes[17] += 4;
        seal_ip(bytes, 24);
    }));
    capture.frame(&with(&|bytes| {
        bytes[20] = 0x20;
        seal_ip(bytes, 20);
    }));
    capture.frame(&with(&|bytes| bytes[24] ^= 0x10));
    capture.frame(&with(&|bytes| bytes[39] -= 4));
    // 7: transport version 1, 8: a reserved opcode, 9: too short for its headers.
    capture.frame(&with(&|bytes| {
        bytes[43] |= 1;
        seal(bytes);
    }));
    capture.frame(&with(&|bytes| {
        bytes[42] = 0x15;
        seal(bytes);
    }));
    capture.frame(&with(&|bytes| {
        bytes[42] = 0x0a;
        seal(bytes);
    }));
    // 10: a pad count that is more than there is, 11: a reserved syndrome.
    let mut headers = asking(2);
    headers.bth.pad = 0;
    let mut empty = a.send("RC_SEND_ONLY", headers, b"");
    empty[43] |= 0x20;
    seal(&mut empty);
    capture.frame(&empty);
    let mut ack = b.ack(1, Syndrome::Ack(Credits::INVALID), 1);
    ack[54] = 0x45;
    seal(&mut ack);
    capture.frame(&ack);
    // 12: a UDP checksum that is neither 0 nor right.
    capture.frame(&with(&|bytes| bytes[40..42].copy_from_slice(&[0x12, 0x34])));
    // 13: queue pair 0, 14: the QP of all group members at one host's address, 15: a datagram to
    // QP 1 with a strange key.
    let mut to_smi = a.send("RC_SEND_ONLY", asking(9), b"good");
    to_smi[47..50].fill(0);
    seal(&mut to_smi);
    capture.frame(&to_smi);
    let deth = |q_key| Some(Deth { q_key: QKey(q_key), reserved: 0, source_qp: Qpn::new(9) });
    let mut all = at(0);
    all.bth.dest_qp = Qpn::MULTICAST;
    all.deth = deth(1);
    capture.frame(&a.send("UD_SEND_ONLY", all, b"all"));
    let mut management = at(0);
    management.bth.dest_qp = Qpn::GSI;
    management.deth = deth(1);
    capture.frame(&a.send("UD_SEND_ONLY", management, &[0; 256]));
    // 16: a CNP without BECN.
    let cnp = Headers {
        bth: Bth { becn: false, ..cnp_bth(b.to, PKey::DEFAULT) },
        cnp_reserved: Some(CnpReserved::default()),
        ..Headers::default()
    };
    capture.frame(&padded(b.send("CNP", cnp, &[])));
    // 17: an IPv6 extension header.
    let mut v6 = a;
    v6.path.ip = IpPair::new(
        IpAddr::V6("2001:db8::a".parse().unwrap()),
        IpAddr::V6("2001:db8::b".parse().unwrap()),
    )
    .unwrap();
    let mut bytes = v6.send("RC_SEND_ONLY", asking(1), b"good");
    bytes.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    bytes[20] = 60;
    bytes[19] += 8;
    capture.frame(&bytes);
    capture.is("made_broken.pcap");
}

/// The known frames of the wire crate's tests: those that are right, then those that are not.
#[test]
fn vectors() {
    let text = include_str!("../crates/wire/tests/vectors.json");
    let file: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut capture = Capture::new();
    for group in ["vectors", "negative"] {
        for vector in file[group].as_array().unwrap() {
            let hex = vector["frame_hex"].as_str().unwrap();
            let bytes: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            capture.frame(&bytes);
        }
    }
    capture.is("made_vectors.pcap");
}

#[test]
fn hosts_have_documentation_addresses() {
    for address in [A.1, B.1].map(Ipv4Addr::from) {
        assert!(address.is_documentation(), "{address}");
    }
}
