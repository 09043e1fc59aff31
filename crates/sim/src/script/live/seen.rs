//! What a device did: frames that arrived, completions, events.

use std::net::IpAddr;
use std::time::Duration;

use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{Completion, CompletionOpcode, CompletionStatus, Extra};
use roxe_wire::{Body, DropReason, Frame, ImmDt, Outline, Qpn, RKey, RawFrame};

use crate::phrase;

use super::super::bench::{Done, Pending, is_receive};
use super::super::frame_out;
use super::super::parse::show_instant;
use super::agent::{qpn_of, says};
use super::objects::Thing;
use super::{Answer, Halt, LOOK, Live, Wanted, number};

impl Live<'_> {
    /// Whether this is what a line waits for.
    pub(super) fn is(&self, wanted: &Wanted, what: &Done) -> bool {
        match (wanted, what) {
            (Wanted::Frame(qpn), Done::Frame { qp: Some(name), .. }) => {
                self.qp(name).is_ok_and(|qp| qp.qpn == *qpn)
            }
            (Wanted::Completion(qpn, receive), Done::Completion(completion)) => {
                is_receive(completion) == *receive && qpn.is_none_or(|qpn| qpn == completion.qpn)
            }
            (Wanted::Event(name), Done::Event { object, .. }) => name == object,
            _ => false,
        }
    }

    /// Looks for what is wanted, for a moment.
    pub(super) fn look(&mut self, wanted: &Wanted) -> Result<(), Halt> {
        match wanted {
            Wanted::Frame(_) => self.arrivals(LOOK),
            Wanted::Completion(..) => {
                self.completions()?;
                self.arrivals(LOOK)
            }
            Wanted::Event(_) => {
                self.events()?;
                self.arrivals(LOOK)
            }
        }
    }

    /// Looks once at everything; at the wire once more after the agent has answered, which takes as
    /// long as a device that is slow may need.
    pub(super) fn look_at_all(&mut self) -> Result<(), Halt> {
        self.arrivals(Duration::ZERO)?;
        if self.terms.by_hand.is_none() {
            self.completions()?;
            self.events()?;
            self.arrivals(Duration::ZERO)?;
        }
        Ok(())
    }

    /// Takes the frames that arrived; waits for the first, but not longer than `patience`.
    pub(super) fn arrivals(&mut self, patience: Duration) -> Result<(), Halt> {
        let mut patience = patience;
        for _ in 0..MOST_AT_ONCE {
            let Some(frame) = self.site.receive(patience).map_err(Halt::Broken)? else {
                return Ok(());
            };
            self.arrived(&frame)?;
            patience = Duration::ZERO;
        }
        Err(too_much("frames"))
    }

    fn arrived(&mut self, bytes: &[u8]) -> Result<(), Halt> {
        let frame = match Frame::parse(RawFrame::ethernet(bytes)) {
            Ok(frame) => frame,
            Err(reason) => return self.arrived_broken(bytes, reason),
        };
        let received = frame.received();
        let Body::Whole { first, second } = received.body else { return Ok(()) };
        let packet = [first, second].concat();
        let (from, to) = (received.addressing.source, received.addressing.destination);
        let mut seen = frame_out::see(&packet, &received.addressing);
        let mut sender = None;
        if let Ok(seen) = &seen {
            sender = self.objects.iter().find_map(|(name, thing)| match thing {
                Thing::Qp(qp) => {
                    let is_its = match seen.source_qp() {
                        Some(qpn) => qp.qpn == qpn,
                        None => Some(qp.values.dest_qp) == seen.dest_qp(),
                    };
                    (is_its && qp.own_address == from).then(|| name.clone())
                }
                _ => None,
            });
            // Somebody else's, or left over from before.
            if sender.is_none() {
                return Ok(());
            }
        } else if !self.is_to_us(from, to) {
            return Ok(());
        }
        if let Some(Err(reason)) = received.check_icrc() {
            seen = Err(reason.to_string());
        }
        self.heard = true;
        let kept = self.keep(true, bytes.to_vec());
        self.happened(Done::Frame { qp: sender, seen, kept })
    }

    /// A frame whose IP or UDP header is wrong.
    fn arrived_broken(&mut self, bytes: &[u8], reason: DropReason) -> Result<(), Halt> {
        use DropReason as D;
        let is_roce = matches!(
            reason,
            D::IpChecksum { .. }
                | D::IpOptions { .. }
                | D::IpFragment
                | D::IpExtension { .. }
                | D::UdpLength { .. }
        );
        match Outline::of(RawFrame::ethernet(bytes)) {
            Some(outline) if is_roce && self.is_to_us(outline.source, outline.destination) => {
                self.heard = true;
                let kept = self.keep(true, bytes.to_vec());
                self.happened(Done::Frame { qp: None, seen: Err(reason.to_string()), kept })
            }
            _ => Ok(()),
        }
    }

    /// Whether a packet of which nothing else can be read went from the device to us.
    fn is_to_us(&self, from: IpAddr, to: IpAddr) -> bool {
        self.objects.values().any(|thing| match thing {
            Thing::Qp(qp) => {
                let ours = to == qp.peer_address || to.is_multicast();
                qp.own_address == from && (ours || self.terms.ours.contains(&to))
            }
            _ => false,
        })
    }

    fn happened(&mut self, what: Done) -> Result<(), Halt> {
        if self.pending.len() >= MOST_AT_ONCE {
            return Err(too_much("frames, completions and events that no line speaks of"));
        }
        let at = self.site.now();
        let told = format!("{:>9}     {}", show_instant(self.clock()), self.show(&what));
        self.history.push(told);
        self.pending.push(Pending { at, what });
        Ok(())
    }

    /// Takes the completions that are there.
    pub(super) fn completions(&mut self) -> Result<(), Halt> {
        let queues: Vec<u64> = self.objects.values().filter_map(Thing::cq).collect();
        for cq in queues {
            loop {
                let answer = self.ask(&format!("poll cq={cq} n=16"))?;
                let found: Vec<_> = answer.all("wc").map(str::to_owned).collect();
                for wc in &found {
                    let done = self.completion(wc)?;
                    self.happened(done)?;
                }
                if found.len() < 16 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A completion of what the agent says: the request, status, opcode, length, flags, extra,
    /// source queue pair, queue pair.
    fn completion(&mut self, wc: &str) -> Result<Done, Halt> {
        let parts: Option<Vec<u64>> = wc.split(',').map(number).collect();
        let parts = parts.and_then(|parts| <[u64; 8]>::try_from(parts).ok());
        let [request, status, opcode, len, flags, extra, source, qpn] =
            parts.ok_or_else(|| says("wc", wc))?;
        let narrow = |part: u64| u32::try_from(part).map_err(|_| says("wc", wc));
        let (byte_len, extra, source) = (narrow(len)?, narrow(extra)?, narrow(source)?);
        let qpn = qpn_of(qpn).ok_or_else(|| says("wc", wc))?;
        let posted = usize::try_from(request).ok().and_then(|request| self.posted.get(request));
        let Some(posted) = posted else {
            return Err(super::difference(format!(
                "a completion of a request that was not posted: wr_id {request}"
            )));
        };
        let (wr_id, operation, renamed) = (posted.id, posted.operation, posted.renamed.clone());
        let status = STATUSES.iter().find(|it| u64::from(it.code()) == status);
        let status = status.copied().unwrap_or(CompletionStatus::Fatal);
        // `ibv_poll_cq(3)`: the flag is valid for datagrams only.
        let is_datagram = |thing: &Thing| {
            matches!(thing, Thing::Qp(qp)
                if qp.qpn == qpn && qp.service == ServiceType::Ud)
        };
        let grh = flags & GRH != 0 && self.objects.values().any(is_datagram);
        // Of what failed only these mean something.
        let is_done = status == CompletionStatus::Success;
        let named = CompletionOpcode::ALL.into_iter().find(|it| u64::from(it.code()) == opcode);
        if let Some((name, old)) = renamed.filter(|_| !is_done) {
            self.set_key(&name, old);
        }
        Ok(Done::Completion(Completion {
            wr_id,
            status,
            opcode: named.filter(|_| is_done).unwrap_or(operation),
            byte_len,
            extra: match flags {
                flags if flags & WITH_IMM != 0 => Extra::Imm(ImmDt(extra)),
                flags if flags & WITH_INV != 0 => Extra::Invalidated(RKey(extra)),
                _ => Extra::None,
            },
            qpn,
            source_qp: Qpn::new(source),
            grh,
            ipv6: false, // The agent does not say.
            solicited: false,
        }))
    }

    /// Takes the events that are there.
    pub(super) fn events(&mut self) -> Result<(), Halt> {
        for told in 0.. {
            let answer = self.ask("event ms=0")?;
            if answer.number::<u64>("n")? == 0 {
                break;
            }
            if told == MOST_AT_ONCE {
                return Err(too_much("events"));
            }
            let event: u64 = answer.number("event")?;
            let object = self.whose(&answer);
            // The port's and the device's are about the network.
            if object.is_empty() {
                continue;
            }
            let name = EVENTS.iter().find(|(number, _)| *number == event);
            let name = name.map_or("another", |(_, name)| *name);
            self.happened(Done::Event { object, name })?;
        }
        let armed: Vec<(String, u64)> = self
            .objects
            .iter()
            .filter_map(|(name, thing)| match thing {
                Thing::Cq { index, armed: true } => Some((name.clone(), *index)),
                _ => None,
            })
            .collect();
        for (object, index) in armed {
            if self.ask(&format!("notified cq={index} ms=0"))?.number::<u64>("n")? != 0 {
                if let Some(Thing::Cq { armed, .. }) = self.objects.get_mut(&object) {
                    *armed = false;
                }
                self.happened(Done::Event { object, name: "notify" })?;
            }
        }
        Ok(())
    }

    /// The name of the object that an event is about.
    fn whose(&self, answer: &Answer) -> String {
        let says = |key: &str, index: u64| answer.all(key).any(|it| number(it) == Some(index));
        let found = self.objects.iter().find(|(_, thing)| match thing {
            Thing::Qp(qp) => says("qp", qp.index),
            Thing::Cq { index, .. } => says("cq", *index),
            Thing::Srq(index) => says("srq", *index),
            _ => false,
        });
        found.map_or_else(String::new, |(name, _)| name.clone())
    }

    /// Something that happened, in one line.
    pub(super) fn show(&self, done: &Done) -> String {
        match done {
            Done::Frame { qp, seen: Ok(seen), .. } => {
                let name = qp.as_deref().unwrap_or("?");
                let ours = qp.as_deref().and_then(|qp| self.our_side(qp).ok());
                format!("> {name} {}", seen.show(ours.as_ref()))
            }
            Done::Frame { qp, seen: Err(why), .. } => {
                format!("> {} a packet that is wrong: {why}", qp.as_deref().unwrap_or("?"))
            }
            Done::Told(told) => told.show("?"),
            Done::Completion(completion) => {
                let is = |thing: &Thing| matches!(thing, Thing::Qp(qp) if qp.qpn == completion.qpn);
                let qp = self.objects.iter().find(|(_, thing)| is(thing));
                let name = qp.map_or("?", |(name, _)| name);
                let queue = if is_receive(completion) { "recv" } else { "send" };
                format!("completion {name} {queue} {}", phrase::completion(completion))
            }
            Done::Event { object, name } => format!("event {object} {name}"),
        }
    }
}

/// A script is about fewer frames at one look, events at one look, and things that it does not
/// speak of. Whoever sends more would send for ever.
const MOST_AT_ONCE: usize = 1 << 12;

fn too_much(what: &str) -> Halt {
    Halt::Broken(format!("more comes than a script is about: over {MOST_AT_ONCE} {what}"))
}

/// Flags of `ibv_wc`.
const GRH: u64 = 1;
const WITH_IMM: u64 = 2;
const WITH_INV: u64 = 8;

const STATUSES: [CompletionStatus; 14] = [
    CompletionStatus::Success,
    CompletionStatus::LocalLengthError,
    CompletionStatus::LocalQpOperationError,
    CompletionStatus::LocalProtectionError,
    CompletionStatus::Flushed,
    CompletionStatus::MwBindError,
    CompletionStatus::BadResponse,
    CompletionStatus::LocalAccessError,
    CompletionStatus::RemoteInvalidRequest,
    CompletionStatus::RemoteAccessError,
    CompletionStatus::RemoteOperationError,
    CompletionStatus::RetryExceeded,
    CompletionStatus::RnrRetryExceeded,
    CompletionStatus::Fatal,
];

/// `ibv_event_type`, by the names that scripts have.
const EVENTS: [(u64, &str); 8] = [
    (0, "overrun"),
    (1, "fatal"),
    (2, "request-error"),
    (3, "access-error"),
    (4, "established"),
    (5, "drained"),
    (15, "limit"),
    (16, "last-wqe"),
];
