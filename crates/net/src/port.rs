//! What every port can do: packets in, packets out, and a wait that others can end.
//!
//! A port frames what the engine sends and takes apart what arrives, so that above it nobody sees
//! Ethernet, IP or UDP. Nothing is lent that could be lost: the engine passes a closure for each
//! direction, which is called once a packet with the port's own memory, and the port keeps the
//! frame on every way out. So a port may hold its packets as it likes: UMEM chunks, super-packets
//! that a socket segments, descriptors in rings shared with a daemon; and a port that wraps
//! another one calls the inner port with a closure around the caller's.
//!
//! ```
//! use roxe_net::{FramePort, memory};
//! use roxe_wire::{Instant, Mtu};
//!
//! # fn main() -> std::io::Result<()> {
//! let [mut here, mut there] = memory::pair(Mtu::B1024)?;
//! let now = Instant::ZERO;
//! // The engine writes the next packet into `room`, or has none.
//! let sent = here.transmit(now, &mut |_room| None);
//! assert_eq!((sent.packets, sent.more), (0, false));
//! // The engine handles each packet while the port lends its bytes.
//! assert_eq!(there.receive(now, &mut |packet| drop(packet)), 0);
//! # Ok(())
//! # }
//! ```
//!
//! # Counters
//!
//! Names are stable; every port has the first table, each adds its own.
//!
//! | name | counts |
//! |---|---|
//! | `rx_packets`, `rx_bytes` | packets handed up; their bytes from BTH to ICRC |
//! | `tx_packets`, `tx_bytes` | packets given to the network; their bytes from BTH to ICRC |
//! | `tx_no_room` | times a packet could have been sent, but no frame was free |
//! | `tx_unsendable` | packets of the engine that do not fit the port, thrown away |
//! | a name of [`DropReason`] | frames that arrived and are no RoCEv2 packet, by what is wrong |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use roxe_wire::{DropReason, Frame, FrameTemplate, Instant, Mtu, RawFrame, Received, Room};

use crate::{Sleeper, Waker};

/// A place where packets come from and go to.
///
/// One thread at a time drives a port; only its [`Waker`] and its [`Sleeper`] are for others.
pub trait FramePort {
    /// What the port can do. Does not change.
    fn capabilities(&self) -> &Capabilities;

    /// Hands up what has arrived, at most a batch, a call of `sink` for each packet. Says how many;
    /// 0 when nothing is there, or for a few batches nothing that is a packet: what is behind those
    /// stays, and ends a wait. The ICRC is not checked here.
    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize;

    /// Whether [`FramePort::receive`] may have something to do; `false` is sure, and found out for
    /// less than a call of it costs.
    fn may_receive(&mut self) -> bool {
        true
    }

    /// [`FramePort::receive`] for whoever wants to see more: a call of `sink` for each frame, with
    /// the frame itself, and with those that are thrown away because they are no packet. Says how
    /// many packets.
    fn receive_all(&mut self, now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize;

    /// Sends what `source` has, at most a batch. `source` is lent room for one packet from BTH to
    /// ICRC, and says what it wrote; `None` ends the batch. All that was written has been given to
    /// the network when this returns, as far as the network takes it.
    fn transmit<'p>(
        &mut self,
        now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent;

    /// Sleeps until something arrives, somebody calls [`Waker::wake`], a full port may have room
    /// again, or `timeout` has passed. A call of `wake` since the last wait ends it at once.
    /// [`Duration::MAX`] is for ever.
    fn wait(&mut self, timeout: Duration) -> Wake;

    /// Makes ready for a sleep without the port in hand, by [`Sleeper`]: what can be given to the
    /// network is. Says how long the sleep may last, `timeout` at most.
    ///
    /// # Errors
    /// There is no need to sleep, and why.
    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake>;

    /// In what time it wants to be asked to receive and to transmit again, whatever arrives: it
    /// holds something back, or is full. `None` is never.
    fn due(&self) -> Option<Duration>;

    /// What sleeps until something arrives or somebody calls [`Waker::wake`], while others use the
    /// port.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    fn sleeper(&self) -> io::Result<Sleeper>;

    /// What ends a wait from another thread.
    fn waker(&self) -> Waker;

    /// Every counter of the port, by the names in the module's tables.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

/// A port of a kind that is chosen at run time.
impl<P: FramePort + ?Sized> FramePort for Box<P> {
    fn capabilities(&self) -> &Capabilities {
        (**self).capabilities()
    }

    fn receive(&mut self, now: Instant, sink: &mut dyn FnMut(Received<'_>)) -> usize {
        (**self).receive(now, sink)
    }

    fn may_receive(&mut self) -> bool {
        (**self).may_receive()
    }

    fn receive_all(&mut self, now: Instant, sink: &mut dyn FnMut(Arrival<'_>)) -> usize {
        (**self).receive_all(now, sink)
    }

    fn transmit<'p>(
        &mut self,
        now: Instant,
        source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'p>>,
    ) -> Sent {
        (**self).transmit(now, source)
    }

    fn wait(&mut self, timeout: Duration) -> Wake {
        (**self).wait(timeout)
    }

    fn settle(&mut self, timeout: Duration) -> Result<Duration, Wake> {
        (**self).settle(timeout)
    }

    fn due(&self) -> Option<Duration> {
        (**self).due()
    }

    fn sleeper(&self) -> io::Result<Sleeper> {
        (**self).sleeper()
    }

    fn waker(&self) -> Waker {
        (**self).waker()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
}

/// What a port can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The largest path MTU whose packets fit.
    pub path_mtu: Mtu,
    /// Whether frames go between network and user memory without a copy by the kernel.
    pub zero_copy: bool,
    /// Whether what arrives shows all that the ICRC covers, so that it can be verified.
    pub verifies_icrc: bool,
    /// Whose the headers before the BTH are.
    pub headers: HeadersOf,
    /// All of it for people: `veth0: native XDP, copy mode, queue 0, path MTU 4096`.
    pub summary: String,
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

/// Whose the headers before the BTH are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadersOf {
    /// The path's, from Ethernet to UDP.
    Path,
    /// The kernel's, which makes them of what the path says from IP on, but for this source port.
    Kernel {
        /// The one UDP port that all packets come from.
        source_port: u16,
    },
}

impl HeadersOf {
    /// The headers of a path as they will be on the wire.
    pub(crate) fn on(self, path: &FrameTemplate) -> Cow<'_, FrameTemplate> {
        match self {
            Self::Path => Cow::Borrowed(path),
            Self::Kernel { source_port } => Cow::Owned(path.with_source_port(source_port)),
        }
    }
}

/// Something that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The frame as it was on the wire; `None` where the port does not see it.
    pub frame: Option<RawFrame<'a>>,
    /// The packet in it, or why there is none.
    pub packet: Result<Received<'a>, DropReason>,
}

/// A packet that the engine wrote into the room it was lent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'p> {
    /// Where it goes.
    pub path: &'p FrameTemplate,
    /// Bytes from BTH to ICRC. The last four are the ICRC's.
    pub len: usize,
    /// Who writes the ICRC.
    pub seal: Seal,
}

/// Who writes the ICRC of a packet that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seal {
    /// The port, over the headers it writes and the packet as it stands.
    #[default]
    Compute,
    /// Whoever wrote the packet: a recorded or a broken one goes out as it is.
    AsWritten,
}

/// What became of a call of [`FramePort::transmit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets taken from the source.
    pub packets: usize,
    /// Whether the source was not asked to the end. With no packet taken, the port is full: wait
    /// before the next try.
    pub more: bool,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Something arrived.
    Arrived,
    /// Somebody called [`Waker::wake`].
    Called,
    /// The time is over, or a full port may have room again.
    TimedOut,
    /// Nothing will ever arrive: the interface is gone.
    Gone,
}

/// A sink for packets as one for all that arrives.
pub(crate) fn packets_to(sink: &mut dyn FnMut(Received<'_>)) -> impl FnMut(Arrival<'_>) {
    |arrival| {
        if let Ok(packet) = arrival.packet {
            sink(packet);
        }
    }
}

/// What each port counts of the packets that pass it.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) rx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_packets: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) tx_no_room: u64,
    pub(crate) tx_unsendable: u64,
    dropped: BTreeMap<&'static str, u64>,
}

impl Traffic {
    /// Takes a frame apart and hands it up. Says whether there was a packet in it.
    pub(crate) fn hand_up(
        &mut self,
        frame: RawFrame<'_>,
        sink: &mut impl FnMut(Arrival<'_>),
    ) -> bool {
        let packet = Frame::parse(frame).map(|frame| frame.received());
        self.arrived(Arrival { frame: Some(frame), packet }, sink)
    }

    /// Counts what arrived and hands it up. Says whether it is a packet.
    pub(crate) fn arrived(
        &mut self,
        arrival: Arrival<'_>,
        sink: &mut impl FnMut(Arrival<'_>),
    ) -> bool {
        match &arrival.packet {
            Ok(packet) => {
                self.rx_packets += 1;
                self.rx_bytes += packet.body.len() as u64;
            }
            Err(reason) => *self.dropped.entry(reason.name()).or_default() += 1,
        }
        sink(arrival);
        arrival.packet.is_ok()
    }

    /// Counts a packet given to the network.
    pub(crate) fn sent(&mut self, len: usize) {
        self.tx_packets += 1;
        self.tx_bytes += len as u64;
    }

    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = vec![
            ("rx_packets", self.rx_packets),
            ("rx_bytes", self.rx_bytes),
            ("tx_packets", self.tx_packets),
            ("tx_bytes", self.tx_bytes),
            ("tx_no_room", self.tx_no_room),
            ("tx_unsendable", self.tx_unsendable),
        ];
        counters.extend(self.dropped.iter().map(|(name, count)| (*name, *count)));
        counters
    }
}

/// The most packets that one call of `receive` or `transmit` moves.
pub(crate) const BATCH: usize = 64;

/// So many batches in which there is no packet one call of `receive` takes: somebody may send more
/// of them as fast as they are taken, and others want the engine.
pub(crate) const IN_VAIN: usize = 4;

#[cfg(test)]
mod tests;
