//! A table that does the same in the simplest way, and random calls to compare the two.

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::grant::start_of;
use super::super::regions::CHANGING_RIGHTS;
use super::*;

/// A region or window as simply as it can be said: rights, and a range in numbers that do not wrap.
#[derive(Clone, Debug)]
struct Shadow {
    key: u32,
    pd: Pd,
    /// The memory of a region.
    host: HostRegion,
    open: Option<Open>,
    kind: Kind,
}

#[derive(Clone, Debug)]
struct Open {
    start: u128,
    end: u128,
    /// Where the first byte is in the host's memory.
    offset: u128,
    host: HostRegion,
    access: AccessFlags,
    /// The only queue pair, if there is just one.
    qpn: Option<Qpn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordinary,
    /// Up to so many bytes.
    Fast(u64),
    /// And the index of the shadow below.
    Window(WindowType, Option<usize>),
}

#[derive(Clone, Debug)]
enum Step {
    Register { va: u64, len: u64, access: AccessFlags, pd: Pd },
    AllocFast { max_len: u64 },
    AllocWindow(WindowType),
    Remove(Index),
    Bind { window: Index, region: Index, at: u64, len: u64, access: AccessFlags },
    RegisterFast { which: Index, va: u64, len: u64, access: AccessFlags },
    Invalidate(Index),
    InvalidateRemote(Index, Qpn),
}

fn addresses() -> impl Strategy<Value = u64> {
    prop_oneof![0..64u64, Just(VA), (0..64u64).prop_map(|n| u64::MAX - n), Just(1 << 63)]
}

fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..80u64, 1 => Just(u64::MAX), 1 => Just(1 << 63)]
}

fn rights() -> impl Strategy<Value = AccessFlags> {
    let any = (0..64u32).prop_map(|bits| AccessFlags::from_bits(bits).unwrap());
    prop_oneof![1 => Just(ALL), 1 => any]
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..16u64, 1 => lengths()]
}

fn window_rights() -> impl Strategy<Value = AccessFlags> {
    let rights = [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_READ, AccessFlags::REMOTE_ATOMIC];
    let zero = prop::bool::weighted(0.2);
    (prop::sample::select(rights.to_vec()), zero)
        .prop_map(|(right, zero)| if zero { right | AccessFlags::ZERO_BASED } else { right })
}

fn pds() -> impl Strategy<Value = Pd> {
    prop_oneof![3 => Just(PD), 1 => Just(OTHER_PD)]
}

fn qpns() -> impl Strategy<Value = Qpn> {
    prop_oneof![Just(QPN), Just(OTHER_QPN)]
}

fn steps() -> impl Strategy<Value = Step> {
    let types = || prop_oneof![Just(WindowType::Type1), Just(WindowType::Type2)];
    let index = any::<Index>;
    prop_oneof![
        2 => (addresses(), lengths(), rights(), pds())
            .prop_map(|(va, len, access, pd)| Step::Register { va, len, access, pd }),
        1 => lengths().prop_map(|max_len| Step::AllocFast { max_len }),
        2 => types().prop_map(Step::AllocWindow),
        1 => index().prop_map(Step::Remove),
        4 => (index(), index(), small(), small(), window_rights()).prop_map(
            |(window, region, at, len, access)| Step::Bind { window, region, at, len, access }
        ),
        1 => (index(), addresses(), lengths(), rights())
            .prop_map(|(which, va, len, access)| Step::RegisterFast { which, va, len, access }),
        1 => index().prop_map(Step::Invalidate),
        1 => (index(), qpns()).prop_map(|(which, qpn)| Step::InvalidateRemote(which, qpn)),
    ]
}

/// The table and what it should be.
struct Pair {
    table: MemoryTable,
    shadows: Vec<Shadow>,
    /// The memory of each shadow is called after how many there were before it.
    hosts: u32,
}

const TOP: u128 = 1 << 64;

fn writable(access: AccessFlags) -> bool {
    !access.contain_any(CHANGING_RIGHTS) || access.contain(AccessFlags::LOCAL_WRITE)
}

impl Pair {
    fn open(host: HostRegion, va: u64, len: u64, access: AccessFlags) -> Option<Open> {
        let start: u128 = start_of(access, va).into();
        let end = start + u128::from(len);
        let fine = end <= TOP && writable(access);
        fine.then_some(Open { start, end, offset: 0, host, access, qpn: None })
    }

    fn has_windows(&self, at: usize) -> bool {
        let below = self.shadows[at].key >> 8;
        self.shadows.iter().any(|shadow| {
            matches!(shadow.kind, Kind::Window(_, Some(region))
                if self.shadows[region].key >> 8 == below)
        })
    }

    fn remove(&mut self, at: usize) {
        self.shadows.remove(at);
        for shadow in &mut self.shadows {
            if let Kind::Window(_, Some(region)) = &mut shadow.kind
                && *region > at
            {
                *region -= 1;
            }
        }
    }

    fn close(&mut self, at: usize) {
        let shadow = &mut self.shadows[at];
        shadow.open = None;
        if let Kind::Window(_, region) = &mut shadow.kind {
            *region = None;
        }
    }

    /// One of the windows, or of the regions; if there is none, anything.
    fn among(&self, which: &Index, windows: bool) -> usize {
        let wanted = |at: &usize| matches!(self.shadows[*at].kind, Kind::Window(..)) == windows;
        let some: Vec<usize> = (0..self.shadows.len()).filter(wanted).collect();
        if some.is_empty() {
            which.index(self.shadows.len())
        } else {
            some[which.index(some.len())]
        }
    }

    /// Takes a step with both and compares whether it was allowed.
    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let count = self.shadows.len();
        let host = HostRegion(self.hosts);
        self.hosts += 1;
        let at = |which: &Index| which.index(count.max(1));
        match step {
            &Step::Register { va, len, access, pd } => {
                let result = self.table.register(&Registration { pd, host, va, len, access });
                let open = Self::open(host, va, len, access);
                prop_assert_eq!(result.is_ok(), open.is_some());
                if let Ok(LKey(key)) = result {
                    self.shadows.push(Shadow { key, pd, host, open, kind: Kind::Ordinary });
                }
            }
            &Step::AllocFast { max_len } => {
                let LKey(key) = self.table.alloc_fast(PD, host, max_len).unwrap();
                let kind = Kind::Fast(max_len);
                self.shadows.push(Shadow { key, pd: PD, host, open: None, kind });
            }
            &Step::AllocWindow(kind) => {
                let RKey(key) = self.table.alloc_window(PD, kind).unwrap();
                let kind = Kind::Window(kind, None);
                self.shadows.push(Shadow { key, pd: PD, host, open: None, kind });
            }
            _ if count == 0 => {}
            Step::Remove(which) => {
                let at = at(which);
                let key = self.shadows[at].key;
                if matches!(self.shadows[at].kind, Kind::Window(..)) {
                    prop_assert!(self.table.dealloc_window(RKey(key)).is_ok());
                    self.remove(at);
                } else {
                    let allowed = !self.has_windows(at);
                    prop_assert_eq!(self.table.deregister(LKey(key)).is_ok(), allowed);
                    if allowed {
                        self.remove(at);
                    }
                }
            }
            Step::Bind { window, region, at: from, len, access } => {
                let (window, region) = (self.among(window, true), self.among(region, false));
                self.bind(window, region, *from, *len, *access)?;
            }
            Step::RegisterFast { which, va, len, access } => {
                self.register_fast(at(which), *va, *len, *access)?;
            }
            Step::Invalidate(which) => {
                let at = at(which);
                let allowed = self.can_be_invalidated(at) && self.shadows[at].pd == PD;
                let key = RKey(self.shadows[at].key);
                prop_assert_eq!(self.table.invalidate(PD, key).is_ok(), allowed);
                if allowed {
                    self.close(at);
                }
            }
            Step::InvalidateRemote(which, qpn) => {
                let at = at(which);
                let shadow = &self.shadows[at];
                let useful = shadow.open.as_ref().is_some_and(|open| {
                    open.access.contain_any(AccessFlags::REMOTE)
                        && open.qpn.is_none_or(|q| q == *qpn)
                });
                let allowed = self.can_be_invalidated(at) && shadow.pd == PD && useful;
                let key = RKey(shadow.key);
                prop_assert_eq!(self.table.invalidate_remote(PD, *qpn, key).is_ok(), allowed);
                if allowed {
                    self.close(at);
                }
            }
        }
        Ok(())
    }

    fn can_be_invalidated(&self, at: usize) -> bool {
        self.shadows[at].open.is_some()
            && match self.shadows[at].kind {
                Kind::Ordinary | Kind::Window(WindowType::Type1, _) => false,
                Kind::Fast(_) => !self.has_windows(at),
                Kind::Window(WindowType::Type2, _) => true,
            }
    }

    fn register_fast(
        &mut self,
        at: usize,
        va: u64,
        len: u64,
        access: AccessFlags,
    ) -> Result<(), TestCaseError> {
        let shadow = self.shadows[at].clone();
        let (key, new_key) = (RKey(shadow.key), RKey(shadow.key ^ 0x33));
        let result = self
            .table
            .register_by_work_request(PD, &registration(key, new_key, span(va, len), access));
        let fits = matches!(shadow.kind, Kind::Fast(max_len) if len <= max_len);
        let closed = shadow.open.is_none();
        let open = Self::open(shadow.host, va, len, access).filter(|_| fits && closed);
        prop_assert_eq!(result.is_ok(), open.is_some());
        if open.is_some() {
            self.shadows[at] = Shadow { key: new_key.0, open, ..shadow };
        }
        Ok(())
    }

    fn bind(
        &mut self,
        window: usize,
        region: usize,
        from: u64,
        len: u64,
        access: AccessFlags,
    ) -> Result<(), TestCaseError> {
        let (above, below) = (self.shadows[window].clone(), self.shadows[region].clone());
        let is_region = !matches!(below.kind, Kind::Window(..));
        let open = below.open.clone().filter(|_| is_region);
        let start = open.as_ref().map_or(0, |open| open.start as u64).wrapping_add(from);
        let zero = access.contain(AccessFlags::ZERO_BASED);
        let what = Binding {
            window: RKey(above.key),
            new_key: RKey(above.key ^ 0x55),
            region: LKey(below.key),
            span: span(start, len),
            access,
        };
        let result = self.table.bind(PD, QPN, &what);
        let Kind::Window(kind, bound) = above.kind else {
            prop_assert!(result.is_err());
            return Ok(());
        };
        if kind == WindowType::Type1 && len == 0 {
            prop_assert_eq!(result, Ok(()));
            self.close(window);
            self.shadows[window].key = what.new_key.0;
            return Ok(());
        }
        let end = u128::from(start) + u128::from(len);
        let fine = |open: &Open| {
            let has = |right| open.access.contain(right);
            let inside = u128::from(start) >= open.start && end <= open.end;
            let writable =
                has(AccessFlags::LOCAL_WRITE) || access.contain(AccessFlags::REMOTE_READ);
            inside && writable && has(AccessFlags::MW_BIND) && !has(AccessFlags::ZERO_BASED)
        };
        let type_is_fine = match kind {
            WindowType::Type1 => !zero,
            WindowType::Type2 => bound.is_none() && len > 0,
        };
        let open = open.filter(|open| fine(open) && type_is_fine && below.pd == PD);
        prop_assert_eq!(result.is_ok(), open.is_some());
        if let Some(open) = open {
            let start = u128::from(start);
            let base = if zero { 0 } else { start };
            let opened = Open {
                start: base,
                end: base + u128::from(len),
                offset: start - open.start,
                host: open.host,
                access,
                qpn: (kind == WindowType::Type2).then_some(QPN),
            };
            let kind = Kind::Window(kind, Some(region));
            let key = what.new_key.0;
            self.shadows[window] = Shadow { key, open: Some(opened), kind, ..above };
        }
        Ok(())
    }

    /// Compares what both say about accesses at the borders of everything there is.
    fn compare(&self) -> Result<(), TestCaseError> {
        for shadow in &self.shadows {
            let open = shadow.open.as_ref();
            let (start, end) = open.map_or((0, 0), |open| (open.start, open.end));
            for va in [start.wrapping_sub(1), start, start + 1, end.wrapping_sub(1), end, end + 1] {
                let rest = end.wrapping_sub(va);
                for len in [1, 8, rest, rest.wrapping_add(1), TOP - 1] {
                    let (va, len) = (va as u64, (len as u64).max(1));
                    for (pd, qpn) in [(PD, QPN), (PD, OTHER_QPN), (OTHER_PD, QPN)] {
                        self.compare_one(shadow, pd, qpn, va, len)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn compare_one(
        &self,
        shadow: &Shadow,
        pd: Pd,
        qpn: Qpn,
        va: u64,
        len: u64,
    ) -> Result<(), TestCaseError> {
        let is_window = matches!(shadow.kind, Kind::Window(..));
        let judge = |right, is_local: bool| {
            let open = shadow.open.as_ref().filter(|_| !(is_local && is_window));
            let open = open.ok_or(KeyViolation::NoSuchKey)?;
            if pd != shadow.pd || !is_local && open.qpn.is_some_and(|only| only != qpn) {
                return Err(KeyViolation::WrongDomain);
            }
            if !open.access.contain(right) {
                return Err(KeyViolation::AccessDenied);
            }
            let va: u128 = va.into();
            if va < open.start || va + u128::from(len) > open.end {
                return Err(KeyViolation::OutsideRegion);
            }
            let offset = open.offset + va - open.start;
            Ok(Some(HostPlace { region: open.host, offset: offset as u64 }))
        };
        let (span, key) = (span(va, len), shadow.key);
        for (access, right) in [
            (Access::Write, AccessFlags::REMOTE_WRITE),
            (Access::Read, AccessFlags::REMOTE_READ),
            (Access::Atomic, AccessFlags::REMOTE_ATOMIC),
        ] {
            let found = self.table.check_remote(pd, qpn, RKey(key), span, access);
            prop_assert_eq!(found, judge(right, false));
            let stranger = self.table.check_remote(pd, qpn, RKey(key ^ 0x80), span, access);
            prop_assert_eq!(stranger, Err(KeyViolation::NoSuchKey));
        }
        for (write, right) in [(true, AccessFlags::LOCAL_WRITE), (false, AccessFlags::NONE)] {
            let found = self.table.check_local(pd, LKey(key), span, write);
            prop_assert_eq!(found, judge(right, true));
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_table_does_what_a_simple_one_would(
        seed in any::<u64>(),
        steps in prop::collection::vec(steps(), 1..60),
    ) {
        let table = MemoryTable::new(seed, 100, 100);
        let mut pair = Pair { table, shadows: Vec::new(), hosts: 0 };
        for step in &steps {
            pair.step(step)?;
            let regions = |s: &&Shadow| !matches!(s.kind, Kind::Window(..));
            let count = pair.shadows.iter().filter(regions).count();
            prop_assert_eq!(pair.table.regions() as usize, count);
            prop_assert_eq!(pair.table.windows() as usize, pair.shadows.len() - count);
        }
        pair.compare()?;
    }

    #[test]
    fn any_key_is_answered(
        seed in any::<u64>(),
        key in any::<u32>(),
        va in any::<u64>(),
        len in any::<u64>(),
    ) {
        let mut table = MemoryTable::new(seed, 10, 10);
        table.register(&what(4096, ALL)).unwrap();
        let _ = table.check_remote(PD, QPN, RKey(key), span(va, len), Access::Write);
        let _ = table.check_local(PD, LKey(key), span(va, len), false);
        let _ = table.invalidate_remote(PD, QPN, RKey(key));
        let _ = table.deregister(LKey(key));
    }
}
