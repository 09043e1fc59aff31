//! Frames that reach a device: which come in, and which are dropped and counted.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use pair::{End, attributes, pair, remote, settle};
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{Attributes, CompletionStatus, SendOperation};
use roxe_wire::opcode::OPCODES;
use roxe_wire::{Frame, Instant, Mtu, PKey, Packet, Qpn, RawFrame, icrc};

const NOW: Instant = Instant::ZERO;

/// Where things stand in a frame over IPv4.
const IP: usize = 14;
const UDP: usize = IP + 20;
const BTH: usize = UDP + 8;

/// A connection and the frame of a SEND of so many bytes, for which a receive is there.
fn sent(len: u32) -> (End, End, Qpn, Vec<u8>) {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let data: Vec<u8> = (1..=len.try_into().unwrap()).collect();
    a.fill(0, &data);
    let receive = b.sge(0, 64);
    b.post_receive(qb, 1, receive);
    a.post(qa, 10, SendOperation::Send, a.sge(0, len));
    let frame = a.frame(NOW).unwrap();
    (a, b, qb, frame)
}

/// The frame with bytes changed, and with right checksums of what was changed.
fn changed(mut frame: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    frame[at..at + new.len()].copy_from_slice(new);
    reseal(frame)
}

fn reseal(mut frame: Vec<u8>) -> Vec<u8> {
    correct_ip(&mut frame);
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    let value = icrc::expected(&parsed.cover.unwrap(), parsed.body).unwrap();
    *frame.last_chunk_mut().unwrap() = value.to_le_bytes();
    frame
}

/// Writes the checksum of the IPv4 header.
fn correct_ip(frame: &mut [u8]) {
    frame[IP + 10..IP + 12].fill(0);
    let words = frame[IP..UDP].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
}

/// The frame comes in as if nothing were strange about it.
fn assert_taken(end: &mut End, frame: &[u8]) {
    end.receive(NOW, frame);
    let done: Vec<_> = end.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, [(1, CompletionStatus::Success)]);
    assert!(end.frame(NOW).is_some(), "it is acknowledged");
}

/// The frame is dropped: counted once, not answered, nothing of the queue pair is touched.
fn assert_dropped(end: &mut End, qpn: Qpn, frame: &[u8], counter: &str) {
    let before = end.device.counters().by_name(counter).unwrap();
    let (memory, info) = (end.bytes(0, 64).to_vec(), end.device.query_queue_pair(qpn));
    end.receive(NOW, frame);
    assert_eq!(end.device.counters().by_name(counter), Some(before + 1), "{counter}");
    assert_eq!((end.completions(), end.frame(NOW)), (vec![], None), "{counter}");
    assert_eq!((end.bytes(0, 64), end.device.query_queue_pair(qpn)), (&memory[..], info));
    assert_eq!(end.device.poll_event(), None, "{counter}");
}

//= F01, F02, BC-001, BC-002, 01-1.9, 03-3.1 test
#[test]
fn a_packet_with_a_wrong_icrc_is_dropped_and_counted() {
    let (_, mut b, qb, frame) = sent(13);
    let end = frame.len();
    for at in BTH..end {
        if at == BTH + 4 {
            continue; // Not covered.
        }
        let mut damaged = frame.clone();
        damaged[at] ^= 0x01;
        // Bytes that decide what the packet is may be found wrong before the ICRC is.
        if at != BTH && at != BTH + 1 {
            assert_dropped(&mut b, qb, &damaged, "icrc_bad");
        }
    }
    let mut reversed = frame.clone();
    reversed[end - 4..].reverse();
    assert_dropped(&mut b, qb, &reversed, "icrc_bad");
    // One that leaves the three pad bytes out.
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    let covered = &frame[BTH..end - 7];
    let short = icrc::compute(&parsed.cover.unwrap(), covered, &[]);
    let mut without_pad = frame.clone();
    *without_pad.last_chunk_mut().unwrap() = short.to_le_bytes();
    assert_dropped(&mut b, qb, &without_pad, "icrc_bad");
    assert_taken(&mut b, &frame);
}

//= F03, F15, BC-007, 01-1.3, 01-1.6 test
#[test]
fn what_routers_change_and_reserved_bits_do_not_matter() {
    for (at, mask) in [(IP + 1, 0xff), (IP + 8, 0x3f), (BTH + 4, 0x80), (BTH + 4, 0x3f)] {
        let (_, mut b, _, mut frame) = sent(5);
        frame[at] ^= mask;
        correct_ip(&mut frame);
        assert_taken(&mut b, &frame);
    }
    // The reserved bits beside the PSN are covered as they came.
    let (_, mut b, qb, frame) = sent(5);
    let mut reserved = frame.clone();
    reserved[BTH + 8] ^= 0x10;
    assert_dropped(&mut b, qb, &reserved, "icrc_bad");
    assert_taken(&mut b, &reseal(reserved));
}

//= 04-4.12 test
#[test]
fn there_is_one_path_and_m_says_so() {
    let (_, mut b, _, frame) = sent(5);
    assert_eq!(frame[BTH + 1] & 0x40, 0x40, "migrated");
    let flags = frame[BTH + 1] & !0x40;
    b.receive(NOW, &changed(frame, BTH + 1, &[flags]));
    assert_eq!(b.completions().len(), 1, "M of what comes in means nothing");
    assert_eq!(b.frame(NOW).unwrap()[BTH + 1], 0x40);
}

//= F06, 01-1.6 test
#[test]
fn only_transport_version_0_is_known() {
    let (_, mut b, qb, frame) = sent(4);
    for version in 1..16 {
        let flags = frame[BTH + 1] & 0xf0;
        let other = changed(frame.clone(), BTH + 1, &[flags | version]);
        assert_dropped(&mut b, qb, &other, "bad_tver");
    }
    assert_taken(&mut b, &frame);
}

//= F08, 01-1.9 test
#[test]
fn packets_for_unknown_queue_pairs_are_dropped() {
    let (_, mut b, qb, frame) = sent(4);
    for qpn in [0, 1, 0xab_cdef, qb.get() ^ 1] {
        let other = changed(frame.clone(), BTH + 5, &qpn.to_be_bytes()[1..]);
        assert_dropped(&mut b, qb, &other, "unknown_qp");
    }
    let multicast = changed(frame.clone(), BTH + 5, &[0xff; 3]);
    assert_dropped(&mut b, qb, &multicast, "wrong_service");
    assert_taken(&mut b, &frame);
}

//= F09, 04-4.11, 01-1.9 test
#[test]
fn packets_of_other_partitions_are_dropped() {
    let (_, mut b, qb, frame) = sent(4);
    let with_key = |key: u16| changed(frame.clone(), BTH + 2, &key.to_be_bytes());
    for key in [0x1234, 0x9234, 0x0000, 0x8000] {
        assert_dropped(&mut b, qb, &with_key(key), "bad_pkey");
    }
    assert_taken(&mut b, &with_key(0x7fff));
    // Two limited members do not meet.
    let (mut a, mut b) = (End::new(1), End::new(2));
    let (qa, qb) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, None));
    let limited = |own, peer| {
        let p_key = PKey(0x7fff);
        Attributes { p_key, ..attributes(own, peer, Mtu::B1024) }
    };
    let (to_a, to_b) = (a.address, b.address);
    a.connect_with(to_b, &limited(qa, qb));
    b.connect_with(to_a, &limited(qb, qa));
    a.post(qa, 1, SendOperation::Send, a.sge(0, 4));
    let frame = a.frame(NOW).unwrap();
    assert_dropped(&mut b, qb, &frame, "bad_pkey");
}

//= F10, 01-1.9 test
#[test]
fn a_connection_takes_packets_from_its_peers_address_only() {
    let (_, mut b, qb, frame) = sent(4);
    let from = changed(frame.clone(), IP + 15, &[77]);
    assert_dropped(&mut b, qb, &from, "addr_mismatch");
    let to = changed(frame.clone(), IP + 19, &[78]);
    assert_dropped(&mut b, qb, &to, "addr_mismatch");
    assert_taken(&mut b, &frame);
}

//= F11, 01-1.9, 02-2.2 test
#[test]
fn packets_of_another_service_are_dropped() {
    // Enough bytes for the headers of any opcode.
    let (_, mut b, qb, frame) = sent(40);
    for row in OPCODES.iter().filter(|row| !row.name.starts_with("RC_")) {
        if row.name == "CNP" || row.headers_len > 12 + 40 {
            continue;
        }
        let mut other = frame.clone();
        other[BTH] = row.code;
        let parsed = Frame::parse(RawFrame::ethernet(&other)).unwrap().body;
        if Packet::parse(parsed).is_ok() {
            assert_dropped(&mut b, qb, &reseal(other), "wrong_service");
        }
    }
    assert_taken(&mut b, &frame);
}

/// Whatever stands in the first byte, and however short the packet is, the connection goes on;
/// a reserved opcode of its service at the next PSN ends it, and nothing else does.
//= BC-004, 02-2.1 test
#[test]
fn no_opcode_at_any_length_breaks_anything() {
    for code in 0..=255_u8 {
        let known = OPCODES.iter().any(|row| row.code == code);
        let (_, mut b, qb, frame) = sent(40);
        for payload in 0..40 {
            let mut other = frame[..BTH + 12 + payload + 4].to_vec();
            other[BTH] = code;
            other[BTH + 1] &= 0xcf;
            other[BTH + 11] ^= 0x40; // A PSN that does not come next.
            let ip = u16::try_from(other.len() - IP).unwrap();
            other[IP + 2..IP + 4].copy_from_slice(&ip.to_be_bytes());
            other[UDP + 4..UDP + 6].copy_from_slice(&(ip - 20).to_be_bytes());
            b.receive(NOW, &reseal(other));
        }
        assert_eq!(b.device.query_queue_pair(qb).unwrap().state, QpState::Rts, "{code:#x}");
        // Packets whose length is no multiple of four are dropped for that.
        let counters = ["bad_opcode", "wrong_service"];
        let [unknown, other] = counters.map(|name| b.device.counters().by_name(name).unwrap());
        assert!(known || unknown + other == 10, "{code:#x}: {unknown} and {other}");
        assert!(!known || unknown == 0, "{code:#x}: {unknown}");
        assert_eq!(b.completions(), []);
    }
}

//= F12, 01-1.1, 01-1.8 test
#[test]
fn payloads_are_padded_with_zeros_to_whole_words() {
    for len in 0..10 {
        let (_, mut b, _, frame) = sent(len);
        let pad = len.wrapping_neg() % 4;
        let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
        assert_eq!(parsed.check_icrc(), Some(Ok(())));
        let packet = Packet::parse(parsed.body).unwrap();
        let pads = frame[frame.len() - 4 - pad as usize..frame.len() - 4].to_vec();
        assert_eq!((packet.headers.bth.pad, pads), (pad as u8, vec![0; pad as usize]));
        let udp_len = u16::from_be_bytes([frame[UDP + 4], frame[UDP + 5]]);
        assert_eq!(u32::from(udp_len), 8 + 12 + len + pad + 4);
        assert_eq!(frame.len(), UDP + usize::from(udp_len));
        assert_taken(&mut b, &frame);
    }
}

//= F13, 01-1.5 test
#[test]
fn a_connection_keeps_one_source_port() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let port_of = |end: &mut End, to: &mut End, now| {
        let frame = end.frame(now).unwrap();
        to.receive(now, &frame);
        u16::from_be_bytes([frame[UDP], frame[UDP + 1]])
    };
    a.post(qa, 1, SendOperation::Write(remote(0, b.key)), a.sge(0, 8));
    let first = port_of(&mut a, &mut b, NOW);
    assert!(first >= 0xc000);
    b.frame(NOW); // The acknowledgement is lost.
    let later = a.device.poll_timeout().unwrap();
    a.device.handle_timeout(later);
    assert_eq!(port_of(&mut a, &mut b, later), first, "sent again on the same way");
    a.post(qa, 2, SendOperation::Write(remote(0, b.key)), a.sge(0, 8));
    assert_eq!(port_of(&mut a, &mut b, later), first);
    // Another connection between the two has another one, as a rule.
    let ports: Vec<_> = (0..8)
        .map(|_| {
            let (qc, qd) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, None));
            let to_b = b.address;
            a.connect(qc, qd, to_b, Mtu::B1024);
            a.post(qc, 3, SendOperation::Send, a.sge(0, 8));
            port_of(&mut a, &mut b, later)
        })
        .collect();
    assert!(ports.iter().any(|port| *port != ports[0]), "{ports:?}");
    assert_eq!(a.device.query_queue_pair(qa).unwrap().attributes.dest_qp, qb);
}

//= F16, BC-008, 01-1.5 test
#[test]
fn the_source_port_of_a_packet_means_nothing() {
    for port in [0_u16, 53, 69, 0x45, 4791, 65535] {
        let (_, mut b, _, frame) = sent(4);
        assert_taken(&mut b, &changed(frame, UDP, &port.to_be_bytes()));
    }
}

//= BC-010, F14, 01-1.5 test
#[test]
fn the_udp_checksum_does_not_touch_the_icrc() {
    let (_, mut b, _, mut frame) = sent(5);
    assert_eq!(frame[UDP + 6..UDP + 8], [0, 0], "we send none");
    frame[UDP + 6..UDP + 8].copy_from_slice(&[0x12, 0x34]);
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    assert_eq!(parsed.check_icrc(), Some(Ok(())));
    frame[IP + 4..IP + 6].copy_from_slice(&[9, 9]); // The identification is covered.
    correct_ip(&mut frame);
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    assert!(matches!(parsed.check_icrc(), Some(Err(_))));
    assert_taken(&mut b, &reseal(frame));
}

//= Q21 test
#[test]
fn a_damaged_response_is_a_lost_one() {
    let (mut a, mut b, qb, frame) = sent(4);
    b.receive(NOW, &frame);
    let mut ack = b.frame(NOW).unwrap();
    *ack.last_mut().unwrap() ^= 1;
    a.receive(NOW, &ack);
    assert_eq!((a.completions(), a.device.counters().by_name("icrc_bad")), (vec![], Some(1)));
    let later = a.device.poll_timeout().unwrap();
    a.device.handle_timeout(later);
    settle(&mut a, &mut b, later);
    assert_eq!(a.completions().len(), 1);
    assert_eq!((b.completions().len(), b.device.query_queue_pair(qb).is_ok()), (1, true));
}

/// A queue pair that nobody may send to yet, or any more, is as good as none.
//= R33, 05-5.1, 01-1.9 test
#[test]
fn a_state_that_does_not_receive_drops() {
    let (_, mut b, qb, frame) = sent(4);
    let values = b.device.query_queue_pair(qb).unwrap().attributes;
    let none = roxe_transport::qp_state::AttributeMask::NONE;
    b.device.modify_queue_pair(qb, QpState::Reset, none, &values, None).unwrap();
    assert_dropped(&mut b, qb, &frame, "wrong_qp_state");
}

/// Three devices that all hear everything, of which two have one address.
#[test]
fn what_others_are_meant_by_is_neither_received_nor_dropped() {
    let [mut a, mut b, mut c] = [1, 2, 2].map(End::new);
    for (seat, end) in (0..).zip([&mut a, &mut b, &mut c]) {
        end.device.share_numbers(5, seat, 64, 77);
    }
    let [qa, qb, qc] = [&mut a, &mut b, &mut c].map(|end| end.create(ServiceType::Rc, None));
    let mtu = Mtu::B1024;
    let (to_a, to_b) = (a.address, b.address);
    a.connect(qa, qb, to_b, mtu);
    b.connect(qb, qa, to_a, mtu);
    c.connect(qc, qa, to_a, mtu);
    let receive = b.sge(0, 64);
    b.post_receive(qb, 1, receive);
    a.post(qa, 10, SendOperation::Send, a.sge(0, 5));
    let request = a.frame(NOW).unwrap();
    for end in [&mut a, &mut b, &mut c] {
        end.receive(NOW, &request);
    }
    let answer = b.frame(NOW).unwrap();
    for end in [&mut a, &mut b, &mut c] {
        end.receive(NOW, &answer);
    }
    assert_eq!(a.completions().len(), 1);
    // What nobody has is a mistake that whoever could have it tells of.
    let old = b.create(ServiceType::Rc, None);
    b.device.destroy_queue_pair(old).unwrap();
    let stray = changed(request, BTH + 5, &old.get().to_be_bytes()[1..]);
    for end in [&mut a, &mut b, &mut c] {
        end.receive(NOW, &stray);
    }
    let counts = [&a, &b, &c].map(|end| {
        let counters = end.device.counters();
        ["rdma_rx_packets", "unknown_qp", "rx_of_others"]
            .map(|name| counters.by_name(name).unwrap())
    });
    assert_eq!(counts, [[1, 0, 2], [2, 1, 1], [0, 0, 3]]);
}
