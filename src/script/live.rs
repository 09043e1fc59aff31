//! Scripts against a device elsewhere: a conversation with the agent on its host, and frames on the
//! interface that leads to it.

use std::io::{self, BufRead, BufReader, ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant as Clock, SystemTime, UNIX_EPOCH};

use roxe_net::af_xdp::{AfXdp, Settings};
use roxe_net::neighbor::{Interface, Netlink, Reach, ResolveError, Route, Watch, multicast_mac};
use roxe_net::{FramePort as _, Wake};
use roxe_sim::peer::Peer as Kind;
use roxe_sim::script::{self, ByHand, Play, Played, Site, Terms};
use roxe_wire::{Frame, Instant, MacAddress, Qpn, RawFrame};

use crate::cli::ScriptArguments;
use crate::outcome::{Outcome, complain, visible};
use crate::side_channel::LINK_COMES_UP;

/// A device under test, and the way to it.
pub(super) struct Peer {
    /// Where its agent listens; `None` when it has none.
    agent: Option<SocketAddr>,
    /// The device's name and its host's kernel.
    about: String,
    wire: Wire,
    terms: Terms,
    goes: u32,
}

/// The way to a device, as long as nothing of this host was touched.
struct Way {
    netlink: Netlink,
    route: Route,
    interface: Interface,
}

/// Our end of the wire.
struct Wire {
    port: AfXdp,
    link: Link,
    began: Clock,
    /// Frames that arrived and nobody has asked for.
    waiting: std::collections::VecDeque<Vec<u8>>,
    own_mac: MacAddress,
    mac: MacAddress,
}

/// Whether the interface has a carrier, and how much it carries: without that a device is silent,
/// whatever it does.
struct Link {
    interface: u32,
    name: String,
    changes: Watch,
    is_up: bool,
    /// The longest IP packet.
    mtu: usize,
}

/// The wire, and a conversation that lasts for one script.
struct Open<'w> {
    wire: &'w mut Wire,
    agent: Option<BufReader<TcpStream>>,
}

impl Peer {
    /// Finds the way to a device.
    pub(super) fn reach(peer: &str, arguments: &ScriptArguments) -> Result<Self, Outcome> {
        let live = &arguments.live;
        let Some(address) = read_address(peer) else {
            let what = format!("--peer {peer}: an address is wanted, or an address and a port");
            return Err(Outcome::usage(what));
        };
        let named = live.kind.as_deref().map(|name| {
            Kind::by_name(name)
                .ok_or_else(|| Outcome::usage(format_args!("--as {name}: there is no such kind")))
        });
        let named = named.transpose()?;
        let lacking = |why: String| {
            complain(format_args!("--peer {peer}: {why}"));
            Outcome::Lacking
        };
        let way = Way::to(address.ip(), live.device.as_deref()).map_err(lacking)?;
        if let Some(why) = way.is_not_meant(live.device.is_some()) {
            return Err(Outcome::usage(format_args!("--peer {peer}: {why}")));
        }
        let by_hand = live.qpn.map(|qpn| ByHand {
            qpn: Qpn::new(qpn),
            address: address.ip(),
            va: live.va,
            r_key: live.rkey,
        });
        let agent = by_hand.is_none().then_some(address);
        // Where nobody answers, no interface is taken.
        let (device, about) = match agent {
            Some(agent) => device_of(agent).map_err(lacking)?,
            None => (Kind::Roxe, format!("a queue pair of {}", address.ip())),
        };
        let kind = named.unwrap_or(device);
        let (interface, wire, ours) = Wire::lay(way).map_err(lacking)?;
        complain(format_args!("--peer {peer}: over {interface}"));
        // Another run shall not find what this one left on the wire.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let first_peer = match by_hand {
            Some(_) => FIRST_PEER,
            None => FIRST_PEER + (now as u32 & 0xfff) * PEERS_OF_A_SCRIPT,
        };
        let terms = Terms {
            kind,
            ours,
            by_hand,
            untold: live.untold.iter().filter(|name| !name.is_empty()).cloned().collect(),
            slack: Duration::from_millis(live.slack),
            silence: Duration::from_millis(live.silence),
            first_peer,
            play: Play {
                before: if arguments.verbose { usize::MAX } else { arguments.before },
                transcript: arguments.verbose,
                frames: arguments.capture.is_some(),
            },
        };
        Ok(Self { agent, about, wire, terms, goes: live.goes.max(1) })
    }

    /// What it is, for who reads recordings of it.
    pub(super) fn about(&self) -> &str {
        &self.about
    }

    /// Plays a script, again if it fails, as often as was said.
    pub(super) fn play(&mut self, play: impl Fn(&Terms, &mut dyn Site) -> Played) -> Played {
        let mut go = 0;
        loop {
            go += 1;
            let played = self.play_once(&play);
            let why = match &played.outcome {
                script::Outcome::Failed(it) => {
                    format!("{}:{}: {}", it.file, it.line, it.what.lines().next().unwrap_or(""))
                }
                script::Outcome::Unreadable(why) => why.clone(),
                _ => return played,
            };
            if go >= self.goes {
                return played;
            }
            complain(format_args!("go {go} of {}: {why}", self.goes));
        }
    }

    fn play_once(&mut self, play: impl Fn(&Terms, &mut dyn Site) -> Played) -> Played {
        if self.terms.by_hand.is_none() {
            let next = self.terms.first_peer + PEERS_OF_A_SCRIPT;
            self.terms.first_peer = if next < NUMBERS { next } else { FIRST_PEER };
        }
        let agent = match self.agent.map(connect).transpose() {
            Ok(agent) => agent,
            Err(why) => return script::Outcome::Unreadable(why).into(),
        };
        let mut open = Open { wire: &mut self.wire, agent };
        // What is left of the script before. If more comes, it is no script's.
        for _ in 0..MOST_LEFT {
            if !matches!(open.receive(Duration::ZERO), Ok(Some(_))) {
                break;
            }
        }
        play(&self.terms, &mut open)
    }
}

impl Way {
    /// The way to a host; out of the interface of this name, if there is one.
    fn to(host: IpAddr, device: Option<&str>) -> Result<Self, String> {
        let mut netlink = Netlink::open().map_err(system)?;
        let interfaces = netlink.interfaces().map_err(system)?;
        let named = device.map(|name| {
            let found = interfaces.iter().find(|it| it.name == name);
            found.ok_or_else(|| format!("--device {name}: there is no such interface"))
        });
        let out_of = named.transpose()?.map(|it| it.index);
        let route = netlink.route(host, None, out_of).map_err(system)?;
        let route = route.ok_or_else(|| format!("there is no way to {host}"))?;
        let interface = interfaces.into_iter().find(|it| it.index == route.interface);
        let interface = interface.ok_or("the interface is gone")?;
        Ok(Self { netlink, route, interface })
    }

    /// Why nobody may have meant this way, unless the interface `is_named`: a default route leads
    /// anywhere, and AF_XDP on its interface changes this host's own. No device is many hosts.
    fn is_not_meant(&self, is_named: bool) -> Option<String> {
        let Route { destination, next_hop, reach, .. } = self.route;
        if matches!(reach, Reach::Multicast | Reach::Broadcast) {
            return Some(format!("{destination} is no single host's"));
        }
        (next_hop != destination && !is_named).then(|| {
            format!(
                "no network of this host has it, only the gateway {next_hop} on {0} leads there: \
                 if that is meant, say --device {0}",
                self.interface.name
            )
        })
    }
}

/// The kernel did not answer.
fn system(error: io::Error) -> String {
    format!("cannot ask the kernel: {error}")
}

impl Link {
    /// # Errors
    /// It is down, and nothing will come.
    fn check(&mut self) -> Result<(), String> {
        if self.changes.has_changed() {
            self.look()?;
        }
        match self.is_up {
            true => Ok(()),
            false => Err(format!("{} is down, or what it leads to is", self.name)),
        }
    }

    fn look(&mut self) -> Result<(), String> {
        let interfaces = Netlink::open().and_then(|mut it| it.interfaces()).map_err(system)?;
        let own = interfaces.into_iter().find(|it| it.index == self.interface);
        self.is_up = own.as_ref().is_some_and(|it| it.has_carrier);
        self.mtu = own.map_or(self.mtu, |it| it.mtu as usize);
        Ok(())
    }

    /// # Errors
    /// A frame would be thrown away, and its silence be taken for the device's.
    fn carries(&mut self, frame: &[u8]) -> Result<(), String> {
        self.check()?;
        let Self { name, mtu, .. } = self;
        let is_tagged = frame.get(12..).is_some_and(|it| it.starts_with(&VLAN));
        let header = if is_tagged { ETHERNET + 4 } else { ETHERNET };
        match frame.len() > *mtu + header {
            false => Ok(()),
            true => Err(format!(
                "a frame of {} bytes does not fit {name}, which has MTU {mtu}",
                frame.len()
            )),
        }
    }

    /// Waits for it, as some cards lose it for a moment when XDP is attached.
    fn comes_up(&mut self) -> Result<(), String> {
        let end = Clock::now() + LINK_COMES_UP;
        while let Err(why) = self.check() {
            if Clock::now() > end {
                return Err(why);
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Wire {
    /// Opens a port at this end of a way. Says its name, and our addresses on it.
    fn lay(way: Way) -> Result<(String, Self, Vec<IpAddr>), String> {
        let Way { mut netlink, route, interface } = way;
        let mac = match netlink.resolve(&route, SOON) {
            Err(ResolveError::NoAnswer { next_hop, .. }) => {
                complain(format_args!("no answer yet: who has {next_hop}?"));
                netlink.resolve(&route, PATIENCE.saturating_sub(SOON))
            }
            resolved => resolved,
        };
        let mac = mac.map_err(|error| error.to_string())?;
        let own_mac = interface.mac.ok_or("the interface has no MAC")?;
        let port = AfXdp::open(&interface.name, Settings::default());
        let port = port.map_err(|error| error.to_string())?;
        let (changes, name) = (Watch::open().map_err(system)?, interface.name);
        let mut link = Link { interface: interface.index, name, changes, is_up: false, mtu: 0 };
        link.look()?;
        link.comes_up()?;
        let ours = interface.addresses.iter().map(|it| it.address).collect();
        let summary = port.capabilities().summary.clone();
        let (began, waiting) = (Clock::now(), std::collections::VecDeque::new());
        Ok((summary, Self { port, link, began, waiting, own_mac, mac }, ours))
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Site for Open<'_> {
    fn ask(&mut self, line: &str) -> Result<String, String> {
        let agent = self.agent.as_mut().ok_or("there is no agent")?;
        ask(agent, line)
    }

    fn send(&mut self, frame: &mut [u8]) -> Result<(), String> {
        let parsed = Frame::parse(RawFrame::ethernet(frame)).ok();
        let group = parsed.map(|it| it.ip.destination()).filter(IpAddr::is_multicast);
        let to = group.map_or(self.wire.mac, multicast_mac);
        if let Some(addresses) = frame.get_mut(..12) {
            addresses[..6].copy_from_slice(&to.0);
            addresses[6..].copy_from_slice(&self.wire.own_mac.0);
        }
        self.wire.link.carries(frame)?;
        match self.wire.port.send_frame(frame) {
            true => Ok(()),
            false => Err(format!(
                "the interface takes no frame of {} bytes: it does not fit, or all room is taken",
                frame.len()
            )),
        }
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, String> {
        let Wire { port, link, began, waiting, .. } = self.wire;
        let end = began.elapsed() + patience;
        loop {
            if let Some(frame) = waiting.pop_front() {
                return Ok(Some(frame));
            }
            link.check()?;
            port.receive_all(Instant::ZERO, &mut |arrival| {
                // Whatever is wrong with its headers: a device that is to be silent sends nothing.
                if let Some(frame) = arrival.frame {
                    waiting.push_back([frame.first, frame.second].concat());
                }
            });
            let left = end.saturating_sub(began.elapsed());
            if waiting.is_empty() {
                if left.is_zero() {
                    return Ok(None);
                }
                if port.wait(left) == Wake::Gone {
                    return Err("the interface is gone".to_owned());
                }
            }
        }
    }

    fn now(&mut self) -> Instant {
        self.wire.now()
    }

    fn waits_long(&mut self, line: &str) {
        complain(format_args!("nothing yet of what is waited for, {line}"));
    }
}

/// The address of an agent.
fn read_address(text: &str) -> Option<SocketAddr> {
    if text == "rxe" {
        return read_address(GUEST);
    }
    let address = text.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    address.ok().or_else(|| text.parse().ok())
}

fn connect(agent: SocketAddr) -> Result<BufReader<TcpStream>, String> {
    let open = || -> io::Result<TcpStream> {
        let stream = match TcpStream::connect_timeout(&agent, SOON) {
            Err(why) if why.kind() == ErrorKind::TimedOut => {
                complain(format_args!("no answer yet of the agent at {agent}"));
                TcpStream::connect_timeout(&agent, PATIENCE.saturating_sub(SOON))?
            }
            opened => opened?,
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SOON))?;
        Ok(stream)
    };
    open().map(BufReader::new).map_err(|why| format!("no agent answers at {agent}: {why}"))
}

fn ask(agent: &mut BufReader<TcpStream>, line: &str) -> Result<String, String> {
    let sent = agent.get_mut().write_all(format!("{line}\n").as_bytes());
    let told = begin(line);
    let slow = || complain(format_args!("no answer yet of the agent, to: {told}"));
    let answer = sent.and_then(|()| hear(agent, slow)).map_err(|why| match why.kind() {
        ErrorKind::WouldBlock => format!("the agent is silent, after: {told}"),
        _ => format!("the agent is gone ({why}), after: {told}"),
    })?;
    Ok(visible(answer.trim_end(), |_| false))
}

/// The beginning of a line that may be long.
fn begin(line: &str) -> &str {
    line.char_indices().nth(200).map_or(line, |(end, _)| &line[..end])
}

/// A line of the agent's: whoever answers may be anybody, so that it has an end in time and bytes.
/// That nothing comes for long is told once.
fn hear(agent: &mut impl BufRead, slow: impl FnOnce()) -> io::Result<String> {
    let began = Clock::now();
    let mut answer = Vec::new();
    let mut slow = Some(slow);
    loop {
        let come = match agent.fill_buf() {
            Err(why) if why.kind() == ErrorKind::WouldBlock && began.elapsed() < PATIENCE => {
                if let Some(tell) = slow.take() {
                    tell();
                }
                continue;
            }
            come => come?,
        };
        let end = come.iter().position(|&byte| byte == b'\n');
        answer.extend_from_slice(&come[..end.unwrap_or(come.len())]);
        let taken = end.map_or(come.len(), |end| end + 1);
        agent.consume(taken);
        if end.is_some() {
            return Ok(String::from_utf8_lossy(&answer).into_owned());
        }
        let troubles = [
            (taken == 0, "it closed the connection"),
            (answer.len() > MOST_ANSWER, "its answer has no end"),
            (began.elapsed() > PATIENCE, "its answer takes too long"),
        ];
        if let Some((_, why)) = troubles.into_iter().find(|(is, _)| *is) {
            return Err(io::Error::other(why));
        }
    }
}

/// Bytes of an answer, at most: those of memory that is looked at are twice as many digits.
const MOST_ANSWER: usize = 64 << 10;

/// What the device is, by the name that its driver gives it; and that, with its host's kernel.
fn device_of(agent: SocketAddr) -> Result<(Kind, String), String> {
    let mut agent = connect(agent)?;
    let greeting = ask(&mut agent, "hello")?;
    let answer = ask(&mut agent, "open")?;
    let opened = answer.strip_prefix("ok ").and_then(|words| word_of(words, "dev="));
    let Some(name) = opened else {
        return Err(format!("its agent opens no adapter: {}", begin(&answer)));
    };
    let kind = match name {
        _ if name.starts_with("rxe") => Kind::Rxe,
        _ if name.starts_with("mlx5") => Kind::ConnectX,
        _ => Kind::Roxe,
    };
    let kernel =
        word_of(&greeting, "kernel=").map_or_else(String::new, |it| format!(", Linux {it}"));
    Ok((kind, format!("{name}{kernel}")))
}

/// What stands behind a key in an answer.
fn word_of<'a>(answer: &'a str, key: &str) -> Option<&'a str> {
    answer.split_whitespace().find_map(|word| word.strip_prefix(key))
}

/// Where agents listen.
const PORT: u16 = 7471;

/// The guest of `cargo xtask interop`.
const GUEST: &str = "10.10.0.2";

/// After so long without an answer it is said what is waited for.
const SOON: Duration = Duration::from_secs(4);

/// For an agent on a slow host.
const PATIENCE: Duration = Duration::from_secs(30);

/// Frames that a script may leave behind.
const MOST_LEFT: usize = 1 << 14;

/// Bytes of an Ethernet header, which are none of an MTU.
const ETHERNET: usize = 14;

/// The type of a tagged frame, whose header is longer.
const VLAN: [u8; 2] = [0x81, 0];

/// Between two looks at a link.
const LOOK: Duration = Duration::from_millis(50);

/// The lowest number of a queue pair of ours. One that was made by hand has this peer.
const FIRST_PEER: u32 = 0x100;

/// So many numbers each script has for itself.
const PEERS_OF_A_SCRIPT: u32 = 0x100;

/// So many there are. The last one means a group; no script has so many queue pairs.
const NUMBERS: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_an_end() {
        let heard = |mut answer: &[u8]| hear(&mut answer, || {}).map_err(|why| why.to_string());
        assert_eq!(heard(b"ok mr=1\nmore"), Ok("ok mr=1".to_owned()));
        assert_eq!(heard(b"\xff\n"), Ok("\u{fffd}".to_owned()));
        assert_eq!(heard(b"ok mr"), Err("it closed the connection".to_owned()));
        assert_eq!(heard(&vec![b'A'; MOST_ANSWER + 1]), Err("its answer has no end".to_owned()));
    }

    /// Nothing comes some times, then a line.
    struct Slow(u32);

    impl io::Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::other("more was wanted"))?;
            match self.0 {
                0 => b"ok\n".as_slice().read(into),
                _ => Err(ErrorKind::WouldBlock.into()),
            }
        }
    }

    #[test]
    fn that_an_answer_is_slow_is_told_once() {
        for (without, told) in [(0, 0), (1, 1), (3, 1)] {
            let mut count = 0;
            let heard = hear(&mut BufReader::new(Slow(without + 1)), || count += 1);
            assert_eq!((heard.unwrap().as_str(), count), ("ok", told), "{without}");
        }
    }
}
