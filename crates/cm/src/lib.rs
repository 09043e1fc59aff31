//! The InfiniBand connection manager (CM): how two queue pairs find each other, and part.
//!
//! IBA volume 1 chapter 12, and annex A11 for services that are named by IP addresses and ports:
//! what `librdmacm` programs speak. The messages are management datagrams between the queue pairs 1
//! of two ports; their format stands in [`roxe_wire::mad`].
//!
//! Sans-IO: an [`Agent`] takes datagrams, the time and calls, and gives datagrams, a deadline and
//! events. It reads no clock, opens no socket, draws no random numbers but from the seed it is
//! given, and knows nothing of queue pairs but their numbers: an event says with which
//! [`QpAttributes`] one is to be moved, whoever owns it moves it.
//!
//! Out of scope: queue pair 1 itself (256 bytes in a UD SEND with Q_Key 0x80010000: the adapter's),
//! address resolution, redirection, alternate paths (refused), reliable datagrams (refused).
//!
//! # The states of a connection
//!
//! IBA vol 1 §12.9. The messages are those of §12.6, the waits those of §12.7; "calls" are the
//! application's. What is not in a row changes nothing: the message is counted and dropped.
//!
//! | state | what happens | what is sent | next state | section |
//! |---|---|---|---|---|
//! | – | call `connect` | REQ | REQ sent | 12.6, 12.9 |
//! | REQ sent, MRA(REQ) rcvd | REP | – | REP rcvd | 12.9 |
//! | | REP of a queue pair that is connected | REJ 10; DREQ on the old one | – | 12.9.8.3.1 |
//! | | REP that cannot be taken | REJ 27, 30 | – | 12.6 |
//! | | REJ | – | –; stale (10): time wait | 12.6 |
//! | | MRA | – | MRA(REQ) rcvd: waits as asked | 12.6 |
//! | | no answer | REQ again | REQ sent | 12.7 |
//! | | no answer to the last REQ | REJ 4 | – | 12.6 |
//! | | call `destroy` | REJ 4 | – | 12.6 |
//! | REP rcvd, MRA(REP) sent | call `ready` | RTU | established | 12.9 |
//! | | REP again | MRA | MRA(REP) sent | 12.6 |
//! | | call `reject`, `destroy` | REJ | time wait | 12.6 |
//! | | REJ | – | time wait | 12.9 |
//! | | DREQ | DREP | time wait | 12.9 |
//! | – | REQ for a listener | – | REQ rcvd | 12.9 |
//! | | REQ that cannot be taken | REJ, reasons below | – | 12.6 |
//! | | REQ of a queue pair that is connected | REJ 10; DREQ on the old one | – | 12.9.8.3.1 |
//! | REQ rcvd, MRA(REQ) sent | call `accept` | REP | REP sent | 12.9 |
//! | | REQ again | MRA | MRA(REQ) sent | 12.6 |
//! | | call `reject`, `destroy` | REJ | – | 12.6 |
//! | | REJ | – | –; stale (10): time wait | 12.6 |
//! | REP sent, MRA(REP) rcvd | RTU | – | established | 12.9 |
//! | | call `notify_established`: data came | – | established | 12.9 |
//! | | MRA | – | MRA(REP) rcvd: waits as asked | 12.6 |
//! | | no answer | REP again | REP sent | 12.7 |
//! | | no answer to the last REP | REJ 4 | – | 12.6 |
//! | | REJ | – | –; stale (10): time wait | 12.6 |
//! | | DREQ | DREP | time wait | 12.9 |
//! | | call `destroy` | REJ | – | 12.6 |
//! | established | call `disconnect`, `destroy` | DREQ | DREQ sent | 12.9 |
//! | | DREQ | DREP | time wait | 12.9 |
//! | | REP again (active side) | RTU | established | 12.9 |
//! | | REJ | – | time wait | 12.9 |
//! | | LAP | APR 2 (unsupported) | established | 12.8 |
//! | DREQ sent | DREP, REJ | – | time wait | 12.9 |
//! | | DREQ: both part at once | DREP | time wait | 12.9 |
//! | | no answer | DREQ again; at last none | DREQ sent; time wait | 12.7 |
//! | time wait | DREQ again | DREP | time wait | 12.9 |
//! | | REQ again | REJ 10 | time wait | 12.9 |
//! | | the time is over | – | – | 12.9 |
//! | no such connection | REP | REJ 6 | | 12.6 |
//! | | DREQ | DREP | | 12.9 |
//! | | LAP | APR 1 (invalid communication ID) | | 12.8 |
//!
//! Two choices: a DREQ is answered at once, without the application, which is told afterwards; and
//! an MRA is sent when a message comes again while the application still thinks about the first.
//!
//! Why a REJ is sent, IBA vol 1 §12.6:
//!
//! | reason | when |
//! |---|---|
//! | 3 no resources | the backlog is full, or the agent: [`Config::max_connections`] |
//! | 4 timeout | no answer often enough, or the application waits no more |
//! | 6 invalid communication ID | a REP to no connection |
//! | 8 invalid service ID | nobody listens; an unknown version of the RDMA IP CM; a wrong address |
//! | 9 invalid transport service type | anything but RC and UC |
//! | 10 stale connection | the queue pair is connected, or the connection over |
//! | 12 invalid GID | the path does not end here; the right GID is told |
//! | 26 invalid path MTU | larger than the port has room for, which is told |
//! | 27 insufficient responder resources | a REP that announces more READs than can be answered |
//! | 28 consumer reject | the application goes away |
//! | 30 duplicate local communication ID | a REP with the name of another connection |
//! | 31 invalid class version | a REQ of another version |
//! | any | the application says so: [`Agent::reject`] |
//!
//! | question | module |
//! |---|---|
//! | the calls, who gets a datagram | `agent` |
//! | REQ out, REP in, RTU out | `active` |
//! | REQ in, REP out, RTU in; every reason to refuse a REQ | `passive` |
//! | DREQ, DREP, time wait | `disconnect` |
//! | REJ in, and out by the application | `reject` |
//! | timeouts, repetitions, MRA | `retry` |
//! | datagram services: SIDR | `sidr` |
//! | connections of whoever is gone | `standing` |
//! | services, ports, addresses | `service` |
//! | how long, how often, how many | `config` |
//! | multicast groups | [`multicast`] |
#![forbid(unsafe_code)]
#![warn(clippy::cast_possible_truncation)]

mod active;
mod agent;
mod chance;
mod config;
mod connection;
mod counters;
mod disconnect;
mod event;
pub mod multicast;
mod passive;
mod reject;
mod retry;
mod service;
mod sidr;
mod standing;

#[cfg(test)]
mod tests;

pub use active::Connect;
pub use agent::{Agent, Transmit};
pub use config::{Config, Timing, ack_timeout};
pub use connection::{ConnectionId, QpAttributes, State};
pub use counters::{Counters, Ignored};
pub use event::{CallError, Event};
pub use passive::Accept;
pub use roxe_wire::mad::cm::{
    PortSpace, RejectReason, ServiceId, SidrStatus, TransportServiceType,
};
pub use service::{GidPair, Listen, ListenerId, Service, flow_label_of_ports};
pub use sidr::{Answer, QuestionId, ResolutionId, Resolve};
pub use standing::Standing;
