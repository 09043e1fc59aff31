//! The reaction point beside a second one, written in another language from the paper's formulas:
//! `tests/congestion/dcqcn.py`. 1,000 random sequences of notifications, bytes and waits.

use std::fmt::Write as _;
use std::time::Duration;

use roxe_transport::congestion::reaction_point::Form;
use roxe_transport::congestion::{Dcqcn, Rate, ReactionPoint};
use roxe_wire::Instant;

use model::Numbers;

mod model;

const SEQUENCES: u64 = 1000;
const EVENTS: usize = 100;

#[derive(Clone, Copy)]
enum Event {
    Cnp,
    Sent(u64),
    Look,
}

/// A preset, mostly with some parameters changed.
fn parameters(numbers: &mut Numbers) -> Dcqcn {
    let preset = numbers.one_of(&[Dcqcn::MLX5, Dcqcn::PAPER]);
    if numbers.below(4) == 0 {
        return preset;
    }
    let micros = |numbers: &mut Numbers, all: &[u64]| Duration::from_micros(numbers.one_of(all));
    Dcqcn {
        rp_dce_tcp_g: numbers.one_of(&[preset.rp_dce_tcp_g, 1000, 512]),
        rp_dce_tcp_rtt: micros(numbers, &[1, 10, 55]),
        rp_time_reset: micros(numbers, &[55, 300]),
        rp_byte_reset: numbers.one_of(&[0, 32_767, 1_000_000]),
        rp_threshold: numbers.one_of(&[1, 3, 5]),
        rp_min_rate: Rate::from_mbps(numbers.one_of(&[1, 100])),
        rp_max_rate: Rate::from_mbps(numbers.one_of(&[0, 0, 25_000])),
        rp_initial_alpha_value: numbers.one_of(&[1023, 512, 0]),
        rp_min_dec_fac: numbers.one_of(&[50, 80]),
        rp_rate_reduce_monitor_period: micros(numbers, &[0, 4, 50]),
        rp_rate_to_set_on_first_cnp: Rate::from_mbps(numbers.one_of(&[0, 0, 10_000])),
        rp_clamp_tgt_rate: numbers.below(2) == 0,
        rp_clamp_tgt_rate_ati: numbers.below(2) == 0,
        rp_gd: numbers.one_of(&[11, 11, 12]),
        ..preset
    }
}

/// What happens, in the order of time.
fn events(numbers: &mut Numbers) -> Vec<(u64, Event)> {
    let mut now = 0;
    let mut event = |_| {
        let longest = numbers.one_of(&[2_000, 20_000, 400_000]);
        let wait = numbers.below(longest);
        // Often at the same moment as a timer.
        now += numbers.one_of(&[wait, 1_000, 4_000, 55_000]);
        let event = match numbers.below(4) {
            0 => Event::Cnp,
            1 => Event::Look,
            _ => Event::Sent(numbers.below(100_000)),
        };
        (now, event)
    };
    (0..EVENTS).map(&mut event).collect()
}

/// A sequence as the other one reads it.
fn line(dcqcn: &Dcqcn, line_rate: Rate, events: &[(u64, Event)]) -> String {
    let nanos = |time: Duration| time.as_nanos();
    let bits = |rate: Rate| rate.bits_per_second();
    let form = if dcqcn.form == Form::Paper { "paper" } else { "mlx5" };
    let mut line = format!(
        r#"{{"line_rate": {:?}, "form": "{form}", "g": {:?}, "alpha_period": {}, "#,
        bits(line_rate),
        1.0 - f64::from(dcqcn.rp_dce_tcp_g) / 1024.0,
        nanos(dcqcn.rp_dce_tcp_rtt),
    );
    let (period, cut) = (dcqcn.rp_time_reset, dcqcn.rp_rate_reduce_monitor_period);
    let (clamp, ati) = (dcqcn.rp_clamp_tgt_rate, dcqcn.rp_clamp_tgt_rate_ati);
    let initial = f64::from(dcqcn.rp_initial_alpha_value) / 1023.0;
    let rates = [
        ("ai_rate", dcqcn.rp_ai_rate),
        ("hai_rate", dcqcn.rp_hai_rate),
        ("min_rate", dcqcn.rp_min_rate),
        ("max_rate", dcqcn.rp_max_rate),
        ("first_cnp_rate", dcqcn.rp_rate_to_set_on_first_cnp),
    ];
    for (name, rate) in rates {
        write!(line, r#""{name}": {:?}, "#, bits(rate)).unwrap();
    }
    write!(
        line,
        r#""increase_period": {}, "cut_period": {}, "byte_reset": {}, "threshold": {},
"gd": {}, "min_dec_fac": {:?}, "initial_alpha": {initial:?}, "clamp": {clamp}, "clamp_ati": {ati},
"events": ["#,
        nanos(period),
        nanos(cut),
        dcqcn.rp_byte_reset,
        dcqcn.rp_threshold,
        dcqcn.rp_gd,
        f64::from(dcqcn.rp_min_dec_fac) / 100.0,
    )
    .unwrap();
    for (index, (now, event)) in events.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        match event {
            Event::Cnp => write!(line, r#"{comma}["cnp", {now}]"#),
            Event::Sent(bytes) => write!(line, r#"{comma}["sent", {now}, {bytes}]"#),
            Event::Look => write!(line, r#"{comma}["look", {now}]"#),
        }
        .unwrap();
    }
    line.push_str("]}");
    line.replace('\n', " ")
}

/// What ours says after each event.
fn ours(dcqcn: Dcqcn, line_rate: Rate, events: &[(u64, Event)]) -> Vec<f64> {
    let mut point = ReactionPoint::new(dcqcn, line_rate);
    let mut rates = Vec::new();
    for &(now, event) in events {
        let now = Instant::from_nanos(now);
        while let Some(change) = point.next_change().filter(|change| *change <= now) {
            point.change(change);
        }
        match event {
            Event::Cnp => point.notified(now),
            Event::Sent(bytes) if point.is_limiting() => point.sent(bytes),
            Event::Sent(_) | Event::Look => {}
        }
        rates.extend([point.rate(), point.target()].map(Rate::bits_per_second));
    }
    rates
}

//= C04 test
#[test]
fn rates_are_what_the_formulas_give() {
    let mut sequences = Vec::new();
    let mut input = String::new();
    for seed in 0..SEQUENCES {
        let mut numbers = Numbers(seed);
        let line_rate = Rate::from_mbps(numbers.one_of(&[1_000, 40_000, 400_000]));
        let (dcqcn, events) = (parameters(&mut numbers), events(&mut numbers));
        input.push_str(&line(&dcqcn, line_rate, &events));
        input.push('\n');
        sequences.push((dcqcn, line_rate, events));
    }
    let text = model::ask("dcqcn", input);
    let mut compared = 0;
    for ((dcqcn, line_rate, events), theirs) in sequences.iter().zip(text.lines()) {
        let ours = ours(*dcqcn, *line_rate, events);
        let theirs = model::numbers(theirs);
        assert_eq!(ours.len(), theirs.len());
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let off = (ours - theirs).abs() / theirs;
            let which = ["rate", "target"][at % 2];
            assert!(off < 1e-6, "event {}: {which} {ours}, not {theirs}: {dcqcn:?}", at / 2);
            compared += 1;
        }
    }
    assert_eq!(compared, SEQUENCES as usize * EVENTS * 2);
}
