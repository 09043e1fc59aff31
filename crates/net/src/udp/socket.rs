//! The socket: how it is opened, and what must be asked of the kernel directly.

#![allow(unsafe_code, reason = "socket options that no safe library knows")]

use std::io;
use std::mem::size_of;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::error::OpenError;
use super::{Gso, Settings};

/// A socket as the port needs it.
pub(super) struct Opened {
    pub(super) socket: OwnedFd,
    /// Whether the kernel joins what arrives, and takes apart what is sent joined.
    pub(super) segments: bool,
    /// Bytes of the receive buffer.
    pub(super) buffer: usize,
}

/// Opens a socket at an address. It is never connected: only then Linux writes the identification
/// 0 into each IPv4 header, given that fragments are forbidden.
pub(super) fn open(address: SocketAddr, settings: &Settings) -> Result<Opened, OpenError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)
        .map_err(|error| OpenError::system("open a UDP socket", error.into()))?;
    show_headers(&socket, address)
        .map_err(|error| OpenError::system("set up a UDP socket", error))?;
    let segments = match (settings.gso, join_and_split(&socket)) {
        (Gso::Off, _) => false,
        (_, Ok(())) => true,
        (Gso::Auto, Err(_)) => false,
        (Gso::On, Err(error)) => return Err(OpenError::NoSegmentation(error)),
    };
    let buffer = grow_buffers(&socket, settings.buffer)
        .map_err(|error| OpenError::system("size a UDP socket's buffers", error))?;
    bind(&socket, &address).map_err(|error| refused(address.ip(), error.into()))?;
    Ok(Opened { socket, segments, buffer })
}

/// Forbids fragments, and has the kernel say what stands in the headers.
fn show_headers(socket: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv4() {
        sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?;
        sockopt::set_ip_recvtos(socket, true)?;
        set(socket, libc::IPPROTO_IP, libc::IP_RECVTTL, 1)
    } else {
        sockopt::set_ipv6_v6only(socket, true)?;
        sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?;
        sockopt::set_ipv6_recvtclass(socket, true)?;
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)?;
        // RoCEv2 adapters send the UDP checksum 0, also over IPv6.
        set(socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)
    }
}

/// Has the kernel join what arrives, and asks whether it would split what is sent.
fn join_and_split(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0)?;
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Asks for buffers of so many bytes, beyond what the system grants everybody if it lets us. Says
/// what the receive buffer became.
fn grow_buffers(socket: &OwnedFd, bytes: usize) -> io::Result<usize> {
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, bytes)?;
    }
    if sockopt::set_socket_send_buffer_size_force(socket, bytes).is_err() {
        sockopt::set_socket_send_buffer_size(socket, bytes)?;
    }
    // The kernel doubles what it is asked for, to have room for its own.
    Ok(sockopt::socket_recv_buffer_size(socket)? / 2)
}

fn refused(address: IpAddr, error: io::Error) -> OpenError {
    match error.kind() {
        io::ErrorKind::AddrInUse => OpenError::PortInUse { address },
        io::ErrorKind::AddrNotAvailable => OpenError::NotLocal { address, others: Vec::new() },
        _ => OpenError::system("use UDP port 4791", error),
    }
}

/// How many datagrams the kernel dropped because too many waited, or because their UDP checksum
/// was wrong.
pub(crate) fn drops(socket: BorrowedFd<'_>) -> Option<u64> {
    /// `SK_MEMINFO_DROPS`, and how many numbers there are.
    const DROPS: usize = 8;
    let mut numbers = [0_u32; DROPS + 1];
    let mut len = size_of::<[u32; DROPS + 1]>() as socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of the array.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0).then_some(numbers[DROPS].into())
}

/// A socket that is in a group hears it on the interface on which it joined, and on no other that
/// somebody else joined on.
pub(crate) fn hear_own_groups_only(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0)
}

/// Sets an option whose value is a number.
fn set(socket: &OwnedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    let len = size_of::<c_int>() as socklen_t;
    let value: *const c_int = &value;
    // SAFETY: the kernel reads `len` bytes, the size of the number behind the pointer.
    let result = unsafe {
        let value = value.cast::<c_void>();
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, value, len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
