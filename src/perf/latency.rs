//! How long a message takes: one after the other, there and back.
//!
//! SEND and WRITE go to and fro, and both sides measure; a READ or an atomic comes back by itself,
//! and only the client does. Who is written to is not told: it looks at the last byte, in which the
//! messages are counted. The first SEND is the client's, the first WRITE the server's: if both
//! wrote at once, one could count on before the other has looked.

use std::time::{Duration, Instant};

use roxe_verbs::{Completion, CompletionStatus, Data, ReceiveRequest, Remote, SendRequest, Sge};

use crate::outcome::counted;
use crate::perf::bandwidth::operation;
use crate::perf::idle::{Idle, Measure, Seen};
use crate::perf::memory::receive_len;
use crate::perf::plan::{LATENCY_DEPTH, Plan, Verb};
use crate::perf::rig::Rig;
use crate::side_channel::{Failure, SideChannel};

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Latency {
    /// From each message but the first to the next, in nanoseconds, as they came: the first waits
    /// until the peer has begun.
    Each { turns: u64, samples: Vec<u64> },
    /// So many turns in this time.
    Mean { turns: u64, time: Duration },
}

/// Names receives; the others are requests, with their number.
const RECEIVE: u64 = 1 << 63;

/// One request of so many is completed.
const COMPLETED: u64 = 16;

/// A run with one size of messages.
pub(crate) struct Run<'a> {
    rig: &'a Rig,
    plan: &'a Plan,
    size: u32,
    source: [Sge; 1],
    /// The message itself, if it goes inline.
    inline: Vec<u8>,
    receive: [Sge; 1],
    measure: Measure,
    sent: u64,
    completed: u64,
    received: u64,
    /// Receives that were posted, and how many may be posted once more.
    receives: u64,
    free: u64,
    /// When each message was sent.
    sent_at: Vec<Instant>,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    On,
    /// The time is over.
    Over,
}

impl<'a> Run<'a> {
    /// Makes everything ready: memory, and the receives.
    pub(crate) fn new(rig: &'a Rig, plan: &'a Plan, size: u32) -> Result<Self, Failure> {
        let measure = Measure::new(plan.extent);
        rig.memory.prepare(plan, size);
        let is_inline = size <= plan.inline_size;
        let samples = if measure.by_time() { 0 } else { measure.messages() as usize };
        let mut run = Self {
            rig,
            plan,
            size,
            source: [rig.memory.source(0, 0, size)],
            inline: if is_inline { rig.memory.copy_of_source(0, size as usize) } else { vec![] },
            receive: [rig.memory.receive(0, 0, receive_len(plan, size))],
            measure,
            sent: 0,
            completed: 0,
            received: 0,
            receives: 0,
            free: u64::from(plan.rx_depth),
            sent_at: Vec::with_capacity(samples),
        };
        if plan.verb == Verb::Send {
            run.post_receives()?;
        }
        Ok(run)
    }

    /// Goes through to the end.
    pub(crate) fn go(mut self, channel: &SideChannel) -> Result<Latency, Failure> {
        let mut idle = Idle::new(self.rig, channel);
        let messages = self.measure.messages();
        // SEND's clock begins with the first message, which the server waits for.
        if self.plan.is_client || self.plan.verb != Verb::Send {
            self.measure.begin();
        }
        let turns = self.plan.verb == Verb::Send || self.plan.verb == Verb::Write;
        let begins = self.plan.is_client == (self.plan.verb != Verb::Write);
        let mut turn = Turn::On;
        while turn == Turn::On && (self.sent < messages || turns && self.received < messages) {
            if turns && self.received < messages && (self.sent > 0 || !begins) {
                turn = self.await_message(&mut idle)?;
                self.measure.begin();
            }
            if turn == Turn::On && self.sent < messages {
                self.send()?;
                if !turns {
                    turn = self.await_answer(&mut idle)?;
                }
            }
        }
        // After the last WRITE nothing is said any more: the peer may be gone, with an answer lost.
        while turn == Turn::On && self.completed < self.sent {
            if self.step()? > 0 {
                continue;
            }
            match idle.rest() {
                Err(_) if self.plan.verb == Verb::Write => break,
                seen => seen?,
            };
        }
        idle.tell_outage();
        Ok(match self.measure.sample() {
            Some((turns, time)) => Latency::Mean { turns, time },
            None => {
                let between = |pair: &[Instant]| pair[1].duration_since(pair[0]).as_nanos() as u64;
                let samples = self.sent_at.windows(2).skip(1).map(between).collect();
                Latency::Each { turns: self.sent, samples }
            }
        })
    }

    /// Takes what completed, and says how much.
    fn step(&mut self) -> Result<usize, Failure> {
        let mut room = [Completion::BLANK; 4];
        let found = self.rig.cq.poll(&mut room);
        for completion in &room[..found] {
            if completion.status != CompletionStatus::Success {
                return Err(self.rig.explain(completion));
            }
            if completion.wr_id & RECEIVE == 0 {
                self.completed = completion.wr_id;
            } else {
                self.received += 1;
                self.free += 1;
            }
        }
        Ok(found)
    }

    /// Waits for the peer's next message.
    fn await_message(&mut self, idle: &mut Idle<'_>) -> Result<Turn, Failure> {
        let next = self.received + 1;
        loop {
            let found = self.step()?;
            if self.plan.verb == Verb::Write
                && self.rig.memory.target_byte(0, self.size as usize - 1) == next as u8
            {
                self.received = next;
            }
            if self.received >= next {
                idle.moved();
                // Posted while the peer has our answer to wait for anyway.
                let over = self.measure.tick(1);
                return Ok(if over { Turn::Over } else { Turn::On });
            }
            if self.measure.tick(0) {
                return Ok(Turn::Over);
            }
            if found == 0 {
                self.must_go_on(idle)?;
            }
        }
    }

    /// Waits until the last request is done.
    fn await_answer(&mut self, idle: &mut Idle<'_>) -> Result<Turn, Failure> {
        while self.completed < self.sent {
            if self.step()? > 0 {
                continue;
            }
            if self.measure.tick(0) {
                return Ok(Turn::Over);
            }
            self.must_go_on(idle)?;
        }
        idle.moved();
        Ok(if self.measure.tick(1) { Turn::Over } else { Turn::On })
    }

    fn must_go_on(&self, idle: &mut Idle<'_>) -> Result<(), Failure> {
        match idle.rest()? {
            Seen::Busy | Seen::Quiet => Ok(()),
            Seen::Done => Err(Failure::failed(format_args!(
                "the peer is done, and only {} came of it: have both sides the same options? UC \
                 and UD lose what the network does",
                counted(self.received as usize, "message")
            ))),
        }
    }

    /// Sends the next message, or asks once.
    fn send(&mut self) -> Result<(), Failure> {
        let number = self.sent + 1;
        let fetches = self.plan.verb.fetches();
        let peer = &self.rig.peers[0];
        let remote = Remote { va: peer.va, r_key: peer.r_key };
        if self.plan.verb == Verb::Write {
            let last = self.size as usize - 1;
            match self.inline.last_mut() {
                Some(byte) => *byte = number as u8,
                None => self.rig.memory.set_source(0, last, number as u8),
            }
        }
        let data = if self.inline.is_empty() {
            Data::Regions(&self.source)
        } else {
            Data::Inline(&self.inline)
        };
        let request = SendRequest {
            wr_id: number,
            operation: operation(self.plan.verb, remote),
            data,
            signaled: fetches || number.is_multiple_of(COMPLETED) || number == self.last(),
            solicited: false,
            fence: false,
            target: self.rig.targets[0],
        };
        if !self.measure.by_time() {
            self.sent_at.push(Instant::now());
        }
        let posted = self.rig.queue_pairs[0].post_send(&[request]);
        posted.map_err(|refused| self.rig.refused(refused))?;
        self.sent = number;
        if self.plan.verb == Verb::Send && self.free >= u64::from(self.plan.rx_depth).div_ceil(2) {
            self.post_receives()?;
        }
        Ok(())
    }

    const fn last(&self) -> u64 {
        self.measure.messages()
    }

    fn post_receives(&mut self) -> Result<(), Failure> {
        let left = self.measure.messages() - self.receives;
        let mut left = self.free.min(left);
        let list = [ReceiveRequest { wr_id: RECEIVE, sges: &self.receive }; LIST];
        while left > 0 {
            let count = left.min(LIST as u64);
            self.rig.post_receives(0, &list[..count as usize])?;
            left -= count;
            self.receives += count;
            self.free -= count;
        }
        Ok(())
    }
}

/// Receives posted at a time.
const LIST: usize = 32;

/// Unsignaled requests leave the queue with the next one that is completed.
const _: () = assert!(COMPLETED * 2 <= LATENCY_DEPTH as u64);
