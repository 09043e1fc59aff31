//! How the two sides find together: what is said over TCP before, between and after measurements,
//! in the order that perftest has.
//!
//! ```text
//! send_bw                      each; connect; first; each;
//!                              of each size: first, run; of both directions the bandwidth; with -a
//!                              first;
//!                              first, end
//! write_bw read_bw atomic_bw   each; connect; each; first;
//!                              of each size: run; of both directions first before, with -a also
//!                              behind, and the bandwidth;
//!                              of one direction first, the bandwidth; first, end
//! send_lat                     each; connect; first; each;
//!                              of each size: first, run;
//!                              first, end
//! write_lat                    first; each; connect; each; first;
//!                              of each size: run, begun by the server
//! read_lat atomic_lat          first; each; connect; each; first;
//!                              of each size: run, by the client alone;
//!                              first, end
//! ```
//!
//! *First* is an exchange of the first queue pairs, *each* one of all of them, one after the other.

use crate::perf::plan::{Metric, Plan, Verb};
use crate::perf::rig::Rig;
use crate::perf::wire::{self, Destination, Report};
use crate::side_channel::{DONE, Failure, Patience, SideChannel};

/// Agrees on what is needed before memory is made: version, sizes, path MTU. Says whether the peer
/// is this program, too.
pub(crate) fn agree(channel: &mut SideChannel, plan: &mut Plan) -> Result<bool, Failure> {
    let version = channel.exchange(&wire::version(plan.kind, plan.extent), Patience::Answer)?;
    wire::check_version(&version).map_err(Failure::Failed)?;
    wire::check_kind(&version, plan.kind).map_err(Failure::Failed)?;
    if plan.counts_with_peer() {
        wire::check_extent(&version, plan.extent).map_err(Failure::Failed)?;
    }
    let cycle = channel.exchange(&plan.cycle_buffer.to_be_bytes(), Patience::Answer)?;
    let line = channel.exchange(&plan.cache_line.to_be_bytes(), Patience::Answer)?;
    let cycle = wire::parse_size("cycle buffer", cycle).map_err(Failure::Failed)?;
    let line = wire::parse_size("cache line", line).map_err(Failure::Failed)?;
    plan.cycle_buffer = plan.cycle_buffer.max(cycle);
    plan.cache_line = plan.cache_line.max(line).min(plan.cycle_buffer);
    let mtu = channel.exchange(&wire::mtu(plan.mtu), Patience::Answer)?;
    plan.agree_mtu(wire::parse_mtu(mtu).map_err(Failure::Failed)?)?;
    Ok(wire::is_ours(&version))
}

/// The two sides, connected.
pub(crate) struct Meeting {
    pub(crate) channel: SideChannel,
    pub(crate) own: Vec<Destination>,
}

impl Meeting {
    /// Tells each other all queue pairs, and connects them.
    pub(crate) fn new(
        mut channel: SideChannel,
        plan: &Plan,
        rig: &mut Rig,
    ) -> Result<Self, Failure> {
        let all = 0..plan.queue_pairs as usize;
        let own: Vec<_> =
            all.map(|qp| rig.destination(plan, qp)).collect::<Result<_, Failure>>()?;
        let latency = plan.metric == Metric::Latency;
        if latency && plan.verb != Verb::Send {
            swap(&mut channel, &own[..1])?;
        }
        let peers = swap(&mut channel, &own)?;
        rig.connect(plan, peers, channel.is_this_host())?;
        let mut meeting = Self { channel, own };
        if plan.verb == Verb::Send {
            meeting.first(rig)?;
            swap(&mut meeting.channel, &meeting.own)?;
        } else {
            swap(&mut meeting.channel, &meeting.own)?;
            meeting.first(rig)?;
        }
        Ok(meeting)
    }

    /// Both sides are here; waits until the other one is.
    pub(crate) fn first(&mut self, rig: &Rig) -> Result<(), Failure> {
        let patience = Patience::Measurement(rig);
        let line = self.channel.exchange(&self.own[0].to_line(), patience)?;
        Destination::parse(&line).map(drop).map_err(Failure::Failed)
    }

    /// Tells each other what was measured.
    pub(crate) fn reports(&mut self, rig: &Rig, own: &Report) -> Result<Report, Failure> {
        let mut words = own.to_words();
        for word in &mut words {
            *word = self.channel.exchange(word, Patience::Measurement(rig))?;
        }
        Ok(Report::from_words(words))
    }

    /// Both sides are done.
    pub(crate) fn end(mut self, rig: &Rig) -> Result<(), Failure> {
        self.first(rig)?;
        // The other side may be gone already.
        let _ = self.channel.say(DONE);
        self.channel.close();
        Ok(())
    }
}

/// Tells each other queue pairs.
fn swap(channel: &mut SideChannel, own: &[Destination]) -> Result<Vec<Destination>, Failure> {
    own.iter()
        .map(|own| {
            let line = channel.exchange(&own.to_line(), Patience::Answer)?;
            let peers = Destination::parse(&line).map_err(Failure::Failed)?;
            // Its PSN is a random one.
            if peers == *own {
                return Err(Failure::failed(
                    "the peer says our own queue pair: it is no perf, and only repeats what it \
                     hears",
                ));
            }
            Ok(peers)
        })
        .collect()
}
