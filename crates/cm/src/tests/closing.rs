//! How connections end.

use std::time::Duration;

use roxe_wire::mad::cm::{
    AlternatePathStatus, CommId, DisconnectRequest, LoadAlternatePath, PrivateData,
};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{Instant, Qpn};

use super::pair::{CLIENT, CLIENT_QPN, Pair, SERVER, SERVER_QPN, bytes, connect, events, sent};
use crate::{Agent, ConnectionId, Event, GidPair, Ignored, State};

fn hand(agent: &mut Agent, now: Instant, from: GidPair, message: Message) {
    agent.handle_mad(now, from, &bytes(&Mad::new(0xabc, message)));
}

fn to_server() -> GidPair {
    GidPair::new(SERVER, CLIENT)
}

#[test]
fn either_side_ends_a_connection() {
    for by_client in [true, false] {
        let mut pair = Pair::new();
        let (client, server) = pair.establish();
        let start = pair.now;
        if by_client {
            pair.client.disconnect(start, client, b"bye").unwrap();
        } else {
            pair.server.disconnect(start, server, b"bye").unwrap();
        }
        pair.carry();
        assert_eq!(pair.log(), if by_client { ">DREQ <DREP" } else { "<DREQ >DREP" });
        assert_eq!(pair.states(client, server), [Some(State::TimeWait); 2]);
        assert_eq!(events(&mut pair.client), [Event::Disconnected { connection: client }]);
        assert_eq!(events(&mut pair.server), [Event::Disconnected { connection: server }]);
        // As programs of librdmacm do when they hear of it.
        pair.client.disconnect(start, client, &[]).unwrap();
        pair.server.disconnect(start, server, &[]).unwrap();
        pair.settle_but(|_| false);
        assert_eq!(pair.log(), "", "there is nothing to say any more");
        assert_eq!(events(&mut pair.client), [Event::TimeWaitExit { connection: client }]);
        assert_eq!(events(&mut pair.server), [Event::TimeWaitExit { connection: server }]);
        assert_eq!(pair.now.since(start), Duration::from_nanos(4096 << 19), "the ACK timeout");
        pair.is_clean();
    }
}

//= M06, M15 test
#[test]
fn both_may_end_it_at_once() {
    let mut pair = Pair::new();
    let (client, server) = pair.establish();
    pair.client.disconnect(pair.now, client, &[]).unwrap();
    pair.server.disconnect(pair.now, server, &[]).unwrap();
    let of_client = sent(&mut pair.client);
    let of_server = sent(&mut pair.server);
    let ids = [&of_client, &of_server].map(|of| of[0].mad.transaction_id);
    assert_ne!(ids[0], ids[1], "each has a transaction of its own");
    pair.client.handle_mad(pair.now, connect().path, &bytes(&of_server[0].mad));
    pair.server.handle_mad(pair.now, to_server(), &bytes(&of_client[0].mad));
    let answer = |agent: &mut Agent| {
        let [answer] = &sent(agent)[..] else { panic!("no answer") };
        assert_eq!(answer.mad.message.name(), "DREP");
        *answer
    };
    let (by_client, by_server) = (answer(&mut pair.client), answer(&mut pair.server));
    assert_eq!(by_client.mad.transaction_id, ids[1], "that of the DREQ received");
    assert_eq!(by_server.mad.transaction_id, ids[0]);
    pair.client.handle_mad(pair.now, connect().path, &bytes(&by_server.mad));
    pair.server.handle_mad(pair.now, to_server(), &bytes(&by_client.mad));
    assert_eq!(pair.states(client, server), [Some(State::TimeWait); 2]);
    assert_eq!(events(&mut pair.client), [Event::Disconnected { connection: client }]);
    assert_eq!(events(&mut pair.server), [Event::Disconnected { connection: server }]);
    assert_eq!(pair.client.counters().duplicates, 1);
    pair.settle_but(|_| false);
    pair.is_clean();
}

//= M06 test
#[test]
fn a_name_is_not_used_again_before_time_wait_is_over() {
    let mut pair = Pair::new();
    let (client, _) = pair.establish();
    pair.client.disconnect(pair.now, client, &[]).unwrap();
    pair.carry();
    // Let it come round to the same name.
    let again = {
        let mut chance = crate::chance::Chance::new(1);
        let first = chance.comm_id(|_| false);
        assert_eq!(first, client.0);
        chance
    };
    pair.client.chance = crate::chance::Chance::new(1);
    let next = pair.request();
    assert_ne!(next, client, "{again:?}");
}

/// Its process was killed: another one has its address, and was told what stood.
#[test]
fn an_heir_parts_from_the_peers_of_one_who_is_gone() {
    let mut pair = Pair::new();
    pair.client.watch_standing();
    let (client, server) = pair.establish();
    let (id, standing) = pair.client.poll_standing().unwrap();
    assert_eq!((id, pair.client.poll_standing()), (client, None));
    let standing = standing.unwrap();
    pair.client = Agent::new(pair.client.config, 99);
    pair.client.part_for(pair.now, &standing);
    pair.client.part_for(pair.now, &standing);
    assert_eq!(pair.client.partings(), 1, "once");
    pair.settle_but(|what| what == "<DREP");
    assert_eq!(pair.log(), ">DREQ x<DREP >DREQ x<DREP >DREQ x<DREP");
    assert_eq!(events(&mut pair.client), [], "nobody waits for it");
    assert_eq!(events(&mut pair.server)[0], Event::Disconnected { connection: server });
    pair.is_clean();
}

#[test]
fn what_ceases_to_stand_is_told_to_who_watches() {
    for by_client in [true, false] {
        let mut pair = Pair::new();
        pair.client.watch_standing();
        let (client, server) = pair.establish();
        assert!(pair.client.poll_standing().is_some_and(|(id, it)| id == client && it.is_some()));
        if by_client {
            pair.client.disconnect(pair.now, client, &[]).unwrap();
        } else {
            pair.server.disconnect(pair.now, server, &[]).unwrap();
        }
        pair.carry();
        assert_eq!(pair.client.poll_standing(), Some((client, None)));
        assert_eq!(pair.server.poll_standing(), None, "nobody watches");
    }
}

#[test]
fn a_lost_answer_is_given_again() {
    let mut pair = Pair::new();
    let (client, server) = pair.establish();
    pair.client.disconnect(pair.now, client, &[]).unwrap();
    pair.carry_but(|what| what == "<DREP");
    assert_eq!((pair.client.partings(), pair.server.partings()), (1, 0));
    // Sixteen seconds are long, two are not: the server's name is gone when it is asked again.
    pair.settle_but(|_| false);
    assert_eq!(pair.log(), ">DREQ x<DREP >DREQ <DREP");
    assert_eq!((pair.client.partings(), pair.server.partings()), (0, 0));
    assert_eq!(pair.server.counters().ignored(Ignored::Unknown), 1);
    let ended =
        |id| [Event::Disconnected { connection: id }, Event::TimeWaitExit { connection: id }];
    assert_eq!(events(&mut pair.client), ended(client));
    assert_eq!(events(&mut pair.server), ended(server));
    pair.is_clean();
}

#[test]
fn nobody_waits_for_ever_for_the_answer() {
    let mut pair = Pair::new();
    let (client, server) = pair.establish();
    pair.client.disconnect(pair.now, client, &[]).unwrap();
    pair.settle_but(|what| what == ">DREQ");
    assert_eq!(pair.log().matches("x>DREQ").count(), 16);
    let ended =
        [Event::Disconnected { connection: client }, Event::TimeWaitExit { connection: client }];
    assert_eq!(events(&mut pair.client), ended);
    assert_eq!(pair.states(client, server), [None, Some(State::Established)], "it knows nothing");
    pair.server.destroy(pair.now, server).unwrap();
    pair.settle_but(|_| false);
    assert_eq!(pair.log(), "<DREQ >DREP", "whoever asks is answered");
    pair.is_clean();
}

//= M07 test
#[test]
fn a_disconnect_of_what_there_is_not_is_answered() {
    let mut pair = Pair::new();
    let request = DisconnectRequest {
        local_comm_id: CommId(7),
        remote_comm_id: CommId(8),
        remote_qpn: Qpn::new(9),
        private_data: PrivateData::ZERO,
    };
    hand(&mut pair.server, pair.now, to_server(), Message::DisconnectRequest(request));
    let [reply] = &sent(&mut pair.server)[..] else { panic!("no answer") };
    let Message::DisconnectReply(said) = reply.mad.message else { panic!("{}", reply.mad) };
    assert_eq!((said.local_comm_id, said.remote_comm_id), (CommId(8), CommId(7)));
    assert_eq!((reply.mad.transaction_id, reply.path), (0xabc, to_server()));
    assert_eq!(pair.server.counters().ignored(Ignored::Unknown), 1);
}

//= M07 test
#[test]
fn a_disconnect_of_another_queue_pair_is_ignored() {
    let mut pair = Pair::new();
    let (client, server) = pair.establish();
    let mut request = DisconnectRequest {
        local_comm_id: client.0,
        remote_comm_id: server.0,
        remote_qpn: CLIENT_QPN,
        private_data: PrivateData::ZERO,
    };
    hand(&mut pair.server, pair.now, to_server(), Message::DisconnectRequest(request));
    assert_eq!((sent(&mut pair.server), events(&mut pair.server)), (vec![], vec![]));
    assert_eq!(pair.server.counters().ignored(Ignored::WrongQpn), 1);
    // From somebody else, or for another connection of the same peer, it is ignored too.
    request.remote_qpn = SERVER_QPN;
    let elsewhere = GidPair::new(SERVER, std::net::Ipv4Addr::new(10, 10, 0, 4));
    hand(&mut pair.server, pair.now, elsewhere, Message::DisconnectRequest(request));
    let other = DisconnectRequest { local_comm_id: CommId(1), ..request };
    hand(&mut pair.server, pair.now, to_server(), Message::DisconnectRequest(other));
    assert_eq!(pair.server.counters().ignored(Ignored::Foreign), 2);
    assert_eq!(pair.server.state(server), Some(State::Established));
    hand(&mut pair.server, pair.now, to_server(), Message::DisconnectRequest(request));
    assert_eq!(pair.server.state(server), Some(State::TimeWait));
}

#[test]
fn a_disconnect_may_overtake_the_rtu() {
    let mut pair = Pair::new();
    let client = pair.request();
    pair.carry();
    let server = pair.requested();
    pair.accept(server);
    pair.carry();
    pair.replied();
    pair.client.ready(client, &[]).unwrap();
    pair.client.disconnect(pair.now, client, &[]).unwrap();
    pair.carry_but(|what| what == ">RTU");
    assert_eq!(events(&mut pair.server), [Event::Disconnected { connection: server }]);
    pair.settle_but(|_| false);
    assert_eq!(pair.log(), ">REQ <REP x>RTU >DREQ <DREP");
    pair.is_clean();
}

/// Whatever the state, an application may drop a connection, and hears no more of it.
#[test]
fn a_connection_may_be_dropped_at_any_time() {
    type Drop = fn(&mut Pair, ConnectionId, ConnectionId);
    let drop_client: Drop = |pair, client, _| pair.client.destroy(pair.now, client).unwrap();
    let drop_server: Drop = |pair, _, server| pair.server.destroy(pair.now, server).unwrap();
    let cases: &[(usize, Drop, &str)] = &[
        (0, drop_client, ">REQ >REJ"),
        (1, drop_client, ">REQ >REJ"),
        (1, drop_server, ">REQ <REJ"),
        (2, drop_server, ">REQ <REP <REJ"),
        (3, drop_client, ">REQ <REP >REJ"),
        (3, drop_server, ">REQ <REP <REJ"),
        (4, drop_client, ">REQ <REP >RTU >DREQ <DREP"),
        (4, drop_server, ">REQ <REP >RTU <DREQ >DREP"),
        (5, drop_client, ">REQ <REP >RTU >DREQ <DREP"),
        (5, drop_server, ">REQ <REP >RTU >DREQ <DREP"),
    ];
    for (steps, drop, log) in cases {
        let mut pair = Pair::new();
        let client = pair.request();
        let mut server = client;
        for step in 1..=*steps {
            match step {
                1 => {
                    pair.carry();
                    server = pair.requested();
                }
                2 => assert_eq!(pair.accept(server).dest_qpn, CLIENT_QPN),
                3 => {
                    pair.carry();
                    pair.replied();
                }
                4 => {
                    pair.client.ready(client, &[]).unwrap();
                    pair.carry();
                }
                _ => {
                    pair.client.disconnect(pair.now, client, &[]).unwrap();
                    pair.carry();
                }
            }
        }
        events(&mut pair.client);
        events(&mut pair.server);
        drop(&mut pair, client, server);
        pair.settle_but(|_| false);
        let said = pair.log();
        let said = said.strip_suffix(" >REJ").filter(|_| *steps == 2).unwrap_or(&said);
        assert_eq!(&said, log, "after {steps} steps");
        if std::ptr::fn_addr_eq(*drop, drop_client) {
            assert_eq!(events(&mut pair.client), [], "after {steps} steps");
        } else {
            assert_eq!(events(&mut pair.server), [], "after {steps} steps");
        }
        for event in events(&mut pair.server) {
            if let Event::Request { connection, .. } = event {
                let _ = pair.server.destroy(pair.now, connection);
            }
        }
        pair.settle_but(|_| false);
        pair.is_clean();
    }
}

//= 08-8.2 test
#[test]
fn alternate_paths_are_refused() {
    let mut pair = Pair::new();
    let (client, server) = pair.establish();
    let load = |ours, theirs| {
        let load = LoadAlternatePath {
            local_comm_id: theirs,
            remote_comm_id: ours,
            ..LoadAlternatePath::default()
        };
        Message::LoadAlternatePath(load)
    };
    for (ours, status) in [
        (server.0, AlternatePathStatus::Unsupported),
        (CommId(3), AlternatePathStatus::InvalidCommId),
    ] {
        hand(&mut pair.server, pair.now, to_server(), load(ours, client.0));
        let [answer] = &sent(&mut pair.server)[..] else { panic!("no answer") };
        let Message::AlternatePathResponse(said) = answer.mad.message else { panic!("no APR") };
        assert_eq!((said.local_comm_id, said.remote_comm_id), (ours, client.0));
        assert_eq!((said.ap_status, answer.mad.transaction_id), (status, 0xabc));
    }
    assert_eq!(pair.server.counters().refused, 2);
    hand(&mut pair.server, pair.now, to_server(), load(server.0, CommId(99)));
    assert_eq!(pair.server.counters().ignored(Ignored::Foreign), 1);
    pair.server.disconnect(pair.now, server, &[]).unwrap();
    sent(&mut pair.server);
    hand(&mut pair.server, pair.now, to_server(), load(server.0, client.0));
    assert_eq!(pair.server.counters().ignored(Ignored::WrongState), 1);
    assert_eq!(sent(&mut pair.server), []);
    // What is only ever an answer is none of ours.
    let response = roxe_wire::mad::cm::AlternatePathResponse::default();
    hand(&mut pair.server, pair.now, to_server(), Message::AlternatePathResponse(response));
    assert_eq!(pair.server.counters().ignored(Ignored::Unasked), 1);
}
