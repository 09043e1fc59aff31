use super::*;

use roxe_wire::mad::cm::{
    AdditionalInfo, AddressPair, AlternatePathResponse, AlternatePathStatus, AnsweredMessage, Bits,
    CommId, DisconnectReply, DisconnectRequest, FlowLabel, IpCmHeader, LoadAlternatePath,
    MessageReceipt, Path, PortSpace, PrivateData, ReadyToUse, Reject, RejectReason, Reply, Request,
    ServiceId, SidrReply, SidrRequest, SidrStatus, TransportServiceType,
};
use roxe_wire::mad::cm::{CmTimeout, VendorId};
use roxe_wire::mad::{Mad, Message as Of};
use roxe_wire::{AckTimeout, Mtu, PKey, Psn, QKey, Qpn, StaticRate};

use super::super::frame_out::show_fact;
use super::super::symbols::NoSymbols;
use super::super::syntax::{Arguments, Bytes};

fn bytes(message: Of) -> [u8; MAD] {
    let mut room = [0; MAD];
    Mad::new(0x1_0000_0007, message).emit(&mut room);
    room
}

/// A message in words of scripts, private data last.
fn told(message: Of) -> String {
    let (message, facts, private) = read(&bytes(message)).expect("it is in the tables");
    let mut line = message.name.to_owned();
    for (name, fact) in facts {
        line += &format!(" {name} {}", show_fact(name, &fact));
    }
    line + " " + &String::from_utf8_lossy(&private)
}

fn addresses() -> AddressPair {
    AddressPair::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() }
}

fn request() -> Request {
    let header = IpCmHeader {
        major_version: Bits::new(1),
        minor_version: Bits::new(2),
        source_port: 9,
        addresses: addresses(),
    };
    Request {
        local_comm_id: CommId(0x11),
        service_id: ServiceId::from_port(PortSpace::Tcp, 4444),
        local_ca_guid: 0x12,
        local_qpn: Qpn::new(0x13),
        responder_resources: 14,
        initiator_depth: 15,
        remote_cm_response_timeout: CmTimeout::from_bits(16),
        transport_service_type: TransportServiceType::UnreliableConnection,
        end_to_end_flow_control: true,
        starting_psn: Psn::new(17),
        local_cm_response_timeout: CmTimeout::from_bits(18),
        retry_count: Bits::new(1),
        partition_key: PKey(0x19),
        path_packet_payload_mtu: Bits::new(Mtu::B512.code()),
        rnr_retry_count: Bits::new(3),
        max_cm_retries: Bits::new(4),
        srq: true,
        primary_path: Path {
            local_lid: 0x20,
            remote_lid: 0x21,
            local_gid: addresses().source().into(),
            remote_gid: addresses().destination().into(),
            flow_label: FlowLabel::new(0x2_2222),
            packet_rate: StaticRate::from_bits(23),
            traffic_class: 24,
            hop_limit: 25,
            sl: Bits::new(6),
            subnet_local: true,
            local_ack_timeout: AckTimeout::new(27).expect("it has five bits"),
        },
        private_data: PrivateData::with_ip_cm(header, b"hello").expect("it fits"),
        ..Request::default()
    }
}

const IDS: (CommId, CommId) = (CommId(0x31), CommId(0x32));

/// The tables here and those of `roxe-wire` put everything at the same places.
#[test]
fn both_tables_say_the_same() {
    assert_eq!(
        told(Of::Request(request())),
        "REQ tid 0x100000007 local-comm-id 0x11 prefix 1 protocol 6 port 4444 guid 0x12 \
         local-qpn 0x13 responder-resources 14 initiator-depth 15 remote-response-timeout 16 \
         transport uc flow-control 1 starting-psn 17 local-response-timeout 18 retry-count 1 \
         partition-key 0x19 payload-mtu 2 rnr-retry-count 3 max-cm-retries 4 srq 1 \
         local-lid 0x20 remote-lid 0x21 local-gid 192.0.2.1 remote-gid 192.0.2.2 \
         flow-label 139810 packet-rate 23 traffic-class 24 hop-limit 25 sl 6 subnet-local 1 \
         ack-timeout 27 cma-version 18 ip-version 4 source-port 9 source 192.0.2.1 \
         destination 192.0.2.2 hello"
    );
    let (local_comm_id, remote_comm_id) = IDS;
    let reply = Reply {
        local_comm_id,
        remote_comm_id,
        local_qpn: Qpn::new(0x13),
        starting_psn: Psn::new(17),
        responder_resources: 14,
        initiator_depth: 15,
        target_ack_delay: CmTimeout::from_bits(16),
        failover_accepted: Bits::new(2),
        end_to_end_flow_control: true,
        rnr_retry_count: Bits::new(3),
        srq: true,
        local_ca_guid: 0x12,
        ..Reply::default()
    };
    assert_eq!(
        told(Of::Reply(reply)),
        "REP tid 0x100000007 local-comm-id 0x31 remote-comm-id 0x32 local-qpn 0x13 \
         starting-psn 17 responder-resources 14 initiator-depth 15 target-ack-delay 16 \
         failover 2 flow-control 1 rnr-retry-count 3 srq 1 guid 0x12 "
    );
    let receipt = MessageReceipt {
        local_comm_id,
        remote_comm_id,
        message_mraed: AnsweredMessage::Rep,
        service_timeout: CmTimeout::from_bits(16),
        ..MessageReceipt::default()
    };
    assert_eq!(
        told(Of::MessageReceipt(receipt)),
        "MRA tid 0x100000007 local-comm-id 0x31 remote-comm-id 0x32 message rep \
         service-timeout 16 "
    );
    let ready = ReadyToUse { local_comm_id, remote_comm_id, ..ReadyToUse::default() };
    let plain = "tid 0x100000007 local-comm-id 0x31 remote-comm-id 0x32 ";
    assert_eq!(told(Of::ReadyToUse(ready)), format!("RTU {plain}"));
    let reply = DisconnectReply { local_comm_id, remote_comm_id, ..DisconnectReply::default() };
    assert_eq!(told(Of::DisconnectReply(reply)), format!("DREP {plain}"));
    let (remote_qpn, private_data) = (Qpn::new(0x13), PrivateData::ZERO);
    let request = DisconnectRequest { local_comm_id, remote_comm_id, remote_qpn, private_data };
    let told_of = told(Of::DisconnectRequest(request));
    assert_eq!(told_of, format!("DREQ {plain}remote-qpn 0x13 "));
    let load = LoadAlternatePath {
        local_comm_id,
        remote_comm_id,
        remote_qpn,
        remote_cm_response_timeout: CmTimeout::from_bits(16),
        alternate_path: Path {
            local_gid: addresses().source().into(),
            remote_gid: addresses().destination().into(),
            ..Path::default()
        },
        ..LoadAlternatePath::default()
    };
    assert_eq!(
        told(Of::LoadAlternatePath(load)),
        format!(
            "LAP {plain}remote-qpn 0x13 remote-response-timeout 16 local-gid 192.0.2.1 \
             remote-gid 192.0.2.2 "
        )
    );
    let response = AlternatePathResponse {
        local_comm_id,
        remote_comm_id,
        ap_status: AlternatePathStatus::Redirect,
        ..AlternatePathResponse::default()
    };
    let told_of = told(Of::AlternatePathResponse(response));
    assert_eq!(told_of, format!("APR {plain}info-length 0 ap-status 4 "));
}

#[test]
fn information_about_a_refusal_is_told_as_what_it_is() {
    let (local_comm_id, remote_comm_id) = IDS;
    let reject = |info: &[u8]| {
        told(Of::Reject(Reject {
            local_comm_id,
            remote_comm_id,
            message_rejected: AnsweredMessage::Other,
            ari: AdditionalInfo::new(info).expect("it fits"),
            reason: RejectReason::InvalidGid,
            ..Reject::default()
        }))
    };
    let gid = Gid::from_ip(addresses().source()).0;
    for (info, shown) in [
        (&[0, 0, 0, 0, 0, 0, 1, 2][..], "ari-guid 0x102"),
        (&gid, "ari-gid 192.0.2.1"),
        (&[3], "ari-mtu 3"),
        (&[], "ari-length 0"),
    ] {
        let told = reject(info);
        assert!(told.ends_with(&format!(" message other {shown} reason 12 ")), "{told}");
    }
    let info = AdditionalInfo::new(&[1, 2]).expect("it fits");
    let reject = Reject { ari: info, ..Reject::default() };
    assert!(read(&bytes(Of::Reject(reject))).is_none(), "nobody knows what that means");
}

#[test]
fn datagram_services_are_told_in_full() {
    let header = IpCmHeader {
        major_version: Bits::new(0),
        minor_version: Bits::new(0),
        source_port: 9,
        addresses: AddressPair::V6 { source: 1.into(), destination: 2.into() },
    };
    let request = SidrRequest {
        request_id: CommId(0x11),
        partition_key: PKey(0x19),
        service_id: ServiceId::from_port(PortSpace::Udp, 4444),
        private_data: PrivateData::with_ip_cm(header, b"hello").expect("it fits"),
    };
    assert_eq!(
        told(Of::SidrRequest(request)),
        "SIDR_REQ tid 0x100000007 request-id 0x11 partition-key 0x19 prefix 1 protocol 17 \
         port 4444 cma-version 0 ip-version 6 source-port 9 source ::1 destination ::2 hello"
    );
    let reply = SidrReply {
        request_id: CommId(0x11),
        status: SidrStatus::Redirect,
        qpn: Qpn::new(0x13),
        service_id: ServiceId::from_port(PortSpace::Udp, 4444),
        q_key: QKey(0x14),
        ..SidrReply::default()
    };
    assert_eq!(
        told(Of::SidrReply(reply)),
        "SIDR_REP tid 0x100000007 request-id 0x11 status 4 info-length 0 service-qpn 0x13 \
         prefix 1 protocol 17 port 4444 service-q-key 0x14 "
    );
}

#[test]
fn what_stands_in_no_row_must_be_zero() {
    assert!(read(&bytes(Of::Request(request()))).is_some());
    let vendor_id = VendorId::new(1);
    assert!(read(&bytes(Of::Request(Request { vendor_id, ..request() }))).is_none());
    for at in [0, 1, 2, 3, 4, 6, 16, 18, 20, HEADER + 24] {
        let mut changed = bytes(Of::Request(request()));
        changed[at] ^= 0x40;
        assert!(read(&changed).is_none(), "byte {at}");
    }
    assert!(read(&bytes(Of::Request(request()))[1..]).is_none(), "too short");
}

/// What a script says, it reads back.
#[test]
fn messages_are_written_as_they_are_read() {
    let by = Sender {
        from: [192, 0, 2, 1].into(),
        to: [192, 0, 2, 2].into(),
        guid: PEER_GUID,
        tid: Some(9),
    };
    for message in MESSAGES {
        let named = message.rows.iter().filter(|row| matches!(row.shape, N));
        let named = named.filter(|row| row.name != "ari-length" && row.name != "ip-version");
        let value = |row: &Row| if row.width == 1 { 1 } else { row.high as u64 % 3 + 1 };
        let number = |plus| super::super::syntax::Expression { symbol: None, plus, most: u64::MAX };
        let named: Vec<_> =
            named.map(|row| (row.name, Value::Number(number(value(row))))).collect();
        let payload = Some(Bytes::These(b"hello".to_vec()));
        let arguments = Arguments { named, payload };
        let numbers = Numbers { symbols: &NoSymbols, arguments: &arguments, qp: "c1" };
        let bytes = message.write(&numbers, &by).expect("it can be written");
        assert!(Mad::parse(&bytes).is_ok(), "{}", message.name);
        let (is, facts, private) = read(&bytes).expect("it can be read");
        assert_eq!((is, &private[..]), (message, &b"hello"[..]));
        assert_eq!(facts[0], ("tid", Fact::Number(9)));
        for row in message.rows {
            let fact = facts.iter().find(|(name, _)| *name == row.name);
            let said = arguments.has(row.name).then(|| Fact::Number(value(row)));
            let (_, fact) = fact.expect("each row is told");
            assert_eq!(said.as_ref().unwrap_or(fact), fact, "{} {}", is.name, row.name);
        }
    }
}
