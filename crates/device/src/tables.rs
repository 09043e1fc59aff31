//! Everything of a device but its queue pairs: what a queue pair's protocol may need while it runs.

use std::collections::VecDeque;

use roxe_transport::work::Completion;

use crate::completion_queue::{CompletionQueue, CqEvent};
use crate::counters::{Counters, DeviceCount};
use crate::device::{CqId, Event, ReceiveQueueId};
use crate::gid_table::GidTable;
use crate::memory::MemoryTable;
use crate::multicast::MulticastGroups;
use crate::path::Paths;
use crate::protection_domain::ProtectionDomains;
use crate::receive_queue::ReceiveQueue;
use crate::slots::Slots;

/// The tables.
#[derive(Debug)]
pub(crate) struct Tables<H> {
    pub(crate) pds: ProtectionDomains,
    pub(crate) memory: MemoryTable,
    pub(crate) host: H,
    pub(crate) completion_queues: Slots<CompletionQueue>,
    /// Those that queue pairs have for themselves, and shared ones.
    pub(crate) receive_queues: Slots<ReceiveQueue>,
    /// How many of them are shared: none takes the place of a queue pair's own.
    pub(crate) shared_queues: u32,
    pub(crate) gids: GidTable,
    pub(crate) paths: Paths,
    pub(crate) groups: MulticastGroups,
    pub(crate) counters: Counters,
    pub(crate) events: VecDeque<Event>,
    /// A completion of the queue pair that is at work found no room.
    pub(crate) completion_lost: bool,
}

impl<H> Tables<H> {
    pub(crate) fn cq_mut(&mut self, cq: CqId) -> Option<&mut CompletionQueue> {
        self.completion_queues.get_mut(cq.0)
    }

    pub(crate) fn receive_queue(&self, queue: ReceiveQueueId) -> Option<&ReceiveQueue> {
        self.receive_queues.get(queue.0)
    }

    pub(crate) fn receive_queue_mut(&mut self, queue: ReceiveQueueId) -> Option<&mut ReceiveQueue> {
        self.receive_queues.get_mut(queue.0)
    }

    /// Puts a completion into its queue, and says so to whoever waits for it.
    pub(crate) fn complete(&mut self, cq: CqId, completion: Completion) {
        let Some(queue) = self.completion_queues.get_mut(cq.0) else { return };
        match queue.push(completion) {
            None => {}
            Some(CqEvent::Notify) => self.events.push_back(Event::CompletionNotify(cq)),
            Some(event @ (CqEvent::Overrun | CqEvent::Lost)) => {
                self.counters.device(DeviceCount::CqeLost, 1);
                self.completion_lost = true;
                if event == CqEvent::Overrun {
                    self.counters.device(DeviceCount::CqOverrun, 1);
                    self.events.push_back(Event::CompletionQueueError(cq));
                }
            }
        }
    }
}
