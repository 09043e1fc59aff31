//! Our end.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use roxe_verbs::{
    AccessFlags, AckTimeout, AddressHandle, AddressVector, Attribute as A, AttributeMask,
    Attributes, Buffer, Completion, CompletionChannel, CompletionQueue, Context, Data,
    DatagramTarget, Extra, Gid, ImmDt, MemoryRegion, MemoryWindow, PKey, Psn, QKey, QpState, Qpn,
    QueuePair, RKey, ReceiveCapacity, ReceiveRequest, Remote, RnrTimer, SendCapacity,
    SendOperation, SendRequest, ServiceType, SharedReceiveQueue, WindowType, open,
};

use crate::Outcome;
use crate::end::{Card, DEPTH, Done, End, MEMORY, Q_KEY, Setup, Work, pattern};

/// An adapter of ours.
pub(crate) struct Ours {
    /// Goes before its memory: who asks meanwhile is answered by nobody, as by a host that fell.
    qp: Option<QueuePair>,
    context: Context,
    channel: CompletionChannel,
    cq: CompletionQueue,
    memory: Arc<Buffer>,
    region: MemoryRegion,
    read_only: Option<MemoryRegion>,
    source: u32,
    address: IpAddr,
    srq: Option<SharedReceiveQueue>,
    window: Option<MemoryWindow>,
    target: Option<(AddressHandle, DatagramTarget)>,
    /// Completed, and not asked for yet.
    done: Vec<Done>,
    psn: u32,
}

/// Names a window's binding.
const BIND: u64 = u64::MAX;

impl Ours {
    /// The adapter that a device string says, at this address of it.
    pub(crate) fn open(device: &str, address: IpAddr) -> Outcome<Self> {
        let context = open(device)?;
        let gids = context.gids();
        let found = gids.iter().find(|(_, entry)| entry.gid.to_ip() == address);
        let source = found.ok_or_else(|| format!("{device} has no address {address}"))?.0;
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq_on(&channel, 4 * DEPTH)?;
        let memory = Buffer::new(MEMORY);
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC
            | AccessFlags::MW_BIND;
        let region = context.default_pd().register(&memory, access)?;
        Ok(Self {
            context,
            channel,
            cq,
            memory,
            region,
            read_only: None,
            source,
            address,
            qp: None,
            srq: None,
            window: None,
            target: None,
            done: Vec::new(),
            psn: 0,
        })
    }

    fn qp(&self) -> Outcome<&QueuePair> {
        self.qp.as_ref().ok_or_else(|| "there is no queue pair yet".into())
    }

    fn vector(&self, address: IpAddr) -> AddressVector {
        AddressVector { hop_limit: 64, ..AddressVector::new(self.source, Gid::from_ip(address)) }
    }

    /// Takes in what has completed; says how much.
    fn poll(&mut self) -> usize {
        let mut room = [Completion::BLANK; 32];
        let found = self.cq.poll(&mut room);
        self.done.extend(room[..found].iter().map(done));
        found
    }

    /// Until so many have completed, or time is over.
    fn collect(&mut self, count: usize, patience: Duration) -> Outcome {
        let until = Clock::now() + patience;
        while self.done.len() < count {
            if self.poll() > 0 || self.cq.request_notify(false)? {
                continue;
            }
            let left = until.saturating_duration_since(Clock::now());
            if left.is_zero() {
                break;
            }
            self.channel.wait(left);
        }
        Ok(())
    }

    fn operation(&self, work: Work) -> SendOperation {
        let remote = |va, r_key| Remote { va, r_key: RKey(r_key) };
        match work {
            Work::Send => SendOperation::Send,
            Work::SendImm(imm) => SendOperation::SendWithImm(ImmDt(imm)),
            Work::SendInv(key) => SendOperation::SendWithInv(RKey(key)),
            Work::Write { va, r_key } => SendOperation::Write(remote(va, r_key)),
            Work::WriteImm { va, r_key, imm } => {
                SendOperation::WriteWithImm(remote(va, r_key), ImmDt(imm))
            }
            Work::Read { va, r_key } => SendOperation::Read(remote(va, r_key)),
            Work::CompareSwap { va, r_key, compare, swap } => {
                SendOperation::CompareSwap { remote: remote(va, r_key), compare, swap }
            }
            Work::FetchAdd { va, r_key, add } => {
                SendOperation::FetchAdd { remote: remote(va, r_key), add }
            }
        }
    }
}

impl End for Ours {
    fn name(&self) -> &'static str {
        "roxe"
    }

    fn make(&mut self, setup: &Setup, which: usize) -> Outcome<Card> {
        self.psn = setup.psn[which];
        let pd = self.context.default_pd();
        if setup.srq {
            self.srq = Some(pd.create_srq(DEPTH, 1)?);
        }
        let mut builder = pd
            .create_qp(setup.service, &self.cq)
            .send(SendCapacity { depth: DEPTH, max_sge: 1, max_inline: 0 })
            .receive(ReceiveCapacity { depth: DEPTH, max_sge: 1 })
            .signal_all();
        if let Some(srq) = &self.srq {
            builder = builder.srq(srq);
        }
        let qp = builder.build()?;
        let known = qp.query().attributes;
        let access = match setup.remote_access {
            true => {
                AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC
            }
            false => AccessFlags::default(),
        };
        let values = Attributes { access, p_key: PKey::DEFAULT, q_key: QKey(Q_KEY), ..known };
        let own = if setup.service == ServiceType::Ud { A::Qkey } else { A::AccessFlags };
        let given = AttributeMask::of(&[A::PkeyIndex, A::Port, own]);
        qp.modify(QpState::Init, given, &values, None)?;
        let card = Card {
            address: self.address,
            qpn: qp.qpn().get(),
            psn: self.psn,
            va: self.region.address(),
            r_key: self.region.r_key().0,
        };
        self.qp = Some(qp);
        Ok(card)
    }

    fn meet(&mut self, setup: &Setup, peer: &Card) -> Outcome {
        let qp = self.qp()?;
        let timeout = AckTimeout::new(setup.timeout).ok_or("no such timeout")?;
        let values = Attributes {
            dest_qp: Qpn::new(peer.qpn),
            path_mtu: setup.path_mtu,
            sq_psn: Psn::new(self.psn),
            rq_psn: Psn::new(peer.psn),
            max_rd_atomic: setup.rd_atomic,
            max_dest_rd_atomic: setup.rd_atomic,
            timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            min_rnr_timer: RnrTimer::from_bits(setup.min_rnr_timer),
            ..qp.query().attributes
        };
        let connected: &[A] = &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn];
        let retry: &[A] = &[A::Timeout, A::RetryCnt, A::RnrRetry, A::MaxQpRdAtomic];
        let (to_rtr, to_rts): (&[&[A]], &[&[A]]) = match setup.service {
            ServiceType::Rc => {
                (&[connected, &[A::MaxDestRdAtomic, A::MinRnrTimer]], &[&[A::SqPsn], retry])
            }
            ServiceType::Uc => (&[connected], &[&[A::SqPsn]]),
            ServiceType::Ud => (&[], &[&[A::SqPsn]]),
        };
        let vector = self.vector(peer.address);
        let path = (setup.service != ServiceType::Ud).then_some(&vector);
        qp.modify(QpState::Rtr, AttributeMask::of(&to_rtr.concat()), &values, path)?;
        qp.modify(QpState::Rts, AttributeMask::of(&to_rts.concat()), &values, None)?;
        if setup.service == ServiceType::Ud {
            let handle = self.context.default_pd().create_ah(&vector)?;
            let target = handle.target(Qpn::new(peer.qpn), QKey(Q_KEY));
            self.target = Some((handle, target));
        }
        Ok(())
    }

    fn join(&mut self, group: IpAddr) -> Outcome {
        Ok(self.qp()?.attach_multicast(Gid::from_ip(group))?)
    }

    fn send_to(&mut self, group: IpAddr) -> Outcome {
        let handle = self.context.default_pd().create_ah(&self.vector(group))?;
        let target = handle.target(Qpn::new(0xff_ffff), QKey(Q_KEY));
        self.target = Some((handle, target));
        Ok(())
    }

    fn fill(&mut self, at: u64, len: u64, seed: u64) -> Outcome {
        let bytes: Vec<u8> = (0..len).map(|byte| pattern(seed, byte)).collect();
        self.memory.write(at as usize, &bytes);
        Ok(())
    }

    fn check(&mut self, at: u64, len: u64, seed: u64, skip: u64) -> Outcome {
        let mut bytes = vec![0; len as usize];
        self.memory.read(at as usize, &mut bytes);
        let wrong = |(number, byte): (u64, &u8)| *byte != pattern(seed, skip + number);
        let wrong = (0..).zip(&bytes).position(wrong);
        wrong.map_or(Ok(()), |at| Err(format!("byte {at} of {len} is wrong").into()))
    }

    fn word(&mut self, at: u64) -> Outcome<u64> {
        let mut bytes = [0; 8];
        self.memory.read(at as usize, &mut bytes);
        Ok(u64::from_ne_bytes(bytes))
    }

    fn set_word(&mut self, at: u64, value: u64) -> Outcome {
        self.memory.write(at as usize, &value.to_ne_bytes());
        Ok(())
    }

    fn bind(&mut self) -> Outcome<u32> {
        let pd = self.context.default_pd();
        let mut window = match self.window.take() {
            Some(window) => window,
            None => pd.alloc_mw(WindowType::Type2)?,
        };
        let operation = window.bind(&self.region, 0, 4096, AccessFlags::REMOTE_WRITE);
        let key = window.r_key();
        self.window = Some(window);
        let request = SendRequest {
            wr_id: BIND,
            operation,
            data: Data::Regions(&[]),
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        self.qp()?.post_send(&[request])?;
        match self.wait(1, Duration::from_secs(5))?[..] {
            [Done { id: BIND, status: 0, .. }] => Ok(key.0),
            ref other => Err(format!("a window was not bound: {other:?}").into()),
        }
    }

    fn receive(&mut self, id: u64, at: u64, len: u32) -> Outcome {
        let sges = [self.region.sge(at, len)];
        let request = ReceiveRequest { wr_id: id, sges: if len == 0 { &[] } else { &sges } };
        match &self.srq {
            Some(srq) => srq.post_receive(&[request])?,
            None => self.qp()?.post_receive(&[request])?,
        }
        Ok(())
    }

    fn post(&mut self, id: u64, work: Work, at: u64, len: u32) -> Outcome {
        let sges = [self.region.sge(at, len)];
        let request = SendRequest {
            wr_id: id,
            operation: self.operation(work),
            data: Data::Regions(if len == 0 { &[] } else { &sges }),
            signaled: true,
            solicited: false,
            fence: false,
            target: self.target.as_ref().map(|(_, target)| *target),
        };
        Ok(self.qp()?.post_send(&[request])?)
    }

    fn read_only(&mut self) -> Outcome<(u64, u32)> {
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
        let region = self.context.default_pd().register(&self.memory, access)?;
        let found = (region.address(), region.r_key().0);
        self.read_only = Some(region);
        Ok(found)
    }

    fn destroy(&mut self) -> Outcome {
        self.qp = None;
        Ok(())
    }

    fn state(&mut self) -> Outcome<String> {
        Ok(self.qp()?.query().state.name().to_owned())
    }

    fn wait(&mut self, count: usize, patience: Duration) -> Outcome<Vec<Done>> {
        self.collect(count, patience)?;
        let have = self.done.len().min(count);
        Ok(self.done.drain(..have).collect())
    }

    fn counters(&mut self) -> Outcome<BTreeMap<String, u64>> {
        let counters = self.context.counters();
        Ok(counters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

fn done(completion: &Completion) -> Done {
    let (imm, invalidated) = match completion.extra {
        Extra::None => (None, None),
        Extra::Imm(ImmDt(imm)) => (Some(imm), None),
        Extra::Invalidated(RKey(key)) => (None, Some(key)),
    };
    Done {
        id: completion.wr_id,
        status: completion.status.code(),
        opcode: completion.opcode.code().into(),
        len: completion.byte_len,
        imm,
        invalidated,
        source_qp: completion.source_qp.get(),
    }
}
