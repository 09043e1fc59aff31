use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::AtomicU32;
use std::thread;

use roxe_wire::{
    DropReason, Frame, IpPair, MacAddress, Mtu, Path as Way, Start, TrafficClass, VlanTag,
};

use super::*;
use crate::capture_file::{CaptureReader, CaptureWriter, Interface, Record as FileRecord};
use crate::fault::FaultPort;
use crate::memory::{self, MemoryPort};
use crate::udp::{self, Udp};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("roxe-capture-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The names of the files in it, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Read {
    nanos: u64,
    direction: Option<Direction>,
    start: Start,
    bytes: Vec<u8>,
    wire_len: u32,
    comment: Option<String>,
}

fn read(path: impl AsRef<Path>) -> Vec<Read> {
    let mut reader = CaptureReader::open(path).expect("a capture");
    let mut records = Vec::new();
    while let Some(record) = reader.next().expect("a record") {
        records.push(Read {
            nanos: record.time.as_nanos(),
            direction: record.direction,
            start: record.start,
            bytes: record.data.to_vec(),
            wire_len: record.wire_len,
            comment: record.comment.map(|comment| comment.to_string()),
        });
    }
    assert!(reader.truncated().is_none(), "whole frames only");
    records
}

pub(super) fn path(v6: bool, vlan: bool) -> FrameTemplate {
    let v4 = |last| Ipv4Addr::new(192, 0, 2, last);
    let v6_of = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
    FrameTemplate::new(&Way {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: vlan.then_some(VlanTag(5)),
        ip: if v6 {
            IpPair::V6 { source: v6_of(1), destination: v6_of(2) }
        } else {
            IpPair::V4 { source: v4(1), destination: v4(2) }
        },
        traffic_class: TrafficClass(0x02),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    })
}

pub(super) fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

/// Sends packets of these lengths, the first of whose bytes counts them.
pub(super) fn send<P: FramePort>(
    port: &mut P,
    now: Instant,
    path: &FrameTemplate,
    lens: &[usize],
) -> Sent {
    let mut lens = lens.iter().enumerate();
    port.transmit(now, &mut |room| {
        let (number, &len) = lens.next()?;
        let written = len.min(room.first.len());
        room.first[..written].fill(number as u8);
        Some(Outgoing { path, len, seal: Seal::Compute })
    })
}

/// The frames that arrive.
fn frames<P: FramePort>(port: &mut P, now: Instant) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    port.receive_all(now, &mut |arrival| {
        let frame = arrival.frame.expect("the port shows frames");
        frames.push([frame.first, frame.second].concat());
    });
    frames
}

fn count<P: FramePort>(port: &P, name: &str) -> u64 {
    port.counters().iter().find(|(it, _)| *it == name).map_or(0, |(_, count)| *count)
}

fn open(port: MemoryPort, path: &Path, keep: Keep) -> Capture<MemoryPort> {
    let settings = Settings { keep, ..Settings::default() };
    Capture::open(port, path, "mem0", settings).expect("a capture")
}

fn is_right(record: &Read) -> bool {
    let raw = RawFrame { start: record.start, ..RawFrame::ethernet(&record.bytes) };
    let frame = Frame::parse(raw).expect("a RoCEv2 frame");
    icrc::check(&frame.icrc_cover(), frame.body).is_ok()
}

#[test]
fn both_sides_record_what_passes() {
    let folder = Folder::new();
    let [a, b] = memory::pair(Mtu::B1024).expect("a pair");
    let settings = Settings { epoch: Timestamp::from_nanos(1_000_000_000), ..Settings::default() };
    let record =
        |port, name| Capture::open(port, folder.file(name), "mem0", settings).expect("a capture");
    let (mut a, mut b) = (record(a, "a.pcapng"), record(b, "b.pcapng"));
    let mut passed = Vec::new();
    for (number, (v6, vlan)) in
        [(false, false), (true, false), (false, true), (true, true)].into_iter().enumerate()
    {
        let now = at(number as u64);
        send(&mut a, now, &path(v6, vlan), &[20, 16, 1056]);
        passed.extend(frames(&mut b, now).into_iter().map(|frame| (number as u64, frame)));
    }
    assert_eq!(passed.len(), 12);
    send(&mut b, at(9), &path(false, false), &[24]);
    assert_eq!(a.receive(at(10), &mut |packet| assert_eq!(packet.body.len(), 24)), 1);
    assert_eq!(count(&a, "capture_frames"), 13);
    assert_eq!((count(&a, "tx_packets"), count(&a, "rx_packets")), (12, 1));
    assert!(a.capabilities().summary.contains(", recorded to "));
    drop((a, b));

    for (name, direction) in [("a.pcapng", Direction::Outbound), ("b.pcapng", Direction::Inbound)] {
        let records = read(folder.file(name));
        assert_eq!(records.len(), 13);
        for (record, (micros, frame)) in records.iter().zip(&passed) {
            assert_eq!(record.nanos, 1_000_000_000 + micros * 1000);
            assert_eq!(record.direction, Some(direction));
            assert_eq!((record.start, record.comment.as_ref()), (Start::Ethernet, None));
            assert_eq!((&record.bytes, record.wire_len), (frame, frame.len() as u32));
            assert!(is_right(record));
        }
    }
    let [out, into] = ["b.pcapng", "a.pcapng"].map(|name| read(folder.file(name)).remove(12));
    assert_eq!(out.bytes, into.bytes);
    let directions = [out.direction, into.direction];
    assert_eq!(directions, [Some(Direction::Outbound), Some(Direction::Inbound)]);
    let file = fs::read(folder.file("a.pcapng")).expect("a file");
    let told = b"memory: port 0, path MTU 1024";
    assert!(file.windows(told.len()).any(|bytes| bytes == told), "the port is described");
}

#[test]
fn what_was_written_by_others_goes_as_it_is() {
    let folder = Folder::new();
    let [a, mut b] = memory::pair(Mtu::B256).expect("a pair");
    let mut a = open(a, &folder.file("x.pcapng"), Keep::All);
    let path = path(false, false);
    let mut once = Some(Outgoing { path: &path, len: 20, seal: Seal::AsWritten });
    a.transmit(at(0), &mut |room| {
        room.first[..20].fill(0x5a);
        once.take()
    });
    // Neither can be sent, and the inner port says so.
    assert_eq!(send(&mut a, at(0), &path, &[3, usize::MAX / 2]).packets, 2);
    assert_eq!(count(&a, "tx_unsendable"), 2);
    let arrived = frames(&mut b, at(0));
    a.wait(Duration::ZERO);
    let records = read(folder.file("x.pcapng"));
    assert_eq!(records.len(), 1);
    assert_eq!(arrived, [&records[0].bytes[..]]);
    assert_eq!(arrived[0][42..], [0x5a; 20]);
}

#[test]
fn a_socket_is_recorded_without_link_headers() {
    let folder = Folder::new();
    let number = std::process::id() * 4;
    let [_, b, c, d] = number.to_be_bytes();
    let here = Ipv4Addr::new(127, b | 0x40, c ^ 0x55, d);
    let udp = Udp::open(here.into(), udp::Settings::default()).expect("a port");
    let mut port = Capture::open(udp, folder.file("u.pcapng"), "roxe1", Settings::default())
        .expect("a capture");
    let to_itself = FrameTemplate::new(&Way {
        ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
        vlan: None,
        ip: IpPair::V4 { source: here, destination: here },
        traffic_class: TrafficClass(0x02),
        hop_limit: 64,
        flow_label: 0,
        source_port: 0xc000,
    });
    send(&mut port, at(0), &to_itself, &[1056, 1056, 20]);
    let mut arrived = 0;
    while arrived < 3 {
        port.wait(Duration::MAX);
        arrived += port.receive(at(1), &mut |packet| {
            assert_eq!(packet.check_icrc(), Some(Ok(())), "it was sealed for the socket's port");
        });
    }
    drop(port);
    let records = read(folder.file("u.pcapng"));
    assert_eq!(records.len(), 6);
    let (sent, received) = records.split_at(3);
    for (sent, received) in sent.iter().zip(received) {
        assert_eq!((sent.start, &sent.bytes), (Start::Ip, &received.bytes));
        assert_eq!(received.direction, Some(Direction::Inbound));
        assert!(is_right(sent));
        let raw = RawFrame { start: Start::Ip, ..RawFrame::ethernet(&sent.bytes) };
        let frame = Frame::parse(raw).expect("a RoCEv2 frame");
        assert_eq!(frame.udp.source_port, 4791);
        assert_eq!(frame.ip.source(), IpAddr::from(here));
    }
}

/// What a faulty network changed is shown as it is now.
#[test]
fn packets_without_their_frames_are_framed_anew() {
    let folder = Folder::new();
    let [mut a, b] = memory::pair(Mtu::B256).expect("a pair");
    let b = FaultPort::parse(b, "mark", 1).expect("rules");
    let mut b =
        Capture::open(b, folder.file("x.pcapng"), "mem0", Settings::default()).expect("a capture");
    for (v6, vlan) in [(false, false), (true, true)] {
        send(&mut a, at(0), &path(v6, vlan), &[20, 24]);
    }
    assert_eq!(b.receive(at(0), &mut |_| ()), 4);
    drop(b);
    let records = read(folder.file("x.pcapng"));
    assert_eq!(records.len(), 4);
    for record in &records {
        assert!(is_right(record));
        let frame = Frame::parse(RawFrame::ethernet(&record.bytes)).expect("a RoCEv2 frame");
        assert_eq!(frame.ip.traffic_class(), TrafficClass(0x03));
        assert_eq!(frame.ethernet, Some((MacAddress::default(), MacAddress::default())));
    }
    assert_eq!(records.iter().map(|it| it.bytes.len()).collect::<Vec<_>>(), [62, 66, 86, 90]);
}

/// A port at which a frame of something else arrives, and then something that shows no frame.
struct Strange(MemoryPort);

impl FramePort for Strange {
    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.0.receive(now, sink)
    }

    fn receive_all(&mut self, _now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        let frame = Some(RawFrame::ethernet(&[0xab; 5000]));
        sink(Arrival { frame, packet: Err(DropReason::NotIp { ether_type: 0xabab }) });
        let packet = Err(DropReason::Truncated { have: 1, need: 2 });
        sink(Arrival { frame: None, packet });
        0
    }

    fn transmit<'p>(
        &mut self,
        now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        self.0.transmit(now, source)
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        self.0.wait(timeout)
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        self.0.settle(timeout)
    }

    fn due(&self) -> Option<Duration> {
        self.0.due()
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.0.sleeper()
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.0.counters()
    }
}

#[test]
fn what_is_thrown_away_is_there_with_the_reason() {
    let folder = Folder::new();
    for (keep, longest) in [(Keep::All, 5000), (Keep::Last { frames: 3 }, 256 + 114)] {
        let [a, _] = memory::pair(Mtu::B256).expect("a pair");
        let settings = Settings { keep, ..Settings::default() };
        let mut port = Capture::open(Strange(a), folder.file("x.pcapng"), "mem0", settings)
            .expect("a capture");
        let mut seen = 0;
        assert_eq!(port.receive_all(at(3), &mut |_| seen += 1), 0);
        assert_eq!((seen, count(&port, "capture_frames")), (2, 1));
        drop(port);
        let expected = Read {
            nanos: 3000,
            direction: Some(Direction::Inbound),
            start: Start::Ethernet,
            bytes: vec![0xab; longest],
            wire_len: 5000,
            comment: Some("thrown away: not IP: Ethertype 0xabab".to_owned()),
        };
        assert_eq!(read(folder.file("x.pcapng")), [expected]);
    }
}

#[test]
fn long_frames_are_cut_where_it_is_wanted() {
    let folder = Folder::new();
    for keep in [Keep::All, Keep::Last { frames: 3 }] {
        let [a, _] = memory::pair(Mtu::B1024).expect("a pair");
        let settings = Settings { keep, snap_len: 80, ..Settings::default() };
        let mut port =
            Capture::open(a, folder.file("x.pcapng"), "mem0", settings).expect("a capture");
        send(&mut port, at(0), &path(false, false), &[1056, 20]);
        drop(port);
        let lens: Vec<_> = read(folder.file("x.pcapng"))
            .iter()
            .map(|record| (record.bytes.len(), record.wire_len))
            .collect();
        assert_eq!(lens, [(80, 1098), (62, 62)], "{keep:?}");
    }
}

#[test]
fn a_ring_of_files_keeps_its_limit() {
    let folder = Folder::new();
    fs::write(folder.file("x_00007.pcapng"), b"of an earlier run").expect("a file");
    fs::write(folder.file("x_7.pcapng"), b"something else").expect("a file");
    let [a, _] = memory::pair(Mtu::B1024).expect("a pair");
    let keep = Keep::Files { bytes: 8000, count: 3 };
    let mut port = open(a, &folder.file("x.pcapng"), keep);
    assert_eq!(folder.names(), ["x_00007.pcapng", "x_00008.pcapng", "x_7.pcapng"]);
    for number in 0..100 {
        send(&mut port, at(number), &path(false, false), &[1000]);
    }
    assert_eq!(count(&port, "capture_frames"), 100);
    let files = count(&port, "capture_files");
    drop(port);
    assert!(files > 10, "{files}");
    let expected: Vec<_> = (files + 5..files + 8).map(|n| format!("x_{n:05}.pcapng")).collect();
    assert_eq!(folder.names()[1..4], expected);
    assert_eq!(folder.names().len(), 5);
    let mut times = Vec::new();
    for name in &expected {
        let len = fs::metadata(folder.file(name)).expect("a file").len();
        assert!(len <= 8000, "{len}");
        times.extend(read(folder.file(name)).iter().map(|record| record.nanos / 1000));
    }
    let first = 100 - times.len() as u64;
    assert_eq!(times, (first..100).collect::<Vec<_>>(), "the newest, none missing");
    assert!(times.len() > 14, "{}", times.len());
}

/// No file has more than one frame beyond its limit, and none is empty.
#[test]
fn a_frame_longer_than_a_file_has_one_for_itself() {
    let folder = Folder::new();
    let [a, _] = memory::pair(Mtu::B1024).expect("a pair");
    let mut port = open(a, &folder.file("x.pcapng"), Keep::Files { bytes: 800, count: 9 });
    for (number, len) in [1000, 1000, 20, 20, 1000].into_iter().enumerate() {
        send(&mut port, at(number as u64), &path(false, false), &[len]);
    }
    drop(port);
    let names = folder.names();
    let frames: Vec<_> = names.iter().map(|name| read(folder.file(name)).len()).collect();
    assert_eq!(frames, [1, 1, 2, 1], "{names:?}");
    let len = |name| fs::metadata(folder.file(name)).expect("a file").len();
    assert!(len(&names[2]) <= 800 && len(&names[0]) < 800 + 1200);
}

#[test]
fn the_last_frames_are_written_when_asked_for() {
    let folder = Folder::new();
    let file = folder.file("x.pcapng");
    let [a, _] = memory::pair(Mtu::B1024).expect("a pair");
    let mut port = open(a, &file, Keep::Last { frames: 5 });
    let recorder = port.recorder();
    let times = || read(&file).iter().map(|record| record.nanos / 1000).collect::<Vec<_>>();
    let send_at = |port: &mut Capture<MemoryPort>, numbers: std::ops::Range<u64>| {
        numbers.for_each(|number| {
            send(port, at(number), &path(false, false), &[1000]);
        });
    };
    send_at(&mut port, 0..3);
    port.wait(Duration::ZERO);
    assert_eq!(times(), [0; 0]);
    recorder.write();
    assert_eq!(port.wait(Duration::MAX), Wake::Called);
    port.receive(at(3), &mut |_| ());
    assert_eq!(times(), [0, 1, 2]);
    send_at(&mut port, 4..12);
    assert_eq!(times(), [0, 1, 2]);
    recorder.write();
    send_at(&mut port, 12..13);
    assert_eq!(times(), [7, 8, 9, 10, 11]);
    assert_eq!((count(&port, "capture_frames"), count(&port, "capture_files")), (12, 2));
    drop(port);
    assert_eq!(times(), [8, 9, 10, 11, 12]);
    assert_eq!(recorder.trouble(), None);
}

/// What a file has when the port is about to sleep is what it has when the program is killed then.
#[test]
fn whoever_is_killed_leaves_whole_frames() {
    let folder = Folder::new();
    let file = folder.file("x.pcapng");
    let [a, _] = memory::pair(Mtu::B1024).expect("a pair");
    let mut port = open(a, &file, Keep::All);
    assert_eq!(read(&file), []);
    send(&mut port, at(0), &path(false, false), &[20, 1056]);
    port.wait(Duration::ZERO);
    assert_eq!(read(&file).len(), 2);
    // Never idle: at least once a second.
    send(&mut port, at(1), &path(false, false), &[20]);
    send(&mut port, at(1_000_000), &path(false, false), &[20]);
    assert_eq!(read(&file).len(), 3);
    // And whenever the buffer is full; then up to a frame's end.
    let mut written = 0;
    for _ in 0..8 {
        send(&mut port, at(1_000_001), &path(false, false), &[1056; 64]);
        written = read(&file).len();
    }
    assert!(written > 100, "{written}");
}

/// Who is told so may end at any moment, even while a packet is on its way out.
#[test]
fn before_the_end_a_frame_is_in_the_file_before_it_passes() {
    let folder = Folder::new();
    let file = folder.file("x.pcapng");
    let [a, mut b] = memory::pair(Mtu::B1024).expect("a pair");
    let mut port = open(a, &file, Keep::All);
    let way = path(false, false);
    send(&mut port, at(0), &way, &[20]);
    assert_eq!(read(&file).len(), 0);
    port.recorder().write_at_once();
    let mut asked = 0;
    port.transmit(at(1), &mut |_| {
        // What was handed over before is not sent yet.
        assert_eq!(read(&file).len(), 1 + asked);
        asked += 1;
        (asked < 3).then_some(Outgoing { path: &way, len: 20, seal: Seal::Compute })
    });
    assert_eq!((asked, read(&file).len()), (3, 3));
    send(&mut b, at(2), &way, &[20, 20]);
    let mut seen = Vec::new();
    port.receive_all(at(2), &mut |_| seen.push(read(&file).len()));
    assert_eq!(seen, [4, 5]);
}

#[test]
fn where_nothing_can_be_written_it_says_so() {
    let folder = Folder::new();
    for keep in [Keep::All, Keep::Files { bytes: 1000, count: 2 }, Keep::Last { frames: 2 }] {
        let [a, _] = memory::pair(Mtu::B256).expect("a pair");
        let settings = Settings { keep, ..Settings::default() };
        let file = folder.file("missing/x.pcapng");
        let refused = Capture::open(a, &file, "mem0", settings).err().expect("there is no folder");
        let said = format!("cannot create the capture {}: No such file", file.display());
        assert!(refused.to_string().starts_with(&said), "{refused}");
    }
    let [a, _] = memory::pair(Mtu::B256).expect("a pair");
    let refused = Capture::open(a, "/dev/full", "mem0", Settings::default()).err();
    let refused = refused.expect("the disk is full").to_string();
    assert!(refused.contains("/dev/full: No space left on device"), "{refused}");
}

#[test]
fn trouble_with_a_file_does_not_stop_the_traffic() {
    let folder = Folder::new();
    let fifo = folder.file("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let reader = {
        let fifo = fifo.clone();
        thread::spawn(move || {
            use std::io::Read as _;
            let mut file = fs::File::open(fifo).expect("a fifo");
            file.read_exact(&mut [0; 28]).expect("a section header");
        })
    };
    let [a, mut b] = memory::pair(Mtu::B256).expect("a pair");
    let mut a = open(a, &fifo, Keep::All);
    let recorder = a.recorder();
    reader.join().expect("it reads a little and goes");
    send(&mut a, at(0), &path(false, false), &[20, 20, 20]);
    assert_eq!((count(&a, "capture_frames"), count(&a, "capture_lost")), (3, 0));
    a.wait(Duration::ZERO);
    assert_eq!((count(&a, "capture_frames"), count(&a, "capture_lost")), (0, 3));
    send(&mut a, at(0), &path(false, false), &[20]);
    a.wait(Duration::ZERO);
    assert_eq!((count(&a, "capture_lost"), count(&a, "capture_errors")), (4, 1));
    assert_eq!(frames(&mut b, at(0)).len(), 4, "all went its way");
    let trouble = recorder.trouble().expect("it is told");
    let said = format!("cannot write the capture {}: Broken pipe", fifo.display());
    assert!(trouble.starts_with(&said), "{trouble}");
    assert!(trouble.ends_with("; nothing is recorded any more"), "{trouble}");
}

/// A ring that cannot go on ends: its frames are lost and counted.
#[test]
fn trouble_with_the_next_or_the_oldest_file_is_told() {
    let folder = Folder::new();
    let said = |trouble: Option<String>, what: &str| {
        let trouble = trouble.expect("it is told");
        assert!(trouble.contains(what), "{trouble}");
    };
    let ring = || {
        let [a, _] = memory::pair(Mtu::B256).expect("a pair");
        let mut port = open(a, &folder.file("x.pcapng"), Keep::Files { bytes: 100, count: 1 });
        send(&mut port, at(0), &path(false, false), &[20]);
        let recorder = port.recorder();
        (port, recorder)
    };
    let counts = |port: &Capture<_>| {
        ["frames", "lost", "errors"].map(|it| count(port, &format!("capture_{it}")))
    };

    let (mut port, recorder) = ring();
    fs::create_dir(folder.file("x_00002.pcapng")).expect("a folder is in the way");
    send(&mut port, at(0), &path(false, false), &[20, 20]);
    assert_eq!(counts(&port), [1, 2, 1]);
    said(recorder.trouble(), "Is a directory");
    drop(port);

    let (mut port, recorder) = ring();
    fs::remove_file(folder.file("x_00003.pcapng")).expect("it is there");
    fs::create_dir(folder.file("x_00003.pcapng")).expect("a folder is in its place");
    send(&mut port, at(0), &path(false, false), &[20, 20]);
    assert_eq!(counts(&port), [1, 2, 1]);
    said(recorder.trouble(), "x_00003.pcapng cannot be removed: Is a directory");
}

/// What somebody else finds out is told to whoever ends it, too.
#[test]
fn trouble_with_what_is_kept_is_told_to_the_end() {
    let folder = Folder::new();
    let keep = Keep::Files { bytes: 100, count: 2 };
    let interface =
        Interface { name: None, link_type: LinkType::ETHERNET, snap_len: 0, skipped: 0 };
    let settings = Settings { keep, ..Settings::default() };
    let begin = || Keeper::create(&folder.file("x.pcapng"), &interface, 1000, &settings);
    let record = FileRecord {
        number: 1,
        interface: 0,
        time: Timestamp::default(),
        start: Start::Ethernet,
        data: &[2; 80],
        wire_len: 80,
        direction: None,
        comment: None,
    };
    let mut keeper = begin().expect("a file");
    assert_eq!((keeper.keep(&record), keeper.flush()), (Ok(()), Ok(())));
    fs::create_dir(folder.file("x_00002.pcapng")).expect("a folder is in the way");
    let trouble = keeper.keep(&record).expect_err("there is no second file");
    assert_eq!(keeper.flush(), Err(trouble.clone()));
    assert_eq!(keeper.keep(&record), Err(trouble.clone()));
    assert_eq!(keeper.finish(), Err(trouble));
}

/// Two adapters that were told the same file: neither loses a frame to the other.
#[test]
fn a_file_that_is_being_written_is_left_alone() {
    let folder = Folder::new();
    let file = folder.file("x.pcapng");
    let [a, b] = memory::pair(Mtu::B256).expect("a pair");
    let (mut a, mut b) = (open(a, &file, Keep::All), open(b, &file, Keep::All));
    let busy = CaptureWriter::create(&file).err().expect("it is locked").to_string();
    assert!(busy.ends_with("is writing this file: name another one"), "{busy}");
    assert!(b.capabilities().summary.ends_with("x_1.pcapng"), "{}", b.capabilities().summary);
    send(&mut a, at(0), &path(false, false), &[20]);
    send(&mut b, at(0), &path(false, false), &[20, 20]);
    drop((a, b));
    assert_eq!((read(&file).len(), read(folder.file("x_1.pcapng")).len()), (1, 2));
    CaptureWriter::create(&file).expect("it is free again");
}

#[test]
fn each_recording_has_a_file_of_its_own() {
    let names = [0, 1].map(|index| numbered(Path::new("dir/x.pcapng"), index));
    assert_eq!(names, ["dir/x.pcapng", "dir/x_1.pcapng"].map(PathBuf::from));
}

#[test]
fn the_last_frames_stay_until_they_can_be_written() {
    let folder = Folder::new();
    let file = folder.file("sub/x.pcapng");
    fs::create_dir(folder.file("sub")).expect("a folder");
    let [a, _] = memory::pair(Mtu::B256).expect("a pair");
    let mut port = open(a, &file, Keep::Last { frames: 2 });
    let recorder = port.recorder();
    fs::rename(folder.file("sub"), folder.file("away")).expect("it is moved");
    send(&mut port, at(0), &path(false, false), &[20]);
    recorder.write();
    port.receive(at(1), &mut |_| ());
    assert!(recorder.trouble().expect("it is told").contains("No such file"));
    assert_eq!((count(&port, "capture_frames"), count(&port, "capture_errors")), (1, 1));
    fs::rename(folder.file("away"), folder.file("sub")).expect("it is moved back");
    drop(port);
    assert_eq!(read(&file).len(), 1);
}
