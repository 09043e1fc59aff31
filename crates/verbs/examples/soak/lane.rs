//! One queue pair and its memory: what it asks of its peer, and what it expects from it.

use std::sync::Arc;

use roxe_verbs::{
    AddressHandle, Buffer, Completion, CompletionOpcode, CompletionStatus, Data, DatagramTarget,
    Extra, ImmDt, MemoryRegion, QueuePair, ReceiveRequest, Remote, SendOperation, SendRequest,
    ServiceType,
};

use crate::Outcome;
use crate::pattern::{Numbers, fill};

/// Messages that may be on their way to a receiver which has not verified them.
const SLOTS: u64 = 2;

/// What a host asks and is asked on one queue pair.
pub(crate) struct Lane {
    pub(crate) qp: QueuePair,
    pub(crate) memory: Arc<Buffer>,
    pub(crate) region: MemoryRegion,
    pub(crate) peer: Remote,
    /// Where datagrams go.
    pub(crate) target: Option<(AddressHandle, DatagramTarget)>,
    pub(crate) longest: usize,
    /// What is said here, and what is said there.
    pub(crate) own: u64,
    pub(crate) theirs: u64,
    pub(crate) chance: Numbers,
    /// Requests that are not completed.
    asked: u32,
    asks: Asks,
    /// Messages sent, and how many of them the peer is known to have verified.
    sent: u64,
    known: u64,
    /// Messages received.
    received: u64,
    /// What the peer's word holds that only we change.
    word: u64,
    bytes: Vec<u8>,
}

/// What is asked of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Nothing,
    /// A message: SEND or WRITE with immediate.
    Message,
    /// A WRITE, and a READ that brings it back.
    WriteRead {
        seed: u64,
        len: usize,
    },
    /// How many messages it has verified.
    Verified,
    /// An atomic, which finds this.
    Atomic {
        finds: u64,
        leaves: u64,
    },
}

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    WriteImm,
}

/// A message: both sides know it by its number.
struct Message {
    kind: Kind,
    len: usize,
    seed: u64,
}

/// Where things are in a lane's memory, in units of the longest message: what is sent, what is
/// read back, what the peer writes, and the places of messages. Behind them words.
const READ_BACK: usize = 1;
const WRITTEN: usize = 2;
const MESSAGES: usize = 3;

/// Units of memory, and the words behind: verified (the peer reads it), changed by atomics of the
/// peer, and what came back of our own.
const UNITS: usize = MESSAGES + SLOTS as usize;
const VERIFIED: usize = 0;
const CHANGED: usize = 8;
const CAME_BACK: usize = 16;

/// Of the things that may be asked for, a FETCH_ADD. The other atomic swaps.
const ADDS: u64 = 4;

/// Room for the IP header before a datagram.
const GRH: usize = 40;

/// The `wr_id` of a receive has this bit.
pub(crate) const RECEIVE: u64 = 1 << 32;

impl Lane {
    pub(crate) const fn memory_len(longest: usize) -> usize {
        UNITS * (longest + GRH).next_multiple_of(8) + 24
    }

    pub(crate) fn new(
        qp: QueuePair,
        memory: Arc<Buffer>,
        region: MemoryRegion,
        longest: usize,
        [own, theirs]: [u64; 2],
    ) -> Outcome<Self> {
        let lane = Self {
            qp,
            memory,
            peer: region.remote(0),
            region,
            target: None,
            longest,
            own,
            theirs,
            chance: Numbers(own),
            asked: 0,
            asks: Asks::Nothing,
            sent: 0,
            known: 0,
            received: 0,
            word: 0,
            bytes: vec![0; 2 * longest],
        };
        (0..SLOTS).try_for_each(|slot| lane.receive(slot))?;
        Ok(lane)
    }

    /// Where a unit of memory begins.
    const fn unit(&self, number: usize) -> usize {
        number * (self.longest + GRH).next_multiple_of(8)
    }

    const fn word(&self, which: usize) -> usize {
        self.unit(UNITS) + which
    }

    const fn slot(&self, number: u64) -> usize {
        self.unit(MESSAGES + (number % SLOTS) as usize)
    }

    fn is_reliable(&self) -> bool {
        self.qp.service() == ServiceType::Rc
    }

    /// Posts a receive for the message with this number.
    fn receive(&self, number: u64) -> Outcome {
        let sges = [self.region.sge(self.slot(number) as u64, (self.longest + GRH) as u32)];
        let wr_id = RECEIVE | u64::from(self.qp.qpn().get());
        Ok(self.qp.post_receive(&[ReceiveRequest { wr_id, sges: &sges }])?)
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.asked == 0
    }

    /// Asks for something, when nothing is asked for.
    pub(crate) fn ask(&mut self) -> Outcome {
        let choice = if self.is_reliable() { self.chance.below(6) } else { 0 };
        let may_send = !self.is_reliable() || self.sent - self.known < SLOTS;
        let finds = self.word;
        self.asks = match choice {
            0..=2 if may_send => Asks::Message,
            0 => Asks::Verified,
            1..=3 => {
                Asks::WriteRead { seed: self.chance.next(), len: self.chance.len(self.longest) }
            }
            ADDS => Asks::Atomic { finds, leaves: finds.wrapping_add(self.sent | 1) },
            _ => Asks::Atomic { finds, leaves: self.chance.next() },
        };
        let back = self.word(CAME_BACK);
        match self.asks {
            Asks::Nothing => Ok(()),
            Asks::Message => self.send_message(),
            Asks::WriteRead { seed, len } => {
                self.put(seed, len);
                let there = self.there(self.unit(WRITTEN));
                self.post(SendOperation::Write(there), 0, len)?;
                self.post(SendOperation::Read(there), self.unit(READ_BACK), len)
            }
            Asks::Verified => {
                self.post(SendOperation::Read(self.there(self.word(VERIFIED))), back, 8)
            }
            Asks::Atomic { finds, leaves } => {
                let remote = self.there(self.word(CHANGED));
                let operation = if choice == ADDS {
                    SendOperation::FetchAdd { remote, add: leaves.wrapping_sub(finds) }
                } else {
                    SendOperation::CompareSwap { remote, compare: finds, swap: leaves }
                };
                self.post(operation, back, 8)
            }
        }
    }

    fn send_message(&mut self) -> Outcome {
        let number = self.sent;
        self.sent += 1;
        let Message { kind, len, seed } = self.message(self.own, number);
        self.put(seed, len);
        let imm = ImmDt(number as u32);
        let operation = match kind {
            Kind::Send => SendOperation::Send,
            Kind::SendImm => SendOperation::SendWithImm(imm),
            Kind::WriteImm => SendOperation::WriteWithImm(self.there(self.slot(number)), imm),
        };
        self.post(operation, 0, len)
    }

    /// What a side says by its message with this number.
    fn message(&self, whose: u64, number: u64) -> Message {
        let mut chance = Numbers(whose ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        let kind = match chance.below(3) {
            0 if self.is_reliable() => Kind::Send,
            1 if self.is_reliable() => Kind::WriteImm,
            // Of what may be lost, the immediate says which it is.
            _ => Kind::SendImm,
        };
        Message { kind, len: chance.len(self.longest), seed: chance.next() }
    }

    fn there(&self, place: usize) -> Remote {
        let Remote { va, r_key } = self.peer;
        Remote { va: va + place as u64, r_key }
    }

    fn put(&mut self, seed: u64, len: usize) {
        fill(seed, &mut self.bytes[..len]);
        self.memory.write(0, &self.bytes[..len]);
    }

    fn post(&mut self, operation: SendOperation, place: usize, len: usize) -> Outcome {
        self.asked += 1;
        let sges = [self.region.sge(place as u64, len as u32)];
        Ok(self.qp.post_send(&[SendRequest {
            wr_id: self.qp.qpn().get().into(),
            operation,
            data: Data::Regions(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: self.target.as_ref().map(|(_, target)| *target),
        }])?)
    }

    /// Takes in a completion. Says how many messages and bytes are verified by it.
    pub(crate) fn completed(&mut self, completion: &Completion) -> Outcome<(u64, u64)> {
        if completion.status != CompletionStatus::Success {
            let why = self.qp.explain(completion.status);
            return Err(format!("{:?}, {:?}: {why}", self.qp.qpn(), self.asks).into());
        }
        if completion.wr_id & RECEIVE != 0 {
            return self.arrived(completion);
        }
        self.asked -= 1;
        if self.asked > 0 {
            return Ok((0, 0));
        }
        let asks = std::mem::replace(&mut self.asks, Asks::Nothing);
        match asks {
            Asks::Nothing | Asks::Message => Ok((0, 0)),
            Asks::WriteRead { seed, len } => {
                self.must_hold(self.unit(READ_BACK), seed, len, "read back")?;
                Ok((2, 2 * len as u64))
            }
            Asks::Verified => {
                self.known = self.read_word(CAME_BACK);
                let right = self.known <= self.sent;
                if right { Ok((1, 8)) } else { Err("more is verified than was sent".into()) }
            }
            Asks::Atomic { finds, leaves } => {
                let found = self.read_word(CAME_BACK);
                if found != finds {
                    return Err(format!("an atomic found {found:#x}, not {finds:#x}").into());
                }
                self.word = leaves;
                Ok((1, 8))
            }
        }
    }

    /// A message of the peer's.
    fn arrived(&mut self, completion: &Completion) -> Outcome<(u64, u64)> {
        let imm = match completion.extra {
            Extra::Imm(ImmDt(imm)) => Some(imm),
            _ => None,
        };
        let number = match imm {
            Some(imm) if !self.is_reliable() => u64::from(imm),
            _ => self.received,
        };
        let Message { kind, len, seed } = self.message(self.theirs, number);
        let (opcode, expected) = match kind {
            Kind::Send => (CompletionOpcode::Recv, None),
            Kind::SendImm => (CompletionOpcode::Recv, Some(number as u32)),
            Kind::WriteImm => (CompletionOpcode::RecvRdmaWithImm, Some(number as u32)),
        };
        let before = if completion.grh { GRH } else { 0 };
        let got = completion.byte_len as usize - before;
        if (completion.opcode, imm, got) != (opcode, expected, len) {
            let what = format!("{:?} of {got} bytes with {imm:?}", completion.opcode);
            return Err(
                format!("message {number} should be {kind:?} of {len} bytes: {what}").into()
            );
        }
        let place = self.slot(self.received) + before;
        self.must_hold(place, seed, len, "received")?;
        // The place may be used again from here on.
        self.receive(self.received + SLOTS)?;
        self.received += 1;
        self.memory.write(self.word(VERIFIED), &self.received.to_ne_bytes());
        Ok((1, len as u64))
    }

    fn read_word(&self, which: usize) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read(self.word(which), &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    fn must_hold(&mut self, place: usize, seed: u64, len: usize, what: &str) -> Outcome {
        let (expected, found) = self.bytes.split_at_mut(self.longest);
        let (expected, found) = (&mut expected[..len], &mut found[..len]);
        fill(seed, expected);
        self.memory.read(place, found);
        match expected.iter().zip(&*found).position(|(one, other)| one != other) {
            Some(at) if expected != found => {
                let where_ = format!("byte {at} of {len} is wrong, of what was {what}");
                Err(format!("{:?}, {:?}: {where_}", self.qp.qpn(), self.asks).into())
            }
            _ => Ok(()),
        }
    }
}
