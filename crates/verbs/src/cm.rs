//! Connections and datagram services by address and port, as librdmacm has them.
//!
//! IBA vol 1 chapter 12 and annex A11: two sides find each other by management datagrams between
//! the queue pairs 1 of their adapters, whoever wrote them. Every open adapter has a queue pair 1;
//! where nobody listens it refuses for itself.
//!
//! | question | item |
//! |---|---|
//! | connections in a few calls | [`Listener`], [`connect`], [`Connected`] |
//! | each step by itself, with the queue pair in one's own hand | [`CmId`], [`EventChannel`] |
//! | the same to be awaited | [`asynchronous`](crate::asynchronous) (cargo feature `tokio`) |
//! | what happened | [`CmEvent`] |
//! | what to tell people of a peer that is not reached | [`Obstacle`] |
//! | peers of a process that was killed | [`Will`], [`Bequest`] |
//!
//! ```
//! use std::time::Duration;
//!
//! use roxe_verbs::cm::{self, CmOptions, CmParameters, Listener};
//! use roxe_verbs::{Connection, Context, Mtu};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let [one, other] = Context::memory_pair(Mtu::B4096)?;
//! let listener = Listener::bind(&other, "0.0.0.0:7174".parse()?, 8)?;
//! let patience = Duration::from_secs(5);
//! let server = std::thread::spawn(move || {
//!     let request = listener.next(patience)?;
//!     let end = Connection::new(&other)?;
//!     request.accept(end.queue_pair(), &CmParameters::of(end.queue_pair()), patience)
//! });
//! let end = Connection::new(&one)?;
//! let parameters = CmParameters { private_data: b"hello", ..CmParameters::of(end.queue_pair()) };
//! let to = "192.0.2.2:7174".parse()?;
//! let here = cm::connect(end.queue_pair(), to, &parameters, CmOptions::default(), patience)?;
//! let there = server.join().unwrap()?;
//! assert_eq!(&there.offer().private_data[..5], b"hello");
//! here.disconnect(patience)?;
//! there.wait_disconnected(patience)?;
//! # Ok(())
//! # }
//! ```
mod attributes;
mod error;
mod event;
mod gsi;
mod host_ports;
mod id;
mod listener;
mod manager;
mod obstacle;
mod ports;
mod tell;
mod will;

pub use attributes::QpStep;
pub use error::CmError;
pub use event::{CmEvent, CmEventKind, CmIdKey, DatagramPeer, EventChannel, MulticastGroup, Offer};
pub use id::{CmId, CmOptions, CmParameters};
pub(crate) use listener::why;
pub use listener::{Connected, ConnectionRequest, Listener, connect};
pub(crate) use manager::{Audience, Manager, Notice};
pub use obstacle::Obstacle;
pub use ports::at_one_port;
pub use will::{Bequest, Will};

pub use roxe_cm::{
    CallError, Counters, Ignored, PortSpace, RejectReason, SidrStatus, Standing, Timing,
};
pub use roxe_wire::mad::cm::{Bits, CmTimeout};
