//! What flies between the devices, and what an enemy sends.

use roxe_device::counters::DeviceCount;
use roxe_transport::Outlet;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::opcode::{Header, OPCODES, Operation, Service};
use roxe_wire::{
    Addressing, Aeth, AtomicAckEth, AtomicEth, Body, Bth, CnpReserved, Deth, Feth, FlushPlacement,
    FlushSelectivity, FrameTemplate, Gid, Headers, ICRC_LEN, IcrcCover, Ieth, ImmDt, Instant, Msn,
    Opcode, PKey, Packet, Payload, Psn, QKey, Qpn, RKey, Received, Reth, Room, Syndrome,
    TrafficClass, icrc,
};

use crate::end::End;
use crate::host::Touch;
use crate::input::Input;
use crate::model::{Qp, Who};

/// All inline data consists of this.
pub const INLINE: u8 = b'i';

/// What lies in the room for packets before they are written.
const STALE: u8 = 0x5a;

/// The most that a packet takes.
const ROOM: usize = 52 + 4096 + 3 + ICRC_LEN;

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct Flight {
    pub addressing: Addressing,
    pub bytes: Vec<u8>,
    /// Length and digest of a packet whose payload is elided.
    pub elided: Option<(usize, u32)>,
    /// Whether the receiver can check the ICRC.
    pub covered: bool,
    /// Bytes that the ICRC covers were changed.
    pub damaged: bool,
}

fn cover(addressing: &Addressing, len: usize) -> Option<IcrcCover<'static>> {
    let template = FrameTemplate::new(&addressing.path()?);
    template.icrc_cover(u16::try_from(len).ok()?, 0)
}

/// The next packet of a device, if there is one. It holds what may be sent, and nothing else.
pub fn transmit(end: &mut End, now: Instant, elide: bool, split: usize) -> Option<Flight> {
    let mut bytes = vec![STALE; ROOM];
    let (first, second) = bytes.split_at_mut(split.clamp(64, ROOM));
    let transmit = end.device.poll_transmit(now, Outlet { room: Room { first, second }, elide });
    let everybody: Vec<Who> = end
        .qps
        .iter()
        .flat_map(|qp| {
            let lists = [Who::Local(qp.pd), Who::Remote(qp.pd, qp.qpn)];
            let datagrams = qp.service == ServiceType::Ud;
            lists.into_iter().chain(datagrams.then(|| Who::Local(end.receive_pd(qp))))
        })
        .collect();
    let accesses = end.check_accesses(&everybody);
    let transmit = transmit?;
    let len = transmit.packet.len + ICRC_LEN;
    let addressing = end.device.paths().get(transmit.path).expect("packets have a path").addressing;
    if elide {
        let start = bytes[..len.min(64)].to_vec();
        let elided = Some((len, transmit.packet.digest));
        sniff(end, &start, transmit.path);
        return Some(Flight { addressing, bytes: start, elided, covered: false, damaged: false });
    }
    bytes.truncate(len);
    let body = Body::whole(&bytes);
    let packet = Packet::parse(body).expect("what a device sends can be read");
    assert_eq!(packet.payload.len(), transmit.packet.payload);
    let payload = packet.payload.pieces()[0];
    let qpn = sender(end, &packet, transmit.path);
    let qp = end.qp(qpn).expect("it sends");
    let right = match packet.opcode.operation {
        Operation::ReadResponse => Who::Remote(qp.pd, qpn),
        _ => Who::Local(qp.pd),
    };
    let reads = accesses.iter().filter(|access| access.touch == Touch::Read);
    let read: Vec<u8> = reads.clone().flat_map(|access| access.bytes.iter().copied()).collect();
    if payload.iter().any(|byte| *byte != INLINE) {
        assert!(read.ends_with(payload), "{packet:?} holds what was not read now");
        let mut left = payload.len();
        for access in reads.rev() {
            if left == 0 {
                break;
            }
            assert!(end.memory.permits(access, &[right]), "{right:?} sends {access:?}");
            left = left.saturating_sub(access.bytes.len());
        }
    }
    let cover = cover(&addressing, len).expect("it fits into an IP packet");
    sniff(end, &bytes, transmit.path);
    assert!(icrc::seal(&cover, Room::whole(&mut bytes)));
    Some(Flight { addressing, bytes, elided: None, covered: true, damaged: false })
}

/// Who sent it.
fn sender(end: &End, packet: &Packet<'_>, path: roxe_transport::work::PathId) -> Qpn {
    if let Some(deth) = packet.headers.deth {
        return deth.source_qp;
    }
    let owner =
        end.qps.iter().map(|qp| qp.qpn).find(|qpn| {
            end.device.query_queue_pair(*qpn).is_ok_and(|info| info.path == Some(path))
        });
    owner.expect("a connection's path is its own")
}

/// Where the sender is now.
fn sniff(end: &mut End, bytes: &[u8], path: roxe_transport::work::PathId) {
    let bth = Body::whole(bytes).bth().expect("a packet begins with its BTH");
    let owner = end.qps.iter().position(|qp| {
        end.device.query_queue_pair(qp.qpn).is_ok_and(|info| info.path == Some(path))
    });
    let Some(at) = owner else { return };
    if bth.row().is_some_and(|row| row.operation.is_response()) {
        end.qps[at].answered = bth.psn.next();
    } else {
        end.qps[at].sent = bth.psn.next();
    }
}

/// A packet arrives. It is counted, as what came in or as dropped, and touches what it may.
pub fn deliver(end: &mut End, now: Instant, flight: &Flight, split: usize) {
    let Flight { addressing, bytes, .. } = flight;
    let body = match flight.elided {
        Some((len, digest)) => Body::Elided { start: bytes, len, digest },
        None => {
            let (first, second) = bytes.split_at(split.min(bytes.len()));
            Body::Whole { first, second }
        }
    };
    let cover = if flight.covered { cover(addressing, body.len()) } else { None };
    let checked = cover.is_some();
    let received = Received { addressing: *addressing, ip_header: None, cover, body };
    let drops = end.drops();
    let (came, copies, notified) = (
        end.count(DeviceCount::PacketsReceived),
        end.count(DeviceCount::MulticastCopies),
        end.count(DeviceCount::CnpIgnored),
    );
    let parsed = Packet::parse(body);
    let to = body.bth().map(|bth| bth.dest_qp);
    let target = to.ok().and_then(|qpn| end.qp(qpn)).cloned();
    let counted = target.as_ref().map(|qp| transport_counts(end, qp.qpn));
    let state = target.as_ref().map(|qp| end.state(qp.qpn));

    end.device.handle_packet(now, received);

    let dropped = end.drops() - drops;
    let came = end.count(DeviceCount::PacketsReceived) - came;
    let copies = end.count(DeviceCount::MulticastCopies) - copies;
    let who = match &parsed {
        Ok(packet) if !(flight.damaged && checked) => rights(end, packet, target.as_ref()),
        _ => Vec::new(),
    };
    let accesses = end.check_accesses(&who);
    if flight.damaged && checked {
        assert_eq!((came, dropped), (0, 1), "damaged, but taken: {flight:?}");
    }
    let multicast = to == Ok(Qpn::MULTICAST);
    match came {
        0 => assert_eq!(dropped, 1, "neither came nor dropped: {flight:?}"),
        _ if multicast => assert!(dropped + copies > 0, "without a word: {flight:?}"),
        _ => assert!(dropped <= 1, "dropped twice: {flight:?}"),
    }
    let (Ok(packet), Some(qp), Some(counted)) = (parsed, target, counted) else { return };
    if came == 1 && dropped == 0 && !multicast && !packet.payload.is_empty() {
        // Payload that was let in goes to memory, or somebody counts that it did not.
        let ignored = end.count(DeviceCount::CnpIgnored) > notified;
        let ended = state != Some(end.state(qp.qpn));
        // The loss of an unreliable message is counted once, when its first packet is lost.
        let of_lost = qp.service == ServiceType::Uc
            && !packet.opcode.position.starts()
            && transport_count(end, qp.qpn, "uc_drop_msg") > 0;
        let seen = transport_counts(end, qp.qpn) > counted || ignored || ended || of_lost;
        assert!(seen || !accesses.is_empty(), "lost without a word: {flight:?}");
    }
}

fn transport_count(end: &End, qpn: Qpn, name: &str) -> u64 {
    let counters = end.device.queue_pair_counters(qpn).expect("it is there");
    counters.iter().find(|(is, _)| *is == name).expect("it has that name").1
}

fn transport_counts(end: &End, qpn: Qpn) -> u64 {
    let counters = end.device.queue_pair_counters(qpn).expect("it is there");
    counters.iter().map(|(_, value)| value).sum()
}

/// For whom a packet may touch memory.
fn rights(end: &End, packet: &Packet<'_>, target: Option<&Qp>) -> Vec<Who> {
    if packet.headers.bth.dest_qp == Qpn::MULTICAST {
        let members = end.qps.iter().filter(|qp| qp.service == ServiceType::Ud);
        return members.map(|qp| Who::Local(end.receive_pd(qp))).collect();
    }
    let Some(qp) = target else { return Vec::new() };
    match packet.opcode.operation {
        Operation::Send => vec![Who::Local(end.receive_pd(qp))],
        operation if operation.is_response() => vec![Who::Local(qp.pd)],
        _ => vec![Who::Remote(qp.pd, qp.qpn)],
    }
}

/// A packet as an enemy makes it: mostly right, so that it comes far.
pub fn hostile(end: &End, input: &mut Input<'_>, own: Addressing) -> Flight {
    let qp = if end.qps.is_empty() { None } else { end.qps.get(input.below(end.qps.len())) };
    let info = qp.and_then(|qp| end.device.query_queue_pair(qp.qpn).ok());
    let path = info.and_then(|info| info.path).and_then(|path| end.device.paths().get(path));
    let mut addressing = path.map_or(own, |path| Addressing {
        source: path.addressing.destination,
        destination: path.addressing.source,
        ..path.addressing
    });
    if input.rarely(8) {
        addressing.traffic_class = TrafficClass(input.byte());
    }
    let service = match qp.map(|qp| qp.service) {
        Some(ServiceType::Rc) | None => Service::Rc,
        Some(ServiceType::Uc) => Service::Uc,
        Some(ServiceType::Ud) => Service::Ud,
    };
    let code = if input.rarely(16) {
        input.byte()
    } else {
        let of_service: Vec<u8> =
            OPCODES.iter().filter(|row| row.service == service).map(|row| row.code).collect();
        input.one(&of_service)
    };
    let mut dest_qp = qp.map_or(Qpn::new(17), |qp| qp.qpn);
    if input.rarely(16) {
        dest_qp = input.one(&[Qpn::MULTICAST, Qpn::GSI, Qpn::new(0), Qpn::new(99)]);
        if dest_qp == Qpn::MULTICAST {
            addressing.destination = [239, 1, 2, input.byte() % 3].into();
        }
    }
    let response = Opcode::from_code(code).is_some_and(|row| row.operation.is_response());
    let psn = psn(qp, response, input);
    let q_key = info.map_or(QKey(0), |info| info.attributes.q_key);
    let p_key = if input.rarely(16) { PKey(input.u16()) } else { PKey::DEFAULT };
    let flags = input.byte();
    let bth = Bth {
        opcode: code,
        solicited: flags & 1 != 0,
        mig_req: flags & 2 != 0,
        pad: 0,
        p_key,
        fecn: false,
        becn: flags & 4 != 0,
        dest_qp,
        ack_req: flags & 8 != 0,
        psn,
        ..Bth::default()
    };
    let mut payload = vec![b'h'; payload_len(input)];
    let remote = remote(end, input);
    let room = &mut vec![0; ROOM + 64];
    let len = match Opcode::from_code(code) {
        Some(row) => {
            if row.headers.contains(&Header::AtomicEth) || row.operation == Operation::Acknowledge {
                payload.truncate(input.below(2));
            }
            let headers = headers(row, bth, q_key, remote, payload.len(), input);
            let packet = Packet { opcode: row, headers, payload: Payload::bytes(&payload) };
            let cover = cover(&addressing, packet.len()).expect("one family");
            packet.emit(Room::whole(room), &cover).expect("there is room")
        }
        None => {
            room[..Bth::LEN].copy_from_slice(&bth.emit());
            let len = Bth::LEN + payload.len() / 4 * 4 + ICRC_LEN;
            let cover = cover(&addressing, len).expect("one family");
            icrc::seal(&cover, Room::whole(&mut room[..len]));
            len
        }
    };
    let bytes = room[..len].to_vec();
    Flight { addressing, bytes, elided: None, covered: !input.rarely(8), damaged: false }
}

/// A PSN near one whose turn it is: for answers, that of the newest request.
fn psn(qp: Option<&Qp>, response: bool, input: &mut Input<'_>) -> Psn {
    let Some(qp) = qp else { return Psn::new(input.u32()) };
    let near = match input.below(4) {
        0 => qp.sent,
        2 | 3 if response => qp.sent.previous(),
        1 if input.rarely(8) => Psn::new(input.u32()),
        _ => qp.answered,
    };
    let by = input.byte().cast_signed();
    let by = if by.unsigned_abs() < 64 { by % 4 } else { by };
    if by < 0 {
        near.back(by.unsigned_abs().into())
    } else {
        near.advance(by.unsigned_abs().into())
    }
}

fn payload_len(input: &mut Input<'_>) -> usize {
    match input.byte() {
        some @ 0..=0x7f => usize::from(some & 15),
        0x80..=0x9f => 8,
        0xa0..=0xbf => 256,
        0xc0..=0xdf => 1024,
        0xe0..=0xef => 4096,
        _ => 255 + usize::from(input.byte()) * 5,
    }
}

fn headers(
    row: &Opcode,
    bth: Bth,
    q_key: QKey,
    (va, r_key): (u64, RKey),
    payload: usize,
    input: &mut Input<'_>,
) -> Headers {
    let mut headers = Headers { bth, ..Headers::default() };
    for header in row.headers {
        match header {
            Header::Rdeth => {
                headers.rdeth = Some(roxe_wire::Rdeth::parse(input.u32().to_be_bytes()))
            }
            Header::Xrceth => {
                headers.xrceth = Some(roxe_wire::Xrceth::parse(input.u32().to_be_bytes()));
            }
            Header::Deth => {
                let q_key = if input.rarely(8) { QKey(input.u32()) } else { q_key };
                let source_qp = Qpn::new(input.u16().into());
                headers.deth = Some(Deth { q_key, reserved: 0, source_qp });
            }
            Header::Reth => {
                let dma_len = match input.below(4) {
                    0 => input.number() as u32,
                    1 => payload as u32 + u32::from(input.u16()),
                    _ => payload as u32,
                };
                headers.reth = Some(Reth { va, r_key, dma_len });
            }
            Header::AtomicEth => {
                let va = if input.rarely(8) { va } else { va & !7 };
                let (swap_add, compare) = (input.number(), input.number());
                headers.atomic_eth = Some(AtomicEth { va, r_key, swap_add, compare });
            }
            Header::Aeth => {
                let syndrome = Syndrome::from_byte(input.byte());
                let syndrome = syndrome.unwrap_or(Syndrome::Ack(roxe_wire::Credits::INVALID));
                headers.aeth = Some(Aeth { syndrome, msn: Msn::new(input.byte().into()) });
            }
            Header::AtomicAckEth => {
                headers.atomic_ack_eth = Some(AtomicAckEth { original: input.number() });
            }
            Header::ImmDt => headers.imm_dt = Some(ImmDt(input.byte().into())),
            Header::Ieth => headers.ieth = Some(Ieth { r_key }),
            Header::Feth => headers.feth = Some(feth(input)),
            Header::CnpReserved => headers.cnp_reserved = Some(CnpReserved([0; 16])),
        }
    }
    headers
}

fn feth(input: &mut Input<'_>) -> Feth {
    let bits = input.byte();
    let placement = FlushPlacement {
        global_visibility: bits & 1 != 0,
        persistence: bits & 2 != 0,
        reserved: bits >> 2 & 3,
    };
    let selectivity = match bits >> 4 & 3 {
        0 => FlushSelectivity::Range,
        1 => FlushSelectivity::MemoryRegion,
        other => FlushSelectivity::Reserved(other),
    };
    Feth { placement, selectivity, reserved: 0 }
}

/// An address and a key, most likely ones that open something.
pub fn remote(end: &End, input: &mut Input<'_>) -> (u64, RKey) {
    let choice = input.byte();
    let memory = &end.memory;
    let (va, key) = match choice & 7 {
        0 if !memory.bindings.is_empty() => {
            let binding = memory.bindings[usize::from(choice >> 3) % memory.bindings.len()].what;
            (crate::model::start_of(binding.access, binding.span.va), binding.new_key)
        }
        1 if !memory.registering.is_empty() => {
            let made = &memory.registering[usize::from(choice >> 3) % memory.registering.len()];
            (crate::model::start_of(made.access, made.span.va), made.new_key)
        }
        2 if !memory.windows.is_empty() => {
            (0, memory.windows[usize::from(choice >> 3) % memory.windows.len()].key)
        }
        3 if choice >> 3 == 31 => (input.u64(), RKey(input.u32())),
        _ if memory.regions.is_empty() => (0, RKey(0)),
        _ => {
            let region = &memory.regions[usize::from(choice >> 3) % memory.regions.len()];
            (crate::model::start_of(region.access, region.va), RKey(region.key.0))
        }
    };
    (va.wrapping_add(if input.flag() { 0 } else { input.number() }), key)
}

/// Bytes as they come.
pub fn raw(input: &mut Input<'_>, own: Addressing) -> Flight {
    let len = input.below(80);
    let bytes = input.bytes(len).to_vec();
    Flight { addressing: own, bytes, elided: None, covered: input.flag(), damaged: false }
}

/// What an address of ours looks like to who sends to it.
pub fn to(own: Gid, from: Gid) -> Addressing {
    Addressing {
        source: from.to_ip(),
        destination: own.to_ip(),
        source_port: 0xc000,
        traffic_class: TrafficClass(0),
        hop_limit: 64,
        flow_label: 0,
        vlan: None,
    }
}
