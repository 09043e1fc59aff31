//! Scripts altered at random: whatever a script says, the runner and the engine below it only ever
//! fail with words. Every alteration follows from its number, so a failure can be run again.

use std::fs;
use std::path::Path;

use roxe_sim::script::{Play, run_text};

/// How often each script is altered.
const TIMES: u64 = 5;

/// Numbers at the borders of what fields can hold.
const NUMBERS: [&str; 8] =
    ["0", "1", "255", "0xffffff", "0x80000001", "0xffffffff", "0xffffffffffffffff", "4097"];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// The script with a few lines doubled, dropped or moved, and a few words replaced.
fn alter(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=random.below(3) {
        let (at, to) = (random.below(lines.len()), random.below(lines.len()));
        match random.below(5) {
            0 => {
                let line = lines[at].clone();
                lines.insert(to, line);
            }
            1 if lines.len() > 1 => {
                lines.remove(at);
            }
            2 => lines.swap(at, to),
            _ => {
                let mut words: Vec<&str> = lines[at].split(' ').collect();
                let word = random.below(words.len());
                let is_number = words[word].starts_with(|c: char| c.is_ascii_digit());
                match random.below(3) {
                    0 => {
                        words.remove(word);
                    }
                    _ if is_number => words[word] = NUMBERS[random.below(NUMBERS.len())],
                    _ => words.swap(word, 0),
                }
                lines[at] = words.join(" ");
            }
        }
    }
    lines.join("\n")
}

#[test]
fn altered_scripts_fail_with_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance");
    for folder in fs::read_dir(root).expect("the folder of scripts") {
        let folder = folder.expect("a folder").path();
        let Ok(files) = fs::read_dir(&folder) else { continue };
        for file in files.map(|file| file.expect("a file").path()) {
            let text = fs::read_to_string(&file).expect("a text");
            let name = file.file_name().expect("a name").to_string_lossy().into_owned();
            for number in 0..TIMES {
                let seed = name
                    .bytes()
                    .fold(number, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
                let altered = alter(&text, &mut Random(seed));
                let run = || run_text(&name, &altered, &Play::default()).exit_status();
                let ended = std::panic::catch_unwind(run);
                assert!(ended.is_ok_and(|status| status <= 2), "{name}, {number}:\n{altered}");
            }
        }
    }
}
