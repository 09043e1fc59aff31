//! The yardstick: two XDP sockets that copy payload in and out and do nothing else.
//!
//! Written against the kernel's interface alone (linux/if_xdp.h, linux/bpf.h), with a program of
//! six instructions that gives every frame to the socket.

#![allow(unsafe_code, reason = "memory shared with the kernel")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::median;
use crate::namespace::{Cable, Namespace};
use crate::place::{self, END_A, END_B};

/// A pair of sockets on a cable of its own.
pub(crate) struct RawPair {
    ends: [Xsk; 2],
    _cable: Cable,
}

impl RawPair {
    pub(crate) fn new() -> io::Result<Self> {
        let cable = Cable::new(crate::INTERFACE_MTU);
        let open = |namespace: &Namespace, name| namespace.run(|| Xsk::open(name));
        let ends = [open(&cable.a, "va")?, open(&cable.b, "vb")?];
        Ok(Self { ends, _cable: cable })
    }

    /// Packets a second that arrive, frames of `frame` bytes the last `payload` of which before the
    /// ICRC are copied in and out, at most [`WINDOW`] on their way.
    pub(crate) fn stream(&mut self, frame: usize, payload: usize, time: Duration) -> f64 {
        let [from, to] = &mut self.ends;
        let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                place::take(END_A, c"raw-a");
                let region = vec![0x5a; REGION];
                let (mut sent, mut at) = (0_u64, 0);
                while !stop.load(Ordering::Relaxed) {
                    // Those of the run before may still arrive in this one.
                    let arrived = arrived.load(Ordering::Relaxed);
                    let room = WINDOW.saturating_sub(sent.saturating_sub(arrived));
                    for _ in 0..room.min(BATCH) {
                        if !from.push(frame, at_of(frame, payload), &region[at..at + payload]) {
                            break;
                        }
                        sent += 1;
                        at = if at + 2 * payload > REGION { 0 } else { at + payload };
                    }
                    from.submit();
                }
            });
            scope.spawn(|| {
                place::take(END_B, c"raw-b");
                let mut region = vec![0; REGION];
                let (mut count, mut at) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    count += to.pull(|bytes, first| {
                        let headers = at_of(frame, payload).min(bytes.len());
                        let bytes = if first { &bytes[headers..] } else { bytes };
                        let len = bytes.len().min(REGION - at);
                        region[at..at + len].copy_from_slice(&bytes[..len]);
                        at = if at + 2 * payload > REGION { 0 } else { at + len };
                    });
                    arrived.store(count, Ordering::Relaxed);
                }
            });
            thread::sleep(time / 5);
            let (start, before) = (Instant::now(), arrived.load(Ordering::Relaxed));
            thread::sleep(time);
            let rate = (arrived.load(Ordering::Relaxed) - before) as f64 / elapsed(start);
            stop.store(true, Ordering::Relaxed);
            rate
        })
    }

    /// The median of round trips in microseconds, of frames of `frame` bytes; `sleep` by poll().
    /// Each way an acknowledgement's frame goes first, if `acknowledged`.
    pub(crate) fn round_trips(
        &mut self,
        frame: usize,
        sleep: bool,
        acknowledged: bool,
        time: Duration,
    ) -> f64 {
        let [here, there] = &mut self.ends;
        let send = |from: &mut Xsk, number| {
            if acknowledged {
                from.push(ACK, HEADERS, &[0; 4]);
            }
            from.push(frame, at_of(frame, 8), &[number; 8]);
            from.submit();
        };
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                place::take(END_B, c"raw-b");
                while !stop.load(Ordering::Relaxed) {
                    if there.await_one(at_of(frame, 8), sleep, &stop) {
                        send(there, 2);
                    }
                }
            });
            let asking = scope.spawn(|| {
                place::take(END_A, c"raw-a");
                let begin = Instant::now();
                let mut times = Vec::new();
                while begin.elapsed() < time {
                    let start = Instant::now();
                    send(here, 1);
                    // One that was lost would hold up everything.
                    if !here.await_one(at_of(frame, 8), sleep, &stop) {
                        continue;
                    }
                    times.push(start.elapsed().as_nanos() as f64 / 1e3);
                }
                stop.store(true, Ordering::Relaxed);
                median(&mut times)
            });
            asking.join().expect("it does not panic")
        })
    }
}

/// One socket, with half of its memory to send from and half to receive into.
struct Xsk {
    rx: Ring<Descriptor>,
    tx: Ring<Descriptor>,
    fill: Ring<u64>,
    completion: Ring<u64>,
    free: Vec<u64>,
    memory: Mapping,
    socket: OwnedFd,
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

impl Xsk {
    fn open(name: &str) -> io::Result<Self> {
        let interface = rustix::net::netdevice::name_to_index(
            rustix::net::socket(
                rustix::net::AddressFamily::INET,
                rustix::net::SocketType::DGRAM,
                None,
            )?,
            name,
        )?;
        // SAFETY: a call without pointers.
        let socket = owned(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW, 0) })?;
        let fd = socket.as_raw_fd();
        let memory = Mapping::new(2 * RING as usize * CHUNK, -1, 0)?;
        set(
            fd,
            libc::XDP_UMEM_REG,
            &[memory.start as u64, memory.len as u64, CHUNK as u64, 0_u64],
        )?;
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            set(fd, ring, &RING)?;
        }
        let mut offsets = [[0_u64; 4]; 4]; // rx, tx, fill, completion
        let mut len = size_of::<[[u64; 4]; 4]>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes there.
        check(unsafe {
            let to = (&raw mut offsets).cast();
            libc::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, to, &raw mut len)
        })?;
        let mut fill = Ring::new(fd, offsets[2], libc::XDP_UMEM_PGOFF_FILL_RING as i64)?;
        for frame in u64::from(RING)..2 * u64::from(RING) {
            fill.push(frame * CHUNK as u64);
        }
        fill.publish();
        let mut address: libc::sockaddr_xdp =
            // SAFETY: numbers.
            unsafe { std::mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        address.sxdp_flags = libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP | libc::XDP_USE_SG;
        address.sxdp_ifindex = interface;
        let rx = Ring::new(fd, offsets[0], libc::XDP_PGOFF_RX_RING)?;
        let tx = Ring::new(fd, offsets[1], libc::XDP_PGOFF_TX_RING)?;
        let completion = Ring::new(fd, offsets[3], libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64)?;
        // SAFETY: the kernel reads the address.
        check(unsafe {
            let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
            libc::bind(fd, (&raw const address).cast(), len)
        })?;
        let send_buffer: i32 = 8 << 20;
        // SAFETY: the kernel reads a number.
        check(unsafe {
            let (from, len) = ((&raw const send_buffer).cast(), size_of::<i32>() as u32);
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, from, len)
        })?;
        let (map, program, link) = attach(interface, fd)?;
        let free = (0..u64::from(RING)).map(|frame| frame * CHUNK as u64).collect();
        Ok(Self {
            rx,
            tx,
            fill,
            completion,
            free,
            memory,
            socket,
            _link: link,
            _program: program,
            _map: map,
        })
    }

    /// Writes a frame of `frame` bytes with this payload from `at` on. Says whether there was room.
    fn push(&mut self, frame: usize, at: usize, payload: &[u8]) -> bool {
        while let Some(address) = self.completion.pop() {
            self.free.push(address & !(CHUNK as u64 - 1));
        }
        self.completion.release();
        if self.free.len() < 2 {
            return false;
        }
        let mut rest = payload;
        let mut left = frame;
        while left > 0 {
            let address = self.free.pop().expect("it was looked at");
            let here = left.min(CHUNK);
            let bytes = self.memory.bytes_mut(address, here);
            let at = if left == frame {
                bytes[..HEADERS].copy_from_slice(&HEADER);
                at
            } else {
                0
            };
            let (now, later) = rest.split_at(rest.len().min(here - at));
            bytes[at..at + now.len()].copy_from_slice(now);
            rest = later;
            left -= here;
            let options = if left > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.tx.push(Descriptor { address, len: here as u32, options });
        }
        true
    }

    /// Has the kernel send what was written.
    fn submit(&mut self) {
        self.tx.publish();
        if self.tx.waits() && self.tx.needs_wakeup() {
            // SAFETY: a call without pointers. What the kernel does not take now it takes later.
            unsafe {
                let fd = self.socket.as_raw_fd();
                libc::sendto(fd, ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0);
            }
        }
    }

    /// Hands up what arrived, piece by piece, and whether a piece is the first of its frame. Says
    /// how many frames there were.
    fn pull(&mut self, mut take: impl FnMut(&[u8], bool)) -> u64 {
        let (mut frames, mut first) = (0, true);
        while let Some(Descriptor { address, len, options }) = self.rx.pop() {
            let bytes = self.memory.bytes_mut(address, len as usize);
            if first && bytes[..HEADERS.min(bytes.len())] != HEADER {
                self.fill.push(address & !(CHUNK as u64 - 1));
                continue; // The kernel's own: somebody looks for routers.
            }
            take(bytes, first);
            first = options & libc::XDP_PKT_CONTD == 0;
            frames += u64::from(first);
            self.fill.push(address & !(CHUNK as u64 - 1));
        }
        self.rx.release();
        self.fill.publish();
        frames
    }

    /// Waits until a frame with 8 bytes at `at` arrives, which an acknowledgement's has not. Says
    /// whether one did.
    fn await_one(&mut self, at: usize, sleep: bool, stop: &AtomicBool) -> bool {
        let start = Instant::now();
        let mut room = [0; 8];
        let mut looks = 0_u32;
        loop {
            let mut came = false;
            self.pull(|bytes, _| {
                if let Some(bytes) = bytes.get(at..at + 8) {
                    room.copy_from_slice(bytes);
                    came = true;
                }
            });
            if came {
                return true;
            }
            looks += 1;
            if looks.is_multiple_of(64) && (stop.load(Ordering::Relaxed) || elapsed(start) > 0.05) {
                return false;
            }
            if sleep {
                let mut fd =
                    libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: the kernel writes to one `pollfd`.
                unsafe { libc::poll(&raw mut fd, 1, 20) };
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// An entry of the rings of packets.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    len: u32,
    options: u32,
}

/// A ring shared with the kernel, of which we are one side.
struct Ring<T> {
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    flags: *const AtomicU32,
    entries: *mut T,
    /// Where we are.
    own: u32,
    /// Where the other side was when we looked.
    other: u32,
    _mapping: Mapping,
}

// SAFETY: one side of the ring belongs to whoever has it.
unsafe impl<T> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(fd: RawFd, [producer, consumer, entries, flags]: [u64; 4], at: i64) -> io::Result<Self> {
        let mapping = Mapping::new(entries as usize + RING as usize * size_of::<T>(), fd, at)?;
        // SAFETY: the kernel said where in the mapping these are.
        let place = |offset| unsafe { mapping.start.add(offset as usize) };
        Ok(Self {
            producer: place(producer).cast(),
            consumer: place(consumer).cast(),
            flags: place(flags).cast(),
            entries: place(entries).cast(),
            own: 0,
            other: 0,
            _mapping: mapping,
        })
    }

    /// As producer: room there always is, there are fewer frames than places.
    fn push(&mut self, entry: T) {
        // SAFETY: within the ring, and the place is ours.
        unsafe { *self.entries.add((self.own % RING) as usize) = entry };
        self.own = self.own.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: a counter in the mapping.
        unsafe { (*self.producer).store(self.own, Ordering::Release) }
    }

    /// As producer: whether the kernel has not looked at all of it.
    fn waits(&self) -> bool {
        // SAFETY: a counter in the mapping.
        unsafe { (*self.consumer).load(Ordering::Acquire) != self.own }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: a word in the mapping.
        unsafe { (*self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0 }
    }

    /// As consumer.
    fn pop(&mut self) -> Option<T> {
        if self.own == self.other {
            // SAFETY: a counter in the mapping.
            self.other = unsafe { (*self.producer).load(Ordering::Acquire) };
            if self.own == self.other {
                return None;
            }
        }
        // SAFETY: within the ring, and the producer has written it.
        let entry = unsafe { *self.entries.add((self.own % RING) as usize) };
        self.own = self.own.wrapping_add(1);
        Some(entry)
    }

    fn release(&self) {
        // SAFETY: a counter in the mapping.
        unsafe { (*self.consumer).store(self.own, Ordering::Release) }
    }
}

struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: memory belongs to whoever has it.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(len: usize, fd: RawFd, at: i64) -> io::Result<Self> {
        let kind = if fd < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, kind | libc::MAP_POPULATE);
        // SAFETY: a new mapping, anywhere.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, rights, kind, fd, at) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), len })
    }

    fn bytes_mut(&mut self, address: u64, len: usize) -> &mut [u8] {
        assert!(address as usize + len <= self.len, "the kernel stays within the memory");
        // SAFETY: within the mapping, and the frame is with us.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(address as usize), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `mmap`.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Has every frame of queue 0 go to the socket, as long as the descriptors live.
fn attach(interface: u32, socket: RawFd) -> io::Result<(OwnedFd, OwnedFd, OwnedFd)> {
    const MAP_CREATE: i64 = 0;
    const MAP_UPDATE: i64 = 2;
    const PROGRAM_LOAD: i64 = 5;
    const LINK_CREATE: i64 = 28;
    const XSKMAP: u32 = 17;
    const XDP: u32 = 6;
    const HAS_FRAGS: u32 = 1 << 5;
    const ATTACH_XDP: u32 = 37;

    let map = owned(bpf(MAP_CREATE, &[XSKMAP, 4, 4, 1, 0, 0, 0, 0])?)?;
    let (key, value) = (0_u32, socket as u32);
    let [key, value] = [&raw const key, &raw const value].map(|at| at as u64);
    bpf(MAP_UPDATE, &[map.as_raw_fd() as u64, key, value, 0])?;

    // Instructions: opcode, registers (source, destination), offset, number.
    let instruction = |code: u64, registers: u64, offset: u64, number: u64| {
        code | registers << 8 | offset << 16 | number << 32
    };
    let program = [
        instruction(0x61, 0x12, 16, 0), // r2 = r1->rx_queue_index
        instruction(0x18, 0x11, 0, map.as_raw_fd() as u64), // r1 = the map,
        instruction(0, 0, 0, 0),        // the second half of it
        instruction(0xb7, 0x03, 0, 2),  // r3 = XDP_PASS
        instruction(0x85, 0, 0, 51),    // bpf_redirect_map
        instruction(0x95, 0, 0, 0),     // return
    ];
    let license = c"Dual MIT/GPL";
    let [instructions, license] = [program.as_ptr() as u64, license.as_ptr() as u64];
    let load = [
        u64::from(XDP) | (program.len() as u64) << 32,
        instructions,
        license,
        0, // no log
        0,
        u64::from(HAS_FRAGS) << 32,
        0, // no name
        0,
        u64::from(ATTACH_XDP) << 32,
    ];
    let program = owned(bpf(PROGRAM_LOAD, &load)?)?;
    let link = [program.as_raw_fd() as u32, interface, ATTACH_XDP, 0];
    let link = owned(bpf(LINK_CREATE, &link)?)?;
    Ok((map, program, link))
}

fn bpf<T, const N: usize>(command: i64, attributes: &[T; N]) -> io::Result<i32> {
    let len = size_of::<[T; N]>();
    // SAFETY: the kernel reads `len` bytes, and what they point to, which the caller keeps.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), len) };
    check(answer as i32)
}

fn set<T>(fd: RawFd, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes.
    let answer =
        unsafe { libc::setsockopt(fd, libc::SOL_XDP, option, ptr::from_ref(value).cast(), len) };
    check(answer).map(|_| ())
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else has.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

fn check(answer: i32) -> io::Result<i32> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn elapsed(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}

/// Where the payload of a frame begins: before the ICRC.
const fn at_of(frame: usize, payload: usize) -> usize {
    frame - 4 - payload
}

/// Ethernet, IPv4, UDP and BTH of a packet, as far as anybody looks at them: nobody.
const HEADERS: usize = 14 + 20 + 8 + 12;
const HEADER: [u8; HEADERS] = {
    let mut header = [0x5a; HEADERS];
    header[12] = 8;
    header[13] = 0;
    header
};

/// The frame of an acknowledgement: an AETH and an ICRC behind the headers.
const ACK: usize = HEADERS + 4 + 4;

const RING: u32 = 2048;
const CHUNK: usize = 4096;
/// As many bytes as a message of the adapter has.
const REGION: usize = 1 << 20;
/// As many packets as a queue pair sends without an answer.
const WINDOW: u64 = 256;
const BATCH: u64 = 64;
