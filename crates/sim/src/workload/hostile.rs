//! Frames that no device sent: from a stranger, or in the name of the peer.
//!
//! A stranger's may say anything: their address fits no connection. Those in the name of a peer
//! lie in one thing, for who knows all can do as the peer can. They may cost a try, a detour or an
//! unreliable message, and change no memory and no completion.
//!
//! | to | the lie |
//! |---|---|
//! | a reliable connection | the PSN, far from any in use |
//! | an unreliable one | the address, the P_Key, the service; or the PSN, of no first SEND |
//! | a datagram queue pair | the destination, the P_Key, the service or the Q_Key |

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::Attributes;
use roxe_wire::opcode::{OPCODES, Operation, Service};
use roxe_wire::{
    FrameTemplate, IpPair, MacAddress, Opcode, PKey, Path, Psn, QKey, Qpn, Room, TrafficClass, icrc,
};

use super::{Action, Q_KEY, Workload, World};

/// Bytes of such a packet, with room for any headers.
const LEN: usize = 120;

/// The address that is connected to nothing.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

/// The key of a partition that nobody here belongs to.
const OTHER_P_KEY: PKey = PKey(0x1234);

/// What a forged frame says.
#[derive(Clone, Copy)]
struct Forged {
    opcode: &'static Opcode,
    qpn: Qpn,
    psn: Psn,
    p_key: PKey,
    /// Of a datagram: its key, and from which queue pair. By chance, if it is a stranger's.
    sender: Option<(QKey, Qpn)>,
    /// From where, to where.
    addresses: (IpAddr, IpAddr),
}

impl Forged {
    /// To a queue pair, between these addresses; all else is as its peers would have it.
    const fn to(qpn: Qpn, addresses: (IpAddr, IpAddr)) -> Self {
        Self {
            opcode: &OPCODES[0],
            qpn,
            psn: Psn::new(0),
            p_key: PKey::DEFAULT,
            sender: None,
            addresses,
        }
    }
}

impl Workload {
    /// A frame of a stranger comes, and more will.
    pub(super) fn hostile(&mut self, world: &mut World, left: u32) {
        let rng = &mut self.rng;
        let to = rng.below(world.nodes.len() as u64) as usize;
        let known: Vec<(usize, Qpn)> =
            self.by_qpn.keys().filter(|(device, _)| *device == to).copied().collect();
        let qpn = if known.is_empty() || rng.percent(10) {
            Qpn::new(rng.next() as u32 & 0xff_ffff)
        } else {
            rng.pick(&known).1
        };
        let opcode = &OPCODES[rng.below(OPCODES.len() as u64) as usize];
        let psn = Psn::new(rng.next() as u32 & 0xff_ffff);
        // Of bytes that are headers by chance none may be a key that is right.
        let own = world.nodes[to].addresses[0];
        let forged = Forged { opcode, psn, ..Forged::to(qpn, (STRANGER, own)) };
        if let Some(frame) = self.frame(&forged) {
            world.inject(to, &frame);
        }
        if left > 0 {
            let wait = Duration::from_nanos(self.rng.between(500, 20_000));
            world.schedule(wait, Action::Hostile { left: left - 1 });
        }
    }

    /// A frame in the name of a peer comes, and more will.
    pub(super) fn forge(&mut self, world: &mut World, left: u32) {
        let index = self.rng.below(self.pairs.len() as u64) as usize;
        let side = self.rng.below(2) as usize;
        let pair = &self.pairs[index];
        let (end, peer) = (&pair.ends[side], &pair.ends[1 - side]);
        let (own, conversation) = (end.device, pair.conversation);
        let info = world.nodes[own].device.query_queue_pair(end.qpn);
        if let (true, Ok(info)) = (end.alive, info) {
            let addresses = [peer, end].map(|end| world.nodes[end.device].addresses[pair.family]);
            let truth = Forged {
                sender: Some((Q_KEY, peer.qpn)),
                ..Forged::to(end.qpn, (addresses[0], addresses[1]))
            };
            let forged = match pair.service {
                ServiceType::Rc => self.lie_to_rc(truth, &info.attributes),
                ServiceType::Uc => self.lie_to_uc(truth, &info.attributes),
                ServiceType::Ud => self.lie_to_ud(truth),
            };
            if let Some(frame) = self.frame(&forged) {
                world.blemish(conversation);
                world.inject(own, &frame);
            }
        }
        if left > 0 {
            let wait = Duration::from_nanos(self.rng.between(500, 20_000));
            world.schedule(wait, Action::Forge { left: left - 1 });
        }
    }

    /// An opcode that is like this.
    fn opcode(&mut self, fits: impl Fn(&Opcode) -> bool) -> &'static Opcode {
        let opcodes: Vec<&Opcode> = OPCODES.iter().filter(|opcode| fits(opcode)).collect();
        self.rng.pick(&opcodes)
    }

    /// A PSN a quarter of the circle ahead of this one or behind it: no connection here comes so
    /// far.
    fn far_from(&mut self, near: Psn) -> Psn {
        let away = (1 << 22) + self.rng.below(1 << 20) as u32;
        near.advance(if self.rng.percent(50) { away } else { Psn::MODULUS - away })
    }

    fn lie_to_rc(&mut self, truth: Forged, own: &Attributes) -> Forged {
        let opcode = self.opcode(|it| matches!(it.service, Service::Rc | Service::Cnp));
        let near = if opcode.operation.is_response() { own.sq_psn } else { own.rq_psn };
        Forged { opcode, psn: self.far_from(near), ..truth }
    }

    fn lie_to_uc(&mut self, truth: Forged, own: &Attributes) -> Forged {
        let opcode = self.opcode(|it| it.service == Service::Uc);
        let psn = own.rq_psn.advance(self.rng.below(200) as u32);
        let truth = Forged { opcode, psn, ..truth };
        match self.rng.below(4) {
            0 => Forged { addresses: (STRANGER, truth.addresses.1), ..truth },
            1 => Forged { p_key: OTHER_P_KEY, ..truth },
            2 => Forged { opcode: self.opcode(|it| it.service == Service::Rc), ..truth },
            _ => {
                let begins_send =
                    |it: &Opcode| it.operation == Operation::Send && it.position.starts();
                let opcode = self.opcode(|it| it.service == Service::Uc && !begins_send(it));
                Forged { opcode, psn: self.far_from(own.rq_psn), ..truth }
            }
        }
    }

    fn lie_to_ud(&mut self, truth: Forged) -> Forged {
        let psn = Psn::new(self.rng.next() as u32 & 0xff_ffff);
        let truth = Forged { opcode: self.opcode(|it| it.service == Service::Ud), psn, ..truth };
        match self.rng.below(4) {
            0 => Forged { addresses: (truth.addresses.0, STRANGER), ..truth },
            1 => Forged { p_key: OTHER_P_KEY, ..truth },
            2 => {
                let connected = |it: &Opcode| matches!(it.service, Service::Rc | Service::Uc);
                Forged { opcode: self.opcode(connected), ..truth }
            }
            _ => {
                let q_key = QKey(Q_KEY.0 ^ 1 << self.rng.below(31));
                Forged { sender: truth.sender.map(|(_, qpn)| (q_key, qpn)), ..truth }
            }
        }
    }

    /// A frame that is right in itself, and whose other bytes mean nothing but by chance.
    fn frame(&mut self, forged: &Forged) -> Option<Vec<u8>> {
        let Forged { opcode, qpn, psn, p_key, sender, addresses: (from, to) } = *forged;
        let mut body = [0; LEN];
        for byte in &mut body {
            *byte = self.rng.next() as u8;
        }
        body[0] = opcode.code;
        body[1] = 0x40;
        body[2..4].copy_from_slice(&p_key.0.to_be_bytes());
        body[4..8].copy_from_slice(&qpn.get().to_be_bytes());
        body[9..12].copy_from_slice(&psn.get().to_be_bytes()[1..]);
        if let (Service::Ud, Some((q_key, source_qp))) = (opcode.service, sender) {
            body[12..16].copy_from_slice(&q_key.0.to_be_bytes());
            body[16..20].copy_from_slice(&source_qp.get().to_be_bytes());
        }
        let len = match opcode.service {
            Service::Cnp => opcode.headers_len + 4,
            _ => LEN,
        };
        let body = &mut body[..len];
        let template = FrameTemplate::new(&Path {
            ethernet: (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 9])),
            vlan: None,
            ip: IpPair::new(from, to)?,
            traffic_class: TrafficClass(0),
            hop_limit: 64,
            flow_label: 0,
            source_port: 50_000,
        });
        let at = template.headers_len();
        let mut frame = vec![0; at];
        let cover = template.write(len as u16, 0, &mut frame)?;
        icrc::seal(&cover, Room::whole(body));
        frame.extend_from_slice(body);
        Some(frame)
    }
}
