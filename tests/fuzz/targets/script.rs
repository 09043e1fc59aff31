//! Any text is a script: refused with a line and a column, or played to its end or to the first
//! line that does not come true.

#![no_main]

use roxe_sim::script::{Outcome, Play, run_text};

/// Longer texts only take longer.
const MOST: usize = 16 << 10;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if text.len() > MOST {
        return;
    }
    let outcome = run_text("text", text, &Play::default());
    let lines = text.lines().count();
    match &outcome {
        Outcome::Passed { statements } => assert!(*statements <= 2 * text.len()),
        Outcome::Failed(failure) => assert!((1..=lines).contains(&failure.line), "{outcome}"),
        Outcome::Wrong(errors) => {
            let places = |line: usize, column| (1..=lines.max(1)).contains(&line) && column > 0;
            assert!(errors.iter().all(|error| places(error.line, error.column)), "{outcome}");
            assert!(!errors.is_empty());
        }
        Outcome::Unreadable(why) => panic!("there is no file: {why}"),
        Outcome::Skipped(why) => panic!("our engine can be asked everything: {why}"),
    }
    assert!(matches!(outcome, Outcome::Passed { .. }) || !outcome.to_string().is_empty());
});
