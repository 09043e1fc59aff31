//! Rules as they are written, and what they do.

use proptest::prelude::*;

use super::*;

fn packet(qpn: u32, psn: u32) -> Subject {
    Subject { qpn: Qpn::new(qpn), psn: Psn::new(psn), len: 100 }
}

/// Which of packets 1 to `count` of one queue pair, with PSNs from 0 on, are dropped.
fn dropped(line: &str, count: u32) -> Vec<u32> {
    let mut faults = Faults::parse(line, 1).unwrap();
    (1..=count).filter(|&number| faults.judge(packet(17, number - 1)).drop).collect()
}

#[test]
fn rules_say_which_packets() {
    assert_eq!(dropped("drop psn 5 of qp 17 once", 10), [6]);
    assert_eq!(dropped("drop psn 5 of qp 18", 10), []);
    assert_eq!(dropped("drop psn 2..4", 10), [3, 4, 5]);
    assert_eq!(dropped("drop psn 0xfffffe..0x1", 10), [1, 2]);
    assert_eq!(dropped("drop every 3", 10), [3, 6, 9]);
    assert_eq!(dropped("drop packets 1,4", 10), [1, 4]);
    assert_eq!(dropped("drop 2 times", 10), [1, 2]);
    assert_eq!(dropped("drop every 2 psn 4..9 once", 10), [6]);
    assert_eq!(dropped("drop packets 1; drop packets 1", 3), [1, 2], "the lost one is not counted");
    assert_eq!(dropped(" ; ;", 3), []);
}

#[test]
fn a_packet_may_meet_several_rules() {
    let mut faults =
        Faults::parse("dup; delay 5us; delay 1ms..1ms; reorder by 3; mark; corrupt; truncate", 7)
            .unwrap();
    let verdict = faults.judge(packet(1, 1));
    assert_eq!((verdict.drop, verdict.copies, verdict.behind, verdict.mark), (false, 1, 3, true));
    assert_eq!(verdict.delay, Duration::from_micros(1005));
    assert!(verdict.flip.is_some_and(|bit| bit < 800));
    assert!(verdict.keep.is_some_and(|len| len < 100));
    let empty = faults.judge(Subject { len: 0, ..packet(1, 1) });
    assert_eq!((empty.flip, empty.keep), (None, None), "nothing is there to be damaged");
}

#[test]
fn microseconds_are_written_with_either_letter_too() {
    let expected = Faults::parse("delay 5us..40us", 7).unwrap().to_string();
    for micro in ["\u{b5}", "\u{3bc}"] {
        let faults = Faults::parse(&format!("delay 5{micro}s..40{micro}s"), 7).unwrap();
        assert_eq!(faults.to_string(), expected);
    }
}

#[test]
fn what_cannot_be_read_is_pointed_at() {
    for (line, column, what) in [
        ("lose 5%", 1, "no action"),
        ("drop 5%; dup sometimes", 14, "means nothing"),
        ("drop psn", 9, "is missing"),
        ("drop psn 16777216", 10, "is not a PSN"),
        ("drop 0%", 6, "no chance"),
        ("drop 101%", 6, "no chance"),
        ("drop 1.00001%", 6, "no chance"),
        ("drop every 0", 12, "is not how many"),
        ("drop 3", 6, "3 what? `3 times`, `3%` or `psn 3`"),
        ("drop 3 psn 5", 6, "3 what?"),
        ("delay 2%", 9, "a time"),
        ("delay 5ms..1ms", 7, "no time"),
        ("delay 5", 7, "no time"),
        ("drop 1%, dup 1%", 6, "rules have `;` between them"),
        ("drop by 3", 6, "means nothing"),
        ("drop packets 1,,2", 14, "a list"),
        ("drop of 17", 9, "is not `qp`"),
        ("drop 99999999999999999999 times", 6, "means nothing"),
    ] {
        let error = parse_rules(line).unwrap_err();
        assert_eq!(error.column, column, "{line}: {error}");
        assert!(error.to_string().contains(what), "{line}: {error}");
    }
}

#[test]
fn chance_is_as_often_as_it_says() {
    for (line, expected) in [("drop 1%", 1000), ("drop 10%", 10_000), ("drop 100%", 100_000)] {
        let hits = dropped(line, 100_000).len() as i64;
        assert!((hits - expected).abs() < expected / 5, "{line}: {hits}");
    }
}

fn which() -> impl Strategy<Value = Which> {
    let psn = || (0u32..1 << 24).prop_map(Psn::new);
    (
        0u32..=1_000_000,
        0u64..9,
        prop::collection::vec(1u64..100, 0..4),
        prop::option::of((psn(), psn())),
        prop::option::of((0u32..1 << 24).prop_map(Qpn::new)),
        0u64..9,
    )
        .prop_map(|(chance, every, packets, psn, qpn, times)| Which {
            chance,
            every,
            packets,
            psn,
            qpn,
            times,
        })
}

fn rule() -> impl Strategy<Value = Rule> {
    let nanos = || (0u64..1000).prop_map(Duration::from_nanos);
    let action = prop_oneof![
        Just(Action::Drop),
        Just(Action::Duplicate),
        (nanos(), nanos()).prop_map(|(a, b)| Action::Delay(a, a + b)),
        (1u32..9).prop_map(Action::Reorder),
        Just(Action::Corrupt),
        Just(Action::Truncate),
        Just(Action::Mark),
    ];
    (action, which()).prop_map(|(action, which)| Rule { action, which })
}

proptest! {
    #[test]
    fn what_is_shown_is_read_back(rules in prop::collection::vec(rule(), 0..4)) {
        let line = rules.iter().map(Rule::to_string).collect::<Vec<_>>().join("; ");
        prop_assert_eq!(parse_rules(&line).unwrap(), rules);
    }

    #[test]
    fn no_line_makes_the_parser_panic(line in "[a-z0-9 .%;,µ]{0,60}") {
        let _ = parse_rules(&line);
    }

    #[test]
    fn one_seed_gives_one_fate(
        rules in prop::collection::vec(rule(), 0..4),
        seed: u64,
        packets in prop::collection::vec((0u32..4, 0u32..50, 0usize..200), 0..100),
    ) {
        let mut one = Faults::new(rules.clone(), seed);
        let mut other = Faults::new(rules, seed);
        for (qpn, psn, len) in packets {
            let subject = Subject { qpn: Qpn::new(qpn), psn: Psn::new(psn), len };
            let verdict = one.judge(subject);
            prop_assert_eq!(verdict, other.judge(subject));
            prop_assert!(verdict.flip.is_none_or(|bit| bit < len * 8));
            prop_assert!(verdict.keep.is_none_or(|keep| keep < len));
            let lost = Verdict { drop: true, ..Verdict::default() };
            prop_assert!(!verdict.drop || verdict == lost);
        }
    }
}
