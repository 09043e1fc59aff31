//! Random worlds: a few of every profile on every run, those that failed once first of all.

use roxe_sim::swarm::{self, Conditions, Life, PROFILES, Profile, Recipe};

/// Seeds of each profile: together two thousand, about.
const SEEDS: u64 = 125;

fn must_hold(recipe: Recipe) -> Life {
    let outcome = swarm::run(recipe, &Conditions::default(), false);
    if let Some(failure) = &outcome.failure {
        panic!("seed {} of {}: {failure}", recipe.seed, recipe.profile);
    }
    outcome
}

#[test]
fn what_failed_once_holds() {
    for line in include_str!("regressions.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let seed = words.next().and_then(|word| word.parse().ok()).expect("a seed");
        let profile = words.next().and_then(Profile::by_name).expect("a profile");
        let change = words.next().expect("a change").replace(';', " ");
        assert!(words.count() > 1, "{line:?} says neither commit nor reason");
        must_hold(Recipe::new(seed, profile).changed(&change).expect("a change that can be made"));
    }
}

fn worlds_hold(profile: &str) {
    let profile = Profile::by_name(profile).expect("a profile");
    let outcomes = (1_000_000..1_000_000 + SEEDS).map(|seed| must_hold(Recipe::new(seed, profile)));
    let (frames, requests) = outcomes.fold((0, 0), |(frames, requests), outcome| {
        (frames + outcome.frames, requests + outcome.requests)
    });
    assert!(frames > 1000 && requests > 1000, "{} does nothing", profile.name);
}

/// A test for each profile, so that they run side by side.
macro_rules! worlds {
    ($($test:ident $profile:literal,)*) => {
        $(#[test]
        fn $test() {
            worlds_hold($profile);
        })*

        #[test]
        fn every_profile_has_its_test() {
            let tested = [$($profile),*];
            let all: Vec<_> = PROFILES.iter().map(|profile| profile.name).collect();
            assert_eq!(all, tested);
        }
    };
}

worlds! {
    worlds_where_nothing_goes_wrong_hold "clean",
    worlds_that_lose_packets_hold "lossy",
    worlds_where_packets_overtake_hold "reorder",
    worlds_that_double_packets_hold "dup",
    worlds_that_damage_packets_hold "corrupt",
    worlds_with_everything_at_once_hold "chaos",
    worlds_with_mistakes_hold "errors",
    worlds_with_late_receives_hold "rnr",
    worlds_of_datagrams_hold "ud",
    worlds_of_unreliable_connections_hold "uc",
    worlds_with_shared_receive_queues_hold "srq",
    worlds_of_many_connections_hold "many-qps",
    worlds_of_many_devices_hold "crowd",
    worlds_with_tiny_windows_hold "tiny-window",
    worlds_where_psns_wrap_hold "wrap",
    worlds_with_frames_from_nobody_hold "hostile",
    worlds_with_forged_frames_hold "forged",
    worlds_that_live_long_hold "long",
}

/// The same on every run, and on every machine.
#[test]
fn a_seed_gives_one_world() {
    for profile in PROFILES {
        let recipe = Recipe::new(7, profile);
        let [one, other] = [recipe; 2].map(must_hold);
        assert_eq!((one.digest, one.frames), (other.digest, other.frames), "{}", profile.name);
        let another = must_hold(Recipe::new(8, profile));
        assert_ne!(one.digest, another.digest, "{}", profile.name);
    }
}

/// What a repro line says is the world that it is printed for.
#[test]
fn a_repro_line_gives_the_same_world() {
    for seed in 0..50 {
        let whole = Recipe::new(seed, &PROFILES[5]);
        let smaller = whole.changed("requests=3 pairs=1 peers=rxe,connectx without=drop").unwrap();
        let line = smaller.to_string();
        let change = line.split('"').nth(1).unwrap_or_default();
        assert_eq!(whole.changed(change), Ok(smaller), "{line}");
    }
}
