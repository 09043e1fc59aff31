//! What can be wrong with a capture file.

use std::{io, path::PathBuf};

use super::{MAX_PACKET_LEN, interface::Interface, window::CAPACITY};

/// Why a capture cannot be read, or not any further. Offsets count bytes from the start of the
/// capture, after decompression.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "what the fields are, the messages say")]
pub enum CaptureError {
    /// The file cannot be opened.
    #[error("cannot open {}: {reason}", path.display())]
    Open { path: PathBuf, reason: io::Error },

    /// The operating system or a decompressor refuses.
    #[error("cannot read on at byte {offset}: {reason}")]
    Read { offset: u64, reason: io::Error },

    /// There is not one byte.
    #[error("the file is empty: not even a capture header was written")]
    Empty,

    /// The input ends inside its first header.
    #[error("the file ends at byte {len}, inside the capture header: nothing was captured")]
    NoHeader { len: u64 },

    /// A compressed input ends before anything of the capture, or inside its header.
    #[error("the compressed stream ends early: {len} bytes are no whole capture header")]
    PackedCut { len: u64 },

    /// The input begins with none of the numbers that are known.
    #[error("unknown magic 0x{magic:08x}: not a pcap or pcapng capture")]
    UnknownMagic { magic: u32 },

    /// The input is something known, which is not read here.
    #[error("this is {what}: {remedy}")]
    OtherFormat { what: &'static str, remedy: &'static str },

    /// A compressed file in a compressed file, and so on.
    #[error("the file is compressed more than {limit} times over: unpack it first")]
    Nested { limit: u32 },

    /// A version of the file format that does not exist yet.
    #[error("version {major}.{minor} of the {format} format at byte {offset} is not known")]
    Version { format: &'static str, major: u16, minor: u16, offset: u64 },

    /// A packet's length is beyond reason, so this is no packet: the file is damaged before.
    #[error(
        "the packet at byte {offset} claims {len} bytes, more than the {MAX_PACKET_LEN} a packet \
         can have: the file is damaged from there on"
    )]
    PacketLength { offset: u64, len: u32 },

    /// A pcapng block contradicts itself or the file.
    #[error("the block at byte {offset} {problem}: {}", problem.consequence())]
    Block { offset: u64, problem: BlockProblem },

    /// Packets were there, and none could be read.
    #[error(
        "none of its packets can be read: they are {}; Ethernet, raw IP, Linux cooked and ERF \
         captures can be read",
        list_skipped(interfaces)
    )]
    NothingReadable { packets: u64, interfaces: Vec<Interface> },
}

/// What is wrong with a pcapng block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "what the variants are, the messages say")]
pub enum BlockProblem {
    #[error("claims a length of {len} bytes, too short for what it is")]
    TooShort { len: usize },
    #[error("claims a length of {len} bytes, more than the {CAPACITY} that can be read of one")]
    TooLong { len: u32 },
    #[error("gives its length as {front} bytes in front and as {back} behind")]
    LengthsDiffer { front: u32, back: u32 },
    #[error("has 0x{magic:08x} where its byte order should stand")]
    ByteOrder { magic: u32 },
    #[error("has a packet of {len} bytes, which does not fit in")]
    PacketTooLong { len: u32 },
    #[error("names interface {interface}, but only {known} were described")]
    NoSuchInterface { interface: u32, known: usize },
    #[error("describes one interface more than {limit}")]
    TooManyInterfaces { limit: usize },
}

impl BlockProblem {
    const fn consequence(self) -> &'static str {
        match self {
            Self::TooManyInterfaces { .. } => "split the file with editcap",
            Self::TooLong { len } if len <= MAX_WRITTEN_LEN => {
                "these are too many comments, or the file is damaged"
            }
            _ => "the file is damaged from there on",
        }
    }
}

/// Above this, Wireshark too takes the length of a block for damage.
const MAX_WRITTEN_LEN: u32 = 16 * 1024 * 1024;

/// Why a record or an interface cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "what the fields are, the messages say")]
pub enum WriteError {
    /// The output refuses.
    #[error("cannot write the capture: {0}")]
    Output(#[from] io::Error),

    /// Another writer has the file.
    #[error("another adapter or program is writing this file: name another one")]
    Busy,

    /// The record's interface was never added.
    #[error("interface {interface} was never added to the capture")]
    NoSuchInterface { interface: u32 },

    /// A reader would take so long a packet for damage.
    #[error("a packet of {len} bytes is longer than the {MAX_PACKET_LEN} a capture can hold")]
    PacketLength { len: usize },

    /// The classic format counts seconds in 32 bits.
    #[error("second {seconds} is too late for a pcap file, which ends in 2106: write pcapng")]
    TooLate { seconds: u64 },
}

impl CaptureError {
    /// Where in the capture something is wrong, if that is told.
    pub const fn offset(&self) -> Option<u64> {
        match *self {
            Self::Read { offset, .. }
            | Self::Version { offset, .. }
            | Self::PacketLength { offset, .. }
            | Self::Block { offset, .. } => Some(offset),
            _ => None,
        }
    }
}

/// How many interfaces an error names: a file may have thousands.
const NAMED: usize = 5;

/// `3 × InfiniBand (link type 247) on ib0, 1 × …`; where all are alike, how many does not matter,
/// and of a classic file the first one tells. What a file calls an interface is not to be trusted
/// with a terminal.
fn list_skipped(interfaces: &[Interface]) -> String {
    let skipped = interfaces.iter().filter(|interface| interface.skipped > 0);
    let is_one = skipped.clone().nth(1).is_none();
    let lines = skipped.clone().take(NAMED).map(|interface| {
        let Interface { skipped, link_type, name, .. } = interface;
        let count = if is_one { String::new() } else { format!("{skipped} × ") };
        match name {
            Some(name) => format!("{count}{link_type} on {}", name.escape_debug()),
            None => format!("{count}{link_type}"),
        }
    });
    let mut list = lines.collect::<Vec<_>>().join(", ");
    let more = skipped.skip(NAMED).count();
    if more > 0 {
        list += &format!(" and {more} more");
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::LinkType;
    use super::*;

    #[test]
    fn interfaces_are_named_harmlessly_and_not_all() {
        let name = Some("\u{1b}[2J\u{9b}x".to_owned());
        let one = Interface { name, link_type: LinkType(247), snap_len: 0, skipped: 3 };
        let text = CaptureError::NothingReadable { packets: 3, interfaces: vec![one.clone()] };
        let text = text.to_string();
        assert!(text.contains(r"are InfiniBand (link type 247) on \u{1b}[2J\u{9b}x;"), "{text}");
        let many = vec![one; 1000];
        let text = CaptureError::NothingReadable { packets: 3000, interfaces: many }.to_string();
        assert!(text.contains(" and 995 more;") && text.len() < 1000, "{text}");
    }
}
