//! What a measurement stands on: the adapter, its queue pairs, their memory, and the way to those
//! of the peer.

use std::io;

use roxe_verbs::congestion::Rate;
use roxe_verbs::{
    AccessFlags, AckTimeout, AddressHandle, AddressVector, BadRequest, Completion,
    CompletionChannel, CompletionQueue, ConnectOptions, Context, DatagramTarget, Endpoint, Gid,
    QKey, QueuePair, ReceiveCapacity, ReceiveRequest, RnrTimer, SendCapacity, ServiceType,
    SharedReceiveQueue,
};

use crate::outcome::complain;
use crate::perf::arguments::PerfArguments;
use crate::perf::congestion::{Counts, Look, chosen, watched};
use crate::perf::memory::Memory;
use crate::perf::plan::{MOST_READS, Plan, Verb};
use crate::perf::wire::Destination;
use crate::side_channel::here::{Here, became, hinted, is_down};
use crate::side_channel::{Failure, Q_KEY, Traffic, must_match};

/// How long a peer waits when there is no receive, as perftest has it.
const MIN_RNR_TIMER: u8 = 12;

/// What may be behind an error of a queue pair.
const HINT: &str = "Are the test, -c, -s, -q, -m and -a the same on both sides? They have to be.";

/// All that one side has.
pub(crate) struct Rig {
    context: Context,
    pub(crate) cq: CompletionQueue,
    /// Wakes who sleeps for completions.
    pub(crate) channel: Option<CompletionChannel>,
    pub(crate) queue_pairs: Vec<QueuePair>,
    srq: Option<SharedReceiveQueue>,
    pub(crate) memory: Memory,
    /// Where datagrams of each queue pair go.
    pub(crate) targets: Vec<Option<DatagramTarget>>,
    handles: Vec<AddressHandle>,
    /// Queue pairs of the peer, once they are known.
    pub(crate) peers: Vec<Destination>,
    pub(crate) gid: (u32, Gid),
    options: ConnectOptions,
    /// What the adapter had counted before.
    before: Counts,
}

impl Rig {
    /// That of all its queue pairs.
    pub(crate) fn service(&self) -> ServiceType {
        self.queue_pairs.first().map_or(ServiceType::Rc, QueuePair::service)
    }

    /// WRITEs of the peer's that came whole, of a service that acknowledges none.
    pub(crate) fn written(&self) -> u64 {
        let counters = self.context.counters();
        let of_writes = counters.iter().find(|(name, _)| *name == "rx_write_requests");
        of_writes.map_or(0, |(_, count)| *count)
    }

    /// Makes everything that needs no peer.
    pub(crate) fn new(
        context: &Context,
        plan: &Plan,
        arguments: &PerfArguments,
        gid: (u32, Gid),
    ) -> Result<Self, Failure> {
        let domain = context.alloc_pd()?;
        let memory = Memory::new(&domain, plan)?;
        let [depth, receives] = plan.depths();
        let all = u32::try_from(plan.completions()).unwrap_or(u32::MAX);
        let channel = plan.events.then(|| context.create_comp_channel()).transpose()?;
        let cq = match &channel {
            Some(channel) => context.create_cq_on(channel, all)?,
            None => context.create_cq(all)?,
        };
        let shared = plan.shared_depth();
        let srq = shared.map(|depth| domain.create_srq(depth, 1)).transpose()?;
        let own = context.congestion().control;
        let (control, told) = chosen(own, arguments.cc);
        told.iter().for_each(complain);
        let mut queue_pairs = Vec::new();
        for _ in 0..plan.queue_pairs {
            let builder = domain
                .create_qp(plan.service, &cq)
                .send(SendCapacity { depth, max_sge: 1, max_inline: plan.inline_size })
                .receive(ReceiveCapacity { depth: receives, max_sge: 1 });
            let qp = match &srq {
                Some(srq) => builder.srq(srq).build()?,
                None => builder.build()?,
            };
            if control != own {
                qp.set_congestion_control(control)?;
            }
            queue_pairs.push(qp);
        }
        let access = match plan.verb {
            Verb::Send => AccessFlags::NONE,
            Verb::Write => AccessFlags::REMOTE_WRITE,
            Verb::Read => AccessFlags::REMOTE_READ,
            Verb::Atomic(_) => AccessFlags::REMOTE_ATOMIC,
        };
        let options = ConnectOptions {
            source_gid: gid.0,
            access,
            path_mtu: plan.mtu,
            timeout: AckTimeout::new(arguments.qp_timeout).unwrap_or_default(),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::from_bits(MIN_RNR_TIMER),
            max_dest_rd_atomic: u8::try_from(plan.out_reads).unwrap_or(u8::MAX),
            traffic_class: arguments.tclass,
            service_level: arguments.sl,
            ..ConnectOptions::default()
        };
        let targets = vec![None; queue_pairs.len()];
        let (handles, peers) = (Vec::new(), Vec::new());
        let before = Counts::of(context);
        let context = context.clone();
        Ok(Self {
            context,
            before,
            cq,
            channel,
            queue_pairs,
            srq,
            memory,
            targets,
            handles,
            peers,
            gid,
            options,
        })
    }

    /// What the peer has to know of a queue pair.
    pub(crate) fn destination(&self, plan: &Plan, qp: usize) -> Result<Destination, Failure> {
        let endpoint = self.queue_pairs[qp].endpoint_at(self.gid.0)?;
        Ok(Destination {
            lid: 0,
            out_reads: plan.out_reads,
            qpn: endpoint.qpn,
            psn: endpoint.psn,
            r_key: self.memory.region().r_key(),
            va: self.memory.target(qp),
            gid: self.gid.1,
            srqn: 0,
        })
    }

    /// Connects each queue pair with the peer's, or learns where datagrams go.
    pub(crate) fn connect(
        &mut self,
        plan: &Plan,
        peers: Vec<Destination>,
        is_this_host: bool,
    ) -> Result<(), Failure> {
        for (at, (qp, peer)) in self.queue_pairs.iter().zip(&peers).enumerate() {
            must_match(self.gid.1, peer.gid, is_this_host)?;
            if plan.service == ServiceType::Ud {
                qp.ready(QKey(Q_KEY))?;
                let vector = AddressVector {
                    traffic_class: self.options.traffic_class,
                    service_level: self.options.service_level,
                    ..AddressVector::new(self.gid.0, peer.gid)
                };
                let handle = qp.domain().create_ah(&vector)?;
                self.targets[at] = Some(handle.target(peer.qpn, QKey(Q_KEY)));
                self.handles.push(handle);
                continue;
            }
            let endpoint = Endpoint {
                address: peer.gid.to_ip(),
                qpn: peer.qpn,
                psn: peer.psn,
                path_mtu: plan.mtu,
            };
            let reads = u8::try_from(peer.out_reads.min(MOST_READS)).unwrap_or(u8::MAX);
            qp.connect(&endpoint, &ConnectOptions { max_rd_atomic: reads, ..self.options })?;
        }
        self.peers = peers;
        Ok(())
    }

    /// Posts receives of a queue pair, or of the one that all share.
    pub(crate) fn post_receives(
        &self,
        qp: usize,
        requests: &[ReceiveRequest<'_>],
    ) -> Result<(), Failure> {
        let posted = match &self.srq {
            Some(srq) => srq.post_receive(requests),
            None => self.queue_pairs[qp].post_receive(requests),
        };
        posted.map_err(Failure::failed)
    }

    /// Measures by `run`, and meanwhile shows what congestion control does.
    pub(crate) fn watched<R>(
        &self,
        show: impl Fn(&Look) -> io::Result<()> + Sync,
        run: impl FnOnce() -> R,
    ) -> R {
        watched(&self.context, self.before, &self.queue_pairs, show, run)
    }

    /// How fast a queue pair may send now, in the mean, where something controls that.
    pub(crate) fn allowed(&self) -> Option<Rate> {
        let rates = self.queue_pairs.iter().filter_map(QueuePair::controller);
        let rates: Vec<f64> = rates.map(|it| it.rate().bits_per_second()).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        (!rates.is_empty()).then(|| Rate::from_bits_per_second(mean))
    }

    /// What the adapter has counted of congestion.
    pub(crate) fn counts(&self) -> Counts {
        Counts::of(&self.context).since(self.before)
    }

    /// Why a completion is no success.
    pub(crate) fn explain(&self, completion: &Completion) -> Failure {
        let qp = self.queue_pairs.iter().find(|qp| qp.qpn() == completion.qpn);
        let why = match qp {
            Some(qp) => qp.explain(completion.status),
            None => format!("{:?}", completion.status),
        };
        self.hinted(&why)
    }

    /// Whether nothing comes or goes.
    pub(crate) fn is_down(&self) -> bool {
        is_down(&self.context)
    }

    /// Why requests are not taken.
    pub(crate) fn refused(&self, refused: BadRequest) -> Failure {
        self.why().map_or_else(|| Failure::failed(refused), |why| self.hinted(&why))
    }

    fn hinted(&self, why: &str) -> Failure {
        hinted(&self.context, &self.queue_pairs, self.options.path_mtu, why, HINT)
    }
}

impl Here for Rig {
    fn traffic(&self) -> Traffic {
        let mut traffic = Traffic { packets: 0, refused: 0 };
        let mut of_strangers = 0;
        for (name, count) in self.context.counters() {
            match name {
                "rdma_rx_packets" => traffic.packets += count,
                // Of those that came, none is the peer's.
                "unknown_qp" | "wrong_service" | "addr_mismatch" | "bad_pkey" | "bad_qkey" => {
                    of_strangers += count;
                }
                "rcvd_rnr_err" | "send_rnr_err" => traffic.refused += count,
                _ => {}
            }
        }
        traffic.packets = traffic.packets.saturating_sub(of_strangers);
        traffic
    }

    fn why(&self) -> Option<String> {
        became(&self.context, &self.queue_pairs)
    }
}
