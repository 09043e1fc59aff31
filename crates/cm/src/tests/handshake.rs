//! How a connection is made, and what is lost on the way.

use roxe_wire::mad::Message;
use roxe_wire::mad::cm::{Bits, CmTimeout, PortSpace, ServiceId};
use roxe_wire::{AckTimeout, Mtu, Qpn, StaticRate};

use super::pair::{
    CLIENT, CLIENT_QPN, PORT, Pair, SERVER, SERVER_QPN, all_events, belong_together, connect,
    events, sent, server_config,
};
use crate::{
    Accept, Agent, CallError, Connect, Event, GidPair, Listen, Service, State, Timing,
    TransportServiceType,
};

//= M01, M13 test
#[test]
fn a_connection_is_made_of_three_messages() {
    let mut pair = Pair::new();
    let client = pair.request_as(&Connect { private_data: b"who?", ..connect() });
    assert_eq!(pair.client.state(client), Some(State::ReqSent));
    pair.carry();
    let [Event::Request { connection: server, request, from, .. }] = &events(&mut pair.server)[..]
    else {
        panic!("no request");
    };
    assert_eq!(*from, GidPair::new(SERVER, CLIENT));
    let (header, private_data) = request.ip_cm().unwrap();
    assert_eq!((header.source_port, &private_data[..5]), (40000, &b"who?\0"[..]));
    assert_eq!(request.service_id.port(), Some((PortSpace::Tcp, PORT)));
    assert_eq!(request.local_qpn, CLIENT_QPN);
    assert_eq!(pair.server.state(*server), Some(State::ReqRcvd));

    let accept = Accept { private_data: b"me", ..Accept::new(SERVER_QPN) };
    let of_server = pair.server.accept(pair.now, *server, &accept).unwrap();
    pair.carry();
    let [Event::Reply { attributes: of_client, reply, .. }] = &events(&mut pair.client)[..] else {
        panic!("no reply");
    };
    assert_eq!(&reply.private_data.as_bytes()[..3], b"me\0");
    assert_eq!((of_client.dest_qpn, of_server.dest_qpn), (SERVER_QPN, CLIENT_QPN));
    belong_together(of_client, &of_server);
    assert_ne!(of_client.rq_psn, of_client.sq_psn, "both draw their own");
    assert_eq!(pair.states(client, *server), [Some(State::RepRcvd), Some(State::RepSent)]);

    pair.client.ready(client, b"go").unwrap();
    pair.carry();
    assert_eq!(events(&mut pair.server), [Event::Established { connection: *server }]);
    assert_eq!(pair.states(client, *server), [Some(State::Established); 2]);
    assert_eq!(pair.log(), ">REQ <REP >RTU");
    assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
    assert_eq!((pair.client.counters().sent, pair.client.counters().received), (2, 1));
}

//= M12 test
#[test]
fn depths_are_what_both_sides_can() {
    let mut pair = Pair::new();
    pair.server.config.max_responder_resources = 8;
    let ask = Connect { responder_resources: 4, initiator_depth: 16, ..connect() };
    let client = pair.request_as(&ask);
    pair.carry();
    let server = pair.requested();
    let of_server = pair.accept(server);
    assert_eq!((of_server.max_dest_rd_atomic, of_server.max_rd_atomic), (8, 4));
    pair.carry();
    let (_, of_client) = pair.replied();
    assert_eq!((of_client.max_dest_rd_atomic, of_client.max_rd_atomic), (4, 8));
    assert_eq!(pair.client.qp_attributes(client), Some(of_client));
}

#[test]
fn each_side_gets_what_the_other_chose_for_it() {
    let mut pair = Pair::new();
    let ask = Connect {
        transport: TransportServiceType::UnreliableConnection,
        retry_count: Bits::new(5),
        rnr_retry_count: Bits::new(3),
        path_mtu: Mtu::B512,
        traffic_class: 0x68,
        hop_limit: 1,
        sl: Bits::new(3),
        rate: StaticRate::from_bits(7),
        ..connect()
    };
    pair.request_as(&ask);
    let [request] = &sent(&mut pair.client)[..] else { panic!("no REQ") };
    assert_eq!(request.traffic_class, 0x68);
    let Message::Request(of_wire) = &request.mad.message else { panic!("no REQ") };
    let path = &of_wire.primary_path;
    assert_eq!((path.local_lid, path.subnet_local), (0, true), "no router, no permissive LID");
    let mad = super::pair::bytes(&request.mad);
    pair.server.handle_mad(pair.now, GidPair::new(SERVER, CLIENT), &mad);
    let server = pair.requested();
    let accept = Accept { rnr_retry_count: Bits::new(2), ..Accept::new(SERVER_QPN) };
    let of_server = pair.server.accept(pair.now, server, &accept).unwrap();
    pair.carry();
    let (_, of_client) = pair.replied();
    belong_together(&of_client, &of_server);
    assert_eq!((of_client.retry_count, of_server.retry_count), (Bits::new(5), Bits::new(5)));
    assert_eq!((of_client.rnr_retry, of_server.rnr_retry), (Bits::new(2), Bits::new(3)));
    let timeout = AckTimeout::new(19).unwrap();
    assert_eq!((of_client.timeout, of_server.timeout), (timeout, timeout));
    assert_eq!((of_server.hop_limit, of_server.sl.get(), of_server.rate.code()), (1, 3, 7));
}

/// A service that is no IP one has no header in its private data.
#[test]
fn any_service_id_can_be_listened_for() {
    let mut pair = Pair::new();
    let service = ServiceId(0x1234);
    pair.server.listen(Listen { service, address: None, backlog: 1 }).unwrap();
    let ask = Connect { service: Service::Id(service), private_data: &[7; 92], ..connect() };
    pair.request_as(&ask);
    pair.carry();
    let events = events(&mut pair.server);
    let [Event::Request { request, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(request.private_data.as_bytes(), [7; 92]);
    assert_eq!(request.primary_path.flow_label.get(), 0);
}

#[test]
fn ipv6_and_vlans_are_no_different() {
    let mut pair = Pair::new();
    let address = |last| std::net::Ipv6Addr::new(0xfd10, 0, 0, 0, 0, 0, 0, last);
    let path = GidPair { vlan: Some(100), ..GidPair::new(address(3), address(2)) };
    let client = pair.request_as(&Connect { path, ..connect() });
    pair.carry();
    let server = pair.requested();
    let of_server = pair.accept(server);
    assert_eq!(of_server.path.vlan, Some(100));
    pair.carry();
    let (_, of_client) = pair.replied();
    belong_together(&of_client, &of_server);
    pair.client.ready(client, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.states(client, server), [Some(State::Established); 2]);
}

//= M04 test
#[test]
fn a_lost_message_of_the_handshake_is_sent_again() {
    for lost in [">REQ", "<REP", ">RTU"] {
        let mut pair = Pair::new();
        let client = pair.request();
        let drop_it = |what: &str| what == lost;
        pair.carry_but(drop_it);
        if lost == ">REQ" {
            assert!(pair.wait());
            pair.carry();
        }
        let server = pair.requested();
        pair.accept(server);
        pair.carry_but(drop_it);
        if lost == "<REP" {
            assert!(pair.wait());
            pair.carry();
        }
        pair.replied();
        pair.client.ready(client, &[]).unwrap();
        pair.carry_but(drop_it);
        if lost == ">RTU" {
            assert!(pair.wait());
            pair.carry();
            assert_eq!(pair.log(), ">REQ <REP x>RTU <REP >RTU");
            assert_eq!(pair.client.counters().duplicates, 1, "the REP came again");
        }
        assert_eq!(pair.states(client, server), [Some(State::Established); 2], "{lost}");
        let again = pair.client.counters().retransmissions + pair.server.counters().retransmissions;
        assert_eq!(again, 1, "{lost}");
    }
}

//= M05 test
#[test]
fn data_establishes_when_the_rtu_is_lost() {
    let mut pair = Pair::new();
    let client = pair.request();
    pair.carry();
    let server = pair.requested();
    pair.server.notify_established(server).unwrap();
    assert_eq!(pair.server.state(server), Some(State::ReqRcvd), "too early to mean anything");
    pair.accept(server);
    pair.carry();
    pair.client.ready(client, &[]).unwrap();
    pair.carry_but(|what| what == ">RTU");
    pair.server.notify_established(server).unwrap();
    pair.server.notify_established(server).unwrap();
    assert_eq!(events(&mut pair.server), [Event::Established { connection: server }]);
    assert_eq!(pair.server.poll_timeout(), None, "nothing is awaited any more");
}

//= M04, BC-126 test
#[test]
fn nobody_is_asked_for_ever() {
    let timing = Timing {
        response_timeout: CmTimeout::from_bits(12),
        max_retries: Bits::new(3),
        packet_lifetime: CmTimeout::from_bits(10),
    };
    for (timing, tries, millis) in [(timing, 4, 25 * 4), (Timing::LINUX, 16, 6442 * 16)] {
        let mut pair = Pair::new();
        let start = pair.now;
        let client = pair.request_as(&Connect { timing, ..connect() });
        pair.settle_but(|what| what == ">REQ");
        let log = pair.log();
        assert_eq!(log.matches("x>REQ").count(), tries);
        assert!(log.ends_with("x>REQ >REJ"), "{log}");
        let told =
            [Event::AskedAgain { connection: client }, Event::Unreachable { connection: client }];
        assert_eq!(all_events(&mut pair.client), told);
        let took = pair.now.since(start).as_millis();
        assert!(took.abs_diff(millis) < millis / 100 + 4, "{took} ms");
        pair.is_clean();
    }
}

/// The client gives up just when its request got through: the server is told, though the client
/// never learnt its name.
//= M04 test
#[test]
fn a_server_hears_that_its_client_gave_up() {
    let mut pair = Pair::new();
    let timing = Timing { max_retries: Bits::new(0), ..Timing::LINUX };
    let client = pair.request_as(&Connect { timing, ..connect() });
    pair.carry();
    let server = pair.requested();
    pair.wait();
    pair.carry();
    assert_eq!(events(&mut pair.client), [Event::Unreachable { connection: client }]);
    let events = events(&mut pair.server);
    let [Event::Rejected { connection, reject }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*connection, reject.reason), (server, crate::RejectReason::Timeout));
    let late = pair.server.accept(pair.now, server, &Accept::new(SERVER_QPN));
    assert_eq!(late, Err(CallError::Gone));
    pair.is_clean();
}

/// And a client that its server gave up, which saw no RTU.
//= M04 test
#[test]
fn a_client_hears_that_its_server_gave_up() {
    let mut pair = Pair::new();
    let client = pair.request();
    pair.carry();
    let server = pair.requested();
    pair.accept(server);
    pair.carry();
    pair.replied();
    pair.client.ready(client, &[]).unwrap();
    pair.settle_but(|what| what == ">RTU");
    assert_eq!(events(&mut pair.server), [Event::Unreachable { connection: server }]);
    let log = pair.log();
    assert_eq!((log.matches("<REP").count(), log.matches("x>RTU").count()), (16, 16));
    let events = events(&mut pair.client);
    let [Event::Rejected { reject, .. }, Event::TimeWaitExit { .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(reject.reason, crate::RejectReason::Timeout);
    pair.is_clean();
}

//= M03 test
#[test]
fn a_request_that_comes_twice_is_one() {
    let mut pair = Pair::new();
    pair.request();
    let [request] = &sent(&mut pair.client)[..] else { panic!("no REQ") };
    let mad = super::pair::bytes(&request.mad);
    let from = GidPair::new(SERVER, CLIENT);
    pair.server.handle_mad(pair.now, from, &mad);
    let server = pair.requested();
    pair.accept(server);
    pair.carry();
    for _ in 0..3 {
        pair.server.handle_mad(pair.now, from, &mad);
    }
    assert_eq!(events(&mut pair.server), []);
    assert_eq!((pair.server.len(), pair.server.counters().duplicates), (1, 3));
    assert_eq!(sent(&mut pair.server), [], "the REP has a timer of its own");
}

#[test]
fn calls_fail_where_they_have_no_meaning() {
    let mut pair = Pair::new();
    let now = pair.now;
    let client = pair.request();
    assert_eq!(pair.client.ready(client, &[]), Err(CallError::WrongState));
    assert_eq!(pair.client.disconnect(now, client, &[]), Err(CallError::WrongState));
    let accept = Accept::new(SERVER_QPN);
    assert_eq!(pair.client.accept(now, client, &accept), Err(CallError::WrongState));
    let reason = crate::RejectReason::ConsumerReject;
    assert_eq!(pair.client.reject(now, client, reason, &[]), Err(CallError::WrongState));
    pair.carry();
    let server = pair.requested();
    assert_eq!(pair.server.ready(server, &[]), Err(CallError::WrongState));
    let too_long = |given, max| Err(CallError::PrivateDataTooLong { given, max });
    let long = Accept { private_data: &[0; 197], ..accept };
    assert_eq!(pair.server.accept(now, server, &long), too_long(197, 196));
    assert_eq!(pair.server.reject(now, server, reason, &[0; 149]), too_long(149, 148).map(drop));
    pair.accept(server);
    assert_eq!(pair.server.accept(now, server, &accept), Err(CallError::WrongState));
    pair.carry();
    assert_eq!(pair.client.ready(client, &[0; 225]), too_long(225, 224).map(drop));
    pair.client.ready(client, &[]).unwrap();
    assert_eq!(pair.client.disconnect(now, client, &[0; 221]), too_long(221, 220).map(drop));

    let reliable_datagram =
        Connect { transport: TransportServiceType::ReliableDatagram, ..connect() };
    let unsupported = pair.client.connect(now, &reliable_datagram);
    assert_eq!(unsupported, Err(CallError::UnsupportedTransport));
    let gone = pair.client.connect(now, &connect()).unwrap();
    pair.client.destroy(now, gone).unwrap();
    assert_eq!(pair.client.destroy(now, gone), Err(CallError::Gone));
    assert_eq!((pair.client.state(gone), pair.client.qp_attributes(gone)), (None, None));
    assert_eq!(Agent::new(server_config(), 0).poll_event(), None);
}

#[test]
fn connections_are_counted_against_the_limit() {
    let mut pair = Pair::new();
    let limit = pair.client.config.max_connections;
    for _ in 0..limit {
        pair.request();
    }
    assert_eq!(pair.client.connect(pair.now, &connect()), Err(CallError::TooMany));
    assert_eq!(pair.client.len(), limit);
    assert_eq!(Qpn::default(), Qpn::new(0));
}
