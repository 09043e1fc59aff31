//! [`crate::connect`], to be awaited.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use super::AsyncConnection;
use crate::connect::{ConnectError, Peer, connect, meet};
use crate::queue_pair::ConnectOptions;

/// Waits for peers: [`crate::connect::Listener`], to be awaited.
#[derive(Debug)]
pub struct AsyncListener(TcpListener);

impl AsyncListener {
    /// At a TCP address of this host. Port 0 is any that is free. To be called in a runtime.
    ///
    /// # Errors
    /// [`ConnectError::System`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn bind(address: impl tokio::net::ToSocketAddrs) -> Result<Self, ConnectError> {
        Ok(Self(TcpListener::bind(address).await?))
    }

    /// Where peers find it.
    ///
    /// # Errors
    /// [`ConnectError::System`].
    pub fn local_address(&self) -> Result<SocketAddr, ConnectError> {
        Ok(self.0.local_addr()?)
    }

    /// Waits for a peer, and connects `connection`, which is fresh, with its queue pair. `user`
    /// goes to the peer. `patience` begins when it is there. Dropped before that, it has done
    /// nothing; dropped later, the two go on without it.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn accept(
        &self,
        connection: &AsyncConnection,
        options: &ConnectOptions,
        user: &[u8],
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        self.next().await?.meet(connection, options, user, patience).await
    }

    /// Waits until somebody calls, and no longer: what it says, and how slowly, is for whoever
    /// [meets](Caller::meet) it, while the next one is waited for.
    ///
    /// # Errors
    /// [`ConnectError::System`].
    pub async fn next(&self) -> Result<Caller, ConnectError> {
        let (stream, _) = self.0.accept().await?;
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        Ok(Caller(stream))
    }
}

/// Somebody who called an [`AsyncListener`]: a peer, or a stranger.
#[derive(Debug)]
pub struct Caller(TcpStream);

impl Caller {
    /// Connects `connection`, which is fresh, with its queue pair. `user` goes to it. Dropped, the
    /// two go on without it.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn meet(
        self,
        connection: &AsyncConnection,
        options: &ConnectOptions,
        user: &[u8],
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        let (qp, options, user) = (connection.queue_pair().clone(), *options, user.to_vec());
        let met = spawn_blocking(move || meet(self.0, &qp, &options, &user, patience));
        met.await.map_err(io::Error::other)?
    }
}

impl AsyncConnection {
    /// Connects this one, which is fresh, with that of an [`AsyncListener`] or a
    /// [`crate::connect::Listener`], for which it waits. `user` goes to the peer. Dropped, it goes
    /// on without its caller.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn reach(
        &self,
        address: impl ToSocketAddrs + Send + 'static,
        options: &ConnectOptions,
        user: &[u8],
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        let (qp, options, user) = (self.queue_pair().clone(), *options, user.to_vec());
        let met = spawn_blocking(move || connect(address, &qp, &options, &user, patience));
        met.await.map_err(io::Error::other)?
    }
}
