//! What a script that does not come true says.

use roxe_sim::script::{Failure, Outcome, Play, play, play_from, run_text};

fn failure(text: &str) -> Failure {
    match run_text("x.roce", text, &Play::default()) {
        Outcome::Failed(failure) => failure,
        other => panic!("{other}"),
    }
}

#[test]
fn a_failure_shows_the_line_what_came_instead_and_what_came_before() {
    let text = "qp q1 rc  expect-psn 100\n\
                +0 post recv q1 id 1 len 64\n\
                +1us < q1 SEND_ONLY psn 100 ack-req \"hello\"   # it is acknowledged\n\
                +0 > q1 ACK psn 101 msn 1 | NAK psn 100 code invalid-request";
    assert_eq!(
        failure(text).to_string(),
        "x.roce:4: +0 > q1 ACK psn 101 msn 1 | NAK psn 100 code invalid-request\n  \
         instead: > q1 ACK psn 100 msn 1\n  \
         psn is 100, not 101; it is an ACK\n  \
         before:\n          \
         0   1 qp q1 rc  expect-psn 100\n          \
         0   2 +0 post recv q1 id 1 len 64\n        \
         1us   3 +1us < q1 SEND_ONLY psn 100 ack-req \"hello\"\n        \
         1us     > q1 ACK psn 100 msn 1\n        \
         1us     completion q1 recv id 1 ok op recv len 5"
    );
}

#[test]
fn a_failure_says_why_queue_pairs_ended() {
    let text = "qp q1 rc\n\
                qp q2 rc\n\
                +0 < q1 OPCODE 0x15 psn 0\n\
                +0 event q1 access-error";
    let mut failure = failure(text);
    assert_eq!(failure.what, "instead: event q1 request-error");
    assert!(failure.to_string().contains("before:\n"), "{failure}");
    failure.before.clear();
    let told = failure.to_string();
    assert!(!told.contains("before:") && told.contains("q1 is in error"), "{told}");
    assert_eq!(
        failure.ended.last().map(String::as_str),
        Some(
            "q1 is in error: invalid request: the peer's opcode 0x15, PSN 0, 0 bytes: no such \
             request; answered with NAK invalid request (rule 04-4.6)"
        )
    );
}

/// A timer that was stopped with its queue pair ends for nobody.
#[test]
fn the_timer_of_a_queue_pair_that_ended_is_not_offered() {
    let text = "qp q1 rc timeout 8\n\
                +0 post send q1 \"x\"\n\
                +0 > q1 SEND_ONLY psn 0 ack-req \"x\"\n\
                +0 < q1 NAK psn 0 code remote-access\n\
                +0 completion send remote-access-error\n\
                +0 > q1 SEND_ONLY psn 0";
    assert_eq!(failure(text).what, "the device did nothing, and waits for nothing");
}

/// Each script with the end of what it must be told.
#[rustfmt::skip]
const WRONG: &[(&str, &str)] = &[
    ("qp q1 rc\n+0 post send q1 id 1 \"x\"", "the script ends here, but the device did more: > q1 SEND_ONLY psn 0 ack-req \"x\" (at 0)"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+1us quiet", "before this line the device did more: > q1 SEND_ONLY psn 0 ack-req \"x\" (at 0)"),
    ("qp q1 rc\n+0 > q1 ACK psn 0", "the device did nothing, and waits for nothing"),
    ("qp q1 rc timeout 8\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req \"x\"\n+1ms > q1 SEND_ONLY psn 0 ack-req \"x\"", "the device did nothing; its next timer ends at 1.048576ms"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 \"x\"", "\n  ack-req is set"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req \"y\"", "byte 0 of its data is 0x78, not 0x79: \"x\""),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req", "its data is 1 bytes long, not 0"),
    ("qp q1 rc timeout 8\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req \"x\"\n2ms..3ms > q1 SEND_ONLY psn 0 ack-req \"x\"", "it came at 1.048576ms, not at 2ms..3ms: > q1 SEND_ONLY psn 0 ack-req \"x\""),
    ("qp q1 rc\n+0 call modify q1 state rtr", "it failed: EINVAL, no step from rts to rtr"),
    ("qp q1 rc\n+0 call modify q1 state error fails EINVAL", "it succeeded, and should have failed: EINVAL"),
    ("qp q1 rc\n+0 call destroy q1 fails EBUSY", "it succeeded, and should have failed: EBUSY"),
    ("qp q1 rc\n+0 counter q1 ack_sent 1", "ack_sent is 0"),
    ("qp q1 rc\n+0 why q1 \"in * rtr\"", "instead: in state rts"),
    ("+0 counter icrc_bad 1", "icrc_bad is 0"),
    ("cm c1\n+0 counter c1 sent 1", "sent is 0"),
    ("cm c1\n+0 < c1 DREQ local-comm-id 1 remote-comm-id 2 remote-qpn 3\n+0 > c1 DREP local-comm-id 2 remote-comm-id 3", "instead: > c1 DREP local-comm-id 0x2 remote-comm-id 0x1\n  remote-comm-id is 0x1, not 0x3"),
    ("cm c1\n+0 < c1 DREQ local-comm-id 1 remote-comm-id 2 remote-qpn 3\n+0 > c1 DREP local-comm-id 2 remote-comm-id 1 tid 5", "tid is 0x200000001, not 0x5"),
    ("cm c1\n+0 < c1 DREQ local-comm-id 1 remote-comm-id 2 remote-qpn 3\n+0 > c1 DREP local-comm-id 2 remote-comm-id 1 \"x\"", "its data is 0 bytes long, not 1"),
    ("cm c1\n+0 < c1 DREQ local-comm-id 1 remote-comm-id 2 remote-qpn 3\n+0 > c1 RTU local-comm-id 2 remote-comm-id 1", "\n  it is a DREP"),
    ("cm c1\n+0 < c1 REQ local-comm-id 1 port 9 local-qpn 2 starting-psn 3\n+0 > c1 REJ local-comm-id 0 remote-comm-id 1 reason 8 ari-mtu 3", "\n  REJ has no `ari-mtu`"),
    ("cm c1\n+0 < c1 REQ local-comm-id 1 port 9 local-qpn 2 starting-psn 3", "the device did more: > c1 REJ local-comm-id 0x0 remote-comm-id 0x1 reason 8 (at 0)"),
    ("cm c1\nlisten l1 port 9\n+0 < c1 REQ local-comm-id 1 port 9 local-qpn 2 starting-psn 3 \"hi\"\n+0 event l1 connect-request as k1", "instead: event l1 connect-request from 192.0.2.2 source-port 40000 responder-resources 4 initiator-depth 4 \"hi\"\n  its data is 2 bytes long, not 0"),
    ("cm c1\n+0 call resolve r1 port 9\n+0 > c1 SIDR_REQ request-id r1.id port 9\n+9s quiet", "before this line the device did more: > c1 SIDR_REQ request-id 0x89025cc1 port 9 (at 6442.450944ms)"),
    ("mr m1 len 8\n+0 memory m1 \"x\"", "byte 0 of its data is 0x00, not 0x78: zeros(1)"),
    ("qp q1 rc\n+0 < q1 ACK psn 9 split 0xffff\n+0 counter ghost_response 0", "ghost_response is 1"),
    ("mr m1 len 8 access local-write\nqp q1 rc\n+0 post recv q1 id 1 sge m1+0:8,m1+0:4000000000\n+0 < q1 SEND_ONLY psn 0 \"x\"\n+0 completion recv id 1 ok \"y\"", "byte 0 of its data is 0x78, not 0x79: \"x\""),
];

/// Each script with where it is wrong, and how: no adapter is to blame.
#[rustfmt::skip]
const MISTAKEN: &[(&str, &str)] = &[
    ("", "1:1: there is no statement in it"),
    ("# only a comment", "1:1: there is no statement in it"),
    ("+0 < q1 SEND_ONLY psn 0", "1:6: q1 is no queue pair"),
    ("qp q1 rc\n+0 quiet ; state q2 rts", "2:18: q2 is no queue pair; did you mean `q1`?"),
    ("qp q1 rc\n+0 post send q1 \"x\" sge m2+8:4", "2:25: m2 is no memory region"),
    ("mr m1 len 8\nqp q1 rc\n+0 post read q1 va m2.va rkey m1.rkey len 8", "3:20: m2 is no object with `va`; did you mean `m1`?"),
    ("qp q1 rc\n+0 < q1 SEND_ONLY \"x\"", "2:4: this packet needs `psn`"),
    ("qp q1 rc\n+0 < q1 SEND_ONLY psn 0 va 8", "2:25: SEND_ONLY has no `va`"),
    ("qp q1 rc\n+0 < q1 OPCODE 0 psn 0 va 8", "2:24: OPCODE has no `va`"),
    ("qp q1 rc\n+0 < q1 NAK psn 0 code sequence-error timer 8", "2:39: NAK has no `timer`"),
    ("qp q1 rc\n+0 > q1 ACK psn 0 imm *", "2:19: ACK has no `imm`"),
    ("qp q1 ud\n+0 < q1 READ_REQUEST psn 0", "2:9: UD has no READ_REQUEST"),
    ("qp q1 ud\n+0 > q1 READ_REQUEST psn 0", "2:9: UD has no READ_REQUEST"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY ack-req \"x\"", "3:9: SEND_ONLY needs `psn`, or `psn *`"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req msn 0 \"x\"", "3:33: SEND_ONLY has no `msn`"),
    ("qp q1 rc\n+0 post write q1 \"x\" va 0", "2:4: this request needs `rkey`"),
    ("+0 counter no_such 0", "1:12: no_such is no counter"),
    ("+0 counter bad_icrc 0", "1:12: bad_icrc is no counter; did you mean `icrc_bad`?"),
    ("qp q1 rc\n+0 counter q1 cq_overrun 0", "2:15: cq_overrun is no counter of a queue pair"),
    ("mr m1 len 8\nmr m1 len 8", "2:4: m1 is there already"),
    ("qp q1 rc\n+0 call notify q1", "2:16: q1 is no object of this verb"),
    ("qp q1 rc\n+0 call hold q1", "2:14: q1 is no object of this verb"),
    ("qp q1 rc cq c2", "1:13: c2 is no completion queue; did you mean `cq`?"),
    ("qp q1 rc\ndevice seed 4", "2:1: `device` comes first"),
    ("qp q1 rc path-mtu 1000", "1:10: 1000 is no path MTU: 256, 512, 1024, 2048 or 4096"),
    ("mr m1 len 8 va 0x100000000\nqp q1 rc\n+0 quiet ; post send q1 imm m1.va", "3:25: `imm` must be from 0 to 0xffffffff, and is 0x100000000"),
    ("qp q1 rc\n+0 call modify q1 depth 8", "2:19: q1 has no `depth`"),
    ("srq s1\n+0 call modify s1 retry 1", "2:19: s1 has no `retry`"),
    ("qp q1 rc\n+0 < q1 ACK psn 0x1000000", "2:17: expected a number from 0 to 0xffffff, found `0x1000000`"),
    ("qp q1 rc\n+0 < q1 ACK psn 0 credits 32", "2:27: expected a number from 0 to 31, found `32`"),
    ("qp q1 rc depth 0x100000010", "1:16: expected a number from 0 to 0xffffffff, found `0x100000010`"),
    ("device vlan 4096\n+0 quiet", "1:13: expected a number from 0 to 4095, found `4096`"),
    ("qp q1 rc\n+0 < q1 WRITE_FIRST psn 0 va 0 rkey 0 len 0x100000000", "2:43: expected a number from 0 to 0xffffffff, found `0x100000000`"),
    ("qp q1 rc\n+0 post send q1 len 0x100000001", "2:21: expected a number from 0 to 0xffffffff, found `0x100000001`"),
    ("qp q1 rc\n+0 < q1 ACK psn 0 cut 4 padding 4", "2:25: `cut` and `padding` do not go together"),
    ("qp q1 rc\n+0 < q1 ACK psn 0 padding 65536", "2:27: expected a number from 0 to 0xffff, found `65536`"),
    ("cm c1\ncm c2", "2:4: the device has a connection manager"),
    ("listen l1 port 4444", "1:1: the device has no `cm`"),
    ("qp q1 rc\n+0 call connect k1 qp q1 port 4444", "2:4: the device has no `cm`"),
    ("cm c1\n+0 call connect k1 port 4444", "2:4: `connect` needs `qp`"),
    ("cm c1\nqp q1 rc\n+0 call accept q1 qp q1", "3:16: q1 is no object of this verb"),
    ("cm c1\nqp q1 rc\n+0 event q1 rejected reason 1", "3:10: q1 is no object with this event"),
    ("cm c1\nlisten l1 port 4444\n+0 event l1 connect-request", "3:4: connect-request needs `as`"),
    ("cm c1\n+0 < c1 REQ port 1", "2:4: REQ needs `local-comm-id`"),
    ("qp q1 rc\n+0 < q1 RTU local-comm-id 1 remote-comm-id 2", "2:9: RC has no RTU"),
    ("cm c1\n+0 < c1 RTU local-comm-id 1 remote-comm-id k1.id", "2:44: k1 is no object with `id`"),
    ("cm c1\n+0 < c1 DREP local-comm-id 1 remote-comm-id 2 zeros(225)", "2:4: DREP has room for 224 bytes of private data"),
    ("cm c1\n+0 counter c1 recieved 1", "2:15: recieved is no counter of a connection manager; did you mean `received`?"),
    ("mr m1 len 16777217", "1:1: a region of more than 16 MiB"),
    ("mr a len 16777216\nmr b len 16777216\nmr c len 16777216\nmr d len 16777216\nmr e len 1", "5:1: regions of more than 64 MiB together"),
];

#[test]
fn mistakes_of_a_script_are_told_with_their_place_and_are_no_failures() {
    for (text, told) in MISTAKEN {
        let outcome = run_text("x", text, &Play::default());
        assert_eq!(
            (outcome.exit_status(), outcome.to_string()),
            (2, format!("x:{told}")),
            "{text}"
        );
    }
}

/// What can be seen without running is told without running, and all of it.
#[test]
fn every_mistake_is_told_before_anything_runs() {
    let text = "qp q1 rc\n+0 counter icrc_bad 1\n+0 state q2 rts\nqp q1 rc\n+0 quiet";
    let told = run_text("x", text, &Play::default()).to_string();
    let two = "x:3:10: q2 is no queue pair; did you mean `q1`?\nx:4:4: q1 is there already";
    assert_eq!(told, two);
    let told = run_text("x", "+5 quiet\n+0 quiet\n+0 quite", &Play::default()).to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "x:1:1: expected a time with its unit: ns, us, ms or s, found `+5`");
    assert!(lines[1].starts_with("x:3:4: expected what happens"), "{told}");
    assert!(lines[1].ends_with("found `quite`; did you mean `quiet`?"), "{told}");
}

#[test]
fn every_difference_is_told() {
    for (text, end) in WRONG {
        let what = failure(text).what;
        assert!(what.ends_with(end), "{text}\n{what}");
    }
}

/// The first moment of a time range belongs to it, as the last does.
#[test]
fn what_happens_at_once_is_between() {
    let text = |times: &str| {
        format!(
            "qp q1 rc\n+0 post send q1 id 1 \"abc\"\n{times} > q1 SEND_ONLY psn 0 ack-req \"abc\""
        )
    };
    for times in ["0ns..10ms", "0..0", "+0"] {
        let outcome = run_text("x.roce", &text(times), &Play::default());
        assert_eq!(outcome.to_string(), "ok, 3 statements", "{times}");
    }
    let early = failure(&text("1ns..10ms")).what;
    assert!(early.starts_with("before this line the device did more: > q1 SEND_ONLY"), "{early}");
    let other =
        "qp q1 rc\nqp q2 rc\n+0 post send q2 \"x\"\n0..1s > q1 SEND_ONLY psn 0 ack-req \"x\"";
    assert!(failure(other).what.starts_with("instead the device did this: > q2 SEND_ONLY"));
}

#[test]
fn a_script_writes_no_more_bytes_than_fit() {
    let text = "+0 quiet\n".to_owned() + &"mr m1 len 8\n+0 fill m1 zeros(1048576)\n".repeat(65);
    let outcome = run_text("x.roce", &text, &Play::default());
    let expected = "x.roce:131:12: expected a script of no more than 64 MiB of bytes, \
                    found `zeros(1048576)`";
    assert_eq!(outcome.to_string(), expected);
}

/// A short script can make a device send much.
#[test]
fn what_no_line_speaks_of_is_not_kept_without_end() {
    let mut text = "device path-mtu 256\nmr m1 len 16777216 access remote-read\n\
                    qp q1 rc path-mtu 256 max-dest-rd-atomic 100\n"
        .to_owned();
    for read in 0..100 {
        let psn = read << 16;
        text += &format!("+0 < q1 READ_REQUEST psn {psn} va m1.va rkey m1.rkey len 16777216\n");
    }
    let told = failure(&(text + "+0 quiet")).what;
    assert!(told.starts_with("the device did this: > q1 READ_RESPONSE_FIRST psn 0 "), "{told}");
}

#[test]
fn a_line_of_many_statements_is_not_kept_for_each_of_them() {
    let text = "qp q1 rc\n+0 quiet".to_owned() + &" · quiet".repeat(200_000) + " · state q1 error";
    let failure = failure(&text);
    assert_eq!((failure.what.as_str(), failure.text.chars().count()), ("q1 is in state rts", 401));
    assert!(failure.to_string().len() < 10_000);
}

#[test]
fn a_long_word_is_not_repeated_whole() {
    let outcome = run_text("x.roce", &"\0".repeat(1 << 20), &Play::default());
    assert_eq!((outcome.exit_status(), outcome.to_string().len() < 400), (2, true));
}

#[test]
fn a_file_is_read_as_far_as_it_may_be_a_script() {
    let run = |bytes: &[u8]| {
        let told = play_from("x.roce", bytes, &Play::default()).outcome;
        (told.exit_status(), told.to_string())
    };
    assert_eq!(run(b"\xef\xbb\xbfqp q1 rc\r\n+0 quiet\r\n"), (0, "ok, 2 statements".to_owned()));
    let (status, told) = run(b"\xff\xfeq\0p\0");
    assert!(status == 2 && told.ends_with("x.roce: no script: it is no text in UTF-8"), "{told}");
    let endless = play_from("zeros", std::io::repeat(0), &Play::default()).outcome;
    let expected = "zeros: no script: it has more than 16777216 bytes";
    assert_eq!((endless.exit_status(), endless.to_string().as_str()), (2, expected));
    // A folder opens, and cannot be read.
    let folder = std::fs::File::open(".").unwrap();
    let folder = play_from("folder", folder, &Play::default()).outcome;
    assert!(folder.to_string().starts_with("folder: cannot be read: "), "{folder}");
    assert_eq!(folder.exit_status(), 2);
}

#[test]
fn exit_statuses_are_those_of_all_commands() {
    let status = |text: &str| run_text("x.roce", text, &Play::default()).exit_status();
    let statuses = ["+0 quiet", "+0 counter icrc_bad 1", "+0 what"].map(status);
    assert_eq!(statuses, [0, 1, 2]);
}

/// Frames that leave at once are told apart by the lines that speak of them.
#[test]
fn a_frame_has_the_line_that_speaks_of_it() {
    let text = "qp q1 rc  expect-psn 100 send-psn 500\n\
                +0 post write q1 id 1 va 0 rkey 7 \"a\"\n\
                +0 post write q1 id 2 va 0 rkey 7 \"b\"\n\
                +0 > q1 WRITE_ONLY psn 500 va 0 rkey 7 len 1 ack-req \"a\"\n\
                +0 > q1 WRITE_ONLY psn 501 va 0 rkey 7 len 1 ack-req \"b\"\n\
                +0 < q1 ACK psn 501 msn 2\n\
                +0 completion send id 1 ok ; completion send id 2 ok\n\
                +0 < q1 SEND_ONLY psn 101 \"gap\"";
    let played = play("x.roce", text, &Play { frames: true, ..Play::default() }).frames;
    let lines: Vec<(bool, &str)> = played
        .iter()
        .map(|frame| (frame.outbound, frame.comment.split(": ").next().unwrap()))
        .collect();
    let expected = [(true, "line 4"), (true, "line 5"), (false, "line 6"), (false, "line 8")];
    assert_eq!(lines[..4], expected);
    // It has no line, and the script ends too early.
    assert_eq!(played[4].comment, "line 8: expected: nothing more; instead this");
}

#[test]
fn the_frame_at_which_a_script_fails_says_what_was_expected() {
    let told = |last: &str| {
        let text = format!(
            "qp q1 rc  expect-psn 100\n+0 post recv q1 id 1 len 8\n\
             +0 < q1 SEND_ONLY psn 100 ack-req \"x\"\n{last}"
        );
        let played = play("x.roce", &text, &Play { frames: true, ..Play::default() });
        assert!(matches!(played.outcome, Outcome::Failed(_)), "{}", played.outcome);
        let comments = played.frames.into_iter().map(|frame| frame.comment);
        comments.map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let sent = "line 3: +0 < q1 SEND_ONLY psn 100 ack-req \"x\"";
    // What came is the frame itself, and how it differs.
    let found = told("+0 > q1 ACK psn 100 msn 2");
    let expected = "line 4: expected: +0 > q1 ACK psn 100 msn 2; instead this: msn is 1, not 2";
    assert_eq!(found, [sent, expected]);
    // It came where a completion was waited for.
    let found = told("+1s quiet");
    assert_eq!(found[1], "line 4: expected: nothing more; instead this");
    // No frame came instead.
    let found = told("+0 > q1 ACK psn 100 msn 1\n+0 completion recv id 1 ok len 2");
    let head = "line 4: +0 > q1 ACK psn 100 msn 1; then line 5: expected: +0 completion recv id 1 \
                ok len 2; instead: completion q1 recv id 1 ok";
    assert!(found[1].starts_with(head), "{}", found[1]);
    assert!(found[1].ends_with(", len is 1, not 2"), "{}", found[1]);
    // Nor here, though one waits for the line that speaks of it.
    for last in ["+0 completion recv id 1 ok len 2", "+0 counter icrc_bad 1"] {
        let found = told(last);
        let head = format!("line 4: expected: {last}; ");
        assert!(found[1].starts_with(&head) && !found[1].contains("instead this"), "{}", found[1]);
    }
}
