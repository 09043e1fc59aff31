//! What a device does beside carrying packets for one connection: shared queues, groups, addresses,
//! turns, and objects that go.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use std::net::IpAddr;

use pair::{End, attributes, pair, remote, settle};
use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::Registration;
use roxe_device::{Event, QueuePairInit, ReceiveCapacity, ReceiveQueueId, VerbError};
use roxe_transport::SendCapacity;
use roxe_transport::adapter::QpEvent;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, CompletionStatus, Data, DatagramTarget, PathId, ReceiveRequest,
    SendOperation, SendRequest,
};
use roxe_wire::{
    Frame, Gid, GidType, Instant, LKey, Mtu, Packet, QKey, Qpn, RawFrame, VlanTag, icrc,
};

use CompletionStatus::{Flushed, Success};
use SendOperation::{Send, Write};

const NOW: Instant = Instant::ZERO;
const Q_KEY: QKey = QKey(0x1111_1111);

/// A sender, and a receiver whose queue pairs share a queue of so many receives.
fn shared(queue_pairs: usize, receives: u64) -> (End, Vec<Qpn>, End, Vec<Qpn>, ReceiveQueueId) {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let srq = b.device.create_shared_receive_queue(b.pd, 16, 1, 0).unwrap();
    for wr_id in 0..receives {
        let sges = [b.sge(wr_id * 100, 100)];
        b.device.post_shared_receive(srq, &ReceiveRequest { wr_id, sges: &sges }).unwrap();
    }
    let (to_a, to_b) = (a.address, b.address);
    let (mut from, mut at) = (vec![], vec![]);
    for _ in 0..queue_pairs {
        let (qa, qb) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, Some(srq)));
        a.connect(qa, qb, to_b, Mtu::B1024);
        b.connect(qb, qa, to_a, Mtu::B1024);
        from.push(qa);
        at.push(qb);
    }
    (a, from, b, at, srq)
}

fn events(end: &mut End) -> Vec<Event> {
    std::iter::from_fn(|| end.device.poll_event()).collect()
}

fn to_error(end: &mut End, qpn: Qpn) {
    let values = end.device.query_queue_pair(qpn).unwrap().attributes;
    let none = AttributeMask::NONE;
    end.device.modify_queue_pair(qpn, QpState::Error, none, &values, None).unwrap();
}

//= S01, 05-5.5, 05-5.4 test
#[test]
fn an_armed_shared_queue_tells_once_that_it_runs_short() {
    let (mut a, from, mut b, at, srq) = shared(1, 5);
    let mut take = |b: &mut End| {
        a.post(from[0], 1, Send, a.sge(0, 8));
        settle(&mut a, b, NOW);
        let short = Event::SrqLimitReached(srq);
        events(b).iter().filter(|event| **event == short).count()
    };
    b.device.modify_shared_receive_queue(srq, None, Some(4)).unwrap();
    assert_eq!([take(&mut b), take(&mut b), take(&mut b)], [0, 1, 0]);
    b.device.modify_shared_receive_queue(srq, None, Some(2)).unwrap();
    assert_eq!(take(&mut b), 1);
    assert_eq!(b.device.query_queue_pair(at[0]).unwrap().state, QpState::Rts);
}

//= S02, 05-5.5, 04-4.10 test
#[test]
fn an_empty_shared_queue_makes_sends_wait_and_gives_no_credits() {
    let (mut a, from, mut b, _, srq) = shared(2, 1);
    for qpn in &from {
        a.post(*qpn, 1, Send, a.sge(0, 8));
        let frame = a.frame(NOW).unwrap();
        b.receive(NOW, &frame);
    }
    let answers: Vec<_> = std::iter::from_fn(|| b.frame(NOW)).collect();
    let said = |frame: &Vec<u8>| {
        let parsed = Frame::parse(RawFrame::ethernet(frame)).unwrap();
        Packet::parse(parsed.body).unwrap().headers.aeth.unwrap().syndrome.to_byte()
    };
    let syndromes: Vec<_> = answers.iter().map(said).collect();
    assert_eq!(syndromes, [0x1f, 0x20 | 12], "no credits, and not ready");
    answers.iter().for_each(|answer| a.receive(NOW, answer));
    let sges = [b.sge(0, 100)];
    b.device.post_shared_receive(srq, &ReceiveRequest { wr_id: 9, sges: &sges }).unwrap();
    let later = a.device.poll_timeout().unwrap();
    a.device.handle_timeout(later);
    settle(&mut a, &mut b, later);
    assert_eq!((a.completions().len(), b.completions().len()), (2, 2));
}

//= S03, 05-5.5, 05-5.4 test
#[test]
fn a_queue_pair_in_error_says_once_that_it_takes_no_more_from_its_shared_queue() {
    let (_, _, mut b, at, srq) = shared(2, 3);
    to_error(&mut b, at[0]);
    to_error(&mut b, at[0]);
    assert_eq!(events(&mut b), [Event::QueuePair(at[0], QpEvent::LastWqeReached)]);
    assert_eq!(b.completions(), [], "what waits there is for the others");
    let busy = b.device.destroy_shared_receive_queue(srq);
    assert!(matches!(busy, Err(VerbError::InUse(_))));
}

/// The shared queue's own domain is asked, not the queue pair's.
//= 05-5.5 test
#[test]
fn scatter_lists_of_a_shared_queue_belong_to_its_domain() {
    for own_domain in [true, false] {
        let (mut a, mut b) = (End::new(1), End::new(2));
        let other = b.device.alloc_pd().unwrap();
        let pd = if own_domain { b.pd } else { other };
        let srq = b.device.create_shared_receive_queue(pd, 4, 1, 0).unwrap();
        let sges = [b.sge(0, 100)];
        b.device.post_shared_receive(srq, &ReceiveRequest { wr_id: 1, sges: &sges }).unwrap();
        let (qa, qb) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, Some(srq)));
        let (to_a, to_b) = (a.address, b.address);
        a.connect(qa, qb, to_b, Mtu::B1024);
        b.connect(qb, qa, to_a, Mtu::B1024);
        a.post(qa, 1, Send, a.sge(0, 8));
        settle(&mut a, &mut b, NOW);
        let status = b.completions()[0].status;
        assert_eq!(status == Success, own_domain, "{status:?}");
    }
}

/// A datagram queue pair that is ready.
fn datagrams(end: &mut End, q_key: QKey) -> Qpn {
    let qpn = end.create(ServiceType::Ud, None);
    let address = end.address;
    let values = attributes(qpn, qpn, Mtu::B1024);
    end.connect_with(address, &Attributes { q_key, ..values });
    qpn
}

fn send_datagram(end: &mut End, from: Qpn, path: PathId, qpn: Qpn, q_key: QKey, bytes: &[u8]) {
    let request = SendRequest {
        wr_id: 1,
        operation: Send,
        data: Data::Inline(bytes),
        signaled: true,
        solicited: false,
        fence: false,
        target: Some(DatagramTarget { path, qpn, q_key }),
    };
    end.device.post_send(from, &request).unwrap();
}

//= U07, BC-111, 05-5.8, IBA o10-2.2.3 test
#[test]
fn a_datagram_to_a_group_reaches_its_members() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let from = datagrams(&mut a, Q_KEY);
    let group: IpAddr = [239, 1, 2, 3].into();
    let members = [Q_KEY, Q_KEY, Q_KEY, QKey(9)].map(|key| datagrams(&mut b, key));
    for (wr_id, qpn) in (1..).zip(members) {
        let sge = b.sge(wr_id * 100, 100);
        b.post_receive(qpn, wr_id, sge);
        if wr_id != 3 {
            b.device.attach_multicast(Gid::from_ip(group), qpn).unwrap();
        }
    }
    let path = a.device.create_address_handle(a.pd, &End::vector(group)).unwrap();
    send_datagram(&mut a, from, path, Qpn::MULTICAST, Q_KEY, b"to all");
    let frame = a.frame(NOW).unwrap();
    assert_eq!(frame[42 + 5..42 + 8], [0xff; 3]);
    b.receive(NOW, &frame);
    let got: Vec<_> = b.completions().iter().map(|c| (c.wr_id, c.status, c.byte_len)).collect();
    assert_eq!(got, [(1, Success, 46), (2, Success, 46)], "with the key, and attached");
    assert_eq!(b.device.counters().by_name("bad_qkey"), Some(1));
    let mac = Gid::from_ip(group).multicast_mac();
    assert_eq!(mac, Some([0x01, 0, 0x5e, 1, 2, 3]));
}

//= BC-111, 05-5.8 test
#[test]
fn members_beside_the_sender_hear_it_too() {
    let mut a = End::new(1);
    let group: IpAddr = [239, 1, 2, 3].into();
    let members = [Q_KEY; 3].map(|key| datagrams(&mut a, key));
    for (wr_id, qpn) in (1..).zip(members) {
        let sge = a.sge(wr_id * 100, 100);
        a.post_receive(qpn, wr_id, sge);
        a.device.attach_multicast(Gid::from_ip(group), qpn).unwrap();
    }
    let path = a.device.create_address_handle(a.pd, &End::vector(group)).unwrap();
    send_datagram(&mut a, members[0], path, Qpn::MULTICAST, Q_KEY, b"to the others");
    let frame = a.frame(NOW).unwrap();
    let got = a.completions();
    let ids: Vec<_> = got.iter().filter(|c| c.grh).map(|c| (c.wr_id, c.source_qp)).collect();
    assert_eq!(ids, [(2, members[0]), (3, members[0])], "all but the sender");
    assert_eq!(a.bytes(240, 13), b"to the others");
    let grh = a.bytes(220, 20).to_vec();
    assert_eq!((grh[0], &grh[12..]), (0x45, &[192, 0, 2, 1, 239, 1, 2, 3][..]));
    // If the network brings it back, nobody hears it twice.
    a.receive(NOW, &frame);
    assert_eq!(a.completions(), []);
    assert_eq!(a.device.counters().by_name("addr_mismatch"), Some(1));
}

//= BC-112, 05-5.10 test
#[test]
fn a_queue_pair_may_be_connected_to_itself() {
    let mut a = End::new(1);
    let qpn = a.create(ServiceType::Rc, None);
    let own = a.address;
    let psn = roxe_wire::Psn::new(77);
    let values = attributes(qpn, qpn, Mtu::B1024);
    a.connect_with(own, &Attributes { sq_psn: psn, rq_psn: psn, ..values });
    a.fill(0, b"to myself");
    let sge = a.sge(1000, 100);
    a.post_receive(qpn, 1, sge);
    a.post(qpn, 2, Send, a.sge(0, 9));
    a.post(qpn, 3, Write(remote(2000, a.key)), a.sge(0, 9));
    while let Some(frame) = a.frame(NOW) {
        a.receive(NOW, &frame);
    }
    let mut done: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    done.sort_unstable_by_key(|(wr_id, _)| *wr_id);
    assert_eq!(done, [(1, Success), (2, Success), (3, Success)]);
    assert_eq!((a.bytes(1000, 9), a.bytes(2000, 9)), (&b"to myself"[..], &b"to myself"[..]));
}

//= BC-120, 05-5.9, 01-1.3 test
#[test]
fn the_traffic_class_is_that_of_the_address_vector_for_answers_too() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let (qa, qb) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, None));
    let (to_a, to_b) = (a.address, b.address);
    for (end, own, peer, to) in [(&mut a, qa, qb, to_b), (&mut b, qb, qa, to_a)] {
        let vector = AddressVector { traffic_class: 106, hop_limit: 9, ..End::vector(to) };
        connect_over(end, own, peer, &vector);
    }
    a.post(qa, 1, Write(remote(0, b.key)), a.sge(0, 8));
    let request = a.frame(NOW).unwrap();
    b.receive(NOW, &request);
    let answer = b.frame(NOW).unwrap();
    for frame in [request, answer] {
        assert_eq!((frame[15], frame[22]), (106, 9), "DSCP 26 with ECT(0); the hop limit");
        assert_eq!((frame[20], frame[14]), (0x40, 0x45), "do not fragment; no options");
    }
}

/// Takes a queue pair to RTS with this address vector.
fn connect_over(end: &mut End, own: Qpn, peer: Qpn, vector: &AddressVector) {
    let values = attributes(own, peer, Mtu::B1024);
    let rtr = [A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer];
    let rts = [A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic];
    for (to, given) in [
        (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags][..]),
        (QpState::Rtr, &rtr),
        (QpState::Rts, &rts),
    ] {
        let given = AttributeMask::of(given);
        end.device.modify_queue_pair(own, to, given, &values, Some(vector)).unwrap();
    }
}

/// Two ends that have one address on two VLANs each, and a connection on each VLAN.
fn on_two_vlans() -> (End, [Qpn; 2], End, [Qpn; 2]) {
    let (mut a, mut b) = (End::new(1), End::new(2));
    for end in [&mut a, &mut b] {
        for vlan in [Some(10), Some(20)] {
            let gid = Gid::from_ip(end.address);
            let entry = GidEntry { gid, gid_type: GidType::RoceV2, vlan };
            end.device.add_gid(entry).unwrap();
        }
    }
    let from = [0; 2].map(|_| a.create(ServiceType::Rc, None));
    let at = [0; 2].map(|_| b.create(ServiceType::Rc, None));
    let (to_a, to_b) = (a.address, b.address);
    for (index, (qa, qb)) in (1..).zip(from.into_iter().zip(at)) {
        for (end, own, peer, to) in [(&mut a, qa, qb, to_b), (&mut b, qb, qa, to_a)] {
            let vector = AddressVector { source_gid: index, service_level: 5, ..End::vector(to) };
            connect_over(end, own, peer, &vector);
        }
    }
    (a, from, b, at)
}

//= BC-013, BC-118, 01-1.2 test
#[test]
fn a_connection_hears_only_its_own_vlan() {
    let (mut a, from, mut b, _) = on_two_vlans();
    a.fill(0, b"tagged");
    a.post(from[0], 1, Write(remote(100, b.key)), a.sge(0, 6));
    let frame = a.frame(NOW).unwrap();
    assert_eq!(frame[12..16], [0x81, 0, 5 << 5, 10], "VLAN 10, priority 5");
    let mut count = 0;
    let untagged = [&frame[..12], &frame[16..]].concat();
    let twice = [&frame[..12], &[0x88, 0xa8, 0, 30], &frame[12..]].concat();
    let other = [&frame[..14], &[0, 20], &frame[16..]].concat();
    for bad in [untagged, twice, other] {
        b.receive(NOW, &bad);
        count += 1;
        assert_eq!(b.device.counters().by_name("addr_mismatch"), Some(count));
        assert_eq!((b.frame(NOW), b.bytes(100, 6)), (None, &[0; 6][..]));
    }
    // The priority of what comes in is the network's affair.
    let less_urgent = [&frame[..14], &[0, 10], &frame[16..]].concat();
    b.receive(NOW, &less_urgent);
    assert_eq!(b.bytes(100, 6), b"tagged");
    assert_eq!(b.frame(NOW).unwrap()[12..16], [0x81, 0, 5 << 5, 10]);
}

//= BC-013, 01-1.2 test
#[test]
fn a_priority_tag_is_no_vlan() {
    let (mut a, qa, mut b, _) = pair(ServiceType::Rc, Mtu::B1024);
    a.post(qa, 1, Write(remote(100, b.key)), a.sge(0, 6));
    let frame = a.frame(NOW).unwrap();
    let tag = VlanTag(6 << 13).0.to_be_bytes();
    let tagged = [&frame[..12], &[0x81, 0], &tag, &frame[12..]].concat();
    b.receive(NOW, &tagged);
    assert!(b.frame(NOW).is_some(), "it is acknowledged");
}

//= BC-123, 05-5.9 test
#[test]
fn with_its_address_a_gid_goes() {
    let mut a = End::new(1);
    let second: IpAddr = [192, 0, 2, 9].into();
    let entry =
        |address| GidEntry { gid: Gid::from_ip(address), gid_type: GidType::RoceV2, vlan: None };
    let index = a.device.add_gid(entry(second)).unwrap();
    let vector = AddressVector { source_gid: index, ..End::vector([192, 0, 2, 2].into()) };
    assert!(a.device.create_address_handle(a.pd, &vector).is_ok());
    assert_eq!(a.device.remove_gid(index), Some(entry(second)));
    let refused = a.device.create_address_handle(a.pd, &vector);
    assert!(matches!(refused, Err(VerbError::Address(_))));
    let qpn = a.create(ServiceType::Rc, None);
    let values = attributes(qpn, qpn, Mtu::B1024);
    let init = AttributeMask::of(&[A::PkeyIndex, A::Port, A::AccessFlags]);
    a.device.modify_queue_pair(qpn, QpState::Init, init, &values, None).unwrap();
    let rtr = [A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer];
    let rtr = AttributeMask::of(&rtr);
    let step = a.device.modify_queue_pair(qpn, QpState::Rtr, rtr, &values, Some(&vector));
    assert!(matches!(step, Err(VerbError::Address(_))));
    assert_eq!(a.device.query_queue_pair(qpn).unwrap().state, QpState::Init);
}

//= 01-1.9, BC-123 test
#[test]
fn a_datagram_comes_to_an_address_of_the_device() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let (from, at) = (datagrams(&mut a, Q_KEY), datagrams(&mut b, Q_KEY));
    let sge = b.sge(0, 100);
    b.post_receive(at, 1, sge);
    let strange: IpAddr = [192, 0, 2, 77].into();
    let path = a.device.create_address_handle(a.pd, &End::vector(strange)).unwrap();
    send_datagram(&mut a, from, path, at, Q_KEY, b"astray");
    settle(&mut a, &mut b, NOW);
    assert_eq!((b.completions(), b.device.counters().by_name("addr_mismatch")), (vec![], Some(1)));
    let entry = GidEntry { gid: Gid::from_ip(strange), gid_type: GidType::RoceV2, vlan: None };
    b.device.add_gid(entry).unwrap();
    send_datagram(&mut a, from, path, at, Q_KEY, b"arrived");
    settle(&mut a, &mut b, NOW);
    assert_eq!(b.completions().len(), 1);
}

//= BC-127, 05-5.8 test
#[test]
fn queue_pair_1_takes_management_datagrams_with_their_key() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let [qa, qb] = [&mut a, &mut b].map(|end| {
        let init = QueuePairInit {
            service: ServiceType::Ud,
            pd: end.pd,
            send_cq: end.cq,
            receive_cq: end.cq,
            srq: None,
            send: SendCapacity { depth: 4, max_sge: 1, max_inline: 256 },
            receive: ReceiveCapacity { depth: 4, max_sge: 1 },
            signal_all: true,
        };
        let qpn = end.device.create_gsi_queue_pair(&init).unwrap();
        let address = end.address;
        end.connect_with(address, &attributes(qpn, qpn, Mtu::B1024));
        assert!(end.device.create_gsi_queue_pair(&init).is_err(), "there is one");
        qpn
    });
    assert_eq!((qa, qb), (Qpn::GSI, Qpn::GSI));
    let sge = b.sge(0, 300);
    b.post_receive(qb, 1, sge);
    let to_b = b.address;
    let path = a.device.create_address_handle(a.pd, &End::vector(to_b)).unwrap();
    send_datagram(&mut a, qa, path, qb, QKey(5), &[7; 256]);
    send_datagram(&mut a, qa, path, qb, Q_KEY, &[7; 256]);
    settle(&mut a, &mut b, NOW);
    assert_eq!(b.completions(), [], "another key, also that of the queue pair's attributes");
    let values = a.device.query_queue_pair(qa).unwrap().attributes;
    let (q_key, mask) = (QKey::GSI, AttributeMask::of(&[A::Qkey]));
    let values = Attributes { q_key, ..values };
    a.device.modify_queue_pair(qa, QpState::Rts, mask, &values, None).unwrap();
    send_datagram(&mut a, qa, path, qb, QKey::GSI, &[7; 256]);
    let mut frame = a.frame(NOW).unwrap();
    frame[42 + 8] |= 0x80; // An acknowledgement is asked for, as Linux's rxe does.
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    let value = icrc::expected(&parsed.cover.unwrap(), parsed.body).unwrap();
    *frame.last_chunk_mut().unwrap() = value.to_le_bytes();
    b.receive(NOW, &frame);
    assert_eq!((b.completions().len(), b.frame(NOW)), (1, None));
}

//= BC-106, BC-107 test
#[test]
fn nothing_of_a_destroyed_queue_pair_lives_on() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let (to_b, qc) = (b.address, a.create(ServiceType::Rc, None));
    a.connect(qc, qb, to_b, Mtu::B1024);
    a.post(qa, 1, Write(remote(0, b.key)), a.sge(0, 8));
    let first = a.frame(NOW).unwrap();
    b.receive(NOW, &first);
    let late = b.frame(NOW).unwrap();
    a.post(qa, 2, Write(remote(0, b.key)), a.sge(0, 3000));
    a.post(qc, 3, Send, a.sge(0, 8));
    a.device.destroy_queue_pair(qa).unwrap();
    // What it had to send is gone, what another has is not; its timer finds nothing.
    let frame = a.frame(NOW).unwrap();
    let packet = Frame::parse(RawFrame::ethernet(&frame)).unwrap().body;
    assert_eq!(Packet::parse(packet).unwrap().payload.len(), 8);
    assert_eq!(a.frame(NOW), None);
    a.device.handle_timeout(Instant::from_nanos(u64::MAX / 2));
    assert!(a.completions().iter().all(|completion| completion.qpn != qa));
    // An answer that comes late is for nobody.
    a.receive(NOW, &late);
    assert_eq!(a.device.counters().by_name("unknown_qp"), Some(1));
    assert!(a.device.query_queue_pair(qa).is_err());
}

/// Flushed completions of a queue pair that is destroyed are gone too, and those of others stay.
//= BC-106, 05-5.2 test
#[test]
fn completions_go_with_their_queue_pair() {
    let (mut a, qa, _, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let qc = a.create(ServiceType::Rc, None);
    let address = a.address;
    a.connect(qc, qb, address, Mtu::B1024);
    for qpn in [qa, qc] {
        a.post(qpn, 1, Send, a.sge(0, 8));
        to_error(&mut a, qpn);
    }
    a.device.destroy_queue_pair(qa).unwrap();
    let left: Vec<_> = a.completions().iter().map(|c| (c.qpn, c.status)).collect();
    assert_eq!(left, [(qc, Flushed)]);
}

//= BC-150 test
#[test]
fn queue_pairs_take_turns() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B256);
    let (to_b, qc) = (b.address, a.create(ServiceType::Rc, None));
    a.connect(qc, qb, to_b, Mtu::B256);
    for qpn in [qa, qc] {
        a.post(qpn, 1, Write(remote(0, b.key)), a.sge(0, 100 * 256));
    }
    let mut in_a_row = 0;
    let mut longest = 0;
    let mut last = None;
    while let Some(frame) = a.frame(NOW) {
        let port = [frame[34], frame[35]];
        in_a_row = if last == Some(port) { in_a_row + 1 } else { 1 };
        longest = longest.max(in_a_row);
        last = Some(port);
        b.receive(NOW, &frame);
    }
    assert!(longest <= 16, "{longest} packets of one while the other waits");
}

//= BC-084, 05-5.6 test
#[test]
fn a_region_is_a_range_of_bytes_whatever_pages_are() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let start = 0x1234_5ff1;
    let access = AccessFlags::LOCAL_WRITE.with(AccessFlags::REMOTE_WRITE);
    let (pd, host, len) = (b.pd, b.region, 70_001);
    let what = Registration { pd, host, va: start, len, access };
    let key = b.device.register_memory(&what).unwrap();
    a.fill(0, b"edge");
    for page in [4096, 16_384, 65_536] {
        let border = (start / page + 1) * page;
        a.post(qa, 1, Write(remote(border - 2, LKey(key.0))), a.sge(0, 4));
        settle(&mut a, &mut b, NOW);
        let at = usize::try_from(border - 2 - start).unwrap();
        assert_eq!(b.bytes(at, 4), b"edge", "pages of {page}");
    }
    a.post(qa, 2, Write(remote(start + len - 3, LKey(key.0))), a.sge(0, 4));
    settle(&mut a, &mut b, NOW);
    let last = a.completions().pop().unwrap();
    assert_eq!(last.status, CompletionStatus::RemoteAccessError, "one byte more");
    assert_eq!(b.device.query_queue_pair(qb).unwrap().state, QpState::Error);
}

/// What a congestion notification may look like, and what it does where nobody slows down.
//= BC-017, C03, C05 test
#[test]
fn congestion_notifications_change_nothing() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    a.post(qa, 1, Write(remote(0, b.key)), a.sge(0, 16));
    let frame = a.frame(NOW).unwrap();
    // The WRITE has 16 bytes behind its BTH and 16 of payload: cut to the 32 of a notification.
    let mut cnp = frame[..42 + 12 + 16 + 4].to_vec();
    cnp[16..18].copy_from_slice(&(20_u16 + 8 + 32).to_be_bytes());
    cnp[38..40].copy_from_slice(&40_u16.to_be_bytes());
    let ignored = |end: &End| end.device.counters().by_name("rp_cnp_ignored");
    let before = b.device.query_queue_pair(qb);
    for (count, flags) in (1..).zip([0x00, 0x40]) {
        cnp[42] = 0x81;
        cnp[42 + 1] = flags; // M, either way; what is reserved is whatever it was.
        let sealed = seal(cnp.clone());
        b.receive(NOW, &sealed);
        assert_eq!(ignored(&b), Some(count));
    }
    let mut short = cnp[..cnp.len() - 4].to_vec();
    short[16..18].copy_from_slice(&(20_u16 + 8 + 28).to_be_bytes());
    short[38..40].copy_from_slice(&36_u16.to_be_bytes());
    b.receive(NOW, &seal(short));
    assert_eq!(b.device.counters().by_name("header_missing"), Some(1));
    assert_eq!((ignored(&b), b.frame(NOW)), (Some(2), None));
    assert_eq!(b.device.query_queue_pair(qb), before);
    b.receive(NOW, &frame);
    assert!(b.frame(NOW).is_some(), "the connection goes on");
}

/// Writes the checksum of the IPv4 header and the ICRC.
fn seal(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    let value = icrc::expected(&parsed.cover.unwrap(), parsed.body).unwrap();
    *frame.last_chunk_mut().unwrap() = value.to_le_bytes();
    frame
}
