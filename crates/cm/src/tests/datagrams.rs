//! Service ID resolution: SIDR_REQ and SIDR_REP.

use roxe_wire::mad::cm::{CommId, ServiceId, SidrReply, SidrRequest, SidrStatus};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{QKey, Qpn};

use super::pair::{CLIENT, Pair, SERVER, all_events, bytes, events, sent, turned};
use crate::{
    Answer, CallError, Event, GidPair, Ignored, Listen, PortSpace, QuestionId, ResolutionId,
    Resolve, Transmit,
};

fn path() -> GidPair {
    GidPair::new(CLIENT, SERVER)
}

fn asking(pair: &mut Pair) -> ResolutionId {
    pair.server.listen(Listen::port(PortSpace::Udp, 7174, 2)).unwrap();
    pair.client.resolve(pair.now, &Resolve::port(path(), 5, 7174)).unwrap()
}

fn asked(pair: &mut Pair) -> QuestionId {
    match events(&mut pair.server).as_slice() {
        [Event::Question { question, .. }] => *question,
        other => panic!("no question: {other:?}"),
    }
}

fn resolved(pair: &mut Pair) -> SidrReply {
    match events(&mut pair.client).as_slice() {
        [Event::Resolved { reply, .. }] => **reply,
        other => panic!("no answer: {other:?}"),
    }
}

const SERVE: Answer = Answer::Serve { qpn: Qpn::new(0x72), q_key: None };

//= M10 test
#[test]
fn a_service_is_answered_with_number_and_key() {
    for (q_key, on_wire) in [(None, 0x0123_4567), (Some(QKey(7)), 7)] {
        let mut pair = Pair::new();
        asking(&mut pair);
        pair.carry();
        let question = asked(&mut pair);
        let answer = Answer::Serve { qpn: Qpn::new(0x72), q_key };
        pair.server.answer(pair.now, question, answer, b"hi").unwrap();
        pair.carry();
        let reply = resolved(&mut pair);
        assert_eq!((reply.status, reply.qpn), (SidrStatus::Valid, Qpn::new(0x72)));
        assert_eq!((reply.q_key, reply.private_data.0[1]), (QKey(on_wire), b'i'));
        assert_eq!(reply.service_id.port(), Some((PortSpace::Udp, 7174)));
        assert_eq!(pair.client.len(), 0);
        let again = pair.server.answer(pair.now, question, answer, &[]);
        assert_eq!(again, Err(CallError::Gone), "once is enough");
        pair.settle_but(|_| false);
        pair.is_clean();
    }
}

//= M10 test
#[test]
fn a_service_that_there_is_not_is_unsupported() {
    let mut pair = Pair::new();
    pair.client.resolve(pair.now, &Resolve::port(path(), 5, 7174)).unwrap();
    pair.carry();
    let reply = resolved(&mut pair);
    assert_eq!((reply.status, reply.qpn), (SidrStatus::UnsupportedServiceId, Qpn::new(0)));
    assert_eq!(pair.server.counters().refused, 1);
    pair.is_clean();
}

#[test]
fn an_application_may_refuse() {
    let mut pair = Pair::new();
    asking(&mut pair);
    pair.carry();
    let question = asked(&mut pair);
    let refuse = Answer::Refuse(SidrStatus::NoQp);
    let max = 136;
    let too_long = pair.server.answer(pair.now, question, refuse, &[0; 137]);
    assert_eq!(too_long, Err(CallError::PrivateDataTooLong { given: 137, max }));
    pair.server.answer(pair.now, question, refuse, &[]).unwrap();
    pair.carry();
    let reply = resolved(&mut pair);
    assert_eq!((reply.status, reply.q_key), (SidrStatus::NoQp, QKey(0)));
}

#[test]
fn a_lost_question_or_answer_is_repeated_and_heard_once() {
    for lost in [">SIDR_REQ", "<SIDR_REP"] {
        let mut pair = Pair::new();
        asking(&mut pair);
        pair.carry_but(|what| what == lost);
        if lost == "<SIDR_REP" {
            let question = asked(&mut pair);
            pair.server.answer(pair.now, question, SERVE, &[]).unwrap();
            pair.carry_but(|what| what == lost);
        }
        pair.wait();
        pair.carry();
        if lost == ">SIDR_REQ" {
            let question = asked(&mut pair);
            pair.server.answer(pair.now, question, SERVE, &[]).unwrap();
            pair.carry();
        }
        assert_eq!(resolved(&mut pair).qpn, Qpn::new(0x72), "{lost}");
        assert_eq!(events(&mut pair.server), [], "{lost}");
        assert_eq!(pair.client.counters().retransmissions, 1);
        pair.settle_but(|_| false);
        pair.is_clean();
    }
}

/// While the application thinks, the question is no second one.
#[test]
fn a_question_that_comes_twice_is_one() {
    let mut pair = Pair::new();
    asking(&mut pair);
    pair.carry();
    pair.wait();
    pair.carry();
    asked(&mut pair);
    assert_eq!(pair.log(), ">SIDR_REQ >SIDR_REQ");
    assert_eq!(pair.server.counters().duplicates, 1);
}

/// What a client asks, which the server has not heard.
fn first_request(pair: &mut Pair) -> SidrRequest {
    pair.client.resolve(pair.now, &Resolve::port(path(), 5, 7174)).unwrap();
    match &sent(&mut pair.client)[..] {
        [Transmit { mad: Mad { message: Message::SidrRequest(request), .. }, .. }] => *request,
        other => panic!("no SIDR_REQ: {other:?}"),
    }
}

/// Asks for the service of a port under the same number.
fn ask(pair: &mut Pair, request: SidrRequest, port: u16) {
    let service_id = ServiceId::from_port(PortSpace::Udp, port);
    let message = Message::SidrRequest(SidrRequest { service_id, ..request });
    pair.server.handle_mad(pair.now, turned(path()), &bytes(&Mad::new(0, message)));
}

/// Who begins anew uses its numbers again, for another service perhaps.
#[test]
fn a_question_for_another_service_is_not_the_old_one_again() {
    for is_answered in [false, true] {
        let mut pair = Pair::new();
        for port in [7174, 7175] {
            pair.server.listen(Listen::port(PortSpace::Udp, port, 1)).unwrap();
        }
        let request = first_request(&mut pair);
        ask(&mut pair, request, 7174);
        let mut last = asked(&mut pair);
        for port in [7175, 7174] {
            if is_answered {
                pair.server.answer(pair.now, last, SERVE, &[]).unwrap();
                sent(&mut pair.server);
            }
            ask(&mut pair, request, port);
            let question = asked(&mut pair);
            let late = pair.server.answer(pair.now, last, SERVE, &[]);
            assert_eq!(late, Err(CallError::Gone));
            assert!(sent(&mut pair.server).is_empty());
            last = question;
        }
        pair.server.answer(pair.now, last, SERVE, &[]).unwrap();
        ask(&mut pair, request, 7174);
        assert_eq!(pair.server.counters().duplicates, 1);
        let replies = sent(&mut pair.server);
        assert_eq!(replies.len(), 2, "and again");
        for reply in replies {
            let Message::SidrReply(reply) = reply.mad.message else { panic!("no SIDR_REP") };
            assert_eq!(reply.service_id.port(), Some((PortSpace::Udp, 7174)));
        }
        pair.settle_but(|_| true);
        assert_eq!(pair.server.len(), 0);
    }
}

/// Who asks for ever other things is not told of without end.
#[test]
fn a_question_that_was_given_up_keeps_its_place_until_it_is_answered() {
    let mut pair = Pair::new();
    for port in [7174, 7175] {
        pair.server.listen(Listen::port(PortSpace::Udp, port, 1)).unwrap();
    }
    let request = first_request(&mut pair);
    for port in [7174, 7175, 7174, 7175, 7174] {
        ask(&mut pair, request, port);
    }
    let questions = events(&mut pair.server);
    let [Event::Question { question: first, .. }, Event::Question { .. }] = &questions[..] else {
        panic!("more than one of each: {questions:?}")
    };
    assert_eq!(pair.server.answer(pair.now, *first, SERVE, &[]), Err(CallError::Gone));
    ask(&mut pair, request, 7174);
    asked(&mut pair);
}

#[test]
fn a_silent_host_is_given_up() {
    let mut pair = Pair::new();
    let resolution = asking(&mut pair);
    pair.settle_but(|_| true);
    assert_eq!(pair.log().matches("x>SIDR_REQ").count(), 16);
    let told = [Event::LookedForAgain { resolution }, Event::Unresolved { resolution }];
    assert_eq!(all_events(&mut pair.client), told);
    pair.is_clean();
}

#[test]
fn a_resolution_can_be_cancelled() {
    let mut pair = Pair::new();
    let resolution = asking(&mut pair);
    pair.carry();
    pair.client.cancel(resolution).unwrap();
    assert_eq!(pair.client.cancel(resolution), Err(CallError::Gone));
    let question = asked(&mut pair);
    pair.server.answer(pair.now, question, SERVE, &[]).unwrap();
    pair.carry();
    assert_eq!(events(&mut pair.client), []);
    assert_eq!(pair.client.counters().ignored(Ignored::Unknown), 1);
}

#[test]
fn more_questions_than_the_backlog_holds_are_refused() {
    let mut pair = Pair::new();
    asking(&mut pair);
    for _ in 0..2 {
        pair.client.resolve(pair.now, &Resolve::port(path(), 5, 7174)).unwrap();
    }
    pair.carry();
    assert_eq!(resolved(&mut pair).status, SidrStatus::Rejected, "the third one");
    assert_eq!(events(&mut pair.server).len(), 2);
    pair.server.config.max_connections = 2;
    pair.client.resolve(pair.now, &Resolve::port(path(), 5, 7174)).unwrap();
    pair.carry();
    assert_eq!(resolved(&mut pair).status, SidrStatus::Rejected);
    pair.client.config.max_connections = 0;
    let too_many = pair.client.resolve(pair.now, &Resolve::port(path(), 5, 7174));
    assert_eq!(too_many, Err(CallError::TooMany));
}

#[test]
fn answers_from_elsewhere_and_questions_from_nobody_are_ignored() {
    let mut pair = Pair::new();
    asking(&mut pair);
    let [asked] = &sent(&mut pair.client)[..] else { panic!("no SIDR_REQ") };
    let Message::SidrRequest(request) = asked.mad.message else { panic!("no SIDR_REQ") };
    let reply = SidrReply { request_id: request.request_id, ..SidrReply::default() };
    let mad = Mad::new(0, Message::SidrReply(reply));
    pair.client.handle_mad(pair.now, GidPair::new(CLIENT, CLIENT), &bytes(&mad));
    assert_eq!(pair.client.counters().ignored(Ignored::Foreign), 1);
    let nameless = SidrRequest { request_id: CommId(0), ..request };
    let mad = Mad::new(0, Message::SidrRequest(nameless));
    pair.server.handle_mad(pair.now, turned(path()), &bytes(&mad));
    assert_eq!(pair.server.counters().ignored(Ignored::NoCommId), 1);
    assert_eq!((pair.client.len(), pair.server.len()), (1, 0));
}
