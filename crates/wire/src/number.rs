//! The numbers that packets and verbs carry, each with its width and its reserved values.
//!
//! A queue pair number is not a packet sequence number, though both are 24 bits of a header: here
//! they are types that do not mix.

use core::fmt;

use crate::Psn;

/// A number of 24 bits, as three header bytes carry it.
macro_rules! number_24 {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// Keeps the low 24 bits, as the header field does.
            pub const fn new(value: u32) -> Self {
                Self(value & 0x00ff_ffff)
            }

            /// The number, 0 ..= 2²⁴-1.
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{:x}", self.0)
            }
        }
    };
}

/// An opaque number of 32 bits.
macro_rules! number_32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{:08x}", self.0)
            }
        }
    };
}

number_24! {
    /// A queue pair number, 24 bits. 0 is the subnet management QP, which RoCE does not have; 1 the
    /// general services QP that carries management datagrams; 0xffffff means "every member of the
    /// multicast group". IBA vol 1 §9.2.
    #[derive(PartialOrd, Ord)]
    Qpn
}

impl Qpn {
    /// QP 0: subnet management. Never valid on RoCE.
    pub const SMI: Self = Self(0);
    /// QP 1: general services (connection management).
    pub const GSI: Self = Self(1);
    /// The destination of a multicast datagram.
    pub const MULTICAST: Self = Self(0x00ff_ffff);
}

number_24! {
    /// The number of an XRC shared receive queue, 24 bits. IBA vol 1 annex A14.
    #[derive(PartialOrd, Ord)]
    XrcSrqNumber
}

number_24! {
    /// An end-to-end context of Reliable Datagram, 24 bits. IBA vol 1 §9.3.1.
    #[derive(PartialOrd, Ord)]
    EeContext
}

number_24! {
    /// A message sequence number: how many request messages the responder has completed, modulo
    /// 2²⁴. IBA vol 1 §9.7.7.1. It wraps, so it has no order: ask [`Msn::since`].
    Msn
}

impl Msn {
    /// The MSN after one more completed message.
    #[must_use]
    pub const fn next(self) -> Self {
        self.advance(1)
    }

    /// The MSN after so many more completed messages.
    #[must_use]
    pub const fn advance(self, messages: u32) -> Self {
        Self::new(self.0.wrapping_add(messages))
    }

    /// How many messages `self` lies after `origin`; negative when before, as for [`Psn::since`].
    pub const fn since(self, origin: Self) -> i32 {
        Psn::new(self.0).since(Psn::new(origin.0))
    }
}

number_32! {
    /// A queue key: what a datagram must carry to be accepted by a UD queue pair. The top bit marks
    /// keys that only privileged users may set. IBA vol 1 §3.5.3, §9.3.3.
    QKey
}

impl QKey {
    /// The key of QP 1, known to everybody.
    pub const GSI: Self = Self(0x8001_0000);
    /// The key that the RDMA connection manager gives to datagram and multicast QPs.
    pub const RDMA_CM: Self = Self(0x0123_4567);

    /// Whether the top bit is set: a sender then uses its queue pair's own key instead.
    pub const fn is_controlled(self) -> bool {
        self.0 >> 31 == 1
    }
}

number_32! {
    /// A local key: names a memory region to the adapter that owns it. IBA vol 1 §10.6.
    LKey
}

number_32! {
    /// A remote key: names a memory region or window to a peer. IBA vol 1 §10.6.
    RKey
}

/// A partition key: bit 15 says full member, the low 15 bits name the partition.
///
/// IBA vol 1 §9.6.1, §10.9. RoCE ports usually have just [`PKey::DEFAULT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PKey(pub u16);

impl PKey {
    /// Full member of the default partition.
    pub const DEFAULT: Self = Self(0xffff);

    /// The low 15 bits.
    pub const fn partition(self) -> u16 {
        self.0 & 0x7fff
    }

    /// Whether the top bit is set. Limited members cannot talk to each other.
    pub const fn is_full_member(self) -> bool {
        self.0 >> 15 == 1
    }

    /// Whether a packet with this key may reach a queue pair with key `own`: the partition is the
    /// same and not 0, and at least one of the two is a full member.
    //= F09, 04-4.11
    pub const fn matches(self, own: Self) -> bool {
        self.partition() == own.partition()
            && self.partition() != 0
            && (self.is_full_member() || own.is_full_member())
    }
}

impl Default for PKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

/// The longest message of a connected service, in bytes. IBA vol 1, C9-94.
pub const MAX_MESSAGE_LEN: u32 = 1 << 31;

/// How many packets carry a message of `len` bytes, when `full` is the payload of those that are
/// full: one even for none. IBA vol 1 §9.7.2.
//= 02-2.6
pub const fn packets_for(len: u32, full: u32) -> u32 {
    if full == 0 || len <= full { 1 } else { len.div_ceil(full) }
}

/// A path MTU: the most payload that one packet carries. Code 1 is 256 bytes, each code doubles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mtu {
    /// 256 bytes, code 1.
    B256 = 1,
    /// 512 bytes, code 2.
    B512 = 2,
    /// 1024 bytes, code 3: the most that an Ethernet MTU of 1500 has room for.
    #[default]
    B1024 = 3,
    /// 2048 bytes, code 4.
    B2048 = 4,
    /// 4096 bytes, code 5.
    B4096 = 5,
}

impl Mtu {
    /// All of them, smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// What a packet may need around its payload behind the Ethernet header: IPv6 40, UDP 8, BTH
    /// 12, XRCETH 4, AtomicETH 28, ICRC 4.
    pub const HEADROOM: u32 = 96;

    /// The payload bytes, 256 ..= 4096.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The code that queue pair attributes and connection requests use, 1 ..= 5.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The MTU with this code; `None` outside 1 ..= 5.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The MTU of exactly so many bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// The largest path MTU that fits an interface whose IP MTU is `interface_mtu` bytes.
    //= 01-1.8
    pub fn fitting(interface_mtu: u32) -> Option<Self> {
        let room = interface_mtu.checked_sub(Self::HEADROOM)?;
        Self::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= room)
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.bytes(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_double() {
        for mtu in Mtu::ALL {
            assert_eq!(Mtu::from_code(mtu.code()), Some(mtu));
            assert_eq!(Mtu::from_bytes(mtu.bytes()), Some(mtu));
        }
        assert_eq!(Mtu::B256.bytes(), 256);
        assert_eq!(Mtu::B4096.bytes(), 4096);
        assert_eq!([0, 6, 255].map(Mtu::from_code), [None; 3]);
    }

    //= 01-1.8 test
    #[test]
    fn mtu_fits_below_the_interface_as_linux_computes_it() {
        assert_eq!(Mtu::fitting(1500), Some(Mtu::B1024));
        assert_eq!(Mtu::fitting(4192), Some(Mtu::B4096));
        assert_eq!(Mtu::fitting(4191), Some(Mtu::B2048));
        assert_eq!(Mtu::fitting(9000), Some(Mtu::B4096));
        assert_eq!(Mtu::fitting(351), None);
        assert_eq!(Mtu::fitting(0), None);
    }

    //= F09, 04-4.11 test
    #[test]
    fn limited_members_do_not_meet() {
        let (full, limited) = (PKey(0xffff), PKey(0x7fff));
        assert!(full.matches(full) && full.matches(limited) && limited.matches(full));
        assert!(!limited.matches(limited));
        assert!(!PKey(0x8000).matches(PKey(0x8000)), "partition 0 is invalid");
        assert!(!PKey(0x9234).matches(full));
    }

    #[test]
    fn a_message_takes_a_packet_even_when_it_is_empty() {
        let lens = [0, 1, 256, 257, 512, MAX_MESSAGE_LEN, u32::MAX];
        assert_eq!(lens.map(|len| packets_for(len, 256)), [1, 1, 1, 2, 2, 1 << 23, 1 << 24]);
        assert_eq!(packets_for(7, 0), 1, "an MTU of nothing divides nothing");
    }

    #[test]
    fn numbers_keep_their_width() {
        assert_eq!(Qpn::new(0x1200_0011).get(), 0x11);
        assert_eq!(Msn::new(0xff_ffff).next(), Msn::new(0));
        assert_eq!(Msn::new(2).since(Msn::new(0xff_ffff)), 3);
        assert_eq!(Msn::new(0xff_ffff).since(Msn::new(2)), -3);
        assert!(QKey::GSI.is_controlled() && !QKey::RDMA_CM.is_controlled());
    }
}
