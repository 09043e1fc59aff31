//! libibverbs.so.1 and librdmacm.so.1: the verbs and the connection manager for programs of C that
//! were compiled for a card.
//!
//! Chapter 11 of IBA volume 1, as rdma-core spells it. Each function here is a translation to
//! [`roxe_verbs`] and back, and no more: no protocol, no state beyond what the structs of C need.
//! A program finds the library by `LD_LIBRARY_PATH`, and its adapters by `ROXE_DEVICES`; `roxe run`
//! sets both. What we do not have fails with EOPNOTSUPP.
//!
//! | question | file |
//! |---|---|
//! | the structs and numbers of `verbs.h` | `layout.rs` |
//! | the names that programs link, with their versions | `symbols.txt`, `build.rs` |
//! | the functions that `verbs.h` calls by pointer | `table.rs` |
//! | what lies behind a pointer that a program has; `fork` | `session.rs` |
//! | which adapters there are | `device.rs` |
//! | what is done when the process ends | `exit.rs` |
//! | librdmacm.so.1, and why it is in the same file | `rdmacm.rs` |
//! | everything else: one family of verbs a file | |
//!
//! Callers promise what C promises: pointers are to what the function made or asks for, and nobody
//! uses an object that another thread destroys.

#![cfg_attr(test, allow(dead_code, reason = "without names nobody calls the functions"))]

mod address;
mod completion;
mod device;
mod domain;
mod errno;
mod events;
mod exit;
mod import;
mod layout;
mod memory;
mod private;
mod query;
mod queue_pair;
mod rdmacm;
mod session;
mod shared_receive;
mod signals;
mod stories;
mod table;
mod words;
mod work;
mod work_ex;

/// The names that programs link. A test is a program, and has none.
#[cfg(not(test))]
mod jumps {
    include!(concat!(env!("OUT_DIR"), "/jumps.rs"));
}
