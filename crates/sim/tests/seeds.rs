//! Random worlds: a few of every profile on every run, those that failed once first of all.

use roxe_sim::swarm::{self, Outcome, PROFILES, Profile};

fn must_hold(seed: u64, profile: &Profile) -> Outcome {
    let outcome = swarm::run(seed, profile);
    if let Some(failure) = &outcome.failure {
        panic!("seed {seed} of {}: {failure}", profile.name);
    }
    outcome
}

#[test]
fn what_failed_once_holds() {
    for line in include_str!("regressions.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let seed = words.next().and_then(|word| word.parse().ok()).expect("a seed");
        let profile = words.next().and_then(Profile::by_name).expect("a profile");
        assert!(words.count() > 1, "{line:?} says neither commit nor reason");
        must_hold(seed, profile);
    }
}

#[test]
fn some_worlds_of_every_profile_hold() {
    for profile in PROFILES {
        let seeds = if profile.name == "crowd" { 4 } else { 30 };
        let outcomes = (1_000_000..1_000_000 + seeds).map(|seed| must_hold(seed, profile));
        let (frames, requests) = outcomes.fold((0, 0), |(frames, requests), outcome| {
            (frames + outcome.frames, requests + outcome.requests)
        });
        assert!(frames > 100 && requests > 100, "{} does nothing", profile.name);
    }
}

/// The same on every run, and on every machine.
#[test]
fn a_seed_gives_one_world() {
    for name in ["clean", "chaos", "lossy", "ud"] {
        let profile = Profile::by_name(name).expect("a profile");
        let [one, other] = [7, 7].map(|seed| must_hold(seed, profile));
        assert_eq!((one.digest, one.frames), (other.digest, other.frames), "{name}");
        assert_ne!(one.digest, must_hold(8, profile).digest, "{name}");
    }
}
