//! A port that can be recorded while it is in use: who wants to see what passes it asks for a
//! [`Recording`] from any thread, and drops it when it has seen enough.
//!
//! While nobody records, a call costs one look at a number. While somebody does, frames are copied
//! into room that was made before; who empties it too slowly loses frames, which are counted, and
//! never slows the port.
//!
//! # Counters
//!
//! Besides those of the inner port:
//!
//! | name | counts |
//! |---|---|
//! | `live_recordings` | recordings begun |
//! | `live_frames` | frames given to a recording |
//! | `live_lost` | frames for which a recording had no room |

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use roxe_wire::{Addressing, DropReason, FrameTemplate, Instant, Received, Room};
use rustix::event::{EventfdFlags, eventfd};

use super::{Record, record_arrival, seal};
use crate::capture_file::{
    CaptureWriter, Direction, LinkType, NewInterface, NewRecord, Timestamp, WriteError,
};
use crate::port::{Arrival, Capabilities, FramePort, HeadersOf, Outgoing, Sent, Wake, packets_to};
use crate::{Sleeper, Waker};

/// A port that can be recorded while it is in use.
pub struct Live<P> {
    inner: P,
    /// The wall-clock time of [`Instant::ZERO`].
    epoch: Timestamp,
    last: Option<(Addressing, FrameTemplate)>,
    shared: Arc<Shared>,
}

/// Begins recordings of a [`Live`] port, from any thread.
#[derive(Clone)]
pub struct Tap {
    shared: Arc<Shared>,
    link_type: LinkType,
    summary: String,
}

#[derive(Default)]
struct Shared {
    /// How many recordings there are.
    count: AtomicU32,
    recordings: Mutex<Vec<Arc<Queue>>>,
    begun: AtomicU64,
    frames: AtomicU64,
    lost: AtomicU64,
}

/// Frames between the port and whoever records.
struct Queue {
    /// Readable while frames wait.
    event: OwnedFd,
    waiting: Mutex<Waiting>,
}

/// Frames, and how many found no room since they were taken last.
struct Waiting {
    frames: Frames,
    lost: u64,
}

/// Frames with their bytes one behind the other.
struct Frames {
    places: Vec<Place>,
    bytes: Vec<u8>,
}

/// What is known of a frame besides its bytes.
#[derive(Clone, Copy)]
struct Place {
    time: Timestamp,
    direction: Direction,
    len: usize,
    wire_len: usize,
    dropped: Option<DropReason>,
}

/// What passes a port from now on, until this is dropped. Its descriptor is readable while frames
/// wait.
pub struct Recording {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    /// Those that were taken last: their memory is used again.
    taken: Frames,
    /// How many found no room behind those.
    lost: u64,
    comment: String,
    link_type: LinkType,
    summary: String,
}

impl<P: FramePort> Live<P> {
    /// Puts it around a port whose engine's time began at this time of the wall clock.
    pub fn new(inner: P, epoch: Timestamp) -> Self {
        Self { inner, epoch, last: None, shared: Arc::default() }
    }

    /// What begins recordings.
    pub fn tap(&self) -> Tap {
        let Capabilities { headers, summary, .. } = self.inner.capabilities();
        let link_type = match headers {
            HeadersOf::Path => LinkType::ETHERNET,
            HeadersOf::Kernel { .. } => LinkType::RAW,
        };
        Tap { shared: Arc::clone(&self.shared), link_type, summary: summary.clone() }
    }

    fn time(&self, now: Instant) -> Timestamp {
        Timestamp::from_nanos(self.epoch.as_nanos().saturating_add(now.nanos()))
    }

    #[cold]
    fn fetch(&mut self, now: Instant, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        let time = self.time(now);
        let Self { inner, last, shared, .. } = self;
        let headers = inner.capabilities().headers;
        inner.receive_all(now, &mut |arrival| {
            record_arrival(&arrival, time, headers, last, &mut |record| shared.put(&record));
            sink(arrival);
        })
    }
}

impl Shared {
    fn is_wanted(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    fn recordings(&self) -> MutexGuard<'_, Vec<Arc<Queue>>> {
        self.recordings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, record: &Record<'_>) {
        for queue in self.recordings().iter() {
            let mut waiting = queue.lock();
            let first = waiting.frames.places.is_empty();
            let counter = if waiting.frames.put(record) {
                if first {
                    // The count is 0: it cannot fail.
                    let _ = rustix::io::write(&queue.event, &1_u64.to_ne_bytes());
                }
                &self.frames
            } else {
                waiting.lost += 1;
                &self.lost
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Frames {
    fn with_room(bytes: usize) -> Self {
        let places = Vec::with_capacity(bytes / LEAST_FRAME);
        Self { places, bytes: Vec::with_capacity(bytes) }
    }

    /// Keeps a frame, if there is room.
    fn put(&mut self, record: &Record<'_>) -> bool {
        let len = record.pieces.iter().map(|piece| piece.len()).sum();
        let has_room = self.bytes.capacity() - self.bytes.len() >= len
            && self.places.len() < self.places.capacity();
        if has_room {
            record.pieces.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
            let Record { time, direction, wire_len, dropped, .. } = *record;
            self.places.push(Place { time, direction, len, wire_len, dropped });
        }
        has_room
    }

    fn clear(&mut self) {
        self.places.clear();
        self.bytes.clear();
    }
}

impl Tap {
    /// What frames of recordings begin with.
    pub const fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Begins a recording that holds at most so many bytes of frames which were not taken yet;
    /// it takes twice as much memory, and some for each frame.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn record(&self, bytes: usize) -> io::Result<Recording> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiting = Mutex::new(Waiting { frames: Frames::with_room(bytes), lost: 0 });
        let queue = Arc::new(Queue { event, waiting });
        let shared = Arc::clone(&self.shared);
        shared.recordings().push(Arc::clone(&queue));
        shared.begun.fetch_add(1, Ordering::Relaxed);
        shared.count.fetch_add(1, Ordering::Relaxed);
        Ok(Recording {
            shared,
            queue,
            taken: Frames::with_room(bytes),
            lost: 0,
            comment: String::new(),
            link_type: self.link_type,
            summary: self.summary.clone(),
        })
    }
}

impl Recording {
    /// Begins a capture on `output`, with the port as interface `name`.
    ///
    /// # Errors
    /// Where `output` fails.
    pub fn begin<W: io::Write>(
        &self,
        output: W,
        name: &str,
    ) -> Result<CaptureWriter<W>, WriteError> {
        let mut writer = CaptureWriter::new(output)?;
        let description = self.summary.as_str();
        let link_type = self.link_type;
        writer.add_interface(NewInterface { name, description, link_type, snap_len: 0 })?;
        Ok(writer)
    }

    /// Writes what came since the last call. Says how many frames behind it did not fit; a comment
    /// on the next one says so too, see [`lost_before`].
    ///
    /// # Errors
    /// Where the output fails.
    pub fn write<W: io::Write>(
        &mut self,
        writer: &mut CaptureWriter<W>,
    ) -> Result<u64, WriteError> {
        self.taken.clear();
        let lost = {
            let mut waiting = self.queue.lock();
            std::mem::swap(&mut waiting.frames, &mut self.taken);
            if !self.taken.places.is_empty() {
                let _ = rustix::io::read(&self.queue.event, &mut [0; 8]);
            }
            std::mem::take(&mut waiting.lost)
        };
        let before = std::mem::replace(&mut self.lost, lost);
        let mut at = 0;
        for (number, &Place { time, direction, len, wire_len, dropped }) in
            self.taken.places.iter().enumerate()
        {
            self.comment.clear();
            if number == 0 && before > 0 {
                let _ = write!(self.comment, "{before}{LOST}");
            } else if let Some(reason) = dropped {
                let _ = write!(self.comment, "thrown away: {reason}");
            }
            writer.write(&NewRecord {
                interface: 0,
                time,
                data: &self.taken.bytes[at..at + len],
                wire_len: u32::try_from(wire_len).unwrap_or(u32::MAX),
                direction: Some(direction),
                comment: Some(self.comment.as_str()).filter(|comment| !comment.is_empty()),
            })?;
            at += len;
        }
        if self.taken.places.is_empty() {
            self.lost += before;
        }
        Ok(lost)
    }
}

impl AsFd for Recording {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.event.as_fd()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut recordings = self.shared.recordings();
        recordings.retain(|queue| !Arc::ptr_eq(queue, &self.queue));
        self.shared.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P: FramePort> FramePort for Live<P> {
    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    #[inline]
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        if !self.shared.is_wanted() {
            return self.inner.receive(now, sink);
        }
        self.fetch(now, packets_to(sink))
    }

    #[inline]
    fn receive_all(&mut self, now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        if !self.shared.is_wanted() {
            return self.inner.receive_all(now, sink);
        }
        self.fetch(now, sink)
    }

    #[inline]
    fn transmit<'p>(
        &mut self,
        now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        if !self.shared.is_wanted() {
            return self.inner.transmit(now, source);
        }
        let time = self.time(now);
        let Self { inner, shared, .. } = self;
        let headers = inner.capabilities().headers;
        inner.transmit(now, &mut |room| {
            let outgoing = source(Room { first: &mut *room.first, second: &mut *room.second })?;
            Some(seal(outgoing, room, time, headers, &mut |record| shared.put(&record)))
        })
    }

    fn may_receive(&mut self) -> bool {
        self.inner.may_receive()
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        self.inner.wait(timeout)
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
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
        let Shared { begun, frames, lost, .. } = &*self.shared;
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        counters.extend([
            ("live_recordings", value(begun)),
            ("live_frames", value(frames)),
            ("live_lost", value(lost)),
        ]);
        counters
    }
}

/// How many frames a recording lost before the one with this comment.
pub fn lost_before(comment: &str) -> Option<u64> {
    comment.strip_suffix(LOST)?.parse().ok()
}

/// How that comment ends.
const LOST: &str = " frames were lost before this one: read too slowly";

/// No packet's frame is shorter.
const LEAST_FRAME: usize = 64;

#[cfg(test)]
mod tests {
    use roxe_wire::Mtu;

    use super::*;
    use crate::capture::tests::{at, path, send};
    use crate::capture_file::CaptureReader;
    use crate::memory;

    const EPOCH: Timestamp = Timestamp::from_nanos(1_000_000_000);

    /// How many frames were lost, as comments tell.
    fn lost(bytes: Vec<u8>) -> u64 {
        let mut reader = CaptureReader::new(io::Cursor::new(bytes)).expect("a capture");
        let mut lost = 0;
        while let Some(record) = reader.next().expect("a record") {
            lost += record.comment.and_then(lost_before).unwrap_or(0);
        }
        lost
    }

    /// Time, direction and length of each frame of a capture.
    fn read(bytes: Vec<u8>) -> Vec<(u64, Option<Direction>, usize)> {
        let mut reader = CaptureReader::new(io::Cursor::new(bytes)).expect("a capture");
        let mut frames = Vec::new();
        while let Some(record) = reader.next().expect("a record") {
            frames.push((record.time.as_nanos(), record.direction, record.data.len()));
        }
        assert!(reader.truncated().is_none());
        frames
    }

    fn receive<P: FramePort>(port: &mut P, now: Instant) -> usize {
        port.receive(now, &mut |_| {})
    }

    fn write(recording: &mut Recording) -> (Vec<u8>, u64) {
        let mut bytes = Vec::new();
        let mut writer = recording.begin(&mut bytes, "roxe0").expect("memory");
        let lost = recording.write(&mut writer).expect("memory");
        writer.flush().expect("memory");
        drop(writer);
        (bytes, lost)
    }

    fn counter(port: &impl FramePort, name: &str) -> u64 {
        port.counters().into_iter().find(|(known, _)| *known == name).expect("a counter").1
    }

    #[test]
    fn a_recording_has_what_passes_while_it_lasts() {
        let [one, mut other] = memory::pair(Mtu::B1024).expect("two ports");
        let mut port = Live::new(one, EPOCH);
        let tap = port.tap();
        let way = path(false, false);
        send(&mut port, at(1), &way, &[20]);
        let mut recording = tap.record(1 << 16).expect("a recording");
        send(&mut port, at(2), &way, &[24, 28]);
        send(&mut other, at(2), &way, &[32]);
        assert_eq!(receive(&mut port, at(3)), 1);
        let around = way.headers_len();
        let (bytes, lost) = write(&mut recording);
        let (sent, got) = (Some(Direction::Outbound), Some(Direction::Inbound));
        let second = 1_000_000_000;
        let expected = [
            (second + 2_000, sent, around + 24),
            (second + 2_000, sent, around + 28),
            (second + 3_000, got, around + 32),
        ];
        assert_eq!((read(bytes), lost), (expected.to_vec(), 0));

        assert_eq!(read(write(&mut recording).0), [], "they were taken");
        drop(recording);
        send(&mut port, at(4), &way, &[20]);
        assert_eq!(counter(&port, "live_frames"), 3);
        assert_eq!(counter(&port, "live_recordings"), 1);
        assert_eq!(counter(&port, "tx_packets"), 4);
    }

    #[test]
    fn what_finds_no_room_is_counted_and_told_and_traffic_goes_on() {
        let [one, mut other] = memory::pair(Mtu::B1024).expect("two ports");
        let mut port = Live::new(one, EPOCH);
        let way = path(false, false);
        let frame = way.headers_len() + 100;
        let mut small = port.tap().record(3 * frame).expect("a recording");
        let mut large = port.tap().record(1 << 16).expect("another");
        assert_eq!(send(&mut port, at(1), &way, &[100; 5]).packets, 5);
        assert_eq!(receive(&mut other, at(1)), 5);
        let frames = |(bytes, lost)| (read(bytes).len(), lost);
        assert_eq!(frames(write(&mut small)), (3, 2));
        assert_eq!(frames(write(&mut large)), (5, 0));
        assert_eq!((counter(&port, "live_frames"), counter(&port, "live_lost")), (8, 2));
        send(&mut port, at(2), &way, &[100]);
        let (bytes, behind) = write(&mut small);
        assert_eq!((lost(bytes.clone()), behind), (2, 0));
        assert_eq!(read(bytes).len(), 1);
    }

    /// Whoever sleeps on the descriptor misses nothing.
    #[test]
    fn the_descriptor_is_readable_exactly_while_frames_wait() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let [one, _other] = memory::pair(Mtu::B1024).expect("two ports");
        let mut port = Live::new(one, EPOCH);
        let mut recording = port.tap().record(1 << 16).expect("a recording");
        let is_readable = |recording: &Recording| {
            let mut fds = [PollFd::new(recording, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).expect("a poll") == 1
        };
        for turn in 1..4 {
            assert!(!is_readable(&recording));
            send(&mut port, at(turn), &path(true, true), &[100; 2]);
            assert!(is_readable(&recording));
            assert_eq!(read(write(&mut recording).0).len(), 2);
        }
        assert!(!is_readable(&recording));
    }
}
