//! Streams between two adapters: what goes in comes out, in order, whatever the network and the
//! peer do.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use roxe_verbs::cm::{
    self, CmEventKind, CmId, CmOptions, CmParameters, Connected, EventChannel, Listener, PortSpace,
};
use roxe_verbs::sockets::{
    Bell, Exposed, How, Patience, Reading, Socket, SocketError, Stream, StreamListener,
    StreamOptions,
};
use roxe_verbs::{AccessFlags, Buffer, Connection, Context, MemoryRegion, Op, Wait};

mod adapters;

/// Longer than who is asked for patience has to have.
const LONG: Duration = Duration::from_secs(120);
const PATIENCE: Patience<'static> = Patience::For(LONG);

fn address_of(context: &Context) -> SocketAddr {
    SocketAddr::new(context.addresses().next().unwrap(), 0)
}

fn listening(context: &Context, options: StreamOptions) -> (StreamListener, SocketAddr) {
    let mut socket = Socket::new([context]).unwrap();
    socket.bind(address_of(context), false).unwrap();
    let address = socket.local_address().unwrap();
    (socket.listen(4, options).unwrap(), address)
}

fn connecting(context: &Context, to: SocketAddr, options: StreamOptions) -> Stream {
    Socket::new([context]).unwrap().connect(to, options).unwrap()
}

/// Two adapters, joined under a name that no other test has; one of them loses so many packets of a
/// hundred.
fn losing(name: &str, percent: u32) -> [Context; 2] {
    let memory = format!("memory:{name}-{}", std::process::id());
    let open = |name, faults: &str| {
        Context::open_device(name, &format!("{memory}{faults}").parse().unwrap()).unwrap()
    };
    [open("lossy", &format!(",fault=drop {percent}%")), open("sound", "")]
}

/// Both ends of a stream that stands: who asked, who was asked.
fn joined_with(pair: &[Context; 2], options: StreamOptions) -> [Stream; 2] {
    let [one, other] = pair;
    let (listener, to) = listening(other, options);
    let asking = connecting(one, to, options);
    let answering = thread::scope(|scope| {
        let connected = scope.spawn(|| asking.wait_connected(PATIENCE));
        let answering = listener.accept(PATIENCE).unwrap();
        connected.join().unwrap().unwrap();
        answering
    });
    answering.wait_connected(PATIENCE).unwrap();
    assert_eq!(asking.peer_address(), Some(to));
    assert_eq!(answering.peer_address(), asking.local_address());
    [asking, answering]
}

fn joined(pair: &[Context; 2]) -> [Stream; 2] {
    joined_with(pair, StreamOptions::default())
}

/// Bytes that are nowhere the same for long.
fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn read_to_end(stream: &Stream) -> Vec<u8> {
    let (mut all, mut room) = (Vec::new(), vec![0; 10_000]);
    loop {
        match stream.recv(&mut room, Reading::SOME, PATIENCE).unwrap() {
            0 => return all,
            read => all.extend(&room[..read]),
        }
    }
}

/// Each side sends and reads at once.
fn carries(streams: &[Stream; 2], len: usize) {
    thread::scope(|scope| {
        for (seed, (from, to)) in
            (1..).zip([(&streams[0], &streams[1]), (&streams[1], &streams[0])])
        {
            scope.spawn(move || {
                let sent = bytes(len, seed);
                for piece in sent.chunks(77_777) {
                    assert_eq!(from.send(piece, PATIENCE).unwrap(), piece.len());
                }
                from.shutdown(How::Write, PATIENCE).unwrap();
            });
            scope.spawn(move || {
                let came = read_to_end(to);
                assert_eq!(came.len(), len);
                assert!(came == bytes(len, seed), "what came is what was sent");
            });
        }
    });
}

#[test]
fn what_is_sent_is_read_both_ways_at_once() {
    carries(&joined(&adapters::joined_by_memory()), 3_000_000);
    carries(&joined(&adapters::joined_by_udp()), 3_000_000);
}

#[test]
fn rings_and_queues_may_be_tiny() {
    let least = StreamOptions {
        send_buffer: 0,
        receive_buffer: 999,
        send_queue: 0,
        receive_queue: 0,
        inline: 0,
        ..StreamOptions::default()
    };
    let pair = adapters::joined_by_memory();
    let streams = joined_with(&pair, least);
    assert_eq!(streams[0].options().receive_buffer, 998);
    carries(&streams, 100_000);
}

/// A message each would want more credits than there are.
#[test]
fn pieces_of_one_call_are_sent_together() {
    let options = StreamOptions { receive_queue: 0, ..StreamOptions::default() };
    let [one, other] = joined_with(&adapters::joined_by_memory(), options);
    assert_eq!(one.options().receive_queue, 16);
    let sent = bytes(1000, 3);
    assert_eq!(one.send_vectored(sent.chunks(1), PATIENCE), Ok(1000));
    let mut came = [0; 1000];
    assert_eq!(other.recv(&mut came, Reading::ALL, PATIENCE), Ok(1000));
    assert_eq!(came[..], sent);
    assert_eq!(one.send_vectored([&b""[..]; 3].into_iter(), PATIENCE), Ok(0));
}

#[test]
fn pieces_lie_across_the_ends_of_all_rings() {
    // Inline and by way of the ring, and more than fits at once.
    let options =
        StreamOptions { send_buffer: 0, receive_buffer: 3001, ..StreamOptions::default() };
    let [one, other] = joined_with(&adapters::joined_by_memory(), options);
    let sent = bytes(100_000, 5);
    let calls: Vec<_> = [1, 40, 64, 65, 999, 7000].into_iter().cycle().take(60).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = &sent[..];
            for &len in &calls {
                let (now, later) = rest.split_at(len.min(rest.len()));
                assert_eq!(one.send_vectored(now.chunks(61), PATIENCE), Ok(now.len()));
                rest = later;
            }
            assert!(one.send_vectored(rest.chunks(13), PATIENCE) == Ok(rest.len()));
            one.shutdown(How::Write, PATIENCE).unwrap();
        });
        assert!(read_to_end(&other) == sent, "what came is what was sent");
    });
}

#[test]
fn what_is_lost_is_sent_again() {
    carries(&joined(&losing("sent-again", 1)), 1_000_000);
}

#[test]
fn an_adapter_has_streams_to_itself() {
    let [one, _] = adapters::joined_by_memory();
    carries(&joined(&[one.clone(), one]), 300_000);
}

#[test]
fn a_direction_is_shut_down_by_itself() {
    let [one, other] = joined(&adapters::joined_by_memory());
    one.send(b"question", PATIENCE).unwrap();
    one.shutdown(How::Write, PATIENCE).unwrap();
    assert_eq!(one.send(b"more", PATIENCE), Err(SocketError::ShutDown));
    assert_eq!(read_to_end(&other), b"question");
    other.send(b"answer", PATIENCE).unwrap();
    other.shutdown(How::Both, PATIENCE).unwrap();
    assert_eq!(read_to_end(&one), b"answer");
    let readiness = one.readiness();
    assert!(readiness.hung_up && readiness.readable && !readiness.failed);
    assert_eq!((one.take_error(), other.take_error()), (None, None));
}

#[test]
fn what_was_sent_is_read_after_the_peer_is_gone() {
    let [one, other] = joined(&adapters::joined_by_memory());
    let sent = bytes(50_000, 9);
    one.send(&sent, PATIENCE).unwrap();
    drop(one);
    assert_eq!(read_to_end(&other), sent);
    assert_eq!(other.send(b"x", PATIENCE), Err(SocketError::Closed));
}

/// Streams that nobody has called anything of since they were accepted.
fn just_accepted(then: impl FnOnce(Stream) + Send) {
    let [one, other] = adapters::joined_by_memory();
    let (listener, to) = listening(&other, StreamOptions::default());
    let asking = connecting(&one, to, StreamOptions::default());
    thread::scope(|scope| {
        scope.spawn(|| then(listener.accept(PATIENCE).unwrap()));
        asking.wait_connected(PATIENCE).unwrap();
        assert_eq!(read_to_end(&asking), b"");
        asking.shutdown(How::Both, PATIENCE).unwrap();
    });
}

#[test]
fn a_stream_that_was_just_accepted_ends_in_order() {
    just_accepted(drop);
    just_accepted(|stream| stream.close(LONG).unwrap());
    just_accepted(|stream| {
        stream.shutdown(How::Write, PATIENCE).unwrap();
        assert_eq!(read_to_end(&stream), b"");
    });
}

#[test]
fn what_both_sent_arrives_when_both_shut_down_at_once() {
    let pair = losing("shut-down", 10);
    let sent = bytes(20_000, 4);
    for _ in 0..4 {
        let streams = joined(&pair);
        thread::scope(|scope| {
            for stream in streams {
                let sent = &sent;
                scope.spawn(move || {
                    assert_eq!(stream.send(sent, PATIENCE).unwrap(), sent.len());
                    stream.shutdown(How::Write, PATIENCE).unwrap();
                    assert!(read_to_end(&stream) == *sent);
                });
            }
        });
    }
}

#[test]
fn who_sleeps_is_woken_by_who_only_asks() {
    let [one, other] = joined(&adapters::joined_by_memory());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = [0; 1];
            for _ in 0..300 {
                other.recv(&mut room, Reading::SOME, PATIENCE).unwrap();
                other.send(&room, PATIENCE).unwrap();
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                other.readiness();
                thread::yield_now();
            }
        });
        // Who is not woken looks only when it asks whether the peer is there.
        let soon = Patience::For(Stream::PROBE_EVERY / 2);
        let mut room = [0; 1];
        let all = (0..300).try_for_each(|_| {
            one.send(b"x", PATIENCE)?;
            one.recv(&mut room, Reading::SOME, soon).map(drop)
        });
        done.store(true, Ordering::SeqCst);
        one.shutdown(How::Both, PATIENCE).unwrap();
        assert_eq!(all, Ok(()));
    });
}

#[test]
fn a_listener_that_is_closed_holds_nobody_up() {
    let [one, _] = adapters::joined_by_memory();
    let (listener, _) = listening(&one, StreamOptions::default());
    thread::scope(|scope| {
        let accept = || listener.accept(PATIENCE).err();
        let waiting = [scope.spawn(accept), scope.spawn(accept)];
        listener.close();
        for waits in waiting {
            assert_eq!(waits.join().unwrap(), Some(SocketError::ShutDown));
        }
    });
}

#[test]
fn a_stream_that_is_closed_holds_nobody_up_who_waits_for_it_to_stand() {
    let pair = adapters::joined_by_memory();
    let (_listener, to) = listening(&pair[1], StreamOptions::default());
    let asking = connecting(&pair[0], to, StreamOptions::default());
    thread::scope(|scope| {
        let connects = scope.spawn(|| asking.wait_connected(PATIENCE));
        let sends = scope.spawn(|| asking.send(b"x", PATIENCE));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(asking.close(LONG), Err(SocketError::NotConnected));
        assert_eq!(connects.join().unwrap(), Err(SocketError::ShutDown));
        assert_eq!(sends.join().unwrap(), Err(SocketError::ShutDown));
    });
}

#[test]
fn a_look_at_all_of_it_waits_for_all_of_it() {
    let [one, other] = joined(&adapters::joined_by_memory());
    one.send(b"ab", PATIENCE).unwrap();
    let look = Reading { peek: true, all: true };
    let mut room = [0; 4];
    let short = Patience::For(Duration::from_millis(50));
    assert_eq!(other.recv(&mut room, look, short), Ok(2));
    thread::scope(|scope| {
        let looks = scope.spawn(|| other.recv(&mut [0; 4], look, PATIENCE));
        one.send(b"cd", PATIENCE).unwrap();
        assert_eq!(looks.join().unwrap(), Ok(4));
    });
    // What can never be there at once is not waited for.
    thread::scope(|scope| {
        let much = bytes(1 << 20, 6);
        let mut room = vec![0; much.len()];
        let sends = scope.spawn(move || one.send(&much, PATIENCE).unwrap());
        let most = other.options().receive_buffer as usize;
        assert_eq!(other.recv(&mut room, look, PATIENCE), Ok(most));
        other.shutdown(How::Both, PATIENCE).unwrap();
        assert!(sends.join().unwrap() < room.len());
    });
}

#[test]
fn who_does_not_wait_is_told_so() {
    let pair = adapters::joined_by_memory();
    let (listener, to) = listening(&pair[1], StreamOptions::default());
    assert_eq!(listener.accept(Patience::None).err(), Some(SocketError::WouldBlock));
    let short = Patience::For(Duration::from_millis(1));
    assert_eq!(listener.accept(short).err(), Some(SocketError::TimedOut));
    let asking = connecting(&pair[0], to, StreamOptions::default());
    assert_eq!(asking.send(b"x", Patience::None), Err(SocketError::WouldBlock));
    assert_eq!(asking.shutdown(How::Both, PATIENCE), Err(SocketError::NotConnected));
    let answering = thread::scope(|scope| {
        scope.spawn(|| asking.wait_connected(PATIENCE).unwrap());
        listener.accept(PATIENCE).unwrap()
    });
    let mut room = [0; 9];
    let read = answering.recv(&mut room, Reading::SOME, Patience::None);
    assert_eq!(read, Err(SocketError::WouldBlock));
    assert_eq!(answering.recv(&mut room, Reading::ALL, short), Err(SocketError::TimedOut));
    // Nobody reads: both rings become full, and no more is taken.
    let much = bytes(1 << 20, 3);
    let taken = asking.send(&much, Patience::None).unwrap();
    assert!((1..much.len()).contains(&taken));
    answering.wait_connected(PATIENCE).unwrap();
    assert_eq!(answering.recv(&mut room, Reading::PEEK, PATIENCE).unwrap(), 9);
    let mut came = vec![0; taken];
    assert_eq!(answering.recv(&mut came, Reading::ALL, PATIENCE).unwrap(), taken);
    assert!(came == much[..taken]);
}

#[test]
fn who_waits_for_several_things_at_once_is_woken() {
    let [one, other] = joined(&adapters::joined_by_memory());
    let bell = Bell::new().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let _watch = other.watch(&bell);
            while !other.readiness().readable {
                bell.hush();
                if !other.readiness().readable {
                    let fds = [other.as_fd(), bell.as_fd()];
                    let mut fds = fds.map(|fd| rustix::event::PollFd::from_borrowed_fd(fd, IN));
                    rustix::event::poll(&mut fds, None).unwrap();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        one.send(b"wake up", PATIENCE).unwrap();
        waits.join().unwrap();
    });
    assert!(done.load(Ordering::SeqCst));
    assert!(one.readiness().writable && !one.readiness().readable);
}

const IN: rustix::event::PollFlags = rustix::event::PollFlags::IN;

#[test]
fn memory_that_is_open_is_written_by_the_peer() {
    let pair = adapters::joined_by_memory();
    let options = StreamOptions { maps: 2, ..StreamOptions::default() };
    let [one, other] = joined_with(&pair, options);
    let target = Buffer::new(200_000);
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let region = || pair[1].default_pd().register(&target, access).unwrap();
    other.open(Exposed::region(region()), 1000).unwrap();
    other.send(b"now", PATIENCE).unwrap();
    let mut told = [0; 3];
    one.recv(&mut told, Reading::ALL, PATIENCE).unwrap();
    let sent = bytes(150_000, 5);
    assert_eq!(one.write_at(&sent, 1100, PATIENCE).unwrap(), sent.len());
    one.send(b"done", PATIENCE).unwrap();
    let mut told = [0; 4];
    other.recv(&mut told, Reading::ALL, PATIENCE).unwrap();
    let mut came = vec![0; 150_000];
    target.read(100, &mut came);
    assert!(came == sent);
    // What is not open is not written; what goes beyond is cut off.
    assert_eq!(one.write_at(b"x", 999, PATIENCE), Err(SocketError::NotMapped));
    assert_eq!(one.write_at(&[1; 90], 200_950, PATIENCE).unwrap(), 50);
    // Also where no offset is behind it.
    other.open(Exposed::region(region()), u64::MAX - 199_999).unwrap();
    other.send(b"now", PATIENCE).unwrap();
    one.recv(&mut [0; 3], Reading::ALL, PATIENCE).unwrap();
    assert_eq!(one.write_at(&[1; 90], u64::MAX - 49, PATIENCE).unwrap(), 50);
    // There are two places; one that is given back can be taken again.
    let full = other.open(Exposed::region(region()), 0);
    assert_eq!(full, Err(SocketError::NoPlace));
    assert!(!other.shut(1, 2));
    assert!(other.shut(target.address(), 200_000));
    other.open(Exposed::region(region()), 0).unwrap();
    assert_eq!(one.open(Exposed::region(region()), 0), Ok(()));
}

#[test]
fn a_connection_that_does_not_come_about_says_why() {
    let pair = adapters::joined_by_memory();
    let mut to = address_of(&pair[1]);
    to.set_port(7);
    let asking = connecting(&pair[0], to, StreamOptions::default());
    let error = asking.wait_connected(PATIENCE).unwrap_err();
    assert_eq!(error.errno(), 111, "{error}");
    let mut socket = Socket::new([&pair[1]]).unwrap();
    socket.bind(address_of(&pair[1]), false).unwrap();
    let taken = socket.local_address().unwrap();
    assert_eq!(Socket::new([&pair[1]]).unwrap().bind(taken, false).unwrap_err().errno(), 98);
}

/// A peer that speaks by hand.
struct Raw {
    end: Connection,
    link: Connected,
    ring: std::sync::Arc<Buffer>,
    _regions: [MemoryRegion; 2],
    hello: [u8; 40],
}

/// What a side says of itself, with these credits and table of places.
fn hello(credits: u16, table: &MemoryRegion, ring: &MemoryRegion, half: u32) -> [u8; 40] {
    let mut hello = [0; 40];
    hello[..2].copy_from_slice(&[1, 2]);
    hello[2..4].copy_from_slice(&credits.to_be_bytes());
    for (at, region, len) in [(8, table, 2), (24, ring, half)] {
        hello[at..at + 8].copy_from_slice(&region.address().to_be_bytes());
        hello[at + 8..at + 12].copy_from_slice(&region.r_key().0.to_be_bytes());
        hello[at + 12..at + 16].copy_from_slice(&u32::to_be_bytes(len));
    }
    hello
}

impl Raw {
    /// A stream whose peer it is. `change` changes what it says of itself.
    fn joined(pair: &[Context; 2], change: impl FnOnce(&mut [u8; 40])) -> (Self, Stream) {
        let (listener, to) = listening(&pair[1], StreamOptions::default());
        let mut end = Connection::new(&pair[0]).unwrap();
        let (ring, places) = (Buffer::new(4096), Buffer::new(32));
        let regions = [&ring, &places].map(|it| pair[0].register(it).unwrap());
        let mut said = hello(8, &regions[1], &regions[0], 2048);
        change(&mut said);
        for at in 0..64 {
            end.post_receive(1000 + at, &regions[0], 0, 0).unwrap();
        }
        let (link, stream) = thread::scope(|scope| {
            let accepted = scope.spawn(|| listener.accept(PATIENCE).unwrap());
            let qp = end.queue_pair();
            let parameters = CmParameters { private_data: &said, ..CmParameters::of(qp) };
            let link = cm::connect(qp, to, &parameters, CmOptions::default(), LONG).unwrap();
            (link, accepted.join().unwrap())
        });
        stream.wait_connected(PATIENCE).unwrap();
        let hello = *link.offer().private_data.first_chunk().unwrap();
        (Self { end, link, ring, _regions: regions, hello }, stream)
    }

    /// Writes bytes of its ring to where the peer's begins, and says this.
    fn say(&mut self, len: u32, imm: u32) {
        self.say_at(0, len, imm);
    }

    /// The same so far behind where it begins.
    fn say_at(&mut self, offset: u64, len: u32, imm: u32) {
        let begin = u64::from_be_bytes(*self.hello[24..].first_chunk().unwrap());
        let va = begin.wrapping_add(offset);
        let key = u32::from_be_bytes(*self.hello[32..].first_chunk().unwrap());
        let op = Op::WriteWithImm { va, r_key: roxe_verbs::RKey(key), imm };
        let region = &self._regions[0];
        self.end.post(1, op, region, 0, len).unwrap();
    }
}

#[test]
fn a_peer_that_speaks_by_the_book_is_understood() {
    let (mut raw, stream) = Raw::joined(&adapters::joined_by_memory(), |_| {});
    assert_eq!(raw.hello[..8], [1, 2, 1, 0x80, 0, 0, 0, 0], "384 credits, no maps");
    assert_eq!(raw.hello[20..24], [0, 0, 0, 2], "two places");
    assert_eq!(raw.hello[36..], [0, 1, 0, 0], "half of the ring");
    raw.ring.write(0, b"by the book");
    raw.say(11, 11);
    let mut text = [0; 11];
    assert_eq!(stream.recv(&mut text, Reading::ALL, PATIENCE).unwrap(), 11);
    assert_eq!(&text, b"by the book");
    // It tells of its second half at once, in the second entry, and then sends to our first.
    stream.send(b"answer", PATIENCE).unwrap();
    let mut messages = Vec::new();
    while messages.len() < 2 {
        let completion = raw.end.wait(Wait(LONG)).unwrap();
        if let roxe_verbs::Extra::Imm(imm) = completion.extra {
            messages.push(imm.0);
        }
    }
    assert_eq!(messages, [0x8000_0180, 6]);
    let mut text = [0; 6];
    raw.ring.read(0, &mut text);
    assert_eq!(&text, b"answer");
    raw.say(0, 0xe000_0000);
    assert_eq!(stream.recv(&mut text, Reading::ALL, PATIENCE), Ok(0));
    assert_eq!(stream.send(b"x", PATIENCE), Err(SocketError::Closed));
}

#[test]
fn who_waits_for_long_asks_whether_the_peer_is_there() {
    let (mut raw, stream) = Raw::joined(&adapters::joined_by_memory(), |_| {});
    stream.send(b"x", PATIENCE).unwrap();
    let mut told = Vec::new();
    while told.len() < 3 {
        // Nothing is under way once the peer's adapter has answered, as whoever waits sees.
        let mut room = [0; 1];
        let read = stream.recv(&mut room, Reading::SOME, Patience::None);
        assert_eq!(read, Err(SocketError::WouldBlock));
        // So it does when it was not heard for long.
        stream.probe();
        thread::sleep(Duration::from_millis(10));
        while let Some(completion) = raw.end.try_next() {
            match completion.extra {
                roxe_verbs::Extra::Imm(imm) => told.push(imm.0),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(told[..3], [0x8000_0180, 1, 0xe000_0001]);
}

#[test]
fn a_peer_that_takes_nothing_holds_nobody_up() {
    // It has said that it takes as many messages as there may be.
    let (_raw, stream) = Raw::joined(&adapters::joined_by_memory(), |hello| hello[2..4].fill(0x7f));
    for _ in 0..100 {
        stream.send(b"x", PATIENCE).unwrap();
    }
    let stall = Duration::from_millis(300);
    assert_eq!(stream.close(stall), Err(SocketError::TimedOut));
}

#[test]
fn a_peer_that_ends_without_a_word_is_an_error() {
    let (raw, stream) = Raw::joined(&adapters::joined_by_memory(), |_| {});
    raw.link.disconnect(LONG).unwrap();
    let mut room = [0; 1];
    assert_eq!(stream.recv(&mut room, Reading::SOME, PATIENCE), Err(SocketError::Reset));
    assert_eq!(SocketError::Reset.errno(), 104);
}

#[test]
fn a_peer_that_goes_before_it_stands_is_an_error() {
    let pair = adapters::joined_by_memory();
    let (listener, to) = listening(&pair[1], StreamOptions::default());
    let end = Connection::new(&pair[0]).unwrap();
    let region = pair[0].register(&Buffer::new(4096)).unwrap();
    let said = hello(8, &region, &region, 2048);
    let events = EventChannel::new().unwrap();
    let asking = CmId::new(&pair[0], &events, PortSpace::Tcp);
    asking.resolve_address(None, to, LONG).unwrap();
    assert!(matches!(events.next(LONG).unwrap().kind, CmEventKind::AddressResolved));
    let parameters = CmParameters { private_data: &said, ..CmParameters::of(end.queue_pair()) };
    asking.connect(&parameters).unwrap();
    let answering = listener.accept(PATIENCE).unwrap();
    assert!(matches!(events.next(LONG).unwrap().kind, CmEventKind::ConnectResponse(_)));
    drop(asking);
    let mut room = [0; 1];
    assert_eq!(answering.recv(&mut room, Reading::SOME, PATIENCE), Err(SocketError::Reset));
}

/// What was shut down before the peer was ready it hears of when it is.
#[test]
fn a_peer_that_is_never_ready_holds_nobody_up() {
    let pair = adapters::joined_by_memory();
    let (listener, to) = listening(&pair[1], StreamOptions::default());
    let asking = connecting(&pair[0], to, StreamOptions::default());
    while !listener.is_ready() {
        asking.readiness();
        thread::yield_now();
    }
    let answering = listener.accept(PATIENCE).unwrap();
    assert_eq!(answering.shutdown(How::Write, PATIENCE), Ok(()));
    // It would have been given up long before.
    asking.wait_connected(PATIENCE).unwrap();
    thread::scope(|scope| {
        let mut room = [0; 1];
        let reads = scope.spawn(|| answering.recv(&mut [0; 1], Reading::SOME, PATIENCE));
        assert_eq!(asking.recv(&mut room, Reading::SOME, PATIENCE), Ok(0));
        assert_eq!(asking.send(b"x", PATIENCE), Ok(1));
        assert_eq!(reads.join().unwrap(), Ok(1));
    });
}

fn breaks_the_rules(say: impl FnOnce(&mut Raw)) -> SocketError {
    let (mut raw, stream) = Raw::joined(&adapters::joined_by_memory(), |_| {});
    say(&mut raw);
    let mut room = [0; 4];
    loop {
        match stream.recv(&mut room, Reading::SOME, PATIENCE) {
            Ok(read) => assert_ne!(read, 0),
            Err(error) => {
                assert_eq!(error.errno(), 104, "{error}");
                raw.link.wait_disconnected(LONG).unwrap();
                return error;
            }
        }
    }
}

#[test]
fn a_peer_that_breaks_the_rules_is_parted_from() {
    let is_violation = |error| matches!(error, SocketError::Violation(_));
    // More bytes than it was told of, messages without a meaning, memory for which there is no
    // place.
    assert!(is_violation(breaks_the_rules(|raw| raw.say(0, 0x1fff_ffff))));
    assert!(is_violation(breaks_the_rules(|raw| raw.say(0, 1 << 29))));
    assert!(is_violation(breaks_the_rules(|raw| raw.say(0, 0xc000_0000))));
}

#[test]
fn a_peer_that_writes_where_it_may_not_is_parted_from() {
    let ring = u64::from(StreamOptions::default().receive_buffer);
    for offset in [ring, ring - 3, u64::MAX, 1 << 63] {
        let (mut raw, stream) = Raw::joined(&adapters::joined_by_memory(), |_| {});
        raw.say_at(offset, 4, 4);
        let mut room = [0; 4];
        let error = stream.recv(&mut room, Reading::SOME, PATIENCE).unwrap_err();
        assert!(matches!(error, SocketError::Failed(_)), "{error}");
        assert_eq!(error.errno(), 104, "{error}");
    }
}

#[test]
fn a_peer_whose_ring_is_not_its_own_is_parted_from() {
    let (_raw, stream) =
        Raw::joined(&adapters::joined_by_memory(), |hello| hello[24..32].fill(0xff));
    // Its adapter refuses.
    assert_eq!(stream.send(b"to nowhere", PATIENCE), Ok(10));
    let mut room = [0; 1];
    let error = stream.recv(&mut room, Reading::SOME, PATIENCE).unwrap_err();
    assert!(matches!(error, SocketError::Failed(_)), "{error}");
    assert_eq!(error.errno(), 104);
    assert_eq!(stream.take_error(), None, "the program knows it");
}

#[test]
fn who_is_no_rsocket_is_refused_and_the_next_is_taken() {
    let pair = adapters::joined_by_memory();
    let (listener, to) = listening(&pair[1], StreamOptions::default());
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept(PATIENCE).unwrap());
        let end = Connection::new(&pair[0]).unwrap();
        let qp = end.queue_pair();
        let parameters = CmParameters { private_data: b"hello?", ..CmParameters::of(qp) };
        let asked = cm::connect(qp, to, &parameters, CmOptions::default(), LONG);
        assert_eq!(asked.err().unwrap().errno(), 111);
        let stream = connecting(&pair[0], to, StreamOptions::default());
        stream.wait_connected(PATIENCE).unwrap();
        accepted.join().unwrap();
    });
}

#[test]
fn an_answer_that_is_none_of_an_rsocket_is_an_error() {
    let pair = adapters::joined_by_memory();
    let listener = Listener::bind(&pair[1], address_of(&pair[1]), 4).unwrap();
    let asking = connecting(&pair[0], listener.local_address().unwrap(), StreamOptions::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            let request = listener.next(LONG).unwrap();
            let end = Connection::new(&pair[1]).unwrap();
            let refused =
                request.accept(end.queue_pair(), &CmParameters::of(end.queue_pair()), LONG);
            assert!(refused.is_err());
        });
        let error = asking.wait_connected(PATIENCE).unwrap_err();
        assert!(matches!(error, SocketError::Violation(_)), "{error}");
    });
}

/// A port that the first adapter would give next, and the second one has no more.
#[test]
fn any_port_is_one_that_is_free_on_all_adapters() {
    let [one, other] = adapters::joined_by_memory();
    let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let bound = |contexts: &[&Context], to: SocketAddr| {
        let mut socket = Socket::new(contexts.iter().copied()).unwrap();
        socket.bind(to, false).map(|()| socket)
    };
    let last = bound(&[&one], any).unwrap().local_address().unwrap().port();
    let behind = (1..=3).map(|more| 32768 + (last - 32768 + more) % (61000 - 32768));
    let taken: Vec<_> = behind.map(|port| bound(&[&other], (any.ip(), port).into())).collect();
    assert!(taken.iter().all(Result::is_ok));
    let both = bound(&[&one, &other], any).unwrap().local_address().unwrap();
    assert!(taken.iter().flatten().all(|it| it.local_address() != Some(both)), "{both}");
}
