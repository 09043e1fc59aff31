//! Whose packets are by their addresses: VLANs, addresses that come and go, groups, traffic
//! classes.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use std::net::IpAddr;

use pair::{End, Q_KEY, attributes, pair, remote, send_datagram, settle};
use roxe_device::VerbError;
use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{Attributes, CompletionStatus, SendOperation};
use roxe_wire::{Gid, GidType, Instant, Mtu, QKey, Qpn, VlanTag};

use CompletionStatus::Success;
use SendOperation::{Send, Write};

const NOW: Instant = Instant::ZERO;

/// A datagram queue pair that is ready.
fn datagrams(end: &mut End, q_key: QKey) -> Qpn {
    let qpn = end.create(ServiceType::Ud, None);
    let address = end.address;
    let values = attributes(qpn, qpn, Mtu::B1024);
    end.connect_with(address, &Attributes { q_key, ..values });
    qpn
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
