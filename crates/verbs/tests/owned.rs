//! Adapters with addresses of their own, that the kernel of their host does not have.
//!
//! Needs root, iproute2, sysctl and a kernel with veth and AF_XDP; a run by anybody else prints so.

#![cfg(feature = "af_xdp")]

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use namespace::{Cable, Namespace, is_root};
use roxe_verbs::{
    AsyncEvent, Buffer, ConnectOptions, Connection, Context, DeviceString, Error, Op, Wait,
};

const WAIT: Wait = Wait(Duration::from_secs(10));

fn open(namespace: &Namespace, device: &str) -> Result<Context, Error> {
    let device: DeviceString = device.parse().unwrap();
    namespace.run(|| Context::open_device("roxe0", &device))
}

/// An adapter on `va` that owns two addresses.
fn owner(cable: &Cable) -> Context {
    open(&cable.a, "xdp:va,own=192.0.2.5/24,own=fd00::5/64").unwrap_or_else(|why| panic!("{why}"))
}

fn count(context: &Context, name: &str) -> u64 {
    let counters = context.counters();
    counters.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

fn gid(context: &Context, address: &str) -> u32 {
    let address: IpAddr = address.parse().unwrap();
    let mut gids = context.gids().into_iter();
    gids.find(|(_, entry)| entry.gid.to_ip() == address).expect("the adapter has it").0
}

/// A connection between these addresses.
fn connect(
    cable: &Cable,
    (a, at_a): (&Context, &str),
    (b, at_b): (&Context, &str),
) -> [Connection; 2] {
    let options = |context, address| ConnectOptions {
        source_gid: gid(context, address),
        ..ConnectOptions::default()
    };
    let (here, there) = (Connection::new(a).unwrap(), Connection::new(b).unwrap());
    let (from, to) = (options(a, at_a), options(b, at_b));
    let of_b = there.queue_pair().endpoint_at(to.source_gid).unwrap();
    let of_a = here.queue_pair().endpoint_at(from.source_gid).unwrap();
    cable.a.run(|| here.queue_pair().connect(&of_b, &from)).unwrap();
    cable.b.run(|| there.queue_pair().connect(&of_a, &to)).unwrap();
    [here, there]
}

/// A message, and its answer.
fn exchange([here, there]: &mut [Connection; 2], contexts: [&Context; 2]) {
    let [a, b] = contexts.map(|context| context.register(&Buffer::new(100_000)).unwrap());
    for forth in [true, false] {
        let (from, to, source, target) = if forth {
            (&mut *here, &mut *there, &a, &b)
        } else {
            (&mut *there, &mut *here, &b, &a)
        };
        to.post_receive(1, target, 0, 100_000).unwrap();
        from.post(2, Op::Send, source, 0, 100_000).unwrap();
        from.wait(WAIT).unwrap();
        assert_eq!(to.wait(WAIT).unwrap().byte_len, 100_000);
    }
}

/// Waits until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

/// Waits until the kernel in a namespace speaks IPv6 on this interface.
fn await_ipv6(namespace: &Namespace, interface: &str) {
    let groups = format!("multicast ff00::/8 dev {interface}");
    until("IPv6", || namespace.ip("-6 route show table local").contains(&groups));
}

/// Sends an echo request from the kernel of a namespace, as `ping -c1` does. Says what came back.
fn ping(namespace: &Namespace, address: &str, payload: &[u8]) -> Vec<u8> {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
    let address: IpAddr = address.parse().unwrap();
    let (family, protocol, kind) = match address {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128),
    };
    let mut request = [&[kind, 0, 0, 0, 0x12, 0x34, 0, 1], payload].concat();
    if address.is_ipv4() {
        let word = |it: &[u8]| u32::from(it[0]) << 8 | u32::from(*it.get(1).unwrap_or(&0));
        let sum: u32 = request.chunks(2).map(word).sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        request[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    namespace.run(|| {
        let socket = rustix::net::socket(family, SocketType::RAW, Some(protocol)).unwrap();
        let timeout = sockopt::Timeout::Recv;
        sockopt::set_socket_timeout(&socket, timeout, Some(WAIT.0)).unwrap();
        let to = std::net::SocketAddr::new(address, 0);
        rustix::net::sendto(&socket, &request, SendFlags::empty(), &to).unwrap();
        loop {
            let mut bytes = vec![0; 5000];
            let (len, _) = rustix::net::recv(&socket, &mut bytes, RecvFlags::empty())
                .unwrap_or_else(|_| panic!("{address} does not answer"));
            // IPv4 comes with its header.
            let from = if address.is_ipv4() { 20 } else { 0 };
            let reply = bytes[from..len].to_vec();
            // Neighbour discovery and the request of one's own come too.
            if matches!(reply[0], 0 | 129) && reply[4..6] == [0x12, 0x34] {
                return reply[8..].to_vec();
            }
        }
    })
}

const PAIRS: [(&str, &str); 2] = [("192.0.2.5", "192.0.2.2"), ("fd00::5", "fd00::2")];

#[test]
fn an_owned_address_and_one_of_a_kernel_are_connected_in_both_families() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let (one, other) = (owner(&cable), open(&cable.b, "xdp:vb").unwrap());
    assert!(one.summary().ends_with(", owns 192.0.2.5 and fd00::5"), "{}", one.summary());
    let addresses: Vec<_> = one.addresses().map(|address| address.to_string()).collect();
    assert_eq!(addresses, ["192.0.2.5", "fd00::5"], "its own, and no other");
    for (here, there) in PAIRS {
        let mut pair = connect(&cable, (&one, here), (&other, there));
        exchange(&mut pair, [&one, &other]);
    }
    assert_eq!(count(&one, "icrc_bad") + count(&one, "local_ack_timeout_err"), 0);
    assert!(count(&one, "owned_rx") > 0 && count(&one, "owned_tx") > 0);
    assert_eq!(count(&one, "owned_malformed") + count(&one, "owned_conflicts"), 0);
}

#[test]
fn two_owned_addresses_are_connected() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let one = owner(&cable);
    let other = open(&cable.b, "xdp:vb,own=192.0.2.6/24+fd00::6/64").unwrap();
    for (here, there) in [("192.0.2.5", "192.0.2.6"), ("fd00::5", "fd00::6")] {
        let mut pair = connect(&cable, (&one, here), (&other, there));
        exchange(&mut pair, [&one, &other]);
    }
}

/// Neighbours are found, and data goes, in frames with a tag; who is on another VLAN, or on none,
/// is not there.
#[test]
fn owned_addresses_on_a_vlan_are_connected_and_reach_no_other() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let file = std::env::temp_dir().join(format!("roxe-vlan-{}.pcapng", std::process::id()));
    let device =
        format!("xdp:va,own=192.0.2.5/24,own=fd00::5/64,vlan=10,capture={}", file.display());
    let one = open(&cable.a, &device).unwrap_or_else(|why| panic!("{why}"));
    assert!(one.summary().contains(", owns 192.0.2.5 and fd00::5 on VLAN 10"), "{}", one.summary());
    assert!(one.gids().iter().all(|(_, entry)| entry.vlan == Some(10)));
    let other = open(&cable.b, "xdp:vb,own=192.0.2.6/24+fd00::6/64,vlan=10").unwrap();
    for (here, there) in [("192.0.2.5", "192.0.2.6"), ("fd00::5", "fd00::6")] {
        let mut pair = connect(&cable, (&one, here), (&other, there));
        exchange(&mut pair, [&one, &other]);
    }
    assert_eq!(count(&one, "local_ack_timeout_err") + count(&one, "owned_malformed"), 0);
    let recorded = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let begins = |tag: &[u8]| {
        let frame = [&[2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a][..], tag].concat();
        recorded.windows(frame.len()).filter(|bytes| *bytes == frame).count()
    };
    assert!(begins(&[0x81, 0, 0, 10]) > 100 && begins(&[0x08, 0]) + begins(&[0x86, 0xdd]) == 0);

    drop(other);
    // The kernel there has 192.0.2.2, without a tag.
    for (device, address) in [
        ("xdp:vb", "192.0.2.2"),
        ("xdp:vb,own=192.0.2.7/24", "192.0.2.7"),
        ("xdp:vb,own=192.0.2.8/24,vlan=11", "192.0.2.8"),
    ] {
        let other = open(&cable.b, device).unwrap();
        let endpoint =
            Connection::new(&other).unwrap().queue_pair().endpoint_at(gid(&other, address));
        let connection = Connection::new(&one).unwrap();
        let refused =
            connection.queue_pair().connect(&endpoint.unwrap(), &ConnectOptions::default());
        let silent = refused.unwrap_err().to_string();
        let expected = format!("{address} does not answer on the network");
        assert!(silent.starts_with(&expected), "{device}: {silent}");
    }
}

/// Which also shows that the kernel finds the MAC.
#[test]
fn a_kernel_pings_an_owned_address_and_its_own_traffic_goes_on() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    await_ipv6(&cable.b, "vb");
    let one = owner(&cable);
    let long: Vec<u8> = (0..1400).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for address in ["192.0.2.5", "fd00::5"] {
        for payload in [&[][..], b"x", &long] {
            assert!(ping(&cable.b, address, payload) == payload);
        }
        let neighbor = cable.b.ip(&format!("neigh show {address}"));
        assert!(neighbor.contains("lladdr 02:00:00:00:00:0a"), "{neighbor}");
    }
    assert!(count(&one, "xdp_owned") >= 6);
    // What is the kernel's stays the kernel's.
    for address in ["192.0.2.1", "fd00::1"] {
        assert_eq!(ping(&cable.b, address, b"x"), b"x");
    }
    for address in ["192.0.2.2", "fd00::2"] {
        assert_eq!(ping(&cable.a, address, b"x"), b"x");
    }
    assert_eq!(count(&one, "owned_malformed"), 0);
}

#[test]
fn a_destination_that_is_not_there_or_out_of_reach_is_said() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let one = owner(&cable);
    let mut endpoint = Connection::new(&one).unwrap().endpoint().unwrap();
    let mut why = |address: &str| {
        endpoint.address = address.parse().unwrap();
        let connection = Connection::new(&one).unwrap();
        connection.queue_pair().connect(&endpoint, &ConnectOptions::default()).unwrap_err()
    };
    let silent = why("192.0.2.77").to_string();
    assert!(silent.starts_with("192.0.2.77 does not answer on the network"), "{silent}");
    assert!(matches!(why("203.0.113.9"), Error::NoRoute(_)));
}

/// A router is asked for in place of what is behind it.
#[test]
fn what_is_beyond_the_network_goes_by_the_router() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    cable.b.ip("address add 203.0.113.9/32 dev vb");
    let device = "xdp:va,own=192.0.2.5/24,gw=192.0.2.2";
    let (one, other) = (open(&cable.a, device).unwrap(), open(&cable.b, "xdp:vb").unwrap());
    let mut pair = connect(&cable, (&one, "192.0.2.5"), (&other, "203.0.113.9"));
    exchange(&mut pair, [&one, &other]);
}

/// Who gets another MAC says so to everybody; frames go there from then on.
#[test]
fn a_peer_whose_mac_changes_is_followed() {
    if !is_root() {
        return;
    }
    let owned = "xdp:va,own=192.0.2.5/24,own=fd00::5/64";
    for (number, (device, here, there)) in [
        (owned, "192.0.2.5", "192.0.2.2"),
        (owned, "fd00::5", "fd00::2"),
        ("xdp:va", "192.0.2.1", "192.0.2.2"),
        ("xdp:va", "fd00::1", "fd00::2"),
    ]
    .into_iter()
    .enumerate()
    {
        let cable = Cable::new(1500);
        await_ipv6(&cable.a, "va");
        await_ipv6(&cable.b, "vb");
        announces(&cable.b);
        let file =
            std::env::temp_dir().join(format!("roxe-owned-{}-{number}.pcapng", std::process::id()));
        let peer = format!("xdp:vb,capture={}", file.display());
        let (one, other) = (open(&cable.a, device).unwrap(), open(&cable.b, &peer).unwrap());
        let mut pair = connect(&cable, (&one, here), (&other, there));
        exchange(&mut pair, [&one, &other]);
        cable.b.ip("link set vb address 02:00:00:00:00:0c");
        // The engine looks every second; what it sends before goes to the old MAC.
        until("frames go to the new MAC", || {
            exchange(&mut pair, [&one, &other]);
            let recorded = std::fs::read(&file).unwrap();
            let ethernet = [2, 0, 0, 0, 0, 0x0c, 2, 0, 0, 0, 0, 0x0a];
            recorded.windows(12).any(|bytes| bytes == ethernet)
        });
        if device == owned {
            assert_eq!(count(&one, "owned_moved"), 1);
        }
        drop(pair);
        std::fs::remove_file(file).unwrap();
    }
}

/// From now on the kernel says unasked when a MAC changes.
fn announces(namespace: &Namespace) {
    namespace.command("sysctl", "-qw net.ipv4.conf.vb.arp_notify=1");
    namespace.command("sysctl", "-qw net.ipv6.conf.vb.ndisc_notify=1");
}

/// Echo requests of two chunks are answered in two.
#[test]
fn a_large_echo_request_is_answered_whole() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(4200);
    await_ipv6(&cable.b, "vb");
    let _one = owner(&cable);
    let payload: Vec<u8> = (0..4100).map(|at| u8::try_from(at % 251).unwrap()).collect();
    for address in ["192.0.2.5", "fd00::5"] {
        assert!(ping(&cable.b, address, &payload) == payload);
    }
}

/// Whoever is there when a link comes up has not heard of the addresses.
#[test]
fn addresses_are_announced_again_when_the_link_comes_up() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    // A kernel that is told to believes what it did not ask for.
    cable.b.command("sysctl", "-qw net.ipv4.conf.vb.arp_accept=1");
    cable.b.ip("link set vb down");
    let _one = owner(&cable);
    assert!(!cable.b.ip("neigh show").contains("192.0.2.5"));
    cable.b.ip("link set vb up");
    until("announced", || cable.b.ip("neigh show").contains("192.0.2.5"));
}

#[test]
fn an_address_that_somebody_has_is_not_taken() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    await_ipv6(&cable.b, "vb");
    for taken in ["192.0.2.2/24", "fd00::2/64"] {
        let error = open(&cable.a, &format!("xdp:va,own={taken}")).err().expect("it is taken");
        let address = taken.split_once('/').unwrap().0;
        let expected = format!("{address} is taken: 02:00:00:00:00:0b answered for it on va; ");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    let kernel = open(&cable.a, "xdp:va,own=192.0.2.1/24").err().expect("it is the kernel's");
    let expected = "192.0.2.1 is an address of va in the kernel: ";
    assert!(kernel.to_string().starts_with(expected), "{kernel}");
    let loopback = open(&cable.a, "xdp:lo,own=192.0.2.5/24").err().expect("nobody is there");
    assert!(loopback.to_string().starts_with("an adapter on lo cannot own addresses: "));
    assert!(!cable.a.ip("link show va").contains("xdp"), "nothing is left of them");
    // Nor does one who owns an address let it go.
    let _one = owner(&cable);
    for address in ["192.0.2.5/24", "fd00::5/64"] {
        let error = open(&cable.b, &format!("xdp:vb,own={address}")).err().expect("it is taken");
        let said = error.to_string();
        assert!(said.contains(" is taken: 02:00:00:00:00:0a answered for it on vb; "), "{said}");
    }
}

#[test]
fn one_who_takes_an_owned_address_later_is_told_of() {
    if !is_root() {
        return;
    }
    for (taken, address) in [("192.0.2.5/24", "192.0.2.5"), ("fd00::5/64", "fd00::5")] {
        let cable = Cable::new(1500);
        let one = owner(&cable);
        await_ipv6(&cable.b, "vb");
        announces(&cable.b);
        // Who does not ask takes it.
        let nodad = if address.contains(':') { " nodad" } else { "" };
        cable.b.ip(&format!("address add {taken} dev vb{nodad}"));
        cable.b.ip("link set vb address 02:00:00:00:00:0c");
        let conflict = AsyncEvent::AddressConflict(address.parse().unwrap());
        let events = one.async_events();
        while events.next(WAIT.0).unwrap_or_else(|| panic!("no word of {address}")) != conflict {}
        assert!(count(&one, "owned_conflicts") >= 1);
    }
}
