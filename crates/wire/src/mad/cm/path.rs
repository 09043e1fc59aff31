//! One path between two ports, as REQ and LAP describe it.

use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{InBits, Show};
use crate::{AckTimeout, Gid, StaticRate};

use super::{Bits, FlowLabel};

/// A path between two ports: which addresses, and how packets are to be marked and paced. 44 bytes.
///
/// IBA vol 1 §12.6, in the REQ message (twice: primary and alternate) and the LAP message. "Local"
/// is always the sender of the message.
///
/// ```text
///   REQ |  0 local LID (16)           |  2 remote LID (16)                 |
///       |  4 local GID (128)                                               |
///       | 20 remote GID (128)                                              |
///       | 36 flow label (20)                | reserved (6) | rate (6)      |
///       | 40 traffic class (8) | 41 hop limit (8)                          |
///       | 42 SL (4), subnet local (1), reserved (3)                        |
///       | 43 local ACK timeout (5), reserved (3)                           |
///
///   LAP | 36 flow label (20) | reserved (4) | 39 traffic class (8)         |
///       | 40 hop limit (8)   | 41 reserved (2), rate (6)                   |
///       | the rest as in REQ                                               |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// Local identifier of the sender's port. RoCE has none: Linux writes 0xffff for a path that
    /// may be routed, and 0 otherwise.
    pub local_lid: u16,
    /// Local identifier of the receiver's port, likewise meaningless on RoCE.
    pub remote_lid: u16,
    /// The address from which the sender's packets come.
    pub local_gid: Gid,
    /// The address at which the receiver is reached.
    pub remote_gid: Gid,
    /// The flow label; on RoCEv2 both sides may derive UDP source ports from it.
    pub flow_label: FlowLabel,
    /// The rate that the path allows. 0 when unknown.
    pub packet_rate: StaticRate,
    /// The traffic class of IPv6, the type of service of IPv4.
    pub traffic_class: u8,
    /// The hop limit of IPv6, the time to live of IPv4.
    pub hop_limit: u8,
    /// The service level: a priority, 0 ..= 15.
    pub sl: Bits<4>,
    /// Whether the path stays inside one subnet. Linux sets it when the hop limit is at most 1.
    pub subnet_local: bool,
    /// The ACK timeout for the *receiver's* queue pair: packet lifetime both ways, and the
    /// sender's ACK delay already added. IBA vol 1 §12.7.34.
    pub local_ack_timeout: AckTimeout,
}

impl Path {
    /// Bytes on the wire, in REQ as in LAP.
    pub const LEN: usize = 44;

    /// The bits that are not reserved in a REQ.
    pub(crate) const USED_IN_REQ: [u8; Self::LEN] = {
        let mut used = [0xff; Self::LEN];
        (used[38], used[39], used[42], used[43]) = (0xf0, 0x3f, 0xf8, 0xf8);
        used
    };

    /// The bits that are not reserved in a LAP.
    pub(crate) const USED_IN_LAP: [u8; Self::LEN] = {
        let mut used = [0xff; Self::LEN];
        (used[38], used[41], used[42], used[43]) = (0xf0, 0x3f, 0xf8, 0xf8);
        used
    };

    pub(crate) fn from_req(bytes: [u8; Self::LEN]) -> Self {
        let [ends @ .., f2, f1, f0, rate, traffic_class, hop_limit, service, ack] = bytes;
        let tail = Tail { flow: [f2, f1, f0], rate, traffic_class, hop_limit, service, ack };
        Self::join(ends, tail)
    }

    pub(crate) fn to_req(self) -> [u8; Self::LEN] {
        let (ends, tail) = self.split();
        let Tail { flow: [f2, f1, f0], rate, traffic_class, hop_limit, service, ack } = tail;
        glue(ends, [f2, f1, f0, rate, traffic_class, hop_limit, service, ack])
    }

    pub(crate) fn from_lap(bytes: [u8; Self::LEN]) -> Self {
        let [ends @ .., f2, f1, f0, traffic_class, hop_limit, rate, service, ack] = bytes;
        let tail = Tail { flow: [f2, f1, f0], rate, traffic_class, hop_limit, service, ack };
        Self::join(ends, tail)
    }

    pub(crate) fn to_lap(self) -> [u8; Self::LEN] {
        let (ends, tail) = self.split();
        let Tail { flow: [f2, f1, f0], rate, traffic_class, hop_limit, service, ack } = tail;
        glue(ends, [f2, f1, f0, traffic_class, hop_limit, rate, service, ack])
    }

    fn join(ends: [u8; 36], tail: Tail) -> Self {
        let [l1, l0, r1, r0, gids @ ..] = ends;
        let (local, remote) = gids.split_at(16);
        let gid = |half: &[u8]| Gid(half.try_into().unwrap_or_default());
        Self {
            local_lid: u16::from_be_bytes([l1, l0]),
            remote_lid: u16::from_be_bytes([r1, r0]),
            local_gid: gid(local),
            remote_gid: gid(remote),
            flow_label: FlowLabel::from_left(tail.flow),
            packet_rate: StaticRate::from_bits(tail.rate),
            traffic_class: tail.traffic_class,
            hop_limit: tail.hop_limit,
            sl: Bits::new(tail.service >> 4),
            subnet_local: tail.service & 0x08 != 0,
            local_ack_timeout: AckTimeout::from_field(tail.ack >> 3),
        }
    }

    fn split(self) -> ([u8; 36], Tail) {
        let mut ends = [0; 36];
        ends[..2].copy_from_slice(&self.local_lid.to_be_bytes());
        ends[2..4].copy_from_slice(&self.remote_lid.to_be_bytes());
        ends[4..20].copy_from_slice(&self.local_gid.0);
        ends[20..].copy_from_slice(&self.remote_gid.0);
        let tail = Tail {
            flow: self.flow_label.to_left(),
            rate: self.packet_rate.code(),
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            service: self.sl.get() << 4 | u8::from(self.subnet_local) << 3,
            ack: self.local_ack_timeout.code() << 3,
        };
        (ends, tail)
    }
}

/// The last eight bytes of a path, whose order differs between REQ and LAP.
struct Tail {
    flow: [u8; 3],
    rate: u8,
    traffic_class: u8,
    hop_limit: u8,
    service: u8,
    ack: u8,
}

fn glue(ends: [u8; 36], tail: [u8; 8]) -> [u8; Path::LEN] {
    let mut bytes = [0; Path::LEN];
    bytes[..36].copy_from_slice(&ends);
    bytes[36..].copy_from_slice(&tail);
    bytes
}

impl InBits for AckTimeout {
    fn from_field(bits: u8) -> Self {
        Self::new(bits & 0x1f).unwrap_or_default()
    }
    fn to_field(self) -> u8 {
        self.code()
    }
}

/// The names of a path's fields: the same fields have others in a primary and an alternate path.
pub(crate) struct PathNames {
    pub(crate) local_lid: &'static str,
    pub(crate) remote_lid: &'static str,
    pub(crate) local_gid: [&'static str; 2],
    pub(crate) remote_gid: [&'static str; 2],
    pub(crate) flow_label: &'static str,
    pub(crate) packet_rate: &'static str,
    pub(crate) traffic_class: &'static str,
    pub(crate) hop_limit: &'static str,
    pub(crate) sl: &'static str,
    pub(crate) subnet_local: &'static str,
    pub(crate) local_ack_timeout: &'static str,
}

/// Makes the names of a path from what they start with.
macro_rules! path_names {
    ($start:literal) => {
        PathNames {
            local_lid: concat!($start, "locallid"),
            remote_lid: concat!($start, "remotelid"),
            local_gid: [concat!($start, "localgid"), concat!($start, "localgid_ipv4")],
            remote_gid: [concat!($start, "remotegid"), concat!($start, "remotegid_ipv4")],
            flow_label: concat!($start, "flowlabel"),
            packet_rate: concat!($start, "pktrate"),
            traffic_class: concat!($start, "tfcclass"),
            hop_limit: concat!($start, "hoplim"),
            sl: concat!($start, "sl"),
            subnet_local: concat!($start, "subnetlocal"),
            local_ack_timeout: concat!($start, "localacktout"),
        }
    };
}

pub(crate) use path_names;

impl Show for Path {
    type Names = &'static PathNames;
    fn show(&self, names: Self::Names, visit: &mut FieldVisitor<'_>) {
        visit(names.local_lid, FieldValue::Number(self.local_lid.into()));
        visit(names.remote_lid, FieldValue::Number(self.remote_lid.into()));
        self.local_gid.show(names.local_gid, visit);
        self.remote_gid.show(names.remote_gid, visit);
        visit(names.flow_label, FieldValue::Number(self.flow_label.get().into()));
        self.packet_rate.show(names.packet_rate, visit);
        self.traffic_class.show(names.traffic_class, visit);
        self.hop_limit.show(names.hop_limit, visit);
        self.sl.show(names.sl, visit);
        self.subnet_local.show(names.subnet_local, visit);
        self.local_ack_timeout.show(names.local_ack_timeout, visit);
    }
}
