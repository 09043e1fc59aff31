//! What can be set and asked of a socket.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_long, c_void};

use libc::{IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET, linger, socklen_t};
use roxe_verbs::sockets::StreamOptions;

use crate::errno::{self, Done};
use crate::rdmacm::sockets::{Role, Rsocket, number, of};

/// The level of options that only these sockets have.
const SOL_RDMA: c_int = 0x10000;
const RDMA_SQSIZE: c_int = 0;
const RDMA_RQSIZE: c_int = 1;
const RDMA_INLINE: c_int = 2;
const RDMA_IOMAPSIZE: c_int = 3;
const RDMA_ROUTE: c_int = 4;

/// Options that a program may set and finds again, and what they are before. There is nothing for
/// them to do: what is sent goes at once, whoever waits asks now and then whether the peer is
/// there, and ports are free as soon as nobody has them.
const REMEMBERED: [(c_int, c_int, c_int); 9] = [
    (SOL_SOCKET, libc::SO_REUSEADDR, 0),
    (SOL_SOCKET, libc::SO_KEEPALIVE, 0),
    (SOL_SOCKET, libc::SO_OOBINLINE, 0),
    (IPPROTO_TCP, libc::TCP_NODELAY, 0),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE, 7200),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL, 1),
    (IPPROTO_TCP, libc::TCP_KEEPCNT, 1),
    (IPPROTO_IPV6, libc::IPV6_V6ONLY, 0),
    (IPPROTO_IP, libc::IP_TOS, 0),
];

/// What a program has set.
#[derive(Clone)]
pub(super) struct Settings {
    /// `F_SETFL`, `F_SETFD`.
    pub(super) status_flags: c_int,
    descriptor_flags: c_int,
    pub(super) stream: StreamOptions,
    remembered: BTreeMap<(c_int, c_int), c_int>,
    linger: (c_int, c_int),
    /// Memory of the program that is not open to the peer: where, and how many bytes.
    pub(super) kept: Vec<(u64, u64)>,
}

impl Settings {
    pub(super) fn new(status_flags: c_int, descriptor_flags: c_int) -> Self {
        Self {
            status_flags,
            descriptor_flags,
            stream: StreamOptions::default(),
            remembered: BTreeMap::new(),
            linger: (1, 0),
            kept: Vec::new(),
        }
    }

    /// Whether any address of IPv6 is none of IPv4.
    pub(super) fn is_of_one_family(&self) -> bool {
        self.remembered.get(&(IPPROTO_IPV6, libc::IPV6_V6ONLY)).is_some_and(|&set| set != 0)
    }
}

/// The number in options of a stream that an option sets, if it is one.
const fn size_in(options: &mut StreamOptions, level: c_int, name: c_int) -> Option<&mut u32> {
    Some(match (level, name) {
        (SOL_SOCKET, libc::SO_RCVBUF) => &mut options.receive_buffer,
        (SOL_SOCKET, libc::SO_SNDBUF) => &mut options.send_buffer,
        (SOL_RDMA, RDMA_SQSIZE) => &mut options.send_queue,
        (SOL_RDMA, RDMA_RQSIZE) => &mut options.receive_queue,
        (SOL_RDMA, RDMA_INLINE) => &mut options.inline,
        (SOL_RDMA, RDMA_IOMAPSIZE) => &mut options.maps,
        _ => return None,
    })
}

impl Rsocket {
    fn set(&self, level: c_int, name: c_int, value: c_int) -> Done {
        let role = self.role();
        let settings = &mut *self.settings();
        if let Some(size) = size_in(&mut settings.stream, level, name) {
            if matches!(*role, Role::Stream(_)) {
                // Buffers stay as they are; who sets a queue wants to know.
                return if level == SOL_SOCKET { Ok(()) } else { Err(libc::EINVAL) };
            }
            let given = value.cast_unsigned();
            // A buffer is twice as large as what a program says, as everywhere.
            *size = if level == SOL_SOCKET { given.saturating_mul(2) } else { given };
        } else if REMEMBERED.iter().any(|&(at, known, _)| (at, known) == (level, name)) {
            if (level, name) == (IPPROTO_TCP, libc::TCP_KEEPIDLE) && value <= 0 {
                return Err(libc::EINVAL);
            }
            settings.remembered.insert((level, name), value);
            if (level, name) == (IPPROTO_IP, libc::IP_TOS) {
                settings.stream.traffic_class = value as u8;
            }
        } else if !matches!(
            (level, name),
            (IPPROTO_TCP, libc::TCP_MAXSEG | libc::TCP_CONGESTION) | (SOL_RDMA, RDMA_ROUTE)
        ) {
            // On an Ethernet a route is known with the address.
            return Err(libc::EOPNOTSUPP);
        }
        if let Role::Listener(listener) = &*role {
            listener.set_options(settings.stream);
        }
        Ok(())
    }

    fn get(&self, level: c_int, name: c_int) -> Done<c_int> {
        let role = self.role();
        let settings = &*self.settings();
        let mut options = match &*role {
            Role::Stream(stream) => stream.options(),
            _ => settings.stream,
        };
        if let Some(size) = size_in(&mut options, level, name) {
            return Ok(c_int::try_from(*size).unwrap_or(c_int::MAX));
        }
        match (level, name, &*role) {
            (SOL_SOCKET, libc::SO_ERROR, Role::Stream(stream)) => {
                // What happened meanwhile is seen to first.
                stream.readiness();
                return Ok(stream.take_error().map_or(0, |error| error.errno()));
            }
            (SOL_SOCKET, libc::SO_ERROR, _) => return Ok(0),
            (SOL_SOCKET, libc::SO_TYPE, _) => return Ok(libc::SOCK_STREAM),
            (SOL_SOCKET, libc::SO_ACCEPTCONN, _) => {
                return Ok(matches!(*role, Role::Listener(_)).into());
            }
            (IPPROTO_TCP, libc::TCP_MAXSEG, Role::Stream(stream)) => {
                return Ok(stream.context().path_mtu().bytes().try_into().unwrap_or(c_int::MAX));
            }
            (IPPROTO_TCP, libc::TCP_MAXSEG, _) => return Ok(2048),
            _ => {}
        }
        let known = REMEMBERED.iter().find(|&&(at, known, _)| (at, known) == (level, name));
        let &(_, _, before) = known.ok_or(libc::EOPNOTSUPP)?;
        Ok(settings.remembered.get(&(level, name)).copied().unwrap_or(before))
    }
}

/// # Safety
/// It has so many bytes.
unsafe fn value<T>(optval: *const c_void, optlen: socklen_t) -> Done<T> {
    if optval.is_null() || (optlen as usize) < size_of::<T>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller promises it.
    Ok(unsafe { optval.cast::<T>().read_unaligned() })
}

/// # Safety
/// There is room for as much as the length says.
unsafe fn give<T>(of: T, optval: *mut c_void, optlen: *mut socklen_t) -> Done {
    // SAFETY: the caller promises it.
    unsafe {
        if optval.is_null() || optlen.is_null() || (*optlen as usize) < size_of::<T>() {
            return Err(libc::EINVAL);
        }
        optval.cast::<T>().write_unaligned(of);
        *optlen = size_of::<T>() as socklen_t;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    errno::negative(of(socket).and_then(|socket| {
        if (level, optname) == (SOL_SOCKET, libc::SO_LINGER) {
            // SAFETY: the program says how long it is.
            let linger { l_onoff, l_linger } = unsafe { value(optval, optlen)? };
            socket.settings().linger = (l_onoff, l_linger);
            return Ok(());
        }
        // SAFETY: as above.
        socket.set(level, optname, unsafe { value(optval, optlen)? })
    }))
}

pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    errno::negative(of(socket).and_then(|socket| {
        if (level, optname) == (SOL_SOCKET, libc::SO_LINGER) {
            let (l_onoff, l_linger) = socket.settings().linger;
            // SAFETY: the program says how much room there is.
            return unsafe { give(linger { l_onoff, l_linger }, optval, optlen) };
        }
        let found = socket.get(level, optname)?;
        // SAFETY: as above.
        unsafe { give(found, optval, optlen) }
    }))
}

/// The last argument may be missing; then nobody looks at it.
pub(crate) extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    number(of(socket).and_then(|socket| {
        let settings = &mut *socket.settings();
        let flags = match cmd {
            libc::F_GETFL | libc::F_SETFL => &mut settings.status_flags,
            libc::F_GETFD | libc::F_SETFD => &mut settings.descriptor_flags,
            _ => return Err(libc::EOPNOTSUPP),
        };
        if matches!(cmd, libc::F_GETFL | libc::F_GETFD) {
            return Ok(*flags);
        }
        *flags = arg as c_int;
        Ok(0)
    }))
}
