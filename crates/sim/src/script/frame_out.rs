//! Frames out of the device: what stands in one, and whether it is what a script says.
//!
//! A frame is a name and a list of facts, each called as scripts call it. Printing and comparing
//! both go over that list, so nothing that can be seen can be missed.

use std::net::IpAddr;

use roxe_wire::opcode::Operation;
use roxe_wire::{
    Addressing, Body, FlushSelectivity, NakCode, Opcode, Packet, Qpn, Syndrome, pad_for,
};

use crate::peer::Peer;

use super::mad::{self, Facts, Message, Sender};
use super::mistake::{Mistake, Stop};
use super::parameters::{ATOMIC_ACK, NAK_CODES};
use super::symbols::Numbers;
use super::syntax::{Arguments, Bytes, PacketForm, PacketName, Value};

/// A frame that left.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    opcode: &'static Opcode,
    name: &'static str,
    facts: Facts,
    payload: Vec<u8>,
    /// Bytes between payload and ICRC.
    pad: Vec<u8>,
    /// What it says as a management datagram, and the transaction ID of what that answers.
    message: Option<(&'static Message, Option<u64>)>,
}

/// Something that stands in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Flag(bool),
    Number(u64),
    Word(&'static str),
    List(Vec<&'static str>),
    Address(IpAddr),
}

/// What must stand in a frame of a queue pair where a script says nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct OurSide {
    pub(super) own_qp: Qpn,
    pub(super) peer_qp: Qpn,
    pub(super) p_key: u16,
    pub(super) q_key: u32,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    pub(super) kind: Peer,
    /// 0 for none.
    pub(super) vlan: u16,
    pub(super) priority: u8,
    /// What its connection manager calls its adapter.
    pub(super) guid: u64,
}

/// Takes a packet apart: all its bytes, with an ICRC whose value nobody looks at.
pub(super) fn see(packet: &[u8], addressing: &Addressing) -> Result<Seen, String> {
    let parsed = Packet::parse(Body::whole(packet)).map_err(|reason| reason.to_string())?;
    let headers = &parsed.headers;
    let bth = &headers.bth;
    let mut facts = vec![
        ("psn", Fact::Number(u64::from(bth.psn.get()))),
        ("ack-req", Fact::Flag(bth.ack_req)),
        ("solicited", Fact::Flag(bth.solicited)),
        ("qpn", Fact::Number(u64::from(bth.dest_qp.get()))),
        ("pkey", Fact::Number(u64::from(bth.p_key.0))),
        ("mig", Fact::Number(u64::from(bth.mig_req))),
        ("fecn", Fact::Number(u64::from(bth.fecn))),
        ("becn", Fact::Number(u64::from(bth.becn))),
        ("reserved-6", Fact::Number(u64::from(bth.reserved_6))),
        ("reserved-7", Fact::Number(u64::from(bth.reserved_7))),
        ("pad", Fact::Number(u64::from(bth.pad))),
    ];
    let mut name = match parsed.opcode.operation {
        Operation::AtomicAcknowledge => ATOMIC_ACK,
        _ => parsed.opcode.short_name(),
    };
    if let Some(deth) = headers.deth {
        facts.push(("qkey", Fact::Number(u64::from(deth.q_key.0))));
        facts.push(("source-qp", Fact::Number(u64::from(deth.source_qp.get()))));
    }
    if let Some(reth) = headers.reth {
        facts.push(("va", Fact::Number(reth.va)));
        facts.push(("rkey", Fact::Number(u64::from(reth.r_key.0))));
        facts.push(("len", Fact::Number(u64::from(reth.dma_len))));
    }
    if let Some(atomic) = headers.atomic_eth {
        facts.push(("va", Fact::Number(atomic.va)));
        facts.push(("rkey", Fact::Number(u64::from(atomic.r_key.0))));
        if parsed.opcode.operation == Operation::FetchAdd {
            facts.push(("add", Fact::Number(atomic.swap_add)));
        } else {
            facts.push(("compare", Fact::Number(atomic.compare)));
            facts.push(("swap", Fact::Number(atomic.swap_add)));
        }
    }
    if let Some(aeth) = headers.aeth {
        let plain = parsed.opcode.operation == Operation::Acknowledge;
        match aeth.syndrome {
            Syndrome::Ack(credits) => {
                if plain {
                    name = "ACK";
                }
                facts.push(("credits", Fact::Number(u64::from(credits.code()))));
            }
            Syndrome::RnrNak(timer) => {
                name = "RNR_NAK";
                facts.push(("timer", Fact::Number(u64::from(timer.code()))));
            }
            Syndrome::Nak(code) => {
                name = "NAK";
                facts.push(("code", Fact::Word(nak_name(code))));
            }
        }
        facts.push(("msn", Fact::Number(u64::from(aeth.msn.get()))));
    }
    if let Some(ack) = headers.atomic_ack_eth {
        facts.push(("value", Fact::Number(ack.original)));
    }
    if let Some(imm) = headers.imm_dt {
        facts.push(("imm", Fact::Number(u64::from(imm.0))));
    }
    if let Some(ieth) = headers.ieth {
        facts.push(("inv", Fact::Number(u64::from(ieth.r_key.0))));
    }
    if let Some(feth) = headers.feth {
        let placed = [
            ("global", feth.placement.global_visibility),
            ("persistent", feth.placement.persistence),
        ];
        let placed = placed.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect();
        facts.push(("placement", Fact::List(placed)));
        facts.push((
            "selectivity",
            Fact::Word(match feth.selectivity {
                FlushSelectivity::Range => "range",
                FlushSelectivity::MemoryRegion => "region",
                FlushSelectivity::Reserved(_) => "reserved",
            }),
        ));
    }
    facts.extend([
        ("from", Fact::Address(addressing.source)),
        ("to", Fact::Address(addressing.destination)),
        ("sport", Fact::Number(u64::from(addressing.source_port))),
        ("tclass", Fact::Number(u64::from(addressing.traffic_class.0))),
        ("hop", Fact::Number(u64::from(addressing.hop_limit))),
        ("vlan", Fact::Number(addressing.vlan.map_or(0, |tag| u64::from(tag.id())))),
        ("pcp", Fact::Number(addressing.vlan.map_or(0, |tag| u64::from(tag.priority())))),
    ]);
    let payload = parsed.payload.pieces().concat();
    let after = parsed.opcode.headers_len + payload.len();
    let pad = packet[after..after + usize::from(bth.pad)].to_vec();
    Ok(Seen { opcode: parsed.opcode, name, facts, payload, pad, message: None })
}

fn nak_name(code: NakCode) -> &'static str {
    NAK_CODES.get(usize::from(code.code())).copied().unwrap_or("reserved")
}

impl Seen {
    /// The sender's queue pair, in datagrams.
    pub(super) fn source_qp(&self) -> Option<Qpn> {
        match self.fact("source-qp") {
            Some(Fact::Number(qpn)) => Some(Qpn::new(*qpn as u32)),
            _ => None,
        }
    }

    /// The queue pair that it is for.
    pub(super) fn dest_qp(&self) -> Option<Qpn> {
        match self.fact("qpn") {
            Some(Fact::Number(qpn)) => Some(Qpn::new(*qpn as u32)),
            _ => None,
        }
    }

    /// Reads it as a message of connection management, if it is one. `tid_of` says from its name,
    /// its sender's name for the connection and the receiver's which transaction ID it must have.
    pub(super) fn open(&mut self, tid_of: impl Fn(&'static str, u64, u64) -> Option<u64>) {
        let Some((message, facts, private)) = mad::read(&self.payload) else { return };
        (self.name, self.payload) = (message.name, private);
        self.facts.extend(facts);
        let own = self.number(message.own_name());
        let other =
            if self.fact("request-id").is_some() { own } else { self.number("remote-comm-id") };
        self.message = Some((message, tid_of(message.name, own, other)));
    }

    /// The message's name, its sender's name for the connection, and its transaction ID.
    pub(super) fn transaction(&self) -> Option<(&'static str, u64, u64)> {
        let (message, _) = self.message?;
        Some((message.name, self.number(message.own_name()), self.number("tid")))
    }

    fn number(&self, name: &str) -> u64 {
        match self.fact(name) {
            Some(Fact::Number(number)) => *number,
            _ => 0,
        }
    }

    fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|(known, _)| *known == name).map(|(_, fact)| fact)
    }

    /// What must stand there if a script says nothing; `None` when it must say something.
    fn default(&self, name: &str, ours: &OurSide) -> Option<Default> {
        let number = |value: u64| Some(Default::Must(Fact::Number(value)));
        match name {
            "psn" if self.message.is_some() => Some(Default::Any),
            "solicited" if self.message.is_some() => Some(Default::Must(Fact::Flag(true))),
            "ack-req" | "solicited" => Some(Default::Must(Fact::Flag(false))),
            "qpn" => number(u64::from(ours.peer_qp.get())),
            "pkey" => number(u64::from(ours.p_key)),
            "mig" => number(ours.kind.conduct().mig_req.into()),
            "reserved-6" => number(ours.kind.reserved_6().into()),
            "fecn" | "becn" | "reserved-7" => number(0),
            // Private data are shown without the zeros behind them.
            "pad" if self.message.is_some() => number(0),
            "pad" => number(u64::from(pad_for(self.payload.len()))),
            "qkey" => number(u64::from(ours.q_key)),
            "source-qp" => number(u64::from(ours.own_qp.get())),
            "credits" => number(31),
            "selectivity" => Some(Default::Must(Fact::Word("range"))),
            "msn" | "sport" => Some(Default::Any),
            "from" => Some(Default::Must(Fact::Address(ours.from))),
            "to" => Some(Default::Must(Fact::Address(ours.to))),
            "tclass" => number(u64::from(ours.traffic_class)),
            "hop" => number(u64::from(ours.hop_limit)),
            "vlan" => number(u64::from(ours.vlan)),
            "pcp" => number(u64::from(ours.priority)),
            _ => self.message.and_then(|(message, tid)| {
                let by = Sender { from: ours.from, to: ours.to, guid: ours.guid, tid };
                let ports = [self.number("port"), self.number("source-port")];
                match (name, tid) {
                    ("tid", Some(tid)) => number(tid),
                    // Who begins something chooses it.
                    ("tid", None) => Some(Default::Any),
                    _ => message.usual(name, &by, ports).map(Default::Must),
                }
            }),
        }
    }

    /// The frame in one line, as a script would write it.
    pub(super) fn show(&self, ours: Option<&OurSide>) -> String {
        let mut line = self.name.to_owned();
        for (name, fact) in &self.facts {
            let usual = ours.and_then(|ours| self.default(name, ours));
            let silent = match usual {
                Some(Default::Must(usual)) => usual == *fact,
                Some(Default::Any) => matches!(*name, "sport" | "psn" | "tid"),
                None => false,
            };
            match fact {
                Fact::Flag(true) if !silent => line += &format!(" {name}"),
                Fact::Flag(_) => {}
                _ if silent => {}
                _ => line += &format!(" {name} {}", show_fact(name, fact)),
            }
        }
        if !self.payload.is_empty() {
            line += &format!(" {}", show_bytes(&self.payload));
        }
        line
    }

    /// Whether this is what `form` says; else the first difference.
    pub(super) fn compare(
        &self,
        form: &PacketForm,
        ours: &OurSide,
        numbers: &Numbers<'_>,
    ) -> Result<(), Stop> {
        let same_name = match form.name {
            PacketName::Ack => self.name == "ACK",
            PacketName::RnrNak => self.name == "RNR_NAK",
            PacketName::Nak => self.name == "NAK",
            PacketName::Short(short) => self.opcode.short_name() == short,
            PacketName::Row(row) => self.opcode == row,
            PacketName::Raw(code) => self.opcode.code == code,
            PacketName::Cm(message) => self.name == message.name,
        };
        let is_message = matches!(form.name, PacketName::Cm(_));
        if !same_name || is_message != self.message.is_some() {
            let name = self.name;
            let is_an = ["A", "RNR", "RTU"].iter().any(|letters| name.starts_with(letters));
            let an = if is_an { "an" } else { "a" };
            return Err(format!("it is {an} {name}").into());
        }
        // What more or less is told of a reason depends on the reason.
        let is_information = |name: &str| is_message && name.starts_with("ari-");
        let strange = form.arguments.named.iter().find(|(name, _)| self.fact(name).is_none());
        if let Some((name, _)) = strange {
            let what = format!("{} has no `{name}`", self.name);
            return Err(match is_information(name) {
                true => what.into(),
                false => Mistake::at(name, what).into(),
            });
        }
        let usual = |name: &str| match self.default(name, ours) {
            None if is_information(name) => Some(Default::Must(Fact::Number(0))),
            usual => usual,
        };
        compare(form.name.text(), &self.facts, &form.arguments, numbers, usual)?;
        Ok(self.check_bytes(form.arguments.payload.as_ref())?)
    }

    fn check_bytes(&self, said: Option<&Bytes>) -> Result<(), String> {
        if self.pad.iter().any(|byte| *byte != 0) {
            return Err("pad bytes are not 0".to_owned());
        }
        match said {
            Some(Bytes::Any) => Ok(()),
            Some(Bytes::These(bytes)) if self.message.is_some() => {
                differ(&self.payload, mad::without_zeros(bytes))
            }
            Some(Bytes::These(bytes)) => differ(&self.payload, bytes),
            None => differ(&self.payload, &[]),
        }
    }

    /// Whether the sender's UDP port is one that senders may choose.
    pub(super) fn source_port(&self) -> u64 {
        match self.fact("sport") {
            Some(Fact::Number(port)) => *port,
            _ => 0,
        }
    }
}

/// What a fact must be when nothing is said.
pub(super) enum Default {
    Must(Fact),
    Any,
}

/// Whether all facts of something are what is said of them, or else what is usual.
pub(super) fn compare(
    what: &str,
    facts: &Facts,
    arguments: &Arguments,
    numbers: &Numbers<'_>,
    usual: impl Fn(&str) -> Option<Default>,
) -> Result<(), Stop> {
    for (name, fact) in facts {
        let wanted = match arguments.get(name) {
            Some(Value::Any) => continue,
            Some(said) => said_fact(said, name, numbers)?,
            None => match usual(name) {
                Some(Default::Any) => continue,
                Some(Default::Must(usual)) => usual,
                None => {
                    let missing = format!("{what} needs `{name}`, or `{name} *`");
                    return Err(Mistake::at(what, missing).into());
                }
            },
        };
        if wanted != *fact {
            let (is, wanted) = (show_fact(name, fact), show_fact(name, &wanted));
            return Err(match fact {
                Fact::Flag(_) => format!("{name} is {is}"),
                _ => format!("{name} is {is}, not {wanted}"),
            }
            .into());
        }
    }
    Ok(())
}

pub(super) fn said_fact(said: &Value, name: &str, numbers: &Numbers<'_>) -> Result<Fact, Mistake> {
    Ok(match said {
        Value::Flag => Fact::Flag(true),
        Value::Number(_) => Fact::Number(numbers.or(name, 0)?),
        Value::Word(word) => {
            let known = NAK_CODES.iter().chain(&["range", "region"]).chain(&mad::WORDS);
            Fact::Word(known.copied().find(|known| *known == word).unwrap_or(""))
        }
        Value::List(words) => {
            let known = ["global", "persistent"].into_iter();
            Fact::List(known.filter(|known| words.iter().any(|word| word == known)).collect())
        }
        Value::Address(address) => Fact::Address(*address),
        Value::Any | Value::Pieces(_) => return Err(Mistake::at(name, "it is no such thing")),
    })
}

pub(super) fn show_fact(name: &str, fact: &Fact) -> String {
    let in_hex = ["va", "rkey", "qkey", "pkey", "imm", "inv", "qpn", "source-qp", "sport"];
    let ends_in_hex = ["-id", "tid", "guid", "-qpn", "-q-key", "-lid", "-key"];
    match fact {
        Fact::Number(number)
            if in_hex.contains(&name) || ends_in_hex.iter().any(|end| name.ends_with(end)) =>
        {
            format!("0x{number:x}")
        }
        Fact::Number(number) => number.to_string(),
        Fact::Flag(flag) => if *flag { "set" } else { "not set" }.to_owned(),
        Fact::Word(word) => (*word).to_owned(),
        Fact::List(words) if words.is_empty() => "none".to_owned(),
        Fact::List(words) => words.join(","),
        Fact::Address(address) => address.to_string(),
    }
}

/// The first difference between bytes that are there and bytes that should be.
pub(super) fn differ(there: &[u8], wanted: &[u8]) -> Result<(), String> {
    differ_in_len(there.len(), wanted.len())?;
    match there.iter().zip(wanted).position(|(a, b)| a != b) {
        Some(at) => Err(format!(
            "byte {at} of its data is 0x{:02x}, not 0x{:02x}: {}",
            there[at],
            wanted[at],
            show_bytes(there)
        )),
        None => Ok(()),
    }
}

/// Whether there are more or fewer bytes than should be.
pub(super) fn differ_in_len(there: usize, wanted: usize) -> Result<(), String> {
    match there == wanted {
        true => Ok(()),
        false => Err(format!("its data is {there} bytes long, not {wanted}")),
    }
}

/// Bytes as a script would write them, shortened.
pub(super) fn show_bytes(bytes: &[u8]) -> String {
    let printable = |byte: &u8| byte.is_ascii_graphic() && *byte != b'"' || *byte == b' ';
    if bytes.len() <= 40 && bytes.iter().all(printable) {
        return format!("\"{}\"", String::from_utf8_lossy(bytes));
    }
    let first = usize::from(bytes[0]);
    let patterned = |(at, byte): (usize, &u8)| usize::from(*byte) == (first + at) % 251;
    if bytes.len() > 4 && bytes.iter().enumerate().all(patterned) {
        return format!("pattern({first}..{})", first + bytes.len());
    }
    if bytes.iter().all(|byte| *byte == 0) {
        return format!("zeros({})", bytes.len());
    }
    let hex: String = bytes.iter().take(24).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() <= 24 { format!("hex:{hex}") } else { format!("hex:{hex}… ({})", bytes.len()) }
}
