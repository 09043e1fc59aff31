//! `cargo xtask interop perf`: how fast the adapter is beside `rdma_rxe`, in the same guests.
//!
//! Two guests boot, and the same work is done in turns by rxe, with perftest's programs, and by
//! roxe, with `roxe perf`. Processors are emulated: what counts is the ratio.

mod table;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use super::archive::Archive;
use super::image::{self, Image};
use super::{NEEDS, SERIES, folder_of, need_root, today};
use crate::child::{self, Heard, Listener};
use crate::stop::Stop;
use crate::{say, tell, tools, workspace};
use table::Table;

/// Where the table stands.
const PAGE: &str = "docs/performance.md";

/// The command's part behind `perf`.
pub(super) fn run(arguments: &[String]) -> Result<()> {
    let chosen = read(arguments)?;
    need_root()?;
    tools::ensure_present(&[tools::BUILD, NEEDS].concat())?;
    tell!("roxe as it is released, and what runs it");
    let example = "build --quiet --workspace --all-features --example interop_perf";
    for build in ["build --quiet --release --bin roxe", example] {
        if !child::show(child::cargo(build))? {
            return Err(Stop::Findings.into());
        }
    }
    let image = image::build(&chosen.series)?;
    let initrd = with_roxe(&image)?;
    let measured = measure(&chosen, &image.kernel, &initrd);
    // As large as the guest's own, and made anew each time.
    let _ = fs::remove_file(initrd);
    let table = measured?;
    say!("{}", table.for_people());
    if chosen.words.is_empty() {
        let path = workspace::root().join(PAGE);
        let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
        let page = table.into_page(&page, &today()?);
        fs::write(path, page.with_context(|| format!("{PAGE} has no place for it"))?)?;
        tell!("written: {PAGE}");
    }
    Ok(())
}

/// Boots the guests and has all work done.
fn measure(chosen: &Chosen, kernel: &Path, initrd: &Path) -> Result<Table> {
    let mut program = child::command(workspace::target().join("debug/examples/interop_perf"));
    program.arg(kernel).arg(initrd).arg(folder_of(&chosen.series)).arg(chosen.rounds.to_string());
    program.args(&chosen.words).stdout(Stdio::piped());
    let mut program = program.spawn().context("cannot run interop_perf")?;
    let output = program.stdout.take().context("a pipe that was asked for")?;
    let table = Table::of(BufReader::new(output).lines().map_while(Result::ok));
    let status = program.wait().context("cannot wait for interop_perf")?;
    ensure!(status.success(), "the comparison did not come to its end");
    Ok(table)
}

/// The guest's file system with roxe in it, and with the libraries of this host, which may be newer
/// than the guest's. The kernel unpacks archives one behind the other.
fn with_roxe(image: &Image) -> Result<PathBuf> {
    let roxe = workspace::target().join("release/roxe");
    let mut archive = Archive::default();
    let mut put = |path: &str, file: &Path| -> Result<()> {
        let bytes = fs::read(file).with_context(|| format!("{}", file.display()))?;
        archive.file(path, 0o755, &bytes);
        Ok(())
    };
    put("roxe/roxe", &roxe)?;
    let mut ldd = child::command("ldd");
    ldd.arg(&roxe);
    let Heard { success, output } =
        Listener { name: "ldd".to_owned(), verbose: false }.hear(ldd)?;
    ensure!(success, "{output}\nldd does not say what roxe needs");
    for (name, file) in libraries(&output) {
        put(&format!("roxe/{name}"), &file)?;
    }
    archive.file("usr/bin/roxe", 0o755, START.as_bytes());
    let mut initrd = fs::read(&image.initrd).context("the guest's file system is gone")?;
    initrd.resize(initrd.len().next_multiple_of(4), 0);
    initrd.extend(archive.finish());
    let path = image.initrd.with_file_name("perf.cpio");
    fs::write(&path, initrd).context("cannot write the guest's file system")?;
    Ok(path)
}

/// How roxe starts in the guest, with its libraries.
const START: &str = "#!/bin/sh\nexec /roxe/loader --library-path /roxe /roxe/roxe \"$@\"\n";

/// What `ldd` names: libraries, and the loader by that name. What the kernel has is no file.
fn libraries(ldd: &str) -> Vec<(String, PathBuf)> {
    let library = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name, "=>", file, ..] => Some((name.to_owned(), file.into())),
        [file, ..] if file.starts_with('/') => Some(("loader".to_owned(), file.into())),
        _ => None,
    };
    ldd.lines().filter_map(library).collect()
}

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    series: String,
    rounds: u32,
    /// Words that the names of rows must have. With some, the page stays as it is.
    words: Vec<String>,
}

fn read(arguments: &[String]) -> Result<Chosen, Stop> {
    let mut chosen = Chosen { series: SERIES[0].to_owned(), rounds: ROUNDS, words: Vec::new() };
    let mut words = arguments.iter();
    let usage = || Stop::Usage(super::usage());
    while let Some(word) = words.next() {
        match word.as_str() {
            "--kernel" => chosen.series.clone_from(words.next().ok_or_else(usage)?),
            "--rounds" => {
                let rounds = words.next().and_then(|it| it.parse().ok());
                chosen.rounds = rounds.filter(|it| (1..=1000).contains(it)).ok_or_else(usage)?;
            }
            option if option.starts_with('-') => return Err(usage()),
            _ => chosen.words.push(word.clone()),
        }
    }
    Ok(chosen)
}

/// How often each adapter does each work.
const ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_a_program_and_its_loader_are_files() {
        let ldd = "\tlinux-vdso.so.1 (0x00007fbdd9d84000)\n\
                   \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fbdd973e000)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007fbdd9d86000)\n";
        let found = libraries(ldd);
        let expected = [
            ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
            ("loader", "/lib64/ld-linux-x86-64.so.2"),
        ];
        assert_eq!(found, expected.map(|(name, file)| (name.to_owned(), PathBuf::from(file))));
    }

    #[test]
    fn words_choose_rows_and_options_are_known() {
        let read = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            read(&words).ok()
        };
        let words = vec!["WRITE".to_owned(), "1024".to_owned()];
        let expected = Chosen { series: "6.12".to_owned(), rounds: 7, words };
        assert_eq!(read("--kernel 6.12 --rounds 7 WRITE 1024"), Some(expected));
        assert_eq!(read("").map(|it| (it.series, it.rounds)), Some(("6.1".to_owned(), ROUNDS)));
        for wrong in ["--kernel", "--rounds", "--rounds 0", "--rounds many", "--fast"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
