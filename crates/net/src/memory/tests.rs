use std::thread;

use roxe_wire::{DropReason, FrameTemplate, IpPair, MacAddress, Path, TrafficClass, icrc};

use super::*;
use crate::Seal;

fn path() -> FrameTemplate {
    FrameTemplate::new(&Path {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: None,
        ip: IpPair::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() },
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    })
}

/// Sends a packet for each length.
fn send(port: &mut MemoryPort, path: &FrameTemplate, lens: &[usize]) -> Sent {
    let mut lens = lens.iter();
    port.transmit(Instant::ZERO, &mut |room| {
        let len = *lens.next()?;
        room.first[..len].fill(len as u8);
        Some(Outgoing { path, len, seal: Seal::Compute })
    })
}

/// The lengths of what arrives, each packet looked at.
fn receive(port: &mut dyn FramePort) -> Vec<usize> {
    let mut lens = Vec::new();
    while port.receive(Instant::ZERO, &mut |packet| {
        let cover = packet.cover.expect("a whole frame arrived");
        icrc::check(&cover, packet.body).expect("its ICRC is right");
        lens.push(packet.body.len());
    }) > 0
    {}
    lens
}

fn count(port: &MemoryPort, name: &str) -> u64 {
    port.counters().iter().find(|(it, _)| *it == name).map_or(0, |(_, count)| *count)
}

#[test]
fn packets_reach_everybody_else() {
    let [mut a, mut b, mut c] = segment(Mtu::B1024).expect("a segment");
    let lens = [16, 1040, 20];
    assert_eq!(send(&mut a, &path(), &lens), Sent { packets: 3, more: false });
    assert_eq!(receive(&mut b), lens);
    assert_eq!(receive(&mut c), lens);
    assert_eq!(receive(&mut a), [0; 0]);
    assert_eq!(count(&a, "tx_packets"), 3);
    assert_eq!(count(&b, "rx_bytes"), 16 + 1040 + 20);
}

#[test]
fn the_largest_packet_fits() {
    let [mut a, b] = pair(Mtu::B4096).expect("a pair");
    let mut b: Box<dyn FramePort> = Box::new(b);
    let len = 4096 + 12 + 28 + 4;
    send(&mut a, &path(), &[len]);
    assert_eq!(receive(&mut b), [len]);
}

#[test]
fn nobody_receives_too_much() {
    let [mut a, mut b] = pair(Mtu::B256).expect("a pair");
    for _ in 0..3000_usize.div_ceil(BATCH) {
        send(&mut a, &path(), &[16; BATCH]);
    }
    assert_eq!(receive(&mut b).len(), DEPTH);
    assert_eq!(count(&b, "rx_overflow"), 3008 - DEPTH as u64);
}

#[test]
fn arrival_ends_a_wait() {
    let [mut a, mut b] = pair(Mtu::B256).expect("a pair");
    assert_eq!(b.wait(Duration::ZERO), Wake::TimedOut);
    let receiver = thread::spawn(move || {
        let wake = b.wait(Duration::MAX);
        (wake, receive(&mut b))
    });
    send(&mut a, &path(), &[16]);
    assert_eq!(receiver.join().expect("it does not panic"), (Wake::Arrived, vec![16]));
}

#[test]
fn a_call_ends_a_wait() {
    let [mut a, _b] = pair(Mtu::B256).expect("a pair");
    let waker = a.waker();
    thread::spawn(move || waker.wake());
    assert_eq!(a.wait(Duration::MAX), Wake::Called);
}

#[test]
fn all_that_arrives_can_be_seen() {
    let [mut a, mut b] = pair(Mtu::B256).expect("a pair");
    send(&mut a, &path(), &[20]);
    a.segment.each_but(a.number, |inbox| inbox.put(&[2; 20]));
    let mut seen = Vec::new();
    let packets = b.receive_all(Instant::ZERO, &mut |arrival| {
        let frame = arrival.frame.expect("memory shows frames");
        seen.push((frame.first.len(), arrival.packet.map(|packet| packet.body.len())));
    });
    let other = DropReason::NotIp { ether_type: 0x0202 };
    assert_eq!(seen, [(62, Ok(20)), (20, Err(other))]);
    assert_eq!(packets, 1);
    assert_eq!(count(&b, "not_ip"), 1);
}

/// Whoever floods a port keeps nobody in it.
#[test]
fn what_is_no_packet_is_taken_for_a_while_only() {
    let [mut a, mut b] = pair(Mtu::B256).expect("a pair");
    for _ in 0..=IN_VAIN * BATCH {
        a.segment.each_but(a.number, |inbox| inbox.put(&[2; 20]));
    }
    send(&mut a, &path(), &[20]);
    assert_eq!(b.receive(Instant::ZERO, &mut |_| ()), 0);
    assert_eq!(count(&b, "not_ip"), (IN_VAIN * BATCH) as u64);
    assert_eq!(b.wait(Duration::MAX), Wake::Arrived, "there is more");
    assert_eq!(receive(&mut b), [20]);
}

/// Who leaves makes room for another, and is not sent to any more.
#[test]
fn ports_come_and_go() {
    let segment = Segment::new(Mtu::B256);
    let mut first = segment.join().expect("a port");
    let second = segment.join().expect("a port");
    let mut third = segment.join().expect("a port");
    assert_eq!([first.number(), second.number(), third.number()], [0, 1, 2]);
    drop(second);
    send(&mut first, &path(), &[64]);
    let mut another = segment.join().expect("a port");
    assert_eq!(another.number(), 1);
    assert_eq!((receive(&mut third), receive(&mut another)), (vec![64], vec![]));
    send(&mut third, &path(), &[65]);
    assert_eq!((receive(&mut first), receive(&mut another)), (vec![65], vec![65]));
}
