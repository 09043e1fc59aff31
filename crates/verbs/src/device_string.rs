//! How an adapter is named on a command line: which port, and what stands around it.
//!
//! `PORT:ARG[,key=value…]`:
//!
//! ```text
//! xdp:eth1[,queues=auto|N][,queue=0][,mode=auto|native|generic][,zerocopy=auto|on|off]
//!         [,own=10.0.0.5/24]…[,gw=10.0.0.1]…[,vlan=10]
//! udp:10.0.0.1[,gso=auto|on|off][,verify=on|off]
//! auto:eth1
//! host:10.0.0.1
//! memory:NAME
//! ```
//!
//! `xdp` is an interface by AF_XDP, `udp` a socket on that address of the host (see
//! [`roxe_net::udp`]), `auto` the first where it is allowed, else the second on the interface's
//! first address. All `host` in a network namespace are joined, in whatever process they are, and
//! several may have one address, as programs have that share a card; nothing of it leaves the host
//! (see [`roxe_net::host`]). A port of the RDMA CM at such an address is one adapter's at a time,
//! and a call to one at which none listens is refused. All `memory` of the same name in a process
//! are joined.
//!
//! `queues` says how many queues of the interface to receive from, from `queue` on: all unless it
//! is said, or the one named. With `own` the adapter has addresses of its own instead of the
//! interface's, and `gw` is the router beyond their network (see `roxe_net::owned`). More than one
//! may stand behind each other, `own=10.0.0.5/24,own=fd00::5/64`, or be joined by `+`. With `vlan`
//! they are on that VLAN: what is sent has its tag, what has not is not heard. Addresses of VLANs
//! that the kernel has on the interface (`eth1.10`) are the adapter's like those of the interface.
//!
//! `cc=dcqcn` has queue pairs slow down when switches say that their queues are long
//! ([`Dcqcn::MLX5`]; `cc=dcqcn-paper` with [`Dcqcn::PAPER`]). They begin at `rate=`, the port's in
//! Gb/s, and do not exceed it; unless it is said they begin at 10, and are paced below it only.
//! Senders of marked packets are told with any `cc`, unless `cnp=off`. `cc=timely` and `cc=swift`
//! look at round trips instead ([`Timely`], [`Swift`]). Their parameters may stand there by name,
//! `cc=dcqcn,rp_ai_rate=40M`; a number without unit is in Mb/s, µs or bytes.
//!
//! [`Dcqcn::MLX5`]: roxe_transport::congestion::Dcqcn::MLX5
//! [`Dcqcn::PAPER`]: roxe_transport::congestion::Dcqcn::PAPER
//! [`Timely`]: roxe_transport::congestion::Timely
//! [`Swift`]: roxe_transport::congestion::Swift
//!
//! Behind each of them may stand `capture=FILE`, which records all that passes, and `fault=RULES`,
//! which makes the network a bad one (see [`roxe_net::fault`] for the rules; they may have commas
//! and semicolons).

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use roxe_device::Congestion;
use roxe_net::{fault, udp};
use roxe_transport::congestion::{
    Burst, CongestionControl, NotificationPoint, Rate, UnknownControl,
};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::NO_TELEMETRY;

/// What a device string says.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceString {
    /// The port.
    pub port: PortString,
    /// Where it is recorded.
    pub capture: Option<PathBuf>,
    /// What the network does to its packets.
    pub fault: Option<String>,
    /// How it takes part in congestion control.
    pub congestion: Congestion,
    text: String,
}

/// The port of a device string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortString {
    /// An interface, by AF_XDP; with the adapter's own addresses, if it has any.
    #[cfg(feature = "af_xdp")]
    Xdp(String, roxe_net::af_xdp::Settings, roxe_net::owned::Own),
    /// An address of this host, by a UDP socket.
    Udp(IpAddr, udp::Settings),
    /// An interface, by the best that is allowed.
    Auto(String),
    /// This host's own network, on which processes may share an address, with this one.
    Host(IpAddr),
    /// A segment of this process.
    Memory(String),
}

impl PortString {
    /// Whether an adapter there is one on AF_XDP, or would be where that is allowed.
    pub const fn may_be_af_xdp(&self) -> bool {
        match self {
            #[cfg(feature = "af_xdp")]
            Self::Xdp(..) => true,
            Self::Auto(_) => cfg!(feature = "af_xdp"),
            Self::Udp(..) | Self::Host(_) | Self::Memory(_) => false,
        }
    }
}

/// What is wrong with a device string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device `{device}`: {what}")]
pub struct DeviceStringError {
    /// The string.
    pub device: String,
    /// What is wrong with it.
    pub what: String,
}

impl FromStr for DeviceString {
    type Err = DeviceStringError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        read(text).map_err(|what| DeviceStringError { device: text.to_owned(), what })
    }
}

impl fmt::Display for DeviceString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether a text begins as a device string does.
pub(crate) fn begins_with_port(text: &str) -> bool {
    text.split_once(':').is_some_and(|(port, _)| PORTS.contains(&port.trim()))
}

/// The names of ports.
const PORTS: [&str; 5] = ["xdp", "udp", "auto", "host", "memory"];

fn read(text: &str) -> Result<DeviceString, String> {
    let (port, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
    let options = Options::read(rest.strip_prefix(',').unwrap_or(rest))?;
    assemble(port, options, text).map_err(|wrong| wrong.what)
}

/// The IPv6 address in brackets.
fn bracketed(text: &str) -> Option<&str> {
    let bare = text.strip_prefix('[')?.strip_suffix(']')?;
    bare.parse::<std::net::Ipv6Addr>().ok().map(|_| bare)
}

/// What is wrong with a port that is an address or a name alone.
fn no_port(port: &str) -> String {
    let none = format!("it begins with none of {}, and a colon", PORTS.join(", "));
    if port.parse::<IpAddr>().is_ok() {
        format!("{none}: is `udp:{port}` meant?")
    } else if is_interface(port) {
        format!("{none}: is `auto:{port}` meant?")
    } else {
        format!(
            "{none}, and there is no interface of this name: say `auto:INTERFACE`, or \
             `udp:ADDRESS` with an address of this host"
        )
    }
}

/// Whether there is an interface of this name.
fn is_interface(name: &str) -> bool {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| name_to_index(socket, name).is_ok())
}

/// What is wrong, and with which option, if it is one of them.
pub(crate) struct Wrong {
    #[cfg_attr(not(feature = "config"), expect(dead_code, reason = "files tell it"))]
    pub(crate) key: Option<String>,
    pub(crate) what: String,
}

impl Wrong {
    fn option(key: &str, what: String) -> Self {
        Self { key: Some(key.to_owned()), what }
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self { key: None, what }
    }
}

/// The device of a port such as `xdp:eth1` and its options, written as `text`.
pub(crate) fn assemble(
    port: &str,
    mut options: Options<'_>,
    text: &str,
) -> Result<DeviceString, Wrong> {
    let (kind, argument) = port.split_once(':').ok_or_else(|| no_port(port))?;
    if argument.is_empty() {
        return Err(format!("what stands behind `{kind}:` is missing").into());
    }
    let keys: Vec<String> = options.0.iter().map(|(key, _)| (*key).to_owned()).collect();
    let capture = options.take("capture").map(PathBuf::from);
    let fault = options.take("fault");
    if let Some(rules) = &fault {
        fault::parse_rules(rules)
            .map_err(|error| Wrong::option("fault", format!("fault={rules}: {error}")))?;
    }
    let congestion = congestion(&mut options)?;
    let port = match kind {
        "xdp" => xdp(argument, &mut options)?,
        "udp" => {
            let address = argument.parse().map_err(|_| match bracketed(argument) {
                Some(bare) => format!("`{argument}`: without brackets, `udp:{bare}`"),
                None => format!("`{argument}` is no IP address"),
            })?;
            let mut settings = udp::Settings::default();
            let gso = [("auto", udp::Gso::Auto), ("on", udp::Gso::On), ("off", udp::Gso::Off)];
            options.choose("gso", &gso, &mut settings.gso)?;
            let verify = [("on", udp::Verify::AssumeId0), ("off", udp::Verify::No)];
            options.choose("verify", &verify, &mut settings.verify)?;
            PortString::Udp(address, settings)
        }
        "auto" => PortString::Auto(argument.to_owned()),
        "host" => {
            let address = argument
                .parse()
                .ok()
                .filter(|address: &IpAddr| !address.is_unspecified() && !address.is_multicast());
            PortString::Host(address.ok_or_else(|| format!("`{argument}` is no host's address"))?)
        }
        "memory" => PortString::Memory(argument.to_owned()),
        // An IPv6 address has colons, too.
        _ if port.parse::<IpAddr>().is_ok() => return Err(no_port(port).into()),
        _ => return Err(format!("`{kind}` is none of {}", PORTS.join(", ")).into()),
    };
    match options.0.first() {
        Some((key, _)) => {
            // Of one that it has, the first was taken.
            let left = options.0.iter().filter(|(other, _)| other == key).count();
            let given = keys.iter().filter(|other| other == key).count();
            let what = match (given > left, controlled_by(key)) {
                (true, _) => format!("option `{key}` stands there twice"),
                (false, names) if names.is_empty() => format!("{kind} has no option `{key}`"),
                (false, names) => {
                    let says = names.iter().map(|name| format!("`cc={name}`")).collect::<Vec<_>>();
                    let (names, says) = (names.join(" and "), says.join(" or "));
                    format!("`{key}` is a parameter of {names}: say {says} here, too")
                }
            };
            Err(Wrong::option(key, what))
        }
        None => Ok(DeviceString { port, capture, fault, congestion, text: text.to_owned() }),
    }
}

/// What controls congestion with a parameter of this name: all that an adapter has.
fn controlled_by(key: &str) -> Vec<&'static str> {
    let has = |control: &CongestionControl| control.parameters().iter().any(|(it, _)| *it == key);
    let named = CongestionControl::NAMED.iter().filter(|(_, it)| !it.needs_telemetry() && has(it));
    named.map(|(name, _)| *name).collect()
}

/// How the adapter takes part in congestion control.
fn congestion(options: &mut Options<'_>) -> Result<Congestion, Wrong> {
    let mut congestion = DEFAULT_CONGESTION;
    if let Some(name) = options.take("cc") {
        let wrong = |what: &str| Wrong::option("cc", format!("cc={name}: {what}"));
        congestion.control =
            name.parse().map_err(|unknown: UnknownControl| wrong(&unknown.to_string()))?;
        if congestion.control.needs_telemetry() {
            return Err(wrong(&format!("it {NO_TELEMETRY}")));
        }
    }
    let told = [("on", congestion.notification_point), ("off", None)];
    options.choose("cnp", &told, &mut congestion.notification_point)?;
    let mut named = Vec::new();
    for (name, _) in congestion.parameters() {
        if let Some(value) = options.take(name) {
            congestion.set(name, &value).map_err(|wrong| Wrong::option(name, wrong.what))?;
            named.push((name, value));
        }
    }
    congestion.control.check().map_err(|wrong| Wrong::option(&wrong.name, wrong.what))?;
    if let Some(text) = options.take("rate") {
        let gigabits = text.parse().ok().filter(|gigabits| (0.001..=10_000.0).contains(gigabits));
        let gigabits: f64 = gigabits.ok_or_else(|| {
            Wrong::option("rate", format!("rate={text}: not 0.001 to 10000 Gb/s"))
        })?;
        congestion.line_rate = Rate::from_bits_per_second(gigabits * 1e9);
        congestion.is_ceiling = true;
    }
    // Where nobody says the least, it is the port's if that is less.
    if let Some((name, least)) = congestion.control.least_rate()
        && least > congestion.line_rate
        && let Some((_, value)) = named.iter().find(|(it, _)| *it == name)
    {
        let line = congestion.line_rate.bits_per_second() / 1e9;
        return Err(Wrong::option(
            name,
            format!("{name}={value} is above the port's rate, {line} Gb/s (`rate=`)"),
        ));
    }
    Ok(congestion)
}

/// Senders are told of marks; queue pairs do not slow down.
pub(crate) const DEFAULT_CONGESTION: Congestion = Congestion {
    control: CongestionControl::None,
    line_rate: Rate::from_mbps(10_000),
    is_ceiling: false,
    burst: Burst::DEFAULT,
    notification_point: Some(NotificationPoint::DEFAULT),
};

#[cfg(feature = "af_xdp")]
fn xdp(interface: &str, options: &mut Options<'_>) -> Result<PortString, Wrong> {
    use roxe_net::af_xdp::{Mode, Queues, Settings, ZeroCopy};
    let mut settings = Settings::default();
    let number = |key, text: &str| {
        text.parse().map_err(|_| Wrong::option(key, format!("{key}={text}: not a number")))
    };
    if let Some(queue) = options.take("queue") {
        settings.queue = number("queue", &queue)?;
        settings.queues = Queues::Count(1);
    }
    match options.take("queues").as_deref() {
        None => {}
        Some("auto") => settings.queues = Queues::All,
        Some("0") => return Err(Wrong::option("queues", "queues=0: at least one".to_owned())),
        Some(count) => settings.queues = Queues::Count(number("queues", count)?),
    }
    let modes = [("auto", Mode::Auto), ("native", Mode::Native), ("generic", Mode::Generic)];
    options.choose("mode", &modes, &mut settings.mode)?;
    let copies = [("auto", ZeroCopy::Auto), ("on", ZeroCopy::On), ("off", ZeroCopy::Off)];
    options.choose("zerocopy", &copies, &mut settings.zero_copy)?;
    let own = own(options)?;
    Ok(PortString::Xdp(interface.to_owned(), settings, own))
}

/// Addresses of the adapter's own, and routers.
#[cfg(feature = "af_xdp")]
fn own(options: &mut Options<'_>) -> Result<roxe_net::owned::Own, Wrong> {
    use roxe_net::neighbor::Assigned;
    use roxe_net::owned::{MAX_ADDRESSES, Own};
    let mut own = Own::default();
    for text in options.take_all("own") {
        let wrong = |what: &str| Wrong::option("own", format!("own={text}: {what}"));
        let no_address = || wrong("not an address and its network, such as 10.0.0.5/24");
        let (address, len) = text.split_once('/').ok_or_else(no_address)?;
        let address: IpAddr = address.parse().map_err(|_| no_address())?;
        let prefix_len = len.parse().map_err(|_| no_address())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        if prefix_len > most || address.is_unspecified() || address.is_multicast() {
            return Err(no_address());
        }
        if own.has(address) {
            return Err(wrong("it stands there twice"));
        }
        own.addresses.push(Assigned { address, prefix_len });
    }
    if own.addresses.len() > MAX_ADDRESSES {
        let what = format!("own: an adapter has {MAX_ADDRESSES} addresses of its own at most");
        return Err(Wrong::option("own", what));
    }
    for text in options.take_all("gw") {
        let wrong = |what: &str| Wrong::option("gw", format!("gw={text}: {what}"));
        let gateway: IpAddr = text.parse().map_err(|_| wrong("not an address"))?;
        if own.gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()) {
            return Err(wrong("there is one of its family already"));
        }
        if !own.addresses.iter().any(|it| it.has_in_network(gateway)) || own.has(gateway) {
            return Err(wrong("not a neighbour of an address that `own=` says"));
        }
        own.gateways.push(gateway);
    }
    if let Some(text) = options.take("vlan") {
        let wrong = |what: &str| Wrong::option("vlan", format!("vlan={text}: {what}"));
        let id = text.parse().ok().filter(|id| (1..=4094).contains(id));
        own.vlan = Some(id.ok_or_else(|| wrong("not a number from 1 to 4094"))?);
        if own.addresses.is_empty() {
            return Err(wrong(
                "only addresses of the adapter's own (`own=`) have it; those of an interface of \
                 the kernel on that VLAN are there without",
            ));
        }
    }
    Ok(own)
}

#[cfg(not(feature = "af_xdp"))]
fn xdp(_: &str, _: &mut Options<'_>) -> Result<PortString, Wrong> {
    let what = "this program was built without AF_XDP (cargo feature `af_xdp`): `cargo build \
                --release -p roxe -p roxe-ibverbs` builds `roxe` and its library with it \
                (docs/library.md)";
    Err(what.to_owned().into())
}

/// Keys and values that nobody has asked for yet.
pub(crate) struct Options<'a>(pub(crate) Vec<(&'a str, String)>);

impl<'a> Options<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut options: Vec<(&str, String)> = Vec::new();
        for piece in text.split(',').filter(|_| !text.is_empty()) {
            let (key, value) = piece.split_once('=').unwrap_or((piece, piece));
            // A recording may have any name.
            if begins_with_port(piece) || key.trim() != "capture" && begins_with_port(value) {
                let piece = piece.trim();
                return Err(format!("`{piece}` is another device: devices have `;` between them"));
            }
            match (piece.split_once('='), options.last_mut()) {
                (Some((key, value)), _) => options.push((key.trim(), value.to_owned())),
                // A comma inside of rules.
                (None, Some(("fault", rules))) => *rules += &format!(",{piece}"),
                (None, _) => return Err(format!("`{piece}` is no `key=value`")),
            }
        }
        Ok(Self(options))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.remove(at).1)
    }

    /// All values of a key that may stand there more than once, or joined by `+`.
    #[cfg(feature = "af_xdp")]
    fn take_all(&mut self, key: &str) -> Vec<String> {
        let mut values = Vec::new();
        while let Some(value) = self.take(key) {
            values.extend(value.split('+').map(str::to_owned));
        }
        values
    }

    fn choose<T: Copy>(
        &mut self,
        key: &str,
        values: &[(&str, T)],
        chosen: &mut T,
    ) -> Result<(), Wrong> {
        let Some(name) = self.take(key) else { return Ok(()) };
        let found = values.iter().find(|(known, _)| *known == name);
        let (_, value) = found.ok_or_else(|| {
            let known: Vec<_> = values.iter().map(|(name, _)| *name).collect();
            Wrong::option(key, format!("{key}={name}: not one of {}", known.join(", ")))
        })?;
        *chosen = *value;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> DeviceString {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn why(text: &str) -> String {
        text.parse::<DeviceString>().unwrap_err().what
    }

    #[test]
    fn ports_and_what_is_around_them_are_read() {
        let udp = parse("udp:::1,verify=off,gso=on,capture=a b.pcapng");
        let settings = udp::Settings {
            gso: udp::Gso::On,
            verify: udp::Verify::No,
            ..udp::Settings::default()
        };
        assert_eq!(udp.port, PortString::Udp("::1".parse().unwrap(), settings));
        assert_eq!(udp.capture, Some("a b.pcapng".into()));
        let memory = parse(" memory:one,fault=drop packets 3,7,9; dup 1%,capture=x ");
        assert_eq!(memory.port, PortString::Memory("one".to_owned()));
        let host: DeviceString = "host:192.0.2.1".parse().unwrap();
        assert_eq!(host.port, PortString::Host("192.0.2.1".parse().unwrap()));
        assert!("host:0.0.0.0".parse::<DeviceString>().is_err());
        assert_eq!(memory.fault.as_deref(), Some("drop packets 3,7,9; dup 1%"));
        assert_eq!(memory.capture, Some("x".into()));
        assert_eq!(memory.to_string(), "memory:one,fault=drop packets 3,7,9; dup 1%,capture=x");
        assert_eq!(parse("auto:eth0").port, PortString::Auto("eth0".to_owned()));
    }

    #[test]
    fn a_comma_between_devices_is_told() {
        let told = |it: &str| format!("`{it}` is another device: devices have `;` between them");
        for (text, other) in [
            ("udp:127.0.0.2,udp:127.0.0.3", "udp:127.0.0.3"),
            ("udp:127.0.0.2, memory:x,fault=dup 1%", "memory:x"),
            ("udp:127.0.0.2,roxe1=udp:127.0.0.3", "roxe1=udp:127.0.0.3"),
            ("udp:127.0.0.2,fault=drop packets 3,7,udp:127.0.0.3", "udp:127.0.0.3"),
        ] {
            assert_eq!(why(text), told(other), "{text}");
        }
        assert_eq!(parse("memory:x,capture=udp:1").capture, Some("udp:1".into()));
    }

    #[test]
    fn parameters_that_contradict_one_another_are_told() {
        for (text, told) in [
            ("cc=swift,min_cwnd=9,max_cwnd=8", "min_cwnd=9 is above max_cwnd=8"),
            (
                "cc=dcqcn,rp_max_rate=1G,rp_min_rate=2G",
                "rp_min_rate=2000M is above rp_max_rate=1000M",
            ),
            ("cc=timely,t_high=9\u{b5}s", "t_low=50us is above t_high=9us"),
            ("cc=timely,min_rate=20G", "min_rate=20G is above the port's rate, 10 Gb/s (`rate=`)"),
            ("cc=dcqcn,rp_time_reset=0.4ns", "rp_time_reset=0.4ns: 0.001 us is the least above 0"),
        ] {
            assert_eq!(why(&format!("memory:x,{text}")), told);
        }
        // What nobody names gives way.
        let slow = parse("memory:x,cc=timely,rate=0.05").congestion;
        assert_eq!((slow.line_rate, slow.is_ceiling), (Rate::from_mbps(50), true));
        assert!(!parse("memory:x,cc=timely").congestion.is_ceiling, "nobody said it");
        parse("memory:x,rate=40,cc=timely,min_rate=20G");
    }

    #[cfg(feature = "af_xdp")]
    #[test]
    fn options_of_af_xdp_are_read() {
        use roxe_net::af_xdp::{Mode, Queues, Settings, ZeroCopy};
        use roxe_net::owned::Own;
        let settings = |text: &str| match parse(text).port {
            PortString::Xdp(_, settings, _) => settings,
            other => panic!("{other:?}"),
        };
        let expected = Settings {
            queue: 3,
            queues: Queues::Count(2),
            mode: Mode::Generic,
            zero_copy: ZeroCopy::Off,
            ..Settings::default()
        };
        let xdp = parse("xdp:veth0,queues=2,mode=generic,queue=3,zerocopy=off");
        assert_eq!(xdp.port, PortString::Xdp("veth0".to_owned(), expected, Own::default()));
        assert_eq!(settings("xdp:eth0").queues, Queues::All);
        assert_eq!(settings("xdp:eth0,queue=1").queues, Queues::Count(1));
        assert_eq!(settings("xdp:eth0,queue=1,queues=auto").queues, Queues::All);
        assert_eq!(why("xdp:eth0,queue=x"), "queue=x: not a number");
        assert_eq!(why("xdp:eth0,queues=0"), "queues=0: at least one");
        assert_eq!(why("xdp:eth0,queues=many"), "queues=many: not a number");
        assert_eq!(why("xdp:eth0,mode=fast"), "mode=fast: not one of auto, native, generic");
    }

    #[cfg(feature = "af_xdp")]
    #[test]
    fn addresses_of_its_own_are_read() {
        use roxe_net::neighbor::Assigned;
        let own = |text: &str| match parse(text).port {
            PortString::Xdp(_, _, own) => own,
            other => panic!("{other:?}"),
        };
        let assigned = |address: &str, prefix_len| {
            let address = address.parse().unwrap();
            Assigned { address, prefix_len }
        };
        let both = own("xdp:eth1,own=10.0.0.5/24,gw=10.0.0.1,own=fd00::5/64,gw=fd00::1");
        assert_eq!(both.addresses, [assigned("10.0.0.5", 24), assigned("fd00::5", 64)]);
        assert_eq!(both.gateways.len(), 2);
        assert_eq!(own("xdp:eth1,own=10.0.0.5/24+fd00::5/64,gw=10.0.0.1+fd00::1"), both);
        assert_eq!(own("xdp:eth1").addresses, []);
        assert_eq!((both.vlan, own("xdp:e,own=10.0.0.5/24,vlan=4094").vlan), (None, Some(4094)));
        for wrong in ["0", "4095", "x", ""] {
            let what = format!("vlan={wrong}: not a number from 1 to 4094");
            assert_eq!(why(&format!("xdp:e,own=10.0.0.5/24,vlan={wrong}")), what);
        }
        assert!(why("xdp:e,vlan=10").starts_with("vlan=10: only addresses of the adapter's own"));
        let no_address = "not an address and its network, such as 10.0.0.5/24";
        for wrong in ["10.0.0.5", "10.0.0.5/33", "eth/24", "224.0.0.1/24", "::/64", ""] {
            assert_eq!(why(&format!("xdp:e,own={wrong}")), format!("own={wrong}: {no_address}"));
        }
        let twice = "own=10.0.0.5/16: it stands there twice";
        assert_eq!(why("xdp:e,own=10.0.0.5/24,own=10.0.0.5/16"), twice);
        let far = "gw=10.0.1.1: not a neighbour of an address that `own=` says";
        assert_eq!(why("xdp:e,own=10.0.0.5/24,gw=10.0.1.1"), far);
        let second = "gw=10.0.0.2: there is one of its family already";
        assert_eq!(why("xdp:e,own=10.0.0.5/24,gw=10.0.0.1,gw=10.0.0.2"), second);
        let many: Vec<_> = (1..10).map(|last| format!("10.0.0.{last}/24")).collect();
        let most = "own: an adapter has 8 addresses of its own at most";
        assert_eq!(why(&format!("xdp:e,own={}", many.join("+"))), most);
    }

    #[test]
    fn congestion_control_and_its_parameters_are_read() {
        let control = |text: &str| parse(text).congestion.control;
        for (name, named) in CongestionControl::NAMED {
            if !named.needs_telemetry() {
                assert_eq!(control(&format!("memory:a,cc={name}")), *named);
            }
        }
        let mut expected = parse("memory:a,cc=dcqcn").congestion;
        expected.set("rp_ai_rate", "40").unwrap();
        expected.set("np_cnp_dscp", "46").unwrap();
        let text = "memory:a,rp_ai_rate=40M,cc=dcqcn,np_cnp_dscp=46";
        assert_eq!(parse(text).congestion, expected);
        let swift = parse("memory:a,cc=swift,base_target=40us,fs_range=0");
        assert!(swift.congestion.parameters().contains(&("base_target", "40us".to_owned())));
        for (options, told) in [
            ("cc=reno", "cc=reno: not one of none, dcqcn, dcqcn-paper, timely, swift, hpcc"),
            ("cc=dcqcn,rp_ai_rate=x", "rp_ai_rate=x: not a rate, such as 40M or 1.5Gb/s"),
            ("cc=timely,beta=2", "beta=2: 0 to 1 are possible"),
            ("cc=timely,beta=0.5,beta=0.6", "option `beta` stands there twice"),
            (
                "rp_ai_rate=5",
                "`rp_ai_rate` is a parameter of dcqcn and dcqcn-paper: say `cc=dcqcn` or \
                 `cc=dcqcn-paper` here, too",
            ),
            (
                "cc=dcqcn,base_target=5ms",
                "`base_target` is a parameter of swift: say `cc=swift` here, too",
            ),
            ("eta=0.9", "memory has no option `eta`"),
            ("cnp=off,np_cnp_dscp=5", "memory has no option `np_cnp_dscp`"),
        ] {
            assert_eq!(why(&format!("memory:a,{options}")), told);
        }
        let told = why("memory:a,cc=hpcc");
        assert!(told.starts_with("cc=hpcc: it needs switches that say"), "{told}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let none = "it begins with none of xdp, udp, auto, host, memory, and a colon";
        for (text, meant) in [("lo", "auto:lo"), ("::1", "udp:::1")] {
            assert_eq!(why(text), format!("{none}: is `{meant}` meant?"));
        }
        let said = "there is no interface of this name: say `auto:INTERFACE`, or `udp:ADDRESS` \
                    with an address of this host";
        for text in ["roxe0", "mlx5_0", "longer-than-any-interface"] {
            assert_eq!(why(text), format!("{none}, and {said}"));
        }
        assert_eq!(why("udp:[::1]"), "`[::1]`: without brackets, `udp:::1`");
        assert_eq!(why("tap:x"), "`tap` is none of xdp, udp, auto, host, memory");
        assert_eq!(why("udp:"), "what stands behind `udp:` is missing");
        assert_eq!(why("udp:host"), "`host` is no IP address");
        assert_eq!(why("udp:1.2.3.4,gso"), "`gso` is no `key=value`");
        assert_eq!(why("udp:1.2.3.4,gso=1"), "gso=1: not one of auto, on, off");
        let twice = "option `gso` stands there twice";
        assert_eq!(why("udp:1.2.3.4,gso=on,gso=on"), twice);
        assert_eq!(why("memory:a,mode=x"), "memory has no option `mode`");
        let error = "memory:a,fault=lose 1%".parse::<DeviceString>().unwrap_err().to_string();
        assert!(error.starts_with("device `memory:a,fault=lose 1%`: fault=lose 1%: "), "{error}");
    }
}
