//! What can be seen of a script before it runs: names of objects and of counters, and whether each
//! frame into the device can be made.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use roxe_device::counters::{NAMES, QpCounters};
use roxe_wire::opcode::{Header as H, Service as WireService};
use roxe_wire::{Opcode, PKey, QKey, Qpn};

use super::cm::COUNTERS;
use super::frame_in::{self, PeerSide};
use super::mistake::{Mistake, ParseError, suggest};
use super::symbols::{NoSymbols, Numbers};
use super::syntax::{
    Arguments, CallVerb, Line, ObjectKind as K, PacketForm, PacketName, Script, Service, Statement,
    Value,
};

/// Every statement that is wrong whatever the device does.
pub(super) fn check(file: &str, script: &Script) -> Vec<ParseError> {
    if script.lines.is_empty() {
        let what = "there is no statement in it".to_owned();
        return vec![ParseError { file: file.to_owned(), line: 1, column: 1, what }];
    }
    let mut names = Names(BTreeMap::from([("pd", (K::Pd, true)), ("cq", (K::Cq, true))]));
    let lines = script.lines.iter().enumerate();
    let found = lines.filter_map(|(at, line)| {
        let checked = match &line.statement {
            Statement::Device(_) if at != 0 => Err("`device` comes first".into()),
            _ => names.check(line),
        };
        checked.err().map(|mistake| line.place(file, mistake))
    });
    found.collect()
}

/// What names stand for, and whether that is certain: what was to fail may be there or not.
struct Names<'a>(BTreeMap<&'a str, (K, bool)>);

impl<'a> Names<'a> {
    fn check(&mut self, line: &'a Line) -> Result<(), Mistake> {
        match &line.statement {
            Statement::Device(_) | Statement::Turn | Statement::Quiet => Ok(()),
            Statement::Make { object, name, arguments, fails } => {
                let there = self.0.get(name.as_str()).is_some_and(|(_, certain)| *certain);
                // A second mistake shall not follow from this one.
                self.0.insert(name, (*object, fails.is_none()));
                if there || name == "peer" || name == "device" {
                    return Err(Mistake::at(name, format!("{name} is there already")));
                }
                if *object == K::Listener {
                    self.cm()?;
                }
                self.arguments(arguments)
            }
            Statement::PostReceive { queue, arguments, .. } => {
                let takes = |kind| matches!(kind, K::Qp(_) | K::Srq);
                self.is(queue, "queue that takes receives", takes)?;
                self.arguments(arguments)
            }
            Statement::PostSend { qp, arguments, .. } => {
                self.qp(qp)?;
                if let Some(handle) = arguments.word("to") {
                    self.is(handle, "address handle", |kind| kind == K::Ah)?;
                }
                self.arguments(arguments)
            }
            Statement::Call { verb, target, arguments, fails } => {
                if matches!(verb, CallVerb::Connect | CallVerb::Resolve) {
                    self.cm()?;
                    let there = self.0.get(target.as_str()).is_some_and(|(_, certain)| *certain);
                    let kind =
                        if *verb == CallVerb::Connect { K::Connection } else { K::Resolution };
                    self.0.insert(target, (kind, fails.is_none()));
                    if there || target == "device" || target == "peer" {
                        return Err(Mistake::at(target, format!("{target} is there already")));
                    }
                    return self.arguments(arguments);
                }
                let of_device = matches!(
                    verb,
                    CallVerb::AddGid | CallVerb::RemoveGid | CallVerb::Hold | CallVerb::Release
                );
                if of_device != (target == "device") {
                    let what = format!("{target} is no object of this verb");
                    return Err(Mistake::at(target, what));
                }
                if !of_device {
                    let kind = self.is(target, "object of this verb", |kind| takes(*verb, kind))?;
                    let of_srq = |name| matches!(name, "limit" | "depth");
                    let mut said = arguments.named.iter().map(|(name, _)| *name);
                    let other = said.find(|name| of_srq(*name) != (kind == K::Srq));
                    if let Some(name) = other.filter(|_| *verb == CallVerb::Modify) {
                        return Err(Mistake::at(name, format!("{target} has no `{name}`")));
                    }
                    let named_still = matches!(
                        kind,
                        K::Mr | K::Mw | K::Qp(_) | K::Connection | K::Resolution | K::Question
                    );
                    if *verb == CallVerb::Destroy && fails.is_none() && !named_still {
                        self.0.remove(target.as_str());
                    }
                }
                self.arguments(arguments)
            }
            Statement::Fill { place, .. } | Statement::Memory { place, .. } => {
                self.region(&place.region)
            }
            Statement::Into { qp, packet } => {
                let service = self.qp(qp)?;
                self.arguments(&packet.arguments)?;
                has_fields(packet, frame_in::row_of(packet.name, service)?)?;
                let numbers = Numbers { symbols: &NoSymbols, arguments: &packet.arguments, qp };
                frame_in::build(packet, &somebody(service, &packet.arguments), &numbers).map(drop)
            }
            Statement::Out { qp, forms } => {
                let service = self.qp(qp)?;
                for form in forms {
                    self.arguments(&form.arguments)?;
                    match frame_in::row_of(form.name, service)? {
                        None => {}
                        row => has_fields(form, row)?,
                    }
                }
                Ok(())
            }
            Statement::Completion { qp, arguments, .. } => {
                qp.as_ref().map(|qp| self.qp(qp)).transpose()?;
                self.arguments(arguments)
            }
            Statement::Event { object, name, arguments } => {
                let has = |kind| tells(kind, name);
                self.is(object, "object with this event", has)?;
                let brought = match name.as_str() {
                    "connect-request" => Some(K::Connection),
                    "datagram-request" => Some(K::Question),
                    _ => None,
                };
                if let Some(kind) = brought {
                    let name = arguments.word("as").ok_or_else(|| format!("{name} needs `as`"))?;
                    if self.0.insert(name, (kind, true)).is_some() || name == "peer" {
                        return Err(Mistake::at(name, format!("{name} is there already")));
                    }
                }
                self.arguments(arguments)
            }
            Statement::Counter { qp: None, name, .. } => {
                let known: Vec<_> = NAMES.iter().map(|row| row.name).collect();
                counter(name, "counter", &known)
            }
            Statement::Counter { qp: Some(qp), name, .. } => {
                self.qp(qp)?;
                if matches!(self.0.get(qp.as_str()), Some((K::Cm, _))) {
                    let known: Vec<_> = COUNTERS.iter().map(|(name, _)| *name).collect();
                    return counter(name, "counter of a connection manager", &known);
                }
                let counters = QpCounters::new();
                let known: Vec<_> = counters.iter().map(|(name, _)| name).collect();
                counter(name, "counter of a queue pair", &known)
            }
            Statement::State { qp, .. } | Statement::Why { qp, .. } => self.qp(qp).map(drop),
        }
    }

    fn is(&self, name: &str, what: &str, wanted: impl Fn(K) -> bool) -> Result<K, Mistake> {
        match self.0.get(name) {
            Some((kind, _)) if wanted(*kind) => Ok(*kind),
            _ => {
                let known = self.0.iter().filter(|(_, (kind, _))| wanted(*kind));
                let near = suggest(name, known.map(|(name, _)| *name));
                Err(Mistake::at(name, format!("{name} is no {what}{near}")))
            }
        }
    }

    /// The service of a queue pair.
    fn qp(&self, name: &str) -> Result<WireService, Mistake> {
        let kind = self.is(name, "queue pair", |kind| matches!(kind, K::Qp(_) | K::Cm))?;
        Ok(match kind {
            K::Qp(Service::Uc) => WireService::Uc,
            K::Qp(Service::Ud | Service::Gsi) | K::Cm => WireService::Ud,
            _ => WireService::Rc,
        })
    }

    /// Whether there is a connection manager.
    fn cm(&self) -> Result<(), Mistake> {
        let there = self.0.values().any(|(kind, _)| *kind == K::Cm);
        if there { Ok(()) } else { Err("the device has no `cm`".into()) }
    }

    fn region(&self, name: &str) -> Result<(), Mistake> {
        self.is(name, "memory region", |kind| kind == K::Mr).map(drop)
    }

    /// The names in a statement's arguments.
    fn arguments(&self, arguments: &Arguments) -> Result<(), Mistake> {
        for (argument, value) in &arguments.named {
            match (*argument, value) {
                ("pd", Value::Word(name)) => {
                    self.is(name, "protection domain", |kind| kind == K::Pd)?;
                }
                ("cq" | "recv-cq", Value::Word(name)) => {
                    self.is(name, "completion queue", |kind| kind == K::Cq)?;
                }
                ("srq", Value::Word(name)) => {
                    self.is(name, "shared receive queue", |kind| kind == K::Srq)?;
                }
                ("mw", Value::Word(name)) => {
                    self.is(name, "memory window", |kind| kind == K::Mw)?;
                }
                ("mr", Value::Word(name)) => self.region(name)?,
                ("qp", Value::Word(name)) => drop(self.qp(name)?),
                (_, Value::Pieces(pieces)) => {
                    pieces.iter().try_for_each(|(place, _)| self.region(&place.region))?;
                }
                (_, Value::Number(expression)) => {
                    if let Some((object, part)) = &expression.symbol {
                        self.symbol(object, part)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn symbol(&self, object: &str, part: &str) -> Result<(), Mistake> {
        if object == "peer" && part == "qpn" {
            return Ok(());
        }
        let what = format!("object with `{part}`");
        let has = |kind| match part {
            "va" | "lkey" => kind == K::Mr,
            "rkey" => matches!(kind, K::Mr | K::Mw),
            "psn" => kind == K::Connection,
            "id" => matches!(kind, K::Connection | K::Resolution),
            _ => matches!(kind, K::Qp(_)),
        };
        self.is(object, &what, has).map(drop)
    }
}

/// Whether a packet has every field that is said of it; `None` is one of a BTH alone.
fn has_fields(form: &PacketForm, row: Option<&Opcode>) -> Result<(), Mistake> {
    let answer = match form.name {
        PacketName::RnrNak => "timer",
        PacketName::Nak => "code",
        _ => "credits",
    };
    let of_header = |name: &str| {
        Some(match name {
            "va" | "rkey" => &[H::Reth, H::AtomicEth][..],
            "len" => &[H::Reth],
            "compare" | "swap" | "add" => &[H::AtomicEth],
            "credits" | "timer" | "code" | "msn" => &[H::Aeth],
            "value" => &[H::AtomicAckEth],
            "imm" => &[H::ImmDt],
            "inv" => &[H::Ieth],
            "qkey" | "source-qp" => &[H::Deth],
            "placement" | "selectivity" => &[H::Feth],
            _ => return None,
        })
    };
    for (name, _) in &form.arguments.named {
        let Some(headers) = of_header(name) else { continue };
        let there = row.is_some_and(|row| headers.iter().any(|header| row.has(*header)));
        let other_answer = matches!(*name, "credits" | "timer" | "code") && *name != answer;
        if !there || other_answer {
            return Err(Mistake::at(name, format!("{} has no `{name}`", form.name.text())));
        }
    }
    Ok(())
}

/// Whether a verb is about such an object.
const fn takes(verb: CallVerb, kind: K) -> bool {
    match verb {
        CallVerb::Modify => matches!(kind, K::Qp(_) | K::Srq),
        CallVerb::Destroy => !matches!(kind, K::Cm | K::Question),
        CallVerb::Accept | CallVerb::Establish | CallVerb::Reject | CallVerb::Disconnect => {
            matches!(kind, K::Connection)
        }
        CallVerb::Answer => matches!(kind, K::Question),
        CallVerb::Reregister | CallVerb::Lose => matches!(kind, K::Mr),
        CallVerb::Attach | CallVerb::Detach => matches!(kind, K::Qp(_)),
        CallVerb::Notify | CallVerb::Resize => matches!(kind, K::Cq),
        CallVerb::AddGid
        | CallVerb::RemoveGid
        | CallVerb::Hold
        | CallVerb::Release
        | CallVerb::Connect
        | CallVerb::Resolve => false,
    }
}

/// Whether such an object has such an event.
fn tells(kind: K, event: &str) -> bool {
    match kind {
        K::Qp(_) | K::Cq | K::Srq => !OF_CM.contains(&event) || event == "established",
        K::Listener => matches!(event, "connect-request" | "datagram-request"),
        K::Connection => OF_CM.contains(&event),
        K::Resolution => matches!(event, "resolved" | "unreachable"),
        _ => false,
    }
}

/// What connections, listeners and resolutions tell.
const OF_CM: &[&str] = &[
    "connect-request",
    "connect-response",
    "connect-error",
    "established",
    "rejected",
    "unreachable",
    "disconnected",
    "timewait-exit",
    "datagram-request",
    "resolved",
];

fn counter(name: &str, what: &str, known: &[&str]) -> Result<(), Mistake> {
    if known.contains(&name) {
        return Ok(());
    }
    let near = suggest(name, known.iter().copied());
    Err(Mistake::at(name, format!("{name} is no {what}{near}")))
}

/// A peer that stands for any other: whether a frame can be made does not depend on it.
fn somebody(service: WireService, said: &Arguments) -> PeerSide {
    let six = ["from", "to"].iter().any(|end| said.address(end).is_some_and(|end| end.is_ipv6()));
    let any = if six { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    PeerSide {
        service,
        dest_qp: Qpn::default(),
        source_qp: Qpn::default(),
        q_key: QKey(0),
        p_key: PKey::DEFAULT,
        from: any,
        to: any,
        vlan: None,
        tid: None,
    }
}
