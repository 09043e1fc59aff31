//! Worlds for the engine to live in, in virtual time.
//!
//! [`script`] is the smallest of them: one device, and a page of text that plays everything around
//! it. Nothing here knows a clock, a socket, a thread or a random source; the same script prints
//! the same bytes on every run.
#![forbid(unsafe_code)]

pub mod script;
