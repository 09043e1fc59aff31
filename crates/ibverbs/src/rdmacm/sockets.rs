//! Sockets over RDMA: how they come to be, and end.
//!
//! What a program calls a socket is the number of a descriptor of ours, which is readable when
//! something may have happened to it: it cannot be another's meanwhile, and `rpoll` sleeps at it as
//! at any other. What a socket is lies in [`roxe_verbs::sockets`]; here is which it is, and what
//! the program has set.
//!
//! | question | file |
//! |---|---|
//! | bytes that are sent and read | `transfer.rs` |
//! | what can be set and asked | `options.rs` |
//! | to wait for several sockets and other descriptors | `poll.rs` |
//! | memory that the peer may write into | `maps.rs` |

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use std::{mem, ptr};

use libc::{sockaddr, socklen_t};
use roxe_verbs::sockets::{Bell, How, Patience, Socket, SocketError, Stream, StreamListener};

use crate::errno::{self, Done};
use crate::rdmacm::adapter::{self, Adapter};
use crate::rdmacm::address;
use crate::rdmacm::connect::MOST_WAITING;
use crate::session::Life;
use crate::stories;

pub(crate) mod maps;
pub(crate) mod options;
pub(crate) mod poll;
pub(crate) mod transfer;

use options::Settings;

/// A socket of the program.
struct Rsocket {
    life: Life,
    /// Its number. Readable when what it stands for is.
    number: OwnedFd,
    is_ipv6: bool,
    role: Mutex<Role>,
    settings: Mutex<Settings>,
}

/// What it is.
enum Role {
    /// Nothing yet, but perhaps bound.
    Bare(Option<Socket>),
    Listener(Arc<StreamListener>),
    Stream(Arc<Stream>),
    /// Nothing any more. The bell rings at its number for those that wait there.
    Closed {
        _bell: Bell,
    },
}

static ALL: RwLock<BTreeMap<c_int, Arc<Rsocket>>> = RwLock::new(BTreeMap::new());

/// That with a number, if it is one.
fn find(number: c_int) -> Option<Arc<Rsocket>> {
    let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
    all.get(&number).cloned()
}

/// That with a number.
fn of(number: c_int) -> Done<Arc<Rsocket>> {
    let socket = find(number).ok_or(libc::EBADF)?;
    if socket.life.goes_on() { Ok(socket) } else { Err(libc::EIO) }
}

/// The stream with a number.
fn stream_of(number: c_int) -> Done<(Arc<Rsocket>, Arc<Stream>)> {
    let socket = of(number)?;
    let stream = socket.stream().ok_or(libc::ENOTCONN)?;
    Ok((socket, stream))
}

fn of_socket(error: SocketError) -> c_int {
    error.errno()
}

/// The same of who waits for a connection.
fn of_waiting(error: SocketError) -> c_int {
    match error {
        // Another thread has closed the socket.
        SocketError::ShutDown => libc::EBADF,
        error => of_socket(error),
    }
}

/// How long a call waits: not at all, or until a signal ends it.
const fn patience(waits: bool) -> Patience<'static> {
    if waits { Patience::Unless(&crate::signals::end_waits) } else { Patience::None }
}

impl Rsocket {
    fn make(is_ipv6: bool, role: Role, settings: Settings) -> Done<c_int> {
        // SAFETY: it makes a descriptor, which nobody else has.
        let number = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                -1 => return Err(last_errno()),
                made => OwnedFd::from_raw_fd(made),
            }
        };
        let (role, settings) = (Mutex::new(role), Mutex::new(settings));
        let socket = Self { life: Life::now(), number, is_ipv6, role, settings };
        if let Role::Stream(stream) = &*socket.role() {
            socket.add(stream.as_fd())?;
        }
        let number = socket.number.as_raw_fd();
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        // One that a process left behind which forked, and closed the descriptor of, is nobody's.
        if let Some(left) = all.insert(number, Arc::new(socket)) {
            mem::forget(left);
        }
        Ok(number)
    }

    fn stream(&self) -> Option<Arc<Stream>> {
        match &*self.role() {
            Role::Stream(stream) => Some(Arc::clone(stream)),
            _ => None,
        }
    }

    fn role(&self) -> MutexGuard<'_, Role> {
        self.role.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number is readable when that is.
    fn add(&self, what: BorrowedFd<'_>) -> Done {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        let (number, what) = (self.number.as_raw_fd(), what.as_raw_fd());
        // SAFETY: both are open.
        match unsafe { libc::epoll_ctl(number, libc::EPOLL_CTL_ADD, what, &raw mut event) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// What it is when it is closed: whoever sleeps at its number wakes.
    fn closed(&self) -> Role {
        let Ok(bell) = Bell::new() else { return Role::Bare(None) };
        bell.ring();
        // Without room for it they find out when something else wakes them.
        let _ = self.add(bell.as_fd());
        Role::Closed { _bell: bell }
    }

    /// Whether calls with these flags wait.
    fn waits(&self, flags: c_int) -> bool {
        flags & libc::MSG_DONTWAIT == 0 && self.settings().status_flags & libc::O_NONBLOCK == 0
    }

    fn any_address(&self) -> SocketAddr {
        let any: IpAddr = match self.is_ipv6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        SocketAddr::new(any, 0)
    }

    fn bound(&self, address: SocketAddr) -> Done<Socket> {
        let mut socket = of_adapters(adapter::all())?;
        let one_family = self.settings().is_of_one_family();
        socket.bind(address, one_family).map_err(|error| {
            let errno = errno::of(error);
            if errno == libc::EADDRNOTAVAIL {
                adapter::tell_of_stranger(address.ip());
            }
            errno
        })?;
        Ok(socket)
    }

    fn bind(&self, address: SocketAddr) -> Done {
        match &mut *self.role() {
            Role::Bare(bound @ None) => {
                *bound = Some(self.bound(address)?);
                Ok(())
            }
            _ => Err(libc::EINVAL),
        }
    }

    fn listen(&self, backlog: c_int) -> Done {
        let mut role = self.role();
        let Role::Bare(bound) = &mut *role else {
            return if matches!(*role, Role::Listener(_)) { Ok(()) } else { Err(libc::EINVAL) };
        };
        let bound = match bound.take() {
            Some(bound) => bound,
            None => self.bound(self.any_address())?,
        };
        let most = usize::try_from(backlog).ok().filter(|&backlog| backlog != 0);
        let options = self.settings().stream;
        let listener = bound.listen(most.unwrap_or(MOST_WAITING), options).map_err(errno::of)?;
        self.add(listener.as_fd())?;
        *role = Role::Listener(Arc::new(listener));
        Ok(())
    }

    fn accept(&self) -> Done<(c_int, Option<SocketAddr>)> {
        let listener = match &*self.role() {
            Role::Listener(listener) => Arc::clone(listener),
            _ => return Err(libc::EINVAL),
        };
        let accepted = listener.accept(patience(self.waits(0)));
        let stream = accepted.map_err(of_waiting)?;
        let peer = stream.peer_address();
        let settings = self.settings().clone();
        let made = Self::make(self.is_ipv6, Role::Stream(Arc::new(stream)), settings)?;
        Ok((made, peer))
    }

    fn connect(&self, destination: SocketAddr) -> Done {
        let stream = match &mut *self.role() {
            Role::Listener(_) => return Err(libc::EINVAL),
            Role::Closed { .. } => return Err(libc::EBADF),
            // It stood once, and does not again.
            Role::Stream(stream) if stream.is_shut_down() => return Err(libc::EISCONN),
            Role::Stream(stream) => Arc::clone(stream),
            role @ Role::Bare(_) => {
                let Role::Bare(bound) = role else { return Err(libc::EINVAL) };
                let socket = match bound.take() {
                    Some(bound) => bound,
                    None => of_adapters(adapter::towards(destination.ip()))?,
                };
                let options = self.settings().stream;
                let stream = Arc::new(socket.connect(destination, options).map_err(errno::of)?);
                self.add(stream.as_fd())?;
                *role = Role::Stream(Arc::clone(&stream));
                stream
            }
        };
        // The peer is asked before the call returns: nobody may look at the socket for long. How it
        // ended is told below.
        let _ = stream.wait_asked(patience(true));
        match stream.wait_connected(patience(self.waits(0))) {
            Err(SocketError::WouldBlock) => Err(libc::EINPROGRESS),
            connected => connected.map_err(of_waiting),
        }
    }
}

fn of_adapters(adapters: Vec<&'static Adapter>) -> Done<Socket> {
    if adapters.is_empty() {
        return Err(libc::ENODEV);
    }
    Socket::new(adapters.into_iter().map(|adapter| &adapter.context)).map_err(errno::of)
}

fn last_errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Gives an address to the program, as much as there is room for.
///
/// # Safety
/// There is room for as many bytes as the length says, or they are null.
unsafe fn give(of: Option<SocketAddr>, to: *mut sockaddr, len: *mut socklen_t) -> Done {
    if to.is_null() || len.is_null() {
        return Ok(());
    }
    let of = of.ok_or(libc::ENOTCONN)?;
    let storage = address::write(of);
    let whole = match of {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    // SAFETY: the caller promises it.
    unsafe {
        let room = whole.min(*len as usize);
        ptr::from_ref(&storage).cast::<u8>().copy_to_nonoverlapping(to.cast(), room);
        *len = whole as socklen_t;
    }
    Ok(())
}

/// What a function says that says a number, or -1 and errno.
fn number(made: Done<c_int>) -> c_int {
    made.unwrap_or_else(|errno| errno::negative(Err(errno)))
}

pub(crate) extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    number(make(domain, kind, protocol))
}

/// No program comes further without one.
const NO_DATAGRAMS: &str =
    "datagram sockets over RDMA (rsocket with SOCK_DGRAM) are not in this library";

fn make(domain: c_int, kind: c_int, protocol: c_int) -> Done<c_int> {
    let flags = kind & (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    match (domain, kind & !flags, protocol) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => {}
        (_, libc::SOCK_DGRAM, _) => {
            stories::of_what_is_missing(NO_DATAGRAMS);
            return Err(libc::EOPNOTSUPP);
        }
        _ => return Err(libc::EOPNOTSUPP),
    }
    if adapter::all().is_empty() {
        return Err(libc::ENODEV);
    }
    let settings = Settings::new(
        if flags & libc::SOCK_NONBLOCK != 0 { libc::O_NONBLOCK } else { 0 },
        if flags & libc::SOCK_CLOEXEC != 0 { libc::FD_CLOEXEC } else { 0 },
    );
    Rsocket::make(domain == libc::AF_INET6, Role::Bare(None), settings)
}

pub(crate) unsafe extern "C" fn rbind(
    socket: c_int,
    addr: *const sockaddr,
    _addrlen: socklen_t,
) -> c_int {
    // SAFETY: the program says where.
    let address = unsafe { address::read(addr) };
    errno::negative(of(socket).and_then(|socket| socket.bind(address?)))
}

pub(crate) extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    errno::negative(of(socket).and_then(|socket| socket.listen(backlog)))
}

pub(crate) unsafe extern "C" fn raccept(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    number(of(socket).and_then(|socket| {
        let (made, peer) = socket.accept()?;
        // SAFETY: the program has room for as much as it says.
        unsafe { give(peer, addr, addrlen)? };
        Ok(made)
    }))
}

pub(crate) unsafe extern "C" fn rconnect(
    socket: c_int,
    addr: *const sockaddr,
    _addrlen: socklen_t,
) -> c_int {
    // SAFETY: the program says where to.
    let address = unsafe { address::read(addr) };
    errno::negative(of(socket).and_then(|socket| socket.connect(address?)))
}

pub(crate) extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    errno::negative(stream_of(socket).and_then(|(_, stream)| {
        let how = match how {
            libc::SHUT_RD => How::Read,
            libc::SHUT_WR => How::Write,
            libc::SHUT_RDWR => How::Both,
            _ => return Err(libc::EINVAL),
        };
        // It waits whatever the socket is set to: what was sent is with the peer then.
        stream.shutdown(how, patience(true)).map_err(of_socket)
    }))
}

/// How long `rclose` waits for a peer that takes nothing of what was sent.
const STALL: Duration = Duration::from_secs(10);

pub(crate) extern "C" fn rclose(socket: c_int) -> c_int {
    errno::negative(close(socket))
}

fn close(number: c_int) -> Done {
    let found = {
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        all.remove(&number).ok_or(libc::EBADF)?
    };
    if !found.life.goes_on() {
        // What it stands for is not ours to end, but its descriptor is ours too.
        // SAFETY: nobody uses it: it is not in the list.
        unsafe { libc::close(number) };
        mem::forget(found);
        return Ok(());
    }
    let closed = found.closed();
    let role = mem::replace(&mut *found.role(), closed);
    match role {
        Role::Listener(listener) => listener.close(),
        // A connection that does not stand ends with the stream.
        Role::Stream(stream) => drop(stream.close(STALL)),
        _ => {}
    }
    Ok(())
}

/// Streams whose peers are told that they end: dropped, they are waited for.
pub(crate) struct LastWords(Vec<Arc<Stream>>);

impl LastWords {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The process ends. All peers are told before any is waited for, and whoever still uses a socket.
pub(crate) fn part_from_all() -> LastWords {
    let all = mem::take(&mut *ALL.write().unwrap_or_else(PoisonError::into_inner));
    let mut streams = Vec::new();
    for socket in all.into_values() {
        if !socket.life.goes_on() {
            // It is the parent's, which still uses it.
            mem::forget(socket);
            continue;
        }
        match mem::replace(&mut *socket.role(), Role::Bare(None)) {
            Role::Stream(stream) => {
                let _ = stream.shutdown(How::Both, Patience::None);
                streams.push(stream);
            }
            role => drop(role),
        }
    }
    LastWords(streams)
}

pub(crate) unsafe extern "C" fn rgetpeername(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    errno::negative(stream_of(socket).and_then(|(_, stream)| {
        // SAFETY: the program has room for as much as it says.
        unsafe { give(stream.peer_address(), addr, addrlen) }
    }))
}

pub(crate) unsafe extern "C" fn rgetsockname(
    socket: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    errno::negative(of(socket).and_then(|socket| {
        let known = match &*socket.role() {
            Role::Bare(bound) => bound.as_ref().and_then(Socket::local_address),
            Role::Listener(listener) => Some(listener.local_address()),
            Role::Stream(stream) => stream.local_address(),
            Role::Closed { .. } => return Err(libc::EBADF),
        };
        let known = known.unwrap_or_else(|| socket.any_address());
        // SAFETY: as above.
        unsafe { give(Some(known), addr, addrlen) }
    }))
}
