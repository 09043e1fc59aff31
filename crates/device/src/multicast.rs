//! Multicast groups: which datagram queue pairs receive what is sent to a group address.
//!
//! IBA vol 1 §10.5. Joining the group in the network is not done here.

use std::collections::BTreeMap;

use core::fmt;

use roxe_wire::{Gid, Qpn};

use crate::users::InUse;

/// All groups with members on this device.
#[derive(Clone, Debug)]
pub struct MulticastGroups {
    /// Members in the order in which they came.
    groups: BTreeMap<Gid, Vec<Qpn>>,
    max_groups: u32,
    max_members: u32,
}

impl MulticastGroups {
    /// No groups, room for so many, and for so many members in each.
    pub const fn new(max_groups: u32, max_members: u32) -> Self {
        Self { groups: BTreeMap::new(), max_groups, max_members }
    }

    /// A queue pair becomes a member; it is one only once. Says whether the group is new, and the
    /// network should hear that it has a member here.
    ///
    /// # Errors
    /// [`MulticastError::NotAGroup`], [`MulticastError::TooManyGroups`],
    /// [`MulticastError::TooManyMembers`].
    pub fn attach(&mut self, mgid: Gid, qpn: Qpn) -> Result<bool, MulticastError> {
        if !mgid.is_multicast() {
            return Err(MulticastError::NotAGroup);
        }
        if let Some(members) = self.groups.get_mut(&mgid) {
            if members.contains(&qpn) {
                return Ok(false);
            }
            if members.len() >= self.max_members as usize {
                return Err(MulticastError::TooManyMembers { most: self.max_members });
            }
            members.push(qpn);
            return Ok(false);
        }
        if self.groups.len() >= self.max_groups as usize {
            return Err(MulticastError::TooManyGroups { most: self.max_groups });
        }
        self.groups.insert(mgid, vec![qpn]);
        Ok(true)
    }

    /// A queue pair is a member no more. Says whether the group has none left, and the network
    /// should hear.
    ///
    /// # Errors
    /// [`MulticastError::NotAMember`].
    pub fn detach(&mut self, mgid: Gid, qpn: Qpn) -> Result<bool, MulticastError> {
        let members = self.groups.get_mut(&mgid).ok_or(MulticastError::NotAMember)?;
        let at = members.iter().position(|member| *member == qpn);
        members.remove(at.ok_or(MulticastError::NotAMember)?);
        let is_last = members.is_empty();
        if is_last {
            self.groups.remove(&mgid);
        }
        Ok(is_last)
    }

    /// A queue pair is a member of no group any more.
    pub fn detach_all(&mut self, qpn: Qpn) {
        self.groups.retain(|_, members| {
            members.retain(|member| *member != qpn);
            !members.is_empty()
        });
    }

    /// The queue pairs that a datagram to this group is for, always in the same order.
    pub fn members(&self, mgid: Gid) -> &[Qpn] {
        self.groups.get(&mgid).map_or(&[], Vec::as_slice)
    }

    /// Whether a queue pair may be destroyed: not while it is a member of a group.
    ///
    /// # Errors
    /// [`InUse`], with the number of groups.
    //= IBA o10-2.2.3
    pub fn check_destroy(&self, qpn: Qpn) -> Result<(), InUse> {
        let groups = self.groups.values().filter(|members| members.contains(&qpn)).count() as u32;
        if groups == 0 { Ok(()) } else { Err(InUse { users: groups }) }
    }

    /// All groups.
    pub fn iter(&self) -> impl Iterator<Item = (Gid, &[Qpn])> {
        self.groups.iter().map(|(mgid, members)| (*mgid, members.as_slice()))
    }
}

/// Why a membership did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastError {
    /// The address is no group address. `EINVAL`.
    NotAGroup,
    /// The queue pair is not in the group. `EINVAL`.
    NotAMember,
    /// The device has members in as many groups as it can. `ENOMEM`.
    TooManyGroups {
        /// How many.
        most: u32,
    },
    /// The group has as many members as it can. `ENOMEM`.
    TooManyMembers {
        /// How many.
        most: u32,
    },
}

impl fmt::Display for MulticastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAGroup => f.write_str("not a multicast address"),
            Self::NotAMember => f.write_str("the queue pair is not a member of the group"),
            Self::TooManyGroups { most } => write!(f, "all {most} groups are in use"),
            Self::TooManyMembers { most } => write!(f, "the group has {most} members already"),
        }
    }
}

impl core::error::Error for MulticastError {}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn group(last: u8) -> Gid {
        Gid::from(Ipv4Addr::new(239, 1, 2, last))
    }

    fn qpns<const N: usize>(numbers: [u32; N]) -> [Qpn; N] {
        numbers.map(Qpn::new)
    }

    #[test]
    fn members_come_and_go() {
        let mut groups = MulticastGroups::new(8, 8);
        let [a, b] = qpns([100, 200]);
        assert_eq!(groups.attach(group(1), a), Ok(true));
        assert_eq!(groups.attach(group(1), b), Ok(false));
        assert_eq!(groups.attach(group(1), b), Ok(false), "once is enough");
        assert_eq!(groups.members(group(1)), [a, b]);
        assert_eq!(groups.members(group(2)), []);
        assert_eq!(groups.detach(group(1), a), Ok(false));
        assert_eq!(groups.detach(group(1), a), Err(MulticastError::NotAMember));
        assert_eq!(groups.detach(group(2), b), Err(MulticastError::NotAMember));
        assert_eq!(groups.iter().collect::<Vec<_>>(), [(group(1), &[b][..])]);
        assert_eq!(groups.detach(group(1), b), Ok(true));
        assert_eq!(groups.iter().count(), 0);
    }

    #[test]
    fn there_are_no_more_than_the_limits() {
        let mut groups = MulticastGroups::new(1, 2);
        let [a, b, c] = qpns([100, 200, 300]);
        let unicast = Gid::from(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(groups.attach(unicast, a), Err(MulticastError::NotAGroup));
        assert!(groups.attach(group(1), a).is_ok() && groups.attach(group(1), b).is_ok());
        assert_eq!(groups.attach(group(1), c), Err(MulticastError::TooManyMembers { most: 2 }));
        assert_eq!(groups.attach(group(2), c), Err(MulticastError::TooManyGroups { most: 1 }));
        assert_eq!(groups.attach(group(1), a), Ok(false));
    }

    //= IBA o10-2.2.3 test
    #[test]
    fn a_member_cannot_be_destroyed() {
        let mut groups = MulticastGroups::new(8, 8);
        let [a, b] = qpns([100, 200]);
        groups.attach(group(1), a).unwrap();
        groups.attach(group(2), a).unwrap();
        assert_eq!(groups.check_destroy(a), Err(InUse { users: 2 }));
        assert_eq!(groups.check_destroy(b), Ok(()));
        groups.detach(group(1), a).unwrap();
        groups.detach(group(2), a).unwrap();
        assert_eq!(groups.check_destroy(a), Ok(()));
    }

    #[test]
    fn a_member_of_many_groups_leaves_them_at_once() {
        let mut groups = MulticastGroups::new(8, 8);
        let [a, b, c] = qpns([100, 200, 300]);
        for (last, qpn) in [(1, b), (1, a), (1, c), (2, a), (3, c)] {
            groups.attach(group(last), qpn).unwrap();
        }
        groups.detach_all(a);
        let left: Vec<_> = groups.iter().collect();
        assert_eq!(left, [(group(1), &[b, c][..]), (group(3), &[c][..])]);
        assert_eq!(groups.check_destroy(a), Ok(()));
    }
}
