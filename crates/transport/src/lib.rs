//! One queue pair's protocol.
#![forbid(unsafe_code)]

pub mod adapter;
pub mod segment;
pub mod work;
