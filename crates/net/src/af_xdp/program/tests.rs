use std::panic::resume_unwind;
use std::thread;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::*;
use crate::af_xdp::find;
use crate::af_xdp::namespace::{Cable, is_root};

#[test]
fn counters_have_the_names_of_the_header() {
    let header = include_str!("../../../../../bpf/redirect_roce.h");
    let names = header.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("ROCE_")?.split_once(',')?.0;
        (name != "STATS").then(|| format!("xdp_{}", name.to_lowercase()))
    });
    assert_eq!(names.collect::<Vec<_>>(), STATS);
}

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const VLAN: [u8; 4] = [0x81, 0x00, 0x20, 0x05];
const VLAN_OUTER: [u8; 4] = [0x88, 0xa8, 0x20, 0x06];
const BTH: [u8; 16] = [0; 16];

fn ethernet(parts: &[&[u8]]) -> Vec<u8> {
    [&[2; 12], parts.concat().as_slice()].concat()
}

fn ipv4(ihl: u8, protocol: u8, fragment: u16) -> Vec<u8> {
    let mut header = vec![0; usize::from(ihl) * 4];
    header[0] = 0x40 | ihl;
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    header[9] = protocol;
    header
}

fn ipv6(next_header: u8) -> Vec<u8> {
    let mut header = vec![0; 40];
    header[0] = 0x60;
    header[6] = next_header;
    header
}

fn udp(port: u16) -> Vec<u8> {
    let mut header = vec![0; 8];
    header[2..4].copy_from_slice(&port.to_be_bytes());
    header
}

/// Each kind of frame, and what it counts as while no socket is there.
fn frames() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let roce = udp(4791);
    let v4 = ipv4(5, 17, 0x4000);
    let v6 = ipv6(17);
    let row = |what, frame, counter| (what, frame, counter);
    vec![
        row("IPv4", ethernet(&[&IPV4, &v4, &roce, &BTH]), "xdp_no_socket"),
        row("IPv6", ethernet(&[&IPV6, &v6, &roce, &BTH]), "xdp_no_socket"),
        row("a tag", ethernet(&[&VLAN, &IPV4, &v4, &roce, &BTH]), "xdp_no_socket"),
        row("two", ethernet(&[&VLAN_OUTER, &VLAN, &IPV6, &v6, &roce, &BTH]), "xdp_no_socket"),
        row("three", ethernet(&[&VLAN, &VLAN, &VLAN, &IPV4, &v4, &roce, &BTH]), "xdp_vlan_tags"),
        row("ARP", ethernet(&[&[0x08, 0x06], &[0; 28]]), "xdp_passed"),
        row("port", ethernet(&[&IPV4, &v4, &udp(4790), &BTH]), "xdp_passed"),
        row("TCP", ethernet(&[&IPV4, &ipv4(5, 6, 0), &roce, &BTH]), "xdp_passed"),
        row("ICMPv6", ethernet(&[&IPV6, &ipv6(58), &roce, &BTH]), "xdp_passed"),
        row("version", ethernet(&[&IPV4, &v6, &roce, &BTH]), "xdp_passed"),
        row("options", ethernet(&[&IPV4, &ipv4(6, 17, 0), &roce, &BTH]), "xdp_options"),
        row("first", ethernet(&[&IPV4, &ipv4(5, 17, 0x2000), &roce, &BTH]), "xdp_fragment"),
        row("last", ethernet(&[&IPV4, &ipv4(5, 17, 0x00b9), &roce, &BTH]), "xdp_fragment"),
        row("fragment", ethernet(&[&IPV6, &ipv6(44), &roce, &BTH]), "xdp_fragment"),
        row("hop by hop", ethernet(&[&IPV6, &ipv6(0), &roce, &BTH]), "xdp_extension"),
        row("routing", ethernet(&[&IPV6, &ipv6(43), &roce, &BTH]), "xdp_extension"),
        row("cut in IPv4", ethernet(&[&IPV4, &v4[..19]]), "xdp_short"),
        row("cut in IPv6", ethernet(&[&IPV6, &v6[..39]]), "xdp_short"),
        row("cut in UDP", ethernet(&[&IPV4, &v4, &roce[..7]]), "xdp_short"),
        row("cut in BTH", ethernet(&[&IPV4, &v4, &roce, &BTH[..11]]), "xdp_short"),
        row("least", ethernet(&[&IPV4, &v4, &roce, &BTH[..12]]), "xdp_no_socket"),
    ]
}

/// As the verifier lets a process have it that has no more rights than the program takes.
#[test]
fn every_verdict() {
    if !is_root() {
        return;
    }
    // Capabilities are those of a thread, and this one ends.
    let limited = thread::spawn(|| {
        let mut sets = capabilities(None).expect("they can be read");
        sets.effective &= CapabilitySet::BPF | CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets).expect("they can be given up");
        verdicts();
    });
    limited.join().unwrap_or_else(|panic| resume_unwind(panic));
}

fn verdicts() {
    for takes_frags in [true, false] {
        let (mut storage, mut unused) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let loaded = if takes_frags {
            Loaded::load(&mut storage, &mut unused).expect("the verifier takes it")
        } else {
            linear(&mut storage)
        };
        let totals = || {
            let map = MapHandle::try_from(&loaded.skeleton.maps.stats).expect("it is there");
            totals(&map)
        };
        for (what, frame, counter) in frames() {
            let before = totals();
            let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
            let verdict = loaded.program().test_run(input).expect("it runs").return_value;
            assert_eq!(verdict, XDP_PASS, "{what}");
            for ((name, before), after) in STATS.into_iter().zip(before).zip(totals()) {
                assert_eq!(after - before, u64::from(name == counter), "{what}: {name}");
            }
        }
    }
}

/// ARP from `sender` about `target`.
fn arp(sender: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, 1];
    ethernet(&[&[0x08, 0x06], &fixed, &[2; 6], &sender, &[0; 6], &target])
}

fn ipv4_to(mut header: Vec<u8>, destination: [u8; 4]) -> Vec<u8> {
    header[16..20].copy_from_slice(&destination);
    header
}

/// An ICMPv6 message to `destination` about `target`, all `::` or `ff00::` but for the last byte.
fn icmpv6(destination: (u8, u8), kind: u8, target: u8) -> Vec<u8> {
    let mut header = ipv6(58);
    (header[24], header[39]) = destination;
    let mut message = [0; 24];
    (message[0], message[23]) = (kind, target);
    [header.as_slice(), &message].concat()
}

/// While no socket is there, what is for it counts as that.
#[test]
fn what_is_for_an_owned_address() {
    if !is_root() {
        return;
    }
    const OWN: [u8; 4] = [10, 0, 0, 5];
    const PEER: [u8; 4] = [10, 0, 0, 9];
    const OTHER: [u8; 4] = [10, 0, 0, 1];
    let icmp =
        |header: Vec<u8>| ethernet(&[&IPV4, &ipv4_to(header, OWN), &[8, 0, 0, 0, 0, 0, 0, 0]]);
    let v6 = |packet: Vec<u8>| ethernet(&[&IPV6, &packet]);
    let (ours, theirs) = ("xdp_no_socket", "xdp_passed");
    let mut foreign_arp = arp(PEER, OWN);
    foreign_arp[19] = 16;
    let tagged = |tags: &[u8], frame: Vec<u8>| ethernet(&[tags, &frame[12..]]);
    let two = [VLAN_OUTER, VLAN].concat();
    let on_vlan = [10, 0, 5, 5];
    let rows = [
        ("asks for it", arp(PEER, OWN), ours),
        ("says that it is his", arp(OWN, PEER), ours),
        ("asks for another", arp(PEER, OTHER), theirs),
        ("announces himself", arp(PEER, PEER), "xdp_announced"),
        ("other lengths", foreign_arp, theirs),
        ("tagged", tagged(&VLAN, arp(PEER, OWN)), theirs),
        ("with a priority", tagged(&[0x81, 0, 0x20, 0], arp(PEER, OWN)), ours),
        ("on its VLAN", tagged(&VLAN, arp(PEER, on_vlan)), ours),
        ("on another VLAN", tagged(&VLAN_OUTER, arp(PEER, on_vlan)), theirs),
        ("on two VLANs", tagged(&two, arp(PEER, on_vlan)), theirs),
        ("on none", arp(PEER, on_vlan), theirs),
        ("solicitation on its VLAN", tagged(&VLAN, v6(icmpv6((0xff, 0), 135, 9))), ours),
        ("solicitation on none", v6(icmpv6((0xff, 0), 135, 9)), theirs),
        ("cut", arp(PEER, OWN)[..41].to_vec(), "xdp_short"),
        ("echo", icmp(ipv4(5, 1, 0)), ours),
        ("echo in fragments", icmp(ipv4(5, 1, 0x2000)), theirs),
        ("echo with options", icmp(ipv4(6, 1, 0)), theirs),
        ("TCP", icmp(ipv4(5, 6, 0)), theirs),
        ("echo to another", ethernet(&[&IPV4, &ipv4_to(ipv4(5, 1, 0), OTHER), &[8; 8]]), theirs),
        ("ICMPv6 to it", v6(icmpv6((0, 7), 128, 0)), ours),
        ("ICMPv6 to another", v6(icmpv6((0, 8), 128, 7)), theirs),
        ("solicitation", v6(icmpv6((0xff, 0), 135, 7)), ours),
        ("solicitation of another", v6(icmpv6((0xff, 0), 135, 8)), theirs),
        ("advertisement of it", v6(icmpv6((0xff, 1), 136, 7)), ours),
        ("another announces itself", v6(icmpv6((0xff, 1), 136, 8)), "xdp_announced"),
        ("advertisement to another", v6(icmpv6((0, 8), 136, 8)), theirs),
        ("cut in the target", v6(icmpv6((0xff, 0), 135, 7)[..63].to_vec()), theirs),
    ];
    for takes_frags in [true, false] {
        let (mut storage, mut unused) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let loaded = if takes_frags {
            Loaded::load(&mut storage, &mut unused).expect("the verifier takes it")
        } else {
            linear(&mut storage)
        };
        let owned = &loaded.skeleton.maps.owned;
        let all = [("10.0.0.5", None), ("::7", None), ("10.0.5.5", Some(5)), ("::9", Some(5))];
        for (address, vlan) in all {
            let key = owned_key(address.parse().expect("an address"), vlan);
            owned.update(&key, &[1], MapFlags::ANY).expect("there is room");
        }
        let stats = MapHandle::try_from(&loaded.skeleton.maps.stats).expect("it is there");
        for (what, frame, counter) in &rows {
            let before = totals(&stats);
            let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
            let verdict = loaded.program().test_run(input).expect("it runs").return_value;
            assert_eq!(verdict, XDP_PASS, "{what}");
            for ((name, before), after) in STATS.into_iter().zip(before).zip(totals(&stats)) {
                assert_eq!(after - before, u64::from(name == *counter), "{what}: {name}");
            }
        }
    }
}

/// As on a kernel that knows no other.
fn linear(storage: &mut Storage) -> Loaded<'_> {
    let mut open = RedirectRoceSkelBuilder::default().open(storage).expect("it opens");
    open.progs.redirect_frags.set_autoload(false);
    let skeleton = open.load().expect("the verifier takes it");
    Loaded { skeleton, takes_frags: false }
}

#[test]
fn a_linear_program_takes_no_large_mtu() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    cable.a.run(|| {
        let interface = find("va").expect("there is va");
        let mut storage = MaybeUninit::uninit();
        let linear = linear(&mut storage);
        let refused = linear.attach(&interface, Mode::Native).err().expect("4200 is too large");
        assert!(matches!(refused, OpenError::MtuTooLarge { mtu: 4200, .. }), "{refused}");
        // Left the choice, the port says what it took instead, and why.
        let (_attached, attachment) = linear.attach(&interface, Mode::Auto).expect("it can");
        assert!(!attachment.native);
        let refusal = attachment.refusal.expect("native mode was tried");
        assert_eq!(Errno::from_io_error(&refusal), Some(Errno::RANGE));
    });
}

/// A redirect that does not happen is silent otherwise.
#[test]
fn a_program_that_leads_to_no_socket_fails_the_self_test() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    cable.a.run(|| {
        let interface = find("va").expect("it is there");
        let (mut storage, mut linear) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let loaded = Loaded::load(&mut storage, &mut linear).expect("it can be loaded");
        let (mut attached, _) = loaded.attach(&interface, Mode::Auto).expect("it is attached");
        let error = loaded.test(&mut attached, &interface).expect_err("there is no socket");
        assert!(matches!(error, OpenError::SelfTest { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("va") && message.contains("action 2 on UDP port 4791"),
            "{message}"
        );
    });
}
