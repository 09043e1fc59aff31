//! An RDMA adapter without wires: its queue pairs and the tables behind them.
//!
//! A queue pair knows its protocol; everything it asks for is here: which key opens which memory
//! ([`memory`]), where that memory is ([`host_memory`]), which receive request comes next
//! ([`receive_queue`]), where completions go ([`completion_queue`]), which queue pair a packet is
//! for ([`queue_pair_numbers`], [`multicast`]), what its packets look like outside ([`gid_table`],
//! [`address_handle`], [`path`]), who is told of full queues ([`Congestion`]), what is counted
//! ([`counters`], [`resources`]) and what is told of a queue pair that ended ([`story`]). IBA
//! volume 1, chapters 10 and 11.
//!
//! Nothing here knows a clock, a socket, a thread or a random source: what must not be guessed is
//! made from a seed that the owner passes in. Tables grow with what is in them and reuse it, so
//! that nothing is allocated while packets flow; every maximum is in [`limits`].
#![forbid(unsafe_code)]

mod adapter;
pub mod address_handle;
pub mod completion_queue;
mod congestion;
pub mod counters;
mod device;
pub mod gid_table;
pub mod host_memory;
pub mod key;
pub mod limits;
pub mod memory;
pub mod multicast;
mod not_ready;
pub mod path;
pub mod protection_domain;
pub mod queue_pair_numbers;
mod receive;
pub mod receive_queue;
pub mod resources;
pub mod scramble;
pub mod slots;
pub mod story;
mod tables;
mod timers;
mod transmit;
pub mod users;
mod verbs;

pub use congestion::Congestion;
pub use device::{
    CqId, Device, Event, Peer, QueuePairInit, ReceiveCapacity, ReceiveQueueId, Transmit,
};
pub use host_memory::{HostMemory, HostRegion, MemoryGone, VecMemory};
pub use limits::Limits;
pub use not_ready::{NotReady, Unready};
pub use resources::Resources;
pub use story::QueuePairStory;
pub use verbs::{QueuePairInfo, ReceiveQueueInfo, VerbError};
