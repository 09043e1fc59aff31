//! Why a packet is thrown away. Each reason is one counter of the device.
//!
//! The order of the variants is the order of the checks (IBA vol 1 §9.6, annex A17): link and IP
//! first, then the packet by itself, then what only its destination can judge.

use core::fmt;

/// A packet thrown away without a word: the peer's or the network's fault, or simply not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// The frame ends inside a header: `have` bytes where `need` are needed.
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes that the header, or the length it announces, needs.
        need: usize,
    },
    /// An Ethertype other than IPv4 and IPv6: ARP, LLDP, …
    NotIp {
        /// The Ethertype behind any VLAN tags.
        ether_type: u16,
    },
    /// RoCE v1 (Ethertype 0x8915), which has no UDP header.
    RoceV1,
    /// More VLAN tags than two.
    TooManyVlanTags,
    /// The version field of the IP header is neither 4 nor 6, or not what the Ethertype says.
    IpVersion {
        /// The four bits.
        version: u8,
    },
    /// An IPv4 header longer than 20 bytes: RoCEv2 has no options.
    IpOptions {
        /// The header length in units of four bytes.
        ihl: u8,
    },
    /// An IPv4 header that cannot be: shorter than 20 bytes.
    IpHeaderLength {
        /// The header length in units of four bytes.
        ihl: u8,
    },
    /// The IPv4 header checksum is wrong.
    IpChecksum {
        /// What the header's other bytes give.
        expected: u16,
        /// What it says.
        found: u16,
    },
    /// The first fragment of a packet: RoCEv2 packets are never fragmented.
    IpFragment,
    /// A fragment other than the first: only the first shows whose it is.
    LaterFragment,
    /// An IPv6 extension header: RoCEv2 has none.
    IpExtension {
        /// The next-header value.
        next_header: u8,
    },
    /// An IP protocol other than UDP.
    NotUdp {
        /// The protocol number.
        protocol: u8,
    },
    /// UDP, but not to port 4791.
    OtherUdpPort {
        /// The destination port.
        port: u16,
    },
    /// The UDP length contradicts the IP length.
    UdpLength {
        /// What the UDP header says.
        udp: u16,
        /// The payload length that the IP header gives.
        ip: u16,
    },
    /// The UDP checksum is neither 0 nor right.
    UdpChecksum {
        /// What the datagram's bytes give.
        expected: u16,
        /// What the header says.
        found: u16,
    },
    /// Too short for a BTH and an ICRC, or not a multiple of four bytes.
    PacketLength {
        /// Bytes from BTH to ICRC.
        len: usize,
    },
    /// The transport version of the BTH is not 0.
    TransportVersion {
        /// The four bits.
        version: u8,
    },
    /// An opcode that the specification does not define.
    ReservedOpcode {
        /// The byte.
        code: u8,
    },
    /// Shorter than the headers that its opcode announces.
    HeaderMissing {
        /// Bytes from BTH to ICRC.
        have: usize,
        /// Bytes that BTH, extension headers and ICRC take.
        need: usize,
    },
    /// The pad count exceeds the payload there is.
    PadCount {
        /// The two bits.
        pad: u8,
        /// Bytes between the headers and the ICRC.
        payload: usize,
    },
    /// The AETH syndrome is one of the reserved ones.
    ReservedSyndrome {
        /// The byte.
        value: u8,
    },
    /// The ICRC is wrong: some bit between IP header and ICRC changed on the way.
    IcrcMismatch {
        /// What the packet's bytes give.
        expected: u32,
        /// What the packet says.
        found: u32,
    },
    /// A management datagram that is not 256 bytes long.
    MadLength {
        /// Bytes there are.
        len: usize,
    },
    /// A management datagram of another base version, class, class version or method.
    MadHeader {
        /// The base version; 1 is known.
        base_version: u8,
        /// The management class; 7 is communication management.
        class: u8,
        /// The class version; 2 is known.
        class_version: u8,
        /// The method; 3 is Send.
        method: u8,
    },
    /// A management datagram whose attribute is no known message.
    MadAttribute {
        /// The attribute ID.
        attribute: u16,
    },
    /// No queue pair has this number.
    NoSuchQp {
        /// The destination QP number.
        qpn: u32,
    },
    /// The destination is a queue pair of another service type.
    WrongService,
    /// The queue pair is in a state that receives nothing.
    WrongQpState,
    /// The packet comes from, or went to, another address than the queue pair is connected with.
    WrongAddress,
    /// The packet's partition key does not match the queue pair's.
    PKeyMismatch {
        /// The packet's key.
        p_key: u16,
    },
    /// The datagram's queue key is not the queue pair's.
    QKeyMismatch {
        /// The packet's key.
        q_key: u32,
    },
}

impl DropReason {
    /// Whether the frame simply is not RoCEv2, and thus nobody's fault: other Ethertypes,
    /// protocols and ports, and fragments that do not show theirs.
    pub const fn is_other_traffic(self) -> bool {
        matches!(
            self,
            Self::NotIp { .. }
                | Self::RoceV1
                | Self::LaterFragment
                | Self::NotUdp { .. }
                | Self::OtherUdpPort { .. }
        )
    }
}

/// The counters: a reason, its counter's name.
macro_rules! counters {
    ($($reason:ident => $name:literal),* $(,)?) => {
        /// The reasons without what they say of the packet: numbers from 0.
        enum Kind {
            $($reason),*
        }

        impl DropReason {
            /// The names of all counters, in the order of the checks.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The counter's place in [`DropReason::NAMES`].
            pub const fn index(self) -> usize {
                match self {
                    $(Self::$reason { .. } => Kind::$reason as usize),*
                }
            }

            /// The counter's name: lower case with underscores, stable.
            pub const fn name(self) -> &'static str {
                Self::NAMES[self.index()]
            }
        }
    };
}

counters! {
    Truncated => "truncated",
    NotIp => "not_ip",
    RoceV1 => "roce_v1",
    TooManyVlanTags => "too_many_vlan_tags",
    IpVersion => "ip_version",
    IpOptions => "ip_options",
    IpHeaderLength => "ip_header_length",
    IpChecksum => "ip_checksum",
    IpFragment => "ip_fragment",
    LaterFragment => "later_fragment",
    IpExtension => "ip_extension",
    NotUdp => "not_udp",
    OtherUdpPort => "other_udp_port",
    UdpLength => "udp_length",
    UdpChecksum => "udp_checksum",
    PacketLength => "packet_length",
    TransportVersion => "bad_tver",
    ReservedOpcode => "bad_opcode",
    HeaderMissing => "header_missing",
    PadCount => "pad_count",
    ReservedSyndrome => "bad_syndrome",
    IcrcMismatch => "icrc_bad",
    MadLength => "mad_length",
    MadHeader => "mad_header",
    MadAttribute => "mad_attribute",
    NoSuchQp => "unknown_qp",
    WrongService => "wrong_service",
    WrongQpState => "wrong_qp_state",
    WrongAddress => "addr_mismatch",
    PKeyMismatch => "bad_pkey",
    QKeyMismatch => "bad_qkey",
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { have, need } => write!(f, "cut short: {have} of {need} bytes"),
            Self::NotIp { ether_type } => write!(f, "not IP: Ethertype 0x{ether_type:04x}"),
            Self::RoceV1 => f.write_str("RoCE v1 (Ethertype 0x8915), only v2 is spoken"),
            Self::TooManyVlanTags => f.write_str("more than two VLAN tags"),
            Self::IpVersion { version } => write!(f, "IP version {version}"),
            Self::IpOptions { ihl } => {
                write!(f, "IPv4 options: header of {} bytes, RoCEv2 has 20", u32::from(ihl) * 4)
            }
            Self::IpHeaderLength { ihl } => {
                write!(f, "IPv4 header length {} is below 20", u32::from(ihl) * 4)
            }
            Self::IpChecksum { expected, found } => {
                write!(f, "IPv4 header checksum 0x{found:04x}, should be 0x{expected:04x}")
            }
            Self::IpFragment => f.write_str("IP fragment"),
            Self::LaterFragment => f.write_str("IP fragment other than the first"),
            Self::IpExtension { next_header } => {
                write!(f, "IPv6 extension header {next_header}, RoCEv2 has none")
            }
            Self::NotUdp { protocol } => write!(f, "not UDP: protocol {protocol}"),
            Self::OtherUdpPort { port } => write!(f, "UDP port {port}, not 4791"),
            Self::UdpLength { udp, ip } => {
                write!(f, "UDP length {udp}, but the IP header leaves {ip} bytes")
            }
            Self::UdpChecksum { expected, found } => {
                write!(f, "UDP checksum 0x{found:04x}, should be 0x{expected:04x} or 0")
            }
            Self::PacketLength { len } if len < 16 => {
                write!(f, "{len} bytes are too few for BTH and ICRC (16)")
            }
            Self::PacketLength { len } => write!(f, "{len} bytes are not a multiple of four"),
            Self::TransportVersion { version } => {
                write!(f, "transport version {version}, only 0 is defined")
            }
            Self::ReservedOpcode { code } => write!(f, "reserved opcode 0x{code:02x}"),
            Self::HeaderMissing { have, need } => {
                write!(f, "{have} bytes, but the opcode's headers and the ICRC take {need}")
            }
            Self::PadCount { pad, payload } => {
                write!(f, "pad count {pad} with {payload} bytes of payload")
            }
            Self::ReservedSyndrome { value } => write!(f, "reserved AETH syndrome 0x{value:02x}"),
            Self::IcrcMismatch { expected, found } => {
                write!(f, "ICRC 0x{found:08x}, should be 0x{expected:08x}")
            }
            Self::MadLength { len } => write!(f, "management datagram of {len} bytes, not 256"),
            Self::MadHeader { base_version, class, class_version, method } => write!(
                f,
                "management datagram of base version {base_version}, class 0x{class:02x}, \
                 class version {class_version}, method 0x{method:02x}"
            ),
            Self::MadAttribute { attribute } => {
                write!(f, "management attribute 0x{attribute:04x} is no known message")
            }
            Self::NoSuchQp { qpn } => write!(f, "no queue pair 0x{qpn:x}"),
            Self::WrongService => f.write_str("queue pair of another service type"),
            Self::WrongQpState => f.write_str("queue pair in a state that receives nothing"),
            Self::WrongAddress => {
                f.write_str("not from the address the queue pair is connected to")
            }
            Self::PKeyMismatch { p_key } => write!(f, "P_Key 0x{p_key:04x} does not match"),
            Self::QKeyMismatch { q_key } => write!(f, "Q_Key 0x{q_key:08x} does not match"),
        }
    }
}

impl core::error::Error for DropReason {}
