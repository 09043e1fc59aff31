mod model;

use roxe_transport::adapter::{Place, SgeList};
use roxe_transport::work::{Binding, FastRegistration, Sge};
use roxe_wire::{Payload, digest};

use super::*;
use crate::host_memory::{HostMemory, HostRegion, MemoryGone, VecMemory};

const PD: Pd = Pd(1);
const OTHER_PD: Pd = Pd(2);
const QPN: Qpn = Qpn::new(0x11);
const OTHER_QPN: Qpn = Qpn::new(0x22);
const HOST: HostRegion = HostRegion(0);
const ALL: AccessFlags =
    AccessFlags::REMOTE.with(AccessFlags::LOCAL_WRITE).with(AccessFlags::MW_BIND);
const VA: u64 = 0x7000_0000_1000;

fn table() -> MemoryTable {
    MemoryTable::new(42, 16, 16)
}

fn what(len: u64, access: AccessFlags) -> Registration {
    Registration { pd: PD, host: HOST, va: VA, len, access }
}

fn remote(key: LKey) -> RKey {
    RKey(key.0)
}

fn span(va: u64, len: u64) -> Span {
    Span { va, len }
}

fn place(offset: u64) -> HostPlace {
    HostPlace { region: HOST, offset }
}

/// A WRITE from the queue pair that everything belongs to.
fn write(table: &MemoryTable, key: RKey, va: u64, len: u64) -> Result<HostPlace, KeyViolation> {
    table.check_remote(PD, QPN, key, span(va, len), Access::Write).map(Option::unwrap)
}

/// A region with all rights, and a free window.
fn region_and_window(kind: WindowType) -> (MemoryTable, LKey, RKey) {
    let mut table = table();
    let region = table.register(&what(4096, ALL)).unwrap();
    let window = table.alloc_window(PD, kind).unwrap();
    (table, region, window)
}

fn registration(region: RKey, new_key: RKey, span: Span, access: AccessFlags) -> FastRegistration {
    FastRegistration { region, new_key, span, access }
}

fn binding(window: RKey, region: LKey) -> Binding {
    let access = AccessFlags::REMOTE_WRITE;
    Binding { window, new_key: RKey(window.0 ^ 1), region, span: span(VA + 8, 16), access }
}

const BOTH: [WindowType; 2] = [WindowType::Type1, WindowType::Type2];

//= IBA C9-88 test
#[test]
fn a_request_for_no_bytes_needs_no_key() {
    let table = table();
    for access in [Access::Read, Access::Write] {
        let check = |len| table.check_remote(PD, QPN, RKey(0xbad), span(0xdead_0000, len), access);
        assert_eq!(check(0), Ok(None));
        assert_eq!(check(1), Err(KeyViolation::NoSuchKey));
    }
    let flush = table.check_remote(PD, QPN, RKey(0xbad), span(0, 0), Access::FlushGlobal);
    assert_eq!(flush, Err(KeyViolation::NoSuchKey));
    assert_eq!(table.check_local(PD, LKey(0xbad), span(0, 0), true), Ok(None));
    let one = table.check_local(PD, LKey(0xbad), span(0, 1), true);
    assert_eq!(one, Err(KeyViolation::NoSuchKey));
}

//= 05-5.6 test
#[test]
fn the_first_rule_that_is_broken_is_told() {
    let mut table = table();
    let key = remote(table.register(&what(16, AccessFlags::REMOTE_READ)).unwrap());
    let check = |pd, key, va, access| table.check_remote(pd, QPN, key, span(va, 8), access);
    let wrong_key = RKey(key.0 ^ 1);
    assert_eq!(check(OTHER_PD, wrong_key, 0, Access::Write), Err(KeyViolation::NoSuchKey));
    assert_eq!(check(OTHER_PD, key, 0, Access::Write), Err(KeyViolation::WrongDomain));
    assert_eq!(check(PD, key, 0, Access::Write), Err(KeyViolation::AccessDenied));
    assert_eq!(check(PD, key, 0, Access::Read), Err(KeyViolation::OutsideRegion));
    assert_eq!(check(PD, key, VA + 8, Access::Read), Ok(Some(place(8))));
}

//= 05-5.6, R19 test
#[test]
fn each_request_needs_its_own_right() {
    use AccessFlags as Flags;
    let needs = [
        (Access::Write, Flags::REMOTE_WRITE),
        (Access::Read, Flags::REMOTE_READ),
        (Access::Atomic, Flags::REMOTE_ATOMIC),
        (Access::FlushGlobal, Flags::FLUSH_GLOBAL),
        (Access::FlushPersistent, Flags::FLUSH_PERSISTENT),
    ];
    for (_, granted) in needs {
        let mut table = table();
        let key = table.register(&what(8, granted | Flags::LOCAL_WRITE)).unwrap();
        for (access, needed) in needs {
            let result = table.check_remote(PD, QPN, remote(key), span(VA, 8), access);
            assert_eq!(result.is_ok(), granted == needed, "{access:?} with {granted:?}");
        }
    }
}

//= 05-5.6, R18 test
#[test]
fn a_range_ends_where_its_region_does() {
    for (va, len) in [(VA, 4096), (0, 4096), (u64::MAX - 4095, 4096), (0, u64::MAX), (9, 0)] {
        let mut table = table();
        let what = Registration { va, ..what(len, ALL) };
        let key = remote(table.register(&what).unwrap());
        let end = va.wrapping_add(len);
        let inside = |va, len| write(&table, key, va, len).is_ok();
        let (more, most) = (len.saturating_add(1), u64::MAX);
        assert!(!inside(end, 1) && !inside(va.wrapping_sub(1), 1));
        assert_eq!((inside(va, len.max(1)), inside(va, more)), (len > 0, more == len));
        assert_eq!((inside(va, most), inside(va + 1, most)), (len == most, false));
        if len > 1 {
            assert!(inside(end.wrapping_sub(1), 1) && !inside(end.wrapping_sub(1), 2));
            assert!(!inside(va + 1, len));
            assert_eq!(write(&table, key, va + 1, 1), Ok(place(1)));
        }
    }
}

//= R18 test
#[test]
fn a_range_may_touch_the_end_of_all_addresses_but_not_cross_it() {
    let mut table = table();
    let register = |table: &mut MemoryTable, va, len| {
        table.register(&Registration { va, ..what(len, ALL) }).map(|_| ())
    };
    assert_eq!(register(&mut table, u64::MAX - 7, 8), Ok(()));
    assert_eq!(register(&mut table, u64::MAX - 7, 9), Err(MemoryError::RangeWraps));
    assert_eq!(register(&mut table, u64::MAX, 1), Ok(()));
    assert_eq!(register(&mut table, u64::MAX, 0), Ok(()));
    assert_eq!(register(&mut table, 1, u64::MAX), Ok(()));
    assert_eq!(register(&mut table, 2, u64::MAX), Err(MemoryError::RangeWraps));
}

//= 05-5.6, V03 test
#[test]
fn who_lets_peers_write_must_be_able_to_write() {
    let mut table = table();
    for right in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        let refused = table.register(&what(8, right));
        assert_eq!(refused, Err(MemoryError::NeedsLocalWrite));
        assert!(table.register(&what(8, right | AccessFlags::LOCAL_WRITE)).is_ok());
    }
    assert!(table.register(&what(8, AccessFlags::REMOTE_READ)).is_ok());
}

//= 05-5.6 test
#[test]
fn local_reading_is_always_allowed_and_writing_is_a_right() {
    let mut table = table();
    let read_only = table.register(&what(8, AccessFlags::NONE)).unwrap();
    let writable = table.register(&what(8, AccessFlags::LOCAL_WRITE)).unwrap();
    let check = |pd, key, write| table.check_local(pd, key, span(VA, 8), write);
    assert_eq!(check(PD, read_only, false), Ok(Some(place(0))));
    assert_eq!(check(PD, read_only, true), Err(KeyViolation::AccessDenied));
    assert_eq!(check(PD, writable, true), Ok(Some(place(0))));
    assert_eq!(check(OTHER_PD, writable, true), Err(KeyViolation::WrongDomain));
    let beyond = table.check_local(PD, writable, span(VA, 9), true);
    assert_eq!(beyond, Err(KeyViolation::OutsideRegion));
}

#[test]
fn zero_based_addresses_count_from_0() {
    let mut table = table();
    let key = remote(table.register(&what(8, ALL | AccessFlags::ZERO_BASED)).unwrap());
    assert_eq!(write(&table, key, 0, 8), Ok(place(0)));
    assert_eq!(write(&table, key, 0, 9), Err(KeyViolation::OutsideRegion));
    assert_eq!(write(&table, key, VA, 8), Err(KeyViolation::OutsideRegion));

    let changes = Changes { access: Some(ALL), ..Changes::default() };
    assert_eq!(table.reregister(LKey(key.0), &changes), Ok(None));
    assert_eq!(write(&table, key, VA, 8), Ok(place(0)));
}

#[test]
fn a_key_dies_with_its_region() {
    let mut table = table();
    let mut keys = vec![table.register(&what(8, ALL)).unwrap()];
    for _ in 0..500 {
        let old = *keys.last().unwrap();
        assert_eq!(table.deregister(old), Ok(Deregistered { pd: PD, host: HOST }));
        assert_eq!(table.deregister(old), Err(MemoryError::NoSuchKey));
        assert_eq!(write(&table, remote(old), VA, 8), Err(KeyViolation::NoSuchKey));
        let new = table.register(&what(8, ALL)).unwrap();
        assert!(!keys.contains(&new), "reused too early");
        keys.push(new);
    }
    assert_eq!(table.regions(), 1);
}

#[test]
fn there_are_no_more_than_the_limits() {
    let mut table = MemoryTable::new(0, 2, 1);
    let first = table.register(&what(8, ALL)).unwrap();
    table.alloc_fast(PD, HOST, 8).unwrap();
    assert_eq!(table.register(&what(8, ALL)), Err(MemoryError::TableFull { most: 2 }));
    assert_eq!(table.alloc_fast(PD, HOST, 8), Err(MemoryError::TableFull { most: 2 }));
    table.alloc_window(PD, WindowType::Type1).unwrap();
    let full = table.alloc_window(PD, WindowType::Type2);
    assert_eq!(full, Err(MemoryError::TableFull { most: 1 }));
    table.deregister(first).unwrap();
    assert!(table.register(&what(8, ALL)).is_ok());
    assert_eq!((table.regions(), table.windows()), (2, 1));
}

#[test]
fn no_key_has_index_0() {
    for seed in 0..50 {
        let keys = Keys::new(seed);
        // With so many slots some table has the one whose index is 0 among its first.
        let slots = keys.slot(0).min(3000) + 2;
        let mut table = MemoryTable::new(seed, slots, 0);
        for _ in 0..slots {
            let key = table.register(&what(8, ALL)).unwrap();
            assert_ne!(key.0 >> 8, 0);
            assert!(write(&table, remote(key), VA, 8).is_ok());
        }
    }
}

#[test]
fn re_registration_changes_what_it_says_and_nothing_else() {
    let mut table = table();
    let key = table.register(&what(8, ALL)).unwrap();
    let mut change = |changes| table.reregister(key, &changes);
    let nothing = Changes::default();
    assert_eq!(change(nothing), Ok(None));
    let other = HostRegion(7);
    assert_eq!(change(Changes { range: Some((other, 64, 32)), ..nothing }), Ok(Some(HOST)));
    assert_eq!(change(Changes { pd: Some(OTHER_PD), ..nothing }), Ok(None));
    let refused = Changes { access: Some(AccessFlags::REMOTE_WRITE), ..nothing };
    assert_eq!(change(refused), Err(MemoryError::NeedsLocalWrite));
    let wraps = Changes { range: Some((HOST, u64::MAX, 2)), pd: Some(PD), ..nothing };
    assert_eq!(change(wraps), Err(MemoryError::RangeWraps));

    let check = |pd| table.check_remote(pd, QPN, remote(key), span(64, 32), Access::Write);
    assert_eq!(check(PD), Err(KeyViolation::WrongDomain));
    assert_eq!(check(OTHER_PD), Ok(Some(HostPlace { region: other, offset: 0 })));
    let left = table.deregister(key);
    assert_eq!(left, Ok(Deregistered { pd: OTHER_PD, host: other }));
    assert_eq!(table.reregister(key, &nothing), Err(MemoryError::NoSuchKey));
    let fast = table.alloc_fast(PD, HOST, 8).unwrap();
    assert_eq!(table.reregister(fast, &nothing), Err(MemoryError::NoSuchKey));
}

//= 05-5.6 test
#[test]
fn a_work_request_registers_what_was_allocated_for_it() {
    let mut table = table();
    let key = remote(table.alloc_fast(PD, HOST, 64).unwrap());
    let new = RKey(key.0 ^ 0x5a);
    assert_eq!(write(&table, key, VA, 8), Err(KeyViolation::NoSuchKey));
    let register = |table: &mut MemoryTable, pd, from, to, len| {
        table.register_by_work_request(pd, &registration(from, to, span(VA, len), ALL))
    };
    let other_index = RKey(key.0 ^ 0x100);
    assert_eq!(register(&mut table, OTHER_PD, key, new, 64), Err(MemoryError::WrongDomain));
    assert_eq!(register(&mut table, PD, new, new, 64), Err(MemoryError::NoSuchKey));
    assert_eq!(register(&mut table, PD, key, other_index, 64), Err(MemoryError::OtherIndex));
    assert_eq!(register(&mut table, PD, key, new, 65), Err(MemoryError::TooLong { max: 64 }));
    assert_eq!(register(&mut table, PD, key, new, 64), Ok(()));
    assert_eq!(write(&table, key, VA, 64), Err(KeyViolation::NoSuchKey), "the old key");
    assert_eq!(write(&table, new, VA, 64), Ok(place(0)));
    assert_eq!(register(&mut table, PD, new, new, 64), Err(MemoryError::StillValid));

    assert_eq!(table.invalidate(OTHER_PD, new), Err(MemoryError::WrongDomain));
    assert_eq!(table.invalidate(PD, new), Ok(()));
    assert_eq!(write(&table, new, VA, 64), Err(KeyViolation::NoSuchKey));
    assert_eq!(table.invalidate(PD, new), Err(MemoryError::NoSuchKey));
    let access = AccessFlags::REMOTE_WRITE;
    let refused = table.register_by_work_request(PD, &registration(new, new, span(VA, 8), access));
    assert_eq!(refused, Err(MemoryError::NeedsLocalWrite));
    let refused =
        table.register_by_work_request(PD, &registration(new, new, span(u64::MAX, 8), ALL));
    assert_eq!(refused, Err(MemoryError::RangeWraps));
    assert_eq!(register(&mut table, PD, new, new, 8), Ok(()), "the same key will do");
    let ordinary = remote(table.register(&what(8, ALL)).unwrap());
    assert_eq!(register(&mut table, PD, ordinary, ordinary, 8), Err(MemoryError::NotFast));
    assert!(table.deregister(LKey(new.0)).is_ok());
}

//= 05-5.6, R31, R32, BC-080 test
#[test]
fn a_peer_invalidates_only_what_work_requests_make_valid() {
    let mut table = table();
    let ordinary = remote(table.register(&what(8, ALL)).unwrap());
    let denied = Err(KeyViolation::AccessDenied);
    assert_eq!(table.invalidate_remote(PD, QPN, ordinary), denied);
    assert_eq!(table.invalidate(PD, ordinary), Err(MemoryError::NotFast));
    assert!(write(&table, ordinary, VA, 8).is_ok());

    let fast = remote(table.alloc_fast(PD, HOST, 64).unwrap());
    let register = |table: &mut MemoryTable, access| {
        table.register_by_work_request(PD, &registration(fast, fast, span(VA, 8), access)).unwrap();
    };
    let gone = Err(KeyViolation::NoSuchKey);
    assert_eq!(table.invalidate_remote(PD, QPN, fast), gone);
    register(&mut table, AccessFlags::LOCAL_WRITE);
    assert_eq!(table.invalidate_remote(PD, QPN, fast), gone, "no peer may use it");
    assert_eq!(table.invalidate(PD, fast), Ok(()));
    register(&mut table, ALL);
    assert_eq!(table.invalidate_remote(PD, QPN, RKey(fast.0 ^ 1)), gone);
    let foreign = table.invalidate_remote(OTHER_PD, QPN, fast);
    assert_eq!(foreign, Err(KeyViolation::WrongDomain));
    assert!(write(&table, fast, VA, 8).is_ok());
    assert_eq!(table.invalidate_remote(PD, QPN, fast), Ok(()));
    assert_eq!(write(&table, fast, VA, 8), Err(KeyViolation::NoSuchKey));
}

#[test]
fn a_window_opens_part_of_its_region() {
    for kind in BOTH {
        let (mut table, region, window) = region_and_window(kind);
        assert_eq!(write(&table, window, VA + 8, 1), Err(KeyViolation::NoSuchKey));
        let what = binding(window, region);
        assert_eq!(table.bind(PD, QPN, &what), Ok(()));
        let key = what.new_key;
        assert_eq!(write(&table, window, VA + 8, 1), Err(KeyViolation::NoSuchKey), "the old key");
        assert_eq!(write(&table, key, VA + 8, 16), Ok(place(8)));
        assert_eq!(write(&table, key, VA + 23, 1), Ok(place(23)));
        let outside = Err(KeyViolation::OutsideRegion);
        assert_eq!(write(&table, key, VA + 7, 1), outside);
        assert_eq!(write(&table, key, VA + 8, 17), outside);
        assert_eq!(write(&table, key, VA + 24, 1), outside);
        let read = table.check_remote(PD, QPN, key, span(VA + 8, 1), Access::Read);
        assert_eq!(read, Err(KeyViolation::AccessDenied));
        let local = table.check_local(PD, LKey(key.0), span(VA + 8, 1), false);
        assert_eq!(local, Err(KeyViolation::NoSuchKey), "a window has no L_Key");
        assert_eq!(table.deregister(LKey(key.0)), Err(MemoryError::NoSuchKey));
        assert_eq!(table.dealloc_window(remote(region)), Err(MemoryError::NoSuchKey));
    }
}

//= 05-5.6, R37 test
#[test]
fn a_type_2_window_is_for_one_queue_pair() {
    for kind in BOTH {
        let (mut table, region, window) = region_and_window(kind);
        let what = binding(window, region);
        table.bind(PD, QPN, &what).unwrap();
        let check = |pd, qpn| {
            table.check_remote(pd, qpn, what.new_key, what.span, Access::Write).map(|_| ())
        };
        let wrong = Err(KeyViolation::WrongDomain);
        assert_eq!(check(PD, QPN), Ok(()));
        assert_eq!(check(PD, OTHER_QPN), if kind == WindowType::Type1 { Ok(()) } else { wrong });
        assert_eq!(check(OTHER_PD, QPN), wrong);
        if kind == WindowType::Type2 {
            assert_eq!(table.invalidate_remote(PD, OTHER_QPN, what.new_key), wrong);
            assert_eq!(table.invalidate_remote(PD, QPN, what.new_key), Ok(()));
        }
    }
}

//= IBA C10-72, BC-081 test
#[test]
fn queue_pair_window_and_region_share_a_domain() {
    for kind in BOTH {
        let mut table = table();
        let ours = table.register(&what(4096, ALL)).unwrap();
        let foreign = table.register(&Registration { pd: OTHER_PD, ..what(4096, ALL) }).unwrap();
        let window = table.alloc_window(PD, kind).unwrap();
        let wrong = Err(MemoryError::WrongDomain);
        assert_eq!(table.bind(OTHER_PD, QPN, &binding(window, ours)), wrong);
        assert_eq!(table.bind(OTHER_PD, QPN, &binding(window, foreign)), wrong);
        assert_eq!(table.bind(PD, QPN, &binding(window, foreign)), wrong);
        assert_eq!(table.bind(PD, QPN, &binding(window, ours)), Ok(()));
    }
}

//= IBA C10-73 test
#[test]
fn a_region_must_allow_windows() {
    for kind in BOTH {
        let mut table = table();
        let without = AccessFlags::LOCAL_WRITE;
        let refuses = table.register(&what(4096, without)).unwrap();
        let allows = table.register(&what(4096, without | AccessFlags::MW_BIND)).unwrap();
        let window = table.alloc_window(PD, kind).unwrap();
        let refused = table.bind(PD, QPN, &binding(window, refuses));
        assert_eq!(refused, Err(MemoryError::NoBindRight));
        assert_eq!(table.bind(PD, QPN, &binding(window, allows)), Ok(()));
    }
}

//= IBA C10-74, BC-081 test
#[test]
fn a_window_for_writing_needs_a_region_that_can_be_written() {
    let mut table = table();
    let read_only = table.register(&what(4096, AccessFlags::MW_BIND)).unwrap();
    let window = table.alloc_window(PD, WindowType::Type1).unwrap();
    let with = |access| Binding { access, new_key: window, ..binding(window, read_only) };
    for right in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        let refused = table.bind(PD, QPN, &with(right));
        assert_eq!(refused, Err(MemoryError::NeedsLocalWrite));
    }
    // The region itself is closed to peers; that is no obstacle.
    assert_eq!(table.bind(PD, QPN, &with(AccessFlags::REMOTE_READ)), Ok(()));
    for right in [AccessFlags::FLUSH_GLOBAL, AccessFlags::LOCAL_WRITE, AccessFlags::MW_BIND] {
        assert_eq!(table.bind(PD, QPN, &with(right)), Err(MemoryError::WindowRights));
    }
    let open = table.register(&what(4096, ALL)).unwrap();
    let flush = Binding { region: open, ..with(AccessFlags::FLUSH_GLOBAL) };
    assert_eq!(table.bind(PD, QPN, &flush), Ok(()));
}

//= IBA C10-75 test
#[test]
fn a_window_lies_inside_its_region() {
    for kind in BOTH {
        let (mut table, region, window) = region_and_window(kind);
        let mut bind = |va, len| {
            table.bind(PD, QPN, &Binding { span: span(va, len), ..binding(window, region) })
        };
        let outside = Err(MemoryError::OutsideRegion);
        assert_eq!(bind(VA - 1, 4096), outside);
        assert_eq!(bind(VA, 4097), outside);
        assert_eq!(bind(VA + 1, 4096), outside);
        assert_eq!(bind(VA + 1, u64::MAX), outside);
        assert_eq!(bind(VA, 4096), Ok(()));
    }
}

//= IBA o10-37.2.26 test
#[test]
fn a_type_1_window_is_never_invalidated() {
    let (mut table, region, window) = region_and_window(WindowType::Type1);
    let what = binding(window, region);
    table.bind(PD, QPN, &what).unwrap();
    assert_eq!(table.invalidate(PD, what.new_key), Err(MemoryError::Type1));
    let denied = table.invalidate_remote(PD, QPN, what.new_key);
    assert_eq!(denied, Err(KeyViolation::AccessDenied));
    assert!(write(&table, what.new_key, VA + 8, 1).is_ok());
}

//= IBA o10-37.2.30 test
#[test]
fn a_type_2_window_is_bound_only_when_free() {
    let (mut table, region, window) = region_and_window(WindowType::Type2);
    let first = binding(window, region);
    assert_eq!(table.bind(PD, QPN, &first), Ok(()));
    let again = binding(first.new_key, region);
    assert_eq!(table.bind(PD, QPN, &again), Err(MemoryError::StillValid));
    assert_eq!(table.invalidate(PD, first.new_key), Ok(()));
    assert_eq!(write(&table, first.new_key, VA + 8, 1), Err(KeyViolation::NoSuchKey));
    assert_eq!(table.bind(PD, QPN, &again), Ok(()));

    let (mut table, region, window) = region_and_window(WindowType::Type1);
    let first = binding(window, region);
    assert_eq!(table.bind(PD, QPN, &first), Ok(()));
    assert_eq!(table.bind(PD, QPN, &binding(first.new_key, region)), Ok(()));
}

//= IBA o10-37.2.40 test
#[test]
fn length_0_closes_a_type_1_window_and_no_other() {
    let (mut table, region, window) = region_and_window(WindowType::Type1);
    let first = binding(window, region);
    table.bind(PD, QPN, &first).unwrap();
    let close = Binding { span: span(0, 0), region: LKey(0), ..binding(first.new_key, region) };
    assert_eq!(table.bind(PD, QPN, &close), Ok(()));
    assert_eq!(write(&table, close.new_key, VA + 8, 1), Err(KeyViolation::NoSuchKey));
    assert!(table.deregister(region).is_ok(), "nothing is bound any more");

    let (mut table, region, window) = region_and_window(WindowType::Type2);
    let zero = Binding { span: span(VA, 0), ..binding(window, region) };
    assert_eq!(table.bind(PD, QPN, &zero), Err(MemoryError::ZeroLength));
    let one = Binding { span: span(VA, 1), ..zero };
    assert_eq!(table.bind(PD, QPN, &one), Ok(()));
}

//= IBA o10-36.2.2 test
#[test]
fn only_type_2_windows_can_be_zero_based() {
    for kind in BOTH {
        let (mut table, region, window) = region_and_window(kind);
        let access = AccessFlags::REMOTE_WRITE | AccessFlags::ZERO_BASED;
        let what = Binding { access, ..binding(window, region) };
        let result = table.bind(PD, QPN, &what);
        if kind == WindowType::Type1 {
            assert_eq!(result, Err(MemoryError::ZeroBased));
            continue;
        }
        assert_eq!(result, Ok(()));
        assert_eq!(write(&table, what.new_key, 0, 16), Ok(place(8)));
        assert_eq!(write(&table, what.new_key, 1, 16), Err(KeyViolation::OutsideRegion));
    }
}

//= 05-5.6 test
#[test]
fn a_zero_based_region_has_no_windows() {
    for kind in BOTH {
        let mut table = table();
        let region = table.register(&what(4096, ALL | AccessFlags::ZERO_BASED)).unwrap();
        let window = table.alloc_window(PD, kind).unwrap();
        let what = Binding { span: span(0, 8), ..binding(window, region) };
        assert_eq!(table.bind(PD, QPN, &what), Err(MemoryError::ZeroBased));
    }
}

//= BC-081 test
#[test]
fn a_windows_index_stays_and_its_byte_may() {
    for kind in BOTH {
        let (mut table, region, window) = region_and_window(kind);
        let other = Binding { new_key: RKey(window.0 ^ 0x100), ..binding(window, region) };
        assert_eq!(table.bind(PD, QPN, &other), Err(MemoryError::OtherIndex));
        let same = Binding { new_key: window, ..other };
        assert_eq!(table.bind(PD, QPN, &same), Ok(()));
        assert!(write(&table, window, VA + 8, 1).is_ok());
    }
}

//= IBA 10.6.7.2.6 test
#[test]
fn a_region_stays_while_windows_are_bound_to_it() {
    for kind in BOTH {
        let (mut table, region, window) = region_and_window(kind);
        let what = binding(window, region);
        table.bind(PD, QPN, &what).unwrap();
        let bound = MemoryError::WindowsBound { count: 1 };
        assert_eq!(table.deregister(region), Err(bound));
        assert_eq!(table.reregister(region, &Changes::default()), Err(bound));
        assert_eq!(table.dealloc_window(what.new_key), Ok(PD));
        assert_eq!(write(&table, what.new_key, VA + 8, 1), Err(KeyViolation::NoSuchKey));
        assert!(table.deregister(region).is_ok());
        assert_eq!((table.regions(), table.windows()), (0, 0));
    }
}

#[test]
fn a_fast_region_can_carry_windows_and_stays_valid_for_them() {
    let mut table = table();
    let fast = table.alloc_fast(PD, HOST, 4096).unwrap();
    let window = table.alloc_window(PD, WindowType::Type2).unwrap();
    let what = binding(window, fast);
    assert_eq!(table.bind(PD, QPN, &what), Err(MemoryError::NoSuchKey), "not valid yet");
    let key = remote(fast);
    table.register_by_work_request(PD, &registration(key, key, span(VA, 4096), ALL)).unwrap();
    assert_eq!(table.bind(PD, QPN, &what), Ok(()));
    assert_eq!(table.invalidate(PD, key), Err(MemoryError::WindowsBound { count: 1 }));
    assert_eq!(table.invalidate(PD, what.new_key), Ok(()));
    assert_eq!(table.invalidate(PD, key), Ok(()));
}

#[test]
fn local_work_requests_reach_regions_and_windows() {
    let mut table = table();
    let region = remote(table.alloc_fast(PD, HOST, 4096).unwrap());
    let window = table.alloc_window(PD, WindowType::Type2).unwrap();
    let mut run = |operation| table.local_operation(PD, QPN, &operation);
    let new_key = RKey(region.0 ^ 1);
    let what = registration(region, new_key, span(VA, 64), ALL);
    assert_eq!(run(LocalOperation::RegisterMemory(what)), Ok(()));
    let (region, new_key) = (LKey(new_key.0), RKey(window.0 ^ 1));
    let access = AccessFlags::REMOTE_WRITE;
    let what = Binding { window, new_key, region, span: span(VA, 8), access };
    let bind = LocalOperation::BindWindow(what);
    assert_eq!(run(bind), Ok(()));
    assert_eq!(run(bind), Err(MemoryError::NoSuchKey));
    assert_eq!(run(LocalOperation::Invalidate(new_key)), Ok(()));
    assert_eq!(run(LocalOperation::Invalidate(remote(region))), Ok(()));
    assert_eq!(KeyViolation::from(MemoryError::NoBindRight), KeyViolation::AccessDenied);
}

/// Bound elsewhere, a window leaves its old region alone.
#[test]
fn a_type_1_window_moves_from_region_to_region() {
    let (mut table, old, window) = region_and_window(WindowType::Type1);
    let new = table.register(&what(4096, ALL)).unwrap();
    let first = binding(window, old);
    table.bind(PD, QPN, &first).unwrap();
    assert_eq!(table.bind(PD, QPN, &binding(first.new_key, new)), Ok(()));
    assert_eq!(table.deregister(new), Err(MemoryError::WindowsBound { count: 1 }));
    assert!(table.deregister(old).is_ok());
}

/// A refused binding must not disturb the present one.
#[test]
fn a_refused_binding_changes_nothing() {
    let (mut table, region, window) = region_and_window(WindowType::Type1);
    let first = binding(window, region);
    table.bind(PD, QPN, &first).unwrap();
    let refused = Binding { span: span(VA, 4097), ..binding(first.new_key, region) };
    assert!(table.bind(PD, QPN, &refused).is_err());
    assert_eq!(write(&table, first.new_key, VA + 8, 16), Ok(place(8)));
    assert_eq!(table.deregister(region), Err(MemoryError::WindowsBound { count: 1 }));
}

/// Three regions of 16, 32 and 8 bytes, of which the middle one is all zeros, and the list of them.
fn scattered() -> (MemoryTable, VecMemory, Vec<Sge>, Vec<u8>) {
    let (mut table, mut memory) = (table(), VecMemory::new());
    let mut sges = Vec::new();
    let mut all = Vec::new();
    for (number, len) in [(1u8, 16u32), (0, 32), (2, 8)] {
        let bytes: Vec<u8> = (0..len as u8).map(|at| number * (at + 10)).collect();
        all.extend(&bytes);
        let host = memory.add(bytes);
        let va = VA + u64::from(number) * 4096;
        let key = table.register(&Registration { host, va, ..what(len.into(), ALL) }).unwrap();
        sges.push(Sge { va, len, l_key: key });
        sges.push(Sge { va: 0, len: 0, l_key: LKey(0) });
    }
    (table, memory, sges, all)
}

#[test]
fn gathering_finds_every_part_of_a_list() {
    let (table, memory, sges, all) = scattered();
    for offset in 0..=all.len() {
        for len in 0..=all.len() - offset {
            for list_cut in [0, 1, 3, sges.len()] {
                let list = SgeList(&sges[..list_cut], &sges[list_cut..]);
                let mut room = vec![0xee; len];
                let (first, second) = room.split_at_mut(len / 3);
                let place = Place::Bytes { first, second };
                table.gather(PD, list, offset as u32, place, &memory).unwrap();
                assert_eq!(room, all[offset..offset + len]);

                let mut found = 0xbad;
                let place = Place::Elided { len, digest: &mut found };
                table.gather(PD, list, offset as u32, place, &memory).unwrap();
                assert_eq!(found, digest::of(&room));
            }
        }
    }
}

#[test]
fn scattering_writes_every_part_of_a_list() {
    let (table, memory, sges, all) = scattered();
    for offset in 0..=all.len() {
        for len in 0..=all.len() - offset {
            let mut memory = memory.clone();
            let payload: Vec<u8> = (0..len as u8).map(|at| 200 - at).collect();
            let (first, second) = payload.split_at(len / 4);
            let payload = Payload::Bytes { first, second };
            let list = SgeList(&sges[..2], &sges[2..]);
            table.scatter(PD, list, offset as u32, payload, &mut memory).unwrap();
            let mut expected = all.clone();
            expected[offset..offset + first.len()].copy_from_slice(first);
            expected[offset + first.len()..offset + len].copy_from_slice(second);
            let found: Vec<u8> =
                (0..3).flat_map(|n| memory.bytes(HostRegion(n)).unwrap().to_vec()).collect();
            assert_eq!(found, expected);
        }
    }
}

/// Keeps the last digest written to each region, and nothing else.
#[derive(Default)]
struct Digests(Vec<(HostRegion, u64, u64, u32)>);

impl HostMemory for Digests {
    fn read(&self, _: HostRegion, _: u64, _: &mut [u8]) -> Result<(), MemoryGone> {
        Err(MemoryGone)
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

    fn digest(&self, region: HostRegion, offset: u64, len: u64) -> Result<u32, MemoryGone> {
        let found =
            self.0.iter().find(|known| (known.0, known.1, known.2) == (region, offset, len));
        found.map(|known| known.3).ok_or(MemoryGone)
    }

    fn write_digest(
        &mut self,
        region: HostRegion,
        offset: u64,
        len: u64,
        digest: u32,
    ) -> Result<(), MemoryGone> {
        self.0.push((region, offset, len, digest));
        Ok(())
    }

    fn release(&mut self, _: HostRegion) {}
}

#[test]
fn a_digest_survives_being_scattered_and_gathered() {
    let (table, _, sges, _) = scattered();
    let mut memory = Digests::default();
    let list = SgeList(&sges, &[]);
    let payload = Payload::Elided { len: 50, digest: 0x1234_5678 };
    table.scatter(PD, list, 3, payload, &mut memory).unwrap();
    assert_eq!(memory.0.iter().map(|part| part.2).collect::<Vec<_>>(), [13, 32, 5]);
    let mut found = 0;
    table.gather(PD, list, 3, Place::Elided { len: 50, digest: &mut found }, &memory).unwrap();
    assert_eq!(found, 0x1234_5678);
}

#[test]
fn a_list_is_checked_where_it_is_used() {
    let (mut table, mut memory, mut sges, all) = scattered();
    let too_long = vec![0; all.len() + 1];
    let list = SgeList(&sges, &[]);
    let payload = Payload::bytes(&too_long);
    let outside = Err(KeyViolation::OutsideRegion);
    assert_eq!(table.scatter(PD, list, 0, payload, &mut memory), outside);
    let one = Payload::bytes(&[1]);
    assert_eq!(table.scatter(PD, list, all.len() as u32, one, &mut memory), outside);
    assert_eq!(table.scatter(PD, list, u32::MAX, Payload::EMPTY, &mut memory), Ok(()));
    assert_eq!(table.check_list(PD, list, true), Ok(()));
    assert_eq!(table.check_list(OTHER_PD, list, true), Err(KeyViolation::WrongDomain));

    // The second region goes; what lies before it can still be reached.
    table.deregister(sges[2].l_key).unwrap();
    assert_eq!(table.check_list(PD, SgeList(&sges, &[]), false), Err(KeyViolation::NoSuchKey));
    let list = SgeList(&sges, &[]);
    assert_eq!(table.scatter(PD, list, 15, one, &mut memory), Ok(()));
    assert_eq!(table.scatter(PD, list, 16, one, &mut memory), Err(KeyViolation::NoSuchKey));
    // The first region's memory goes without its key.
    memory.release(HostRegion(0));
    assert_eq!(table.scatter(PD, list, 15, one, &mut memory), Err(KeyViolation::MemoryGone));
    // An element whose addresses would go on at 0.
    sges[4].va = u64::MAX;
    let list = SgeList(&sges[4..], &[]);
    assert_eq!(table.scatter(PD, list, 1, one, &mut memory), outside);
}

#[test]
fn peers_write_and_read_bytes() {
    let (mut table, mut memory) = (table(), VecMemory::new());
    let host = memory.add(vec![0; 64]);
    let key = remote(table.register(&Registration { host, ..what(64, ALL) }).unwrap());
    let payload = Payload::Bytes { first: b"hel", second: b"lo" };
    assert_eq!(table.write_remote(PD, QPN, key, VA + 59, payload, &mut memory), Ok(()));
    let outside = Err(KeyViolation::OutsideRegion);
    assert_eq!(table.write_remote(PD, QPN, key, VA + 60, payload, &mut memory), outside);
    let eight = Payload::Bytes { first: b"eig", second: b"htby." };
    assert_eq!(table.write_remote(PD, QPN, key, VA + 9, eight, &mut memory), Ok(()));
    let nine = Payload::Bytes { first: b"nin", second: b"e byte" };
    assert_eq!(table.write_remote(PD, QPN, key, VA + 20, nine, &mut memory), Ok(()));
    let elided = Payload::Elided { len: 64, digest: 1 };
    assert_eq!(table.write_remote(PD, QPN, key, VA, elided, &mut memory), Ok(()));
    let nothing = Payload::EMPTY;
    assert_eq!(table.write_remote(PD, QPN, RKey(0), 5, nothing, &mut memory), Ok(()));

    let mut room = [0xee; 64];
    let (first, second) = room.split_at_mut(61);
    let place = Place::Bytes { first, second };
    assert_eq!(table.read_remote(PD, QPN, key, VA, place, &memory), Ok(()));
    assert_eq!((&room[9..17], &room[59..]), (&b"eightby."[..], &b"hello"[..]));
    assert_eq!(&room[20..29], b"nine byte");
    let mut found = 0xbad;
    let place = Place::Elided { len: 64, digest: &mut found };
    assert_eq!(table.read_remote(PD, QPN, key, VA, place, &memory), Ok(()));
    assert_eq!(found, digest::of(&room));
    let place = Place::Elided { len: 0, digest: &mut found };
    assert_eq!(table.read_remote(PD, QPN, RKey(0), 0, place, &memory), Ok(()));
    assert_eq!(found, digest::EMPTY);
    let place = Place::Bytes { first: &mut [], second: &mut room[..5] };
    assert_eq!(table.read_remote(PD, QPN, key, VA + 60, place, &memory), outside);
}

#[test]
fn peers_change_numbers() {
    let (mut table, mut memory) = (table(), VecMemory::new());
    let host = memory.add(vec![0; 16]);
    let key = remote(table.register(&Registration { host, ..what(16, ALL) }).unwrap());
    let mut add = |va| table.atomic_remote(PD, QPN, key, va, &mut |n| Some(n + 5), &mut memory);
    assert_eq!([add(VA + 8), add(VA + 8)], [Ok(0), Ok(5)]);
    assert_eq!(add(VA + 9), Err(KeyViolation::OutsideRegion));
    assert_eq!(add(VA + 4), Err(KeyViolation::MemoryGone), "no multiple of 8");
    assert_eq!(memory.bytes(host).unwrap()[8..], 10u64.to_ne_bytes());
    let mut never = |_| None;
    let wrong = table.atomic_remote(OTHER_PD, QPN, key, VA, &mut never, &mut memory);
    assert_eq!(wrong, Err(KeyViolation::WrongDomain));
}

#[test]
fn a_flush_of_no_bytes_is_one_of_all() {
    let (mut table, mut memory) = (table(), VecMemory::new());
    let global = AccessFlags::FLUSH_GLOBAL;
    let key = remote(table.register(&what(16, global)).unwrap());
    let mut flush =
        |va, len, access| table.flush_remote(PD, QPN, key, span(va, len), access, &mut memory);
    assert_eq!(flush(VA, 16, Access::FlushGlobal), Ok(()));
    assert_eq!(flush(0, 0, Access::FlushGlobal), Ok(()));
    assert_eq!(flush(VA, 17, Access::FlushGlobal), Err(KeyViolation::OutsideRegion));
    assert_eq!(flush(VA, 16, Access::FlushPersistent), Err(KeyViolation::AccessDenied));
    assert_eq!(flush(VA, 16, Access::Write), Err(KeyViolation::AccessDenied));
    let first = table.check_remote(PD, QPN, key, span(0, 0), Access::FlushGlobal);
    assert_eq!(first, Ok(Some(place(0))));
}
