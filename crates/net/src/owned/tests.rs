use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 5]);
const PEER: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 9]);
const PEER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
const PEER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9));
const OWN_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
const OWN_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5));

fn own() -> Own {
    let addresses = vec![
        Assigned { address: OWN_V4, prefix_len: 24 },
        Assigned { address: OWN_V6, prefix_len: 64 },
    ];
    Own { addresses, gateways: vec![[10, 0, 0, 1].into()], vlan: None }
}

/// One whose addresses are its own already.
fn host() -> Host {
    let mut host = Host::new(&own(), MAC, 1500);
    host.claim();
    while host.outgoing().is_some() {}
    host
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// What the host sends when it gets this.
fn answers(host: &mut Host, now: Instant, frame: &[u8]) -> Vec<Vec<u8>> {
    assert!(host.take(RawFrame::ethernet(frame)), "it is one of ours");
    serve(host, now)
}

fn serve(host: &mut Host, now: Instant) -> Vec<Vec<u8>> {
    host.serve(now, || 0);
    std::iter::from_fn(|| host.outgoing()).collect()
}

fn count(host: &Host, name: &str) -> u64 {
    host.counters().into_iter().find(|(known, _)| *known == name).expect("it counts that").1
}

/// An ARP message, as its fields.
fn arp(operation: u8, sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let to = if operation == 1 { [0xff; 6] } else { MAC.0 };
    [
        &to[..],
        &PEER.0,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation],
        &PEER.0,
        &sender,
        &[0; 6],
        &target,
        &[0; 18],
    ]
    .concat()
}

#[test]
fn networks_and_routers_say_what_is_in_reach() {
    let own = own();
    let reaches = |address: &str| own.reaches(address.parse().unwrap());
    assert!(reaches("10.0.0.77") && reaches("192.0.2.1"), "by the router");
    assert!(reaches("fd00::77") && !reaches("fd01::1"), "no router of this family");
    let all = Assigned { address: OWN_V4, prefix_len: 0 };
    assert!(all.has_in_network([1, 2, 3, 4].into()) && !all.has_in_network(PEER_V6));
    let one = Assigned { address: OWN_V4, prefix_len: 32 };
    assert!(one.has_in_network(OWN_V4) && !one.has_in_network(PEER_V4));
}

#[test]
fn on_a_vlan_only_its_frames_count_and_answers_have_its_tag() {
    let mut host = Host::new(&Own { vlan: Some(0x123), ..own() }, MAC, 1500);
    host.claim();
    let announced = host.outgoing().unwrap();
    assert_eq!(announced[12..18], [0x81, 0, 1, 0x23, 8, 6]);
    while host.outgoing().is_some() {}
    let asked = arp(1, [10, 0, 0, 9], [10, 0, 0, 5]);
    let tagged = |tag: [u8; 4]| [&asked[..12], &tag, &asked[12..]].concat();
    for foreign in [asked.clone(), tagged([0x81, 0, 1, 0x24]), tagged([0x81, 0, 0, 0])] {
        assert!(!host.take(RawFrame::ethernet(&foreign)));
    }
    assert!(!host.take(RawFrame::ethernet(&tagged([0x81, 0, 1, 0x23])[..15])));
    // Its priority does not count.
    let answer = answers(&mut host, at(1), &tagged([0x81, 0, 0x61, 0x23])).pop().unwrap();
    assert_eq!(answer[12..18], [0x81, 0, 1, 0x23, 8, 6]);
    assert_eq!(answer[18 + 14..][..4], [10, 0, 0, 5], "its sender");

    let mut plain = self::host();
    assert_eq!(answers(&mut plain, at(1), &tagged([0x81, 0, 0x60, 0])).len(), 1, "VLAN 0 is none");
    assert!(!plain.take(RawFrame::ethernet(&tagged([0x81, 0, 1, 0x23]))));
}

#[test]
fn who_asks_for_an_address_is_answered() {
    let mut host = host();
    let [answer] = &answers(&mut host, at(1), &arp(1, [10, 0, 0, 9], [10, 0, 0, 5]))[..] else {
        panic!("one answer");
    };
    assert_eq!(answer[..6], PEER.0);
    assert_eq!(answer[20..22], [0, 2], "a reply");
    assert_eq!((&answer[22..28], &answer[28..32]), (&MAC.0[..], &[10, 0, 0, 5][..]));
    assert_eq!(answers(&mut host, at(2), &arp(1, [10, 0, 0, 9], [10, 0, 0, 6])), [[0_u8; 0]; 0]);
    assert_eq!((count(&host, "owned_rx"), count(&host, "owned_tx")), (2, 3));
}

#[test]
fn other_traffic_is_not_taken() {
    let mut host = host();
    let tcp = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6]].concat();
    for frame in [&tcp[..], &[2; 60], &[], &[0; 14]] {
        assert!(!host.take(RawFrame::ethernet(frame)));
    }
    assert_eq!(count(&host, "owned_rx"), 0);
}

/// Whom somebody asks for is asked on the wire, found by his answer, and followed from then on.
#[test]
fn a_neighbour_is_found_and_followed() {
    let mut host = host();
    let neighbors = host.neighbors();
    assert_eq!(neighbors.ask(PEER_V4), None);
    assert!(host.is_busy());
    let [request] = &serve(&mut host, at(2000))[..] else { panic!("one request") };
    assert_eq!((&request[..6], &request[38..42]), (&[0xff; 6][..], &[10, 0, 0, 9][..]));
    let reply = arp(2, [10, 0, 0, 9], [10, 0, 0, 5]);
    assert_eq!(answers(&mut host, at(2001), &reply).len(), 0, "nothing goes to the neighbour");
    assert_eq!(neighbors.ask(PEER_V4), Some(MacAddress(PEER.0)));
    assert_eq!(neighbors.news(), []);
    assert!(!host.is_busy());

    // It announces itself, and answers from another MAC.
    host.serve(at(4000), || 1);
    assert!(host.outgoing().is_some(), "it is asked again");
    let mut moved = reply;
    moved[22..28].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    answers(&mut host, at(4001), &moved);
    let mac = MacAddress([2, 0, 0, 0, 0, 7]);
    assert_eq!(neighbors.news(), [News::Moved { destination: PEER_V4, mac }]);
    assert_eq!((neighbors.ask(PEER_V4), count(&host, "owned_moved")), (Some(mac), 1));

    // Unasked too it is asked again, sometimes; while it is silent, it is where it was.
    assert!(!serve(&mut host, at(60_000)).is_empty());
    serve(&mut host, at(66_000));
    assert_eq!((neighbors.ask(PEER_V4), host.is_busy()), (Some(mac), false));
}

/// Each is asked for at once, though one stack asks once a second.
#[test]
fn many_neighbours_are_asked_for_at_once() {
    let mut host = host();
    let neighbors = host.neighbors();
    for last in 10..30 {
        neighbors.ask([10, 0, 0, last].into());
        neighbors.ask(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into());
    }
    assert_eq!(serve(&mut host, at(1)).len(), 40);
    neighbors.forget([10, 0, 0, 10].into());
    let reply = arp(2, [10, 0, 0, 10], [10, 0, 0, 5]);
    answers(&mut host, at(2), &reply);
    assert_eq!(neighbors.ask([10, 0, 0, 10].into()), None, "it was forgotten");
}

#[test]
fn a_router_is_asked_for_in_place_of_what_is_behind_it() {
    let mut host = host();
    let neighbors = host.neighbors();
    let far = [203, 0, 113, 7].into();
    neighbors.ask(far);
    let [request] = &serve(&mut host, at(1))[..] else { panic!("one request") };
    assert_eq!(request[38..42], [10, 0, 0, 1]);
    answers(&mut host, at(2), &arp(2, [10, 0, 0, 1], [10, 0, 0, 5]));
    assert_eq!(neighbors.ask(far), Some(MacAddress(PEER.0)));
}

#[test]
fn who_wants_an_address_is_told_that_it_is_taken() {
    let mut host = host();
    let probe = message::probe(OWN_V4, PEER);
    let [reply] = &answers(&mut host, at(1), &probe)[..] else { panic!("one answer") };
    assert_eq!((&reply[..6], &reply[20..22]), (&PEER.0[..], &[0, 2][..]));
    assert_eq!((&reply[22..28], &reply[28..32]), (&MAC.0[..], &[10, 0, 0, 5][..]));
    let probe = message::probe(OWN_V6, PEER);
    let [advert] = &answers(&mut host, at(2), &probe)[..] else { panic!("one answer") };
    assert_eq!(advert[..6], [0x33, 0x33, 0, 0, 0, 1], "to all nodes");
    assert_eq!(advert[54], 136);
    assert_eq!(count(&host, "owned_conflicts"), 0, "it only asked");
}

#[test]
fn who_says_that_an_address_is_his_is_told_of_and_answered_sometimes() {
    let mut host = host();
    let neighbors = host.neighbors();
    for address in [OWN_V4, OWN_V6] {
        let claim = message::announcement(address, PEER);
        answers(&mut host, at(20_000), &claim);
        let conflict = News::Conflict { address, mac: MacAddress(PEER.0) };
        assert_eq!(neighbors.news(), [conflict]);
    }
    let claim = message::announcement(OWN_V4, PEER);
    assert_eq!(answers(&mut host, at(29_999), &claim).len(), 0, "too early");
    let [defense] = &answers(&mut host, at(30_000), &claim)[..] else { panic!("once in 10 s") };
    assert_eq!(*defense, message::announcement(OWN_V4, EthernetAddress(MAC.0)));
    assert_eq!(neighbors.news().len(), 1, "the same is told once until it is heard");
    assert_eq!(count(&host, "owned_conflicts"), 4);
    answers(&mut host, at(39_000), &claim);
    assert_eq!(neighbors.news().len(), 1, "it is told again when it goes on");
    // Our own announcement, come back, is none.
    answers(&mut host, at(40_000), &message::announcement(OWN_V4, EthernetAddress(MAC.0)));
    assert_eq!((count(&host, "owned_conflicts"), neighbors.news().len()), (5, 0));
}

/// Whoever makes up MACs makes nobody remember all of them.
#[test]
fn of_an_address_the_last_rival_is_told() {
    let mut host = host();
    let neighbors = host.neighbors();
    let rival = |last| EthernetAddress([2, 0, 0, 0, 1, last]);
    for last in 0..100 {
        answers(&mut host, at(1), &message::announcement(OWN_V4, rival(last)));
    }
    let mac = MacAddress(rival(99).0);
    assert_eq!(neighbors.news(), [News::Conflict { address: OWN_V4, mac }]);
    assert_eq!(count(&host, "owned_conflicts"), 100);
}

/// Where nothing can be sent, what would be said is not kept for ever.
#[test]
fn what_cannot_be_sent_is_let_go() {
    let mut host = host();
    let request = arp(1, [10, 0, 0, 9], [10, 0, 0, 5]);
    for _ in 0..3 {
        for _ in 0..INBOX {
            host.take(RawFrame::ethernet(&request));
        }
        host.serve(at(1), || 0);
    }
    assert_eq!(count(&host, "owned_no_room"), (3 * INBOX - OUTBOX) as u64);
    assert_eq!(std::iter::from_fn(|| host.outgoing()).count(), OUTBOX);
    assert_eq!(answers(&mut host, at(2), &request).len(), 1, "there is room again");
}

#[test]
fn before_an_address_is_claimed_nobody_is_answered() {
    let mut host = Host::new(&own(), MAC, 1500);
    host.ask_for_rivals();
    assert_eq!(serve(&mut host, at(0)).len(), 2, "an ARP probe and a solicitation");
    assert_eq!(answers(&mut host, at(1), &arp(1, [10, 0, 0, 9], [10, 0, 0, 5])).len(), 0);
    assert_eq!(host.rival(), None);
    answers(&mut host, at(2), &arp(2, [10, 0, 0, 5], [0, 0, 0, 0]));
    assert_eq!(host.rival(), Some((OWN_V4, MacAddress(PEER.0))));
    host.claim();
    assert_eq!(serve(&mut host, at(3)).len(), 2, "both are announced");
}

#[test]
fn broken_messages_are_counted_and_do_nothing() {
    let request = arp(1, [10, 0, 0, 9], [10, 0, 0, 5]);
    let with = |at: usize, value: u8| {
        let mut broken = request.clone();
        broken[at] = value;
        broken
    };
    let advert = message::announcement(PEER_V6, PEER);
    let with_v6 = |at: usize, value: u8| {
        let mut broken = advert.clone();
        broken[at] = value;
        broken
    };
    let echo = |last: u8, header_sum: [u8; 2], icmp_sum: u8| {
        let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, header_sum[0], header_sum[1]];
        let rest = [10, 0, 0, 9, 10, 0, 0, 5, 8, 0, icmp_sum, 0xff, 0, 0, 0, last];
        [&MAC.0[..], &PEER.0, &[8, 0], &ip, &rest].concat()
    };
    let broken = [
        request[..20].to_vec(),
        with(15, 2), // Not Ethernet.
        with(18, 5), // Lengths of its addresses.
        with(19, 16),
        with(21, 9),    // Neither request nor reply.
        with(22, 0xff), // A group has no MAC.
        advert[..60].to_vec(),
        with_v6(19, 200), // Longer than the frame.
        with_v6(21, 64),  // It came through a router.
        with_v6(57, 0),   // Its checksum.
        echo(0, [0, 0], 0xf7),
        echo(0, [0x66, 0xd4], 0),
        echo(0, [0x66, 0xd4], 0xf7)[..40].to_vec(),
    ];
    let mut host = host();
    for (number, frame) in broken.iter().enumerate() {
        assert_eq!(answers(&mut host, at(1), frame).len(), 0, "{number}");
        assert_eq!(count(&host, "owned_malformed"), number as u64 + 1, "{number}");
    }
    // What they were before they were broken is right.
    answers(&mut host, at(1), &request);
    answers(&mut host, at(1), &advert);
    assert_eq!(answers(&mut host, at(1), &echo(0, [0x66, 0xd4], 0xf7)).len(), 1);
    assert_eq!(count(&host, "owned_malformed"), broken.len() as u64);
}

#[test]
fn what_comes_too_fast_or_is_too_long_is_thrown_away() {
    let mut host = host();
    let request = arp(1, [10, 0, 0, 9], [10, 0, 0, 5]);
    for _ in 0..INBOX + 3 {
        host.take(RawFrame::ethernet(&request));
    }
    let long = [&request[..], &[0; 1500]].concat();
    host.take(RawFrame::ethernet(&long));
    assert_eq!(count(&host, "owned_overflow"), 4);
    assert_eq!(serve(&mut host, at(1)).len(), INBOX);
}

proptest! {
    /// Whatever comes, nothing panics.
    #[test]
    fn any_frame_is_harmless(
        kind in 0..6_usize,
        changes in prop::collection::vec((0..90_usize, any::<u8>()), 0..6),
        cut in 0..120_usize,
        tail in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut frame = match kind {
            0 => arp(1, [10, 0, 0, 9], [10, 0, 0, 5]),
            1 => arp(2, [10, 0, 0, 9], [10, 0, 0, 5]),
            2 => message::announcement(PEER_V6, PEER),
            3 => message::probe(OWN_V6, PEER),
            4 => [&MAC.0[..], &PEER.0, &[8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 1]].concat(),
            _ => [&MAC.0[..], &PEER.0, &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 58, 255]].concat(),
        };
        frame.extend(tail);
        frame.truncate(frame.len().min(cut + 20));
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        let mut host = host();
        host.neighbors().ask(PEER_V4);
        host.neighbors().ask(PEER_V6);
        if host.take(RawFrame::ethernet(&frame)) {
            serve(&mut host, at(1));
            serve(&mut host, at(2000));
        }
    }
}
