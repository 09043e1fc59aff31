//! Hears when interfaces and their addresses, or neighbours and routes change, without being told
//! what.

use std::io::{self, ErrorKind};

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};

/// Hears of changes in one network namespace: that of the thread which opened it.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
}

impl Watch {
    /// Listens from now on. Takes no privilege.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open() -> io::Result<Self> {
        Self::of(&INTERFACES)
    }

    /// The same for neighbours and routes.
    ///
    /// # Errors
    /// Those of the system.
    pub fn neighbors() -> io::Result<Self> {
        Self::of(&NEIGHBORS)
    }

    fn of(groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        for &group in groups {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Self { socket })
    }

    /// Whether anything has changed since the last call, or may have. Never waits.
    pub fn has_changed(&mut self) -> bool {
        let mut changed = false;
        loop {
            match self.socket.recv_from_full() {
                Ok(_) => changed = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return changed,
                // Changes were lost, because nobody fetched them for long.
                Err(_) => return true,
            }
        }
    }
}

/// Interfaces, IPv4 and IPv6 addresses: `RTNLGRP_LINK`, `…_IPV4_IFADDR`, `…_IPV6_IFADDR`.
const INTERFACES: [u32; 3] = [1, 5, 9];

/// Neighbours, IPv4 and IPv6 routes: `RTNLGRP_NEIGH`, `…_IPV4_ROUTE`, `…_IPV6_ROUTE`.
const NEIGHBORS: [u32; 3] = [3, 7, 11];
