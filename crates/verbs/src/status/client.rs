//! The side of whoever asks.

use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant as Clock};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Uid, geteuid};

use super::{ANOTHER_USER, CounterValue, Info, Line, PREFIX, QueuePairStatus};

/// An adapter that is open, in some process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The abstract name of its endpoint, such as `roxe/4711/roxe0`.
    pub endpoint: String,
}

/// The adapters that are open in this network namespace.
///
/// # Errors
/// When /proc/net/unix cannot be read.
pub fn running() -> io::Result<Vec<Running>> {
    // Others give their sockets any name.
    let table = fs::read("/proc/thread-self/net/unix")?;
    let mut found = endpoints(&String::from_utf8_lossy(&table));
    found.sort();
    found.dedup();
    Ok(found.into_iter().map(|endpoint| Running { endpoint }).collect())
}

/// The names in the kernel's table of those that listen.
fn endpoints(table: &str) -> Vec<String> {
    let name = |line: &str| {
        let mut columns = line.split_ascii_whitespace();
        let flags = u32::from_str_radix(columns.nth(3)?, 16).ok()?;
        let name = columns.nth(3)?.strip_prefix('@')?;
        (flags & ACCEPTS != 0 && name.starts_with(PREFIX)).then(|| name.to_owned())
    };
    table.lines().skip(1).filter_map(name).collect()
}

/// `__SO_ACCEPTCON` of linux/net.h.
const ACCEPTS: u32 = 1 << 16;

/// A conversation with a running adapter. Whoever answers may be anybody: an answer has an end in
/// time and in bytes.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    /// Whom it is with.
    process: Pid,
    /// When the answer has to be there.
    deadline: Clock,
    /// Bytes that the answer may still have.
    room: usize,
}

/// A pcapng stream of what an adapter sends and receives.
#[derive(Debug)]
pub struct Recorded(BufReader<UnixStream>);

impl Recorded {
    /// What ends the recording from another thread: whoever reads comes to the end of the stream.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn closer(&self) -> io::Result<impl Fn() + Send + 'static> {
        let stream = self.0.get_ref().try_clone()?;
        Ok(move || drop(stream.shutdown(Shutdown::Both)))
    }
}

impl io::Read for Recorded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Running {
    /// Speaks with it, unless another user has the endpoint: anybody may use any name. Root speaks
    /// with everybody's.
    ///
    /// # Errors
    /// When it has gone, does not answer, or is another user's; at once, if its process is stopped.
    pub fn connect(&self) -> io::Result<Client> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        // One who accepts nobody would keep us waiting.
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        let address = SocketAddrUnix::new_abstract_name(self.endpoint.as_bytes())?;
        while let Err(error) = connect(&socket, &address) {
            if error != Errno::INTR {
                return Err(silence(error.into()));
            }
        }
        let listener = socket_peercred(&socket)?;
        if !is_ours(listener.uid, geteuid()) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, ANOTHER_USER));
        }
        let stream = BufReader::new(UnixStream::from(socket));
        Ok(Client { stream, process: listener.pid, deadline: Clock::now(), room: 0 })
    }
}

/// Whether an endpoint of this user can be that of an adapter whose answers we may have.
fn is_ours(listener: Uid, own: Uid) -> bool {
    own.is_root() || listener.is_root() || listener == own
}

impl Client {
    /// What it is.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn info(&mut self) -> io::Result<Info> {
        self.begin()?;
        self.ask("info")?;
        match self.line()? {
            Line::Info(info) => Ok(info),
            _ => Err(strange()),
        }
    }

    /// Its counters, and its time in nanoseconds.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn counters(&mut self) -> io::Result<(Vec<CounterValue>, u64)> {
        self.begin()?;
        self.ask("counters")?;
        let mut counters = Vec::new();
        loop {
            match self.line()? {
                Line::Counter(counter) => counters.push(counter),
                Line::End { time_ns, .. } => return Ok((counters, time_ns)),
                _ => return Err(strange()),
            }
        }
    }

    /// Its queue pairs, and its time in nanoseconds.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn queue_pairs(&mut self) -> io::Result<(Vec<QueuePairStatus>, u64)> {
        self.begin()?;
        let mut found = Vec::new();
        let mut from = 0;
        loop {
            self.ask(&format!("queue-pairs {from}"))?;
            let (next, time_ns) = loop {
                match self.line()? {
                    Line::QueuePair(queue_pair) => found.push(queue_pair),
                    Line::End { time_ns, next } => break (next, time_ns),
                    _ => return Err(strange()),
                }
            };
            match next {
                Some(next) if next > from => from = next,
                Some(_) => return Err(strange()),
                None => return Ok((found, time_ns)),
            }
        }
    }

    /// What it sends and receives from now on, as a pcapng stream, until it is dropped. `room` is
    /// for bytes that were not read yet: what exceeds them is lost, and counted.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn record(mut self, room: u32) -> io::Result<Recorded> {
        self.begin()?;
        self.ask(&format!("record {room}"))?;
        self.stream.get_ref().set_read_timeout(Some(PATIENCE))?;
        // Its first byte is there when it has begun. A refusal begins otherwise.
        while !fill(&mut self.stream)? {}
        if self.stream.buffer().first() == Some(&b'{') {
            self.line()?;
        }
        if self.stream.buffer().is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.stream.get_ref().set_read_timeout(None)?;
        Ok(Recorded(self.stream))
    }

    /// One that refuses us does not wait for what we ask: why stands in its answer.
    fn ask(&mut self, request: &str) -> io::Result<()> {
        match self.stream.get_mut().write_all(format!("{request}\n").as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }

    /// An answer begins, which a process that is stopped would not give.
    fn begin(&mut self) -> io::Result<()> {
        let process = self.process.as_raw_nonzero();
        if fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| is_stopped(&stat)) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "process {process} is stopped, and does not answer: `kill -CONT {process}` \
                     lets it go on"
                ),
            ));
        }
        (self.deadline, self.room) = (Clock::now() + PATIENCE, LONGEST_ANSWER);
        Ok(())
    }

    fn line(&mut self) -> io::Result<Line> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let left = self.deadline.saturating_duration_since(Clock::now());
            if left.is_zero() {
                return Err(silence(io::ErrorKind::TimedOut.into()));
            }
            self.stream.get_ref().set_read_timeout(Some(left))?;
            if !fill(&mut self.stream)? {
                continue;
            }
            let bytes = self.stream.buffer();
            let len = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.room = self.room.checked_sub(len).ok_or_else(strange)?;
            line.extend_from_slice(&bytes[..len]);
            self.stream.consume(len);
        }
        match serde_json::from_slice(&line) {
            Ok(Line::Error { what }) => Err(io::Error::new(io::ErrorKind::PermissionDenied, what)),
            Ok(line) => Ok(line),
            Err(_) => Err(strange()),
        }
    }
}

/// Whether a process with this `/proc/PID/stat` is stopped by a signal: one that is traced stops
/// for moments only. Its program's name stands in brackets before its state, and may have some of
/// its own.
fn is_stopped(stat: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Reads, if nothing is there. Says whether it could: a signal may come between.
fn fill(stream: &mut impl BufRead) -> io::Result<bool> {
    match stream.fill_buf() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(error) => Err(silence(error)),
    }
}

/// Whoever answers is no adapter of this version.
fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it answers what was not asked")
}

/// What an error of the socket means that has a time limit.
fn silence(error: io::Error) -> io::Error {
    use io::ErrorKind::{TimedOut, WouldBlock};
    match error.kind() {
        TimedOut | WouldBlock => io::Error::new(TimedOut, "it does not answer"),
        _ => error,
    }
}

/// How long an adapter may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer: whoever says more is no adapter.
const LONGEST_ANSWER: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_asked_is_of_the_same_user_or_root() {
        let [root, one, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(is_ours(one, one) && is_ours(root, one) && is_ours(one, root));
        assert!(!is_ours(other, one));
    }

    #[test]
    fn whether_a_process_is_stopped_stands_behind_its_name() {
        assert!(is_stopped("12 (roxe) T 1 12 12 0") && is_stopped("12 (a) S (T) T 1 12"));
        for stat in ["12 (roxe) S 1 12 12 0", "12 (roxe) t 1 12", "12 (T) T) R 1 12", "12 (T", ""] {
            assert!(!is_stopped(stat), "{stat}");
        }
    }

    /// Says of each read what becomes of it.
    struct Reads(Vec<io::Result<&'static [u8]>>);

    impl io::Read for Reads {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let mut bytes = self.0.remove(0)?;
            bytes.read(buffer)
        }
    }

    #[test]
    fn a_signal_is_no_error_of_the_stream() {
        let kinds = [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock];
        let [signal, late] = kinds.map(|kind| Err(kind.into()));
        let mut stream = BufReader::new(Reads(vec![signal, Ok(b"x"), late]));
        assert!(!fill(&mut stream).unwrap());
        assert!(fill(&mut stream).unwrap() && stream.buffer() == b"x");
        stream.consume(1);
        assert_eq!(fill(&mut stream).unwrap_err().to_string(), "it does not answer");
    }

    /// Others in the namespace give their sockets any name.
    #[test]
    fn a_socket_with_a_name_that_is_no_text_hides_no_adapter() {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::{SocketAddr, UnixListener};
        let name = [b"\xff\xfe", std::process::id().to_string().as_bytes()].concat();
        let other = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap());
        running().expect("adapters are still seen");
        drop(other.unwrap());
    }

    #[test]
    fn endpoints_are_those_that_listen() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 11523 @roxe/12/roxe0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 11524 @roxe/12/roxe0\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 11525 /run/roxe/13/x\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 11526\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 11527 @other/1\n";
        assert_eq!(endpoints(table), ["roxe/12/roxe0"]);
    }
}
