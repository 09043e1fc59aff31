//! The GID table: which addresses the device has.
//!
//! IBA vol 1 §4.1.1 and annex A17. An index is what queue pairs and address handles keep, so it
//! stays with its entry: removing an entry leaves a hole that a later one fills. One address may
//! stand here several times, once per VLAN and kind.

use core::fmt;

use roxe_wire::{Gid, GidType};

/// The addresses of a device.
#[derive(Clone, Debug)]
pub struct GidTable {
    entries: Vec<Option<GidEntry>>,
    most: u32,
}

/// An address, by everything that tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// How packets with it look.
    pub gid_type: GidType,
    /// The VLAN that it belongs to, 1 ..= 4094; `None` for untagged packets.
    pub vlan: Option<u16>,
}

impl GidTable {
    /// No address, room for `most`.
    pub const fn new(most: u32) -> Self {
        Self { entries: Vec::new(), most }
    }

    /// Adds an address at the first free index.
    ///
    /// # Errors
    /// [`GidError`].
    pub fn add(&mut self, entry: GidEntry) -> Result<u32, GidError> {
        if let Some(index) = self.find(&entry) {
            return Err(GidError::Present { index });
        }
        let hole = self.entries.iter().position(Option::is_none);
        let index = hole.unwrap_or(self.entries.len());
        if index >= self.most as usize {
            return Err(GidError::TableFull { most: self.most });
        }
        if index == self.entries.len() {
            self.entries.push(None);
        }
        self.entries[index] = Some(entry);
        Ok(index as u32)
    }

    /// Takes an address away. No other index changes.
    pub fn remove(&mut self, index: u32) -> Option<GidEntry> {
        self.entries.get_mut(index as usize)?.take()
    }

    /// The address at an index.
    pub fn get(&self, index: u32) -> Option<&GidEntry> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// Where exactly this entry is: an address of another VLAN or kind is another one.
    //= BC-118
    pub fn find(&self, entry: &GidEntry) -> Option<u32> {
        self.iter().find(|(_, known)| *known == entry).map(|(index, _)| index)
    }

    /// Where the RoCE v2 address is that packets to `gid` are received for on this VLAN.
    //= BC-118
    pub fn find_address(&self, gid: Gid, vlan: Option<u16>) -> Option<u32> {
        self.find(&GidEntry { gid, gid_type: GidType::RoceV2, vlan })
    }

    /// All addresses with their indices.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &GidEntry)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }

    /// How many addresses there is room for: `gid_tbl_len`.
    pub const fn most(&self) -> u32 {
        self.most
    }
}

/// Why an address was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidError {
    /// It is there.
    Present {
        /// Where.
        index: u32,
    },
    /// There is no room.
    TableFull {
        /// For how many there is.
        most: u32,
    },
}

impl fmt::Display for GidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present { index } => write!(f, "the address is there, at index {index}"),
            Self::TableFull { most } => write!(f, "the table has room for {most} addresses"),
        }
    }
}

impl core::error::Error for GidError {}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn entry(last: u8, vlan: Option<u16>) -> GidEntry {
        let gid = Gid::from(Ipv4Addr::new(192, 0, 2, last));
        GidEntry { gid, gid_type: GidType::RoceV2, vlan }
    }

    #[test]
    fn an_index_stays_with_its_address() {
        let mut table = GidTable::new(3);
        let indices = [1, 2, 3].map(|last| table.add(entry(last, None)));
        assert_eq!(indices, [Ok(0), Ok(1), Ok(2)]);
        assert_eq!(table.add(entry(4, None)), Err(GidError::TableFull { most: 3 }));
        assert_eq!(table.remove(1), Some(entry(2, None)));
        assert_eq!((table.remove(1), table.remove(9)), (None, None));
        assert_eq!((table.get(1), table.get(2)), (None, Some(&entry(3, None))));
        assert_eq!(table.find_address(entry(2, None).gid, None), None);
        assert_eq!(table.add(entry(4, None)), Ok(1));
        assert_eq!(table.iter().count(), 3);
    }

    //= BC-118 test
    #[test]
    fn one_address_on_two_vlans_is_two() {
        let mut table = GidTable::new(8);
        for vlan in [None, Some(10), Some(20)] {
            table.add(entry(1, vlan)).unwrap();
        }
        let old = GidEntry { gid_type: GidType::RoceV1, ..entry(1, None) };
        assert_eq!(table.add(old), Ok(3));
        assert_eq!(table.add(entry(1, Some(20))), Err(GidError::Present { index: 2 }));
        let gid = entry(1, None).gid;
        assert_eq!(table.find_address(gid, None), Some(0));
        assert_eq!(table.find_address(gid, Some(20)), Some(2));
        assert_eq!(table.find_address(gid, Some(30)), None);
        assert_eq!(table.find(&old), Some(3));
    }
}
