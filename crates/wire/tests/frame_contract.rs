//! The contract between a port and the engine, played with an engine of a page: whatever a port's
//! memory looks like, payload is copied once per side, and received memory is never written.

use std::ops::Range;

use roxe_wire::opcode::{Operation, Position, Service};
use roxe_wire::{
    Addressing, Body, Bth, Deth, DropReason, Frame, FrameTemplate, Grh, Headers, Opcode, Packet,
    PacketWriter, Path, Payload, Psn, QKey, Qpn, RawFrame, Received, Room, TrafficClass, icrc,
    pad_for,
};

/// An application's memory, which counts what is copied out of it and into it. Where a simulation
/// has none, a digest stands for it.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    digest: u32,
    copied: usize,
}

impl Memory {
    fn read(&mut self, from: usize, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes[from..from + to.len()]);
        self.copied += to.len();
    }

    fn write(&mut self, from: &[u8]) {
        self.bytes.extend(from);
        self.copied += from.len();
    }
}

/// One queue pair that sends its memory in datagrams of `mtu` bytes, or receives into it.
struct Engine {
    memory: Memory,
    mtu: usize,
    sent: usize,
    unverified: u32,
    grhs: Vec<Grh>,
}

/// What a port learns about a packet that it shall send: here all go the same path.
struct Transmit {
    /// Bytes from BTH to ICRC, as many as the packet has on the wire.
    len: usize,
    /// The payload, if its bytes were not written.
    digest: Option<u32>,
}

impl Engine {
    fn new(bytes: Vec<u8>, mtu: usize) -> Self {
        let memory = Memory { bytes, digest: 0, copied: 0 };
        Self { memory, mtu, sent: 0, unverified: 0, grhs: Vec::new() }
    }

    /// The next packet. The ICRC is left to the port, which knows the headers before the BTH.
    fn poll_transmit(&mut self, room: Room<'_>) -> Option<Transmit> {
        let (from, len) = (self.sent, self.mtu.min(self.memory.bytes.len() - self.sent));
        if len == 0 {
            return None;
        }
        self.sent += len;
        let mut writer = PacketWriter::start(&headers(from, len), len, room).unwrap();
        // As a scatter/gather list would: in two pieces.
        for piece in [0..len / 3, len / 3..len] {
            let at = from + piece.start;
            let fill = |[first, second]: [&mut [u8]; 2]| {
                self.memory.read(at, first);
                self.memory.read(at + first.len(), second);
            };
            writer.fill(piece.len(), fill).unwrap();
        }
        Some(Transmit { len: writer.finish_unsealed().unwrap(), digest: None })
    }

    /// The same without a place for payload.
    fn poll_transmit_elided(&mut self, len: usize, room: &mut [u8]) -> Transmit {
        let headers = headers(self.sent, len);
        headers.emit(room).unwrap();
        let payload = Payload::Elided { len, digest: self.memory.digest };
        let packet = Packet { opcode: headers.bth.row().unwrap(), headers, payload };
        Transmit { len: packet.len(), digest: Some(self.memory.digest) }
    }

    fn handle_packet(&mut self, received: Received<'_>) -> Result<(), DropReason> {
        match received.check_icrc() {
            Some(verdict) => verdict?,
            None => self.unverified += 1,
        }
        let packet = Packet::parse(received.body)?;
        self.grhs.extend(received.grh());
        if let Payload::Elided { digest, .. } = packet.payload {
            self.memory.digest = digest;
        }
        for piece in packet.payload.pieces() {
            self.memory.write(piece);
        }
        Ok(())
    }
}

fn headers(from: usize, len: usize) -> Headers {
    let row = Opcode::find(Service::Ud, Operation::Send, Position::Only, None).unwrap();
    let psn = Psn::new(from.try_into().unwrap());
    let bth = Bth { opcode: row.code, pad: pad_for(len), psn, ..Bth::default() };
    let deth = Deth { q_key: QKey::RDMA_CM, reserved: 0, source_qp: Qpn::new(0x22) };
    Headers { bth, deth: Some(deth), ..Headers::default() }
}

/// How the sender's packets arrive.
fn addressing(is_v4: bool) -> Addressing {
    let text = if is_v4 { ["192.0.2.1", "192.0.2.2"] } else { ["2001:db8::1", "2001:db8::2"] };
    let [source, destination] = text.map(|text| text.parse().unwrap());
    Addressing {
        source,
        destination,
        source_port: 0xc123,
        traffic_class: TrafficClass(0x68),
        hop_limit: 63,
        flow_label: 0,
        vlan: None,
    }
}

/// How they are sent: a router counts the hop limit down.
fn path(is_v4: bool) -> Path {
    Path { hop_limit: 64, ..addressing(is_v4).path().unwrap() }
}

fn data(len: usize) -> Vec<u8> {
    (0..=250_u8).cycle().take(len).collect()
}

/// Frames with room for the longest headers before the BTH: what a path's headers do not need of
/// it is left free in front.
const BTH_AT: usize = FrameTemplate::MAX;

/// Frames what the engine wrote behind [`BTH_AT`] of two chunks; returns where the frame begins.
fn finish(template: &FrameTemplate, len: usize, chunks: [&mut [u8]; 2]) -> usize {
    let [first, second] = chunks;
    let at = BTH_AT - template.headers_len();
    let cover = template.write(len.try_into().unwrap(), 7, &mut first[at..]).unwrap();
    let in_first = len.min(first.len() - BTH_AT);
    let (first, second) = (&mut first[BTH_AT..BTH_AT + in_first], &mut second[..len - in_first]);
    assert!(icrc::seal(&cover, Room { first, second }));
    at
}

fn lies_in(piece: &[u8], memory: &[u8]) -> bool {
    let Range { start, end } = memory.as_ptr_range();
    let piece = piece.as_ptr_range();
    start <= piece.start && piece.end <= end
}

/// AF_XDP at a path MTU of 4096: a frame lies in a chunk of 3840 bytes and another.
#[test]
fn a_frame_in_two_chunks() {
    for is_v4 in [true, false] {
        let template = FrameTemplate::new(&path(is_v4));
        let mut sender = Engine::new(data(3 * 4096 + 5), 4096);
        let mut receiver = Engine::new(Vec::new(), 4096);
        let mut chunks = [[0; 3840], [0; 3840]];
        loop {
            let [first, second] = &mut chunks;
            let room = Room { first: &mut first[BTH_AT..], second };
            let Some(transmit) = sender.poll_transmit(room) else { break };
            let at = finish(&template, transmit.len, [first, second]);

            // The wire, and on the other side the same two chunks, which nobody may write.
            let chunks: &[[u8; 3840]; 2] = &chunks;
            let wire_len = BTH_AT - at + transmit.len;
            let second = &chunks[1][..wire_len.saturating_sub(3840 - at)];
            let first = &chunks[0][at..3840.min(at + wire_len)];
            let raw = RawFrame { first, second, wire_len, ..RawFrame::ethernet(first) };
            let received = Frame::parse(raw).unwrap().received();
            let [head, tail] = Packet::parse(received.body).unwrap().payload.pieces();
            assert!(lies_in(head, &chunks[0]) && (tail.is_empty() || lies_in(tail, &chunks[1])));
            receiver.handle_packet(received).unwrap();
        }
        assert_eq!(receiver.memory.bytes, sender.memory.bytes);
        assert_eq!(sender.memory.copied, 3 * 4096 + 5, "once out");
        assert_eq!(receiver.memory.copied, 3 * 4096 + 5, "once in");
        assert_eq!(receiver.unverified, 0);
    }
}

/// A UDP socket: no headers, many datagrams of one size in one buffer, the last may be shorter.
#[test]
fn a_super_packet_without_headers() {
    for (is_v4, knows_identification) in [(true, false), (true, true), (false, false)] {
        let template = FrameTemplate::new(&path(is_v4));
        let mut sender = Engine::new(data(20 * 1024 + 7), 1024);
        let mut receiver = Engine::new(Vec::new(), 1024);

        // The engine writes one packet behind the other, each in its place of the one buffer.
        let segment = 12 + 8 + 1024 + 4;
        let mut buffer = vec![0; 21 * segment];
        let (mut sent, mut identification) = (0, 0);
        while let Some(transmit) = sender.poll_transmit(Room::whole(&mut buffer[sent..])) {
            // The kernel counts the identification up within a super-packet.
            let len = transmit.len.try_into().unwrap();
            let cover = template.icrc_cover(len, identification).unwrap();
            icrc::seal(&cover, Room::whole(&mut buffer[sent..sent + transmit.len]));
            (sent, identification) = (sent + transmit.len, identification + 1);
        }

        // The other side gets the buffer, the segment size, and who sent it.
        let addressing = addressing(is_v4);
        let came_on = FrameTemplate::new(&addressing.path().unwrap());
        for (identification, datagram) in (0..).zip(buffer[..sent].chunks(segment)) {
            // IPv4's identification is covered and not told to sockets.
            let cover = (!is_v4 || knows_identification)
                .then(|| came_on.icrc_cover(datagram.len().try_into().unwrap(), identification))
                .flatten();
            let body = Body::whole(datagram);
            let payload = Packet::parse(body).unwrap().payload;
            assert!(payload.pieces().iter().all(|p| p.is_empty() || lies_in(p, &buffer)));
            receiver.handle_packet(Received { addressing, ip_header: None, cover, body }).unwrap();
        }
        assert_eq!(receiver.memory.bytes, sender.memory.bytes);
        assert_eq!(sender.memory.copied, 20 * 1024 + 7);
        assert_eq!(receiver.memory.copied, 20 * 1024 + 7);
        assert_eq!(receiver.unverified, if is_v4 && !knows_identification { 21 } else { 0 });

        // A datagram's buffer begins with an IP header although the port saw none.
        assert_eq!(receiver.grhs.len(), 21);
        for grh in &receiver.grhs {
            assert_eq!(grh.source(), Some(addressing.source));
            assert_eq!(grh.destination(), Some(addressing.destination));
            assert_eq!(grh.ip_header().map(|ip| ip.hop_limit()), Some(63));
        }

        // A cover that is wrong is noticed, not believed.
        let body = Body::whole(&buffer[..segment]);
        let cover = came_on.icrc_cover(segment.try_into().unwrap(), 99);
        let wrong = receiver.handle_packet(Received { addressing, ip_header: None, cover, body });
        assert_eq!(matches!(wrong, Err(DropReason::IcrcMismatch { .. })), is_v4, "{wrong:?}");
    }
}

/// A simulation of many hosts: headers, a length and a digest.
#[test]
fn an_elided_payload() {
    let mut sender = Engine::new(Vec::new(), 4096);
    sender.memory.digest = 0x1234_5678;
    let mut receiver = Engine::new(Vec::new(), 4096);
    for len in [4096, 1, 0] {
        let mut start = [0; 32];
        let transmit = sender.poll_transmit_elided(len, &mut start);
        assert_eq!(transmit.len, 12 + 8 + len.next_multiple_of(4) + 4);
        let digest = transmit.digest.unwrap();
        let body = Body::Elided { start: &start, len: transmit.len, digest };
        assert_eq!(Packet::parse(body).unwrap().payload, Payload::Elided { len, digest });

        let addressing = addressing(true);
        let received = Received { addressing, ip_header: None, cover: None, body };
        receiver.handle_packet(received).unwrap();
    }
    assert_eq!((receiver.unverified, receiver.memory.digest), (3, 0x1234_5678));
    assert_eq!((sender.memory.copied, receiver.memory.copied), (0, 0));
}

/// Receiving takes `&[u8]` all the way: memory that nobody can write will do, and memory that
/// somebody could is the same afterwards, although masked fields were hashed as ones.
#[test]
fn received_memory_is_not_written() {
    static READ_ONLY: &[u8] = b"\x02\0\0\0\0\x0a\x02\0\0\0\0\x0b\x08\0\x45\x6a\0\x30\x1c\x46\x40\
        \0\x40\x11\x99\xf7\xc0\0\x02\x0b\xc0\0\x02\x0a\xc1\x23\x12\xb7\0\x1c\0\0\x11\x40\xff\xff\0\
        \0\0\x22\0\x12\x34\x56\x0a\0\0\x05\x50\x4f\x8e\x98";
    let mut writable = READ_ONLY.to_vec();
    for bytes in [READ_ONLY, &*writable.as_mut_slice()] {
        let received = Frame::parse(RawFrame::ethernet(bytes)).unwrap().received();
        Engine::new(Vec::new(), 1024).handle_packet(received).unwrap();
    }
    assert_eq!(writable, READ_ONLY);
}
