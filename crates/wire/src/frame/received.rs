//! A packet and how it was addressed: what a port hands to the engine.

use core::net::IpAddr;

use super::ip::{IpHeader, TrafficClass};
use super::link::{MacAddress, VlanTag};
use super::template::{FrameTemplate, IpPair, Path};
use crate::{Body, DropReason, Grh, IcrcCover, icrc};

/// How a packet came: everything that the layers above need to know of link, IP and UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressing {
    /// The sender.
    pub source: IpAddr,
    /// The receiver: an address of ours, or a multicast group.
    pub destination: IpAddr,
    /// The sender's UDP port.
    pub source_port: u16,
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// Time to live or hop limit as it arrived.
    pub hop_limit: u8,
    /// The flow label, 20 bits; 0 for IPv4.
    pub flow_label: u32,
    /// The outer VLAN tag.
    pub vlan: Option<VlanTag>,
}

impl Addressing {
    /// The path that the packet came on, in its own direction, with Ethernet addresses of zeros:
    /// [`FrameTemplate::icrc_cover`] of it is the cover of a packet whose headers a port does not
    /// see, if the identification is known. `None` when the addresses are of two families.
    pub fn path(&self) -> Option<Path> {
        Some(Path {
            ethernet: (MacAddress::default(), MacAddress::default()),
            vlan: self.vlan,
            ip: IpPair::new(self.source, self.destination)?,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            flow_label: self.flow_label,
            source_port: self.source_port,
        })
    }
}

/// A packet as a port hands it to the engine: how it was addressed, and its bytes from BTH to ICRC.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// How it was addressed.
    pub addressing: Addressing,
    /// The IP header, which a datagram's receive buffer shows. `None` where a port does not see
    /// it; the engine then forms one from the addressing.
    pub ip_header: Option<IpHeader<'a>>,
    /// What the ICRC covers before the BTH; `None` where a port cannot know it, so that the ICRC
    /// cannot be verified.
    pub cover: Option<IcrcCover<'a>>,
    /// From BTH to ICRC.
    pub body: Body<'a>,
}

impl Received<'_> {
    /// Whether the ICRC is right; `None` when that cannot be known, because the cover or some of
    /// the bytes are not here.
    ///
    /// # Errors
    /// Those of [`icrc::check`].
    pub fn check_icrc(&self) -> Option<Result<(), DropReason>> {
        match (&self.cover, self.body) {
            (Some(cover), Body::Whole { .. }) => Some(icrc::check(cover, self.body)),
            _ => None,
        }
    }

    /// What a datagram's receive buffer begins with. Formed from the addressing when the IP header
    /// is not here, then with identification 0; `None` when even that is impossible: addresses of
    /// two families, or more bytes than IP can carry.
    pub fn grh(&self) -> Option<Grh> {
        match self.ip_header {
            Some(ip) => Some(Grh::new(ip)),
            None => {
                let template = FrameTemplate::new(&self.addressing.path()?);
                template.grh(u16::try_from(self.body.len()).ok()?, 0)
            }
        }
    }
}
