//! While packets flow, nothing is allocated: after a first round, tables and queues do with the
//! memory that they have.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use roxe_device::completion_queue::CompletionQueue;
use roxe_device::counters::{Counters, QpCounters};
use roxe_device::host_memory::VecMemory;
use roxe_device::memory::{Binding, MemoryTable, Registration, WindowType};
use roxe_device::protection_domain::Pd;
use roxe_device::queue_pair_numbers::QueuePairNumbers;
use roxe_device::receive_queue::ReceiveQueue;
use roxe_transport::adapter::{Access, Count, Place, SgeList, Span};
use roxe_transport::work::{
    AccessFlags, Completion, CompletionOpcode, CompletionStatus, Extra, ReceiveRequest, Sge,
};
use roxe_wire::{DropReason, Payload, Qpn, RKey};

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
        assert!(self.numbers.slot_of(self.number).is_some());

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
