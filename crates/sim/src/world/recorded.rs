//! A frame that was sent, and what became of it.

use std::fmt;

use roxe_wire::opcode::Operation;
use roxe_wire::{Addressing, Frame, Instant, Packet, RawFrame};

use crate::link::Passage;

/// A frame that was sent.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When.
    pub time: Instant,
    /// By which device, to which.
    pub ends: (usize, Option<usize>),
    /// Its bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// What became of it.
    pub passage: Passage,
}

impl fmt::Display for Recorded {
    /// The frame and what became of it, in a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, ends: (from, to), bytes, passage } = self;
        let to = to.map_or_else(|| "?".to_owned(), |to| to.to_string());
        let Ok(frame) = Frame::parse(RawFrame::ethernet(bytes)) else {
            return write!(f, "{time} {from} → {to}: no RoCE");
        };
        let Addressing { source, destination, .. } = frame.received().addressing;
        write!(f, "{time} {from} {source} → {to} {destination}")?;
        if let Ok(packet) = Packet::parse(frame.body) {
            let headers = &packet.headers;
            let bth = &headers.bth;
            write!(f, " {} qp {} psn {}", packet.opcode.name, bth.dest_qp, bth.psn)?;
            if bth.ack_req {
                write!(f, " ack-req")?;
            }
            if let Some(reth) = headers.reth {
                write!(f, " va 0x{:016x} rkey {} len {}", reth.va, reth.r_key, reth.dma_len)?;
            }
            if let Some(aeth) = headers.aeth {
                write!(f, " {} msn {}", aeth.syndrome, aeth.msn)?;
            }
            if let Some(atomic) = headers.atomic_eth {
                write!(f, " va 0x{:016x} rkey {}", atomic.va, atomic.r_key)?;
                match packet.opcode.operation {
                    Operation::FetchAdd => write!(f, " add 0x{:x}", atomic.swap_add)?,
                    _ => write!(f, " compare 0x{:x} swap 0x{:x}", atomic.compare, atomic.swap_add)?,
                }
            }
            if let Some(ack) = headers.atomic_ack_eth {
                write!(f, " original 0x{:x}", ack.original)?;
            }
            write!(f, " {} B", packet.payload.len())?;
        }
        let Some(at) = passage.arrives else { return f.write_str(", lost") };
        if passage.impaired {
            write!(f, ", arrives {at}")?;
        }
        match passage.copies {
            0 => {}
            1 => f.write_str(", twice")?,
            copies => write!(f, ", {} times", copies + 1)?,
        }
        if passage.flip.is_some() || passage.keep.is_some() {
            f.write_str(", damaged")?;
        }
        if passage.mark { f.write_str(", marked") } else { Ok(()) }
    }
}
