//! What the writers write, the reader reads.

use proptest::{collection::vec, option, prelude::*};
use roxe_net::capture_file::{
    CaptureWriter, Direction, LinkType, MAX_PACKET_LEN, NewInterface, NewRecord, PcapWriter, Start,
    Timestamp, WriteError,
};

use crate::{Seen, open, read, read_to_end};

#[derive(Clone, Debug)]
struct Packet {
    interface: u32,
    nanos: u64,
    data: Vec<u8>,
    more_on_the_wire: u32,
    direction: Option<Direction>,
    comment: Option<String>,
}

impl Packet {
    fn record(&self) -> NewRecord<'_> {
        NewRecord {
            interface: self.interface,
            time: Timestamp::from_nanos(self.nanos),
            data: &self.data,
            wire_len: self.data.len() as u32 + self.more_on_the_wire,
            direction: self.direction,
            comment: self.comment.as_deref(),
        }
    }

    fn seen(&self, number: u64, snap_len: usize) -> Seen {
        Seen {
            number,
            time: Timestamp::from_nanos(self.nanos).to_string(),
            start: [Start::Ethernet, Start::Ip][self.interface as usize],
            data: self.data[..self.data.len().min(snap_len)].to_vec(),
            wire_len: self.data.len() as u32 + self.more_on_the_wire,
            interface: self.interface,
            direction: self.direction,
            comment: self.comment.clone(),
        }
    }
}

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let direction = prop_oneof![Just(Direction::Inbound), Just(Direction::Outbound)];
    let fields = (
        0..2u32,
        any::<u64>(),
        vec(any::<u8>(), 0..200),
        0..2000u32,
        option::of(direction),
        option::of("[^\0]{0,20}"),
    );
    let packet =
        fields.prop_map(|(interface, nanos, data, more_on_the_wire, direction, comment)| Packet {
            interface,
            nanos,
            data,
            more_on_the_wire,
            direction,
            comment,
        });
    vec(packet, 0..20)
}

const SNAP_LEN: u32 = 100;

/// An Ethernet interface without a limit, and one for IP with [`SNAP_LEN`].
fn writer() -> CaptureWriter<Vec<u8>> {
    let mut writer = CaptureWriter::new(Vec::new()).unwrap();
    let ethernet =
        NewInterface { name: "eth0", description: "", link_type: LinkType::ETHERNET, snap_len: 0 };
    let ip =
        NewInterface { name: "", description: "", link_type: LinkType::RAW, snap_len: SNAP_LEN };
    assert_eq!(writer.add_interface(ethernet).unwrap(), 0);
    assert_eq!(writer.add_interface(ip).unwrap(), 1);
    writer
}

proptest! {
    #[test]
    fn pcapng_comes_back_as_it_was_written(packets in packets()) {
        let mut writer = writer();
        let mut expected = Vec::new();
        for (number, packet) in (1..).zip(&packets) {
            // Whole, and in pieces, of which some have nothing.
            if number % 2 == 0 {
                let (head, tail) = packet.data.split_at(packet.data.len() / 3);
                let record = NewRecord { data: &[], ..packet.record() };
                writer.write_pieces(&record, &[head, &[], tail]).unwrap();
            } else {
                writer.write(&packet.record()).unwrap();
            }
            let snap_len = [usize::MAX, SNAP_LEN as usize][packet.interface as usize];
            expected.push(packet.seen(number, snap_len));
        }
        prop_assert_eq!(read(&writer.finish().unwrap()), expected);
    }

    #[test]
    fn pcap_comes_back_as_far_as_it_can_say(packets in packets()) {
        let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, SNAP_LEN).unwrap();
        let mut expected = Vec::new();
        for (number, packet) in (1..).zip(&packets) {
            let packet = Packet {
                interface: 0,
                nanos: packet.nanos % (1_000_000_000 << 32),
                direction: None,
                comment: None,
                ..packet.clone()
            };
            writer.write(&packet.record()).unwrap();
            expected.push(packet.seen(number, SNAP_LEN as usize));
        }
        prop_assert_eq!(read(&writer.finish().unwrap()), expected);
    }
}

fn packet(data: &[u8]) -> NewRecord<'_> {
    NewRecord {
        interface: 0,
        time: Timestamp::default(),
        data,
        wire_len: 0,
        direction: None,
        comment: None,
    }
}

#[test]
fn interfaces_are_described() {
    let mut writer = writer();
    writer.write(&packet(b"short")).unwrap();
    let described =
        NewInterface { name: "", description: "a port", link_type: LinkType::RAW, snap_len: 0 };
    assert_eq!(writer.add_interface(described).unwrap(), 2);
    let file = writer.finish().unwrap();
    let option = [&[3, 0, 6, 0], &b"a port\0\0"[..]].concat();
    assert!(file.windows(option.len()).any(|bytes| bytes == option), "if_description");
    let outcome = read_to_end(open(&file).unwrap());
    assert_eq!(outcome.records[0].wire_len, 5, "no shorter than the data");
    let [ethernet, ip, _] = outcome.reader.interfaces() else { panic!("three interfaces") };
    assert_eq!((ethernet.name.as_deref(), ethernet.snap_len), (Some("eth0"), 0));
    assert_eq!((ip.name.as_deref(), ip.snap_len), (None, SNAP_LEN));
    assert_eq!((ethernet.link_type, ip.link_type), (LinkType::ETHERNET, LinkType::RAW));
}

#[test]
fn long_texts_are_cut_between_characters() {
    let mut writer = writer();
    let name = "ü".repeat(200);
    let long =
        NewInterface { name: &name, description: "", link_type: LinkType::ETHERNET, snap_len: 0 };
    writer.add_interface(long).unwrap();
    let comment = "ü".repeat(40_000);
    writer.write(&NewRecord { comment: Some(&comment), ..packet(b"") }).unwrap();
    let outcome = read_to_end(open(&writer.finish().unwrap()).unwrap());
    assert_eq!(outcome.records[0].comment, Some("ü".repeat(32_767)));
    assert_eq!(outcome.reader.interfaces()[2].name, Some("ü".repeat(128)));
}

#[test]
fn the_largest_packet_is_read_and_a_larger_one_is_not_written() {
    let data = vec![0x5a; MAX_PACKET_LEN + 1];
    let mut writer = writer();
    writer.write(&packet(&data[1..])).unwrap();
    let error = writer.write(&packet(&data)).unwrap_err();
    assert!(matches!(error, WriteError::PacketLength { len } if len == data.len()));
    assert_eq!(read(&writer.finish().unwrap())[0].data, data[1..]);
}

#[test]
fn what_cannot_be_written_is_refused() {
    let unknown = NewRecord { interface: 2, ..packet(b"") };
    let error = writer().write(&unknown).unwrap_err();
    assert!(matches!(error, WriteError::NoSuchInterface { interface: 2 }));
    let late = NewRecord { time: Timestamp::from_nanos(1_000_000_000 << 32), ..packet(b"") };
    let mut writer = PcapWriter::new(Vec::new(), LinkType::ETHERNET, 0).unwrap();
    let error = writer.write(&late).unwrap_err();
    assert!(matches!(error, WriteError::TooLate { .. }));
}

#[test]
fn what_was_flushed_can_be_read_while_the_capture_goes_on() {
    let path = std::env::temp_dir().join(format!("roxe-flushed-{}.pcapng", std::process::id()));
    let mut writer = CaptureWriter::create(&path).unwrap();
    let ethernet =
        NewInterface { name: "eth0", description: "", link_type: LinkType::ETHERNET, snap_len: 0 };
    writer.add_interface(ethernet).unwrap();
    writer.write(&packet(b"one")).unwrap();
    writer.flush().unwrap();
    let records = read(&std::fs::read(&path).unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(records.len(), 1);
}
