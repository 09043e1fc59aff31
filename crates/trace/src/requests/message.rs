//! Messages: where they begin and end, and whether their packets follow each other.

use std::ops::Range;

use roxe_wire::opcode::{Operation, Position};
use roxe_wire::{Opcode, Packet};

use super::Requests;
use crate::{Finding, Note, Observation, Rule};

/// A message whose last packet is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) operation: Operation,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// The length a WRITE announced.
    pub(super) announced: Option<u32>,
}

impl Open {
    /// The finding for a WRITE that ended with another length than announced.
    pub(super) fn wrong_length(&self) -> Option<Finding> {
        let announced = self.announced.filter(|announced| u64::from(*announced) != self.bytes)?;
        Some(Finding {
            rule: Rule::WriteLength,
            seen: format!("a WRITE of {} B", self.bytes),
            expected: format!("{announced} B as its RETH announced"),
        })
    }
}

/// A message ended.
pub(super) fn end_message(open: Open, opcode: &'static Opcode, observation: &mut Observation) {
    if opcode.position == Position::Last {
        observation.notes.pop_if(|note| matches!(note, Note::Part { .. }));
        observation.notes.push(Note::MessageEnd {
            number: open.number,
            packets: open.packets,
            bytes: open.bytes,
        });
    }
    observation.find(open.wrong_length());
}

/// Whether one packet may follow another whose PSN is the one before.
pub(super) fn check_sequence(before: &'static Opcode, opcode: &'static Opcode) -> Option<Finding> {
    let right = if before.position.ends() {
        opcode.position.starts()
    } else {
        !opcode.position.starts() && opcode.operation == before.operation
    };
    (!right).then(|| Finding {
        rule: Rule::OpcodeSequence,
        seen: format!("{} behind {}", opcode.name, before.name),
        expected: if before.position.ends() {
            "the first packet of a message".to_owned()
        } else {
            format!("the next packet of the {}", before.operation.name())
        },
    })
}

impl Requests {
    pub(super) fn begin_message(&mut self, packet: &Packet<'_>, observation: &mut Observation) {
        let opcode = packet.opcode;
        let len = packet.payload.len() as u64;
        let announced = packet.headers.reth.map(|reth| reth.dma_len);
        self.tell_begin(packet, observation);
        self.open = Some(Open {
            number: self.messages,
            operation: opcode.operation,
            packets: 1,
            bytes: len,
            announced: announced.filter(|_| opcode.operation == Operation::Write),
        });
    }

    /// A packet that begins no message: it goes on with the one before, if that is its own.
    pub(super) fn continue_message(&mut self, packet: &Packet<'_>, observation: &mut Observation) {
        let opcode = packet.opcode;
        let Some(open) = &mut self.open else {
            return observation.notes.push(Note::Incomplete { ends: opcode.position.ends() });
        };
        if open.operation != opcode.operation {
            self.open = None;
            return;
        }
        open.packets += 1;
        open.bytes += packet.payload.len() as u64;
        observation.notes.push(Note::Part { number: open.number, part: open.packets });
    }

    /// A WRITE ends when all that it announced is there. Where it does not, that is told once.
    pub(super) fn check_goes_on(&mut self, opcode: &Opcode) -> Option<Finding> {
        let open = self.open.as_mut().filter(|_| !opcode.position.ends())?;
        let announced = open.announced.take_if(|announced| open.bytes >= (*announced).into())?;
        Some(Finding {
            rule: Rule::WriteLength,
            seen: format!("a WRITE that goes on behind {} B", open.bytes),
            expected: format!("an end with {announced} B as its RETH announced"),
        })
    }

    /// Gives a message its number.
    pub(super) fn tell_begin(&mut self, packet: &Packet<'_>, observation: &mut Observation) {
        let opcode = packet.opcode;
        self.messages += 1;
        let len = match opcode.operation {
            Operation::Send if opcode.position == Position::Only => {
                Some(packet.payload.len() as u64)
            }
            Operation::Write | Operation::ReadRequest => {
                packet.headers.reth.map(|reth| reth.dma_len.into())
            }
            _ => None,
        };
        observation.notes.push(Note::Message {
            number: self.messages,
            operation: opcode.operation,
            len,
        });
    }

    /// The message that the packet at `index` belongs to, as far as it was seen: where it begins,
    /// where what is known of it ends, and all of it together. `None` where its beginning is
    /// missing.
    pub(super) fn message_around(&self, index: usize) -> Option<(Range<usize>, Open)> {
        let follows = |at: usize| -> bool {
            let (before, sent) = (&self.sent[at - 1], &self.sent[at]);
            before.is_before(sent.psn)
                && !before.opcode.position.ends()
                && !sent.opcode.position.starts()
                && before.opcode.operation == sent.opcode.operation
        };
        let mut start = index;
        while start > 0 && follows(start) {
            start -= 1;
        }
        let first = &self.sent[start];
        if !first.opcode.position.starts() {
            return None;
        }
        let mut end = index + 1;
        while end < self.sent.len() && follows(end) {
            end += 1;
        }
        let operation = first.opcode.operation;
        let open = Open {
            number: first.message,
            operation,
            packets: (end - start) as u64,
            bytes: self.sent.range(start..end).map(|sent| u64::from(sent.payload)).sum(),
            announced: first.announced.filter(|_| operation == Operation::Write),
        };
        Some((start..end, open))
    }

    /// The last packet of a message came again, or late: now the message ends, if that was never
    /// told because something of it was missing.
    pub(super) fn tell_end(&mut self, index: usize, observation: &mut Observation) {
        let sent = &self.sent[index];
        let opcode = sent.opcode;
        if sent.end_is_told || opcode.position != Position::Last {
            return;
        }
        let Some((_, open)) = self.message_around(index) else { return };
        self.sent[index].end_is_told = true;
        end_message(open, opcode, observation);
    }
}
