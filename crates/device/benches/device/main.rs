//! How fast two devices talk to each other, next to yardsticks from the same run.
//! `cargo bench -p roxe-device [WORD…]` runs what contains a word.
//!
//! Both ends run in one thread, frames are built, sealed, taken apart and checked as at a port, so
//! each number is for the work of both ends together. Ours and the yardstick take turns, so that
//! both meet the same moods of the machine; what counts is the median of the ratios.
//!
//! # Loss
//! A port takes [`BATCH`](ends::BATCH) packets in a turn, and an answer comes in the turn in which
//! its request left. Go-back-N then delivers of each turn what lies before the first packet lost,
//! so with a share `p` of all packets lost and `n` packets in a turn it cannot deliver more than
//! `(1 - p) (1 - (1 - p)^n) / (p n)` of what it sends. That times the rate without loss is the
//! yardstick. What comes behind a gap costs less than what is delivered, so a ratio may be above 1.
//!
//! # Instructions
//! Named explicitly, `instructions` sends [`COUNTED`] WRITEs of 8 bytes, one at a time and without
//! checks of the ICRC, for callgrind to count. By function, and to be divided by [`COUNTED`]:
//! `requests_out` is a request sent, `requests_in` received, `answers_out` an ACK sent,
//! `answers_in` received (with the completion of its request). What is sent includes its frame:
//! `seal`.
//! ```text
//! cargo bench -p roxe-device --no-run   # says where the program is
//! valgrind --tool=callgrind --callgrind-out-file=counts PROGRAM instructions
//! callgrind_annotate --inclusive=yes counts | grep -E 'requests_|answers_'
//! ```
//!
//! Named explicitly, `bulk-write` and `bulk-read` do the same with [`BULKS`] messages of 1024
//! packets of 1024 bytes.
//!
//! # Misses
//! Named explicitly, `misses` sends WRITEs as the row of many queue pairs does, in bursts of
//! [`BURST`] to [`MISSING`] queue pairs, a burst to each and as many again three times in random
//! order, for callgrind to count how often memory was not in a cache of 1 MiB: the columns DLmr and
//! DLmw, to be divided by the calls of each function. Unlike that row's rates they do not depend on
//! what else the machine does.
//! ```text
//! valgrind --tool=callgrind --cache-sim=yes --LL=1048576,16,64 --callgrind-out-file=counts \
//!     PROGRAM misses
//! ```
//!
//! # What instructions do not show
//! A payload of 4 KiB leaves a core that is full of writes to memory that is in no cache. Meanwhile
//! two things make the core wait for all of them: a load of bytes that were just stored in smaller
//! pieces (a structure that is moved after its fields were set), and more stores than the core has
//! places for (112 on the one this was measured on, of which 64 are the payload's). Each such load
//! costs up to a tenth of a long message's rate. `perf record -e cpu-clock` shows them as single
//! instructions with most of the samples of their function.
//!
//! # Memory
//! Bytes that both devices together have taken from the allocator per connection, halved.

mod ends;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crc32fast::Hasher;
use ends::{BATCH, Ends, next_random};
use roxe_wire::Mtu;

/// Pairs of measurements; odd, so that the median is one of them.
const PAIRS: usize = 21;

/// Messages of one measurement, for short messages.
const MESSAGES: usize = 1 << 18;

/// Requests that are posted to a queue pair in one go.
const BURST: usize = 16;

/// Bytes of a long message.
const LONG: usize = 1 << 20;

/// Long messages of one measurement.
const LONGS: usize = 128;

/// Messages whose instructions are counted.
const COUNTED: usize = 20_000;

/// Long messages whose instructions are counted, of 1024 packets each.
const BULKS: usize = 20;

/// Queue pairs whose cache misses are counted.
const MISSING: usize = 2_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if words.iter().any(|word| word == "instructions") {
        return instructions();
    }
    if words.iter().any(|word| word == "misses") {
        return misses();
    }
    for (word, read) in [("bulk-write", false), ("bulk-read", true)] {
        if words.iter().any(|given| given == word) {
            let mut ends = Ends::new(1, Mtu::B1024);
            ends.checked = false;
            return transfers(&mut ends, BULKS, read);
        }
    }
    let mut table = Table { words, rows: Vec::new() };
    short(&mut table);
    long(&mut table);
    many(&mut table);
    loss(&mut table);
    memory(&mut table);
    table.print();
}

/// One message at a time, so that each packet is answered.
fn instructions() {
    let mut ends = Ends::new(1, Mtu::B1024);
    ends.checked = false;
    for _ in 0..COUNTED {
        ends.post_inline_write(0, &[7; 8]);
        ends.run(1);
    }
}

/// Bursts to many queue pairs.
fn misses() {
    let mut ends = Ends::new(MISSING, Mtu::B1024);
    ends.checked = false;
    let (mut next, mut state) = (0..MISSING, 0x9e37_79b9_7f4a_7c15);
    let mut order =
        |_: usize| next.next().unwrap_or_else(|| next_random(&mut state) as usize % MISSING);
    bursts(&mut ends, 4 * MISSING * BURST, false, &mut order);
}

/// Messages of 8 bytes over one queue pair.
fn short(table: &mut Table) {
    for send in [false, true] {
        let mut ends = Ends::new(1, Mtu::B1024);
        let label = if send { "SEND 8 B" } else { "WRITE 8 B" };
        let mut order = |_: usize| 0;
        let mut ours = || bursts(&mut ends, MESSAGES, send, &mut order);
        let mut copies = || copies_and_checks(8, 8 + HEADERS, MESSAGES);
        table.row(
            label,
            MILLION_A_SECOND,
            MESSAGES as f64,
            &mut ours,
            "copy + crc32fast",
            &mut copies,
        );
    }
}

/// Messages of 8 bytes over many queue pairs, in bursts.
fn many(table: &mut Table) {
    if !table.wants("WRITE 8 B, QPs") {
        return;
    }
    let mut one = Ends::new(1, Mtu::B1024);
    for queue_pairs in [1_000, 50_000] {
        let mut some = Ends::new(queue_pairs, Mtu::B1024);
        let mut state = 0x9e37_79b9_7f4a_7c15;
        let mut random = |_: usize| next_random(&mut state) as usize % queue_pairs;
        let mut ours = || bursts(&mut some, MESSAGES, false, &mut random);
        let mut first = |_: usize| 0;
        let mut yardstick = || bursts(&mut one, MESSAGES, false, &mut first);
        let label = format!("WRITE 8 B, {queue_pairs} QPs");
        let of = MESSAGES as f64;
        table.row(&label, MILLION_A_SECOND, of, &mut ours, "one QP", &mut yardstick);
        let mut last = |_: usize| queue_pairs / 2;
        let mut ours = || bursts(&mut some, MESSAGES, false, &mut last);
        let label = format!("WRITE 8 B, 1 of {queue_pairs} QPs");
        table.row(&label, MILLION_A_SECOND, of, &mut ours, "one QP", &mut yardstick);
    }
}

/// Messages of 1 MiB.
fn long(table: &mut Table) {
    for mtu in [Mtu::B1024, Mtu::B4096] {
        for read in [false, true] {
            let mut ends = Ends::new(1, mtu);
            let label = format!("{} 1 MiB, MTU {mtu}", if read { "READ" } else { "WRITE" });
            let mut ours = || transfers(&mut ends, LONGS, read);
            let payload = mtu.bytes() as usize;
            let packets = LONGS * LONG / payload;
            let mut copies = || copies_and_checks(payload, payload + HEADERS, packets);
            let bytes = (LONGS * LONG) as f64;
            table.row(
                &label,
                GIGABYTE_A_SECOND,
                bytes,
                &mut ours,
                "copies + crc32fast",
                &mut copies,
            );
        }
    }
}

/// Long messages while one packet in a hundred is lost.
fn loss(table: &mut Table) {
    if !table.wants("WRITE 1 MiB, 1 % lost") {
        return;
    }
    let mtu = Mtu::B4096;
    let (mut lossy, mut clean) = (Ends::new(1, mtu), Ends::new(1, mtu));
    lossy.lose(100);
    let (p, n) = (0.01_f64, BATCH as f64);
    let bound = (1.0 - p) * (1.0 - (1.0 - p).powf(n)) / (p * n);
    let bytes = (LONGS * LONG) as f64;
    let mut ours = || transfers(&mut lossy, LONGS, false);
    let mut yardstick = || transfers(&mut clean, LONGS, false);
    let label = "WRITE 1 MiB, 1 % lost";
    table.row(label, GIGABYTE_A_SECOND, bytes, &mut ours, "go-back-N bound", &mut yardstick);
    if let Some(row) = table.rows.last_mut() {
        row.theirs *= bound;
        row.ratio /= bound;
    }
    let before = lossy.moved;
    transfers(&mut lossy, 10 * LONGS, false);
    let sent = (lossy.moved - before) as f64;
    let needed = (10 * LONGS * LONG / mtu.bytes() as usize) as f64;
    let share = needed / sent;
    table.rows.push(Row {
        what: "packets delivered of those sent, 1 % lost".into(),
        ours: share,
        unit: "",
        yardstick: "go-back-N bound",
        theirs: bound,
        ratio: share / bound,
    });
}

/// What a connection takes that does nothing.
fn memory(table: &mut Table) {
    if !table.wants("bytes per idle QP") {
        return;
    }
    const MANY: usize = 1 << 14;
    let before = TAKEN.load(Ordering::Relaxed);
    let empty = Ends::new(0, Mtu::B1024);
    let without = TAKEN.load(Ordering::Relaxed) - before;
    drop(empty);
    let mut ends = Ends::new(MANY, Mtu::B1024);
    let idle = TAKEN.load(Ordering::Relaxed) - before - without;
    let mut turn = 0;
    let mut each = |_: usize| {
        turn = (turn + 1) % MANY;
        turn
    };
    bursts(&mut ends, MANY * BURST, true, &mut each);
    let used = TAKEN.load(Ordering::Relaxed) - before - without;
    let templates = size_of::<Option<(u64, roxe_wire::FrameTemplate)>>() * MANY * 2;
    for (what, bytes) in [
        ("bytes per idle QP", idle),
        ("bytes per QP that was used in bursts of 16", used - templates),
    ] {
        let bytes = bytes as f64 / (2 * MANY) as f64;
        let (yardstick, theirs) = ("target", 2048.0);
        let ratio = theirs / bytes;
        table.rows.push(Row {
            what: what.into(),
            ours: bytes,
            unit: "B",
            yardstick,
            theirs,
            ratio,
        });
    }
}

/// Bursts of messages of 8 bytes, each to the queue pair that `order` says, as many queue pairs at
/// a time as fill a turn.
fn bursts(ends: &mut Ends, messages: usize, send: bool, order: &mut dyn FnMut(usize) -> usize) {
    for _ in 0..messages / BATCH {
        for burst in 0..BATCH / BURST {
            let qp = order(burst);
            for _ in 0..BURST {
                if send {
                    ends.post_inline_send(qp, &[7; 8]);
                } else {
                    ends.post_inline_write(qp, &[7; 8]);
                }
            }
        }
        ends.run(BATCH);
    }
}

/// Messages of 1 MiB, two at a time, through the registered memory.
fn transfers(ends: &mut Ends, messages: usize, read: bool) {
    const WITHIN: u64 = 2;
    for message in 0..WITHIN.min(messages as u64) {
        ends.post_transfer(0, message * LONG as u64, LONG as u32, read);
    }
    for message in WITHIN..messages as u64 {
        ends.run(1);
        ends.post_transfer(0, message % 7 * LONG as u64, LONG as u32, read);
    }
    ends.run(WITHIN as usize);
}

/// Bytes before the payload: Ethernet, IPv4, UDP, BTH, rounded up to a multiple of four.
const HEADERS: usize = 56;

/// What no adapter in software can do without: each end copies the payload once and computes the
/// CRC over the packet, in pieces of the same size, out of and into as much memory.
///
/// As the devices do it: [`BATCH`] frames are filled one after the other, each hashed at once, then
/// taken in one after the other, each hashed and then copied out; in frames as far apart, with the
/// payload at the same place, and with the same 7 MiB of source and target in the same order.
/// Nothing else happens: no header is written or read, and the CRCs are compared with nothing.
fn copies_and_checks(payload: usize, packet: usize, packets: usize) {
    thread_local! {
        static MEMORY: std::cell::RefCell<(Vec<u8>, Vec<u8>, Vec<u8>)> = const {
            std::cell::RefCell::new((Vec::new(), Vec::new(), Vec::new()))
        };
    }
    const STRIDE: usize = 4352;
    let headers = packet - payload;
    MEMORY.with_borrow_mut(|(from, to, frames)| {
        if from.is_empty() {
            *from = vec![7; 7 * LONG];
            *to = vec![7; 7 * LONG];
            *frames = vec![7; BATCH * STRIDE];
        }
        let places = 7 * LONG / payload;
        for batch in 0..packets / BATCH {
            let place = |at: usize| (batch * BATCH + at) % places * payload;
            for (at, frame) in frames.chunks_exact_mut(STRIDE).enumerate() {
                frame[headers..packet].copy_from_slice(&from[place(at)..][..payload]);
                black_box(crc(&frame[..packet]));
            }
            for (at, frame) in frames.chunks_exact(STRIDE).enumerate() {
                black_box(crc(&frame[..packet]));
                to[place(at)..][..payload].copy_from_slice(&frame[headers..packet]);
            }
        }
    });
}

fn crc(bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finalize()
}

/// What a rate is shown in: a name, and how many in one.
type Unit = (&'static str, f64);

const MILLION_A_SECOND: Unit = ("M/s", 1e6);
const GIGABYTE_A_SECOND: Unit = ("GB/s", 1e9);

struct Row {
    what: String,
    ours: f64,
    unit: &'static str,
    yardstick: &'static str,
    theirs: f64,
    ratio: f64,
}

struct Table {
    words: Vec<String>,
    rows: Vec<Row>,
}

impl Table {
    fn wants(&self, what: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| what.contains(word.as_str()))
    }

    /// Measures ours against the yardstick; both do `amount` of something in one run.
    fn row(
        &mut self,
        what: &str,
        (unit, in_one): Unit,
        amount: f64,
        ours: &mut dyn FnMut(),
        yardstick: &'static str,
        theirs: &mut dyn FnMut(),
    ) {
        if !self.wants(what) {
            return;
        }
        eprintln!("{what}");
        ours();
        theirs();
        let pairs: [(f64, f64); PAIRS] = std::array::from_fn(|_| (seconds(ours), seconds(theirs)));
        self.rows.push(Row {
            what: what.into(),
            ours: amount / in_one / median(pairs.map(|(ours, _)| ours)),
            unit,
            yardstick,
            theirs: amount / in_one / median(pairs.map(|(_, theirs)| theirs)),
            ratio: median(pairs.map(|(ours, theirs)| theirs / ours)),
        });
    }

    fn print(&self) {
        println!("{:<44} {:>8}      {:<19} {:>8} {:>6}", "job", "ours", "yardstick", "", "ratio");
        for Row { what, ours, unit, yardstick, theirs, ratio } in &self.rows {
            println!("{what:<44} {ours:>8.2} {unit:<4} {yardstick:<19} {theirs:>8.2} {ratio:>6.2}");
        }
        println!("ratio: the median of {PAIRS} pairs; above 1 ours is better");
    }
}

fn seconds(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn median(mut values: [f64; PAIRS]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[PAIRS / 2]
}

/// The system's allocator, and how many bytes it has given out.
struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged; counting neither allocates nor touches the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        TAKEN.fetch_add(size, Ordering::Relaxed);
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; `pointer` came from the system, because all of them do.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
