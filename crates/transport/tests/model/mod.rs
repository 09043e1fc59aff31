//! Algorithms written down a second time, in `tests/congestion`, and random numbers for both.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Numbers that look random, the same in every run: SplitMix64.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What a model says of these lines, a line each.
pub(crate) fn ask(model: &str, input: String) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/congestion");
    let mut python = Command::new("python3")
        .arg(format!("{folder}/{model}.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed");
    let mut into = python.stdin.take().unwrap();
    let writes = std::thread::spawn(move || into.write_all(input.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writes.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// All numbers of a line.
pub(crate) fn numbers(line: &str) -> Vec<f64> {
    let words = line.split(['[', ']', ',', ' ']).filter(|word| !word.is_empty());
    words.map(|word| word.parse().unwrap()).collect()
}
