//! `roxe perf`: bandwidth and latency, as perftest measures them, and with its programs as peers.
//!
//! | question | file |
//! |---|---|
//! | flags, and what does not go together | [`arguments`], [`plan`] |
//! | the bytes of the side channel | [`wire`] |
//! | the order in which they are exchanged | [`meeting`] |
//! | queue pairs, memory and its pattern | [`rig`], [`memory`] |
//! | the loops | [`bandwidth`], [`latency`]; what they do meanwhile [`idle`] |
//! | what congestion control does meanwhile | [`congestion`] |
//! | what is printed | [`report`] |

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use roxe_verbs::congestion::CongestionControl;
use roxe_verbs::{Context, ServiceType};

use crate::outcome::{Outcome, complain};
use crate::perf::arguments::PerfArguments;
use crate::perf::bandwidth::Bandwidth;
use crate::perf::idle::Measure;
use crate::perf::latency::Latency;
use crate::perf::meeting::Meeting;
use crate::perf::memory::Slots;
use crate::perf::plan::{Metric, Plan, Verb};
use crate::perf::report::Printer;
use crate::perf::rig::Rig;
use crate::perf::wire::Report;
use crate::side_channel::{Failure, MeetingPoint, choose_gid};

pub(crate) mod arguments;
mod bandwidth;
mod congestion;
mod idle;
mod latency;
mod meeting;
mod memory;
mod plan;
mod report;
mod rig;
pub(crate) mod wire;

/// What the network has not delivered by then, it has lost.
const ON_ITS_WAY: Duration = Duration::from_secs(2);

/// The command.
pub(crate) fn run(arguments: &PerfArguments) -> Result<Outcome> {
    let measured = MeetingPoint::find(arguments.host.as_deref(), arguments.side.port).and_then(
        |meeting_point| {
            arguments.side.with_adapter(|context| measure(context, meeting_point, arguments))
        },
    );
    measured.or_else(Failure::told)
}

fn measure(
    context: &Context,
    meeting_point: MeetingPoint,
    arguments: &PerfArguments,
) -> Result<Outcome, Failure> {
    let mut plan = Plan::new(arguments, context.query_device())?;
    // The peer may want more of it, but only in the small.
    memory::strides(&plan)?;
    let gid = choose_gid(context, arguments.gid_index, arguments.ipv6)?;
    let patience = arguments.side.patience();
    let printer = Printer::new(arguments);
    if arguments.host.is_none() {
        printer.waiting()?;
    }
    let mut channel = meeting_point.meet(&format!("roxe perf {} -d …", plan.name()), patience)?;
    let tells_marks = meeting::agree(&mut channel, &mut plan)?;
    let mut rig = Rig::new(context, &plan, arguments, gid)?;
    rig.memory.offer(&plan);
    printer.banner(context, &plan, gid.0)?;
    let meeting = Meeting::new(channel, &plan, &mut rig)?;
    printer.addresses("local", &plan, &meeting.own)?;
    printer.addresses("remote", &plan, &rig.peers)?;
    let own = Some(context.congestion().control).filter(|own| *own != CongestionControl::None);
    let (both, cc) = (arguments.report_both, arguments.cc.or(own).map(|it| it.name()));
    let test = Test { plan: &plan, rig: &rig, printer: &printer, both, cc, tells_marks };
    match plan.metric {
        Metric::Bandwidth => test.bandwidth(meeting),
        Metric::Latency => test.latency(meeting),
    }
}

/// What the peer wrote by its own account, and how much of it did not come.
#[derive(Default)]
struct Due {
    messages: u64,
    lost: u64,
}

/// A test between two sides that have met.
struct Test<'a> {
    plan: &'a Plan,
    rig: &'a Rig,
    printer: &'a Printer,
    /// Whether each direction is shown by itself too.
    both: bool,
    /// What `--cc` says, or else the adapter's `cc=`; then rates are shown.
    cc: Option<&'static str>,
    /// Whether the peer says how many marks it has seen, where reports are exchanged.
    tells_marks: bool,
}

impl Test<'_> {
    fn bandwidth(&self, mut meeting: Meeting) -> Result<Outcome, Failure> {
        let Self { plan, rig, printer, .. } = *self;
        printer.headings(plan)?;
        // Who is written to, read from or counted at only waits.
        if plan.verb != Verb::Send && !plan.is_client && !plan.bidirectional {
            let report = self.watched(plan.size, || {
                meeting.first(rig)?;
                meeting.reports(rig, &Report::of_marks(rig.counts().marks))
            })?;
            report.check().map_err(Failure::Failed)?;
            let all = report.iters.saturating_mul(plan.sizes().count() as u64);
            let lost = self.missing(all, true);
            let verified = if lost > 0 { Ok(false) } else { self.verify_target(&report) };
            printer.bandwidth(plan, &report, matches!(verified, Ok(true)))?;
            meeting.end(rig)?;
            printer.end()?;
            self.tell_marks(None)?;
            let verified = verified?;
            if lost > 0 {
                return Ok(self.tell_lost(lost, all));
            }
            self.tell_verified(verified)?;
            return Ok(Outcome::Right);
        }
        let mut outcome = Outcome::Right;
        let mut all_verified = true;
        let mut last = Report::default();
        let mut due = Due::default();
        for size in plan.sizes() {
            let run = bandwidth::Run::new(rig, plan, size)?;
            // Of SEND the receives are there from here on.
            if plan.verb == Verb::Send || plan.bidirectional {
                meeting.first(rig)?;
            }
            let measured = self.watched(size, || run.go(&meeting.channel))?;
            if measured.lost > 0 {
                let each = Measure::new(plan.extent).messages();
                let all = each.saturating_mul(plan.queue_pairs.into());
                outcome = self.tell_lost(measured.lost, all);
            }
            if plan.all && plan.bidirectional && plan.verb != Verb::Send {
                meeting.first(rig)?;
            }
            let verified;
            (last, verified) = self.tell(&mut meeting, size, &measured, &mut due)?;
            all_verified &= verified;
            if plan.all && plan.verb == Verb::Send {
                meeting.first(rig)?;
            }
        }
        printer.end()?;
        if due.lost > 0 {
            // Some of it may have been on its way only.
            due.lost = self.missing(due.messages, true);
        }
        if due.lost > 0 {
            outcome = self.tell_lost(due.lost, due.messages);
        }
        let mut peer_saw = None;
        if plan.verb != Verb::Send && !plan.bidirectional {
            meeting.first(rig)?;
            let peers = meeting.reports(rig, &last)?;
            // Who only answers has nothing to tell.
            let by_time = Measure::new(plan.extent).by_time();
            let same = peers.size == last.size && (by_time || peers.iters == last.iters);
            if same && peers.iters > 0 && peers.bw_avg > 0.0 && peers.check().is_ok() {
                // Whoever closes now says to the peer that something is wrong.
                return Err(Failure::failed(
                    "the peer measured its own direction too: -b is not the same there",
                ));
            }
            peer_saw = self.tells_marks.then_some(peers.iters);
        }
        meeting.end(rig)?;
        self.tell_marks(peer_saw)?;
        if matches!(outcome, Outcome::Right) {
            self.tell_verified(all_verified)?;
        }
        Ok(outcome)
    }

    /// Measures by `run`; where they are controlled, what the queue pairs do meanwhile is shown.
    fn watched<R>(&self, size: u32, run: impl FnOnce() -> R) -> R {
        match self.cc {
            Some(_) => self.rig.watched(|look| self.printer.look(self.plan, size, look), run),
            None => run(),
        }
    }

    /// The same of what was marked, and of how many notifications came of it.
    fn tell_marks(&self, peer_saw: Option<u64>) -> Result<(), Failure> {
        if let Some(cc) = self.cc {
            self.printer.congestion(self.plan, cc, self.rig.counts(), peer_saw)?;
        }
        Ok(())
    }

    /// Says whether what `--verify` asks for was done.
    fn tell_verified(&self, verified: bool) -> Result<(), Failure> {
        let plan = self.plan;
        match (plan.verify, verified) {
            (false, _) => {}
            (true, true) => self.printer.verified()?,
            (true, false) => complain(if Measure::new(plan.extent).by_time() {
                "nothing was verified here: with -n --verify looks at more"
            } else {
                "nothing was verified here: the other side's --verify is what looks"
            }),
        }
        Ok(())
    }

    /// Verifies and prints what was measured; of both directions what the peer measured too, once
    /// it has: before, its bytes need not be here. Says what this side measured, and whether it
    /// verified.
    fn tell(
        &self,
        meeting: &mut Meeting,
        size: u32,
        measured: &Bandwidth,
        due: &mut Due,
    ) -> Result<(Report, bool), Failure> {
        let Self { plan, rig, printer, .. } = *self;
        let own = printer.report(size, measured);
        let by_time = Measure::new(plan.extent).by_time();
        if !plan.bidirectional || (plan.verb == Verb::Send && by_time) {
            let verified = self.verify(size, measured)?;
            printer.bandwidth(plan, &own, verified)?;
            return Ok((own, verified));
        }
        let peers = meeting.reports(rig, &own)?;
        peers.check().map_err(Failure::Failed)?;
        due.messages = due.messages.saturating_add(peers.iters);
        due.lost = self.missing(due.messages, due.lost == 0);
        let verified = due.lost == 0 && self.verify(size, measured)?;
        printer.bandwidth(plan, &own.with(&peers), verified)?;
        if self.both && !plan.all {
            printer.both(plan, &own, &peers)?;
        }
        Ok((own, verified))
    }

    /// How many of these messages of the peer's did not come that nobody here waits for: WRITEs of
    /// a service that does not acknowledge. By time more may be sent than is counted. Who has lost
    /// some already does not wait for more.
    fn missing(&self, due: u64, waits: bool) -> u64 {
        let Self { plan, rig, .. } = *self;
        let by_time = Measure::new(plan.extent).by_time();
        if plan.verb != Verb::Write || plan.service == ServiceType::Rc || by_time {
            return 0;
        }
        let start = Instant::now();
        loop {
            let missing = due.saturating_sub(rig.written());
            if missing == 0 || !waits || start.elapsed() >= ON_ITS_WAY {
                return missing;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn tell_lost(&self, lost: u64, all: u64) -> Outcome {
        let why = if self.plan.service == ServiceType::Rc {
            "have both sides the same -n, -q and -s?"
        } else {
            "the service does not send again what the network loses, or the receiver has no \
             receive for"
        };
        complain(format_args!("{lost} of {all} messages did not come: {why}"));
        Outcome::Findings
    }

    fn latency(&self, mut meeting: Meeting) -> Result<Outcome, Failure> {
        let Self { plan, rig, printer, .. } = *self;
        if plan.verb.fetches() && !plan.is_client {
            meeting.end(rig)?;
            printer.end()?;
            self.tell_verified(false)?;
            return Ok(Outcome::Right);
        }
        printer.headings(plan)?;
        let mut all_verified = true;
        for size in plan.sizes() {
            let run = latency::Run::new(rig, plan, size)?;
            if plan.verb == Verb::Send {
                meeting.first(rig)?;
            }
            let measured = self.watched(size, || run.go(&meeting.channel))?;
            let verified = self.verify_latency(size, &measured)?;
            all_verified &= verified;
            printer.latency(plan, size, measured, verified)?;
        }
        printer.end()?;
        if plan.verb == Verb::Write {
            meeting.channel.close();
        } else {
            meeting.end(rig)?;
        }
        self.tell_marks(None)?;
        self.tell_verified(all_verified)?;
        Ok(Outcome::Right)
    }

    /// Looks at what was received, or read. Says whether there was something.
    fn verify(&self, size: u32, measured: &Bandwidth) -> Result<bool, Failure> {
        let Self { plan, rig, .. } = *self;
        let each = measured.messages / u64::from(plan.queue_pairs);
        if !plan.verify || measured.lost > 0 || each == 0 {
            return Ok(false);
        }
        let ready = each.min(plan.rx_depth.into());
        match plan.verb {
            Verb::Send if plan.receives() => rig.memory.check_received(plan, size, ready),
            Verb::Read => rig.memory.check_read(plan, size, each),
            Verb::Write if plan.bidirectional => {
                self.patiently(|| rig.memory.check_written(plan, size, each))
            }
            Verb::Atomic(kind) if !plan.bidirectional => {
                let slots = Slots::of(plan, size);
                let last = each.saturating_sub(1);
                let expected = match kind {
                    arguments::AtomicType::FetchAndAdd => last / slots.count,
                    arguments::AtomicType::CmpAndSwap => 0,
                };
                let by_time = Measure::new(plan.extent).by_time();
                let found = rig.memory.fetched(0, slots.offset(last));
                if by_time || found == expected {
                    return Ok(!by_time);
                }
                Err(Failure::failed(format_args!(
                    "wrong data: the last atomic found {found}, and should have {expected}; does \
                     the other side have --verify too?"
                )))
            }
            _ => return Ok(false),
        }
        .map(|()| true)
    }

    /// Looks at what the peer did to our memory, as it says. Says whether there was something.
    fn verify_target(&self, report: &Report) -> Result<bool, Failure> {
        let Self { plan, rig, .. } = *self;
        let size = u32::try_from(report.size).unwrap_or(u32::MAX);
        let each = report.iters / u64::from(plan.queue_pairs);
        if !plan.verify || size == 0 || size > plan.size || each == 0 {
            return Ok(false);
        }
        match plan.verb {
            Verb::Write => {
                self.patiently(|| rig.memory.check_written(plan, size, each)).map(|()| true)
            }
            Verb::Atomic(arguments::AtomicType::FetchAndAdd) => {
                let slots = Slots::of(plan, size);
                let all = 0..plan.queue_pairs as usize;
                let found: u64 = all.flat_map(|qp| rig.memory.counted(qp, slots)).sum();
                // By time more may have been done than was counted.
                let by_time = Measure::new(plan.extent).by_time();
                if found == report.iters || (by_time && found > report.iters) {
                    return Ok(true);
                }
                Err(Failure::failed(format_args!(
                    "wrong data: {} atomics added up to {found}",
                    report.iters
                )))
            }
            _ => Ok(false),
        }
    }

    /// What a service does not acknowledge may be on its way yet when the peer has sent it.
    fn patiently(&self, check: impl Fn() -> Result<(), Failure>) -> Result<(), Failure> {
        let start = Instant::now();
        loop {
            let checked = check();
            let wait = self.plan.service != ServiceType::Rc && start.elapsed() < ON_ITS_WAY;
            if checked.is_ok() || !wait {
                return checked;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn verify_latency(&self, size: u32, measured: &Latency) -> Result<bool, Failure> {
        let Self { plan, rig, .. } = *self;
        let Latency::Each { turns, .. } = measured else { return Ok(false) };
        if !plan.verify {
            return Ok(false);
        }
        match plan.verb {
            Verb::Send => rig.memory.check_received(plan, size, 1),
            Verb::Write => rig.memory.check_counted(size),
            Verb::Read => rig.memory.check_read(plan, size, 1),
            Verb::Atomic(kind) => {
                let found = rig.memory.fetched(0, 0);
                let expected = match kind {
                    arguments::AtomicType::FetchAndAdd => turns - 1,
                    arguments::AtomicType::CmpAndSwap => 0,
                };
                if found == expected {
                    return Ok(true);
                }
                Err(Failure::failed(format_args!(
                    "wrong data: the last atomic found {found}, and should have {expected}"
                )))
            }
        }
        .map(|()| true)
    }
}
