//! `roxe script`: plays scripts against our engine, in virtual time, or against a device elsewhere.

#[cfg(feature = "af_xdp")]
mod live;
#[cfg(not(feature = "af_xdp"))]
#[path = "script/no_live.rs"]
mod live;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use roxe_net::capture_file::Direction;
use roxe_sim::script::{self, Play, Played};
use roxe_sim::text::text_of;
use roxe_wire::Instant;

use crate::capture::{self, Frame};
use crate::cli::ScriptArguments;
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::outcome::{Outcome, Verdicts, complain, counted, name_of};

/// So many mistakes of a file are told: whoever gave the wrong file need not see them all.
const MOST_TOLD: usize = 20;

/// The command.
pub(crate) fn run(arguments: &ScriptArguments) -> Result<Outcome> {
    let mut out = Verdicts::to(io::stdout().lock());
    if arguments.words {
        out.write_all(script::words().as_bytes())?;
        return Ok(Outcome::Right);
    }
    ensure!(
        !arguments.files.is_empty(),
        "script needs a script: name a file, or `-` for standard input; see roxe script --help"
    );
    ensure!(
        arguments.capture.is_none() || arguments.files.len() == 1,
        "--capture takes the frames of one script"
    );
    if let Some(capture) = &arguments.capture {
        capture::is_file(capture)?;
        capture::overwrites_none(capture, arguments.files.iter().map(PathBuf::as_path))?;
    }
    let mut peer = match &arguments.live.peer {
        None => None,
        Some(peer) => match live::Peer::reach(peer, arguments) {
            Ok(peer) => Some(peer),
            Err(outcome) => return Ok(outcome),
        },
    };
    let mut tally = Tally::default();
    let mut outcome = Outcome::Right;
    for file in &arguments.files {
        // What passed on a wire has a date.
        let epoch = peer.as_ref().map_or(0, |_| now());
        let played = match &mut peer {
            None => play(file, arguments),
            Some(peer) => play_live(file, peer),
        };
        tally.count(&played.outcome);
        if let Some(path) = &arguments.capture {
            let about = peer.as_ref().map_or("", live::Peer::about);
            let name = name_of(file);
            // Who reads frames alone is to know of what they are.
            let of_all = (!about.is_empty()).then(|| format!("; of {name} against {about}"));
            let frames = played.frames.iter().enumerate().map(|(at, frame)| Frame {
                time: Instant::from_nanos(epoch.saturating_add(frame.time.nanos())),
                bytes: &frame.bytes,
                direction: Some(match frame.outbound {
                    true => Direction::Outbound,
                    false => Direction::Inbound,
                }),
                comment: match &of_all {
                    Some(of_all) if at == 0 => format!("{}{of_all}", frame.comment),
                    _ => frame.comment.clone(),
                },
            });
            outcome = outcome.max(capture::write(path, &name, about, frames));
        }
        tell(file, &played, arguments, &mut out)?;
        outcome = outcome.max(match played.outcome.exit_status() {
            0 => Outcome::Right,
            1 => Outcome::Findings,
            _ => Outcome::Unreadable,
        });
    }
    if peer.is_some() && !arguments.json {
        let Tally { passed, failed, skipped, unread } = tally;
        write!(out, "{passed} passed, {failed} failed, {skipped} skipped")?;
        match unread {
            0 => writeln!(out)?,
            unread => writeln!(out, ", {unread} not played")?,
        }
    }
    Ok(outcome)
}

/// How scripts ended against a device on the wire.
#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
    /// No script could be read, or the device is out of reach.
    unread: u32,
}

impl Tally {
    const fn count(&mut self, outcome: &script::Outcome) {
        match outcome {
            script::Outcome::Passed { .. } => self.passed += 1,
            script::Outcome::Failed(_) => self.failed += 1,
            script::Outcome::Skipped(_) => self.skipped += 1,
            script::Outcome::Wrong(_) | script::Outcome::Unreadable(_) => self.unread += 1,
        }
    }
}

/// Reads a script and plays it.
fn play(file: &Path, arguments: &ScriptArguments) -> Played {
    let name = name_of(file);
    // A transcript has all that was before.
    let before = if arguments.verbose { 0 } else { arguments.before };
    let (transcript, frames) = (arguments.verbose, arguments.capture.is_some());
    let how = Play { before, transcript, frames };
    match open(file) {
        Ok(source) => script::play_from(&name, source, &how),
        Err(why) => script::Outcome::Unreadable(why).into(),
    }
}

/// What time it is, in nanoseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads a script, once, and plays it against a device elsewhere.
fn play_live(file: &Path, peer: &mut live::Peer) -> Played {
    let name = name_of(file);
    match open(file).and_then(|source| text_of(&name, "script", source)) {
        Ok(text) => peer.play(|terms, site| script::play_live(&name, text.as_bytes(), site, terms)),
        Err(why) => script::Outcome::Unreadable(why).into(),
    }
}

/// A script's text; or why it cannot be read.
fn open(file: &Path) -> Result<Box<dyn Read>, String> {
    let name = name_of(file);
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let why = match File::open(file) {
        Ok(_) if file.is_dir() => format!("{name}: is a directory; name its files"),
        Ok(source) => return Ok(Box::new(source)),
        Err(error) => format!("{name}: cannot be read: {error}"),
    };
    Err(why)
}

/// Says how a script ended.
fn tell(
    file: &Path,
    played: &Played,
    arguments: &ScriptArguments,
    out: &mut impl Write,
) -> io::Result<()> {
    let name = name_of(file);
    if arguments.json {
        let mut ink = Ink::new(false);
        tell_json(&name, &played.outcome, &mut ink);
        return out.write_all(ink.bytes());
    }
    if arguments.verbose {
        for line in &played.history {
            writeln!(out, "{line}")?;
        }
    }
    match &played.outcome {
        script::Outcome::Passed { .. } | script::Outcome::Skipped(_) => {
            writeln!(out, "{name}: {}", played.outcome)?;
        }
        script::Outcome::Failed(failure) => writeln!(out, "{failure}")?,
        script::Outcome::Unreadable(why) => complain(why),
        // Hardly a line is one of a script.
        script::Outcome::Wrong(mistakes)
            if mistakes.len() > MOST_TOLD
                && mistakes.last().is_some_and(|last| last.line < 2 * mistakes.len()) =>
        {
            complain(format_args!(
                "{name}: no script: {} of its lines are none, such as line {}: {}; `roxe \
                 script --words` lists the language",
                mistakes.len(),
                mistakes[0].line,
                mistakes[0].what
            ));
        }
        script::Outcome::Wrong(mistakes) => {
            mistakes.iter().take(MOST_TOLD).for_each(complain);
            match mistakes.len().saturating_sub(MOST_TOLD) {
                0 => {}
                more => complain(format_args!("{name}: {} more", counted(more, "mistake"))),
            }
        }
    }
    Ok(())
}

/// One object: how it ended, and of a script that did not come true where and why. Of several
/// mistakes the first is told.
fn tell_json(name: &str, ended: &script::Outcome, ink: &mut Ink) {
    let mut object = Object::begin(ink);
    object.text("file", name);
    let (verdict, place) = match ended {
        script::Outcome::Passed { .. } => ("ok", None),
        script::Outcome::Failed(failure) => {
            ("failed", Some((failure.line, failure.column, failure.what.as_str())))
        }
        script::Outcome::Wrong(mistakes) => {
            let first = mistakes.first();
            ("wrong", first.map(|first| (first.line, first.column, first.what.as_str())))
        }
        script::Outcome::Unreadable(_) => ("unreadable", None),
        script::Outcome::Skipped(_) => ("skipped", None),
    };
    object.text("verdict", verdict);
    match ended {
        script::Outcome::Passed { statements } => object.number("statements", *statements as u64),
        script::Outcome::Wrong(mistakes) => object.number("mistakes", mistakes.len() as u64),
        script::Outcome::Unreadable(why) | script::Outcome::Skipped(why) => {
            object.text("message", why);
        }
        script::Outcome::Failed(failure) => object.text("text", &failure.text),
    }
    if let Some((line, column, message)) = place {
        object.number("line", line as u64);
        object.number("column", column as u64);
        object.text("message", message);
    }
    object.end();
}
