//! Why a port cannot be opened, and what to do about it.

use std::io;
use std::net::IpAddr;

use roxe_wire::MacAddress;
use thiserror::Error;

/// Why a port cannot be opened. Each is something that the environment lacks (exit status 3), and
/// its message says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No interface has this name.
    #[error("there is no network interface {name}; there are: {}", others.join(", "))]
    NoSuchInterface {
        /// The name asked for.
        name: String,
        /// Those there are.
        others: Vec<String>,
    },
    /// Frames of the interface have no Ethernet header.
    #[error(
        "frames of {interface} have no Ethernet header (link type {link_type}), so it cannot carry \
         RoCEv2 by AF_XDP: use a tap device instead of a tun device, or a port over a UDP socket"
    )]
    NotEthernet {
        /// The interface.
        interface: String,
        /// Its link type, `ARPHRD_…` of Linux.
        link_type: u16,
    },
    /// Not even the smallest path MTU fits.
    #[error("the MTU of {interface} is {mtu}: RoCEv2 needs at least {least}")]
    MtuTooSmall {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The least that would do.
        least: u32,
    },
    /// Frames of this MTU do not fit the buffers that the driver hands to XDP programs.
    #[error(
        "the driver of {interface} refuses an XDP program at MTU {mtu}: lower it with `ip link set \
         {interface} mtu 1500` (on a veth pair, that of the other end), or take generic mode"
    )]
    MtuTooLarge {
        /// The interface.
        interface: String,
        /// Its MTU. On a veth pair, that of the other end is what counts.
        mtu: u32,
    },
    /// The process lacks capabilities.
    #[error(
        "not allowed to {what}: run as root, or `setcap \
         cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep $(command -v roxe)`, which is for \
         roxe's commands and for programs of C by `roxe run`; one of Rust takes it on its own \
         file; missing is {missing}"
    )]
    NoPrivilege {
        /// What was refused.
        what: &'static str,
        /// The capabilities it takes.
        missing: &'static str,
    },
    /// The frame memory exceeds what the process may lock.
    #[error(
        "the frames take {need_kib} KiB of locked memory: raise the limit with `ulimit -l`, or \
         grant CAP_IPC_LOCK"
    )]
    LockedMemory {
        /// KiB that the frames take.
        need_kib: usize,
    },
    /// Some other XDP program is there.
    #[error(
        "an XDP program ({program}) is attached to {interface} already: one process has an \
         interface at a time; `ip link show {interface}` shows it, and `ip link set {interface} \
         xdp off` removes one that a crash left behind"
    )]
    ProgramAttached {
        /// The interface.
        interface: String,
        /// What the kernel says about it.
        program: String,
    },
    /// Some other AF_XDP socket has the queue.
    #[error("queue {queue} of {interface} belongs to another AF_XDP socket: end its process")]
    QueueBusy {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// The interface has not so many queues.
    #[error("{interface} has no queue {queue}: `ethtool -l {interface}` shows how many there are")]
    NoSuchQueue {
        /// The interface.
        interface: String,
        /// The queue asked for.
        queue: u32,
    },
    /// Somebody on the network has the address that the adapter should own.
    #[error("{address} is taken: {mac} answered for it on {interface}; choose another address")]
    AddressTaken {
        /// The interface.
        interface: String,
        /// The address.
        address: IpAddr,
        /// Who answered.
        mac: MacAddress,
    },
    /// The kernel has the address that the adapter should own.
    #[error(
        "{address} is an address of {interface} in the kernel: leave `own=` out, or take it away \
         with `ip address del {address} dev {interface}`"
    )]
    AddressOfKernel {
        /// The interface.
        interface: String,
        /// The address.
        address: IpAddr,
    },
    /// The interface is no place for addresses of an adapter's own.
    #[error("an adapter on {interface} cannot own addresses: {why}")]
    CannotOwn {
        /// The interface.
        interface: String,
        /// Why not.
        why: &'static str,
    },
    /// The driver cannot do what was demanded.
    #[error("{interface} cannot do {what}: {source}; leave the choice open, or choose the other")]
    Unsupported {
        /// The interface.
        interface: String,
        /// What was demanded.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program does not redirect, though everything is in place.
    #[error("the XDP program on {interface} does not redirect RoCEv2: it said {verdict}")]
    SelfTest {
        /// The interface.
        interface: String,
        /// What it did instead.
        verdict: String,
    },
    /// Anything else.
    #[error("cannot {what}: {source}")]
    System {
        /// What failed.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    /// An error of the system, or the privilege that is missing when it is that.
    pub(super) fn system(what: &'static str, missing: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NoPrivilege { what, missing },
            _ => Self::System { what, source },
        }
    }
}
