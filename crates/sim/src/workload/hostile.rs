//! Frames that no device sent: from a stranger, or in the name of the peer.
//!
//! A stranger's may say anything: their address fits no connection. Those in the name of a peer
//! have a PSN that is far from any in use, for who knows the right one can do as the peer can. They
//! may cost a try and a detour, and change no memory and no completion.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use roxe_transport::qp_state::ServiceType;
use roxe_wire::opcode::{OPCODES, Service};
use roxe_wire::{
    FrameTemplate, IpPair, MacAddress, Opcode, PKey, Path, Psn, Qpn, Room, TrafficClass, icrc,
};

use super::{Action, Workload, World};

/// Bytes of such a packet, with room for any headers.
const LEN: usize = 120;

/// The address that is connected to nothing.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

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
        if let Some(frame) = self.frame(STRANGER, own, opcode, qpn, psn) {
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
        let info = world.nodes[end.device].device.query_queue_pair(end.qpn);
        if let (ServiceType::Rc, true, Ok(info)) = (pair.service, end.alive, info) {
            let family = pair.family;
            let (own, other) = (end.device, peer.device);
            let (qpn, conversation) = (end.qpn, pair.conversation);
            let addresses =
                (world.nodes[other].addresses[family], world.nodes[own].addresses[family]);
            let fits = |opcode: &&Opcode| matches!(opcode.service, Service::Rc | Service::Cnp);
            let opcodes: Vec<&Opcode> = OPCODES.iter().filter(fits).collect();
            let opcode = self.rng.pick(&opcodes);
            let near = if opcode.operation.is_response() {
                info.attributes.sq_psn
            } else {
                info.attributes.rq_psn
            };
            // A quarter of the circle ahead or behind: no connection here comes so far.
            let away = (1 << 22) + self.rng.below(1 << 20) as u32;
            let away = if self.rng.percent(50) { away } else { Psn::MODULUS - away };
            let psn = near.advance(away);
            if let Some(frame) = self.frame(addresses.0, addresses.1, opcode, qpn, psn) {
                world.blemish(conversation);
                world.inject(own, &frame);
            }
        }
        if left > 0 {
            let wait = Duration::from_nanos(self.rng.between(500, 20_000));
            world.schedule(wait, Action::Forge { left: left - 1 });
        }
    }

    /// A frame that is right in itself, and means nothing but by chance.
    fn frame(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        opcode: &Opcode,
        qpn: Qpn,
        psn: Psn,
    ) -> Option<Vec<u8>> {
        let mut body = [0; LEN];
        for byte in &mut body {
            *byte = self.rng.next() as u8;
        }
        body[0] = opcode.code;
        body[1] = 0x40;
        body[2..4].copy_from_slice(&PKey::DEFAULT.0.to_be_bytes());
        body[4..8].copy_from_slice(&qpn.get().to_be_bytes());
        body[9..12].copy_from_slice(&psn.get().to_be_bytes()[1..]);
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
