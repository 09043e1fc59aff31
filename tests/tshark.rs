//! tshark as a second opinion: over all captures in `pcaps/`, every header field that it shows is
//! the one in `roxe explain --json`, under the same name, and the frames are as many.
//!
//! Where the two differ and tshark is wrong, [`DIFFERENCES`] says so. Those hold for one version
//! of tshark and must be seen with it; with another version they are let pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use roxe_net::capture_file::{CaptureReader, LinkType, NewRecord, PcapWriter};
use serde_json::{Map, Value};

/// The version that the differences were found with.
const VERSION: &str = "4.0.17";

/// A field in which tshark is wrong.
struct Difference {
    /// Without `infiniband.` in front; `*` for any.
    field: &'static str,
    /// In which packets: what their opcode's name contains.
    opcode: &'static str,
    /// What tshark does.
    kind: Kind,
    why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It shows another value.
    Other,
    /// It does not show the field.
    Absent,
    /// It shows a field that is not there.
    Extra,
}

#[rustfmt::skip]
const DIFFERENCES: &[Difference] = &[
    // field                         opcode             tshark
    differs("*",                     "RC_ATOMIC_WRITE", Kind::Absent, "opcode 0x1d is younger"),
    differs("*",                     "RC_FLUSH",        Kind::Absent, "opcode 0x1c is younger"),
    differs("*",                     "XRC_",            Kind::Absent, "opcodes 0xa0 to 0xb7 are unknown to it"),
    differs("cm.rej.ari",            "UD_SEND",         Kind::Other,  "shows the whole area, also what no length covers"),
    differs("cm.req.prim_flowlabel", "UD_SEND",         Kind::Other,  "reads three bytes instead of four and loses two digits"),
    differs("cm.req.prim_pktrate",   "UD_SEND",         Kind::Other,  "takes bits of the flow label"),
];

const fn differs(
    field: &'static str,
    opcode: &'static str,
    kind: Kind,
    why: &'static str,
) -> Difference {
    Difference { field, opcode, kind, why }
}

/// What tshark shows that is no field of ours.
#[rustfmt::skip]
const NO_FIELDS: &[&str] = &[
    // Headers as a whole.
    "bth", "deth", "rdeth", "reth", "atomiceth", "aeth", "atomicacketh", "mad", "mad.data",
    "smplid.smpdata", "cm.req.ip_cm", "payload",
    // Reserved bits.
    "reserved", "aeth.syndrome.reserved", "cm.req.ip_cm.reserved", "cm.req.prim_reserved0",
    "cm.req.prim_reserved1", "cm.req.prim_reserved2", "cm.req.alt_reserved0",
    "cm.req.alt_reserved1", "cm.rep.reserved", "cm.rej.reserved0", "cm.rej.reserved1",
    // Part of the service ID, and the same in each.
    "cm.req.serviceid.prefix",
    // The ICRC's bytes; whether it is right tshark does not say.
    "invariant.crc",
    // What is left of an opcode that it does not know.
    "vendor",
];

fn text_of(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{:?}: {error}: `cargo xtask test` installs it", command.get_program())
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {errors}", command.get_program());
    String::from_utf8(output.stdout).expect("the output is text")
}

/// The version of tshark that is installed.
fn version() -> String {
    let text = text_of(Command::new("tshark").arg("--version"));
    text.split_whitespace()
        .map(|word| word.trim_end_matches('.'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or("unknown")
        .to_owned()
}

/// All captures one after the other in one file, and where each frame comes from: tshark takes half
/// a second to start.
fn all_captures() -> (PathBuf, Vec<String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pcaps");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("all.pcap");
    let mut writer = PcapWriter::new(File::create(&all).unwrap(), LinkType::ETHERNET, 0).unwrap();
    let mut origins = Vec::new();
    for path in paths {
        let mut reader = CaptureReader::open(&path).unwrap();
        while let Some(record) = reader.next().unwrap() {
            let record_of_all = NewRecord {
                time: record.time,
                data: record.data,
                wire_len: record.wire_len,
                ..NewRecord::default()
            };
            writer.write(&record_of_all).unwrap();
            let name = path.file_name().unwrap().to_string_lossy();
            origins.push(format!("{name}, frame {}", record.number));
        }
    }
    writer.flush().unwrap();
    (all, origins)
}

/// What we say of each RoCE frame, by its number.
fn ours(capture: &Path) -> BTreeMap<usize, Map<String, Value>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roxe"));
    let text = text_of(command.args(["explain", "--json", "--no-summary"]).arg(capture));
    let objects = text.lines().map(|line| match serde_json::from_str(line) {
        Ok(Value::Object(object)) => object,
        other => panic!("{line}: {other:?}"),
    });
    let number = |object: &Map<String, Value>| object["frame"].as_u64().unwrap() as usize;
    objects.map(|object| (number(&object), object)).collect()
}

/// What tshark says of each frame: the fields of its InfiniBand layer, if it has one.
fn theirs(capture: &Path) -> Vec<Option<Vec<(String, String)>>> {
    let text = text_of(
        Command::new("tshark")
            .args(["-n", "-T", "json", "--no-duplicate-keys", "-J", "infiniband", "-r"])
            .arg(capture),
    );
    let Ok(Value::Array(frames)) = serde_json::from_str(&text) else { panic!("no list") };
    frames
        .iter()
        .map(|frame| {
            let layer = &frame["_source"]["layers"]["infiniband"];
            (!layer.is_null()).then(|| {
                let mut fields = Vec::new();
                gather("infiniband", layer, &mut fields);
                fields
            })
        })
        .collect()
}

/// The leaves of tshark's tree.
fn gather(name: &str, value: &Value, fields: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) => {
            object.iter().for_each(|(name, value)| gather(name, value, fields));
        }
        Value::Array(values) => values.iter().for_each(|value| gather(name, value, fields)),
        Value::String(text) => {
            let name = name.strip_prefix("infiniband.").unwrap_or(name);
            fields.push((name.to_owned(), text.clone()));
        }
        _ => {}
    }
}

/// Whether a value of ours and one of tshark's are the same.
fn is_same(ours: &Value, theirs: &str) -> bool {
    let bytes = || theirs.replace(':', "");
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if text.contains(':') => u64::from_str_radix(&bytes(), 16).ok(),
        None => text.parse().ok(),
    };
    match ours {
        Value::Number(value) => value.as_u64().is_some() && value.as_u64() == number(theirs),
        Value::Bool(value) => number(theirs) == Some(u64::from(*value)),
        Value::String(text) => {
            let address = |text: &str| {
                let as_bytes = u128::from_str_radix(&text.replace(':', ""), 16).ok();
                let as_bytes = as_bytes.filter(|_| text.len() == 47).map(Ipv6Addr::from_bits);
                text.parse().ok().or_else(|| as_bytes.map(IpAddr::from))
            };
            if text.starts_with("0x") {
                number(text).is_some() && number(text) == number(theirs)
            } else if let Ok(own) = text.parse::<IpAddr>() {
                address(theirs) == Some(own)
            } else {
                *text == bytes()
            }
        }
        _ => false,
    }
}

#[test]
fn every_field_is_as_tshark_shows_it() {
    let (capture, origins) = all_captures();
    let (ours, theirs) = (ours(&capture), theirs(&capture));
    assert_eq!(theirs.len(), origins.len(), "as many frames");
    let known_version = version() == VERSION;
    let names = text_of(Command::new("tshark").args(["-G", "fields"]));
    let names: BTreeSet<&str> = names
        .lines()
        .filter_map(|line| line.split('\t').nth(2)?.strip_prefix("infiniband."))
        .collect();

    let mut seen = vec![0; DIFFERENCES.len()];
    // Alike in opcode, field and kind: an example, and how many.
    let mut unexpected: BTreeMap<(String, String, Kind), (String, usize)> = BTreeMap::new();
    let mut compared = 0;
    for (index, (theirs, origin)) in theirs.iter().zip(&origins).enumerate() {
        let Some(theirs) = theirs else { continue };
        let Some(ours) = ours.get(&(index + 1)) else {
            panic!("{origin}: tshark sees RoCE there, and we do not");
        };
        let Some(opcode) = ours.get("bth.opcode_name").and_then(Value::as_str) else {
            continue;
        };
        if ours.contains_key("dropped") {
            continue; // We say why it is no packet.
        }
        let mut differ = |field: &str, kind: Kind, what: String| {
            let known = DIFFERENCES.iter().position(|known| {
                (known.field == field || known.field == "*")
                    && opcode.contains(known.opcode)
                    && known.kind == kind
            });
            match known {
                Some(known) => seen[known] += 1,
                None => {
                    let like = (opcode.to_owned(), field.to_owned(), kind);
                    let example = || (format!("{origin}: {opcode}: {what}"), 0);
                    unexpected.entry(like).or_insert_with(example).1 += 1;
                }
            }
        };
        for (field, value) in theirs {
            if NO_FIELDS.contains(&field.as_str()) {
                continue;
            }
            match ours.get(field) {
                Some(own) if is_same(own, value) => compared += 1,
                Some(own) => differ(field, Kind::Other, format!("{field} {own}, not {value}")),
                None => differ(field, Kind::Extra, format!("{field} {value} is not ours")),
            }
        }
        for field in ours.keys().filter(|field| names.contains(field.as_str())) {
            if !theirs.iter().any(|(known, _)| known == field) {
                differ(field, Kind::Absent, format!("{field} is not tshark's"));
            }
        }
    }
    let list: String =
        unexpected.values().map(|(example, count)| format!("{count} × {example}\n")).collect();
    assert!(list.is_empty(), "differences from tshark {}:\n{list}", version());
    assert!(compared > 20_000, "only {compared} fields were compared");
    for (difference, times) in DIFFERENCES.iter().zip(seen) {
        if !known_version {
            continue;
        }
        let Difference { field, opcode, why, .. } = difference;
        assert!(times > 0, "{field} of {opcode} does not differ any more ({why})");
    }
    if !known_version {
        println!("tshark {} instead of {VERSION}: known differences let pass", version());
    }
}
