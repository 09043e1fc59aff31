//! Two agents, and what may happen between them.

mod captures;
mod closing;
mod datagrams;
mod handshake;
mod hostile;
mod network;
mod pair;
mod patience;
mod refusals;
