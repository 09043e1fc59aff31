//! Bytes that are sent and read.

use std::ffi::{c_int, c_void};
use std::slice;

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t};
use roxe_verbs::sockets::{Patience, Reading};

use crate::errno::{self, Done};
use crate::rdmacm::sockets::{give, of_socket, patience, stream_of};

/// What a function says that says how many bytes, or -1 and errno.
fn count(bytes: Done<usize>) -> isize {
    match bytes {
        Ok(bytes) => bytes as isize,
        Err(errno) => {
            errno::set(errno);
            -1
        }
    }
}

/// # Safety
/// So many bytes are there as long as the slice.
unsafe fn bytes<'a>(buf: *const c_void, len: usize) -> Done<&'a [u8]> {
    match len {
        0 => Ok(&[]),
        _ if buf.is_null() || len > isize::MAX as usize => Err(libc::EFAULT),
        // SAFETY: the caller promises it.
        _ => Ok(unsafe { slice::from_raw_parts(buf.cast(), len) }),
    }
}

/// # Safety
/// There is room for so many bytes, which nobody else uses as long as the slice is there.
unsafe fn room<'a>(buf: *mut c_void, len: usize) -> Done<&'a mut [u8]> {
    match len {
        0 => Ok(&mut []),
        _ if buf.is_null() || len > isize::MAX as usize => Err(libc::EFAULT),
        // SAFETY: the caller promises it.
        _ => Ok(unsafe { slice::from_raw_parts_mut(buf.cast(), len) }),
    }
}

/// # Safety
/// The list is there.
unsafe fn list<'a>(iov: *const iovec, len: usize) -> Done<&'a [iovec]> {
    match len {
        0 => Ok(&[]),
        _ if iov.is_null() => Err(libc::EFAULT),
        1..=1024 => {
            // SAFETY: the caller promises it.
            Ok(unsafe { slice::from_raw_parts(iov, len) })
        }
        _ => Err(libc::EINVAL),
    }
}

/// A length that C has as a number with a sign.
fn length(len: c_int) -> Done<usize> {
    usize::try_from(len).map_err(|_| libc::EINVAL)
}

/// # Safety
/// What the list names is there.
unsafe fn send(socket: c_int, pieces: &[iovec], flags: c_int) -> Done<usize> {
    let (socket, stream) = stream_of(socket)?;
    if flags & libc::MSG_OOB != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    // SAFETY: the caller promises it.
    let of = |piece: &iovec| unsafe { bytes(piece.iov_base, piece.iov_len) };
    // All are looked at before one is sent; what a call sends is told as a number with a sign.
    pieces.iter().try_fold(0_isize, |len, piece| {
        len.checked_add_unsigned(of(piece)?.len()).ok_or(libc::EINVAL)
    })?;
    let pieces = pieces.iter().filter_map(|piece| of(piece).ok());
    stream.send_vectored(pieces, patience(socket.waits(flags))).map_err(of_socket)
}

/// Fills the pieces of a list. Only the first is looked into without being read.
///
/// # Safety
/// What the list names is there.
unsafe fn receive(socket: c_int, pieces: &[iovec], flags: c_int) -> Done<usize> {
    let (socket, stream) = stream_of(socket)?;
    if flags & libc::MSG_OOB != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let reading =
        Reading { peek: flags & libc::MSG_PEEK != 0, all: flags & libc::MSG_WAITALL != 0 };
    let whole = patience(socket.waits(flags));
    let mut read = 0;
    for piece in pieces.iter().filter(|piece| piece.iov_len != 0) {
        // SAFETY: the caller promises it.
        let piece = unsafe { room(piece.iov_base, piece.iov_len)? };
        let patience = if read == 0 || reading.all { whole } else { Patience::None };
        match stream.recv(piece, reading, patience) {
            Ok(now) => {
                read += now;
                if now < piece.len() || reading.peek {
                    break;
                }
            }
            Err(_) if read != 0 => break,
            Err(error) => return Err(of_socket(error)),
        }
    }
    Ok(read)
}

const fn one(buf: *const c_void, len: usize) -> [iovec; 1] {
    [iovec { iov_base: buf.cast_mut(), iov_len: len }]
}

pub(crate) unsafe extern "C" fn rsend(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the program says what.
    count(unsafe { send(socket, &one(buf, len), flags) })
}

pub(crate) unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    flags: c_int,
    dest_addr: *const sockaddr,
    _addrlen: socklen_t,
) -> isize {
    if !dest_addr.is_null() {
        return count(stream_of(socket).and(Err(libc::EISCONN)));
    }
    // SAFETY: as above.
    count(unsafe { send(socket, &one(buf, len), flags) })
}

pub(crate) unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> isize {
    // SAFETY: as above.
    count(unsafe {
        message(msg).and_then(|msg| send(socket, list(msg.msg_iov, msg.msg_iovlen)?, flags))
    })
}

/// # Safety
/// It is there, or null.
unsafe fn message<'a>(msg: *const msghdr) -> Done<&'a msghdr> {
    // SAFETY: the caller promises it.
    let msg = unsafe { msg.as_ref() }.ok_or(libc::EFAULT)?;
    // Nothing else goes with the bytes.
    if msg.msg_control.is_null() || msg.msg_controllen == 0 {
        Ok(msg)
    } else {
        Err(libc::EOPNOTSUPP)
    }
}

pub(crate) unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: usize) -> isize {
    // SAFETY: as above.
    unsafe { rsend(socket, buf, count, 0) }
}

pub(crate) unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    // SAFETY: as above.
    count(unsafe { length(iovcnt).and_then(|len| send(socket, list(iov, len)?, 0)) })
}

pub(crate) unsafe extern "C" fn rrecv(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the program says where to.
    count(unsafe { receive(socket, &one(buf, len), flags) })
}

pub(crate) unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> isize {
    // SAFETY: as above.
    count(unsafe {
        receive(socket, &one(buf, len), flags).and_then(|read| {
            let (_, stream) = stream_of(socket)?;
            give(stream.peer_address(), src_addr, addrlen)?;
            Ok(read)
        })
    })
}

pub(crate) unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    // SAFETY: as above.
    count(unsafe {
        message(msg).and_then(|read| {
            let list = list(read.msg_iov, read.msg_iovlen)?;
            let read = receive(socket, list, flags)?;
            (*msg).msg_flags = 0;
            if let Ok((_, stream)) = stream_of(socket) {
                give(stream.peer_address(), (*msg).msg_name.cast(), &raw mut (*msg).msg_namelen)?;
            }
            Ok(read)
        })
    })
}

pub(crate) unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: as above.
    unsafe { rrecv(socket, buf, count, 0) }
}

pub(crate) unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> isize {
    // SAFETY: as above.
    count(unsafe { length(iovcnt).and_then(|len| receive(socket, list(iov, len)?, 0)) })
}

/// Writes into memory that the peer has opened at this offset.
pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    buf: *const c_void,
    len: usize,
    offset: off_t,
    flags: c_int,
) -> isize {
    count(stream_of(socket).and_then(|(socket, stream)| {
        // SAFETY: the program says what.
        let bytes = unsafe { bytes(buf, len)? };
        let patience = patience(socket.waits(flags));
        stream.write_at(bytes, offset.cast_unsigned(), patience).map_err(of_socket)
    }))
}
