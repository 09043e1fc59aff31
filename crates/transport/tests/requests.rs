//! What queue pairs take from the application in which state, and how it ends.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{REMOTE, ack, nak, packet, request};
use roxe_transport::adapter::QpEvent;
use roxe_transport::qp_state::{
    Attribute as A, AttributeMask, ModifyError, QpState, ServiceType, transition,
};
use roxe_transport::work::{
    Attributes, Completion, CompletionOpcode as O, CompletionStatus, Data, Extra, LocalOperation,
    PostError, Remote, SendOperation, Sge,
};
use roxe_wire::{ImmDt, NakCode, RKey};
use world::{End, KEY, attributes, sge};

use CompletionStatus::{Flushed, RetryExceeded, Success};
use SendOperation::{Send, Write};

fn connection() -> End {
    End::new(ServiceType::Rc, attributes(1, 2))
}

fn modify(end: &mut End, to: QpState) -> Result<(), ModifyError> {
    let row = transition(end.qp.service(), end.qp.state(), to);
    let given = row.map_or(AttributeMask::NONE, |row| row.required);
    end.qp.modify(to, given, &attributes(1, 2), &mut end.adapter)
}

//= V01, 05-5.1 test
#[test]
fn steps_that_do_not_exist_are_refused_and_change_nothing() {
    let mut end = connection();
    for (from, to) in [
        (QpState::Reset, QpState::Rts),
        (QpState::Reset, QpState::Error),
        (QpState::Init, QpState::Rts),
        (QpState::Rtr, QpState::SqDrain),
        (QpState::Rts, QpState::Init),
        (QpState::Error, QpState::Rts),
    ] {
        modify(&mut end, QpState::Reset).unwrap();
        let way = [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Error];
        for step in way {
            if end.qp.state() != from {
                modify(&mut end, step).unwrap();
            }
        }
        let refused = ModifyError::NoSuchTransition { from, to };
        assert_eq!(modify(&mut end, to), Err(refused));
        assert_eq!(end.qp.state(), from);
    }
}

//= V02, 05-5.1 test
#[test]
fn values_out_of_range_are_refused_and_change_nothing() {
    for (attribute, values) in [
        (A::RetryCnt, Attributes { retry_cnt: 8, ..attributes(1, 2) }),
        (A::RnrRetry, Attributes { rnr_retry: 8, ..attributes(1, 2) }),
    ] {
        let mut end = connection();
        modify(&mut end, QpState::SqDrain).unwrap();
        let before = *end.qp.attributes();
        let given = AttributeMask::of(&[attribute]);
        let done = end.qp.modify(QpState::SqDrain, given, &values, &mut end.adapter);
        assert_eq!(done, Err(ModifyError::Value(attribute)));
        assert_eq!(*end.qp.attributes(), before);
    }
}

//= V02, 05-5.1 test
#[test]
fn the_state_that_the_application_believes_in_must_be_the_present_one() {
    let mut end = connection();
    let given = AttributeMask::of(&[A::CurState]);
    let mut from = |cur_state| {
        let values = Attributes { cur_state, ..attributes(1, 2) };
        end.qp.modify(QpState::Rts, given, &values, &mut end.adapter)
    };
    assert_eq!(from(QpState::SqDrain), Err(ModifyError::WrongCurrentState));
    assert_eq!(from(QpState::Rts), Ok(()));
}

//= V04, BC-104, 05-5.1, IBA C10-97.2.1 test
#[test]
fn each_state_takes_what_it_takes() {
    let mut end = connection();
    let piece = [sge(0, 8)];
    let post = |end: &mut End| {
        end.qp.post_send(&request(1, Send, Data::Regions(&piece)), &mut end.adapter)
    };
    modify(&mut end, QpState::Reset).unwrap();
    let mut takes = vec![];
    for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::SqDrain, QpState::Error] {
        takes.push((post(&mut end), end.qp.state().takes_receives()));
        modify(&mut end, state).unwrap();
    }
    takes.push((post(&mut end), end.qp.state().takes_receives()));
    let refused = Err(PostError::WrongState);
    assert_eq!(
        takes,
        [
            (refused, false), // Reset
            (refused, true),  // Init
            (refused, true),  // Rtr
            (Ok(()), true),   // Rts
            (Ok(()), true),   // SqDrain
            (Ok(()), true),   // Error
        ]
    );
}

//= BC-104, 04-4.14, 05-5.7 test
#[test]
fn requests_that_cannot_be_are_refused_when_posted() {
    let mut end = connection();
    let piece = |len| sge(0, len);
    let five = [piece(1); 5];
    let (three, eight, unaligned) = ([piece(3)], [piece(8)], Remote { va: 4, ..REMOTE });
    let add = |remote| SendOperation::FetchAdd { remote, add: 1 };
    let inline = [7; 65];
    let cases = [
        (Send, Data::Regions(&five), PostError::TooManySegments { given: 5, max: 4 }),
        (Send, Data::Inline(&inline), PostError::InlineTooLong { given: 65, max: 64 }),
        (SendOperation::Read(REMOTE), Data::Inline(&inline[..8]), PostError::NotSupported),
        (add(REMOTE), Data::Regions(&three), PostError::BadAtomic),
        (add(unaligned), Data::Regions(&eight), PostError::BadAtomic),
        (SendOperation::AtomicWrite(unaligned), Data::Regions(&eight), PostError::BadAtomic),
    ];
    for (operation, data, error) in cases {
        let posted = end.qp.post_send(&request(1, operation, data), &mut end.adapter);
        assert_eq!(posted, Err(error));
    }
    assert_eq!(end.leave(), [""; 0], "nothing of it was queued");
    for id in 0..64 {
        end.post(id, Write(REMOTE), 1);
    }
    let one_more = request(64, Send, Data::Inline(b""));
    let full = Err(PostError::QueueFull { depth: 64 });
    assert_eq!(end.qp.post_send(&one_more, &mut end.adapter), full);
}

//= 04-4.14, 02-2.6 test
#[test]
fn no_pieces_and_empty_pieces_are_messages() {
    let mut end = connection();
    for pieces in [&[][..], &[sge(0, 0)], &[sge(0, 3), sge(9, 0), sge(20, 2)]] {
        let one = request(1, Send, Data::Regions(pieces));
        end.qp.post_send(&one, &mut end.adapter).unwrap();
    }
    let lines = [
        "SEND_ONLY 1000 ack-req",
        "SEND_ONLY 1001 ack-req",
        "SEND_ONLY 1002 5 bytes from 0 ack-req",
    ];
    assert_eq!(end.leave(), lines);
}

//= BC-091, BC-094, 05-5.2 test
#[test]
fn requests_in_error_are_flushed_in_order_and_named() {
    let mut end = connection();
    end.post(0, Write(REMOTE), 600);
    end.leave();
    (1..5).for_each(|id| end.post_request(id, Send, 8, |request| request.signaled = false));
    modify(&mut end, QpState::Error).unwrap();
    (5..10).for_each(|id| end.post(id, SendOperation::Read(REMOTE), 8));
    let flushed: Vec<_> = (0..10).map(|id| (id, Flushed)).collect();
    assert_eq!(end.sent(), flushed);
    let qpn = end.qp.attributes().qpn;
    assert!(end.adapter.sent.iter().all(|completion| completion.qpn == qpn));
    assert_eq!(end.leave(), [""; 0]);
    modify(&mut end, QpState::Error).unwrap();
    assert_eq!(end.sent().len(), 10, "once");
}

//= BC-100 test
#[test]
fn a_failure_shows_in_the_state_at_once() {
    let mut end = End::new(ServiceType::Rc, Attributes { retry_cnt: 0, ..attributes(1, 2) });
    end.post(1, Send, 1);
    end.leave();
    let at = end.qp.deadline().unwrap();
    assert_eq!(end.qp.state(), QpState::Rts);
    end.qp.handle_timeout(at, &mut end.adapter);
    assert_eq!((end.qp.state(), end.sent()), (QpState::Error, vec![(1, RetryExceeded)]));
}

//= BC-097, BC-098 test
#[test]
fn completions_name_verbs_and_immediate_data_is_the_receivers() {
    let mut end = connection();
    let invalidate = SendOperation::Local(LocalOperation::Invalidate(RKey(KEY)));
    let cases = [
        (Send, O::Send),
        (SendOperation::SendWithImm(ImmDt(5)), O::Send),
        (SendOperation::SendWithInv(RKey(KEY)), O::Send),
        (Write(REMOTE), O::RdmaWrite),
        (SendOperation::WriteWithImm(REMOTE, ImmDt(5)), O::RdmaWrite),
        (SendOperation::AtomicWrite(REMOTE), O::AtomicWrite),
        (invalidate, O::LocalInv),
    ];
    for (id, (operation, _)) in (0..).zip(cases) {
        let len = if matches!(operation, SendOperation::Local(_)) { 0 } else { 8 };
        end.post(id, operation, len);
    }
    end.leave();
    end.take(ack(1004));
    end.take(packet("RC_READ_RESPONSE_ONLY", 1005));
    end.leave();
    let is: Vec<_> = end.adapter.sent.iter().map(|c| (c.status, c.opcode, c.extra)).collect();
    let expected: Vec<_> = cases.map(|(_, opcode)| (Success, opcode, Extra::None)).into();
    assert_eq!(is, expected);
    // The receiver's side of the same operations.
    let mut end = End::new(ServiceType::Rc, attributes(2, 1));
    (1..4).for_each(|id| end.room(id, 8));
    end.take(packet("RC_SEND_ONLY", 1000));
    end.take(packet("RC_SEND_ONLY_IMM", 1001).imm(5));
    end.take(packet("RC_WRITE_ONLY_IMM", 1002).imm(6));
    let is = |c: &Completion| (c.opcode, c.extra);
    let received: Vec<_> = end.adapter.received.iter().map(is).collect();
    let imm = |value| Extra::Imm(ImmDt(value));
    let expected = [(O::Recv, Extra::None), (O::Recv, imm(5)), (O::RecvRdmaWithImm, imm(6))];
    assert_eq!(received, expected);
}

/// Each status has the number and the words that `ibv_wc_status_str` users look up.
//= BC-047, 05-5.3 test
#[test]
fn statuses_have_their_numbers_and_names() {
    for (status, number, name) in [
        (Success, 0, "ok"),
        (CompletionStatus::LocalLengthError, 1, "local-length-error"),
        (CompletionStatus::LocalQpOperationError, 2, "local-qp-operation-error"),
        (CompletionStatus::LocalProtectionError, 4, "local-protection-error"),
        (Flushed, 5, "flushed"),
        (CompletionStatus::MwBindError, 6, "mw-bind-error"),
        (CompletionStatus::BadResponse, 7, "bad-response"),
        (CompletionStatus::LocalAccessError, 8, "local-access-error"),
        (CompletionStatus::RemoteInvalidRequest, 9, "remote-invalid-request"),
        (CompletionStatus::RemoteAccessError, 10, "remote-access-error"),
        (CompletionStatus::RemoteOperationError, 11, "remote-operation-error"),
        (RetryExceeded, 12, "retry-exceeded"),
        (CompletionStatus::RnrRetryExceeded, 13, "rnr-retry-exceeded"),
        (CompletionStatus::Fatal, 19, "fatal"),
    ] {
        assert_eq!((status.code(), status.name()), (number, name));
    }
}

//= 05-5.4, 05-5.1 test
#[test]
fn each_event_has_its_cause() {
    let mut end = connection();
    end.take(packet("RC_SEND_LAST", 2000).bytes(b"x"));
    assert_eq!(end.adapter.events, [QpEvent::RequestError]);
    let mut end = connection();
    end.take(packet("RC_WRITE_ONLY", 2000).bytes(b"x").at(0, KEY + 1));
    assert_eq!(end.adapter.events, [QpEvent::AccessError]);
    let mut end = connection();
    end.adapter.receives.push_back((1, Sge { l_key: roxe_wire::LKey(KEY + 1), ..sge(0, 8) }));
    end.take(packet("RC_SEND_ONLY", 2000).bytes(b"x"));
    assert_eq!(end.adapter.events, [QpEvent::Fatal]);
    assert_eq!(end.leave(), ["ACKNOWLEDGE 2000 nak 0x63 msn 0"]);
    // What fails at the requester is a completion, and no event.
    let mut end = connection();
    end.post(1, Send, 1);
    end.leave();
    end.take(nak(1000, NakCode::RemoteAccessError));
    assert_eq!((end.adapter.events.len(), end.sent().len()), (0, 1));
}
