//! What is promised at the limits: as many queue pairs, elements, READs and bytes as
//! `Limits::DEFAULT` says.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use pair::{End, attributes, pair, remote, settle};
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::{Changes, Registration};
use roxe_device::{
    Device, HostMemory, HostRegion, Limits, MemoryGone, QueuePairInit, ReceiveCapacity, VecMemory,
    VerbError,
};
use roxe_transport::qp_state::{Attribute, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, CompletionStatus, Data, ReceiveRequest, SendOperation, SendRequest,
    Sge,
};
use roxe_transport::{Outlet, SendCapacity};
use roxe_wire::{
    Body, Gid, GidType, ICRC_LEN, Instant, MAX_MESSAGE_LEN, Mtu, Psn, Qpn, Received, Room,
};

const NOW: Instant = Instant::ZERO;

/// A queue pair as large as one may be.
fn large<H>(end: &End<H>) -> QueuePairInit {
    let limits = Limits::DEFAULT;
    QueuePairInit {
        service: ServiceType::Rc,
        pd: end.pd,
        send_cq: end.cq,
        receive_cq: end.cq,
        srq: None,
        send: SendCapacity {
            depth: limits.max_qp_wr,
            max_sge: limits.max_sge,
            max_inline: limits.max_inline_data,
        },
        receive: ReceiveCapacity { depth: limits.max_qp_wr, max_sge: limits.max_sge },
        signal_all: true,
    }
}

/// Two large queue pairs, connected.
fn large_pair<H: HostMemory>(
    (mut a, mut b): (End<H>, End<H>),
    mtu: Mtu,
    change: impl Fn(&mut Attributes),
) -> (End<H>, Qpn, End<H>, Qpn) {
    let (qa, qb) = (large(&a), large(&b));
    let qa = a.device.create_queue_pair(&qa).unwrap();
    let qb = b.device.create_queue_pair(&qb).unwrap();
    let (to_a, to_b) = (a.address, b.address);
    for (end, own, peer, to) in [(&mut a, qa, qb, to_b), (&mut b, qb, qa, to_a)] {
        let mut values = attributes(own, peer, mtu);
        change(&mut values);
        end.connect_with(to, &values);
    }
    (a, qa, b, qb)
}

fn send<H: HostMemory>(end: &mut End<H>, qpn: Qpn, operation: SendOperation, data: Data<'_>) {
    let request = SendRequest {
        wr_id: 1,
        operation,
        data,
        signaled: true,
        solicited: false,
        fence: false,
        target: None,
    };
    end.device.post_send(qpn, &request).unwrap();
}

#[test]
fn a_device_has_65536_queue_pairs_and_has_them_again() {
    let (mut a, _, _, _) = pair(ServiceType::Rc, Mtu::B1024);
    for _ in 0..2 {
        let mut all: Vec<Qpn> = (0..1 << 16).map(|_| a.create(ServiceType::Rc, None)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 1 << 16, "each its own number");
        for qpn in all {
            a.device.destroy_queue_pair(qpn).unwrap();
        }
    }
}

#[test]
fn a_request_has_32_elements_at_either_end() {
    let (mut a, qa, mut b, qb) = large_pair((End::new(1), End::new(2)), Mtu::B256, |_| {});
    // Elements of 0, 37, 74 … bytes, each in a place of its own.
    let lists = [&a, &b].map(|end| {
        let elements = (0..32u32).map(|n| end.sge(u64::from(n) * 2048, 37 * n));
        elements.collect::<Vec<Sge>>()
    });
    let bytes: Vec<u8> = (0..1 << 16).map(|at: u32| (at % 251) as u8).collect();
    a.fill(0, &bytes);
    let reversed: Vec<Sge> = lists[1].iter().rev().copied().collect();
    b.device.post_receive(qb, &ReceiveRequest { wr_id: 2, sges: &reversed }).unwrap();
    send(&mut a, qa, SendOperation::Send, Data::Regions(&lists[0]));
    settle(&mut a, &mut b, NOW);
    let message = |end: &End, list: &[Sge]| {
        list.iter().flat_map(|sge| end.bytes(sge.va as usize, sge.len as usize)).copied().collect()
    };
    let sent: Vec<u8> = message(&a, &lists[0]);
    assert_eq!(sent.len(), 37 * 31 * 16);
    let received: Vec<u8> = message(&b, &reversed);
    assert_eq!(received, sent);

    let from = remote(100_000, b.key);
    b.fill(100_000, &bytes[7..7 + sent.len()]);
    send(&mut a, qa, SendOperation::Read(from), Data::Regions(&lists[0]));
    settle(&mut a, &mut b, NOW);
    let read: Vec<u8> = message(&a, &lists[0]);
    assert_eq!(read, &bytes[7..7 + sent.len()]);
    assert!(a.completions().iter().all(|c| c.status == CompletionStatus::Success));
}

#[test]
fn there_are_128_reads_and_atomics_outstanding() {
    let (mut a, qa, mut b, _) = large_pair((End::new(1), End::new(2)), Mtu::B256, |values| {
        (values.max_rd_atomic, values.max_dest_rd_atomic) = (128, 128);
    });
    for n in 0..300u64 {
        let sges = [a.sge(8 * n, 8)];
        let counter = remote(0, b.key);
        let operation = if n % 2 == 0 {
            SendOperation::FetchAdd { remote: counter, add: 1 }
        } else {
            SendOperation::Read(counter)
        };
        send(&mut a, qa, operation, Data::Regions(&sges));
    }
    let mut requests = Vec::new();
    while let Some(frame) = a.frame(NOW) {
        requests.push(frame);
    }
    assert_eq!(requests.len(), 128, "the others wait");
    requests.iter().for_each(|frame| b.receive(NOW, frame));
    settle(&mut a, &mut b, NOW);
    let done = a.completions();
    assert_eq!(done.len(), 300);
    assert!(done.iter().all(|c| c.status == CompletionStatus::Success));
    // A READ may see what atomics behind it have done already.
    for n in 0..150 {
        let found = u64::from_ne_bytes(a.bytes(16 * n, 8).try_into().unwrap());
        assert_eq!(found, n as u64, "what each atomic found");
    }
}

/// Memory of which nobody wants to see the bytes: it only remembers up to where it was written.
#[derive(Default)]
struct Vast {
    written_to: u64,
}

impl HostMemory for Vast {
    fn read(&self, _: HostRegion, _: u64, into: &mut [u8]) -> Result<(), MemoryGone> {
        into.fill(0);
        Ok(())
    }

    fn write(&mut self, _: HostRegion, _: u64, _: &[u8]) -> Result<(), MemoryGone> {
        Err(MemoryGone)
    }

    fn fetch_modify(
        &mut self,
        _: HostRegion,
        _: u64,
        _: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryGone> {
        Err(MemoryGone)
    }

    fn digest(&self, _: HostRegion, _: u64, _: u64) -> Result<u32, MemoryGone> {
        Ok(0)
    }

    fn write_digest(
        &mut self,
        _: HostRegion,
        offset: u64,
        len: u64,
        _: u32,
    ) -> Result<(), MemoryGone> {
        assert_eq!(offset, self.written_to, "in order, nothing twice");
        self.written_to += len;
        Ok(())
    }

    fn release(&mut self, _: HostRegion) {}
}

/// Moves one packet, of which only the headers are written. Says whether there was one.
fn move_headers(from: &mut End<Vast>, to: &mut End<Vast>) -> bool {
    let mut headers = [0; 64];
    let outlet = Outlet { room: Room::whole(&mut headers), elide: true };
    let Some(transmit) = from.device.poll_transmit(NOW, outlet) else { return false };
    let (len, digest) = (transmit.packet.len + ICRC_LEN, transmit.packet.digest);
    let start = &headers[..];
    let addressing = from.device.paths().get(transmit.path).unwrap().addressing;
    let body = Body::Elided { start, len, digest };
    to.device.handle_packet(NOW, Received { addressing, ip_header: None, cover: None, body });
    true
}

/// Sends a message of so many bytes; how it ended, and how many bytes arrived.
fn vast_transfer(mtu: Mtu, len: u32, read: bool) -> (CompletionStatus, u64) {
    let vast = |number| {
        End::with_memory(number, Vast::default(), HostRegion(0), u64::from(MAX_MESSAGE_LEN))
    };
    let first = Psn::new(Psn::MODULUS - 1000);
    let (mut a, qa, mut b, _) = large_pair((vast(1), vast(2)), mtu, |values| {
        (values.sq_psn, values.rq_psn) = (first, first);
    });
    let (to, sges) = (remote(0, b.key), [a.sge(0, len)]);
    let operation = if read { SendOperation::Read(to) } else { SendOperation::Write(to) };
    send(&mut a, qa, operation, Data::Regions(&sges));
    while move_headers(&mut a, &mut b) || move_headers(&mut b, &mut a) {}
    let status = a.completions()[0].status;
    let written = if read { a.device.host() } else { b.device.host() }.written_to;
    (status, written)
}

//= BC-077, 04-4.14 test
#[test]
fn the_longest_message_arrives_whole_beyond_the_wrap_of_psns() {
    let longest = (CompletionStatus::Success, u64::from(MAX_MESSAGE_LEN));
    for read in [false, true] {
        assert_eq!(vast_transfer(Mtu::B4096, MAX_MESSAGE_LEN, read), longest);
    }
}

/// 2³¹ bytes in packets of 256 are half of all PSNs: more than can be told apart.
#[test]
fn a_message_of_too_many_packets_ends_with_an_error() {
    for read in [false, true] {
        let refused = (CompletionStatus::LocalLengthError, 0);
        assert_eq!(vast_transfer(Mtu::B256, MAX_MESSAGE_LEN, read), refused);
    }
}

/// A device with limits of its own, and what a queue pair needs.
fn limited(limits: Limits) -> End {
    let mut end = End { device: Device::new(limits, 1, VecMemory::default()), ..End::new(1) };
    let gid = Gid::from_ip(end.address);
    end.device.add_gid(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None }).unwrap();
    end.pd = end.device.alloc_pd().unwrap();
    end.cq = end.device.create_completion_queue(64).unwrap();
    end
}

//= V02, 05-5.1 test
#[test]
fn no_more_reads_and_atomics_are_outstanding_than_the_limits_say() {
    let mut limits = Limits::DEFAULT;
    (limits.max_qp_init_rd_atom, limits.max_qp_rd_atom) = (3, 5);
    let mut a = limited(limits);
    let qpn = a.create(ServiceType::Rc, None);
    let values = |ours, theirs| {
        let usual = attributes(qpn, qpn, Mtu::B1024);
        Attributes { max_rd_atomic: ours, max_dest_rd_atomic: theirs, ..usual }
    };
    a.connect_with(a.address, &values(3, 5));
    a.device
        .modify_queue_pair(qpn, QpState::SqDrain, AttributeMask::NONE, &values(0, 0), None)
        .unwrap();
    for (attribute, values, what) in [
        (Attribute::MaxQpRdAtomic, values(4, 0), "max_rd_atomic"),
        (Attribute::MaxDestRdAtomic, values(0, 6), "max_dest_rd_atomic"),
    ] {
        let given = AttributeMask::of(&[attribute]);
        let done = a.device.modify_queue_pair(qpn, QpState::SqDrain, given, &values, None);
        assert_eq!(done, Err(VerbError::Invalid(what)));
    }
    let kept = a.device.query_queue_pair(qpn).unwrap().attributes;
    assert_eq!((kept.max_rd_atomic, kept.max_dest_rd_atomic), (3, 5));
}

#[test]
fn a_path_mtu_beyond_the_ports_is_refused_with_both() {
    let mut limits = Limits::DEFAULT;
    limits.port_mtu = Mtu::B1024;
    let mut a = limited(limits);
    let qpn = a.create(ServiceType::Rc, None);
    let values = attributes(qpn, qpn, Mtu::B4096);
    let given = AttributeMask::of(&[Attribute::PathMtu]);
    let refused = a.device.modify_queue_pair(qpn, QpState::Rtr, given, &values, None).unwrap_err();
    assert_eq!(refused, VerbError::PathMtu { path: Mtu::B4096, port: Mtu::B1024 });
    assert!(refused.to_string().starts_with("path MTU 4096 is more than 1024, the port's"));
}

#[test]
fn shared_receive_queues_take_no_place_of_queue_pairs() {
    let mut limits = Limits::DEFAULT;
    (limits.max_srq, limits.max_qp) = (2, 2);
    let mut a = limited(limits);
    let full = Err(VerbError::Limit("shared receive queues"));
    let shared = [(); 2].map(|()| a.device.create_shared_receive_queue(a.pd, 1, 1, 0).unwrap());
    assert_eq!(a.device.create_shared_receive_queue(a.pd, 1, 1, 0), full);
    let own = [(); 2].map(|()| a.create(ServiceType::Rc, None));
    a.device.destroy_queue_pair(own[0]).unwrap();
    assert_eq!(a.device.create_shared_receive_queue(a.pd, 1, 1, 0), full);
    a.device.destroy_shared_receive_queue(shared[0]).unwrap();
    assert!(a.device.create_shared_receive_queue(a.pd, 1, 1, 0).is_ok());
    a.create(ServiceType::Rc, None);
}

#[test]
fn a_region_is_no_longer_than_the_limit() {
    let mut limits = Limits::DEFAULT;
    limits.max_mr_size = 100;
    let mut a = limited(limits);
    let too_long = VerbError::Invalid("length");
    let what =
        |len| Registration { pd: a.pd, host: a.region, va: 0, len, access: AccessFlags::NONE };
    assert_eq!(a.device.register_memory(&what(101)), Err(too_long));
    let key = a.device.register_memory(&what(100)).unwrap();
    let range = |len| Changes { range: Some((a.region, 0, len)), ..Changes::default() };
    assert_eq!(a.device.reregister_memory(key, &range(101)), Err(too_long));
    a.device.reregister_memory(key, &range(100)).unwrap();
}

#[test]
fn a_region_for_work_requests_is_no_longer_than_the_limit() {
    let mut a = End::new(1);
    let most = Limits::DEFAULT.max_fast_register_len;
    let refused = a.device.alloc_fast_memory(a.pd, a.region, most + 1);
    assert_eq!(refused, Err(VerbError::Invalid("max_len")));
    assert!(a.device.alloc_fast_memory(a.pd, a.region, most).is_ok());
}
