//! What each bit of a header means: the layouts as tables, for people who read frames.
//!
//! A [`HeaderLayout`] lists a header's fields in wire order, with their widths, so that offsets
//! follow and nothing can overlap. `roxe explain -v` prints them with their bits, `--json` and
//! `--filter` take names and raw values from them. The headers' own modules parse and emit without
//! these tables; a test holds the two against each other.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use crate::opcode::{Header, Service};
use crate::{Credits, Ecn, FieldValue, NakCode, Opcode, PKey, QKey, Qpn, Syndrome, TrafficClass};

/// A header: its name and its fields.
#[derive(Debug)]
pub struct HeaderLayout {
    /// The usual abbreviation.
    pub name: &'static str,
    /// What that stands for.
    pub title: &'static str,
    /// In wire order; together all of the header's bits.
    pub fields: &'static [FieldLayout],
}

impl HeaderLayout {
    /// Bytes of the header.
    #[expect(clippy::len_without_is_empty, reason = "every header has fields")]
    pub const fn len(&self) -> usize {
        let (mut bits, mut i) = (0, 0);
        while i < self.fields.len() {
            bits += self.fields[i].bits as usize;
            i += 1;
        }
        bits / 8
    }

    /// The fields, each with the bit at which it begins, counted from the header's first.
    pub fn placed(&self) -> impl Iterator<Item = (usize, &'static FieldLayout)> {
        self.fields.iter().scan(0, |at, field| {
            let bit = *at;
            *at += usize::from(field.bits);
            Some((bit, field))
        })
    }
}

/// A field of a header.
#[derive(Debug)]
pub struct FieldLayout {
    /// What people call it.
    pub name: &'static str,
    /// Its name in `--json` and `--filter`; `None` for one that is not shown there.
    pub key: Option<&'static str>,
    /// How wide it is.
    pub bits: u8,
    /// How it is written.
    pub form: Form,
    /// What a value means, in words; nothing where the value says it all.
    pub says: fn(u64, &mut fmt::Formatter<'_>) -> fmt::Result,
}

/// How a field's value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Decimal.
    Decimal,
    /// Hexadecimal, with all digits of the width.
    Hex,
    /// A yes or no.
    Flag,
    /// Bytes: an Ethernet address, or reserved ones.
    Bytes,
    /// An IP address.
    Address,
}

impl FieldLayout {
    /// The raw value: `bits` bits from `bit` of `header`. Of fields wider than 64 bits, the last
    /// 64. `None` when the header ends before.
    pub fn value(&self, header: &[u8], bit: usize) -> Option<u64> {
        let end = bit + usize::from(self.bits);
        let bytes = header.get(bit / 8..end.div_ceil(8))?;
        let all = bytes.iter().fold(0u128, |all, &byte| all << 8 | u128::from(byte));
        let shifted = all >> (end.div_ceil(8) * 8 - end);
        let kept = if self.bits < 64 { shifted & ((1 << self.bits) - 1) } else { shifted };
        u64::try_from(kept & u128::from(u64::MAX)).ok()
    }

    /// The value as `--json` has it.
    pub fn json<'a>(&self, header: &'a [u8], bit: usize) -> Option<FieldValue<'a>> {
        let value = self.value(header, bit)?;
        Some(match self.form {
            Flag => FieldValue::Flag(value != 0),
            Bytes => FieldValue::Bytes(header.get(bit / 8..)?.get(..self.byte_len())?),
            Address => {
                let bytes = header.get(bit / 8..)?;
                FieldValue::Address(match bytes.first_chunk::<16>() {
                    Some(v6) if self.bits == 128 => Ipv6Addr::from_octets(*v6).into(),
                    _ => Ipv4Addr::from_octets(*bytes.first_chunk()?).into(),
                })
            }
            Hex if self.bits == 64 => FieldValue::Hex64(value),
            Decimal | Hex => FieldValue::Number(value),
        })
    }

    /// Bytes of a field that fills whole ones.
    fn byte_len(&self) -> usize {
        usize::from(self.bits) / 8
    }

    /// What `value` means; may be empty.
    pub fn meaning(&self, value: u64) -> impl fmt::Display + use<> {
        Meaning { says: self.says, value }
    }
}

struct Meaning {
    says: fn(u64, &mut fmt::Formatter<'_>) -> fmt::Result,
    value: u64,
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.says)(self.value, f)
    }
}

/// The layout of an extension header.
pub const fn extension(header: Header) -> &'static HeaderLayout {
    match header {
        Header::Rdeth => &RDETH,
        Header::Deth => &DETH,
        Header::Xrceth => &XRCETH,
        Header::Reth => &RETH,
        Header::AtomicEth => &ATOMIC_ETH,
        Header::Aeth => &AETH,
        Header::AtomicAckEth => &ATOMIC_ACK_ETH,
        Header::ImmDt => &IMM_DT,
        Header::Ieth => &IETH,
        Header::Feth => &FETH,
        Header::CnpReserved => &CNP_RESERVED,
    }
}

use Form::{Address, Bytes, Decimal, Flag, Hex};

/// A field that `--json` shows.
const fn shown(
    name: &'static str,
    key: &'static str,
    bits: u8,
    form: Form,
    says: fn(u64, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> FieldLayout {
    FieldLayout { name, key: Some(key), bits, form, says }
}

/// A field that only `-v` shows.
const fn plain(
    name: &'static str,
    bits: u8,
    form: Form,
    says: fn(u64, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> FieldLayout {
    FieldLayout { name, key: None, bits, form, says }
}

/// Base transport header.
#[rustfmt::skip]
pub static BTH: HeaderLayout = HeaderLayout { name: "BTH", title: "base transport header", fields: &[
    shown("opcode",         "bth.opcode",    8, Hex,     opcode),
    shown("SE",             "bth.se",        1, Flag,    |v, f| yes(v, f, "solicited event: wakes a receiver that waits for such")),
    shown("MigReq",         "bth.m",         1, Flag,    |v, f| either(v, f, "path migration armed, or not spoken", "migrated: the usual value of senders without path migration")),
    shown("pad count",      "bth.padcnt",    2, Decimal, pad_count),
    shown("TVer",           "bth.tver",      4, Decimal, |v, f| either(v, f, "the transport version", "unknown transport version: dropped")),
    shown("P_Key",          "bth.p_key",    16, Hex,     p_key),
    shown("FECN",           "bth.fecn",      1, Flag,    |v, f| yes(v, f, "not used by RoCE; not covered by the ICRC")),
    shown("BECN",           "bth.becn",      1, Flag,    |v, f| yes(v, f, "a congestion notification")),
    shown("reserved",       "bth.reserved6", 6, Decimal, |v, f| yes(v, f, "not 0, and ignored; not covered by the ICRC")),
    shown("destination QP", "bth.destqp",   24, Hex,     queue_pair),
    shown("AckReq",         "bth.a",         1, Flag,    |v, f| yes(v, f, "the receiver shall answer")),
    shown("reserved",       "bth.reserved7", 7, Decimal, |v, f| yes(v, f, "not 0, and ignored")),
    shown("PSN",            "bth.psn",      24, Decimal, nothing),
] };

/// Reliable datagram extended transport header.
#[rustfmt::skip]
pub static RDETH: HeaderLayout = HeaderLayout { name: "RDETH", title: "reliable datagram extended transport header", fields: &[
    plain("reserved",                     8, Decimal, nothing),
    shown("EE context", "rdeth.eecnxt",  24, Decimal, nothing),
] };

/// Datagram extended transport header.
#[rustfmt::skip]
pub static DETH: HeaderLayout = HeaderLayout { name: "DETH", title: "datagram extended transport header", fields: &[
    shown("Q_Key",     "deth.q_key", 32, Hex,     q_key),
    plain("reserved",                 8, Decimal, nothing),
    shown("source QP", "deth.srcqp", 24, Hex,     queue_pair),
] };

/// XRC extended transport header.
#[rustfmt::skip]
pub static XRCETH: HeaderLayout = HeaderLayout { name: "XRCETH", title: "XRC extended transport header", fields: &[
    plain("reserved",                 8, Decimal, nothing),
    shown("XRC SRQ", "xrceth.srq",   24, Hex,     |_, f| f.write_str("the receiver's shared receive queue")),
] };

/// RDMA extended transport header.
#[rustfmt::skip]
pub static RETH: HeaderLayout = HeaderLayout { name: "RETH", title: "RDMA extended transport header", fields: &[
    shown("virtual address", "reth.va",     64, Hex,     |_, f| f.write_str("where in the responder's memory")),
    shown("R_Key",           "reth.r_key",  32, Hex,     |_, f| f.write_str("which memory region or window")),
    shown("DMA length",      "reth.dmalen", 32, Decimal, |_, f| f.write_str("bytes of the whole message")),
] };

/// Atomic extended transport header.
#[rustfmt::skip]
pub static ATOMIC_ETH: HeaderLayout = HeaderLayout { name: "AtomicETH", title: "atomic extended transport header", fields: &[
    shown("virtual address", "reth.va",          64, Hex, |_, f| f.write_str("where in the responder's memory")),
    shown("R_Key",           "reth.r_key",       32, Hex, |_, f| f.write_str("which memory region")),
    shown("swap or add",     "atomiceth.swapdt", 64, Hex, |_, f| f.write_str("what to store, or what to add")),
    shown("compare",         "atomiceth.cmpdt",  64, Hex, |_, f| f.write_str("what to compare with; without a meaning in FETCH_ADD")),
] };

/// ACK extended transport header.
#[rustfmt::skip]
pub static AETH: HeaderLayout = HeaderLayout { name: "AETH", title: "ACK extended transport header", fields: &[
    shown("syndrome", "aeth.syndrome",  8, Hex,     syndrome),
    shown("MSN",      "aeth.msn",      24, Decimal, |_, f| f.write_str("messages that the responder completed")),
] };

/// Atomic ACK extended transport header.
#[rustfmt::skip]
pub static ATOMIC_ACK_ETH: HeaderLayout = HeaderLayout { name: "AtomicAckETH", title: "atomic ACK extended transport header", fields: &[
    shown("original data", "atomicacketh.origremdt", 64, Hex, |_, f| f.write_str("what stood there before")),
] };

/// Immediate data.
#[rustfmt::skip]
pub static IMM_DT: HeaderLayout = HeaderLayout { name: "ImmDt", title: "immediate data", fields: &[
    shown("immediate data", "immdt", 32, Hex, |_, f| f.write_str("goes into the receiver's completion")),
] };

/// Invalidate extended transport header.
#[rustfmt::skip]
pub static IETH: HeaderLayout = HeaderLayout { name: "IETH", title: "invalidate extended transport header", fields: &[
    shown("R_Key", "ieth", 32, Hex, |_, f| f.write_str("the receiver's key that stops being valid")),
] };

/// Flush extended transport header.
#[rustfmt::skip]
pub static FETH: HeaderLayout = HeaderLayout { name: "FETH", title: "flush extended transport header", fields: &[
    plain("reserved",                         26, Decimal, nothing),
    shown("selectivity", "feth.selectivity",   2, Decimal, selectivity),
    shown("placement",   "feth.placement",     4, Decimal, placement),
] };

/// The reserved bytes of a congestion notification.
#[rustfmt::skip]
pub static CNP_RESERVED: HeaderLayout = HeaderLayout { name: "CNP", title: "reserved bytes of a congestion notification", fields: &[
    plain("reserved", 128, Bytes, nothing),
] };

/// Ethernet.
#[rustfmt::skip]
pub static ETHERNET: HeaderLayout = HeaderLayout { name: "Ethernet", title: "link", fields: &[
    plain("destination", 48, Bytes, nothing),
    plain("source",      48, Bytes, nothing),
    plain("Ethertype",   16, Hex,   ether_type),
] };

/// A VLAN tag, with the Ethertype behind it.
#[rustfmt::skip]
pub static VLAN: HeaderLayout = HeaderLayout { name: "VLAN", title: "tag", fields: &[
    plain("priority",       3, Decimal, nothing),
    plain("drop eligible",  1, Flag,    nothing),
    plain("VLAN",          12, Decimal, |v, f| if v == 0 { f.write_str("none: a priority tag") } else { Ok(()) }),
    plain("Ethertype",     16, Hex,     ether_type),
] };

/// IPv4 without options.
#[rustfmt::skip]
pub static IPV4: HeaderLayout = HeaderLayout { name: "IPv4", title: "network", fields: &[
    plain("version",          4, Decimal, nothing),
    plain("header length",    4, Decimal, |v, f| write!(f, "{} bytes", v * 4)),
    plain("DSCP",             6, Decimal, |_, f| f.write_str("not covered by the ICRC")),
    plain("ECN",              2, Decimal, ecn),
    plain("total length",    16, Decimal, nothing),
    plain("identification",  16, Hex,     nothing),
    plain("reserved",         1, Flag,    nothing),
    plain("do not fragment",  1, Flag,    nothing),
    plain("more fragments",   1, Flag,    nothing),
    plain("fragment offset", 13, Decimal, nothing),
    plain("time to live",     8, Decimal, |_, f| f.write_str("not covered by the ICRC")),
    plain("protocol",         8, Decimal, |v, f| if v == 17 { f.write_str("UDP") } else { Ok(()) }),
    plain("header checksum", 16, Hex,     |_, f| f.write_str("not covered by the ICRC")),
    plain("source",          32, Address, nothing),
    plain("destination",     32, Address, nothing),
] };

/// IPv6.
#[rustfmt::skip]
pub static IPV6: HeaderLayout = HeaderLayout { name: "IPv6", title: "network", fields: &[
    plain("version",          4, Decimal, nothing),
    plain("DSCP",             6, Decimal, |_, f| f.write_str("not covered by the ICRC")),
    plain("ECN",              2, Decimal, ecn),
    plain("flow label",      20, Hex,     |_, f| f.write_str("not covered by the ICRC")),
    plain("payload length",  16, Decimal, nothing),
    plain("next header",      8, Decimal, |v, f| if v == 17 { f.write_str("UDP") } else { Ok(()) }),
    plain("hop limit",        8, Decimal, |_, f| f.write_str("not covered by the ICRC")),
    plain("source",         128, Address, nothing),
    plain("destination",    128, Address, nothing),
] };

/// UDP.
#[rustfmt::skip]
pub static UDP: HeaderLayout = HeaderLayout { name: "UDP", title: "user datagram", fields: &[
    plain("source port",      16, Decimal, |_, f| f.write_str("spreads flows over paths")),
    plain("destination port", 16, Decimal, |v, f| if v == 4791 { f.write_str("RoCEv2") } else { Ok(()) }),
    plain("length",           16, Decimal, nothing),
    plain("checksum",         16, Hex,     |v, f| either(v, f, "none: the ICRC protects the packet, but not what routers change", "not covered by the ICRC")),
] };

fn nothing(_: u64, _: &mut fmt::Formatter<'_>) -> fmt::Result {
    Ok(())
}

fn yes(value: u64, f: &mut fmt::Formatter<'_>, words: &str) -> fmt::Result {
    if value == 0 { Ok(()) } else { f.write_str(words) }
}

fn either(value: u64, f: &mut fmt::Formatter<'_>, zero: &str, other: &str) -> fmt::Result {
    f.write_str(if value == 0 { zero } else { other })
}

fn low_u8(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

fn low_u16(value: u64) -> u16 {
    let [low, high, ..] = value.to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn low_u32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn opcode(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let code = low_u8(value);
    match (Opcode::from_code(code), Service::from_code(code)) {
        (Some(row), _) => f.write_str(row.name),
        (None, Some(service)) => write!(f, "reserved, of service {}", service.name()),
        (None, None) if code >= 0xe0 => f.write_str("manufacturer specific"),
        (None, None) => f.write_str("reserved"),
    }
}

fn pad_count(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        0 => f.write_str("the payload is a multiple of four bytes"),
        1 => f.write_str("1 byte of zeros behind the payload"),
        more => write!(f, "{more} bytes of zeros behind the payload"),
    }
}

fn p_key(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let key = PKey(low_u16(value));
    let member = if key.is_full_member() { "full" } else { "limited" };
    match key.partition() {
        0x7fff => write!(f, "{member} member of the default partition"),
        0 => f.write_str("an invalid partition"),
        partition => write!(f, "{member} member of partition 0x{partition:04x}"),
    }
}

fn queue_pair(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match Qpn::new(low_u32(value)) {
        Qpn::SMI => f.write_str("subnet management: does not exist on RoCE"),
        Qpn::GSI => f.write_str("general services: connection management"),
        Qpn::MULTICAST => f.write_str("all members of the multicast group"),
        _ => Ok(()),
    }
}

fn q_key(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match QKey(low_u32(value)) {
        QKey::GSI => f.write_str("the key of QP 1"),
        QKey::RDMA_CM => f.write_str("the key that the RDMA CM gives"),
        _ => Ok(()),
    }
}

fn syndrome(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match Syndrome::from_byte(low_u8(value)) {
        Some(Syndrome::Ack(Credits::INVALID)) => f.write_str("ACK, no credit information"),
        Some(syndrome) => fmt::Display::fmt(&syndrome, f),
        None => f.write_str("reserved"),
    }
}

fn selectivity(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match value {
        0 => "the range that the RETH names",
        1 => "the whole memory region",
        _ => "reserved",
    })
}

fn placement(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match value & 3 {
        0 => "nothing asked for",
        1 => "globally visible",
        2 => "persistent",
        _ => "globally visible and persistent",
    })
}

fn ether_type(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match value {
        0x0800 => "IPv4",
        0x86dd => "IPv6",
        0x8100 => "VLAN tag",
        0x88a8 | 0x9100 | 0x9200 => "outer VLAN tag",
        0x8915 => "RoCE v1",
        _ => "",
    })
}

fn ecn(value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(match TrafficClass(low_u8(value)).ecn() {
        Ecn::NotEct => "congestion notification is not spoken",
        Ecn::Ect0 | Ecn::Ect1 => "congestion may be marked here",
        Ecn::Ce => "congestion was experienced",
    })
}

/// In a line: `ACK`, `ACK credits 24`, `RNR NAK wait 5.12 ms`, `NAK PSN sequence error`.
impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ack(Credits::INVALID) => f.write_str("ACK"),
            Self::Ack(credits) => write!(f, "ACK credits {}", credits.count().unwrap_or(0)),
            Self::RnrNak(timer) => {
                let tens = timer.duration().as_micros() / 10;
                write!(f, "RNR NAK wait {}.{:02} ms", tens / 100, tens % 100)
            }
            Self::Nak(NakCode::Reserved(code)) => write!(f, "NAK reserved code {code}"),
            Self::Nak(code) => write!(f, "NAK {code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AtomicEth, Bth, Deth, Feth, Reth};
    use std::string::ToString;
    use std::vec::Vec;

    /// The value of the field called so.
    fn value(layout: &HeaderLayout, name: &str, header: &[u8]) -> u64 {
        let (bit, field) = layout.placed().find(|(_, field)| field.name == name).unwrap();
        field.value(header, bit).unwrap()
    }

    #[test]
    fn layouts_are_as_long_as_their_headers() {
        assert_eq!(BTH.len(), Bth::LEN);
        for row in crate::opcode::OPCODES {
            for header in row.headers {
                assert_eq!(extension(*header).len(), header.len(), "{header:?}");
            }
        }
        let lens = [&ETHERNET, &VLAN, &IPV4, &IPV6, &UDP].map(HeaderLayout::len);
        assert_eq!(lens, [14, 4, 20, 40, 8]);
    }

    /// What a parser takes a bit for, its table takes it for too: every header with one bit set.
    #[test]
    fn tables_and_parsers_agree_on_every_bit() {
        for bit in 0..Bth::LEN * 8 {
            let mut bytes = [0; Bth::LEN];
            bytes[bit / 8] |= 0x80 >> (bit % 8);
            let Ok(bth) = Bth::parse(bytes) else {
                assert_ne!(value(&BTH, "TVer", &bytes), 0);
                continue;
            };
            assert_eq!(value(&BTH, "opcode", &bytes), bth.opcode.into());
            assert_eq!(value(&BTH, "SE", &bytes), bth.solicited.into());
            assert_eq!(value(&BTH, "MigReq", &bytes), bth.mig_req.into());
            assert_eq!(value(&BTH, "pad count", &bytes), bth.pad.into());
            assert_eq!(value(&BTH, "P_Key", &bytes), bth.p_key.0.into());
            assert_eq!(value(&BTH, "FECN", &bytes), bth.fecn.into());
            assert_eq!(value(&BTH, "BECN", &bytes), bth.becn.into());
            assert_eq!(value(&BTH, "destination QP", &bytes), bth.dest_qp.get().into());
            assert_eq!(value(&BTH, "AckReq", &bytes), bth.ack_req.into());
            assert_eq!(value(&BTH, "PSN", &bytes), bth.psn.get().into());
        }
        for bit in 0..AtomicEth::LEN * 8 {
            let mut bytes = [0; AtomicEth::LEN];
            bytes[bit / 8] |= 0x80 >> (bit % 8);
            let atomic = AtomicEth::parse(bytes);
            assert_eq!(value(&ATOMIC_ETH, "virtual address", &bytes), atomic.va);
            assert_eq!(value(&ATOMIC_ETH, "R_Key", &bytes), atomic.r_key.0.into());
            assert_eq!(value(&ATOMIC_ETH, "swap or add", &bytes), atomic.swap_add);
            assert_eq!(value(&ATOMIC_ETH, "compare", &bytes), atomic.compare);
        }
        for bit in 0..Reth::LEN * 8 {
            let mut bytes = [0; Reth::LEN];
            bytes[bit / 8] |= 0x80 >> (bit % 8);
            let reth = Reth::parse(bytes);
            assert_eq!(value(&RETH, "virtual address", &bytes), reth.va);
            assert_eq!(value(&RETH, "DMA length", &bytes), reth.dma_len.into());
        }
        let deth = Deth { q_key: QKey(0x1122_3344), reserved: 9, source_qp: Qpn::new(0x55_6677) };
        assert_eq!(value(&DETH, "Q_Key", &deth.emit()), 0x1122_3344);
        assert_eq!(value(&DETH, "source QP", &deth.emit()), 0x55_6677);
        let feth = Feth::parse([0, 0, 0, 0x12]).emit();
        assert_eq!((value(&FETH, "selectivity", &feth), value(&FETH, "placement", &feth)), (1, 2));
    }

    #[test]
    fn a_header_that_ends_early_has_no_value() {
        let (bit, psn) = BTH.placed().last().unwrap();
        assert_eq!(psn.value(&[0; 11], bit), None);
        assert_eq!(psn.json(&[0; 11], bit), None);
    }

    #[test]
    fn values_have_their_forms_and_meanings() {
        let address = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        let shown: Vec<_> =
            IPV4.placed().filter_map(|(bit, field)| field.json(&address, bit)).collect();
        assert_eq!(shown[13].to_string(), "192.0.2.1");
        let says = |layout: &HeaderLayout, name, value| {
            let field = layout.fields.iter().find(|field| field.name == name).unwrap();
            field.meaning(value).to_string()
        };
        assert_eq!(says(&BTH, "opcode", 0x04), "RC_SEND_ONLY");
        assert_eq!(says(&BTH, "opcode", 0xe0), "manufacturer specific");
        assert_eq!(says(&BTH, "opcode", 0x15), "reserved, of service RC");
        assert_eq!(says(&AETH, "syndrome", 0x32), "RNR NAK wait 5.12 ms");
        assert_eq!(says(&AETH, "syndrome", 0x09), "ACK credits 24");
        assert_eq!(says(&AETH, "syndrome", 0x1f), "ACK, no credit information");
        assert_eq!(says(&AETH, "syndrome", 0x60), "NAK PSN sequence error");
        assert_eq!(says(&BTH, "P_Key", 0x7fff), "limited member of the default partition");
    }
}
