//! smoltcp, over frames in queues.

use std::collections::VecDeque;
use std::net::IpAddr;

use roxe_wire::{Instant, MacAddress};
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::udp;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::{Own, message};

/// A stack with the addresses.
pub(super) struct Stack(Interface);

impl Stack {
    pub(super) fn new(own: &Own, mac: HardwareAddress, wire: &mut Wire) -> Self {
        let mut interface = Interface::new(Config::new(mac), wire, time(Instant::ZERO));
        interface.update_ip_addrs(|addresses| {
            for assigned in own.addresses.iter().take(addresses.capacity()) {
                let cidr = IpCidr::new(assigned.address.into(), assigned.prefix_len);
                addresses.push(cidr).expect("no more than there is room for");
            }
        });
        for gateway in &own.gateways {
            // There is room for one of each family, and no more are read.
            let routes = interface.routes_mut();
            let _ = match *gateway {
                IpAddr::V4(gateway) => routes.add_default_ipv4_route(gateway),
                IpAddr::V6(gateway) => routes.add_default_ipv6_route(gateway),
            };
        }
        Self(interface)
    }

    /// Handles all that came, and puts what is to be sent on the wire.
    pub(super) fn poll(&mut self, now: Instant, wire: &mut Wire, sockets: &mut SocketSet<'static>) {
        self.0.poll(time(now), wire, sockets);
    }
}

/// Somebody whose MAC is asked for, by a stack that knows nobody yet: so that one who does not
/// answer keeps no other waiting, and what was known before does not count.
pub(super) struct Probe {
    destination: IpAddr,
    since: Instant,
    stack: Stack,
    sockets: SocketSet<'static>,
}

impl Probe {
    /// `destination` is unicast, and in reach.
    pub(super) fn new(
        destination: IpAddr,
        own: &Own,
        mac: HardwareAddress,
        now: Instant,
        wire: &mut Wire,
    ) -> Self {
        let buffer = |packets, bytes| {
            udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; packets], vec![0; bytes])
        };
        let mut socket = udp::Socket::new(buffer(1, 1), buffer(1, 1));
        socket.bind(message::DISCARD_PORT).expect("the port is not 0");
        let to = (IpAddress::from(destination), message::DISCARD_PORT);
        socket.send_slice(&[0], to).expect("the destination is one, and a byte fits");
        let mut sockets = SocketSet::new(Vec::new());
        sockets.add(socket);
        Self { destination, since: now, stack: Stack::new(own, mac, wire), sockets }
    }

    pub(super) const fn destination(&self) -> IpAddr {
        self.destination
    }

    pub(super) const fn since(&self) -> Instant {
        self.since
    }

    /// Goes on. Says the MAC when it is known; the frame that told it is not left on the wire.
    pub(super) fn poll(&mut self, now: Instant, wire: &mut Wire) -> Option<MacAddress> {
        self.stack.poll(now, wire, &mut self.sockets);
        let at = wire.outbox.iter().position(|frame| message::is_to_discard(frame))?;
        let frame = wire.outbox.remove(at)?;
        frame.first_chunk().copied().map(MacAddress)
    }
}

/// Frames that come and go.
pub(super) struct Wire {
    pub(super) inbox: VecDeque<Vec<u8>>,
    pub(super) outbox: VecDeque<Vec<u8>>,
    mtu: usize,
}

impl Wire {
    pub(super) fn new(mtu: usize) -> Self {
        Self { inbox: VecDeque::new(), outbox: VecDeque::new(), mtu }
    }

    /// Bytes of the longest frame.
    pub(super) const fn max_frame(&self) -> usize {
        self.mtu + ETHERNET_LEN
    }
}

const ETHERNET_LEN: usize = 14;

impl Device for Wire {
    type RxToken<'a> = RxToken;
    type TxToken<'a> = TxToken<'a>;

    fn receive(
        &mut self,
        _: smoltcp::time::Instant,
    ) -> Option<(Self::RxToken<'_>, Self::TxToken<'_>)> {
        let frame = self.inbox.pop_front()?;
        Some((RxToken(frame), TxToken(&mut self.outbox)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Self::TxToken<'_>> {
        Some(TxToken(&mut self.outbox))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.max_frame();
        capabilities
    }
}

pub(super) struct RxToken(Vec<u8>);

impl phy::RxToken for RxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

pub(super) struct TxToken<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.0.push_back(frame);
        result
    }
}

fn time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(i64::try_from(now.nanos() / 1000).unwrap_or(i64::MAX))
}
