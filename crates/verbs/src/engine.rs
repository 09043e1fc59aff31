//! The engine in the hands of many: calls of the application, and the thread that makes progress
//! when the application does not.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant as Clock};

use roxe_net::neighbor::Interface;
use roxe_net::{Wake, Waker};

use crate::driver::Driver;
use crate::events::AsyncEvent;

/// What the application and the engine's thread share.
pub(crate) struct Engine {
    driver: Mutex<Driver>,
    waker: Waker,
    /// How many callers want the driver: the engine's thread then lets go of it.
    wanted: AtomicU32,
    /// Whether the engine's thread sleeps in the port, driver in hand.
    asleep: AtomicBool,
    /// The application polled since the engine's thread looked last.
    polled: AtomicBool,
    closing: AtomicBool,
    /// The interface is on, and there is something at the other end.
    active: AtomicBool,
    /// The interface is gone.
    gone: AtomicBool,
}

/// Says what an interface is like when it has changed, or may have. Never waits long.
pub(crate) type Changes = Box<dyn FnMut() -> Option<Interface> + Send>;

impl Engine {
    pub(crate) fn new(driver: Driver, active: bool) -> Self {
        Self {
            waker: driver.port.waker(),
            driver: Mutex::new(driver),
            wanted: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            active: AtomicBool::new(active),
            gone: AtomicBool::new(false),
        }
    }

    /// Runs a call with the engine in hand.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            self.waker.wake();
        }
        let mut driver = self.lock();
        self.wanted.fetch_sub(1, Ordering::SeqCst);
        let result = call(&mut driver);
        driver.route_events();
        result
    }

    /// Runs a call of an application that polls: the engine's thread keeps out of its way.
    pub(crate) fn poll<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        self.polled.store(true, Ordering::Relaxed);
        self.with(|driver| {
            driver.drive();
            call(driver)
        })
    }

    /// Whether the interface is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether packets can come and go.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire) && !self.is_gone()
    }

    /// Has the engine's thread end.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// The engine's thread.
    pub(crate) fn run(&self, mut changes: Option<Changes>) {
        let mut idle_since = Clock::now();
        let mut looked = Clock::now();
        while !self.closing.load(Ordering::SeqCst) {
            if looked.elapsed() > LONGEST_SLEEP {
                looked = Clock::now();
                self.look(&mut changes);
            }
            if self.polled.swap(false, Ordering::Relaxed) {
                thread::park_timeout(TAKE_OVER);
                continue;
            }
            if self.is_gone() {
                thread::park_timeout(LONGEST_SLEEP);
                continue;
            }
            let mut driver = self.lock();
            let moved = driver.drive();
            driver.route_events();
            if moved {
                idle_since = Clock::now();
            } else if idle_since.elapsed() > TAKE_OVER {
                self.asleep.store(true, Ordering::SeqCst);
                // Whoever wanted the driver before it saw `asleep` does not wake us: look once.
                if self.wanted.load(Ordering::SeqCst) == 0
                    && driver.sleep(LONGEST_SLEEP) == Wake::Gone
                {
                    self.end(&mut driver);
                }
                self.asleep.store(false, Ordering::SeqCst);
            }
            drop(driver);
            while self.wanted.load(Ordering::SeqCst) != 0 && !self.closing.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
    }

    /// Looks at what no packet tells of.
    fn look(&self, changes: &mut Option<Changes>) {
        let interface = changes.as_mut().and_then(|changes| changes());
        let mut driver = self.lock();
        // While somebody polls, nobody waits in the port, and so nobody hears that it is gone.
        if driver.port.wait(Duration::ZERO) == Wake::Gone {
            self.end(&mut driver);
        }
        if let Some(interface) = interface {
            let addresses = interface.addresses.iter().map(|assigned| assigned.address);
            if driver.set_addresses(addresses) {
                driver.router.tell(AsyncEvent::GidChange);
            }
            let active = interface.is_up && interface.has_carrier;
            if active != self.active.swap(active, Ordering::AcqRel) {
                let event = if active { AsyncEvent::PortActive } else { AsyncEvent::PortError };
                driver.router.tell(event);
            }
        }
    }

    /// The interface is gone: so that nobody waits for what cannot come, all ends.
    fn end(&self, driver: &mut Driver) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            driver.end_queue_pairs();
            driver.route_events();
            driver.router.tell(AsyncEvent::DeviceFatal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Driver> {
        // A panic while the engine was in hand ended the application's call, not the engine.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the application may not have polled before the engine's thread takes over.
const TAKE_OVER: Duration = Duration::from_micros(50);

/// The longest sleep of the engine's thread.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
