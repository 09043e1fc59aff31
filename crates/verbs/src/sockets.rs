//! Stream sockets over a reliable connection: rsockets.
//!
//! What rdma-core's `rdma/rsocket.h` speaks on the wire, so that either end may be a program on a
//! card. Each side has a ring into which its peer writes, half by half, and says by the immediate
//! data of the WRITE how many bytes came. A half that was read is written into again once the peer
//! was told where it is: it has a table of two places for that, into which it is written likewise.
//! So many messages may be under way as there are credits, of which new ones are told from time to
//! time. Besides the stream, a side may open memory of its own to the peer, who writes there under
//! an offset on which both agree.
//!
//! | question | file |
//! |---|---|
//! | what is said when a connection is made, and by immediate data | `wire.rs` |
//! | what may be sent: credits, places at the peer, the ring it is sent from | `outgoing.rs` |
//! | what one call sends, in pieces | `gather.rs` |
//! | what has come: the ring, what of it was read, when the peer is told | `incoming.rs` |
//! | the queue pair, its memory, and what is posted | `post.rs` |
//! | how a stream begins, goes on and ends | `state.rs` |
//! | what programs call, and how they wait | `stream.rs`, `listener.rs`, `socket.rs` |
//!
//! ```
//! use roxe_verbs::sockets::{Patience, Reading, Socket, StreamOptions};
//! use roxe_verbs::{Context, Mtu};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let [one, other] = Context::memory_pair(Mtu::B4096)?;
//! let mut socket = Socket::new([&other])?;
//! socket.bind("192.0.2.2:7471".parse()?, false)?;
//! let listener = socket.listen(8, StreamOptions::default())?;
//! let server = std::thread::spawn(move || {
//!     let stream = listener.accept(Patience::EVER)?;
//!     stream.send(b"hello", Patience::EVER)
//! });
//! let to = "192.0.2.2:7471".parse()?;
//! let stream = Socket::new([&one])?.connect(to, StreamOptions::default())?;
//! stream.wait_connected(Patience::EVER)?;
//! let mut text = [0; 5];
//! assert_eq!(stream.recv(&mut text, Reading::ALL, Patience::EVER)?, 5);
//! assert_eq!(&text, b"hello");
//! assert_eq!(server.join().unwrap()?, 5);
//! # Ok(())
//! # }
//! ```

mod error;
mod gather;
mod incoming;
mod listener;
mod options;
mod outgoing;
mod post;
mod socket;
mod state;
mod stream;
mod wire;

pub use error::SocketError;
pub use listener::StreamListener;
pub use options::{Patience, Reading, StreamOptions};
pub use socket::Socket;
pub use state::{Exposed, How, Readiness};
pub use stream::{Bell, Stream, Watch};
