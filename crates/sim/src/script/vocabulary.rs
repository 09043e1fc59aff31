//! All words of the language, as its tables have them.

use std::fmt::Write as _;

use roxe_device::counters::{NAMES, QpCounters};

use super::cm::COUNTERS;
use super::mad::MESSAGES;
use super::parameters::{self, Kind, Parameter};
use super::parse::{CALLS, EVENTS, OBJECTS, SENDS, SERVICES, packet_names, show_range};

/// A line a word: where it belongs, the word, and what may follow it.
pub fn words() -> String {
    let mut all = Words(String::new());
    all.parameters("device", parameters::DEVICE);
    for (name, kind) in OBJECTS {
        all.parameters(name, parameters::of_object(*kind));
    }
    for (name, _) in SERVICES {
        all.row("qp", name, "its service");
    }
    for (name, _) in EVENTS {
        all.row("statement", name, "");
    }
    all.parameters("post recv", parameters::POST_RECEIVE);
    for (name, verb) in SENDS {
        all.parameters(&format!("post {name}"), parameters::of_send(*verb));
    }
    for (name, verb) in CALLS {
        all.parameters(&format!("call {name}"), parameters::of_call(*verb));
    }
    all.parameters("completion", parameters::COMPLETION);
    all.list("completion", parameters::STATUSES);
    all.parameters("< and >", parameters::FRAME_OUT);
    all.parameters("<", &parameters::FRAME_IN[parameters::FRAME_OUT.len()..]);
    all.list("packet", &packet_names());
    all.row("packet", "OPCODE", &show_range(0, 255));
    for message in MESSAGES {
        all.parameters(&format!("> {}", message.name), message.parameters_out);
    }
    let faults = MESSAGES[0].parameters_in.iter();
    let faults =
        faults.filter(|(name, _)| MESSAGES[0].parameters_out.iter().all(|(out, _)| out != name));
    all.parameters("< REQ, MRA, …", &faults.copied().collect::<Vec<_>>());
    for name in parameters::EVENT_NAMES {
        match parameters::of_event(name) {
            [] => all.row("event", name, ""),
            of => all.parameters(&format!("event {name}"), of),
        }
    }
    all.list("state", parameters::STATES);
    all.list("fails", parameters::ERRORS);
    all.list("access", parameters::RIGHTS);
    all.list("symbol", parameters::SYMBOL_PARTS);
    for (name, _) in COUNTERS {
        all.row("counter", name, "of a connection manager");
    }
    let of_queue_pairs = QpCounters::new();
    for row in NAMES {
        let too = of_queue_pairs.by_name(row.name).map_or("", |_| "of the device, or a queue pair");
        all.row("counter", row.name, too);
    }
    all.0
}

struct Words(String);

impl Words {
    fn row(&mut self, place: &str, word: &str, what: &str) {
        let line = format!("{place:<22} {word:<30} {what}");
        let _ = writeln!(self.0, "{}", line.trim_end());
    }

    fn list(&mut self, place: &str, words: &[&str]) {
        words.iter().for_each(|word| self.row(place, word, ""));
    }

    fn parameters(&mut self, place: &str, parameters: &[Parameter]) {
        if parameters.is_empty() {
            self.row(place, "", "");
        }
        for (name, kind) in parameters {
            let what = match kind {
                Kind::Flag => String::new(),
                Kind::Number(least, most) => show_range(*least, *most),
                Kind::Word(words) => words.join(" or "),
                Kind::List(words) => format!("none, or some of {}", words.join(",")),
                Kind::Name => "the name of an object".to_owned(),
                Kind::Address => "an IP address".to_owned(),
                Kind::Pieces => "pieces of memory as in m1+0:64,m2+8:16".to_owned(),
            };
            self.row(place, name, &what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connects_is_listed() {
        let all = words();
        let has = |row: &str| {
            all.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == row)
        };
        for row in [
            "cm guid from 0 to 0xffffffffffffffff",
            "listen space tcp or udp or ib",
            "call connect max-cm-retries from 0 to 15",
            "call establish",
            "> REJ ari-gid an IP address",
            "> SIDR_REP service-q-key from 0 to 0xffffffff",
            "< REQ, MRA, … base-version from 0 to 255",
            "event connect-request as the name of an object",
            "event rejected reason from 0 to 0xffff",
            "event timewait-exit",
            "symbol psn",
            "counter wrong_qpn of a connection manager",
        ] {
            assert!(has(row), "{row}\n{all}");
        }
        assert!(!has("> REQ base-version from 0 to 255"), "no fault of the device's can be wanted");
    }
}
