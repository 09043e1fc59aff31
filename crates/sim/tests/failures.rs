//! What a script that does not come true says.

use roxe_sim::script::{Failure, Options, Outcome, run_text};

fn failure(text: &str) -> Failure {
    match run_text("x.roce", text, &Options::default()) {
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
         psn is 100, not 101; it is a ACK\n  \
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
    let failure = failure(text);
    assert_eq!(failure.what, "instead: event q1 request-error");
    assert_eq!(
        failure.before.last().map(String::as_str),
        Some(
            "q1 is in error: invalid request: the peer's opcode 0x15, PSN 0, 0 bytes: no such \
             request; answered with NAK invalid request (rule 04-4.6)"
        )
    );
}

/// Each script with the end of what it must be told.
#[rustfmt::skip]
const WRONG: &[(&str, &str)] = &[
    ("+0 < q1 SEND_ONLY psn 0", "q1 is no queue pair"),
    ("qp q1 rc\n+0 < q1 SEND_ONLY \"x\"", "this packet needs `psn`"),
    ("qp q1 ud\n+0 < q1 READ_REQUEST psn 0", "UD has no READ_REQUEST"),
    ("qp q1 rc\n+0 post send q1 id 1 \"x\"", "the script ends here, but the device did more: > q1 SEND_ONLY psn 0 ack-req \"x\" (at 0)"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+1us quiet", "before this line the device did more: > q1 SEND_ONLY psn 0 ack-req \"x\" (at 0)"),
    ("qp q1 rc\n+0 > q1 ACK psn 0", "the device did nothing"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 \"x\"", "ack-req is set, not not set"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY ack-req \"x\"", "say `psn`, or `psn *`"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req \"y\"", "byte 0 of its data is 0x78, not 0x79: \"x\""),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req", "it has 1 bytes of data, not 0"),
    ("qp q1 rc\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req msn 0 \"x\"", "SEND_ONLY has no `msn`"),
    ("qp q1 rc timeout 8\n+0 post send q1 \"x\"\n+0 > q1 SEND_ONLY psn 0 ack-req \"x\"\n2ms..3ms > q1 SEND_ONLY psn 0 ack-req \"x\"", "it came at 1.048576ms, not at 2ms..3ms: > q1 SEND_ONLY psn 0 ack-req \"x\""),
    ("qp q1 rc\n+0 call modify q1 state rtr", "it failed: EINVAL, no step from rts to rtr"),
    ("qp q1 rc\n+0 call modify q1 state error fails EINVAL", "it succeeded, and should have failed: EINVAL"),
    ("qp q1 rc\n+0 call destroy q1 fails EBUSY", "it succeeded, and should have failed: EBUSY"),
    ("+0 counter no_such 0", "no counter is called no_such"),
    ("qp q1 rc\n+0 counter q1 cq_overrun 0", "no counter is called cq_overrun"),
    ("qp q1 rc\n+0 counter q1 ack_sent 1", "ack_sent is 0"),
    ("qp q1 rc\n+0 why q1 \"in * rtr\"", "instead: in state rts"),
    ("+0 counter icrc_bad 1", "icrc_bad is 0"),
    ("mr m1 len 8\n+0 memory m1 \"x\"", "byte 0 of its data is 0x00, not 0x78: zeros(1)"),
    ("mr m1 len 8\nmr m1 len 8", "m1 is there already"),
    ("qp q1 rc\ndevice seed 4", "`device` comes first"),
    ("qp q1 rc\n+0 < q1 ACK psn 0 padding 65536", "padding of more than 65535 bytes"),
    ("qp q1 rc\n+0 < q1 ACK psn 9 split 0xffffffffffffffff\n+0 counter ghost_response 0", "ghost_response is 1"),
    ("qp q1 rc\n+0 < q1 ACK psn 0x1000000", "`psn` has 24 bits: 16777216 is too large"),
    ("qp q1 rc\n+0 < q1 ACK psn 0 credits 32", "`credits` has 5 bits: 32 is too large"),
    ("qp q1 rc depth 0x100000010", "`depth` has 32 bits: 4294967312 is too large"),
    ("qp q1 rc retry 256", "`retry` has 8 bits: 256 is too large"),
    ("device vlan 4096\n+0 quiet", "`vlan` has 12 bits: 4096 is too large"),
    ("qp q1 rc\n+0 < q1 WRITE_FIRST psn 0 va 0 rkey 0 len 0x100000000", "`len` has 32 bits"),
    ("qp q1 rc\n+0 post send q1 len 0x100000001", "`len` of a request has 32 bits"),
    ("qp q1 rc\n+0 < q1 ACK psn 0 cut 4 padding 4", "`cut` and `padding` do not go together"),
    ("mr m1 len 16777217", "a region of more than 16 MiB"),
    ("mr a len 16777216\nmr b len 16777216\nmr c len 16777216\nmr d len 16777216\nmr e len 1", "regions of more than 64 MiB together"),
    ("mr m1 len 8 access local-write\nqp q1 rc\n+0 post recv q1 id 1 sge m1+0:8,m1+0:4000000000\n+0 < q1 SEND_ONLY psn 0 \"x\"\n+0 completion recv id 1 ok \"y\"", "byte 0 of its data is 0x78, not 0x79: \"x\""),
    ("qp q1 rc\n0..1us quiet", "only what the device does can have a time range"),
];

#[test]
fn every_difference_is_told() {
    for (text, end) in WRONG {
        let what = failure(text).what;
        assert!(what.ends_with(end), "{text}\n{what}");
    }
}

#[test]
fn a_script_writes_no_more_bytes_than_fit() {
    let text = "+0 quiet\n".to_owned() + &"mr m1 len 8\n+0 fill m1 zeros(1048576)\n".repeat(65);
    let outcome = run_text("x.roce", &text, &Options::default());
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
    let outcome = run_text("x.roce", &"\0".repeat(1 << 20), &Options::default());
    assert_eq!((outcome.exit_status(), outcome.to_string().len() < 400), (2, true));
}

#[test]
fn a_file_is_read_as_far_as_it_may_be_a_script() {
    let options = Options::default();
    let folder = std::env::temp_dir().join(format!("roxe-script-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let run = |bytes: &[u8]| {
        let file = folder.join("x.roce");
        std::fs::write(&file, bytes).unwrap();
        let told = roxe_sim::script::run_file(&file, &options);
        (told.exit_status(), told.to_string())
    };
    assert_eq!(run(b"\xef\xbb\xbfqp q1 rc\r\n+0 quiet\r\n"), (0, "ok, 2 statements".to_owned()));
    let (status, told) = run(b"\xff\xfeq\0p\0");
    assert!(status == 2 && told.ends_with("x.roce: no script: it is no text in UTF-8"), "{told}");
    std::fs::remove_dir_all(&folder).unwrap();
    let endless = roxe_sim::script::run_file("/dev/zero".as_ref(), &options);
    let expected = "/dev/zero: no script: it has more than 16777216 bytes";
    assert_eq!((endless.exit_status(), endless.to_string().as_str()), (2, expected));
}

#[test]
fn exit_statuses_are_those_of_all_commands() {
    let status = |text: &str| run_text("x.roce", text, &Options::default()).exit_status();
    assert_eq!((status("+0 quiet"), status("+0 counter x 0"), status("+0 what")), (0, 1, 2));
    let missing = roxe_sim::script::run_file("no such file".as_ref(), &Options::default());
    assert_eq!(missing.exit_status(), 2);
}
