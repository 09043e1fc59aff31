//! To wait for several sockets, and other descriptors among them.

use std::ffi::{c_int, c_short};
use std::iter::zip;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::slice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, fd_set, nfds_t, pollfd, timeval};
use roxe_verbs::sockets::{Bell, Stream};

use crate::errno::Done;
use crate::rdmacm::sockets::{Role, Rsocket, find, last_errno, number};

/// Nothing for the kernel to look at.
const NONE: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// What a program reads, beside POLLIN and POLLOUT, which say the same here.
const READS: c_short = POLLIN | libc::POLLRDNORM;
const WRITES: c_short = POLLOUT | libc::POLLWRNORM;

impl Rsocket {
    /// What has happened of what the program wants to know.
    fn happened(&self, wanted: c_short) -> c_short {
        if !self.life.goes_on() {
            // It is the parent's.
            return POLLNVAL;
        }
        match &*self.role() {
            Role::Bare(_) => 0,
            Role::Closed { .. } => POLLNVAL,
            Role::Listener(listener) => {
                if listener.is_ready() {
                    READS & wanted
                } else {
                    0
                }
            }
            Role::Stream(stream) => {
                // However busy the program is with others, one that is gone is to be found.
                stream.probe();
                let ready = stream.readiness();
                let mut happened = 0;
                for (is, events) in [
                    (ready.readable, READS & wanted),
                    (ready.writable, WRITES & wanted),
                    (ready.hung_up, POLLHUP),
                    (ready.failed, POLLERR),
                ] {
                    happened |= if is { events } else { 0 };
                }
                happened
            }
        }
    }

    /// What the kernel is to look at meanwhile. What a listener has stays until it is taken: who
    /// does not want to read would not sleep.
    fn to_sleep_at(&self, wanted: c_short) -> pollfd {
        match &*self.role() {
            Role::Listener(_) if wanted & READS == 0 => NONE,
            _ => pollfd { fd: self.number.as_raw_fd(), events: POLLIN, revents: 0 },
        }
    }
}

/// Has the kernel look.
fn look(fds: &mut [pollfd], timeout: c_int) -> Done<c_int> {
    // SAFETY: they are there.
    match unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as nfds_t, timeout) } {
        -1 => Err(last_errno()),
        found => Ok(found),
    }
}

/// Looks at all of them once. Says how many have something to tell.
fn look_at_all(fds: &mut [pollfd], sockets: &[Option<Arc<Rsocket>>]) -> Done<c_int> {
    let plain = |(fd, socket): (&pollfd, &Option<_>)| socket.is_none().then_some(*fd);
    let mut others: Vec<pollfd> = zip(&*fds, sockets).filter_map(plain).collect();
    if !others.is_empty() {
        look(&mut others, 0)?;
    }
    let (mut others, mut found) = (others.iter(), 0);
    for (fd, socket) in zip(fds, sockets) {
        fd.revents = match socket {
            Some(socket) => socket.happened(fd.events),
            None => others.next().map_or(0, |other| other.revents),
        };
        found += c_int::from(fd.revents != 0);
    }
    Ok(found)
}

/// Waits until one of them has something to tell, at most so many milliseconds; below 0 for ever.
fn wait(fds: &mut [pollfd], timeout: c_int) -> Done<c_int> {
    let sockets: Vec<_> = fds.iter().map(|fd| find(fd.fd)).collect();
    if sockets.iter().all(Option::is_none) {
        return look(fds, timeout);
    }
    let found = look_at_all(fds, &sockets)?;
    if found != 0 || timeout == 0 {
        return Ok(found);
    }
    let limit = u64::try_from(timeout).ok().map(Duration::from_millis);
    let deadline = limit.map(|limit| Instant::now() + limit);
    let bell = Bell::new().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
    loop {
        bell.hush();
        let streams: Vec<_> = sockets.iter().flatten().filter_map(|it| it.stream()).collect();
        let watches: Vec<_> = streams.iter().map(|stream| stream.watch(&bell)).collect();
        let found = look_at_all(fds, &sockets)?;
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if found != 0 || left.is_some_and(|left| left.is_zero()) {
            return Ok(found);
        }
        let sleeps = |(fd, socket): (&pollfd, &Option<Arc<Rsocket>>)| match socket {
            Some(socket) => socket.to_sleep_at(fd.events),
            None => pollfd { revents: 0, ..*fd },
        };
        let mut all: Vec<pollfd> = zip(&*fds, &sockets).map(sleeps).collect();
        all.push(pollfd { fd: bell.as_fd().as_raw_fd(), events: POLLIN, revents: 0 });
        // A part of a millisecond is one.
        let left = left.unwrap_or(Duration::MAX).min(Stream::PROBE_EVERY);
        let timeout = left.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX);
        look(&mut all, timeout)?;
        drop(watches);
    }
}

/// No process has more descriptors, whatever it asks for.
const MOST: usize = 1 << 30;

pub(crate) unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    let fds = match usize::try_from(nfds) {
        Ok(0) => Ok(Default::default()),
        Ok(1..=MOST) if fds.is_null() => Err(libc::EFAULT),
        // SAFETY: the program has so many.
        Ok(len @ 1..=MOST) => Ok(unsafe { slice::from_raw_parts_mut(fds, len) }),
        _ => Err(libc::EINVAL),
    };
    number(fds.and_then(|fds| wait(fds, timeout)))
}

/// A set of descriptors that a program has, or none.
#[derive(Clone, Copy)]
struct Set(*mut fd_set);

impl Set {
    /// # Safety
    /// The set is there; the descriptor is below FD_SETSIZE.
    unsafe fn has(self, fd: c_int) -> bool {
        // SAFETY: the caller promises it.
        !self.0.is_null() && unsafe { libc::FD_ISSET(fd, self.0) }
    }

    /// # Safety
    /// As [`Set::has`].
    unsafe fn add(self, fd: c_int) {
        // SAFETY: the caller promises it.
        unsafe { libc::FD_SET(fd, self.0) }
    }

    /// # Safety
    /// The set is there.
    unsafe fn clear(self) {
        if !self.0.is_null() {
            // SAFETY: the caller promises it.
            unsafe { libc::FD_ZERO(self.0) }
        }
    }
}

pub(crate) unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // What is wanted of each set, and what is told by it.
    let sets = [
        (Set(readfds), POLLIN, POLLIN | POLLHUP | POLLERR),
        (Set(writefds), POLLOUT, POLLOUT | POLLERR),
        (Set(exceptfds), libc::POLLPRI, libc::POLLPRI),
    ];
    // SAFETY: the program has made the sets, and says how long it waits.
    number(unsafe { select(nfds, sets, timeout.as_ref()) })
}

/// # Safety
/// The sets are there, or null.
unsafe fn select(
    nfds: c_int,
    sets: [(Set, c_short, c_short); 3],
    timeout: Option<&timeval>,
) -> Done<c_int> {
    if !(0..=libc::FD_SETSIZE as c_int).contains(&nfds) {
        return Err(libc::EINVAL);
    }
    let timeout = match timeout {
        None => -1,
        Some(timeval { tv_sec, tv_usec }) if *tv_sec < 0 || *tv_usec < 0 => {
            return Err(libc::EINVAL);
        }
        Some(timeval { tv_sec, tv_usec }) => {
            let left = tv_sec.saturating_mul(1000).saturating_add((tv_usec + 999) / 1000);
            c_int::try_from(left).unwrap_or(c_int::MAX)
        }
    };
    let mut fds = Vec::new();
    for fd in 0..nfds {
        let mut events = 0;
        for (set, wanted, _) in sets {
            // SAFETY: the caller promises that the set is there.
            events |= if unsafe { set.has(fd) } { wanted } else { 0 };
        }
        if events != 0 {
            fds.push(pollfd { fd, events, revents: 0 });
        }
    }
    wait(&mut fds, timeout)?;
    if fds.iter().any(|fd| fd.revents & POLLNVAL != 0) {
        return Err(libc::EBADF);
    }
    let mut told = 0;
    for (set, wanted, means) in sets {
        // SAFETY: as above; the descriptors are those that were in it.
        unsafe {
            set.clear();
            for fd in fds.iter().filter(|it| it.events & wanted != 0 && it.revents & means != 0) {
                set.add(fd.fd);
                told += 1;
            }
        }
    }
    Ok(told)
}
