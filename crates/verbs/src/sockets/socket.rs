//! A socket that is to become a stream, or a listener.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use roxe_cm::PortSpace;

use crate::cm::{self, CmError, CmId, CmOptions, EventChannel};
use crate::context::Context;
use crate::error::Error;
use crate::sockets::listener::StreamListener;
use crate::sockets::options::StreamOptions;
use crate::sockets::post::Post;
use crate::sockets::state::State;
use crate::sockets::stream::Stream;

/// A socket that neither listens nor is connected, of one adapter or several. Its ports are those
/// of the RDMA CM's TCP, which have nothing to do with those of TCP itself.
pub struct Socket {
    contexts: Vec<Context>,
    /// None before it is bound.
    ids: Vec<CmId>,
    channel: EventChannel,
    address: Option<SocketAddr>,
}

/// How long the way to a peer is looked for.
const LOOKED_FOR: Duration = Duration::from_secs(8);

impl Socket {
    /// One of these adapters. Who connects prefers the first.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn new<'a>(contexts: impl IntoIterator<Item = &'a Context>) -> Result<Self, Error> {
        let contexts = contexts.into_iter().cloned().collect();
        Ok(Self { contexts, ids: Vec::new(), channel: EventChannel::new()?, address: None })
    }

    /// Takes an address and a port. Port 0 is any that is free; an unspecified address is any that
    /// the adapters have, one of IPv6 also any of IPv4 unless `one_family`.
    ///
    /// # Errors
    /// [`CmError::NotOurs`], [`CmError::AddressInUse`]; [`CmError::WrongRole`] when it has one.
    pub fn bind(&mut self, address: SocketAddr, one_family: bool) -> Result<(), Error> {
        if self.address.is_some() {
            return Err(CmError::WrongRole("has an address already").into());
        }
        let ip = address.ip();
        let any = ip.is_unspecified();
        let both = any && ip.is_ipv6() && !one_family;
        let four = both.then_some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let is_taken = |error: &Error| matches!(error, Error::Cm(CmError::AddressInUse(_)));
        let (port, ids) = cm::at_one_port(address.port(), is_taken, |ids| {
            let mut port = address.port();
            for context in &self.contexts {
                if !any && !context.addresses().any(|own| own == ip) {
                    continue;
                }
                for ip in [Some(ip), four].into_iter().flatten() {
                    let id = CmId::new(context, &self.channel, PortSpace::Tcp);
                    port = id.bind(SocketAddr::new(ip, port))?.port();
                    ids.push(id);
                }
            }
            Ok::<_, Error>(port)
        })?;
        if ids.is_empty() {
            return Err(CmError::NotOurs(ip).into());
        }
        self.ids = ids;
        self.address = Some(SocketAddr::new(ip, port));
        Ok(())
    }

    /// Its address, if it has one.
    pub const fn local_address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Takes streams from now on. As many as `backlog` may wait.
    ///
    /// # Errors
    /// [`CmError::WrongRole`] when it is not bound; [`CmError::Call`].
    pub fn listen(self, backlog: usize, options: StreamOptions) -> Result<StreamListener, Error> {
        let address = self.address.ok_or(CmError::WrongRole("is not bound"))?;
        StreamListener::new(self.ids, self.channel, address, backlog, options)
    }

    /// Begins to connect to a peer. Calls of the stream wait until it stands.
    ///
    /// # Errors
    /// [`CmError::NoSource`], [`CmError::NotOurs`]; [`Error::Verb`].
    pub fn connect(self, destination: SocketAddr, options: StreamOptions) -> Result<Stream, Error> {
        let Self { contexts, ids, channel, address } = self;
        let ids = match address {
            Some(_) => ids,
            None => contexts
                .iter()
                .map(|context| CmId::new(context, &channel, PortSpace::Tcp))
                .collect(),
        };
        let mut failed = CmError::NoSource(destination.ip()).into();
        for id in ids {
            let cm = CmOptions { traffic_class: options.traffic_class, ..CmOptions::default() };
            id.set_options(cm);
            // Whose family is another, or who has no way there, is not the one.
            if let Err(error) = id.resolve_address(None, destination, LOOKED_FOR) {
                failed = error;
                continue;
            }
            let context = id.context().clone();
            let limits = context.query_device();
            let options = options.within(limits.max_qp_wr, limits.max_inline_data);
            let completions = context.create_comp_channel()?;
            let post = Post::new(&context, &completions, options)?;
            let state = State::asks(id, channel.clone(), post, options)?;
            return Stream::new(state, completions, channel);
        }
        Err(failed)
    }
}
