//! The AF_XDP port between two network namespaces.
//!
//! Needs root, iproute2 and a kernel with veth and AF_XDP; a run by anybody else prints so.

#![cfg(feature = "af_xdp")]

mod namespace;

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant as Clock};

use namespace::{Cable, Namespace, is_root};
use roxe_net::af_xdp::{AfXdp, Mode, OpenError, Queues, Settings, ZeroCopy};
use roxe_net::neighbor::{Assigned, Netlink, Reach, Watch};
use roxe_net::owned::Own;
use roxe_net::{FramePort, Outgoing, Seal, Sent, Wake};
use roxe_wire::{
    Body, FrameTemplate, Instant, IpPair, MacAddress, Mtu, Path, TrafficClass, VlanTag, icrc,
};

/// A veth MTU that path MTU 4096 fits, and whose frames take two chunks.
const LARGE: u32 = 4200;

/// Bytes from BTH to ICRC: frames of 62, 1090, 2114 and 4170 bytes over IPv4; the two around the
/// border between one chunk and two.
const LENS: [usize; 6] = [20, 1048, 2072, 3796, 3800, 4128];

const GENERIC: Settings = Settings { mode: Mode::Generic, ..settings() };

const fn settings() -> Settings {
    Settings {
        queue: 0,
        queues: Queues::All,
        mode: Mode::Auto,
        zero_copy: ZeroCopy::Auto,
        ring: 2048,
        spin: Duration::ZERO,
    }
}

fn open(namespace: &Namespace, name: &str, settings: Settings) -> Result<AfXdp, OpenError> {
    namespace.run(|| AfXdp::open(name, settings))
}

fn ports(cable: &Cable, settings: Settings) -> [AfXdp; 2] {
    let open = |namespace, name| open(namespace, name, settings).expect("a port can be opened");
    [open(&cable.a, "va"), open(&cable.b, "vb")]
}

/// From one end of a cable to the other.
fn path(from_a: bool, v6: bool, vlan: Option<u16>) -> FrameTemplate {
    let mut ends = [(1_u8, 0x0a), (2, 0x0b)];
    if !from_a {
        ends.reverse();
    }
    let [(source, source_mac), (destination, destination_mac)] = ends;
    let v4 = |last| Ipv4Addr::new(192, 0, 2, last);
    let v6_of = |last: u8| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into());
    let mac = |last| MacAddress([2, 0, 0, 0, 0, last]);
    FrameTemplate::new(&Path {
        ethernet: (mac(destination_mac), mac(source_mac)),
        vlan: vlan.map(VlanTag),
        ip: if v6 {
            IpPair::V6 { source: v6_of(source), destination: v6_of(destination) }
        } else {
            IpPair::V4 { source: v4(source), destination: v4(destination) }
        },
        traffic_class: TrafficClass(0x02),
        hop_limit: 64,
        flow_label: if v6 { 0x12345 } else { 0 },
        source_port: 0xc123,
    })
}

/// The bytes of packet `number`.
fn packet(number: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
    bytes[..4].copy_from_slice(&(number as u32).to_be_bytes());
    bytes
}

/// Sends one packet; says whether the port had room.
fn send(port: &mut AfXdp, path: &FrameTemplate, packet: &[u8]) -> bool {
    let mut outgoing = Some(Outgoing { path, len: packet.len(), seal: Seal::Compute });
    let sent = port.transmit(Instant::ZERO, &mut |room| {
        let outgoing = outgoing.take()?;
        let (head, tail) = packet.split_at(packet.len().min(room.first.len()));
        room.first[..head.len()].copy_from_slice(head);
        room.second[..tail.len()].copy_from_slice(tail);
        Some(outgoing)
    });
    sent.packets == 1
}

/// What arrives until there are `count` packets, without their ICRC, which is checked here.
fn receive(port: &mut AfXdp, count: usize) -> Vec<Vec<u8>> {
    let started = Clock::now();
    let mut packets = Vec::new();
    while packets.len() < count && started.elapsed() < Duration::from_secs(5) {
        port.receive(Instant::ZERO, &mut |received| {
            let cover = received.cover.expect("AF_XDP shows all headers");
            icrc::check(&cover, received.body).expect("its ICRC is right");
            let Body::Whole { first, second } = received.body else { panic!("all bytes came") };
            let mut bytes = [first, second].concat();
            bytes.truncate(bytes.len() - 4);
            packets.push(bytes);
        });
        if packets.len() < count {
            port.wait(Duration::from_millis(100));
        }
    }
    packets
}

fn count(port: &AfXdp, name: &str) -> u64 {
    let counters = port.counters();
    counters.iter().find(|(it, _)| *it == name).map_or(0, |(_, count)| *count)
}

/// Every kind of path, every length, both ways.
fn every_frame(settings: Settings) {
    let cable = Cable::new(LARGE);
    let mut ports = ports(&cable, settings);
    let mut sent = 0;
    for from_a in [true, false] {
        for (v6, vlan) in [(false, None), (true, None), (false, Some(5)), (true, Some(4095))] {
            let path = path(from_a, v6, vlan);
            let [a, b] = &mut ports;
            let (from, to) = if from_a { (a, b) } else { (b, a) };
            let packets: Vec<Vec<u8>> =
                LENS.iter().enumerate().map(|(at, len)| packet(at, *len)).collect();
            for packet in &packets {
                assert!(send(from, &path, packet));
            }
            let arrived = receive(to, packets.len());
            let without_icrc: Vec<_> =
                packets.iter().map(|packet| packet[..packet.len() - 4].to_vec()).collect();
            assert_eq!(arrived, without_icrc, "from a: {from_a}, IPv6: {v6}, VLAN: {vlan:?}");
            sent += packets.len() as u64;
        }
    }
    let [a, b] = &ports;
    for (port, peer) in [(a, b), (b, a)] {
        let from_peer = sent / 2;
        assert_eq!(count(port, "tx_packets"), from_peer);
        assert_eq!(count(peer, "rx_packets"), from_peer);
        assert_eq!(count(peer, "xdp_redirected"), from_peer);
        assert_eq!(count(peer, "xdp_no_socket"), 0);
        assert_eq!(count(peer, "rx_too_long"), 0);
        assert_eq!(count(peer, "xsk_rx_dropped"), 0);
    }
}

#[test]
fn every_frame_in_native_mode() {
    if is_root() {
        every_frame(settings());
    }
}

#[test]
fn every_frame_in_generic_mode() {
    if is_root() {
        every_frame(GENERIC);
    }
}

#[test]
fn what_the_port_is_can_be_read() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(LARGE);
    let summary = |settings| {
        let port = open(&cable.a, "va", settings).expect("a port can be opened");
        let capabilities = port.capabilities();
        assert_eq!(capabilities.path_mtu, Mtu::B4096);
        assert!(!capabilities.zero_copy);
        assert!(capabilities.verifies_icrc);
        capabilities.to_string()
    };
    let native = "va: native XDP, copy mode (the driver has no zero-copy), queue 0, path MTU 4096";
    assert_eq!(summary(settings()), native);
    let plain = Settings { zero_copy: ZeroCopy::Off, ..GENERIC };
    assert_eq!(summary(plain), "va: generic XDP, copy mode, queue 0, path MTU 4096");

    let four = Namespace::new();
    four.ip("link add vq numtxqueues 4 numrxqueues 4 mtu 1500 type veth peer name vr");
    let port = open(&four, "vq", settings()).expect("a port can be opened");
    let said = port.capabilities().to_string();
    assert!(said.contains(", 4 queues from 0 on, "), "{said}");

    let loopback = open(&cable.a, "lo", settings()).expect("loopback has generic mode");
    let said = loopback.capabilities().to_string();
    assert!(said.starts_with("lo: generic XDP (native refused: "), "{said}");
}

/// Sends a frame as it is, from a kernel.
#[allow(unsafe_code, reason = "packet sockets have no safe form")]
fn send_raw(namespace: &Namespace, interface: &str, frame: &[u8]) {
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
    namespace.run(|| {
        let interfaces = Netlink::open().and_then(|mut it| it.interfaces()).expect("it answers");
        let found = interfaces.iter().find(|it| it.name == interface).expect("it is there");
        // SAFETY: the calls read what they are told the length of, and the descriptor is ours.
        let sent = unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
            let socket = OwnedFd::from_raw_fd(socket);
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = found.index.cast_signed();
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    });
}

/// A tag inside a tag of 802.1ad is one more than our own paths have; three are too many.
#[test]
fn two_tags_are_read_and_three_are_the_kernels() {
    if !is_root() {
        return;
    }
    for settings in [settings(), GENERIC] {
        let cable = Cable::new(1500);
        let mut port = open(&cable.b, "vb", settings).expect("it opens");
        for v6 in [false, true] {
            let tagged = path(true, v6, Some(5));
            let body = packet(7, 100);
            let at = tagged.headers_len();
            let mut frame = [vec![0; at], body.clone()].concat();
            let cover = tagged.write(100, 0, &mut frame).expect("it fits");
            let room = roxe_wire::Room { first: &mut frame[at..], second: &mut [] };
            assert!(icrc::seal(&cover, room));
            let outer = [0x88, 0xa8, 0x20, 0x06];
            frame.splice(12..12, outer);
            send_raw(&cable.a, "va", &frame);
            assert_eq!(receive(&mut port, 1), [&body[..96]], "IPv6: {v6}");
            frame.splice(12..12, outer);
            send_raw(&cable.a, "va", &frame);
        }
        while count(&port, "xdp_vlan_tags") < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(count(&port, "xdp_redirected"), 2);
    }
}

/// Whoever floods a port keeps nobody in it: four batches of 64 are taken at once.
#[test]
fn what_is_no_packet_is_taken_for_a_while_only() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let mut port = open(&cable.b, "vb", settings()).expect("it opens");
    let path = path(true, false, None);
    let at = path.headers_len();
    let mut frame = [vec![0; at], packet(7, 100)].concat();
    let cover = path.write(100, 0, &mut frame).expect("it fits");
    assert!(icrc::seal(&cover, roxe_wire::Room { first: &mut frame[at..], second: &mut [] }));
    let mut broken = frame.clone();
    broken[at - 4..at - 2].copy_from_slice(&[0, 20]); // Its UDP length.
    (0..257).for_each(|_| send_raw(&cable.a, "va", &broken));
    send_raw(&cable.a, "va", &frame);
    while count(&port, "xdp_redirected") < 258 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(port.receive(Instant::ZERO, &mut |_| ()), 0);
    assert_eq!(count(&port, "udp_length"), 256);
    assert_eq!(port.wait(Duration::MAX), Wake::Arrived, "there is more");
    assert_eq!(port.receive(Instant::ZERO, &mut |_| ()), 1);
}

/// What a neighbour says is read to its end before anything is made of it.
#[test]
fn broken_messages_for_owned_addresses_are_counted_and_harmless() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let address: IpAddr = [192, 0, 2, 5].into();
    let own = Own {
        addresses: vec![Assigned { address, prefix_len: 24 }],
        gateways: Vec::new(),
        vlan: None,
    };
    let opened = cable.a.run(|| AfXdp::open_owning("va", settings(), &own));
    let (mut port, neighbors) = opened.expect("it opens");
    let peer = [192, 0, 2, 2];
    let arp = |operation: u8, lengths: [u8; 2], mac: [u8; 6]| {
        let ethernet = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0x0b, 8, 6];
        let fixed = [0, 1, 8, 0, lengths[0], lengths[1], 0, operation];
        let ours = [192, 0, 2, 5];
        [&ethernet[..], &fixed, &mac, &peer, &[0; 6], &ours, &[0; 18]].concat()
    };
    let good = arp(1, [6, 4], [2, 0, 0, 0, 0, 0x0b]);
    let echo = {
        let ip = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 2, 192, 0, 2, 5];
        let ethernet = [2, 0, 0, 0, 0, 0x0a, 2, 0, 0, 0, 0, 0x0b, 8, 0];
        [&ethernet[..], &ip, &[8, 0, 0, 0, 0, 0, 0, 0]].concat()
    };
    // Operation, MAC, checksum; lengths and a cut that the program leaves to the kernel.
    let broken = [
        arp(9, [6, 4], [2; 6]),
        arp(1, [6, 4], [0xff; 6]),
        echo,
        arp(1, [8, 4], [2; 6]),
        good[..40].to_vec(),
    ];
    broken.iter().for_each(|frame| send_raw(&cable.b, "vb", frame));
    let started = Clock::now();
    let mut drive = || {
        port.receive(Instant::from_nanos(started.elapsed().as_nanos() as u64), &mut |_| {});
        port.wait(Duration::from_millis(10));
        ["owned_malformed", "xdp_short", "owned_rx", "rx_packets"].map(|name| count(&port, name))
    };
    while drive()[..2] != [3, 1] {}
    send_raw(&cable.b, "vb", &good);
    while drive()[2] < 4 {}
    while neighbors.ask(peer.into()).is_none() {
        drive();
    }
    let [malformed, short, _, packets] = drive();
    assert_eq!((malformed, short, packets), (3, 1, 0));
}

/// Both ends send as fast as the other end receives: frames come back, none is lost.
#[test]
fn frames_come_back() {
    if !is_root() {
        return;
    }
    const PACKETS: usize = 20_000;
    const WINDOW: usize = 100;
    let cable = Cable::new(LARGE);
    // Few frames, so that each is used many times, also as either half of a packet.
    let few = Settings { ring: 256, ..settings() };
    let mut ports = ports(&cable, few);
    let paths = [path(true, false, None), path(false, true, None)];
    let len = |number| LENS[number % LENS.len()];
    let mut sent = [0, 0];
    let mut received = [0, 0];
    let started = Clock::now();
    while received != [PACKETS; 2] {
        assert!(started.elapsed() < Duration::from_secs(60), "{sent:?} sent, {received:?} came");
        for end in [0, 1] {
            let peer = 1 - end;
            let mut number = sent[end];
            let Sent { packets, .. } = ports[end].transmit(Instant::ZERO, &mut |room| {
                if number == PACKETS || number - received[peer] == WINDOW {
                    return None;
                }
                let len = len(number);
                let packet = packet(number, len);
                let (head, tail) = packet.split_at(len.min(room.first.len()));
                room.first[..head.len()].copy_from_slice(head);
                room.second[..tail.len()].copy_from_slice(tail);
                number += 1;
                Some(Outgoing { path: &paths[end], len, seal: Seal::Compute })
            });
            sent[end] += packets;
            let mut number = received[end];
            ports[end].receive(Instant::ZERO, &mut |arrived| {
                assert_eq!(arrived.body.len(), len(number));
                let Body::Whole { first, .. } = arrived.body else { panic!("all bytes came") };
                assert_eq!(first[..4], (number as u32).to_be_bytes());
                number += 1;
            });
            received[end] = number;
        }
    }
    for port in &ports {
        assert_eq!(count(port, "xsk_tx_invalid"), 0);
        assert_eq!(count(port, "tx_refused"), 0);
        assert_eq!(count(port, "rx_packets"), PACKETS as u64);
    }
}

/// Nobody receives: the port fills up, says so, and is usable afterwards.
#[test]
fn a_full_receiver_loses_and_the_sender_goes_on() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(LARGE);
    let few = Settings { ring: 128, ..settings() };
    let [mut a, mut b] = ports(&cable, few);
    let path = path(true, false, None);
    for number in 0..2000 {
        while !send(&mut a, &path, &packet(number, 100)) {
            a.wait(Duration::from_millis(1));
        }
    }
    let arrived = receive(&mut b, 128);
    assert_eq!(arrived.len(), 128);
    assert!(count(&b, "xsk_rx_ring_full") + count(&b, "xsk_fill_ring_empty") > 0);
    assert!(send(&mut a, &path, &packet(7, 100)));
    assert_eq!(receive(&mut b, 1), [packet(7, 100)[..96].to_vec()]);
}

#[test]
fn what_exceeds_the_mtu_is_counted_and_not_sent() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let [mut a, mut b] = ports(&cable, settings());
    let path = path(true, false, None);
    for len in [4128, 1476, 1472] {
        assert!(send(&mut a, &path, &packet(1, len)));
    }
    // 1476 bytes behind 28 of IP and UDP are over the MTU by what a VLAN tag would take.
    assert_eq!(receive(&mut b, 2).iter().map(Vec::len).collect::<Vec<_>>(), [1472, 1468]);
    assert_eq!(count(&a, "tx_unsendable"), 1);
    assert_eq!(count(&a, "tx_packets"), 2);
}

/// Everything but RoCEv2 goes to the kernel: ARP and neighbour discovery, TCP, UDP to other ports,
/// ICMP errors, and fragments even to port 4791.
#[test]
fn other_traffic_reaches_the_kernel() {
    if !is_root() {
        return;
    }
    for settings in [settings(), GENERIC] {
        let cable = Cable::new(1500);
        let [a, b] = ports(&cable, settings);
        for (ours, theirs) in [("192.0.2.1", "192.0.2.2"), ("fd00::1", "fd00::2")] {
            let [ours, theirs]: [IpAddr; 2] = [ours, theirs].map(|it| it.parse().expect("an IP"));
            kernel_talks(&cable, ours, theirs);
        }
        assert!(count(&a, "xdp_passed") > 10);
        assert!(count(&b, "xdp_passed") > 10);
        assert!(count(&b, "xdp_fragment") >= 4);
        assert_eq!(count(&b, "xdp_redirected"), 0);
        assert_eq!(count(&b, "rx_packets"), 0);
    }
}

fn kernel_talks(cable: &Cable, ours: IpAddr, theirs: IpAddr) {
    let patience = Some(Duration::from_secs(5));
    // UDP, and a datagram that takes fragments.
    for (port, len) in [(5000, 100), (4791, 3000)] {
        let receiver = cable.b.run(|| UdpSocket::bind((theirs, port)).expect("the port is free"));
        receiver.set_read_timeout(patience).expect("it can be set");
        let sender = cable.a.run(|| UdpSocket::bind((ours, 0)).expect("some port is free"));
        sender.send_to(&vec![7; len], (theirs, port)).expect("there is a route");
        let mut bytes = [0; 4000];
        let arrived = receiver.recv(&mut bytes).expect("the datagram arrives");
        assert_eq!(arrived, len, "{theirs}, port {port}");
    }
    // An error by ICMP: nobody listens there.
    let sender = cable.a.run(|| UdpSocket::bind((ours, 0)).expect("some port is free"));
    sender.set_read_timeout(patience).expect("it can be set");
    sender.connect((theirs, 5001)).expect("there is a route");
    sender.send(&[1]).expect("the first does not fail");
    let refused = sender.recv(&mut [0]).expect_err("nobody answers");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    // TCP.
    let listener = cable.b.run(|| TcpListener::bind((theirs, 5002)).expect("the port is free"));
    let mut client = cable.a.run(|| TcpStream::connect((theirs, 5002)).expect("it connects"));
    let (mut server, _) = listener.accept().expect("a client came");
    client.write_all(&[5; 100_000]).expect("it sends");
    drop(client);
    let mut bytes = Vec::new();
    server.read_to_end(&mut bytes).expect("it receives");
    assert_eq!(bytes.len(), 100_000);
}

/// A cable whose ends have so many queues.
fn cable_of(queues: u32) -> Cable {
    let cable = Cable { a: Namespace::new(), b: Namespace::new() };
    cable.a.ip(&format!(
        "link add va mtu 1500 address 02:00:00:00:00:0a numrxqueues {queues} numtxqueues {queues} \
         type veth peer name vb mtu 1500 address 02:00:00:00:00:0b numrxqueues {queues} \
         numtxqueues {queues} netns {}",
        cable.b.path()
    ));
    cable.a.ip("link set va up");
    cable.b.ip("link set vb up");
    cable
}

/// A port on each queue of `va` sends by it, and a veth delivers on the queue of the same number.
#[test]
fn no_frame_is_lost_on_any_of_several_queues() {
    if !is_root() {
        return;
    }
    const QUEUES: u32 = 4;
    for mode in [Mode::Native, Mode::Generic] {
        let cable = cable_of(QUEUES);
        let mut all = open(&cable.b, "vb", Settings { mode, ..settings() }).expect("it opens");
        let summary = all.capabilities().summary.clone();
        assert!(summary.contains("4 queues from 0 on, path MTU"), "{summary}");
        for queue in 0..QUEUES {
            let one = Settings { queue, queues: Queues::Count(1), ..settings() };
            let mut sender = open(&cable.a, "va", one).expect("it opens");
            let summary = &sender.capabilities().summary;
            let others = format!("queue {queue} of 4 (RoCEv2 on others goes to the kernel");
            assert!(summary.contains(&others), "{summary}");
            for number in 0..100 {
                assert!(send(&mut sender, &path(true, false, None), &packet(number, 100)));
            }
            let arrived = receive(&mut all, 100);
            assert_eq!(arrived.len(), 100, "{mode:?}, queue {queue}");
            for (number, bytes) in arrived.iter().enumerate() {
                assert_eq!(bytes[..4], (number as u32).to_be_bytes(), "in order");
            }
            drop(sender);
        }
        assert_eq!(count(&all, "xdp_redirected"), 400);
        assert_eq!(count(&all, "xdp_no_socket"), 0);
        if mode == Mode::Native {
            assert_eq!(count(&all, "rx_other_queues"), 300);
        }
    }
}

/// What comes by a queue without a socket goes to the kernel, and is counted.
#[test]
fn frames_on_queues_that_are_not_wanted_are_counted() {
    if !is_root() {
        return;
    }
    let cable = cable_of(3);
    let two = Settings { queues: Queues::Count(2), ..settings() };
    let mut some = open(&cable.b, "vb", two).expect("it opens");
    let summary = &some.capabilities().summary;
    assert!(summary.contains("2 queues from 0 on of 3 (RoCEv2 on others goes"), "{summary}");
    for queue in [2, 1] {
        let one = Settings { queue, queues: Queues::Count(1), ..settings() };
        let mut sender = open(&cable.a, "va", one).expect("it opens");
        assert!(send(&mut sender, &path(true, false, None), &packet(1, 100)));
        if queue == 1 {
            assert_eq!(receive(&mut some, 1).len(), 1);
        } else {
            while count(&some, "xdp_no_socket") == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    assert_eq!((count(&some, "xdp_no_socket"), count(&some, "rx_other_queues")), (1, 1));
    let many = Settings { queues: Queues::Count(4), ..settings() };
    drop(some);
    let error = open(&cable.b, "vb", many).err().expect("there are three").to_string();
    assert!(error.starts_with("vb has no queue 3: "), "{error}");
}

/// A wait ends whatever queue a frame comes by, and when the interface goes.
#[test]
fn a_wait_for_several_queues_ends_for_a_reason() {
    if !is_root() {
        return;
    }
    let cable = cable_of(2);
    let mut all = open(&cable.b, "vb", settings()).expect("it opens");
    assert_eq!(all.wait(Duration::from_millis(1)), Wake::TimedOut);
    for queue in [0, 1] {
        let one = Settings { queue, queues: Queues::Count(1), ..settings() };
        let mut sender = open(&cable.a, "va", one).expect("it opens");
        assert!(send(&mut sender, &path(true, false, None), &packet(1, 20)));
        assert_eq!(all.wait(Duration::from_secs(5)), Wake::Arrived, "queue {queue}");
        assert_eq!(receive(&mut all, 1).len(), 1);
    }
    let sleeper = all.sleeper().expect("there are descriptors");
    assert_eq!(sleeper.sleep(Duration::from_millis(1)), Wake::TimedOut);
    cable.b.ip("link delete vb");
    assert_eq!(all.wait(Duration::from_secs(5)), Wake::Gone);
}

#[test]
fn the_program_goes_with_the_port() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let has_program = || cable.a.ip("link show va").contains("xdp");
    for settings in [settings(), GENERIC] {
        assert!(!has_program());
        // Each time at once: the kernel gives the queue back a little later.
        for _ in 0..3 {
            let port = open(&cable.a, "va", settings).expect("a port can be opened");
            assert!(has_program());
            drop(port);
            assert!(!has_program());
        }
    }
}

/// A process that is killed cannot clean up: the kernel does.
#[test]
fn the_program_goes_with_the_process() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    for mode in ["native", "generic"] {
        let mut process = cable.a.run(|| {
            Command::new(std::env::current_exe().expect("this test is a program"))
                .args(["--exact", "hold_a_port_open", "--nocapture"])
                .env(HOLD, mode)
                .stdout(Stdio::piped())
                .spawn()
                .expect("it can be run")
        });
        let said = BufReader::new(process.stdout.take().expect("it is piped"));
        assert!(said.lines().any(|line| line.is_ok_and(|line| line.contains(mode))));
        assert!(cable.a.ip("link show va").contains("xdp"));
        process.kill().expect("it runs");
        process.wait().expect("it ends");
        assert!(!cable.a.ip("link show va").contains("xdp"), "{mode}");
        drop(open(&cable.a, "va", settings()).expect("nothing is left of it"));
    }
}

/// What the process of the test above runs; nothing by itself.
#[test]
fn hold_a_port_open() {
    let Ok(mode) = std::env::var(HOLD) else { return };
    let mode = if mode == "generic" { Mode::Generic } else { Mode::Native };
    let port = AfXdp::open("va", Settings { mode, ..settings() }).expect("it can be opened");
    println!("{}", port.capabilities());
    thread::sleep(Duration::from_secs(60));
}

const HOLD: &str = "ROXE_TEST_HOLD_A_PORT";

#[test]
fn a_second_port_is_told_about_the_first() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let _first = open(&cable.a, "va", settings()).expect("a port can be opened");
    for mode in [Mode::Auto, Mode::Native, Mode::Generic] {
        let second = open(&cable.a, "va", Settings { mode, ..settings() });
        let error = second.err().expect("there is one already");
        assert!(matches!(error, OpenError::ProgramAttached { .. }), "{mode:?}: {error}");
        let said = error.to_string();
        assert!(said.starts_with("an XDP program (program "), "{said}");
        assert!(said.contains("ip link show va"), "{said}");
    }
}

/// A queue of a tap device: what is written to it arrives, what is sent can be read.
#[allow(unsafe_code, reason = "a tap device is made by ioctl")]
fn tap_queue(namespace: &Namespace, name: &str) -> std::fs::File {
    use std::os::fd::AsRawFd as _;
    namespace.run(|| {
        let file = std::fs::File::options().read(true).write(true).open("/dev/net/tun");
        let file = file.expect("there is tun");
        // SAFETY: all of it may be zero.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as _);
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE;
        request.ifr_ifru.ifru_flags = flags as i16;
        // SAFETY: the call reads and writes the request.
        let made = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        file
    })
}

#[test]
fn frames_come_and_go_by_the_queues_of_a_tap_device() {
    if !is_root() {
        return;
    }
    for settings in [settings(), GENERIC] {
        let namespace = Namespace::new();
        let mut queues = [(); 2].map(|()| tap_queue(&namespace, "tap7"));
        namespace.ip("link set tap7 up");
        // The driver does not say how many there are.
        let two = Settings { queues: Queues::Count(2), ..settings };
        let mut port = open(&namespace, "tap7", two).expect("it opens");
        assert!(port.capabilities().summary.contains(", 2 queues from 0 on"));
        let path = path(true, true, None);
        let body = packet(3, 500);
        for queue in &mut queues {
            let mut frame = [vec![0; path.headers_len()], body.clone()].concat();
            let cover = path.write(500, 0, &mut frame).expect("it fits");
            let at = path.headers_len();
            let room = roxe_wire::Room { first: &mut frame[at..], second: &mut [] };
            assert!(icrc::seal(&cover, room));
            queue.write_all(&frame).expect("the device takes it");
            assert_eq!(receive(&mut port, 1), [&body[..496]], "{:?}", settings.mode);
        }
        assert_eq!(count(&port, "rx_other_queues"), 1);
        assert_eq!((count(&port, "xdp_redirected"), count(&port, "xdp_no_socket")), (2, 0));
        assert!(send(&mut port, &path, &body));
        // The kernel has things to say too.
        let is_ours = |bytes: &[u8]| bytes.ends_with(&body[..496]);
        let mut bytes = [0; 2000];
        while {
            let len = queues[0].read(&mut bytes).expect("something is sent");
            !is_ours(&bytes[..len - 4])
        } {}
    }
}

#[test]
fn a_tap_will_do_and_a_tun_will_not() {
    if !is_root() {
        return;
    }
    let namespace = Namespace::new();
    namespace.ip("tuntap add dev tap7 mode tap");
    namespace.ip("tuntap add dev tun7 mode tun");
    let tap = open(&namespace, "tap7", settings()).expect("a tap has an Ethernet header");
    assert_eq!(tap.capabilities().path_mtu, Mtu::B1024);
    let error = open(&namespace, "tun7", settings()).err().expect("a tun has none");
    assert!(matches!(error, OpenError::NotEthernet { .. }), "{error}");
    assert!(error.to_string().contains("use a tap device"), "{error}");
}

#[test]
fn what_is_wrong_is_said() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let error =
        |name, settings| open(&cable.a, name, settings).err().expect("it fails").to_string();
    assert_eq!(error("eth7", settings()), "there is no network interface eth7; there are: lo, va");
    let no_queue = error("va", Settings { queue: 3, ..settings() });
    assert!(no_queue.starts_with("va has no queue 3: "), "{no_queue}");
    let zero_copy = error("va", Settings { zero_copy: ZeroCopy::On, ..settings() });
    assert!(zero_copy.starts_with("va cannot do zero-copy: "), "{zero_copy}");
    cable.a.ip("link set va mtu 300");
    let mtu = error("va", settings());
    assert_eq!(mtu, "the MTU of va is 300: RoCEv2 needs at least 352");
    let native = error("lo", Settings { mode: Mode::Native, ..settings() });
    assert!(native.starts_with("lo cannot do native XDP: "), "{native}");
}

#[test]
fn missing_capabilities_are_named() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let without = |missing: CapabilitySet| {
        cable.a.run(|| {
            // Capabilities are those of a thread, and this one ends.
            let mut sets = capabilities(None).expect("they can be read");
            sets.effective.remove(missing);
            set_capabilities(None, sets).expect("they can be given up");
            AfXdp::open("va", settings()).err().expect("it is not allowed").to_string()
        })
    };
    let enough = CapabilitySet::BPF
        | CapabilitySet::IPC_LOCK
        | CapabilitySet::NET_ADMIN
        | CapabilitySet::NET_RAW;
    cable.a.run(|| {
        let mut sets = capabilities(None).expect("they can be read");
        sets.effective &= enough;
        set_capabilities(None, sets).expect("they can be given up");
        AfXdp::open("va", settings()).expect("what the messages name is enough");
    });
    let program = without(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN);
    assert!(program.ends_with("missing is CAP_BPF and CAP_NET_ADMIN"), "{program}");
    let socket = without(CapabilitySet::NET_RAW);
    assert!(socket.starts_with("not allowed to open an AF_XDP socket"), "{socket}");
    assert!(socket.ends_with("missing is CAP_NET_RAW"), "{socket}");

    // The limit is the process's, but other tests have the capability that lifts it.
    let before = getrlimit(Resource::Memlock);
    let little = Rlimit { current: Some(64 << 10), ..before };
    setrlimit(Resource::Memlock, little).expect("a limit can be lowered");
    let memory = without(CapabilitySet::IPC_LOCK);
    setrlimit(Resource::Memlock, before).expect("it was so before");
    assert!(memory.starts_with("the frames take 16384 KiB of locked memory: "), "{memory}");
}

#[test]
fn a_wait_ends_for_a_reason() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let [mut a, mut b] = ports(&cable, settings());
    assert_eq!(b.wait(Duration::from_millis(1)), Wake::TimedOut);

    let waker = b.waker();
    let caller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        waker.wake();
    });
    assert_eq!(b.wait(Duration::MAX), Wake::Called);
    caller.join().expect("it does not panic");

    let sender = thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        assert!(send(&mut a, &path(true, false, None), &packet(1, 20)));
        a
    });
    assert_eq!(b.wait(Duration::MAX), Wake::Arrived);
    assert_eq!(receive(&mut b, 1).len(), 1);
    drop(sender.join().expect("it does not panic"));

    cable.b.ip("link delete vb");
    assert_eq!(b.wait(Duration::from_secs(5)), Wake::Gone);
}

#[test]
fn changes_of_interfaces_and_addresses_are_heard_of() {
    if !is_root() {
        return;
    }
    let namespace = Namespace::new();
    let mut watch = namespace.run(Watch::open).expect("it takes no privilege");
    assert!(!watch.has_changed());
    for change in ["link set lo mtu 9000", "address add 127.0.0.9/8 dev lo"] {
        namespace.ip(change);
        assert!(watch.has_changed(), "{change}");
        assert!(!watch.has_changed(), "{change}");
    }
}

#[test]
fn neighbours_are_found() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    cable.a.run(|| {
        let mut netlink = Netlink::open().expect("it takes no privilege");
        let interfaces = netlink.interfaces().expect("the kernel answers");
        let va = interfaces.iter().find(|it| it.name == "va").expect("there is va");
        assert_eq!(va.mac, Some(MacAddress([2, 0, 0, 0, 0, 0x0a])));
        assert_eq!((va.mtu, va.is_up, va.has_carrier), (1500, true, true));
        let has = |address: &str| {
            let address: IpAddr = address.parse().expect("an address");
            va.addresses.iter().any(|it| it.address == address)
        };
        assert!(has("192.0.2.1") && has("fd00::1"));

        for peer in ["192.0.2.2", "fd00::2"] {
            let peer: IpAddr = peer.parse().expect("an address");
            let route = netlink.route(peer, None, None).expect("the kernel answers");
            let route = route.expect("there is a route");
            assert_eq!((route.reach, route.interface), (Reach::Unicast, va.index));
            assert_eq!(route.next_hop, peer);
            assert!(route.source.is_some_and(|source| has(&source.to_string())));
            assert_eq!(netlink.neighbor(va.index, peer).expect("the kernel answers"), None);
            let mac = netlink.resolve(&route, Duration::from_secs(5)).expect("it answers");
            assert_eq!(mac, MacAddress([2, 0, 0, 0, 0, 0x0b]));
        }
        // Who has no patience asks all the same, and finds the answer later.
        cable.a.ip("neighbour flush dev va");
        let peer: IpAddr = [192, 0, 2, 2].into();
        let route = netlink.route(peer, None, None).expect("the kernel answers");
        let asked = netlink.resolve(&route.expect("there is a route"), Duration::ZERO);
        assert!(asked.is_err(), "{asked:?}");
        while netlink.neighbor(va.index, peer).expect("the kernel answers").is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        let nowhere = netlink.route([203, 0, 113, 1].into(), None, None);
        assert_eq!(nowhere.expect("the kernel answers"), None);
        cable.a.ip("route add prohibit 198.51.100.0/24");
        cable.a.ip("route add blackhole 203.0.113.0/24");
        for refused in [[198, 51, 100, 1], [203, 0, 113, 1]] {
            let refused = netlink.route(refused.into(), None, None);
            assert_eq!(refused.expect("the kernel answers"), None);
        }
        let nobody: IpAddr = [192, 0, 2, 77].into();
        let route = netlink.route(nobody, None, None).expect("the kernel answers");
        let silence = netlink
            .resolve(&route.expect("the network is there"), Duration::from_millis(20))
            .expect_err("nobody is there");
        assert!(silence.to_string().starts_with("192.0.2.77 does not answer"), "{silence}");
    });
}

#[test]
fn what_an_interface_can_do_is_seen_without_touching_it() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(LARGE);
    let look = || {
        cable.a.run(|| {
            let interfaces = Netlink::open().unwrap().interfaces().unwrap();
            let interface = interfaces.iter().find(|it| it.name == "va").unwrap();
            roxe_net::af_xdp::support(interface).unwrap()
        })
    };
    let before = look();
    assert_eq!((before.native, before.program, before.queues), (Some(true), None, 1));
    assert!(!before.zero_copy && before.several_buffers && !before.large_receive);
    let port = open(&cable.a, "va", settings()).expect("a port can be opened");
    assert!(look().program.is_some());
    drop(port);
    assert_eq!(look().program, None);
    cable.a.command("ethtool", "-K va gro on");
    assert!(look().generic_receive);
    cable.a.command("ethtool", "-K va gro off");
    assert!(!look().generic_receive);
}
