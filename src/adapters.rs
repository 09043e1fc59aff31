//! Adapters that are open in other processes, and what they do from one look to the next.

use std::io;
use std::net::IpAddr;
use std::thread;

use roxe_verbs::Error;
#[cfg(feature = "af_xdp")]
use roxe_verbs::af_xdp::OpenError;
use roxe_verbs::status::{Client, CounterValue, Info, QueuePairStatus, Recorded, Running, running};

use crate::doctor::host::few_descriptors;
use crate::outcome::{Outcome, complain, visible};

/// An adapter that answers.
pub(crate) struct Adapter {
    /// Names it among all.
    pub(crate) endpoint: String,
    pub(crate) info: Info,
    /// Which of its process's adapters of one name it is: nothing, `#2`, `#3` and so on.
    number: String,
    client: Client,
}

/// The adapters that are open.
pub(crate) struct Open {
    /// Those that answer.
    pub(crate) adapters: Vec<Adapter>,
    /// The endpoints of those that do not, and why.
    pub(crate) silent: Vec<(String, io::Error)>,
}

/// What an adapter said at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Nanoseconds since the adapter was opened.
    pub(crate) time_ns: u64,
    pub(crate) counters: Vec<CounterValue>,
    /// By number.
    pub(crate) queue_pairs: Vec<QueuePairStatus>,
}

impl Adapter {
    /// All that are open.
    pub(crate) fn all() -> io::Result<Open> {
        let (mut adapters, mut silent) = (Vec::new(), Vec::new());
        let mut answers = Vec::new();
        for some in running()?.chunks(AT_ONCE) {
            // One that is silent does not keep the others waiting.
            answers.extend(thread::scope(|scope| {
                let asked: Vec<_> = some.iter().map(|one| scope.spawn(|| greet(one))).collect();
                asked.into_iter().filter_map(|answer| answer.join().ok()).collect::<Vec<_>>()
            }));
        }
        for (endpoint, answer) in answers {
            match answer {
                Ok((mut info, client)) => {
                    info.mode = visible(&info.mode, |_| false);
                    let number = number_of(&endpoint, &info.name);
                    adapters.push(Self { endpoint, info, number, client });
                }
                // It closed just now.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => silent.push((endpoint, error)),
            }
        }
        Ok(Open { adapters, silent })
    }

    /// Those of this name, process number, `PID/NAME` or address; all, if none is asked for. Says
    /// what is wrong when there are none.
    pub(crate) fn find(wanted: Option<&str>) -> Result<Vec<Self>, Outcome> {
        let Open { adapters: all, silent } = Self::all().map_err(|error| {
            complain(format_args!("cannot see which adapters are open: {error}"));
            Outcome::Lacking
        })?;
        for (endpoint, error) in &silent {
            complain(format_args!("{endpoint}: {error}"));
        }
        let has = |adapter: &Self| wanted.is_some_and(|wanted| adapter.is(wanted));
        let is_named = all.iter().any(has);
        let is_wanted = |adapter: &Self| {
            wanted.is_none_or(|it| if is_named { adapter.is(it) } else { adapter.is_on_port(it) })
        };
        let (found, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_wanted);
        if !found.is_empty() {
            return Ok(found);
        }
        match wanted {
            // Why it does not answer was said.
            Some(wanted) if silent.iter().any(|(endpoint, _)| may_be(endpoint, wanted)) => {}
            Some(wanted) if !others.is_empty() => {
                let others: Vec<_> = others.iter().map(Self::title_and_address).collect();
                let others = others.join(", ");
                complain(format_args!("no open adapter is {wanted}; there are: {others}"));
            }
            _ if !silent.is_empty() => {}
            _ => complain(
                "no adapter is open in this network namespace: they are shown while a program \
                 uses them (`ip netns exec NAME roxe …` for another namespace)",
            ),
        }
        Err(Outcome::Lacking)
    }

    /// Whether it is meant.
    pub(crate) fn is(&self, wanted: &str) -> bool {
        let (process, named) = (self.info.pid.to_string(), self.name());
        let is_of_process = wanted.split_once('/') == Some((&process, &named));
        has_address(wanted, &self.info.addresses)
            || is_of_process
            || [&self.info.name, &named, &process].map(String::as_str).contains(&wanted)
    }

    /// Whether its name is a device string with the same port, whatever options stand behind.
    fn is_on_port(&self, wanted: &str) -> bool {
        have_same_port(&self.info.name, wanted)
    }

    /// Its name, with what tells it from others of the same process.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.info.name, self.number)
    }

    /// For people: which it is.
    pub(crate) fn title(&self) -> String {
        let Info { pid, command, .. } = &self.info;
        let program = command.rsplit('/').next().unwrap_or_default();
        visible(&format!("{} ({program}, process {pid})", self.name()), |_| false)
    }

    /// The same, with its address, unless its name has it already.
    fn title_and_address(&self) -> String {
        match self.info.addresses.first() {
            Some(address) if !has_address(&self.info.name, &self.info.addresses) => {
                format!("{} at {address}", self.title())
            }
            _ => self.title(),
        }
    }

    /// How it is now, with or without its queue pairs.
    pub(crate) fn ask(&mut self, queue_pairs: bool) -> io::Result<Snapshot> {
        let (counters, time_ns) = self.client.counters()?;
        let queue_pairs = if queue_pairs { self.client.queue_pairs()?.0 } else { Vec::new() };
        Ok(Snapshot::of(time_ns, counters, queue_pairs))
    }

    /// The same; says so when it does not answer any more.
    pub(crate) fn look(&mut self, queue_pairs: bool) -> Option<Snapshot> {
        match self.ask(queue_pairs) {
            Ok(snapshot) => return Some(snapshot),
            Err(error) if is_end(&error) => complain(format_args!("{}: closed", self.title())),
            Err(error) => complain(format_args!("{}: {error}", self.title())),
        }
        None
    }

    /// What it sends and receives from now on.
    pub(crate) fn record(self, room: u32) -> io::Result<Recorded> {
        self.client.record(room)
    }
}

/// Those that are open on an interface by AF_XDP.
#[cfg(feature = "af_xdp")]
pub(crate) fn on(interface: &str) -> impl Iterator<Item = Adapter> {
    let begin = format!("{interface}: ");
    let all = Adapter::all().map(|open| open.adapters).unwrap_or_default();
    all.into_iter().filter(move |adapter| adapter.info.mode.starts_with(&begin))
}

/// Which adapter has an interface for itself.
#[cfg(feature = "af_xdp")]
pub(crate) fn holder(interface: &str) -> Option<String> {
    on(interface).next().map(|adapter| adapter.title())
}

/// Why an adapter cannot be opened, and by whom its interface is held.
pub(crate) fn why_not_open(error: &Error) -> String {
    #[cfg(feature = "af_xdp")]
    if let Error::OpenXdp(
        OpenError::ProgramAttached { interface, .. } | OpenError::QueueBusy { interface, .. },
    ) = error
        && let Some(adapter) = holder(interface)
    {
        return format!(
            "{interface} belongs to the open adapter {adapter}: one process has an interface at a \
             time"
        );
    }
    match few_descriptors() {
        Some(few) => format!("{error}; {few}"),
        None => error.to_string(),
    }
}

/// Whether an address, or a device string with one, is among these.
fn has_address(wanted: &str, addresses: &[IpAddr]) -> bool {
    let port = wanted.split_once(',').map_or(wanted, |(port, _)| port);
    let address = ["udp:", "host:"].iter().find_map(|kind| port.strip_prefix(kind));
    address.unwrap_or(port).parse().is_ok_and(|address| addresses.contains(&address))
}

/// Whether two names are device strings that differ by their options at the most.
fn have_same_port(one: &str, other: &str) -> bool {
    let port = |name: &str| name.split_once(',').map_or(name, |(port, _)| port).to_owned();
    one.contains(':') && port(one) == port(other)
}

/// Whether the adapter behind this endpoint can be that of a name, process number or `PID/NAME`.
fn may_be(endpoint: &str, wanted: &str) -> bool {
    let place = endpoint.split_once('/').map_or(endpoint, |(_, place)| place);
    let (process, name) = place.split_once('/').unwrap_or((place, place));
    [place, process, name].contains(&wanted) || have_same_port(name, wanted)
}

/// Asks an adapter what it is.
fn greet(running: &Running) -> (String, io::Result<(Info, Client)>) {
    let answer = running.connect().and_then(|mut client| Ok((client.info()?, client)));
    (running.endpoint.clone(), answer)
}

/// Adapters that are asked at the same time.
const AT_ONCE: usize = 64;

/// What stands behind an adapter's name in that of its endpoint.
fn number_of(endpoint: &str, name: &str) -> String {
    let end = endpoint.rfind('#').map_or("", |at| &endpoint[at..]);
    let is_number = end.len() > 1 && end[1..].bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !name.ends_with(end) { end.to_owned() } else { String::new() }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

impl Snapshot {
    /// What was said, with nothing in it that commands a terminal or breaks JSON: whoever answers
    /// may be anybody.
    fn of(
        time_ns: u64,
        mut counters: Vec<CounterValue>,
        mut queue_pairs: Vec<QueuePairStatus>,
    ) -> Self {
        for counter in &mut counters {
            counter.group = visible(&counter.group, |_| false);
            counter.name = name(&counter.name);
        }
        for it in &mut queue_pairs {
            it.service = visible(&it.service, |_| false);
            it.state = visible(&it.state, |_| false);
            it.why = it.why.as_deref().map(|why| visible(why, |_| false));
            let counters = std::mem::take(&mut it.counters).into_iter();
            it.counters = counters.map(|(known, value)| (name(&known), value)).collect();
        }
        queue_pairs.sort_by_key(|it| it.qpn);
        Self { time_ns, counters, queue_pairs }
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.iter().find(|it| it.name == name).map_or(0, |it| it.value)
    }

    /// How often a counter rises in a second since another look.
    pub(crate) fn rate(&self, name: &str, before: Option<&Self>) -> f64 {
        before.map_or(0.0, |before| {
            per_second(self.counter(name), before.counter(name), self.since(before))
        })
    }

    /// Nanoseconds since another look.
    pub(crate) fn since(&self, before: &Self) -> u64 {
        self.time_ns.saturating_sub(before.time_ns)
    }

    /// The queue pair with this number.
    pub(crate) fn queue_pair(&self, qpn: u32) -> Option<&QueuePairStatus> {
        let found = self.queue_pairs.binary_search_by_key(&qpn, |it| it.qpn).ok()?;
        Some(&self.queue_pairs[found])
    }
}

/// A counter's name: letters, digits and underscores.
fn name(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// How fast something rose.
pub(crate) fn per_second(now: u64, before: u64, nanos: u64) -> f64 {
    if nanos == 0 {
        return 0.0;
    }
    now.saturating_sub(before) as f64 * 1e9 / nanos as f64
}

/// The traffic of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Load {
    /// Packets a second, sent and received.
    pub(crate) packets: f64,
    /// Gb/s of them, from BTH to ICRC.
    pub(crate) gigabits: f64,
}

impl Load {
    /// Of a queue pair now, which was so before.
    pub(crate) fn of(now: &QueuePairStatus, before: Option<&QueuePairStatus>, nanos: u64) -> Self {
        let Some(before) = before else { return Self::default() };
        let rate = |names: [&str; 2]| -> f64 {
            names
                .iter()
                .map(|name| per_second(now.counter(name), before.counter(name), nanos))
                .sum()
        };
        let bytes = rate(["rdma_tx_bytes", "rdma_rx_bytes"]);
        Self { packets: rate(["rdma_tx_packets", "rdma_rx_packets"]), gigabits: bytes * 8.0 / 1e9 }
    }
}

/// The other end of a queue pair.
pub(crate) fn peer(queue_pair: &QueuePairStatus) -> String {
    match (queue_pair.peer, queue_pair.peer_qpn) {
        (Some(IpAddr::V6(address)), Some(qpn)) => format!("[{address}]:{qpn:#x}"),
        (Some(address), Some(qpn)) => format!("{address}:{qpn:#x}"),
        _ => String::new(),
    }
}

/// Names of counters of queue pairs, added up.
pub(crate) fn sum(queue_pair: &QueuePairStatus, names: &[&str]) -> u64 {
    names.iter().fold(0, |sum: u64, name| sum.saturating_add(queue_pair.counter(name)))
}

/// Not ready: said and heard.
pub(crate) const NOT_READY: &[&str] = &["send_rnr_err", "rcvd_rnr_err"];

/// Frames for a queue pair that it dropped, or that were dropped before they came to it.
pub(crate) const DROPPED: &[&str] = &[
    "drop_wrong_state",
    "uc_drop_msg",
    "ud_no_rwqe",
    "ud_too_long",
    "wrong_service",
    "wrong_qp_state",
    "addr_mismatch",
    "bad_pkey",
    "bad_qkey",
    "bad_opcode",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_string_is_known_without_its_options() {
        for (one, other) in [
            ("udp:127.0.0.3,fault=drop 1%", "udp:127.0.0.3"),
            ("udp:127.0.0.3", "udp:127.0.0.3,fault=dup 1%"),
            ("udp:127.0.0.3,gso=off", "udp:127.0.0.3,gso=on"),
        ] {
            assert!(have_same_port(one, other), "{one}, {other}");
        }
        for (one, other) in [
            ("udp:127.0.0.3,gso=off", "udp:127.0.0.30"),
            ("udp:127.0.0.3,gso=off", "udp"),
            ("roxe0,x", "roxe0"),
        ] {
            assert!(!have_same_port(one, other), "{one}, {other}");
        }
    }

    #[test]
    fn an_adapter_is_known_by_its_address() {
        let addresses = ["127.0.0.3", "fd00::3"].map(|address| address.parse().unwrap());
        for wanted in ["127.0.0.3", "udp:127.0.0.3", "udp:127.0.0.3,gso=off", "host:fd00:0::3"] {
            assert!(has_address(wanted, &addresses), "{wanted}");
        }
        for wanted in ["127.0.0.30", "udp:127.0.0.4", "roxe0", "auto:127.0.0.3", ""] {
            assert!(!has_address(wanted, &addresses), "{wanted}");
        }
    }

    #[test]
    fn an_endpoint_that_is_silent_is_known_by_what_was_asked_for() {
        let endpoint = "roxe/4711/udp:127.0.0.3,fault=drop_1%";
        for wanted in ["4711", "udp:127.0.0.3", "4711/udp:127.0.0.3,fault=drop_1%"] {
            assert!(may_be(endpoint, wanted), "{wanted}");
        }
        for wanted in ["471", "udp:127.0.0.4", "4711/", "roxe"] {
            assert!(!may_be(endpoint, wanted), "{wanted}");
        }
    }
}
