//! Names of hosts and services, by those of the C library.

use std::ffi::{c_char, c_int};
use std::{mem, ptr};

use libc::{addrinfo, sockaddr, socklen_t};

use crate::errno;
use crate::layout::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
use crate::rdmacm::layout::{
    RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_TCP, RDMA_PS_UDP, rdma_addrinfo,
};

pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    list: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: the program says what it looks for, and where the answer is to be.
    unsafe {
        if list.is_null() || node.is_null() && service.is_null() && hints.is_null() {
            return errno::negative(Err(libc::EINVAL));
        }
        let hints = match hints.as_ref() {
            Some(hints) => *hints,
            // All of it being zero is a value that it may have.
            None => mem::zeroed(),
        };
        let wanted = Wanted::of(&hints);
        let passive = hints.ai_flags & RAI_PASSIVE != 0;
        if node.is_null() && service.is_null() {
            // The addresses are known, and only to be put together.
            let info = wanted.entry(&hints);
            list.write(info);
            return if info.is_null() { errno::negative(Err(libc::ENOMEM)) } else { 0 };
        }
        let mut found: *mut addrinfo = ptr::null_mut();
        let of_library = wanted.hints(&hints);
        let result = libc::getaddrinfo(node, service, &raw const of_library, &raw mut found);
        if result != 0 {
            return result;
        }
        let mut first: *mut rdma_addrinfo = ptr::null_mut();
        let (mut end, mut next) = (&raw mut first, found);
        while let Some(info) = next.as_ref() {
            next = info.ai_next;
            let family = info.ai_family;
            if family != libc::AF_INET && family != libc::AF_INET6 {
                continue;
            }
            let mut with = hints;
            let (place, len) = match passive {
                true => (&raw mut with.ai_src_addr, &raw mut with.ai_src_len),
                false => (&raw mut with.ai_dst_addr, &raw mut with.ai_dst_len),
            };
            place.write(info.ai_addr);
            len.write(info.ai_addrlen);
            with.ai_family = family;
            let entry = wanted.entry(&with);
            if entry.is_null() {
                break;
            }
            end.write(entry);
            end = &raw mut (*entry).ai_next;
        }
        libc::freeaddrinfo(found);
        list.write(first);
        if first.is_null() { libc::EAI_NONAME } else { 0 }
    }
}

/// Which ports and which kind of queue pair.
struct Wanted {
    port_space: c_int,
    qp_type: c_int,
}

impl Wanted {
    /// Either says the other.
    fn of(hints: &rdma_addrinfo) -> Self {
        let datagrams = IBV_QPT_UD.cast_signed();
        let port_space = match hints.ai_port_space {
            0 if hints.ai_qp_type == datagrams => RDMA_PS_UDP,
            0 => RDMA_PS_TCP,
            given => given,
        };
        let qp_type = match hints.ai_qp_type {
            0 if port_space == RDMA_PS_UDP => datagrams,
            0 => IBV_QPT_RC.cast_signed(),
            given => given,
        };
        Self { port_space, qp_type }
    }

    fn hints(&self, hints: &rdma_addrinfo) -> addrinfo {
        // SAFETY: all of it being zero is a value that it may have.
        let mut of_library: addrinfo = unsafe { mem::zeroed() };
        let flags = [(RAI_PASSIVE, libc::AI_PASSIVE), (RAI_NUMERICHOST, libc::AI_NUMERICHOST)];
        for (flag, of_it) in flags {
            if hints.ai_flags & flag != 0 {
                of_library.ai_flags |= of_it;
            }
        }
        if hints.ai_flags & RAI_FAMILY != 0 {
            of_library.ai_family = hints.ai_family;
        }
        let connects = [IBV_QPT_RC, IBV_QPT_UC].map(u32::cast_signed).contains(&self.qp_type);
        of_library.ai_socktype = if connects { libc::SOCK_STREAM } else { libc::SOCK_DGRAM };
        of_library
    }

    /// An entry with copies of the addresses; null without memory.
    ///
    /// # Safety
    /// The addresses of `with` are there, or null.
    unsafe fn entry(&self, with: &rdma_addrinfo) -> *mut rdma_addrinfo {
        // SAFETY: a program may free and replace what is in it, so all is of `malloc`.
        unsafe {
            let entry: *mut rdma_addrinfo = libc::calloc(1, size_of::<rdma_addrinfo>()).cast();
            let Some(room) = entry.as_mut() else { return entry };
            room.ai_flags = with.ai_flags;
            room.ai_family = with.ai_family;
            (room.ai_qp_type, room.ai_port_space) = (self.qp_type, self.port_space);
            (room.ai_src_addr, room.ai_src_len) = copy(with.ai_src_addr, with.ai_src_len);
            (room.ai_dst_addr, room.ai_dst_len) = copy(with.ai_dst_addr, with.ai_dst_len);
            for (address, len) in
                [(room.ai_dst_addr, room.ai_dst_len), (room.ai_src_addr, room.ai_src_len)]
            {
                if room.ai_family == 0 && len != 0 {
                    room.ai_family = (*address).sa_family.into();
                }
            }
            entry
        }
    }
}

/// # Safety
/// So much is there, or nothing.
unsafe fn copy(address: *const sockaddr, len: socklen_t) -> (*mut sockaddr, socklen_t) {
    if address.is_null() || len == 0 {
        return (ptr::null_mut(), 0);
    }
    // SAFETY: the caller promises it.
    unsafe {
        let room = libc::malloc(len as usize);
        if room.is_null() {
            return (ptr::null_mut(), 0);
        }
        ptr::copy_nonoverlapping(address.cast::<u8>(), room.cast::<u8>(), len as usize);
        (room.cast(), len)
    }
}

pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
    let mut next = list;
    // SAFETY: made by `rdma_getaddrinfo`, and what a program has put into it by `malloc`.
    unsafe {
        while let Some(entry) = next.as_ref() {
            let rdma_addrinfo { ai_src_addr, ai_dst_addr, ai_route, ai_connect, .. } = *entry;
            let names = [entry.ai_src_canonname, entry.ai_dst_canonname];
            let here = mem::replace(&mut next, entry.ai_next);
            [ai_src_addr, ai_dst_addr].into_iter().for_each(|it| libc::free(it.cast()));
            names.into_iter().for_each(|it| libc::free(it.cast()));
            [ai_route, ai_connect].into_iter().for_each(|it| libc::free(it));
            libc::free(here.cast());
        }
    }
}
