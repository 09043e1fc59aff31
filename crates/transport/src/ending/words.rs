//! The sentences.

use core::fmt;

use roxe_wire::{Opcode, RKey};

use crate::adapter::QpEvent;
use crate::history::OpcodeName;
use crate::work::{Binding, CompletionStatus, LocalOperation, SendOperation, Sge};

use super::{
    BadResponse, Cause, Ending, FailedRequest, PeerRequest, ReceiveFailure, RequestFailure, Rule,
};

impl Cause {
    /// What stands before the colon of the sentence.
    const fn heading(&self) -> &'static str {
        match (self.status(), self) {
            (Some(status), _) => words(status),
            (None, Self::Peer(_, rule, _)) => match rule.event() {
                QpEvent::AccessError => "access error",
                QpEvent::RequestError => "invalid request",
                _ => "fatal error",
            },
            (None, Self::CompletionLost) => "fatal error",
            (None, _) => "moved to error",
        }
    }
}

/// A status, as the sentences have it.
const fn words(status: CompletionStatus) -> &'static str {
    match status {
        CompletionStatus::Success => "success",
        CompletionStatus::LocalLengthError => "local length error",
        CompletionStatus::LocalQpOperationError => "local QP operation error",
        CompletionStatus::LocalProtectionError => "local protection error",
        CompletionStatus::Flushed => "flushed",
        CompletionStatus::MwBindError => "memory window bind error",
        CompletionStatus::BadResponse => "bad response",
        CompletionStatus::LocalAccessError => "local access error",
        CompletionStatus::RemoteInvalidRequest => "remote invalid request",
        CompletionStatus::RemoteAccessError => "remote access error",
        CompletionStatus::RemoteOperationError => "remote operation error",
        CompletionStatus::RetryExceeded => "retry exceeded",
        CompletionStatus::RnrRetryExceeded => "RNR retry exceeded",
        CompletionStatus::Fatal => "fatal error",
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.heading())?;
        match self {
            Self::Request(request, why) => why.tell(request, f),
            Self::Peer(request, rule, nak) => {
                rule.tell(request, f)?;
                match nak {
                    Some(nak) => write!(f, "; answered with NAK {nak}")?,
                    None => f.write_str("; not answered, but a READ before it with a NAK")?,
                }
                write!(f, " (rule {})", rule.id())
            }
            Self::Receive(receive, why) => match why {
                ReceiveFailure::TooLong { len } => {
                    write!(
                        f,
                        "a datagram of {len} bytes, 40 before its data among them, arrived "
                    )?;
                    write!(f, "for a receive of {} bytes (id {})", receive.len, receive.wr_id)
                }
                ReceiveFailure::Key(violation) => {
                    write!(f, "the memory of receive id {} cannot be written: ", receive.wr_id)?;
                    write!(f, "{violation}")
                }
            },
            Self::Modified => f.write_str("by the application, with ibv_modify_qp"),
            Self::PortGone => f.write_str("nothing comes or goes by its port any more"),
            Self::CompletionLost => f.write_str("its completion queue overran, and lost one"),
        }
    }
}

impl fmt::Display for FailedRequest {
    /// `WRITE of 8 bytes to 0x1000, rkey 0x1234 (id 1)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, way) = match self.operation {
            SendOperation::Send => ("SEND", ""),
            SendOperation::SendWithImm(_) => ("SEND with immediate", ""),
            SendOperation::SendWithInv(_) => ("SEND with invalidate", ""),
            SendOperation::Write(_) => ("WRITE", "to"),
            SendOperation::WriteWithImm(..) => ("WRITE with immediate", "to"),
            SendOperation::Read(_) => ("READ", "from"),
            SendOperation::CompareSwap { .. } => ("COMPARE AND SWAP", "at"),
            SendOperation::FetchAdd { .. } => ("FETCH AND ADD", "at"),
            SendOperation::AtomicWrite(_) => ("ATOMIC WRITE", "to"),
            SendOperation::Flush { .. } => ("FLUSH", "from"),
            SendOperation::Local(LocalOperation::Invalidate(key)) => {
                return write!(f, "invalidation of key 0x{:x} (id {})", key.0, self.wr_id);
            }
            SendOperation::Local(LocalOperation::BindWindow(what)) => {
                let Binding { window, region, .. } = what;
                write!(f, "binding of window 0x{:x} to region 0x{:x}", window.0, region.0)?;
                return write!(f, " (id {})", self.wr_id);
            }
            SendOperation::Local(LocalOperation::RegisterMemory(what)) => {
                let RKey(region) = what.region;
                return write!(f, "registration of region 0x{region:x} (id {})", self.wr_id);
            }
        };
        write!(f, "{name} of {}", Bytes(self.len))?;
        if let Some(remote) = self.operation.remote() {
            write!(f, " {way} 0x{:x}, rkey 0x{:x}", remote.va, remote.r_key.0)?;
        }
        write!(f, " (id {})", self.wr_id)
    }
}

impl RequestFailure {
    fn tell(&self, request: &FailedRequest, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer { psn, timeouts, naks, wait, silence, heard } => {
                let sends = timeouts.saturating_add(*naks);
                write!(f, "{request}: PSN {psn} was sent {}", Times(sends))?;
                if *timeouts != 0 {
                    write!(f, ", timed out {} after {wait:.1?}", Times(*timeouts))?;
                }
                if *naks != 0 {
                    write!(f, ", the peer missed packets {}", Times(*naks))?;
                }
                match silence {
                    Some(time) => write!(f, "; the last answer came {time:.1?} ago")?,
                    None => f.write_str("; the peer never answered any frame")?,
                }
                match (silence, heard) {
                    (_, None) => Ok(()),
                    (Some(_), Some(time)) => write!(f, ", the peer's last request {time:.1?} ago"),
                    (None, Some(time)) => {
                        write!(f, ", but sent a request of its own {time:.1?} ago")
                    }
                }
            }
            Self::NotReady { psn, naks, wait } => {
                write!(f, "{request}: the peer had no receive buffer for PSN {psn}, ")?;
                write!(f, "and said so {}, wait {wait:?}", Times(*naks))
            }
            Self::Refused { psn, code } => {
                write!(f, "{request}: the peer answered PSN {psn} with NAK {code}")
            }
            Self::BadResponse { psn, opcode, what } => {
                let opcode = OpcodeName(*opcode);
                write!(f, "{request}: the peer answered PSN {psn} with {opcode}")?;
                match what {
                    BadResponse::Code(code) => {
                        write!(f, ", NAK code {} ({code}), which it may not send", code.code())
                    }
                    BadResponse::Refusal => f.write_str(", a NAK where data belongs"),
                    BadResponse::Kind => f.write_str(", which answers another kind of request"),
                    BadResponse::Position => f.write_str(", whose turn it is not"),
                    BadResponse::Payload => f.write_str(" and data, and none was asked for"),
                }
            }
            Self::ReadLength { psn, found, expected } => {
                write!(
                    f,
                    "{request}: the response with PSN {psn} brought {}, ",
                    Bytes(u32::from(*found))
                )?;
                write!(f, "its turn was {expected}")
            }
            Self::LocalKey { sge, write, violation } => {
                write!(f, "{request}: ")?;
                let what = if *write { "written" } else { "read" };
                match sge {
                    Some(sge) => {
                        let Sge { va, len, l_key } = sge;
                        let len = Bytes(*len);
                        write!(f, "{len} at 0x{va:x}, lkey 0x{:x}, cannot be ", l_key.0)?;
                    }
                    None => f.write_str("its memory cannot be ")?,
                }
                write!(f, "{what}: {violation}")
            }
            Self::TooManyPackets { packets } => {
                write!(f, "{request}: it takes {packets} packets, more than may be outstanding")
            }
            Self::LongerThanMtu { mtu } => {
                write!(f, "{request}: a datagram is one packet, of {mtu} bytes at the most")
            }
            Self::NoHandle => {
                write!(f, "{request}: its address handle was destroyed before it was sent")
            }
            Self::NoResources => {
                write!(f, "{request}: max_rd_atomic is 0, so that none may be outstanding")
            }
            Self::Local(violation) => write!(f, "{request}: {violation}"),
        }
    }
}

impl fmt::Display for PeerRequest {
    /// `the peer's RC_RDMA_WRITE_ONLY, PSN 101, 1 bytes at 0xdead0000, rkey 0xbad`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer's {}, PSN {}", OpcodeName(self.opcode), self.psn)?;
        match self.remote {
            Some((key, va, len)) => {
                write!(f, ", {} at 0x{va:x}, rkey 0x{:x}", Bytes(len), key.0)
            }
            None => write!(f, ", {}", Bytes(self.payload)),
        }
    }
}

impl Rule {
    fn tell(self, request: &PeerRequest, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Self::ReceiveLength, Some((receive, had))) = (self, request.receive) {
            let len = u64::from(had) + u64::from(request.payload);
            let ends = Opcode::from_code(request.opcode).is_some_and(|row| row.position.ends());
            let least = if ends { "" } else { "at least " };
            write!(f, "{request}, makes a message of {least}{len} bytes ")?;
            return write!(f, "for a receive of {} bytes (id {})", receive.len, receive.wr_id);
        }
        let payload = Bytes(request.payload);
        match (self, request.remote) {
            (Self::PacketLength, _) => {
                return write!(f, "{request}: {payload} of payload do not fit opcode and path MTU");
            }
            (Self::WriteLength, Some((_, _, left))) => {
                return write!(f, "{request}: it brings {payload}, and {left} are to come");
            }
            _ => {}
        }
        write!(f, "{request}")?;
        if let Some((receive, _)) = request.receive {
            write!(f, ", into receive id {}", receive.wr_id)?;
        }
        f.write_str(match self {
            Self::Sequence => ": it does not continue what came before",
            Self::QueuePairAccess => ": the queue pair does not grant this right",
            Self::Resources => ": more READs and atomics than max_dest_rd_atomic",
            Self::PacketLength => ": its length does not fit",
            Self::MessageLength => ": no message is longer than 2^31 bytes",
            Self::WriteLength => ": not the bytes that the WRITE announced",
            Self::Aligned => ": the address is no multiple of 8",
            Self::ReceiveLength => ": it does not fit",
            Self::AtomicWriteLength => ": an ATOMIC WRITE announces 8 bytes",
            Self::FlushTarget => ": it says not what to flush, or not how far",
            Self::Opcode => ": no such request",
            Self::ReceiveKey(_) => ": the receive's memory cannot be written, ",
            Self::Invalidate(_) => ": the key cannot be invalidated, ",
            Self::ReadKey(_) => ": its memory went away while it was answered, ",
            Self::Key(_) => ": ",
        })?;
        match self.violation() {
            Some(violation) => write!(f, "{violation}"),
            None => Ok(()),
        }
    }
}

/// A number of times.
struct Times(u8);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once"),
            times => write!(f, "{times} times"),
        }
    }
}

/// A number of bytes.
struct Bytes(u32);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 byte"),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use roxe_wire::{Instant, NakCode};

    use super::*;
    use crate::adapter::KeyViolation;
    use crate::ending::Field;
    use crate::qp_state::QpState;
    use crate::work::Remote;

    /// What no script can bring about: it takes gigabytes of memory.
    //= W01 test
    #[test]
    fn a_message_of_too_many_packets_says_how_many() {
        let request = FailedRequest {
            wr_id: 7,
            operation: SendOperation::Read(Remote { va: 0x1000, r_key: RKey(0x77) }),
            len: 1 << 31,
            status: CompletionStatus::LocalLengthError,
        };
        let why = RequestFailure::TooManyPackets { packets: 1 << 23 };
        assert_eq!(
            Cause::Request(request, why).to_string(),
            "local length error: READ of 2147483648 bytes from 0x1000, rkey 0x77 (id 7): \
             it takes 8388608 packets, more than may be outstanding"
        );
    }

    /// Every status that a request may complete with has words of its own.
    #[test]
    fn no_two_statuses_have_the_same_words() {
        let all = [
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
        ]
        .map(words);
        let mut some = all.to_vec();
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), all.len());
    }

    #[test]
    fn the_values_are_those_of_the_sentence() {
        let request = PeerRequest {
            opcode: 0x0a,
            psn: roxe_wire::Psn::new(101),
            payload: 1,
            remote: Some((RKey(0xbad), 0xdead_0000, 1)),
            receive: None,
        };
        let ending = Ending {
            at: Instant::from_nanos(5),
            from: QpState::Rts,
            to: QpState::Error,
            cause: Cause::Peer(
                request,
                Rule::Key(KeyViolation::NoSuchKey),
                Some(NakCode::RemoteAccessError),
            ),
        };
        let text = |text: &str| Field::Text(text.to_owned());
        assert_eq!(
            ending.fields(),
            [
                ("sentence", text(&ending.to_string())),
                ("time_ns", Field::Number(5)),
                ("from", text("rts")),
                ("to", text("error")),
                ("cause", text("peer-broke-a-rule")),
                ("psn", Field::Number(101)),
                ("opcode", Field::Number(0x0a)),
                ("opcode_name", text("RC_WRITE_ONLY")),
                ("payload_len", Field::Number(1)),
                ("remote_va", Field::Hex(0xdead_0000)),
                ("r_key", Field::Hex(0xbad)),
                ("remote_len", Field::Number(1)),
                ("rule", text("05-5.6")),
                ("nak", text("remote access error")),
                ("event", text("access-error")),
                ("violation", text("no region or window has this key now")),
            ]
        );
    }
}
