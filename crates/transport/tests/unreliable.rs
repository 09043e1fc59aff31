//! Unreliable connections and datagrams, packet by packet: the next PSN is 1000, the path MTU 256.

#[allow(dead_code, reason = "shared with other tests")]
mod peer;
#[allow(dead_code, reason = "shared with other tests")]
mod world;

use peer::{NOW, Sent, count, packet, request};
use roxe_transport::adapter::Count;
use roxe_transport::check_q_key;
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, CompletionStatus, Data, DatagramTarget, Extra, PathId, Remote,
    SendOperation, Sge,
};
use roxe_wire::{Body, DropReason, Grh, ImmDt, LKey, Packet, Payload, Psn, QKey, Qpn, RKey};
use world::{End, KEY, attributes, sge};

use CompletionStatus::{Flushed, LocalLengthError, LocalProtectionError, Success};
use SendOperation::Send;

fn connection() -> End {
    End::new(ServiceType::Uc, attributes(2, 1))
}

fn datagrams() -> End {
    End::new(ServiceType::Ud, attributes(2, 1))
}

fn send(part: &str, psn: u32, bytes: &[u8]) -> Sent {
    packet(&format!("UC_SEND_{part}"), psn).bytes(bytes)
}

fn write(part: &str, psn: u32, bytes: &[u8]) -> Sent {
    packet(&format!("UC_WRITE_{part}"), psn).bytes(bytes)
}

//= U01, BC-037, 04-4.13 test
#[test]
fn a_gap_costs_its_message_and_its_receive_serves_the_next_one() {
    let mut end = connection();
    end.room(1, 1000);
    end.room(2, 1000);
    end.take(send("FIRST", 1000, &count(0, 256)).ack_req());
    end.take(send("LAST", 1002, b"end"));
    end.take(send("MIDDLE", 1003, &count(0, 256)));
    assert_eq!(end.received(), []);
    end.take(send("ONLY", 1009, b"whole"));
    end.take(send("FIRST", 2000, &count(7, 256)));
    end.take(send("LAST", 2001, b"!"));
    assert_eq!(end.received(), [(1, Success, 5), (2, Success, 257)]);
    assert_eq!((end.leave(), end.qp.state()), (vec![], QpState::Rts), "nobody is told");
    assert_eq!(end.adapter.count_of(Count::UcMessageDropped), 1);
}

//= 02-2.3, 04-4.13 test
#[test]
fn a_first_packet_inside_of_a_message_begins_another() {
    let mut end = connection();
    end.room(1, 1000);
    end.take(send("FIRST", 1000, &count(0, 256)));
    end.take(send("FIRST", 1001, &count(9, 256)));
    end.take(send("LAST", 1002, b"x"));
    assert_eq!((end.received(), end.adapter.memory[1000]), (vec![(1, Success, 257)], 9));
    end.take(write("FIRST", 1003, &count(0, 256)).len(300));
    end.take(send("LAST", 1004, b"x"));
    assert_eq!((end.received().len(), end.leave()), (1, vec![]));
}

//= U02, 04-4.13 test
#[test]
fn the_end_of_a_damaged_write_gives_no_completion() {
    let mut end = connection();
    end.room(1, 1000);
    end.take(write("FIRST", 1000, &[7; 256]).len(600));
    let last = packet("UC_WRITE_LAST_IMM", 1002).bytes(&[9; 88]).imm(1);
    end.take(last.clone());
    assert_eq!((end.received(), end.adapter.receives.len()), (vec![], 1));
    assert_eq!(end.adapter.memory[512], 0);
    end.take(write("FIRST", 1003, &[7; 256]).len(344));
    end.take(packet("UC_WRITE_LAST_IMM", 1004).bytes(&[9; 88]).imm(1));
    assert_eq!(end.received(), [(1, Success, 344)]);
}

//= 04-4.13, R19, 04-4.2 test
#[test]
fn what_is_wrong_is_dropped_silently() {
    let bad = [
        send("ONLY", 1000, &[0; 257]),
        send("ONLY", 1000, &[0; 65]),
        send("FIRST", 1000, &[0; 255]),
        write("ONLY", 1000, b"x").at(0, KEY + 1),
        write("ONLY", 1000, b"x").len(2),
        packet("UC_WRITE_FIRST", 1000).bytes(&[0; 256]).len((1 << 31) + 1),
    ];
    for packet in bad {
        let mut end = connection();
        end.room(1, 64);
        end.take(packet);
        end.take(send("ONLY", 1001, b"good"));
        assert_eq!((end.received(), end.leave()), (vec![(1, Success, 4)], vec![]));
        assert_eq!(end.adapter.count_of(Count::UcMessageDropped), 1);
    }
    let mut end =
        End::new(ServiceType::Uc, Attributes { access: AccessFlags::NONE, ..attributes(2, 1) });
    end.take(write("ONLY", 1000, b"x"));
    end.take(send("ONLY", 1001, b"no receive"));
    assert_eq!((end.adapter.memory[0], end.adapter.count_of(Count::UcMessageDropped)), (0, 2));
}

//= 04-4.13, 05-5.7 test
#[test]
fn an_unreliable_send_is_done_when_it_is_on_its_way() {
    let mut end = connection();
    end.post(1, Send, 300);
    assert!(end.poll(NOW).is_some());
    assert_eq!(end.sent(), [], "the first of two packets");
    assert!(end.poll(NOW).is_some());
    assert_eq!((end.sent(), end.qp.deadline()), (vec![(1, Success)], None));
}

/// A failed request stops sending only: receiving goes on, and from SQE there is a way back.
//= V05, 05-5.1, BC-103 test
#[test]
fn a_failed_send_stops_sending_only() {
    for service in [ServiceType::Uc, ServiceType::Ud] {
        let mut end = End::new(service, attributes(2, 1));
        let post = |end: &mut End, wr_id, key, len| {
            let piece = [Sge { l_key: LKey(key), ..sge(0, len) }];
            let mut one = request(wr_id, Send, Data::Regions(&piece));
            one.target = (service == ServiceType::Ud).then_some(target(QKey(5)));
            end.qp.post_send(&one, &mut end.adapter).unwrap();
        };
        post(&mut end, 1, KEY + 1, 8);
        post(&mut end, 2, KEY, 8);
        end.leave();
        assert_eq!(end.sent(), [(1, LocalProtectionError), (2, Flushed)]);
        assert_eq!(end.qp.state(), QpState::SqError);
        post(&mut end, 3, KEY, 8);
        assert_eq!(end.sent()[2..], [(3, Flushed)]);
        end.room(7, 300);
        end.take(packet(&format!("{service:?}_SEND_ONLY").to_uppercase(), 1000).bytes(b"x"));
        assert_eq!(end.received().len(), 1, "receiving goes on");
        let (values, none) = (attributes(2, 1), AttributeMask::NONE);
        end.qp.modify(QpState::Rts, none, &values, &mut end.adapter).unwrap();
        post(&mut end, 4, KEY, 8);
        assert_eq!((end.leave().len(), end.sent()[3..].to_vec()), (1, vec![(4, Success)]));
    }
}

const fn target(q_key: QKey) -> DatagramTarget {
    DatagramTarget { path: PathId(3), qpn: Qpn::new(0x55), q_key }
}

fn datagram(psn: u32, bytes: &[u8]) -> Sent {
    packet("UD_SEND_ONLY", psn).bytes(bytes)
}

/// The headers of the next datagram that leaves, sent with this Q_Key.
fn headers_with(end: &mut End, q_key: QKey) -> roxe_wire::Headers {
    let mut one = request(1, Send, Data::Inline(b"x"));
    one.target = Some(target(q_key));
    end.qp.post_send(&one, &mut end.adapter).unwrap();
    let bytes = end.poll(NOW).unwrap();
    Packet::parse(Body::whole(&bytes)).unwrap().headers
}

//= U03, BC-115, IBA 3.5.3, 05-5.8 test
#[test]
fn a_controlled_q_key_is_replaced_by_the_senders_own() {
    let mut end = datagrams();
    let sent = |end: &mut End, key| headers_with(end, QKey(key)).deth.unwrap().q_key;
    assert_eq!(sent(&mut end, 0x7fff_ffff), QKey(0x7fff_ffff));
    assert_eq!(sent(&mut end, 0x8000_0000), QKey(0x1111_1111));
    assert_eq!(sent(&mut end, 0x8001_0000), QKey(0x1111_1111));
    let headers = headers_with(&mut end, QKey(1));
    assert_eq!(headers.deth.unwrap().source_qp, Qpn::new(2));
    assert_eq!((headers.bth.dest_qp, headers.bth.ack_req), (Qpn::new(0x55), false));
}

//= U03, BC-115 test
#[test]
fn q_keys_are_compared() {
    let headers = headers_with(&mut datagrams(), QKey(5));
    let opcode = headers.bth.row().unwrap();
    let packet = Packet { opcode, headers, payload: Payload::bytes(&[]) };
    assert_eq!(check_q_key(QKey(5), &packet), Ok(()));
    let wrong = Err(DropReason::QKeyMismatch { q_key: 5 });
    assert_eq!(check_q_key(QKey(6), &packet), wrong);
}

//= U04, BC-114, 05-5.8 test
#[test]
fn a_receive_begins_with_40_bytes_that_tell_where_the_datagram_came_from() {
    let mut end = datagrams();
    end.room(1, 64);
    let bytes = [&[0; 20][..], &[0x45; 20]].concat();
    let grh = Grh::from_bytes(bytes.clone().try_into().unwrap());
    let sent = packet("UD_SEND_ONLY_IMM", 0).bytes(b"hello").imm(7).to_bytes();
    let packet = Packet::parse(Body::whole(&sent)).unwrap();
    end.qp.handle_packet(NOW, &packet, &grh, &mut end.adapter);
    assert_eq!(end.adapter.memory[1000..1045], [&bytes[..], b"hello"].concat());
    let completion = end.adapter.received[0];
    assert_eq!((completion.byte_len, completion.grh), (45, true));
    assert_eq!((completion.source_qp, completion.extra), (Qpn::new(9), Extra::Imm(ImmDt(7))));
}

//= U05, IBA C10-93.1.1, 02-2.2, 05-5.3 test
#[test]
fn a_datagram_is_not_longer_than_the_path_mtu() {
    let mut end = datagrams();
    for (wr_id, len) in [(1, 256), (2, 257)] {
        end.post_request(wr_id, Send, len, |request| request.target = Some(target(QKey(5))));
    }
    assert_eq!(end.leave().len(), 1);
    assert_eq!(end.sent(), [(1, Success), (2, LocalLengthError)]);
    assert_eq!(end.qp.state(), QpState::SqError);
    end.room(1, 1000);
    end.take(datagram(0, &[0; 257]));
    assert_eq!((end.received(), end.adapter.count_of(Count::UdTooLong)), (vec![], 1));
}

//= U06 test
#[test]
fn without_a_receive_a_datagram_is_dropped() {
    let mut end = datagrams();
    end.take(datagram(0, b"x"));
    assert_eq!((end.leave(), end.adapter.count_of(Count::UdNoBuffer)), (vec![], 1));
    end.room(1, 64);
    end.take(datagram(0, b"x"));
    assert_eq!(end.received(), [(1, Success, 41)]);
}

//= U08, BC-127 test
#[test]
fn an_acknowledgement_asked_for_with_a_datagram_is_not_given() {
    let mut end = datagrams();
    end.room(1, 64);
    end.take(datagram(0, b"x").ack_req());
    assert_eq!((end.received(), end.leave()), (vec![(1, Success, 41)], vec![]));
}

//= BC-074, 05-5.8 test
#[test]
fn a_datagram_that_does_not_fit_costs_its_receive_and_nothing_else() {
    let mut end = datagrams();
    end.room(1, 44);
    end.room(2, 45);
    end.take(datagram(0, b"hello"));
    end.take(datagram(0, b"hello"));
    let byte_len = 45;
    assert_eq!(end.received(), [(1, LocalLengthError, byte_len), (2, Success, byte_len)]);
    assert_eq!((end.qp.state(), end.leave()), (QpState::Rts, vec![]));
    assert_eq!(end.adapter.memory[1000..1044], [0; 44]);
}

/// PSNs are counted on the way out, and not looked at on the way in.
//= 02-2.2, 02-2.6, 05-5.8 test
#[test]
fn the_psns_of_datagrams_mean_nothing() {
    let mut end = datagrams();
    let psns: Vec<_> = (0..3).map(|_| headers_with(&mut end, QKey(5)).bth.psn).collect();
    assert_eq!(psns, [2000, 2001, 2002].map(Psn::new));
    (1..4).for_each(|id| end.room(id, 64));
    for psn in [5, 5, 0xff_ffff] {
        end.take(datagram(psn, b"x"));
    }
    assert_eq!(end.received().len(), 3);
}

//= 02-2.5, BC-092 test
#[test]
fn each_service_has_its_operations() {
    let remote = Remote { va: 0, r_key: RKey(KEY) };
    let operations = [
        (Send, "rc uc ud", 8),
        (SendOperation::SendWithImm(ImmDt(1)), "rc uc ud", 8),
        (SendOperation::SendWithInv(RKey(KEY)), "rc", 8),
        (SendOperation::Write(remote), "rc uc", 8),
        (SendOperation::WriteWithImm(remote, ImmDt(1)), "rc uc", 8),
        (SendOperation::Read(remote), "rc", 8),
        (SendOperation::FetchAdd { remote, add: 1 }, "rc", 8),
        (SendOperation::CompareSwap { remote, compare: 0, swap: 1 }, "rc", 8),
        (SendOperation::AtomicWrite(remote), "rc", 8),
    ];
    for (operation, services, len) in operations {
        for (service, name) in
            [(ServiceType::Rc, "rc"), (ServiceType::Uc, "uc"), (ServiceType::Ud, "ud")]
        {
            let mut end = End::new(service, attributes(2, 1));
            let pieces = [sge(0, len)];
            let mut one = request(1, operation, Data::Regions(&pieces));
            one.target = (service == ServiceType::Ud).then_some(target(QKey(5)));
            let posted = end.qp.post_send(&one, &mut end.adapter);
            assert_eq!(posted.is_ok(), services.contains(name), "{operation:?} on {name}");
            assert_eq!(end.leave().is_empty(), posted.is_err());
        }
    }
}
