//! Recorded exchanges of Linux, each played to our agent in the place of either side: what it sends
//! must be what Linux sent, but for the names and the PSN that it chooses itself.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;

use roxe_net::capture_file::CaptureReader;
use roxe_wire::mad::cm::{CmTimeout, CommId, Reply, Request, SidrRequest};
use roxe_wire::mad::{Mad, Message};
use roxe_wire::{Frame, Instant, Mtu, Packet, Payload, Psn, Qpn};

use super::pair::{bytes, events, turned};
use crate::{
    Accept, Agent, Answer, Config, Connect, ConnectionId, Event, GidPair, Listen, PortSpace,
    QuestionId, RejectReason, Resolve, Service, Timing,
};

/// A datagram of a capture.
struct Recorded {
    /// Its frame's number.
    number: u64,
    at: Instant,
    /// As its sender sees it.
    path: GidPair,
    traffic_class: u8,
    mad: Mad,
}

fn recorded(name: &str) -> Vec<Recorded> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pcaps");
    let mut reader = CaptureReader::open(folder.join(name)).expect("it can be read");
    let mut all = Vec::new();
    while let Some(record) = reader.next().expect("it can be read") {
        let Ok(frame) = Frame::parse(record.raw_frame()) else { continue };
        let Ok(packet) = Packet::parse(frame.body) else { continue };
        if packet.headers.bth.dest_qp != Qpn::GSI {
            continue;
        }
        let Payload::Bytes { first, second: &[] } = packet.payload else { panic!("two pieces") };
        let vlan = frame.vlan[0].map(|tag| tag.id());
        let ends = GidPair::new(frame.ip.source(), frame.ip.destination());
        all.push(Recorded {
            number: record.number,
            at: Instant::from_nanos(record.time.as_nanos()),
            path: GidPair { vlan, ..ends },
            traffic_class: frame.ip.traffic_class().0,
            mad: Mad::parse(first).expect("Linux sends datagrams"),
        });
    }
    all
}

/// Our agent in the place of one host of a capture.
struct Stand {
    agent: Agent,
    /// Linux's names on this side, and ours for the same.
    names: BTreeMap<CommId, CommId>,
    /// What came and has not been read yet.
    unread: VecDeque<(Instant, GidPair, Mad)>,
    /// Linux's transaction IDs, and ours for the same.
    transactions: BTreeMap<u64, u64>,
    /// What the application has heard of and not answered.
    requests: VecDeque<ConnectionId>,
    questions: VecDeque<QuestionId>,
    repetitions: usize,
}

impl Stand {
    fn new(guid: u64) -> Self {
        Self {
            agent: Agent::new(Config::linux(guid, Mtu::B4096), guid),
            names: BTreeMap::new(),
            unread: VecDeque::new(),
            transactions: BTreeMap::new(),
            requests: VecDeque::new(),
            questions: VecDeque::new(),
            repetitions: 0,
        }
    }

    /// Linux's name for something on this side in our words.
    fn ours(&self, linux: CommId) -> CommId {
        self.names.get(&linux).copied().unwrap_or(linux)
    }

    /// A datagram from the other side, as it would have been sent to us.
    fn translate(&self, mad: &Mad) -> Mad {
        let mut mad = *mad;
        let transaction = self.transactions.get(&mad.transaction_id);
        mad.transaction_id = transaction.copied().unwrap_or(mad.transaction_id);
        match &mut mad.message {
            Message::Reply(it) => it.remote_comm_id = self.ours(it.remote_comm_id),
            Message::ReadyToUse(it) => it.remote_comm_id = self.ours(it.remote_comm_id),
            Message::Reject(it) => it.remote_comm_id = self.ours(it.remote_comm_id),
            Message::DisconnectRequest(it) => it.remote_comm_id = self.ours(it.remote_comm_id),
            Message::DisconnectReply(it) => it.remote_comm_id = self.ours(it.remote_comm_id),
            Message::SidrReply(it) => it.request_id = self.ours(it.request_id),
            _ => {}
        }
        mad
    }

    fn read_all(&mut self) {
        while let Some((at, path, mad)) = self.unread.pop_front() {
            self.agent.handle_mad(at, turned(path), &bytes(&self.translate(&mad)));
        }
        for event in events(&mut self.agent) {
            match event {
                Event::Request { connection, .. } => self.requests.push_back(connection),
                Event::Question { question, .. } => self.questions.push_back(question),
                _ => {}
            }
        }
    }

    /// The application does what Linux's did; or the agent itself has to have done it. Then the
    /// next datagram must be the recorded one.
    fn must_send(&mut self, recorded: &Recorded) {
        let now = recorded.at;
        // A DREQ may be sent before the other side's, that crosses it, is read.
        let is_dreq = |mad: &Mad| matches!(mad.message, Message::DisconnectRequest(_));
        if !(is_dreq(&recorded.mad) && self.unread.iter().all(|(_, _, mad)| is_dreq(mad))) {
            self.read_all();
        }
        let is_known = |id| self.names.contains_key(&id);
        match &recorded.mad.message {
            Message::Request(it) if !is_known(it.local_comm_id) => {
                self.connect(now, recorded.path, it);
            }
            Message::SidrRequest(it) if !is_known(it.request_id) => {
                self.resolve(now, recorded.path, it);
            }
            Message::Reply(it) if !is_known(it.local_comm_id) => self.accept(now, it),
            Message::ReadyToUse(it) => {
                let _ = self.agent.ready(ConnectionId(self.ours(it.local_comm_id)), &[]);
            }
            Message::DisconnectRequest(it) => {
                let id = ConnectionId(self.ours(it.local_comm_id));
                self.agent.disconnect(now, id, &[]).expect("it stands");
                self.transactions.insert(recorded.mad.transaction_id, Agent::own_transaction(id.0));
            }
            Message::SidrReply(it) => {
                let question = self.questions.pop_front().expect("a question");
                let answer = Answer::Serve { qpn: it.qpn, q_key: None };
                self.agent.answer(now, question, answer, it.private_data.as_bytes()).unwrap();
            }
            _ => {}
        }
        let sent = self.agent.poll_transmit().unwrap_or_else(|| {
            // Nobody does anything: it must be a repetition, at about the same time.
            let due = self.agent.poll_timeout().expect("something is awaited");
            let (early, late) = if due < now { (due, now) } else { (now, due) };
            assert!(late.since(early).as_millis() < 400, "{due} is far from {now}");
            self.agent.handle_timeout(due);
            self.repetitions += 1;
            self.agent.poll_transmit().expect("a repetition")
        });
        let expected = self.expected(recorded, &sent.mad);
        assert_eq!(sent.mad, expected, "{}", recorded.mad);
        assert_eq!(sent.path, recorded.path);
        assert_eq!(sent.traffic_class, recorded.traffic_class, "{}", recorded.mad);
    }

    /// What Linux sent, with the names and PSN that our agent chose.
    fn expected(&self, recorded: &Recorded, sent: &Mad) -> Mad {
        let mut mad = recorded.mad;
        let transaction = self.transactions.get(&mad.transaction_id);
        mad.transaction_id = transaction.copied().unwrap_or(mad.transaction_id);
        match &mut mad.message {
            Message::Request(it) => {
                it.local_comm_id = self.ours(it.local_comm_id);
                it.starting_psn = psn_of(sent);
            }
            Message::Reply(it) => {
                it.local_comm_id = self.ours(it.local_comm_id);
                it.starting_psn = psn_of(sent);
            }
            Message::ReadyToUse(it) => it.local_comm_id = self.ours(it.local_comm_id),
            Message::Reject(it) => it.local_comm_id = self.ours(it.local_comm_id),
            Message::DisconnectRequest(it) => it.local_comm_id = self.ours(it.local_comm_id),
            Message::DisconnectReply(it) => it.local_comm_id = self.ours(it.local_comm_id),
            Message::SidrRequest(it) => it.request_id = self.ours(it.request_id),
            _ => {}
        }
        mad
    }

    fn connect(&mut self, now: Instant, path: GidPair, it: &Request) {
        let (header, private_data) = it.ip_cm().expect("the RDMA CM");
        let (space, port) = it.service_id.port().expect("the RDMA CM");
        let of_path = &it.primary_path;
        let connect = Connect {
            path,
            service: Service::Ip { space, source_port: header.source_port, port },
            transport: it.transport_service_type,
            qpn: it.local_qpn,
            srq: it.srq,
            flow_control: it.end_to_end_flow_control,
            responder_resources: it.responder_resources,
            initiator_depth: it.initiator_depth,
            retry_count: it.retry_count,
            rnr_retry_count: it.rnr_retry_count,
            p_key: it.partition_key,
            path_mtu: it.path_mtu().expect("an MTU"),
            traffic_class: of_path.traffic_class,
            hop_limit: of_path.hop_limit,
            sl: of_path.sl,
            rate: of_path.packet_rate,
            timing: Timing::LINUX,
            private_data,
        };
        let id = self.agent.connect(now, &connect).expect("it can be asked");
        self.learn(it.local_comm_id, id.0);
    }

    fn resolve(&mut self, now: Instant, path: GidPair, it: &SidrRequest) {
        let (header, private_data) = it.ip_cm().expect("the RDMA CM");
        let (_, port) = it.service_id.port().expect("the RDMA CM");
        let resolve = Resolve { private_data, ..Resolve::port(path, header.source_port, port) };
        let id = self.agent.resolve(now, &resolve).expect("it can be asked");
        self.learn(it.request_id, id.0);
    }

    fn learn(&mut self, linux: CommId, ours: CommId) {
        self.names.insert(linux, ours);
        // Both make transaction IDs of names: Linux with the bytes the other way round.
        let of_linux = 2 << 32 | u64::from(linux.0.swap_bytes());
        self.transactions.insert(of_linux, Agent::own_transaction(ours));
    }

    fn accept(&mut self, now: Instant, it: &Reply) {
        let id = self.requests.pop_front().expect("a request");
        let accept = Accept {
            qpn: it.local_qpn,
            srq: it.srq,
            flow_control: it.end_to_end_flow_control,
            responder_resources: it.responder_resources,
            initiator_depth: it.initiator_depth,
            rnr_retry_count: it.rnr_retry_count,
            private_data: it.private_data.as_bytes(),
        };
        self.agent.accept(now, id, &accept).expect("it can be accepted");
        self.names.insert(it.local_comm_id, id.0);
    }
}

fn psn_of(mad: &Mad) -> Psn {
    match &mad.message {
        Message::Request(it) => it.starting_psn,
        Message::Reply(it) => it.starting_psn,
        _ => Psn::new(0),
    }
}

/// The adapter that a host has, by what it says of itself.
fn guid_of(all: &[Recorded], host: IpAddr) -> u64 {
    let of_host = all.iter().filter(|recorded| recorded.path.local.to_ip() == host);
    let mut guids = of_host.filter_map(|recorded| match &recorded.mad.message {
        Message::Request(it) => Some(it.local_ca_guid),
        Message::Reply(it) => Some(it.local_ca_guid),
        _ => None,
    });
    guids.next_back().unwrap_or(1)
}

/// Plays a capture to our agent in the place of both hosts, one after the other; how many datagrams
/// it sent, and how many of them by itself because time had passed. Captures were made by the
/// client: frames that were `lost` did not reach the server.
fn play(name: &str, lost: &[u64]) -> (usize, usize) {
    let all = recorded(name);
    let mut totals = (0, 0);
    let first = all.first().expect("it has datagrams").path;
    for host in [first.local.to_ip(), first.remote.to_ip()] {
        let mut stand = Stand::new(guid_of(&all, host));
        let somebody_listens = !all.iter().any(|it| {
            matches!(&it.mad.message, Message::Reject(it)
                if it.reason == RejectReason::InvalidServiceId)
        });
        if somebody_listens {
            for (space, port) in
                [(PortSpace::Tcp, 7471), (PortSpace::Tcp, 7174), (PortSpace::Udp, 7174)]
            {
                stand.agent.listen(Listen::port(space, port, 16)).unwrap();
            }
        }
        for recorded in &all {
            if recorded.path.local.to_ip() == host {
                stand.must_send(recorded);
                totals.0 += 1;
            } else if !lost.contains(&recorded.number) {
                stand.unread.push_back((recorded.at, recorded.path, recorded.mad));
            }
        }
        stand.read_all();
        assert_eq!(stand.agent.poll_transmit(), None, "{name}: more than Linux sent");
        assert_eq!(stand.agent.counters().malformed, 0, "{name}");
        totals.1 += stand.repetitions;
    }
    totals
}

//= M01, M03, M04, M06, M10, M15 test
#[test]
fn ours_says_what_linux_said() {
    for (name, datagrams, repetitions) in [
        ("cm_rdma_client.pcap", 7, 0),
        ("cm_reject.pcap", 2, 0),
        ("cm_rping.pcap", 5, 0),
        ("cm_rping_v6.pcap", 5, 0),
        ("cm_rstream.pcap", 5, 0),
        ("cm_ucmatose.pcap", 5, 0),
        ("cm_ucmatose_loss.pcap", 10, 3), // every second frame to the server
        ("cm_ucmatose_multi.pcap", 15, 0),
        ("cm_ucmatose_tos.pcap", 5, 0),
        ("cm_udaddy_sidr.pcap", 2, 0),
        ("vlan_cm_rping.pcap", 5, 0),
    ] {
        let lost: &[u64] = if repetitions > 0 { &[1, 4, 16] } else { &[] };
        assert_eq!(play(name, lost), (datagrams, repetitions), "{name}");
    }
    assert_eq!(Timing::LINUX.packet_lifetime, CmTimeout::from_bits(18));
}
