//! The classic pcap format: a header of 24 bytes, then records of 16 bytes and a packet each.
//!
//!   | magic (32) | major (16) | minor (16) | reserved (64) | snap length (32) | link type (32) |
//!   | seconds (32) | micro- or nanoseconds (32) | captured length (32) | wire length (32) |

use super::{
    CaptureError, Interface, LinkType, MAX_PACKET_LEN, Timestamp,
    byte_order::ByteOrder,
    reader::{Found, Step},
    window::Window,
};

/// How to read the records of one file.
pub(super) struct Pcap {
    order: ByteOrder,
    /// What the second field of a time counts, in nanoseconds: 1 or 1000.
    unit_ns: u64,
}

impl Pcap {
    /// Reads the file header. `None` when the input does not begin with a magic of this format.
    pub(super) fn begin(window: &mut Window) -> Option<Result<(Self, Interface), CaptureError>> {
        let magic = *window.rest().first_chunk()?;
        let (order, unit_ns) = match (u32::from_le_bytes(magic), u32::from_be_bytes(magic)) {
            (MAGIC_MICROSECONDS, _) => (ByteOrder::Little, 1000),
            (_, MAGIC_MICROSECONDS) => (ByteOrder::Big, 1000),
            (MAGIC_NANOSECONDS, _) => (ByteOrder::Little, 1),
            (_, MAGIC_NANOSECONDS) => (ByteOrder::Big, 1),
            _ => return None,
        };
        Some(Self { order, unit_ns }.header(window))
    }

    fn header(self, window: &mut Window) -> Result<(Self, Interface), CaptureError> {
        if !window.fill(HEADER_LEN).map_err(|reason| CaptureError::Read { offset: 0, reason })? {
            return Err(CaptureError::NoHeader { len: window.rest().len() as u64 });
        }
        let header = &window.rest()[..HEADER_LEN];
        let major = self.order.u16([header[4], header[5]]);
        let minor = self.order.u16([header[6], header[7]]);
        if major != 2 {
            return Err(CaptureError::Version { format: "pcap", major, minor, offset: 0 });
        }
        let snap_len = self.order.u32([header[16], header[17], header[18], header[19]]);
        // The upper half of the field says how long the frame check sequence is, if one is there.
        let link = self.order.u32([header[20], header[21], header[22], header[23]]) as u16;
        window.consume(HEADER_LEN);
        Ok((self, Interface { name: None, link_type: LinkType(link), snap_len, skipped: 0 }))
    }

    /// Finds the next record.
    #[inline]
    pub(super) fn step(&self, window: &mut Window) -> Result<Step, Box<CaptureError>> {
        let offset = window.offset();
        let read_error = |reason| CaptureError::Read { offset, reason };
        if !window.fill(RECORD_HEADER_LEN).map_err(read_error)? {
            return Ok(if window.rest().is_empty() { Step::End } else { Step::Cut { offset } });
        }
        let Some([seconds, fraction, len, wire_len]) = self.order.words(window.rest()) else {
            return Ok(Step::Cut { offset });
        };
        if len as usize > MAX_PACKET_LEN {
            return Err(CaptureError::PacketLength { offset, len }.into());
        }
        let record_len = RECORD_HEADER_LEN + len as usize;
        if !window.fill(record_len).map_err(read_error)? {
            return Ok(Step::Cut { offset });
        }
        let data = window.span(RECORD_HEADER_LEN, len as usize);
        window.consume(record_len);
        Ok(Step::Packet(Found {
            time: Timestamp::new(seconds, u64::from(fraction) * self.unit_ns),
            interface: 0,
            data,
            wire_len,
            direction: None,
            commented: false,
        }))
    }
}

pub(super) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(super) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const HEADER_LEN: usize = 24;
const RECORD_HEADER_LEN: usize = 16;
