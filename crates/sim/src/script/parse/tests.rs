use super::*;

fn error(text: &str) -> String {
    let errors = parse("x.roce", text).expect_err(text);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn errors_say_where_and_what_was_expected() {
    assert_eq!(
        error("qp q1 rc\n+0 post recv q1 idd 4"),
        "x.roce:2:17: expected one of id, len, sge, lkey, found `idd`; did you mean `id`?"
    );
    assert_eq!(
        error("qp q1 xrc"),
        "x.roce:1:7: expected a service: rc, uc, ud, gsi, found `xrc`; did you mean `rc`?"
    );
    assert_eq!(
        error("+0 <"),
        "x.roce:1:5: expected a queue pair's name, found the end of the line"
    );
    assert_eq!(error("+0 memory m1 \"open"), "x.roce:1:14: a second quote is missing");
    assert_eq!(
        error("+0 quiet quiet"),
        "x.roce:1:10: expected `;` or the end of the line, found `quiet`"
    );
    let wrong_time = error("1us quiet");
    assert!(wrong_time.starts_with("x.roce:1:1: expected a time (+0, +1us, 1ms..2ms)"));
    let whole = "a time of whole nanoseconds, up to 18446744073s, A..B with B not before A";
    for time in [
        "+0.0001us",
        "+1.5ns",
        "+99999999999999999999s",
        "+18446744074s",
        "0..18446744073.9999999999s",
        "2us..1us",
    ] {
        assert_eq!(
            error(&format!("{time} quiet")),
            format!("x.roce:1:1: expected {whole}, found `{time}`")
        );
    }
    assert!(parse("x.roce", "+1.0000us quiet").is_ok(), "zeros are no further digits");
    assert!(error("+0 post recv q1 id").contains("expected a number"));
    assert!(error("+0 post recv q1 id 1 id 2").ends_with("`id` stands here twice"));
    assert!(error("+0 > q1 NAK psn 1 code nonsense").contains("sequence-error"));
    assert!(error("+0 call modify q1 state rts fails EWHAT").contains("EINVAL, ENOMEM, EBUSY"));
    assert!(error("+0 > q1 ACK psn 1 || ACK psn 2").contains("found `||`"));
    assert!(error("0..1us quiet").contains(":8: expected `>`, completion or event behind a time"));
    assert!(error("qp q1 rc expct-psn 4").ends_with("`expct-psn`; did you mean `expect-psn`?"));
    assert!(error("+0 < q1 SEND_ONY psn 4").ends_with("`SEND_ONY`; did you mean `SEND_ONLY`?"));
    assert!(error("+0 post recv q1 id 1 length 64").ends_with("did you mean `len`?"));
    let rights = error("mr m1 len 64 access remote-read,remote-wirte");
    assert!(rights.ends_with("did you mean `remote-write`?"), "{rights}");
    let request = error("+0 post sned q1");
    assert!(request.contains("expected a request (or recv): send, "), "{request}");
    assert!(error("devise seed 4").ends_with("did you mean `device`?"));
    assert!(error("+0 < c1 REP local-qp 4").ends_with("`local-qp`; did you mean `local-qpn`?"));
    assert!(error("+0 > c1 REP class 4").contains("expected one of local-comm-id, remote-comm-id"));
    assert!(error("+0 < c1 SIDR_RPE").ends_with("did you mean `SIDR_REP`?"));
    let request = error("+0 event l1 connect-request reason 8");
    assert!(request.contains("expected one of as, from, source-port, "), "{request}");
    assert!(
        error("+0 event k1 unreachable reason 4").contains("expected the end of the statement")
    );
    assert!(error("+0 < c1 MRA message req-uest").contains("a word: req, rep, other, reserved"));
    assert!(error("+0 call conect k1").ends_with("did you mean `connect`?"));
    assert!(error("+0 completion recv id 1 okay").contains("did you mean `ok`?"));
}

#[test]
fn numbers_fit_where_they_go() {
    for (text, range) in [
        ("qp q1 rc expect-psn 0x1000005", "expected a number from 0 to 0xffffff"),
        ("qp q1 rc timeout 32", "expected a number from 0 to 31"),
        ("mw w1 type 3", "expected a number from 1 to 2"),
        ("+0 < q1 SEND_ONLY psn 0x1000005", "expected a number from 0 to 0xffffff"),
        ("+0 < q1 SEND_ONLY psn 0 qpn 0x1000011", "expected a number from 0 to 0xffffff"),
        ("+0 > q1 SEND_ONLY_IMM psn 0 imm 0x1ffffffff", "expected a number from 0 to 0xffffffff"),
        ("+0 < q1 RNR_NAK psn 0 timer 40", "expected a number from 0 to 31"),
        ("+0 < q1 ACK psn 0 padding 65536", "expected a number from 0 to 0xffff"),
        ("+0 post recv q1 len 0x100000000", "expected a number from 0 to 0xffffffff"),
    ] {
        let told = error(text);
        let (_, word) = told.split_once(", found `").expect("what was found");
        let column = text.find(word.trim_end_matches('`')).expect("a word of it") + 1;
        assert!(told.starts_with(&format!("x.roce:1:{column}: {range}, found ")), "{told}");
    }
    assert!(parse("x", "qp q1 rc expect-psn 0xffffff\n+0 < q1 RNR_NAK psn 0 timer 31").is_ok());
}

#[test]
fn several_statements_share_a_line_and_its_time() {
    let script = parse("x", "+1us event q1 drained · counter icrc_bad 1 ; quiet # so").unwrap();
    let whens: Vec<_> = script.lines.iter().map(|line| line.when).collect();
    assert_eq!(whens, [When::After(Duration::from_micros(1)), When::SAME, When::SAME]);
    assert_eq!(&*script.lines[2].text, "+1us event q1 drained · counter icrc_bad 1 ; quiet");
}

#[test]
fn times_are_exact_to_the_nanosecond() {
    let times = [
        ("0", 0),
        ("1ns", 1),
        ("4.096us", 4_096),
        ("67.108864ms", 67_108_864),
        ("2s", 2_000_000_000),
    ];
    for (text, nanos) in times {
        assert_eq!(parse_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        assert_eq!(show_instant(Instant::from_nanos(nanos)), text);
    }
    for wrong in ["", "1", "us", "1.0001ns", "1min", "-1s", "1.x2s", "99999999999999999999s"] {
        assert_eq!(parse_duration(wrong), None, "{wrong}");
    }
    assert_eq!(parse_when("2ms..1ms"), None);
}

#[test]
fn bytes_and_numbers_are_read() {
    assert_eq!(parse_payload("hex:00fF"), Some(vec![0, 255]));
    assert_eq!(parse_payload("pattern(250..253)"), Some(vec![250, 0, 1]));
    assert_eq!(parse_payload("zeros(2)"), Some(vec![0, 0]));
    for wrong in ["hex:0", "hex:0g", "zeros(2", "zeros(2..1)", "zeros(9999999)", "other(1)"] {
        assert_eq!(parse_payload(wrong), None, "{wrong}");
    }
    assert_eq!(parse_number("0xdead_0000"), Some(0xdead_0000));
    assert_eq!((parse_number("_1"), parse_number("+1"), parse_number("0x")), (None, None, None));
    let symbol = |object: &str, part: &str| Some((object.to_owned(), part.to_owned()));
    let minus =
        Expression { symbol: symbol("m-1", "va"), plus: 8u64.wrapping_neg(), most: u64::MAX };
    assert_eq!(parse_expression("m-1.va-8"), Some(minus));
    assert_eq!(parse_expression("m1.size"), None);
    assert_eq!(parse_pieces("m1+8:4,m2:1").map(|pieces| pieces.len()), Some(2));
    assert_eq!(parse_pieces("m1+8"), None);
}
