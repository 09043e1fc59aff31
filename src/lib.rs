//! roxe: an RDMA network adapter in software. RoCEv2 in userspace, over AF_XDP.
//!
//! The crate a program depends on; each part is a crate of its own, found here under a short name.
//!
//! | part | what it is |
//! |---|---|
//! | [`verbs`] | an open adapter: memory, queue pairs, completions, as in libibverbs |
//! | [`connect`] | two programs tell each other their queue pairs |
//! | [`wire`] | packets: bytes ⇄ meaning, and the vocabulary of RDMA |
//! | [`trace`] | what a sequence of packets means, and which rules it breaks |
//!
//! Features, the first two on by default; a library's user turns the default features off:
//!
//! | feature | adds |
//! |---|---|
//! | `af_xdp` | adapters on network interfaces; without it, on UDP sockets and in memory |
//! | `tokio` | operations and events to be awaited |
//! | `cli` | the program `roxe`, and everything that only it needs |
#![forbid(unsafe_code)]

pub use roxe_trace as trace;
pub use roxe_verbs as verbs;
pub use roxe_verbs::connect;
pub use roxe_wire as wire;

/// The examples of README.md and docs/library.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/library.md")]
struct Readme;
