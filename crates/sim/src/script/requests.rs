//! Statements that post requests.

use roxe_device::HostMemory;
use roxe_transport::work::{
    AccessFlags, Binding, Data, DatagramTarget, FastRegistration, LocalOperation, PostError,
    ReceiveRequest, Remote, SendOperation, SendRequest, Sge, Span,
};
use roxe_wire::{FlushPlacement, FlushSelectivity, ImmDt, LKey, QKey, Qpn, RKey};

use super::bench::{Bench, HostPiece, Object};
use super::mistake::Mistake;
use super::objects::{Refused, Verb, rights};
use super::symbols::Symbols;
use super::syntax::{Arguments, SendVerb, Value};

/// Of a request; a region may be longer.
const LEN_BITS: &str = "`len` of a request has 32 bits";

impl From<PostError> for Refused {
    fn from(error: PostError) -> Self {
        let errno = match error {
            PostError::QueueFull { .. } => "ENOMEM",
            _ => "EINVAL",
        };
        Self::Errno(errno, error.to_string())
    }
}

impl Bench {
    /// `post recv`.
    pub(super) fn post_receive(&mut self, queue: &str, a: &Arguments) -> Verb {
        let id = self.number_or(a, "id", 0)?;
        let (sges, places) = self.pieces(a, None)?;
        let request = ReceiveRequest { wr_id: id, sges: &sges };
        match self.objects.get(queue) {
            Some(Object::Qp(qp)) => self.device.post_receive(qp.qpn, &request)?,
            Some(Object::Srq(srq)) => self.device.post_shared_receive(*srq, &request)?,
            _ => return Err(self.no("queue that takes receives", queue).into()),
        }
        self.posted.insert((true, id), places);
        Ok(())
    }

    /// `post send` and its like.
    pub(super) fn post_send(&mut self, verb: SendVerb, name: &str, a: &Arguments) -> Verb {
        let qpn = self.qp(name)?.qpn;
        let id = self.number_or(a, "id", 0)?;
        let operation = self.operation(verb, name, a)?;
        let local = matches!(operation, SendOperation::Local(_) | SendOperation::Flush { .. });
        let inline = a.has("inline");
        let (sges, places) = match local || inline {
            true => (Vec::new(), Vec::new()),
            false => {
                let atomic =
                    matches!(verb, SendVerb::CompareSwap | SendVerb::FetchAdd).then_some(8);
                self.pieces(a, atomic)?
            }
        };
        let data = match inline {
            true => Data::Inline(a.bytes().unwrap_or_default()),
            false => Data::Regions(&sges),
        };
        let request = SendRequest {
            wr_id: id,
            operation,
            data,
            signaled: !a.has("unsignaled"),
            solicited: a.has("solicited"),
            fence: a.has("fence"),
            target: self.target(name, a)?,
        };
        self.device.post_send(qpn, &request)?;
        self.posted.insert((false, id), places);
        self.rename_key(id, &operation, a);
        Ok(())
    }

    fn target(&self, qp: &str, a: &Arguments) -> Result<Option<DatagramTarget>, Mistake> {
        let Some(handle) = a.word("to") else { return Ok(None) };
        let Some(Object::Handle(path)) = self.objects.get(handle) else {
            return Err(self.no("address handle", handle));
        };
        let values = &self.qp(qp)?.values;
        let qpn = self.number_or(a, "qpn", u64::from(values.dest_qp.get()))?;
        let q_key = self.number_or(a, "qkey", u64::from(values.q_key.0))?;
        Ok(Some(DatagramTarget {
            path: *path,
            qpn: Qpn::new(qpn as u32),
            q_key: QKey(q_key as u32),
        }))
    }

    fn operation(&self, verb: SendVerb, qp: &str, a: &Arguments) -> Result<SendOperation, Mistake> {
        let number = |name: &str| self.number(a, name, Some(qp));
        let need = |name: &str| {
            number(name)?.ok_or_else(|| Mistake::from(format!("this request needs `{name}`")))
        };
        let remote =
            || Ok::<_, Mistake>(Remote { va: need("va")?, r_key: RKey(need("rkey")? as u32) });
        let imm = number("imm")?.map(|imm| ImmDt(imm as u32));
        Ok(match verb {
            SendVerb::Send => match (imm, number("inv")?) {
                (Some(imm), _) => SendOperation::SendWithImm(imm),
                (None, Some(key)) => SendOperation::SendWithInv(RKey(key as u32)),
                (None, None) => SendOperation::Send,
            },
            SendVerb::Write => match imm {
                Some(imm) => SendOperation::WriteWithImm(remote()?, imm),
                None => SendOperation::Write(remote()?),
            },
            SendVerb::Read => SendOperation::Read(remote()?),
            SendVerb::CompareSwap => SendOperation::CompareSwap {
                remote: remote()?,
                compare: need("compare")?,
                swap: need("swap")?,
            },
            SendVerb::FetchAdd => SendOperation::FetchAdd { remote: remote()?, add: need("add")? },
            SendVerb::AtomicWrite => SendOperation::AtomicWrite(remote()?),
            SendVerb::Flush => {
                let placed = |name: &str| a.list("placement").iter().any(|word| word == name);
                SendOperation::Flush {
                    remote: remote()?,
                    len: u32::try_from(need("len")?).map_err(|_| LEN_BITS)?,
                    placement: FlushPlacement {
                        global_visibility: placed("global"),
                        persistence: placed("persistent"),
                        reserved: 0,
                    },
                    selectivity: match a.word("selectivity") {
                        Some("region") => FlushSelectivity::MemoryRegion,
                        _ => FlushSelectivity::Range,
                    },
                }
            }
            SendVerb::Invalidate => {
                SendOperation::Local(LocalOperation::Invalidate(RKey(need("key")? as u32)))
            }
            SendVerb::Bind => SendOperation::Local(self.bind(a)?),
            SendVerb::Register => SendOperation::Local(self.register(a)?),
        })
    }

    fn bind(&self, a: &Arguments) -> Result<LocalOperation, Mistake> {
        let name = a.word("mw").ok_or("a bind needs `mw`")?;
        let Some(Object::Window { key: window }) = self.objects.get(name) else {
            return Err(self.no("memory window", name));
        };
        let region = self.region(a.word("mr").ok_or("a bind needs `mr`")?)?;
        let new_key = self.number_or(a, "key", u64::from(next_key(window.0)))?;
        let va = self.number_or(a, "va", region.va)?;
        let len = self.number(a, "len", None)?.ok_or("a bind needs `len`")?;
        Ok(LocalOperation::BindWindow(Binding {
            window: *window,
            new_key: RKey(new_key as u32),
            region: region.key,
            span: Span { va, len },
            access: rights(a.list("access")),
        }))
    }

    fn register(&self, a: &Arguments) -> Result<LocalOperation, Mistake> {
        let region = self.region(a.word("mr").ok_or("a registration needs `mr`")?)?;
        let new_key = self.number_or(a, "key", u64::from(next_key(region.key.0)))?;
        let access = match a.has("access") {
            true => rights(a.list("access")),
            false => AccessFlags::LOCAL_WRITE,
        };
        let va = self.number_or(a, "va", region.va)?;
        let len = self.number(a, "len", None)?.ok_or("a registration needs `len`")?;
        let (region, new_key) = (RKey(region.key.0), RKey(new_key as u32));
        let what = FastRegistration { region, new_key, span: Span { va, len }, access };
        Ok(LocalOperation::RegisterMemory(what))
    }

    /// From here on a script means the new key by its symbol.
    fn rename_key(&mut self, id: u64, operation: &SendOperation, a: &Arguments) {
        let (name, old, new) = match operation {
            SendOperation::Local(LocalOperation::BindWindow(what)) => {
                (a.word("mw"), what.window, what.new_key)
            }
            SendOperation::Local(LocalOperation::RegisterMemory(what)) => {
                (a.word("mr"), what.region, what.new_key)
            }
            _ => return,
        };
        if let Some(name) = name {
            self.renamed.insert(id, (name.to_owned(), old.0));
            self.set_key(name, new.0);
        }
    }

    /// The scatter/gather list: what `sge` says, or room in the buffer, filled with the payload.
    fn pieces(
        &mut self,
        a: &Arguments,
        len: Option<u32>,
    ) -> Result<(Vec<Sge>, Vec<HostPiece>), Refused> {
        let key = self.number(a, "lkey", None)?.map(|key| LKey(key as u32));
        let mut sges = Vec::new();
        let mut places = Vec::new();
        if let Some(Value::Pieces(pieces)) = a.get("sge") {
            for (place, len) in pieces {
                let region = self.region(&place.region)?;
                let va = region.va.wrapping_add(place.offset);
                sges.push(Sge { va, len: *len, l_key: key.unwrap_or(region.key) });
                places.push((region.host, place.offset, *len));
            }
            return Ok((sges, places));
        }
        let payload = a.bytes();
        let said = self.number(a, "len", None)?.map(u32::try_from).transpose();
        let said = said.map_err(|_| LEN_BITS)?;
        let len = payload.map(|bytes| bytes.len() as u32).or(said).or(len);
        let Some(len) = len else { return Ok((sges, places)) };
        let (mut sge, place) = self.room(len);
        if let Some(bytes) = payload {
            let written = self.device.host_mut().write(place.0, place.1, bytes);
            written.map_err(|_| "the script posts more than its buffer holds")?;
        }
        sge.l_key = key.unwrap_or(sge.l_key);
        Ok((vec![sge], vec![place]))
    }
}

/// The same index, the next value of the byte that applications choose.
const fn next_key(key: u32) -> u32 {
    key & 0xffff_ff00 | key.wrapping_add(1) & 0xff
}
