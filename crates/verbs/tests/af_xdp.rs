//! The main job: two adapters in two network namespaces exchange RoCEv2 through XDP sockets.
//!
//! Needs root, iproute2 and a kernel with veth and AF_XDP; a run by anybody else prints so.

#![cfg(feature = "af_xdp")]

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::time::Duration;

use namespace::{Cable, Namespace, is_root};
use roxe_verbs::af_xdp::Settings;
use roxe_verbs::{
    AsyncEvent, Buffer, CompletionStatus, ConnectOptions, Connection, Context, Endpoint, Error,
    Mtu, Op, PortState, QpState, Wait,
};

const WAIT: Wait = Wait(Duration::from_secs(10));

fn open(namespace: &Namespace, interface: &str) -> Context {
    namespace
        .run(|| Context::open_xdp(interface, Settings::default()))
        .unwrap_or_else(|error| panic!("{interface}: {error}"))
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap()).collect()
}

/// Whoever answers requests need not poll: its engine's thread does the work.
#[test]
fn two_hosts_exchange_every_operation_over_xdp() {
    if !is_root() {
        return;
    }
    for (interface_mtu, path_mtu) in [(1500, Mtu::B1024), (4200, Mtu::B4096)] {
        let cable = Cable::new(interface_mtu);
        let (one, other) = (open(&cable.a, "va"), open(&cable.b, "vb"));
        assert_eq!(one.path_mtu(), path_mtu);

        let mut sender = Connection::new(&one).unwrap();
        let mut receiver = Connection::new(&other).unwrap();
        cable.a.run(|| sender.connect(&receiver.endpoint().unwrap())).unwrap();
        cable.b.run(|| receiver.connect(&sender.endpoint().unwrap())).unwrap();

        let len = 1_000_003;
        let (from, to) = (Buffer::new(2 * len), Buffer::new(2 * len));
        let data = pattern(len, 3);
        from.write(0, &data);
        let (source, target) = (one.register(&from).unwrap(), other.register(&to).unwrap());
        let (va, r_key) = (target.address(), target.r_key());
        let size = u32::try_from(len).unwrap();
        let mut bytes = vec![0; len];

        receiver.post_receive(1, &target, 0, size).unwrap();
        sender.post(7, Op::SendWithImm(0xabcd), &source, 0, size).unwrap();
        assert_eq!(sender.wait(WAIT).unwrap().wr_id, 7);
        let received = receiver.wait(WAIT).unwrap();
        assert_eq!((received.wr_id, received.byte_len), (1, size));
        to.read(0, &mut bytes);
        assert!(bytes == data, "SEND at path MTU {path_mtu}");

        let data = pattern(len, 5);
        from.write(0, &data);
        sender.post(8, Op::Write { va, r_key }, &source, 0, size).unwrap();
        assert_eq!(sender.wait(WAIT).unwrap().wr_id, 8);
        to.read(0, &mut bytes);
        assert!(bytes == data, "WRITE at path MTU {path_mtu}");

        let data = pattern(len, 9);
        to.write(0, &data);
        sender.post(9, Op::Read { va, r_key }, &source, len as u64, size).unwrap();
        assert_eq!(sender.wait(WAIT).unwrap().wr_id, 9);
        from.read(len, &mut bytes);
        assert!(bytes == data, "READ at path MTU {path_mtu}");

        let counter = va + 1_200_000;
        for turn in 0..10u64 {
            let add = Op::FetchAdd { va: counter, r_key, add: 3 };
            sender.post(100 + turn, add, &source, 0, 8).unwrap();
            sender.wait(WAIT).unwrap();
            let mut before = [0; 8];
            from.read(0, &mut before);
            assert_eq!(u64::from_ne_bytes(before), 3 * turn);
        }
        let swap = Op::CompareSwap { va: counter, r_key, compare: 30, swap: 99 };
        sender.post(200, swap, &source, 0, 8).unwrap();
        sender.wait(WAIT).unwrap();
        let mut now = [0; 8];
        to.read(1_200_000, &mut now);
        assert_eq!(u64::from_ne_bytes(now), 99);

        for context in [&one, &other] {
            let counters = context.counters();
            let of = |name| counters.iter().find(|(known, _)| *known == name).unwrap().1;
            assert_eq!(of("icrc_bad"), 0);
            assert_eq!(of("local_ack_timeout_err"), 0);
        }
    }
}

/// One who looks for a neighbour that is not there keeps nobody waiting who looks for another.
#[test]
fn a_neighbour_that_is_silent_is_in_nobodys_way() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let (one, other) = (open(&cable.a, "va"), open(&cable.b, "vb"));
    let there = Connection::new(&other).unwrap().endpoint().unwrap();
    let nobody = Endpoint { address: [192, 0, 2, 77].into(), ..there };
    let mut to_nobody = Connection::new(&one).unwrap();
    let mut to_other = Connection::new(&one).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| cable.a.run(|| to_nobody.connect(&nobody)));
        // The kernel tells by an entry without a MAC that it is asked for.
        while !cable.a.ip("neighbour show dev va").contains("192.0.2.77") {
            assert!(!waits.is_finished());
        }
        cable.a.run(|| to_other.connect(&there)).unwrap();
        assert!(!waits.is_finished(), "it is asked for seconds");
        let error = waits.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("192.0.2.77 does not answer"), "{error}");
    });
}

/// No wire brings a frame back to who sent it.
#[test]
fn two_queue_pairs_of_one_adapter_reach_each_other() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let owned = "xdp:va,own=192.0.2.5/24,own=fd00::5/64".parse().unwrap();
    for own in [false, true] {
        let one = if own {
            cable.a.run(|| Context::open_device("va", &owned)).unwrap()
        } else {
            open(&cable.a, "va")
        };
        for (gid, _) in one.gids() {
            to_itself(&one, gid);
        }
        let counters = one.counters();
        let of = |name| counters.iter().find(|(known, _)| *known == name).unwrap().1;
        assert!(of("loopback_packets") > 2000);
        assert_eq!(of("tx_packets"), 0, "none is on the wire");
        assert_eq!((of("icrc_bad"), of("local_ack_timeout_err")), (0, 0));
    }
}

#[test]
fn queue_pairs_of_one_adapter_in_memory_or_on_a_socket_reach_each_other() {
    for device in ["memory:own", "udp:127.0.0.77"] {
        let one = Context::open_device("one", &device.parse().unwrap()).unwrap();
        to_itself(&one, 0);
    }
}

/// Every operation from one queue pair to another of the same adapter, to this GID.
fn to_itself(one: &Context, gid: u32) {
    let [mut here, mut there] = [(); 2].map(|()| Connection::new(one).unwrap());
    let options = ConnectOptions { source_gid: gid, ..ConnectOptions::default() };
    let [of_here, of_there] = [&here, &there].map(|it| it.queue_pair().endpoint_at(gid).unwrap());
    here.queue_pair().connect(&of_there, &options).unwrap();
    there.queue_pair().connect(&of_here, &options).unwrap();
    let len = 1_000_003;
    let size = u32::try_from(len).unwrap();
    let (from, to) = (Buffer::new(len), Buffer::new(len));
    let (source, target) = (one.register(&from).unwrap(), one.register(&to).unwrap());
    let (va, r_key) = (target.address(), target.r_key());
    let mut bytes = vec![0; len];
    from.write(0, &pattern(len, 3));
    there.post_receive(1, &target, 0, size).unwrap();
    here.post(2, Op::Send, &source, 0, size).unwrap();
    here.wait(WAIT).unwrap();
    assert_eq!(there.wait(WAIT).unwrap().byte_len, size);
    to.read(0, &mut bytes);
    assert!(bytes == pattern(len, 3), "SEND");
    from.write(0, &pattern(len, 5));
    here.post(3, Op::Write { va, r_key }, &source, 0, size).unwrap();
    here.wait(WAIT).unwrap();
    to.read(0, &mut bytes);
    assert!(bytes == pattern(len, 5), "WRITE");
    to.write(0, &pattern(len, 9));
    here.post(4, Op::Read { va, r_key }, &source, 0, size).unwrap();
    here.wait(WAIT).unwrap();
    from.read(0, &mut bytes);
    assert!(bytes == pattern(len, 9), "READ");
}

/// A socket is worth as much as the address that it is on.
#[test]
fn an_adapter_on_a_socket_goes_with_its_address_and_its_interface() {
    if !is_root() {
        return;
    }
    for address in ["192.0.2.1", "fd00::1"] {
        let cable = Cable::new(1500);
        let device = format!("udp:{address}").parse().unwrap();
        let one = cable.a.run(|| Context::open_device("va", &device)).unwrap();
        let receiver = Connection::new(&one).unwrap();
        assert_eq!(one.query_port().state, PortState::Active);
        assert_eq!(one.gids().len(), 1);
        let bits = if address.contains(':') { 64 } else { 24 };
        // Another one that comes and goes is nothing to it.
        cable.a.ip("address add 192.0.2.7/24 dev va");
        cable.a.ip(&format!("address del {address}/{bits} dev va"));
        expect(&one, AsyncEvent::GidChange);
        expect(&one, AsyncEvent::PortError);
        assert_eq!((one.gids().len(), one.query_port().state), (0, PortState::Down));
        let nodad = if address.contains(':') { " nodad" } else { "" };
        cable.a.ip(&format!("address add {address}/{bits} dev va{nodad}"));
        expect(&one, AsyncEvent::GidChange);
        expect(&one, AsyncEvent::PortActive);
        assert_eq!(one.addresses().next().unwrap().to_string(), address);
        assert_ne!(receiver.queue_pair().query().state, QpState::Error);

        cable.b.ip("link set vb down");
        expect(&one, AsyncEvent::PortError);
        cable.a.ip("link delete va");
        expect(&one, AsyncEvent::DeviceFatal);
        assert_eq!(one.query_port().state, PortState::Down);
        assert_eq!(receiver.queue_pair().query().state, QpState::Error);
    }
}

/// Also an address of a network that is routed to this host as a whole has an interface.
#[test]
fn an_adapter_on_an_address_that_is_only_routed_here_is_down_with_its_interface() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    cable.a.ip("link set lo up");
    cable.a.ip("route add local 198.51.100.0/24 dev lo");
    let device = "udp:198.51.100.7".parse().unwrap();
    let open = || cable.a.run(|| Context::open_device("routed", &device)).unwrap();
    let one = open();
    assert_eq!((one.query_port().state, one.interface()), (PortState::Active, Some("lo")));
    cable.a.ip("link set lo down");
    expect(&one, AsyncEvent::PortError);
    assert_eq!(one.gids().len(), 1);
    drop(one);
    assert_eq!(open().query_port().state, PortState::Down);
}

/// An interface that is taken away ends all that waits for it, with words that say so.
#[test]
fn an_interface_that_goes_ends_every_queue_pair() {
    if !is_root() {
        return;
    }
    for polls in [false, true] {
        let cable = Cable::new(1500);
        let (one, other) = (open(&cable.a, "va"), open(&cable.b, "vb"));
        let mut sender = Connection::new(&one).unwrap();
        let receiver = Connection::new(&other).unwrap();
        cable.a.run(|| sender.connect(&receiver.endpoint().unwrap())).unwrap();
        let fresh = Connection::new(&one).unwrap();
        let memory = one.register(&Buffer::new(8)).unwrap();
        sender.post_receive(3, &memory, 0, 8).unwrap();
        assert_eq!(one.query_port().state, PortState::Active);
        cable.a.ip("link delete va");
        if polls {
            // Nothing comes, so the receive is flushed.
            let error = sender.wait(WAIT).unwrap_err();
            let Error::Completion { wr_id: 3, status: CompletionStatus::Flushed, why } = &error
            else {
                panic!("{error}");
            };
            assert!(why.starts_with("the interface va is gone: "), "{why}");
        }
        assert_eq!(one.async_events().next(WAIT.0), Some(AsyncEvent::DeviceFatal));
        assert_eq!(one.query_port().state, PortState::Down);
        assert_eq!(sender.queue_pair().query().state, QpState::Error);
        assert_eq!(fresh.queue_pair().query().state, QpState::Error);
        assert!(
            sender.why().starts_with("the interface va is gone: moved to error: nothing"),
            "{}",
            sender.why()
        );
    }
}

/// Interfaces are adapters by themselves, and those that AF_XDP is possible on use it.
#[test]
fn an_interface_is_an_adapter_by_af_xdp() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let (names, summary) = cable.a.run(|| {
        let names: Vec<_> = roxe_verbs::devices().unwrap().into_iter().map(|it| it.name).collect();
        let context = roxe_verbs::open("roxe_va").unwrap();
        assert_eq!(context.addresses().next().unwrap().to_string(), "192.0.2.1");
        (names, context.summary().to_owned())
    });
    assert_eq!(names, ["roxe_va", "roxe_lo"]);
    assert!(summary.starts_with("va: native XDP"), "{summary}");
}

/// Waits for this event; others that come before it are of no interest.
fn expect(context: &Context, expected: AsyncEvent) {
    let events = context.async_events();
    while events.next(WAIT.0).unwrap_or_else(|| panic!("no {expected:?}")) != expected {}
}

/// An address that comes can be used; one that goes is gone for whoever connects after that.
#[test]
fn addresses_come_and_go() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let (one, other) = (open(&cable.a, "va"), open(&cable.b, "vb"));
    let added: std::net::IpAddr = "192.0.2.7".parse().unwrap();
    cable.a.ip("address add 192.0.2.7/24 dev va");
    while !one.addresses().any(|address| address == added) {
        expect(&one, AsyncEvent::GidChange);
    }
    let find = |(_, entry): &(u32, roxe_verbs::GidEntry)| entry.gid.to_ip() == added;
    let (index, _) = one.gids().into_iter().find(find).unwrap();
    assert_ne!(index, 0, "the first one kept its index");

    let mut sender = Connection::new(&one).unwrap();
    let mut receiver = Connection::new(&other).unwrap();
    let options = ConnectOptions { source_gid: index, ..ConnectOptions::default() };
    let peer = receiver.endpoint().unwrap();
    cable.a.run(|| sender.queue_pair().connect(&peer, &options)).unwrap();
    let endpoint = sender.queue_pair().endpoint_at(index).unwrap();
    assert_eq!(endpoint.address, added);
    cable.b.run(|| receiver.connect(&endpoint)).unwrap();
    let source = one.register(&Buffer::new(8)).unwrap();
    let target = other.register(&Buffer::new(8)).unwrap();
    receiver.post_receive(1, &target, 0, 8).unwrap();
    sender.post(2, Op::Send, &source, 0, 8).unwrap();
    sender.wait(WAIT).unwrap();
    receiver.wait(WAIT).unwrap();

    cable.a.ip("address del 192.0.2.7/24 dev va");
    while one.addresses().any(|address| address == added) {
        expect(&one, AsyncEvent::GidChange);
    }
    // Another address may have its index by now.
    assert!(sender.queue_pair().endpoint_at(index).ok().is_none_or(|it| it.address != added));
    receiver.post_receive(1, &target, 0, 8).unwrap();
    sender.post(2, Op::Send, &source, 0, 8).unwrap();
    sender.wait(WAIT).expect("a queue pair keeps its path");
    receiver.wait(WAIT).unwrap();
    assert_eq!(one.query_gid(0).unwrap().gid.to_ip().to_string(), "192.0.2.1");
}

#[test]
fn a_port_whose_cable_is_unplugged_is_down() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let one = open(&cable.a, "va");
    assert_eq!(one.query_port().state, PortState::Active);
    cable.b.ip("link set vb down");
    expect(&one, AsyncEvent::PortError);
    assert_eq!(one.query_port().state, PortState::Down);
    cable.b.ip("link set vb up");
    expect(&one, AsyncEvent::PortActive);
    assert_eq!(one.query_port().state, PortState::Active);
}

/// Beside an adapter that has the interface a socket would hear nothing: there is none instead.
#[test]
fn an_interface_that_an_adapter_has_is_no_second_ones_by_a_socket() {
    if !is_root() {
        return;
    }
    let cable = Cable::new(1500);
    let by_auto = || cable.a.run(|| roxe_verbs::open("auto:va"));
    let held = open(&cable.a, "va");
    let error = by_auto().err().expect("it is held");
    assert!(matches!(error, Error::OpenXdp(_)), "{error}");
    drop(held);
    let free = by_auto().unwrap();
    assert!(free.summary().starts_with("va: "), "{}", free.summary());
}
