//! RoCEv2 packets: bytes ⇄ meaning, and the vocabulary of RDMA.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod drop_reason;
mod gid;
mod number;
mod psn;
mod time;

pub use drop_reason::DropReason;
pub use gid::{Gid, GidType};
pub use number::{EeContext, LKey, Msn, Mtu, PKey, QKey, Qpn, RKey, XrcSrqNumber};
pub use psn::Psn;
pub use time::{AckTimeout, Instant, RnrTimer, StaticRate, wait_4096_ns};
