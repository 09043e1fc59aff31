//! A port around a port that records all that passes, for `roxe explain` and Wireshark.
//!
//! It writes pcapng: times in nanoseconds, each frame with its direction, and those that the inner
//! port throws away with a comment that says why. What is sent is sealed here, so that the file has
//! it whole and the inner port need not do it again. It is recorded when it is handed to the inner
//! port, which may still throw it away or have no way for it: its counters say so.
//!
//! A [`Live`] port is recorded only while somebody asks for it, from another thread or process.
//!
//! A port that sees no frames (a UDP socket) is recorded without link header, its IP and UDP
//! headers formed as the kernel forms them, but for UDP checksums, which are 0, and flow labels. A
//! packet that something between network and here has changed
//! ([`FaultPort`](crate::fault::FaultPort)) is framed anew with what is known of it: MACs of zeros
//! and no IP identification.
//!
//! Frames are written in the thread that drives the port, into a buffer that goes to the file when
//! it is full, when the port is about to wait, and at least once a second; always whole frames, so
//! that a file can be read whenever its writer was killed. Who is about to end without closing the
//! port asks for each frame at once ([`Recorder::write_at_once`]). If a file cannot be written any
//! more, because a disk is full, the traffic goes on and the recording ends: `capture_errors`
//! counts it, and [`Recorder::trouble`] says what happened.
//!
//! # Counters
//!
//! Besides those of the inner port:
//!
//! | name | counts |
//! |---|---|
//! | `capture_frames` | frames recorded, those included that had to go for newer ones |
//! | `capture_lost` | frames not recorded, because a file could not be written |
//! | `capture_files` | files begun |
//! | `capture_errors` | times a file could not be written |

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roxe_wire::{Addressing, Body, FrameTemplate, Instant, RawFrame, Received, Room, icrc};
use thiserror::Error;

use crate::capture_file::{Direction, LinkType, Timestamp};
use crate::port::{
    Arrival, Capabilities, FramePort, HeadersOf, Outgoing, Seal, Sent, Wake, packets_to,
};
use crate::{Sleeper, Waker};

mod keeper;
mod live;
mod tape;

pub use keeper::Keeper;
pub use live::{Live, Recording, Tap, lost_before};
use tape::{Shown, Tape};

/// What can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What is kept.
    pub keep: Keep,
    /// Longer frames are cut to so many bytes; 0 for no limit.
    pub snap_len: u32,
    /// The wall-clock time of [`Instant::ZERO`].
    pub epoch: Timestamp,
}

impl Default for Settings {
    fn default() -> Self {
        Self { keep: Keep::All, snap_len: 0, epoch: Timestamp::default() }
    }
}

/// What a recording keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Everything, in one file.
    #[default]
    All,
    /// The newest, in files of their own, as `dumpcap -b filesize:… -b files:…` does: `x.pcapng`
    /// becomes `x_00001.pcapng` and so on, behind those that are there already; with one more than
    /// `count`, the oldest of this recording goes.
    Files {
        /// Bytes that a file has at most, but for one with a single frame that is longer.
        bytes: u64,
        /// Files that there are at most; at least 1.
        count: u32,
    },
    /// The last frames, in memory, until the port is closed or [`Recorder::write`] asks for them:
    /// then they are written over what is in the file.
    Last {
        /// How many frames.
        frames: usize,
    },
}

/// Why a capture cannot be begun.
#[derive(Debug, Error)]
#[error("cannot create the capture {}: {source}", path.display())]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// A port that is recorded.
pub struct Capture<P> {
    inner: P,
    capabilities: Capabilities,
    epoch: Timestamp,
    /// What headers packets without frames had last.
    last: Option<(Addressing, FrameTemplate)>,
    tape: Tape,
    shared: Arc<Shared>,
}

/// Speaks with a recording from any thread, also when its port is gone.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Default)]
struct Shared {
    /// Somebody wants to see what there is until now.
    wanted: AtomicBool,
    /// And from then on each frame at once.
    at_once: AtomicBool,
    trouble: Mutex<Trouble>,
}

/// What went wrong, and who wants to hear of it.
#[derive(Default)]
struct Trouble {
    last: Option<String>,
    listener: Option<OnTrouble>,
}

/// Hears what went wrong, once.
type OnTrouble = Box<dyn FnOnce(&str) + Send>;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("trouble", &self.trouble().last).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Has all that is kept written to its file, when the port is driven next.
    pub fn write(&self) {
        self.shared.wanted.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The same; and from then on each frame is in the file before it is sent, or before anybody
    /// learns that it has come. For a process that may end at any moment. Frames kept in memory
    /// are written once.
    pub fn write_at_once(&self) {
        self.shared.at_once.store(true, Ordering::Relaxed);
        self.write();
    }

    /// What went wrong last, if anything did.
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble().last.clone()
    }

    /// Has this called as soon as anything goes wrong, once: the recording has ended then. Whoever
    /// drives the port calls it, with the port in hand, and waits for it.
    pub fn on_trouble(&self, listener: impl FnOnce(&str) + Send + 'static) {
        let mut trouble = self.shared.trouble();
        match &trouble.last {
            Some(last) => listener(last),
            None => trouble.listener = Some(Box::new(listener)),
        }
    }
}

/// The file of the recording with this number of several that were given one name: `x.pcapng`,
/// `x_1.pcapng`, `x_2.pcapng` and so on.
pub fn numbered(file: &Path, index: usize) -> PathBuf {
    if index == 0 {
        return file.to_owned();
    }
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("_{index}"));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

/// How many files are tried, after the one that was named.
const LAST: usize = 1000;

impl<P: FramePort> Capture<P> {
    /// Records a port to a file, in which the port's interface has this name; to the next by number
    /// ([`numbered`]) while another recording, of this process or another, writes the file. Which
    /// one it is, the port's summary says.
    ///
    /// # Errors
    /// When the file cannot be created or written.
    pub fn open(
        inner: P,
        path: impl AsRef<Path>,
        name: &str,
        settings: Settings,
    ) -> Result<Self, OpenError> {
        let mut capabilities = inner.capabilities().clone();
        let link_type = match capabilities.headers {
            HeadersOf::Path => LinkType::ETHERNET,
            HeadersOf::Kernel { .. } => LinkType::RAW,
        };
        let shown = Shown {
            name: name.to_owned(),
            description: capabilities.summary.clone(),
            link_type,
            longest: capabilities.path_mtu.bytes() as usize + crate::framing::MAX_AROUND_PAYLOAD,
        };
        let mut index = 0;
        let (path, tape) = loop {
            let path = numbered(path.as_ref(), index);
            match Tape::begin(&path, shown.clone(), &settings) {
                Ok(tape) => break (path, tape),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && index < LAST => {
                    index += 1;
                }
                Err(source) => return Err(OpenError { path, source }),
            }
        };
        capabilities.summary += &format!(", recorded to {}", path.display());
        let shared = Arc::default();
        Ok(Self { inner, capabilities, epoch: settings.epoch, last: None, tape, shared })
    }

    /// What speaks with the recording.
    pub fn recorder(&self) -> Recorder {
        Recorder { shared: Arc::clone(&self.shared), waker: self.inner.waker() }
    }

    fn time(&self, now: Instant) -> Timestamp {
        Timestamp::from_nanos(self.epoch.as_nanos().saturating_add(now.nanos()))
    }

    /// Does what is due besides recording.
    fn keep_up(&mut self, now: Instant) {
        let wanted = self.shared.wanted.load(Ordering::Acquire)
            && self.shared.wanted.swap(false, Ordering::AcqRel);
        if wanted && self.shared.at_once.load(Ordering::Relaxed) {
            self.tape.write_at_once();
        }
        let trouble = if wanted { self.tape.write() } else { self.tape.tick(now) };
        self.shared.tell(trouble);
    }

    /// Hands up what has arrived, and records it. Says how many packets.
    fn fetch(&mut self, now: Instant, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        self.keep_up(now);
        let time = self.time(now);
        let Self { inner, last, tape, shared, capabilities, .. } = self;
        inner.receive_all(now, &mut |arrival| {
            record_arrival(&arrival, time, capabilities.headers, last, &mut |record| {
                shared.tell(tape.record(record));
            });
            sink(arrival);
        })
    }
}

/// Hands what arrived to a recording, as far as it can be shown. `last` is what headers packets
/// without frames had last.
fn record_arrival(
    arrival: &Arrival<'_>,
    time: Timestamp,
    whose: HeadersOf,
    last: &mut Option<(Addressing, FrameTemplate)>,
    record: &mut dyn FnMut(Record<'_>),
) {
    let dropped = arrival.packet.err();
    match (arrival.frame, &arrival.packet) {
        (Some(RawFrame { first, second, wire_len, .. }), _) => {
            let pieces = [first, second, &[]];
            record(Record { time, direction: INBOUND, pieces, wire_len, dropped, comment: None });
        }
        (None, Ok(packet)) => {
            let mut headers = [0; FrameTemplate::MAX];
            let headers = frame(packet, last, whose, &mut headers);
            let (first, second) = match packet.body {
                Body::Whole { first, second } => (first, second),
                Body::Elided { start, .. } => (start, &[][..]),
            };
            let wire_len = headers.len() + packet.body.len();
            let pieces = [headers, first, second];
            record(Record { time, direction: INBOUND, pieces, wire_len, dropped, comment: None });
        }
        // Neither frame nor packet: the inner port has nothing to show.
        (None, Err(_)) => {}
    }
}

/// A frame to be recorded.
struct Record<'a> {
    time: Timestamp,
    direction: Direction,
    pieces: [&'a [u8]; 3],
    wire_len: usize,
    dropped: Option<roxe_wire::DropReason>,
    /// What is told of it, if it is more than why it was dropped.
    comment: Option<&'a str>,
}

const INBOUND: Direction = Direction::Inbound;

/// The headers of a packet whose frame nobody saw, in `room`. Empty when they cannot be formed.
fn frame<'r>(
    packet: &Received<'_>,
    last: &mut Option<(Addressing, FrameTemplate)>,
    whose: HeadersOf,
    room: &'r mut [u8; FrameTemplate::MAX],
) -> &'r [u8] {
    if last.as_ref().is_none_or(|(addressing, _)| *addressing != packet.addressing) {
        *last = packet.addressing.path().map(|path| (packet.addressing, FrameTemplate::new(&path)));
    }
    let template = last.as_ref().map(|(_, template)| template);
    let len = u16::try_from(packet.body.len()).ok();
    match template.zip(len) {
        Some((template, len)) if template.write(len, 0, room).is_some() => {
            &room[link_len(template, whose)..template.headers_len()]
        }
        _ => &[],
    }
}

/// How much of the headers does not belong into the file.
fn link_len(template: &FrameTemplate, whose: HeadersOf) -> usize {
    match whose {
        HeadersOf::Path => 0,
        HeadersOf::Kernel { .. } => template.headers_len() - 8 - template.ip_header().bytes().len(),
    }
}

/// Seals a packet that is about to be sent and hands it to a recording. Says how it goes on.
fn seal<'p>(
    outgoing: Outgoing<'p>,
    room: Room<'_>,
    time: Timestamp,
    whose: HeadersOf,
    record: &mut dyn FnMut(Record<'_>),
) -> Outgoing<'p> {
    let Outgoing { path, len, seal } = outgoing;
    let Room { first, second } = room;
    let in_first = len.min(first.len());
    let in_second = len - in_first;
    let headers: Cow<'_, FrameTemplate> = whose.on(path);
    let mut bytes = [0; FrameTemplate::MAX];
    let cover = u16::try_from(len).ok().and_then(|len| headers.write(len, 0, &mut bytes));
    let Some(cover) = cover.filter(|_| in_second <= second.len()) else {
        return outgoing; // Longer than can be: the inner port throws it away.
    };
    let (first, second) = (&mut first[..in_first], &mut second[..in_second]);
    let sealed = seal == Seal::AsWritten
        || icrc::seal(&cover, Room { first: &mut *first, second: &mut *second });
    if !sealed {
        return outgoing; // Shorter than can be.
    }
    let pieces = [&bytes[link_len(&headers, whose)..headers.headers_len()], first, second];
    let wire_len = pieces.iter().map(|piece| piece.len()).sum();
    let direction = Direction::Outbound;
    record(Record { time, direction, pieces, wire_len, dropped: None, comment: None });
    Outgoing { path, len, seal: Seal::AsWritten }
}

impl Shared {
    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, result: Result<(), String>) {
        let Err(what) = result else { return };
        let mut trouble = self.trouble();
        if let Some(listener) = trouble.listener.take() {
            listener(&what);
        }
        trouble.last = Some(what);
    }
}

impl<P: FramePort> FramePort for Capture<P> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.fetch(now, packets_to(sink))
    }

    fn receive_all(&mut self, now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.fetch(now, sink)
    }

    fn transmit<'p>(
        &mut self,
        now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        self.keep_up(now);
        let time = self.time(now);
        let Self { inner, tape, shared, capabilities, .. } = self;
        inner.transmit(now, &mut |room| {
            let outgoing = source(Room { first: &mut *room.first, second: &mut *room.second })?;
            Some(seal(outgoing, room, time, capabilities.headers, &mut |record| {
                shared.tell(tape.record(record));
            }))
        })
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        self.shared.tell(self.tape.flush());
        self.inner.wait(timeout)
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        self.shared.tell(self.tape.flush());
        self.inner.settle(timeout)
    }

    fn due(&self) -> Option<Duration> {
        self.inner.due()
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.inner.sleeper()
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.inner.counters();
        let counts = self.tape.counts();
        counters.extend([
            ("capture_frames", counts.frames),
            ("capture_lost", counts.lost),
            ("capture_files", counts.files),
            ("capture_errors", counts.errors),
        ]);
        counters
    }
}

impl<P> Drop for Capture<P> {
    fn drop(&mut self) {
        self.shared.tell(self.tape.write());
    }
}

#[cfg(test)]
mod tests;
