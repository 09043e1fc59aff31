//! Capture files: a pcap or pcapng is a port that was recorded.
//!
//! [`CaptureReader`] reads both formats from any [`Read`](std::io::Read), compressed or not, in
//! constant memory, and takes link headers off down to what the rest of the program understands.
//! [`CaptureWriter`] writes pcapng, [`PcapWriter`] the classic format. The pcapng format is
//! draft-ietf-opsawg-pcapng, the classic one draft-ietf-opsawg-pcap.
//!
//! Out of scope: what is inside a packet (that is the `wire` crate), name resolution and
//! decryption blocks, captures of anything but Ethernet and IP.
//!
//! Nothing here may read a clock, print, or use `unsafe`. What a file says about its own lengths is
//! never believed: no field of a file decides how much memory is taken.

mod byte_order;
mod error;
mod interface;
mod link;
mod packed;
mod pcap;
mod pcapng;
mod reader;
mod source;
mod time;
mod window;
mod writer;

pub use error::{BlockProblem, CaptureError, WriteError};
pub use interface::Interface;
pub use link::LinkType;
pub use reader::{CaptureReader, Record, Truncation};
pub use roxe_wire::Start;
pub use time::Timestamp;
pub use writer::{CaptureWriter, NewInterface, NewRecord, PcapWriter};

/// Which way a packet went, seen from the machine that captured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The packet was received.
    Inbound,
    /// The packet was sent.
    Outbound,
}

/// The most bytes of one packet that a file may hold: 256 KiB.
///
/// Wireshark and tcpdump draw the line here too, so no capture of theirs is refused, and a jumbo
/// frame or a 64 KiB segment that was coalesced by the adapter is far below it.
pub const MAX_PACKET_LEN: usize = 256 * 1024;
