//! The TCP connection over which two programs tell each other their queue pairs, and what they
//! measured. Nothing on it hangs: what a peer says late, or not at all, is an error in a sentence.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use roxe_verbs::cm::CmError;
use roxe_verbs::connect::{ConnectError, is_this_host, why_unreachable};
use roxe_verbs::{Context, Error, Gid, PortState, ServiceType};
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::adapters::why_not_open;
use crate::cli::ConfigArgument;
use crate::outcome::{Outcome, complain};
use crate::side_channel::here::Here;

pub(crate) mod here;

/// The adapter of a program that measures.
#[derive(Debug, Args)]
pub(crate) struct AdapterArguments {
    /// The adapter: a name, or a device string (see `roxe devinfo --help`)
    ///
    /// Without it, the first that a file or ROXE_DEVICES names.
    #[arg(short, long = "ib-dev", value_name = "DEVICE")]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
}

/// What every program is told that meets the other side over TCP: its adapter, and how.
#[derive(Debug, Args)]
pub(crate) struct SideArguments {
    #[command(flatten)]
    pub(crate) adapter: AdapterArguments,
    /// The TCP port over which the two sides tell each other their queue pairs
    #[arg(short, long, default_value_t = 18515, value_parser = value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// The adapter's port: it has one
    #[arg(short, long, default_value_t = 1, value_parser = value_parser!(u8).range(1..=1))]
    pub(crate) ib_port: u8,
    /// End when nothing comes of the peer for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
          value_parser = value_parser!(u64).range(1..=86_400))]
    patience: u64,
}

impl SideArguments {
    /// How long the peer may say nothing.
    pub(crate) const fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }

    /// [`AdapterArguments::with_adapter`].
    pub(crate) fn with_adapter(
        &self,
        act: impl FnOnce(&Context) -> Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        self.adapter.with_adapter(act)
    }
}

impl AdapterArguments {
    /// Opens the adapter that is named, or the first that a file or ROXE_DEVICES names. By its port
    /// packets must come and go.
    fn open(&self) -> Result<Context, Failure> {
        let context = self.open_any()?;
        let start = Instant::now();
        while context.query_port().state == PortState::Down {
            if start.elapsed() > LINK_COMES_UP {
                return Err(Failure::Lacking(down(context.name(), context.interface())));
            }
            thread::sleep(LOOK);
        }
        Ok(context)
    }

    /// Does something with that adapter and closes it. Says so if what its device string has
    /// recorded is not in the file.
    pub(crate) fn with_adapter(
        &self,
        act: impl FnOnce(&Context) -> Result<Outcome, Failure>,
    ) -> Result<Outcome, Failure> {
        let context = self.open()?;
        let recorder = context.recorder().cloned();
        let outcome = act(&context);
        // Nothing of it is left: what is recorded is written.
        drop(context);
        let Some(trouble) = recorder.and_then(|it| it.trouble()) else { return outcome };
        complain(trouble);
        outcome.map(|outcome| outcome.max(Outcome::Unreadable))
    }

    fn open_any(&self) -> Result<Context, Failure> {
        if let Some(name) = &self.device {
            return Ok(self.config.open(name)?);
        }
        let devices = self.config.devices()?;
        match devices.iter().find(|entry| entry.interface.is_none()) {
            Some(entry) => Ok(entry.open()?),
            None => Err(Failure::usage(
                "name an adapter: -d xdp:eth1, say, or -d udp:10.0.0.1; or name some in \
                 ROXE_DEVICES or a file",
            )),
        }
    }
}

/// Some cards lose their link for this long when XDP is attached, there or at the other end.
pub(crate) const LINK_COMES_UP: Duration = Duration::from_secs(5);

/// That a port is down, and what to do.
fn down(name: &str, interface: Option<&str>) -> String {
    match interface {
        Some(interface) => format!(
            "the port of {name} is down: switch its interface on by `ip link set {interface} up`, \
             and see that what is at the other end of its cable is on too"
        ),
        None => format!("the port of {name} is down"),
    }
}

/// Why a program that measures ends without what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line asks for what there is not.
    Usage(String),
    /// The environment lacks something.
    Lacking(String),
    /// It was tried, and did not work.
    Failed(String),
    /// Nobody reads what is printed.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn usage(what: impl fmt::Display) -> Self {
        Self::Usage(what.to_string())
    }

    pub(crate) fn lacking(what: impl fmt::Display) -> Self {
        Self::Lacking(what.to_string())
    }

    pub(crate) fn failed(what: impl fmt::Display) -> Self {
        Self::Failed(what.to_string())
    }

    /// Says it, and how the program ends.
    pub(crate) fn told(self) -> anyhow::Result<Outcome> {
        let (what, outcome) = match self {
            Self::Usage(what) => (what, Outcome::Unreadable),
            Self::Lacking(what) => (what, Outcome::Lacking),
            Self::Failed(what) => (what, Outcome::Findings),
            Self::Output(error) => return Err(error.into()),
        };
        complain(what);
        Ok(outcome)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::DeviceString(_) | Error::Config(_) => Self::usage(error),
            Error::OpenUdp(_) => Self::lacking(why_not_open(&error)),
            Error::NoSuchDevice { .. }
            | Error::NoAddress(_)
            | Error::NoRoute(_)
            | Error::Resolve(_)
            | Error::Capture(_)
            | Error::Cm(
                CmError::NoWay(_)
                | CmError::NoSource(_)
                | CmError::NotOurs(_)
                | CmError::AddressInUse(_)
                | CmError::Unreachable
                | CmError::Rejected { .. },
            ) => Self::lacking(error),
            #[cfg(feature = "af_xdp")]
            Error::OpenXdp(_) => Self::lacking(why_not_open(&error)),
            Error::System(_) => Self::lacking(why_not_open(&error)),
            _ => Self::failed(error),
        }
    }
}

/// Which of an adapter's addresses is used: the one asked for, else the first of its family, else
/// the first.
pub(crate) fn choose_gid(
    context: &Context,
    index: Option<u32>,
    ipv6: bool,
) -> Result<(u32, Gid), Failure> {
    let gids: Vec<(u32, Gid)> =
        context.gids().into_iter().map(|(index, entry)| (index, entry.gid)).collect();
    let found = match index {
        Some(index) => gids.iter().find(|(at, _)| *at == index),
        None => gids.iter().find(|(_, gid)| gid.is_ipv4() != ipv6).or_else(|| gids.first()),
    };
    found.copied().ok_or_else(|| match index {
        Some(index) => Failure::usage(format_args!(
            "{} has no address with GID index {index}: `roxe devinfo -d {0}` lists them",
            context.name()
        )),
        None => Failure::lacking(format_args!(
            "{} has no address: give its interface one, by `ip address add 192.0.2.1/24 dev {}`, \
             say",
            context.name(),
            context.name().trim_start_matches("xdp:")
        )),
    })
}

/// Says so if two addresses cannot speak with each other; that of a peer on this host or another.
pub(crate) fn must_match(own: Gid, peer: Gid, is_this_host: bool) -> Result<(), Failure> {
    if peer == Gid::default() {
        return Err(Failure::failed(
            "the peer names no address: tell it its GID index of RoCE v2 (-x, of pingpong -g)",
        ));
    }
    let address = peer.to_ip();
    if let Some(what) = why_unreachable(address, is_this_host) {
        return Err(Failure::failed(ConnectError::Address { address, what }));
    }
    if own.is_ipv4() != peer.is_ipv4() {
        let family = |gid: Gid| if gid.is_ipv4() { "IPv4" } else { "IPv6" };
        return Err(Failure::failed(format_args!(
            "our address {own} is of {}, the peer's {peer} of {}: choose another GID index here \
             or there",
            family(own),
            family(peer)
        )));
    }
    Ok(())
}

/// What perftest and the pingpongs of libibverbs say last.
pub(crate) const DONE: &[u8; 5] = b"done\0";

/// The key of all their datagrams.
pub(crate) const Q_KEY: u32 = 0x1111_1111;

/// How long a server may take to be connected to: whoever is wrong about it hears so soon.
const CONNECT: Duration = Duration::from_secs(4);

/// How long the other side may take.
#[derive(Clone, Copy)]
pub(crate) enum Patience<'a> {
    /// It has only to answer.
    Answer,
    /// It has begun, and what is left follows at once, or it is as this says.
    Rest(&'static str),
    /// It measures for as long as it was told to: meanwhile packets come.
    Measurement(&'a dyn Here),
}

impl Patience<'_> {
    fn why(self) -> Option<String> {
        match self {
            Self::Answer => None,
            Self::Rest(why) => Some(why.to_owned()),
            Self::Measurement(here) => here.why(),
        }
    }
}

/// What has come of packets by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    /// How often one side had no receive for what the other sent: that may go on for ever.
    pub(crate) refused: u64,
}

/// For how long nothing has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    since: Instant,
    looked: Instant,
    seen: Option<Traffic>,
}

impl Quiet {
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self { since: now, looked: now, seen: None }
    }

    /// Looks now and then whether something came.
    pub(crate) fn lasts(&mut self, traffic: impl FnOnce() -> Traffic) -> Duration {
        if self.seen.is_none() || self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            let (before, now) = (self.seen, traffic());
            self.seen = Some(now);
            if before.is_some_and(|it| it.packets != now.packets && it.refused == now.refused) {
                self.since = self.looked;
            }
        }
        self.since.elapsed()
    }
}

/// The time between two looks at what came.
const LOOK: Duration = Duration::from_millis(100);

/// Whether nothing came for so long that nobody waits any longer: for all patience, or for less
/// where this side knows why.
pub(crate) fn endured(
    service: ServiceType,
    quiet: Duration,
    patience: Duration,
    why: impl FnOnce() -> Option<String>,
) -> Result<(), Failure> {
    if quiet <= patience.min(LINK_COMES_UP) {
        return Ok(());
    }
    let same = || {
        let same = "does the peer run the same test, with the same -q, -n, -s and -b?";
        match service {
            ServiceType::Rc => same.to_owned(),
            ServiceType::Uc | ServiceType::Ud => {
                format!("what the network loses, this service does not send again; else: {same}")
            }
        }
    };
    match why() {
        None if quiet <= patience => Ok(()),
        why => Err(Failure::failed(format_args!(
            "nothing came for {} s: {}",
            quiet.as_secs(),
            why.unwrap_or_else(same)
        ))),
    }
}

/// A word to whoever waits, long before patience is over: nothing has come at all. Where packets
/// are acknowledged an error says more, and as soon.
#[derive(Debug, Default)]
pub(crate) struct EarlyWord {
    said: bool,
}

/// When it is said.
const EARLY: Duration = Duration::from_secs(4);

impl EarlyWord {
    /// Says it, once, if it is time.
    pub(crate) fn say(&mut self, service: ServiceType, quiet: Duration, patience: Duration) {
        let is_time = quiet >= EARLY && patience > EARLY && service != ServiceType::Rc;
        if is_time && !mem::replace(&mut self.said, true) {
            complain(format_args!(
                "nothing has come of the peer for {} s, and is waited for {} s in all: does RoCE \
                 get through? UDP port 4791 has to be open on the way",
                EARLY.as_secs(),
                patience.as_secs()
            ));
        }
    }
}

/// The peer closed the connection, and what this side knows of it.
pub(crate) fn closed(why: Option<String>) -> Failure {
    Failure::failed(match why {
        Some(why) => format!("{CLOSED}; here: {why}"),
        None => format!("{CLOSED}: it was ended, or its own message says why"),
    })
}

const CLOSED: &str = "the peer closed the connection too early";

/// A connection to the other side.
pub(crate) struct SideChannel {
    stream: TcpStream,
    is_client: bool,
    /// How long it may be silent.
    patience: Duration,
}

impl SideChannel {
    fn new(stream: TcpStream, is_client: bool, patience: Duration) -> Result<Self, Failure> {
        let set = || {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(patience))?;
            // A host that is gone says nothing: whoever waits for it for long has to ask.
            sockopt::set_socket_keepalive(&stream, true)?;
            sockopt::set_tcp_keepidle(&stream, Duration::from_secs(30))?;
            sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(10))?;
            sockopt::set_tcp_keepcnt(&stream, 6)?;
            Ok(())
        };
        set().map_err(|error: io::Error| Failure::failed(format_args!("TCP: {error}")))?;
        Ok(Self { stream, is_client, patience })
    }

    /// Says something.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(bytes).map_err(|error| gone(&error))
    }

    /// How long it may be silent.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Hears exactly so many bytes.
    pub(crate) fn hear(&mut self, bytes: &mut [u8], patience: Patience<'_>) -> Result<(), Failure> {
        let mut quiet = Quiet::begin();
        self.stream.set_read_timeout(Some(LOOK)).map_err(|error| gone(&error))?;
        let mut have = 0;
        while have < bytes.len() {
            let lasts = match patience {
                Patience::Answer | Patience::Rest(_) => quiet.since.elapsed(),
                Patience::Measurement(here) => quiet.lasts(|| here.traffic()),
            };
            endured(ServiceType::Rc, lasts, self.patience, || patience.why())?;
            match self.stream.read(&mut bytes[have..]) {
                Ok(0) => return Err(closed(patience.why())),
                Ok(more) => have += more,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    _ => return Err(gone(&error)),
                },
            }
        }
        Ok(())
    }

    /// Whether the other side is on this host.
    pub(crate) fn is_this_host(&self) -> bool {
        is_this_host(&self.stream)
    }

    /// Both sides say as much: the client first.
    pub(crate) fn exchange<const N: usize>(
        &mut self,
        own: &[u8; N],
        patience: Patience<'_>,
    ) -> Result<[u8; N], Failure> {
        let mut peers = [0; N];
        if self.is_client {
            self.say(own)?;
            self.hear(&mut peers, patience)?;
        } else {
            self.hear(&mut peers, patience)?;
            self.say(own)?;
        }
        Ok(peers)
    }

    /// What the other side does while nothing else is heard of it.
    pub(crate) fn look(&self) -> Presence {
        if self.stream.set_nonblocking(true).is_err() {
            return Presence::Gone;
        }
        let seen = self.stream.peek(&mut [0]);
        let _ = self.stream.set_nonblocking(false);
        match seen {
            Ok(0) => Presence::Gone,
            Ok(_) => Presence::Done,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Presence::Busy,
            Err(_) => Presence::Gone,
        }
    }

    /// We are done; waits until the other side is too, for a while, so that its last packets are
    /// answered. Whatever it says is of no interest.
    pub(crate) fn close(mut self) {
        let start = Instant::now();
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(200)));
        let mut bytes = [0; 256];
        while start.elapsed() < Duration::from_secs(2) {
            match self.stream.read(&mut bytes) {
                Ok(0) => return,
                Err(error) if error.kind() != ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }
}

/// What the other side of a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It is there, and says nothing.
    Busy,
    /// It has said what is to be said next.
    Done,
    /// It has closed the connection.
    Gone,
}

fn gone(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => closed(None),
        _ => Failure::failed(format_args!("the connection to the peer: {error}")),
    }
}

/// Where the two sides meet: what can be known of it before an adapter is opened.
pub(crate) enum MeetingPoint {
    /// A server is there, or not: how it was named, and its addresses.
    Server(String, Vec<SocketAddr>),
    /// This is the server, on both IP versions where there are both.
    Here(TcpListener),
}

impl MeetingPoint {
    /// At a server's host, or without one here.
    pub(crate) fn find(host: Option<&str>, port: u16) -> Result<Self, Failure> {
        if let Some(host) = host {
            let resolved = (host, port).to_socket_addrs();
            let resolved =
                resolved.map_err(|error| Failure::lacking(format_args!("{host}: {error}")))?;
            return Ok(Self::Server(format!("{host}:{port}"), resolved.collect()));
        }
        let any = (Ipv6Addr::UNSPECIFIED, port);
        let bound = TcpListener::bind(any).or_else(|error| match error.kind() {
            ErrorKind::AddrInUse => Err(error),
            _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
        });
        bound.map(Self::Here).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Failure::lacking(format_args!(
                "TCP port {port} is in use: end the program that has it, or choose another by -p \
                 on both sides"
            )),
            _ => Failure::lacking(format_args!("TCP port {port}: {error}")),
        })
    }

    /// Meets a server that waits already, `start` is how one is started; or waits for a client.
    pub(crate) fn meet(self, start: &str, patience: Duration) -> Result<SideChannel, Failure> {
        let (server, addresses) = match self {
            Self::Server(server, addresses) => (server, addresses),
            Self::Here(listener) => {
                let (stream, _) = listener
                    .accept()
                    .map_err(|error| Failure::lacking(format_args!("accept: {error}")))?;
                return SideChannel::new(stream, false, patience);
            }
        };
        let mut why = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT) {
                Ok(stream) => return SideChannel::new(stream, true, patience),
                Err(error) => why = Some(error),
            }
        }
        Err(match why {
            Some(error) if error.kind() == ErrorKind::ConnectionRefused => {
                Failure::lacking(format_args!("no server at {server}: start `{start}` there first"))
            }
            Some(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                Failure::lacking(format_args!("cannot connect to {server}: {error}"))
            }
            Some(error) => Failure::lacking(format_args!(
                "no server at {server}: {error}; is the address right, and `{start}` started \
                 there?"
            )),
            None => Failure::lacking(format_args!("{server} has no address")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> [SideChannel; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        let patience = Duration::from_millis(500);
        [(stream, true), (other, false)]
            .map(|(stream, is_client)| SideChannel::new(stream, is_client, patience).unwrap())
    }

    fn text(failure: Failure) -> String {
        match failure {
            Failure::Usage(text) | Failure::Lacking(text) | Failure::Failed(text) => text,
            Failure::Output(error) => panic!("{error}"),
        }
    }

    #[test]
    fn both_sides_hear_what_the_other_says() {
        let [mut client, mut server] = pair();
        let other = thread::spawn(move || {
            let heard = server.exchange(b"from server", Patience::Answer).unwrap();
            assert_eq!(&heard, b"from client");
            server
        });
        assert_eq!(&client.exchange(b"from client", Patience::Answer).unwrap(), b"from server");
        let server = other.join().unwrap();
        assert_eq!(client.look(), Presence::Busy);
        client.say(b"x").unwrap();
        while server.look() == Presence::Busy {}
        assert_eq!(server.look(), Presence::Done);
        drop(server);
        while client.look() == Presence::Busy {}
        assert_eq!(client.look(), Presence::Gone);
    }

    #[test]
    fn a_peer_that_is_gone_is_told_of() {
        let [mut client, mut server] = pair();
        server.say(b"abc").unwrap();
        drop(server);
        let why = text(client.hear(&mut [0; 4], Patience::Answer).unwrap_err());
        assert!(why.starts_with("the peer closed the connection too early"), "{why}");
    }

    /// A side with this traffic.
    struct Side<T>(T);

    impl<T: Fn() -> Traffic> Here for Side<T> {
        fn traffic(&self) -> Traffic {
            self.0()
        }

        fn why(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn who_knows_why_nothing_comes_does_not_wait_for_all_patience() {
        let patience = Duration::from_secs(20);
        let down = || Some("it is down".to_owned());
        let after = |quiet, why| {
            endured(ServiceType::Rc, Duration::from_secs(quiet), patience, || why).map_err(text)
        };
        assert_eq!(after(4, down()), Ok(()));
        assert_eq!(after(6, down()), Err("nothing came for 6 s: it is down".to_owned()));
        assert_eq!(after(6, None), Ok(()));
        assert!(after(21, None).unwrap_err().starts_with("nothing came for 21 s: does the peer"));
    }

    #[test]
    fn a_peer_that_measures_is_waited_for_while_packets_come() {
        let [mut client, mut server] = pair();
        let why = text(client.hear(&mut [0], Patience::Answer).unwrap_err());
        assert!(why.starts_with("nothing came for 0 s: does the peer run the same test"), "{why}");
        let count = std::cell::Cell::new(0);
        let more = || count.replace(count.get() + 1);
        let still = Side(|| Traffic { packets: 7, refused: 0 });
        assert!(client.hear(&mut [0], Patience::Measurement(&still)).is_err());
        let refused = Side(|| Traffic { packets: more(), refused: count.get() });
        assert!(client.hear(&mut [0], Patience::Measurement(&refused)).is_err());
        let other = thread::spawn(move || {
            thread::sleep(Duration::from_millis(1200));
            server.say(b"x").unwrap();
            server
        });
        let flowing = Side(|| Traffic { packets: more(), refused: 0 });
        client.hear(&mut [0], Patience::Measurement(&flowing)).unwrap();
        other.join().unwrap();
    }

    #[test]
    fn addresses_of_two_families_do_not_meet() {
        let v4 = Gid::from_ip("192.0.2.1".parse().unwrap());
        let v6 = Gid::from_ip("2001:db8::1".parse().unwrap());
        assert!(must_match(v4, v4, false).is_ok() && must_match(v6, v6, false).is_ok());
        let why = text(must_match(v4, v6, false).unwrap_err());
        assert!(why.contains("::ffff:192.0.2.1 is of IPv4, the peer's 2001:db8::1 of IPv6"));
        assert!(
            text(must_match(v4, Gid::default(), false).unwrap_err()).contains("names no address")
        );
    }

    #[test]
    fn a_peer_is_one_host_and_loopback_no_other_one() {
        let gid = |text: &str| Gid::from_ip(text.parse().unwrap());
        let own = gid("192.0.2.1");
        let why = |peer, is_this_host| {
            must_match(own, gid(peer), is_this_host).err().map(text).unwrap_or_default()
        };
        for (peer, what) in [
            ("0.0.0.0", "the peer's address 0.0.0.0 is no host's: choose another device"),
            ("224.0.0.5", "224.0.0.5 is no single host's"),
            ("::ffff:224.0.0.5", "is no single host's"),
            ("255.255.255.255", "is no single host's"),
            ("ff02::1", "is no single host's"),
            ("127.0.0.1", "127.0.0.1 is loopback, by which no other host is reached"),
            ("::1", "is loopback"),
        ] {
            assert!(why(peer, false).contains(what), "{peer}: {}", why(peer, false));
        }
        assert_eq!(why("127.0.0.1", true), "");
        let [here, _there] = pair();
        assert!(here.is_this_host());
    }

    #[test]
    fn a_server_that_is_not_there_is_to_be_started() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let patience = Duration::from_secs(1);
        let met = MeetingPoint::find(Some("127.0.0.1"), free)
            .and_then(|point| point.meet("roxe perf write_bw", patience));
        let Err(failure) = met else {
            panic!("nobody listens");
        };
        let expected =
            format!("no server at 127.0.0.1:{free}: start `roxe perf write_bw` there first");
        assert_eq!(text(failure), expected);
    }
}
