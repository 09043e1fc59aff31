//! What to say to a name or a word that does not exist: which one may have been meant.

use crate::explain::fields;

/// What other tools, and the titles and words of the lines, call some fields.
const ELSEWHERE: &[(&str, &[&str])] = &[
    ("#", &["frame"]),
    ("from", &["src"]),
    ("to", &["dst"]),
    ("opcode", &["bth.opcode_name"]),
    ("rel", &["psn_relative"]),
    ("flags", &["bth.se", "bth.a", "bth.m", "ecn", "bth.fecn", "bth.becn"]),
    ("bytes", &["payload_len"]),
    ("meaning", &["notes.kind", "findings.rule"]),
    ("va", &["reth.va"]),
    ("rkey", &["reth.r_key"]),
    ("len", &["reth.dmalen", "payload_len"]),
    ("imm", &["immdt"]),
    ("compare", &["atomiceth.cmpdt"]),
    ("swap", &["atomiceth.swapdt"]),
    ("add", &["atomiceth.swapdt"]),
    ("original", &["atomicacketh.origremdt"]),
    ("credits", &["aeth.syndrome.credit_count"]),
    ("wait", &["aeth.syndrome.timer"]),
    ("invalidates", &["ieth"]),
    ("priority", &["vlan.priority"]),
    ("EE", &["rdeth.eecnxt"]),
    ("ip.src", &["src"]),
    ("ip.dst", &["dst"]),
    ("ip.addr", &["src", "dst"]),
    ("ipv6.src", &["src"]),
    ("ipv6.dst", &["dst"]),
    ("ip.ttl", &["ttl"]),
    ("ipv6.hlim", &["ttl"]),
    ("ip.dsfield.dscp", &["dscp"]),
    ("ip.dsfield.ecn", &["ecn"]),
    ("udp.srcport", &["sport"]),
    ("frame.number", &["frame"]),
    ("frame.len", &["frame_len"]),
    ("vlan.id", &["vlan"]),
];

/// What to say to a name that does not exist.
pub(super) fn unknown(name: &str) -> String {
    let stripped = name.strip_prefix("infiniband.").unwrap_or(name);
    let near = match ELSEWHERE.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, names)) => names.to_vec(),
        None => near(stripped, &fields::names().collect::<Vec<_>>()),
    };
    let hint = if near.is_empty() {
        "`roxe explain --fields` lists them".to_owned()
    } else {
        there_is(&near)
    };
    format!("no field is called `{name}`; {hint}")
}

/// What to say to a word that a field never is.
pub(super) fn unknown_word(word: &str, words: &[&'static str]) -> String {
    let near = near(word, words);
    let quoted = |words: &[&str]| {
        words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
    };
    let hint = if near.is_empty() || words.len() <= 4 {
        format!("it is one of {}", quoted(words))
    } else {
        format!("similar: {}; `roxe explain --fields` lists all", quoted(&near))
    };
    format!("it is never `{word}`; {hint}")
}

fn there_is(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("there is {}", names.join(", "))
}

/// The names most like this one.
fn near(name: &str, names: &[&'static str]) -> Vec<&'static str> {
    let name = name.to_lowercase();
    let contains = |known: &str| known.to_lowercase().contains(&name);
    let mut near: Vec<(usize, &str)> = names
        .iter()
        .map(|known| (distance(&name, &known.to_lowercase()), *known))
        .filter(|(distance, known)| *distance <= known.len() / 3 || contains(known))
        .collect();
    near.sort_unstable();
    near.dedup();
    let best = near.first().map_or(0, |(distance, _)| *distance);
    near.retain(|(distance, known)| *distance == best || contains(known));
    near.truncate(4);
    if near.is_empty() {
        let begins_alike = |known: &&&str| {
            let alike = known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
            alike >= 4 && alike * 2 >= name.len()
        };
        return names.iter().filter(begins_alike).take(4).copied().collect();
    }
    near.into_iter().map(|(_, name)| name).collect()
}

/// How many letters have to change to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}
