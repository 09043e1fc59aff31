//! MRA: who gets an answer later waits longer.

use std::time::Duration;

use roxe_wire::mad::cm::{AnsweredMessage, CmTimeout, MessageReceipt};
use roxe_wire::mad::{Mad, Message};

use super::pair::{Pair, bytes, connect, events, sent};
use crate::{Event, Ignored, State};

/// The server's application thinks for long. What comes again meanwhile is answered by an MRA.
//= 08-8.4 test
#[test]
fn a_slow_application_does_not_cost_the_connection() {
    let mut pair = Pair::new();
    let client = pair.request();
    pair.carry();
    let server = pair.requested();
    let asked = pair.now;
    pair.wait();
    pair.carry();
    assert_eq!(pair.log(), ">REQ >REQ <MRA");
    assert_eq!(pair.states(client, server), [Some(State::MraReqRcvd), Some(State::MraReqSent)]);
    assert!(pair.client.poll_timeout().unwrap().since(asked) > Duration::from_secs(70));
    pair.wait();
    pair.carry();
    assert_eq!(pair.log(), ">REQ <MRA", "as often as it takes");
    pair.accept(server);
    pair.carry();
    pair.replied();

    // And the client's application, too.
    pair.wait();
    pair.carry();
    assert_eq!(pair.log(), "<REP <REP >MRA");
    assert_eq!(pair.states(client, server), [Some(State::MraRepSent), Some(State::MraRepRcvd)]);
    pair.client.ready(client, &[]).unwrap();
    pair.carry();
    assert_eq!(events(&mut pair.server), [Event::Established { connection: server }]);
    assert_eq!(pair.states(client, server), [Some(State::Established); 2]);
}

/// Who only says that it is busy cannot hold a connection for ever.
//= 08-8.4 test
#[test]
fn a_transmission_is_prolonged_once() {
    let mut pair = Pair::new();
    let client = pair.request();
    pair.carry();
    pair.requested();
    pair.wait();
    let mut retries = 0;
    loop {
        pair.carry();
        let [Some(State::MraReqRcvd), _] = pair.states(client, client) else { break };
        retries += 1;
        // The MRA comes twice: that changes nothing.
        let before = pair.client.poll_timeout();
        let id = pair.client.connections.keys().next().copied().unwrap();
        let receipt = MessageReceipt {
            remote_comm_id: id,
            service_timeout: CmTimeout::from_bits(31),
            ..MessageReceipt::default()
        };
        let from = connect().path;
        let now = pair.now;
        pair.client.on_message_receipt(now, from, &receipt);
        assert_eq!(pair.client.poll_timeout(), before);
        pair.wait();
    }
    assert_eq!(retries, 15);
    assert_eq!(events(&mut pair.client), [Event::Unreachable { connection: client }]);
    assert_eq!(pair.client.counters().ignored(Ignored::WrongState), 15);
}

#[test]
fn a_receipt_for_what_is_not_awaited_changes_nothing() {
    let mut pair = Pair::new();
    let (client, server) = pair.establish();
    let now = pair.now;
    for (mraed, is_server) in [
        (AnsweredMessage::Req, false),
        (AnsweredMessage::Rep, true),
        (AnsweredMessage::Other, true),
    ] {
        let (agent, id) =
            if is_server { (&mut pair.server, server) } else { (&mut pair.client, client) };
        let connection = &agent.connections[&id.0];
        let (from, theirs) = (connection.path, connection.remote_id);
        let before = agent.counters().ignored(Ignored::WrongState);
        let receipt = MessageReceipt {
            local_comm_id: theirs,
            remote_comm_id: id.0,
            message_mraed: mraed,
            ..MessageReceipt::default()
        };
        let mad = Mad::new(9, Message::MessageReceipt(receipt));
        agent.handle_mad(now, from, &bytes(&mad));
        assert_eq!(agent.counters().ignored(Ignored::WrongState), before + 1);
        assert_eq!((agent.poll_timeout(), sent(agent)), (None, vec![]));
    }
}
