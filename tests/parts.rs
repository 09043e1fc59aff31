//! What a capture lacks is held against nobody: no part of a clean one has a finding, wherever it
//! begins, and whichever frame it lost. And what is wrong in an answer is found nevertheless.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use roxe::trace::{Finding, IcrcVerdict, Observation, Outside, Rule, Seen, Tracer};
use roxe::wire::opcode::{Operation, Position};
use roxe::wire::{AtomicAckEth, Credits, Frame, Msn, NakCode, Opcode, Packet, Psn, Syndrome};
use roxe::wire::{RawFrame, RnrTimer, Start};
use roxe_net::capture_file::CaptureReader;

/// A frame of a capture.
struct Captured {
    number: u64,
    start: Start,
    data: Vec<u8>,
    wire_len: usize,
}

/// A frame taken apart.
#[derive(Clone, Copy)]
struct Taken<'a> {
    number: u64,
    outside: Outside,
    packet: Packet<'a>,
    icrc: IcrcVerdict,
}

/// The captures with nothing wrong in them but ICRCs.
fn clean() -> Vec<(String, Vec<Captured>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let paths = fs::read_dir(folder).expect("the folder is there").map(|it| it.unwrap().path());
    let mut captures = Vec::new();
    for path in paths.filter(|path| path.extension().is_some_and(|it| it == "pcap")) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if ["made_broken.pcap", "made_vectors.pcap"].contains(&name.as_str()) {
            continue;
        }
        let mut reader = CaptureReader::open(&path).expect("it can be read");
        let mut frames = Vec::new();
        while let Some(record) = reader.next().expect("it can be read") {
            frames.push(Captured {
                number: record.number,
                start: record.start,
                data: record.data.to_vec(),
                wire_len: record.wire_len as usize,
            });
        }
        captures.push((name, frames));
    }
    captures.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(captures.len() >= 109, "only {} captures", captures.len());
    captures
}

/// Takes apart those that are packets.
fn take_apart(frames: &[Captured]) -> Vec<Taken<'_>> {
    frames.iter().filter_map(Captured::take_apart).collect()
}

impl Captured {
    fn take_apart(&self) -> Option<Taken<'_>> {
        let Self { number, start, ref data, wire_len } = *self;
        let raw = RawFrame { start, first: data, second: &[], wire_len };
        let frame = Frame::parse(raw).ok()?;
        let packet = Packet::parse(frame.body).ok()?;
        Some(Taken { number, outside: Outside::of(&frame), packet, icrc: IcrcVerdict::of(&frame) })
    }
}

/// What a tracer finds in these frames, but for wrong ICRCs.
fn findings<'a>(frames: impl Iterator<Item = &'a Taken<'a>>) -> Vec<(u64, Finding)> {
    let mut tracer = Tracer::default();
    let mut observation = Observation::default();
    let mut found = Vec::new();
    for Taken { number, outside, packet, icrc } in frames {
        let seen = Seen { number: *number, time_ns: 0, outside, packet, icrc: *icrc };
        tracer.observe(&seen, &mut observation);
        let all = observation.findings.drain(..).filter(|finding| finding.rule != Rule::Icrc);
        found.extend(all.map(|finding| (*number, finding)));
    }
    found
}

/// Findings are told with their frames, so the suffixes speak for all that end early too.
#[test]
fn no_part_of_a_clean_capture_has_a_finding() {
    let mut wrong = String::new();
    let (mut parts, mut with_findings) = (0, 0);
    for (name, frames) in clean() {
        let frames = take_apart(&frames);
        let mut judge = |what: &str, at: usize, found: Vec<(u64, Finding)>| {
            parts += 1;
            if let Some((frame, finding)) = found.first() {
                with_findings += 1;
                let number = frames[at].number;
                let _ = writeln!(wrong, "{name} {what} {number}: frame {frame}: {finding}");
            }
        };
        for at in 0..frames.len() {
            judge("from", at, findings(frames[at..].iter()));
            judge("without", at, findings(frames[..at].iter().chain(&frames[at + 1..])));
            // Of those that begin late and lack one more frame soon after, some.
            for lost in (at + 1..frames.len()).step_by(3).take(12) {
                let rest = frames[at..lost].iter().chain(&frames[lost + 1..]);
                judge("lacking one soon after, from", at, findings(rest));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}{with_findings} of {parts} parts");
}

/// Each answer of each capture once with each thing in it wrong: `what` and how.
fn wrong_answers(of: &Packet<'_>, mut show: impl FnMut(&'static str, &Packet<'_>)) {
    let opcode = of.opcode;
    let mut other = |what, change: &dyn Fn(&mut Packet<'_>)| {
        let mut packet = *of;
        change(&mut packet);
        show(what, &packet);
    };
    if let Some(aeth) = of.headers.aeth {
        for (what, by) in [("msn + 1", 1), ("msn + 1000", 1000), ("msn - 1", 0xff_ffff)] {
            other(what, &|packet| {
                let msn = Msn::new(aeth.msn.get().wrapping_add(by));
                packet.headers.aeth.as_mut().unwrap().msn = msn;
            });
        }
        for (what, syndrome) in [
            ("syndrome ACK", Syndrome::Ack(Credits::INVALID)),
            ("syndrome RNR NAK", Syndrome::RnrNak(RnrTimer::default())),
            ("syndrome NAK 60", Syndrome::Nak(NakCode::PsnSequenceError)),
            ("syndrome NAK 62", Syndrome::Nak(NakCode::RemoteAccessError)),
        ] {
            if core::mem::discriminant(&syndrome) != core::mem::discriminant(&aeth.syndrome) {
                other(what, &|packet| packet.headers.aeth.as_mut().unwrap().syndrome = syndrome);
            }
        }
    }
    for (what, by) in [("psn + 1", 1), ("psn + 1000", 1000), ("psn - 1", 0xff_ffff)] {
        other(what, &|packet| {
            let bth = &mut packet.headers.bth;
            bth.psn = Psn::new(bth.psn.get().wrapping_add(by));
        });
    }
    let mut become_another = |what, name: &str| {
        let opcode = Opcode::by_name(name).expect(name);
        if opcode != of.opcode {
            other(what, &|packet| {
                (packet.opcode, packet.headers.bth.opcode) = (opcode, opcode.code);
                if opcode.operation == Operation::AtomicAcknowledge {
                    packet.headers.atomic_ack_eth = Some(AtomicAckEth { original: 5 });
                }
            });
        }
    };
    match (opcode.operation, opcode.position) {
        (Operation::ReadResponse, _) => {
            for position in ["FIRST", "MIDDLE", "LAST", "ONLY"] {
                become_another("opcode READ", &format!("RC_READ_RESPONSE_{position}"));
            }
            become_another("opcode ACK", "RC_ACKNOWLEDGE");
        }
        (Operation::Acknowledge, Position::Only) => {
            become_another("opcode READ", "RC_READ_RESPONSE_ONLY");
            become_another("opcode ATOMIC", "RC_ATOMIC_ACKNOWLEDGE");
        }
        (Operation::AtomicAcknowledge, _) => {
            become_another("opcode READ", "RC_READ_RESPONSE_ONLY");
            become_another("opcode ACK", "RC_ACKNOWLEDGE");
        }
        _ => {}
    }
}

/// Of so many answers that are wrong in one way, so many are found: no other number, so that
/// whoever changes it says so. The rest are what another responder might have said, or what the
/// network might have done.
#[rustfmt::skip]
const FOUND: &[(&str, u32, u32)] = &[
    ("msn + 1",             717,  438),
    ("msn + 1000",          717,  636),
    ("msn - 1",             717,  482),
    ("opcode ACK",          403,  332),
    ("opcode ATOMIC",       482,  469),
    ("opcode READ",        1569, 1206),
    ("psn + 1",             885,  321),
    ("psn + 1000",          885,  371),
    ("psn - 1",             885,  211),
    ("syndrome ACK",         66,   22),
    ("syndrome NAK 60",     672,  346),
    ("syndrome NAK 62",     672,  347),
    ("syndrome RNR NAK",    696,  347),
];

#[test]
fn what_is_wrong_in_an_answer_of_a_whole_capture_is_found() {
    let mut counts = BTreeMap::new();
    for (_, frames) in clean() {
        let frames = take_apart(&frames);
        for (at, taken) in frames.iter().enumerate() {
            if taken.icrc != IcrcVerdict::Good || !taken.packet.opcode.operation.is_response() {
                continue;
            }
            wrong_answers(&taken.packet, |what, packet| {
                let wrong = Taken { packet: *packet, ..*taken };
                let whole = frames[..at].iter().chain([&wrong]).chain(&frames[at + 1..]);
                let (all, found) = counts.entry(what).or_insert((0, 0));
                *all += 1;
                *found += u32::from(!findings(whole).is_empty());
            });
        }
    }
    let counts: Vec<(&str, u32, u32)> =
        counts.into_iter().map(|(what, (all, found))| (what, all, found)).collect();
    let mut table = String::new();
    for (what, all, found) in &counts {
        let _ = writeln!(table, "    ({what:?}, {all}, {found}),");
    }
    assert!(counts == FOUND, "found are now:\n{table}");
}
