//! `roxe perf` from outside: a server and a client, each a process.

mod sides;

use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use sides::namespace::{Cable, is_root};
use sides::{Ended, Place};

/// The rows below the headings, as words.
fn rows(ended: &Ended) -> Vec<Vec<&str>> {
    let lines = ended.out.lines().skip_while(|line| !line.starts_with(" #bytes")).skip(1);
    let rows = lines.take_while(|line| !line.starts_with('-'));
    rows.map(|line| line.split_whitespace().collect()).collect()
}

/// Queue pairs as a side tells of them: their lines without the word in front.
fn addresses<'a>(ended: &'a Ended, side: &str) -> Vec<&'a str> {
    let lines = ended.out.lines();
    lines.filter_map(|line| line.strip_prefix(&format!(" {side} address:"))).collect()
}

/// Runs a test at both ends, and looks whether both tell the same of it.
fn run(place: &Place, words: &str, bytes: &[u32], messages: u64) {
    let ended = place.both(words);
    let [server, client] = &ended;
    client.is_right(&format!("the client of {words}"));
    server.is_right(&format!("the server of {words}"));
    let looked = |ended: &&Ended| ended.out.contains("# data verified");
    let asked = words.contains("--verify");
    assert!(ended.iter().any(|it| looked(&it)) == asked, "{words}: {}", server.out);
    assert_eq!(addresses(server, "local"), addresses(client, "remote"), "{words}");
    assert_eq!(addresses(client, "local"), addresses(server, "remote"), "{words}");
    assert!(!addresses(client, "local").is_empty(), "{words}");
    let (served, rows) = (rows(server), rows(client));
    assert_eq!(rows.len(), bytes.len(), "{words}: {}", client.out);
    for (row, bytes) in rows.iter().zip(bytes) {
        assert_eq!(row[..2], [bytes.to_string(), messages.to_string()], "{words}");
        let numbers: Vec<f64> = row[2..].iter().map(|word| word.parse().unwrap()).collect();
        if words.contains("_bw") {
            let [peak, mean, rate] = numbers[..] else { panic!("{words}: {row:?}") };
            // Whoever only receives does not look for the peak, nor does -N.
            let peaks = if words.contains("-N") { peak == 0.0 } else { peak >= mean };
            assert!(peaks && mean >= 0.0 && rate > 0.0, "{words}: {row:?}");
        } else {
            let [least, most, typical, mean, deviation, p99, p999] = numbers[..] else {
                panic!("{words}: {row:?}")
            };
            assert!(0.0 < least && least <= typical && typical <= p99, "{words}: {row:?}");
            assert!(p99 <= p999 && p999 <= most && least <= mean, "{words}: {row:?}");
            assert!(mean <= most && deviation >= 0.0, "{words}: {row:?}");
        }
    }
    // Of READs and atomics the server tells no latency; what the client did, it tells at the end.
    let asks = words.starts_with("perf read_lat") || words.starts_with("perf atomic_lat");
    let last = if asks { None } else { bytes.last().map(|bytes| bytes.to_string()) };
    assert_eq!(served.last().map(|row| row[0].to_owned()), last, "{words}: {}", server.out);
}

#[test]
fn every_operation_of_each_service_moves_its_data() {
    let place = Place::on_one_host();
    for test in ["send_bw", "write_bw", "read_bw"] {
        run(&place, &format!("perf {test} -n 60 --verify"), &[65536], 60);
    }
    for test in ["send_lat", "write_lat", "read_lat"] {
        run(&place, &format!("perf {test} -n 60 -s 5000 --verify"), &[5000], 60);
    }
    for kind in ["FETCH_AND_ADD", "CMP_AND_SWAP"] {
        run(&place, &format!("perf atomic_bw -n 100 -A {kind} --verify"), &[8], 100);
        run(&place, &format!("perf atomic_lat -n 60 -A {kind} --verify"), &[8], 60);
    }
    for test in ["send_bw", "send_lat", "write_bw", "write_lat"] {
        run(&place, &format!("perf {test} -c UC -n 60 -s 3000 --verify"), &[3000], 60);
    }
    for test in ["send_bw", "send_lat"] {
        run(&place, &format!("perf {test} -c UD -n 60 -s 900 --verify"), &[900], 60);
    }
}

#[test]
fn several_queue_pairs_move_it_and_both_directions() {
    let place = Place::on_one_host();
    for test in ["send_bw", "write_bw", "read_bw"] {
        run(&place, &format!("perf {test} -n 20 -q 8 --verify"), &[65536], 160);
        run(&place, &format!("perf {test} -n 40 -b --verify"), &[65536], 40);
        run(&place, &format!("perf {test} -n 40 -b -q 3 -s 100 --verify"), &[100], 120);
    }
    run(&place, "perf atomic_bw -n 40 -q 8 --verify", &[8], 320);
    run(&place, "perf atomic_bw -n 40 -b", &[8], 40);
    run(&place, "perf send_bw -n 40 -q 4 --use-srq --verify", &[65536], 160);
    run(&place, "perf send_bw -n 100 -r 8 --verify", &[65536], 100);
}

#[test]
fn requests_go_in_lists_inline_and_one_of_many_is_completed() {
    let place = Place::on_one_host();
    run(&place, "perf write_bw -n 96 -l 32 -s 64 -I 64 --verify", &[64], 96);
    run(&place, "perf send_bw -n 96 -l 8 -Q 4 -t 16 -s 200 -I 512 --verify", &[200], 96);
    run(&place, "perf write_bw -n 97 -Q 10 -s 2 -N", &[2], 97);
    run(&place, "perf read_bw -n 50 -o 1 -t 7 --verify", &[65536], 50);
    run(&place, "perf send_lat -n 50 -s 512 -I 512 --verify", &[512], 50);
    run(&place, "perf write_lat -n 300 -s 1 -I 1 --verify", &[1], 300);
    run(
        &place,
        "perf write_bw -n 50 -m 1024 -S 3 --tclass 104 -u 18 -F --report_gbits",
        &[65536],
        50,
    );
}

#[test]
fn all_sizes_are_measured_in_turn() {
    let place = Place::on_one_host();
    let sizes: Vec<u32> = (1..24).map(|power| 1 << power).collect();
    for test in ["send_bw", "read_bw", "write_bw -b", "write_lat"] {
        run(&place, &format!("perf {test} -a -n 5 --verify"), &sizes, 5);
    }
    // A datagram is one packet.
    run(&place, "perf send_bw -c UD -a -n 10 --verify", &sizes[..12], 10);
    run(&place, "perf send_lat -c UD -a -n 10 -m 512 --verify", &sizes[..9], 10);
}

#[test]
fn whoever_sleeps_is_woken_by_what_completes() {
    let place = Place::on_one_host();
    for test in ["send_bw", "read_bw", "atomic_bw", "send_lat", "read_lat", "atomic_lat"] {
        let bytes = if test.starts_with("atomic") { 8 } else { 4096 };
        let size = if bytes == 8 { "" } else { "-s 4096" };
        run(&place, &format!("perf {test} -n 60 -e {size} --verify"), &[bytes], 60);
    }
    run(&place, "perf send_lat -c UD -n 60 -e -s 64 --verify", &[64], 60);
}

#[test]
fn time_may_decide_instead_of_a_number() {
    let place = Place::on_one_host();
    for test in ["write_bw", "send_bw", "read_bw -b", "send_bw -b", "send_lat", "write_lat"] {
        let [server, client] = place.both(&format!("perf {test} -D 1"));
        server.is_right(test);
        client.is_right(test);
        let rows = rows(&client);
        let [row] = &rows[..] else { panic!("{test}: {}", client.out) };
        assert!(row[1].parse::<u64>().unwrap() > 0, "{test}: {row:?}");
    }
}

#[test]
fn programs_read_it_as_json() {
    let place = Place::on_one_host();
    let [server, client] = place.both("perf write_bw -n 50 -s 4K --json --report_gbits");
    for ended in [&server, &client] {
        let row: Value = serde_json::from_str(&ended.out).expect("one object");
        assert_eq!((&row["test"], &row["service"]), (&"write_bw".into(), &"RC".into()));
        assert_eq!((&row["bytes"], &row["iterations"]), (&4096.into(), &50.into()));
        assert!(row["bw_average_gbps"].as_f64().unwrap() > 0.0, "{row}");
    }
    let [_, client] = place.both("perf send_lat -n 50 --json");
    let row: Value = serde_json::from_str(&client.out).expect("one object");
    for name in ["t_min_us", "t_typical_us", "t_avg_us", "t_99_us", "t_99_9_us", "t_max_us"] {
        assert!(row[name].as_f64().unwrap() > 0.0, "{row}");
    }
    let [_, client] = place.both("perf read_lat -n 50 -H -U");
    let lines = client.out.lines().filter(|line| line.split(", ").count() == 2);
    assert_eq!(lines.count(), 2 * (1 + 48), "sorted and unsorted: {}", client.out);
}

#[test]
fn addresses_are_of_one_family() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(1500);
    let place = Place::joined(a, b, ["udp:fd00::1", "udp:fd00::2"], "192.0.2.1");
    run(&place, "perf write_bw -n 50 --ipv6 --verify", &[65536], 50);
    run(&place, "perf send_lat -c UD -n 50 -s 64 --verify", &[64], 50);
    let place = place.with(["udp:192.0.2.1", "udp:fd00::2"]);
    let [server, client] = place.both("perf write_bw");
    client.complains(1, "our address fd00::2 is of IPv6, the peer's ::ffff:192.0.2.1 of IPv4");
    server.complains(1, "our address ::ffff:192.0.2.1 is of IPv4, the peer's fd00::2 of IPv6");
}

#[test]
fn it_is_measured_over_af_xdp_between_two_hosts() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(4200);
    let place = Place::joined(a, b, ["xdp:va", "xdp:vb"], "192.0.2.1");
    for test in ["send_bw", "write_bw", "read_bw"] {
        run(&place, &format!("perf {test} -n 60 --verify"), &[65536], 60);
    }
    run(&place, "perf atomic_bw -n 100 --verify", &[8], 100);
    run(&place, "perf write_bw -n 20 -q 4 -b --verify", &[65536], 80);
    for test in ["send_lat", "write_lat", "read_lat"] {
        run(&place, &format!("perf {test} -n 60 --verify"), &[2], 60);
    }
    run(&place, "perf send_lat -n 60 -e -c UD --verify", &[2], 60);
}

/// Of two packets the network marks one; whoever is told of it slows down, unless he must not.
#[test]
fn what_congestion_control_does_is_shown_while_it_is_measured() {
    let place = Place::on_one_host().behind(0, ",fault=mark 50%");
    for (test, sender) in [("write_bw", 1), ("send_bw", 1), ("read_bw", 0), ("send_lat", 1)] {
        let ended = place.both(&format!("perf {test} -n 60 -s 8K --cc dcqcn"));
        for side in &ended {
            side.is_right(test);
        }
        let lines = |which: usize, words: &str| -> Vec<String> {
            let out = ended[which].out.lines();
            out.filter(|line| line.contains(words)).map(str::to_owned).collect()
        };
        let looks = lines(sender, " s: rate ");
        let last = looks.last().unwrap_or_else(|| panic!("{test}: {}", ended[sender].out));
        assert!(!last.ends_with(", 0 CNPs"), "{test}: {last}");
        let summary = lines(sender, " # dcqcn: ");
        assert_eq!(summary.len(), 1, "{test}: {}", ended[sender].out);
        assert!(!summary[0].contains(": 0 CNPs"), "{test}: {}", summary[0]);
        assert_eq!(summary[0].ends_with(" at the other end"), test == "write_bw", "{test}");
    }
    let [_, client] = place.both("perf write_bw -n 60 -q 4 --cc dcqcn --json");
    let told: Vec<Value> =
        client.out.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let look = told.iter().rfind(|it| it.get("alpha").is_some()).expect("a look");
    let of = |name: &str| look[name].as_f64().unwrap();
    assert!(of("rate_gbps_min") <= of("rate_gbps") && of("rate_gbps") <= of("rate_gbps_max"));
    assert!(of("rate_gbps_max") <= 10.0 && of("alpha_max") <= 1.0, "{look}");
    let end = told.last().expect("an object");
    assert_eq!(end["cc"], "dcqcn");
    assert!(end["rp_cnp_handled"].as_u64() > Some(0), "{end}");
    assert!(end["peer_np_ecn_marked_roce_packets"].as_u64() > Some(0), "{end}");

    // What the device says of its parameters is meant.
    let slow = place.behind(1, ",cc=dcqcn,rp_max_rate=20M");
    let [_, client] = slow.both("perf write_bw -n 20 -s 8K --cc dcqcn");
    let looks: Vec<&str> = client.out.lines().filter(|line| line.contains(" s: rate ")).collect();
    let is_slow = |look: &&str| look.contains(" Mb/s, target ");
    assert!(looks.last().is_some_and(is_slow), "{looks:?}");

    let place = Place::on_one_host().behind(0, ",fault=mark 50%");
    let [_, client] = place.both("perf write_bw -n 60 --cc none");
    assert!(!client.out.contains(" s: rate "), "{}", client.out);
    assert!(client.out.contains(" # none: 0 CNPs obeyed; "), "{}", client.out);
}

/// What the adapter says itself counts where nothing else is said, or the same name; of another one
/// its parameters do not, which is told.
#[test]
fn congestion_control_of_the_adapter_is_meant_by_its_name() {
    let place = Place::on_one_host().behind(1, ",cc=dcqcn-paper,rate=1,rp_max_rate=20M");
    for (cc, name, slow) in [
        ("", "dcqcn-paper", true),
        ("--cc dcqcn-paper", "dcqcn-paper", true),
        ("--cc dcqcn", "dcqcn", false),
    ] {
        let [_, client] = place.each([
            "perf write_bw -n 20 -s 8K".to_owned(),
            format!("perf write_bw -n 20 -s 8K {cc}"),
        ]);
        let mut looks = client.out.lines().filter(|line| line.contains(" s: rate "));
        let expected = if slow { "rate 20.000 (20.000 … " } else { "rate 1.000 (1.000 … " };
        assert!(looks.next_back().is_some_and(|it| it.contains(expected)), "{}", client.out);
        assert!(client.out.contains(&format!(" # {name}: 0 CNPs obeyed; ")), "{}", client.out);
        if slow {
            client.is_right(cc);
        } else {
            client.complains(0, "--cc dcqcn is not cc=dcqcn-paper: parameters that the adapter");
        }
    }
}

/// 128 times 64 KiB are outstanding, which takes a minute and more at 1 Mb/s.
#[test]
fn time_that_is_over_ends_it_however_slow_the_queue_pairs_are() {
    let place = Place::on_one_host();
    let place = place.behind(1, ",cc=dcqcn,rate=0.001");
    let began = Instant::now();
    let [server, client] = place.both("perf write_bw -D 2");
    assert!(began.elapsed() < Duration::from_secs(60), "{}", client.out);
    server.is_right("the server");
    client.complains(
        0,
        " messages that were outstanding when the time was over did not get through in 3s ",
    );
    assert!(client.out.contains("rate 1.000 (1.000 … 1.000) Mb/s"), "{}", client.out);
    // At ten times that all gets through, though it takes its time.
    let place = Place::on_one_host().behind(1, ",cc=dcqcn,rate=0.01");
    for ended in place.both("perf write_bw -D 2") {
        ended.is_right("what goes on is waited for");
    }
}

/// The service sends again what the network loses, or tells that it did not come.
#[test]
fn a_bad_network_loses_nothing_or_is_told_of() {
    let place = Place::on_one_host().behind(1, ",fault=drop 2%");
    run(&place, "perf write_bw -n 60 --verify", &[65536], 60);
    run(&place, "perf send_bw -n 60 --verify", &[65536], 60);
    let place = Place::on_one_host().behind(1, ",fault=drop every 10");
    let [server, client] = place.both("perf send_bw -c UC -n 100 -s 64");
    client.is_right("UC sends whatever becomes of it");
    server.complains(1, "messages did not come: the service does not send again");
    assert!(rows(&server)[0][1].parse::<u64>().unwrap() < 100, "{}", server.out);
    let lost = " of 100 messages did not come: the service does not send again";
    for ended in place.both("perf send_bw -c UC -b -n 100 -s 64") {
        ended.complains(1, lost);
    }
    let words = "what the network loses, this service does not send again; else: does the peer";
    let ended = place.both("perf send_lat -c UD -n 100 --patience 3");
    assert!(ended.iter().any(|it| it.err.contains(words)), "{}", ended[0].err);
    // A place that is written to again and again looks right all the same.
    for words in ["-s 64", "-s 3000", "-b -s 64", "-b -a"] {
        let [server, _] = place.both(&format!("perf write_bw -c UC -n 100 --verify {words}"));
        server.complains(1, "messages did not come: the service does not send again");
        assert!(!server.out.contains("data verified"), "{words}: {}", server.out);
    }
}

#[test]
fn a_queue_pair_that_ended_says_why() {
    let place = Place::on_one_host().behind(1, ",fault=drop 100%");
    let [server, client] = place.both("perf write_bw -u 4");
    assert_eq!(client.code, Some(1));
    assert!(client.err.contains("retr"), "{}", client.err);
    assert!(!client.err.contains("Are the test"), "no flag is to blame: {}", client.err);
    server.complains(1, "the peer closed the connection too early");
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    let place = Place::on_one_host();
    // It would take a day. What is not acknowledged completes without a peer too.
    let all =
        ["write_bw", "send_lat", "send_bw", "write_bw -c UC", "send_bw -c UC", "send_bw -c UD"];
    for test in all.map(|test| format!("{test} -D 86400")) {
        let mut server = place.server(&format!("perf {test}"));
        let client = thread::scope(|scope| {
            let client = scope.spawn(|| place.client(&format!("perf {test}")));
            server.says(" #bytes");
            server.kill();
            client.join().expect("it does not panic")
        });
        assert_eq!(client.code, Some(1), "{test}: {}", client.err);
        assert!(!client.err.contains("Are the test"), "{test}: {}", client.err);
    }
}

#[test]
fn a_hole_in_what_was_measured_is_told() {
    let place = Place::on_one_host().behind(1, ",fault=delay 1500ms..1500ms packets 100");
    let [_, client] = place.both("perf write_lat -c UC -D 4");
    client.complains(0, " meanwhile: what was measured includes that");
    assert!(client.err.starts_with("roxe: nothing came for "), "{}", client.err);
}

#[test]
fn who_only_receives_waits_for_a_sender_that_pauses() {
    let place = Place::on_one_host();
    let mut server = place.server("perf send_bw -c UD -n 2000000 -s 64");
    let mut client = place.started_client("perf send_bw -c UD -n 2000000 -s 64 -N");
    server.says(" #bytes");
    client.pause(Duration::from_secs(4));
    assert!(server.is_running(), "it gave up");
}

#[test]
fn flags_of_perftest_that_are_not_here_are_known() {
    let place = Place::on_one_host();
    let of = |flag: &str| place.client(&format!("perf write_bw {flag}"));
    let why = "-R is a flag of perftest that roxe has not: it connects by the connection manager";
    of("-R").complains(2, why);
    of("--rate_limit=5").complains(2, "--rate_limit is a flag of perftest that roxe has not");
    assert!(of("--nosuch").err.starts_with("error: unexpected argument"), "it is nobody's");
}

#[test]
fn one_direction_here_and_both_there_is_told_at_both_ends() {
    let place = Place::on_one_host();
    for [server, client] in [
        ["write_bw -b", "write_bw"],
        ["write_bw -b -D 2", "write_bw -D 2"],
        ["read_bw", "read_bw -b"],
    ] {
        let ended = place.each([&format!("perf {server}"), &format!("perf {client}")]);
        for Ended { code, err, .. } in &ended {
            assert_eq!((*code, err.lines().count()), (Some(1), 1), "{server}, {client}: {err}");
        }
        let told = ended.iter().any(|it| it.err.contains("-b"));
        assert!(told, "{server}, {client}: {}{}", ended[0].err, ended[1].err);
    }
}

#[test]
fn too_few_open_files_are_told_with_what_to_do() {
    let place = Place::on_one_host();
    let limited = |limit: usize| place.limited_client(limit, "perf write_bw --patience 1");
    // It listens, and says nothing.
    let _server = place.listener();
    let mut lacked = 0;
    for limit in 4..20 {
        let Ended { code, err, .. } = limited(limit);
        let lacks = err.contains("Too many open files");
        assert_eq!(err.lines().count(), 1, "{limit}: {err}");
        assert_eq!(code, Some(if lacks { 3 } else { 1 }), "{limit}: {err}");
        assert_eq!(lacks, err.contains("`ulimit -n 1024`"), "{limit}: {err}");
        assert!(!lacks || !err.contains("no server"), "{limit}: {err}");
        lacked += usize::from(lacks);
    }
    assert!(lacked > 3, "{lacked} of them");
}

/// Who has more would wait for what never comes, or send what nobody takes.
#[test]
fn another_number_of_messages_there_is_told_at_both_ends_before_anything_is_sent() {
    let place = Place::on_one_host();
    for test in ["send_bw", "send_lat", "send_bw -c UD", "write_lat"] {
        for [server, client] in [["-n 500", "-n 1000"], ["-n 1000", "-n 500"], ["-D 2", "-n 500"]] {
            let words = [server, client].map(|it| format!("perf {test} {it} -s 64"));
            for (ended, peers) in place.each(words).iter().zip([client, server]) {
                let peers = match peers.split_once(' ') {
                    Some(("-n", messages)) => format!("the peer has {messages} messages (-n), "),
                    _ => "the peer goes on for a time (-D), ".to_owned(),
                };
                ended.complains(1, &peers).complains(1, ": both have to be the same");
            }
        }
    }
    let [server, client] = place.each(["perf write_bw -n 500", "perf write_bw -n 60"]);
    server.is_right("who is only written to counts nothing");
    client.is_right("nor does it matter to who writes");
}

#[test]
fn what_does_not_go_together_is_refused_before_anything_is_done() {
    let place = Place::on_one_host();
    let cases = [
        ("read_bw -c UC", "UC has neither READ nor atomics"),
        ("write_lat -c UD", "UD has SEND only"),
        ("atomic_bw -s 16", "an atomic is of 8 bytes"),
        ("send_lat -q 2", "latency is measured with one queue pair"),
        ("send_lat -b", "no -b"),
        ("write_bw -e", "WRITE has no events"),
        ("write_bw -H", "-H is for latency"),
        ("read_bw -I 8", "nothing to send inline"),
        ("write_bw -I 513", "512 bytes are the most for -I"),
        ("write_bw -n 10 -l 3", "-n has to be a multiple of -l"),
        ("send_bw -l 200", "-l may not be above -t"),
        ("write_bw -r 4", "only SEND has receives"),
        ("write_bw -D 4 -f 2", "-D has to be more than twice -f"),
        ("write_bw -q 16384 -t 15000 -s 8 -D 9", "-q 16384 times -t are 245776384 completions"),
        ("send_bw -b -q 1000 -n 9000 -r 9000 -s 8", "-q 1000 times -t and -r are 9128000"),
        ("send_bw -c UD -s 5000", "a datagram of 5000 bytes does not fit the path MTU, 4096: -s"),
        ("send_bw -c UD -s 1025 -m 1024", "does not fit the path MTU, 1024"),
        ("write_bw -x 7", "no address with GID index 7"),
        ("write_bw -q 16384 -s 1024M", "GiB of memory"),
    ];
    for (words, why) in cases {
        place.client(&format!("perf {words}")).complains(2, why);
    }
    let named = Place::on_one_host().with(["roxe0", "roxe0"]);
    for test in ["perf write_bw", "pingpong rc"] {
        let client = named.client(&format!("{test} --config /dev/zero"));
        client.complains(2, "/dev/zero: no regular file");
    }
    for words in [
        "perf",
        "perf write",
        "perf write_bw -n 4",
        "perf write_bw -m 1500",
        "perf write_bw -a -s 2",
        "perf write_bw -c XRC",
        "perf write_bw -D 1 -n 5",
    ] {
        assert_eq!(place.client(words).code, Some(2), "{words}");
    }
}

#[test]
fn what_the_environment_lacks_is_told() {
    let place = Place::on_one_host();
    let expected = format!(
        "no server at 127.0.0.1:{}: start `roxe perf write_bw -d …` there first",
        place.port
    );
    place.client("perf write_bw").complains(3, &expected);
    let first = place.server("perf write_bw");
    let second = place.beside_the_server("perf write_bw", "memory:x");
    let expected = format!("TCP port {} is in use", place.port);
    second.complains(3, &expected);
    drop(first);
    let nameless = Place::on_one_host().with(["xdp:nosuch0", "xdp:nosuch0"]);
    assert_eq!(nameless.client("perf write_bw").code, Some(3));
}

/// How ib_write_bw of perftest 4.5 began.
const HELLO: &[u8; 26] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\x405\0";

/// What it said of its queue pair, with another address.
const KEY: &[u8; 108] = b"0000:0001:0000c0:f83e8c:000073b9:00007f5f564f2000:\
    00:00:00:00:00:00:00:00:00:00:ff:ff:7f:00:00:09:00000000:\0";

/// What it measured.
const REPORT: &[u8; 40] = b"\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\x14\
    @#<6k\x16o\xde@#<6f\xc3\xbc\x12?$+i:\xb8\x1bx";

/// A server with so many queue pairs, and what it answered to all that such a client says, in its
/// order, and at the end `report`.
fn serve(place: &Place, words: &str, queue_pairs: usize, report: &[u8]) -> (Ended, Vec<u8>) {
    let keys = KEY.repeat(2 * queue_pairs + 2);
    let said = [HELLO, &keys[..], report, KEY, b"done\0"].concat();
    let mut server = place.server(&format!("perf write_bw -q {queue_pairs} {words}"));
    let mut client = place.stranger();
    client.write_all(&said).expect("it reads");
    client.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    (server.end(), answer)
}

/// The server answers each message of its client with as many bytes.
#[test]
fn a_recorded_client_is_served() {
    let (ended, answer) = serve(&Place::on_one_host(), "-n 20", 1, REPORT);
    ended.is_right("the server of a recorded client");
    assert_eq!(rows(&ended), [["65536", "20", "9.62", "9.62", "0.000154"]]);
    assert_eq!(answer.len(), HELLO.len() + 5 * KEY.len() + REPORT.len() + 5);
    assert!(answer.starts_with(b"6.06\0") && answer.ends_with(b"done\0"));
    assert_eq!(answer[16..24], HELLO[16..24]);
}

/// A client that has written nothing, or less than a message to each queue pair.
#[test]
fn where_nothing_was_written_nothing_is_verified() {
    let place = Place::on_one_host();
    for (queue_pairs, messages) in [(1, 0), (32, 0), (32, 31)] {
        let mut report = *REPORT;
        report[15] = messages;
        let (ended, _) = serve(&place, "-n 20 --verify --json", queue_pairs, &report);
        let verified = serde_json::from_str::<Value>(&ended.out).unwrap()["verified"].clone();
        assert_eq!((ended.code, verified), (Some(0), false.into()), "{queue_pairs} {messages}");
        assert!(ended.err.contains("nothing was verified here"), "{}", ended.err);
    }
}

/// Whatever a stranger says, it gets one sentence, and soon.
#[test]
fn strangers_are_told_apart() {
    let place = Place::on_one_host();
    let key = b"0000:0001:000011:f0a1b2:00000204:0000559fe1c2d000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:0a:00:02:00000000:\0";
    let hello = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\x405\0";
    let wrong = |at: usize, byte: u8| {
        let mut bytes = [&hello[..], key].concat();
        bytes[at] = byte;
        bytes
    };
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "the peer is no perftest: it says `GET"),
        (vec![0xff; 4000], "the peer is no perftest"),
        (b"5.33\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(), "the peer is perftest 5.33"),
        (b"6.0".to_vec(), "the peer closed the connection too early"),
        (hello[..20].to_vec(), "the peer closed the connection too early"),
        (wrong(16, 0xff), "cycle buffer has"),
        (wrong(20, 0xff), "cache line has"),
        (wrong(24, b'9'), "path MTU cannot be read"),
        (wrong(26, b'-'), "the peer's queue pair cannot be read"),
        ([&hello[..], &[b'a'; 500]].concat(), "the peer's queue pair cannot be read"),
        ([&hello[..], key].concat(), "10.10.0.2"),
    ];
    for (bytes, why) in cases {
        let mut server = place.server("perf write_bw");
        let mut stranger = place.stranger();
        // It may have ended before all was said.
        let _ = stranger.write_all(&bytes);
        let _ = stranger.shutdown(std::net::Shutdown::Write);
        let ended = server.end();
        let _ = stranger.read_to_end(&mut Vec::new());
        // Where no such host is known, who it is does not matter.
        let (code, why) = match why {
            "10.10.0.2" => (ended.code.unwrap_or(-1), "roxe: "),
            why => (1, why),
        };
        ended.complains(code, why);
    }
    let listener = place.listener();
    let client = thread::scope(|scope| {
        let client = scope.spawn(|| place.client("perf send_lat"));
        let (mut stream, _) = listener.accept().expect("it connects");
        stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n").expect("it reads");
        client.join().expect("it does not panic")
    });
    client.complains(1, "the peer is no perftest: it says `SSH-2.0-OpenSSH_`");
}

/// Whoever repeats all that it hears, as TCP's echo service does, is taken for no peer.
#[test]
fn an_echo_is_no_peer() {
    let place = Place::on_one_host();
    let listener = place.listener();
    for operation in ["send", "write", "read", "atomic"] {
        for metric in ["bw", "lat"] {
            let client = thread::scope(|scope| {
                let client = scope.spawn(|| place.client(&format!("perf {operation}_{metric}")));
                let (mut stream, _) = listener.accept().expect("it connects");
                let mut heard = [0; 256];
                while let Ok(len @ 1..) = stream.read(&mut heard) {
                    // It may have ended meanwhile.
                    let _ = stream.write_all(&heard[..len]);
                }
                client.join().expect("it does not panic")
            });
            client.complains(1, "the peer says our own queue pair: it is no perf");
        }
    }
}

/// Each pair of words is of two sides that do not measure the same.
#[test]
fn sides_that_disagree_end_and_say_so() {
    let place = Place::on_one_host();
    let cases = [
        ("write_bw", "write_lat"),
        ("write_bw -q 2", "write_bw -q 4"),
        ("write_bw -q 4", "write_bw -q 2"),
        ("send_bw -q 2", "send_bw -q 1"),
        ("send_bw -n 300", "send_bw -n 500"),
        ("write_bw -b", "write_bw"),
        ("read_bw", "read_bw -b"),
        ("send_bw", "write_bw"),
        ("send_lat -c UC", "send_lat"),
    ];
    for (server, client) in cases {
        let words = [server, client].map(|it| format!("perf {it} --patience 2"));
        let start = Instant::now();
        let ended = place.each([&words[0], &words[1]]);
        let told = format!("{words:?}: {}{}", ended[0].err, ended[1].err);
        assert!(ended.iter().any(|it| it.code == Some(1)), "{told}");
        assert!(ended.iter().all(|it| !it.out.contains("347232829")), "{told}");
        assert!(
            ["same", "--verify", "its own message"].iter().any(|it| told.contains(it)),
            "{told}"
        );
        assert!(start.elapsed() < Duration::from_secs(20), "{told}");
    }
}

#[test]
fn a_peer_that_says_nothing_is_not_waited_for() {
    let place = Place::on_one_host();
    let mut server = place.server("perf write_bw --patience 1");
    let stranger = place.stranger();
    server.end().complains(1, "nothing came for 1 s: does the peer run the same test");
    drop(stranger);
}

/// A peer that says nothing more, while somebody sends to a queue pair that is not there.
#[test]
fn packets_of_strangers_are_no_life_of_a_peer() {
    let place = Place::on_one_host().behind(0, ",verify=off");
    let adapter = place.address().trim_end_matches(",verify=off").to_owned();
    let mut server = place.server("perf write_bw --patience 1");
    let mut client = place.stranger();
    client.write_all(&[HELLO, &KEY.repeat(3)[..]].concat()).expect("it reads");
    let socket = place.run(1, || UdpSocket::bind("127.0.0.9:0")).expect("a socket");
    let packet = [&[4, 0, 0xff, 0xff, 0, 0, 9, 0x99], &[0; 12][..]].concat();
    let start = Instant::now();
    while server.is_running() {
        assert!(start.elapsed() < Duration::from_secs(30), "it waits while strangers send");
        let _ = socket.send_to(&packet, (adapter.as_str(), 4791));
        thread::sleep(Duration::from_millis(10));
    }
    server.end().complains(1, "nothing came for ");
}

#[test]
fn whether_data_was_verified_is_said() {
    let place = Place::on_one_host();
    let [server, client] = place.both("perf write_bw -n 50 --verify --json");
    let verified =
        |ended: &Ended| serde_json::from_str::<Value>(&ended.out).unwrap()["verified"].clone();
    assert_eq!((verified(&server), verified(&client)), (true.into(), false.into()));
    let [_, client] = place.each(["perf write_bw -n 50", "perf write_bw -n 50 --verify"]);
    let note = "nothing was verified here: the other side's --verify is what looks";
    client.complains(0, note);
}

#[test]
fn a_peer_that_measures_for_long_is_waited_for() {
    let place = Place::on_one_host();
    for test in ["write_bw", "read_lat", "send_bw -c UC"] {
        let [server, client] = place.both(&format!("perf {test} -D 6 --patience 3"));
        server.is_right(test);
        client.is_right(test);
    }
}

#[test]
fn a_port_that_is_down_is_to_be_switched_on() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(1500);
    b.ip("link set vb down");
    let place = Place::joined(a, b, ["udp:192.0.2.1", "udp:192.0.2.2"], "192.0.2.1");
    let why = "the port of udp:192.0.2.2 is down: switch its interface on by `ip link set vb up`";
    place.client("perf write_bw").complains(3, why);
    // Nor has its cable's other end a carrier.
    let why = "the port of udp:192.0.2.1 is down: switch its interface on by `ip link set va up`";
    place.beside_the_server("pingpong rc", "udp:192.0.2.1").complains(3, why);
    let place = place.with(["xdp:va", "xdp:vb"]);
    place.client("perf write_bw").complains(3, "the port of xdp:vb is down");
}

/// The side that only waits has no request that could fail: its port says it.
#[test]
fn who_only_waits_says_what_became_of_its_interface() {
    if !is_root() {
        return;
    }
    for (word, became) in [("set va down", "down"), ("delete va", "gone")] {
        let Cable { a, b } = Cable::new(1500);
        let place = Place::joined(a, b, ["xdp:va", "xdp:vb"], "192.0.2.1");
        let test = "perf write_bw -D 86400 --patience 3";
        let mut server = place.server(test);
        let (client, server) = thread::scope(|scope| {
            let client = scope.spawn(|| place.client(test));
            server.says(" #bytes");
            place.ip(0, &format!("link {word}"));
            (client.join().expect("it does not panic"), server.end())
        });
        assert_eq!(client.code, Some(1), "{}", client.err);
        server.complains(1, &format!("nothing came for 3 s: the interface va is {became}"));
    }
}

/// Who waits for longer need not wait for all of it, and hears what else may be wrong with it.
#[test]
fn who_only_waits_says_soon_what_became_of_its_interface() {
    if !is_root() {
        return;
    }
    let cases = [
        ("write_bw", "set va down", "the interface va is down"),
        // What is not acknowledged completes all the same.
        ("send_bw -c UD", "set va down", "the interface va is down"),
        (
            "write_bw",
            "set va mtu 1000",
            "the interface va has MTU 1000 by now, and path MTU 1024 does not fit",
        ),
    ];
    for (test, word, became) in cases {
        let Cable { a, b } = Cable::new(1500);
        let place = Place::joined(a, b, ["xdp:va", "xdp:vb"], "192.0.2.1");
        let test = format!("perf {test} -D 86400");
        let mut server = place.server(&test);
        let client = thread::scope(|scope| {
            let client = scope.spawn(|| place.client(&test));
            server.says(" #bytes");
            place.ip(0, &format!("link {word}"));
            client.join().expect("it does not panic")
        });
        assert!(!client.err.contains("Are the test"), "{}", client.err);
        let ended = server.end();
        assert_eq!(ended.code, Some(1), "{}", ended.err);
        assert!(ended.err.contains(became), "{}", ended.err);
    }
}

#[test]
fn an_interface_without_address_is_to_be_given_one() {
    if !is_root() {
        return;
    }
    let Cable { a, b } = Cable::new(1500);
    let place = Place::joined(a, b, ["xdp:va", "xdp:vb"], "192.0.2.1");
    place.strip_addresses(1);
    place.client("perf write_bw").complains(3, "by `ip address add 192.0.2.1/24 dev vb`, say");
}
