//! What becomes of an adapter when something happens around it: threads that panic, processes that
//! are started, interfaces that change.

mod adapters;
#[cfg(feature = "af_xdp")]
#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use adapters::joined_by_memory;
use roxe_verbs::{Buffer, Connection, Context, Mtu, Op, QpState, Wait};

const WAIT: Wait = Wait(Duration::from_secs(30));

fn connected([one, other]: &[Context; 2]) -> [Connection; 2] {
    let [mut a, mut b] = [one, other].map(|context| Connection::new(context).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    [a, b]
}

/// Writes bytes that are another time others, and reads them back.
fn write_and_read(from: &mut Connection, one: &Context, other: &Context, len: u32, turn: u8) {
    let (ours, theirs) = (Buffer::new(2 * len as usize), Buffer::new(len as usize));
    let (source, target) = (one.register(&ours).unwrap(), other.register(&theirs).unwrap());
    let (va, r_key) = (target.address(), target.r_key());
    let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8 ^ turn).collect();
    ours.write(0, &data);
    from.post(1, Op::Write { va, r_key }, &source, 0, len).unwrap();
    from.post(2, Op::Read { va, r_key }, &source, len.into(), len).unwrap();
    for wr_id in [1, 2] {
        assert_eq!(from.wait(WAIT).unwrap_or_else(|error| panic!("{error}")).wr_id, wr_id);
    }
    let mut back = vec![0; len as usize];
    ours.read(len as usize, &mut back);
    assert!(back == data);
}

/// Whoever holds something of an adapter keeps it, whatever else is gone; with the last it closes.
#[test]
fn an_adapter_closes_with_the_last_that_is_held_of_it() {
    const KINDS: usize = 8;
    for last in 0..KINDS {
        let [one, other] = joined_by_memory();
        let peer = Connection::new(&other).unwrap();
        let channel = one.create_comp_channel().unwrap();
        let cq = one.create_cq_on(&channel, 16).unwrap();
        let mut connection = Connection::new(&one).unwrap();
        connection.connect(&peer.endpoint().unwrap()).unwrap();
        let pd = one.alloc_pd().unwrap();
        let srq = pd.create_srq(4, 1).unwrap();
        let region = one.register(&Buffer::new(64)).unwrap();
        let qp = connection.queue_pair().clone();
        let mut held: Vec<Box<dyn std::any::Any + Send>> = vec![
            Box::new(one),
            Box::new(channel),
            Box::new(cq),
            Box::new(connection),
            Box::new(pd),
            Box::new(srq),
            Box::new(region),
            Box::new(qp),
        ];
        assert_eq!(held.len(), KINDS);
        let kept = held.swap_remove(last);
        drop(held);
        assert_eq!(open_here(), 2, "{last} is held");
        // Another thread may be the one that closes it.
        thread::spawn(move || drop(kept)).join().unwrap();
        drop((peer, other));
        assert_eq!(open_here(), 0, "{last} is gone");
    }
}

/// How many adapters of this process are open.
fn open_here() -> usize {
    let own = format!("roxe/{}/", std::process::id());
    let running = roxe_verbs::status::running().unwrap();
    running.iter().filter(|it| it.endpoint.starts_with(&own)).count()
}

/// A thread that panics takes along what it holds, and nothing else.
#[test]
fn a_panic_in_a_thread_of_the_application_is_its_own() {
    let contexts = joined_by_memory();
    let [one, other] = &contexts;
    let before = [one.resources(), other.resources()];
    let going = AtomicBool::new(true);
    thread::scope(|scope| {
        let bystander = scope.spawn(|| {
            let [mut a, b] = connected(&contexts);
            let mut turns = 0_u32;
            while going.load(Ordering::Relaxed) || turns == 0 {
                write_and_read(&mut a, one, other, 50_000, turns as u8);
                turns += 1;
            }
            assert_eq!(b.queue_pair().query().state, QpState::Rts);
            turns
        });
        for _ in 0..20 {
            let doomed = scope.spawn(|| {
                let [mut a, _b] = connected(&contexts);
                let memory = one.register(&Buffer::new(1 << 20)).unwrap();
                let target = other.register(&Buffer::new(1 << 20)).unwrap();
                let write = Op::Write { va: target.address(), r_key: target.r_key() };
                for wr_id in 0..8 {
                    a.post(wr_id, write, &memory, 0, 1 << 20).unwrap();
                }
                panic!("as it should");
            });
            assert!(doomed.join().is_err());
        }
        going.store(false, Ordering::Relaxed);
        assert!(bystander.join().unwrap() > 0);
    });
    assert_eq!([one.resources(), other.resources()], before, "all that they held is gone");
    // A panic with the engine in hand would be one of ours: memory that is asked for out of bounds
    // is the application's.
    let mistake =
        thread::scope(|scope| scope.spawn(|| Buffer::new(8).write(1, &[0; 8])).join().is_err());
    assert!(mistake);
    let [mut a, _b] = connected(&contexts);
    write_and_read(&mut a, one, other, 1000, 7);
}

/// Who looks at an adapter, or records it, does not keep it open, and is told that it has closed.
#[test]
fn who_looks_at_an_adapter_does_not_keep_it() {
    use std::io::Read as _;
    let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
    let own = format!("roxe/{}/", std::process::id());
    let running = roxe_verbs::status::running().unwrap();
    let running = running.iter().find(|it| it.endpoint.starts_with(&own)).unwrap();
    let [mut looks, records] = [(); 2].map(|()| running.connect().unwrap());
    assert_eq!(looks.info().unwrap().active_mtu, 1024);
    let mut recorded = records.record(1 << 16).unwrap();
    let closes = thread::spawn(move || drop((one, other)));
    closes.join().unwrap();
    assert_eq!(open_here(), 0);
    assert!(looks.counters().is_err(), "it has closed");
    // What was recorded is there, and then it ends.
    let mut bytes = Vec::new();
    recorded.read_to_end(&mut bytes).unwrap();
    assert_eq!(&bytes[..4], 0x0a0d_0d0a_u32.to_ne_bytes());
}

#[cfg(feature = "af_xdp")]
mod interfaces {
    use std::process::{Command, Stdio};

    use super::namespace::{Cable, Namespace, is_root};
    use super::*;
    use roxe_verbs::af_xdp::Settings;
    use roxe_verbs::{AckTimeout, AsyncEvent, CompletionStatus, ConnectOptions, Error, PortState};

    fn open(namespace: &Namespace, interface: &str) -> Context {
        namespace
            .run(|| Context::open_xdp(interface, Settings::default()))
            .unwrap_or_else(|error| panic!("{interface}: {error}"))
    }

    fn open_both(cable: &Cable) -> [Context; 2] {
        [open(&cable.a, "va"), open(&cable.b, "vb")]
    }

    fn connect(
        cable: &Cable,
        [one, other]: &[Context; 2],
        options: ConnectOptions,
    ) -> [Connection; 2] {
        let [a, b] = [one, other].map(|context| Connection::new(context).unwrap());
        let [ours, theirs] = [&a, &b].map(|it| it.endpoint().unwrap());
        cable.a.run(|| a.queue_pair().connect(&theirs, &options)).unwrap();
        cable.b.run(|| b.queue_pair().connect(&ours, &options)).unwrap();
        [a, b]
    }

    fn expect(context: &Context, event: AsyncEvent) {
        while context.async_events().next(WAIT.0).expect("an event") != event {}
    }

    /// What is on its way is sent again when the interface is up again.
    #[test]
    fn traffic_goes_on_when_an_interface_was_down() {
        if !is_root() {
            return;
        }
        let cable = Cable::new(4200);
        let contexts = open_both(&cable);
        let [one, other] = &contexts;
        // A timeout of half a second, seven times: time enough to switch it off and on.
        let timeout = AckTimeout::new(17).unwrap();
        let options = ConnectOptions { timeout, ..ConnectOptions::default() };
        let [mut a, b] = connect(&cable, &contexts, options);
        for (namespace, interface, own, peer) in
            [(&cable.a, "va", one, other), (&cable.b, "vb", other, one)]
        {
            write_and_read(&mut a, one, other, 100_000, 1);
            namespace.ip(&format!("link set {interface} down"));
            expect(own, AsyncEvent::PortError);
            assert_eq!(own.query_port().state, PortState::Down);
            // Whose cable ends in an interface that is off has no carrier.
            expect(peer, AsyncEvent::PortError);
            thread::scope(|scope| {
                let a = &mut a;
                let going = scope.spawn(move || write_and_read(a, one, other, 100_000, 2));
                namespace.ip(&format!("link set {interface} up"));
                going.join().unwrap();
            });
            for it in [own, peer] {
                expect(it, AsyncEvent::PortActive);
            }
            write_and_read(&mut a, one, other, 100_000, 3);
            assert_eq!(b.queue_pair().query().state, QpState::Rts);
        }
    }

    /// One that stays down ends what waits for an answer, and nothing else: it works when it is up
    /// again.
    #[test]
    fn an_interface_that_stays_down_ends_what_waits() {
        if !is_root() {
            return;
        }
        let cable = Cable::new(1500);
        let contexts = open_both(&cable);
        let [one, other] = &contexts;
        let timeout = AckTimeout::new(10).unwrap();
        let options = ConnectOptions { timeout, ..ConnectOptions::default() };
        let [mut a, b] = connect(&cable, &contexts, options);
        let memory = one.register(&Buffer::new(8)).unwrap();
        cable.a.ip("link set va down");
        a.post(1, Op::Send, &memory, 0, 8).unwrap();
        let error = a.wait(WAIT).unwrap_err();
        let Error::Completion { status: CompletionStatus::RetryExceeded, why, .. } = &error else {
            panic!("{error}");
        };
        // That it is down may be known only later, to who asks then.
        assert!(why.contains("retry exceeded: "), "{why}");
        expect(one, AsyncEvent::PortError);
        assert!(a.why().starts_with("the interface va is down: retry exceeded: "), "{}", a.why());
        assert_eq!(b.queue_pair().query().state, QpState::Rts, "it waits for nothing");
        cable.a.ip("link set va up");
        let [mut a, _b] = connect(&cable, &contexts, options);
        write_and_read(&mut a, one, other, 5000, 1);
    }

    /// An adapter keeps the path MTU that it began with; what is too long for the interface then is
    /// lost, as in a network with a narrow place, and what fits goes on.
    #[test]
    fn an_interface_with_a_smaller_mtu_loses_long_packets_only() {
        if !is_root() {
            return;
        }
        let cable = Cable::new(4200);
        let contexts = open_both(&cable);
        let [one, other] = &contexts;
        assert_eq!(one.path_mtu(), Mtu::B4096);
        let timeout = AckTimeout::new(12).unwrap();
        let large = ConnectOptions { timeout, ..ConnectOptions::default() };
        let small = ConnectOptions { path_mtu: Mtu::B1024, ..large };
        let [mut a, _b] = connect(&cable, &contexts, large);
        let [mut c, _d] = connect(&cable, &contexts, small);
        write_and_read(&mut a, one, other, 100_000, 1);
        write_and_read(&mut c, one, other, 100_000, 2);
        for (end, name) in [(&cable.a, "va"), (&cable.b, "vb")] {
            end.ip(&format!("link set {name} mtu 1500"));
        }
        write_and_read(&mut c, one, other, 100_000, 3);
        write_and_read(&mut a, one, other, 1000, 4);
        let memory = one.register(&Buffer::new(100_000)).unwrap();
        a.post(1, Op::Send, &memory, 0, 100_000).unwrap();
        let error = a.wait(WAIT).unwrap_err();
        assert!(
            matches!(&error, Error::Completion { status: CompletionStatus::RetryExceeded, .. }),
            "{error}"
        );
        // One that is opened now knows.
        for (end, name) in [(&cable.a, "va"), (&cable.b, "vb")] {
            end.ip(&format!("link set {name} mtu 4200"));
        }
        let [mut a, _b] = connect(&cable, &contexts, large);
        write_and_read(&mut a, one, other, 100_000, 5);
        write_and_read(&mut c, one, other, 100_000, 6);
    }

    /// Requests on their way when the interface is deleted are all flushed, on both threads that
    /// may wait for them.
    #[test]
    fn an_interface_that_is_deleted_under_traffic_ends_it() {
        if !is_root() {
            return;
        }
        for sleeps in [false, true] {
            let cable = Cable::new(4200);
            let contexts = open_both(&cable);
            let [one, other] = &contexts;
            // It is known to be gone before the peer is given up.
            let timeout = AckTimeout::new(20).unwrap();
            let options = ConnectOptions { timeout, ..ConnectOptions::default() };
            let [mut a, _b] = connect(&cable, &contexts, options);
            let memory = one.register(&Buffer::new(1 << 20)).unwrap();
            let target = other.register(&Buffer::new(1 << 20)).unwrap();
            let write = Op::Write { va: target.address(), r_key: target.r_key() };
            let (mut posted, mut ended) = (0_u64, 0);
            while posted < 64 {
                a.post(posted, write, &memory, 0, 1 << 20).unwrap();
                posted += 1;
            }
            cable.a.ip("link delete va");
            if sleeps {
                expect(one, AsyncEvent::DeviceFatal);
            }
            let mut why = String::new();
            while ended < posted {
                match a.wait(WAIT) {
                    Ok(_) => {}
                    Err(Error::Completion {
                        status: CompletionStatus::Flushed, why: said, ..
                    }) => {
                        why = said;
                    }
                    Err(error) => panic!("{error}"),
                }
                ended += 1;
            }
            assert!(why.starts_with("the interface va is gone: "), "{why}");
            if !sleeps {
                expect(one, AsyncEvent::DeviceFatal);
            }
            assert!(a.post(0, write, &memory, 0, 8).is_ok(), "it is flushed too");
            assert!(a.wait(WAIT).is_err());
        }
    }

    /// A program that the application starts has nothing of the adapter.
    #[test]
    fn a_program_that_was_started_does_not_keep_the_interface() {
        if !is_root() {
            return;
        }
        let cable = Cable::new(1500);
        let [one, other] = open_both(&cable);
        let sleeper = || Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = sleeper().unwrap();
        let left = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
        let open_there = left.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let ours: Vec<_> = open_there
            .map(|path| path.display().to_string())
            .filter(|path| path.starts_with("anon_inode") || path.starts_with("socket"))
            .collect();
        drop((one, other));
        assert!(!cable.a.ip("link show va").contains("xdp"));
        let contexts = open_both(&cable);
        let [mut a, _b] = connect(&cable, &contexts, ConnectOptions::default());
        write_and_read(&mut a, &contexts[0], &contexts[1], 5000, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ours, Vec::<String>::new(), "they are closed when a program is started");
    }

    /// A child that was forked and starts no other program has the descriptors too: the parent goes
    /// on as before, also where it writes what both had, and the interface is free when both have
    /// let go of it.
    #[test]
    #[allow(unsafe_code, reason = "forks")]
    fn a_forked_child_does_not_disturb_its_parent() {
        if !is_root() {
            return;
        }
        let cable = Cable::new(4200);
        let contexts = open_both(&cable);
        let [one, other] = &contexts;
        let [mut a, b] = connect(&cable, &contexts, ConnectOptions::default());
        write_and_read(&mut a, one, other, 100_000, 0);
        for turn in 1..20 {
            // SAFETY: the child does nothing but what a signal handler may do, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above. All but every fifth end at once.
                unsafe {
                    if turn % 5 == 0 {
                        libc::pause();
                    }
                    libc::_exit(0);
                }
            }
            let child = rustix::process::Pid::from_raw(child).expect("it forks");
            write_and_read(&mut a, one, other, 1_000_000, turn);
            if turn % 5 == 0 {
                rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
            }
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        }
        // SAFETY: as above.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::pause();
                libc::_exit(0);
            }
        }
        let child = rustix::process::Pid::from_raw(child).expect("it forks");
        drop((a, b));
        drop(contexts);
        assert!(cable.a.ip("link show va").contains("xdp"), "the child has it");
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
        rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        assert!(!cable.a.ip("link show va").contains("xdp"));
        let contexts = open_both(&cable);
        let [mut a, _b] = connect(&cable, &contexts, ConnectOptions::default());
        write_and_read(&mut a, &contexts[0], &contexts[1], 5000, 1);
    }
}
