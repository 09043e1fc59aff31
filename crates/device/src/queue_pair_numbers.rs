//! Queue pair numbers: how they are given out, and how a received one leads to its queue pair.
//!
//! IBA vol 1 §9.2, §10.2.4. Inside, a queue pair is a slot. Outside it has a number of 24 bits that
//! scrambles the slot together with how often the slot was used before. So numbers cannot be
//! guessed from each other; a packet's number leads to the slot without a search; and a number
//! comes back only after its slot was used in all other generations, so that late packets of a
//! destroyed queue pair meet nobody.

use core::fmt;

use roxe_wire::Qpn;

use crate::scramble::{Purpose, Scramble, seed_for};
use crate::slots::SlotNumbers;

/// All queue pair numbers of a device.
#[derive(Clone, Debug)]
pub struct QueuePairNumbers {
    scramble: Scramble,
    /// An index is `generation << slot_bits | slot`.
    slot_bits: u32,
    most: u32,
    numbers: SlotNumbers,
    slots: Vec<Slot>,
    /// The slot of queue pair 1.
    gsi: Option<u32>,
    /// Which generations are ours: those that leave `seat` when divided by `seats`.
    seat: u32,
    seats: u32,
    /// The generation that every slot begins with.
    begin: u32,
    /// How far the slots are turned before they are scrambled.
    turn: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Which use of the slot this is, or the next one will be.
    generation: u32,
    /// The number of the queue pair that is there.
    number: Option<Qpn>,
}

impl QueuePairNumbers {
    /// The most queue pairs that a device can have: then each slot has 64 generations, more than
    /// there are reserved numbers.
    pub const MOST: u32 = 1 << 18;

    /// None given out, `most` to give, but no more than [`QueuePairNumbers::MOST`].
    pub fn new(seed: u64, most: u32) -> Self {
        Self::shared(seed, most, 0, 1, 0)
    }

    /// The same for one of `seats` devices that have the same seed and the same `most`, of which
    /// none gives out a number of another's. Each has so many times fewer generations. Of devices
    /// that follow each other on a seat, each begins with other numbers where `chance` is another.
    ///
    /// # Panics
    /// When there is no such seat, or not a generation for each.
    pub fn shared(seed: u64, most: u32, seat: u32, seats: u32, chance: u64) -> Self {
        let most = most.min(Self::MOST);
        let slot_bits = most.next_power_of_two().trailing_zeros();
        let generations = 1 << (24 - slot_bits);
        assert!(seat < seats && seats <= generations, "seat {seat} of {seats}");
        let of_ours = (chance >> 32) as u32 % (generations / seats);
        Self {
            scramble: Scramble::new(seed_for(seed, Purpose::QueuePairNumbers)),
            slot_bits,
            seat,
            seats,
            begin: seat + of_ours * seats,
            turn: chance as u32,
            most,
            numbers: SlotNumbers::new(most),
            slots: Vec::new(),
            gsi: None,
        }
    }

    /// A number that nobody has, and the slot it leads to. Slots are small numbers, reused.
    ///
    /// # Errors
    /// [`QpnError::TooMany`].
    pub fn allocate(&mut self) -> Result<(Qpn, u32), QpnError> {
        let slot = self.take_slot()?;
        let generations = 1 << (24 - self.slot_bits);
        let number = (0..generations).find_map(|_| {
            let generation = self.slots[slot as usize].generation;
            let next = generation + self.seats;
            self.slots[slot as usize].generation =
                if next < generations { next } else { self.seat };
            let turned = slot.wrapping_add(self.turn) & self.slot_mask();
            let number = Qpn::new(self.scramble.number(generation << self.slot_bits | turned));
            (!is_reserved(number)).then_some(number)
        });
        let number = number.ok_or(QpnError::TooMany { most: self.most })?;
        self.slots[slot as usize].number = Some(number);
        Ok((number, slot))
    }

    /// The number 1, for the queue pair of connection management, and a slot for it.
    ///
    /// # Errors
    /// [`QpnError::Taken`], [`QpnError::TooMany`].
    pub fn allocate_gsi(&mut self) -> Result<(Qpn, u32), QpnError> {
        if self.gsi.is_some() {
            return Err(QpnError::Taken);
        }
        let slot = self.take_slot()?;
        self.gsi = Some(slot);
        self.slots[slot as usize].number = Some(Qpn::GSI);
        Ok((Qpn::GSI, slot))
    }

    /// The queue pair is destroyed: its number leads nowhere, its slot can be used again. Says
    /// which slot that was; `None` when nobody had the number.
    pub fn release(&mut self, number: Qpn) -> Option<u32> {
        let slot = self.index_of(number)?;
        self.slots[slot as usize].number = None;
        if number == Qpn::GSI {
            self.gsi = None;
        }
        self.numbers.give_back(slot);
        Some(slot)
    }

    /// The slot of the queue pair with this number.
    pub fn index_of(&self, number: Qpn) -> Option<u32> {
        if number == Qpn::GSI {
            return self.gsi;
        }
        let turned = self.scramble.index(number.get());
        let slot = turned.wrapping_sub(self.turn) & self.slot_mask();
        let found = self.slots.get(slot as usize)?;
        (found.number == Some(number)).then_some(slot)
    }

    /// Whether a queue pair with this number, at an address of this device, may be one of it: it
    /// is, unless others have the address too.
    pub(crate) fn may_be_own(&self, number: Option<Qpn>) -> bool {
        !self.are_shared() || number.is_some_and(|number| self.index_of(number).is_some())
    }

    /// Whether there are other devices that have the same addresses.
    pub(crate) const fn are_shared(&self) -> bool {
        self.seats > 1
    }

    /// Whether the number is one that another of them gives out.
    pub(crate) fn is_of_another(&self, number: Qpn) -> bool {
        let generation = self.scramble.index(number.get()) >> self.slot_bits;
        !is_reserved(number) && generation % self.seats != self.seat
    }

    const fn slot_mask(&self) -> u32 {
        (1 << self.slot_bits) - 1
    }

    /// The number of the queue pair in this slot.
    #[cfg(test)]
    fn number_of(&self, slot: u32) -> Option<Qpn> {
        self.slots.get(slot as usize)?.number
    }

    fn take_slot(&mut self) -> Result<u32, QpnError> {
        let slot = self.numbers.take().ok_or(QpnError::TooMany { most: self.most })?;
        if slot as usize == self.slots.len() {
            self.slots.push(Slot { generation: self.begin, number: None });
        }
        Ok(slot)
    }
}

/// Numbers that mean something else: 0 and 1 are for management, 0xffffff for all members of a
/// multicast group, and below 16 is what other stacks keep for themselves.
fn is_reserved(number: Qpn) -> bool {
    number.get() < FIRST || number == Qpn::MULTICAST
}

/// Why there is no number. `ENOMEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpnError {
    /// The device has as many queue pairs as it can.
    TooMany {
        /// How many.
        most: u32,
    },
    /// There is a queue pair 1 already.
    Taken,
}

impl fmt::Display for QpnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { most } => write!(f, "all {most} queue pairs are in use"),
            Self::Taken => f.write_str("there is a queue pair 1 already"),
        }
    }
}

impl core::error::Error for QpnError {}

/// The smallest number that is given out.
const FIRST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::PATIENCE;

    #[test]
    fn a_number_leads_to_its_slot_while_it_lives() {
        let mut numbers = QueuePairNumbers::new(1, 65_536);
        let all: Vec<(Qpn, u32)> = (0..65_536).map(|_| numbers.allocate().unwrap()).collect();
        assert_eq!(numbers.allocate(), Err(QpnError::TooMany { most: 65_536 }));
        let mut sorted: Vec<u32> = all.iter().map(|(number, _)| number.get()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 65_536);
        for &(number, slot) in &all {
            assert!(slot < 65_536 && !is_reserved(number));
            assert_eq!(numbers.index_of(number), Some(slot));
            assert_eq!(numbers.number_of(slot), Some(number));
        }
        let (number, slot) = all[77];
        assert_eq!(numbers.release(number), Some(slot));
        assert_eq!((numbers.release(number), numbers.index_of(number)), (None, None));
        assert_eq!(numbers.number_of(slot), None);
        let (other, same_slot) = numbers.allocate().unwrap();
        assert_eq!(same_slot, slot);
        assert_ne!(other, number);
    }

    #[test]
    fn a_number_rests_as_long_as_it_can() {
        let mut numbers = QueuePairNumbers::new(2, 1 << 14);
        let first = numbers.allocate().unwrap().0;
        numbers.release(first);
        let mut between = 0;
        loop {
            let (number, _) = numbers.allocate().unwrap();
            numbers.release(number);
            if number == first {
                break;
            }
            between += 1;
        }
        let reserved = FIRST + 1;
        assert!(between >= 1024 * PATIENCE as u32 - reserved, "{between}");
    }

    #[test]
    fn devices_that_share_numbers_never_have_the_same() {
        let mut given = std::collections::BTreeSet::new();
        for seat in 0..4 {
            let chance = 0x0123_4567_89ab_cdef * (1 + u64::from(seat));
            let mut numbers = QueuePairNumbers::shared(5, 1 << 14, seat, 4, chance);
            // Some slots, again and again: 256 generations for each seat.
            for _ in 0..255 {
                let some: Vec<Qpn> = (0..8).map(|_| numbers.allocate().unwrap().0).collect();
                for number in some {
                    let told = (0..4).map(|seat| QueuePairNumbers::shared(5, 1 << 14, seat, 4, 0));
                    let others = told.filter(|other| other.is_of_another(number)).count();
                    assert!(others == 3 && !numbers.is_of_another(number), "{number}");
                    numbers.release(number);
                    given.insert((number.get(), seat));
                }
            }
        }
        let mut numbers: Vec<u32> = given.iter().map(|(number, _)| *number).collect();
        let all = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), all, "a number is of one seat");
        assert!(all > 4 * 8 * 200, "{all} numbers");
    }

    /// Late packets of who was there before find nobody.
    #[test]
    fn who_follows_on_a_seat_has_other_numbers() {
        let first = |chance| -> Vec<Qpn> {
            let mut numbers = QueuePairNumbers::shared(5, 1 << 14, 3, 64, chance);
            let some: Vec<_> = (0..20).map(|_| numbers.allocate().unwrap()).collect();
            assert!(some.iter().all(|(number, slot)| numbers.index_of(*number) == Some(*slot)));
            some.into_iter().map(|(number, _)| number).collect()
        };
        let before = first(0x0123_4567_89ab_cdef);
        for chance in [0x0123_4567_89ab_cbef, 0x0123_4566_89ab_cdef, 0, u64::MAX] {
            let again = first(chance);
            assert!(again.iter().all(|number| !before.contains(number)), "{chance:#x}");
        }
    }

    #[test]
    fn what_nobody_has_leads_nowhere() {
        let mut numbers = QueuePairNumbers::new(3, 100);
        let (number, _) = numbers.allocate().unwrap();
        let found = (0..1 << 24)
            .step_by(31)
            .map(Qpn::new)
            .filter(|&n| n != number && numbers.index_of(n).is_some());
        assert_eq!(found.count(), 0);
        assert_eq!(numbers.number_of(100), None);
        assert!(QueuePairNumbers::new(0, 0).allocate().is_err());
        assert_eq!(QueuePairNumbers::new(0, u32::MAX).most, QueuePairNumbers::MOST);
    }

    #[test]
    fn queue_pair_1_is_there_once() {
        let mut numbers = QueuePairNumbers::new(3, 2);
        assert_eq!(numbers.index_of(Qpn::GSI), None);
        let (number, slot) = numbers.allocate_gsi().unwrap();
        assert_eq!((number, numbers.index_of(Qpn::GSI)), (Qpn::GSI, Some(slot)));
        assert_eq!(numbers.allocate_gsi(), Err(QpnError::Taken));
        assert_ne!(numbers.allocate().unwrap().1, slot);
        assert_eq!(numbers.release(Qpn::GSI), Some(slot));
        assert_eq!(numbers.allocate_gsi(), Ok((Qpn::GSI, slot)));
    }

    #[test]
    fn reserved_numbers_end_where_they_should() {
        let reserved = |n| is_reserved(Qpn::new(n));
        assert!(reserved(0) && reserved(1) && reserved(15) && reserved(0xff_ffff));
        assert!(!reserved(16) && !reserved(0xff_fffe));
    }
}
