//! Which connections stand still because a side posts no receives, for whoever tells people.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use roxe_device::{Device, NotReady, Unready};
use roxe_transport::qp_state::ServiceType;
use roxe_wire::{Psn, Qpn};

use crate::registered_memory::RegisteredMemory;

/// A connection that has stood still for some seconds: every answer was "receiver not ready".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The queue pair of this adapter.
    pub qpn: Qpn,
    /// Its peer.
    pub peer: Qpn,
    /// The peer's address.
    pub peer_address: Option<IpAddr>,
    /// Which side has no receives.
    pub side: Unready,
}

/// Sees which connections stand still, from look to look; about a second lies between two.
#[derive(Default)]
pub(crate) struct Watch {
    times: u64,
    seen: BTreeMap<(Qpn, Unready), Seen>,
    told: BTreeSet<(Qpn, Unready)>,
}

/// What was seen of one that may stand still.
struct Seen {
    times: u64,
    psn: Psn,
    /// Looks in a row at which nothing else had come.
    looks: u32,
}

impl Watch {
    /// Those that have stood still for long enough now, each once.
    pub(crate) fn look(&mut self, device: &Device<RegisteredMemory>) -> Vec<Stalled> {
        let times = device.times_not_ready();
        if times == std::mem::replace(&mut self.times, times) {
            self.seen.clear();
            return Vec::new();
        }
        let before = std::mem::take(&mut self.seen);
        let mut stalled = Vec::new();
        for NotReady { qpn, side, times, psn } in device.not_ready() {
            let stood = before.get(&(qpn, side));
            let stood = stood.filter(|seen| seen.psn == psn && seen.times != times);
            let looks = stood.map_or(0, |seen| seen.looks + 1);
            self.seen.insert((qpn, side), Seen { times, psn, looks });
            if looks >= LOOKS && self.told.insert((qpn, side)) {
                stalled.extend(describe(device, qpn, side));
            }
        }
        // The number of one that is gone may be another's.
        self.told.retain(|it| self.seen.contains_key(it));
        stalled
    }
}

fn describe(device: &Device<RegisteredMemory>, qpn: Qpn, side: Unready) -> Option<Stalled> {
    let story = device.queue_pair_story(qpn)?;
    let is_connected = story.service == ServiceType::Rc;
    is_connected.then_some(Stalled {
        qpn,
        peer: story.peer,
        peer_address: story.peer_address,
        side,
    })
}

/// So many looks in a row see a connection stand still that is told of.
const LOOKS: u32 = 5;
