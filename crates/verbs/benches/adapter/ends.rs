//! What is measured: two adapters on a cable, and what applications do with them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use roxe_verbs::congestion::{CongestionControl, Dcqcn};
use roxe_verbs::{
    AckTimeout, Buffer, Completion, CompletionChannel, CompletionQueue, CompletionStatus,
    ConnectOptions, Context, Data, DeviceString, MemoryRegion, Mtu, QueuePair, ReceiveCapacity,
    ReceiveRequest, Remote, SendCapacity, SendOperation, SendRequest, ServiceType, Sge,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::median;
use crate::namespace::{Cable, Namespace};
use crate::place::{self, END_A, END_B};

/// What applications do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Write,
    Read,
    Send,
}

/// How an application waits for an event of its completion channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Events {
    /// [`CompletionChannel::wait`].
    Wait,
    /// poll() on its descriptor, as one does among others.
    Descriptor,
}

/// An adapter at each end of a cable.
pub(crate) struct Ends {
    a: Context,
    b: Context,
    cable: Arc<Cable>,
    /// How long requests wait for an answer: a network that loses packets wants it short, and a
    /// machine that stops for a while must not end a run.
    timeout: u8,
}

/// One application: its queue pairs and its memory.
struct Side {
    context: Context,
    qps: Vec<QueuePair>,
    cq: CompletionQueue,
    channel: CompletionChannel,
    buffer: Arc<Buffer>,
    memory: MemoryRegion,
}

impl Ends {
    /// Opens an adapter in each namespace, its thread on the core of its end.
    pub(crate) fn open(cable: &Arc<Cable>, a: &str, b: &str, timeout: u8) -> Self {
        let open = |namespace: &Namespace, core, name: &str| {
            namespace.run(|| {
                place::take(core, c"open");
                let device: DeviceString = name.parse().expect("it is a device string");
                Context::open_device(name, &device).unwrap_or_else(|error| {
                    eprintln!("{name}: {error}");
                    std::process::exit(3);
                })
            })
        };
        let (a, b) = (open(&cable.a, END_A, a), open(&cable.b, END_B, b));
        Self { a, b, cable: Arc::clone(cable), timeout }
    }

    /// `count` connections.
    fn connect(&self, mtu: Mtu, count: usize) -> [Side; 2] {
        let options = ConnectOptions {
            path_mtu: mtu,
            timeout: AckTimeout::new(self.timeout).expect("it is one"),
            ..ConnectOptions::default()
        };
        let sides = [Side::new(&self.a, count), Side::new(&self.b, count)];
        for (here, there, namespace) in
            [(&sides[0], &sides[1], &self.cable.a), (&sides[1], &sides[0], &self.cable.b)]
        {
            namespace.run(|| {
                for (own, other) in here.qps.iter().zip(&there.qps) {
                    let peer = other.endpoint().expect("it has an address");
                    own.connect(&peer, &options).expect("there is a way");
                }
            });
        }
        sides
    }

    /// Payload in Gb/s, messages of 1 MiB.
    pub(crate) fn bandwidth(&self, verb: Verb, mtu: Mtu, time: Duration) -> f64 {
        Self::stream(&self.connect(mtu, 1), verb, time)
    }

    /// The same while DCQCN decides how fast may be sent.
    pub(crate) fn controlled(&self, verb: Verb, mtu: Mtu, time: Duration) -> f64 {
        let sides = self.connect(mtu, 1);
        for side in &sides {
            let dcqcn = CongestionControl::Dcqcn(Dcqcn::MLX5);
            side.qps[0].set_congestion_control(dcqcn).expect("a device has it");
        }
        Self::stream(&sides, verb, time)
    }

    fn stream([here, there]: &[Side; 2], verb: Verb, time: Duration) -> f64 {
        let remote = there.remote();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            if verb == Verb::Send {
                scope.spawn(|| {
                    place::take(END_B, c"app-b");
                    for _ in 0..2 * LONGS {
                        there.receive(LONG);
                    }
                    let mut room = [Completion::BLANK; 16];
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..there.poll(&mut room) {
                            there.receive(LONG);
                        }
                    }
                });
            }
            let asking = scope.spawn(|| {
                place::take(END_A, c"app-a");
                let operation = match verb {
                    Verb::Write => SendOperation::Write(remote),
                    Verb::Read => SendOperation::Read(remote),
                    Verb::Send => SendOperation::Send,
                };
                let sges = [here.memory.sge(0, LONG)];
                let request = request(operation, Data::Regions(&sges));
                here.qps[0].post_send(&[request; LONGS]).expect("there is room");
                let (done, elapsed) = here.count(time, |_| {
                    here.qps[0].post_send(&[request]).expect("there is room");
                });
                done as f64 * f64::from(LONG) * 8e-9 / elapsed
            });
            let rate = asking.join().expect("it does not panic");
            stop.store(true, Ordering::Relaxed);
            rate
        })
    }

    /// WRITEs of 8 bytes a second over so many connections, posted in lists.
    pub(crate) fn message_rate(&self, connections: usize, time: Duration) -> f64 {
        let [here, there] = self.connect(Mtu::B1024, connections);
        let remote = there.remote();
        place::on(END_A, c"app-a", || {
            let one = request(SendOperation::Write(remote), Data::Inline(&[7; 8]));
            let mut list = [SendRequest { signaled: false, ..one }; LIST];
            list[LIST - 1].signaled = true;
            let lists = if connections == 1 { 16 } else { 2 };
            let post = |number: usize| {
                let mut list = list;
                list[LIST - 1].wr_id = number as u64;
                here.qps[number].post_send(&list).expect("there is room");
            };
            for _ in 0..lists {
                (0..connections).for_each(post);
            }
            let (done, elapsed) = here.count(time, |completion| post(completion.wr_id as usize));
            (done * LIST) as f64 / elapsed
        })
    }

    /// The median of round trips of 8 bytes in microseconds, by looking all the time. A WRITE is
    /// seen in memory, a SEND by its completion.
    pub(crate) fn round_trips(&self, verb: Verb, time: Duration) -> f64 {
        let [here, there] = self.connect(Mtu::B1024, 1);
        match verb {
            Verb::Send => here.trips_by_send(&there, time, None),
            _ => here.trips_by_write(&there, time),
        }
    }

    /// The same by SEND and completion channels.
    pub(crate) fn round_trips_with_events(&self, by: Events, time: Duration) -> f64 {
        let [here, there] = self.connect(Mtu::B1024, 1);
        here.trips_by_send(&there, time, Some(by))
    }
}

impl Side {
    fn new(context: &Context, count: usize) -> Self {
        let channel = context.create_comp_channel().expect("there is a descriptor left");
        let cq = context.create_cq_on(&channel, 4096).expect("there is room");
        let domain = context.default_pd();
        let qp = |_| {
            domain
                .create_qp(ServiceType::Rc, &cq)
                .send(SendCapacity { depth: 512, max_sge: 1, max_inline: 64 })
                .receive(ReceiveCapacity { depth: 64, max_sge: 1 })
                .build()
                .expect("there is room")
        };
        let qps: Vec<_> = (0..count).map(qp).collect();
        for qp in &qps {
            qp.init(ConnectOptions::default().access).expect("it is new");
        }
        let buffer = Buffer::new(LONG as usize);
        let memory = context.register(&buffer).expect("there is room");
        Self { context: context.clone(), qps, cq, channel, buffer, memory }
    }

    fn remote(&self) -> Remote {
        Remote { va: self.memory.address(), r_key: self.memory.r_key() }
    }

    fn poll(&self, room: &mut [Completion]) -> usize {
        let found = self.cq.poll(room);
        for completion in &room[..found] {
            let (status, qp) = (completion.status, &self.qps[0]);
            if status != CompletionStatus::Success {
                let counted = self.context.counters();
                let counted: Vec<_> = counted.iter().filter(|(_, count)| *count > 0).collect();
                panic!("{}: {counted:?}", qp.explain(status));
            }
        }
        found
    }

    fn receive(&self, len: u32) {
        let sges: [Sge; 1] = [self.memory.sge(0, len)];
        self.qps[0]
            .post_receive(&[ReceiveRequest { wr_id: 0, sges: &sges }])
            .expect("there is room");
    }

    /// Completions in `time` behind a moment of warming up, and how long that was; `next` is called
    /// for each.
    fn count(&self, time: Duration, mut next: impl FnMut(&Completion)) -> (usize, f64) {
        let mut room = [Completion::BLANK; 16];
        let begin = Instant::now();
        let mut start = None;
        let mut done = 0;
        loop {
            let found = self.poll(&mut room);
            for completion in &room[..found] {
                next(completion);
            }
            if found == 0 {
                assert!(begin.elapsed() < 20 * time + Duration::from_secs(5), "nothing completes");
                continue;
            }
            match start {
                None if begin.elapsed() > time / 5 => start = Some(Instant::now()),
                None => {}
                Some(start) => {
                    done += found;
                    if start.elapsed() > time {
                        return (done, start.elapsed().as_secs_f64());
                    }
                }
            }
        }
    }

    fn trips_by_write(&self, there: &Self, time: Duration) -> f64 {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                place::take(END_B, c"app-b");
                let mut number = 0;
                while there.await_number(number + 1, &stop) {
                    number += 1;
                    there.write_number(self, number);
                }
            });
            let asking = scope.spawn(|| {
                place::take(END_A, c"app-a");
                let mut number = 0;
                let times = timed(time, || {
                    number += 1;
                    self.write_number(there, number);
                    self.await_number(number, &stop)
                });
                stop.store(true, Ordering::Relaxed);
                times
            });
            asking.join().expect("it does not panic")
        })
    }

    /// Writes a number to the beginning of the peer's memory.
    fn write_number(&self, there: &Self, number: u64) {
        let (data, operation) = (number.to_ne_bytes(), SendOperation::Write(there.remote()));
        self.qps[0].post_send(&[request(operation, Data::Inline(&data))]).expect("there is room");
    }

    /// Polls until the peer has written this number.
    fn await_number(&self, number: u64, stop: &AtomicBool) -> bool {
        let (mut room, mut bytes) = ([Completion::BLANK; 16], [0; 8]);
        while !stop.load(Ordering::Relaxed) {
            black_box(self.poll(&mut room));
            self.buffer.read(0, &mut bytes);
            if u64::from_ne_bytes(bytes) == number {
                return true;
            }
        }
        false
    }

    fn trips_by_send(&self, there: &Self, time: Duration, by: Option<Events>) -> f64 {
        let stop = AtomicBool::new(false);
        for side in [self, there] {
            (0..16).for_each(|_| side.receive(8));
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                place::take(END_B, c"app-b");
                while there.await_message(by, &stop) {
                    there.send_message();
                    there.receive(8);
                }
            });
            let asking = scope.spawn(|| {
                place::take(END_A, c"app-a");
                let times = timed(time, || {
                    self.send_message();
                    self.receive(8);
                    self.await_message(by, &stop)
                });
                stop.store(true, Ordering::Relaxed);
                times
            });
            asking.join().expect("it does not panic")
        })
    }

    fn send_message(&self) {
        let message = request(SendOperation::Send, Data::Inline(&[7; 8]));
        self.qps[0].post_send(&[SendRequest { signaled: false, ..message }]).expect("room");
    }

    /// Waits for a message: polls all the time, or until there is an event.
    fn await_message(&self, by: Option<Events>, stop: &AtomicBool) -> bool {
        let mut room = [Completion::BLANK; 1];
        while !stop.load(Ordering::Relaxed) {
            if self.poll(&mut room) > 0 {
                return true;
            }
            if let Some(by) = by {
                self.cq.request_notify(false).expect("it has a channel");
                if self.poll(&mut room) > 0 {
                    return true;
                }
                let mut most = Duration::from_millis(20);
                if by == Events::Descriptor {
                    let timeout = Timespec::try_from(most).expect("it is short");
                    let _ = poll(&mut [PollFd::new(&self.channel, PollFlags::IN)], Some(&timeout));
                    most = Duration::ZERO;
                }
                self.channel.wait(most);
            }
        }
        false
    }
}

/// The median time of steps that succeed, in microseconds.
fn timed(time: Duration, mut step: impl FnMut() -> bool) -> f64 {
    let begin = Instant::now();
    let mut times = Vec::new();
    while begin.elapsed() < time {
        let start = Instant::now();
        if step() {
            times.push(start.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    median(&mut times)
}

fn request<'a>(operation: SendOperation, data: Data<'a>) -> SendRequest<'a> {
    SendRequest {
        wr_id: 0,
        operation,
        data,
        signaled: true,
        solicited: false,
        fence: false,
        target: None,
    }
}

/// Bytes of a long message, and how many of them are posted at once.
const LONG: u32 = 1 << 20;
const LONGS: usize = 4;

/// Messages that are posted in one list.
const LIST: usize = 32;
