//! roxe: an RDMA network adapter in software. RoCEv2 in userspace, over AF_XDP.
//!
//! The crate a program depends on; each part is a crate of its own, found here under a short name.
//!
//! | part | what it is |
//! |---|---|
//! | [`wire`] | packets: bytes ⇄ meaning, and the vocabulary of RDMA |
//! | [`trace`] | what a sequence of packets means, and which rules it breaks |
//!
//! The feature `cli`, on by default, adds the program `roxe` and everything that only it needs; a
//! library's user turns the default features off.
#![forbid(unsafe_code)]

pub use roxe_trace as trace;
pub use roxe_wire as wire;
