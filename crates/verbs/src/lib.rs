//! The verbs: what an application does with an RDMA adapter.
//!
//! Chapters 10 and 11 of IBA volume 1, with the names of libibverbs. A [`Context`] is an open
//! adapter: an engine, a port, and a thread that makes progress while the application computes.
//! While the application polls, the poll moves the engine itself, without a hand-over. This is the
//! one place that reads a clock.
//!
//! | question | item |
//! |---|---|
//! | which adapters there are, and how one is opened | [`devices`], [`open`], [`DeviceString`] |
//! | a reliable connection in a few calls | [`Connection`] |
//! | everything else: domains, memory, queue pairs, address handles | [`ProtectionDomain`] |
//! | how a queue pair is set, connected, and why it ended | [`QueuePair`] |
//! | to sleep until something completes | [`CompletionChannel`] |
//! | what happens without being asked for | [`AsyncEvents`] |
//! | two programs that tell each other their queue pairs | [`connect`] |
//! | connections and services by address and port, as librdmacm has them | [`cm`] |
//! | sockets over such a connection, as rsockets are | [`sockets`] |
//! | what other processes can see of an adapter | [`status`] |
//! | operations to be awaited | `asynchronous` (cargo feature `tokio`) |
//!
//! Handles are cheap to clone, and keep what they stand on: a queue pair its completion queues and
//! its domain, these their adapter. They may be dropped in any order.
//!
//! ```
//! use roxe_verbs::{Buffer, Connection, Context, Mtu, Op, Wait};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two adapters joined inside this process; `Context::open_xdp` opens one on an interface.
//! let [one, other] = Context::memory_pair(Mtu::B4096)?;
//! let (from, to) = (Buffer::new(4096), Buffer::new(4096));
//! from.write(0, b"hello");
//!
//! let mut sender = Connection::new(&one)?;
//! let mut receiver = Connection::new(&other)?;
//! sender.connect(&receiver.endpoint()?)?;
//! receiver.connect(&sender.endpoint()?)?;
//! let (source, target) = (one.register(&from)?, other.register(&to)?);
//!
//! receiver.post_receive(1, &target, 0, 4096)?;
//! sender.post(7, Op::Send, &source, 0, 5)?;
//! assert_eq!(sender.wait(Wait::SECOND)?.wr_id, 7);
//! assert_eq!(receiver.wait(Wait::SECOND)?.byte_len, 5);
//! let mut text = [0; 5];
//! to.read(0, &mut text);
//! assert_eq!(&text, b"hello");
//! # Ok(())
//! # }
//! ```

mod address_handle;
#[cfg(feature = "tokio")]
pub mod asynchronous;
mod changes;
pub mod cm;
mod completion_channel;
mod completion_queue;
#[cfg(feature = "config")]
mod config;
pub mod connect;
mod connection;
mod context;
mod device_list;
mod device_string;
mod driver;
mod endpoint;
mod engine;
mod error;
mod events;
mod guarded;
mod loopback;
mod memory_region;
mod opened;
mod program_memory;
mod protection_domain;
mod queue_pair;
mod registered_memory;
mod resolver;
mod shared_receive_queue;
pub mod sockets;
mod stalled;
pub mod status;

pub use address_handle::AddressHandle;
pub use completion_channel::CompletionChannel;
pub use completion_queue::CompletionQueue;
#[cfg(feature = "config")]
pub use config::ConfigError;
pub use connection::{Connection, Op, Wait};
pub use context::{Context, PortAttr, PortState};
pub use device_list::{DeviceEntry, devices, devices_named, find, open};
#[cfg(feature = "config")]
pub use device_list::{devices_in, find_in, open_in};
pub use device_string::{DeviceString, DeviceStringError, PortString};
pub use driver::Driver;
pub use endpoint::{Endpoint, EndpointError};
pub use error::{BadRequest, Error};
pub use events::{AsyncEvent, AsyncEvents};
pub use memory_region::{MemoryRegion, MemoryWindow};
pub use program_memory::{ProgramRange, ProgramRegion};
pub use protection_domain::ProtectionDomain;
pub use queue_pair::{ConnectOptions, PostReceive, PostSend, QueuePair, QueuePairBuilder};
pub use registered_memory::{Buffer, RegisteredMemory};
pub use shared_receive_queue::SharedReceiveQueue;
pub use stalled::Stalled;

pub use roxe_device::address_handle::{AddressError, AddressVector};
pub use roxe_device::gid_table::GidEntry;
pub use roxe_device::memory::WindowType;
pub use roxe_device::{
    Congestion, CqId, Limits, QueuePairInfo, QueuePairStory, ReceiveCapacity, ReceiveQueueId,
    ReceiveQueueInfo, Resources, Unready, VerbError,
};
#[cfg(feature = "af_xdp")]
pub use roxe_net::af_xdp;
pub use roxe_net::capture::Recorder;
pub use roxe_net::neighbor::Interface;
pub use roxe_net::{Capabilities, udp};
pub use roxe_transport::SendCapacity;
pub use roxe_transport::adapter::QpEvent;
pub use roxe_transport::congestion;
pub use roxe_transport::qp_state::{Attribute, AttributeMask, QpState, ServiceType};
pub use roxe_transport::work::{
    AccessFlags, Attributes, Binding, Completion, CompletionOpcode, CompletionStatus, Data,
    DatagramTarget, Extra, LocalOperation, PostError, ReceiveRequest, Remote, SendOperation,
    SendRequest, Sge, Span,
};
pub use roxe_wire::{
    AckTimeout, Gid, GidType, Grh, ImmDt, LKey, Mtu, PKey, Psn, QKey, Qpn, RKey, RnrTimer,
    StaticRate,
};
