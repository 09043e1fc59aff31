//! Swift beside a second one, written in another language from the paper's listing:
//! `tests/congestion/swift.py`. 1,000 random sequences of acknowledgements, losses and timeouts.

use std::time::Duration;

use model::Numbers;
use roxe_transport::congestion::swift::Window;
use roxe_transport::congestion::{Rate, Swift};
use roxe_wire::Instant;

mod model;

const SEQUENCES: u64 = 1000;
const EVENTS: usize = 100;

#[derive(Clone, Copy, Debug)]
enum Event {
    Ack(Duration, u32),
    Lost,
    Timeout,
}

/// The usual parameters, mostly with some of them changed.
fn parameters(numbers: &mut Numbers) -> Swift {
    if numbers.below(4) == 0 {
        return Swift::DEFAULT;
    }
    let micros = |numbers: &mut Numbers, all: &[u64]| Duration::from_micros(numbers.one_of(all));
    Swift {
        ai: numbers.one_of(&[1.0, 0.25, 8.0]),
        beta: numbers.one_of(&[0.8, 0.2, 1.0]),
        max_mdf: numbers.one_of(&[0.5, 0.1, 0.9]),
        base_target: micros(numbers, &[25, 10, 100]),
        h: micros(numbers, &[1, 3]),
        hops: numbers.one_of(&[1, 0, 5]),
        fs_range: micros(numbers, &[100, 0, 20]),
        fs_min_cwnd: numbers.one_of(&[0.1, 1.0, 200.0]),
        fs_max_cwnd: numbers.one_of(&[100.0, 50.0]),
        min_cwnd: numbers.one_of(&[0.001, 0.1, 1.0]),
        max_cwnd: numbers.one_of(&[4096.0, 40.0]),
        retx_reset_threshold: numbers.one_of(&[5, 1, 2]),
    }
}

/// What happens, in the order of time: often a round trip later.
fn events(numbers: &mut Numbers) -> Vec<(u64, Event)> {
    let mut now = 0;
    let mut delay = 1000 * numbers.one_of(&[10, 30, 200]);
    let event = |_| {
        let furthest = numbers.one_of(&[1, 2_000, 20_000, 200_000]);
        let (up, down) = (numbers.below(furthest), numbers.below(furthest));
        now += numbers.one_of(&[0, up, delay, delay + 1]);
        delay = (delay + up).saturating_sub(down).clamp(1_000, 2_000_000);
        let acked = numbers.one_of(&[0, 1, 2, 16]);
        let event = match numbers.below(10) {
            0 => Event::Lost,
            1 => Event::Timeout,
            _ => Event::Ack(Duration::from_nanos(delay), acked),
        };
        (now, event)
    };
    (0..EVENTS).map(event).collect()
}

fn line(swift: &Swift, line_rate: Rate, packet: f64, events: &[(u64, Event)]) -> String {
    let event = |(now, event): &(u64, Event)| match event {
        Event::Ack(delay, packets) => format!(r#"["ack", {now}, {}, {packets}]"#, delay.as_nanos()),
        Event::Lost => format!(r#"["lost", {now}]"#),
        Event::Timeout => format!(r#"["timeout", {now}]"#),
    };
    let events: Vec<String> = events.iter().map(event).collect();
    let Swift { ai, beta, max_mdf, hops, fs_min_cwnd, fs_max_cwnd, min_cwnd, max_cwnd, .. } = swift;
    format!(
        r#"{{"line_rate": {:?}, "packet": {packet:?}, "ai": {ai:?}, "beta": {beta:?},
"max_mdf": {max_mdf:?}, "base_target": {}, "h": {}, "hops": {hops}, "fs_range": {},
"fs_min_cwnd": {fs_min_cwnd:?}, "fs_max_cwnd": {fs_max_cwnd:?}, "min_cwnd": {min_cwnd:?},
"max_cwnd": {max_cwnd:?}, "retx_reset_threshold": {}, "events": [{}]}}"#,
        line_rate.bits_per_second() / 1e6,
        swift.base_target.as_nanos(),
        swift.h.as_nanos(),
        swift.fs_range.as_nanos(),
        swift.retx_reset_threshold,
        events.join(", "),
    )
    .replace('\n', " ")
}

#[test]
fn windows_and_rates_are_what_the_listing_gives() {
    let mut sequences = Vec::new();
    let mut input = String::new();
    for seed in 0..SEQUENCES {
        let mut numbers = Numbers(seed);
        let line_rate = Rate::from_mbps(numbers.one_of(&[1_000, 40_000, 400_000]));
        let packet = numbers.one_of(&[1040.0, 4112.0]);
        let (swift, events) = (parameters(&mut numbers), events(&mut numbers));
        input += &line(&swift, line_rate, packet, &events);
        input.push('\n');
        sequences.push((swift, line_rate, packet, events));
    }
    let text = model::ask("swift", input);
    let mut compared = 0;
    for ((swift, line_rate, packet, events), theirs) in sequences.iter().zip(text.lines()) {
        let mut window = Window::new(*swift, *line_rate, *packet);
        let theirs = model::numbers(theirs);
        assert_eq!(theirs.len(), 2 * events.len());
        for (at, ((now, event), theirs)) in events.iter().zip(theirs.chunks(2)).enumerate() {
            let now = Instant::from_nanos(*now);
            match event {
                Event::Ack(delay, packets) => window.acknowledged(now, *delay, *packets),
                Event::Lost => window.lost(now),
                Event::Timeout => window.timed_out(now),
            }
            let ours = [window.cwnd(), window.rate().bits_per_second() / 1e6];
            for (ours, theirs) in ours.iter().zip(theirs) {
                let off = (ours - theirs).abs() / theirs;
                assert!(off < 1e-6, "event {at}, {event:?}: {ours}, not {theirs}: {swift:?}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, SEQUENCES as usize * EVENTS * 2);
}
