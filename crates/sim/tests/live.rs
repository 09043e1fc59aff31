//! Scripts against a device elsewhere, which here is our own engine behind an agent and a wire.

#[path = "live/site.rs"]
mod site;

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use roxe_sim::peer::Peer;
use roxe_sim::script::{ByHand, Outcome, Play, Played, Terms, play_live};
use roxe_wire::Qpn;

use site::Engine;

const DEVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn terms() -> Terms {
    Terms {
        kind: Peer::Roxe,
        ours: vec![OURS],
        by_hand: None,
        untold: Vec::new(),
        slack: Duration::from_millis(300),
        silence: Duration::from_millis(60),
        first_peer: 0x700,
        play: Play { frames: true, ..Play::default() },
    }
}

fn played(engine: &mut Engine, text: &str) -> Played {
    play_live("x.roce", text.as_bytes(), engine, &terms())
}

fn outcome(text: &str) -> Outcome {
    played(&mut Engine::new(DEVICE), text).outcome
}

fn script(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    fs::read_to_string(root.join(name)).expect("a script")
}

#[test]
fn scripts_come_true_against_a_device_with_numbers_of_its_own() {
    for name in [
        "rc/send-only-completes-one-receive.roce",
        "rc/send-twice-delivered-once.roce",
        "rc/gap-gets-one-nak.roce",
        "rc/read-in-three-responses.roce",
        "rc/compare-and-swap.roce",
        "rc/inline-data.roce",
        "rc/wrong-icrc.roce",
        "rc/receiver-not-ready.roce",
        // Whose timers go slower here.
        "rc/retry-until-exceeded.roce",
        "rc/timeout-goes-back-to-the-oldest.roce",
        "memory/gather-and-scatter.roce",
        "memory/destroyed-region.roce",
        "uc/gap-in-a-message.roce",
    ] {
        let outcome = outcome(&script(name));
        assert!(matches!(outcome, Outcome::Passed { .. }), "{name}: {outcome}");
    }
}

#[test]
fn a_device_that_answers_otherwise_fails_its_script_with_what_came() {
    let mut engine = Engine::new(DEVICE);
    // The MSN is one less, under a right ICRC or not.
    engine.spoil = |frame| {
        let last = frame.len() - 5;
        frame[last] -= 1;
        true
    };
    let played = played(&mut engine, &script("rc/send-only-completes-one-receive.roce"));
    let Outcome::Failed(failure) = played.outcome else { panic!("{}", played.outcome) };
    assert!(failure.what.contains("ICRC"), "{failure}");
    let comments: Vec<_> = played.frames.iter().map(|frame| frame.comment.as_str()).collect();
    assert!(comments[0].starts_with("line ") && comments[0].contains(" < q1 "), "{comments:?}");
    let at = format!("line {}: expected: ", failure.line);
    assert!(comments.last().unwrap().starts_with(&at), "{comments:?}");

    let text = "qp q1 rc expect-psn 100\n+0 < q1 SEND_ONLY psn 100 \"x\"\n+0 > q1 ACK psn 100";
    let Outcome::Failed(failure) = outcome(text) else { panic!("no receive is posted") };
    assert_eq!(failure.line, 3);
    assert!(failure.what.starts_with("instead: > q1 RNR_NAK psn 100 timer 12"), "{failure}");
}

#[test]
fn silence_is_judged_and_what_never_comes_is_missed() {
    let mut engine = Engine::new(DEVICE);
    engine.spoil = |_| false;
    let Outcome::Failed(failure) = played(&mut engine, &script("rc/read.roce")).outcome else {
        panic!("its request was lost")
    };
    assert_eq!(failure.what, "the device did nothing");

    let text = "qp q1 rc send-psn 5\n+0 post send q1 id 1 \"x\"\n+0 quiet";
    let Outcome::Failed(failure) = outcome(text) else { panic!("it sends") };
    assert!(failure.what.contains("the device did this: > q1 SEND_ONLY psn 5"), "{failure}");
    let text = "qp q1 rc send-psn 5\n+0 state q1 rts\n+0 post send q1 id 1 \"x\"";
    let Outcome::Failed(failure) = outcome(text) else { panic!("it sends") };
    assert!(failure.what.starts_with("the script ends here, but the device did more"), "{failure}");
}

#[test]
fn a_line_that_waits_for_seconds_is_told_once() {
    let line = "+0 > q1 SEND_ONLY psn 5";
    let text = format!("qp q1 rc send-psn 5\n+0 post send q1 id 1 \"x\"\n{line}");
    let waited = |slack| {
        let mut engine = Engine::new(DEVICE);
        engine.spoil = |_| false;
        let terms = Terms { slack: Duration::from_secs(slack), ..terms() };
        let outcome = play_live("x.roce", text.as_bytes(), &mut engine, &terms).outcome;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome}");
        engine.waited
    };
    assert_eq!(waited(3), [""; 0]);
    assert_eq!(waited(20), [format!("line 3: {line}")]);
}

#[test]
fn what_comes_before_its_time_fails_and_what_comes_late_does_not() {
    let wait = |after: &str| {
        format!(
            "qp q1 rc send-psn 500\n+0 post send q1 id 1 \"a\"\n\
             +0 > q1 SEND_ONLY psn 500 ack-req \"a\"\n+0 < q1 RNR_NAK psn 500 timer 25 msn 0\n\
             {after} > q1 SEND_ONLY psn 500 ack-req \"a\"\n+0 < q1 ACK psn 500 msn 1\n\
             +0 completion send id 1 ok"
        )
    };
    // The wait is 81.92 ms.
    assert!(matches!(outcome(&wait("+81.92ms")), Outcome::Passed { .. }));
    assert!(matches!(outcome(&wait("+10ms")), Outcome::Passed { .. }));
    let Outcome::Failed(failure) = outcome(&wait("+491.52ms")) else { panic!("it came early") };
    assert!(failure.what.starts_with("it came after "), "{failure}");
}

#[test]
fn refusals_are_compared_by_their_numbers_and_what_is_missing_is_skipped() {
    let text = "mr m1 len 8 fails ENOMEM";
    let mut engine = Engine::new(DEVICE);
    let refused = |engine: &mut Engine, number| {
        // The buffer of each script is a region too.
        engine.refuses = Some(("qp", number));
        played(engine, "qp q1 rc fails ENOMEM\n+0 quiet").outcome
    };
    assert!(matches!(refused(&mut engine, 12), Outcome::Passed { .. }));
    let Outcome::Failed(failure) = refused(&mut engine, 22) else { panic!("it is not EINVAL") };
    assert_eq!(failure.what, "it failed with EINVAL (qp: no), not with ENOMEM");
    let Outcome::Skipped(why) = refused(&mut engine, 95) else { panic!("it is not there") };
    assert_eq!(why, "line 1: the device does not have this: qp: no");
    // The agent does not know the line, or opens nothing: neither is the device's doing.
    let Outcome::Unreadable(why) = refused(&mut engine, 71) else { panic!("it is no such line") };
    assert_eq!(why, "x.roce:1: the agent says: error 71 qp: no");
    engine.refuses = Some(("open", 19));
    let Outcome::Unreadable(why) = played(&mut engine, QUIET).outcome else { panic!("it is open") };
    assert_eq!(why, "x.roce:1: the agent refuses what any script needs: errno 19, open: no");
    let Outcome::Failed(failure) = outcome(text) else { panic!("there is memory") };
    assert_eq!(failure.what, "it succeeded, and should have failed: ENOMEM");
}

#[test]
fn what_only_virtual_time_can_give_is_skipped_and_says_why() {
    for (text, why) in [
        ("device as connectx\nqp q1 rc\n+0 quiet", "it is about what ConnectX does"),
        ("device vlan 10\nqp q1 rc\n+0 quiet", "it needs addresses on VLANs"),
        ("qp q1 gsi\n+0 quiet", "line 1: queue pair 1 is the kernel's"),
        ("cm c1\n+0 quiet", "line 1: connections are made by the kernel's own manager"),
        ("+0 call hold device\n+0 quiet", "line 1: a kernel's port cannot be held"),
        ("qp q1 rc\n+90s quiet", "it takes 180 s"),
        ("qp q1 rc pkey 5\n+0 quiet", "line 1: the device has one partition, 0xffff"),
        ("qp q1 rc\n+0 counter icrc_bad 0", "it is about what only our engine counts and says"),
        (
            "device address 2001:db8::1 peer 2001:db8::2\nqp q1 rc\n+0 quiet",
            "line 1: the two ends do not both have an address like 2001:db8::1",
        ),
    ] {
        assert_eq!(outcome(text), Outcome::Skipped(why.to_owned()), "{text}");
    }
}

#[test]
fn an_event_that_a_device_is_known_not_to_tell_may_not_come() {
    let text = script("memory/write-with-a-bad-key.roce");
    let mut engine = Engine::new(DEVICE);
    assert!(matches!(played(&mut engine, &text).outcome, Outcome::Passed { .. }));
    let untold = Terms { untold: vec!["access-error".to_owned()], ..terms() };
    let mut engine = Engine::new(DEVICE);
    let played = play_live("x.roce", text.as_bytes(), &mut engine, &untold);
    let Outcome::Failed(failure) = played.outcome else { panic!("our engine tells it") };
    assert!(failure.what.contains("event q1 access-error"), "{failure}");
}

#[test]
fn a_group_is_joined_on_the_interface_that_has_the_address_of_the_queue_pair() {
    let mut engine = Engine::new(DEVICE);
    let text = "qp q1 ud\n+0 call attach q1 group 239.1.2.3\n+0 quiet";
    let outcome = played(&mut engine, text).outcome;
    assert!(matches!(outcome, Outcome::Passed { .. }), "{outcome}");
    // Its first address is another interface's.
    assert_eq!(engine.joined, ["eth1"]);
}

#[test]
fn without_an_agent_only_frames_are_judged() {
    let mut engine = Engine::new(DEVICE);
    // Somebody made a queue pair, to our number 0x100, and posted a receive.
    let ask = |engine: &mut Engine, line: &str| {
        let answer = roxe_sim::script::Site::ask(engine, line).expect("an agent");
        assert!(answer.starts_with("ok"), "{line}: {answer}");
        answer
    };
    for line in ["pd", "cq depth=8", "mr pd=0 len=64 access=1"] {
        ask(&mut engine, line);
    }
    let answer = ask(&mut engine, "qp pd=0 cq=0 type=rc");
    let (_, qpn) = answer.split_once("qpn=0x").expect("a number");
    let qpn = Qpn::new(u32::from_str_radix(qpn, 16).expect("digits"));
    for line in [
        "modify qp=0 state=init pkey=0 port=1 access=0",
        "modify qp=0 state=rtr mtu=1024 dest=256 rq_psn=100 dest_rd=1 min_rnr=12 \
         dgid=::ffff:10.0.0.1 sgid=0",
        "recv qp=0 id=1 raw=0x70000000:64:0x0",
    ] {
        ask(&mut engine, line);
    }
    let hand = ByHand { qpn, address: DEVICE, va: 0, r_key: 0 };
    let terms = Terms { by_hand: Some(hand), first_peer: 0x100, ..terms() };
    let mut run = |text: &str| play_live("x.roce", text.as_bytes(), &mut engine, &terms).outcome;
    let bad = "qp q1 rc expect-psn 100\n+0 < q1 SEND_ONLY psn 102 ack-req \"x\"\n\
               +0 > q1 NAK psn 100 code sequence-error";
    assert!(matches!(run(bad), Outcome::Passed { .. }));
    let Outcome::Skipped(why) = run("qp q1 rc\n+0 post send q1 id 1 \"x\"\n+0 quiet") else {
        panic!("nobody posts")
    };
    assert_eq!(why, "line 2: its requests need an agent");
    for (text, why) in [
        ("qp q1 rc\n+0 completion recv id 1 ok", "it is about what only an agent sees"),
        ("qp q1 rc\n+0 state q1 rts", "it is about what only an agent sees"),
        (
            "qp q1 rc\n+0 post recv q1 id 1 len 8 fails ENOMEM\n+0 quiet",
            "line 2: its refusals need an agent",
        ),
    ] {
        assert_eq!(run(text), Outcome::Skipped(why.to_owned()), "{text}");
    }
}

/// What the agent's doings end with, if it answers so.
fn unreadable(answers: &[(&'static str, &str)], text: &str) -> String {
    let mut engine = Engine::new(DEVICE);
    engine.answers = answers.iter().map(|(verb, answer)| (*verb, (*answer).to_owned())).collect();
    match played(&mut engine, text).outcome {
        Outcome::Unreadable(why) => why,
        other => panic!("{answers:?}: {other}"),
    }
}

const QUIET: &str = "qp q1 rc\n+0 post recv q1 id 1 len 64\n+0 quiet";

/// The ACK that a device sent: from its Ethernet header on.
fn an_ack() -> Vec<u8> {
    let text = script("rc/send-only-completes-one-receive.roce");
    let frames = played(&mut Engine::new(DEVICE), &text).frames;
    frames.into_iter().find(|frame| frame.outbound).expect("an ACK").bytes
}

#[test]
fn whoever_sends_without_end_ends_a_script() {
    let mut engine = Engine::new(DEVICE);
    engine.wire = vec![an_ack(); 1 << 14].into();
    let Outcome::Unreadable(why) = played(&mut engine, QUIET).outcome else { panic!("a flood") };
    assert_eq!(why, "x.roce:3: more comes than a script is about: over 4096 frames");
    for (answers, what) in [
        (("event", "ok n=1 event=99"), "events"),
        (("event", "ok n=1 event=0 cq=0"), "events"),
        (
            ("poll", &*format!("ok n=16{}", " wc=0,0,128,3,0,0,0,17".repeat(16))),
            "frames, completions and events that no line speaks of",
        ),
    ] {
        let what = format!("x.roce:3: more comes than a script is about: over 4096 {what}");
        assert_eq!(unreadable(&[answers], QUIET), what);
    }
}

#[test]
fn whoever_answers_too_slowly_ends_a_script() {
    let mut engine = Engine::new(DEVICE);
    engine.slow = Duration::from_secs(29);
    let text = "qp q1 rc\n".to_owned() + &"+0 post recv q1 id 1 len 8\n".repeat(15) + "+0 quiet";
    let Outcome::Unreadable(why) = played(&mut engine, &text).outcome else { panic!("it is slow") };
    assert!(why.ends_with(": it takes more than 600 s here"), "{why}");
}

#[test]
fn what_an_agent_says_is_taken_whole_or_not_at_all() {
    for (answers, why) in [
        (("pd", "okay pd=0"), "x.roce:1: the agent says: okay pd=0"),
        (
            ("mr", "ok mr=0 va=0 lkey=0x100000001 rkey=1"),
            "x.roce:1: the agent says lkey=0x100000001",
        ),
        (("qp", "ok qp=0 qpn=0x1000011"), "x.roce:1: the agent says qpn=0x1000011"),
        (
            ("qp", "ok qp=0 qpn=18446744073709551615"),
            "x.roce:1: the agent says qpn=18446744073709551615",
        ),
        (("poll", "ok wc=0,0,128,4294967296,0,0,0,17"), "wc=0,0,128,4294967296,0,0,0,17"),
        (("poll", "ok wc=0,0,128,3,0,0,0,0x1000011"), "wc=0,0,128,3,0,0,0,0x1000011"),
    ] {
        let said = unreadable(&[answers], QUIET);
        assert!(said.ends_with(why), "{said}");
    }
    let long = format!("ok pd={}", "9".repeat(50_000));
    assert_eq!(
        unreadable(&[("pd", &long)], QUIET),
        format!("x.roce:1: the agent says pd={}…", "9".repeat(200))
    );
}

/// A receive has room for 4 GiB, says the script; that so much came says the device.
#[test]
fn bytes_that_are_too_many_are_not_fetched() {
    let mut engine = Engine::new(DEVICE);
    let wc = "ok n=1 wc=0,0,128,4294967295,0,0,0,17".to_owned();
    engine.answers = vec![("poll", wc), ("recv", "ok".to_owned())];
    // Who asks for that much gets nothing.
    engine.answers.push(("peek", "ok".to_owned()));
    let text = "mr m1 len 8\nqp q1 rc\n+0 post recv q1 id 1 sge m1+0:4294967295\n\
                +0 completion recv id 1 ok \"abc\"";
    let Outcome::Failed(failure) = played(&mut engine, text).outcome else { panic!("4 GiB") };
    assert!(failure.what.ends_with("its data is 4294967295 bytes long, not 3"), "{failure}");
}

/// Makes the sum of an IP header right.
fn sum(ip: &mut [u8]) {
    let len = usize::from(ip[0] & 15) * 4;
    ip[10..12].fill(0);
    let words = ip[..len].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
}

#[test]
fn a_packet_of_a_stranger_is_none_of_the_device() {
    // Behind Ethernet's 14 bytes the IP header: its sum at 10, the addresses' ends at 15 and 19.
    let run = |changes: &[(usize, u8)]| {
        let mut frame = an_ack();
        let (_, ip) = frame.split_at_mut(14);
        changes.iter().for_each(|(at, byte)| ip[*at] = *byte);
        sum(ip);
        // Its opcode, behind UDP's header.
        ip[28] = 0xff;
        let mut engine = Engine::new(DEVICE);
        engine.strays = vec![frame];
        played(&mut engine, "qp q1 rc\n+0 quiet").outcome
    };
    let Outcome::Failed(failure) = run(&[]) else { panic!("it is the device's own") };
    assert!(failure.what.contains("a packet that is wrong"), "{failure}");
    for change in [(15, 77), (19, 77)] {
        let outcome = run(&[change]);
        assert!(matches!(outcome, Outcome::Passed { .. }), "{outcome}");
    }
}

#[test]
fn a_packet_whose_headers_are_wrong_breaks_a_silence() {
    type Spoil = fn(&mut Vec<u8>);
    let spoils: [(&str, Spoil); 4] = [
        ("its sum", |frame| frame[24] ^= 0xff),
        ("options", |frame| {
            frame[14] = 0x46;
            frame[17] += 4;
            frame.splice(34..34, [1; 4]);
            sum(&mut frame[14..]);
        }),
        ("more fragments", |frame| {
            frame[20] = 0x20;
            sum(&mut frame[14..]);
        }),
        ("the length that UDP says", |frame| frame[38] = 0xff),
    ];
    for (what, spoil) in spoils {
        let run = |source: u8| {
            let mut frame = an_ack();
            frame[29] = source;
            sum(&mut frame[14..]);
            spoil(&mut frame);
            let mut engine = Engine::new(DEVICE);
            engine.strays = vec![frame];
            played(&mut engine, "qp q1 rc\n+0 quiet").outcome
        };
        let Outcome::Failed(failure) = run(2) else { panic!("{what} is wrong") };
        assert!(failure.what.contains("a packet that is wrong"), "{what}: {failure}");
        let outcome = run(77);
        assert!(matches!(outcome, Outcome::Passed { .. }), "{what}, a stranger's: {outcome}");
    }
}

#[test]
fn what_comes_while_the_agent_answers_breaks_a_silence() {
    for last in ["", "+0 quiet\n"] {
        let mut engine = Engine::new(DEVICE);
        engine.late = Some(an_ack());
        let text = format!("qp q1 rc\n+0 state q1 rts\n{last}");
        let Outcome::Failed(failure) = played(&mut engine, &text).outcome else {
            panic!("it came")
        };
        assert!(failure.what.contains("> q1 ACK"), "{failure}");
    }
}

#[test]
fn times_and_offsets_at_the_end_of_their_range_overflow_nothing() {
    let text = format!("qp q1 rc timeout 1\n{}", "+18446744073s quiet\n".repeat(70_000));
    assert!(matches!(outcome(&text), Outcome::Skipped(_)));
    let run = |line: &str| {
        let mut engine = Engine::new(DEVICE);
        // An agent to which all places are one.
        let zeros = format!("ok hex={}", "00".repeat(4096));
        engine.answers = vec![("poke", "ok".to_owned()), ("peek", zeros)];
        played(&mut engine, &format!("mr m1 len 8\n+0 {line}\n+0 quiet")).outcome
    };
    let filled = run("fill m1+18446744073709551615 \"abc\"");
    assert!(matches!(filled, Outcome::Passed { .. }), "{filled}");
    let looked = run("memory m1+18446744073709551615 zeros(8192)");
    assert!(matches!(looked, Outcome::Passed { .. }), "{looked}");
}

#[test]
fn silences_take_time_too() {
    for (count, passes) in [(10, true), (1000, false)] {
        let text = format!("qp q1 rc\n{}", "+1us quiet\n".repeat(count));
        match outcome(&text) {
            Outcome::Passed { .. } => assert!(passes),
            other => assert_eq!((other, passes), (Outcome::Skipped("it takes 60 s".into()), false)),
        }
    }
}

#[test]
fn a_device_by_hand_that_says_nothing_has_shown_nothing() {
    let hand = ByHand { qpn: Qpn::new(5), address: DEVICE, va: 0, r_key: 0 };
    let terms = Terms { by_hand: Some(hand), first_peer: 0x100, ..terms() };
    let played = play_live("x.roce", QUIET.as_bytes(), &mut Engine::new(DEVICE), &terms);
    let why = "no frame of the device ever came: silence shows nothing";
    assert_eq!(played.outcome, Outcome::Skipped(why.to_owned()));
}
