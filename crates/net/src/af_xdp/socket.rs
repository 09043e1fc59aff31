//! Binds an AF_XDP socket to a queue of an interface.

#![allow(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::thread;
use std::time::Duration;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::sockopt;
use xsk_rs::Socket;
use xsk_rs::config::{BindFlags, Interface as Name, LibxdpFlags, QueueSize, SocketConfig};

use super::umem::{Frames, Memory, to_kernel};
use super::{OpenError, system_error};
use crate::neighbor::Interface;
use crate::port::BATCH;

/// A socket that is bound.
pub(super) struct Bound {
    pub(super) frames: Frames,
    /// Whether packets may lie in several frames: since Linux 6.6.
    pub(super) several_buffers: bool,
}

/// Makes a socket over new frame memory and binds it.
pub(super) fn bind(
    interface: &Interface,
    queue: u32,
    ring: QueueSize,
    zero_copy: bool,
) -> Result<Bound, OpenError> {
    let memory = Memory::new(ring)?;
    let copying = if zero_copy { BindFlags::XDP_ZEROCOPY } else { BindFlags::XDP_COPY };
    let config = |flags| {
        SocketConfig::builder()
            .rx_queue_size(ring)
            .tx_queue_size(to_kernel(ring))
            // libxdp's own program would take every frame of the queue.
            .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
            .bind_flags(copying | BindFlags::XDP_USE_NEED_WAKEUP | flags)
            .build()
    };
    let name: Name = interface.name.parse().expect("the kernel's names have no zero in them");

    let mut waited = Duration::ZERO;
    let mut several_buffers = true;
    let rings = loop {
        let flags = if several_buffers { BindFlags::XDP_USE_SG } else { BindFlags::empty() };
        // SAFETY: the memory's rings are used with this memory alone; both live in `Frames`.
        let error = match unsafe { Socket::new(config(flags), &memory.umem, &name, queue) } {
            Ok(rings) => break rings,
            Err(error) => system_error(&error),
        };
        match Errno::from_io_error(&error) {
            // A kernel that does not know the flag says so, as one without the queue does.
            Some(Errno::INVAL) if several_buffers => several_buffers = false,
            // A socket closed a moment ago has the queue until a worker of the kernel came by.
            Some(Errno::BUSY) if waited < BUSY_FOR => {
                thread::sleep(BUSY_PAUSE);
                waited += BUSY_PAUSE;
            }
            _ => return Err(explain(interface, queue, error)),
        }
    };
    let (tx, rx, Some((fill, completion))) = rings else {
        unreachable!("the first socket over its memory has all four rings");
    };
    let frames = memory.with_rings(tx, rx, fill, completion, BATCH);
    // libxdp does not ask for it; a program that the application starts would keep the queue.
    fcntl_setfd(frames.fd(), FdFlags::CLOEXEC)
        .map_err(|error| OpenError::system("keep a socket to itself", "nothing", error.into()))?;
    // With the ordinary limit the kernel refuses kicks while a receiver is slow. Without
    // CAP_NET_ADMIN it stays, and sending is slower.
    let _ = sockopt::set_socket_send_buffer_size_force(frames.fd(), SEND_BUFFER);
    Ok(Bound { frames, several_buffers })
}

/// How many queues the interface spreads what it receives over; 1 where its driver does not say.
pub(super) fn receive_queues(interface: &Interface) -> u32 {
    /// `struct ethtool_channels` of linux/ethtool.h.
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Channels {
        command: u32,
        most: [u32; 4],
        receive: u32,
        transmit: u32,
        other: u32,
        combined: u32,
    }
    let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Channels::default() };
    let answered = super::support::ethtool(interface, &mut channels);
    if answered { (channels.receive + channels.combined).max(1) } else { 1 }
}

fn explain(interface: &Interface, queue: u32, error: io::Error) -> OpenError {
    let interface = interface.name.clone();
    match Errno::from_io_error(&error) {
        Some(Errno::BUSY) => OpenError::QueueBusy { interface, queue },
        Some(Errno::INVAL) => OpenError::NoSuchQueue { interface, queue },
        Some(Errno::OPNOTSUPP) => {
            OpenError::Unsupported { interface, what: "zero-copy", source: error }
        }
        _ => OpenError::system("bind an AF_XDP socket", "CAP_NET_RAW", error),
    }
}

/// A busy machine may take this long to come by.
const BUSY_FOR: Duration = Duration::from_secs(3);
const BUSY_PAUSE: Duration = Duration::from_millis(2);
const SEND_BUFFER: usize = 8 << 20;

/// Of linux/ethtool.h.
const ETHTOOL_GCHANNELS: u32 = 0x3c;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::af_xdp::find;
    use crate::af_xdp::namespace::{Namespace, is_root};

    #[test]
    fn a_queue_has_one_socket() {
        if !is_root() {
            return;
        }
        let namespace = Namespace::new();
        let bind = || {
            let loopback = find("lo").expect("there is lo");
            bind(&loopback, 0, QueueSize::new(128).expect("a power of two"), false)
        };
        namespace.run(|| {
            let first = bind().expect("the queue is free").frames;
            let flags = rustix::io::fcntl_getfd(first.fd()).expect("it is open");
            assert!(flags.contains(FdFlags::CLOEXEC), "programs that are started have it too");
            let second = bind().err().expect("it is taken").to_string();
            assert_eq!(second, "queue 0 of lo belongs to another AF_XDP socket: end its process");
            drop(first);
            bind().expect("the kernel gives the queue back in time");
        });
    }
}
