//! `roxe rping` from outside: a server and a client, each a process, which find each other by the
//! connection manager.

mod sides;

use std::net::SocketAddr;
use std::time::Duration;

use roxe::verbs::Context;
use roxe::verbs::cm::{CmEventKind, CmId, CmParameters, EventChannel, PortSpace};
use roxe::verbs::{Qpn, ServiceType};
use sides::namespace::{Cable, is_root};
use sides::{Ended, Place};

/// Both sides, the server first.
fn pinged(place: &Place, server: &str, client: &str) -> [Ended; 2] {
    let mut server = place.server_that_says_so(&format!("rping -s {server}"));
    let words = format!("rping -c -a {} {client}", place.address());
    // What the server prints is more than a pipe holds.
    std::thread::scope(|scope| {
        let client = scope.spawn(|| place.client_that_knows(&words));
        [server.end(), client.join().expect("it does not panic")]
    })
}

/// The pings that a side has printed.
fn pings<'a>(ended: &'a Ended, begin: &str) -> Vec<&'a str> {
    ended.out.lines().filter_map(|line| line.strip_prefix(begin)).collect()
}

fn run(place: &Place, words: &str, size: usize, count: usize) {
    let ended = pinged(place, words, &format!("{words} -V -C {count}"));
    for (which, ended) in ended.iter().enumerate() {
        ended.is_right(&format!("side {which} of {words}"));
    }
    let [server, client] = &ended;
    let came = pings(client, "ping data: ");
    assert_eq!(came, pings(server, "server ping data: "), "{words}");
    assert_eq!(came.len(), count, "{words}");
    for (number, ping) in came.iter().enumerate() {
        assert!(ping.starts_with(&format!("rdma-ping-{number}: ")), "{ping}");
        assert_eq!(ping.len(), size - 1, "{ping}");
    }
}

#[test]
fn pings_come_back() {
    let place = Place::on_one_host();
    run(&place, "-v", 64, 10);
    run(&place, "-v -q -S 27", 27, 3);
    run(&place, "-v -S 65536", 65_536, 3);
}

#[test]
fn they_go_over_af_xdp_between_two_hosts() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(1500);
    let place = Place::joined(a, b, ["xdp:va", "xdp:vb"], "192.0.2.1");
    run(&place, "-v -S 10000", 10_000, 20);
}

#[test]
fn a_persistent_server_takes_one_client_after_another() {
    let place = Place::on_one_host();
    let server = place.server_that_says_so("rping -s -P");
    for _ in 0..3 {
        let words = format!("rping -c -a {} -V -C 2", place.address());
        place.client_that_knows(&words).is_right("a client");
    }
    server.kill();
}

/// A request may come from nobody who wants a connection: forged, or of a host that is gone.
#[test]
fn who_never_takes_the_connection_takes_it_from_nobody() {
    let place = Place::on_one_host();
    let mut server = place.server_that_says_so("rping -s --patience 1");
    let to: SocketAddr = format!("{}:{}", place.address(), place.port).parse().expect("one");
    let nobody = place.run(1, || {
        let device = place.device(1).parse().expect("a device string");
        let context = Context::open_device("nobody", &device).expect("a socket");
        let channel = EventChannel::new().expect("a descriptor");
        let id = CmId::new(&context, &channel, PortSpace::Tcp);
        let next = || channel.next(Duration::from_secs(20)).expect("it comes").kind;
        id.resolve_address(None, to, Duration::from_secs(20)).expect("it is there");
        assert_eq!(next(), CmEventKind::AddressResolved);
        id.connect(&CmParameters::new(Qpn::new(77), ServiceType::Rc)).expect("it may ask");
        assert!(matches!(next(), CmEventKind::ConnectResponse(_)));
        // It never says that it is ready.
        (context, channel, id)
    });
    let (network, last) = place.device(1).rsplit_once('.').expect("an address");
    let last: u8 = last.parse().expect("a number");
    let words = format!("rping -c -a {} -V -C 2", place.address());
    let client = place.beside_the_server(&words, &format!("{network}.{}", last | 1));
    client.is_right("a client");
    let server = server.end();
    assert_eq!(server.code, Some(0), "{}", server.err);
    assert!(server.err.contains("did not take it"), "{}", server.err);
    drop(nobody);
}

#[test]
fn what_is_wrong_is_told() {
    let mut place = Place::on_one_host();
    let [server, client] = pinged(&place, "-S 64", "-S 100 -C 1");
    server.complains(1, "the client's pings have 100 bytes, here is room for 64");
    client.complains(1, "the server has ended the connection");
    let server = place.server_that_says_so("rping -s");
    // Another port: the adapter is there, and refuses.
    place.port += 1;
    let words = format!("rping -c -a {} -C 1", place.address());
    place.client_that_knows(&words).complains(3, "the peer refused: ");
    server.kill();
    // Nobody has this address.
    let nobody = place.client_that_knows("rping -c -a 127.9.9.9 -C 1 --patience 1");
    nobody.complains(3, "no server answers at 127.9.9.9:");
}
