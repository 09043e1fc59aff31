//! Frames to and from the world.
//!
//! | question | module |
//! |---|---|
//! | what a port can do, and what it counts | [`FramePort`] and its module |
//! | packets through a UDP socket, without privilege | [`udp`] |
//! | frames of a network interface | `af_xdp` (cargo feature `af_xdp`) |
//! | ports inside one process, for tests | [`memory`] |
//! | ports of the processes of one host | [`host`] |
//! | what a bad network does to packets, and a port behind one | [`fault`] |
//! | a port that is recorded | [`capture`] |
//! | congestion marks of a switch, on a Linux bridge | `marker` (cargo feature `af_xdp`) |
//! | interfaces, routes, and whose MAC a packet needs | [`neighbor`] |
//! | addresses on a network that the kernel does not have | `owned` (cargo feature `af_xdp`) |
//! | what a port recorded, to be read again | [`capture_file`] |
//!
//! This crate may touch the `wire` crate and the operating system. Time is passed in where it
//! decides; only a wait reads a clock. It starts no thread.
#![deny(unsafe_code)]

#[cfg(feature = "af_xdp")]
pub mod af_xdp;
pub mod capture;
pub mod capture_file;
mod doorbell;
pub mod fault;
mod framing;
pub mod host;
#[cfg(feature = "af_xdp")]
pub mod marker;
pub mod memory;
pub mod neighbor;
#[cfg(feature = "af_xdp")]
pub mod owned;
pub mod port;
pub mod udp;

pub use doorbell::{Sleeper, Waker};
pub use port::{Arrival, Capabilities, FramePort, HeadersOf, Outgoing, Seal, Sent, Wake};
