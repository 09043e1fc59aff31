//! The UDP port: on loopback, where nobody needs privilege, and between network namespaces, which
//! needs root and iproute2; a run by anybody else prints so.

mod namespace;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use namespace::{Cable, Namespace, is_root};
use roxe_net::fault::FaultPort;
use roxe_net::udp::{Gso, OpenError, Settings, Udp, Verify};
use roxe_net::{FramePort, HeadersOf, Outgoing, Seal, Sent, Wake};
use roxe_wire::{
    Addressing, Body, DropReason, Ecn, FrameTemplate, Instant, IpPair, MacAddress, Mtu, Packet,
    Path, TrafficClass,
};

/// An address of loopback that no other test has, though many run side by side.
fn address() -> IpAddr {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() * 16 + NUMBER.fetch_add(1, Ordering::Relaxed);
    let [_, b, c, d] = number.to_be_bytes();
    Ipv4Addr::new(127, b & 0x7f, c, d).into()
}

fn open(address: IpAddr, gso: Gso) -> Udp {
    Udp::open(address, Settings { gso, ..Settings::default() }).expect("a port can be opened")
}

fn pair(gso: Gso) -> [(IpAddr, Udp); 2] {
    [address(), address()].map(|address| (address, open(address, gso)))
}

fn path(source: IpAddr, destination: IpAddr) -> FrameTemplate {
    path_of(source, destination, TrafficClass(0x02), 64)
}

fn path_of(source: IpAddr, destination: IpAddr, class: TrafficClass, hops: u8) -> FrameTemplate {
    FrameTemplate::new(&Path {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: None,
        ip: IpPair::new(source, destination).expect("one family"),
        traffic_class: class,
        hop_limit: hops,
        flow_label: 0,
        source_port: 0xc123,
    })
}

/// The bytes of packet `number`, with room for an ICRC.
fn packet(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| if at == 0 { number as u8 } else { (at * 7 + number) as u8 }).collect()
}

/// Sends packets, all in one batch.
fn send<P: FramePort>(port: &mut P, packets: &[(&FrameTemplate, Vec<u8>)]) -> Sent {
    let mut packets = packets.iter();
    port.transmit(Instant::ZERO, &mut |room| {
        let (path, bytes) = packets.next()?;
        room.first[..bytes.len()].copy_from_slice(bytes);
        Some(Outgoing { path, len: bytes.len(), seal: Seal::Compute })
    })
}

/// What arrives until there are `count` packets, without their ICRC, which is checked here.
fn receive<P: FramePort>(port: &mut P, count: usize) -> Vec<(Addressing, Vec<u8>)> {
    let started = Clock::now();
    let mut packets = Vec::new();
    while packets.len() < count && started.elapsed() < Duration::from_secs(10) {
        port.receive(Instant::ZERO, &mut |received| {
            assert_eq!(received.check_icrc(), Some(Ok(())));
            let Body::Whole { first, second } = received.body else { panic!("all bytes came") };
            let mut bytes = [first, second].concat();
            bytes.truncate(bytes.len() - 4);
            packets.push((received.addressing, bytes));
        });
        if packets.len() < count {
            port.wait(Duration::from_millis(100));
        }
    }
    packets
}

fn bytes_of(arrived: Vec<(Addressing, Vec<u8>)>) -> Vec<Vec<u8>> {
    arrived.into_iter().map(|(_, bytes)| bytes).collect()
}

fn without_icrc<'a>(packets: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<Vec<u8>> {
    packets.into_iter().map(|bytes| bytes[..bytes.len() - 4].to_vec()).collect()
}

fn count<P: FramePort>(port: &P, name: &str) -> u64 {
    let counters = port.counters();
    counters.iter().find(|(it, _)| *it == name).map_or(0, |(_, count)| *count)
}

/// A message of the shape of a WRITE: a longer first packet, many of one length, a shorter last
/// one; then acknowledgements, and lengths at random.
const LENS: [usize; 16] =
    [1072, 1056, 1056, 1056, 1056, 40, 20, 20, 20, 16, 4140, 4140, 4124, 4140, 16, 36];

/// Waits until the kernel has made an IPv6 address its own, which it does some time after it has
/// accepted it.
fn until_local(host: &Namespace, address: &str) {
    while !host.ip("-6 route show table local").contains(&format!("local {address} ")) {
        thread::yield_now();
    }
}

/// Every length, both ways; says how many packets were joined.
fn every_length(a: &mut Udp, b: &mut Udp, ends: [IpAddr; 2]) -> [u64; 2] {
    let [at_a, at_b] = ends;
    for from_a in [true, false] {
        let (from, to) = if from_a { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        let path = if from_a { path(at_a, at_b) } else { path(at_b, at_a) };
        let packets: Vec<_> =
            LENS.iter().enumerate().map(|(at, len)| (&path, packet(at, *len))).collect();
        assert_eq!(send(from, &packets), Sent { packets: LENS.len(), more: false });
        let arrived = bytes_of(receive(to, packets.len()));
        let lens = arrived.iter().map(|bytes| bytes.len() + 4).collect::<Vec<_>>();
        assert_eq!(lens, LENS, "{:?} {:?}", from.counters(), to.counters());
        assert!(arrived == without_icrc(packets.iter().map(|(_, bytes)| bytes)));
        assert_eq!(count(from, "tx_packets"), LENS.len() as u64);
        assert_eq!(count(from, "tx_bytes"), LENS.iter().sum::<usize>() as u64);
        assert_eq!(count(to, "rx_packets"), LENS.len() as u64);
        assert_eq!(count(to, "rx_bytes"), LENS.iter().sum::<usize>() as u64);
        assert!(count(from, "tx_calls") >= 1 && count(to, "rx_calls") >= 1);
    }
    [a, b].map(|port| count(port, "tx_joined"))
}

#[test]
fn every_length_joined_and_alone() {
    for gso in [Gso::Auto, Gso::On, Gso::Off] {
        let [(at_a, mut a), (at_b, mut b)] = pair(gso);
        let joined = every_length(&mut a, &mut b, [at_a, at_b]);
        // All but the last one, which is longer than the one before, which ended a message.
        let expected = if gso == Gso::Off { 0 } else { 15 };
        assert_eq!(joined, [expected; 2], "{gso:?}");
        assert_eq!(count(&b, "rx_joined"), expected, "{gso:?}");
        assert_eq!(count(&a, "tx_join_refused"), 0);
    }
}

#[test]
fn every_length_over_ipv6() {
    if !is_root() {
        return;
    }
    let host = Namespace::new();
    host.ip("address add fd00::1/128 dev lo nodad");
    host.ip("address add fd00::2/128 dev lo nodad");
    until_local(&host, "fd00::1");
    until_local(&host, "fd00::2");
    let ends = ["fd00::1", "fd00::2"].map(|it| it.parse::<IpAddr>().expect("an address"));
    for gso in [Gso::Auto, Gso::Off] {
        // What is not assumed of IPv4 senders is known of these.
        let settings = Settings { gso, verify: Verify::No, ..Settings::default() };
        let [mut a, mut b] =
            ends.map(|address| host.run(|| Udp::open(address, settings)).expect("a port"));
        assert!(a.capabilities().verifies_icrc);
        let joined = every_length(&mut a, &mut b, ends);
        assert_eq!(joined, [if gso == Gso::Off { 0 } else { 15 }; 2], "{gso:?}");
    }
}

#[test]
fn a_port_reaches_itself() {
    let here = address();
    let mut port = open(here, Gso::Auto);
    let path = path(here, here);
    let packets = [(&path, packet(1, 100)), (&path, packet(2, 100))];
    send(&mut port, &packets);
    let arrived = receive(&mut port, 2);
    assert_eq!(arrived[0].0.source, here);
    assert_eq!(arrived[0].0.destination, here);
    assert_eq!(arrived[0].0.source_port, 4791);
    assert_eq!(bytes_of(arrived), without_icrc(packets.iter().map(|(_, bytes)| bytes)));
}

#[test]
fn more_than_a_message_holds_is_several() {
    let [(at_a, mut a), (at_b, mut b)] = pair(Gso::On);
    let path = path(at_a, at_b);
    for len in [20, 4140] {
        let packets: Vec<_> = (0..64).map(|number| (&path, packet(number, len))).collect();
        assert_eq!(send(&mut a, &packets), Sent { packets: 64, more: true });
        let arrived = receive(&mut b, 64);
        assert_eq!(bytes_of(arrived), without_icrc(packets.iter().map(|(_, bytes)| bytes)));
    }
    assert_eq!(count(&a, "tx_joined"), 128);
    assert_eq!(count(&a, "tx_calls"), 2);
}

#[test]
fn packets_of_many_paths_stay_apart() {
    for gso in [Gso::On, Gso::Off] {
        let here = address();
        let mut port = open(here, gso);
        let mut others = [address(), address()].map(|address| (address, open(address, gso)));
        let classes = [TrafficClass(0x02), TrafficClass(0x03), TrafficClass(0xb8)];
        let mut paths = Vec::new();
        for number in 0..48 {
            let (address, _) = others[number / 3 % 2];
            let hops = if number % 5 == 0 { 9 } else { 64 };
            let class = classes[number / 2 % 3];
            paths.push((number / 3 % 2, class, hops, path_of(here, address, class, hops)));
        }
        let packets: Vec<_> = paths
            .iter()
            .enumerate()
            .map(|(number, (.., path))| (path, packet(number, 20 + number / 4 % 3 * 4)))
            .collect();
        send(&mut port, &packets);
        for (other, (address, to)) in others.iter_mut().enumerate() {
            let mine = paths.iter().zip(&packets).filter(|((it, ..), _)| *it == other);
            let expected: Vec<_> = mine
                .map(|((_, class, hops, _), (_, bytes))| {
                    (*class, *hops, bytes[..bytes.len() - 4].to_vec())
                })
                .collect();
            let arrived: Vec<_> = receive(to, expected.len())
                .into_iter()
                .map(|(at, bytes)| {
                    assert_eq!((at.source, at.destination), (here, *address));
                    (at.traffic_class, at.hop_limit, bytes)
                })
                .collect();
            assert_eq!(arrived, expected, "{gso:?}");
        }
    }
}

#[test]
fn congestion_marks_and_hop_limits_are_seen_over_ipv6_too() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    until_local(&cable.b, "fd00::2");
    let ends = ["fd00::1", "fd00::2"].map(|it| it.parse::<IpAddr>().expect("an address"));
    let mut a = cable.a.run(|| open(ends[0], Gso::Auto));
    let mut b = cable.b.run(|| open(ends[1], Gso::Auto));
    let marked = path_of(ends[0], ends[1], TrafficClass(0x6b), 17);
    let plain = path_of(ends[0], ends[1], TrafficClass(0), 0);
    send(&mut a, &[(&marked, packet(1, 20)), (&plain, packet(2, 20))]);
    let seen: Vec<_> = receive(&mut b, 2)
        .into_iter()
        .map(|(at, _)| (at.traffic_class.dscp(), at.traffic_class.ecn(), at.hop_limit))
        .collect();
    // Linux sends no packet with a hop limit of 0.
    assert_eq!(seen, [(26, Ecn::Ce, 17), (0, Ecn::NotEct, 1)]);
}

#[test]
fn what_is_no_packet_is_told_by_its_reason() {
    let here = address();
    let mut port = open(here, Gso::Off);
    let peer = UdpSocket::bind((address(), 0)).expect("a socket");
    for len in [0, 5, 20, 4192, 4196, 65_507] {
        peer.send_to(&vec![0xff; len], (here, 4791)).expect("it is sent");
    }
    let mut seen = Vec::new();
    let packets = port.receive_all(Instant::ZERO, &mut |arrival| {
        assert!(arrival.frame.is_none());
        let parsed = arrival.packet.and_then(|packet| Packet::parse(packet.body).map(|_| ()));
        seen.push(parsed.expect_err("it is garbage"));
    });
    assert_eq!(packets, 4);
    assert_eq!(
        seen,
        [
            DropReason::PacketLength { len: 0 },
            DropReason::PacketLength { len: 5 },
            DropReason::TransportVersion { version: 15 },
            DropReason::TransportVersion { version: 15 },
            DropReason::Truncated { have: 4192, need: 4196 },
            DropReason::Truncated { have: 4192, need: 65_507 },
        ]
    );
    assert_eq!(count(&port, "truncated"), 2);
    assert_eq!(count(&port, "rx_packets"), 4);
}

#[test]
fn foreign_senders_are_verified_or_not_as_chosen() {
    for verify in [Verify::AssumeId0, Verify::No] {
        let here = address();
        let mut port = Udp::open(here, Settings { verify, ..Settings::default() }).expect("a port");
        let verifies = verify == Verify::AssumeId0;
        assert_eq!(port.capabilities().verifies_icrc, verifies);
        let peer = UdpSocket::bind((address(), 0)).expect("a socket");
        peer.send_to(&[0; 20], (here, 4791)).expect("it is sent");
        let mut judged = Vec::new();
        port.receive(Instant::ZERO, &mut |packet| judged.push(packet.check_icrc()));
        let [judged] = judged[..] else { panic!("one packet came") };
        assert_eq!(
            judged.map(|it| it.map_err(DropReason::name)),
            verifies.then_some(Err("icrc_bad"))
        );
    }
}

#[test]
fn paths_of_others_are_not_sent() {
    let [(at_a, mut a), (at_b, mut b)] = pair(Gso::Auto);
    let [wrong_source, v6, right] = [
        path(address(), at_b),
        path(Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
        path(at_a, at_b),
    ];
    let packets = [(&wrong_source, packet(1, 20)), (&v6, packet(2, 20)), (&right, packet(3, 20))];
    let mut too_short = packets.to_vec();
    too_short.push((&right, packet(4, 3)));
    assert_eq!(send(&mut a, &too_short), Sent { packets: 4, more: false });
    assert_eq!(bytes_of(receive(&mut b, 1)), without_icrc([&packets[2].1]));
    assert_eq!(count(&a, "tx_unsendable"), 3);
    assert_eq!(count(&a, "tx_packets"), 1);
}

#[test]
fn a_seal_that_was_written_stays() {
    let [(at_a, mut a), (at_b, mut b)] = pair(Gso::Auto);
    let path = path(at_a, at_b);
    let mut once = Some(Outgoing { path: &path, len: 20, seal: Seal::AsWritten });
    a.transmit(Instant::ZERO, &mut |room| {
        room.first[..20].fill(0x5a);
        once.take()
    });
    let mut bodies = Vec::new();
    while bodies.is_empty() {
        b.wait(Duration::from_secs(1));
        b.receive(Instant::ZERO, &mut |packet| {
            let Body::Whole { first, .. } = packet.body else { panic!("all bytes came") };
            bodies.push(first.to_vec());
        });
    }
    assert_eq!(bodies, [vec![0x5a; 20]]);
}

#[test]
fn the_port_is_nobody_elses() {
    let here = address();
    let first = open(here, Gso::Auto);
    let refused = Udp::open(here, Settings::default()).expect_err("the port is taken");
    assert!(matches!(refused, OpenError::PortInUse { address } if address == here), "{refused}");
    let said = refused.to_string();
    assert!(said.starts_with(&format!("another program has UDP port 4791 on {here}: ")), "{said}");
    drop(first);
    open(here, Gso::Auto);
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    let refuse = |address: &str| {
        let address = address.parse::<IpAddr>().expect("an address");
        Udp::open(address, Settings::default()).expect_err("it is no address of ours")
    };
    assert!(matches!(refuse("0.0.0.0"), OpenError::NotOneHost(_)));
    assert!(matches!(refuse("ff02::1"), OpenError::NotOneHost(_)));
    let said = refuse("192.0.2.77").to_string();
    assert!(said.starts_with("192.0.2.77 is no address of this host; there are: "), "{said}");
    assert!(said.contains("127.0.0.1"), "{said}");
}

#[test]
fn a_port_that_users_may_not_have_is_named() {
    if !is_root() {
        return;
    }
    let host = Namespace::new();
    let refused = host.run(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "5000")
            .expect("it is a sysctl of the namespace");
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root becomes anybody");
        Udp::open(Ipv4Addr::LOCALHOST.into(), Settings::default())
    });
    let refused = refused.expect_err("nobody may not have it");
    assert!(matches!(refused, OpenError::NotAllowed { .. }), "{refused}");
    assert!(refused.to_string().contains("ip_unprivileged_port_start"), "{refused}");
}

#[test]
fn the_interface_decides_the_path_mtu() {
    let here = address();
    let port = open(here, Gso::Auto);
    let capabilities = port.capabilities();
    assert_eq!(capabilities.path_mtu, Mtu::B4096);
    assert!(capabilities.verifies_icrc && !capabilities.zero_copy);
    assert_eq!(capabilities.headers, HeadersOf::Kernel { source_port: 4791 });
    let said = capabilities.to_string();
    let begins = format!(
        "{here}: UDP socket on lo, GSO within this host, ICRC verified for IPv4 identification 0, "
    );
    assert!(said.starts_with(&begins), "{said}");
    assert!(said.ends_with(", path MTU 4096"), "{said}");
    if !is_root() {
        return;
    }
    let at = |mtu| {
        let cable = Cable::new(1500);
        cable.a.ip(&format!("link set va mtu {mtu}"));
        let open = || Udp::open([192, 0, 2, 1].into(), Settings::default());
        cable.a.run(open).map(|port| port.capabilities().path_mtu)
    };
    assert_eq!(at(1500).expect("a port"), Mtu::B1024);
    assert_eq!(at(4191).expect("a port"), Mtu::B2048);
    assert_eq!(at(4192).expect("a port"), Mtu::B4096);
    let refused = at(351).expect_err("it is too small");
    assert_eq!(refused.to_string(), "the MTU of va is 351: RoCEv2 needs at least 352");
}

#[test]
fn buffers_are_what_the_system_grants() {
    let settings = Settings { buffer: 256 << 20, gso: Gso::Off, ..Settings::default() };
    let here = address();
    let all = Udp::open(here, settings).expect("a port").capabilities().to_string();
    assert!(all.contains(", no GSO, "), "{all}");
    if !is_root() {
        return;
    }
    assert!(all.contains("buffers of 262144 KiB,"), "{all}");
    let host = Namespace::new();
    let said = host.run(|| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root becomes anybody");
        Udp::open(Ipv4Addr::LOCALHOST.into(), settings)
            .expect("anybody may")
            .capabilities()
            .to_string()
    });
    assert!(said.contains(" of 262144 KiB wanted (see `sysctl net.core.rmem_max`)"), "{said}");
}

#[test]
fn what_nobody_fetches_in_time_is_counted() {
    let settings = Settings { buffer: 16 << 10, ..Settings::default() };
    let (at_a, at_b) = (address(), address());
    let mut a = open(at_a, Gso::Off);
    let mut b = Udp::open(at_b, settings).expect("a port");
    let path = path(at_a, at_b);
    let packets: Vec<_> = (0..64).map(|number| (&path, packet(number, 1056))).collect();
    send(&mut a, &packets);
    let mut arrived = 0;
    loop {
        match b.receive(Instant::ZERO, &mut |_| ()) {
            0 => break,
            some => arrived += some as u64,
        }
    }
    assert!((1..64).contains(&arrived), "{arrived} arrived");
    assert_eq!(count(&b, "rx_socket_overflow"), 64 - arrived);
    assert_eq!(count(&a, "rx_socket_overflow"), 0);
}

#[test]
fn a_wait_ends_by_arrival_call_and_time() {
    let [(at_a, mut a), (at_b, mut b)] = pair(Gso::Auto);
    assert_eq!(b.wait(Duration::ZERO), Wake::TimedOut);
    let waker = b.waker();
    thread::scope(|scope| {
        scope.spawn(move || waker.wake());
        assert_eq!(b.wait(Duration::MAX), Wake::Called);
    });
    let path = path(at_a, at_b);
    let receiver = thread::spawn(move || {
        let wake = b.wait(Duration::MAX);
        (wake, receive(&mut b, 1).len())
    });
    send(&mut a, &[(&path, packet(1, 20))]);
    assert_eq!(receiver.join().expect("it does not panic"), (Wake::Arrived, 1));
}

#[test]
fn packets_longer_than_the_way_takes_are_lost_alone() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    for (ends, gso) in [
        (["192.0.2.1", "192.0.2.2"], Gso::On),
        (["192.0.2.1", "192.0.2.2"], Gso::Off),
        (["fd00::1", "fd00::2"], Gso::Auto),
    ] {
        let ends = ends.map(|it| it.parse::<IpAddr>().expect("an address"));
        cable.a.ip("link set va mtu 4200");
        until_local(&cable.b, "fd00::2");
        let mut a = cable.a.run(|| open(ends[0], gso));
        let mut b = cable.b.run(|| open(ends[1], gso));
        cable.a.ip("link set va mtu 1500");
        let path = path(ends[0], ends[1]);
        let lens = [4128, 4128, 20, 1056, 1056];
        let packets: Vec<_> =
            lens.iter().enumerate().map(|(at, len)| (&path, packet(at, *len))).collect();
        send(&mut a, &packets);
        let arrived = bytes_of(receive(&mut b, 3));
        assert_eq!(arrived, without_icrc(packets[2..].iter().map(|(_, bytes)| bytes)), "{gso:?}");
        assert_eq!(count(&a, "tx_unsendable"), 2);
        assert_eq!(count(&a, "tx_packets"), 3);
        assert_eq!(count(&a, "tx_join_refused"), u64::from(gso != Gso::Off));
        assert_eq!(count(&a, "tx_refused"), 0);
    }
}

#[test]
fn what_has_no_way_is_counted() {
    if !is_root() {
        return;
    }
    let host = Namespace::new();
    let here = Ipv4Addr::LOCALHOST.into();
    let mut port = host.run(|| open(here, Gso::Off));
    let (nowhere, home) = (path(here, [198, 51, 100, 1].into()), path(here, here));
    send(
        &mut port,
        &[(&nowhere, packet(1, 20)), (&home, packet(2, 20)), (&nowhere, packet(3, 20))],
    );
    assert_eq!(count(&port, "tx_refused"), 2);
    assert_eq!(count(&port, "tx_packets"), 1);
    assert_eq!(receive(&mut port, 1).len(), 1);
}

/// Packets for a neighbour that does not answer wait in the kernel until the socket is full.
#[test]
fn a_full_port_keeps_what_it_took() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    // The kernel asks for the neighbour for as long as this test may take.
    cable
        .a
        .run(|| std::fs::write("/proc/sys/net/ipv4/neigh/va/mcast_solicit", "1000000"))
        .expect("it is a sysctl of the namespace");
    let settings = Settings { buffer: 1, gso: Gso::Off, ..Settings::default() };
    let here: IpAddr = [192, 0, 2, 1].into();
    let mut port = cable.a.run(|| Udp::open(here, settings)).expect("a port");
    let path = path(here, [192, 0, 2, 99].into());
    let packets: Vec<_> = (0..20).map(|number| (&path, packet(number, 1056))).collect();
    assert_eq!(send(&mut port, &packets), Sent { packets: 20, more: false });
    assert!(count(&port, "tx_packets") < 20);
    assert_eq!(send(&mut port, &packets), Sent { packets: 0, more: true });
    assert_eq!(count(&port, "tx_no_room"), 1);
    assert_eq!(port.wait(Duration::MAX), Wake::TimedOut, "there may be room again");

    cable.b.ip("address add 192.0.2.99/24 dev vb");
    let mut peer = cable.b.run(|| open([192, 0, 2, 99].into(), Gso::Off));
    cable.a.ip("neigh replace 192.0.2.99 lladdr 02:00:00:00:00:0b dev va");
    while count(&port, "tx_packets") < 20 {
        assert_eq!(port.wait(Duration::MAX), Wake::TimedOut);
    }
    let arrived = bytes_of(receive(&mut peer, 20));
    assert_eq!(arrived, without_icrc(packets.iter().map(|(_, bytes)| bytes)));
}

/// What is damaged on its way into a socket was sealed with the headers that the kernel writes.
#[test]
fn a_bad_network_fits_around_a_socket() {
    let [(at_a, a), (at_b, mut b)] = pair(Gso::Auto);
    let mut a = FaultPort::parse(a, "corrupt packets 2; mark packets 3; dup packets 4", 1)
        .expect("these are rules");
    let path = path(at_a, at_b);
    let packets: Vec<_> = (0..5).map(|number| (&path, packet(number, 1056))).collect();
    assert_eq!(send(&mut a, &packets), Sent { packets: 5, more: false });
    let mut seen = Vec::new();
    while seen.len() < 6 {
        b.wait(Duration::from_secs(1));
        b.receive(Instant::ZERO, &mut |packet| {
            let Body::Whole { first, .. } = packet.body else { panic!("all bytes came") };
            let marked = packet.addressing.traffic_class.ecn() == Ecn::Ce;
            seen.push((first[0], packet.check_icrc(), marked));
        });
    }
    let numbers: Vec<u8> = seen.iter().map(|(number, ..)| *number).collect();
    assert_eq!((numbers[0], &numbers[2..]), (0, &[2, 3, 3, 4][..]));
    let right: Vec<bool> = seen.iter().map(|(_, icrc, _)| *icrc == Some(Ok(()))).collect();
    assert_eq!(right, [true, false, true, true, true, true]);
    let marked: Vec<bool> = seen.iter().map(|(.., marked)| *marked).collect();
    assert_eq!(marked, [false, false, true, false, false, false]);
    assert_eq!(count(&a, "fault_tx_duplicated"), 1);
}

/// Where the kernel takes a message apart it counts in the IPv4 identification, against the ICRCs.
#[test]
fn packets_are_joined_where_every_receiver_gets_them_right() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    until_local(&cable.b, "fd00::2");
    for (ends, gso, expected) in [
        (["192.0.2.1", "192.0.2.2"], Gso::Auto, 0),
        (["192.0.2.1", "192.0.2.2"], Gso::On, 3),
        (["192.0.2.1", "192.0.2.1"], Gso::Auto, 3),
        (["fd00::1", "fd00::2"], Gso::Auto, 3),
        (["fd00::1", "fd00::2"], Gso::Off, 0),
    ] {
        let ends = ends.map(|it| it.parse::<IpAddr>().expect("an address"));
        let mut a = cable.a.run(|| open(ends[0], gso));
        let path = path(ends[0], ends[1]);
        let packets: Vec<_> = (0..3).map(|number| (&path, packet(number, 1056))).collect();
        let arrived = if ends[0] == ends[1] {
            send(&mut a, &packets);
            receive(&mut a, 3)
        } else {
            let mut b = cable.b.run(|| open(ends[1], gso));
            send(&mut a, &packets);
            receive(&mut b, 3)
        };
        assert_eq!(bytes_of(arrived), without_icrc(packets.iter().map(|(_, bytes)| bytes)));
        assert_eq!(count(&a, "tx_joined"), expected, "{ends:?} {gso:?}");
    }
}

/// Link-local addresses say nothing without their link; the port knows it.
#[test]
fn link_local_addresses_work() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    for (end, name, last) in [(&cable.a, "va", 0xa), (&cable.b, "vb", 0xb)] {
        end.ip(&format!("address add fe80::{last:x}/64 dev {name} nodad"));
    }
    until_local(&cable.b, "fe80::b");
    let ends = ["fe80::a", "fe80::b"].map(|it| it.parse::<IpAddr>().expect("an address"));
    let mut a = cable.a.run(|| open(ends[0], Gso::Auto));
    let mut b = cable.b.run(|| open(ends[1], Gso::Auto));
    send(&mut a, &[(&path(ends[0], ends[1]), packet(1, 20))]);
    assert_eq!(receive(&mut b, 1)[0].0.source, ends[0]);
}

/// A port that sees the whole frame finds in it what this one says it sends, and this one takes
/// what that one sends.
#[cfg(feature = "af_xdp")]
#[test]
fn whoever_sees_the_headers_agrees() {
    use roxe_net::af_xdp::{self, AfXdp};
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    until_local(&cable.a, "fd00::1");
    let mut xdp = cable.b.run(|| AfXdp::open("vb", af_xdp::Settings::default())).expect("a port");
    for ends in [["192.0.2.1", "192.0.2.2"], ["fd00::1", "fd00::2"]] {
        let ends = ends.map(|it| it.parse::<IpAddr>().expect("an address"));
        let mut udp = cable.a.run(|| open(ends[0], Gso::Auto));
        let there = path_of(ends[0], ends[1], TrafficClass(0x6a), 33);
        let packets: Vec<_> = (0..3).map(|number| (&there, packet(number, 1056))).collect();
        send(&mut udp, &packets);
        let arrived = receive(&mut xdp, 3);
        assert_eq!(arrived[0].0.traffic_class, TrafficClass(0x6a));
        assert_eq!(arrived[0].0.hop_limit, 33);
        assert_eq!(bytes_of(arrived), without_icrc(packets.iter().map(|(_, bytes)| bytes)));

        let back = FrameTemplate::new(&Path {
            ethernet: (MacAddress([2, 0, 0, 0, 0, 0x0a]), MacAddress([2, 0, 0, 0, 0, 0x0b])),
            vlan: None,
            ip: IpPair::new(ends[1], ends[0]).expect("one family"),
            traffic_class: TrafficClass(0x02),
            hop_limit: 5,
            flow_label: 0,
            source_port: 0xc001,
        });
        let packets: Vec<_> = (0..3).map(|number| (&back, packet(number, 4120))).collect();
        let mut split = packets.iter();
        xdp.transmit(Instant::ZERO, &mut |room| {
            let (path, bytes) = split.next()?;
            let (head, tail) = bytes.split_at(bytes.len().min(room.first.len()));
            room.first[..head.len()].copy_from_slice(head);
            room.second[..tail.len()].copy_from_slice(tail);
            Some(Outgoing { path, len: bytes.len(), seal: Seal::Compute })
        });
        let arrived = receive(&mut udp, 3);
        assert_eq!((arrived[0].0.source_port, arrived[0].0.hop_limit), (0xc001, 5));
        assert_eq!(bytes_of(arrived), without_icrc(packets.iter().map(|(_, bytes)| bytes)));
    }
}
