//! What is known of neighbours, for the rest of the process.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use roxe_wire::MacAddress;

use super::Own;

/// The neighbours of an adapter with addresses of its own. Clones are the same.
#[derive(Clone, Debug)]
pub struct Neighbors {
    own: Arc<Own>,
    table: Arc<Mutex<Table>>,
    /// Somebody is to be asked for: seen without the lock.
    asked: Arc<AtomicBool>,
    /// The addresses are to be announced.
    announces: Arc<AtomicBool>,
}

/// Something that the rest of the process should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum News {
    /// Frames to a destination go to another MAC than before.
    Moved {
        /// The destination.
        destination: IpAddr,
        /// The MAC.
        mac: MacAddress,
    },
    /// Somebody says that he has an address of ours.
    Conflict {
        /// The address.
        address: IpAddr,
        /// His MAC.
        mac: MacAddress,
    },
}

#[derive(Debug, Default)]
struct Table {
    known: BTreeMap<IpAddr, Neighbor>,
    /// News: destinations, and addresses of ours, each with the last MAC that was told of it.
    moved: BTreeMap<IpAddr, MacAddress>,
    conflicts: BTreeMap<IpAddr, MacAddress>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Neighbor {
    mac: Option<MacAddress>,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Is to be asked for.
    #[default]
    Wanted,
    /// Is being asked for.
    Asked,
    /// Was asked for.
    Settled,
}

impl Neighbors {
    pub(super) fn new(own: &Own) -> Self {
        Self {
            own: Arc::new(own.clone()),
            table: Arc::default(),
            asked: Arc::default(),
            announces: Arc::default(),
        }
    }

    /// The addresses.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// The MAC that frames to `destination` go to, if it is known; if not, the port asks for it the
    /// next time that it is driven. From then on it is followed: [`News::Moved`].
    ///
    /// `destination` has to be unicast and in [reach](Own::reaches).
    pub fn ask(&self, destination: IpAddr) -> Option<MacAddress> {
        let mut table = self.lock();
        if table.known.len() >= MAX_NEIGHBORS && !table.known.contains_key(&destination) {
            table.known.pop_first();
        }
        let neighbor = table.known.entry(destination).or_default();
        if neighbor.state == State::Wanted {
            self.asked.store(true, Ordering::Release);
        }
        neighbor.mac
    }

    /// The destination is of no interest any more.
    pub fn forget(&self, destination: IpAddr) {
        self.lock().known.remove(&destination);
    }

    /// The port announces the addresses within a second of being driven: somebody may be there who
    /// did not hear of them.
    pub fn announce(&self) {
        self.announces.store(true, Ordering::Release);
    }

    /// Whether somebody wants that, and has it done by the caller.
    pub(super) fn take_announce(&self) -> bool {
        self.announces.swap(false, Ordering::AcqRel)
    }

    /// What happened since the last call: the last of what was told of each address.
    pub fn news(&self) -> Vec<News> {
        let mut table = self.lock();
        let moved = std::mem::take(&mut table.moved).into_iter();
        let conflicts = std::mem::take(&mut table.conflicts).into_iter();
        drop(table);
        let moved = moved.map(|(destination, mac)| News::Moved { destination, mac });
        moved.chain(conflicts.map(|(address, mac)| News::Conflict { address, mac })).collect()
    }

    /// Somebody says that he has an address of ours.
    pub(super) fn tell_conflict(&self, address: IpAddr, mac: MacAddress) {
        self.lock().conflicts.insert(address, mac);
    }

    /// Whether somebody is to be asked for.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// All who answered before are asked again.
    pub(super) fn ask_again(&self) {
        for neighbor in self.lock().known.values_mut() {
            if neighbor.state == State::Settled {
                neighbor.state = State::Wanted;
                self.asked.store(true, Ordering::Release);
            }
        }
    }

    /// The next ones to be asked for, which are asked from now on.
    pub(super) fn begin(&self, most: usize) -> Vec<IpAddr> {
        if !self.is_asked() {
            return Vec::new();
        }
        let mut table = self.lock();
        let mut wanted = table.known.iter_mut().filter(|(_, it)| it.state == State::Wanted);
        let begin = |(destination, neighbor): (&IpAddr, &mut Neighbor)| {
            neighbor.state = State::Asked;
            *destination
        };
        let next = wanted.by_ref().take(most).map(begin).collect();
        self.asked.store(wanted.next().is_some(), Ordering::Release);
        next
    }

    /// The destination is there, or did not answer: then it is where it was. Says whether it has
    /// moved.
    pub(super) fn end(&self, destination: IpAddr, found: Option<MacAddress>) -> bool {
        let mut table = self.lock();
        let Some(neighbor) = table.known.get_mut(&destination) else { return false };
        neighbor.state = State::Settled;
        let Some(mac) = found else { return false };
        let moved = neighbor.mac.replace(mac).is_some_and(|before| before != mac);
        if moved {
            // There are no more of them than are followed, but for those that are followed no more.
            if table.moved.len() >= MAX_NEIGHBORS {
                table.moved.pop_first();
            }
            table.moved.insert(destination, mac);
        }
        moved
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each change is whole before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Destinations that are followed, at most.
const MAX_NEIGHBORS: usize = 4096;
