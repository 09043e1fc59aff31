//! librdmacm.so.1: connections by address and port for programs of C.
//!
//! Chapter 12 of IBA volume 1 and annex A11, as rdma-core spells them. Each function is a
//! translation to [`roxe_verbs::cm`] and back, and moves the queue pair that a program has made by
//! an identifier.
//!
//! libibverbs.so.1 and librdmacm.so.1 are **one file under two names**. Both need the same open
//! adapter, its objects and the numbers that name them, and a Rust library that is linked into two
//! files is there twice, with two of each `static`, and without a layout on which the two could
//! agree. The loader knows a file by its inode: a program that needs both names gets it once,
//! whether they are found by `LD_LIBRARY_PATH`, by `dlopen`, lazily or bound at once. Where the two
//! names are copies, every symbol is still taken from the first of them, since both have all. What
//! programs check is there: the versions `RDMACM_1.0` and so on. Only a program that is *linked*
//! against our file with `-lrdmacm` notices that it calls itself libibverbs.so.1.
//!
//! | question | file |
//! |---|---|
//! | the structs and numbers of `rdma_cma.h` | `layout.rs` |
//! | which adapters there are; whose an address is | `adapter.rs` |
//! | what lies behind an `rdma_cm_id` | `id.rs` |
//! | channels, events, and what a queue pair is moved by | `event.rs` |
//! | sockets over RDMA: rsockets | `sockets.rs` |
//! | everything else: one family of calls a file | |
//!
//! An adapter that was opened for an identifier stays open until the process ends: peers ask again
//! for the last answer of a connection that is gone here. An identifier without a channel has one
//! of its own, and each call waits for what follows from it. Sockets of datagrams (`rsocket` with
//! SOCK_DGRAM), AF_IB, XRC and IPoIB are not there: EOPNOTSUPP, EAFNOSUPPORT.

mod adapter;
mod address;
pub(crate) mod connect;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod id;
mod layout;
pub(crate) mod multicast;
pub(crate) mod names;
pub(crate) mod queues;
pub(crate) mod resolve;
pub(crate) mod sockets;
