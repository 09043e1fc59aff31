//! The memory that messages come from and go to, and whether it holds what it should.
//!
//! As in perftest each queue pair has an area to send from and one that is written to or received
//! in. Messages of up to half of the agreed cycle buffer begin at different multiples of a cache
//! line in it, in turn; longer ones at its beginning.

use std::sync::Arc;

use roxe_verbs::{AccessFlags, Buffer, MemoryRegion, ProtectionDomain, ServiceType, Sge};

use crate::perf::plan::{Plan, Verb};
use crate::side_channel::Failure;

/// Registered memory, in areas.
pub(crate) struct Memory {
    buffer: Arc<Buffer>,
    region: MemoryRegion,
    /// Bytes from one sending area to the next.
    stride: usize,
    /// Bytes from one receiving area to the next.
    receive_stride: usize,
    /// Where the first receiving area begins.
    receive_base: usize,
}

/// Where messages of one size begin in an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    /// How many places there are.
    pub(crate) count: u64,
    /// Bytes from one to the next.
    step: u64,
}

/// What a datagram's receive needs before the message: the area of its GRH.
const GRH: u32 = 40;

impl Slots {
    /// Those of messages in a sending area, and of where WRITEs, READs and atomics go.
    pub(crate) fn of(plan: &Plan, size: u32) -> Self {
        let step = size.next_multiple_of(plan.cache_line);
        if size <= plan.cycle_buffer / 2 {
            Self { count: (plan.cycle_buffer / step).into(), step: step.into() }
        } else {
            Self { count: 1, step: 0 }
        }
    }

    /// Those of receives.
    pub(crate) fn of_receives(plan: &Plan, size: u32) -> Self {
        let len = receive_len(plan, size).next_multiple_of(plan.cache_line);
        let count = plan.cycle_buffer / len;
        if count > 1 {
            Self { count: count.into(), step: len.into() }
        } else {
            Self { count: 1, step: 0 }
        }
    }

    /// Where the `number`th message begins.
    pub(crate) const fn offset(self, number: u64) -> u64 {
        number % self.count * self.step
    }
}

/// Bytes that a receive needs.
pub(crate) fn receive_len(plan: &Plan, size: u32) -> u32 {
    if plan.service == ServiceType::Ud { size + GRH } else { size }
}

impl Memory {
    /// Memory for all of a plan.
    pub(crate) fn new(domain: &ProtectionDomain, plan: &Plan) -> Result<Self, Failure> {
        let [stride, receive_stride] = strides(plan)?;
        let receive_base = plan.queue_pairs as usize * stride;
        let buffer = Buffer::new(receive_base + plan.queue_pairs as usize * receive_stride);
        let remote = match plan.verb {
            Verb::Send => AccessFlags::NONE,
            Verb::Write => AccessFlags::REMOTE_WRITE,
            Verb::Read => AccessFlags::REMOTE_READ,
            Verb::Atomic(_) => AccessFlags::REMOTE_ATOMIC,
        };
        let region = domain.register(&buffer, AccessFlags::LOCAL_WRITE | remote)?;
        Ok(Self { buffer, region, stride, receive_stride, receive_base })
    }

    /// The region.
    pub(crate) const fn region(&self) -> &MemoryRegion {
        &self.region
    }

    fn send_area(&self, qp: usize) -> usize {
        qp * self.stride
    }

    fn receive_area(&self, qp: usize) -> usize {
        self.receive_base + qp * self.receive_stride
    }

    /// Where the peer may write, read or count.
    pub(crate) fn target(&self, qp: usize) -> u64 {
        self.region.address() + self.receive_area(qp) as u64
    }

    /// Where a message comes from, or a READ goes to.
    pub(crate) fn source(&self, qp: usize, offset: u64, size: u32) -> Sge {
        self.region.sge(self.send_area(qp) as u64 + offset, size)
    }

    /// Where a message is received.
    pub(crate) fn receive(&self, qp: usize, offset: u64, len: u32) -> Sge {
        self.region.sge(self.receive_area(qp) as u64 + offset, len)
    }

    /// A copy of the beginning of a sending area, from which inline messages are taken.
    pub(crate) fn copy_of_source(&self, qp: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.min(self.stride)];
        self.buffer.read(self.send_area(qp), &mut bytes);
        bytes
    }

    /// Writes one byte of a sending area.
    pub(crate) fn set_source(&self, qp: usize, offset: usize, byte: u8) {
        self.buffer.write(self.send_area(qp) + offset, &[byte]);
    }

    /// Reads one byte of a receiving area.
    pub(crate) fn target_byte(&self, qp: usize, offset: usize) -> u8 {
        let mut byte = [0];
        self.buffer.read(self.receive_area(qp) + offset, &mut byte);
        byte[0]
    }

    /// The number that an atomic of the peer's counts at, or fetched.
    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.buffer.read(at, &mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// The numbers at the places that atomics of the peer's count at.
    pub(crate) fn counted(&self, qp: usize, slots: Slots) -> impl Iterator<Item = u64> {
        let area = self.receive_area(qp);
        (0..slots.count).map(move |slot| self.word(area + slots.offset(slot) as usize))
    }

    /// The number that the last atomic of a place fetched.
    pub(crate) fn fetched(&self, qp: usize, offset: u64) -> u64 {
        self.word(self.send_area(qp) + offset as usize)
    }

    /// Makes ready what messages of this size carry: of SEND each the same, whichever place it is
    /// at; else each byte that of its place in the area. And what is expected to change is made
    /// zero.
    pub(crate) fn prepare(&self, plan: &Plan, size: u32) {
        for qp in 0..plan.queue_pairs as usize {
            let (source, target) = (self.send_area(qp), self.receive_area(qp));
            match plan.verb {
                Verb::Send => {
                    let slots = Slots::of(plan, size);
                    for slot in 0..slots.count {
                        let at = source + slots.offset(slot) as usize;
                        self.fill(at, size as usize, 0);
                    }
                    self.clear(target, self.receive_stride);
                }
                Verb::Write => {
                    self.fill(source, used(plan, size), 0);
                    // Who is written to may not touch it any more.
                }
                Verb::Read => self.clear(source, used(plan, size)),
                // No byte of it is 0, which is what an atomic fetches first.
                Verb::Atomic(_) => self.fill(source, self.stride, 0),
            }
        }
    }

    /// What the peer may read, before it begins.
    pub(crate) fn offer(&self, plan: &Plan) {
        if plan.verb == Verb::Read {
            for qp in 0..plan.queue_pairs as usize {
                self.fill(self.receive_area(qp), self.receive_stride, 0);
            }
        }
    }

    fn fill(&self, at: usize, len: usize, first: usize) {
        let mut room = [0; CHUNK];
        for done in (0..len).step_by(CHUNK) {
            let piece = &mut room[..CHUNK.min(len - done)];
            pattern(first + done, piece);
            self.buffer.write(at + done, piece);
        }
    }

    fn clear(&self, at: usize, len: usize) {
        for done in (0..len).step_by(CHUNK) {
            self.buffer.write(at + done, &[0; CHUNK][..CHUNK.min(len - done)]);
        }
    }

    /// Looks whether a piece of an area holds what was sent; `first` is the place of its first
    /// byte.
    fn check(&self, qp: usize, at: usize, len: usize, first: usize) -> Result<(), Failure> {
        let (mut found, mut expected) = ([0; CHUNK], [0; CHUNK]);
        for done in (0..len).step_by(CHUNK) {
            let size = CHUNK.min(len - done);
            let (found, expected) = (&mut found[..size], &mut expected[..size]);
            self.buffer.read(at + done, found);
            pattern(first + done, expected);
            let wrong =
                found.iter().zip(&*expected).position(|(found, expected)| found != expected);
            if let Some(wrong) = wrong {
                return Err(Failure::failed(format_args!(
                    "wrong data: byte {} of the memory of queue pair {qp} is {:#04x}, sent was \
                     {:#04x}; does the other side have --verify too?",
                    done + wrong,
                    found[wrong],
                    expected[wrong]
                )));
            }
        }
        Ok(())
    }

    /// What was received: in the first `messages` places of this size.
    pub(crate) fn check_received(
        &self,
        plan: &Plan,
        size: u32,
        messages: u64,
    ) -> Result<(), Failure> {
        let slots = Slots::of_receives(plan, size);
        let skipped = (receive_len(plan, size) - size) as usize;
        for qp in 0..plan.queue_pairs as usize {
            for slot in 0..slots.count.min(messages) {
                let at = self.receive_area(qp) + slots.offset(slot) as usize + skipped;
                self.check(qp, at, size as usize, 0)?;
            }
        }
        Ok(())
    }

    /// What the peer wrote, `messages` of this size to each queue pair's area.
    pub(crate) fn check_written(
        &self,
        plan: &Plan,
        size: u32,
        messages: u64,
    ) -> Result<(), Failure> {
        self.check_places(plan, size, messages, Self::receive_area)
    }

    /// What was read of the peer.
    pub(crate) fn check_read(&self, plan: &Plan, size: u32, messages: u64) -> Result<(), Failure> {
        self.check_places(plan, size, messages, Self::send_area)
    }

    fn check_places(
        &self,
        plan: &Plan,
        size: u32,
        messages: u64,
        area: impl Fn(&Self, usize) -> usize,
    ) -> Result<(), Failure> {
        let slots = Slots::of(plan, size);
        for qp in 0..plan.queue_pairs as usize {
            for slot in 0..slots.count.min(messages) {
                let offset = slots.offset(slot) as usize;
                self.check(qp, area(self, qp) + offset, size as usize, offset)?;
            }
        }
        Ok(())
    }

    /// What the peer wrote while latencies were measured: all but the last byte, which counts.
    pub(crate) fn check_counted(&self, size: u32) -> Result<(), Failure> {
        self.check(0, self.receive_area(0), size as usize - 1, 0)
    }
}

/// Bytes from one area of a queue pair to the next, to send from and to receive in; or that all of
/// them are too much memory.
pub(crate) fn strides(plan: &Plan) -> Result<[usize; 2], Failure> {
    let longest = [plan.size, receive_len(plan, plan.size)].map(|len| len.max(plan.cycle_buffer));
    let strides = longest.map(|len| len.next_multiple_of(plan.cache_line) as usize);
    let len = plan.queue_pairs as usize * strides.iter().sum::<usize>();
    if len > MOST || Vec::<u8>::new().try_reserve_exact(len).is_err() {
        return Err(Failure::usage(format_args!(
            "{} queue pairs of {} bytes each way need {} GiB of memory: fewer, or smaller",
            plan.queue_pairs,
            plan.size,
            len >> 30
        )));
    }
    Ok(strides)
}

/// Bytes of an area that messages of this size use.
fn used(plan: &Plan, size: u32) -> usize {
    if Slots::of(plan, size).count > 1 { plan.cycle_buffer as usize } else { size as usize }
}

/// More memory than this is a mistake.
const MOST: usize = 64 << 30;

/// Bytes that are handled at a time.
const CHUNK: usize = 4096;

/// What memory holds from this place on: never 0, and the same at no two near places for long.
fn pattern(first: usize, bytes: &mut [u8]) {
    for (at, byte) in bytes.iter_mut().enumerate() {
        let mixed = ((first + at) as u32).wrapping_mul(0x9e37_79b1) >> 16;
        *byte = (mixed % 255) as u8 + 1;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use roxe_verbs::{Context, Limits, Mtu};

    use super::*;
    use crate::cli::{Arguments, Command};

    fn memory_of(line: &str) -> (Plan, Memory) {
        let words = ["roxe", "perf"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).unwrap();
        let Command::Perf(arguments) = arguments.command else { panic!("another command") };
        let plan = Plan::new(&arguments, &Limits::default()).unwrap();
        let [context, _] = Context::memory_pair(Mtu::B4096).unwrap();
        let memory = Memory::new(&context.default_pd(), &plan).unwrap();
        (plan, memory)
    }

    /// As if it had come over the network.
    fn carry(memory: &Memory, from: usize, to: usize, len: usize) {
        let mut bytes = vec![0; len];
        memory.buffer.read(from, &mut bytes);
        memory.buffer.write(to, &bytes);
    }

    #[test]
    fn a_byte_that_is_wrong_is_found_wherever_it_is() {
        let (plan, memory) = memory_of("write_bw -q 2 -s 1000");
        memory.prepare(&plan, 1000);
        let place = "wrong data: byte 0 of the memory of queue pair 0 is 0x00, sent was 0x01";
        let told = |checked: Result<(), Failure>| match checked {
            Err(Failure::Failed(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(told(memory.check_written(&plan, 1000, 4)).starts_with(place));
        for qp in 0..2 {
            carry(&memory, memory.send_area(qp), memory.receive_area(qp), 4096);
        }
        memory.check_written(&plan, 1000, 4).unwrap();
        // The fourth and last place of the second queue pair.
        let last = Slots::of(&plan, 1000).offset(3) as usize + 999;
        let at = memory.receive_area(1) + last;
        let byte = memory.target_byte(1, last);
        memory.buffer.write(at, &[byte ^ 1]);
        assert!(told(memory.check_written(&plan, 1000, 4)).contains("queue pair 1"));
        memory.check_written(&plan, 1000, 3).unwrap();
    }

    #[test]
    fn messages_begin_where_perftest_begins_them() {
        let (plan, _) = memory_of("write_bw");
        let of = |size| Slots::of(&plan, size);
        assert_eq!((of(2).count, of(2).offset(65)), (64, 64));
        assert_eq!((of(100).count, of(100).offset(31)), (32, 31 * 128));
        assert_eq!((of(2048).count, of(2048).offset(3)), (2, 2048));
        assert_eq!((of(2049).count, of(2049).offset(3)), (1, 0));
        let (plan, _) = memory_of("send_bw -c UD -s 64");
        assert_eq!(Slots::of_receives(&plan, 64).offset(1), 128, "with the area of the GRH");
    }

    #[test]
    fn what_memory_holds_tells_places_apart() {
        let mut bytes = vec![0; 20_000];
        pattern(0, &mut bytes);
        assert!(!bytes.contains(&0));
        let mut later = vec![0; 64];
        pattern(4096, &mut later);
        assert_eq!(later, bytes[4096..4160]);
        for shift in [1, 2, 8, 40, 64, 256, 1024, 4096, 16384] {
            assert_ne!(bytes[..64], bytes[shift..shift + 64], "{shift}");
        }
    }
}
