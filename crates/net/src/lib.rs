//! Frames to and from the world.
//!
//! Capture files are here: what a port recorded, to be read again.
//!
//! This crate may touch the `wire` crate and the operating system. It reads no clock and starts no
//! thread; where time decides, it is passed in.

pub mod capture_file;
