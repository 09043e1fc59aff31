//! Reliable connections of which a side was not ready: it had no receive for what came.
//!
//! With `rnr_retry` 7 a requester asks again for ever; whoever looks now and then sees by this
//! whether it ever gets further.

use roxe_transport::adapter::Count;
use roxe_transport::qp_state::QpState;
use roxe_wire::{Psn, Qpn};

use crate::counters::{Counters, Of, QpCounters};
use crate::device::Device;
use crate::host_memory::HostMemory;

/// Which side of a connection has no receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unready {
    /// The peer, which is asked again for ever.
    Peer,
    /// The queue pair itself.
    Own,
    /// The shared receive queue of the queue pair.
    OwnShared,
}

/// How far a connection is of which a side was not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotReady {
    /// The queue pair.
    pub qpn: Qpn,
    /// Which side was not ready.
    pub side: Unready,
    /// How often it was not.
    pub times: u64,
    /// The oldest PSN that is still to be taken.
    pub psn: Psn,
}

impl<H: HostMemory> Device<H> {
    /// How often a receiver was not ready, of the device's connections or of their peers.
    pub fn times_not_ready(&self) -> u64 {
        let counters: &Counters = &self.tables.counters;
        let of = |count| counters.value(Of::Transport(count));
        of(Count::RnrNakReceived).wrapping_add(of(Count::RnrNakSent))
    }

    /// The connections of which a side was ever not ready, by side: the peer's where it is asked
    /// for ever. Goes through all
    /// queue pairs: not for every packet.
    pub fn not_ready(&self) -> impl Iterator<Item = NotReady> {
        /// The value of `rnr_retry` that means "for ever".
        const FOR_EVER: u8 = 7;
        self.queue_pairs.iter().flat_map(|slot| {
            let (qp, qpn, counters): (_, _, &QpCounters) = (&slot.qp, slot.own.qpn, &slot.counters);
            let side = |side, count, psn: Option<Psn>| {
                let times = counters.value(Of::Transport(count));
                psn.filter(|_| times != 0).map(|psn| NotReady { qpn, side, times, psn })
            };
            let asks = qp.state() == QpState::Rts && qp.attributes().rnr_retry == FOR_EVER;
            let own = if slot.own.shared { Unready::OwnShared } else { Unready::Own };
            let oldest = asks.then(|| qp.unacknowledged());
            let sides = [
                side(Unready::Peer, Count::RnrNakReceived, oldest),
                side(own, Count::RnrNakSent, qp.expected()),
            ];
            sides.into_iter().flatten()
        })
    }
}
