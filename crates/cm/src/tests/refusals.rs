//! Every reason for which a connection is refused, and what is dropped without a word.

use roxe_wire::mad::cm::{
    AnsweredMessage, Bits, CommId, PrivateData, Reject, RejectReason, Reply, Request,
};
use roxe_wire::mad::{GetClassPortInfo, Mad, MadHeader, Message};
use roxe_wire::{DropReason, Mtu, Psn, Qpn, StaticRate};

use super::pair::{CLIENT, Pair, SERVER, SERVER_QPN, bytes, connect, events, sent, turned};
use crate::{
    Accept, Agent, CallError, Config, Connect, Event, GidPair, Ignored, Listen, PortSpace, Service,
    State, Transmit, TransportServiceType,
};

/// A REQ as the client sends it.
fn request(pair: &mut Pair) -> (u64, Request) {
    pair.request();
    let [transmit] = &sent(&mut pair.client)[..] else { panic!("no REQ") };
    let Message::Request(request) = transmit.mad.message else { panic!("no REQ") };
    (transmit.mad.transaction_id, request)
}

/// What the server answers to a REQ.
fn answer(pair: &mut Pair, transaction: u64, request: Request) -> Option<Reject> {
    let mad = Mad::new(transaction, Message::Request(request));
    pair.server.handle_mad(pair.now, turned(connect().path), &bytes(&mad));
    match &sent(&mut pair.server)[..] {
        [] => None,
        [first, ..] => match first.mad.message {
            Message::Reject(reject) => {
                assert_eq!(first.mad.transaction_id, transaction);
                assert_eq!(reject.remote_comm_id, request.local_comm_id);
                assert_eq!(reject.local_comm_id, CommId(0), "it got no name");
                assert_eq!(reject.message_rejected, AnsweredMessage::Req);
                Some(reject)
            }
            other => panic!("{other}"),
        },
    }
}

/// Sends a REQ that something is done to.
fn answer_to(change: impl Fn(&mut Request)) -> Option<Reject> {
    let mut pair = Pair::new();
    let (transaction, mut request) = request(&mut pair);
    change(&mut request);
    let answer = answer(&mut pair, transaction, request);
    assert_eq!(answer.is_none(), pair.server.len() == 1, "taken or refused");
    assert_eq!(pair.server.counters().refused, u64::from(answer.is_some()));
    answer
}

fn reason_for(change: impl Fn(&mut Request)) -> Option<RejectReason> {
    answer_to(change).map(|reject| reject.reason)
}

//= M02 test
#[test]
fn a_port_without_a_listener_is_refused() {
    let no_service = Some(RejectReason::InvalidServiceId);
    assert_eq!(reason_for(|_| ()), None);
    assert_eq!(reason_for(|it| it.service_id = crate::ServiceId(0x0106_0001)), no_service);
    assert_eq!(reason_for(|it| it.service_id = crate::ServiceId(0x0111_1d2f)), no_service);

    let mut pair = Pair::new();
    let port = Service::Ip { space: PortSpace::Tcp, source_port: 1, port: 80 };
    let client = pair.request_as(&Connect { service: port, ..connect() });
    pair.carry();
    let events = events(&mut pair.client);
    let [Event::Rejected { connection, reject }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*connection, Some(reject.reason)), (client, no_service));
    pair.is_clean();
}

/// What an agent that shares its address is to decide about a call.
fn unserved(agent: &mut Agent) -> Option<Transmit> {
    match &events(agent)[..] {
        [Event::Unserved { refusal, .. }] => Some(**refusal),
        [] => None,
        other => panic!("{other:?}"),
    }
}

/// Of two agents that hear the same, the one that nobody here called says nothing.
#[test]
fn what_may_be_for_another_agent_at_the_address_has_no_answer() {
    use roxe_wire::mad::cm::{DisconnectRequest, LoadAlternatePath, SidrRequest};
    let config = Config { shares_addresses: true, ..Config::linux(9, Mtu::B1024) };
    let mut beside = Agent::new(config, 3);
    let mut pair = Pair::new();
    let (transaction, request) = request(&mut pair);
    let ids = (CommId(5), CommId(6));
    let messages = [
        Message::Request(request),
        Message::Reply(Reply { local_comm_id: ids.0, remote_comm_id: ids.1, ..Reply::default() }),
        Message::SidrRequest(SidrRequest { request_id: ids.0, ..SidrRequest::default() }),
        Message::DisconnectRequest(DisconnectRequest {
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            ..DisconnectRequest::default()
        }),
        Message::LoadAlternatePath(LoadAlternatePath {
            local_comm_id: ids.0,
            remote_comm_id: ids.1,
            ..LoadAlternatePath::default()
        }),
    ];
    for (number, message) in (1..).zip(messages) {
        let mad = Mad::new(transaction, message);
        beside.handle_mad(pair.now, turned(connect().path), &bytes(&mad));
        assert_eq!(sent(&mut beside).len(), 0, "message {number}");
        let is_call = matches!(message, Message::Request(_) | Message::SidrRequest(_));
        assert_eq!(unserved(&mut beside).is_some(), is_call, "message {number}");
        if is_call {
            beside.leave_to_another();
        }
        assert_eq!(beside.counters().ignored(Ignored::MayBeAnothers), number);
    }
    // Who listens there answers as ever.
    assert!(answer(&mut pair, transaction, request).is_none());
    assert_eq!(pair.server.len(), 1);
}

/// Both agents at an address find that nobody has the service: the second refusal changes nothing.
#[test]
fn what_is_for_no_agent_at_the_address_is_refused_by_each() {
    let port = Service::Ip { space: PortSpace::Tcp, source_port: 1, port: 80 };
    let mut pair = Pair::new();
    let client = pair.request_as(&Connect { service: port, ..connect() });
    let [req] = &sent(&mut pair.client)[..] else { panic!("no REQ") };
    for seed in [3, 4] {
        let config = Config { shares_addresses: true, ..Config::linux(seed, Mtu::B1024) };
        let mut beside = Agent::new(config, seed);
        beside.handle_mad(pair.now, turned(req.path), &bytes(&req.mad));
        let refusal = unserved(&mut beside).expect("a call");
        assert_eq!(refusal.path, turned(req.path));
        beside.refuse_call(refusal);
        assert_eq!(beside.counters().refused, 1);
        let [rej] = &sent(&mut beside)[..] else { panic!("no REJ") };
        pair.client.handle_mad(pair.now, turned(rej.path), &bytes(&rej.mad));
    }
    let events = events(&mut pair.client);
    let [Event::Rejected { connection, reject }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*connection, reject.reason), (client, RejectReason::InvalidServiceId));
    assert_eq!(pair.client.counters().ignored(Ignored::Unknown), 1);
    assert_eq!(sent(&mut pair.client).len(), 0);
    pair.is_clean();
}

/// The client was started anew, and calls another agent at the address by a queue pair that the
/// server holds for connected.
#[test]
fn a_stale_connection_does_not_refuse_a_call_for_another_agent() {
    let mut pair = Pair::new();
    pair.server.config.shares_addresses = true;
    pair.establish();
    pair.client = Agent::new(super::pair::client_config(), 77);
    let elsewhere = Service::Ip { space: PortSpace::Tcp, source_port: 1, port: 80 };
    pair.request_as(&Connect { service: elsewhere, ..connect() });
    pair.carry();
    assert_eq!(pair.log(), ">REQ");
    let all = events(&mut pair.server);
    assert!(matches!(all[..], [.., Event::Unserved { .. }]), "{all:?}");
    // A call for the server itself is refused as ever.
    pair.client = Agent::new(super::pair::client_config(), 78);
    pair.request();
    pair.carry();
    assert_eq!(pair.log(), ">REQ <REJ <DREQ >DREP");
}

//= M09 test
#[test]
fn unknown_versions_reach_nobody() {
    let with_byte = |at: usize, value: u8| {
        reason_for(|it| {
            let mut data = it.private_data.0;
            data[at] = value;
            it.private_data = PrivateData(data);
        })
    };
    let no_service = Some(RejectReason::InvalidServiceId);
    assert_eq!(with_byte(1, 0x40), None);
    assert_eq!(with_byte(1, 0x4f), None, "reserved bits mean nothing");
    for ip_version in [0x00, 0x50, 0x60, 0xf0] {
        assert_eq!(with_byte(1, ip_version), no_service, "{ip_version:#x}");
    }
    for version in [0x01, 0x10] {
        assert_eq!(with_byte(0, version), no_service, "{version:#x}");
    }
    assert_eq!(with_byte(35, 9), no_service, "another address than the one it came to");
}

//= 08-8.3 test
#[test]
fn reliable_datagrams_and_the_like_are_refused() {
    let with = |kind| reason_for(|it| it.transport_service_type = kind);
    let refused = Some(RejectReason::InvalidTransportServiceType);
    assert_eq!(with(TransportServiceType::UnreliableConnection), None);
    assert_eq!(with(TransportServiceType::ReliableDatagram), refused);
    assert_eq!(with(TransportServiceType::Extended), refused);
}

//= 08-8.3 test
#[test]
fn a_wrong_gid_is_told_the_right_one() {
    let other = std::net::Ipv4Addr::new(10, 10, 0, 9);
    let reject = answer_to(|it| it.primary_path.remote_gid = other.into()).unwrap();
    assert_eq!(reject.reason, RejectReason::InvalidGid);
    assert_eq!(reject.ari.as_bytes(), roxe_wire::Gid::from(SERVER).0);
}

//= 08-8.3 test
#[test]
fn a_path_mtu_that_does_not_fit_is_told_the_one_that_does() {
    for (code, fits) in [(0, false), (1, true), (3, true), (4, false), (5, false), (15, false)] {
        let reject = answer_to(|it| it.path_packet_payload_mtu = Bits::new(code));
        assert_eq!(reject.is_none(), fits, "code {code}");
        let Some(reject) = reject else { continue };
        assert_eq!(reject.reason, RejectReason::InvalidPathMtu);
        assert_eq!(reject.ari.as_bytes(), [Mtu::B1024.code()]);
    }
}

//= M14 test
#[test]
fn fields_of_infiniband_alone_are_not_looked_at() {
    let taken = reason_for(|it| {
        it.primary_path.local_lid = 0;
        it.primary_path.remote_lid = 0x1234;
        it.primary_path.packet_rate = StaticRate::from_bits(0);
        it.primary_path.sl = Bits::new(9);
        it.primary_path.subnet_local = true;
        it.vendor_id = roxe_wire::mad::cm::VendorId::new(0x15b3);
        it.sap_supported = true;
        it.rdc_exists = true;
    });
    assert_eq!(taken, None);
    // Nor need the transaction be named after the connection.
    let mut pair = Pair::new();
    let (_, request) = request(&mut pair);
    assert_eq!(answer(&mut pair, 0x1234_5678_9abc, request), None);
    let server = pair.requested();
    pair.accept(server);
    assert_eq!(sent(&mut pair.server)[0].mad.transaction_id, 0x1234_5678_9abc);
}

//= 08-8.3 test
#[test]
fn a_full_backlog_takes_no_more_until_there_is_room() {
    let mut pair = Pair::new();
    for (qpn, reason) in [(1, None), (2, Some(RejectReason::NoResources))] {
        pair.request_as(&Connect { qpn: Qpn::new(qpn), ..connect() });
        pair.carry();
        let rejected = events(&mut pair.client).into_iter().find_map(|event| match event {
            Event::Rejected { reject, .. } => Some(reject.reason),
            _ => None,
        });
        assert_eq!(rejected, reason);
    }
    let server = pair.requested();
    // However the application answers, there is room again.
    type Settle = fn(&mut Pair, crate::ConnectionId);
    let ways: [Settle; 3] = [
        |pair, id| {
            assert_eq!(pair.accept(id).rq_psn, pair.server.connections[&id.0].attributes.rq_psn)
        },
        |pair, id| {
            let reason = RejectReason::ConsumerReject;
            pair.server.reject(pair.now, id, reason, b"no").unwrap();
        },
        |pair, id| pair.server.destroy(pair.now, id).unwrap(),
    ];
    let mut waiting = server;
    for (index, settle) in ways.iter().enumerate() {
        settle(&mut pair, waiting);
        let qpn = Qpn::new(10 + u32::try_from(index).unwrap());
        pair.request_as(&Connect { qpn, ..connect() });
        pair.carry();
        waiting = pair.requested();
    }
}

#[test]
fn an_agent_has_only_so_many_connections() {
    let mut pair = Pair::new();
    pair.server.config.max_connections = 0;
    let (transaction, request) = request(&mut pair);
    let reject = answer(&mut pair, transaction, request).unwrap();
    assert_eq!(reject.reason, RejectReason::NoResources);
}

/// The client was started anew and uses a queue pair that the server holds for connected.
//= M08 test
#[test]
fn a_queue_pair_is_not_connected_twice() {
    let mut pair = Pair::new();
    let (_, server) = pair.establish();
    pair.client = Agent::new(super::pair::client_config(), 77);
    let again = pair.request();
    pair.carry();
    assert_eq!(pair.log(), ">REQ <REJ <DREQ >DREP", "and the old connection ends");
    let events_of_client = events(&mut pair.client);
    let [Event::Rejected { connection, reject }] = &events_of_client[..] else {
        panic!("{events_of_client:?}");
    };
    assert_eq!((*connection, reject.reason), (again, RejectReason::StaleConnection));
    assert_eq!(pair.client.state(again), Some(State::TimeWait));
    assert_eq!(events(&mut pair.server), [Event::Disconnected { connection: server }]);
    // The next try finds the way free.
    let third = pair.request();
    pair.carry();
    let server = pair.requested();
    pair.accept(server);
    pair.carry();
    pair.client.ready(third, &[]).unwrap_or_else(|error| panic!("{error}"));
}

/// The server answers with a queue pair that it has connected to us already.
//= M08 test
#[test]
fn a_reply_with_a_connected_queue_pair_is_refused() {
    let mut pair = Pair::new();
    let (client, _) = pair.establish();
    let second = pair.request_as(&Connect { qpn: Qpn::new(0x33), ..connect() });
    pair.carry();
    let server = pair.requested();
    pair.accept(server);
    pair.carry();
    assert_eq!(pair.log(), ">REQ <REP >REJ >DREQ <DREP");
    let reason = RejectReason::StaleConnection;
    let of_client = events(&mut pair.client);
    let refused = Event::Refused { connection: second, reason };
    assert_eq!(of_client, [refused, Event::Disconnected { connection: client }]);
    let of_server = events(&mut pair.server);
    assert!(
        matches!(&of_server[..], [Event::Rejected { reject, .. }, _] if reject.reason == reason)
    );
    pair.settle_but(|_| false);
    pair.is_clean();
}

/// Hands the client a REP of its own making to its open request.
fn reply_to(pair: &mut Pair, change: impl Fn(&mut Reply)) -> Option<Reject> {
    pair.request_as(&Connect { qpn: Qpn::new(0x44), ..connect() });
    let [request] = &sent(&mut pair.client)[..] else { panic!("no REQ") };
    let Message::Request(asked) = request.mad.message else { panic!("no REQ") };
    let mut reply = Reply {
        local_comm_id: CommId(0x5555),
        remote_comm_id: asked.local_comm_id,
        local_qpn: Qpn::new(0x66),
        local_ca_guid: 0x5,
        starting_psn: Psn::new(1),
        ..Reply::default()
    };
    change(&mut reply);
    let mad = Mad::new(request.mad.transaction_id, Message::Reply(reply));
    pair.client.handle_mad(pair.now, connect().path, &bytes(&mad));
    match &sent(&mut pair.client)[..] {
        [] => None,
        [first, ..] => match first.mad.message {
            Message::Reject(reject) => {
                assert_eq!(reject.message_rejected, AnsweredMessage::Rep);
                assert_eq!(reject.remote_comm_id, reply.local_comm_id);
                Some(reject)
            }
            other => panic!("{other}"),
        },
    }
}

//= 08-8.3 test
#[test]
fn a_reply_that_cannot_be_served_is_refused() {
    let reason = |change: fn(&mut Reply)| {
        let mut pair = Pair::new();
        pair.establish();
        pair.client.config.max_responder_resources = 16;
        reply_to(&mut pair, change).map(|reject| reject.reason)
    };
    assert_eq!(reason(|_| ()), None);
    assert_eq!(reason(|it| it.initiator_depth = 16), None);
    let insufficient = Some(RejectReason::InsufficientResponderResources);
    assert_eq!(reason(|it| it.initiator_depth = 17), insufficient);
    assert_eq!(reason(|it| it.local_qpn = SERVER_QPN), Some(RejectReason::StaleConnection));
    assert_eq!(reason(|it| it.remote_comm_id = CommId(9)), Some(RejectReason::InvalidCommId));
}

#[test]
fn two_connections_with_one_name_are_told_apart() {
    let mut pair = Pair::new();
    assert_eq!(reply_to(&mut pair, |_| ()), None);
    let reject = reply_to(&mut pair, |reply| reply.local_qpn = Qpn::new(0x67)).unwrap();
    assert_eq!(reject.reason, RejectReason::DuplicateLocalCommId);
}

//= 08-8.3 test
#[test]
fn an_application_refuses_with_its_own_words() {
    for (reason, by_server) in [
        (RejectReason::ConsumerReject, true),
        (RejectReason::NoQp, true),
        (RejectReason::ConsumerReject, false),
    ] {
        let mut pair = Pair::new();
        let client = pair.request();
        pair.carry();
        let server = pair.requested();
        let told = if by_server {
            pair.server.reject(pair.now, server, reason, b"why").unwrap();
            pair.carry();
            events(&mut pair.client)
        } else {
            pair.accept(server);
            pair.carry();
            pair.replied();
            pair.client.reject(pair.now, client, reason, b"why").unwrap();
            pair.carry();
            events(&mut pair.server)
        };
        let [Event::Rejected { reject, .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!((reject.reason, &reject.private_data.as_bytes()[..4]), (reason, &b"why\0"[..]));
        let what = if by_server { AnsweredMessage::Req } else { AnsweredMessage::Rep };
        assert_eq!(reject.message_rejected, what);
        pair.settle_but(|_| false);
        pair.is_clean();
    }
}

/// REJ 10 to a REQ that comes again when its connection is over.
#[test]
fn a_request_of_the_past_is_stale() {
    let mut pair = Pair::new();
    let (transaction, request) = request(&mut pair);
    assert_eq!(answer(&mut pair, transaction, request), None);
    let server = pair.requested();
    pair.accept(server);
    pair.carry();
    let (client, _) = pair.replied();
    pair.client.ready(client, &[]).unwrap();
    pair.client.disconnect(pair.now, client, &[]).unwrap();
    pair.carry();
    assert_eq!(pair.states(client, server), [Some(State::TimeWait); 2]);
    let reject = answer(&mut pair, transaction, request).unwrap();
    assert_eq!(reject.reason, RejectReason::StaleConnection);
    let mad = Mad::new(transaction, Message::Reject(reject));
    pair.client.handle_mad(pair.now, connect().path, &bytes(&mad));
    assert_eq!(pair.client.counters().ignored(Ignored::WrongState), 1, "it is over anyway");
}

#[test]
fn a_rejection_from_elsewhere_is_ignored() {
    let mut pair = Pair::new();
    let (_, request) = request(&mut pair);
    let mut reject = Reject {
        remote_comm_id: request.local_comm_id,
        reason: RejectReason::InvalidServiceId,
        ..Reject::default()
    };
    let hand = |pair: &mut Pair, from, reject| {
        let mad = Mad::new(0, Message::Reject(reject));
        pair.client.handle_mad(pair.now, from, &bytes(&mad));
    };
    hand(&mut pair, GidPair::new(CLIENT, CLIENT), reject);
    assert_eq!(pair.client.counters().ignored(Ignored::Foreign), 1);
    reject.remote_comm_id = CommId(1);
    hand(&mut pair, connect().path, reject);
    reject.remote_comm_id = CommId(0);
    hand(&mut pair, connect().path, reject);
    assert_eq!(pair.client.counters().ignored(Ignored::Unknown), 2);
    assert_eq!((pair.client.len(), events(&mut pair.client)), (1, vec![]));
}

//= M11 test
#[test]
fn what_is_no_datagram_is_dropped_and_counted() {
    let mut pair = Pair::new();
    let (transaction, request) = request(&mut pair);
    let good = bytes(&Mad::new(transaction, Message::Request(request)));
    let from = turned(connect().path);
    let broken = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        bytes
    };
    let cases = [broken(0, 2), broken(1, 8), broken(3, 1), broken(17, 0x7f)];
    for (index, bytes) in cases.iter().enumerate() {
        pair.server.handle_mad(pair.now, from, bytes);
        let counters = pair.server.counters();
        assert_eq!((counters.malformed, counters.received), (index as u64 + 1, index as u64 + 1));
        assert_eq!((sent(&mut pair.server), pair.server.len()), (vec![], 0), "case {index}");
    }
    for len in [0, 23, 24, 28, 255] {
        pair.server.handle_mad(pair.now, from, &good[..len]);
        let last = pair.server.counters().last_malformed;
        assert_eq!(last, Some(DropReason::MadLength { len }));
    }
    pair.server.handle_mad(pair.now, from, &good);
    assert_eq!(pair.server.len(), 1);
}

#[test]
fn a_request_of_another_class_version_is_refused() {
    let mut pair = Pair::new();
    let (transaction, request) = request(&mut pair);
    let mut mad = bytes(&Mad::new(transaction, Message::Request(request)));
    mad[2] = MadHeader::CLASS_VERSION_CM + 1;
    pair.server.handle_mad(pair.now, turned(connect().path), &mad);
    pair.carry();
    let events = events(&mut pair.client);
    let [Event::Rejected { reject, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(reject.reason, RejectReason::InvalidClassVersion);
    let counters = pair.server.counters();
    assert_eq!((counters.malformed, counters.refused), (1, 1));
}

#[test]
fn messages_without_a_sender_or_a_meaning_are_counted() {
    let mut pair = Pair::new();
    let (transaction, request) = request(&mut pair);
    let nameless = Request { local_comm_id: CommId(0), ..request };
    assert_eq!(answer(&mut pair, transaction, nameless), None);
    assert_eq!(pair.server.counters().ignored(Ignored::NoCommId), 1);
    let from = turned(connect().path);
    let info = Message::GetClassPortInfo(GetClassPortInfo::default());
    pair.server.handle_mad(pair.now, from, &bytes(&Mad::new(1, info)));
    assert_eq!(pair.server.counters().ignored(Ignored::Unasked), 1);
    assert_eq!((sent(&mut pair.server), events(&mut pair.server)), (vec![], vec![]));
}

#[test]
fn a_listener_that_is_gone_takes_no_calls() {
    let mut pair = Pair::new();
    let listener = pair.server.listen(Listen::port(PortSpace::Tcp, 80, 1)).unwrap();
    pair.server.unlisten(listener).unwrap();
    assert_eq!(pair.server.unlisten(listener), Err(CallError::Gone));
    let port = Service::Ip { space: PortSpace::Tcp, source_port: 1, port: 80 };
    pair.request_as(&Connect { service: port, ..connect() });
    pair.carry();
    assert_eq!(pair.log(), ">REQ <REJ");
    // What it had taken stays.
    let mut pair = Pair::new();
    let (_, server) = {
        let client = pair.request();
        pair.carry();
        (client, pair.requested())
    };
    pair.server.unlisten(crate::ListenerId(1)).unwrap();
    let accept = Accept::new(SERVER_QPN);
    assert!(pair.server.accept(pair.now, server, &accept).is_ok());
    assert_eq!(Config::linux(1, Mtu::B256).path_mtu, Mtu::B256);
}
