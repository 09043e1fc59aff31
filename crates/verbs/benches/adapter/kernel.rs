//! The other yardsticks: the kernel's UDP and TCP on a cable of the same kind.

#![allow(unsafe_code, reason = "sendmmsg, and options of UDP")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::median;
use crate::namespace::{Cable, Namespace};
use crate::place::{self, END_A, END_B};

/// A protocol of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Udp,
    Tcp,
}

/// Payload in Gb/s of UDP datagrams of `len` bytes that arrive; joined if `gso`.
pub(crate) fn udp_stream(cable: &Cable, len: usize, gso: bool, time: Duration) -> f64 {
    let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    let sender = bind(&cable.a, "192.0.2.1:5000");
    let receiver = bind(&cable.b, "192.0.2.2:5000");
    sender.connect("192.0.2.2:5000").expect("there is a way");
    receiver.set_read_timeout(Some(Duration::from_millis(20))).expect("it can be set");
    set(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
    set(&sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 8 << 20);
    let (messages, at_once, room) = if gso {
        set(&receiver, libc::SOL_UDP, libc::UDP_GRO, 1);
        set(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, len as i32);
        (4, 65_000 / len, 65_536)
    } else {
        (64, 1, len)
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            place::take(END_B, c"kernel-b");
            let mut buffers = vec![vec![0; room]; 16.max(messages)];
            let mut calls = Messages::new(&mut buffers, room);
            while !stop.load(Ordering::Relaxed) {
                let (fd, headers) = (receiver.as_raw_fd(), calls.headers.as_mut_ptr());
                // SAFETY: headers and buffers live as long as the loop.
                let got = unsafe {
                    let most = calls.headers.len() as u32;
                    libc::recvmmsg(fd, headers, most, libc::MSG_WAITFORONE, std::ptr::null_mut())
                };
                let got = &calls.headers[..usize::try_from(got).unwrap_or(0)];
                let bytes: u64 = got.iter().map(|header| u64::from(header.msg_len)).sum();
                arrived.fetch_add(bytes, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            place::take(END_A, c"kernel-a");
            let mut buffers = vec![vec![0; len * at_once]; messages];
            let mut calls = Messages::new(&mut buffers, len * at_once);
            while !stop.load(Ordering::Relaxed) {
                let (fd, headers) = (sender.as_raw_fd(), calls.headers.as_mut_ptr());
                // SAFETY: as above.
                unsafe { libc::sendmmsg(fd, headers, calls.headers.len() as u32, 0) };
            }
        });
        rate(&arrived, &stop, time)
    })
}

/// Payload in Gb/s of a TCP stream, 1 MiB a call.
pub(crate) fn tcp_stream(cable: &Cable, time: Duration) -> f64 {
    let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut here, mut there) = connect(cable);
    there.set_read_timeout(Some(Duration::from_millis(20))).expect("it can be set");
    thread::scope(|scope| {
        scope.spawn(|| {
            place::take(END_B, c"kernel-b");
            let mut room = vec![0; 1 << 20];
            loop {
                match there.read(&mut room) {
                    Ok(0) => return,
                    Ok(len) => drop(arrived.fetch_add(len as u64, Ordering::Relaxed)),
                    Err(_) if stop.load(Ordering::Relaxed) => return,
                    Err(_) => {}
                }
            }
        });
        scope.spawn(|| {
            place::take(END_A, c"kernel-a");
            let bytes = vec![0x5a; 1 << 20];
            while !stop.load(Ordering::Relaxed) {
                here.write_all(&bytes).expect("the other end reads");
            }
            drop(here.shutdown(std::net::Shutdown::Write));
        });
        rate(&arrived, &stop, time)
    })
}

/// The median of round trips of 8 bytes, in microseconds; by looking all the time, or by sleeping.
pub(crate) fn round_trips(cable: &Cable, kind: Protocol, sleep: bool, time: Duration) -> f64 {
    let stop = AtomicBool::new(false);
    let answer = |call: &mut dyn FnMut(&mut [u8]) -> std::io::Result<usize>| {
        let mut room = [0; 8];
        loop {
            match call(&mut room) {
                Ok(len) => return len > 0,
                Err(_) if stop.load(Ordering::Relaxed) => return false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(_) => return false,
            }
        }
    };
    let timed = |step: &mut dyn FnMut() -> bool| {
        place::take(END_A, c"kernel-a");
        let begin = Instant::now();
        let mut times = Vec::new();
        while begin.elapsed() < time {
            let start = Instant::now();
            if step() {
                times.push(start.elapsed().as_nanos() as f64 / 1e3);
            }
        }
        stop.store(true, Ordering::Relaxed);
        median(&mut times)
    };
    match kind {
        Protocol::Udp => {
            let here = bind(&cable.a, "192.0.2.1:5001");
            let there = bind(&cable.b, "192.0.2.2:5001");
            here.connect("192.0.2.2:5001").expect("there is a way");
            there.connect("192.0.2.1:5001").expect("there is a way");
            for socket in [&here, &there] {
                socket.set_nonblocking(!sleep).expect("it can be set");
                socket.set_read_timeout(Some(Duration::from_millis(20))).expect("it can be set");
            }
            thread::scope(|scope| {
                scope.spawn(|| {
                    place::take(END_B, c"kernel-b");
                    while !stop.load(Ordering::Relaxed) {
                        if answer(&mut |room| there.recv(room)) {
                            let _ = there.send(&[2; 8]);
                        }
                    }
                });
                let asking = scope.spawn(|| {
                    timed(&mut || here.send(&[1; 8]).is_ok() && answer(&mut |room| here.recv(room)))
                });
                asking.join().expect("it does not panic")
            })
        }
        Protocol::Tcp => {
            let (mut here, mut there) = connect(cable);
            for socket in [&here, &there] {
                socket.set_nodelay(true).expect("it can be set");
                socket.set_nonblocking(!sleep).expect("it can be set");
                socket.set_read_timeout(Some(Duration::from_millis(20))).expect("it can be set");
            }
            thread::scope(|scope| {
                scope.spawn(|| {
                    place::take(END_B, c"kernel-b");
                    while !stop.load(Ordering::Relaxed) {
                        if answer(&mut |room| there.read(room)) {
                            let _ = there.write(&[2; 8]);
                        }
                    }
                });
                let asking = scope.spawn(|| {
                    timed(&mut || {
                        here.write(&[1; 8]).is_ok() && answer(&mut |room| here.read(room))
                    })
                });
                asking.join().expect("it does not panic")
            })
        }
    }
}

/// What arrives in `time`, behind a moment of warming up, in Gb/s.
fn rate(arrived: &AtomicU64, stop: &AtomicBool, time: Duration) -> f64 {
    thread::sleep(time / 5);
    let (start, before) = (Instant::now(), arrived.load(Ordering::Relaxed));
    thread::sleep(time);
    let bytes = arrived.load(Ordering::Relaxed) - before;
    let rate = bytes as f64 * 8e-9 / start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    rate
}

fn bind(namespace: &Namespace, address: &str) -> UdpSocket {
    namespace.run(|| UdpSocket::bind(address)).expect("the address is free")
}

fn connect(cable: &Cable) -> (TcpStream, TcpStream) {
    let listener = cable.b.run(|| TcpListener::bind("192.0.2.2:0")).expect("it can listen");
    let address = listener.local_addr().expect("it has an address");
    let here = cable.a.run(|| TcpStream::connect(address)).expect("there is a way");
    (here, listener.accept().expect("somebody came").0)
}

fn set(socket: &UdpSocket, level: i32, option: i32, value: i32) {
    let (value, len) = ((&raw const value).cast(), size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel reads a number.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
}

/// What sendmmsg and recvmmsg are told.
struct Messages {
    headers: Vec<libc::mmsghdr>,
    _places: Vec<libc::iovec>,
}

impl Messages {
    fn new(buffers: &mut [Vec<u8>], len: usize) -> Self {
        let place = |buffer: &mut Vec<u8>| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: len,
        };
        let mut places: Vec<_> = buffers.iter_mut().map(place).collect();
        let header = |place: &mut libc::iovec| {
            // SAFETY: numbers and null pointers.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            (header.msg_hdr.msg_iov, header.msg_hdr.msg_iovlen) = (place, 1);
            header
        };
        Self { headers: places.iter_mut().map(header).collect(), _places: places }
    }
}
