//! `roxe stat`: the counters of running adapters, as `rdma statistic` shows them.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use roxe_verbs::status::QueuePairStatus;

use crate::adapters::{Adapter, DROPPED, Load, NOT_READY, Snapshot, peer, per_second, sum};
use crate::cli::StatArguments;
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::outcome::{Outcome, complain};
use crate::table::Table;

/// The command.
pub(crate) fn run(arguments: &StatArguments) -> Result<Outcome> {
    let mut adapters = match Adapter::find(arguments.device.as_deref()) {
        Ok(adapters) => adapters,
        Err(outcome) => return Ok(outcome),
    };
    let mut out = io::stdout().lock();
    let mut before: BTreeMap<String, Snapshot> = BTreeMap::new();
    loop {
        let mut is_missing = false;
        let mut ink = Ink::new(false);
        let mut closed = Vec::new();
        for (place, adapter) in adapters.iter_mut().enumerate() {
            let Some(now) = adapter.look(arguments.qp.is_some()) else {
                closed.push(place);
                continue;
            };
            let title = adapter.title();
            let look =
                Look { adapter, now: &now, before: before.get(&adapter.endpoint), arguments };
            match arguments.qp {
                None if arguments.json => look.json(&mut ink),
                None => look.text(&mut ink),
                Some(None) => look.queue_pairs(&mut ink),
                Some(Some(qpn)) => match now.queue_pair(qpn) {
                    Some(queue_pair) => look.queue_pair(queue_pair, &mut ink),
                    None => {
                        is_missing = true;
                        complain(format_args!("{title}: there is no queue pair {qpn:#x}"));
                    }
                },
            }
            before.insert(adapter.endpoint.clone(), now);
        }
        out.write_all(ink.bytes())?;
        out.flush()?;
        closed.into_iter().rev().for_each(|place| drop(adapters.remove(place)));
        let Some(pause) = arguments.watch else {
            return Ok(if is_missing { Outcome::Lacking } else { Outcome::Right });
        };
        if adapters.is_empty() {
            return Ok(Outcome::Right);
        }
        thread::sleep(Duration::from_secs_f64(pause));
    }
}

/// One look at an adapter.
struct Look<'a> {
    adapter: &'a Adapter,
    now: &'a Snapshot,
    before: Option<&'a Snapshot>,
    arguments: &'a StatArguments,
}

impl Look<'_> {
    fn title(&self, ink: &mut Ink) {
        ink.display(format_args!("{}: {}\n", self.adapter.title(), self.adapter.info.mode));
    }

    fn text(&self, ink: &mut Ink) {
        self.title(ink);
        let shown = |value: u64| value != 0 || self.arguments.verbose;
        let counters: Vec<_> = self.now.counters.iter().filter(|it| shown(it.value)).collect();
        let mut table = Table::new(["", ">", ">"]);
        let mut group = "";
        for counter in &counters {
            if std::mem::replace(&mut group, &counter.group) != counter.group {
                table.row([counter.group.clone(), String::new(), String::new()]);
            }
            let rate = self.before.map(|_| self.now.rate(&counter.name, self.before));
            table.row(cells(&counter.name, counter.value, rate));
        }
        table.write(2, ink);
        if counters.is_empty() {
            ink.str("  all counters are 0\n");
        }
        ink.byte(b'\n');
    }

    fn object<'i>(&self, ink: &'i mut Ink) -> Object<'i> {
        let mut object = Object::begin(ink);
        object.text("hca_id", &self.adapter.info.name);
        object.number("pid", self.adapter.info.pid.into());
        object.number("time_ns", self.now.time_ns);
        object
    }

    fn json(&self, ink: &mut Ink) {
        let mut object = self.object(ink);
        self.now.counters.iter().for_each(|it| object.number(&it.name, it.value));
        object.end();
    }

    fn load(&self, queue_pair: &QueuePairStatus) -> Load {
        let before = self.before.and_then(|before| before.queue_pair(queue_pair.qpn));
        let nanos = self.before.map_or(0, |before| self.now.since(before));
        Load::of(queue_pair, before, nanos)
    }

    /// A line for each.
    fn queue_pairs(&self, ink: &mut Ink) {
        if self.arguments.json {
            return self.now.queue_pairs.iter().for_each(|it| self.queue_pair_json(it, ink));
        }
        self.title(ink);
        let mut table = Table::new([
            "QP",
            "service",
            "state",
            "peer",
            ">sent",
            ">bytes",
            ">received",
            ">bytes",
            ">sent again",
            ">not ready",
            ">dropped",
            ">Gb/s",
            ">may send",
            ">alpha",
            "why it ended",
        ]);
        for it in &self.now.queue_pairs {
            let count = |name| it.counter(name).to_string();
            let load = self.before.map(|_| format!("{:.3}", self.load(it).gigabits));
            table.row([
                format!("{:#x}", it.qpn),
                it.service.clone(),
                it.state.clone(),
                peer(it),
                count("rdma_tx_packets"),
                count("rdma_tx_bytes"),
                count("rdma_rx_packets"),
                count("rdma_rx_bytes"),
                count("retrans_pkts"),
                sum(it, NOT_READY).to_string(),
                sum(it, DROPPED).to_string(),
                load.unwrap_or_default(),
                it.rate_bps.map(|bits| gigabits(bits) + " Gb/s").unwrap_or_default(),
                it.alpha_ppm.map(alpha).unwrap_or_default(),
                it.why.clone().unwrap_or_default(),
            ]);
        }
        if self.now.queue_pairs.is_empty() {
            ink.str("  no queue pair\n");
        } else {
            table.write(2, ink);
        }
        ink.byte(b'\n');
    }

    /// All that is known of one.
    fn queue_pair(&self, it: &QueuePairStatus, ink: &mut Ink) {
        if self.arguments.json {
            return self.queue_pair_json(it, ink);
        }
        self.title(ink);
        let to = if it.peer_qpn.is_some() { format!(", peer {}", peer(it)) } else { String::new() };
        ink.display(format_args!("  queue pair {:#x}: {}, {}{to}\n", it.qpn, it.service, it.state));
        if let Some(why) = &it.why {
            ink.display(format_args!("  {why}\n"));
        }
        if let Some(rate) = it.rate_bps {
            ink.display(format_args!("  may send {} Gb/s", gigabits(rate)));
            if let (Some(target), Some(ppm)) = (it.target_bps, it.alpha_ppm) {
                let (target, alpha) = (gigabits(target), alpha(ppm));
                ink.display(format_args!(", target {target}, alpha {alpha}"));
            }
            ink.display("\n");
        }
        let before = self.before.and_then(|before| before.queue_pair(it.qpn));
        let nanos = self.before.map_or(0, |before| self.now.since(before));
        let mut table = Table::new(["", ">", ">"]);
        for (name, value) in &it.counters {
            let rate = before.map(|before| per_second(*value, before.counter(name), nanos));
            table.row(cells(name, *value, rate));
        }
        table.write(2, ink);
        ink.byte(b'\n');
    }

    fn queue_pair_json(&self, it: &QueuePairStatus, ink: &mut Ink) {
        let mut object = self.object(ink);
        object.number("qpn", it.qpn.into());
        object.text("service", &it.service);
        object.text("state", &it.state);
        if let Some(qpn) = it.peer_qpn {
            object.number("peer_qpn", qpn.into());
        }
        if let Some(peer) = it.peer {
            object.text("peer", &peer.to_string());
        }
        if let Some(why) = &it.why {
            object.text("why", why);
        }
        let rates = [("rate_bps", it.rate_bps), ("target_bps", it.target_bps)];
        let rates = rates.into_iter().chain([("alpha_ppm", it.alpha_ppm.map(u64::from))]);
        rates.for_each(|(name, value)| value.into_iter().for_each(|it| object.number(name, it)));
        it.counters.iter().for_each(|(name, value)| object.number(name, *value));
        object.end();
    }
}

/// Bits a second in Gb/s.
fn gigabits(bits: u64) -> String {
    format!("{:.3}", bits as f64 / 1e9)
}

fn alpha(ppm: u32) -> String {
    format!("{:.3}", f64::from(ppm) / 1e6)
}

/// A counter, below the title of its group; how fast it rises, if it does.
fn cells(name: &str, value: u64, rate: Option<f64>) -> [String; 3] {
    let rate = rate.filter(|rate| *rate > 0.0).map(|rate| format!("{rate:.0}/s"));
    [format!("  {name}"), value.to_string(), rate.unwrap_or_default()]
}
