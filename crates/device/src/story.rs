//! What is known of one queue pair: why it ended, its last frames, what was dropped.
//!
//! The answer to "status 12". [`Device::queue_pair_story`] may be asked in every state, also long
//! after the queue pair ended, until it is reset or destroyed.

use core::fmt;
use core::net::IpAddr;

use roxe_transport::ending::{Cause, Ending, Field, RequestFailure};
use roxe_transport::history::Record;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::CompletionStatus;
use roxe_wire::{DropReason, Qpn};

use crate::counters::{Of, QP_DROPS, QpCounters};
use crate::device::Device;
use crate::host_memory::HostMemory;

/// What is known of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePairStory {
    /// Its number.
    pub qpn: Qpn,
    /// The peer's, for connected services.
    pub peer: Qpn,
    /// The peer's address, for connected services that were told it.
    pub peer_address: Option<IpAddr>,
    /// Its service.
    pub service: ServiceType,
    /// Its state.
    pub state: QpState,
    /// Why it ended; or, if it goes on, how a datagram's receive failed last. `None` when nothing
    /// went wrong since Reset.
    pub ending: Option<Ending>,
    /// Frames for it that were dropped before they came to it: names of reasons, how many.
    pub dropped: Vec<(&'static str, u64)>,
    /// Frames that the whole device dropped without knowing for whom they were.
    pub dropped_by_device: Vec<(&'static str, u64)>,
    /// Its last runs of frames and events, oldest first.
    pub history: Vec<Record>,
}

impl<H: HostMemory> Device<H> {
    /// What is known of a queue pair; `None` when there is no such.
    //= W01
    pub fn queue_pair_story(&self, qpn: Qpn) -> Option<QueuePairStory> {
        let slot = self.slot_of(qpn)?;
        let qp = &slot.qp;
        let some = |(_, count): &(&'static str, u64)| *count != 0;
        let dropped = QP_DROPS.iter().map(|&name| (name, slot.counters.value(Of::Drop(name))));
        let strange = DropReason::NAMES.iter().filter(|name| !QP_DROPS.contains(name));
        let strange = strange.map(|&name| (name, self.tables.counters.value(Of::Drop(name))));
        let path = slot.path.filter(|_| qp.service() != ServiceType::Ud);
        let path = path.and_then(|path| self.tables.paths.get(path));
        Some(QueuePairStory {
            qpn,
            peer: qp.attributes().dest_qp,
            peer_address: path.map(|path| path.addressing.destination),
            service: qp.service(),
            state: qp.state(),
            ending: qp.ending().copied(),
            dropped: dropped.filter(some).collect(),
            dropped_by_device: strange.filter(some).collect(),
            history: qp.history().collect(),
        })
    }

    /// The queue pairs that ended, by slot.
    pub fn ended_queue_pairs(&self) -> impl Iterator<Item = QueuePairStory> {
        let ended = self.queue_pairs.iter().filter(|slot| slot.qp.ending().is_some());
        ended.filter_map(|slot| self.queue_pair_story(slot.own.qpn))
    }

    /// Whether something went wrong with a queue pair since Reset, of which the story tells.
    pub fn has_ended(&self, qpn: Qpn) -> bool {
        self.slot_of(qpn).is_some_and(|slot| slot.qp.ending().is_some())
    }

    /// The places that queue pairs have or had, from 0 on: whoever wants to see all a few at a time
    /// goes through them. One that is made between may have a place before.
    pub fn queue_pair_places(&self) -> u32 {
        self.queue_pairs.places()
    }

    /// The queue pair in a place.
    pub fn queue_pair_at(&self, place: u32) -> Option<Qpn> {
        Some(self.queue_pairs.get(place)?.own.qpn)
    }

    /// What one queue pair counted; `None` when there is no such.
    pub fn queue_pair_counters(&self, qpn: Qpn) -> Option<&QpCounters> {
        Some(&self.slot_of(qpn)?.counters)
    }
}

impl QueuePairStory {
    /// Why it ended, in a sentence. For a peer that was not heard of, who it is and frames that
    /// came and were dropped belong to it.
    pub fn sentence(&self) -> String {
        let Some(ending) = &self.ending else { return format!("in state {}", self.state) };
        let mut sentence = ending.to_string();
        if let Cause::Request(_, RequestFailure::NoAnswer { .. }) = ending.cause {
            if let Some(address) = self.peer_address {
                sentence += &format!("; the peer is {address}, queue pair {}", self.peer);
            }
            for (what, drops) in [
                ("; frames for this queue pair were dropped here", &self.dropped),
                ("; frames were dropped before it was known for whom", &self.dropped_by_device),
            ] {
                let drops: Vec<_> = drops.iter().map(|(name, n)| format!("{name} {n}")).collect();
                if !drops.is_empty() {
                    sentence += &format!("{what}: {}", drops.join(", "));
                }
            }
        }
        sentence
    }

    /// Why one of its requests completed with this status, in a sentence.
    pub fn explain(&self, status: CompletionStatus) -> String {
        match (&self.ending, status) {
            (Some(ending), CompletionStatus::Flushed) => {
                format!("flushed: the queue pair had gone to {}: {}", ending.to, self.sentence())
            }
            (Some(ending), _) if ending.cause.status() == Some(status) => self.sentence(),
            _ => status.name().to_owned(),
        }
    }

    /// The values by name, for JSON; those of the ending among them.
    pub fn fields(&self) -> Vec<(&'static str, Field)> {
        let number = |n: u32| Field::Number(u64::from(n));
        let mut fields = vec![
            ("qpn", number(self.qpn.get())),
            ("peer_qpn", number(self.peer.get())),
            ("service", Field::Text(format!("{:?}", self.service).to_uppercase())),
            ("state", Field::Text(self.state.to_string())),
        ];
        if let Some(ending) = &self.ending {
            fields.extend(ending.fields());
        }
        let drops = self.dropped.iter().chain(&self.dropped_by_device);
        fields.extend(drops.map(|&(name, count)| (name, Field::Number(count))));
        fields
    }
}

impl fmt::Display for QueuePairStory {
    /// The sentence, and below it what happened before, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {}: {}", self.qpn, self.sentence())?;
        self.history.iter().try_for_each(|record| write!(f, "\n  {record}"))
    }
}
