use super::*;

fn error(text: &str) -> String {
    parse("x.roce", text).expect_err(text).to_string()
}

#[test]
fn errors_say_where_and_what_was_expected() {
    assert_eq!(
        error("qp q1 rc\n+0 post recv q1 idd 4"),
        "x.roce:2:17: expected one of id, len, sge, lkey, found `idd`"
    );
    assert_eq!(error("qp q1 xrc"), "x.roce:1:7: expected a service: rc, uc, ud, gsi, found `xrc`");
    assert_eq!(
        error("+0 <"),
        "x.roce:1:5: expected a queue pair's name, found the end of the line"
    );
    assert_eq!(error("+0 memory m1 \"open"), "x.roce:1:14: expected a second quote, found none");
    assert_eq!(
        error("+0 quiet quiet"),
        "x.roce:1:10: expected `·` or the end of the line, found `quiet`"
    );
    let wrong_time = error("1us quiet");
    assert!(wrong_time.starts_with("x.roce:1:1: expected a time (+0, +1us, 1ms..2ms)"));
    assert!(error("+0 post recv q1 id").contains("expected a number"));
    assert!(error("+0 post recv q1 id 1 id 2").contains("`id` only once"));
    assert!(error("+0 > q1 NAK psn 1 code nonsense").contains("sequence-error"));
    assert!(error("+0 call modify q1 state rts fails EWHAT").contains("EINVAL, ENOMEM, EBUSY"));
    assert!(error("+0 > q1 ACK psn 1 || ACK psn 2").contains("found `||`"));
}

#[test]
fn several_statements_share_a_line_and_its_time() {
    let script = parse("x", "+1us event q1 drained · counter icrc_bad 1 · quiet # so").unwrap();
    let whens: Vec<_> = script.lines.iter().map(|line| line.when).collect();
    assert_eq!(whens, [When::After(Duration::from_micros(1)), When::SAME, When::SAME]);
    assert_eq!(&*script.lines[2].text, "+1us event q1 drained · counter icrc_bad 1 · quiet");
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
    let minus = Expression { symbol: symbol("m-1", "va"), plus: 8u64.wrapping_neg() };
    assert_eq!(parse_expression("m-1.va-8"), Some(minus));
    assert_eq!(parse_expression("m1.size"), None);
    assert_eq!(parse_pieces("m1+8:4,m2:1").map(|pieces| pieces.len()), Some(2));
    assert_eq!(parse_pieces("m1+8"), None);
}
