//! What the connection manager tells the application.

use roxe_cm::{ConnectionId, Event, GidPair, ListenerId, ResolutionId};
use roxe_transport::qp_state::QpState;
use roxe_wire::mad::cm::IpCmHeader;
use roxe_wire::{QKey, Qpn};

use super::super::bench::{Bench, Done, Object};
use super::super::frame_out::{self, Default as Usual, Fact, differ};
use super::super::mad::{Facts, SOURCE_PORT, without_zeros};
use super::super::mistake::{Mistake, Stop};
use super::super::symbols::Numbers;
use super::super::syntax::{Arguments, Bytes};
use super::Connection;
use super::application::READS;

/// What the agent told.
#[derive(Debug)]
pub(in crate::script) struct Told {
    pub(in crate::script) of: Of,
    pub(in crate::script) name: &'static str,
    facts: Facts,
    private: Vec<u8>,
    /// What gets a name by it.
    brings: Option<Object>,
}

/// Whom it concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::script) enum Of {
    Listener(ListenerId),
    Connection(ConnectionId),
    Resolution(ResolutionId),
}

impl Bench {
    /// The application hears of something, and moves its queue pair.
    pub(super) fn told(&mut self, event: Event) {
        let Some(told) = Told::of(event) else { return };
        let qp = self.objects.values().find_map(|object| match object {
            Object::Connection(it) if told.of == Of::Connection(it.id) => it.qp.clone(),
            _ => None,
        });
        // If the device refuses, the script sees its state.
        let _ = match (told.name, &qp) {
            ("established", Some(qp)) => self.step(qp, QpState::Rts),
            ("disconnected", qp) => self.part(qp.as_deref()),
            _ => Ok(()),
        };
        self.happened(Done::Told(told));
    }

    /// A packet came to a queue pair that waits for its connection.
    pub(in crate::script) fn came(&mut self, qpn: Qpn) {
        let connection = self.objects.values().find_map(|object| match object {
            Object::Connection(it) if self.is_qp(it.qp.as_deref()?, qpn) => Some(it.id),
            _ => None,
        });
        if let (Some(connection), Some(manager)) = (connection, &mut self.manager) {
            // One that is gone needs it no more.
            let _ = manager.agent.notify_established(connection);
        }
    }

    fn is_qp(&self, name: &str, qpn: Qpn) -> bool {
        matches!(self.objects.get(name), Some(Object::Qp(qp)) if qp.qpn == qpn)
    }

    /// Whom an object's events concern.
    pub(in crate::script) fn events_of(&self, name: &str) -> Option<Of> {
        match self.objects.get(name)? {
            Object::Listener(id) => Some(Of::Listener(*id)),
            Object::Connection(connection) => Some(Of::Connection(connection.id)),
            Object::Resolution(id) => Some(Of::Resolution(*id)),
            _ => None,
        }
    }

    /// What a script calls it.
    pub(in crate::script) fn name_of(&self, of: Of) -> &str {
        let found = self.objects.keys().find(|name| self.events_of(name) == Some(of));
        found.map_or("?", String::as_str)
    }

    /// Whether the application heard what a script says; what it heard of may get a name.
    pub(in crate::script) fn check_told(
        &mut self,
        object: &str,
        a: &Arguments,
        told: Told,
    ) -> Result<(), Stop> {
        let numbers = Numbers { symbols: self, arguments: a, qp: object };
        let peer = self.settings.peer;
        let usual = |name: &str| {
            Some(Usual::Must(Fact::Number(match name {
                "from" => return Some(Usual::Must(Fact::Address(peer))),
                "source-port" => SOURCE_PORT,
                "responder-resources" | "initiator-depth" => READS.into(),
                "status" => 0,
                "service-q-key" => u64::from(QKey::RDMA_CM.0),
                _ => return None,
            })))
        };
        frame_out::compare(told.name, &told.facts, a, &numbers, usual)?;
        match &a.payload {
            Some(Bytes::Any) => {}
            Some(Bytes::These(bytes)) => differ(&told.private, without_zeros(bytes))?,
            None => differ(&told.private, &[])?,
        }
        if let Some(brings) = told.brings {
            let name = a.word("as").ok_or_else(|| format!("{} needs `as`", told.name))?;
            if self.objects.insert(name.to_owned(), brings).is_some() {
                return Err(Mistake::at(name, format!("{name} is there already")).into());
            }
        }
        Ok(())
    }

    /// A number that stands for what the agent chose.
    pub(in crate::script) fn symbol_of_cm(&self, object: &Object, part: &str) -> Option<u64> {
        let id = match (object, part) {
            (Object::Connection(connection), "psn") => return Some(connection.psn.into()),
            (Object::Connection(connection), "id") => connection.id.comm_id(),
            (Object::Resolution(resolution), "id") => resolution.request_id(),
            _ => return None,
        };
        Some(id.0.into())
    }
}

impl Told {
    /// In one line; `of` is what the script calls whom it concerns.
    pub(in crate::script) fn show(&self, of: &str) -> String {
        let mut line = format!("event {of} {}", self.name);
        for (name, fact) in &self.facts {
            line += &format!(" {name} {}", frame_out::show_fact(name, fact));
        }
        if !self.private.is_empty() {
            line += &format!(" {}", frame_out::show_bytes(&self.private));
        }
        line
    }
}

impl Told {
    /// What an event says to the application; `None` when it is for the agent's owner.
    fn of(event: Event) -> Option<Self> {
        let number = |value: u8| Fact::Number(value.into());
        let plain = |id, name| Self {
            of: Of::Connection(id),
            name,
            facts: Vec::new(),
            private: Vec::new(),
            brings: None,
        };
        Some(match event {
            Event::Request { listener, connection, from, request } => {
                let (header, private) = split(request.ip_cm(), request.private_data.as_bytes());
                let mut facts = caller(from, header);
                // As this side sees it.
                facts.push(("responder-resources", number(request.initiator_depth)));
                facts.push(("initiator-depth", number(request.responder_resources)));
                let named = Connection { id: connection, qp: None, psn: 0 };
                Self {
                    of: Of::Listener(listener),
                    facts,
                    private,
                    brings: Some(Object::Connection(named)),
                    ..plain(connection, "connect-request")
                }
            }
            Event::Question { listener, question, from, request } => {
                let (header, private) = split(request.ip_cm(), request.private_data.as_bytes());
                Self {
                    of: Of::Listener(listener),
                    name: "datagram-request",
                    facts: caller(from, header),
                    private,
                    brings: Some(Object::Question(question)),
                }
            }
            Event::Reply { connection, reply, .. } => Self {
                facts: vec![
                    ("responder-resources", number(reply.initiator_depth)),
                    ("initiator-depth", number(reply.responder_resources)),
                ],
                private: without_zeros(reply.private_data.as_bytes()).to_vec(),
                ..plain(connection, "connect-response")
            },
            Event::Established { connection } => plain(connection, "established"),
            Event::Rejected { connection, reject } => Self {
                facts: vec![("reason", Fact::Number(reject.reason.code().into()))],
                private: without_zeros(reject.private_data.as_bytes()).to_vec(),
                ..plain(connection, "rejected")
            },
            Event::Refused { connection, reason } => Self {
                facts: vec![("reason", Fact::Number(reason.code().into()))],
                ..plain(connection, "connect-error")
            },
            Event::AskedAgain { connection } => plain(connection, "asked-again"),
            Event::Unreachable { connection } => plain(connection, "unreachable"),
            Event::Disconnected { connection } => plain(connection, "disconnected"),
            Event::TimeWaitExit { connection } => plain(connection, "timewait-exit"),
            Event::Resolved { resolution, reply } => Self {
                of: Of::Resolution(resolution),
                name: "resolved",
                facts: vec![
                    ("status", number(reply.status.code())),
                    ("service-qpn", Fact::Number(reply.qpn.get().into())),
                    ("service-q-key", Fact::Number(reply.q_key.0.into())),
                ],
                private: without_zeros(reply.private_data.as_bytes()).to_vec(),
                brings: None,
            },
            Event::LookedForAgain { resolution } => Self {
                of: Of::Resolution(resolution),
                name: "asked-again",
                facts: Vec::new(),
                private: Vec::new(),
                brings: None,
            },
            Event::Unresolved { resolution } => Self {
                of: Of::Resolution(resolution),
                name: "unreachable",
                facts: Vec::new(),
                private: Vec::new(),
                brings: None,
            },
            Event::Unserved { .. } => return None,
        })
    }
}

/// The header of private data, if they have one, and what is behind it.
fn split(header: Option<(IpCmHeader, &[u8])>, all: &[u8]) -> (Option<IpCmHeader>, Vec<u8>) {
    match header {
        Some((header, rest)) => (Some(header), without_zeros(rest).to_vec()),
        None => (None, without_zeros(all).to_vec()),
    }
}

/// Who calls.
fn caller(from: GidPair, header: Option<IpCmHeader>) -> Facts {
    let (address, port) = match header {
        Some(header) => (header.addresses.source(), header.source_port),
        None => (from.remote.to_ip(), 0),
    };
    vec![("from", Fact::Address(address)), ("source-port", Fact::Number(port.into()))]
}
