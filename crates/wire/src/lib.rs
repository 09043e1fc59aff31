//! RoCEv2 packets: bytes ⇄ meaning, and the vocabulary of RDMA.
//!
//! The floor that everything else stands on: headers, packets, frames, the invariant CRC, and types
//! for the numbers they carry. IBA volume 1 chapters 7 and 9 (packet formats) and annexes A14, A17
//! and A19. No time passes here, no state is kept, nothing allocates, nothing panics on any input.
//!
//! A frame comes apart in two steps, each of which gives meaning or a [`DropReason`] that names the
//! first rule broken; the ICRC is a third that a caller takes when it likes:
//!
//! ```
//! use roxe_wire::{Frame, Packet, RawFrame, icrc};
//!
//! # fn main() -> Result<(), roxe_wire::DropReason> {
//! # let bytes = b"\x02\0\0\0\0\x0a\x02\0\0\0\0\x0b\x08\0\x45\x6a\0\x30\x1c\x46\x40\0\x40\x11\
//! #     \x99\xf7\xc0\0\x02\x0b\xc0\0\x02\x0a\xc1\x23\x12\xb7\0\x1c\0\0\x11\x40\xff\xff\0\0\0\
//! #     \x22\0\x12\x34\x56\x0a\0\0\x05\x50\x4f\x8e\x98";
//! let frame = Frame::parse(RawFrame::ethernet(bytes))?;
//! icrc::check(&frame.icrc_cover(), frame.body)?;
//! let packet = Packet::parse(frame.body)?;
//! assert_eq!(packet.opcode.name, "RC_ACKNOWLEDGE");
//! # Ok(())
//! # }
//! ```
//!
//! | question | module |
//! |---|---|
//! | which opcode means what | [`opcode`] |
//! | Ethernet, VLAN, IP, UDP around a packet | [`Frame`], [`FrameTemplate`] |
//! | headers, payload, pad | [`Packet`], [`Headers`] |
//! | the invariant CRC | [`icrc`] |
//! | management datagrams, connection management | [`mad`] |
//! | what each bit means, for people | [`explain`] |
//! | why a frame is thrown away | [`DropReason`] |
#![no_std]
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod aeth;
mod atomic;
mod bth;
mod cnp;
mod deth;
pub mod digest;
mod drop_reason;
pub mod explain;
mod feth;
mod field;
mod frame;
mod gid;
mod grh;
pub mod icrc;
mod immediate;
mod invalidate;
pub mod mad;
mod number;
pub mod opcode;
mod packet;
mod psn;
mod rdeth;
mod reth;
pub mod source_port;
mod time;
mod xrceth;

pub use aeth::{Aeth, Credits, NakCode, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth};
pub use bth::Bth;
pub use cnp::{CNP_OPCODE, CnpReserved, cnp_bth};
pub use deth::Deth;
pub use drop_reason::DropReason;
pub use feth::{Feth, FlushPlacement, FlushSelectivity};
pub use field::{FieldValue, FieldVisitor};
pub use frame::{
    Addressing, Ecn, Frame, FrameTemplate, IpHeader, IpPair, MacAddress, Outline, Path, ROCE_PORT,
    RawFrame, Received, Start, TrafficClass, Udp, VlanTag,
};
pub use gid::{Gid, GidType};
pub use grh::Grh;
pub use icrc::IcrcCover;
pub use immediate::ImmDt;
pub use invalidate::Ieth;
pub use number::{
    EeContext, LKey, MAX_MESSAGE_LEN, Msn, Mtu, PKey, QKey, Qpn, RKey, XrcSrqNumber, packets_for,
};
pub use opcode::Opcode;
pub use packet::{
    Body, EmitError, Headers, ICRC_LEN, MAX_HEADERS_LEN, Packet, PacketWriter, Payload, Room,
    pad_for,
};
pub use psn::Psn;
pub use rdeth::Rdeth;
pub use reth::Reth;
pub use time::{AckTimeout, Instant, RnrTimer, StaticRate, wait_4096_ns};
pub use xrceth::Xrceth;
