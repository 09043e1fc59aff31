//! What a queue pair knows of its own end: which packet broke which rule about which memory, and
//! how a request was tried. The requester's first PSN is 1000, the responder's next one 2000, the
//! path MTU 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use std::time::Duration;

use peer::{REMOTE, Sent, count, nak, packet};
use roxe_transport::adapter::{KeyViolation, Receive};
use roxe_transport::ending::{Cause, PeerRequest, RequestFailure, Rule};
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{CompletionStatus, SendOperation};
use roxe_wire::{Instant, NakCode, Psn, RKey};
use world::{End, KEY, MEMORY, attributes};

const BAD: RKey = RKey(KEY + 1);

fn connection() -> End {
    End::new(ServiceType::Rc, attributes(1, 2))
}

/// What is known of the peer's request that ended it, after these packets.
fn ended_by(end: &mut End, packets: &[Sent]) -> (PeerRequest, Rule) {
    for packet in packets {
        assert_eq!(end.qp.ending(), None);
        end.take(packet.clone());
    }
    end.leave();
    match end.qp.ending().expect("an end").cause {
        Cause::Peer(request, rule, nak) => {
            assert_eq!(nak, Some(rule.nak()));
            (request, rule)
        }
        other => panic!("{other:?}"),
    }
}

/// A request without memory or receive.
fn request(opcode: u8, psn: u32, payload: u32) -> PeerRequest {
    PeerRequest { opcode, psn: Psn::new(psn), payload, remote: None, receive: None }
}

//= W01 test
#[test]
fn the_memory_of_a_refused_request_is_known() {
    let no_key = Rule::Key(KeyViolation::NoSuchKey);
    let write = packet("RC_WRITE_ONLY", 2000).bytes(b"abc").at(40, BAD.0);
    let remote = Some((BAD, 40, 3));
    let expected = PeerRequest { remote, ..request(0x0a, 2000, 3) };
    assert_eq!(ended_by(&mut connection(), &[write]), (expected, no_key));

    let add = packet("RC_FETCH_ADD", 2000).at(9, KEY);
    let remote = Some((RKey(KEY), 9, 8));
    let expected = PeerRequest { remote, ..request(0x14, 2000, 0) };
    assert_eq!(ended_by(&mut connection(), &[add]), (expected, Rule::Aligned));

    // In the middle of a message: where it would have gone on, and how much was to come.
    let first = packet("RC_WRITE_FIRST", 2000).bytes(&count(1, 256)).at(40, KEY).len(300);
    let middle = packet("RC_WRITE_MIDDLE", 2001).bytes(&count(1, 256));
    let remote = Some((RKey(KEY), 296, 44));
    let expected = PeerRequest { remote, ..request(0x07, 2001, 256) };
    assert_eq!(ended_by(&mut connection(), &[first, middle]), (expected, Rule::WriteLength));
}

//= W01 test
#[test]
fn the_receive_of_a_refused_send_is_known() {
    let mut end = connection();
    end.room(5, 300);
    let first = packet("RC_SEND_FIRST", 2000).bytes(&count(1, 256));
    let last = packet("RC_SEND_LAST", 2001).bytes(&count(1, 45));
    let receive = Some((Receive { wr_id: 5, slot: 0, len: 300 }, 256));
    let expected = PeerRequest { receive, ..request(0x02, 2001, 45) };
    assert_eq!(ended_by(&mut end, &[first, last]), (expected, Rule::ReceiveLength));

    let middle = packet("RC_SEND_MIDDLE", 2000).bytes(&count(1, 256));
    let expected = request(0x01, 2000, 256);
    assert_eq!(ended_by(&mut connection(), &[middle]), (expected, Rule::Sequence));
}

/// The READ whose data cannot be sent is found by the PSN of that data.
//= W01, BC-055 test
#[test]
fn the_read_whose_memory_went_away_is_known() {
    let mut end = connection();
    let va = MEMORY as u64 - 600;
    end.take(packet("RC_READ_REQUEST", 2000).len(8));
    end.take(packet("RC_READ_REQUEST", 2001).at(va, KEY).len(600));
    assert_eq!(end.poll(peer::NOW).map(|_| ()), Some(()));
    end.adapter.memory.truncate(MEMORY - 300);
    let gone = Rule::ReadKey(KeyViolation::OutsideRegion);
    let remote = Some((RKey(KEY), va, 600));
    let expected = PeerRequest { remote, ..request(0x0c, 2002, 0) };
    assert_eq!(ended_by(&mut end, &[]), (expected, gone));
}

/// How often the timer ran out, and how often a NAK asked.
//= W01 test
#[test]
fn the_tries_of_a_request_are_told_apart() {
    let mut own = attributes(1, 2);
    own.retry_cnt = 2;
    let mut end = End::new(ServiceType::Rc, own);
    end.post(1, SendOperation::Write(REMOTE), 1);
    let mut now = Instant::ZERO;
    end.leave_at(now);
    end.take(nak(1000, NakCode::PsnSequenceError));
    end.leave_at(now);
    for _ in 0..2 {
        now = end.qp.deadline().unwrap();
        end.qp.handle_timeout(now, &mut end.adapter);
        end.leave_at(now);
    }
    let Some(Cause::Request(_, failure)) = end.qp.ending().map(|ending| ending.cause) else {
        panic!("{:?}", end.qp.ending());
    };
    assert_eq!(
        failure,
        RequestFailure::NoAnswer {
            psn: Psn::new(1000),
            timeouts: 2,
            naks: 1,
            wait: Duration::from_nanos(4096 << 10),
            silence: Some(now - Instant::ZERO),
            heard: None,
        }
    );
}

/// With its port a queue pair goes, unless it had ended before; and one in state Reset has nothing
/// to wait for.
//= W01 test
#[test]
fn a_queue_pair_ends_with_its_port_and_says_so() {
    let mut end = connection();
    end.room(7, 10);
    end.qp.port_gone(&mut end.adapter);
    let ending = end.qp.ending().expect("an end");
    assert_eq!((ending.cause, ending.to), (Cause::PortGone, QpState::Error));
    assert_eq!(ending.cause.name(), "port-gone");
    let sentence = "moved to error: nothing comes or goes by its port any more";
    assert_eq!(ending.to_string(), sentence);
    assert_eq!(end.received(), [(7, CompletionStatus::Flushed, 0)]);

    let mut end = connection();
    end.take(packet("RC_WRITE_ONLY", 2000).bytes(b"abc").at(40, BAD.0));
    let before = *end.qp.ending().expect("an end");
    end.qp.port_gone(&mut end.adapter);
    assert_eq!(end.qp.ending(), Some(&before));
}
