//! A packet arrives: whose it is, and whether it may come in.
//!
//! IBA vol 1 §9.6 (header validation), in that order. Each refusal is a [`DropReason`] and a
//! counter; none is answered, and none touches a queue pair's state.

use roxe_transport::check_q_key;
use roxe_wire::opcode::Service;
use roxe_wire::{
    Body, Bth, DropReason, Ecn, Gid, Grh, ICRC_LEN, Instant, Packet, QKey, Qpn, Received, VlanTag,
};

use crate::counters::DeviceCount;
use crate::device::{ByNumber, Device, QpSlot, Transmit};
use crate::gid_table::GidTable;
use crate::host_memory::HostMemory;
use crate::path::Paths;
use crate::queue_pair_numbers::QueuePairNumbers;

impl<H: HostMemory> Device<H> {
    /// A packet came in: how it was addressed, and its bytes from BTH to ICRC in one or two pieces.
    /// Bad packets are counted, not reported.
    pub fn handle_packet(&mut self, now: Instant, received: Received<'_>) {
        if self.numbers.are_shared() && self.is_of_others(&received) {
            return self.tables.counters.device(DeviceCount::OfOthers, 1);
        }
        if let Err(reason) = self.take_in(now, &received) {
            self.tables.counters.drop(reason);
        }
    }

    /// Whether it is for another device of a network on which each hears everything.
    fn is_of_others(&self, received: &Received<'_>) -> bool {
        let Ok(bth) = received.body.bth() else { return false };
        let to = Gid::from_ip(received.addressing.destination);
        if to.is_multicast() {
            return self.tables.groups.members(to).is_empty();
        }
        self.tables.gids.find_address(to, vlan_of(received)).is_none()
            || self.numbers.is_of_another(bth.dest_qp)
    }

    //= 01-1.9, C03
    fn take_in(&mut self, now: Instant, received: &Received<'_>) -> Result<(), DropReason> {
        // Computed first, while the payload before it is still on its way to memory; judged second.
        let icrc = received.check_icrc();
        let mut packet = Packet::blank();
        let read = packet.read(received.body);
        if let Err(reason) = read
            && !matches!(reason, DropReason::ReservedOpcode { .. })
        {
            return Err(reason);
        }
        // A port that cannot see what the ICRC covers says so; elided bytes have none.
        //= F01, Q21
        if let Some(Err(reason)) = icrc {
            return Err(reason);
        }
        if let Err(reason) = read {
            return self.reserved(now, received, reason);
        }
        let packet = &packet;
        self.tables.counters.received(received.body.len());
        let bth = &packet.headers.bth;
        if bth.dest_qp == Qpn::MULTICAST {
            let from = Gid::from_ip(received.addressing.source);
            let from_here = self.tables.gids.find_address(from, vlan_of(received)).is_some();
            let sender = packet.headers.deth.map(|deth| deth.source_qp);
            if from_here && self.numbers.may_be_own(sender) {
                // Our own came back: members have had it. Where each hears everything it does so.
                return if self.numbers.are_shared() {
                    Ok(())
                } else {
                    Err(DropReason::WrongAddress)
                };
            }
            return self.deliver_to_group(now, received, packet, None);
        }
        let marked = received.addressing.traffic_class.ecn() == Ecn::Ce;
        let (index, slot) = find(&self.numbers, &mut self.queue_pairs, bth.dest_qp)?;
        if let Err(reason) = check_slot(slot, packet.opcode.service, bth, received) {
            return Err(slot.refuse(now, bth, reason));
        }
        if marked {
            self.tables.counters.device(DeviceCount::EcnMarked, 1);
        }
        if packet.opcode.service == Service::Cnp {
            let known = knows_sender(slot, &self.tables.paths, received);
            // One of another length is none.
            let handled = known && packet.payload.is_empty() && slot.qp.handle_cnp(now);
            let what = if handled { DeviceCount::CnpHandled } else { DeviceCount::CnpIgnored };
            self.tables.counters.device(what, 1);
            return Ok(());
        }
        if packet.opcode.service == Service::Ud {
            let own = if bth.dest_qp == Qpn::GSI { QKey::GSI } else { slot.qp.attributes().q_key };
            let checked = check_own_address(&self.tables.gids, received)
                .and_then(|()| check_q_key(own, packet));
            if let Err(reason) = checked {
                return Err(slot.refuse(now, bth, reason));
            }
        }
        slot.qp.note_received(now, start_of(received.body));
        slot.counters.received(received.body.len());
        let read;
        let grh = if packet.opcode.service == Service::Ud {
            read = grh_of(received);
            &read
        } else {
            &NO_GRH
        };
        let Self { tables, turns, timers, notifications, congestion, .. } = self;
        if marked && let Some(point) = &congestion.notification_point {
            let own_peer = slot.qp.attributes().dest_qp;
            let sender = packet.headers.deth.map_or(own_peer, |deth| deth.source_qp);
            let (back, last) = ((slot.path, sender), &mut slot.notified);
            notifications.note(now, point, (received, packet), back, last, tables);
        }
        slot.run(index, tables, turns, timers, |qp, adapter| {
            qp.handle_packet(now, packet, grh, adapter);
        });
        Ok(())
    }

    /// An opcode that is not defined, in a packet with the right ICRC: a reliable connection
    /// refuses it, if it is next in turn.
    //= 04-4.6, R35
    fn reserved(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        reason: DropReason,
    ) -> Result<(), DropReason> {
        let bth = received.body.bth()?;
        let (index, slot) = find(&self.numbers, &mut self.queue_pairs, bth.dest_qp)?;
        // Whatever stands beside the CNP (0x80, 0x82 …) is no request of any queue pair.
        let service = Service::from_code(bth.opcode).filter(|service| *service != Service::Cnp);
        let service = service.ok_or(reason)?;
        if let Err(reason) = check_slot(slot, service, &bth, received) {
            return Err(slot.refuse(now, &bth, reason));
        }
        slot.refuse(now, &bth, reason);
        self.with(index, |qp, adapter| qp.handle_reserved(now, &bth, adapter));
        Err(reason)
    }

    /// Members of a group on this device hear what is sent to it from here too: no network brings
    /// a packet back. The two pieces are where the packet stands.
    //= BC-111
    pub(crate) fn deliver_here(
        &mut self,
        now: Instant,
        transmit: &Transmit,
        [first, second]: [&[u8]; 2],
        elided: bool,
    ) {
        let Some(path) = self.tables.paths.get(transmit.path) else { return };
        let addressing = path.addressing;
        if !addressing.destination.is_multicast() {
            return;
        }
        let (len, digest) = (transmit.packet.len + ICRC_LEN, transmit.packet.digest);
        let (in_first, in_second) = (len.min(first.len()), len.saturating_sub(first.len()));
        let body = if elided {
            Body::Elided { start: first, len, digest }
        } else {
            let second = second.get(..in_second).unwrap_or_default();
            Body::Whole { first: &first[..in_first], second }
        };
        let Ok(packet) = Packet::parse(body) else { return };
        let received = Received { addressing, ip_header: None, cover: None, body };
        let sender = packet.headers.deth.map(|deth| deth.source_qp);
        // It was made here, so that nothing but a group is behind the address.
        let _ = self.deliver_to_group(now, &received, &packet, sender);
    }

    /// A copy for each member of the group that has the right keys, but for the sender. Without a
    /// member here it is for nobody.
    //= U07, BC-111
    fn deliver_to_group(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        packet: &Packet<'_>,
        sender: Option<Qpn>,
    ) -> Result<(), DropReason> {
        let group = Gid::from_ip(received.addressing.destination);
        if packet.opcode.service != Service::Ud || !group.is_multicast() {
            return Err(DropReason::WrongService);
        }
        if self.tables.groups.members(group).is_empty() {
            return Err(DropReason::NoSuchQp { qpn: Qpn::MULTICAST.get() });
        }
        let grh = grh_of(received);
        for turn in 0.. {
            let Some(&qpn) = self.tables.groups.members(group).get(turn) else { break };
            if Some(qpn) == sender {
                continue;
            }
            let found = find(&self.numbers, &mut self.queue_pairs, qpn);
            let Ok((index, slot)) = found else { continue };
            let checked = check_slot(slot, Service::Ud, &packet.headers.bth, received)
                .and_then(|()| check_q_key(slot.qp.attributes().q_key, packet));
            match checked {
                Ok(()) => {
                    slot.qp.note_received(now, start_of(received.body));
                    slot.counters.received(received.body.len());
                    self.tables.counters.device(DeviceCount::MulticastCopies, 1);
                    self.with(index, |qp, adapter| {
                        qp.handle_packet(now, packet, &grh, adapter);
                    });
                }
                Err(reason) => {
                    let reason = slot.refuse(now, &packet.headers.bth, reason);
                    self.tables.counters.drop(reason);
                }
            }
        }
        Ok(())
    }
}

impl QpSlot {
    /// A frame for this queue pair is dropped.
    fn refuse(&mut self, now: Instant, bth: &Bth, reason: DropReason) -> DropReason {
        self.counters.drop(reason);
        self.qp.note_dropped(now, bth, reason);
        reason
    }
}

/// The queue pair with this number, and the index of its slot.
//= F08, F16, BC-008
fn find<'a>(
    numbers: &QueuePairNumbers,
    queue_pairs: &'a mut ByNumber,
    qpn: Qpn,
) -> Result<(u32, &'a mut QpSlot), DropReason> {
    let index = numbers.index_of(qpn);
    let found = index.and_then(|index| Some((index, queue_pairs.get_mut(index)?)));
    found.ok_or_else(|| DropReason::NoSuchQp { qpn: qpn.get() })
}

/// The bytes that a packet begins with; all headers, if they lie in one piece.
const fn start_of(body: Body<'_>) -> &[u8] {
    match body {
        Body::Whole { first, .. } | Body::Elided { start: first, .. } => first,
    }
}

/// What the queue pair by itself asks of a packet: service, state, address, partition.
//= F09, F11, R33
fn check_slot(
    slot: &QpSlot,
    service: Service,
    bth: &Bth,
    received: &Received<'_>,
) -> Result<(), DropReason> {
    let own = slot.qp.service();
    let fits = service == Service::Cnp || service == own.on_the_wire();
    if !fits {
        return Err(DropReason::WrongService);
    }
    if !slot.qp.state().receives() {
        return Err(DropReason::WrongQpState);
    }
    check_address(slot, received)?;
    if !bth.p_key.matches(slot.qp.attributes().p_key) {
        return Err(DropReason::PKeyMismatch { p_key: bth.p_key.0 });
    }
    Ok(())
}

/// Whether a notification comes from where the queue pair sends to. A connection has checked that
/// already; of the peers of one that sends datagrams the last is meant.
//= C02
fn knows_sender(slot: &QpSlot, paths: &Paths, received: &Received<'_>) -> bool {
    if slot.peer.is_some() {
        return true;
    }
    let target = slot.last_target.and_then(|target| paths.get(target));
    target.is_some_and(|path| {
        let there = (path.addressing.source, path.addressing.destination);
        there == (received.addressing.destination, received.addressing.source)
    })
}

/// Datagrams come from anywhere, but to an address of ours, on its VLAN.
//= 01-1.9, BC-118, BC-123
fn check_own_address(gids: &GidTable, received: &Received<'_>) -> Result<(), DropReason> {
    let own = Gid::from_ip(received.addressing.destination);
    let found = gids.find_address(own, vlan_of(received));
    found.map(|_| ()).ok_or(DropReason::WrongAddress)
}

/// A connection hears its peer only, on the VLAN of its own address.
//= F10, BC-013, BC-118
fn check_address(slot: &QpSlot, received: &Received<'_>) -> Result<(), DropReason> {
    let Some(peer) = slot.peer else { return Ok(()) };
    let addressing = &received.addressing;
    let right = (addressing.destination, addressing.source) == (peer.own, peer.other);
    if right && vlan_of(received) == peer.vlan { Ok(()) } else { Err(DropReason::WrongAddress) }
}

/// The VLAN that a packet came on. A tag without one only tells its priority.
//= BC-013, 01-1.2
pub(crate) fn vlan_of(received: &Received<'_>) -> Option<u16> {
    received.addressing.vlan.map(VlanTag::id).filter(|id| *id != 0)
}

/// What a datagram's buffer begins with.
fn grh_of(received: &Received<'_>) -> Grh {
    received.grh().unwrap_or(NO_GRH)
}

/// Nobody looks at it for services without datagrams.
const NO_GRH: Grh = Grh::from_bytes([0; Grh::LEN]);
