//! Who takes streams.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as Clock};

use roxe_transport::qp_state::ServiceType;

use crate::cm::{CmEvent, CmEventKind, CmId, CmIdKey, EventChannel};
use crate::error::Error;
use crate::sockets::error::SocketError;
use crate::sockets::options::{Patience, StreamOptions};
use crate::sockets::post::Post;
use crate::sockets::state::State;
use crate::sockets::stream::Stream;
use crate::sockets::wire::Hello;

/// Takes streams at a port. Its descriptor is readable while somebody waits.
pub struct StreamListener {
    ids: Vec<CmId>,
    channel: EventChannel,
    address: SocketAddr,
    options: Mutex<StreamOptions>,
}

impl StreamListener {
    pub(super) fn new(
        ids: Vec<CmId>,
        channel: EventChannel,
        address: SocketAddr,
        backlog: usize,
        options: StreamOptions,
    ) -> Result<Self, Error> {
        ids.iter().try_for_each(|id| id.listen(backlog))?;
        Ok(Self { ids, channel, address, options: Mutex::new(options) })
    }

    /// Where it listens.
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// What streams are like that are taken from now on.
    pub fn set_options(&self, options: StreamOptions) {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// Takes no stream from now on: who waits for one waits no longer.
    pub fn close(&self) {
        self.channel.close();
    }

    /// Takes the next stream. It may not stand yet: calls of it wait for that.
    ///
    /// Who asks and is no rsocket is refused, and the next one taken.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] and the like; [`SocketError::ShutDown`] when it is closed; the
    /// adapter has no room for another stream.
    pub fn accept(&self, patience: Patience<'_>) -> Result<Stream, SocketError> {
        let deadline = match patience {
            Patience::For(time) => Clock::now().checked_add(time),
            _ => None,
        };
        loop {
            let (event, otherwise) = match patience {
                Patience::None => (self.channel.try_next(), SocketError::WouldBlock),
                Patience::Unless(interrupts) => {
                    (self.channel.next_unless(interrupts), SocketError::Interrupted)
                }
                Patience::For(_) => {
                    let left = deadline.map(|at| at.saturating_duration_since(Clock::now()));
                    (self.channel.next(left.unwrap_or(Duration::MAX)), SocketError::TimedOut)
                }
            };
            if self.channel.is_closed() {
                return Err(SocketError::ShutDown);
            }
            let answered = self.answer(event.ok_or(otherwise)?);
            if let Some(stream) = answered.map_err(|error| SocketError::no_connection(&error))? {
                return Ok(stream);
            }
        }
    }

    /// Whether somebody waits, or it is closed.
    pub fn is_ready(&self) -> bool {
        self.channel.is_ready()
    }

    /// What else an event tells is of requests that are gone.
    fn answer(&self, event: CmEvent) -> Result<Option<Stream>, Error> {
        let CmEventKind::ConnectRequest { request, service, offer } = event.kind else {
            return Ok(None);
        };
        let Some((id, channel)) = self.take(event.id, request)? else { return Ok(None) };
        let peer = match Hello::parse(&offer.private_data) {
            Ok(peer) if service == ServiceType::Rc => peer,
            // Dropped, the identifier refuses.
            _ => return Ok(None),
        };
        let context = id.context().clone();
        let limits = context.query_device();
        let options = *self.options.lock().unwrap_or_else(PoisonError::into_inner);
        let options = options.within(limits.max_qp_wr, limits.max_inline_data);
        let completions = context.create_comp_channel()?;
        let post = Post::new(&context, &completions, options)?;
        match State::answers(id, channel.clone(), post, options, peer) {
            Ok(state) => Stream::new(state, completions, channel).map(Some),
            // It gave up, or there is no way back to it.
            Err(_) => Ok(None),
        }
    }

    /// The identifier of a request with a channel of its own, unless it was given up.
    fn take(
        &self,
        listener: CmIdKey,
        request: CmIdKey,
    ) -> Result<Option<(CmId, EventChannel)>, Error> {
        let listener = self.ids.iter().find(|id| id.key() == listener);
        let Some(id) = listener.and_then(|listener| listener.take(request).ok()) else {
            return Ok(None);
        };
        let channel = EventChannel::new()?;
        id.migrate(&channel);
        Ok(Some((id, channel)))
    }
}

impl AsFd for StreamListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
