//! How many frames a second `roxe explain` explains, next to tshark.
//!
//! Builds a capture of at least a gibibyte in the target folder from those in `pcaps/`: each round
//! repeats them later and with PSNs farther on, as long connections would. Then runs the program on
//! it, text and JSON, and tshark with six fields on the first part of it, if tshark is there.
//!
//! `cargo bench --bench explain`

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use roxe::wire::{Frame, Packet, Psn, RawFrame, Room};
use roxe_net::capture_file::{CaptureReader, LinkType, NewRecord, PcapWriter, Timestamp};

/// How large the capture shall be.
const BYTES: u64 = 1 << 30;

/// How many frames tshark gets: it needs half a minute for a million.
const FOR_TSHARK: u64 = 300_000;

/// Of how many runs the best counts: other programs run too.
const RUNS: u32 = 7;

/// How far PSNs move in each round.
const ROUND_PSNS: u32 = 0x1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let large = folder.join("large.pcap");
    let part = folder.join("part.pcap");
    let frames = build(&large, BYTES, u64::MAX)?;
    let for_tshark = build(&part, u64::MAX, FOR_TSHARK)?;
    println!("{} bytes, {frames} frames", fs::metadata(&large)?.len());

    let program = env!("CARGO_BIN_EXE_roxe");
    let rate = |arguments: &[&str]| -> io::Result<f64> {
        let mut command = Command::new(program);
        command.args(arguments).arg(&large);
        Ok(frames as f64 / best_of(RUNS, command)?.as_secs_f64())
    };
    let text = rate(&["explain"])?;
    println!("roxe explain          {text:>12.0} frames/s");
    println!("roxe explain --json   {:>12.0} frames/s", rate(&["explain", "--json"])?);
    println!("roxe explain --filter {:>12.0} frames/s", {
        rate(&["explain", "--filter", "bth.opcode == 0x11 and aeth.kind == nak"])?
    });
    println!("roxe check            {:>12.0} frames/s", rate(&["check"])?);

    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(&part).args(["-T", "fields"]);
    for field in ["opcode", "destqp", "psn", "a"] {
        tshark.arg("-e").arg(format!("infiniband.bth.{field}"));
    }
    tshark.args(["-e", "frame.number", "-e", "ip.src"]);
    match best_of(2, tshark) {
        Ok(taken) => {
            let rate = for_tshark as f64 / taken.as_secs_f64();
            println!("tshark, six fields    {rate:>12.0} frames/s (over {for_tshark} frames)");
            println!("ratio {:.1}", text / rate);
        }
        Err(error) => println!("tshark was not run: {error}"),
    }
    Ok(())
}

/// How long a command takes at best, its output thrown away.
fn best_of(runs: u32, mut command: Command) -> io::Result<Duration> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = Instant::now();
        command.status()?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Writes a capture until it has so many bytes or frames; returns how many frames.
fn build(path: &Path, bytes: u64, frames: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let mut sources: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    sources.sort();
    let mut writer = PcapWriter::new(File::create(path)?, LinkType::ETHERNET, 0)?;
    let (mut written, mut count, mut now) = (0, 0, 1_700_000_000_000_000_000);
    let mut frame = Vec::new();
    for round in 0.. {
        for source in &sources {
            let mut reader = CaptureReader::open(source)?;
            while let Some(record) = reader.next()? {
                frame.clear();
                frame.extend_from_slice(record.data);
                move_on(&mut frame, round * ROUND_PSNS);
                now += 2_000;
                writer.write(&NewRecord {
                    time: Timestamp::from_nanos(now),
                    data: &frame,
                    wire_len: record.wire_len,
                    ..NewRecord::default()
                })?;
                written += frame.len() as u64 + 16;
                count += 1;
                if written >= bytes || count >= frames {
                    writer.flush()?;
                    return Ok(count);
                }
            }
        }
    }
    unreachable!("one of the limits is reached")
}

/// The same frame, `psns` later.
fn move_on(bytes: &mut [u8], psns: u32) {
    let moved = {
        let Ok(frame) = Frame::parse(RawFrame::ethernet(bytes)) else { return };
        let cover = frame.icrc_cover();
        if roxe::wire::icrc::check(&cover, frame.body).is_err() {
            return;
        }
        let Ok(mut packet) = Packet::parse(frame.body) else { return };
        let psn = packet.headers.bth.psn;
        packet.headers.bth.psn = Psn::new(psn.get().wrapping_add(psns));
        let mut moved = vec![0; packet.len()];
        if packet.emit(Room::whole(&mut moved), &cover).is_err() {
            return;
        }
        moved
    };
    let at = bytes.len() - moved.len();
    bytes[at..].copy_from_slice(&moved);
}
