//! A wrong setup explains itself: what is said where two programs cannot speak with each other, in
//! a sentence, by whoever can know it. Nothing of it takes longer than a wait of a few seconds: for
//! a TCP connection, for a neighbour, for the answers to a request that is sent eight times. That
//! no patience ends meanwhile shows in that all have patience for ten minutes.

mod sides;

use std::io::Write as _;
use std::net::UdpSocket;

use sides::Place;
use sides::namespace::{Cable, is_root};

/// Two hosts, and what their devices are.
fn place(devices: [&str; 2], host: &str) -> Place {
    let Cable { a, b } = Cable::new(4200);
    Place::joined(a, b, devices, host)
}

/// Who waits for the end of this patience does not end in the time of a test.
fn patient(words: &str) -> String {
    format!("{words} --patience 600")
}

const XDP: [&str; 2] = ["xdp:va", "xdp:vb"];
const UDP: [&str; 2] = ["udp:192.0.2.1", "udp:192.0.2.2"];

#[test]
fn a_peer_that_is_not_reached_is_told_apart_from_one_whose_roce_is_not() {
    if !is_root() {
        return;
    }
    let nobody = place(XDP, "192.0.2.77");
    let client = nobody.client(&patient("perf write_bw"));
    client.complains(3, "no server at 192.0.2.77:18515: No route to host");
    let far = place(XDP, "203.0.113.9");
    let client = far.client(&patient("pingpong rc"));
    client.complains(3, "no server at 203.0.113.9:18515: Network is unreachable");
    // What a firewall does: TCP passes.
    for devices in [XDP, UDP] {
        let place = place(devices, "192.0.2.1").behind(0, ",fault=drop 100%");
        for words in ["perf write_bw", "perf send_lat"] {
            let [_, client] = place.both(&patient(words));
            client.complains(1, "the peer never answered any frame");
            let hint = "Does RoCE get through? UDP port 4791 has to be open on the way";
            assert!(client.err.contains(hint), "{}", client.err);
        }
    }
}

#[test]
fn who_waits_for_what_nobody_acknowledges_hears_early_that_nothing_comes() {
    if !is_root() {
        return;
    }
    let words = "nothing has come of the peer for 4 s, and is waited for 6 s in all: does RoCE get \
                 through? UDP port 4791 has to be open on the way";
    for test in ["pingpong ud", "pingpong uc", "perf send_lat -c UD", "perf write_lat -c UC"] {
        let place = place(UDP, "192.0.2.1").behind(0, ",fault=drop 100%");
        let ended = place.both(&format!("{test} --patience 6"));
        assert!(ended.iter().any(|it| it.err.contains(words)), "{test}: {}", ended[1].err);
    }
}

#[test]
fn path_mtus_that_differ_are_told_at_both_sides() {
    if !is_root() {
        return;
    }
    for devices in [XDP, UDP] {
        let place = place(devices, "192.0.2.1");
        let [server, client] =
            place.each(["pingpong rc -m 1024", "pingpong rc -m 4096"].map(patient));
        for (ended, peers, own) in [(server, 4096, 1024), (client, 1024, 4096)] {
            let words = format!(
                "the peer's pingpong is `rc -s 4096 -n 1000 -m {peers}`, this side's \
                 `rc -s 4096 -n 1000 -m {own}`: both have to be the same"
            );
            ended.complains(1, &words);
        }
    }
}

#[test]
fn a_path_mtu_that_does_not_fit_the_port_is_told_and_ports_may_differ() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(4200);
    a.ip("link set va mtu 1500");
    let place = Place::joined(a, b, XDP, "192.0.2.1");
    place
        .server(&patient("pingpong rc -m 4096"))
        .end()
        .complains(2, "a path MTU of 4096 does not fit the port, which has 1024");
    // These tell each other what their ports have.
    for ended in place.both("perf write_bw -n 20 --verify") {
        ended.is_right("each port has its own MTU");
    }
}

#[test]
fn addresses_of_two_families_are_told() {
    if !is_root() {
        return;
    }
    let place = place(XDP, "192.0.2.1");
    let [server, client] = place.each(["perf write_bw", "perf write_bw --ipv6"].map(patient));
    server.complains(1, "our address ::ffff:192.0.2.1 is of IPv4, the peer's f");
    client
        .complains(1, "is of IPv6, the peer's ::ffff:192.0.2.1 of IPv4: choose another GID index");
}

#[test]
fn another_program_on_the_port_is_told() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(4200);
    let other = b.run(|| UdpSocket::bind("192.0.2.2:4791")).expect("the port is free");
    let place = Place::joined(a, b, UDP, "192.0.2.1");
    for words in ["perf write_bw", "pingpong rc"] {
        let client = place.client(&patient(words));
        client.complains(
            3,
            "another program has UDP port 4791 on 192.0.2.2: `ss -lunp sport = :4791`",
        );
    }
    drop(other);
}

#[test]
fn a_neighbour_that_does_not_answer_and_a_way_that_is_not_there_are_told() {
    if !is_root() {
        return;
    }
    let cases = [
        ("00000000000000000000ffffc000024d", "192.0.2.77 does not answer on interface"),
        ("00000000000000000000ffffcb007109", "203.0.113.9"),
    ];
    for (gid, why) in cases {
        let place = place(XDP, "192.0.2.1");
        let mut server = place.server(&patient("pingpong rc"));
        let mut stranger = place.stranger();
        let said = format!("0000:000012:01c8fe:{gid}\0");
        stranger.write_all(said.as_bytes()).expect("it listens");
        server.end().complains(3, why);
    }
}
