//! Flush extended transport header: how far and how much a FLUSH reaches.

/// Flush Extended Transport Header. 4 bytes. IBA vol 1 annex A19.
///
/// ```text
///  31 ..= 6 | reserved         |
///  5 ..= 4  | selectivity (2)  |
///  3 ..= 0  | placement (4)    |   bit 0 global visibility, bit 1 persistence
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feth {
    /// Bits 0 ..= 3: where the data shall be.
    pub placement: FlushPlacement,
    /// Bits 4 and 5: which data.
    pub selectivity: FlushSelectivity,
    /// Bits 6 ..= 31, moved down. Sent as 0, ignored.
    pub reserved: u32,
}

/// Where flushed data shall be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlushPlacement {
    /// Visible to every reader of the responder's memory.
    pub global_visibility: bool,
    /// Safe from a loss of power.
    pub persistence: bool,
    /// The two bits that are not defined. Sent as 0, ignored.
    pub reserved: u8,
}

/// Which data a FLUSH covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushSelectivity {
    /// 0: the range that the RETH names.
    #[default]
    Range,
    /// 1: the whole memory region.
    MemoryRegion,
    /// 2 and 3.
    Reserved(u8),
}

impl Feth {
    /// Bytes.
    pub const LEN: usize = 4;

    /// Reads the header. Every value is possible.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [.., low] = bytes;
        Self {
            placement: FlushPlacement {
                global_visibility: low & 0x1 != 0,
                persistence: low & 0x2 != 0,
                reserved: low >> 2 & 0x3,
            },
            selectivity: match low >> 4 & 0x3 {
                0 => FlushSelectivity::Range,
                1 => FlushSelectivity::MemoryRegion,
                other => FlushSelectivity::Reserved(other),
            },
            reserved: u32::from_be_bytes(bytes) >> 6,
        }
    }

    /// Writes the header.
    pub const fn emit(self) -> [u8; Self::LEN] {
        let selectivity = match self.selectivity {
            FlushSelectivity::Range => 0,
            FlushSelectivity::MemoryRegion => 1,
            FlushSelectivity::Reserved(bits) => bits & 0x3,
        };
        let low = (selectivity as u32) << 4
            | ((self.placement.reserved & 0x3) as u32) << 2
            | (self.placement.persistence as u32) << 1
            | self.placement.global_visibility as u32;
        (self.reserved << 6 | low).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_low_byte_round_trips() {
        for low in 0..=255 {
            for high in [0x00, 0xff] {
                let bytes = [high, high, high, low];
                assert_eq!(Feth::parse(bytes).emit(), bytes);
            }
        }
        let feth = Feth::parse([0, 0, 0, 0x12]);
        assert!(feth.placement.persistence && !feth.placement.global_visibility);
        assert_eq!(feth.selectivity, FlushSelectivity::MemoryRegion);
    }
}
