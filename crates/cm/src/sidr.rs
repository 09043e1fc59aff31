//! Service ID resolution: which queue pair serves datagrams of a service. IBA vol 1 §12.11.
//!
//! Nothing is connected, and nothing is left afterwards but an answer, kept for a while in case it
//! was lost.

use std::collections::BTreeMap;
use std::time::Duration;

use roxe_wire::mad::cm::{CommId, PortSpace, ServiceId, SidrReply, SidrRequest, SidrStatus};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{Instant, PKey, QKey, Qpn};

use crate::agent::{Agent, Transmit};
use crate::config::Timing;
use crate::connection::Repetition;
use crate::counters::Ignored;
use crate::event::{CallError, Event};
use crate::service::{DATAGRAM_Q_KEY, GidPair, ListenerId, Service, private_data};

/// A resolution's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolutionId(pub(crate) CommId);

impl ResolutionId {
    /// The request ID, as it stands in messages.
    pub const fn request_id(self) -> CommId {
        self.0
    }
}

/// The name of a question that somebody asks us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionId(CommId);

/// What to look for, and where.
#[derive(Clone, Copy, Debug)]
pub struct Resolve<'a> {
    /// From which address to which.
    pub path: GidPair,
    /// What to look for there.
    pub service: Service,
    /// In which partition.
    pub p_key: PKey,
    /// The traffic class, or type of service, of the datagrams.
    pub traffic_class: u8,
    /// How long and how often to ask.
    pub timing: Timing,
    /// For the other application: up to 180 bytes to an IP service, up to 216 to another.
    pub private_data: &'a [u8],
}

impl Resolve<'_> {
    /// A UDP port, as librdmacm programs look for one.
    pub const fn port(path: GidPair, source_port: u16, port: u16) -> Self {
        Self {
            path,
            service: Service::Ip { space: PortSpace::Udp, source_port, port },
            p_key: PKey::DEFAULT,
            traffic_class: 0,
            timing: Timing::LINUX,
            private_data: &[],
        }
    }
}

/// How a question is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// With the queue pair that serves.
    Serve {
        /// Its number.
        qpn: Qpn,
        /// The key that datagrams to it must carry; `None` is the RDMA CM's.
        q_key: Option<QKey>,
    },
    /// Not at all: [`SidrStatus::Rejected`] and the like.
    Refuse(SidrStatus),
}

/// What is asked, and what is asked of us.
#[derive(Debug, Default)]
pub(crate) struct Sidr {
    resolutions: BTreeMap<CommId, Resolution>,
    questions: BTreeMap<CommId, Question>,
    /// Who asked, and its name for the question, until it is given up.
    by_asker: BTreeMap<(GidPair, CommId), CommId>,
}

#[derive(Debug)]
struct Resolution {
    path: GidPair,
    traffic_class: u8,
    repetition: Repetition,
}

#[derive(Debug)]
struct Question {
    from: GidPair,
    request_id: CommId,
    transaction_id: u64,
    service: ServiceId,
    listener: ListenerId,
    /// What was answered.
    answer: Option<Box<Mad>>,
}

impl Sidr {
    pub(crate) fn len(&self) -> usize {
        self.resolutions.len() + self.questions.len()
    }

    pub(crate) fn has(&self, id: CommId) -> bool {
        self.resolutions.contains_key(&id) || self.questions.contains_key(&id)
    }
}

impl Agent {
    /// Asks for the queue pair of a datagram service. [`Event::Resolved`] or [`Event::Unresolved`]
    /// follows.
    ///
    /// # Errors
    /// [`CallError::TooMany`], [`CallError::PrivateDataTooLong`], [`CallError::MixedAddresses`].
    pub fn resolve(
        &mut self,
        now: Instant,
        resolve: &Resolve<'_>,
    ) -> Result<ResolutionId, CallError> {
        if self.is_full() {
            return Err(CallError::TooMany);
        }
        let private_data = resolve.service.private_data(resolve.path, resolve.private_data)?;
        let id = self.new_id();
        let request = SidrRequest {
            request_id: id,
            partition_key: resolve.p_key,
            service_id: resolve.service.id(),
            private_data,
        };
        let mad = Mad::new(Self::own_transaction(id), Message::SidrRequest(request));
        let wait = resolve.timing.answer_within();
        let mut repetition = Repetition::new(wait, resolve.timing.max_retries.get());
        repetition.message = Some(Box::new(mad));
        let Resolve { path, traffic_class, .. } = *resolve;
        self.sidr.resolutions.insert(id, Resolution { path, traffic_class, repetition });
        self.timers.set(id, now + wait);
        self.send(path, traffic_class, mad);
        Ok(ResolutionId(id))
    }

    /// Wants no answer any more.
    ///
    /// # Errors
    /// [`CallError::Gone`].
    pub fn cancel(&mut self, id: ResolutionId) -> Result<(), CallError> {
        self.timers.clear(id.0);
        self.sidr.resolutions.remove(&id.0).map(|_| ()).ok_or(CallError::Gone)
    }

    /// Answers a question. Up to 136 bytes of private data.
    ///
    /// # Errors
    /// [`CallError::Gone`] also when it is answered already or nobody waits for it,
    /// [`CallError::PrivateDataTooLong`].
    //= M10
    pub fn answer(
        &mut self,
        now: Instant,
        id: QuestionId,
        answer: Answer,
        bytes: &[u8],
    ) -> Result<(), CallError> {
        let private_data = private_data(bytes)?;
        let question = self.sidr.questions.get_mut(&id.0).filter(|it| it.answer.is_none());
        let question = question.ok_or(CallError::Gone)?;
        self.listeners.dequeue(question.listener);
        let (from, request_id) = (question.from, question.request_id);
        if self.sidr.by_asker.get(&(from, request_id)) != Some(&id.0) {
            self.sidr.questions.remove(&id.0);
            return Err(CallError::Gone);
        }
        let (status, qpn, q_key) = match answer {
            Answer::Serve { qpn, q_key } => {
                (SidrStatus::Valid, qpn, q_key.unwrap_or(DATAGRAM_Q_KEY))
            }
            Answer::Refuse(status) => (status, Qpn::default(), QKey::default()),
        };
        let reply = SidrReply {
            request_id,
            status,
            qpn,
            service_id: question.service,
            q_key,
            private_data,
            ..SidrReply::default()
        };
        let mad = Mad::new(question.transaction_id, Message::SidrReply(reply));
        question.answer = Some(Box::new(mad));
        self.timers.set(id.0, now + ANSWER_KEPT);
        self.send(from, 0, mad);
        Ok(())
    }

    /// Somebody looks for a service.
    //= M10
    pub(crate) fn on_sidr_request(
        &mut self,
        from: GidPair,
        transaction_id: u64,
        request: &SidrRequest,
    ) {
        let request_id = request.request_id;
        if request_id == CommId(0) {
            return self.counters.ignore(Ignored::NoCommId);
        }
        if let Some(&id) = self.sidr.by_asker.get(&(from, request_id)) {
            let known = self.sidr.questions.get(&id);
            if let Some(known) = known.filter(|known| known.service == request.service_id) {
                self.counters.duplicates += 1;
                if let Some(answer) = known.answer.as_deref().copied() {
                    self.send(from, 0, answer);
                }
                return;
            }
            // Who begins anew uses its numbers again: it no longer waits for the old answer, nor is
            // it to get that for the new one.
            self.give_up_question(id);
        }
        let header = request.ip_cm().map(|(header, _)| header);
        let listener = match self.listeners.find(request.service_id, header, from) {
            None => Err(SidrStatus::UnsupportedServiceId),
            Some(_) if self.is_full() => Err(SidrStatus::Rejected),
            Some(listener) if !self.listeners.enqueue(listener) => Err(SidrStatus::Rejected),
            Some(listener) => Ok(listener),
        };
        match listener {
            Ok(listener) => {
                let id = self.new_id();
                let service = request.service_id;
                let question =
                    Question { from, request_id, transaction_id, service, listener, answer: None };
                self.sidr.questions.insert(id, question);
                self.sidr.by_asker.insert((from, request_id), id);
                let (question, request) = (QuestionId(id), Box::new(*request));
                self.events.push_back(Event::Question { listener, question, from, request });
            }
            Err(status) => {
                let service_id = request.service_id;
                let reply = SidrReply { request_id, status, service_id, ..SidrReply::default() };
                let mad = Mad::new(transaction_id, Message::SidrReply(reply));
                let refusal = Transmit { path: from, traffic_class: 0, mad };
                match status {
                    SidrStatus::UnsupportedServiceId => self.refuse_service(service_id, refusal),
                    _ => self.refuse_call(refusal),
                }
            }
        }
    }

    /// Nobody waits for the answer to a question any more. One that the application has yet to
    /// answer keeps its place in the backlog until then: so many are told at once, and no more.
    fn give_up_question(&mut self, id: CommId) {
        let Some(question) = self.sidr.questions.get(&id) else { return };
        self.sidr.by_asker.remove(&(question.from, question.request_id));
        if question.answer.is_some() {
            self.sidr.questions.remove(&id);
            self.timers.clear(id);
        }
    }

    /// The answer to what we look for.
    pub(crate) fn on_sidr_reply(&mut self, from: GidPair, reply: &SidrReply) {
        let id = reply.request_id;
        match self.sidr.resolutions.get(&id) {
            None => return self.counters.ignore(Ignored::Unknown),
            Some(resolution) if resolution.path != from => {
                return self.counters.ignore(Ignored::Foreign);
            }
            Some(_) => {}
        }
        self.sidr.resolutions.remove(&id);
        self.timers.clear(id);
        let (resolution, reply) = (ResolutionId(id), Box::new(*reply));
        self.events.push_back(Event::Resolved { resolution, reply });
    }

    /// A resolution asks again or gives up; an answer is forgotten.
    pub(crate) fn expire_datagram(&mut self, now: Instant, id: CommId) {
        if self.sidr.questions.contains_key(&id) {
            return self.give_up_question(id);
        }
        let Some(resolution) = self.sidr.resolutions.get_mut(&id) else { return };
        let Resolution { path, traffic_class, ref mut repetition } = *resolution;
        match repetition.message.as_deref().copied().filter(|_| repetition.left > 0) {
            Some(mad) => {
                repetition.left -= 1;
                if repetition.is_first() {
                    let resolution = ResolutionId(id);
                    self.events.push_back(Event::LookedForAgain { resolution });
                }
                self.timers.set(id, now + repetition.wait);
                self.counters.retransmissions += 1;
                self.send(path, traffic_class, mad);
            }
            None => {
                self.sidr.resolutions.remove(&id);
                self.events.push_back(Event::Unresolved { resolution: ResolutionId(id) });
            }
        }
    }
}

/// How long an answer is kept for whoever did not get it: Linux asks again after 6.4 s.
const ANSWER_KEPT: Duration = Duration::from_secs(13);
