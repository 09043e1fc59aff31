//! A reliable connection in a few calls: what most applications do with a queue pair.

use std::net::IpAddr;
use std::time::{Duration, Instant as Clock};

use roxe_device::address_handle::AddressVector;
use roxe_device::{CqId, QueuePairInit, ReceiveCapacity};
use roxe_transport::SendCapacity;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, CompletionStatus, Data, ReceiveRequest, Remote,
    SendOperation, SendRequest,
};
use roxe_wire::{AckTimeout, Gid, ImmDt, Mtu, PKey, Psn, QKey, Qpn, RKey, RnrTimer, StaticRate};

use crate::context::{Context, Error, MemoryRegion};

/// What a peer has to know to connect, exchanged out of band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The adapter's address.
    pub address: IpAddr,
    /// The queue pair.
    pub qpn: Qpn,
    /// The PSN of its first request.
    pub psn: Psn,
    /// The largest path MTU of its port.
    pub path_mtu: Mtu,
}

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

/// How long to wait for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait(pub Duration);

impl Wait {
    /// One second.
    pub const SECOND: Self = Self(Duration::from_secs(1));
}

/// A queue pair of a reliable connection with completion queues of its own. Destroyed when dropped.
pub struct Connection {
    context: Context,
    qpn: Qpn,
    send_cq: CqId,
    receive_cq: CqId,
    psn: Psn,
    waiting: Vec<Completion>,
}

/// How deep the queues are.
const DEPTH: u32 = 512;

impl Connection {
    /// A queue pair that is not connected yet.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn new(context: &Context) -> Result<Self, Error> {
        let pd = context.pd();
        let made = context.with(|driver| {
            let device = &mut driver.device;
            let send_cq = device.create_completion_queue(2 * DEPTH)?;
            let receive_cq = device.create_completion_queue(2 * DEPTH)?;
            let qpn = device.create_queue_pair(&QueuePairInit {
                service: ServiceType::Rc,
                pd,
                send_cq,
                receive_cq,
                srq: None,
                send: SendCapacity { depth: DEPTH, max_sge: 4, max_inline: 256 },
                receive: ReceiveCapacity { depth: DEPTH, max_sge: 4 },
                signal_all: true,
            })?;
            Ok::<_, Error>((qpn, send_cq, receive_cq))
        });
        let (qpn, send_cq, receive_cq) = made?;
        let psn = Psn::new(qpn.get().wrapping_mul(0x9e37));
        let context = context.clone();
        Ok(Self { context, qpn, send_cq, receive_cq, psn, waiting: Vec::new() })
    }

    /// What the peer has to know.
    pub fn endpoint(&self) -> Endpoint {
        let address = self.context.addresses().first().copied();
        Endpoint {
            address: address.unwrap_or_else(|| IpAddr::from([0; 4])),
            qpn: self.qpn,
            psn: self.psn,
            path_mtu: self.context.path_mtu(),
        }
    }

    /// Takes the queue pair to the state in which it sends and receives. The peer does the same.
    ///
    /// # Errors
    /// [`Error`]: there is no way to the peer, or no address of its family.
    //= BC-044
    pub fn connect(&mut self, peer: &Endpoint) -> Result<(), Error> {
        let addresses = self.context.addresses();
        let family = peer.address.is_ipv4();
        let source = addresses.iter().position(|own| own.is_ipv4() == family);
        let source = source.ok_or(Error::NoSourceAddress(peer.address))?;
        let vector = AddressVector {
            source_gid: u32::try_from(source).unwrap_or(0),
            destination: Gid::from_ip(peer.address),
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            service_level: 0,
            static_rate: StaticRate::MAX,
        };
        let values = Attributes {
            qpn: self.qpn,
            cur_state: QpState::default(),
            dest_qp: peer.qpn,
            path_mtu: self.context.path_mtu().min(peer.path_mtu),
            access: AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_ATOMIC,
            q_key: QKey(0),
            p_key: PKey::DEFAULT,
            sq_psn: self.psn,
            rq_psn: peer.psn,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            timeout: AckTimeout::new(14).unwrap_or_default(),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::from_bits(12),
        };
        let steps: [(QpState, &[A]); 3] = [
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (
                QpState::Rtr,
                &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer],
            ),
            (QpState::Rts, &[A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic]),
        ];
        let qpn = self.qpn;
        for (state, given) in steps {
            let given = AttributeMask::of(given);
            self.context.with(|driver| {
                driver.device.modify_queue_pair(qpn, state, given, &values, Some(&vector))
            })?;
        }
        let path = self.context.with(|driver| {
            let path = driver.device.query_queue_pair(qpn).ok()?.path?;
            Some((path, driver.device.paths().get(path)?.addressing))
        });
        if let Some((path, addressing)) = path {
            self.context.resolve(path, &addressing)?;
        }
        Ok(())
    }

    /// Posts a receive of up to `len` bytes at `offset` of a region.
    ///
    /// # Errors
    /// [`Error::Post`].
    pub fn post_receive(
        &mut self,
        wr_id: u64,
        region: &MemoryRegion,
        offset: u64,
        len: u32,
    ) -> Result<(), Error> {
        let sges = [region.sge(offset, len)];
        let request = ReceiveRequest { wr_id, sges: &sges };
        Ok(self.context.with(|driver| driver.device.post_receive(self.qpn, &request))?)
    }

    /// Posts a request about `len` bytes at `offset` of a region.
    ///
    /// # Errors
    /// [`Error::Post`].
    pub fn post(
        &mut self,
        wr_id: u64,
        operation: Op,
        region: &MemoryRegion,
        offset: u64,
        len: u32,
    ) -> Result<(), Error> {
        let sges = [region.sge(offset, len)];
        let operation = match operation {
            Op::Send => SendOperation::Send,
            Op::SendWithImm(imm) => SendOperation::SendWithImm(ImmDt(imm)),
            Op::Write { va, r_key } => SendOperation::Write(Remote { va, r_key }),
            Op::WriteWithImm { va, r_key, imm } => {
                SendOperation::WriteWithImm(Remote { va, r_key }, ImmDt(imm))
            }
            Op::Read { va, r_key } => SendOperation::Read(Remote { va, r_key }),
            Op::FetchAdd { va, r_key, add } => {
                SendOperation::FetchAdd { remote: Remote { va, r_key }, add }
            }
            Op::CompareSwap { va, r_key, compare, swap } => {
                SendOperation::CompareSwap { remote: Remote { va, r_key }, compare, swap }
            }
        };
        let request = SendRequest {
            wr_id,
            operation,
            data: Data::Regions(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        let qpn = self.qpn;
        Ok(self.context.poll(|driver| {
            let posted = driver.device.post_send(qpn, &request);
            driver.drive();
            posted
        })?)
    }

    /// The next completion of either queue, if one is there.
    pub fn try_next(&mut self) -> Option<Completion> {
        if let Some(completion) = self.waiting.pop() {
            return Some(completion);
        }
        let (send_cq, receive_cq) = (self.send_cq, self.receive_cq);
        let mut room = [Completion::BLANK; 16];
        let found = self.context.poll(|driver| {
            let sent = driver.device.poll_completions(send_cq, &mut room);
            sent + driver.device.poll_completions(receive_cq, &mut room[sent..])
        });
        self.waiting.extend(room[..found].iter().rev());
        self.waiting.pop()
    }

    /// The next completion of either queue.
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
                    failed => Err(Error::Completion { wr_id, status: failed.name() }),
                };
            }
            if start.elapsed() > wait.0 {
                return Err(Error::TimedOut(wait.0));
            }
            std::hint::spin_loop();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let (qpn, cqs) = (self.qpn, [self.send_cq, self.receive_cq]);
        self.context.with(|driver| {
            // Nothing else uses them: they can only be gone already.
            let _ = driver.device.destroy_queue_pair(qpn);
            for cq in cqs {
                let _ = driver.device.destroy_completion_queue(cq);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that posts its receives in software needs longer than hardware does, and is not given
    /// up.
    //= BC-044 test
    #[test]
    fn a_receiver_in_software_is_waited_for() {
        let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
        let mut ours = Connection::new(&one).unwrap();
        let theirs = Connection::new(&other).unwrap();
        ours.connect(&theirs.endpoint()).unwrap();
        let info = one.with(|driver| driver.device.query_queue_pair(ours.qpn)).unwrap();
        let Attributes { min_rnr_timer, rnr_retry, .. } = info.attributes;
        assert!(min_rnr_timer.duration() >= Duration::from_micros(640));
        assert_eq!(rnr_retry, 7, "for ever");
    }
}
