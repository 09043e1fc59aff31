//! Frames into the device: what a script says about one, as bytes on a wire.
//!
//! What is not said is as a peer of the queue pair would send it. Faults are made at the place
//! where they would happen: wrong fields before the ICRC is computed, damage after it.

use std::net::IpAddr;

use roxe_wire::opcode::{OPCODES, Service};
use roxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CnpReserved, Credits, Deth, Feth, FlushPlacement,
    FlushSelectivity, FrameTemplate, Headers, ICRC_LEN, Ieth, ImmDt, IpPair, MacAddress, Msn,
    NakCode, Opcode, PKey, Path, Psn, QKey, Qpn, RKey, Reth, RnrTimer, Syndrome, TrafficClass,
    VlanTag, icrc, pad_for,
};

use super::mad::{PEER_GUID, Sender};
use super::mistake::Mistake;
use super::parameters::NAK_CODES;
use super::symbols::Numbers;
use super::syntax::{Arguments, PacketForm, PacketName};

/// What a peer would fill in.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerSide {
    pub(super) service: Service,
    /// The device's queue pair.
    pub(super) dest_qp: Qpn,
    /// The peer's queue pair.
    pub(super) source_qp: Qpn,
    pub(super) q_key: QKey,
    pub(super) p_key: PKey,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) vlan: Option<u16>,
    /// The transaction ID of what a management datagram answers.
    pub(super) tid: Option<u64>,
}

/// A frame on the wire.
#[derive(Debug)]
pub(super) struct WireFrame {
    /// From the Ethernet header on.
    pub(super) bytes: Vec<u8>,
    /// Where its second piece begins; at the end when it is in one.
    pub(super) split: usize,
}

/// Makes a frame of what a script says.
pub(super) fn build(
    form: &PacketForm,
    peer: &PeerSide,
    numbers: &Numbers<'_>,
) -> Result<WireFrame, Mistake> {
    let arguments = &form.arguments;
    let datagram = match form.name {
        PacketName::Cm(message) => Some(message.write(numbers, &sender(peer, arguments))?),
        _ => None,
    };
    let payload = datagram.as_deref().or_else(|| arguments.bytes()).unwrap_or_default();
    let row = row_of(form.name, peer.service)?;
    let bth = bth(form.name, row, peer, payload.len(), numbers)?;
    let mut packet = match row {
        Some(row) => {
            let headers = headers(form.name, row, bth, peer, payload.len(), numbers)?;
            let mut room = vec![0; row.headers_len];
            headers.emit(&mut room).map_err(|error| error.to_string())?;
            room
        }
        None => bth.emit().to_vec(),
    };
    if let Some(version) = numbers.get("tver")? {
        packet[1] |= version as u8;
    }
    if let Some(syndrome) = numbers.get("syndrome")? {
        let place = packet.get_mut(Bth::LEN).ok_or("this packet has no syndrome")?;
        *place = syndrome as u8;
    }
    packet.extend_from_slice(payload);
    packet.resize(packet.len() + usize::from(bth.pad), 0);
    packet.resize(packet.len() + ICRC_LEN, 0);
    seal_and_frame(packet, usize::from(bth.pad), peer, numbers)
}

/// What a peer says of itself in management datagrams.
fn sender(peer: &PeerSide, arguments: &Arguments) -> Sender {
    Sender {
        from: arguments.address("from").unwrap_or(peer.from),
        to: arguments.address("to").unwrap_or(peer.to),
        guid: PEER_GUID,
        tid: peer.tid,
    }
}

/// The row of the opcode table; `None` for a raw opcode.
pub(super) fn row_of(
    name: PacketName,
    service: Service,
) -> Result<Option<&'static Opcode>, Mistake> {
    let short = match name {
        PacketName::Raw(_) => return Ok(None),
        PacketName::Row(row) => return Ok(Some(row)),
        PacketName::Ack | PacketName::RnrNak | PacketName::Nak => "ACKNOWLEDGE",
        PacketName::Short(short) => short,
        PacketName::Cm(message) if service != Service::Ud => {
            let what = format!("{} has no {}", service.name(), message.name);
            return Err(Mistake::at(message.name, what));
        }
        PacketName::Cm(_) => "SEND_ONLY",
    };
    let fits = |row: &&Opcode| {
        row.short_name() == short && (row.service == service || row.service == Service::Cnp)
    };
    match OPCODES.iter().find(fits) {
        Some(row) => Ok(Some(row)),
        None => Err(Mistake::at(name.text(), format!("{} has no {short}", service.name()))),
    }
}

fn bth(
    name: PacketName,
    row: Option<&Opcode>,
    peer: &PeerSide,
    payload: usize,
    numbers: &Numbers<'_>,
) -> Result<Bth, Mistake> {
    let code = match (row, name) {
        (Some(row), _) => row.code,
        (None, PacketName::Raw(code)) => code,
        (None, _) => 0,
    };
    let numbered = matches!(row.map(|row| row.service), Some(Service::Ud | Service::Cnp));
    let psn = if numbered { numbers.or("psn", 0)? } else { numbers.need("psn")? };
    let notice = row.is_some_and(|row| row.service == Service::Cnp);
    Ok(Bth {
        opcode: code,
        solicited: numbers.arguments.has("solicited"),
        mig_req: numbers.or("mig", 1)? != 0,
        pad: numbers.or("pad", u64::from(pad_for(payload)))? as u8,
        p_key: PKey(numbers.or("pkey", u64::from(peer.p_key.0))? as u16),
        fecn: numbers.or("fecn", 0)? != 0,
        becn: numbers.or("becn", u64::from(notice))? != 0,
        reserved_6: numbers.or("reserved-6", 0)? as u8,
        dest_qp: Qpn::new(numbers.or("qpn", u64::from(peer.dest_qp.get()))? as u32),
        ack_req: numbers.arguments.has("ack-req"),
        reserved_7: numbers.or("reserved-7", 0)? as u8,
        psn: Psn::new(psn as u32),
    })
}

fn headers(
    name: PacketName,
    row: &Opcode,
    bth: Bth,
    peer: &PeerSide,
    payload: usize,
    numbers: &Numbers<'_>,
) -> Result<Headers, Mistake> {
    use roxe_wire::opcode::Header as H;
    let mut headers = Headers { bth, ..Headers::default() };
    for header in row.headers {
        match header {
            H::Reth => {
                headers.reth = Some(Reth {
                    va: numbers.need("va")?,
                    r_key: RKey(numbers.need("rkey")? as u32),
                    dma_len: match numbers.get("len")? {
                        Some(len) => u32::try_from(len)
                            .map_err(|_| Mistake::at("len", "`len` has 32 bits"))?,
                        None if row.position.ends() && payload != 0 => payload as u32,
                        None => return Err("this packet needs `len`".into()),
                    },
                });
            }
            H::AtomicEth => {
                headers.atomic_eth = Some(AtomicEth {
                    va: numbers.need("va")?,
                    r_key: RKey(numbers.need("rkey")? as u32),
                    swap_add: match numbers.get("swap")? {
                        Some(swap) => swap,
                        None => numbers.need("add")?,
                    },
                    compare: numbers.or("compare", 0)?,
                });
            }
            H::Aeth => {
                headers.aeth = Some(Aeth {
                    syndrome: syndrome(name, numbers)?,
                    msn: Msn::new(numbers.or("msn", 0)? as u32),
                });
            }
            H::AtomicAckEth => {
                headers.atomic_ack_eth = Some(AtomicAckEth { original: numbers.need("value")? });
            }
            H::ImmDt => headers.imm_dt = Some(ImmDt(numbers.need("imm")? as u32)),
            H::Ieth => headers.ieth = Some(Ieth { r_key: RKey(numbers.need("inv")? as u32) }),
            H::Deth => {
                headers.deth = Some(Deth {
                    q_key: QKey(numbers.or("qkey", u64::from(peer.q_key.0))? as u32),
                    reserved: 0,
                    source_qp: Qpn::new(
                        numbers.or("source-qp", u64::from(peer.source_qp.get()))? as u32
                    ),
                });
            }
            H::Feth => headers.feth = Some(flush(numbers.arguments)),
            H::CnpReserved => headers.cnp_reserved = Some(CnpReserved([0; CnpReserved::LEN])),
            H::Rdeth | H::Xrceth => {
                return Err(format!("{row} cannot be written in a script").into());
            }
        }
    }
    Ok(headers)
}

fn syndrome(name: PacketName, numbers: &Numbers<'_>) -> Result<Syndrome, Mistake> {
    match name {
        PacketName::RnrNak => {
            Ok(Syndrome::RnrNak(RnrTimer::from_bits(numbers.need("timer")? as u8)))
        }
        PacketName::Nak => {
            let code = numbers.arguments.word("code").ok_or("a NAK needs `code`")?;
            let bits = NAK_CODES.iter().position(|known| *known == code).unwrap_or(0);
            Ok(Syndrome::Nak(NakCode::from_bits(bits as u8)))
        }
        _ => {
            let unlimited = u64::from(Credits::INVALID.code());
            Ok(Syndrome::Ack(Credits::from_bits(numbers.or("credits", unlimited)? as u8)))
        }
    }
}

fn flush(arguments: &Arguments) -> Feth {
    let placed = |name: &str| arguments.list("placement").iter().any(|word| word == name);
    Feth {
        placement: FlushPlacement {
            global_visibility: placed("global"),
            persistence: placed("persistent"),
            reserved: 0,
        },
        selectivity: match arguments.word("selectivity") {
            Some("region") => FlushSelectivity::MemoryRegion,
            _ => FlushSelectivity::Range,
        },
        reserved: 0,
    }
}

/// Puts ICRC and outer headers around a packet, then does the damage that was asked for.
fn seal_and_frame(
    mut packet: Vec<u8>,
    pad: usize,
    peer: &PeerSide,
    numbers: &Numbers<'_>,
) -> Result<WireFrame, Mistake> {
    let arguments = numbers.arguments;
    let from = arguments.address("from").unwrap_or(peer.from);
    let to = arguments.address("to").unwrap_or(peer.to);
    let template = FrameTemplate::new(&Path {
        ethernet: (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])),
        vlan: tag(peer, numbers)?,
        ip: IpPair::new(from, to).ok_or("the two addresses are of different families")?,
        traffic_class: TrafficClass(numbers.or("tclass", 0)? as u8),
        hop_limit: numbers.or("hop", 64)? as u8,
        flow_label: 0,
        source_port: numbers.or("sport", 0xc000)? as u16,
    });
    let mut outer = vec![0; template.headers_len()];
    let len = u16::try_from(packet.len()).map_err(|_| "the packet is too long for IP")?;
    let cover = template.write(len, 0, &mut outer).ok_or("the packet is too long for IP")?;
    let sealed_len = packet.len() - ICRC_LEN;
    let covered = match arguments.word("icrc") {
        Some("without-pad") => &packet[..sealed_len - pad],
        _ => &packet[..sealed_len],
    };
    let value = icrc::compute(&cover, covered, &[]);
    let value = match arguments.word("icrc") {
        Some("bad") => (value ^ 1).to_le_bytes(),
        Some("big-endian") => value.to_be_bytes(),
        _ => value.to_le_bytes(),
    };
    packet[sealed_len..].copy_from_slice(&value);
    if let Some(cut) = numbers.get("cut")? {
        let others = ["udp-length", "padding", "split", "checksum", "fragment", "outer-vlan"];
        if let Some(other) = others.into_iter().find(|name| arguments.has(name)) {
            return Err(Mistake::at(other, format!("`cut` and `{other}` do not go together")));
        }
        return Ok(reframe(&template, packet, cut as usize));
    }
    damage_outer(&mut outer, &packet, numbers)?;
    let mut bytes = outer;
    if let Some(vlan) = numbers.get("outer-vlan")? {
        let [high, low] = (vlan as u16).to_be_bytes();
        bytes.splice(12..12, [0x88, 0xa8, high, low]);
    }
    let start = bytes.len();
    bytes.extend_from_slice(&packet);
    bytes.resize(bytes.len() + numbers.or("padding", 0)? as usize, 0);
    let split = match numbers.get("split")? {
        Some(split) => (start + split as usize).min(bytes.len()),
        None => bytes.len(),
    };
    Ok(WireFrame { bytes, split })
}

/// The VLAN tag of a frame: that of the queue pair's address, or what is said.
fn tag(peer: &PeerSide, numbers: &Numbers<'_>) -> Result<Option<VlanTag>, Mistake> {
    let (vlan, priority) = (numbers.get("vlan")?, numbers.or("pcp", 0)?);
    let vlan = vlan.map(|vlan| vlan as u16).or(peer.vlan);
    let vlan = vlan.filter(|_| !numbers.arguments.has("untagged"));
    Ok(vlan.map(|vlan| VlanTag((priority as u16) << 13 | vlan)))
}

/// A packet that ends `cut` bytes early, and whose outer headers say so.
fn reframe(template: &FrameTemplate, mut packet: Vec<u8>, cut: usize) -> WireFrame {
    packet.truncate(packet.len().saturating_sub(cut));
    let mut bytes = vec![0; template.headers_len()];
    // It was written longer before, so it can be written shorter.
    let _ = template.write(packet.len() as u16, 0, &mut bytes);
    bytes.extend_from_slice(&packet);
    let split = bytes.len();
    WireFrame { bytes, split }
}

/// Faults of IP and UDP headers. `outer` ends with the UDP header.
fn damage_outer(outer: &mut [u8], packet: &[u8], numbers: &Numbers<'_>) -> Result<(), Mistake> {
    let udp = outer.len() - 8;
    if let Some(len) = numbers.get("udp-length")? {
        outer[udp + 4..udp + 6].copy_from_slice(&(len as u16).to_be_bytes());
    }
    let is_ipv4 = udp < 40;
    let ip = udp - if is_ipv4 { 20 } else { 40 };
    if numbers.arguments.has("fragment") && is_ipv4 {
        outer[ip + 6] = 0x20; // More fragments.
        let sum = ones_complement(&[&outer[ip..ip + 10], &outer[ip + 12..udp]]);
        outer[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    if let Some(checksum) = numbers.arguments.word("checksum") {
        let addresses = &outer[if is_ipv4 { ip + 12 } else { ip + 8 }..udp];
        let len = outer[udp + 4..udp + 6].to_vec();
        let sum = ones_complement(&[addresses, &[0, 17], &len, &outer[udp..udp + 6], packet]);
        let sum = match (checksum, sum) {
            ("bad", sum) => sum ^ 0x0101,
            (_, 0) => 0xffff, // 0 would say that there is none.
            (_, sum) => sum,
        };
        outer[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
    Ok(())
}

/// The checksum of IP and UDP over some pieces, each of which has an even length but the last.
fn ones_complement(pieces: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for piece in pieces {
        for pair in piece.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
