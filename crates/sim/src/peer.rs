//! Devices that are not ours: what a ConnectX adapter or Linux rxe does otherwise.
//!
//! What an engine can be told to do is its [`Conduct`]. What is left concerns the bytes of frames:
//! ports, identifications, reserved bits, padding, and notifications of congestion, which ours does
//! not send. All of it is what was seen of such devices; none of it is wrong.

use std::fmt;

use roxe_transport::Outlet;
use roxe_transport::conduct::Conduct;
use roxe_transport::congestion::write_cnp;
use roxe_wire::opcode::Operation;
use roxe_wire::{ICRC_LEN, NakCode, PKey, Packet, Path, Qpn, Room, Syndrome, TrafficClass};

/// A kind of device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peer {
    /// Ours, as scripts want it: each message asks for an acknowledgement.
    #[default]
    Roxe,
    /// Ours behind a port.
    Adapter,
    /// NVIDIA ConnectX, and where noted another adapter of the data centre. 06-6.2, 06-6.3
    ConnectX,
    /// Linux rxe. 06-6.1
    Rxe,
}

impl Peer {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Roxe, Self::Adapter, Self::ConnectX, Self::Rxe];

    /// Its name on command lines and in scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Roxe => "roxe",
            Self::Adapter => "adapter",
            Self::ConnectX => "connectx",
            Self::Rxe => "rxe",
        }
    }

    /// Its name in a sentence.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Roxe => "roxe",
            Self::Adapter => "roxe's adapter",
            Self::ConnectX => "ConnectX",
            Self::Rxe => "Linux rxe",
        }
    }

    /// The kind with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How its queue pairs behave.
    pub const fn conduct(self) -> Conduct {
        match self {
            Self::Roxe => Conduct::DEFAULT,
            Self::Adapter => Conduct::ADAPTER,
            Self::ConnectX => Conduct::CONNECT_X,
            Self::Rxe => Conduct::RXE,
        }
    }

    /// The headers of its frames on a path.
    #[must_use]
    pub(crate) const fn path(self, mut path: Path) -> Path {
        match self {
            Self::Roxe | Self::Adapter => {}
            // Ports are meant to be 0xc000 and above; one adapter sends from its QPN instead.
            Self::ConnectX => path.source_port &= 0x3fff,
            Self::Rxe => path.flow_label = 0,
        }
        path
    }

    /// The IPv4 identification of its frame with this number.
    pub(crate) const fn identification(self, number: u64) -> u16 {
        match self {
            Self::ConnectX => (number.wrapping_mul(0x718c) & 0xffff) as u16,
            Self::Roxe | Self::Adapter | Self::Rxe => 0,
        }
    }

    /// Changes bytes of a packet that no ICRC covers.
    pub(crate) const fn dress(self, packet: &mut [u8]) {
        if let (Self::ConnectX, [_, _, _, _, masked, ..]) = (self, packet) {
            *masked |= RESERVED_BIT;
        }
    }

    /// What stands in the reserved bits beside FECN and BECN.
    pub(crate) const fn reserved_6(self) -> u8 {
        match self {
            Self::ConnectX => RESERVED_BIT,
            Self::Roxe | Self::Adapter | Self::Rxe => 0,
        }
    }

    /// The shortest frame of its port: adapters pad to what Ethernet asks for, a tap does not.
    pub(crate) const fn shortest_frame(self) -> usize {
        match self {
            Self::ConnectX => 60,
            Self::Roxe | Self::Adapter | Self::Rxe => 0,
        }
    }

    /// Whether a notification of congestion goes out behind this packet, and to which queue pair:
    /// adapters that take loss for congestion say so when they ask for what is missing.
    pub(crate) fn notifies_behind(self, packet: &Packet<'_>) -> Option<Qpn> {
        let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
        let missing = packet.opcode.operation == Operation::Acknowledge
            && syndrome == Some(Syndrome::Nak(NakCode::PsnSequenceError));
        (self == Self::ConnectX && missing).then_some(packet.headers.bth.dest_qp)
    }
}

/// A reserved bit of the BTH's fifth byte, set by an adapter seen in a public capture.
const RESERVED_BIT: u8 = 0x10;

/// The path of a notification: of a high priority, from port 0, as captured.
pub(crate) const fn notification_path(path: Path) -> Path {
    Path { traffic_class: TrafficClass(0xc2), source_port: 0, ..path }
}

/// Writes a notification for a queue pair; says its length with room for the ICRC.
pub(crate) fn write_notification(to: Qpn, room: &mut [u8]) -> Option<usize> {
    let outlet = Outlet { room: Room::whole(room), elide: false };
    write_cnp(outlet, to, PKey::DEFAULT).map(|cnp| cnp.len + ICRC_LEN)
}

/// What kinds of devices a world has: the list goes round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    kinds: [Peer; Self::MOST],
    count: usize,
}

impl Peers {
    /// How long the list may be.
    pub const MOST: usize = 4;

    /// These, in turn. At least one and at most [`Peers::MOST`].
    pub const fn of(list: &[Peer]) -> Self {
        let mut kinds = [Peer::Adapter; Self::MOST];
        let mut at = 0;
        while at < list.len() && at < Self::MOST {
            kinds[at] = list[at];
            at += 1;
        }
        Self { kinds, count: at }
    }

    /// The kind of the device with this number.
    pub const fn kind(self, index: usize) -> Peer {
        if self.count == 0 { Peer::Adapter } else { self.kinds[index % self.count] }
    }

    /// The kinds of so many devices.
    #[must_use]
    pub fn first(self, devices: u64) -> Self {
        let count = usize::try_from(devices).map_or(self.count, |devices| self.count.min(devices));
        Self { count, ..self }
    }

    /// How many kinds but ours there are.
    pub fn kinds(self) -> usize {
        let others = [Peer::ConnectX, Peer::Rxe];
        others.into_iter().filter(|other| self.kinds[..self.count].contains(other)).count()
    }

    /// Reads names with commas between.
    ///
    /// # Errors
    /// What is no name, or too many.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known = |name| {
            let names = Peer::ALL.map(Peer::name).join(", ");
            Peer::by_name(name).ok_or_else(|| format!("{name:?} is no device: {names}"))
        };
        let list = text.split(',').map(known).collect::<Result<Vec<_>, _>>()?;
        if list.len() > Self::MOST {
            return Err(format!("{text:?} is more than {} devices", Self::MOST));
        }
        Ok(Self::of(&list))
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = (0..self.count.max(1)).map(|index| self.kind(index).name());
        f.write_str(&names.collect::<Vec<_>>().join(","))
    }
}
