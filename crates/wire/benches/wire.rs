//! How fast frames come apart, are checked and are written, next to a yardstick that does the least
//! that could do the same job. `cargo bench -p roxe-wire [WORD…]` runs what contains a word.
//!
//! Ours and the yardstick take turns, so that both meet the same moods of the machine; what counts
//! is the median of the ratios. Everything lies in the first-level cache, as a frame does that is
//! looked at next to others of its batch.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use crc32fast::Hasher;
use etherparse::SlicedPacket;
use roxe_wire::opcode::Header;
use roxe_wire::{
    Aeth, Bth, Credits, Deth, Frame, FrameTemplate, Headers, IpPair, MacAddress, Msn, Opcode,
    Packet, Path, Payload, Psn, QKey, Qpn, RKey, RawFrame, Reth, Room, Syndrome, TrafficClass,
    icrc, pad_for,
};

/// Pairs of measurements; odd, so that the median is one of them.
const PAIRS: usize = 21;

/// How long one measurement takes.
const SLICE: Duration = Duration::from_micros(400);

/// Frames of one kind that take turns.
const FRAMES: u8 = 4;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut table = Table { words, rows: Vec::new() };
    for v6 in [false, true] {
        for (name, payload) in
            [("RC_ACKNOWLEDGE", 0), ("RC_SEND_ONLY", 1024), ("RC_WRITE_FIRST", 1024)]
                .into_iter()
                .chain([("RC_READ_RESPONSE_MIDDLE", 1024), ("UD_SEND_ONLY", 1024)])
        {
            parse(&mut table, v6, name, payload);
        }
    }
    for v6 in [false, true] {
        for (name, payload) in [
            ("RC_ACKNOWLEDGE", 0),
            ("RC_SEND_ONLY", 64),
            ("RC_SEND_ONLY", 256),
            ("RC_SEND_ONLY", 1024),
            ("RC_WRITE_FIRST", 1024),
            ("RC_SEND_ONLY", 4096),
        ] {
            check(&mut table, v6, name, payload);
            emit(&mut table, v6, name, payload);
        }
    }
    table.print();
}

/// A kind of frame, several times, with different contents.
struct Case {
    label: String,
    template: FrameTemplate,
    packets: Vec<(Headers, Vec<u8>)>,
    frames: Vec<Vec<u8>>,
}

impl Case {
    fn new(v6: bool, name: &str, payload_len: usize) -> Self {
        let path = path(v6);
        let template = FrameTemplate::new(&path);
        let packets: Vec<(Headers, Vec<u8>)> = (0..FRAMES)
            .map(|i| {
                let payload =
                    (0..=255_u8).skip(7 * usize::from(i)).cycle().take(payload_len).collect();
                (headers(name, payload_len, i.into()), payload)
            })
            .collect();
        let frames = packets.iter().map(|(headers, payload)| {
            let packet = packet(headers, payload);
            let at = template.headers_len();
            let mut frame = vec![0; at + packet.len()];
            let len = packet.len().try_into().unwrap();
            let cover = template.write(len, 7, &mut frame).unwrap();
            packet.emit(Room::whole(&mut frame[at..]), &cover).unwrap();
            frame
        });
        let frames = frames.collect();
        let label = format!("{name} {payload_len} B, IPv{}", if v6 { 6 } else { 4 });
        Self { label, template, packets, frames }
    }

    /// Where the IP header begins.
    fn ip_at(&self) -> usize {
        14
    }

    /// The bytes that the ICRC covers from the IP header on, and how many of them are headers.
    fn covered<'a>(&self, frame: &'a [u8]) -> (&'a [u8], usize) {
        let row = Opcode::from_code(self.packets[0].0.bth.opcode).unwrap();
        let headers = self.template.headers_len() - self.ip_at() + row.headers_len;
        (&frame[self.ip_at()..frame.len() - 4], headers)
    }
}

fn path(v6: bool) -> Path {
    let ip = if v6 {
        IpPair::new("2001:db8::a".parse().unwrap(), "2001:db8::b".parse().unwrap())
    } else {
        IpPair::new("192.0.2.10".parse().unwrap(), "192.0.2.11".parse().unwrap())
    };
    Path {
        ethernet: (MacAddress([2, 0, 0, 0, 0, 11]), MacAddress([2, 0, 0, 0, 0, 10])),
        vlan: None,
        ip: ip.unwrap(),
        traffic_class: TrafficClass(0x6a),
        hop_limit: 64,
        flow_label: 0x12345,
        source_port: 0xc123,
    }
}

fn headers(name: &str, payload: usize, psn: u32) -> Headers {
    let opcode = Opcode::by_name(name).unwrap();
    let has = |header| opcode.headers.contains(&header);
    Headers {
        bth: Bth {
            opcode: opcode.code,
            pad: pad_for(payload),
            dest_qp: Qpn::new(0x11),
            psn: Psn::new(psn),
            ..Bth::default()
        },
        aeth: has(Header::Aeth)
            .then_some(Aeth { syndrome: Syndrome::Ack(Credits::INVALID), msn: Msn::new(psn) }),
        reth: has(Header::Reth).then_some(Reth { va: 0x7f00, r_key: RKey(psn), dma_len: 1 << 20 }),
        deth: has(Header::Deth).then_some(Deth {
            q_key: QKey::RDMA_CM,
            reserved: 0,
            source_qp: Qpn::new(0x22),
        }),
        ..Headers::default()
    }
}

fn packet<'a>(headers: &Headers, payload: &'a [u8]) -> Packet<'a> {
    Packet {
        opcode: headers.bth.row().unwrap(),
        headers: *headers,
        payload: Payload::bytes(payload),
    }
}

/// Link, IP, UDP, BTH and extension headers, without the ICRC; etherparse stops at UDP.
fn parse(table: &mut Table, v6: bool, name: &str, payload: usize) {
    let case = Case::new(v6, name, payload);
    let mut turn = 0;
    let ours = || {
        turn = (turn + 1) % usize::from(FRAMES);
        let frame = Frame::parse(RawFrame::ethernet(black_box(&case.frames[turn]))).unwrap();
        black_box(&Packet::parse(frame.body));
    };
    let mut turn = 0;
    let mut etherparse = || {
        turn = (turn + 1) % usize::from(FRAMES);
        black_box(&SlicedPacket::from_ethernet(black_box(&case.frames[turn])));
    };
    table.row("parse", &case.label, ours, &mut [("etherparse", &mut etherparse)]);
}

/// The check of a frame that was taken apart, against crc32fast over the same bytes.
fn check(table: &mut Table, v6: bool, name: &str, payload: usize) {
    let case = Case::new(v6, name, payload);
    let frames: Vec<Frame<'_>> =
        case.frames.iter().map(|f| Frame::parse(RawFrame::ethernet(f)).unwrap()).collect();
    let mut turn = 0;
    let ours = || {
        turn = (turn + 1) % usize::from(FRAMES);
        let frame = black_box(&frames[turn]);
        assert!(icrc::check(&frame.icrc_cover(), frame.body).is_ok());
    };
    let mut turn = 0;
    let mut pieces = || {
        turn = (turn + 1) % usize::from(FRAMES);
        let (covered, headers) = case.covered(black_box(&case.frames[turn]));
        let mut masked = [0xff; 100];
        masked[8..8 + headers].copy_from_slice(&covered[..headers]);
        let mut hasher = Hasher::new();
        hasher.update(&masked[..8 + headers]);
        hasher.update(&covered[headers..]);
        black_box(hasher.finalize());
    };
    let mut turn = 0;
    let mut contiguous = || {
        turn = (turn + 1) % usize::from(FRAMES);
        let (covered, _) = case.covered(black_box(&case.frames[turn]));
        let mut hasher = Hasher::new();
        hasher.update(covered);
        black_box(hasher.finalize());
    };
    let mut yardsticks: [Yardstick<'_>; 2] =
        [("crc32fast, 2 pieces", &mut pieces), ("crc32fast, 1 piece", &mut contiguous)];
    table.row("check", &case.label, ours, &mut yardsticks);
}

/// All headers from their fields, the payload copied, the ICRC; against copies and crc32fast alone.
/// Both yardsticks have their headers ready made, lengths and checksum included, and copy them and
/// the payload. One then computes the ICRC in two pieces, of a masked copy of the headers and of
/// the payload in the frame. The other makes one run over the frame without masking anything,
/// which gives another number than the ICRC: nothing that hashes every byte does less.
fn emit(table: &mut Table, v6: bool, name: &str, payload: usize) {
    let case = Case::new(v6, name, payload);
    let at = case.template.headers_len();
    // One for both: how fast a copy is depends on where it goes.
    let room = RefCell::new(vec![0; case.frames[0].len()]);
    let packets: Vec<Packet<'_>> = case.packets.iter().map(|(h, p)| packet(h, p)).collect();
    let mut turn = 0_u16;
    let ours = || {
        turn = (turn + 1) % u16::from(FRAMES);
        let packet = black_box(&packets[usize::from(turn)]);
        let mut room = room.borrow_mut();
        let room = black_box(&mut room[..]);
        let len = packet.len().try_into().unwrap();
        let cover = case.template.write(len, turn, room).unwrap();
        black_box(packet.emit(Room::whole(&mut room[at..]), &cover).unwrap());
    };
    // Copies headers and payload; returns the headers that the ICRC covers, and where they end.
    let copy = |turn: usize, room: &mut [u8]| {
        let payload = black_box(&case.packets[turn].1);
        let (covered, headers) = case.covered(black_box(&case.frames[turn]));
        let behind = case.ip_at() + headers;
        room[..behind].copy_from_slice(&case.frames[turn][..behind]);
        room[behind..behind + payload.len()].copy_from_slice(payload);
        (&covered[..headers], behind)
    };
    let mut turn = 0;
    let mut pieces = || {
        turn = (turn + 1) % usize::from(FRAMES);
        let mut room = room.borrow_mut();
        let room = black_box(&mut room[..]);
        let (headers, behind) = copy(turn, room);
        let mut masked = [0xff; 100];
        masked[8..8 + headers.len()].copy_from_slice(headers);
        let mut hasher = Hasher::new();
        hasher.update(&masked[..8 + headers.len()]);
        let end = room.len() - 4;
        hasher.update(&room[behind..end]);
        room[end..].copy_from_slice(&hasher.finalize().to_le_bytes());
        black_box(room);
    };
    let mut turn = 0;
    let mut contiguous = || {
        turn = (turn + 1) % usize::from(FRAMES);
        let mut room = room.borrow_mut();
        let room = black_box(&mut room[..]);
        copy(turn, room);
        let mut hasher = Hasher::new();
        let end = room.len() - 4;
        hasher.update(&room[case.ip_at()..end]);
        room[end..].copy_from_slice(&hasher.finalize().to_le_bytes());
        black_box(room);
    };
    let mut yardsticks: [Yardstick<'_>; 2] =
        [("copies, 2 pieces", &mut pieces), ("copies, 1 piece", &mut contiguous)];
    table.row("emit", &case.label, ours, &mut yardsticks);
}

type Yardstick<'a> = (&'static str, &'a mut dyn FnMut());

struct Row {
    what: String,
    ours: f64,
    yardstick: &'static str,
    theirs: f64,
    ratio: f64,
}

struct Table {
    words: Vec<String>,
    rows: Vec<Row>,
}

impl Table {
    /// Measures ours against each yardstick.
    fn row(
        &mut self,
        job: &str,
        label: &str,
        mut ours: impl FnMut(),
        yardsticks: &mut [Yardstick<'_>],
    ) {
        let what = format!("{job:5} {label}");
        if !self.words.is_empty() && !self.words.iter().any(|word| what.contains(word.as_str())) {
            return;
        }
        eprintln!("{what}");
        for (yardstick, run) in yardsticks {
            let ours_times = iterations(&mut ours);
            let theirs_times = iterations(run);
            let pairs: [(f64, f64); PAIRS] =
                std::array::from_fn(|_| (time(&mut ours, ours_times), time(run, theirs_times)));
            self.rows.push(Row {
                what: what.clone(),
                ours: median(pairs.map(|(ours, _)| ours)),
                yardstick,
                theirs: median(pairs.map(|(_, theirs)| theirs)),
                ratio: median(pairs.map(|(ours, theirs)| theirs / ours)),
            });
        }
    }

    fn print(&self) {
        println!("{:<44} {:>8}   {:<19} {:>8} {:>6}", "job", "ours ns", "yardstick", "ns", "ratio");
        for Row { what, ours, yardstick, theirs, ratio } in &self.rows {
            println!("{what:<44} {ours:>8.1}   {yardstick:<19} {theirs:>8.1} {ratio:>6.2}");
        }
        println!("ratio: yardstick / ours, the median of {PAIRS} pairs; above 1 ours is faster");
    }
}

/// How often `run` fits into one measurement.
fn iterations(run: &mut dyn FnMut()) -> u32 {
    let mut times = 16;
    loop {
        let ns = time(run, times) * f64::from(times);
        if ns > SLICE.as_nanos() as f64 {
            return times;
        }
        times *= 2;
    }
}

/// Nanoseconds per run.
fn time(run: &mut dyn FnMut(), times: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        run();
    }
    start.elapsed().as_nanos() as f64 / f64::from(times)
}

fn median(mut values: [f64; PAIRS]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[PAIRS / 2]
}
