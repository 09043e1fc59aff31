//! Two adapters that reach each other, in this process.

#![allow(dead_code, reason = "each user takes what it needs")]

use std::net::{IpAddr, Ipv4Addr};

use roxe_verbs::{Context, Mtu, udp};

pub(crate) fn joined_by_memory() -> [Context; 2] {
    Context::memory_pair(Mtu::B4096).unwrap()
}

/// Each test is a process, and has addresses of its own.
pub(crate) fn joined_by_udp() -> [Context; 2] {
    [1, 2].map(|which| Context::open_udp(own_address(which), udp::Settings::default()).unwrap())
}

/// A loopback address that no other test has; `which` is below 16.
fn own_address(which: u32) -> IpAddr {
    let [_, b, c, d] = (std::process::id() * 16 + which).to_be_bytes();
    Ipv4Addr::new(127, b & 0x7f, c, d).into()
}
