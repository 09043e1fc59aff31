//! One queue pair's protocol: what a queue pair does with requests, packets and time.
//!
//! Chapter 9 of IBA volume 1. Sans-IO: a [`QueuePair`] takes work, packets and the time, and gives
//! packets, completions and a deadline. It owns its sequence state and its send queue; for memory,
//! receive buffers and completions it asks its [`Adapter`](adapter::Adapter). It never sees another
//! queue pair, an address or a socket, and reads no clock.
//!
//! | question | module |
//! |---|---|
//! | which state may follow which | [`qp_state`] |
//! | what an application asks for, and how it ends | [`work`] |
//! | what the adapter has to do | [`adapter`] |
//! | what it does where it has a choice | [`conduct`] |
//! | why a queue pair ended | [`ending`] |
//! | what happened last | [`history`] |
//! | what the requesters of all services share | `requester`, `request`, `segment` |
//! | what the responders do | `responder`, `inbound` |
//! | how fast it may send | [`congestion`] |
//! | what each service does by itself | `rc`, `uc`, `ud` |
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

pub mod adapter;
pub mod conduct;
pub mod congestion;
mod emit;
pub mod ending;
mod failure;
pub mod history;
mod inbound;
pub mod qp_state;
mod queue_pair;
mod rc;
mod request;
mod requester;
mod responder;
mod segment;
mod send_queue;
mod uc;
mod ud;
pub mod work;

pub use emit::{Emitted, Outlet};
pub use queue_pair::QueuePair;
pub use send_queue::SendCapacity;
pub use ud::check_q_key;
