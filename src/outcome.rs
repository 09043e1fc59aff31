//! How a command ends: exit codes, and messages that name the file.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use roxe_net::capture_file::{CaptureError, CaptureReader};
use rustix::io::Errno;

/// What the exit code tells. The greatest of several counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// 0.
    Right,
    /// 1: findings.
    Findings,
    /// 2: usage, or input that cannot be read.
    Unreadable,
    /// 3: the environment lacks something.
    Lacking,
}

impl Outcome {
    /// A mistake on the command line that clap cannot see.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        complain(message);
        Self::Unreadable
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome as u8)
    }
}

/// Standard output for verdicts. That nobody reads it any more is no error, and no reason to stop:
/// what would be written then is let go, and the exit code still tells what was found.
#[derive(Debug)]
pub(crate) struct Verdicts<W> {
    out: W,
    unheard: bool,
}

impl<W: Write> Verdicts<W> {
    pub(crate) const fn to(out: W) -> Self {
        Self { out, unheard: false }
    }

    fn unless_unheard<T>(
        &mut self,
        otherwise: T,
        write: impl FnOnce(&mut W) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.unheard {
            return Ok(otherwise);
        }
        match write(&mut self.out) {
            Err(error) if is_closed_pipe(&error) => {
                self.unheard = true;
                Ok(otherwise)
            }
            other => other,
        }
    }
}

impl<W: Write> Write for Verdicts<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unless_unheard(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_unheard((), Write::flush)
    }
}

/// What a file is called in messages.
pub(crate) fn name_of(file: &Path) -> String {
    if file == Path::new("-") {
        return "standard input".to_owned();
    }
    visible(&file.display().to_string(), |_| false)
}

/// Says what is wrong with a file. Of one that was `unpacked`, places are counted in what came out.
pub(crate) fn in_file(file: &Path, error: &CaptureError, unpacked: bool) -> Outcome {
    let name = name_of(file);
    match error {
        CaptureError::Open { reason, .. } => {
            complain(format_args!("{name}: cannot be opened: {reason}"));
        }
        _ if file.is_dir() => {
            complain(format_args!("{name}: is a directory; name its files"));
        }
        other if unpacked && other.offset().is_some() => {
            complain(format_args!("{name}: {other} (counted in the unpacked file)"));
        }
        other => complain(format_args!("{name}: {other}")),
    }
    Outcome::Unreadable
}

/// Says what a file lacks though it could be read to its end; `frames` of it were RoCEv2, and
/// `roce_v1` of the version before.
pub(crate) fn at_end(file: &Path, reader: &CaptureReader, frames: u64, roce_v1: u64) -> Outcome {
    let name = name_of(file);
    match (frames, roce_v1) {
        (0, 0) => complain(format_args!("{name}: no RoCE frame in it")),
        (0, _) => {
            complain(format_args!("{name}: no RoCEv2 frame in it; {roce_v1} of v1, not read"));
        }
        _ => {}
    }
    // Nobody shall take half a capture for a whole one.
    reader.truncated().map_or(Outcome::Right, |truncation| {
        complain(format_args!("{name}: {truncation}"));
        Outcome::Unreadable
    })
}

/// No file was named.
pub(crate) fn no_file(command: &str) -> Outcome {
    Outcome::usage(format_args!(
        "{command} needs a capture: name a file, or `-` for standard input; see roxe {command} \
         --help"
    ))
}

/// So many of something, in words.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A line on standard error; if that is closed, nobody wants to know. Where descriptors ran out, it
/// says what to do.
pub(crate) fn complain(message: impl fmt::Display) {
    let message = visible(&advised(message.to_string()), |c| c == '\n');
    let _ = io::stderr().write_all(format!("roxe: {message}\n").as_bytes());
}

/// What failed, and how a process gets more descriptors if it had none left.
fn advised(message: String) -> String {
    let advice = "`ulimit -n 1024`";
    if message.contains(&Errno::MFILE.to_string()) && !message.contains(advice) {
        return format!("{message}: {advice}, or LimitNOFILE= of systemd");
    }
    message
}

/// Text of somebody else's with its control characters written out, so that it cannot command the
/// terminal; but for those that are `wanted`. So with what makes a terminal show other text than
/// there is: what turns the direction around, separates lines, or takes no room.
pub(crate) fn visible(text: &str, wanted: impl Fn(char) -> bool) -> String {
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() || is_deceptive(c)) && !wanted(c) {
            visible.extend(c.escape_default());
        } else {
            visible.push(c);
        }
    }
    visible
}

/// Whether a terminal does something else than show this character.
const fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{061c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

/// Whether an error only means that nobody reads our output any more.
pub(crate) fn is_closed_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// Whether a capture is only not read on because nobody reads what is told of it.
pub(crate) fn is_unheard(error: &CaptureError) -> bool {
    matches!(error, CaptureError::Read { reason, .. } if is_closed_pipe(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_descriptor_left_is_told_what_to_do_once() {
        let error = io::Error::from_raw_os_error(Errno::MFILE.raw_os_error());
        let told = advised(format!("accept: {error}"));
        let expected = "accept: Too many open files (os error 24): `ulimit -n 1024`, or \
                        LimitNOFILE= of systemd";
        assert_eq!(told, expected);
        assert_eq!(advised(told), expected);
        assert_eq!(advised("accept: no".to_owned()), "accept: no");
    }

    /// A pipe that takes so many bytes, and then fails this way.
    struct Pipe(usize, io::ErrorKind);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = self.0.min(bytes.len());
            self.0 -= taken;
            if taken == 0 { Err(self.1.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            if self.0 == 0 { Err(self.1.into()) } else { Ok(()) }
        }
    }

    #[test]
    fn verdicts_that_nobody_reads_are_let_go_and_other_errors_told() {
        let mut closed = Verdicts::to(Pipe(3, io::ErrorKind::BrokenPipe));
        assert!(closed.write_all(b"more than three").is_ok() && closed.flush().is_ok());
        assert!(closed.unheard && closed.out.0 == 0);
        let mut full = Verdicts::to(Pipe(3, io::ErrorKind::StorageFull));
        let error = full.write_all(b"more than three").expect_err("no room");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn text_of_others_cannot_command_or_deceive_the_terminal() {
        let text = "größer→ \u{1b}[2J\n\u{9b}x";
        assert_eq!(visible(text, |_| false), r"größer→ \u{1b}[2J\n\u{9b}x");
        assert_eq!(visible("a\nb\r", |c| c == '\n'), "a\nb\\r");
        for c in "\u{61c}\u{200b}\u{200c}\u{200d}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\
                  \u{202c}\u{202d}\u{202e}\u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{feff}"
            .chars()
        {
            let shown = visible(&format!("a{c}b"), |_| false);
            assert_eq!(shown, format!(r"a\u{{{:x}}}b", u32::from(c)));
        }
    }
}
