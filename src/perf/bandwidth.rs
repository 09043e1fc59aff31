//! How much gets through: requests are posted in lists while there is room, completions taken in
//! batches. Nothing is allocated while it is measured.

use std::time::{Duration, Instant};

use roxe_verbs::{
    Completion, CompletionStatus, Data, ReceiveRequest, Remote, SendOperation, SendRequest,
    ServiceType, Sge,
};

use crate::outcome::complain;
use crate::perf::arguments::AtomicType;
use crate::perf::idle::{Idle, Measure, Seen};
use crate::perf::memory::{Slots, receive_len};
use crate::perf::plan::{Plan, Verb};
use crate::perf::rig::Rig;
use crate::side_channel::{Failure, SideChannel};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bandwidth {
    /// Messages, of all queue pairs.
    pub(crate) messages: u64,
    /// In which time.
    pub(crate) time: Duration,
    /// The time that one message took in the fastest stretch, in nanoseconds.
    pub(crate) fastest: Option<f64>,
    /// Messages that did not come, of a service on which they may be lost.
    pub(crate) lost: u64,
}

/// What the name of a request says of it: bit 63 for receives, the queue pair, and behind it the
/// place of a receive, or how many requests are done when this one is.
const RECEIVE: u64 = 1 << 63;
const QP_SHIFT: u32 = 40;
const LOW: u64 = (1 << QP_SHIFT) - 1;

/// Completions taken at a time.
const BATCH: usize = 64;

/// After its end so long is waited for what is held back by its rate, at least; and as long as this
/// in all where it goes on at a pace at which that is enough.
const LINGER: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(20);

/// One queue pair's part.
struct Lane {
    posted: u64,
    completed: u64,
    received: u64,
    /// Receives that were posted, and how many of them may be posted again.
    receives: u64,
    free: u64,
    /// Where messages come from, place by place.
    sources: Vec<[Sge; 1]>,
    /// The messages themselves, if they go inline.
    inline: Vec<u8>,
    /// Where messages are received, place by place.
    receives_at: Vec<[Sge; 1]>,
}

/// A run with one size of messages.
pub(crate) struct Run<'a> {
    rig: &'a Rig,
    plan: &'a Plan,
    size: u32,
    slots: Slots,
    receive_slots: Slots,
    lanes: Vec<Lane>,
    measure: Measure,
    /// When each request was posted, and how many were done when, in nanoseconds; to look for the
    /// fastest stretch.
    posted_at: Vec<u64>,
    completed_at: Vec<(u64, u64)>,
    start: Option<Instant>,
    completed: u64,
    received: u64,
    sends: bool,
    receives: bool,
}

impl<'a> Run<'a> {
    /// Makes everything ready: memory, lists, and the receives.
    pub(crate) fn new(rig: &'a Rig, plan: &'a Plan, size: u32) -> Result<Self, Failure> {
        let measure = Measure::new(plan.extent);
        let (slots, receive_slots) = (Slots::of(plan, size), Slots::of_receives(plan, size));
        let sends = plan.is_client || plan.bidirectional;
        let receives = plan.receives();
        if sends || receives {
            rig.memory.prepare(plan, size);
        }
        let len = receive_len(plan, size);
        let inline = size <= plan.inline_size;
        let lanes = (0..rig.queue_pairs.len()).map(|qp| {
            let source = |slot| [rig.memory.source(qp, slots.offset(slot), size)];
            let receive = |slot| [rig.memory.receive(qp, receive_slots.offset(slot), len)];
            let end = (slots.offset(slots.count - 1) + u64::from(size)) as usize;
            Lane {
                posted: 0,
                completed: 0,
                received: 0,
                receives: 0,
                free: 0,
                sources: (0..slots.count).map(source).collect(),
                inline: if inline { rig.memory.copy_of_source(qp, end) } else { Vec::new() },
                receives_at: (0..receive_slots.count).map(receive).collect(),
            }
        });
        let lanes: Vec<Lane> = lanes.collect();
        let peak = plan.peak && sends;
        let all = if peak { measure.messages().saturating_mul(lanes.len() as u64) } else { 0 };
        let mut run = Self {
            rig,
            plan,
            size,
            slots,
            receive_slots,
            lanes,
            measure,
            posted_at: Vec::with_capacity(all as usize),
            completed_at: Vec::with_capacity(all as usize),
            start: None,
            completed: 0,
            received: 0,
            sends,
            receives,
        };
        if receives {
            let ready = u64::from(plan.rx_depth);
            let share = if plan.use_srq { ready / run.lanes.len() as u64 } else { ready };
            let mut list = Vec::with_capacity(share as usize);
            for qp in 0..run.lanes.len() {
                run.lanes[qp].free = share;
                run.post_receives(qp, &mut list)?;
            }
        }
        Ok(run)
    }

    /// Goes through to the end.
    pub(crate) fn go(mut self, channel: &SideChannel) -> Result<Bandwidth, Failure> {
        let rig = self.rig;
        let messages = self.measure.messages();
        let all = messages.saturating_mul(self.lanes.len() as u64);
        // Whoever answers begins when it is asked, so that the other side is ready.
        let mut begun = self.sends && (self.plan.is_client || !self.receives);
        if begun {
            self.measure.begin();
            self.start = Some(Instant::now());
        }
        let depth = self.plan.tx_depth as usize;
        let lists = (Vec::with_capacity(depth), Vec::with_capacity(self.plan.rx_depth as usize));
        let (mut requests, mut receives) = lists;
        let mut room = [Completion::BLANK; BATCH];
        let mut idle = Idle::new(rig, channel);
        let mut ended = Instant::now();
        // A receiver's time begins when it last had nothing: all may come at once.
        let mut nothing_yet = ended;
        let mut lost = 0;
        loop {
            let sent = !self.sends || self.completed >= all;
            let heard = !self.receives || self.received >= all;
            if sent && heard {
                break;
            }
            if begun && self.sends {
                // The lists borrow what they name, and keep their room.
                requests = self.post(requests)?;
            }
            let before = self.completed + self.received;
            let found = rig.cq.poll(&mut room);
            self.take(&room[..found])?;
            if found == 0 {
                if !begun {
                    nothing_yet = Instant::now();
                }
                let over = match idle.rest()? {
                    Seen::Busy => false,
                    Seen::Done => true,
                    // Each waits for the other's last ones, if these may be lost.
                    Seen::Quiet => self.sends && sent && self.plan.service != ServiceType::Rc,
                };
                if over && self.receives && !heard {
                    lost = if self.measure.by_time() { 0 } else { all - self.received };
                    break;
                }
            } else {
                ended = Instant::now();
                idle.went_on(ended)?;
                if !begun && self.received > 0 {
                    begun = true;
                    self.measure.begin();
                    self.start = Some(nothing_yet);
                }
                if self.receives {
                    for qp in 0..self.lanes.len() {
                        receives = self.refill(qp, receives)?;
                    }
                }
            }
            let more = self.completed + self.received - before;
            if self.measure.tick(more) {
                break;
            }
        }
        if lost == 0 {
            idle.tell_outage();
        }
        self.drain(channel)?;
        let time = ended.saturating_duration_since(self.start.unwrap_or(ended));
        let (messages, time) = match self.measure.sample() {
            Some(sample) => sample,
            None if self.sends => (self.completed, time),
            None => (self.received, time),
        };
        let fastest = (!self.posted_at.is_empty())
            .then(|| fastest(&self.posted_at, &self.completed_at))
            .flatten();
        Ok(Bandwidth { messages, time, fastest, lost })
    }

    /// What is outstanding when time is over may still need our memory. A SEND may wait for ever
    /// for a receive that is not posted any more, and what waits for its turn to be sent long.
    fn drain(&mut self, channel: &SideChannel) -> Result<(), Failure> {
        if !self.measure.by_time() || self.plan.verb == Verb::Send {
            return Ok(());
        }
        let mut room = [Completion::BLANK; BATCH];
        let mut idle = Idle::new(self.rig, channel);
        let cq_mod = u64::from(self.plan.cq_mod);
        let (start, all) = (Instant::now(), self.outstanding());
        // Of the last requests nobody asked to be told.
        while self.lanes.iter().any(|lane| lane.completed < lane.posted - lane.posted % cq_mod) {
            let found = self.rig.cq.poll(&mut room);
            self.take(&room[..found])?;
            if found > 0 {
                idle.moved();
            } else if idle.rest()? == Seen::Done {
                break;
            }
            let waited = start.elapsed();
            if waited < LINGER {
                continue;
            }
            let left = self.outstanding();
            let is_enough =
                waited.as_secs_f64() * all as f64 <= LONGEST.as_secs_f64() * (all - left) as f64;
            if !is_enough && let Some(rate) = self.rig.allowed() {
                let waited = waited.as_secs();
                complain(format_args!(
                    "{left} messages that were outstanding when the time was over did not get \
                     through in {waited}s more, at {rate} a queue pair: they are not waited for \
                     (a smaller -t or -s has less outstanding)"
                ));
                break;
            }
        }
        Ok(())
    }

    fn outstanding(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.posted - lane.completed).sum()
    }

    /// Posts what there is room for.
    fn post<'l>(&mut self, list: Vec<SendRequest<'l>>) -> Result<Vec<SendRequest<'l>>, Failure> {
        let (depth, list_of) = (u64::from(self.plan.tx_depth), u64::from(self.plan.post_list));
        let messages = self.measure.messages();
        let mut list = list;
        for qp in 0..self.lanes.len() {
            let lane = &self.lanes[qp];
            let room = depth - (lane.posted - lane.completed);
            let count = room.min(messages - lane.posted);
            let count = count - count % list_of;
            if count == 0 {
                continue;
            }
            if self.plan.peak && self.sends {
                let now = self.nanos();
                self.posted_at.extend(std::iter::repeat_n(now, count as usize));
            }
            let mut borrowed = recycle(list);
            let lane = &self.lanes[qp];
            borrowed.extend((lane.posted..lane.posted + count).map(|at| self.request(qp, at)));
            let posted = self.rig.queue_pairs[qp].post_send(&borrowed);
            list = recycle(borrowed);
            posted.map_err(|refused| self.rig.refused(refused))?;
            self.lanes[qp].posted += count;
        }
        Ok(list)
    }

    /// The request with this number, from 0.
    fn request(&self, qp: usize, number: u64) -> SendRequest<'_> {
        let Lane { sources, inline, .. } = &self.lanes[qp];
        let slot = number % self.slots.count;
        let offset = self.slots.offset(slot);
        let peer = &self.rig.peers[qp];
        let remote = Remote { va: peer.va.wrapping_add(offset), r_key: peer.r_key };
        let data = match offset as usize {
            at if !inline.is_empty() => Data::Inline(&inline[at..at + self.size as usize]),
            _ => Data::Regions(&sources[slot as usize]),
        };
        let done = number + 1;
        SendRequest {
            wr_id: (qp as u64) << QP_SHIFT | done & LOW,
            operation: operation(self.plan.verb, remote),
            data,
            signaled: done.is_multiple_of(self.plan.cq_mod.into())
                || done == self.measure.messages(),
            solicited: false,
            fence: false,
            target: self.rig.targets[qp],
        }
    }

    /// Takes note of completions.
    fn take(&mut self, completions: &[Completion]) -> Result<(), Failure> {
        for completion in completions {
            if completion.status != CompletionStatus::Success {
                return Err(self.rig.explain(completion));
            }
            let qp = (completion.wr_id & !RECEIVE) >> QP_SHIFT;
            let lane = &mut self.lanes[qp as usize];
            if completion.wr_id & RECEIVE == 0 {
                let more = (completion.wr_id & LOW) - (lane.completed & LOW);
                lane.completed += more;
                self.completed += more;
            } else {
                lane.received += 1;
                lane.free += 1;
                self.received += 1;
            }
        }
        if self.plan.peak && self.sends && !completions.is_empty() {
            let done = (self.completed, self.nanos());
            if self.completed_at.last().is_none_or(|(before, _)| *before < done.0) {
                self.completed_at.push(done);
            }
        }
        Ok(())
    }

    /// Posts receives that were used up once more, many at a time.
    fn refill<'l>(
        &mut self,
        qp: usize,
        list: Vec<ReceiveRequest<'l>>,
    ) -> Result<Vec<ReceiveRequest<'l>>, Failure> {
        let Lane { receives, free, .. } = self.lanes[qp];
        let left = self.measure.messages() - receives.min(self.measure.messages());
        let many = u64::from(self.plan.rx_depth / 4).clamp(1, 64);
        if left == 0 || free < many.min(left) {
            return Ok(list);
        }
        let mut list = recycle(list);
        self.post_receives(qp, &mut list)?;
        Ok(recycle(list))
    }

    fn post_receives(
        &mut self,
        qp: usize,
        list: &mut Vec<ReceiveRequest<'_>>,
    ) -> Result<(), Failure> {
        let Lane { receives, free, .. } = self.lanes[qp];
        let count = free.min(self.measure.messages() - receives.min(self.measure.messages()));
        let mut borrowed = recycle(std::mem::take(list));
        borrowed.extend((receives..receives + count).map(|number| {
            let slot = number % self.receive_slots.count;
            let sges = &self.lanes[qp].receives_at[slot as usize];
            ReceiveRequest { wr_id: RECEIVE | (qp as u64) << QP_SHIFT | slot, sges }
        }));
        let posted = self.rig.post_receives(qp, &borrowed);
        *list = recycle(borrowed);
        posted?;
        let lane = &mut self.lanes[qp];
        lane.receives += count;
        lane.free -= count;
        Ok(())
    }

    fn nanos(&self) -> u64 {
        let start = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        u64::try_from(start.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// An empty list with the room of another.
fn recycle<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    // What has no item can become a list of others; the standard library reuses the room.
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// What a request does.
pub(crate) const fn operation(verb: Verb, remote: Remote) -> SendOperation {
    match verb {
        Verb::Send => SendOperation::Send,
        Verb::Write => SendOperation::Write(remote),
        Verb::Read => SendOperation::Read(remote),
        Verb::Atomic(AtomicType::FetchAndAdd) => SendOperation::FetchAdd { remote, add: 1 },
        Verb::Atomic(AtomicType::CmpAndSwap) => {
            SendOperation::CompareSwap { remote, compare: 0, swap: 0 }
        }
    }
}

/// The time that one message took in the fastest stretch: from when a request was posted to when
/// it or a later one was known to be done, for each request in between.
///
/// There is a stretch that took less than `t` for each if for some end the time minus `t` for each
/// request up to there is less than the same at some beginning before: one pass tells. Halving the
/// range of `t` finds the least.
fn fastest(posted: &[u64], completed: &[(u64, u64)]) -> Option<f64> {
    let (total, end) = *completed.last()?;
    let whole = (end.checked_sub(*posted.first()?)? as f64) / total as f64;
    let is_faster = |each: f64| {
        let (mut at, mut begin) = (0, f64::MIN);
        completed.iter().any(|&(done, when)| {
            for (number, &when) in posted.iter().enumerate().take(done as usize).skip(at) {
                begin = begin.max(when as f64 - each * number as f64);
            }
            at = at.max(done as usize);
            when as f64 - each * done as f64 - begin < 0.0
        })
    };
    let (mut low, mut high) = (0.0, whole);
    for _ in 0..40 {
        let middle = f64::midpoint(low, high);
        if is_faster(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high).filter(|each| *each > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As perftest looks for it: every pair.
    fn by_trying(posted: &[u64], completed: &[(u64, u64)]) -> f64 {
        let mut least = f64::MAX;
        for &(done, when) in completed {
            for (number, &begin) in posted.iter().enumerate().take(done as usize) {
                least = least.min((when - begin) as f64 / (done - number as u64) as f64);
            }
        }
        least
    }

    #[test]
    fn the_fastest_stretch_is_found() {
        let mut state = 7u64;
        let mut next = |most: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % most
        };
        for _ in 0..50 {
            let (mut posted, mut completed, mut now, mut done) = (vec![], vec![], 0, 0);
            for _ in 0..40 {
                now += next(100);
                posted.extend(std::iter::repeat_n(now, 1 + next(5) as usize));
                now += 1 + next(1000);
                done = (done + next(6)).min(posted.len() as u64);
                if completed.last().is_none_or(|(before, _)| *before < done) && done > 0 {
                    completed.push((done, now));
                }
            }
            let expected = by_trying(&posted, &completed);
            let found = fastest(&posted, &completed).unwrap();
            let whole = (completed.last().unwrap().1 - posted[0]) as f64 / done as f64;
            assert!((found - expected.min(whole)).abs() < 1e-6, "{found}, not {expected}");
        }
        assert_eq!(fastest(&[], &[]), None);
    }

    #[test]
    fn a_list_keeps_its_room() {
        let mut list: Vec<SendRequest<'_>> = Vec::with_capacity(128);
        let room = list.as_ptr().addr();
        for _ in 0..3 {
            let other: Vec<SendRequest<'_>> = recycle(list);
            assert_eq!((other.as_ptr().addr(), other.capacity()), (room, 128));
            list = other;
        }
    }
}
