//! Registered memory from outside: what re-registration gives, what the host is asked for, and
//! what a refusal says.

use roxe_device::host_memory::{HostMemory, HostRegion, MemoryGone};
use roxe_device::key::Keys;
use roxe_device::memory::{Changes, HostPlace, MemoryError, MemoryTable, Registration};
use roxe_device::protection_domain::Pd;
use roxe_transport::adapter::{Access, KeyViolation, Place, SgeList};
use roxe_transport::work::{AccessFlags, Sge, Span};
use roxe_wire::{LKey, Payload, Qpn, RKey};

const PD: Pd = Pd(1);
const QPN: Qpn = Qpn::new(0x11);
const HOST: HostRegion = HostRegion(3);
const VA: u64 = 0x1000;
const ALL: AccessFlags = AccessFlags::LOCAL_WRITE
    .with(AccessFlags::REMOTE_READ)
    .with(AccessFlags::REMOTE_WRITE)
    .with(AccessFlags::REMOTE_ATOMIC)
    .with(AccessFlags::FLUSH_GLOBAL)
    .with(AccessFlags::FLUSH_PERSISTENT);

fn table(access: AccessFlags) -> (MemoryTable, LKey) {
    let mut table = MemoryTable::new(7, 4, 4);
    let what = Registration { pd: PD, host: HOST, va: VA, len: 64, access };
    let key = table.register(&what).unwrap();
    (table, key)
}

/// Notes what it is asked for.
#[derive(Default)]
struct Asked(Vec<String>);

impl HostMemory for Asked {
    fn read(&self, _: HostRegion, _: u64, _: &mut [u8]) -> Result<(), MemoryGone> {
        Ok(())
    }

    fn write(&mut self, region: HostRegion, at: u64, from: &[u8]) -> Result<(), MemoryGone> {
        self.0.push(format!("write {} {at} {}", region.0, from.len()));
        Ok(())
    }

    fn write_eight(&mut self, region: HostRegion, at: u64, _: [u8; 8]) -> Result<(), MemoryGone> {
        self.0.push(format!("eight {} {at}", region.0));
        Ok(())
    }

    fn flush(&mut self, _: HostRegion, at: u64, len: u64, all: bool) -> Result<(), MemoryGone> {
        self.0.push(format!("flush {at} {len} {all}"));
        Ok(())
    }

    fn fetch_modify(
        &mut self,
        _: HostRegion,
        _: u64,
        _: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryGone> {
        Err(MemoryGone)
    }

    fn release(&mut self, _: HostRegion) {}
}

/// Nobody shall see half of an ATOMIC WRITE.
#[test]
fn eight_bytes_are_written_at_once_and_others_are_not() {
    let (table, key) = table(ALL);
    let mut host = Asked::default();
    let bytes = [0; 9];
    for (cut, len) in [(3, 7), (3, 8), (8, 8), (3, 9)] {
        let payload = Payload::Bytes { first: &bytes[..cut], second: &bytes[cut..len] };
        table.write_remote(PD, QPN, RKey(key.0), VA + 16, payload, &mut host).unwrap();
    }
    let nine = ["write 3 16 3", "write 3 19 6"];
    assert_eq!(
        host.0,
        [&["write 3 16 3", "write 3 19 4", "eight 3 16", "eight 3 16"], &nine[..]].concat()
    );
}

#[test]
fn a_flush_reaches_its_range_and_its_kind() {
    let (table, key) = table(ALL);
    let mut host = Asked::default();
    for (va, len, access) in [
        (VA + 8, 16, Access::FlushGlobal),
        (VA + 63, 1, Access::FlushPersistent),
        (0, 0, Access::FlushPersistent),
    ] {
        let span = Span { va, len };
        table.flush_remote(PD, QPN, RKey(key.0), span, access, &mut host).unwrap();
    }
    assert_eq!(host.0, ["flush 8 16 false", "flush 63 1 true", "flush 0 64 true"]);
}

/// Only no bytes at all mean the whole region, and only to a FLUSH.
//= R18 test
#[test]
fn the_range_of_a_flush_is_checked_like_any_other() {
    let (table, key) = table(ALL);
    let check =
        |va, len, access| table.check_remote(PD, QPN, RKey(key.0), Span { va, len }, access);
    for access in [Access::FlushGlobal, Access::FlushPersistent] {
        assert_eq!(check(VA + 60, 5, access), Err(KeyViolation::OutsideRegion));
        let here = HostPlace { region: HOST, offset: 60 };
        assert_eq!(check(VA + 60, 4, access), Ok(Some(here)));
        assert_eq!(check(0, 0, access), Ok(Some(HostPlace { region: HOST, offset: 0 })));
    }
    assert_eq!(check(0, 0, Access::Atomic), Err(KeyViolation::OutsideRegion));
}

#[test]
fn re_registration_gives_and_takes_rights() {
    let (mut table, key) = table(AccessFlags::REMOTE_READ);
    let check = |table: &MemoryTable, access| {
        table.check_remote(PD, QPN, RKey(key.0), Span { va: VA, len: 1 }, access).map(|_| ())
    };
    let denied = Err(KeyViolation::AccessDenied);
    assert_eq!((check(&table, Access::Read), check(&table, Access::Write)), (Ok(()), denied));
    let access = Some(AccessFlags::LOCAL_WRITE.with(AccessFlags::REMOTE_WRITE));
    table.reregister(key, &Changes { access, ..Changes::default() }).unwrap();
    assert_eq!((check(&table, Access::Read), check(&table, Access::Write)), (denied, Ok(())));
    assert_opens(&table, key, Access::Write, Span { va: VA, len: 64 });
}

/// A peer may touch these bytes, and none beside them.
fn assert_opens(table: &MemoryTable, key: LKey, access: Access, Span { va, len }: Span) {
    let check = |va, len| table.check_remote(PD, QPN, RKey(key.0), Span { va, len }, access);
    assert_eq!(check(va, len), Ok(Some(HostPlace { region: HOST, offset: 0 })));
    assert_eq!(check(va, len + 1), Err(KeyViolation::OutsideRegion));
    assert_eq!(check(va.wrapping_sub(1), 1), Err(KeyViolation::OutsideRegion));
}

/// What a region was given as its address counts again once addresses do not begin at 0.
#[test]
fn a_region_remembers_its_address_while_it_is_zero_based() {
    let (mut table, key) = table(ALL.with(AccessFlags::ZERO_BASED));
    assert_opens(&table, key, Access::Read, Span { va: 0, len: 64 });
    let moved = Changes { range: Some((HOST, 0x5000, 32)), ..Changes::default() };
    table.reregister(key, &moved).unwrap();
    assert_opens(&table, key, Access::Read, Span { va: 0, len: 32 });
    let plain = Changes { access: Some(ALL), ..Changes::default() };
    table.reregister(key, &plain).unwrap();
    assert_opens(&table, key, Access::Read, Span { va: 0x5000, len: 32 });
}

#[test]
fn an_ordinary_region_tells_its_domain() {
    let (mut table, key) = table(ALL);
    assert_eq!(table.pd_of(key), Some(PD));
    assert_eq!(table.pd_of(LKey(key.0 ^ 1)), None);
    let fast = table.alloc_fast(PD, HOST, 8).unwrap();
    assert_eq!(table.pd_of(fast), None);
}

/// The list of one element has a shorter way through the code.
#[test]
fn an_element_ends_where_it_says_and_not_where_its_region_does() {
    let (table, key) = table(ALL);
    let sges = [Sge { va: VA + 8, len: 16, l_key: key }];
    let list = SgeList(&sges, &[]);
    let mut host = Asked::default();
    let bytes = [0; 17];
    for (offset, len, said) in [
        (0, 16, Ok("write 3 8 16")),
        (1, 15, Ok("write 3 9 15")),
        (4, 4, Ok("write 3 12 4")),
        (0, 17, Err(KeyViolation::OutsideRegion)),
        (1, 16, Err(KeyViolation::OutsideRegion)),
        (16, 1, Err(KeyViolation::OutsideRegion)),
    ] {
        host.0.clear();
        let payload = Payload::bytes(&bytes[..len]);
        let done = table.scatter(PD, list, offset, payload, &mut host);
        assert_eq!(done, said.map(|_| ()));
        let mut room = [0; 17];
        let place = Place::Bytes { first: &mut room[..len], second: &mut [] };
        assert_eq!(table.gather(PD, list, offset, place, &host), said.map(|_| ()));
        if let Ok(said) = said {
            assert_eq!(host.0, [said]);
        }
    }
    // For no bytes nothing is looked at, whatever the key.
    let dead = [Sge { l_key: LKey(key.0 ^ 1), ..sges[0] }];
    let list = SgeList(&dead, &[]);
    assert_eq!(table.scatter(PD, list, 0, Payload::EMPTY, &mut host), Ok(()));
    let place = Place::Bytes { first: &mut [], second: &mut [] };
    assert_eq!(table.gather(PD, list, 0, place, &host), Ok(()));
    let one = Payload::bytes(&[1]);
    assert_eq!(table.scatter(PD, list, 0, one, &mut host), Err(KeyViolation::NoSuchKey));
}

/// One seed in thousands has that slot among the first of its table.
#[test]
fn the_slot_whose_index_is_0_is_passed_over() {
    let seed = (0..).find(|&seed| Keys::new(seed).slot(0) < 1000).unwrap();
    let at = Keys::new(seed).slot(0);
    let mut table = MemoryTable::new(seed, at + 2, 0);
    let what = Registration { pd: PD, host: HOST, va: VA, len: 64, access: ALL };
    for _ in 0..at + 2 {
        let key = table.register(&what).unwrap();
        assert_ne!(key.0 >> 8, 0);
        assert_opens(&table, key, Access::Read, Span { va: VA, len: 64 });
    }
    assert_eq!(table.register(&what), Err(MemoryError::TableFull { most: at + 2 }));
}

/// A work request has no other words for it than a key violation.
#[test]
fn each_refusal_of_a_work_request_is_the_nearest_violation() {
    use KeyViolation as K;
    use MemoryError as M;
    for (error, nearest) in [
        (M::NoSuchKey, K::NoSuchKey),
        (M::OtherIndex, K::NoSuchKey),
        (M::StillValid, K::NoSuchKey),
        (M::WrongDomain, K::WrongDomain),
        (M::RangeWraps, K::OutsideRegion),
        (M::TooLong { max: 1 }, K::OutsideRegion),
        (M::OutsideRegion, K::OutsideRegion),
        (M::ZeroLength, K::OutsideRegion),
        (M::NeedsLocalWrite, K::AccessDenied),
        (M::Type1, K::AccessDenied),
    ] {
        assert_eq!(K::from(error), nearest, "{error:?}");
    }
    assert_eq!(K::from(MemoryGone), K::MemoryGone);
}

#[test]
fn a_refusal_says_why() {
    for (error, said) in [
        (MemoryError::TableFull { most: 9 }, "all 9 are in use"),
        (MemoryError::WindowsBound { count: 2 }, "2 windows are bound to it"),
        (MemoryError::TooLong { max: 64 }, "allocated for 64 bytes only"),
        (MemoryError::NoSuchKey, "no such key"),
    ] {
        assert_eq!(error.to_string(), said);
    }
}

/// What opens nothing is in nobody's way where there is nothing to be read or written.
//= 05-5.6 test
#[test]
fn no_bytes_need_no_key() {
    let (table, key) = table(ALL);
    let mut host = Asked::default();
    let wrong = Sge { va: VA, len: 64, l_key: LKey(key.0 ^ 1) };
    for list in [&[wrong][..], &[wrong, wrong], &[]] {
        let list = SgeList(list, &[]);
        for payload in [Payload::bytes(&[]), Payload::Elided { len: 0, digest: 0 }] {
            assert_eq!(table.scatter(PD, list, 0, payload, &mut host), Ok(()));
        }
        let room = Place::Bytes { first: &mut [], second: &mut [] };
        assert_eq!(table.gather(PD, list, 0, room, &host), Ok(()));
    }
    assert_eq!(host.0, [] as [&str; 0]);
    let list = SgeList(&[wrong], &[]);
    let one = table.scatter(PD, list, 0, Payload::bytes(&[1]), &mut host);
    assert_eq!(one, Err(KeyViolation::NoSuchKey));
}
