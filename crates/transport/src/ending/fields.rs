//! The values, by name: for JSON and whatever else wants no sentence.

use core::time::Duration;

use roxe_wire::{LKey, NakCode, Opcode, Psn, RKey};

use crate::adapter::{KeyViolation, QpEvent};

use super::{BadResponse, Cause, Ending, FailedRequest, PeerRequest, RequestFailure, Rule};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A word, or a sentence.
    Text(String),
    /// A number that all JSON readers hold exactly.
    Number(u64),
    /// An address or a key, to be shown as `0x…`.
    Hex(u64),
}

/// Names with their values, in the order in which they are shown.
type Fields = Vec<(&'static str, Field)>;

impl Ending {
    /// The values of this ending by name; only those that it has. Times are in nanoseconds.
    pub fn fields(&self) -> Fields {
        let mut fields = vec![
            ("sentence", text(self)),
            ("time_ns", Field::Number(self.at.nanos())),
            ("from", text(self.from)),
            ("to", text(self.to)),
            ("cause", text(self.cause.name())),
        ];
        if let Some(status) = self.cause.status() {
            fields.push(("status", Field::Number(u64::from(status.code()))));
            fields.push(("status_name", text(status.name())));
        }
        match &self.cause {
            Cause::Request(request, why) => {
                request.push_into(&mut fields);
                why.push_into(&mut fields);
            }
            Cause::Peer(request, rule, nak) => {
                request.push_into(&mut fields);
                rule.push_into(*nak, &mut fields);
            }
            Cause::Receive(receive, why) => {
                fields.push(("wr_id", Field::Number(receive.wr_id)));
                fields.push(("receive_len", number(receive.len)));
                match why {
                    super::ReceiveFailure::TooLong { len } => {
                        fields.push(("message_len", number(*len)));
                    }
                    super::ReceiveFailure::Key(violation) => key(*violation, &mut fields),
                }
            }
            Cause::Modified | Cause::PortGone | Cause::CompletionLost => {}
        }
        fields
    }
}

impl Cause {
    /// In one word.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Request(_, why) => match why {
                RequestFailure::NoAnswer { .. } => "no-answer",
                RequestFailure::NotReady { .. } => "receiver-not-ready",
                RequestFailure::Refused { .. } => "refused",
                RequestFailure::BadResponse { .. } => "bad-response",
                RequestFailure::ReadLength { .. } => "read-length",
                RequestFailure::LocalKey { .. } => "local-key",
                RequestFailure::TooManyPackets { .. } => "too-many-packets",
                RequestFailure::LongerThanMtu { .. } => "longer-than-mtu",
                RequestFailure::NoHandle => "no-address-handle",
                RequestFailure::NoResources => "no-resources",
                RequestFailure::Local(_) => "local-operation",
            },
            Self::Peer(..) => "peer-broke-a-rule",
            Self::Receive(..) => "message-not-stored",
            Self::Modified => "modified",
            Self::PortGone => "port-gone",
            Self::CompletionLost => "completion-lost",
        }
    }
}

impl FailedRequest {
    fn push_into(&self, fields: &mut Fields) {
        fields.push(("wr_id", Field::Number(self.wr_id)));
        fields.push(("request", text(self)));
        fields.push(("message_len", number(self.len)));
        if let Some(remote) = self.operation.remote() {
            memory(remote.r_key, remote.va, fields);
        }
    }
}

impl RequestFailure {
    fn push_into(&self, fields: &mut Fields) {
        match *self {
            Self::NoAnswer { psn, timeouts, naks, wait, silence, heard } => {
                packet(psn, fields);
                fields.push(("timeouts", number(timeouts)));
                fields.push(("sequence_naks", number(naks)));
                fields.push(("timeout_ns", time(wait)));
                if let Some(silence) = silence {
                    fields.push(("last_answer_ago_ns", time(silence)));
                }
                if let Some(heard) = heard {
                    fields.push(("last_request_ago_ns", time(heard)));
                }
            }
            Self::NotReady { psn, naks, wait } => {
                packet(psn, fields);
                fields.push(("rnr_naks", number(naks)));
                fields.push(("rnr_wait_ns", time(wait)));
            }
            Self::Refused { psn, code } => {
                packet(psn, fields);
                fields.push(("nak", text(code)));
            }
            Self::BadResponse { psn, opcode, what } => {
                packet(psn, fields);
                name_of(opcode, fields);
                if let BadResponse::Code(code) = what {
                    fields.push(("nak_code", number(code.code())));
                }
            }
            Self::ReadLength { psn, found, expected } => {
                packet(psn, fields);
                fields.push(("found_len", number(found)));
                fields.push(("expected_len", number(expected)));
            }
            Self::LocalKey { sge, write, violation } => {
                if let Some(sge) = sge {
                    let LKey(l_key) = sge.l_key;
                    fields.push(("local_va", Field::Hex(sge.va)));
                    fields.push(("l_key", Field::Hex(u64::from(l_key))));
                    fields.push(("local_len", number(sge.len)));
                }
                fields.push(("access", text(if write { "write" } else { "read" })));
                key(violation, fields);
            }
            Self::TooManyPackets { packets } => fields.push(("packets", number(packets))),
            Self::LongerThanMtu { mtu } => fields.push(("path_mtu", number(mtu))),
            Self::NoHandle | Self::NoResources => {}
            Self::Local(violation) => key(violation, fields),
        }
    }
}

impl PeerRequest {
    fn push_into(&self, fields: &mut Fields) {
        packet(self.psn, fields);
        name_of(self.opcode, fields);
        fields.push(("payload_len", number(self.payload)));
        if let Some((r_key, va, len)) = self.remote {
            memory(r_key, va, fields);
            fields.push(("remote_len", number(len)));
        }
        if let Some((receive, had)) = self.receive {
            fields.push(("wr_id", Field::Number(receive.wr_id)));
            fields.push(("receive_len", number(receive.len)));
            fields.push(("received_len", number(had)));
        }
    }
}

impl Rule {
    fn push_into(self, nak: Option<NakCode>, fields: &mut Fields) {
        fields.push(("rule", text(self.id())));
        if let Some(nak) = nak {
            fields.push(("nak", text(nak)));
        }
        fields.push((
            "event",
            text(match self.event() {
                QpEvent::AccessError => "access-error",
                QpEvent::RequestError => "request-error",
                _ => "fatal",
            }),
        ));
        if let Some(violation) = self.violation() {
            key(violation, fields);
        }
    }
}

fn text(value: impl ToString) -> Field {
    Field::Text(value.to_string())
}

fn number(value: impl Into<u64>) -> Field {
    Field::Number(value.into())
}

fn time(value: Duration) -> Field {
    Field::Number(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
}

fn packet(psn: Psn, fields: &mut Fields) {
    fields.push(("psn", number(psn.get())));
}

fn name_of(opcode: u8, fields: &mut Fields) {
    fields.push(("opcode", number(opcode)));
    if let Some(row) = Opcode::from_code(opcode) {
        fields.push(("opcode_name", text(row.name)));
    }
}

fn memory(r_key: RKey, va: u64, fields: &mut Fields) {
    fields.push(("remote_va", Field::Hex(va)));
    fields.push(("r_key", Field::Hex(u64::from(r_key.0))));
}

fn key(violation: KeyViolation, fields: &mut Fields) {
    fields.push(("violation", text(violation)));
}
