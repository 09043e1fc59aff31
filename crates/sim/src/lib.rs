//! Worlds for the engine to live in, in virtual time.
//!
//! | what | module |
//! |---|---|
//! | one device, and a page of text that plays everything around it | [`script`] |
//! | one device, and a recorded conversation that plays its peer | [`replay`] |
//! | a seed makes a world, a workload and its faults, and everything must hold | [`swarm`] |
//! | devices that behave as others do | [`peer`] |
//! | devices, links and the clock of such a world | [`world`], [`link`] |
//! | what its applications ask for, and what must come of it | [`workload`], [`checker`] |
//! | many hosts, switches and their queues, to study congestion control | [`fabric`] |
//! | experiments in such networks, from files: feature `lab` | `lab` |
//! | chance | [`rng`] |
//! | texts that are read whole | [`text`] |
//!
//! Nothing here knows a clock, a socket, a thread or a random source; the same script or seed
//! gives the same bytes on every run.
#![forbid(unsafe_code)]

pub mod checker;
pub mod fabric;
#[cfg(feature = "lab")]
pub mod lab;
pub mod link;
pub mod peer;
mod phrase;
pub mod replay;
pub mod rng;
pub mod script;
pub mod swarm;
pub mod text;
pub mod workload;
pub mod world;
