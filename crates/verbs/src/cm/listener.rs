//! Connections in a few calls: who listens, who calls, and what stands between them.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use roxe_cm::{CallError, PortSpace, RejectReason};
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_transport::work::Attributes;

use crate::cm::error::CmError;
use crate::cm::event::{CmEvent, CmEventKind, EventChannel, Offer};
use crate::cm::id::{CmId, CmOptions, CmParameters};
use crate::context::Context;
use crate::error::Error;
use crate::queue_pair::{ConnectOptions, QueuePair};

/// Takes connection requests to a port. Its descriptor is readable while one waits.
pub struct Listener {
    id: CmId,
    channel: EventChannel,
}

impl Listener {
    /// At a TCP port of the RDMA CM, which has nothing to do with those of TCP itself. Port 0 is
    /// any that is free. As many requests as `backlog` may wait.
    ///
    /// # Errors
    /// [`CmError::NotOurs`], [`CmError::AddressInUse`]; [`Error::System`].
    pub fn bind(context: &Context, address: SocketAddr, backlog: usize) -> Result<Self, Error> {
        let channel = EventChannel::new()?;
        let id = CmId::new(context, &channel, PortSpace::Tcp);
        id.bind(address)?;
        id.listen(backlog)?;
        Ok(Self { id, channel })
    }

    /// Where it listens.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// The next request; waits at most `timeout` for it. [`Duration::MAX`] is for ever.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`CmError::DeviceGone`].
    pub fn next(&self, timeout: Duration) -> Result<ConnectionRequest, Error> {
        let deadline = Deadline::after(timeout);
        loop {
            let event = self.channel.next(deadline.left()).ok_or(Error::TimedOut(timeout))?;
            if let Some(request) = self.request(event)? {
                return Ok(request);
            }
        }
    }

    /// The next request that waits already.
    ///
    /// # Errors
    /// [`CmError::DeviceGone`].
    pub fn try_next(&self) -> Result<Option<ConnectionRequest>, Error> {
        while let Some(event) = self.channel.try_next() {
            if let Some(request) = self.request(event)? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// What else an event tells is of requests that are gone before they were looked at.
    fn request(&self, event: CmEvent) -> Result<Option<ConnectionRequest>, Error> {
        match event.kind {
            CmEventKind::ConnectRequest { request, service, offer } => {
                let id = match self.id.take(request) {
                    // It was given up meanwhile.
                    Err(Error::Cm(CmError::Call(CallError::Gone))) => return Ok(None),
                    taken => taken?,
                };
                let channel = EventChannel::new()?;
                id.migrate(&channel);
                Ok(Some(ConnectionRequest { id, channel, service, offer: *offer }))
            }
            CmEventKind::DeviceRemoval => Err(CmError::DeviceGone.into()),
            _ => Ok(None),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Somebody wants to connect. Dropped, it is refused.
pub struct ConnectionRequest {
    id: CmId,
    channel: EventChannel,
    service: ServiceType,
    offer: Offer,
}

impl ConnectionRequest {
    /// What the peer says.
    pub const fn offer(&self) -> &Offer {
        &self.offer
    }

    /// RC or UC: what the queue pair has to be.
    pub const fn service(&self) -> ServiceType {
        self.service
    }

    /// Who asks.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Accepts it with a queue pair, which is in state Reset or Init, and takes that to the state
    /// in which it sends and receives. Waits at most `timeout` until the peer is ready too. Of
    /// `parameters`, READs beyond what the peer offers are cut off.
    ///
    /// # Errors
    /// [`Error::TimedOut`]; [`CmError`]; [`Error::Verb`].
    pub fn accept(
        self,
        qp: &QueuePair,
        parameters: &CmParameters<'_>,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let deadline = Deadline::after(timeout);
        let Self { id, channel, offer, .. } = self;
        let responder_resources = parameters.responder_resources.min(offer.responder_resources);
        let initiator_depth = parameters.initiator_depth.min(offer.initiator_depth);
        let most = id.context().query_device().max_qp_rd_atom;
        let responder_resources = responder_resources.min(most);
        let parameters = CmParameters { responder_resources, initiator_depth, ..*parameters };
        let connected = Connected::new(id, channel, qp, offer);
        connected.move_to(QpState::Init, |_| {})?;
        connected
            .move_to(QpState::Rtr, |values| values.max_dest_rd_atomic = responder_resources)?;
        connected.id.accept(&parameters)?;
        match connected.wait(&deadline)? {
            CmEventKind::Established => {}
            other => return Err(why(other)),
        }
        connected.move_to(QpState::Rts, |_| {})?;
        Ok(connected)
    }

    /// Refuses it, with up to 148 bytes for the peer's application.
    ///
    /// # Errors
    /// [`CmError::Call`].
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.id.reject(RejectReason::ConsumerReject, private_data)
    }
}

/// Connects a queue pair, which is in state Reset or Init, to a TCP port of the RDMA CM, and takes
/// it to the state in which it sends and receives. `timeout` is for all of it.
///
/// # Errors
/// [`CmError`] says why not; [`Error::TimedOut`]; [`Error::Verb`].
pub fn connect(
    qp: &QueuePair,
    destination: SocketAddr,
    parameters: &CmParameters<'_>,
    options: CmOptions,
    timeout: Duration,
) -> Result<Connected, Error> {
    let deadline = Deadline::after(timeout);
    let channel = EventChannel::new()?;
    let id = CmId::new(qp.domain().context(), &channel, PortSpace::Tcp);
    id.set_options(options);
    let mut connected = Connected::new(id, channel, qp, Offer::default());
    connected.id.resolve_address(None, destination, deadline.left())?;
    match connected.wait(&deadline)? {
        CmEventKind::AddressResolved => {}
        other => return Err(why(other)),
    }
    connected.id.connect(parameters)?;
    connected.offer = match connected.wait(&deadline)? {
        CmEventKind::ConnectResponse(offer) => *offer,
        other => return Err(why(other)),
    };
    connected.move_to(QpState::Init, |_| {})?;
    connected.move_to(QpState::Rtr, |_| {})?;
    connected.move_to(QpState::Rts, |_| {})?;
    connected.id.establish()?;
    Ok(connected)
}

/// A connection that stands, or stood. Dropped, it is disconnected; the queue pair is then to be
/// moved to error, or dropped too. Its descriptor is readable when something happened to it.
pub struct Connected {
    id: CmId,
    channel: EventChannel,
    qp: QueuePair,
    offer: Offer,
    /// It has ended, and its owner knows.
    over: AtomicBool,
}

impl Connected {
    pub(crate) fn new(id: CmId, channel: EventChannel, qp: &QueuePair, offer: Offer) -> Self {
        Self { id, channel, qp: qp.clone(), offer, over: AtomicBool::new(false) }
    }

    /// Its queue pair.
    pub const fn queue_pair(&self) -> &QueuePair {
        &self.qp
    }

    /// What the peer said when it asked, or answered.
    pub const fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Who the peer is.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Ends it: the queue pair goes to state Error, the peer is told and, at most for `timeout`,
    /// waited for.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: it is over, but the peer may not know; [`Error::Verb`].
    pub fn disconnect(&self, timeout: Duration) -> Result<(), Error> {
        self.end()?;
        // Whose peer was first is over already.
        match self.id.disconnect() {
            Ok(()) | Err(Error::Cm(CmError::Call(_))) => {}
            Err(error) => return Err(error),
        }
        self.wait_disconnected(timeout)
    }

    /// Waits at most `timeout` until the peer ends it, or is gone; the queue pair goes to state
    /// Error then.
    ///
    /// # Errors
    /// [`Error::TimedOut`]: it still stands; [`CmError::DeviceGone`]; [`Error::Verb`].
    pub fn wait_disconnected(&self, timeout: Duration) -> Result<(), Error> {
        let deadline = Deadline::after(timeout);
        while !self.over.load(Ordering::Acquire) {
            let event = self.channel.next(deadline.left()).ok_or(Error::TimedOut(timeout))?;
            if let Some(over) = over(event.kind) {
                self.end()?;
                over?;
                self.over.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Whether the peer has ended it, without waiting; as
    /// [`wait_disconnected`](Self::wait_disconnected) says it.
    ///
    /// # Errors
    /// Likewise.
    pub fn try_disconnected(&self) -> Result<bool, Error> {
        while let Some(event) = self.channel.try_next() {
            if let Some(over) = over(event.kind) {
                self.end()?;
                over?;
                self.over.store(true, Ordering::Release);
            }
        }
        Ok(self.over.load(Ordering::Acquire))
    }

    pub(crate) const fn id(&self) -> &CmId {
        &self.id
    }

    /// What happened to it, if something did.
    pub(crate) fn try_event(&self) -> Option<CmEventKind> {
        self.channel.try_next().map(|event| event.kind)
    }

    /// The queue pair goes to state Error.
    pub(crate) fn end(&self) -> Result<(), Error> {
        let values = self.qp.query().attributes;
        self.qp.modify(QpState::Error, AttributeMask::NONE, &values, None)
    }

    /// The queue pair goes to the next state, as far as the connection is known.
    pub(crate) fn move_to(
        &self,
        to: QpState,
        change: impl FnOnce(&mut Attributes),
    ) -> Result<(), Error> {
        let mut step = self.id.qp_attributes(to)?;
        // Who posts its receives in software is not made to wait for 655 ms.
        step.values.min_rnr_timer = ConnectOptions::default().min_rnr_timer;
        change(&mut step.values);
        self.qp.modify(to, step.given, &step.values, step.vector.as_ref())
    }

    fn wait(&self, deadline: &Deadline) -> Result<CmEventKind, Error> {
        let event = self.channel.next(deadline.left());
        event.map(|event| event.kind).ok_or(Error::TimedOut(deadline.timeout))
    }
}

impl AsFd for Connected {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Whether an event says that a connection is over.
fn over(kind: CmEventKind) -> Option<Result<(), Error>> {
    match kind {
        CmEventKind::Disconnected | CmEventKind::TimewaitExit | CmEventKind::Rejected { .. } => {
            Some(Ok(()))
        }
        CmEventKind::DeviceRemoval => Some(Err(CmError::DeviceGone.into())),
        _ => None,
    }
}

/// Why a connection did not come about.
pub(crate) fn why(kind: CmEventKind) -> Error {
    let error = match kind {
        CmEventKind::AddressError { errno } => CmError::NoWay(errno),
        CmEventKind::Rejected { reason, private_data } => {
            CmError::Rejected { reason, private_data }
        }
        CmEventKind::ConnectError { reason } => CmError::Refused(reason),
        CmEventKind::DatagramRefused { status, .. } => CmError::NoDatagrams(status),
        CmEventKind::DeviceRemoval => CmError::DeviceGone,
        CmEventKind::Disconnected | CmEventKind::TimewaitExit => CmError::Ended,
        _ => CmError::Unreachable,
    };
    error.into()
}

/// Until when something may take.
struct Deadline {
    timeout: Duration,
    at: Option<Clock>,
}

impl Deadline {
    fn after(timeout: Duration) -> Self {
        Self { timeout, at: Clock::now().checked_add(timeout) }
    }

    fn left(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Clock::now()))
    }
}
