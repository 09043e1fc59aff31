//! The interfaces a capture was taken on.

use super::link::LinkType;

/// An interface that packets of a capture were seen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// What the capturing machine called it. Classic pcap files do not say.
    pub name: Option<String>,
    /// What its packets begin with.
    pub link_type: LinkType,
    /// Longer packets were cut to this many bytes. 0 when there was no limit.
    pub snap_len: u32,
    /// Packets that were skipped until now because what they begin with is not understood.
    pub skipped: u64,
}
