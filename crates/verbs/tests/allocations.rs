//! The data path allocates nothing: neither a message nor its packets, on either side.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use roxe_verbs::{Buffer, Connection, Context, Op, Wait, udp};

#[cfg(feature = "af_xdp")]
#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

/// The system's allocator, and how often it was asked.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: all is passed on.
#[allow(unsafe_code, reason = "an allocator is unsafe to implement")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WAIT: Wait = Wait(Duration::from_secs(10));
const LONG: u32 = 100_000;

/// SENDs, WRITEs and READs of one packet and of many, until queues have grown to what they need;
/// then the same without an allocation.
fn a_steady_state_allocates_nothing(
    [one, other]: [&Context; 2],
    [mut here, mut there]: [Connection; 2],
) {
    let source = one.register(&Buffer::new(LONG as usize)).unwrap();
    let target = other.register(&Buffer::new(LONG as usize)).unwrap();
    let (va, r_key) = (target.address(), target.r_key());
    let mut round = || {
        for len in [8, LONG] {
            there.post_receive(1, &target, 0, len).unwrap();
            for op in [Op::Send, Op::Write { va, r_key }, Op::Read { va, r_key }] {
                here.post(2, op, &source, 0, len).unwrap();
                here.wait(WAIT).unwrap();
            }
            there.wait(WAIT).unwrap();
        }
    };
    (0..200).for_each(|_| round());
    // An adapter that hears that its interface has changed asks the kernel for it, once; what
    // messages allocate they allocate every time.
    let mut counted = (0..10).map(|_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..100).for_each(|_| round());
        ALLOCATIONS.load(Ordering::Relaxed) - before
    });
    assert!(counted.any(|count| count == 0), "by {}", one.summary());
}

/// One test, so that no other allocates meanwhile.
#[test]
fn messages_allocate_nothing() {
    let open = |address: &str| {
        Context::open_udp(address.parse().unwrap(), udp::Settings::default()).unwrap()
    };
    let (one, other) = (open("127.91.0.1"), open("127.91.0.2"));
    let (mut here, mut there) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    here.connect(&there.endpoint().unwrap()).unwrap();
    there.connect(&here.endpoint().unwrap()).unwrap();
    a_steady_state_allocates_nothing([&one, &other], [here, there]);
    #[cfg(feature = "af_xdp")]
    if namespace::is_root() {
        let cable = namespace::Cable::new(1500);
        let open = |end: &namespace::Namespace, name| {
            end.run(|| Context::open_xdp(name, roxe_verbs::af_xdp::Settings::default()).unwrap())
        };
        let (one, other) = (open(&cable.a, "va"), open(&cable.b, "vb"));
        let (mut here, mut there) =
            (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
        cable.a.run(|| here.connect(&there.endpoint().unwrap())).unwrap();
        cable.b.run(|| there.connect(&here.endpoint().unwrap())).unwrap();
        a_steady_state_allocates_nothing([&one, &other], [here, there]);
    }
}
