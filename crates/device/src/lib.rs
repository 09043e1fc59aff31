//! An RDMA adapter without wires: the tables behind its queue pairs.
//!
//! A queue pair knows its protocol; everything it asks for is here: which key opens which memory
//! ([`memory`]), where that memory is ([`host_memory`]), which receive request comes next
//! ([`receive_queue`]), where completions go ([`completion_queue`]), which queue pair a packet is
//! for ([`queue_pair_numbers`], [`multicast`]), what its packets look like outside ([`gid_table`],
//! [`address_handle`], [`path`]), and what is counted ([`counters`]). IBA volume 1, chapters 10
//! and 11.
//!
//! Nothing here knows a clock, a socket, a thread or a random source: what must not be guessed is
//! made from a seed that the owner passes in. Tables grow with what is in them and reuse it, so
//! that nothing is allocated while packets flow; every maximum is in [`limits`].
#![forbid(unsafe_code)]

pub mod address_handle;
pub mod completion_queue;
pub mod counters;
pub mod digest;
pub mod gid_table;
pub mod host_memory;
pub mod key;
pub mod limits;
pub mod memory;
pub mod multicast;
pub mod path;
pub mod protection_domain;
pub mod queue_pair_numbers;
pub mod receive_queue;
pub mod scramble;
pub mod slots;
pub mod users;
