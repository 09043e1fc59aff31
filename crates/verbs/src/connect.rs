//! Two programs that connect their queue pairs with nothing but a TCP address.
//!
//! Each side says one line of text, and a second one when its queue pair is connected:
//!
//! ```text
//! roxe 1 address=192.0.2.1,qpn=0x12,psn=4711,mtu=4096 00ff
//! ready
//! ```
//!
//! The last word of the first line are bytes of the application's in hexadecimal, `-` for none:
//! a key and an address, say. A side that cannot go on says `failed` and why instead of `ready`.
//! Nothing is secret: who reads the connection can speak to the queue pairs.
//!
//! ```
//! use std::time::Duration;
//! use roxe_verbs::{ConnectOptions, Context, Mtu, ServiceType, connect};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let [one, other] = Context::memory_pair(Mtu::B4096)?;
//! let patience = Duration::from_secs(10);
//! let listener = connect::Listener::bind("127.0.0.1:0")?;
//! let address = listener.local_address()?;
//! let server = std::thread::spawn(move || {
//!     let cq = other.create_cq(16).unwrap();
//!     let qp = other.default_pd().create_qp(ServiceType::Rc, &cq).build().unwrap();
//!     listener.accept(&qp, &ConnectOptions::default(), b"from the server", patience).unwrap()
//! });
//! let cq = one.create_cq(16)?;
//! let qp = one.default_pd().create_qp(ServiceType::Rc, &cq).build()?;
//! let peer = connect::connect(address, &qp, &ConnectOptions::default(), b"", patience)?;
//! assert_eq!(peer.user, b"from the server");
//! assert_eq!(server.join().unwrap().endpoint, qp.endpoint()?);
//! # Ok(())
//! # }
//! ```

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant as Clock};

use roxe_transport::qp_state::ServiceType;

use crate::endpoint::{Endpoint, EndpointError};
use crate::error::Error;
use crate::queue_pair::{ConnectOptions, QueuePair};

/// What the other side said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its queue pair.
    pub endpoint: Endpoint,
    /// Bytes of its application's.
    pub user: Vec<u8>,
}

/// Why two programs did not connect their queue pairs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens there.
    #[error("nobody listens at {address}: {source}; start the other side first")]
    NobodyThere {
        /// Where.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The other side says nothing.
    #[error("the peer said nothing more within {0:?}")]
    Silent(Duration),
    /// The other side is gone.
    #[error("the peer closed the connection too early: its own message says why")]
    Closed,
    /// The other side is another program.
    #[error("the peer is no roxe program: it says `{said}`")]
    Stranger {
        /// What it said.
        said: String,
    },
    /// The other side names our own queue pair.
    #[error("the peer is no roxe program: it only repeats what it hears")]
    Echo,
    /// The other side is too new or too old.
    #[error("the peer speaks version {version} of the exchange, this program version {VERSION}")]
    OtherVersion {
        /// Its version.
        version: String,
    },
    /// What it says of its queue pair cannot be read.
    #[error("the peer's {0}")]
    Endpoint(#[from] EndpointError),
    /// What it says of its queue pair cannot be reached.
    #[error("the peer's address {address} {what}: choose another device or GID index there")]
    Address {
        /// Where it says that it is.
        address: IpAddr,
        /// Why that cannot be.
        what: &'static str,
    },
    /// The bytes of the application are too many, or the peer's cannot be read.
    #[error("bytes for the peer are 0 to {MAX_USER}, in hexadecimal on the wire")]
    User,
    /// Our queue pair cannot be connected with the peer's.
    #[error("cannot connect with {peer}: {source}")]
    Here {
        /// The peer's queue pair.
        peer: Endpoint,
        /// Why.
        source: Error,
    },
    /// The peer's queue pair cannot be connected with ours.
    #[error("the peer cannot connect with us: {0}")]
    There(String),
    /// The queue pair has no address.
    #[error(transparent)]
    Verb(#[from] Error),
    /// The operating system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Waits for peers.
#[derive(Debug)]
pub struct Listener(TcpListener);

impl Listener {
    /// At a TCP address of this host. Port 0 is any that is free.
    ///
    /// # Errors
    /// [`ConnectError::System`].
    pub fn bind(address: impl ToSocketAddrs) -> Result<Self, ConnectError> {
        Ok(Self(TcpListener::bind(address)?))
    }

    /// Where peers find it.
    ///
    /// # Errors
    /// [`ConnectError::System`].
    pub fn local_address(&self) -> Result<SocketAddr, ConnectError> {
        Ok(self.0.local_addr()?)
    }

    /// Waits for a peer, and connects a queue pair in state Reset or Init with its. A datagram
    /// queue pair stays as it is. `user` goes to the peer. `patience` begins when it is there.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn accept(
        &self,
        qp: &QueuePair,
        options: &ConnectOptions,
        user: &[u8],
        patience: Duration,
    ) -> Result<Peer, ConnectError> {
        let (stream, _) = self.0.accept()?;
        meet(stream, qp, options, user, patience)
    }
}

/// Connects a queue pair in state Reset or Init with that of a [`Listener`], for which it waits. A
/// datagram queue pair stays as it is. `user` goes to the peer.
///
/// # Errors
/// [`ConnectError`].
pub fn connect(
    address: impl ToSocketAddrs,
    qp: &QueuePair,
    options: &ConnectOptions,
    user: &[u8],
    patience: Duration,
) -> Result<Peer, ConnectError> {
    let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    let start = Clock::now();
    loop {
        match reach(&addresses, patience.saturating_sub(start.elapsed())) {
            Ok(stream) => {
                let left = patience.saturating_sub(start.elapsed());
                return meet(stream, qp, options, user, left);
            }
            Err(source) if start.elapsed() >= patience => {
                let address = addresses.first().map(SocketAddr::to_string).unwrap_or_default();
                return Err(ConnectError::NobodyThere { address, source });
            }
            Err(_) => thread::sleep(BETWEEN_TRIES),
        }
    }
}

/// A TCP connection to one of these, within so long for each.
fn reach(addresses: &[SocketAddr], left: Duration) -> io::Result<TcpStream> {
    let mut outcome = Err(ErrorKind::AddrNotAvailable.into());
    for address in addresses {
        outcome = TcpStream::connect_timeout(address, left.max(BETWEEN_TRIES));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// What both sides do once they have a TCP connection.
pub(crate) fn meet(
    stream: TcpStream,
    qp: &QueuePair,
    options: &ConnectOptions,
    user: &[u8],
    patience: Duration,
) -> Result<Peer, ConnectError> {
    Conversation::new(stream, patience)?.meet(qp, options, user)
}

/// A TCP connection on which lines are exchanged.
struct Conversation {
    stream: TcpStream,
    patience: Duration,
    start: Clock,
}

impl Conversation {
    fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, patience, start: Clock::now() })
    }

    fn meet(
        &mut self,
        qp: &QueuePair,
        options: &ConnectOptions,
        user: &[u8],
    ) -> Result<Peer, ConnectError> {
        let own = qp.endpoint_at(options.source_gid)?;
        self.say(&format!("{NAME} {VERSION} {own} {}", to_hexadecimal(user)?))?;
        let peer = read_peer(&self.hear()?)?;
        // Who only repeats what it hears would connect us to ourselves.
        if peer.endpoint == own {
            return Err(ConnectError::Echo);
        }
        if let Err(why) = self.connect(qp, &peer.endpoint, options) {
            // What matters is why; whether the peer still hears it does not. What it says itself is
            // taken, or closing would take back what was said.
            let told = match &why {
                ConnectError::Here { source, .. } => source.to_string(),
                other => other.to_string(),
            };
            let _ = self.say(&format!("failed {}", told.replace('\n', " ")));
            let _ = self.hear();
            return Err(why);
        }
        self.say(READY)?;
        let answer = self.hear()?;
        match answer.split_once(' ') {
            _ if answer == READY => Ok(peer),
            Some(("failed", why)) => Err(ConnectError::There(why.to_owned())),
            _ => Err(stranger(&answer)),
        }
    }

    fn connect(
        &self,
        qp: &QueuePair,
        peer: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), ConnectError> {
        let address = peer.address;
        if let Some(what) = why_unreachable(address, is_this_host(&self.stream)) {
            return Err(ConnectError::Address { address, what });
        }
        match qp.service() {
            ServiceType::Ud => Ok(()),
            _ => qp
                .connect(peer, options)
                .map_err(|source| ConnectError::Here { peer: *peer, source }),
        }
    }

    fn say(&mut self, line: &str) -> Result<(), ConnectError> {
        match self.stream.write_all(format!("{line}\n").as_bytes()) {
            Err(error) if is_gone(&error) => Err(ConnectError::Closed),
            done => Ok(done?),
        }
    }

    /// The next line, without its end, and with nothing in it that could command a terminal: it may
    /// end up in a message. Not a byte more is taken.
    fn hear(&mut self) -> Result<String, ConnectError> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < MAX_LINE {
            let left = self.patience.saturating_sub(self.start.elapsed());
            if left.is_zero() {
                return Err(ConnectError::Silent(self.patience));
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(&mut byte) {
                Ok(0) => return Err(ConnectError::Closed),
                Ok(_) if byte == *b"\n" => return Ok(visible(&line)),
                Ok(_) => line.push(byte[0]),
                Err(error) if is_gone(&error) => return Err(ConnectError::Closed),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(error.into()),
                },
            }
        }
        Err(stranger(&visible(&line)))
    }
}

/// Why no peer can be reached at an address that it says is its own, in words behind the address.
/// Loopback leads to the peer only where that is on this host.
pub fn why_unreachable(address: IpAddr, is_this_host: bool) -> Option<&'static str> {
    let address = address.to_canonical();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() {
        Some("is no host's")
    } else if address.is_multicast() || is_broadcast {
        Some("is no single host's")
    } else if address.is_loopback() && !is_this_host {
        Some("is loopback, by which no other host is reached")
    } else {
        None
    }
}

/// Whether the other end of a TCP connection is on this host.
pub fn is_this_host(stream: &TcpStream) -> bool {
    let ends = [stream.local_addr(), stream.peer_addr()].map(|end| end.map(|end| end.ip()));
    matches!(ends, [Ok(own), Ok(peer)] if own == peer || peer.to_canonical().is_loopback())
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn read_peer(line: &str) -> Result<Peer, ConnectError> {
    let mut words = line.split(' ');
    if words.next() != Some(NAME) {
        return Err(stranger(line));
    }
    match words.next() {
        Some(VERSION) => {}
        version => {
            let version = version.unwrap_or_default().to_owned();
            return Err(ConnectError::OtherVersion { version });
        }
    }
    let endpoint = words.next().unwrap_or_default().parse()?;
    let user = from_hexadecimal(words.next().unwrap_or("-")).ok_or(ConnectError::User)?;
    Ok(Peer { endpoint, user })
}

/// Of what a stranger says, as much as fits a message.
fn stranger(line: &str) -> ConnectError {
    ConnectError::Stranger { said: line.chars().take(60).collect() }
}

/// A line of somebody else's, with points for what is not seen: what Rust would write out.
fn visible(line: &[u8]) -> String {
    let is_seen = |c: char| matches!(c, '"' | '\'' | '\\') || c.escape_debug().count() == 1;
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\r').chars();
    line.map(|c| if is_seen(c) { c } else { '.' }).collect()
}

fn to_hexadecimal(bytes: &[u8]) -> Result<String, ConnectError> {
    if bytes.len() > MAX_USER {
        return Err(ConnectError::User);
    }
    if bytes.is_empty() {
        return Ok("-".to_owned());
    }
    let mut text = String::new();
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0 && digits.len() <= 2 * MAX_USER)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// How every exchange begins.
const NAME: &str = "roxe";

/// The version of the exchange.
const VERSION: &str = "1";

/// A side's queue pair is connected.
const READY: &str = "ready";

/// Bytes that an application may say to its peer.
pub const MAX_USER: usize = 1024;

/// No line is longer.
const MAX_LINE: usize = 4096;

/// Between two looks whether somebody listens.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests;
