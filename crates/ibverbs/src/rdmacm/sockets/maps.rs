//! Memory of the program that the peer may write into.

use std::ffi::{c_int, c_void};

use libc::off_t;
use roxe_verbs::sockets::Exposed;
use roxe_verbs::{AccessFlags, ProgramRange};

use crate::errno::{self, Done};
use crate::rdmacm::sockets::{of_socket, stream_of};

/// Opens memory to the peer under an offset; -1 is its address. Without PROT_WRITE it is only
/// known here.
pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    // SAFETY: the program opens its memory.
    unsafe { map(socket, buf, len, prot, offset) }.unwrap_or_else(|errno| {
        errno::set(errno);
        -1
    })
}

unsafe fn map(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    offset: off_t,
) -> Done<off_t> {
    let (socket, stream) = stream_of(socket)?;
    if prot & !libc::PROT_WRITE != 0 || u32::try_from(len).is_err() {
        return Err(libc::EINVAL);
    }
    let start = buf.expose_provenance() as u64;
    let offset = if offset == -1 { start.cast_signed() } else { offset };
    if prot == libc::PROT_NONE {
        socket.settings().kept.push((start, len as u64));
        return Ok(offset);
    }
    let range = ProgramRange { start, len: len as u64, va: start };
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    // SAFETY: the program opens its memory.
    let region = unsafe { stream.context().default_pd().register_program(range, access) };
    let exposed = Exposed::program(region.map_err(errno::of)?, range);
    stream.open(exposed, offset.cast_unsigned()).map_err(of_socket)?;
    Ok(offset)
}

pub(crate) extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> c_int {
    errno::negative(stream_of(socket).and_then(|(socket, stream)| {
        let (start, len) = (buf.addr() as u64, len as u64);
        if stream.shut(start, len) {
            return Ok(());
        }
        let kept = &mut socket.settings().kept;
        let at = kept.iter().position(|known| *known == (start, len)).ok_or(libc::EINVAL)?;
        kept.swap_remove(at);
        Ok(())
    }))
}
