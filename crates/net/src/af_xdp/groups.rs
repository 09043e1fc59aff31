//! Multicast groups that an interface listens to for us.

#![allow(unsafe_code, reason = "membership on the link has no safe form")]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use crate::neighbor::{Interface, multicast_mac};
use crate::owned::Own;

/// Has the interface receive what neighbours send to the groups in which they ask for the addresses
/// (RFC 4291, section 2.7.1), as long as the descriptor is open. Frames do not come by it.
pub(super) fn join(interface: &Interface, own: &Own) -> io::Result<OwnedFd> {
    // SAFETY: the call touches no memory. Protocol 0 receives nothing.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel made this descriptor just now, for us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    for assigned in &own.addresses {
        let IpAddr::V6(address) = assigned.address else { continue };
        let [.., a, b, c] = address.octets();
        let mut mac = multicast_mac(IpAddr::V6(address)).0;
        mac[2..].copy_from_slice(&[0xff, a, b, c]);
        let mut request = libc::packet_mreq {
            mr_ifindex: interface.index.cast_signed(),
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: [0; 8],
        };
        request.mr_address[..6].copy_from_slice(&mac);
        // SAFETY: the call reads `request`, whose length it is told, and keeps nothing.
        let failed = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_ADD_MEMBERSHIP,
                (&raw const request).cast(),
                size_of::<libc::packet_mreq>() as libc::socklen_t,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(socket)
}
