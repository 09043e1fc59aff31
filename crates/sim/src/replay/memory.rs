//! The memory of a recorded responder, as far as frames tell what is in it.
//!
//! Each key that a request used with success is a region of ours, as long as those requests need.
//! What peers write is kept here a second time, apart from the device: so it can be told whether
//! the device put bytes where they belong, and whether the recorded application changed memory
//! between a WRITE and a READ, which is its right. Where a recorded answer shows other bytes than
//! are known, the device's memory is made to hold them before it is asked.

use std::collections::{BTreeMap, BTreeSet};

use roxe_device::{HostMemory, HostRegion};
use roxe_transport::work::AccessFlags;
use roxe_wire::{LKey, NakCode, Qpn};

use super::rig::Rig;

/// How a request wants to use memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Write,
    Read,
    Atomic,
    Flush,
}

impl Use {
    pub(super) const fn right(self) -> AccessFlags {
        match self {
            Self::Write => AccessFlags::REMOTE_WRITE,
            Self::Read => AccessFlags::REMOTE_READ,
            Self::Atomic => AccessFlags::REMOTE_ATOMIC,
            Self::Flush => FLUSH,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Atomic => "atomic",
            Self::Flush => "FLUSH",
        }
    }
}

/// Memory that a request names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) number: u64,
    pub(super) wants: Use,
    pub(super) key: u32,
    pub(super) va: u64,
    pub(super) len: u64,
    /// The code of its refusal.
    pub(super) refused: Option<NakCode>,
}

/// What can be told of a responder's memory and rights.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// By key: the first byte, the byte after the last, and the rights.
    spans: BTreeMap<u32, (u64, u64, AccessFlags)>,
    /// Keys that a SEND takes away.
    pub(super) invalidated: BTreeSet<u32>,
    pub(super) rights: AccessFlags,
    /// What the application took away before a request, by its frame.
    pub(super) revoked: BTreeMap<u64, Revoked>,
    /// Requests whose recorded refusal no setting explains.
    pub(super) unexplained: Vec<(u64, String)>,
}

/// Something that worked before, and then did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revoked {
    /// A region.
    Key(u32),
    /// A right of the queue pair.
    Right(AccessFlags),
}

/// More bytes than that are not set aside for a session.
const MOST: u64 = 1 << 28;

impl Plan {
    /// Settings under which all of `wanted` end as they did.
    pub(super) fn new(wanted: &[Wanted], invalidated: BTreeSet<u32>) -> Result<Self, String> {
        let mut plan = Self { invalidated, ..Self::default() };
        plan.rights = ALL_RIGHTS;
        let done = |of: &&Wanted| of.refused.is_none() && of.len != 0;
        for one in wanted.iter().filter(done) {
            let end = one.va.checked_add(one.len).ok_or("a request's memory wraps")?;
            let span = plan.spans.entry(one.key).or_insert((one.va, end, AccessFlags::NONE));
            *span = (span.0.min(one.va), span.1.max(end), span.2 | one.wants.right());
        }
        let sum = |sum: u64, span: &(u64, u64, AccessFlags)| sum.saturating_add(span.1 - span.0);
        if plan.spans.values().fold(0, sum) > MOST {
            return Err("the requests' memory is too large to hold".to_owned());
        }
        for one in wanted {
            let Some(code) = one.refused else { continue };
            let done_so = |of: &Wanted| of.refused.is_none() && of.wants == one.wants;
            let right = one.wants.right();
            match code {
                // The queue pair does not grant it.
                NakCode::InvalidRequest if wanted.iter().any(done_so) => {
                    plan.revoked.insert(one.number, Revoked::Right(right));
                }
                NakCode::InvalidRequest => plan.rights = without(plan.rights, right),
                // No such key, not there, or not that right.
                NakCode::RemoteAccessError => {
                    let Some((start, end, rights)) = plan.spans.get(&one.key) else { continue };
                    let last = one.va.saturating_add(one.len);
                    let inside = one.va >= *start & !7 && last <= *end;
                    if inside && rights.contain(right) {
                        plan.revoked.insert(one.number, Revoked::Key(one.key));
                    }
                }
                _ => {
                    let why = format!("nothing is known that makes a {} end", one.wants.name());
                    let why = format!("{why} with {}", code.name());
                    plan.unexplained.push((one.number, why));
                }
            }
        }
        Ok(plan)
    }

    /// Makes the regions of a queue pair.
    pub(super) fn set_up(&self, rig: &mut Rig, qpn: Qpn) -> Result<Memory, String> {
        let mut memory = Memory::default();
        let nothing = (0, 8, AccessFlags::REMOTE_WRITE);
        let unused = self.invalidated.iter().filter(|key| !self.spans.contains_key(key));
        let unused = unused.map(|key| (key, &nothing));
        for (&key, &(start, end, rights)) in self.spans.iter().chain(unused) {
            // Regions begin at a multiple of 8, as the atomics in them do.
            let start = start & !7;
            let len = (end - start) as usize;
            let rights = rights | AccessFlags::LOCAL_WRITE;
            let (host, ours) = match self.invalidated.contains(&key) {
                true => rig.register_fast(qpn, start, vec![0; len], rights)?,
                false => rig.register(start, vec![0; len], rights)?,
            };
            memory.keys.insert(key, ours);
            memory.regions.insert(key, Region { start, host, len, pages: BTreeMap::new() });
        }
        Ok(memory)
    }
}

/// `rights` but for `taken`.
pub(super) fn without(rights: AccessFlags, taken: AccessFlags) -> AccessFlags {
    AccessFlags::from_bits(rights.bits() & !taken.bits()).unwrap_or_default()
}

const ALL_RIGHTS: AccessFlags = {
    let of_data = AccessFlags::REMOTE_WRITE.with(AccessFlags::REMOTE_READ);
    of_data.with(AccessFlags::REMOTE_ATOMIC).with(FLUSH)
};

const FLUSH: AccessFlags = AccessFlags::FLUSH_GLOBAL.with(AccessFlags::FLUSH_PERSISTENT);

/// The regions of a device, and what should be in them.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Our keys, by the recorded ones.
    pub(super) keys: BTreeMap<u32, LKey>,
    regions: BTreeMap<u32, Region>,
}

/// A region, of which only what is known takes room.
#[derive(Debug)]
struct Region {
    start: u64,
    host: HostRegion,
    len: usize,
    pages: BTreeMap<usize, Page>,
}

/// Bytes, and how they are known.
type Page = [(u8, Known); PAGE];

const PAGE: usize = 256;

impl Region {
    fn set(&mut self, place: usize, byte: u8, known: Known) {
        let page = self.pages.entry(place / PAGE).or_insert([(0, Known::No); PAGE]);
        page[place % PAGE] = (byte, known);
    }

    fn get(&self, place: usize) -> (u8, Known) {
        self.pages.get(&(place / PAGE)).map_or((0, Known::No), |page| page[place % PAGE])
    }
}

/// How it is known what a byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    No,
    /// It was written or read, and the application may have changed it since.
    Once,
    /// An atomic left it: nobody else shall write there.
    Atomically,
}

impl Memory {
    fn find(&mut self, key: u32, va: u64, len: usize) -> Option<(&mut Region, usize)> {
        let region = self.regions.get_mut(&key)?;
        let at = usize::try_from(va.checked_sub(region.start)?).ok()?;
        (at.checked_add(len)? <= region.len).then_some((region, at))
    }

    /// The application takes a region away.
    pub(super) fn revoke(&mut self, rig: &mut Rig, key: u32) -> Result<(), String> {
        self.regions.remove(&key);
        let Some(ours) = self.keys.get(&key) else { return Ok(()) };
        rig.device.deregister_memory(*ours).map_err(|error| error.to_string())
    }

    /// A recorded answer shows that these bytes are there. `true` if others were known: the
    /// application changed them.
    pub(super) fn shown(&mut self, rig: &mut Rig, key: u32, va: u64, bytes: &[u8]) -> bool {
        let Some((region, at)) = self.find(key, va, bytes.len()) else { return false };
        let mut changed = false;
        for (place, byte) in (at..).zip(bytes) {
            let (old, known) = region.get(place);
            if known != Known::No && old == *byte {
                continue;
            }
            changed |= known != Known::No;
            region.set(place, *byte, Known::Once);
            // What cannot be written is seen when it is read.
            let _ = rig.device.host_mut().write(region.host, place as u64, &[*byte]);
        }
        changed
    }

    /// Whether an atomic left a value there.
    pub(super) fn is_atomic(&mut self, key: u32, va: u64) -> bool {
        self.find(key, va, 8).is_some_and(|(region, at)| {
            (at..at + 8).all(|place| region.get(place).1 == Known::Atomically)
        })
    }

    /// What is known to stand there, as a number of this machine.
    pub(super) fn number(&mut self, key: u32, va: u64) -> Option<u64> {
        let (region, at) = self.find(key, va, 8)?;
        let mut bytes = [0; 8];
        for (place, byte) in (at..).zip(&mut bytes) {
            let (is, known) = region.get(place);
            (known != Known::No).then_some(())?;
            *byte = is;
        }
        Some(u64::from_ne_bytes(bytes))
    }

    /// An atomic leaves this value.
    pub(super) fn left(&mut self, key: u32, va: u64, value: u64) {
        self.put(key, va, &value.to_ne_bytes(), Known::Atomically);
    }

    /// Requests are missing in the recording: there may have been atomics among them.
    pub(super) fn doubt(&mut self) {
        let pages = self.regions.values_mut().flat_map(|region| region.pages.values_mut());
        for (_, known) in pages.flatten() {
            if *known == Known::Atomically {
                *known = Known::Once;
            }
        }
    }

    /// A peer wrote these bytes.
    pub(super) fn written(&mut self, key: u32, va: u64, bytes: &[u8]) {
        self.put(key, va, bytes, Known::Once);
    }

    fn put(&mut self, key: u32, va: u64, bytes: &[u8], known: Known) {
        if let Some((region, at)) = self.find(key, va, bytes.len()) {
            (at..).zip(bytes).for_each(|(place, byte)| region.set(place, *byte, known));
        }
    }

    /// Whether the device's memory holds what it should there.
    pub(super) fn is_right(&mut self, rig: &Rig, key: u32, va: u64, len: usize) -> bool {
        let Some((region, at)) = self.find(key, va, len) else { return len == 0 };
        let bytes = rig.read(region.host, at as u64, len);
        bytes.len() == len && (at..).zip(&bytes).all(|(place, byte)| region.get(place).0 == *byte)
    }

    /// The keys under which the device's memory differs from what is known.
    pub(super) fn wrong_keys(&self, rig: &Rig) -> Vec<u32> {
        let wrong = |(_, region): &(&u32, &Region)| {
            region.pages.iter().any(|(number, page)| {
                let at = number * PAGE;
                let len = PAGE.min(region.len - at);
                let bytes = rig.read(region.host, at as u64, len);
                let differs =
                    |(is, (shall, known)): (&u8, &(u8, Known))| *known != Known::No && is != shall;
                bytes.len() != len || bytes.iter().zip(page).any(differs)
            })
        };
        self.regions.iter().filter(wrong).map(|(key, _)| *key).collect()
    }
}
