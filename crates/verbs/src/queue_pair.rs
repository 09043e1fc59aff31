//! Queue pairs.

use std::sync::Arc;

use roxe_device::address_handle::AddressVector;
use roxe_device::{
    Congestion, QueuePairInfo, QueuePairInit, QueuePairStory, ReceiveCapacity, VerbError,
};
use roxe_transport::SendCapacity;
use roxe_transport::congestion::{CongestionControl, Controller, ReactionPoint};
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, CompletionStatus, PostError, ReceiveRequest, SendRequest,
};
use roxe_wire::{AckTimeout, Gid, Mtu, PKey, Psn, QKey, Qpn, RnrTimer};

use crate::completion_queue::CompletionQueue;
use crate::connect::why_unreachable;
use crate::context::{Context, check_congestion, seed};
use crate::endpoint::Endpoint;
use crate::error::{BadRequest, Error};
use crate::events::Affected;
use crate::protection_domain::ProtectionDomain;
use crate::shared_receive_queue::SharedReceiveQueue;

/// A queue pair: `ibv_qp`. Clones are the same queue pair; it is destroyed with the last one.
#[derive(Clone)]
pub struct QueuePair {
    inner: Arc<Inner>,
}

/// What a queue pair needs lives as long as it.
struct Inner {
    domain: ProtectionDomain,
    _queues: [CompletionQueue; 2],
    srq: Option<SharedReceiveQueue>,
    service: ServiceType,
    qpn: Qpn,
    /// The PSN of its first request, unless raw attributes say another.
    psn: Psn,
}

/// Posts one request to a send queue.
pub type PostSend<'a> = &'a mut dyn FnMut(&SendRequest<'_>) -> Result<(), PostError>;

/// Posts one request to a receive queue.
pub type PostReceive<'a> = &'a mut dyn FnMut(&ReceiveRequest<'_>) -> Result<(), PostError>;

/// How a connection shall be: what the two sides need not tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Our address, as index into the GID table. The peer must have been told the same one.
    pub source_gid: u32,
    /// What the peer may do.
    pub access: AccessFlags,
    /// The most payload of a packet; never more than both ports have.
    pub path_mtu: Mtu,
    /// How long to wait for an answer before a request is sent again. RC.
    pub timeout: AckTimeout,
    /// How often it is sent again for want of an answer, 0 ..= 7. RC.
    pub retry_cnt: u8,
    /// How often for want of a receive buffer, 0 ..= 7; 7 is for ever. RC.
    pub rnr_retry: u8,
    /// How long a peer shall wait when we have no receive buffer. RC.
    pub min_rnr_timer: RnrTimer,
    /// READs and atomics that we may have outstanding. RC.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding. RC.
    pub max_dest_rd_atomic: u8,
    /// DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// Time to live or hop limit; 0 for the default.
    pub hop_limit: u8,
    /// The service level, 0 ..= 7: the priority in VLAN tags.
    pub service_level: u8,
}

impl Default for ConnectOptions {
    /// One that posts its receives in software needs longer than hardware does, and is not given
    /// up.
    //= BC-044
    fn default() -> Self {
        Self {
            source_gid: 0,
            access: AccessFlags::REMOTE_WRITE
                | AccessFlags::REMOTE_READ
                | AccessFlags::REMOTE_ATOMIC,
            path_mtu: Mtu::B4096,
            timeout: AckTimeout::new(14).unwrap_or_default(),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::from_bits(12),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            traffic_class: 0,
            hop_limit: 0,
            service_level: 0,
        }
    }
}

/// What a queue pair shall be like: `ibv_qp_init_attr`.
#[derive(Clone)]
pub struct QueuePairBuilder<'a> {
    domain: &'a ProtectionDomain,
    send_cq: &'a CompletionQueue,
    receive_cq: &'a CompletionQueue,
    srq: Option<&'a SharedReceiveQueue>,
    service: ServiceType,
    send: SendCapacity,
    receive: ReceiveCapacity,
    signal_all: bool,
}

impl<'a> QueuePairBuilder<'a> {
    pub(crate) const fn new(
        domain: &'a ProtectionDomain,
        service: ServiceType,
        cq: &'a CompletionQueue,
    ) -> Self {
        Self {
            domain,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            service,
            send: SendCapacity { depth: 128, max_sge: 4, max_inline: 256 },
            receive: ReceiveCapacity { depth: 128, max_sge: 4 },
            signal_all: false,
        }
    }

    /// Receives complete there.
    #[must_use]
    pub const fn receive_cq(mut self, cq: &'a CompletionQueue) -> Self {
        self.receive_cq = cq;
        self
    }

    /// Receives come from there.
    #[must_use]
    pub const fn srq(mut self, srq: &'a SharedReceiveQueue) -> Self {
        self.srq = Some(srq);
        self
    }

    /// How large the send queue is; unless said, 128 requests of 4 elements or 256 inline bytes.
    #[must_use]
    pub const fn send(mut self, capacity: SendCapacity) -> Self {
        self.send = capacity;
        self
    }

    /// How large the receive queue is; unless said, 128 requests of 4 elements.
    #[must_use]
    pub const fn receive(mut self, capacity: ReceiveCapacity) -> Self {
        self.receive = capacity;
        self
    }

    /// Every send request is completed, signaled or not: `sq_sig_all`.
    #[must_use]
    pub const fn signal_all(mut self) -> Self {
        self.signal_all = true;
        self
    }

    /// Makes it, in state Reset.
    ///
    /// # Errors
    /// [`Error::OtherAdapter`]; [`Error::Verb`].
    pub fn build(&self) -> Result<QueuePair, Error> {
        let Self { domain, send_cq, receive_cq, srq, service, .. } = *self;
        let context = domain.context();
        let same = send_cq.is_of(context)
            && receive_cq.is_of(context)
            && srq.is_none_or(|srq| srq.domain().context().is(context));
        if !same {
            return Err(Error::OtherAdapter);
        }
        let init = QueuePairInit {
            service,
            pd: domain.pd(),
            send_cq: send_cq.id(),
            receive_cq: receive_cq.id(),
            srq: srq.map(SharedReceiveQueue::id),
            send: self.send,
            receive: self.receive,
            signal_all: self.signal_all,
        };
        let qpn = context.with(|driver| {
            let qpn = driver.device.create_queue_pair(&init)?;
            driver.router.set_owner(Affected::QueuePair(qpn), context.events());
            Ok::<_, Error>(qpn)
        })?;
        let inner = Inner {
            domain: domain.clone(),
            _queues: [send_cq.clone(), receive_cq.clone()],
            srq: srq.cloned(),
            service,
            qpn,
            psn: Psn::new(seed() as u32),
        };
        Ok(QueuePair { inner: Arc::new(inner) })
    }
}

impl QueuePair {
    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.inner.qpn
    }

    /// Its service.
    pub fn service(&self) -> ServiceType {
        self.inner.service
    }

    /// Whether it takes receives from a shared receive queue.
    pub fn has_srq(&self) -> bool {
        self.inner.srq.is_some()
    }

    /// Its protection domain.
    pub fn domain(&self) -> &ProtectionDomain {
        &self.inner.domain
    }

    fn context(&self) -> &Context {
        self.inner.domain.context()
    }

    /// Its state and how it is set: `ibv_query_qp`.
    pub fn query(&self) -> QueuePairInfo {
        let info = self.context().with(|driver| driver.device.query_queue_pair(self.qpn()));
        info.expect("it lives as long as its handle")
    }

    /// Goes to another state, or changes attributes: `ibv_modify_qp`. `values` holds the values of
    /// the attributes in `given`, `vector` that of the address vector; the others are not looked
    /// at. With an address vector it may take seconds, until the peer's link address is known.
    ///
    /// # Errors
    /// [`Error::Verb`]: the step or a value is refused; or there is no way to the peer. Then
    /// nothing has changed.
    pub fn modify(
        &self,
        to: QpState,
        given: AttributeMask,
        values: &Attributes,
        vector: Option<&AddressVector>,
    ) -> Result<(), Error> {
        let qpn = self.qpn();
        let vector = vector.filter(|_| given.contains(A::Av));
        let link = vector.map(|vector| self.context().link(vector)).transpose()?;
        self.context().with(|driver| {
            driver.acknowledge();
            driver.device.modify_queue_pair(qpn, to, given, values, vector)?;
            if let (Some(link), Some(path)) = (link, driver.device.query_queue_pair(qpn)?.path) {
                driver.set_link(path, link);
            }
            Ok(())
        })
    }

    /// What controls how fast it sends from now on. One that is controlled already goes on at its
    /// rate with other parameters of the same algorithm; one that was not begins at the port's.
    ///
    /// # Errors
    /// As [`Context::set_congestion`].
    pub fn set_congestion_control(&self, control: CongestionControl) -> Result<(), Error> {
        check_congestion(&Congestion { control, ..self.context().congestion() })?;
        let qpn = self.qpn();
        Ok(self.context().with(|driver| driver.set_congestion_control(qpn, control))?)
    }

    /// Sets a parameter of what controls it by name: see [`Context::set_congestion_parameter`].
    ///
    /// # Errors
    /// [`Error::Parameter`]: there is no such one, or the value is none or out of range.
    pub fn set_congestion_parameter(&self, name: &str, value: &str) -> Result<(), Error> {
        let qpn = self.qpn();
        self.context().with(|driver| {
            let controller = driver.device.controller(driver.now(), qpn);
            let mut control = controller.map(|it| it.control()).unwrap_or_default();
            control.set(name, value)?;
            Ok(driver.set_congestion_control(qpn, control)?)
        })
    }

    /// What controls it, and how fast it may send now; `None` when nothing does.
    pub fn controller(&self) -> Option<Controller> {
        let qpn = self.qpn();
        self.context().with(|driver| driver.device.controller(driver.now(), qpn))
    }

    /// How fast it may send now, and why; `None` when DCQCN does not control it.
    pub fn reaction_point(&self) -> Option<ReactionPoint> {
        self.controller()?.reaction_point().cloned()
    }

    /// What a peer has to know to connect, with our first address.
    ///
    /// # Errors
    /// [`Error::NoSuchGid`]: the adapter has no address.
    pub fn endpoint(&self) -> Result<Endpoint, Error> {
        self.endpoint_at(0)
    }

    /// The same with the address of this GID index.
    ///
    /// # Errors
    /// [`Error::NoSuchGid`].
    pub fn endpoint_at(&self, gid_index: u32) -> Result<Endpoint, Error> {
        Ok(Endpoint {
            address: self.context().query_gid(gid_index)?.gid.to_ip(),
            qpn: self.qpn(),
            psn: self.inner.psn,
            path_mtu: self.context().path_mtu(),
        })
    }

    /// Reset to Init: receives may be posted from now on, before anything can arrive. RC and UC.
    ///
    /// # Errors
    /// [`Error::Verb`]; [`Error::WrongService`].
    pub fn init(&self, access: AccessFlags) -> Result<(), Error> {
        self.must_be_connected(true)?;
        let given = AttributeMask::of(&[A::PkeyIndex, A::Port, A::AccessFlags]);
        let values = Attributes { access, ..self.query().attributes };
        self.modify(QpState::Init, given, &values, None)
    }

    /// From Reset or Init to the state in which it sends and receives. The peer does the same. RC
    /// and UC.
    ///
    /// # Errors
    /// [`Error`]: there is no way to the peer, or [`Error::Verb`]; [`Error::WrongService`];
    /// [`Error::NotOneHost`].
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), Error> {
        self.must_be_connected(true)?;
        // Where the peer is, only who asked it knows.
        if let Some(what) = why_unreachable(peer.address, true) {
            return Err(Error::NotOneHost { address: peer.address, what });
        }
        if self.query().state == QpState::Reset {
            self.init(options.access)?;
        }
        let vector = AddressVector {
            traffic_class: options.traffic_class,
            hop_limit: options.hop_limit,
            service_level: options.service_level,
            ..AddressVector::new(options.source_gid, Gid::from_ip(peer.address))
        };
        let values = Attributes {
            dest_qp: peer.qpn,
            path_mtu: options.path_mtu.min(self.context().path_mtu()).min(peer.path_mtu),
            access: options.access,
            sq_psn: self.inner.psn,
            rq_psn: peer.psn,
            max_rd_atomic: options.max_rd_atomic,
            max_dest_rd_atomic: options.max_dest_rd_atomic,
            timeout: options.timeout,
            retry_cnt: options.retry_cnt,
            rnr_retry: options.rnr_retry,
            min_rnr_timer: options.min_rnr_timer,
            ..self.query().attributes
        };
        let path = AttributeMask::of(&[A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::AccessFlags]);
        let first = AttributeMask::of(&[A::SqPsn]);
        let (to_rtr, to_rts) = match self.inner.service {
            ServiceType::Rc => {
                let answers = AttributeMask::of(&[A::MaxDestRdAtomic, A::MinRnrTimer]);
                let retry = [A::Timeout, A::RetryCnt, A::RnrRetry, A::MaxQpRdAtomic];
                (path.with(answers), first.with(AttributeMask::of(&retry)))
            }
            _ => (path, first),
        };
        self.modify(QpState::Rtr, to_rtr, &values, Some(&vector))?;
        self.modify(QpState::Rts, to_rts, &values, None)
    }

    /// From Reset to the state in which it sends and receives datagrams; those that carry `q_key`
    /// are for it. UD.
    ///
    /// # Errors
    /// [`Error::Verb`]; [`Error::WrongService`].
    pub fn ready(&self, q_key: QKey) -> Result<(), Error> {
        self.must_be_connected(false)?;
        let sq_psn = self.inner.psn;
        let p_key = PKey::DEFAULT;
        let values = Attributes { q_key, p_key, sq_psn, ..self.query().attributes };
        let steps: [(QpState, &[A]); 3] = [
            (QpState::Init, &[A::PkeyIndex, A::Port, A::Qkey]),
            (QpState::Rtr, &[]),
            (QpState::Rts, &[A::SqPsn]),
        ];
        let mut steps = steps.into_iter();
        steps.try_for_each(|(to, given)| self.modify(to, AttributeMask::of(given), &values, None))
    }

    fn must_be_connected(&self, connected: bool) -> Result<(), Error> {
        let service = self.inner.service;
        let right = (service != ServiceType::Ud) == connected;
        if right { Ok(()) } else { Err(Error::WrongService(service)) }
    }

    /// Posts requests, in this order: `ibv_post_send`.
    ///
    /// # Errors
    /// [`BadRequest`]: which was refused. Those before it are posted.
    pub fn post_send(&self, requests: &[SendRequest<'_>]) -> Result<(), BadRequest> {
        let qpn = self.qpn();
        self.context().post(|driver| {
            BadRequest::first(requests, |request| driver.device.post_send(qpn, request))
        })
    }

    /// Posts requests as `call` makes them, with the adapter in hand once for all.
    pub fn post_sends<R>(&self, call: impl FnOnce(PostSend<'_>) -> R) -> R {
        let qpn = self.qpn();
        self.context().post(|driver| call(&mut |request| driver.device.post_send(qpn, request)))
    }

    /// Posts `count` requests, which `request` makes by their index, in this order, or none of
    /// them: `ibv_wr_complete`. It is asked for each of several twice, and is to say the same.
    ///
    /// # Errors
    /// [`BadRequest`]: which was refused.
    pub fn post_all<'a>(
        &self,
        count: usize,
        request: impl Fn(usize) -> SendRequest<'a>,
    ) -> Result<(), BadRequest> {
        let qpn = self.qpn();
        let refused = |index| move |reason| BadRequest { index, reason };
        self.context().post(|driver| {
            // One alone is taken or not as it is.
            for index in (0..count).filter(|_| count > 1) {
                let checked = driver.device.check_send(qpn, &request(index), index);
                checked.map_err(refused(index))?;
            }
            (0..count).try_for_each(|index| {
                driver.device.post_send(qpn, &request(index)).map_err(refused(index))
            })
        })
    }

    /// Posts receives as `call` makes them, with the adapter in hand once for all.
    pub fn post_receives<R>(&self, call: impl FnOnce(PostReceive<'_>) -> R) -> R {
        let qpn = self.qpn();
        self.context().with(|driver| call(&mut |request| driver.device.post_receive(qpn, request)))
    }

    /// Posts receives, in this order: `ibv_post_recv`.
    ///
    /// # Errors
    /// [`BadRequest`]: which was refused. Those before it are posted.
    pub fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> Result<(), BadRequest> {
        let qpn = self.qpn();
        self.context().with(|driver| {
            BadRequest::first(requests, |request| driver.device.post_receive(qpn, request))
        })
    }

    /// Datagrams to the group are for it too: `ibv_attach_mcast`. UD.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn attach_multicast(&self, group: Gid) -> Result<(), Error> {
        Ok(self.context().with(|driver| driver.device.attach_multicast(group, self.qpn()))?)
    }

    /// They are no more: `ibv_detach_mcast`.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn detach_multicast(&self, group: Gid) -> Result<(), Error> {
        Ok(self.context().with(|driver| driver.device.detach_multicast(group, self.qpn()))?)
    }

    /// Whether it is in some multicast group.
    pub fn is_in_a_group(&self) -> bool {
        let qpn = self.qpn();
        self.context().with(|driver| driver.device.multicast().check_destroy(qpn).is_err())
    }

    /// What is known of it: why it ended, its last frames, what was dropped.
    pub fn story(&self) -> QueuePairStory {
        let story = self.context().with(|driver| driver.device.queue_pair_story(self.qpn()));
        story.expect("it lives as long as its handle")
    }

    /// Why it ended, or its state if it goes on, in a sentence.
    pub fn why(&self) -> String {
        let story = self.story();
        self.context().with_port(&story, story.sentence())
    }

    /// Why one of its requests completed with this status, in a sentence.
    pub fn explain(&self, status: CompletionStatus) -> String {
        let story = self.story();
        self.context().with_port(&story, story.explain(status))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let qpn = self.qpn;
        self.domain.context().with(|driver| {
            driver.acknowledge();
            if self.service == ServiceType::Ud {
                driver.device.detach_multicasts(qpn);
            }
            let gone: Result<(), VerbError> = driver.device.destroy_queue_pair(qpn);
            debug_assert!(gone.is_ok(), "it has left its groups");
            driver.forget_events(Affected::QueuePair(qpn));
        });
    }
}
