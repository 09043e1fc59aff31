//! Paths: the addressing that packets of one destination share, by a small number.
//!
//! A queue pair and an address handle keep a [`PathId`]; a packet leaves the device with it, and
//! whoever frames packets keeps a template per path. Numbers are reused, so each path has a version
//! that no other path had: a template made for another version is stale.

use roxe_transport::work::PathId;
use roxe_wire::Addressing;

use crate::address_handle::AddressVector;
use crate::protection_domain::Pd;
use crate::slots::Slots;

/// A path of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// What the application said.
    pub vector: AddressVector,
    /// What it means for packets.
    pub addressing: Addressing,
    /// The protection domain, if the path is an address handle: only datagram queue pairs of the
    /// same domain may use it.
    pub pd: Option<Pd>,
}

/// All paths of a device.
#[derive(Clone, Debug)]
pub struct Paths {
    paths: Slots<(Path, u64)>,
    handles: u32,
    most_handles: u32,
    /// Counts paths that were added or changed.
    versions: u64,
}

impl Paths {
    /// None, and room for so many of connections and of address handles. Neither takes the
    /// other's.
    pub const fn new(most_connected: u32, most_handles: u32) -> Self {
        let paths = Slots::new(most_connected.saturating_add(most_handles));
        Self { paths, handles: 0, most_handles, versions: 0 }
    }

    /// Adds a path; `None` when there is no room.
    pub fn add(&mut self, path: Path) -> Option<PathId> {
        let handle = u32::from(path.pd.is_some());
        if handle > self.most_handles.saturating_sub(self.handles) {
            return None;
        }
        self.versions += 1;
        let id = self.paths.insert((path, self.versions)).map(PathId)?;
        self.handles += handle;
        Some(id)
    }

    /// Replaces a path, as when a queue pair is modified; `None` when it does not exist.
    pub fn replace(&mut self, id: PathId, path: Path) -> Option<Path> {
        let entry = self.paths.get_mut(id.0)?;
        self.versions += 1;
        let (old, _) = core::mem::replace(entry, (path, self.versions));
        Some(old)
    }

    /// Takes a path away.
    pub fn remove(&mut self, id: PathId) -> Option<Path> {
        let (path, _) = self.paths.remove(id.0)?;
        self.handles -= u32::from(path.pd.is_some());
        Some(path)
    }

    /// The path with this number.
    pub fn get(&self, id: PathId) -> Option<&Path> {
        self.paths.get(id.0).map(|(path, _)| path)
    }

    /// The first path of which this is so.
    pub fn find(&self, is: impl Fn(&Path) -> bool) -> Option<PathId> {
        self.paths.iter().find(|(_, (path, _))| is(path)).map(|(id, _)| PathId(id))
    }

    /// Changes whenever the path with this number becomes another one; `None` without path.
    pub fn version(&self, id: PathId) -> Option<u64> {
        self.paths.get(id.0).map(|(_, version)| *version)
    }

    /// The path of an address handle, for a datagram queue pair of a protection domain.
    ///
    /// `None` when there is no such handle in the domain.
    //= 05-5.8
    pub fn handle(&self, id: PathId, pd: Pd) -> Option<&Path> {
        self.get(id).filter(|path| path.pd == Some(pd))
    }

    /// How many paths there are.
    pub const fn len(&self) -> u32 {
        self.paths.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use roxe_wire::{Gid, GidType, StaticRate};

    use super::*;
    use crate::gid_table::{GidEntry, GidTable};

    fn path(last: u8, pd: Option<Pd>) -> Path {
        let mut gids = GidTable::new(1);
        let gid = Gid::from(Ipv4Addr::new(192, 0, 2, 1));
        gids.add(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None }).unwrap();
        let vector = AddressVector {
            source_gid: 0,
            destination: Gid::from(Ipv4Addr::new(192, 0, 2, last)),
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            service_level: 0,
            static_rate: StaticRate::default(),
        };
        Path { vector, addressing: vector.resolve(&gids, 0xc000).unwrap(), pd }
    }

    #[test]
    fn a_version_is_never_seen_again() {
        let mut paths = Paths::new(1, 0);
        let id = paths.add(path(2, None)).unwrap();
        let first = paths.version(id);
        assert_eq!(paths.get(id), Some(&path(2, None)));
        assert_eq!(paths.add(path(3, None)), None);
        assert_eq!(paths.replace(id, path(3, None)), Some(path(2, None)));
        let second = paths.version(id);
        assert_eq!(paths.remove(id), Some(path(3, None)));
        assert_eq!(paths.remove(id), None);
        assert_eq!((paths.get(id), paths.version(id)), (None, None));
        assert_eq!(paths.replace(id, path(2, None)), None);
        assert_eq!(paths.add(path(2, None)), Some(id));
        let third = paths.version(id);
        assert!(first < second && second < third);
        assert_eq!(paths.len(), 1);
    }

    /// A queue pair that is modified always finds room for its path.
    #[test]
    fn address_handles_leave_room_for_connections() {
        let mut paths = Paths::new(1, 1);
        let handle = paths.add(path(2, Some(Pd(1)))).unwrap();
        assert_eq!(paths.add(path(2, Some(Pd(1)))), None);
        assert!(paths.add(path(2, None)).is_some());
        paths.remove(handle).unwrap();
        assert!(paths.add(path(2, Some(Pd(1)))).is_some());
    }

    //= 05-5.8 test
    #[test]
    fn a_handle_belongs_to_its_domain() {
        let mut paths = Paths::new(1, 1);
        let handle = paths.add(path(2, Some(Pd(1)))).unwrap();
        let connection = paths.add(path(2, None)).unwrap();
        assert!(paths.handle(handle, Pd(1)).is_some());
        assert!(paths.handle(handle, Pd(2)).is_none());
        assert!(paths.handle(connection, Pd(1)).is_none());
        assert!(paths.handle(PathId(9), Pd(1)).is_none());
    }
}
