//! What an interface can do for AF_XDP, by looking alone: nothing is attached, bound or changed.

#![allow(unsafe_code, reason = "bpf_xdp_query and ethtool have no safe form")]

use std::io;

use libbpf_rs::libbpf_sys::{self, bpf_xdp_query_opts};
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketType};

use crate::neighbor::Interface;

/// What an interface can do for AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Whether its driver runs XDP programs that redirect to sockets. `None` where the kernel says
    /// nothing of it: the driver runs none, or the kernel is older than 6.3.
    pub native: Option<bool>,
    /// Whether its driver shares memory with sockets.
    pub zero_copy: bool,
    /// Whether frames may lie in several buffers: path MTU 4096.
    pub several_buffers: bool,
    /// The number of the XDP program that is attached.
    pub program: Option<u32>,
    /// How many queues it spreads what it receives over.
    pub queues: u32,
    /// Whether it joins what it receives, itself: XDP programs and this do not go together.
    pub large_receive: bool,
    /// Whether the kernel joins what it receives.
    pub generic_receive: bool,
    /// Whether its driver takes VLAN tags off what it receives: XDP does not see on which VLAN a
    /// frame came.
    pub takes_vlan_tags: bool,
}

/// What an interface can do for AF_XDP.
///
/// # Errors
/// When the kernel does not answer.
pub fn support(interface: &Interface) -> io::Result<Support> {
    let mut answer = bpf_xdp_query_opts {
        sz: size_of::<bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..bpf_xdp_query_opts::default()
    };
    let index = i32::try_from(interface.index).expect("the kernel's own numbers are such");
    // Its messages would go to standard error; what matters comes back as an error number.
    libbpf_rs::set_print(None);
    // SAFETY: the call writes `answer`, which says how long it is, and keeps nothing.
    let error = unsafe { libbpf_sys::bpf_xdp_query(index, 0, &raw mut answer) };
    if error < 0 {
        return Err(io::Error::from_raw_os_error(-error));
    }
    let features = answer.feature_flags;
    let programs = [answer.prog_id, answer.drv_prog_id, answer.skb_prog_id, answer.hw_prog_id];
    Ok(Support {
        native: (features != 0).then_some(features & REDIRECT == REDIRECT),
        zero_copy: features & ZERO_COPY != 0,
        several_buffers: features & SEVERAL_BUFFERS != 0,
        program: programs.into_iter().find(|program| *program != 0),
        queues: super::socket::receive_queues(interface),
        large_receive: value(interface, ETHTOOL_GFLAGS) & ETH_FLAG_LRO != 0,
        generic_receive: value(interface, ETHTOOL_GGRO) != 0,
        takes_vlan_tags: value(interface, ETHTOOL_GFLAGS) & ETH_FLAG_RXVLAN != 0,
    })
}

/// `struct ethtool_value`; 0 where the driver does not say.
fn value(interface: &Interface, command: u32) -> u32 {
    let mut value = [command, 0];
    if ethtool(interface, &mut value) { value[1] } else { 0 }
}

/// Asks the driver by `SIOCETHTOOL`. `question` is one of the structures of linux/ethtool.h, which
/// begins with a command that reads. Says whether there was an answer.
pub(super) fn ethtool<T: Copy>(interface: &Interface, question: &mut T) -> bool {
    /// `struct ifreq` of linux/if.h, with a pointer in its union.
    #[repr(C)]
    struct Request<T> {
        name: [u8; 16],
        data: *mut T,
        rest: [u64; 2],
    }
    let mut name = [0; 16];
    // The kernel's names are shorter, and end with a zero.
    name.iter_mut().zip(interface.name.bytes().take(15)).for_each(|(to, from)| *to = from);
    let mut request = Request { name, data: std::ptr::from_mut(question), rest: [0; 2] };
    let Ok(socket) = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None) else {
        return false;
    };
    // SAFETY: the call reads and writes a `Request`, and through it what `question` is; both are
    // laid out as the kernel does and live until it returns.
    let answer = unsafe { ioctl(socket, Updater::<SIOCETHTOOL, Request<T>>::new(&mut request)) };
    answer.is_ok()
}

/// Of linux/sockios.h.
const SIOCETHTOOL: Opcode = 0x8946;

/// Of linux/ethtool.h.
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETH_FLAG_LRO: u32 = 1 << 15;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// `NETDEV_XDP_ACT_…` of linux/netdev.h: BASIC and REDIRECT, XSK_ZEROCOPY, RX_SG.
const REDIRECT: u64 = 1 | 2;
const ZERO_COPY: u64 = 8;
const SEVERAL_BUFFERS: u64 = 32;
