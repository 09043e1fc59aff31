//! Ports of the processes of one host, joined, for whoever has several programs and no network.
//!
//! Every frame reaches every port of the host, in whatever process, that of the sender included:
//! who is meant is for the device to see. So two processes may even have one address, as programs
//! have that share a card. Frames are carried whole, in datagrams to a group that stays on
//! loopback; no privilege is needed. A network namespace is a host of its own.
//!
//! A port has a seat, a small number that no other port of the host has while it is there. It goes
//! with the process, however that ends, and with those that the process forked and that did not
//! become another program.
//!
//! What else only one of all processes may have goes by names, which a [`Keeper`] has.
//!
//! # Counters
//!
//! Besides those of every port:
//!
//! | name | counts |
//! |---|---|
//! | `tx_refused` | packets that the kernel refused |
//! | `rx_socket_overflow` | datagrams that the kernel dropped because too many waited |

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use roxe_wire::{Instant, Mtu, RawFrame, Received, Room};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recv,
    sendto, socket_with, sockopt,
};

use crate::doorbell::Doorbell;
use crate::framing::{Framer, MAX_AROUND_PAYLOAD};
use crate::port::{
    Arrival, BATCH, Capabilities, FramePort, HeadersOf, IN_VAIN, Outgoing, Sent, Traffic, Wake,
    packets_to,
};
use crate::{Sleeper, Waker};

mod name;

pub use name::{Keeper, Names};

/// A port on the host's own network.
#[derive(Debug)]
pub struct HostPort {
    capabilities: Capabilities,
    socket: OwnedFd,
    seat: u32,
    /// Its name is what makes the seat ours.
    _seat: OwnedFd,
    bell: Doorbell,
    framer: Framer,
    /// The frame being written.
    outgoing: Vec<u8>,
    /// The frame being handed up.
    arrived: Vec<u8>,
    traffic: Traffic,
    tx_refused: u64,
}

impl HostPort {
    /// Ports that a host can have at once.
    pub const SEATS: u32 = 64;

    /// Opens a port in the calling thread's network namespace.
    ///
    /// # Errors
    /// All seats are taken (`EADDRINUSE`), loopback is not up (`ENETUNREACH`, `ENODEV`), or the
    /// process has no file descriptor left.
    pub fn open() -> io::Result<Self> {
        let path_mtu = Mtu::B4096;
        let socket = join()?;
        let (seat, holds) = take_seat()?;
        let max_frame = path_mtu.bytes() as usize + MAX_AROUND_PAYLOAD;
        Ok(Self {
            capabilities: Capabilities {
                path_mtu,
                zero_copy: false,
                verifies_icrc: true,
                headers: HeadersOf::Path,
                summary: format!("this host: seat {seat}, path MTU {path_mtu}"),
            },
            socket,
            seat,
            _seat: holds,
            bell: Doorbell::new()?,
            framer: Framer::new(max_frame),
            outgoing: vec![0; max_frame],
            // A byte more than any frame: what is longer is seen to be.
            arrived: vec![0; max_frame + 1],
            traffic: Traffic::default(),
            tx_refused: 0,
        })
    }

    /// Which of the [`HostPort::SEATS`] it has.
    pub const fn seat(&self) -> u32 {
        self.seat
    }

    /// Hands up what has arrived, at most a batch. Says how many packets.
    fn hand_up(&mut self, mut sink: impl FnMut(Arrival<'_>)) -> usize {
        let mut packets = 0;
        for _ in 0..BATCH * IN_VAIN {
            let len = match recv(&self.socket, &mut self.arrived[..], RecvFlags::empty()) {
                Ok((len, _)) => len,
                Err(Errno::INTR) => continue,
                Err(_) => break,
            };
            let frame = RawFrame::ethernet(&self.arrived[..len]);
            packets += usize::from(self.traffic.hand_up(frame, &mut sink));
            if packets == BATCH {
                break;
            }
        }
        packets
    }
}

impl FramePort for HostPort {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, _now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        self.hand_up(packets_to(sink))
    }

    fn receive_all(&mut self, _now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        self.hand_up(sink)
    }

    fn transmit<'p>(
        &mut self,
        _now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        let Self { framer, outgoing, traffic, socket, tx_refused, .. } = self;
        framer.send_each(outgoing, traffic, source, |frame| {
            let went = sendto(&*socket, frame, SendFlags::empty(), &ALL).is_ok();
            // Else it is lost, as a network would lose it.
            *tx_refused += u64::from(!went);
            went
        })
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        self.bell.wait(Some(self.socket.as_fd()), timeout)
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        Ok(timeout)
    }

    fn due(&self) -> Option<Duration> {
        None
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        self.bell.sleeper(Some(self.socket.as_fd()), Duration::ZERO)
    }

    fn waker(&self) -> Waker {
        self.bell.waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.traffic.counters();
        counters.push(("tx_refused", self.tx_refused));
        let overflow = crate::udp::drops(self.socket.as_fd()).unwrap_or_default();
        counters.push(("rx_socket_overflow", overflow));
        counters
    }
}

/// A socket that hears all that is said on the host, and says it there only.
fn join() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST)?;
    sockopt::set_ip_multicast_loop(&socket, true)?;
    sockopt::set_ip_multicast_ttl(&socket, 0)?;
    // Beyond what the system grants everybody, if it lets us.
    if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
    }
    crate::udp::hear_own_groups_only(&socket)?;
    bind(&socket, &ALL)?;
    sockopt::set_ip_add_membership(&socket, &GROUP, &Ipv4Addr::LOCALHOST)?;
    Ok(socket)
}

/// The first free seat, and what keeps it: a name, which the kernel gives to one at a time.
fn take_seat() -> io::Result<(u32, OwnedFd)> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    for seat in 0..HostPort::SEATS {
        let name = SocketAddrUnix::new_abstract_name(format!("roxe-seat/{seat}").as_bytes())?;
        match bind(&socket, &name) {
            Ok(()) => return Ok((seat, socket)),
            Err(Errno::ADDRINUSE) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::ADDRINUSE.into())
}

/// Of the addresses that networks give out as they like.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 47, 91);

/// Where all ports hear. Nobody else has the number.
const ALL: SocketAddr = SocketAddr::V4(SocketAddrV4::new(GROUP, 47911));

/// Bytes of the receive buffer.
const BUFFER: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_free_when_its_port_has_gone() {
        let [one, two] = [(); 2].map(|()| HostPort::open().unwrap());
        assert_ne!(one.seat(), two.seat());
        assert!(one.seat() < HostPort::SEATS);
        drop(two);
        // Other tests may have ports too; there are more seats than all of them take.
        let _again = HostPort::open().unwrap();
    }

    #[test]
    fn what_one_says_all_hear_and_what_is_no_frame_is_counted() {
        let [one, mut two] = [(); 2].map(|()| HostPort::open().unwrap());
        sendto(&one.socket, b"no frame", SendFlags::empty(), &ALL).unwrap();
        while two.receive_all(Instant::ZERO, &mut |_| ()) == 0 {
            let thrown_away = |(name, count): &(&str, u64)| !name.starts_with("tx") && *count > 0;
            if two.counters().iter().any(thrown_away) {
                return;
            }
            two.wait(Duration::from_secs(1));
        }
    }
}
