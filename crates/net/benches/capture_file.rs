//! How long the reader takes for a record, from the page cache: packets of 300 bytes, in each
//! format and compression. The time per element is the time per record.

use std::{
    fs::{self, File},
    hint::black_box,
    io::{self, Write},
    path::Path,
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use roxe_net::capture_file::{
    CaptureReader, CaptureWriter, Direction, LinkType, NewInterface, NewRecord, PcapWriter,
    Timestamp,
};

const RECORDS: u64 = 300_000;
const PACKET_LEN: usize = 300;

/// Packets that compress about as well as traffic does: a third is noise.
fn for_each_packet(mut write: impl FnMut(&NewRecord<'_>)) {
    let mut packet = [0u8; PACKET_LEN];
    let mut noise = 1u64;
    for number in 0..RECORDS {
        for word in packet[200..].as_chunks_mut::<8>().0 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *word = noise.to_be_bytes();
        }
        let record = NewRecord {
            interface: 0,
            time: Timestamp::from_nanos(1_700_000_000_000_000_000 + number * 1_000),
            data: &packet,
            wire_len: PACKET_LEN as u32,
            direction: Some(Direction::Inbound),
            comment: None,
        };
        write(&record);
    }
}

fn write_pcap(path: &Path) {
    let file = File::create(path).unwrap();
    let mut writer = PcapWriter::new(file, LinkType::ETHERNET, 0).unwrap();
    for_each_packet(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
}

fn write_pcapng(path: &Path, with_options: bool) {
    let mut writer = CaptureWriter::create(path).unwrap();
    let interface =
        NewInterface { name: "eth0", description: "", link_type: LinkType::ETHERNET, snap_len: 0 };
    writer.add_interface(interface).unwrap();
    for_each_packet(|record| {
        let direction = record.direction.filter(|_| with_options);
        writer.write(&NewRecord { direction, ..*record }).unwrap();
    });
    writer.finish().unwrap();
}

fn read(path: &Path) -> u64 {
    let mut reader = CaptureReader::open(path).unwrap();
    let mut bytes = 0;
    while let Some(record) = reader.next().unwrap() {
        bytes += black_box(record).data.len() as u64;
    }
    bytes
}

fn reading(criterion: &mut Criterion) {
    let folder = std::env::temp_dir().join(format!("roxe-capture-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let plain = folder.join("plain.pcap");
    write_pcap(&plain);
    write_pcapng(&folder.join("plain.pcapng"), false);
    write_pcapng(&folder.join("options.pcapng"), true);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    io::copy(&mut File::open(&plain).unwrap(), &mut gzip).unwrap();
    fs::write(folder.join("pcap.gz"), gzip.finish().unwrap()).unwrap();
    let mut zstd = zstd::Encoder::new(Vec::new(), 3).unwrap();
    zstd.write_all(&fs::read(&plain).unwrap()).unwrap();
    fs::write(folder.join("pcap.zst"), zstd.finish().unwrap()).unwrap();

    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(RECORDS)).sample_size(20);
    for name in ["plain.pcap", "plain.pcapng", "options.pcapng", "pcap.gz", "pcap.zst"] {
        let path = folder.join(name);
        assert_eq!(read(&path), RECORDS * PACKET_LEN as u64);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| read(&path));
        });
    }
    group.finish();
    fs::remove_dir_all(&folder).unwrap();
}

criterion_group!(benches, reading);
criterion_main!(benches);
