//! Responses: which request each answers, and whether it may look like that.

use roxe_wire::opcode::{Operation, Position};
use roxe_wire::{NakCode, Packet, Syndrome};

use crate::note::{Cause, operation_name};
use crate::requests::{Requests, payload_length};
use crate::{Finding, Note, Rule, Summary};

/// Takes in one response to `requests`.
pub(crate) fn observe(
    requests: &mut Requests,
    packet: &Packet<'_>,
    frame: u64,
    notes: &mut Vec<Note>,
    findings: &mut Vec<Finding>,
    summary: &mut Summary,
) {
    let len = packet.payload.len();
    if !packet.opcode.payload.allows_for_some_mtu(len) {
        findings.push(payload_length(packet.opcode, len));
    }
    let psn = packet.headers.bth.psn;
    if !requests.is_known() {
        notes.push(Note::RequestNotSeen);
        return;
    }
    if requests.is_future(psn) {
        notes.push(Note::RequestNotSeen);
        findings.push(Finding {
            rule: Rule::AckPsn,
            seen: format!("{} for PSN {psn}", packet.opcode.name),
            expected: "a PSN that was sent".to_owned(),
        });
        return;
    }
    match packet.opcode.operation {
        Operation::Acknowledge => acknowledge(requests, packet, frame, notes, findings, summary),
        Operation::ReadResponse => read_response(requests, packet, notes, findings, summary),
        Operation::AtomicAcknowledge => atomic_acknowledge(requests, packet, notes, findings),
        _ => {}
    }
}

fn acknowledge(
    requests: &mut Requests,
    packet: &Packet<'_>,
    frame: u64,
    notes: &mut Vec<Note>,
    findings: &mut Vec<Finding>,
    summary: &mut Summary,
) {
    let psn = packet.headers.bth.psn;
    let Some(aeth) = packet.headers.aeth else { return };
    let refused = requests.get(psn).map(|sent| sent.frame);
    match aeth.syndrome {
        Syndrome::Ack(_) => match requests.acknowledge(psn) {
            Some((first, last, packets)) => {
                notes.push(Note::Acknowledges { first, last, packets });
                findings.extend(requests.check_msn(psn, aeth.msn));
            }
            None => notes.push(Note::DuplicateAck),
        },
        Syndrome::RnrNak(timer) => {
            summary.rnr_naks += 1;
            requests.acknowledge(psn.previous());
            requests.go_back(psn, Cause::ReceiverNotReady { frame });
            notes.push(Note::ReceiverNotReady { frame: refused, wait: timer.duration() });
        }
        Syndrome::Nak(code) => {
            summary.count_nak(code);
            requests.acknowledge(psn.previous());
            if code == NakCode::PsnSequenceError {
                requests.go_back(psn, Cause::SequenceNak { frame });
                notes.push(Note::SequenceNak { from: refused });
            } else {
                notes.push(Note::FatalNak { code, frame: refused });
            }
        }
    }
}

fn read_response(
    requests: &mut Requests,
    packet: &Packet<'_>,
    notes: &mut Vec<Note>,
    findings: &mut Vec<Finding>,
    summary: &mut Summary,
) {
    let psn = packet.headers.bth.psn;
    let len = packet.payload.len();
    let position = packet.opcode.position;
    if matches!(position, Position::First | Position::Middle)
        && let Ok(mtu) = u32::try_from(len)
        && packet.opcode.payload.allows_for_some_mtu(len)
    {
        requests.learn_mtu(mtu, psn);
    }
    if position == Position::Only
        && requests.get(psn).is_some_and(|sent| sent.psn == psn && sent.announced as usize == len)
    {
        requests.learn_single(psn);
    }
    let mtu = requests.mtu();
    let Some(sent) = requests.get_mut(psn) else {
        notes.push(Note::RequestNotSeen);
        return;
    };
    let (request, operation) = (sent.frame, sent.opcode.operation);
    match operation {
        Operation::Flush | Operation::AtomicWrite => {
            if position != Position::Only || len != 0 {
                findings.push(Finding {
                    rule: Rule::ResponseKind,
                    seen: format!("{} of {len} B", packet.opcode.name),
                    expected: format!("an empty READ_RESPONSE_ONLY to the {}", {
                        operation_name(operation)
                    }),
                });
            }
            notes.push(Note::Answers { frame: request, operation });
            if core::mem::replace(&mut sent.answered, 1) != 0 {
                notes.push(Note::AnsweredBefore);
            }
        }
        Operation::ReadRequest => {
            let index = u32::try_from(psn.since(sent.psn)).unwrap_or(0);
            notes.push(Note::AnswersRead { frame: request, part: index + 1, of: sent.span });
            let starts = index == 0 || sent.asked_again_at.contains(&psn);
            let ends = index + 1 == sent.span;
            let right = match position {
                Position::First => starts && !ends,
                Position::Middle => index != 0 && !ends,
                Position::Last => index != 0 && ends,
                Position::Only => starts && ends,
            };
            let announced = sent.announced;
            let expected_len = match (sent.span, mtu) {
                (1, _) => Some(announced),
                (span, Some(mtu)) if ends => announced.checked_sub((span - 1) * mtu),
                _ => None,
            };
            if !right {
                findings.push(Finding {
                    rule: Rule::ReadResponse,
                    seen: format!("{} as part {} of {}", packet.opcode.name, index + 1, sent.span),
                    expected: format!("the part that the READ of frame {request} asks for"),
                });
            } else if expected_len.is_some_and(|expected| expected as usize != len) {
                findings.push(Finding {
                    rule: Rule::ReadResponse,
                    seen: format!("{len} B in the last part"),
                    expected: format!(
                        "the end of the {announced} B that frame {request} asked for"
                    ),
                });
            }
            if index < sent.answered {
                notes.push(Note::AnsweredBefore);
            } else {
                if index > sent.answered {
                    notes.push(Note::ResponseGap { missing: index - sent.answered });
                }
                sent.answered = index + 1;
                summary.bytes += len as u64;
            }
        }
        _ => findings.push(wrong_kind(packet, operation, request)),
    }
    requests.acknowledge(psn);
}

fn atomic_acknowledge(
    requests: &mut Requests,
    packet: &Packet<'_>,
    notes: &mut Vec<Note>,
    findings: &mut Vec<Finding>,
) {
    let psn = packet.headers.bth.psn;
    let Some(sent) = requests.get_mut(psn) else {
        notes.push(Note::RequestNotSeen);
        return;
    };
    let (frame, operation) = (sent.frame, sent.opcode.operation);
    if !operation.is_atomic() {
        findings.push(wrong_kind(packet, operation, frame));
        return;
    }
    notes.push(Note::Answers { frame, operation });
    let value = packet.headers.atomic_ack_eth.map(|ack| ack.original);
    match sent.original {
        None => sent.original = value,
        Some(before) => {
            notes.push(Note::AnsweredBefore);
            if value != Some(before) {
                findings.push(Finding {
                    rule: Rule::AtomicResponse,
                    seen: format!("the value 0x{:x}", value.unwrap_or(0)),
                    expected: format!("0x{before:x} as the first time"),
                });
            }
        }
    }
    requests.acknowledge(psn);
}

fn wrong_kind(packet: &Packet<'_>, operation: Operation, frame: u64) -> Finding {
    Finding {
        rule: Rule::ResponseKind,
        seen: packet.opcode.name.to_owned(),
        expected: format!("the answer to the {} of frame {frame}", operation_name(operation)),
    }
}
