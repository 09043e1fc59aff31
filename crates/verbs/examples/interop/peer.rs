//! A peer that is there: a host on which `tests/interop/kit.sh` serves, be it a guest of ours or
//! not.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use roxe_verbs::{Gid, ServiceType, open};

use crate::Outcome;
use crate::agent::{self, Agent, Answer, InTime, plain};
use crate::batch::{Family, Op};
use crate::guest::{self, Guest};

/// A host with an adapter, and the way to it.
pub(crate) struct Peer<'g> {
    /// Where its agent listens.
    pub(crate) agent: SocketAddr,
    /// The name of its adapter there.
    pub(crate) device: String,
    /// What stands on the page: the kernel of a guest; of others the adapter, its firmware and
    /// kernel.
    pub(crate) name: String,
    /// It is Linux's adapter, whose counters are known.
    pub(crate) is_rxe: bool,
    /// Of each family the addresses of both ends, ours first.
    addresses: [Option<[IpAddr; 2]>; 3],
    /// The index of its IPv4 address among its GIDs.
    pub(crate) gid: u64,
    /// The longest path MTU, in bytes, that both ends have.
    path_mtu: u64,
    /// The stock programs that it has.
    programs: String,
    /// What its adapter has not, and how it said so.
    lacks: Vec<(Need, String)>,
    /// Our adapter, if somebody chose it.
    pub(crate) via: Option<String>,
    /// The host, if it is ours to be harmed and reset.
    pub(crate) guest: Option<&'g Guest>,
}

/// What not every adapter has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Uc,
    Ud,
    Srq,
    Window,
    Atomic,
}

impl Need {
    const fn name(self) -> &'static str {
        match self {
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Srq => "shared receive queues",
            Self::Window => "memory windows of type 2",
            Self::Atomic => "atomics",
        }
    }

    /// What an operation needs.
    pub(crate) fn of(op: Op) -> Option<Self> {
        match (op, op.service()) {
            (Op::SendInv, _) => Some(Self::Window),
            (Op::Srq, _) => Some(Self::Srq),
            (Op::CompareSwap | Op::FetchAdd, _) => Some(Self::Atomic),
            (_, ServiceType::Uc) => Some(Self::Uc),
            (_, ServiceType::Ud) => Some(Self::Ud),
            (_, ServiceType::Rc) => None,
        }
    }

    /// What a program needs, by the words of its command line.
    pub(crate) fn of_words(words: &str) -> Option<Self> {
        let named = [
            ("atomic", Self::Atomic),
            ("_srq_", Self::Srq),
            ("_uc_", Self::Uc),
            ("-c UC", Self::Uc),
            ("_ud_", Self::Ud),
            ("-c UD", Self::Ud),
        ];
        named.into_iter().find(|(word, _)| words.contains(word)).map(|(_, need)| need)
    }
}

/// How long a wish takes that starts no program.
const PATIENCE: Duration = Duration::from_secs(40);

/// Bytes that come of a wish, at most: no program prints as many.
const MOST_SAID: u64 = 1 << 20;

/// Where the kit of an agent takes wishes: at the next port.
fn wishes(agent: SocketAddr) -> Outcome<SocketAddr> {
    let port = agent.port().checked_add(1);
    let port = port.ok_or_else(|| format!("{agent}: its kit would need the port behind that"))?;
    Ok(SocketAddr::new(agent.ip(), port))
}

impl<'g> Peer<'g> {
    /// The host in a virtual machine.
    pub(crate) fn guest(guest: &'g Guest) -> Outcome<Self> {
        let mut agent = Agent::connect(guest::AGENT)?;
        let opened = agent.ask("open dev=rxe0")?;
        let addresses = Family::ALL.map(|family| Some(family.addresses()));
        let peer = Self::new(guest::AGENT, &mut agent, &opened, addresses, guest::PATH_MTU)?;
        // What is left out elsewhere would hide here that the guest is broken.
        if let Some((need, why)) = peer.lacks.first() {
            return Err(format!("the guest's adapter has no {}: {why}", need.name()).into());
        }
        if peer.path_mtu < guest::PATH_MTU {
            return Err(
                format!("the guest's interface carries a path MTU of {}", peer.path_mtu).into()
            );
        }
        Ok(Self { name: guest.kernel.clone(), guest: Some(guest), ..peer })
    }

    /// A host somewhere, `HOST[:PORT]`, and our adapter that reaches its own.
    pub(crate) fn reach(host: &str, via: &str) -> Outcome<Self> {
        let at = locate(host)?;
        wishes(at)?;
        let asked = Agent::connect(at).and_then(|mut agent| {
            let kernel = agent.ask("hello")?.text("kernel")?.to_owned();
            let opened = agent.ask("open")?;
            Ok((agent, kernel, opened))
        });
        let (mut agent, kernel, opened) =
            asked.map_err(|why| format!("{host}: {why} (kit.sh is to run there)"))?;
        let (here, path_mtu) = {
            let context = open(via).map_err(|why| format!("--via {via}: {why}"))?;
            (context.addresses().collect::<Vec<_>>(), u64::from(context.path_mtu().bytes()))
        };
        let there: Vec<IpAddr> = gids(&mut agent)?.into_iter().map(|gid| gid.address).collect();
        let addresses = Family::ALL.map(|family| match family {
            Family::V4 => nearest(&here, &there, IpAddr::is_ipv4),
            Family::V6 => nearest(&here, &there, IpAddr::is_ipv6),
            Family::Vlan => None,
        });
        if addresses.iter().all(Option::is_none) {
            let why = format!("{via} has {here:?}, {host} {there:?}: no two of them can talk");
            return Err(why.into());
        }
        let peer = Self::new(at, &mut agent, &opened, addresses, path_mtu)?;
        let card = card(&opened)?;
        Ok(Self {
            name: format!("{} ({card}), Linux {kernel}", peer.device),
            via: Some(via.to_owned()),
            ..peer
        })
    }

    fn new(
        at: SocketAddr,
        agent: &mut Agent,
        opened: &Answer,
        addresses: [Option<[IpAddr; 2]>; 3],
        path_mtu: u64,
    ) -> Outcome<Self> {
        let lacks = lacks(agent, opened)?;
        let there = addresses[Family::V4 as usize].map(|[_, there]| there);
        let own = gids(agent)?.into_iter().find(|gid| Some(gid.address) == there);
        let mut peer = Self {
            agent: at,
            device: opened.text("dev")?.to_owned(),
            name: String::new(),
            is_rxe: opened.number("vendor")? == RXE,
            addresses,
            gid: own.map_or(0, |gid| gid.index),
            path_mtu: path_mtu.min(opened.number("active_mtu")?),
            programs: String::new(),
            lacks,
            via: None,
            guest: None,
        };
        peer.programs = peer.wish(PATIENCE, "programs")?;
        Ok(peer)
    }

    /// The addresses of both ends, ours first.
    pub(crate) fn addresses(&self, family: Family) -> Outcome<[IpAddr; 2]> {
        self.addresses[family as usize].ok_or_else(|| format!("no {}", family.name()).into())
    }

    /// Whose its adapter is, in short.
    pub(crate) const fn kind(&self) -> &'static str {
        if self.is_rxe { "rxe" } else { "the peer" }
    }

    /// Why our adapter, as it was chosen, would take nothing that the peer sends over IPv4, and
    /// what to say instead.
    pub(crate) fn unverifiable(&self) -> Option<String> {
        let via = self.via.as_ref().filter(|via| via.starts_with("udp:"))?;
        let is_met = self.is_rxe && self.addresses[Family::V4 as usize].is_some();
        (is_met && !via.contains("verify=off")).then(|| {
            format!(
                "rxe counts in the identification of IPv4, which the ICRC covers and a UDP socket \
                 does not show: nothing that it sends can be verified; say --via {via},verify=off, \
                 or choose IPv6"
            )
        })
    }

    /// Why it cannot be talked with so.
    pub(crate) fn unreachable(&self, family: Family, path_mtu: u64) -> Option<String> {
        match (self.addresses[family as usize], family) {
            (None, Family::Vlan) => Some("no VLAN is laid to it".to_owned()),
            (None, Family::V4 | Family::V6) => {
                Some(format!("no {} address at both ends", family.name()))
            }
            (Some(_), _) => (path_mtu > self.path_mtu)
                .then(|| format!("the interfaces carry a path MTU of {}", self.path_mtu)),
        }
    }

    /// Why it cannot do what needs that.
    pub(crate) fn without(&self, need: Option<Need>) -> Option<String> {
        let found = self.lacks.iter().find(|(known, _)| Some(*known) == need);
        found.map(|(need, why)| format!("its adapter has no {}: {why}", need.name()))
    }

    /// Whether it has a stock program.
    pub(crate) fn has(&self, program: &str) -> bool {
        self.programs.lines().any(|it| it == program)
    }

    /// Has its host do something; says what that printed.
    pub(crate) fn wish(&self, patience: Duration, line: &str) -> Outcome<String> {
        let at = wishes(self.agent)?;
        let asked = || -> io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(3))?;
            writeln!(stream, "{line}")?;
            let mut said = Vec::new();
            InTime::new(stream, patience).take(MOST_SAID).read_to_end(&mut said)?;
            if said.len() as u64 == MOST_SAID {
                return Err(io::Error::other("what it says has no end"));
            }
            Ok(plain(&said))
        };
        let said = asked().map_err(|why| {
            let hint = match why.kind() {
                ErrorKind::ConnectionRefused => "; is kit.sh running there?",
                _ => "",
            };
            format!("{at} grants no wish: {line}: {why}{hint}")
        })?;
        guest::ended(&said, line)
    }
}

/// `vendor_id` of `rdma_rxe`.
const RXE: u64 = 0xff_ffff;

/// `IBV_GID_TYPE_ROCE_V2`.
const ROCE_V2: &str = "2";

/// An address that the peer's adapter speaks RoCEv2 with.
pub(crate) struct TheirGid {
    pub(crate) index: u64,
    pub(crate) address: IpAddr,
    pub(crate) netdev: String,
}

/// All of them, of a device that is open.
pub(crate) fn gids(agent: &mut Agent) -> Outcome<Vec<TheirGid>> {
    let answer = agent.ask("gids")?;
    let read = |gid: &str| {
        let [index, address, ROCE_V2, netdev] = gid.split(',').collect::<Vec<_>>()[..] else {
            return None;
        };
        let address: Ipv6Addr = address.parse().ok()?;
        Some(TheirGid {
            index: index.parse().ok()?,
            address: Gid::from_ip(IpAddr::V6(address)).to_ip(),
            netdev: netdev.to_owned(),
        })
    };
    Ok(answer.all("gid").filter_map(read).collect())
}

/// `HOST[:PORT]`: a name or an address.
fn locate(host: &str) -> Outcome<SocketAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, agent::PORT));
    }
    let mut found = match host.contains(':') {
        true => host.to_socket_addrs(),
        false => (host, agent::PORT).to_socket_addrs(),
    }
    .map_err(|why| format!("{host}: {why}"))?;
    found.next().ok_or_else(|| format!("{host} has no address").into())
}

/// The two addresses, of one family, whose first bits agree longest: those of one network.
fn nearest(
    here: &[IpAddr],
    there: &[IpAddr],
    is_family: fn(&IpAddr) -> bool,
) -> Option<[IpAddr; 2]> {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    let of_family = |address: &&IpAddr| {
        let is_link_local = matches!(address, IpAddr::V6(it) if it.is_unicast_link_local());
        is_family(address) && !is_link_local
    };
    let here = here.iter().filter(of_family);
    let pairs = here.flat_map(|one| there.iter().filter(of_family).map(|other| [*one, *other]));
    pairs
        .filter(|[one, other]| one != other)
        .max_by_key(|[one, other]| (bits(*one) ^ bits(*other)).leading_zeros())
}

/// Which adapter it is, and its firmware.
fn card(opened: &Answer) -> Outcome<String> {
    let [vendor, part] = [opened.number("vendor")?, opened.number("part")?];
    let known = CARDS.iter().find(|(ids, _)| *ids == (vendor, part));
    let card = match known {
        Some((_, name)) => (*name).to_owned(),
        None => format!("vendor {vendor:#06x}, part {part}"),
    };
    Ok(match opened.text("fw")? {
        "-" => card,
        firmware => format!("{card}, firmware {firmware}"),
    })
}

/// `vendor_id` and `vendor_part_id` of adapters.
#[rustfmt::skip]
const CARDS: &[((u64, u64), &str)] = &[
    ((RXE, 0), "rdma_rxe"),
    ((0x02c9, 4115), "ConnectX-4"), ((0x02c9, 4117), "ConnectX-4 Lx"),
    ((0x02c9, 4119), "ConnectX-5"), ((0x02c9, 4121), "ConnectX-5 Ex"),
    ((0x02c9, 4123), "ConnectX-6"), ((0x02c9, 4125), "ConnectX-6 Dx"),
    ((0x02c9, 4127), "ConnectX-6 Lx"), ((0x02c9, 4129), "ConnectX-7"),
    ((0x8086, 0x1592), "E810-C"), ((0x8086, 0x1593), "E810-C"), ((0x8086, 0x159b), "E810-XXV"),
];

/// What an adapter has not: it is asked to make one of each.
fn lacks(agent: &mut Agent, opened: &Answer) -> Outcome<Vec<(Need, String)>> {
    let mut lacks = Vec::new();
    if opened.number("atomic")? == 0 {
        lacks.push((Need::Atomic, "atomic_cap is 0".to_owned()));
    }
    agent.ask("pd")?;
    agent.ask("cq depth=16")?;
    let lines = [
        (Need::Uc, "qp pd=0 cq=0 type=uc"),
        (Need::Ud, "qp pd=0 cq=0 type=ud"),
        (Need::Srq, "srq pd=0 depth=16"),
        (Need::Window, "mw pd=0 type=2"),
    ];
    for (need, line) in lines {
        if let Some(why) = agent.try_to(line)? {
            lacks.push((need, why));
        }
    }
    Ok(lacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_at_the_last_port_has_no_kit() {
        let wishes = |agent: &str| {
            let at = wishes(agent.parse().expect("an address"));
            at.map_err(|why| why.to_string()).map(|at| at.to_string())
        };
        assert_eq!(wishes("[::1]:7471"), Ok("[::1]:7472".to_owned()));
        let why = "192.0.2.1:65535: its kit would need the port behind that".to_owned();
        assert_eq!(wishes("192.0.2.1:65535"), Err(why));
    }
}
