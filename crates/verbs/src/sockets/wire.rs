//! What two sockets say to each other: in the private data of the connection manager, by immediate
//! data, and in the tables that they write into each other's memory.

use roxe_wire::RKey;

/// A piece of somebody's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: u64,
    pub(super) key: RKey,
    /// Bytes; of a table, entries.
    pub(super) len: u32,
}

/// The order of the bytes of a number in a side's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Big,
    Little,
}

impl Order {
    /// Ours.
    pub(super) const NATIVE: Self =
        if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    fn four(self, number: u32) -> [u8; 4] {
        match self {
            Self::Big => number.to_be_bytes(),
            Self::Little => number.to_le_bytes(),
        }
    }

    fn eight(self, number: u64) -> [u8; 8] {
        match self {
            Self::Big => number.to_be_bytes(),
            Self::Little => number.to_le_bytes(),
        }
    }

    fn read_four(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Big => u32::from_be_bytes(bytes),
            Self::Little => u32::from_le_bytes(bytes),
        }
    }

    fn read_eight(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Big => u64::from_be_bytes(bytes),
            Self::Little => u64::from_le_bytes(bytes),
        }
    }
}

impl Place {
    /// Bytes of an entry of a table.
    pub(super) const LEN: usize = 16;

    /// As whoever has this order reads it.
    pub(super) fn to_bytes(self, order: Order) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.eight(self.address));
        bytes[8..12].copy_from_slice(&order.four(self.key.0));
        bytes[12..].copy_from_slice(&order.four(self.len));
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN], order: Order) -> Self {
        Self {
            address: order.read_eight(part(bytes, 0)),
            key: RKey(order.read_four(part(bytes, 8))),
            len: order.read_four(part(bytes, 12)),
        }
    }
}

/// So many bytes of a whole that has them.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the whole has them")
}

/// Memory that a side has opened to its peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapped {
    /// The offset of its first byte, as both sides count.
    pub(super) offset: u64,
    pub(super) place: Place,
}

impl Mapped {
    /// Bytes of an entry of a table.
    pub(super) const LEN: usize = 8 + Place::LEN;

    pub(super) fn to_bytes(self, order: Order) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.eight(self.offset));
        bytes[8..].copy_from_slice(&self.place.to_bytes(order));
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; Self::LEN], order: Order) -> Self {
        Self {
            offset: order.read_eight(part(bytes, 0)),
            place: Place::from_bytes(&part(bytes, 8), order),
        }
    }

    /// Where the byte of an offset is, and how many follow up to the end.
    pub(super) fn at(&self, offset: u64) -> Option<Place> {
        let within = offset.checked_sub(self.offset)?;
        let left = u64::from(self.place.len).checked_sub(within).filter(|left| *left != 0)?;
        let address = self.place.address.wrapping_add(within);
        Some(Place { address, len: left as u32, ..self.place })
    }
}

/// How many pieces of memory a side may be told of. On the wire it is a byte: up to 128 as it is,
/// beyond that in steps of 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MapCount(u8);

impl MapCount {
    /// What more than this byte says is in steps.
    const EXACT: u32 = 0x80;

    pub(super) fn nearest(count: u32) -> Self {
        match count {
            ..=Self::EXACT => Self(count as u8),
            // So few are no step.
            129..256 => Self(Self::EXACT as u8),
            _ => Self((Self::EXACT | (count / 256).min(0x7f)) as u8),
        }
    }

    pub(super) const fn get(self) -> u32 {
        match self.0 as u32 {
            count if count <= Self::EXACT => count,
            steps => (steps & !Self::EXACT) * 256,
        }
    }
}

/// What a side says of itself when a connection is made: in the private data of the request and of
/// the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) order: Order,
    /// Messages that may be sent to it.
    pub(super) credits: u16,
    /// The table of places into which it is to be written; `len` is how many there are.
    pub(super) table: Place,
    /// How many pieces of memory fit into its other table, behind that; none if it knows none.
    pub(super) maps: MapCount,
    /// The first half of its ring.
    pub(super) buffer: Place,
}

impl Hello {
    pub(super) const LEN: usize = 40;
    const VERSION: u8 = 1;
    const IS_BIG_ENDIAN: u8 = 1;
    const HAS_MAPS: u8 = 2;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let order = if self.order == Order::Big { Self::IS_BIG_ENDIAN } else { 0 };
        bytes[..2].copy_from_slice(&[Self::VERSION, order | Self::HAS_MAPS]);
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = self.maps.0;
        bytes[8..24].copy_from_slice(&self.table.to_bytes(Order::Big));
        bytes[24..].copy_from_slice(&self.buffer.to_bytes(Order::Big));
        bytes
    }

    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk().ok_or("it says too little of itself")?;
        let [version, flags, ..] = *bytes;
        if version != Self::VERSION {
            return Err("it speaks another version of the protocol");
        }
        let flag = |flag: u8| flags & flag != 0;
        let hello = Self {
            order: if flag(Self::IS_BIG_ENDIAN) { Order::Big } else { Order::Little },
            credits: u16::from_be_bytes(part(bytes, 2)),
            maps: if flag(Self::HAS_MAPS) { MapCount(bytes[7]) } else { MapCount::default() },
            table: Place::from_bytes(&part(bytes, 8), Order::Big),
            buffer: Place::from_bytes(&part(bytes, 24), Order::Big),
        };
        match hello.table.len {
            0 => Err("it has no table of places"),
            _ => Ok(hello),
        }
    }

    /// Where an entry of its table of places is.
    pub(super) const fn place(&self, index: u32) -> u64 {
        self.table.address.wrapping_add(index as u64 * Place::LEN as u64)
    }

    /// Where an entry of its table of pieces of memory is.
    pub(super) const fn map(&self, index: u16) -> u64 {
        self.place(self.table.len).wrapping_add(index as u64 * Mapped::LEN as u64)
    }
}

/// What immediate data says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// So many bytes of the stream have come.
    Data(u32),
    /// Messages up to this number may be sent; a place may have been told of too.
    Credits(u16),
    /// This entry of the table of pieces of memory has changed.
    Mapped(u16),
    /// Nothing more is sent or taken.
    Disconnect,
    /// The peer is there.
    KeepAlive,
    /// Nothing more is sent.
    Shutdown,
    /// Something that may be passed over.
    Other,
}

/// The upper three bits say what it is.
const KIND: u32 = 29;

impl Message {
    pub(super) const fn to_bits(self) -> u32 {
        match self {
            Self::Data(len) => len & !(!0 << KIND),
            Self::Credits(upto) => 4 << KIND | upto as u32,
            Self::Mapped(index) => 6 << KIND | index as u32,
            Self::Disconnect => 7 << KIND,
            Self::KeepAlive => 7 << KIND | 1,
            Self::Shutdown => 7 << KIND | 2,
            Self::Other => 2 << KIND,
        }
    }

    /// # Errors
    /// It means nothing.
    pub(super) const fn from_bits(bits: u32) -> Result<Self, &'static str> {
        // What counts beyond 16 bits counts around.
        let value = bits & !(!0 << KIND);
        Ok(match (bits >> KIND, value) {
            (0, len) => Self::Data(len),
            (4, upto) => Self::Credits(upto as u16),
            (6, index) => Self::Mapped(index as u16),
            (7, 0) => Self::Disconnect,
            (7, 1) => Self::KeepAlive,
            (7, 2) => Self::Shutdown,
            (2 | 7, _) => Self::Other,
            _ => return Err("it says what nobody knows"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux on x86 says it: private data of a request of rstream.
    const HELLO: Hello = Hello {
        order: Order::Little,
        credits: 384,
        table: Place { address: 0x5566_7788_99aa_b000, key: RKey(0x0102_0304), len: 2 },
        maps: MapCount(1),
        buffer: Place { address: 0x7fff_0000_1000, key: RKey(0xa0b0_c0d0), len: 0x8_0000 },
    };

    #[test]
    fn the_private_data_is_big_endian_in_40_bytes() {
        let bytes = HELLO.to_bytes();
        assert_eq!(bytes[..8], [1, 2, 1, 0x80, 0, 0, 0, 1]);
        assert_eq!(bytes[8..24], *b"\x55\x66\x77\x88\x99\xaa\xb0\0\x01\x02\x03\x04\0\0\0\x02");
        assert_eq!(bytes[24..], *b"\0\0\x7f\xff\0\0\x10\0\xa0\xb0\xc0\xd0\0\x08\0\0");
        assert_eq!(Hello::parse(&bytes), Ok(HELLO));
        // The connection manager pads it.
        let mut padded = [0; 56];
        padded[..40].copy_from_slice(&bytes);
        assert_eq!(Hello::parse(&padded), Ok(HELLO));
    }

    #[test]
    fn a_peer_of_another_byte_order_and_one_without_maps_are_known() {
        let other = Hello { order: Order::Big, ..HELLO };
        assert_eq!(Hello::parse(&other.to_bytes()), Ok(other));
        let mut old = HELLO.to_bytes();
        old[1] = 0;
        let maps = MapCount::default();
        assert_eq!(Hello::parse(&old), Ok(Hello { maps, ..HELLO }));
    }

    #[test]
    fn what_is_no_rsocket_is_refused() {
        let mut bytes = HELLO.to_bytes();
        bytes[0] = 2;
        assert!(Hello::parse(&bytes).is_err());
        assert!(Hello::parse(&[0; 56]).is_err());
        assert!(Hello::parse(&HELLO.to_bytes()[..39]).is_err());
        let no_table = Hello { table: Place { len: 0, ..HELLO.table }, ..HELLO };
        assert!(Hello::parse(&no_table.to_bytes()).is_err());
    }

    #[test]
    fn entries_are_written_in_the_order_of_who_reads_them() {
        let place = Place { address: 0x0102_0304_0506_0708, key: RKey(0x1112_1314), len: 0x2122 };
        assert_eq!(
            place.to_bytes(Order::Little),
            *b"\x08\x07\x06\x05\x04\x03\x02\x01\x14\x13\x12\x11\x22\x21\0\0"
        );
        let mapped = Mapped { offset: 7, place };
        for order in [Order::Big, Order::Little] {
            assert_eq!(Place::from_bytes(&place.to_bytes(order), order), place);
            assert_eq!(Mapped::from_bytes(&mapped.to_bytes(order), order), mapped);
        }
        assert_eq!(mapped.to_bytes(Order::Big)[..8], [0, 0, 0, 0, 0, 0, 0, 7]);
    }

    #[test]
    fn entries_lie_in_a_row_places_first() {
        let table = HELLO.table.address;
        assert_eq!([HELLO.place(0), HELLO.place(1)], [table, table + 16]);
        assert_eq!([HELLO.map(0), HELLO.map(3)], [table + 32, table + 32 + 72]);
    }

    #[test]
    fn immediate_data_has_its_kind_in_the_upper_three_bits() {
        let known = [
            (Message::Data(65536), 0x0001_0000),
            (Message::Credits(384), 0x8000_0180),
            (Message::Mapped(3), 0xc000_0003),
            (Message::Disconnect, 0xe000_0000),
            (Message::KeepAlive, 0xe000_0001),
            (Message::Shutdown, 0xe000_0002),
        ];
        for (message, bits) in known {
            assert_eq!(message.to_bits(), bits);
            assert_eq!(Message::from_bits(bits), Ok(message));
        }
        // Credits of rdma-core go beyond 16 bits before it counts around.
        assert_eq!(Message::from_bits(0x8001_0005), Ok(Message::Credits(5)));
        assert_eq!(Message::from_bits(0xe000_0009), Ok(Message::Other));
        for reserved in [1, 3, 5] {
            assert!(Message::from_bits(reserved << 29 | 1).is_err());
        }
    }

    #[test]
    fn a_byte_counts_maps_beyond_128_in_steps_of_256() {
        let counts = [0, 1, 128, 129, 256, 1000, 70_000].map(|it| MapCount::nearest(it).get());
        assert_eq!(counts, [0, 1, 128, 128, 256, 768, 127 * 256]);
        assert_eq!(MapCount::nearest(256).0, 0x81);
    }

    #[test]
    fn an_offset_is_found_within_its_piece_only() {
        let place = Place { address: 1000, key: RKey(5), len: 10 };
        let mapped = Mapped { offset: 100, place };
        assert_eq!(mapped.at(100), Some(place));
        assert_eq!(mapped.at(109), Some(Place { address: 1009, len: 1, ..place }));
        assert_eq!([mapped.at(99), mapped.at(110)], [None, None]);
        assert_eq!(Mapped::default().at(0), None);
    }
}
