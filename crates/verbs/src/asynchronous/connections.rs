//! [`crate::cm`], to be awaited.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;

use super::AsyncConnection;
use crate::cm::{
    CmEvent, CmOptions, CmParameters, Connected, ConnectionRequest, EventChannel, Listener, connect,
};
use crate::context::Context;
use crate::error::Error;

/// [`EventChannel`], to be awaited.
pub struct AsyncEventChannel(AsyncFd<EventChannel>);

impl AsyncEventChannel {
    /// The events of a channel. To be called in a runtime; one at a time there.
    ///
    /// # Errors
    /// [`Error::System`], also when there is one already.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(channel: &EventChannel) -> Result<Self, Error> {
        // SAFETY: a channel has one descriptor, which is open as long as the channel is there.
        let channel =
            unsafe { AsyncFd::register_with_interest(channel.clone(), Interest::READABLE) };
        Ok(Self(channel.map_err(io::Error::from)?))
    }

    /// The next event. Nothing is lost when it is dropped before it is there.
    ///
    /// # Errors
    /// [`Error::System`] when the runtime ends.
    pub async fn next(&self) -> Result<CmEvent, Error> {
        until(&self.0, |channel| Ok(channel.try_next())).await
    }
}

/// [`Listener`], to be awaited.
pub struct AsyncCmListener(AsyncFd<Listener>);

impl AsyncCmListener {
    /// [`Listener::bind`]. To be called in a runtime.
    ///
    /// # Errors
    /// Those of [`Listener::bind`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn bind(context: &Context, address: SocketAddr, backlog: usize) -> Result<Self, Error> {
        let listener = Listener::bind(context, address, backlog)?;
        // SAFETY: a listener has one descriptor, which is open as long as the listener is there.
        let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) };
        Ok(Self(listener.map_err(io::Error::from)?))
    }

    /// Where it listens.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.get_ref().local_address()
    }

    /// The next request. Nothing is lost when it is dropped before it is there.
    ///
    /// # Errors
    /// Those of [`Listener::next`], but it waits for ever.
    pub async fn next(&self) -> Result<ConnectionRequest, Error> {
        until(&self.0, Listener::try_next).await
    }
}

impl ConnectionRequest {
    /// [`ConnectionRequest::accept`], to be awaited. Dropped, it goes on without its caller.
    ///
    /// # Errors
    /// Those of [`ConnectionRequest::accept`].
    pub async fn accept_with(
        self,
        connection: &AsyncConnection,
        parameters: &CmParameters<'_>,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let (qp, parameters) = (connection.queue_pair().clone(), Owned::of(parameters));
        let accepted = spawn_blocking(move || self.accept(&qp, &parameters.lent(), timeout));
        accepted.await.map_err(io::Error::other)?
    }
}

impl AsyncConnection {
    /// [`connect`], to be awaited. Dropped, it goes on without its caller.
    ///
    /// # Errors
    /// Those of [`connect`].
    pub async fn call(
        &self,
        destination: SocketAddr,
        parameters: &CmParameters<'_>,
        options: CmOptions,
        timeout: Duration,
    ) -> Result<Connected, Error> {
        let (qp, parameters) = (self.queue_pair().clone(), Owned::of(parameters));
        let connected =
            spawn_blocking(move || connect(&qp, destination, &parameters.lent(), options, timeout));
        connected.await.map_err(io::Error::other)?
    }
}

/// Parameters that outlive who gave them.
struct Owned {
    parameters: CmParameters<'static>,
    private_data: Box<[u8]>,
}

impl Owned {
    fn of(parameters: &CmParameters<'_>) -> Self {
        let CmParameters {
            qpn,
            service,
            srq,
            flow_control,
            responder_resources,
            initiator_depth,
            retry_count,
            rnr_retry_count,
            q_key,
            private_data,
        } = *parameters;
        let parameters = CmParameters {
            qpn,
            service,
            srq,
            flow_control,
            responder_resources,
            initiator_depth,
            retry_count,
            rnr_retry_count,
            q_key,
            private_data: &[],
        };
        Self { parameters, private_data: private_data.into() }
    }

    fn lent(&self) -> CmParameters<'_> {
        CmParameters { private_data: &self.private_data, ..self.parameters }
    }
}

/// Awaits what `take` takes.
async fn until<D: AsRawFd, T>(
    descriptor: &AsyncFd<D>,
    take: impl Fn(&D) -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    loop {
        let mut ready = descriptor.readable().await?;
        if let Some(what) = take(descriptor.get_ref())? {
            return Ok(what);
        }
        ready.clear_ready();
    }
}

impl AsRawFd for EventChannel {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
