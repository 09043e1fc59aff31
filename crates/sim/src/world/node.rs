//! One device and its port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roxe_device::gid_table::GidEntry;
use roxe_device::{Device, Limits, VecMemory};
use roxe_transport::Outlet;
use roxe_transport::work::PathId;
use roxe_wire::opcode::Operation;
use roxe_wire::{
    Addressing, Body, FrameTemplate, Gid, GidType, ICRC_LEN, Instant, MacAddress, NakCode, Packet,
    Path, Qpn, Room, Syndrome, icrc,
};

use crate::peer::{self, Peer};

/// One device and its port.
#[derive(Debug)]
pub struct Node {
    /// The device.
    pub device: Device<VecMemory>,
    /// Its addresses: one of each family.
    pub addresses: [IpAddr; 2],
    /// What kind of device it is.
    pub kind: Peer,
    /// A notification of congestion that it owes, and on which path.
    notification: Option<(PathId, Qpn)>,
    /// Notifications sent.
    pub notifications: u64,
    templates: Vec<Option<(u64, FrameTemplate)>>,
    pub(super) busy_until: Instant,
    /// Whether an event will try to send.
    pub(super) sending: bool,
    /// The earliest event that looks at its timers.
    pub(super) timer: Option<Instant>,
    /// Frames that it sent.
    pub sent: u64,
    /// Packets that it was handed.
    pub handed: u64,
    /// Those of them in which something had changed that an ICRC covers.
    pub damaged: u64,
    /// Bare answers that it sent.
    pub answers: Answers,
}

/// Acknowledgements without data, by what they say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Positive ones.
    pub acknowledgements: u64,
    /// Receiver not ready.
    pub not_ready: u64,
    /// Something is missing.
    pub missing: u64,
}

impl Answers {
    pub(super) fn count(&mut self, packet: &Packet<'_>) {
        let Some(aeth) = packet.headers.aeth else { return };
        if packet.opcode.operation != Operation::Acknowledge {
            return;
        }
        match aeth.syndrome {
            Syndrome::Ack(_) => self.acknowledgements += 1,
            Syndrome::RnrNak(_) => self.not_ready += 1,
            Syndrome::Nak(NakCode::PsnSequenceError) => self.missing += 1,
            Syndrome::Nak(_) => {}
        }
    }
}

impl Node {
    pub(super) fn new(index: usize, kind: Peer, seed: u64) -> Self {
        let number = index as u8 + 1;
        let addresses = [
            IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)),
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number))),
        ];
        let mut device =
            Device::new(Limits::DEFAULT, seed.wrapping_add(index as u64), VecMemory::new());
        device.set_conduct(kind.conduct());
        for address in addresses {
            let gid = Gid::from_ip(address);
            let added = device.add_gid(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None });
            debug_assert!(added.is_ok());
        }
        Self {
            device,
            addresses,
            kind,
            notification: None,
            notifications: 0,
            templates: Vec::new(),
            busy_until: Instant::ZERO,
            sending: false,
            timer: None,
            sent: 0,
            handed: 0,
            damaged: 0,
            answers: Answers::default(),
        }
    }

    /// Writes the next frame into `room`; says where it begins and ends.
    pub(super) fn write(&mut self, now: Instant, room: &mut [u8]) -> Option<(usize, usize)> {
        if let Some((path, to)) = self.notification.take() {
            return self.notify(path, to, room);
        }
        let packet = Room::whole(&mut room[BEFORE..]);
        let transmit = self.device.poll_transmit(now, Outlet { room: packet, elide: false })?;
        self.sent += 1;
        let len = transmit.packet.len + ICRC_LEN;
        let version = self.device.paths().version(transmit.path)?;
        let index = transmit.path.0 as usize;
        if self.templates.len() <= index {
            self.templates.resize(index + 1, None);
        }
        if self.templates[index].as_ref().is_none_or(|(known, _)| *known != version) {
            let path = path_of(&self.device.paths().get(transmit.path)?.addressing)?;
            self.templates[index] = Some((version, FrameTemplate::new(&self.kind.path(path))));
        }
        let (_, template) = self.templates[index].as_ref()?;
        let other = transmit.traffic_class.map(|class| template.with_traffic_class(class));
        let template = other.as_ref().unwrap_or(template);
        let identification = self.kind.identification(self.sent);
        let range = seal(template, identification, len, room)?;
        let body = &mut room[BEFORE..BEFORE + len];
        self.kind.dress(body);
        if len == ACKNOWLEDGE_LEN
            && let Ok(packet) = Packet::parse(Body::whole(body))
        {
            self.notification = self.kind.notifies_behind(&packet).map(|to| (transmit.path, to));
        }
        Some(pad(self.kind, range, room))
    }

    /// Writes the notification of congestion that is owed to a queue pair.
    fn notify(&mut self, path: PathId, to: Qpn, room: &mut [u8]) -> Option<(usize, usize)> {
        let path = path_of(&self.device.paths().get(path)?.addressing)?;
        let template = FrameTemplate::new(&peer::notification_path(path));
        let len = peer::write_notification(to, &mut room[BEFORE..])?;
        self.notifications += 1;
        let range = seal(&template, 0x718c, len, room)?;
        Some(pad(self.kind, range, room))
    }
}

/// Writes the headers before a packet of `len` bytes, and its ICRC.
fn seal(
    template: &FrameTemplate,
    identification: u16,
    len: usize,
    room: &mut [u8],
) -> Option<(usize, usize)> {
    let start = BEFORE - template.headers_len();
    let cover = template.write(u16::try_from(len).ok()?, identification, &mut room[start..])?;
    let body = &mut room[BEFORE..BEFORE + len];
    let value = icrc::expected(&cover, Body::whole(body))?;
    *body.last_chunk_mut()? = value.to_le_bytes();
    Some((start, BEFORE + len))
}

/// Fills a frame up to what the device's port sends at the least.
fn pad(kind: Peer, (start, end): (usize, usize), room: &mut [u8]) -> (usize, usize) {
    let padded = end.max(start + kind.shortest_frame());
    room[end..padded].fill(0);
    (start, padded)
}

pub(crate) fn path_of(to: &Addressing) -> Option<Path> {
    Some(Path {
        ethernet: (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])),
        ..to.path()?
    })
}

/// Which device has an address.
pub(super) fn node_of(address: IpAddr) -> Option<usize> {
    let number = match address {
        IpAddr::V4(address) => match address.octets() {
            [192, 0, 2, number] => number,
            _ => return None,
        },
        IpAddr::V6(address) => match address.segments() {
            [0x2001, 0xdb8, .., number] => u8::try_from(number).ok()?,
            _ => return None,
        },
    };
    usize::from(number).checked_sub(1)
}

/// Bytes before a packet in the room where it is written.
pub(super) const BEFORE: usize = FrameTemplate::MAX;

/// A bare acknowledgement: BTH, AETH, ICRC.
const ACKNOWLEDGE_LEN: usize = 20;
