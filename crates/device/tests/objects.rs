//! What a device does beside carrying packets for one connection: shared queues, groups, addresses,
//! turns, and objects that go.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use pair::{End, Q_KEY, attributes, pair, remote, send_datagram, settle};
use roxe_device::memory::{Registration, WindowType};
use roxe_device::receive_queue::ModifyError;
use roxe_device::{Event, QueuePairInit, ReceiveCapacity, ReceiveQueueId, Resources, VerbError};
use roxe_transport::SendCapacity;
use roxe_transport::adapter::QpEvent;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, CompletionStatus, ReceiveRequest, SendOperation,
};
use roxe_wire::{Frame, Instant, LKey, Mtu, Packet, QKey, Qpn, RawFrame, icrc};

use CompletionStatus::{Flushed, Success};
use SendOperation::{Send, Write};

const NOW: Instant = Instant::ZERO;

/// A sender, and a receiver whose queue pairs share a queue of so many receives.
fn shared(queue_pairs: usize, receives: u64) -> (End, Vec<Qpn>, End, Vec<Qpn>, ReceiveQueueId) {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let srq = b.device.create_shared_receive_queue(b.pd, 16, 1, 0).unwrap();
    for wr_id in 0..receives {
        let sges = [b.sge(wr_id * 100, 100)];
        b.device.post_shared_receive(srq, &ReceiveRequest { wr_id, sges: &sges }).unwrap();
    }
    let (to_a, to_b) = (a.address, b.address);
    let (mut from, mut at) = (vec![], vec![]);
    for _ in 0..queue_pairs {
        let (qa, qb) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, Some(srq)));
        a.connect(qa, qb, to_b, Mtu::B1024);
        b.connect(qb, qa, to_a, Mtu::B1024);
        from.push(qa);
        at.push(qb);
    }
    (a, from, b, at, srq)
}

fn events(end: &mut End) -> Vec<Event> {
    std::iter::from_fn(|| end.device.poll_event()).collect()
}

fn to_error(end: &mut End, qpn: Qpn) {
    let values = end.device.query_queue_pair(qpn).unwrap().attributes;
    let none = AttributeMask::NONE;
    end.device.modify_queue_pair(qpn, QpState::Error, none, &values, None).unwrap();
}

//= S01, 05-5.5, 05-5.4 test
#[test]
fn an_armed_shared_queue_tells_once_that_it_runs_short() {
    let (mut a, from, mut b, at, srq) = shared(1, 5);
    let mut take = |b: &mut End| {
        a.post(from[0], 1, Send, a.sge(0, 8));
        settle(&mut a, b, NOW);
        let short = Event::SrqLimitReached(srq);
        events(b).iter().filter(|event| **event == short).count()
    };
    b.device.modify_shared_receive_queue(srq, None, Some(4)).unwrap();
    assert_eq!([take(&mut b), take(&mut b), take(&mut b)], [0, 1, 0]);
    b.device.modify_shared_receive_queue(srq, None, Some(2)).unwrap();
    assert_eq!(take(&mut b), 1);
    assert_eq!(b.device.query_queue_pair(at[0]).unwrap().state, QpState::Rts);
}

/// `ibv_modify_srq(3)`: if a value is wrong, none is taken over.
//= 05-5.5 test
#[test]
fn a_shared_queue_takes_depth_and_limit_together_or_neither() {
    let mut b = End::new(2);
    let srq = b.device.create_shared_receive_queue(b.pd, 4, 1, 4).unwrap();
    let mut modify = |depth, limit| b.device.modify_shared_receive_queue(srq, depth, limit);
    let too_high = |depth| VerbError::ReceiveQueue(ModifyError::LimitTooHigh { depth });
    assert_eq!(modify(Some(8), Some(9)), Err(too_high(8)));
    assert_eq!(modify(None, Some(5)), Err(too_high(4)), "the depth has not changed");
    assert_eq!(modify(Some(2), None), Err(too_high(2)), "nor has the limit");
    assert_eq!(modify(Some(2), Some(0)), Ok(()), "one goes with the other");
    assert_eq!(modify(Some(0), None), Err(VerbError::Invalid("max_wr")));
}

//= S02, 05-5.5, 04-4.10 test
#[test]
fn an_empty_shared_queue_makes_sends_wait_and_gives_no_credits() {
    let (mut a, from, mut b, _, srq) = shared(2, 1);
    for qpn in &from {
        a.post(*qpn, 1, Send, a.sge(0, 8));
        let frame = a.frame(NOW).unwrap();
        b.receive(NOW, &frame);
    }
    let answers: Vec<_> = std::iter::from_fn(|| b.frame(NOW)).collect();
    let said = |frame: &Vec<u8>| {
        let parsed = Frame::parse(RawFrame::ethernet(frame)).unwrap();
        Packet::parse(parsed.body).unwrap().headers.aeth.unwrap().syndrome.to_byte()
    };
    let syndromes: Vec<_> = answers.iter().map(said).collect();
    assert_eq!(syndromes, [0x1f, 0x20 | 12], "no credits, and not ready");
    answers.iter().for_each(|answer| a.receive(NOW, answer));
    let sges = [b.sge(0, 100)];
    b.device.post_shared_receive(srq, &ReceiveRequest { wr_id: 9, sges: &sges }).unwrap();
    let later = a.device.poll_timeout().unwrap();
    a.device.handle_timeout(later);
    settle(&mut a, &mut b, later);
    assert_eq!((a.completions().len(), b.completions().len()), (2, 2));
}

//= S03, 05-5.5, 05-5.4 test
#[test]
fn a_queue_pair_in_error_says_once_that_it_takes_no_more_from_its_shared_queue() {
    let (_, _, mut b, at, srq) = shared(2, 3);
    to_error(&mut b, at[0]);
    to_error(&mut b, at[0]);
    assert_eq!(events(&mut b), [Event::QueuePair(at[0], QpEvent::LastWqeReached)]);
    assert_eq!(b.completions(), [], "what waits there is for the others");
    let busy = b.device.destroy_shared_receive_queue(srq);
    assert!(matches!(busy, Err(VerbError::InUse(_))));
}

/// The shared queue's own domain is asked, not the queue pair's.
//= 05-5.5 test
#[test]
fn scatter_lists_of_a_shared_queue_belong_to_its_domain() {
    for own_domain in [true, false] {
        let (mut a, mut b) = (End::new(1), End::new(2));
        let other = b.device.alloc_pd().unwrap();
        let pd = if own_domain { b.pd } else { other };
        let srq = b.device.create_shared_receive_queue(pd, 4, 1, 0).unwrap();
        let sges = [b.sge(0, 100)];
        b.device.post_shared_receive(srq, &ReceiveRequest { wr_id: 1, sges: &sges }).unwrap();
        let (qa, qb) = (a.create(ServiceType::Rc, None), b.create(ServiceType::Rc, Some(srq)));
        let (to_a, to_b) = (a.address, b.address);
        a.connect(qa, qb, to_b, Mtu::B1024);
        b.connect(qb, qa, to_a, Mtu::B1024);
        a.post(qa, 1, Send, a.sge(0, 8));
        settle(&mut a, &mut b, NOW);
        let status = b.completions()[0].status;
        assert_eq!(status == Success, own_domain, "{status:?}");
    }
}

//= BC-127, 05-5.8 test
#[test]
fn queue_pair_1_takes_management_datagrams_with_their_key() {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let [qa, qb] = [&mut a, &mut b].map(|end| {
        let init = QueuePairInit {
            service: ServiceType::Ud,
            pd: end.pd,
            send_cq: end.cq,
            receive_cq: end.cq,
            srq: None,
            send: SendCapacity { depth: 4, max_sge: 1, max_inline: 256 },
            receive: ReceiveCapacity { depth: 4, max_sge: 1 },
            signal_all: true,
        };
        let qpn = end.device.create_gsi_queue_pair(&init).unwrap();
        let address = end.address;
        end.connect_with(address, &attributes(qpn, qpn, Mtu::B1024));
        assert!(end.device.create_gsi_queue_pair(&init).is_err(), "there is one");
        qpn
    });
    assert_eq!((qa, qb), (Qpn::GSI, Qpn::GSI));
    let sge = b.sge(0, 300);
    b.post_receive(qb, 1, sge);
    let to_b = b.address;
    let path = a.device.create_address_handle(a.pd, &End::vector(to_b)).unwrap();
    send_datagram(&mut a, qa, path, qb, QKey(5), &[7; 256]);
    send_datagram(&mut a, qa, path, qb, Q_KEY, &[7; 256]);
    settle(&mut a, &mut b, NOW);
    assert_eq!(b.completions(), [], "another key, also that of the queue pair's attributes");
    let values = a.device.query_queue_pair(qa).unwrap().attributes;
    let (q_key, mask) = (QKey::GSI, AttributeMask::of(&[A::Qkey]));
    let values = Attributes { q_key, ..values };
    a.device.modify_queue_pair(qa, QpState::Rts, mask, &values, None).unwrap();
    send_datagram(&mut a, qa, path, qb, QKey::GSI, &[7; 256]);
    let mut frame = a.frame(NOW).unwrap();
    frame[42 + 8] |= 0x80; // An acknowledgement is asked for, as Linux's rxe does.
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    let value = icrc::expected(&parsed.cover.unwrap(), parsed.body).unwrap();
    *frame.last_chunk_mut().unwrap() = value.to_le_bytes();
    b.receive(NOW, &frame);
    assert_eq!((b.completions().len(), b.frame(NOW)), (1, None));
}

//= BC-106, BC-107 test
#[test]
fn nothing_of_a_destroyed_queue_pair_lives_on() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let (to_b, qc) = (b.address, a.create(ServiceType::Rc, None));
    a.connect(qc, qb, to_b, Mtu::B1024);
    a.post(qa, 1, Write(remote(0, b.key)), a.sge(0, 8));
    let first = a.frame(NOW).unwrap();
    b.receive(NOW, &first);
    let late = b.frame(NOW).unwrap();
    a.post(qa, 2, Write(remote(0, b.key)), a.sge(0, 3000));
    a.post(qc, 3, Send, a.sge(0, 8));
    a.device.destroy_queue_pair(qa).unwrap();
    // What it had to send is gone, what another has is not; its timer finds nothing.
    let frame = a.frame(NOW).unwrap();
    let packet = Frame::parse(RawFrame::ethernet(&frame)).unwrap().body;
    assert_eq!(Packet::parse(packet).unwrap().payload.len(), 8);
    assert_eq!(a.frame(NOW), None);
    a.device.handle_timeout(Instant::from_nanos(u64::MAX / 2));
    assert!(a.completions().iter().all(|completion| completion.qpn != qa));
    // An answer that comes late is for nobody.
    a.receive(NOW, &late);
    assert_eq!(a.device.counters().by_name("unknown_qp"), Some(1));
    assert!(a.device.query_queue_pair(qa).is_err());
}

/// Flushed completions of a queue pair that is destroyed are gone too, and those of others stay.
//= BC-106, 05-5.2 test
#[test]
fn completions_go_with_their_queue_pair() {
    let (mut a, qa, _, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let qc = a.create(ServiceType::Rc, None);
    let address = a.address;
    a.connect(qc, qb, address, Mtu::B1024);
    for qpn in [qa, qc] {
        a.post(qpn, 1, Send, a.sge(0, 8));
        to_error(&mut a, qpn);
    }
    a.device.destroy_queue_pair(qa).unwrap();
    let left: Vec<_> = a.completions().iter().map(|c| (c.qpn, c.status)).collect();
    assert_eq!(left, [(qc, Flushed)]);
}

#[test]
fn objects_are_counted_until_they_go() {
    let mut a = End::new(1);
    let had = a.device.resources();
    let srq = a.device.create_shared_receive_queue(a.pd, 1, 1, 0).unwrap();
    let qpns = [None, Some(srq)].map(|srq| a.create(ServiceType::Rc, srq));
    let address = a.address;
    a.connect(qpns[0], qpns[1], address, Mtu::B1024);
    let path = a.device.create_address_handle(a.pd, &End::vector(address)).unwrap();
    let window = a.device.alloc_window(a.pd, WindowType::Type2).unwrap();
    let expected = Resources {
        protection_domains: 1,
        completion_queues: 1,
        queue_pairs: 2,
        receive_queues: 2,
        regions: 1,
        windows: 1,
        paths: 2,
        groups: 0,
    };
    assert_eq!(a.device.resources(), expected);
    qpns.iter().for_each(|qpn| a.device.destroy_queue_pair(*qpn).unwrap());
    a.device.destroy_shared_receive_queue(srq).unwrap();
    a.device.destroy_address_handle(path).unwrap();
    a.device.dealloc_window(window).unwrap();
    assert_eq!(a.device.resources(), had);
}

//= BC-150 test
#[test]
fn queue_pairs_take_turns() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B256);
    let (to_b, qc) = (b.address, a.create(ServiceType::Rc, None));
    a.connect(qc, qb, to_b, Mtu::B256);
    for qpn in [qa, qc] {
        a.post(qpn, 1, Write(remote(0, b.key)), a.sge(0, 100 * 256));
    }
    let mut in_a_row = 0;
    let mut longest = 0;
    let mut last = None;
    while let Some(frame) = a.frame(NOW) {
        let port = [frame[34], frame[35]];
        in_a_row = if last == Some(port) { in_a_row + 1 } else { 1 };
        longest = longest.max(in_a_row);
        last = Some(port);
        b.receive(NOW, &frame);
    }
    assert!(longest <= 16, "{longest} packets of one while the other waits");
}

//= BC-084, 05-5.6 test
#[test]
fn a_region_is_a_range_of_bytes_whatever_pages_are() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    let start = 0x1234_5ff1;
    let access = AccessFlags::LOCAL_WRITE.with(AccessFlags::REMOTE_WRITE);
    let (pd, host, len) = (b.pd, b.region, 70_001);
    let what = Registration { pd, host, va: start, len, access };
    let key = b.device.register_memory(&what).unwrap();
    a.fill(0, b"edge");
    for page in [4096, 16_384, 65_536] {
        let border = (start / page + 1) * page;
        a.post(qa, 1, Write(remote(border - 2, LKey(key.0))), a.sge(0, 4));
        settle(&mut a, &mut b, NOW);
        let at = usize::try_from(border - 2 - start).unwrap();
        assert_eq!(b.bytes(at, 4), b"edge", "pages of {page}");
    }
    a.post(qa, 2, Write(remote(start + len - 3, LKey(key.0))), a.sge(0, 4));
    settle(&mut a, &mut b, NOW);
    let last = a.completions().pop().unwrap();
    assert_eq!(last.status, CompletionStatus::RemoteAccessError, "one byte more");
    assert_eq!(b.device.query_queue_pair(qb).unwrap().state, QpState::Error);
}

/// What a congestion notification may look like, and what it does where nobody slows down.
//= BC-017, C03, C05 test
#[test]
fn congestion_notifications_change_nothing() {
    let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
    a.post(qa, 1, Write(remote(0, b.key)), a.sge(0, 16));
    let frame = a.frame(NOW).unwrap();
    // The WRITE has 16 bytes behind its BTH and 16 of payload: cut to the 32 of a notification.
    let mut cnp = frame[..42 + 12 + 16 + 4].to_vec();
    cnp[16..18].copy_from_slice(&(20_u16 + 8 + 32).to_be_bytes());
    cnp[38..40].copy_from_slice(&40_u16.to_be_bytes());
    let ignored = |end: &End| end.device.counters().by_name("rp_cnp_ignored");
    let before = b.device.query_queue_pair(qb);
    for (count, flags) in (1..).zip([0x00, 0x40]) {
        cnp[42] = 0x81;
        cnp[42 + 1] = flags; // M, either way; what is reserved is whatever it was.
        let sealed = seal(cnp.clone());
        b.receive(NOW, &sealed);
        assert_eq!(ignored(&b), Some(count));
    }
    let mut short = cnp[..cnp.len() - 4].to_vec();
    short[16..18].copy_from_slice(&(20_u16 + 8 + 28).to_be_bytes());
    short[38..40].copy_from_slice(&36_u16.to_be_bytes());
    b.receive(NOW, &seal(short));
    assert_eq!(b.device.counters().by_name("header_missing"), Some(1));
    assert_eq!((ignored(&b), b.frame(NOW)), (Some(2), None));
    assert_eq!(b.device.query_queue_pair(qb), before);
    b.receive(NOW, &frame);
    assert!(b.frame(NOW).is_some(), "the connection goes on");
}

/// Writes the checksum of the IPv4 header and the ICRC.
fn seal(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let parsed = Frame::parse(RawFrame::ethernet(&frame)).unwrap().received();
    let value = icrc::expected(&parsed.cover.unwrap(), parsed.body).unwrap();
    *frame.last_chunk_mut().unwrap() = value.to_le_bytes();
    frame
}
