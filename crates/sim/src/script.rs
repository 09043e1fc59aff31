//! The `.roce` language: what goes into a device, what must come out, and when.
//!
//! One device, one page of text that plays its application and its peers, time that passes only
//! where the page says so. What the device does beyond the page fails it. The examples are the
//! files under `tests/conformance`.
//!
//! ```text
//! # RULE C9-105, R05: a SEND that arrives twice is acknowledged twice and delivered once.
//! qp q1 rc  expect-psn 100                         # set-up; # begins a comment anywhere
//!
//! +0    post recv q1 id 1 len 64
//! +0    < q1 SEND_ONLY psn 100 ack-req "hello"     # a frame into the device, for q1
//! +0    > q1 ACK psn 100 msn 1                     # the next frame of q1's must be this
//! +0    completion recv id 1 ok "hello"
//! +1us  < q1 SEND_ONLY psn 100 ack-req "hello"
//! +0    > q1 ACK psn 100 msn 1 | NAK psn 100 code invalid-request      # one of these
//! +0    state q1 rts · quiet                       # · joins what happens at once
//! ```
//!
//! **Set-up** makes objects, and may stand anywhere: `device`, `pd`, `cq`, `mr`, `mw`, `ah`,
//! `srq`, `qp NAME rc|uc|ud|gsi`, each with arguments that have sensible defaults; `fails
//! EINVAL|ENOMEM|EBUSY` at the end of any set-up, post or call says that it must be refused.
//! There is a `pd` and a `cq`. A queue pair is in RTS unless `state` says otherwise, grants all
//! rights (`access`), has path MTU 1024, `retry 3 rnr-retry 3 timeout 14 min-rnr-timer 12`, four
//! READs each way, PSNs from 0, and a peer at 192.0.2.2; the device is 192.0.2.1. `gsi` is queue
//! pair 1 and has its Q_Key. A region is `local-write` unless `access` says more. `device` may
//! have a `second-address`, which a queue pair or `ah` takes with `gid 1`, and each address a
//! VLAN: `vlan N`, `second-vlan N`.
//!
//! **Time.** Other lines begin with `+TIME`, counted from the line before (`ns`, `us`, `ms`, `s`),
//! or with `A..B`: what the device does may come between the two. Lines at one time that only give
//! the device something (`<`, `post`, `call`, `fill`) are one burst: it has its turn to send where
//! the page looks next, where time passes, or at `turn`.
//!
//! ```text
//! post recv Q            id N, and len N (room of its own) or sge m1+0:64,m2:8; Q may be an srq
//! post OP Q              send, write, read, cmp-swap, fetch-add, atomic-write, flush: id N; data
//!                        as bytes, sge or len; va, rkey, imm, inv, compare, swap, add,
//!                        placement, selectivity; unsignaled, solicited, fence, inline; lkey N
//!                        breaks the key; for datagrams: to AH qpn N qkey N
//! post bind|reg Q        mw w1 mr m1, va, len, access, key; from then on w1.rkey is the new key
//! post invalidate Q      key N
//! call modify Q          state S, attributes, without a,b · of an srq: limit N, depth N
//! call VERB NAME         destroy · rereg · attach, detach group ADDRESS · notify [solicited] ·
//!                        resize depth N · lose (the memory behind a region goes away)
//! call VERB device       add-gid address A vlan N · remove-gid gid N · hold (the port has no room
//!                        for packets), release
//! fill m1+8 BYTES        the application writes to its memory
//! < Q PACKET             a frame into the device, addressed to Q
//! > Q PACKET [| PACKET]  the next frame of Q's
//! completion [Q] recv    or send, the next one: id N, a status, op, len, imm, inv, source-qp, grh,
//!                        and the bytes that must lie in the request's memory
//! event NAME EVENT       established, request-error, access-error, fatal, drained, last-wqe ·
//!                        of a cq: notify, overrun · of an srq: limit
//! counter [Q] NAME N     memory m1+8 BYTES         state Q STATE: what is so now
//! why Q "SENTENCE"       what Q says of its end, with * for any text: only our engine says it
//! turn                   the device may send        quiet: it did nothing else
//! ```
//!
//! **Packets** have the names of the opcode table without the service (or with it: that of
//! another service), and `ACK`, `RNR_NAK timer N`, `NAK code NAME`, `CNP`, `OPCODE N`. Fields are
//! words and numbers: `psn`, `ack-req`, `solicited`, `va`, `rkey`, `len`, `compare`, `swap`,
//! `add`, `value`, `imm`, `inv`, `msn`, `credits`, `qkey`, `source-qp`, `placement`,
//! `selectivity`, `qpn`, `pkey`, `mig`, `pad`, `fecn`, `becn`, `reserved-6`, `reserved-7`,
//! `from`, `to`, `sport`, `tclass`, `hop`, `vlan`, `pcp`. Into the device a field left out is
//! what a right peer sends, and faults are made with `icrc bad|big-endian|without-pad`, `tver`,
//! `syndrome`, `cut N`, `split N`, `padding N`, `udp-length N`, `checksum right|bad`, `fragment`,
//! `untagged`, `outer-vlan N`. Out of it a field left out must be what a right device sends:
//! flags off, `credits 31`, `mig 1`, keys, numbers, addresses and VLAN of the queue pair, `pcp`
//! as its `sl` says, pad of zeros, no payload; `msn` and `sport` may be anything (but one
//! connection keeps its port, 0xc000 and up). A field without a usual value must be said; `*` is
//! any value, or any payload.
//!
//! **Bytes** are `"text"`, `hex:00ff`, `zeros(N)`, `pattern(N)` or `pattern(A..B)` (byte n is n mod
//! 251), one after the other. **Numbers** are decimal or `0x…`, or a symbol for what the device
//! chose and what is added to it: `m1.va+8`, `m1.rkey`, `m1.lkey`, `w1.rkey`, `q1.qpn`, `q1.peer`
//! and `peer.qpn` (the number of the peer's queue pair). There are no variables and no loops.
//!
//! Not here: a live peer instead of our engine; congestion control and connection management, which
//! the engine does not have yet.

mod frame_in;
mod frame_out;
mod objects;
mod parameters;
mod parse;
mod requests;
mod run;
mod syntax;
mod words;
mod world;

use std::fmt;
use std::fs;
use std::path::Path;

pub use parse::ParseError;
pub use run::Failure;

/// How scripts are run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How much of what happened before a failure is told.
    pub before: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { before: 12 }
    }
}

/// How a script ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// All came true.
    Passed {
        /// How many statements.
        statements: usize,
    },
    /// A line did not come true.
    Failed(Failure),
    /// The text is no script.
    Wrong(ParseError),
    /// The file cannot be read.
    Unreadable(String),
}

impl Outcome {
    /// The exit status: 0 right, 1 a difference, 2 unreadable.
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Passed { .. } => 0,
            Self::Failed(_) => 1,
            Self::Wrong(_) | Self::Unreadable(_) => 2,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { statements } => write!(f, "ok, {statements} statements"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Wrong(error) => error.fmt(f),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

/// Runs the script in a file.
pub fn run_file(path: &Path, options: &Options) -> Outcome {
    let name = path.display().to_string();
    match fs::read_to_string(path) {
        Ok(text) => run_text(&name, &text, options),
        Err(error) => Outcome::Unreadable(format!("{name}: cannot be read: {error}")),
    }
}

/// Runs a script; `name` is what failures call it.
pub fn run_text(name: &str, text: &str, options: &Options) -> Outcome {
    match parse::parse(name, text) {
        Err(error) => Outcome::Wrong(error),
        Ok(script) => match run::run(name, &script, options.before) {
            Ok(statements) => Outcome::Passed { statements },
            Err(failure) => Outcome::Failed(failure),
        },
    }
}
