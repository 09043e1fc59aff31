//! Datagrams: what each says by itself, and what connection management teaches about connections.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use roxe_wire::mad::{Mad, MadHeader, Message, cm::CommId};
use roxe_wire::{Payload, Psn, QKey, Qpn};

use crate::{Finding, Note, Observation, Outside, Rule, Seen, younger_half};

/// How many half-open connections, and how many messages, are remembered at once.
const REMEMBERED_REQUESTS: usize = 4096;

/// A connection request that waits for its reply.
#[derive(Clone, Copy, Debug)]
struct Requested {
    qpn: Qpn,
    /// With which PSN the passive side shall begin.
    starting_psn: Psn,
    frame: u64,
}

/// What a finished handshake teaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected {
    /// Address, queue pair and first PSN of requests, of the side that sent the reply.
    pub(crate) passive: (IpAddr, Qpn, Psn),
    /// The same of the side that asked.
    pub(crate) active: (IpAddr, Qpn, Psn),
}

/// What connection management said so far.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// Those that wait for their reply, by who asked and under which ID.
    requests: BTreeMap<(IpAddr, IpAddr, CommId), Requested>,
    /// Each message, with the frame that carried it first.
    messages: BTreeMap<MessageKey, u64>,
}

/// What makes a message the same: its addresses, attribute, transaction, and communication IDs.
type MessageKey = (IpAddr, IpAddr, u16, u64, [u8; 8]);

impl Handshakes {
    /// Whether this management message was sent before.
    pub(crate) fn repeats(&mut self, seen: &Seen<'_>) -> Option<Note> {
        let Seen { number, outside, packet, .. } = *seen;
        let [first, _] = packet.payload.pieces();
        let (header, data) = first.split_first_chunk()?;
        let header = MadHeader::parse(*header);
        let key = (
            outside.source,
            outside.destination,
            header.attribute_id,
            header.transaction_id,
            *data.first_chunk()?,
        );
        if let Some(&first) = self.messages.get(&key) {
            return Some(Note::ManagementAgain { first });
        }
        if self.messages.len() >= REMEMBERED_REQUESTS {
            let limit = younger_half(self.messages.values().copied());
            self.messages.retain(|_, frame| *frame >= limit);
        }
        self.messages.insert(key, number);
        None
    }

    /// Takes in one management message; says what it teaches.
    pub(crate) fn observe(&mut self, seen: &Seen<'_>, mad: &Mad) -> Option<Connected> {
        let Outside { source, destination, .. } = *seen.outside;
        match &mad.message {
            Message::Request(request) => {
                if self.requests.len() >= REMEMBERED_REQUESTS {
                    let limit = younger_half(self.requests.values().map(|known| known.frame));
                    self.requests.retain(|_, known| known.frame >= limit);
                }
                self.requests.insert(
                    (source, destination, request.local_comm_id),
                    Requested {
                        qpn: request.local_qpn,
                        starting_psn: request.starting_psn,
                        frame: seen.number,
                    },
                );
                None
            }
            Message::Reply(reply) => {
                let request = self.requests.remove(&(destination, source, reply.remote_comm_id))?;
                Some(Connected {
                    passive: (source, reply.local_qpn, request.starting_psn),
                    active: (destination, request.qpn, reply.starting_psn),
                })
            }
            _ => None,
        }
    }
}

/// Judges one datagram, and reads the management message in it, if that is what it carries.
pub(crate) fn observe(seen: &Seen<'_>, observation: &mut Observation) -> Option<Mad> {
    let Seen { outside, packet, .. } = *seen;
    let bth = &packet.headers.bth;
    if outside.destination.is_multicast() {
        observation.notes.push(Note::Multicast);
    }
    if bth.dest_qp != Qpn::GSI {
        return None;
    }
    let q_key = packet.headers.deth?.q_key;
    if q_key != QKey::GSI {
        observation.findings.push(Finding {
            rule: Rule::ManagementQKey,
            seen: q_key.to_string(),
            expected: QKey::GSI.to_string(),
        });
    }
    let Payload::Bytes { first, second } = packet.payload else { return None };
    let mad =
        if second.is_empty() { Mad::parse(first) } else { Mad::parse(&[first, second].concat()) };
    match mad {
        Ok(mad) => {
            observation.notes.push(Note::Management(in_words(&mad)));
            Some(mad)
        }
        Err(reason) => {
            observation.notes.push(Note::Management(reason.to_string()));
            None
        }
    }
}

/// A management message in words: mostly they fit at once.
fn in_words(mad: &Mad) -> String {
    let mut words = String::with_capacity(128);
    // Writing to memory cannot fail.
    let _ = write!(words, "{mad}");
    words
}
