//! Worlds of links that are longer or slower than any that a seed makes.

use std::time::Duration;

use roxe_sim::swarm::{self, Conditions, Life, PROFILES, Profile, Recipe};

/// Latencies in nanoseconds and picoseconds a byte: what is usual, what is the slowest, and both.
const LINKS: &[(u64, u64)] = &[
    (0, 80),
    (21_000, 80),
    (5_000_000, 20),
    (100_000_000, 800),
    (2_000_000_000, 80),
    (2_000_000_000, 8_000_000),
    (10_000_000_000, 1),
    (5_000, 80_000),
    (5_000, 8_000_000),
    (0, 400_000_000),
];

fn conditions(nanos: u64, picos: u64) -> Conditions {
    let mut conditions = Conditions::default();
    conditions.set_latency(Duration::from_nanos(nanos)).expect("a latency");
    conditions.set_picos_per_byte(picos).expect("a rate");
    conditions
}

fn must_hold(recipe: Recipe, conditions: &Conditions) -> Life {
    let outcome = swarm::run(recipe, conditions, false);
    if let Some(failure) = &outcome.failure {
        panic!("seed {} of {}{conditions}: {failure}", recipe.seed, recipe.profile);
    }
    outcome
}

#[test]
fn worlds_of_every_kind_hold_on_slow_links() {
    for (number, profile) in (0u64..).zip(PROFILES) {
        for (seed, &(nanos, picos)) in (100 * number..).zip(LINKS) {
            must_hold(Recipe::new(seed, profile), &conditions(nanos, picos));
        }
    }
}

/// Not even a packet is sent twice for want of patience.
#[test]
fn nothing_goes_wrong_on_slow_links() {
    let clean = Profile::by_name("clean").expect("a profile");
    for seed in 0..60 {
        // Every latency up to 2 s, every rate down to 0.001 Gb/s, most of them short and fast.
        let (nanos, picos) = (1u64 << (seed % 31), 8_000_000u64 >> (seed * 7 % 20));
        let outcome = must_hold(Recipe::new(seed, clean), &conditions(nanos, picos));
        assert_eq!(outcome.retransmissions, 0, "{nanos} ns, {picos} ps/B");
    }
}

/// Faults last long enough there to hit packets.
#[test]
fn slow_links_are_as_bad_as_fast_ones() {
    let lossy = Profile::by_name("lossy").expect("a profile");
    let lost = |conditions: &Conditions| -> u64 {
        let outcomes = (0..20).map(|seed| must_hold(Recipe::new(seed, lossy), conditions));
        outcomes.map(|outcome| outcome.impairments.by_name()[0].1).sum()
    };
    let (usual, slow) = (lost(&Conditions::default()), lost(&conditions(2_000_000_000, 80_000)));
    assert!(usual > 20 && slow > usual / 4, "{usual} lost, and {slow}");
}

#[test]
fn links_for_which_no_timeout_is_long_enough_are_refused() {
    let mut conditions = Conditions::default();
    let told = conditions.set_latency(Duration::from_secs(11));
    assert_eq!(
        told,
        Err("no ACK timeout is long enough for links of more than 10485 ms".to_owned())
    );
    let told = conditions.set_picos_per_byte(500_000_000);
    assert_eq!(
        told,
        Err("no ACK timeout is long enough for links of less than 0.000019 Gb/s".to_owned())
    );
    assert_eq!(conditions, Conditions::default());
}
