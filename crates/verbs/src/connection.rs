//! A reliable connection in a few calls: what most applications do with a queue pair.

use std::time::{Duration, Instant as Clock};

use roxe_device::ReceiveCapacity;
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{
    Completion, CompletionStatus, Data, ReceiveRequest, Remote, SendOperation, SendRequest,
};
use roxe_wire::{ImmDt, RKey};

use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{BadRequest, Error};
use crate::memory_region::MemoryRegion;
use crate::queue_pair::{ConnectOptions, QueuePair};

/// What to do with `len` bytes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A message to a receive buffer.
    Send,
    /// The same with four bytes for the receiver's completion.
    SendWithImm(u32),
    /// To the peer's memory.
    Write {
        /// Where.
        va: u64,
        /// The peer's key.
        r_key: RKey,
    },
    /// The same with a completion at the peer.
    WriteWithImm {
        /// Where.
        va: u64,
        /// The peer's key.
        r_key: RKey,
        /// The four bytes.
        imm: u32,
    },
    /// From the peer's memory.
    Read {
        /// From where.
        va: u64,
        /// The peer's key.
        r_key: RKey,
    },
    /// Adds to 64 bits of the peer's memory; the region gets what was there.
    FetchAdd {
        /// Where.
        va: u64,
        /// The peer's key.
        r_key: RKey,
        /// How much.
        add: u64,
    },
    /// Swaps 64 bits of the peer's memory if they equal `compare`; the region gets what was there.
    CompareSwap {
        /// Where.
        va: u64,
        /// The peer's key.
        r_key: RKey,
        /// What to compare with.
        compare: u64,
        /// What to store.
        swap: u64,
    },
}

impl From<Op> for SendOperation {
    fn from(op: Op) -> Self {
        match op {
            Op::Send => Self::Send,
            Op::SendWithImm(imm) => Self::SendWithImm(ImmDt(imm)),
            Op::Write { va, r_key } => Self::Write(Remote { va, r_key }),
            Op::WriteWithImm { va, r_key, imm } => {
                Self::WriteWithImm(Remote { va, r_key }, ImmDt(imm))
            }
            Op::Read { va, r_key } => Self::Read(Remote { va, r_key }),
            Op::FetchAdd { va, r_key, add } => Self::FetchAdd { remote: Remote { va, r_key }, add },
            Op::CompareSwap { va, r_key, compare, swap } => {
                Self::CompareSwap { remote: Remote { va, r_key }, compare, swap }
            }
        }
    }
}

/// How long to wait for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(pub Duration);

impl Wait {
    /// One second.
    pub const SECOND: Self = Self(Duration::from_secs(1));
}

/// A queue pair of a reliable connection with a completion queue of its own.
pub struct Connection {
    qp: QueuePair,
    cq: CompletionQueue,
    waiting: Vec<Completion>,
}

/// How deep the queues are.
const DEPTH: u32 = 512;

impl Connection {
    /// A queue pair that is not connected yet, in the adapter's default protection domain. Receives
    /// may be posted already, before anything can arrive.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn new(context: &Context) -> Result<Self, Error> {
        // A completion for each request that may be posted, and as many that nobody has taken when
        // their places are posted to again.
        let cq = context.create_cq(4 * DEPTH)?;
        let domain = context.default_pd();
        let qp = domain
            .create_qp(ServiceType::Rc, &cq)
            .send(SendCapacity { depth: DEPTH, max_sge: 4, max_inline: 256 })
            .receive(ReceiveCapacity { depth: DEPTH, max_sge: 4 })
            .signal_all()
            .build()?;
        qp.init(ConnectOptions::default().access)?;
        Ok(Self { qp, cq, waiting: Vec::new() })
    }

    /// The queue pair, for all that is not here.
    pub const fn queue_pair(&self) -> &QueuePair {
        &self.qp
    }

    /// What the peer has to know.
    ///
    /// # Errors
    /// [`Error::NoSuchGid`]: the adapter has no address.
    pub fn endpoint(&self) -> Result<Endpoint, Error> {
        self.qp.endpoint()
    }

    /// Takes the queue pair to the state in which it sends and receives. The peer does the same.
    ///
    /// # Errors
    /// [`Error`]: there is no way to the peer, or no address of its family.
    pub fn connect(&mut self, peer: &Endpoint) -> Result<(), Error> {
        self.qp.connect(peer, &ConnectOptions::default())
    }

    /// Posts a receive of up to `len` bytes at `offset` of a region.
    ///
    /// # Errors
    /// [`BadRequest`].
    pub fn post_receive(
        &mut self,
        wr_id: u64,
        region: &MemoryRegion,
        offset: u64,
        len: u32,
    ) -> Result<(), BadRequest> {
        let sges = [region.sge(offset, len)];
        self.qp.post_receive(&[ReceiveRequest { wr_id, sges: &sges }])
    }

    /// Posts a request about `len` bytes at `offset` of a region.
    ///
    /// # Errors
    /// [`BadRequest`].
    pub fn post(
        &mut self,
        wr_id: u64,
        operation: Op,
        region: &MemoryRegion,
        offset: u64,
        len: u32,
    ) -> Result<(), BadRequest> {
        let sges = [region.sge(offset, len)];
        self.qp.post_send(&[SendRequest {
            wr_id,
            operation: operation.into(),
            data: Data::Regions(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        }])
    }

    /// The next completion of a request or receive, if one is there.
    pub fn try_next(&mut self) -> Option<Completion> {
        if self.waiting.is_empty() {
            let mut room = [Completion::BLANK; 16];
            let found = self.cq.poll(&mut room);
            self.waiting.extend(room[..found].iter().rev());
        }
        self.waiting.pop()
    }

    /// The next completion of a request or receive.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`Error::Completion`] when the request failed.
    pub fn wait(&mut self, wait: Wait) -> Result<Completion, Error> {
        let start = Clock::now();
        loop {
            if let Some(completion) = self.try_next() {
                let Completion { wr_id, status, .. } = completion;
                return match status {
                    CompletionStatus::Success => Ok(completion),
                    status => {
                        Err(Error::Completion { wr_id, status, why: self.qp.explain(status) })
                    }
                };
            }
            if start.elapsed() > wait.0 {
                return Err(Error::TimedOut(wait.0));
            }
            std::hint::spin_loop();
        }
    }

    /// Why it ended, or its state if it goes on, in a sentence.
    pub fn why(&self) -> String {
        self.qp.why()
    }
}

#[cfg(test)]
mod tests {
    use roxe_transport::work::Attributes;
    use roxe_wire::Mtu;

    use super::*;

    /// One that posts its receives in software needs longer than hardware does, and is not given
    /// up.
    //= BC-044 test
    #[test]
    fn a_receiver_in_software_is_waited_for() {
        let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
        let mut ours = Connection::new(&one).unwrap();
        let theirs = Connection::new(&other).unwrap();
        ours.connect(&theirs.endpoint().unwrap()).unwrap();
        let Attributes { min_rnr_timer, rnr_retry, .. } = ours.queue_pair().query().attributes;
        assert!(min_rnr_timer.duration() >= Duration::from_micros(640));
        assert_eq!(rnr_retry, 7, "for ever");
    }
}
