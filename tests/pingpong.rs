//! `roxe pingpong` from outside: a server and a client, each a process.

mod sides;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process::Command;
use std::thread;

use sides::namespace::{Cable, is_root};
use sides::{Ended, Place};

/// What stands behind the word for a side.
fn addresses<'a>(ended: &'a Ended, side: &str) -> Vec<String> {
    let lines = ended.out.lines();
    let of = |line: &'a str| line.trim().strip_prefix(&format!("{side} address:"));
    // ibv_ud_pingpong has a colon where others have a comma.
    lines.filter_map(of).map(|line| line.trim().replace(": GID", ", GID")).collect()
}

fn run(place: &Place, words: &str, size: u64, iters: u64) {
    let ended = place.both(words);
    for (which, ended) in ended.iter().enumerate() {
        ended.is_right(&format!("side {which} of {words}"));
        let lines: Vec<&str> = ended.out.lines().collect();
        let bytes = format!("{} bytes in ", size * iters * 2);
        let rows = lines.iter().any(|line| line.starts_with(&bytes) && line.ends_with("Mbit/sec"));
        let turns = format!("{iters} iters in ");
        let each = lines.iter().any(|line| line.starts_with(&turns) && line.ends_with("usec/iter"));
        assert!(rows && each, "{words}: {}", ended.out);
    }
    let [server, client] = &ended;
    assert_eq!(addresses(server, "local"), addresses(client, "remote"), "{words}");
    assert_eq!(addresses(client, "local"), addresses(server, "remote"), "{words}");
    assert!(!addresses(client, "local").is_empty(), "{words}");
}

#[test]
fn messages_of_each_service_go_to_and_fro() {
    let place = Place::on_one_host();
    for events in ["", " -e"] {
        run(&place, &format!("pingpong rc -n 100 -c{events}"), 4096, 100);
        run(&place, &format!("pingpong uc -n 100 -c{events}"), 4096, 100);
        run(&place, &format!("pingpong ud -n 100 -c{events}"), 1024, 100);
        run(&place, &format!("pingpong srq -n 200 -c{events}"), 4096, 200);
    }
    run(&place, "pingpong rc -n 20 -s 1000003 -m 4096 -r 3 -l 5 -N -o -c", 1_000_003, 20);
    run(&place, "pingpong srq -n 100 -q 3 -r 5 -s 1 -c", 1, 100);
    run(&place, "pingpong ud -n 20 -s 4096 -g 0", 4096, 20);
}

#[test]
fn they_go_over_af_xdp_between_two_hosts() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(1500);
    let place = Place::joined(a, b, ["xdp:va", "xdp:vb"], "192.0.2.1");
    let client = place.client("pingpong rc -m 2048");
    client.complains(2, "a path MTU of 2048 does not fit the port, which has 1024");
    for (kind, size) in [("rc", 4096), ("uc", 4096), ("ud", 1024), ("srq", 4096)] {
        run(&place, &format!("pingpong {kind} -n 100 -c -e"), size, 100);
    }
}

#[test]
fn times_between_receives_and_json_are_shown() {
    let place = Place::on_one_host();
    let [_, client] = place.both("pingpong rc -n 50 -t");
    for line in ["Max", "Min", "Average"] {
        let line = format!("{line} receive completion clock cycles = ");
        assert!(client.out.contains(&line), "{}", client.out);
    }
    let [server, _] = place.both("pingpong uc -n 50 --json");
    let last = server.out.lines().last().expect("an object");
    let row: serde_json::Value = serde_json::from_str(last).expect("JSON");
    assert_eq!((&row["service"], &row["iterations"]), (&"uc".into(), &50.into()));
}

/// A disk that is full does not stop the traffic, but nobody takes half a recording for all of it.
#[test]
fn a_recording_that_could_not_be_written_is_told() {
    let fifo = std::env::temp_dir().join(format!("roxe-pingpong-fifo-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let name = fifo.display().to_string();
    let place = Place::on_one_host().behind(0, &format!(",capture={name}"));
    let reader = thread::spawn(move || {
        let mut file = File::open(&fifo).expect("a fifo");
        file.read_exact(&mut [0; 28]).expect("a section header");
        std::fs::remove_file(fifo).expect("it is ours");
    });
    let mut server = place.server("pingpong rc -n 20");
    reader.join().expect("it reads a little and goes");
    place.client("pingpong rc -n 20").is_right("the client");
    server.end().complains(2, &format!("cannot write the capture {name}: Broken pipe"));
}

#[test]
fn what_was_altered_on_its_way_is_noticed() {
    let place = Place::on_one_host();
    let damaged = place.behind(1, ",fault=corrupt 100%");
    let ended = damaged.both("pingpong uc --patience 1");
    let why = ["nothing more came within ", " s after 0 messages: do packets get through?"];
    let told = ended.iter().any(|it| why.iter().all(|why| it.err.contains(why)));
    assert!(told, "{}{}", ended[0].err, ended[1].err);
}

#[test]
fn what_both_sides_have_not_the_same_is_told_at_once_at_both_ends() {
    let place = Place::on_one_host();
    let rc = "rc -s 4096 -n 1000 -m 1024";
    let cases = [
        ("ud", "ud -s 1024 -n 1000 -m 4096"),
        ("uc", "uc -s 4096 -n 1000 -m 1024"),
        ("rc -s 8000", "rc -s 8000 -n 1000 -m 1024"),
        ("rc -n 5", "rc -s 4096 -n 5 -m 1024"),
        ("rc -m 4096", "rc -s 4096 -n 1000 -m 4096"),
    ];
    for (other, rules) in cases {
        let [server, client] = place.each([&format!("pingpong {other}"), "pingpong rc"]);
        let told = |peer, own| format!("the peer's pingpong is `{peer}`, this side's `{own}`");
        server.complains(1, &told(rc, rules));
        client.complains(1, &told(rules, rc));
    }
    let [server, client] = place.each(["pingpong rc", "pingpong srq"]);
    server.complains(1, "the peer has more to say than one queue pair: is it srq there");
    client.complains(1, "the peer closed the connection too early");
    let [server, _] = place.each(["pingpong srq --patience 1", "pingpong rc"]);
    server.complains(1, "nothing came for 1 s: one queue pair, and here is srq");
    let [server, client] = place.each(["pingpong rc", "perf send_lat"]);
    server.complains(1, "the peer is perf, or one of perftest, and this is pingpong");
    assert_eq!(client.code, Some(1), "{}", client.err);
    let [server, _] = place.each(["perf send_lat", "pingpong rc"]);
    server.complains(1, "the peer is a pingpong, and this is perf");
}

#[test]
fn a_peer_that_is_gone_is_not_waited_for() {
    let place = Place::on_one_host();
    for kind in ["rc", "uc", "ud"] {
        let words = format!("pingpong {kind} -n 1000000000");
        let mut server = place.server(&words);
        let client = thread::scope(|scope| {
            let client = scope.spawn(|| place.client(&words));
            server.says("remote address:");
            server.kill();
            client.join().expect("it does not panic")
        });
        let told = client.err.contains("the peer closed the connection too early: it was ended")
            || client.err.contains("retry exceeded");
        assert!(client.code == Some(1) && told, "{kind}: {}", client.err);
        assert!(!client.err.contains("Are the"), "{kind}: {}", client.err);
    }
}

#[test]
fn usage_and_environment_are_told_apart() {
    let place = Place::on_one_host();
    let cases = [
        ("rc -q 2", "-q is for srq"),
        ("ud -m 1024", "no -m for ud"),
        ("uc -t", "-t is for rc"),
        ("ud -N", "-N is for rc"),
        ("uc -o", "-o is for rc and srq"),
        ("srq -r 3", "each queue pair needs a receive"),
        ("ud -s 4097", "does not fit the path MTU"),
    ];
    for (words, why) in cases {
        place.client(&format!("pingpong {words}")).complains(2, why);
    }
    let client = place.client("pingpong rc");
    assert_eq!(client.code, Some(3));
    assert!(client.err.contains("start `roxe pingpong rc -d …` there first"), "{}", client.err);
    let [server, _] = place.each(["pingpong srq -q 2", "pingpong srq -q 3"]);
    assert!(server.err.contains("another number of queue pairs"), "{}", server.err);
}

#[test]
fn strangers_are_told_apart() {
    let place = Place::on_one_host();
    let nobody = b"0000:000012:01c8fe:00000000000000000000000000000000\0";
    let group = b"0000:000012:01c8fe:00000000000000000000ffffe0000001\0";
    let cases: [(&[u8], &str); 5] = [
        (group, "the peer's address 224.0.0.1 is no single host's"),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: everything\r\n\r\n", "cannot be read"),
        (b"6.06", "the peer closed the connection too early"),
        (&[0xff; 300], "cannot be read"),
        (nobody, "the peer names no address"),
    ];
    for (bytes, why) in cases {
        let mut server = place.server("pingpong rc");
        let mut stranger = place.stranger();
        let _ = stranger.write_all(bytes);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        server.end().complains(1, why);
        let _ = stranger.read_to_end(&mut Vec::new());
    }
}

/// It would play with itself, and find all right.
#[test]
fn who_only_repeats_is_no_peer() {
    let place = Place::on_one_host();
    let echo = place.listener();
    for kind in ["rc", "ud", "srq"] {
        let ended = thread::scope(|scope| {
            scope.spawn(|| {
                let (stream, _) = echo.accept().expect("a client");
                let _ = io::copy(&mut &stream, &mut &stream);
            });
            place.client(&format!("pingpong {kind} -n 10"))
        });
        ended.complains(1, "it is no pingpong, and only repeats what it hears");
    }
}

#[test]
fn a_peer_that_says_nothing_or_plays_otherwise_is_not_waited_for() {
    let place = Place::on_one_host();
    let mut server = place.server("pingpong rc --patience 1");
    let stranger = place.stranger();
    server.end().complains(1, "nothing came for 1 s");
    drop(stranger);
    for other in ["pingpong ud --patience 2", "perf send_lat --patience 2"] {
        let [server, client] = place.each([other, "pingpong rc --patience 2"]);
        let codes = (server.code, client.code);
        assert_eq!(codes, (Some(1), Some(1)), "{other}: {}{}", server.err, client.err);
    }
}
