//! A peer made of packets: what it sends, written by name, and what it sees, as one line of text.

use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, CompletionStatus, Data, Remote, SendOperation, SendRequest,
};
use roxe_wire::opcode::Header;
use roxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Body, Credits, Deth, Feth, FlushPlacement, FlushSelectivity,
    Headers, Ieth, ImmDt, Instant, Msn, NakCode, Opcode, Packet, Psn, QKey, Qpn, RKey, Reth,
    Syndrome, pad_for,
};

use crate::world::{End, KEY, attributes, sge};

/// A packet that the peer sends. What its opcode carries has usual values until something else is
/// said: our key, address 0, the length of the payload.
#[derive(Clone)]
pub(crate) struct Sent {
    headers: Headers,
    payload: Vec<u8>,
}

/// The packet of this name in the opcode table, with this PSN.
pub(crate) fn packet(name: &str, psn: u32) -> Sent {
    let row = Opcode::by_name(name).unwrap_or_else(|| panic!("no opcode {name}"));
    let mut headers = Headers::default();
    (headers.bth.opcode, headers.bth.psn) = (row.code, Psn::new(psn));
    for header in row.headers {
        match header {
            Header::Reth => {
                headers.reth = Some(Reth { va: 0, r_key: RKey(KEY), dma_len: 0 });
            }
            Header::AtomicEth => {
                let (va, r_key) = (0, RKey(KEY));
                headers.atomic_eth = Some(AtomicEth { va, r_key, swap_add: 0, compare: 0 });
            }
            Header::Aeth => headers.aeth = Some(aeth(Syndrome::Ack(Credits::INVALID), 0)),
            Header::AtomicAckEth => headers.atomic_ack_eth = Some(AtomicAckEth { original: 0 }),
            Header::ImmDt => headers.imm_dt = Some(ImmDt(0)),
            Header::Ieth => headers.ieth = Some(Ieth { r_key: RKey(KEY) }),
            Header::Deth => {
                let (q_key, source_qp) = (QKey(0x1111_1111), Qpn::new(9));
                headers.deth = Some(Deth { q_key, reserved: 0, source_qp });
            }
            Header::Feth => {
                let placement = FlushPlacement { global_visibility: true, ..Default::default() };
                let selectivity = FlushSelectivity::Range;
                headers.feth = Some(Feth { placement, selectivity, reserved: 0 });
            }
            other => panic!("{other:?} is not sent here"),
        }
    }
    Sent { headers, payload: Vec::new() }
}

fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth { syndrome, msn: Msn::new(msn) }
}

/// A positive acknowledgement.
pub(crate) fn ack(psn: u32) -> Sent {
    packet("RC_ACKNOWLEDGE", psn)
}

/// A negative one.
pub(crate) fn nak(psn: u32, code: NakCode) -> Sent {
    ack(psn).syndrome(Syndrome::Nak(code))
}

impl Sent {
    /// Payload; also the length of a READ or WRITE unless [`Sent::len`] says another.
    pub(crate) fn bytes(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self.len(u32::try_from(payload.len()).unwrap())
    }

    /// What the RETH says the length is.
    pub(crate) fn len(mut self, len: u32) -> Self {
        if let Some(reth) = &mut self.headers.reth {
            reth.dma_len = len;
        }
        self
    }

    /// Which memory it is about.
    pub(crate) fn at(mut self, va: u64, key: u32) -> Self {
        if let Some(reth) = &mut self.headers.reth {
            (reth.va, reth.r_key) = (va, RKey(key));
        }
        if let Some(atomic) = &mut self.headers.atomic_eth {
            (atomic.va, atomic.r_key) = (va, RKey(key));
        }
        self
    }

    pub(crate) fn add(mut self, amount: u64) -> Self {
        self.headers.atomic_eth.as_mut().unwrap().swap_add = amount;
        self
    }

    pub(crate) fn original(mut self, value: u64) -> Self {
        self.headers.atomic_ack_eth.as_mut().unwrap().original = value;
        self
    }

    /// A FLUSH that goes as far as persistence, too.
    pub(crate) fn persistent(mut self) -> Self {
        self.headers.feth.as_mut().unwrap().placement.persistence = true;
        self
    }

    pub(crate) fn imm(mut self, imm: u32) -> Self {
        self.headers.imm_dt = Some(ImmDt(imm));
        self
    }

    pub(crate) fn invalidate(mut self, key: u32) -> Self {
        self.headers.ieth = Some(Ieth { r_key: RKey(key) });
        self
    }

    pub(crate) fn syndrome(mut self, syndrome: Syndrome) -> Self {
        self.headers.aeth.as_mut().unwrap().syndrome = syndrome;
        self
    }

    pub(crate) fn credits(mut self, code: u8, msn: u32) -> Self {
        self.headers.aeth = Some(aeth(Syndrome::Ack(Credits::from_bits(code)), msn));
        self
    }

    pub(crate) fn ack_req(mut self) -> Self {
        self.headers.bth.ack_req = true;
        self
    }

    pub(crate) fn solicited(mut self) -> Self {
        self.headers.bth.solicited = true;
        self
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut headers = self.headers;
        headers.bth.pad = pad_for(self.payload.len());
        let mut bytes = vec![0; 100];
        let len = headers.emit(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes.extend(&self.payload);
        bytes.extend(vec![0; usize::from(headers.bth.pad) + 4]);
        bytes
    }
}

pub(crate) const NOW: Instant = Instant::ZERO;

impl End {
    /// A packet of the peer's comes in.
    pub(crate) fn take(&mut self, packet: Sent) {
        self.take_at(NOW, packet);
    }

    pub(crate) fn take_at(&mut self, now: Instant, packet: Sent) {
        self.receive(now, &packet.to_bytes());
    }

    /// All packets that leave now, each as a line.
    pub(crate) fn leave(&mut self) -> Vec<String> {
        self.leave_at(NOW)
    }

    pub(crate) fn leave_at(&mut self, now: Instant) -> Vec<String> {
        std::iter::from_fn(|| self.poll(now)).map(|bytes| line(&bytes)).collect()
    }

    /// Room for one message: `len` bytes from `wr_id` × 1000 on.
    pub(crate) fn room(&mut self, wr_id: u64, len: u32) {
        self.adapter.receives.push_back((wr_id, sge(wr_id * 1000, len)));
    }

    /// Posts a request of `len` bytes, from or to `wr_id` × 1000 on.
    pub(crate) fn post(&mut self, wr_id: u64, operation: SendOperation, len: u32) {
        self.post_request(wr_id, operation, len, |_| {});
    }

    /// The same with something changed.
    pub(crate) fn post_request(
        &mut self,
        wr_id: u64,
        operation: SendOperation,
        len: u32,
        change: impl FnOnce(&mut SendRequest<'_>),
    ) {
        let sges = [sge(wr_id * 1000, len)];
        let mut request = request(wr_id, operation, Data::Regions(&sges));
        change(&mut request);
        self.qp.post_send(&request, &mut self.adapter).unwrap();
    }

    /// Resets the queue pair and connects it anew.
    pub(crate) fn connect_again(&mut self, values: &Attributes) {
        let init = [A::PkeyIndex, A::Port, A::AccessFlags];
        let rtr = [A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer];
        let rts = [A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic];
        for (to, given) in [
            (QpState::Reset, &[][..]),
            (QpState::Init, &init),
            (QpState::Rtr, &rtr),
            (QpState::Rts, &rts),
        ] {
            let given = AttributeMask::of(given);
            self.qp.modify(to, given, values, &mut self.adapter).unwrap();
        }
    }

    /// How send requests ended, in order.
    pub(crate) fn sent(&self) -> Vec<(u64, CompletionStatus)> {
        self.adapter.sent.iter().map(|c| (c.wr_id, c.status)).collect()
    }

    /// How receives ended, in order, with their lengths.
    pub(crate) fn received(&self) -> Vec<(u64, CompletionStatus, u32)> {
        self.adapter.received.iter().map(|c| (c.wr_id, c.status, c.byte_len)).collect()
    }
}

/// A signaled request.
pub(crate) const fn request(
    wr_id: u64,
    operation: SendOperation,
    data: Data<'_>,
) -> SendRequest<'_> {
    SendRequest {
        wr_id,
        operation,
        data,
        signaled: true,
        solicited: false,
        fence: false,
        target: None,
    }
}

/// The beginning of memory that may be accessed.
pub(crate) const REMOTE: Remote = Remote { va: 0, r_key: RKey(KEY) };

/// A requester of a reliable connection.
pub(crate) fn requester() -> End {
    with(|_| {})
}

/// An end of a reliable connection with something changed.
pub(crate) fn with(change: impl FnOnce(&mut Attributes)) -> End {
    behaving(Conduct::DEFAULT, change)
}

/// An end of a reliable connection that behaves like this, with something changed.
pub(crate) fn behaving(conduct: Conduct, change: impl FnOnce(&mut Attributes)) -> End {
    let mut own = attributes(1, 2);
    change(&mut own);
    End::behaving(conduct, ServiceType::Rc, own)
}

/// A response to a READ: `FIRST`, `MIDDLE`, `LAST` or `ONLY`.
pub(crate) fn response(part: &str, psn: u32, first: u8, len: usize) -> Sent {
    packet(&format!("RC_READ_RESPONSE_{part}"), psn).bytes(&count(first, len))
}

/// Sends everything; the PSNs that left.
pub(crate) fn psns(end: &mut End, now: Instant) -> Vec<u32> {
    let number = |line: &String| line.split(' ').nth(1).unwrap().parse().unwrap();
    end.leave_at(now).iter().map(number).collect()
}

/// Time passes up to the deadline; what left then.
pub(crate) fn at_deadline(end: &mut End) -> (Instant, Vec<u32>) {
    let at = end.qp.deadline().expect("a deadline");
    end.qp.handle_timeout(at, &mut end.adapter);
    (at, psns(end, at))
}

/// So many requests of a byte are posted and sent.
pub(crate) fn writes(end: &mut End, count: u64) {
    (0..count).for_each(|id| end.post(id, SendOperation::Write(REMOTE), 1));
    assert_eq!(end.leave().len() as u64, count);
}

/// A packet in words: name, PSN, what it asks and says.
fn line(bytes: &[u8]) -> String {
    let packet = Packet::parse(Body::whole(bytes)).unwrap();
    let Headers { bth, reth, aeth, atomic_ack_eth, .. } = packet.headers;
    let mut line = format!("{} {}", packet.opcode.short_name(), bth.psn.get());
    match aeth.map(|aeth| aeth.syndrome) {
        Some(Syndrome::Ack(Credits::INVALID)) => line += " ack",
        Some(Syndrome::Ack(credits)) => line += &format!(" ack credits {}", credits.code()),
        Some(Syndrome::RnrNak(timer)) => line += &format!(" rnr {}", timer.code()),
        Some(Syndrome::Nak(code)) => line += &format!(" nak {:#x}", 0x60 | code.code()),
        None => {}
    }
    if let Some(aeth) = aeth {
        line += &format!(" msn {}", aeth.msn.get());
    }
    if let Some(reth) = reth {
        line += &format!(" va {} len {}", reth.va, reth.dma_len);
    }
    if let Some(ack) = atomic_ack_eth {
        line += &format!(" was {}", ack.original);
    }
    if !packet.payload.is_empty() {
        line += &format!(" {} bytes from {}", packet.payload.len(), packet.payload.pieces()[0][0]);
    }
    for (set, word) in [(bth.ack_req, " ack-req"), (bth.solicited, " solicited")] {
        line += if set { word } else { "" };
    }
    line
}

/// These rights and no others.
pub(crate) fn only(rights: &[AccessFlags]) -> AccessFlags {
    rights.iter().fold(AccessFlags::NONE, |all, one| all.with(*one))
}

/// Bytes that count up from `first`.
pub(crate) fn count(first: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| first.wrapping_add((at % 251) as u8)).collect()
}
