//! What is printed: perftest's headings and columns, so that whoever reads those reads these.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use roxe_verbs::{Context, ServiceType};

use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::perf::arguments::PerfArguments;
use crate::perf::bandwidth::Bandwidth;
use crate::perf::congestion::{Counts, Look, Spread};
use crate::perf::latency::Latency;
use crate::perf::plan::{Metric, Plan, Verb};
use crate::perf::wire::{Destination, Report};

/// Between the parts.
const LINE: &str =
    "---------------------------------------------------------------------------------------";

/// Where what is measured goes to.
pub(crate) struct Printer {
    json: bool,
    gbits: bool,
    histogram: bool,
    unsorted: bool,
    verify: bool,
}

impl Printer {
    pub(crate) const fn new(arguments: &PerfArguments) -> Self {
        Self {
            json: arguments.json,
            gbits: arguments.report_gbits,
            histogram: arguments.histogram,
            unsorted: arguments.unsorted,
            verify: arguments.verify,
        }
    }

    fn text(&self, text: &str) -> io::Result<()> {
        if self.json { Ok(()) } else { print(text.as_bytes()) }
    }

    /// A server says that it waits.
    pub(crate) fn waiting(&self) -> io::Result<()> {
        let stars = "************************************";
        self.text(&format!("\n{stars}\n* Waiting for client to connect... *\n{stars}\n"))
    }

    /// What is going to be measured.
    pub(crate) fn banner(&self, context: &Context, plan: &Plan, gid: u32) -> io::Result<()> {
        self.text(&banner(context.name(), plan, gid))
    }

    /// Queue pairs of one side.
    pub(crate) fn addresses(
        &self,
        side: &str,
        plan: &Plan,
        destinations: &[Destination],
    ) -> io::Result<()> {
        destinations.iter().try_for_each(|it| self.text(&address(side, plan, it)))
    }

    /// The headings of the columns.
    pub(crate) fn headings(&self, plan: &Plan) -> io::Result<()> {
        self.text(&format!("{LINE}\n{}\n", self.heading(plan)))
    }

    fn heading(&self, plan: &Plan) -> String {
        match plan.metric {
            Metric::Bandwidth => {
                let unit = self.unit();
                format!(
                    " #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   \
                     MsgRate[Mpps]"
                )
            }
            Metric::Latency if crate::perf::idle::Measure::new(plan.extent).by_time() => {
                " #bytes        #iterations       t_avg[usec]    tps average".to_owned()
            }
            Metric::Latency => " #bytes #iterations    t_min[usec]    t_max[usec]  \
                t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   \
                99.9% percentile[usec] "
                .to_owned(),
        }
    }

    /// The end of the columns.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.text(&format!("{LINE}\n"))
    }

    /// All that came is what was sent.
    pub(crate) fn verified(&self) -> io::Result<()> {
        self.text(" # data verified\n")
    }

    const fn unit(&self) -> &'static str {
        if self.gbits { "Gb/sec" } else { "MB/sec" }
    }

    /// What a side tells of a bandwidth, in the unit that was asked for.
    pub(crate) fn report(&self, size: u32, measured: &Bandwidth) -> Report {
        let unit = if self.gbits { 125_000_000.0 } else { f64::from(1 << 20) };
        let seconds = measured.time.as_secs_f64().max(f64::EPSILON);
        let rate = measured.messages as f64 / seconds;
        let fastest = measured.fastest.map_or(0.0, |nanos| 1e9 / nanos);
        Report {
            size: size.into(),
            iters: measured.messages,
            bw_peak: fastest * f64::from(size) / unit,
            bw_avg: rate * f64::from(size) / unit,
            msg_rate: rate / 1e6,
        }
    }

    /// A row of bandwidth.
    pub(crate) fn bandwidth(&self, plan: &Plan, report: &Report, verified: bool) -> io::Result<()> {
        if !self.json {
            return print(row(report, self.gbits).as_bytes());
        }
        let mut ink = Ink::new(false);
        let mut object = self.object(&mut ink, plan, report.size);
        object.number("iterations", report.iters);
        let unit = if self.gbits { "gbps" } else { "mibps" };
        object.decimal(&format!("bw_peak_{unit}"), report.bw_peak);
        object.decimal(&format!("bw_average_{unit}"), report.bw_avg);
        object.decimal("msg_rate_mpps", report.msg_rate);
        if self.verify {
            object.flag("verified", verified);
        }
        object.end();
        print(ink.bytes())
    }

    /// What the queue pairs do.
    pub(crate) fn look(&self, plan: &Plan, size: u32, look: &Look) -> io::Result<()> {
        if !self.json {
            return print(looked(look).as_bytes());
        }
        let mut ink = Ink::new(false);
        let mut object = self.object(&mut ink, plan, size.into());
        object.decimal("seconds", look.time.as_secs_f64());
        let values =
            [("rate_gbps", look.rate), ("target_gbps", look.target), ("alpha", look.alpha)];
        for (name, spread) in values.into_iter().filter(|(_, spread)| !spread.is_empty()) {
            object.decimal(name, spread.mean());
            object.decimal(&format!("{name}_min"), spread.min);
            object.decimal(&format!("{name}_max"), spread.max);
        }
        object.number("rp_cnp_handled", look.handled);
        object.end();
        print(ink.bytes())
    }

    /// What congestion control was, and what came of it.
    pub(crate) fn congestion(
        &self,
        plan: &Plan,
        name: &str,
        counts: Counts,
        peer_saw: Option<u64>,
    ) -> io::Result<()> {
        let Counts { marks, handled } = counts;
        if !self.json {
            let there = peer_saw.map(|marks| format!(", {marks} at the other end"));
            let there = there.unwrap_or_default();
            let text =
                format!(" # {name}: {handled} CNPs obeyed; {marks} marks seen here{there}\n");
            return print(text.as_bytes());
        }
        let mut ink = Ink::new(false);
        let mut object = self.object(&mut ink, plan, plan.size.into());
        object.text("cc", name);
        object.number("rp_cnp_handled", handled);
        object.number("np_ecn_marked_roce_packets", marks);
        if let Some(marks) = peer_saw {
            object.number("peer_np_ecn_marked_roce_packets", marks);
        }
        object.end();
        print(ink.bytes())
    }

    /// Each direction by itself, below the sum of both.
    pub(crate) fn both(&self, plan: &Plan, own: &Report, peers: &Report) -> io::Result<()> {
        let heading = self.heading(plan);
        for (which, report) in [("Local", own), ("Remote", peers)] {
            let row = row(report, self.gbits);
            self.text(&format!("{LINE}\n\n {which} results: \n{LINE}\n{heading}\n{row}"))?;
        }
        Ok(())
    }

    /// A row of latency.
    pub(crate) fn latency(
        &self,
        plan: &Plan,
        size: u32,
        measured: Latency,
        verified: bool,
    ) -> io::Result<()> {
        // A READ or an atomic is there and back by itself.
        let ways = if plan.verb.fetches() { 1.0 } else { 2.0 };
        let (iterations, samples) = match measured {
            Latency::Mean { turns, time } => return self.mean(plan, size, turns, time, ways),
            Latency::Each { turns, samples } => (turns, samples),
        };
        let micros = |nanos: &u64| *nanos as f64 / 1000.0 / ways;
        let mut each: Vec<f64> = samples.iter().map(micros).collect();
        let list = |each: &[f64]| {
            let mut text = "#, usec\n".to_owned();
            for (at, micros) in each.iter().enumerate() {
                let _ = writeln!(text, "{}, {}", at + 1, general(*micros));
            }
            text
        };
        if self.unsorted {
            self.text(&list(&each))?;
        }
        each.sort_by(f64::total_cmp);
        if self.histogram {
            self.text(&list(&each))?;
        }
        if self.unsorted || self.histogram {
            self.headings(plan)?;
        }
        let found = Statistics::of(&each);
        if !self.json {
            return print(found.row(size, iterations).as_bytes());
        }
        let mut ink = Ink::new(false);
        let mut object = self.object(&mut ink, plan, size.into());
        object.number("iterations", iterations);
        for (name, value) in found.named() {
            object.decimal(name, value);
        }
        if self.verify {
            object.flag("verified", verified);
        }
        object.end();
        print(ink.bytes())
    }

    fn mean(
        &self,
        plan: &Plan,
        size: u32,
        turns: u64,
        time: Duration,
        ways: f64,
    ) -> io::Result<()> {
        let seconds = time.as_secs_f64();
        let rate = turns as f64 / seconds;
        let mean = if turns == 0 { 0.0 } else { 1e6 / rate / ways };
        if !self.json {
            return self.text(&format!(
                " {size:<7}       {turns}            {mean:<7.2}        {rate:<7.2}\n"
            ));
        }
        let mut ink = Ink::new(false);
        let mut object = self.object(&mut ink, plan, size.into());
        object.number("iterations", turns);
        object.decimal("t_avg_us", mean);
        object.decimal("turns_per_second", rate);
        if self.verify {
            object.flag("verified", false);
        }
        object.end();
        print(ink.bytes())
    }

    fn object<'i>(&self, ink: &'i mut Ink, plan: &Plan, size: u64) -> Object<'i> {
        let mut object = Object::begin(ink);
        object.text("test", &plan.name());
        object.text("service", service(plan.service));
        object.number("queue_pairs", plan.queue_pairs.into());
        object.flag("bidirectional", plan.bidirectional);
        object.number("path_mtu", plan.mtu.bytes().into());
        object.number("bytes", size);
        object
    }
}

/// Writes it out at once: whoever reads along may wait for it.
fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// Tells people how long it takes yet.
pub(crate) fn progress(done: u64, whole: u64) {
    let mut err = io::stderr();
    if err.is_terminal() {
        let end = if done >= whole { '\n' } else { '\r' };
        let _ = write!(err, " {done} s of {whole} s{end}");
    }
}

const fn service(service: ServiceType) -> &'static str {
    match service {
        ServiceType::Rc => "RC",
        ServiceType::Uc => "UC",
        ServiceType::Ud => "UD",
    }
}

fn banner(device: &str, plan: &Plan, gid: u32) -> String {
    let on = |it: bool| if it { "ON" } else { "OFF" };
    let mut title = format!("                    {} ", plan.verb.name());
    if let Verb::Atomic(kind) = plan.verb {
        title += &format!("{} ", kind.name());
    }
    title += match (plan.metric, plan.bidirectional, plan.post_list > 1) {
        (Metric::Latency, ..) => "Latency ",
        (_, false, false) => "BW ",
        (_, true, false) => "Bidirectional BW ",
        (_, false, true) => "Post List BW ",
        (_, true, true) => "Bidirectional Post List BW ",
    };
    let mut text = format!("{LINE}\n{title}Test\n");
    if plan.events {
        text += &format!(" Test with events. Using {device}_comp0\n");
    }
    text += &format!(" Dual-port       : OFF\t\tDevice         : {device}\n");
    text += &format!(" Number of qps   : {}\t\tTransport type : IB\n", plan.queue_pairs);
    text += &format!(
        " Connection type : {}\t\tUsing SRQ      : {}\n",
        service(plan.service),
        on(plan.use_srq)
    );
    text += " PCIe relax order: Unsupported\n ibv_wr* API     : OFF\n";
    if plan.is_client || plan.bidirectional {
        text += &format!(" TX depth        : {}\n", plan.tx_depth);
    }
    if plan.post_list > 1 {
        text += &format!(" Post List       : {}\n", plan.post_list);
    }
    if plan.verb == Verb::Send && (!plan.is_client || plan.bidirectional) {
        text += &format!(" RX depth        : {}\n", plan.rx_depth);
    }
    if plan.metric == Metric::Bandwidth {
        text += &format!(" CQ Moderation   : {}\n", plan.cq_mod);
    }
    text += &format!(" Mtu             : {}[B]\n", plan.mtu);
    text += &format!(" Link type       : Ethernet\n GID index       : {gid}\n");
    text += &if plan.verb.fetches() {
        format!(" Outstand reads  : {}\n", plan.out_reads)
    } else {
        format!(" Max inline data : {}[B]\n", plan.inline_size)
    };
    text += &format!(" rdma_cm QPs\t : OFF\n Data ex. method : Ethernet\n{LINE}\n");
    text
}

fn address(side: &str, plan: &Plan, it: &Destination) -> String {
    let mut text = format!(
        " {side} address: LID {} QPN {:#06x} PSN {:#06x}",
        hexadecimal(it.lid.into(), 4),
        it.qpn.get(),
        it.psn.get()
    );
    if plan.verb == Verb::Read {
        text += &format!(" OUT {}", hexadecimal(it.out_reads.into(), 4));
    }
    if matches!(plan.verb, Verb::Read | Verb::Write) {
        text += &format!(" RKey {:#08x} VAddr {:#016x}", it.r_key.0, it.va);
    }
    let gid: Vec<String> = it.gid.0.iter().map(|byte| format!("{byte:02}")).collect();
    text + &format!("\n GID: {}\n", gid.join(":"))
}

/// As C's `%#04x`, which has no 0x before a zero.
fn hexadecimal(value: u64, width: usize) -> String {
    if value == 0 { "0".repeat(width) } else { format!("{value:#0width$x}") }
}

fn row(report: &Report, gbits: bool) -> String {
    let Report { size, iters, bw_peak, bw_avg, msg_rate } = report;
    if gbits && *bw_avg < 0.1 {
        // Else there would not be much to be seen.
        return format!(
            " {size:<7}    {iters}           {bw_peak:<7.6}            {bw_avg:<7.6}            \
             {msg_rate:<7.6}\n"
        );
    }
    format!(
        " {size:<7}    {iters:<10}       {bw_peak:<7.2}            {bw_avg:<7.2}\t\t   \
         {msg_rate:<7.6}\n"
    )
}

/// A line of what queue pairs do: the mean, the least and the most.
fn looked(look: &Look) -> String {
    let shown = |it: Spread, per_unit: f64| {
        let [mean, min, max] = [it.mean(), it.min, it.max].map(|value| value * per_unit);
        format!("{mean:.3} ({min:.3} … {max:.3})")
    };
    // That in which three digits behind the point say something.
    let (per_unit, unit) = match look.rate.mean() {
        gigabits if gigabits >= 0.1 => (1.0, "Gb/s"),
        gigabits if gigabits >= 1e-4 => (1e3, "Mb/s"),
        _ => (1e6, "kb/s"),
    };
    let (time, rate) = (look.time.as_secs_f64(), shown(look.rate, per_unit));
    let mut line = format!(" # {time:.1} s: rate {rate} {unit}");
    if !look.target.is_empty() {
        let (target, alpha) = (shown(look.target, per_unit), shown(look.alpha, 1.0));
        line += &format!(", target {target}, alpha {alpha}, {} CNPs", look.handled);
    }
    line + "\n"
}

/// What latencies are like, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Statistics {
    min: f64,
    max: f64,
    typical: f64,
    avg: f64,
    stdev: f64,
    p99: f64,
    p99_9: f64,
}

impl Statistics {
    /// Of these, which are sorted.
    fn of(sorted: &[f64]) -> Self {
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let count = sorted.len();
        let avg = sorted.iter().sum::<f64>() / count as f64;
        let variance = sorted.iter().map(|it| (it - avg).powi(2)).sum::<f64>() / count as f64;
        let typical = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
        // So many of a thousand are not above it.
        let percentile = |of_1000: usize| sorted[(count * of_1000).div_ceil(1000).max(1) - 1];
        let (p99, p99_9) = (percentile(990), percentile(999));
        Self { min, max, typical, avg, stdev: variance.sqrt(), p99, p99_9 }
    }

    fn row(&self, size: u32, iterations: u64) -> String {
        let Self { min, max, typical, avg, stdev, p99, p99_9 } = self;
        format!(
            " {size:<7} {iterations}          {min:<7.2}        {max:<7.2}      {typical:<7.2}  \t\
             \x20      {avg:<7.2}     \t{stdev:<7.2}\t\t{p99:<7.2} \t\t{p99_9:<7.2}\n"
        )
    }

    const fn named(&self) -> [(&'static str, f64); 7] {
        [
            ("t_min_us", self.min),
            ("t_max_us", self.max),
            ("t_typical_us", self.typical),
            ("t_avg_us", self.avg),
            ("t_stdev_us", self.stdev),
            ("t_99_us", self.p99),
            ("t_99_9_us", self.p99_9),
        ]
    }
}

/// As C's `%g`: six digits, and no zeros at the end.
fn general(value: f64) -> String {
    let whole = value.abs().max(1.0).log10().floor() as usize + 1;
    let text = format!("{value:.*}", 6usize.saturating_sub(whole));
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests;
