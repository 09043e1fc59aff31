//! Statements that post requests, and the memory that these have.

use std::fmt::Write as _;

use roxe_transport::work::CompletionOpcode;

use super::super::mistake::Mistake;
use super::super::objects::{BUFFER_LEN, rights};
use super::super::symbols::Symbols as _;
use super::super::syntax::{Arguments, SendVerb, Value};
use super::agent::says;
use super::objects::{Region, Thing};
use super::{Halt, Live};

/// Where bytes of a request are: a region, from where on, how many.
type Piece = (Region, u64, u32);

/// A request that was posted. The device knows it by its place among all.
pub(super) struct Posted {
    /// What the script calls it.
    pub(super) id: u64,
    /// What it is; of a receive the plain one.
    pub(super) operation: CompletionOpcode,
    places: Vec<Piece>,
    /// The window whose key it changes, and the key before.
    pub(super) renamed: Option<(String, u32)>,
}

impl Live<'_> {
    /// `post recv`.
    pub(super) fn post_receive(&mut self, queue: &str, a: &Arguments) -> Result<(), Halt> {
        if self.terms.by_hand.is_some() {
            return Ok(());
        }
        let id = self.number_or(a, "id", 0)?;
        let (elements, places) = self.pieces(a, None)?;
        let target = match self.objects.get(queue) {
            Some(Thing::Qp(qp)) => format!("qp={}", qp.index),
            Some(Thing::Srq(srq)) => format!("srq={srq}"),
            _ => return Err(self.no("queue that takes receives", queue).into()),
        };
        let request = self.posted.len();
        self.ask(&format!("recv {target} id={request}{elements}"))?;
        self.posted.push(Posted { id, operation: CompletionOpcode::Recv, places, renamed: None });
        Ok(())
    }

    /// `post send` and its like.
    pub(super) fn post_send(
        &mut self,
        verb: SendVerb,
        name: &str,
        a: &Arguments,
    ) -> Result<(), Halt> {
        let qp = self.qp(name)?.index;
        let id = self.number_or(a, "id", 0)?;
        let mut renamed = None;
        let (operation, words) = self.operation(verb, name, a, &mut renamed)?;
        let inline = a.has("inline");
        let (elements, places) = match verb {
            SendVerb::Bind | SendVerb::Register | SendVerb::Invalidate | SendVerb::Flush => {
                (String::new(), Vec::new())
            }
            _ if inline => {
                let hex = hex(a.bytes().unwrap_or_default());
                (format!(" bytes={hex}"), Vec::new())
            }
            SendVerb::CompareSwap | SendVerb::FetchAdd => self.pieces(a, Some(8))?,
            _ => self.pieces(a, None)?,
        };
        let flags: String = [
            (!a.has("unsignaled"), 's'),
            (a.has("solicited"), 'e'),
            (a.has("fence"), 'f'),
            (inline, 'i'),
        ]
        .into_iter()
        .filter_map(|(is, letter)| is.then_some(letter))
        .collect();
        let target = self.target(name, a)?;
        let request = self.posted.len();
        let line = format!("send qp={qp} id={request}{words}{elements}{target} flags={flags}");
        let answer = self.ask(&line)?;
        if let Some((window, _)) = &renamed {
            let (window, key) = (window.clone(), answer.number("rkey")?);
            self.set_key(&window, key);
        }
        self.posted.push(Posted { id, operation, places, renamed });
        Ok(())
    }

    /// Where a datagram goes.
    fn target(&self, qp: &str, a: &Arguments) -> Result<String, Mistake> {
        let Some(handle) = a.word("to") else { return Ok(String::new()) };
        let Some(Thing::Handle(handle)) = self.objects.get(handle) else {
            return Err(self.no("address handle", handle));
        };
        let dest = self.qp(qp)?.values.dest_qp.get();
        let qpn = self.number_or(a, "qpn", u64::from(dest))?;
        let q_key = self.number_or(a, "qkey", u64::from(self.q_key(qp)?.0))?;
        Ok(format!(" ah={handle} rqpn=0x{qpn:x} qkey=0x{q_key:x}"))
    }

    /// What a request does, in words of the agent's.
    fn operation(
        &self,
        verb: SendVerb,
        qp: &str,
        a: &Arguments,
        renamed: &mut Option<(String, u32)>,
    ) -> Result<(CompletionOpcode, String), Mistake> {
        let number = |name: &str| self.number(a, name, Some(qp));
        let need = |name: &str| {
            number(name)?.ok_or_else(|| Mistake::from(format!("this request needs `{name}`")))
        };
        let mut words = String::new();
        let mut say = |word: &str, value: u64| {
            let _ = write!(words, " {word}=0x{value:x}");
        };
        let (operation, op) = match verb {
            SendVerb::Send => match (number("imm")?, number("inv")?) {
                (Some(imm), _) => {
                    say("imm", imm);
                    (CompletionOpcode::Send, "send_imm")
                }
                (None, Some(key)) => {
                    say("inv", key);
                    (CompletionOpcode::Send, "send_inv")
                }
                (None, None) => (CompletionOpcode::Send, "send"),
            },
            SendVerb::Write => match number("imm")? {
                Some(imm) => {
                    say("imm", imm);
                    (CompletionOpcode::RdmaWrite, "write_imm")
                }
                None => (CompletionOpcode::RdmaWrite, "write"),
            },
            SendVerb::Read => (CompletionOpcode::RdmaRead, "read"),
            SendVerb::CompareSwap => {
                say("compare", need("compare")?);
                say("swap", need("swap")?);
                (CompletionOpcode::CompSwap, "cas")
            }
            SendVerb::FetchAdd => {
                say("add", need("add")?);
                (CompletionOpcode::FetchAdd, "faa")
            }
            SendVerb::Invalidate => {
                say("inv", need("key")?);
                (CompletionOpcode::LocalInv, "inv")
            }
            SendVerb::Bind => {
                let name = a.word("mw").ok_or("a bind needs `mw`")?;
                let Some(Thing::Window { index, key }) = self.objects.get(name) else {
                    return Err(self.no("memory window", name));
                };
                let region = self.region(a.word("mr").ok_or("a bind needs `mr`")?)?;
                let next = key & 0xffff_ff00 | key.wrapping_add(1) & 0xff;
                say("mw", *index);
                say("mr", region.index);
                say("va", self.number_or(a, "va", region.va)?);
                say("len", need("len")?);
                say("access", rights(a.list("access")).bits().into());
                say("rkey", self.number_or(a, "key", next.into())?);
                say("old", u64::from(*key));
                *renamed = Some((name.to_owned(), *key));
                (CompletionOpcode::BindMw, "bind")
            }
            // Scripts with these are not run.
            SendVerb::AtomicWrite => (CompletionOpcode::AtomicWrite, "atomic_write"),
            SendVerb::Flush => (CompletionOpcode::Flush, "flush"),
            SendVerb::Register => (CompletionOpcode::RegMr, "reg"),
        };
        if matches!(
            verb,
            SendVerb::Write | SendVerb::Read | SendVerb::CompareSwap | SendVerb::FetchAdd
        ) {
            say("va", need("va")?);
            say("rkey", need("rkey")?);
        }
        Ok((operation, format!(" op={op}{words}")))
    }

    /// The scatter/gather list in the agent's words: what `sge` says, or room in the buffer, filled
    /// with the payload; and where it is.
    fn pieces(&mut self, a: &Arguments, len: Option<u32>) -> Result<(String, Vec<Piece>), Halt> {
        let key = self.number(a, "lkey", None)?;
        let mut places = Vec::new();
        if let Some(Value::Pieces(pieces)) = a.get("sge") {
            for (place, len) in pieces {
                places.push((self.region(&place.region)?, place.offset, *len));
            }
        } else {
            let payload = a.bytes();
            let said = self.number(a, "len", None)?.map(|len| len as u32);
            let len = payload.map(|bytes| bytes.len() as u32).or(said).or(len);
            if let Some(len) = len {
                let at = self.used;
                self.used += u64::from(len).next_multiple_of(8);
                if self.used > BUFFER_LEN as u64 {
                    return Err(Halt::Skip("it posts more than the buffer holds".to_owned()));
                }
                self.poke(self.buffer, at, payload.unwrap_or_default())?;
                places.push((self.buffer, at, len));
            }
        }
        if places.is_empty() {
            return Ok((String::new(), places));
        }
        let element = |(region, at, len): &Piece| {
            let key = key.unwrap_or_else(|| region.l_key.into());
            format!("0x{:x}:{len}:0x{key:x}", region.va.wrapping_add(*at))
        };
        let elements: Vec<_> = places.iter().map(element).collect();
        Ok((format!(" raw={}", elements.join(",")), places))
    }

    /// The first `len` bytes of a completed receive's, or send's, memory behind `skip`.
    pub(super) fn posted_bytes(
        &mut self,
        receive: bool,
        id: u64,
        skip: usize,
        len: usize,
    ) -> Result<Vec<u8>, Halt> {
        let is_it =
            |it: &&Posted| it.id == id && (it.operation == CompletionOpcode::Recv) == receive;
        let posted = self.posted.iter().rev().find(is_it);
        let places = posted.map(|posted| posted.places.clone()).unwrap_or_default();
        let wanted = skip.saturating_add(len);
        let mut all = Vec::new();
        for (region, at, len) in places {
            let len = (len as usize).min(wanted - all.len());
            all.extend(self.peek(region, at, len)?);
        }
        Ok(all.into_iter().skip(skip).collect())
    }

    /// What is in a region.
    pub(super) fn peek(&mut self, region: Region, at: u64, len: usize) -> Result<Vec<u8>, Halt> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let some = (len - bytes.len()).min(MOST_PEEKED);
            // What lies behind a region's end its agent refuses.
            let off = at.saturating_add(bytes.len() as u64);
            let line = format!("peek mr={} off={off} len={some}", region.index);
            let answer = self.ask(&line)?;
            let hex = answer.text("hex")?;
            let read = unhex(hex).filter(|read| read.len() == some);
            bytes.extend(read.ok_or_else(|| says("hex", hex))?);
        }
        Ok(bytes)
    }

    /// Writes into a region.
    pub(super) fn poke(&mut self, region: Region, at: u64, bytes: &[u8]) -> Result<(), Halt> {
        let mut at = at;
        for some in bytes.chunks(MOST_POKED) {
            self.ask(&format!("poke mr={} off={at} hex={}", region.index, hex(some)))?;
            at = at.saturating_add(some.len() as u64);
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The agent's limit.
const MOST_PEEKED: usize = 4096;

/// A line of the agent's has 64 KiB.
const MOST_POKED: usize = 16 << 10;
