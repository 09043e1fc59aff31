//! The verbs: what an application does with an RDMA adapter.
//!
//! Chapters 10 and 11 of IBA volume 1, with the names of libibverbs. A [`Context`] is an open
//! adapter: an engine, a port, and a thread that makes progress while the application computes.
//! While the application polls, the poll moves the engine itself, without a hand-over. This is the
//! one place that reads a clock.
//!
//! ```
//! use roxe_verbs::{Buffer, Connection, Context, Op, Wait};
//! use roxe_wire::Mtu;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two adapters joined inside this process; `Context::open_xdp` opens one on an interface.
//! let [one, other] = Context::memory_pair(Mtu::B4096)?;
//! let (from, to) = (Buffer::new(4096), Buffer::new(4096));
//! from.write(0, b"hello");
//!
//! let mut sender = Connection::new(&one)?;
//! let mut receiver = Connection::new(&other)?;
//! sender.connect(&receiver.endpoint())?;
//! receiver.connect(&sender.endpoint())?;
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

mod connection;
mod context;
mod driver;
mod registered_memory;

pub use connection::{Connection, Endpoint, Op, Wait};
pub use context::{Context, Error, MemoryRegion};
pub use driver::Driver;
pub use registered_memory::{Buffer, RegisteredMemory};
pub use roxe_transport::work::{Completion, CompletionStatus};
