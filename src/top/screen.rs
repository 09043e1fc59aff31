//! What stands on the screen: adapters above, their queue pairs below, in lines of text.

use std::cmp::Reverse;

use ratatui::style::Style;
use ratatui::text::{Line, Text};
use roxe_verbs::status::QueuePairStatus;

use crate::adapters::{Adapter, DROPPED, Load, NOT_READY, Snapshot, peer, sum};
use crate::outcome::visible;

/// The screen, but for its size.
#[derive(Default)]
pub(super) struct Screen {
    adapters: Vec<Row>,
    sort: Sort,
    is_paused: bool,
    help: bool,
    /// Lines of queue pairs that are above what is shown.
    above: usize,
}

/// An adapter and what it does.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) process: String,
    pub(super) mode: String,
    pub(super) active: bool,
    pub(super) sent: Load,
    pub(super) received: Load,
    /// Since it was opened.
    pub(super) sent_again: u64,
    pub(super) not_ready: u64,
    pub(super) dropped: u64,
    pub(super) queue_pairs: Vec<QueuePairRow>,
}

/// A queue pair and what it does.
#[derive(Clone, Debug, Default)]
pub(super) struct QueuePairRow {
    pub(super) qpn: u32,
    pub(super) service: String,
    pub(super) state: String,
    pub(super) peer: String,
    pub(super) load: Load,
    pub(super) sent_again: u64,
    pub(super) not_ready: u64,
    pub(super) dropped: u64,
    pub(super) why: Option<String>,
}

/// What queue pairs are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sort {
    #[default]
    Rate,
    SentAgain,
    Dropped,
    Number,
}

impl Sort {
    const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::SentAgain => "packets sent again",
            Self::Dropped => "drops",
            Self::Number => "number",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Rate => Self::SentAgain,
            Self::SentAgain => Self::Dropped,
            Self::Dropped => Self::Number,
            Self::Number => Self::Rate,
        }
    }
}

impl Row {
    pub(super) fn new(adapter: &Adapter, now: &Snapshot, before: Option<&Snapshot>) -> Self {
        let load = |packets, bytes| Load {
            packets: now.rate(packets, before),
            gigabits: now.rate(bytes, before) * 8.0 / 1e9,
        };
        let nanos = before.map_or(0, |before| now.since(before));
        let old = |qpn| before.and_then(|before| before.queue_pair(qpn));
        let total = |names: &[&str]| names.iter().map(|name| now.counter(name)).sum();
        let drops = |group: &str| group.starts_with("dropped");
        let dropped = now.counters.iter().filter(|it| drops(&it.group) && it.whose == "ours");
        let shown = |text: &str| visible(text, |_| false);
        Self {
            name: shown(&adapter.name()),
            process: adapter.info.pid.to_string(),
            mode: shown(&adapter.info.mode),
            active: adapter.info.active,
            sent: load("rdma_tx_packets", "rdma_tx_bytes"),
            received: load("rdma_rx_packets", "rdma_rx_bytes"),
            sent_again: now.counter("retrans_pkts"),
            not_ready: total(NOT_READY),
            dropped: dropped.map(|it| it.value).sum(),
            queue_pairs: now
                .queue_pairs
                .iter()
                .map(|it| QueuePairRow::new(it, old(it.qpn), nanos))
                .collect(),
        }
    }
}

impl QueuePairRow {
    fn new(now: &QueuePairStatus, before: Option<&QueuePairStatus>, nanos: u64) -> Self {
        let shown = |text: &str| visible(text, |_| false);
        Self {
            qpn: now.qpn,
            service: shown(&now.service),
            state: shown(&now.state),
            peer: peer(now),
            load: Load::of(now, before, nanos),
            sent_again: now.counter("retrans_pkts"),
            not_ready: sum(now, NOT_READY),
            dropped: sum(now, DROPPED),
            why: now.why.as_deref().map(shown),
        }
    }
}

impl Screen {
    pub(super) fn set(&mut self, adapters: Vec<Row>) {
        self.adapters = adapters;
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    pub(super) const fn pause_or_go_on(&mut self) {
        self.is_paused = !self.is_paused;
    }

    pub(super) const fn help_or_not(&mut self) {
        self.help = !self.help;
    }

    pub(super) const fn sort_otherwise(&mut self) {
        self.sort = self.sort.next();
    }

    pub(super) fn scroll(&mut self, lines: isize) {
        self.above = self.above.saturating_add_signed(lines).min(self.lines_of_queue_pairs());
    }

    fn lines_of_queue_pairs(&self) -> usize {
        let all = self.adapters.iter().flat_map(|adapter| &adapter.queue_pairs);
        all.map(|it| 1 + usize::from(it.why.is_some())).sum()
    }

    /// The screen for so many columns and lines.
    pub(super) fn text(&self, width: usize, height: usize) -> Text<'static> {
        let mut lines = vec![self.title()];
        if self.help {
            lines.extend(HELP.lines().map(|line| Line::from(line.to_owned())));
        } else {
            lines.extend(self.adapter_lines());
            let room = height.saturating_sub(lines.len() + 2);
            lines.push(Line::default());
            lines.push(Line::styled(self.queue_pair_titles(), Style::new().bold()));
            lines.extend(self.queue_pair_lines().into_iter().skip(self.above).take(room));
        }
        lines.truncate(height);
        lines.iter_mut().for_each(|line| cut(line, width));
        Text::from(lines)
    }

    fn title(&self) -> Line<'static> {
        let pairs: usize = self.adapters.iter().map(|adapter| adapter.queue_pairs.len()).sum();
        let paused = if self.is_paused { ", paused" } else { "" };
        let text = format!(
            "roxe top: {}, {}, by {}{paused}   (? help)",
            counted(self.adapters.len(), "adapter"),
            counted(pairs, "queue pair"),
            self.sort.name(),
        );
        Line::styled(text, Style::new().bold())
    }

    /// Columns that names of adapters take.
    fn room_of_names(&self, least: usize) -> usize {
        let names = self.adapters.iter().map(|it| it.name.chars().count());
        names.max().unwrap_or(0).max(least)
    }

    /// Columns that peers take.
    fn room_of_peers(&self) -> usize {
        let all = self.adapters.iter().flat_map(|adapter| &adapter.queue_pairs);
        all.map(|it| it.peer.chars().count()).max().unwrap_or(0).max(PEER)
    }

    fn queue_pair_titles(&self) -> String {
        let (names, peers) = (self.room_of_names(NAME), self.room_of_peers());
        format!(
            "      QP svc state  {:<names$} {:<peers$}  pkt/s   Gb/s again  RNR drops",
            "adapter", "peer"
        )
    }

    fn adapter_lines(&self) -> Vec<Line<'static>> {
        let names = self.room_of_names(LONG_NAME);
        let titles = format!("{:<names$} {ADAPTER_TITLES}", "adapter");
        let mut lines = vec![Line::default(), Line::styled(titles, Style::new().bold())];
        for it in &self.adapters {
            let state = if it.active { "active" } else { "down" };
            let line = format!(
                "{:<names$} {:>8} {state:<6} {:>7} {:>7} {:>7} {:>7} {:>6} {:>5} {:>6}",
                it.name,
                it.process,
                short(it.sent.packets),
                gigabits(it.sent.gigabits),
                short(it.received.packets),
                gigabits(it.received.gigabits),
                short(it.sent_again as f64),
                short(it.not_ready as f64),
                short(it.dropped as f64),
            );
            let style = if it.active { Style::new() } else { Style::new().red() };
            lines.push(Line::styled(line, style));
            lines.push(Line::styled(format!("  {}", it.mode), Style::new().dim()));
        }
        lines
    }

    fn queue_pair_lines(&self) -> Vec<Line<'static>> {
        let mut all: Vec<_> = self
            .adapters
            .iter()
            .flat_map(|adapter| adapter.queue_pairs.iter().map(move |it| (adapter, it)))
            .collect();
        all.sort_by(|(_, a), (_, b)| {
            let by = match self.sort {
                Sort::Rate => b.load.packets.total_cmp(&a.load.packets),
                Sort::SentAgain => Reverse(a.sent_again).cmp(&Reverse(b.sent_again)),
                Sort::Dropped => Reverse(a.dropped).cmp(&Reverse(b.dropped)),
                Sort::Number => std::cmp::Ordering::Equal,
            };
            by.then(a.qpn.cmp(&b.qpn))
        });
        let (names, peers) = (self.room_of_names(NAME), self.room_of_peers());
        let mut lines = Vec::new();
        for (adapter, it) in all {
            let line = format!(
                "{:>#8x} {:<3} {:<6.6} {:<names$} {:<peers$} {:>6} {:>6} {:>5} {:>4} {:>5}",
                it.qpn,
                it.service,
                it.state,
                adapter.name,
                it.peer,
                short(it.load.packets),
                gigabits(it.load.gigabits),
                short(it.sent_again as f64),
                short(it.not_ready as f64),
                short(it.dropped as f64),
            );
            let style = if it.why.is_some() { Style::new().red() } else { Style::new() };
            lines.push(Line::styled(line, style));
            if let Some(why) = &it.why {
                lines.push(Line::styled(format!("         {why}"), Style::new().dim()));
            }
        }
        lines
    }
}

/// Cuts a line of one piece to the screen's width.
fn cut(line: &mut Line<'static>, width: usize) {
    for span in &mut line.spans {
        if span.content.chars().count() > width {
            let kept: String = span.content.chars().take(width.saturating_sub(1)).collect();
            span.content = format!("{kept}…").into();
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A number in at most five characters.
fn short(number: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    for (unit, name) in UNITS {
        // From where it would be rounded up to the next unit on.
        if number >= 0.9995 * unit {
            let value = number / unit;
            let digits = if value >= 99.95 {
                0
            } else if value >= 9.995 {
                1
            } else {
                2
            };
            return format!("{value:.digits$}{name}");
        }
    }
    format!("{number:.0}")
}

fn gigabits(number: f64) -> String {
    if number >= 99.995 { format!("{number:.1}") } else { format!("{number:.2}") }
}

/// What stands behind the name.
const ADAPTER_TITLES: &str = " process state   sent/s    Gb/s rcvd/s    Gb/s  again   RNR  drops";

/// Columns of names and peers, at least.
const LONG_NAME: usize = 12;
const NAME: usize = 7;
const PEER: usize = 21;

const HELP: &str = "
q, Esc     end
s          sort queue pairs by rate, packets sent again, drops, number
p, space   stop the picture, or go on
j, k, ↓, ↑ scroll queue pairs; PageDown, PageUp; Home
?, h       this help, or back

sent/s, rcvd/s, pkt/s: RoCEv2 packets a second; Gb/s of them, from BTH to ICRC
again      packets sent again, since the adapter was opened
RNR        receiver-not-ready NAKs, sent and received
drops      frames thrown away; `roxe stat -d NAME` says why
Below a queue pair that ended stands why.";

#[cfg(test)]
mod tests;
