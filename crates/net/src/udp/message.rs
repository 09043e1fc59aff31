//! Datagrams by the batch, with what the kernel says, or is told, about each: the system calls
//! recvmmsg and sendmmsg.
//!
//! Nothing here is kept but plain bytes; the pointers that the kernel wants are made anew for each
//! call. What goes beside the bytes of a datagram are control messages, in the kernel's format:
//!
//!   | length of all (word) | level (32) | type (32) | value, padded to a word |

#![allow(unsafe_code, reason = "no safe library has these calls without allocating in each")]

use std::io;
use std::iter;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use libc::{c_int, iovec, mmsghdr};
use roxe_wire::TrafficClass;
use rustix::io::Errno;

/// The most datagrams that one call moves.
pub(super) const AT_ONCE: usize = 32;

/// A datagram, or several of one length joined, to be sent.
#[derive(Clone, Debug)]
pub(super) struct ToSend {
    /// Where its bytes are.
    pub(super) bytes: Range<usize>,
    name: Name,
    control: Control,
}

impl ToSend {
    /// `segment` is how long each datagram is, but the last, where there are several.
    pub(super) fn new(
        bytes: Range<usize>,
        to: SocketAddr,
        traffic_class: TrafficClass,
        hop_limit: u8,
        segment: Option<u16>,
    ) -> Self {
        let mut control = Control::default();
        let [class, hops] =
            [traffic_class.0, hop_limit].map(|value| c_int::from(value).to_ne_bytes());
        if to.is_ipv4() {
            control.push(libc::IPPROTO_IP, libc::IP_TOS, &class);
            control.push(libc::IPPROTO_IP, libc::IP_TTL, &hops);
        } else {
            control.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &hops);
        }
        if let Some(segment) = segment {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
        Self { bytes, name: Name::of(to), control }
    }
}

/// Sends messages, at most [`AT_ONCE`], whose bytes are in `memory`. Says how many the kernel took,
/// or what it said about the first.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    messages: &[ToSend],
    memory: &[u8],
) -> Result<usize, Errno> {
    let mut pieces = [NO_BYTES; AT_ONCE];
    // SAFETY: no field of it may not be zero.
    let mut headers: [mmsghdr; AT_ONCE] = unsafe { zeroed() };
    for ((message, piece), header) in messages.iter().zip(&mut pieces).zip(&mut headers) {
        let bytes = &memory[message.bytes.clone()];
        *piece = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let ToSend { name, control, .. } = message;
        let header = &mut header.msg_hdr;
        header.msg_name = name.bytes.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len;
        header.msg_iov = piece;
        header.msg_iovlen = 1;
        header.msg_control = control.bytes.as_ptr().cast_mut().cast();
        header.msg_controllen = control.len as _;
    }
    let count = messages.len().min(AT_ONCE) as u32;
    // SAFETY: the first `count` headers point to bytes, names and control messages that are
    // borrowed until the call returns, with their lengths; in sending the kernel only reads them.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT)
    };
    moved(sent)
}

/// Where datagrams are received into.
#[derive(Debug)]
pub(super) struct Inbox {
    memory: Box<[u8]>,
    /// Bytes of it for each.
    room: usize,
    places: Box<[Place]>,
}

/// What the kernel says about a datagram.
#[derive(Clone, Debug, Default)]
struct Place {
    /// How long it is; may be more than there is room for.
    len: usize,
    name: Name,
    control: Control,
}

/// A datagram, or several of one length joined, that arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived<'a> {
    pub(super) from: SocketAddr,
    pub(super) traffic_class: TrafficClass,
    pub(super) hop_limit: u8,
    /// The bytes there was room for.
    pub(super) bytes: &'a [u8],
    /// How many there were.
    pub(super) len: usize,
    /// How long each is, but the last, if several were joined; never 0.
    pub(super) segment: usize,
}

impl Inbox {
    /// Room for `count` datagrams of `room` bytes.
    pub(super) fn new(count: usize, room: usize) -> Self {
        let count = count.min(AT_ONCE);
        let places = vec![Place::default(); count].into();
        Self { memory: vec![0; count * room].into(), room, places }
    }

    /// Receives what is there. Says how many.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut pieces = [NO_BYTES; AT_ONCE];
        // SAFETY: no field of it may not be zero.
        let mut headers: [mmsghdr; AT_ONCE] = unsafe { zeroed() };
        let rooms = self.memory.chunks_exact_mut(self.room);
        for (((place, room), piece), header) in
            self.places.iter_mut().zip(rooms).zip(&mut pieces).zip(&mut headers)
        {
            *piece = iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let Place { name, control, .. } = place;
            let header = &mut header.msg_hdr;
            header.msg_name = name.bytes.as_mut_ptr().cast();
            header.msg_namelen = name.bytes.len() as u32;
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            header.msg_control = control.bytes.as_mut_ptr().cast();
            header.msg_controllen = control.bytes.len() as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let count = self.places.len() as u32;
        // SAFETY: the first `count` headers point to bytes, names and control messages of this
        // inbox, which is borrowed mutably until the call returns, with their lengths; no two
        // overlap. There is no time limit.
        let received = unsafe {
            let headers = headers.as_mut_ptr();
            libc::recvmmsg(socket.as_raw_fd(), headers, count, flags, ptr::null_mut())
        };
        let received = moved(received)?;
        for (place, header) in self.places.iter_mut().zip(&headers[..received]) {
            place.len = header.msg_len as usize;
            place.name.len = header.msg_hdr.msg_namelen;
            // The type differs from one C library to another.
            #[allow(clippy::unnecessary_cast)]
            let control = header.msg_hdr.msg_controllen as usize;
            place.control.len = control.min(CONTROL);
        }
        Ok(received)
    }

    /// The first `count` datagrams of those received last; none that has no sender.
    pub(super) fn arrived(&self, count: usize) -> impl Iterator<Item = Arrived<'_>> {
        let rooms = self.memory.chunks_exact(self.room);
        self.places[..count].iter().zip(rooms).filter_map(|(place, room)| place.read(room))
    }
}

impl Place {
    fn read<'a>(&self, room: &'a [u8]) -> Option<Arrived<'a>> {
        let bytes = &room[..self.len.min(room.len())];
        let mut arrived = Arrived {
            from: self.name.read()?,
            traffic_class: TrafficClass(0),
            hop_limit: 0,
            bytes,
            len: self.len,
            segment: self.len.max(1),
        };
        for (level, kind, value) in self.control.iter() {
            // One byte for some, an int for others.
            let number = match *value {
                [byte] => byte.into(),
                _ => value.first_chunk().map_or(0, |bytes| c_int::from_ne_bytes(*bytes)),
            };
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    arrived.traffic_class = TrafficClass(number as u8);
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    arrived.hop_limit = number as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) if number > 0 => arrived.segment = number as usize,
                _ => {}
            }
        }
        Some(arrived)
    }
}

/// An address as the kernel writes it.
#[derive(Clone, Debug, Default)]
#[repr(C, align(8))]
struct Name {
    /// `sockaddr_in`: | family (16) | port (16) | address (32) | zeros (64) |
    /// `sockaddr_in6`: | family (16) | port (16) | flow (32) | address (128) | interface (32) |
    bytes: [u8; 28],
    len: u32,
}

impl Name {
    fn of(address: SocketAddr) -> Self {
        let mut name = Self::default();
        name.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let family = match address {
            SocketAddr::V4(address) => {
                name.bytes[4..8].copy_from_slice(&address.ip().octets());
                name.len = 16;
                libc::AF_INET
            }
            SocketAddr::V6(address) => {
                name.bytes[8..24].copy_from_slice(&address.ip().octets());
                name.bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
                name.len = 28;
                libc::AF_INET6
            }
        };
        name.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        name
    }

    fn read(&self) -> Option<SocketAddr> {
        let [f1, f0, p1, p0, rest @ ..] = &self.bytes;
        let port = u16::from_be_bytes([*p1, *p0]);
        match (c_int::from(u16::from_ne_bytes([*f1, *f0])), self.len) {
            (libc::AF_INET, 16) => {
                let address = Ipv4Addr::from_octets(*rest.first_chunk()?);
                Some(SocketAddrV4::new(address, port).into())
            }
            (libc::AF_INET6, 28) => {
                let address = Ipv6Addr::from_octets(*rest[4..].first_chunk()?);
                let scope = u32::from_ne_bytes(*rest.last_chunk()?);
                Some(SocketAddrV6::new(address, port, 0, scope).into())
            }
            _ => None,
        }
    }
}

/// Control messages of one datagram.
#[derive(Clone, Debug)]
#[repr(C, align(8))]
struct Control {
    bytes: [u8; CONTROL],
    len: usize,
}

impl Default for Control {
    fn default() -> Self {
        Self { bytes: [0; CONTROL], len: 0 }
    }
}

impl Control {
    fn push(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let message = &mut self.bytes[self.len..];
        let len = CONTROL_HEADER + value.len();
        message[..WORD].copy_from_slice(&len.to_ne_bytes());
        message[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        message[WORD + 4..CONTROL_HEADER].copy_from_slice(&kind.to_ne_bytes());
        message[CONTROL_HEADER..len].copy_from_slice(value);
        self.len += len.next_multiple_of(WORD);
    }

    /// Level, type and value of each.
    fn iter(&self) -> impl Iterator<Item = (c_int, c_int, &[u8])> {
        let mut rest = &self.bytes[..self.len];
        iter::from_fn(move || {
            let len = usize::from_ne_bytes(*rest.first_chunk()?);
            let level = c_int::from_ne_bytes(*rest.get(WORD..)?.first_chunk()?);
            let kind = c_int::from_ne_bytes(*rest.get(WORD + 4..)?.first_chunk()?);
            let value = rest.get(CONTROL_HEADER..len)?;
            rest = rest.get(len.next_multiple_of(WORD)..).unwrap_or_default();
            Some((level, kind, value))
        })
    }
}

/// What one of the calls returned.
fn moved(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count)
        .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

const NO_BYTES: iovec = iovec { iov_base: ptr::null_mut(), iov_len: 0 };

const WORD: usize = size_of::<usize>();
const CONTROL_HEADER: usize = WORD + 8;

/// Room for the control messages of one datagram: three, each of an int at most.
const CONTROL: usize = 4 * (CONTROL_HEADER + WORD);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        for address in ["192.0.2.1:4791", "[2001:db8::1]:4791", "[fe80::1%3]:49152"] {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(Name::of(address).read(), Some(address));
        }
        assert_eq!(Name::default().read(), None);
    }

    #[test]
    fn control_messages_are_read_as_they_were_written() {
        let mut control = Control::default();
        control.push(1, 2, &[3]);
        control.push(4, 5, &[]);
        control.push(6, 7, &[8; 4]);
        let read: Vec<_> = control.iter().collect();
        assert_eq!(read, [(1, 2, &[3][..]), (4, 5, &[]), (6, 7, &[8; 4])]);
        control.len -= 8;
        assert_eq!(control.iter().count(), 2, "one that is cut off is none");
    }
}
