//! While packets flow, nothing is allocated: after a first round, tables, queues and queue pairs do
//! with the memory that they have.

#[allow(dead_code, reason = "shared with other tests")]
mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pair::{End, pair, remote};
use roxe_device::Congestion;
use roxe_device::completion_queue::CompletionQueue;
use roxe_device::counters::{Counters, QpCounters};
use roxe_device::host_memory::VecMemory;
use roxe_device::memory::{MemoryTable, Registration, WindowType};
use roxe_device::protection_domain::Pd;
use roxe_device::queue_pair_numbers::QueuePairNumbers;
use roxe_device::receive_queue::ReceiveQueue;
use roxe_transport::Outlet;
use roxe_transport::adapter::{Access, Count, Place, SgeList};
use roxe_transport::congestion::{CongestionControl, Rate};
use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::{
    AccessFlags, Binding, Completion, CompletionOpcode, CompletionStatus, Data, DatagramTarget,
    Extra, PathId, ReceiveRequest, SendOperation, SendRequest, Sge, Span,
};
use roxe_wire::{
    Body, DropReason, FrameTemplate, ICRC_LEN, ImmDt, Instant, Mtu, Payload, QKey, Qpn, RKey,
    Received, Room, icrc,
};

/// The system's allocator, and how often this thread called it.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn called() {
    CALLS.set(CALLS.get() + 1);
}

// SAFETY: every call is passed on unchanged; counting neither allocates nor touches the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        called();
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        called();
        // SAFETY: as above; `pointer` came from the system, because all of them do.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        called();
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PD: Pd = Pd(0);
const QPN: Qpn = Qpn::new(100);
const VA: u64 = 0x1000;

/// Everything that a packet touches.
struct Tables {
    memory: MemoryTable,
    host: VecMemory,
    sge: Sge,
    window: RKey,
    receives: ReceiveQueue,
    completions: CompletionQueue,
    counters: Counters,
    qp_counters: QpCounters,
    numbers: QueuePairNumbers,
    number: Qpn,
}

impl Tables {
    fn new() -> Self {
        let (mut memory, mut host) = (MemoryTable::new(1, 8, 8), VecMemory::new());
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC
            | AccessFlags::MW_BIND;
        let region = Registration { pd: PD, host: host.add(vec![0; 64]), va: VA, len: 64, access };
        let l_key = memory.register(&region).unwrap();
        let window = memory.alloc_window(PD, WindowType::Type2).unwrap();
        let mut numbers = QueuePairNumbers::new(1, 8);
        let (number, _) = numbers.allocate().unwrap();
        Self {
            memory,
            host,
            sge: Sge { va: VA, len: 64, l_key },
            window,
            receives: ReceiveQueue::new(PD, 8, 2),
            completions: CompletionQueue::new(8),
            counters: Counters::new(),
            qp_counters: QpCounters::new(),
            numbers,
            number,
        }
    }

    /// A round of all that happens to packets and work requests.
    fn round(&mut self) {
        let Self { memory, host, .. } = self;
        let key = RKey(self.sge.l_key.0);
        assert!(self.numbers.index_of(self.number).is_some());

        let payload = Payload::bytes(&[7; 32]);
        memory.write_remote(PD, QPN, key, VA, payload, host).unwrap();
        memory.atomic_remote(PD, QPN, key, VA, &mut |n| Some(n + 1), host).unwrap();
        let mut room = [0; 32];
        let (first, second) = room.split_at_mut(20);
        memory.read_remote(PD, QPN, key, VA, Place::Bytes { first, second }, host).unwrap();
        let list = [self.sge, self.sge];
        let place = Place::Bytes { first: &mut room, second: &mut [] };
        memory.gather(PD, SgeList(&list[..1], &list[1..]), 50, place, host).unwrap();

        let (span, region) = (Span { va: VA, len: 8 }, self.sge.l_key);
        let access = AccessFlags::REMOTE_READ;
        let binding = Binding { window: self.window, new_key: self.window, region, span, access };
        memory.bind(PD, QPN, &binding).unwrap();
        memory.check_remote(PD, QPN, self.window, span, Access::Read).unwrap();
        memory.invalidate_remote(PD, QPN, self.window).unwrap();

        for wr_id in 0..8 {
            self.receives.post(&ReceiveRequest { wr_id, sges: &list }).unwrap();
        }
        while let Some((receive, _)) = self.receives.take() {
            let list = SgeList(self.receives.sges(receive.slot), &[]);
            memory.scatter(PD, list, 0, payload, host).unwrap();
            self.receives.give_back(receive.slot);
            self.completions.push(Completion {
                wr_id: receive.wr_id,
                status: CompletionStatus::Success,
                opcode: CompletionOpcode::Recv,
                byte_len: 32,
                extra: Extra::None,
                qpn: QPN,
                source_qp: QPN,
                grh: false,
                ipv6: false,
                solicited: false,
            });
        }
        assert_eq!(core::iter::from_fn(|| self.completions.pop()).count(), 8);

        self.counters.received(100);
        self.counters.drop(DropReason::WrongService);
        self.counters.transport(Count::AckSent);
        self.qp_counters.count(Count::AckSent);
    }
}

#[test]
fn rounds_after_the_first_do_not_allocate() {
    let mut tables = Tables::new();
    tables.round();
    let before = CALLS.get();
    assert!(before > 0, "the allocator counts");
    for _ in 0..100 {
        tables.round();
    }
    assert_eq!(CALLS.get() - before, 0);
}

/// Two devices with a reliable connection and a pair of datagram queue pairs between them.
struct Link {
    a: End,
    b: End,
    reliable: [Qpn; 2],
    datagram: [Qpn; 2],
    to_b: PathId,
    now: Instant,
    packet: [u8; 1200],
    /// Packets moved, lost ones too.
    moved: u32,
    room: [Completion; 16],
    /// Whether a datagram has a receive.
    listens: bool,
}

impl Link {
    fn new() -> Self {
        let (mut a, qa, mut b, qb) = pair(ServiceType::Rc, Mtu::B1024);
        let datagram = [&mut a, &mut b].map(|end| end.create(ServiceType::Ud, None));
        let (at_a, at_b) = (a.address, b.address);
        a.connect(datagram[0], datagram[1], at_b, Mtu::B1024);
        b.connect(datagram[1], datagram[0], at_a, Mtu::B1024);
        let to_b = a.device.create_address_handle(a.pd, &End::vector(at_b)).unwrap();
        let room = [Completion::BLANK; 16];
        let reliable = [qa, qb];
        let (now, moved, packet) = (Instant::ZERO, 0, [0; 1200]);
        Self { a, b, reliable, datagram, to_b, now, packet, moved, room, listens: false }
    }

    /// Every operation once, over a link that loses packets, until all are completed.
    fn round(&mut self) {
        let Self { a, b, reliable: [qa, qb], datagram: [da, db], .. } = self;
        let (at, counter) = (remote(40_000, b.key), remote(64, b.key));
        for wr_id in 0..4 {
            let sge = b.sge(1000, 8000);
            b.post_receive(*qb, wr_id, sge);
        }
        // The receive of a datagram that was lost is there still.
        if !std::mem::replace(&mut self.listens, true) {
            let sge = b.sge(20_000, 2000);
            b.post_receive(*db, 4, sge);
        }
        a.post(*qa, 0, SendOperation::Send, a.sge(0, 5000));
        a.post(*qa, 1, SendOperation::Write(at), a.sge(0, 7000));
        a.post(*qa, 2, SendOperation::WriteWithImm(at, ImmDt(1)), a.sge(0, 100));
        a.post(*qa, 3, SendOperation::Read(at), a.sge(50_000, 6000));
        a.post(*qa, 4, SendOperation::FetchAdd { remote: counter, add: 1 }, a.sge(8, 8));
        let swap = SendOperation::CompareSwap { remote: counter, compare: 1, swap: 0 };
        a.post(*qa, 5, swap, a.sge(16, 8));
        a.post(*qa, 6, SendOperation::AtomicWrite(counter), a.sge(24, 8));
        let list = [a.sge(0, 100), a.sge(300, 1500), a.sge(200, 7)];
        let target = Some(DatagramTarget { path: self.to_b, qpn: *db, q_key: QKey(0x1111_1111) });
        for (qpn, data, target) in [
            (*qa, Data::Regions(&list), None),
            (*qa, Data::Inline(&[7; 100]), None),
            (*da, Data::Inline(&[7; 100]), target),
        ] {
            let request = SendRequest {
                wr_id: 7,
                operation: SendOperation::Send,
                data,
                signaled: true,
                solicited: false,
                fence: false,
                target,
            };
            a.device.post_send(qpn, &request).unwrap();
        }
        let mut left = 10;
        while left > 0 {
            let moved = self.move_packets(true) | self.move_packets(false);
            left -= self.completions(true);
            self.completions(false);
            if !moved && left > 0 {
                let deadlines = [&self.a, &self.b].map(|end| end.device.poll_timeout());
                self.now = deadlines.into_iter().flatten().min().unwrap();
                self.a.device.handle_timeout(self.now);
                self.b.device.handle_timeout(self.now);
            }
        }
    }

    /// Moves what one end has to send to the other, framed as on a wire.
    fn move_packets(&mut self, from_a: bool) -> bool {
        let Self { a, b, .. } = self;
        let (from, to) = if from_a { (a, b) } else { (b, a) };
        let mut any = false;
        loop {
            let outlet = Outlet { room: Room::whole(&mut self.packet), elide: false };
            let Some(transmit) = from.device.poll_transmit(self.now, outlet) else { return any };
            any = true;
            self.moved += 1;
            if self.moved.wrapping_mul(0x9e37_79b1) >> 28 == 0 {
                continue; // One in 16 is lost, in no order.
            }
            let len = transmit.packet.len + ICRC_LEN;
            let addressing = from.device.paths().get(transmit.path).unwrap().addressing;
            let template = FrameTemplate::new(&addressing.path().unwrap());
            let cover = template.icrc_cover(u16::try_from(len).unwrap(), 0).unwrap();
            assert!(icrc::seal(&cover, Room::whole(&mut self.packet[..len])));
            let body = Body::whole(&self.packet[..len]);
            let cover = Some(cover);
            to.device
                .handle_packet(self.now, Received { addressing, ip_header: None, cover, body });
        }
    }

    /// Takes out the completions of one end; says how many.
    fn completions(&mut self, of_a: bool) -> usize {
        let end = if of_a { &mut self.a } else { &mut self.b };
        let some = end.device.poll_completions(end.cq, &mut self.room);
        let some = &self.room[..some];
        assert!(some.iter().all(|c| c.status == CompletionStatus::Success));
        self.listens &= of_a || some.iter().all(|c| c.qpn != self.datagram[1]);
        some.len()
    }
}

#[test]
fn packets_after_the_first_rounds_do_not_allocate() {
    for (name, control) in CongestionControl::NAMED {
        let mut link = Link::new();
        let line_rate = Rate::from_mbps(10_000);
        let congestion = Congestion { control: *control, line_rate, ..Congestion::default() };
        link.a.device.set_congestion(congestion);
        link.a.device.set_congestion_control(link.reliable[0], *control).unwrap();
        // Losses fall on other packets in each round; so many see all.
        (0..50).for_each(|_| link.round());
        let before = CALLS.get();
        (0..100).for_each(|_| link.round());
        assert_eq!(CALLS.get() - before, 0, "{name}");
        let again = link.a.device.counters().by_name("retrans_pkts");
        assert!(again.is_some_and(|packets| packets > 100), "{again:?} packets were sent again");
    }
}
