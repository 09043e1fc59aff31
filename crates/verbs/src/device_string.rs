//! How an adapter is named on a command line: which port, and what stands around it.
//!
//! `PORT:ARG[,key=value…]`:
//!
//! ```text
//! xdp:eth1[,queues=1][,queue=0][,mode=auto|native|generic][,zerocopy=auto|on|off]
//! udp:10.0.0.1[,gso=auto|on|off][,verify=on|off]
//! auto:eth1
//! memory:NAME
//! ```
//!
//! `xdp` is an interface by AF_XDP, `udp` a socket on that address of the host (see
//! [`roxe_net::udp`]), `auto` the first where it is allowed, else the second on the interface's
//! first address. All `memory` of the same name in a process are joined.
//!
//! Behind each of them may stand `capture=FILE`, which records all that passes, and `fault=RULES`,
//! which makes the network a bad one (see [`roxe_net::fault`] for the rules; they may have commas
//! and semicolons).

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use roxe_net::{fault, udp};

/// What a device string says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceString {
    /// The port.
    pub port: PortString,
    /// Where it is recorded.
    pub capture: Option<PathBuf>,
    /// What the network does to its packets.
    pub fault: Option<String>,
    text: String,
}

/// The port of a device string.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortString {
    /// An interface, by AF_XDP.
    #[cfg(feature = "af_xdp")]
    Xdp(String, roxe_net::af_xdp::Settings),
    /// An address of this host, by a UDP socket.
    Udp(IpAddr, udp::Settings),
    /// An interface, by the best that is allowed.
    Auto(String),
    /// A segment of this process.
    Memory(String),
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
const PORTS: [&str; 4] = ["xdp", "udp", "auto", "memory"];

fn read(text: &str) -> Result<DeviceString, String> {
    let (port, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
    let options = Options::read(rest.strip_prefix(',').unwrap_or(rest))?;
    assemble(port, options, text).map_err(|wrong| wrong.what)
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
    let (kind, argument) = port
        .split_once(':')
        .ok_or_else(|| format!("it begins with none of {}, and a colon", PORTS.join(", ")))?;
    if argument.is_empty() {
        return Err(format!("what stands behind `{kind}:` is missing").into());
    }
    let capture = options.take("capture").map(PathBuf::from);
    let fault = options.take("fault");
    if let Some(rules) = &fault {
        fault::parse_rules(rules)
            .map_err(|error| Wrong::option("fault", format!("fault={rules}: {error}")))?;
    }
    let port = match kind {
        "xdp" => xdp(argument, &mut options)?,
        "udp" => {
            let address = argument.parse().map_err(|_| format!("`{argument}` is no IP address"))?;
            let mut settings = udp::Settings::default();
            let gso = [("auto", udp::Gso::Auto), ("on", udp::Gso::On), ("off", udp::Gso::Off)];
            options.choose("gso", &gso, &mut settings.gso)?;
            let verify = [("on", udp::Verify::AssumeId0), ("off", udp::Verify::No)];
            options.choose("verify", &verify, &mut settings.verify)?;
            PortString::Udp(address, settings)
        }
        "auto" => PortString::Auto(argument.to_owned()),
        "memory" => PortString::Memory(argument.to_owned()),
        _ => return Err(format!("`{kind}` is none of {}", PORTS.join(", ")).into()),
    };
    match options.0.first() {
        Some((key, _)) => {
            let what = format!("{kind} has no option `{key}`, or it stands there twice");
            Err(Wrong::option(key, what))
        }
        None => Ok(DeviceString { port, capture, fault, text: text.to_owned() }),
    }
}

#[cfg(feature = "af_xdp")]
fn xdp(interface: &str, options: &mut Options<'_>) -> Result<PortString, Wrong> {
    use roxe_net::af_xdp::{Mode, Settings, ZeroCopy};
    let mut settings = Settings::default();
    if let Some(queues) = options.take("queues").filter(|queues| queues != "1") {
        let what = format!("queues={queues}: an adapter has one queue, `queue=` says which");
        return Err(Wrong::option("queues", what));
    }
    if let Some(queue) = options.take("queue") {
        settings.queue = queue
            .parse()
            .map_err(|_| Wrong::option("queue", format!("queue={queue}: not a number")))?;
    }
    let modes = [("auto", Mode::Auto), ("native", Mode::Native), ("generic", Mode::Generic)];
    options.choose("mode", &modes, &mut settings.mode)?;
    let copies = [("auto", ZeroCopy::Auto), ("on", ZeroCopy::On), ("off", ZeroCopy::Off)];
    options.choose("zerocopy", &copies, &mut settings.zero_copy)?;
    Ok(PortString::Xdp(interface.to_owned(), settings))
}

#[cfg(not(feature = "af_xdp"))]
fn xdp(_: &str, _: &mut Options<'_>) -> Result<PortString, Wrong> {
    Err("this program was built without AF_XDP (cargo feature `af_xdp`)".to_owned().into())
}

/// Keys and values that nobody has asked for yet.
pub(crate) struct Options<'a>(pub(crate) Vec<(&'a str, String)>);

impl<'a> Options<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut options: Vec<(&str, String)> = Vec::new();
        for piece in text.split(',').filter(|_| !text.is_empty()) {
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
        assert_eq!(memory.fault.as_deref(), Some("drop packets 3,7,9; dup 1%"));
        assert_eq!(memory.capture, Some("x".into()));
        assert_eq!(memory.to_string(), "memory:one,fault=drop packets 3,7,9; dup 1%,capture=x");
        assert_eq!(parse("auto:eth0").port, PortString::Auto("eth0".to_owned()));
    }

    #[cfg(feature = "af_xdp")]
    #[test]
    fn options_of_af_xdp_are_read() {
        use roxe_net::af_xdp::{Mode, Settings, ZeroCopy};
        let settings = Settings {
            queue: 3,
            mode: Mode::Generic,
            zero_copy: ZeroCopy::Off,
            ..Settings::default()
        };
        let xdp = parse("xdp:veth0,queues=1,mode=generic,queue=3,zerocopy=off");
        assert_eq!(xdp.port, PortString::Xdp("veth0".to_owned(), settings));
        assert_eq!(why("xdp:eth0,queue=x"), "queue=x: not a number");
        assert!(why("xdp:eth0,queues=2").starts_with("queues=2: an adapter has one queue"));
        assert_eq!(why("xdp:eth0,mode=fast"), "mode=fast: not one of auto, native, generic");
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(why("eth0"), "it begins with none of xdp, udp, auto, memory, and a colon");
        assert_eq!(why("tap:x"), "`tap` is none of xdp, udp, auto, memory");
        assert_eq!(why("udp:"), "what stands behind `udp:` is missing");
        assert_eq!(why("udp:host"), "`host` is no IP address");
        assert_eq!(why("udp:1.2.3.4,gso"), "`gso` is no `key=value`");
        assert_eq!(why("udp:1.2.3.4,gso=1"), "gso=1: not one of auto, on, off");
        let twice = "udp has no option `gso`, or it stands there twice";
        assert_eq!(why("udp:1.2.3.4,gso=on,gso=on"), twice);
        assert_eq!(why("memory:a,mode=x"), "memory has no option `mode`, or it stands there twice");
        let error = "memory:a,fault=lose 1%".parse::<DeviceString>().unwrap_err().to_string();
        assert!(error.starts_with("device `memory:a,fault=lose 1%`: fault=lose 1%: "), "{error}");
    }
}
