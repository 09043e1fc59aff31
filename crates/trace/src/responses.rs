//! Responses: which request each answers, and whether it may look like that.

use roxe_wire::opcode::{Operation, Position};
use roxe_wire::{NakCode, Packet, Syndrome};

use crate::completed::Counted;
use crate::note::Cause;
use crate::requests::{Requests, Sent, full_len, path_mtu};
use crate::{Finding, Note, Observation, Rule, Summary};

/// Takes in one response to `requests`.
pub(crate) fn observe(
    requests: &mut Requests,
    packet: &Packet<'_>,
    frame: u64,
    observation: &mut Observation,
    counts: &mut Summary,
) {
    let psn = packet.headers.bth.psn;
    if !requests.is_known() {
        observation.notes.push(Note::RequestNotSeen);
        return;
    }
    requests.last_answer = frame;
    if requests.is_future(psn) {
        observation.notes.push(Note::RequestNotSeen);
        requests.answered_early(packet, frame);
        return;
    }
    if requests.refusal.is_some() {
        requests.begin_behind_end(packet);
    }
    match packet.opcode.operation {
        Operation::Acknowledge => acknowledge(requests, packet, frame, observation, counts),
        Operation::ReadResponse => {
            read_response(requests, packet, observation, counts);
            requests.acknowledge(psn, frame);
        }
        Operation::AtomicAcknowledge => {
            atomic_acknowledge(requests, packet, observation);
            requests.acknowledge(psn, frame);
        }
        _ => {}
    }
    observation.find(check_msn(requests, packet, frame));
}

/// Judges the count of completed messages that comes with an answer.
fn check_msn(requests: &mut Requests, packet: &Packet<'_>, frame: u64) -> Option<Finding> {
    let aeth = packet.headers.aeth?;
    let psn = packet.headers.bth.psn;
    if !requests.is_up_to_date() {
        return None;
    }
    let sent = requests.get(psn)?;
    // A refused message is not complete. A READ counts from the moment it is accepted, and some
    // responders may count it only when it is answered.
    let is_complete = matches!(aeth.syndrome, Syndrome::Ack(_))
        && sent.opcode.operation != Operation::ReadRequest;
    let own = u64::from(sent.opcode.position.ends() && !is_complete);
    let at_least = sent.ends - own;
    // Nor is what comes behind a refused one, unless that is a READ: its memory may go away when
    // requests behind it have been carried out. BC-055
    let is_refused = !matches!(aeth.syndrome, Syndrome::Ack(_)) && !requests.is_acknowledged(psn);
    let accepted = sent.opcode.operation == Operation::ReadRequest;
    let at_most = if is_refused && !accepted { at_least } else { requests.ends() };
    let is_newest = packet.opcode.operation == Operation::Acknowledge;
    let (msn, request) = (aeth.msn, sent.frame);
    let answer = Counted { psn, msn, frame, request, at_least, at_most, is_newest };
    let finding = requests.completed.check(answer);
    requests.learn_beginning();
    finding
}

fn acknowledge(
    requests: &mut Requests,
    packet: &Packet<'_>,
    frame: u64,
    observation: &mut Observation,
    counts: &mut Summary,
) {
    let psn = packet.headers.bth.psn;
    let Some(aeth) = packet.headers.aeth else { return };
    let refused = requests.get(psn).map(|sent| sent.latest);
    if !matches!(aeth.syndrome, Syndrome::Ack(_)) {
        // What stands before the packet refused has arrived.
        observation.notes.extend(requests.acknowledge(psn.previous(), frame));
    }
    match aeth.syndrome {
        Syndrome::Ack(_) => {
            observation.notes.push(requests.acknowledge(psn, frame).unwrap_or(Note::DuplicateAck));
        }
        Syndrome::RnrNak(asked) => {
            counts.rnr_naks += 1;
            let seen_ns = requests.now_ns;
            requests.refuse(psn, Err(asked.duration()), frame);
            requests.ask_back(psn, Cause::ReceiverNotReady { frame, asked, seen_ns });
            observation.notes.push(Note::ReceiverNotReady { frame: refused });
        }
        Syndrome::Nak(code) => {
            counts.count_nak(code);
            if code == NakCode::PsnSequenceError {
                requests.ask_back(psn, Cause::SequenceNak { frame });
                observation.notes.push(Note::SequenceNak { from: refused });
            } else {
                requests.refuse(psn, Ok(code), frame);
                observation.notes.push(Note::FatalNak { frame: refused });
            }
        }
    }
}

/// A READ response answers a READ, a FLUSH or an ATOMIC WRITE.
fn read_response(
    requests: &mut Requests,
    packet: &Packet<'_>,
    observation: &mut Observation,
    counts: &mut Summary,
) {
    let psn = packet.headers.bth.psn;
    let is_known = learn_spans(requests, packet, observation);
    let mtu = requests.mtu();
    let Some(sent) = requests.get_mut(psn).filter(|_| is_known) else {
        observation.notes.push(Note::RequestNotSeen);
        return;
    };
    match sent.opcode.operation {
        Operation::Flush | Operation::AtomicWrite => empty_answer(sent, packet, observation),
        Operation::ReadRequest => part_of_read(sent, mtu, packet, observation, counts),
        _ => observation.findings.push(wrong_kind(sent, packet)),
    }
}

/// A full packet shows the path MTU, and the last one how many PSNs its READ takes. Tells whether
/// there may be a request at its PSN.
fn learn_spans(
    requests: &mut Requests,
    packet: &Packet<'_>,
    observation: &mut Observation,
) -> bool {
    let psn = packet.headers.bth.psn;
    let known = requests.mtu();
    if let Some(full) = full_len(packet)
        && (known != Some(full) || requests.may_be_anew())
    {
        if !requests.may_ask_at(psn) {
            return false;
        }
        let mtu = requests.learn_mtu_at(psn, full);
        if full != mtu {
            observation.findings.push(path_mtu(packet, mtu));
        }
    } else if packet.opcode.position.ends() && known.is_none() {
        requests.learn_span(psn);
    }
    requests.reach(psn);
    true
}

/// The answer to a FLUSH or an ATOMIC WRITE: one packet without payload.
fn empty_answer(sent: &mut Sent, packet: &Packet<'_>, observation: &mut Observation) {
    let (frame, operation) = (sent.frame, sent.opcode.operation);
    let len = packet.payload.len();
    if packet.opcode.position != Position::Only || len != 0 {
        observation.findings.push(Finding {
            rule: Rule::ResponseKind,
            seen: format!("{} of {len} B", packet.opcode.name),
            expected: format!("an empty READ_RESPONSE_ONLY to the {}", operation.name()),
        });
    }
    observation.notes.push(Note::Answers { frame, operation });
    if !sent.answer(0).0 {
        observation.notes.push(Note::AnsweredBefore);
    }
}

/// Part of the answer to a READ.
fn part_of_read(
    read: &mut Sent,
    mtu: Option<u32>,
    packet: &Packet<'_>,
    observation: &mut Observation,
    counts: &mut Summary,
) {
    let psn = packet.headers.bth.psn;
    let len = packet.payload.len();
    let frame = read.frame;
    let index = u32::try_from(psn.since(read.psn)).unwrap_or(0);
    let of = read.announced.map(|_| read.span);
    observation.notes.push(Note::AnswersRead { frame, part: index + 1, of });

    let is_asked = index == 0 || read.may_begin_at(psn);
    // Else it was asked for again, unseen, where something was missing.
    let may_start = is_asked || index <= read.answered;
    let is_last = index + 1 == read.span;
    // Where the length is not known, neither is the end.
    let (may_end, may_go_on) = (is_last || of.is_none(), !is_last || of.is_none());
    let position = packet.opcode.position;
    let is_right = (if position.starts() { may_start } else { index != 0 || read.may_be_rest() })
        && (if position.ends() { may_end } else { may_go_on });
    if position.starts() && index == 0 {
        read.is_behind_gap = false;
    }
    if position.starts() && is_right && !is_asked {
        observation.notes.push(Note::RequestNotSeen);
    }
    if !is_right && !read.is_less {
        observation.findings.push(Finding {
            rule: Rule::ReadResponse,
            seen: format!("{} as part {} of {}", packet.opcode.name, index + 1, read.span),
            expected: format!("the part that the READ of frame {frame} asks for"),
        });
    } else if is_last
        && let Some(expected) = read.last_part_len(mtu)
        && let Some(announced) = read.announced
        && expected as usize != len
    {
        observation.findings.push(Finding {
            rule: Rule::ReadResponse,
            seen: format!("{len} B in the last part"),
            expected: format!("the end of the {announced} B that frame {frame} asked for"),
        });
    }
    let (is_new, missing) = read.answer(index);
    if missing > 0 {
        observation.notes.push(Note::ResponseGap { missing });
    }
    if is_new {
        counts.bytes += len as u64;
    } else {
        observation.notes.push(Note::AnsweredBefore);
    }
}

fn atomic_acknowledge(requests: &mut Requests, packet: &Packet<'_>, observation: &mut Observation) {
    let psn = packet.headers.bth.psn;
    let Some(sent) = requests.get_mut(psn) else {
        observation.notes.push(Note::RequestNotSeen);
        return;
    };
    let (frame, operation) = (sent.frame, sent.opcode.operation);
    if !operation.is_atomic() {
        observation.findings.push(wrong_kind(sent, packet));
        return;
    }
    observation.notes.push(Note::Answers { frame, operation });
    if !sent.answer(0).0 {
        observation.notes.push(Note::AnsweredBefore);
    }
    let Some(ack) = packet.headers.atomic_ack_eth else { return };
    let value = ack.original;
    if let Some(before) = sent.original.filter(|before| *before != value) {
        observation.findings.push(Finding {
            rule: Rule::AtomicResponse,
            seen: format!("the value 0x{value:x}"),
            expected: format!("0x{before:x} as the first time"),
        });
    }
    sent.original = sent.original.or(Some(value));
}

fn wrong_kind(sent: &Sent, packet: &Packet<'_>) -> Finding {
    let (name, frame) = (sent.opcode.operation.name(), sent.frame);
    Finding {
        rule: Rule::ResponseKind,
        seen: packet.opcode.name.to_owned(),
        expected: format!("the answer to the {name} of frame {frame}"),
    }
}
