//! Random paths, headers and packets.

#![allow(dead_code, reason = "each test file takes what it needs")]

use proptest::prelude::*;
use roxe_wire::opcode::{Header, OPCODES};
use roxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CnpReserved, Deth, EeContext, Feth, FrameTemplate, Headers,
    Ieth, ImmDt, IpPair, MacAddress, Msn, Opcode, PKey, Packet, Path, Payload, Psn, QKey, Qpn,
    RKey, Rdeth, Reth, Room, Syndrome, TrafficClass, VlanTag, XrcSrqNumber, Xrceth, pad_for,
};

/// A path of either family, with or without a VLAN tag.
pub(crate) fn path() -> impl Strategy<Value = Path> {
    let ip = prop_oneof![
        any::<([u8; 4], [u8; 4])>()
            .prop_map(|(from, to)| IpPair::V4 { source: from.into(), destination: to.into() }),
        any::<([u8; 16], [u8; 16])>()
            .prop_map(|(from, to)| IpPair::V6 { source: from.into(), destination: to.into() }),
    ];
    let link = any::<([u8; 6], [u8; 6], Option<u16>)>();
    (link, ip, any::<(u8, u8, u32, u16)>()).prop_map(|((to, from, tag), ip, rest)| {
        let (class, hop_limit, flow_label, source_port) = rest;
        let is_v6 = matches!(ip, IpPair::V6 { .. });
        Path {
            ethernet: (MacAddress(to), MacAddress(from)),
            vlan: tag.map(VlanTag),
            ip,
            traffic_class: TrafficClass(class),
            hop_limit,
            flow_label: if is_v6 { flow_label & 0xf_ffff } else { 0 },
            source_port,
        }
    })
}

/// Any row of the opcode table.
pub(crate) fn row() -> impl Strategy<Value = &'static Opcode> {
    (0..OPCODES.len()).prop_map(|row| &OPCODES[row])
}

/// The headers of a packet with this opcode and so many bytes of payload; every field random.
pub(crate) fn headers(row: &'static Opcode, payload_len: usize) -> impl Strategy<Value = Headers> {
    let bth = any::<(u8, [u8; 10])>();
    let extensions = any::<([u8; 28], [u8; 16], [u8; 16], [u8; 8], [u8; 8], [[u8; 4]; 6])>();
    (bth, extensions, syndrome()).prop_map(move |((flags, rest), extensions, syndrome)| {
        let (atomic, reth, cnp, deth, atomic_ack, [aeth, rdeth, xrceth, imm, feth, ieth]) =
            extensions;
        let has = |header| row.headers.contains(&header);
        let u24 = |[_, high, middle, low]: [u8; 4]| u32::from_be_bytes([0, high, middle, low]);
        Headers {
            bth: Bth {
                opcode: row.code,
                solicited: flags & 1 != 0,
                mig_req: flags & 2 != 0,
                pad: pad_for(payload_len),
                p_key: PKey(u16::from_be_bytes([rest[0], rest[1]])),
                fecn: flags & 4 != 0,
                becn: flags & 8 != 0,
                reserved_6: rest[2] & 0x3f,
                dest_qp: Qpn::new(u24([0, rest[3], rest[4], rest[5]])),
                ack_req: flags & 16 != 0,
                reserved_7: rest[6] & 0x7f,
                psn: Psn::new(u24([0, rest[7], rest[8], rest[9]])),
            },
            rdeth: has(Header::Rdeth)
                .then(|| Rdeth { reserved: rdeth[0], ee_context: EeContext::new(u24(rdeth)) }),
            deth: has(Header::Deth).then(|| Deth {
                q_key: QKey(u32::from_be_bytes([deth[0], deth[1], deth[2], deth[3]])),
                reserved: deth[4],
                source_qp: Qpn::new(u24([0, deth[5], deth[6], deth[7]])),
            }),
            xrceth: has(Header::Xrceth)
                .then(|| Xrceth { reserved: xrceth[0], xrc_srq: XrcSrqNumber::new(u24(xrceth)) }),
            feth: has(Header::Feth).then(|| Feth::parse(feth)),
            reth: has(Header::Reth).then(|| Reth {
                va: u64::from_be_bytes(*reth.first_chunk().unwrap()),
                r_key: RKey(u32::from_be_bytes(reth[8..12].try_into().unwrap())),
                dma_len: u32::from_be_bytes(reth[12..].try_into().unwrap()),
            }),
            atomic_eth: has(Header::AtomicEth).then(|| AtomicEth {
                va: u64::from_be_bytes(*atomic.first_chunk().unwrap()),
                r_key: RKey(u32::from_be_bytes(atomic[8..12].try_into().unwrap())),
                swap_add: u64::from_be_bytes(atomic[12..20].try_into().unwrap()),
                compare: u64::from_be_bytes(atomic[20..].try_into().unwrap()),
            }),
            aeth: has(Header::Aeth).then(|| Aeth { syndrome, msn: Msn::new(u24(aeth)) }),
            atomic_ack_eth: has(Header::AtomicAckEth)
                .then(|| AtomicAckEth { original: u64::from_be_bytes(atomic_ack) }),
            imm_dt: has(Header::ImmDt).then(|| ImmDt(u32::from_be_bytes(imm))),
            ieth: has(Header::Ieth).then(|| Ieth { r_key: RKey(u32::from_be_bytes(ieth)) }),
            cnp_reserved: has(Header::CnpReserved).then_some(CnpReserved(cnp)),
        }
    })
}

/// Any syndrome that is not reserved.
pub(crate) fn syndrome() -> impl Strategy<Value = Syndrome> {
    any::<u8>().prop_filter_map("reserved", Syndrome::from_byte)
}

/// Headers and payload of any packet, up to `most` bytes of payload.
pub(crate) fn packet(most: usize) -> impl Strategy<Value = (Headers, Vec<u8>)> {
    (row(), prop::collection::vec(any::<u8>(), 0..=most)).prop_flat_map(|(row, payload)| {
        let len = payload.len();
        (headers(row, len), Just(payload))
    })
}

/// A packet of these headers.
pub(crate) fn packet_of<'a>(headers: &Headers, payload: &'a [u8]) -> Packet<'a> {
    Packet {
        opcode: headers.bth.row().unwrap(),
        headers: *headers,
        payload: Payload::bytes(payload),
    }
}

/// The frame of a packet on a path.
pub(crate) fn frame(path: &Path, identification: u16, packet: &Packet<'_>) -> Vec<u8> {
    let template = FrameTemplate::new(path);
    let at = template.headers_len();
    let mut bytes = vec![0xa5; at + packet.len()];
    let len = packet.len().try_into().unwrap();
    let cover = template.write(len, identification, &mut bytes).unwrap();
    packet.emit(Room::whole(&mut bytes[at..]), &cover).unwrap();
    bytes
}
