use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

use roxe_wire::{IpPair, MacAddress, Path, TrafficClass};

use super::outbox::Fate;
use super::*;
use crate::Seal;

/// An address of loopback that no other test has, though many run side by side.
fn address() -> Ipv4Addr {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = std::process::id() * 16 + NUMBER.fetch_add(1, Ordering::Relaxed);
    let [_, b, c, d] = number.to_be_bytes();
    Ipv4Addr::new(127, b | 0x80, c, d)
}

fn path(source: Ipv4Addr, destination: Ipv4Addr) -> FrameTemplate {
    FrameTemplate::new(&Path {
        ethernet: (MacAddress::default(), MacAddress::default()),
        vlan: None,
        ip: IpPair::V4 { source, destination },
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    })
}

fn send(port: &mut Udp, path: &FrameTemplate, len: usize) -> Sent {
    let mut once = Some(Outgoing { path, len, seal: Seal::Compute });
    port.transmit(Instant::ZERO, &mut |room| {
        room.first[..len].fill(0x11);
        once.take()
    })
}

fn count(port: &Udp, name: &str) -> u64 {
    port.counters().iter().find(|(it, _)| *it == name).map_or(0, |(_, count)| *count)
}

#[test]
fn errors_say_what_becomes_of_a_packet() {
    let fates = [Errno::INTR, Errno::CONNREFUSED, Errno::AGAIN, Errno::NOBUFS, Errno::MSGSIZE];
    let fates = fates.map(Fate::of);
    assert_eq!(fates, [Fate::Again, Fate::Again, Fate::Full, Fate::Full, Fate::TooLong]);
    assert_eq!(Fate::of(Errno::NETUNREACH), Fate::Refused);
    assert_eq!(Fate::of(Errno::PERM), Fate::Refused);
}

/// Only a connected socket hears that nobody listens. Ours is not; were it told, it would go on.
#[test]
fn answers_that_nobody_listens_change_nothing() {
    let (here, there, dead) = (address(), address(), address());
    let open = |address: Ipv4Addr| Udp::open(address.into(), Settings::default()).expect("a port");
    let (mut a, mut b) = (open(here), open(there));
    let target = SocketAddr::new(dead.into(), ROCE_PORT);
    rustix::net::connect(&a.socket, &target).expect("UDP connects to anybody");

    send(&mut a, &path(here, dead), 20);
    assert_eq!(a.wait(Duration::MAX), Wake::TimedOut, "the answer ends the wait");
    assert_eq!(count(&a, "socket_errors"), 1);

    send(&mut a, &path(here, dead), 20);
    assert_eq!(a.receive(Instant::ZERO, &mut |_| ()), 0);
    assert_eq!(count(&a, "socket_errors"), 2);

    send(&mut a, &path(here, dead), 20);
    send(&mut a, &path(here, there), 24);
    assert_eq!(count(&a, "socket_errors"), 3, "what is sent next is not lost for it");
    assert_eq!(count(&a, "tx_packets"), 4);
    let mut lens = Vec::new();
    b.receive(Instant::ZERO, &mut |packet| lens.push(packet.body.len()));
    assert_eq!(lens, [24]);
}

/// Whoever floods a port keeps nobody in it.
#[test]
fn what_is_no_packet_is_taken_for_a_while_only() {
    let here = address();
    let settings = Settings { gso: Gso::Off, ..Settings::default() };
    let mut port = Udp::open(here.into(), settings).expect("a port");
    let from = UdpSocket::bind((address(), 0)).expect("a socket");
    let most = IN_VAIN * message::AT_ONCE;
    for _ in 0..=most {
        from.send_to(&[0; 5000], (here, ROCE_PORT)).expect("it is sent");
    }
    from.send_to(&[0; 20], (here, ROCE_PORT)).expect("it is sent");
    assert_eq!(port.receive(Instant::ZERO, &mut |_| ()), 0);
    assert_eq!(count(&port, "truncated"), most as u64);
    assert_eq!(port.wait(Duration::MAX), Wake::Arrived, "there is more");
    assert_eq!(port.receive(Instant::ZERO, &mut |_| ()), 1);
}

#[test]
fn hosts_are_told_apart_by_their_bits() {
    let is_within = |a: &str, b: &str, bits| {
        is_within(a.parse().expect("an address"), b.parse().expect("an address"), bits)
    };
    assert!(is_within("127.200.1.2", "127.0.0.1", 8));
    assert!(!is_within("128.0.0.1", "127.0.0.1", 8));
    assert!(is_within("192.0.2.1", "192.0.2.1", 32));
    assert!(!is_within("192.0.2.1", "192.0.2.0", 32));
    assert!(is_within("::1", "::1", 128));
    assert!(!is_within("::1", "::2", 128));
    assert!(!is_within("::", "0.0.0.0", 0));
}

/// More senders than are kept, and every ICRC is still judged by the headers of its own.
#[test]
fn senders_do_not_get_mixed_up() {
    let here = address();
    let mut port = Udp::open(here.into(), Settings::default()).expect("a port");
    let other = address();
    for round in 0..2 {
        for sport in 0..SENDERS as u16 * 2 {
            let from = UdpSocket::bind((other, 0)).expect("a socket");
            let source_port = from.local_addr().expect("it is bound").port();
            let template = path(other, here).with_source_port(source_port);
            let mut bytes = [sport as u8; 20];
            let cover = template.icrc_cover(20, 0).expect("it is short");
            assert!(roxe_wire::icrc::seal(&cover, Room::whole(&mut bytes)));
            from.send_to(&bytes, (here, ROCE_PORT)).expect("it is sent");
            let mut judged = Vec::new();
            port.receive(Instant::ZERO, &mut |packet| {
                judged.push((packet.addressing.source_port, packet.check_icrc()));
            });
            assert_eq!(judged, [(source_port, Some(Ok(())))], "round {round}");
        }
    }
}
