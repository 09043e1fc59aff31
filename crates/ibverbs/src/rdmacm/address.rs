//! Socket addresses of C.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::{mem, ptr};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::errno::Done;

/// # Safety
/// It is null, or as long as its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Done<SocketAddr> {
    // SAFETY: the caller promises it.
    match unsafe { address.as_ref().ok_or(libc::EINVAL)?.sa_family.into() } {
        libc::AF_INET => {
            // SAFETY: as above.
            let four = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(four.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
            let port = u16::from_be(six.sin6_port);
            Ok(SocketAddrV6::new(ip, port, 0, six.sin6_scope_id).into())
        }
        _ => Err(libc::EAFNOSUPPORT),
    }
}

/// As C has it.
pub(crate) fn write(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: all of it being zero is a value that it may have.
    let mut storage: sockaddr_storage = unsafe { mem::zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            // SAFETY: as above.
            let mut four: sockaddr_in = unsafe { mem::zeroed() };
            four.sin_family = family(libc::AF_INET);
            four.sin_port = address.port().to_be();
            four.sin_addr.s_addr = u32::from(*address.ip()).to_be();
            // SAFETY: there is room for an address of each family.
            unsafe { place.cast::<sockaddr_in>().write(four) };
        }
        SocketAddr::V6(address) => {
            // SAFETY: as above.
            let mut six: sockaddr_in6 = unsafe { mem::zeroed() };
            six.sin6_family = family(libc::AF_INET6);
            six.sin6_port = address.port().to_be();
            six.sin6_addr.s6_addr = address.ip().octets();
            six.sin6_scope_id = address.scope_id();
            // SAFETY: as above.
            unsafe { place.cast::<sockaddr_in6>().write(six) };
        }
    }
    storage
}

/// The port, in the order of the network.
pub(crate) fn port(storage: &sockaddr_storage) -> u16 {
    // SAFETY: as long as that of any family.
    let address = unsafe { read(ptr::from_ref(storage).cast()) };
    address.map_or(0, |address| address.port().to_be())
}

const fn family(family: c_int) -> libc::sa_family_t {
    family as libc::sa_family_t
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["192.0.2.1:7174", "[2001:db8::1]:1", "[fe80::1%3]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = write(address);
            // SAFETY: it was just made.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
            assert_eq!(u16::from_be(port(&storage)), address.port());
        }
    }

    #[test]
    fn other_families_are_refused() {
        // SAFETY: all of it being zero is a value that it may have.
        let none: sockaddr_storage = unsafe { mem::zeroed() };
        // SAFETY: as long as that of any family, and nothing.
        let [none, null] =
            unsafe { [read((&raw const none).cast()), read(ptr::null::<sockaddr>())] };
        assert_eq!((none, null), (Err(libc::EAFNOSUPPORT), Err(libc::EINVAL)));
    }
}
