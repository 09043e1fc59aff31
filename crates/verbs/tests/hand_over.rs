//! Every order in which an application and its adapter's thread may hand the engine to each other:
//! nothing that is posted is left behind by a thread that sleeps, and no sleep lasts for ever.
//!
//! The model follows `src/engine.rs` step by step, under the same names, without a port and without
//! time: no sleep ends by itself, so that a call which is lost stands still for ever. The bell is
//! the file that ports use. All words between the threads are sequentially consistent there, as all
//! are in this model; those of the bell, which are not, have a model of their own in `roxe-net`.
//! The rings of AF_XDP are libxdp's and the kernel's.

#[path = "../../net/src/doorbell/bell.rs"]
#[allow(dead_code, reason = "what only spins is not modelled")]
mod bell;

/// An event without a kernel.
mod kernel {
    pub(super) use shuttle::sync::atomic::{AtomicU8, Ordering};
    use shuttle::sync::{Condvar, Mutex};

    #[derive(Debug)]
    pub(super) struct Event {
        is_set: Mutex<bool>,
        changed: Condvar,
    }

    impl Event {
        pub(super) fn new() -> Self {
            Self { is_set: Mutex::new(false), changed: Condvar::new() }
        }

        pub(super) fn set(&self) {
            *self.is_set.lock().unwrap() = true;
            self.changed.notify_all();
        }

        pub(super) fn clear(&self) {
            *self.is_set.lock().unwrap() = false;
        }

        /// As `poll` without a timeout.
        pub(super) fn wait(&self) {
            let mut is_set = self.is_set.lock().unwrap();
            while !*is_set {
                is_set = self.changed.wait(is_set).unwrap();
            }
        }
    }
}

use bell::Bell;
use kernel::Event;
use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::thread::{self, Thread};

#[derive(Default)]
struct Driver {
    /// What is posted, or has arrived, and is not carried out.
    posted: u32,
    /// The engine's thread sleeps until somebody ends that.
    alarm: bool,
}

impl Driver {
    fn is_alarm_late(&self) -> bool {
        self.alarm && self.posted > 0
    }
}

struct Engine {
    driver: Mutex<Driver>,
    driven: Condvar,
    bell: Bell,
    thread: Mutex<Option<Thread>>,
    moves: AtomicU64,
    waiting: AtomicU32,
    rests_long: AtomicBool,
    closing: AtomicBool,
}

impl Engine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            driver: Mutex::default(),
            driven: Condvar::new(),
            bell: Bell::new(Event::new()),
            thread: Mutex::new(None),
            moves: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            rests_long: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        })
    }

    fn drive(&self, driver: &mut Driver) {
        driver.posted = 0;
        self.driven.notify_all();
    }

    fn with(&self, call: impl FnOnce(&mut Driver)) {
        let mut driver = self.driver.lock().unwrap();
        call(&mut driver);
        if driver.is_alarm_late() {
            driver.alarm = false;
            let rests = self.rests_long.load(Ordering::SeqCst);
            drop(driver);
            if rests { self.unpark() } else { self.bell.ring() }
        }
    }

    /// Posts what the application does not carry out itself.
    fn post(&self) {
        self.with(|driver| driver.posted += 1);
    }

    /// A packet arrives: who sleeps beside the port sees it, who rests does not.
    fn arrive(&self) {
        self.driver.lock().unwrap().posted += 1;
        self.bell.event.set();
    }

    fn moved(&self) {
        self.moves.store(self.moves.load(Ordering::SeqCst).wrapping_add(1), Ordering::SeqCst);
    }

    /// Waits beside the port, and moves the engine meanwhile.
    fn wait_for(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.moved();
        self.with(|driver| self.drive(driver));
        self.end_wait();
    }

    fn end_wait(&self) {
        self.moved();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if self.rests_long.load(Ordering::SeqCst) {
            self.unpark();
        } else {
            self.with(|_| ());
        }
    }

    /// Looks for what arrives, and takes it before anybody who sleeps beside the port has seen it.
    /// What that asks for is left to be sent.
    fn look_for(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.moved();
        self.driver.lock().unwrap().posted += 1;
        self.end_wait();
    }

    /// The same by an application that polls.
    fn poll(&self) {
        self.moved();
        self.post();
    }

    /// Until all is carried out. If nobody does, the checker says so.
    fn wait_until_driven(&self) {
        let mut driver = self.driver.lock().unwrap();
        while driver.posted > 0 {
            driver = self.driven.wait(driver).unwrap();
        }
    }

    fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.rouse();
    }

    fn rouse(&self) {
        self.bell.ring();
        self.unpark();
    }

    fn unpark(&self) {
        if let Some(thread) = &*self.thread.lock().unwrap() {
            thread.unpark();
        }
    }

    /// The engine's thread.
    fn run(&self) {
        *self.thread.lock().unwrap() = Some(thread::current());
        let mut moves = 0;
        while !self.closing.load(Ordering::SeqCst) {
            let moved = self.moves.load(Ordering::SeqCst);
            if moved != std::mem::replace(&mut moves, moved) {
                continue; // A rest that ends by itself.
            }
            let mut driver = self.driver.lock().unwrap();
            driver.alarm = false;
            self.drive(&mut driver);
            if self.waiting.load(Ordering::SeqCst) != 0 {
                drop(driver);
                self.rest();
                continue;
            }
            driver.alarm = true;
            drop(driver);
            if self.bell.lie_down() {
                self.bell.event.wait();
                self.bell.get_up(true);
            }
        }
    }

    /// A long one, which ends when somebody ends it.
    fn rest(&self) {
        let mut driver = self.driver.lock().unwrap();
        if driver.posted > 0 {
            return; // It cannot settle.
        }
        driver.alarm = true;
        self.rests_long.store(true, Ordering::SeqCst);
        drop(driver);
        if self.waiting.load(Ordering::SeqCst) != 0 {
            thread::park();
        }
        self.rests_long.store(false, Ordering::SeqCst);
    }
}

/// Plays what applications do beside the engine's thread, in many orders.
fn play(applications: &'static [fn(&Engine)]) {
    let play = move || {
        let engine = Engine::new();
        let shared = Arc::clone(&engine);
        let thread = thread::spawn(move || shared.run());
        let applications: Vec<_> = applications
            .iter()
            .map(|application| {
                let engine = Arc::clone(&engine);
                thread::spawn(move || application(&engine))
            })
            .collect();
        applications.into_iter().for_each(|it| it.join().unwrap());
        engine.wait_until_driven();
        // Nobody waits any more, so that what arrives is for the thread.
        engine.arrive();
        engine.wait_until_driven();
        engine.close();
        thread.join().unwrap();
    };
    shuttle::check_random(play, ORDERS);
    shuttle::check_pct(play, ORDERS, 3);
}

const ORDERS: usize = 2_000;

#[test]
fn what_is_posted_while_the_thread_lies_down_is_carried_out() {
    play(&[Engine::post]);
    play(&[|engine| (0..3).for_each(|_| engine.post())]);
    play(&[Engine::post, Engine::post]);
}

#[test]
fn a_thread_that_rests_takes_over_when_nobody_waits_any_more() {
    play(&[Engine::wait_for, Engine::post]);
    play(&[
        |engine| {
            engine.wait_for();
            engine.post();
        },
        Engine::wait_for,
    ]);
}

#[test]
fn what_is_left_by_whoever_takes_an_arrival_away_is_carried_out() {
    play(&[Engine::look_for]);
    play(&[Engine::poll]);
    play(&[Engine::look_for, Engine::poll]);
    play(&[Engine::wait_for, Engine::poll]);
}

/// However it sleeps when it is told to end.
#[test]
fn the_thread_ends_when_the_adapter_is_closed() {
    play(&[]);
    play(&[Engine::wait_for]);
}
