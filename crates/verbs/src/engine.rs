//! The engine in the hands of many: calls of the application, and the thread that makes progress
//! when the application does not.
//!
//! Whoever has the lock has the engine, and nobody sleeps with it: a call of the application never
//! waits for more than another call. The thread sleeps beside the port, by a
//! [`Sleeper`](roxe_net::Sleeper), until something arrives; a call that leaves something to be done
//! earlier than the thread wanted to be awake wakes it.
//!
//! An application that polls, or waits on a completion channel, moves the engine itself. Meanwhile
//! the thread rests, so that what arrives wakes no second thread and nobody competes for the core.
//! Every now and then it looks whether the application still does so; if not, it takes over: after
//! 50 µs, or up to a millisecond where the application has moved the engine for longer than that
//! and not asked for an event, as who means to sleep does, or where it waits on channels again and
//! again, each time for as long as that. Each look takes the core that the two may share from the
//! application for some microseconds. Where an event was the last that it asked for, it sleeps, and
//! the thread takes over at once.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant as Clock};

use roxe_device::{CqId, QueuePairStory};
use roxe_net::{Sleeper, Wake, Waker};
use roxe_transport::ending::{Cause, RequestFailure};
use roxe_transport::work::Completion;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::changes::{Change, Changes};
use crate::driver::Driver;
use crate::events::AsyncEvent;
use crate::stalled::{Stalled, Watch};

/// What the application and the engine's thread share.
pub(crate) struct Engine {
    driver: Mutex<Driver>,
    waker: Waker,
    sleeper: Sleeper,
    thread: OnceLock<Thread>,
    /// How many callers want the driver: the engine's thread then lets go of it.
    wanted: AtomicU32,
    /// How often the application moved the engine.
    moves: AtomicU64,
    /// Threads of the application that wait beside the port.
    waiting: AtomicU32,
    /// Waits in a row in which what was waited for did not come while they looked for it.
    vain: AtomicU32,
    /// The engine's thread has seen nothing change for a while, and rests for long. It says so with
    /// the driver in hand: until that alarm it is parked, and sleeps beside the port at others.
    rests_long: AtomicBool,
    /// The application asked for an event since the engine's thread looked: it may sleep soon.
    armed: AtomicBool,
    /// That was the last that it did, but for looks that found nothing: it probably sleeps.
    sleeps: AtomicBool,
    /// The application waited beside the port since it asked for an event last.
    waited: AtomicBool,
    /// The engine's thread trusts the application to go on, and rests longer than it else would.
    trusts: AtomicBool,
    /// The port's descriptor has an error, which the engine's thread is to look at.
    troubled: AtomicBool,
    closing: AtomicBool,
    /// The interface is on, and there is something at the other end.
    active: AtomicBool,
    /// The interface is gone.
    gone: AtomicBool,
    /// Its name, if there is one.
    interface: Option<String>,
    /// Who is told of connections that stand still, and what was seen of them.
    witness: Mutex<Option<(Witness, Watch)>>,
}

/// Whom connections are told that stand still.
pub(crate) type Witness = Box<dyn Fn(Stalled) + Send>;

impl Engine {
    pub(crate) fn new(driver: Driver, active: bool, interface: Option<String>) -> io::Result<Self> {
        Ok(Self {
            waker: driver.port.waker(),
            sleeper: driver.port.sleeper()?,
            thread: OnceLock::new(),
            driver: Mutex::new(driver),
            wanted: AtomicU32::new(0),
            moves: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
            vain: AtomicU32::new(0),
            rests_long: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            waited: AtomicBool::new(false),
            trusts: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            active: AtomicBool::new(active),
            gone: AtomicBool::new(false),
            interface,
            witness: Mutex::default(),
        })
    }

    /// From now on this one is told of connections that stand still.
    pub(crate) fn set_witness(&self, witness: Witness) {
        *self.witness() = Some((witness, Watch::default()));
    }

    fn witness(&self) -> MutexGuard<'_, Option<(Witness, Watch)>> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call with the engine in hand.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        let mut driver = self.take();
        let result = call(&mut driver);
        driver.route_events();
        if driver.is_alarm_late() {
            driver.alarm = None;
            let rests = self.rests_long.load(Ordering::SeqCst);
            drop(driver);
            // One call, the one that ends this sleep: the other would end the next before it began,
            // and the thread would take over from an application that goes on.
            if rests { self.unpark() } else { self.waker.wake() }
        }
        result
    }

    /// Takes completions for an application that polls: the engine's thread keeps out of its way.
    /// Says how many.
    pub(crate) fn poll(&self, cq: CqId, room: &mut [Completion]) -> usize {
        self.moved();
        let found = self.with(|driver| driver.poll(cq, room));
        if found > 0 {
            self.goes_on();
        }
        found
    }

    /// Runs a call that posts requests, and sends them.
    pub(crate) fn post<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        self.moved();
        self.goes_on();
        self.with(|driver| {
            let result = call(driver);
            driver.send_posted();
            result
        })
    }

    /// Runs a call of an application that asks for an event: behind it, it may sleep where nobody
    /// sees it, unless it waits beside the port, as it did the last time.
    pub(crate) fn arm<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        let result = self.with(call);
        if self.waited.swap(false, Ordering::Relaxed) {
            return result;
        }
        self.sleeps.store(true, Ordering::Relaxed);
        self.armed.store(true, Ordering::SeqCst);
        if self.trusts.load(Ordering::SeqCst) {
            self.unpark();
        }
        result
    }

    /// The application has something to do.
    pub(crate) fn goes_on(&self) {
        if self.sleeps.load(Ordering::Relaxed) {
            self.sleeps.store(false, Ordering::Relaxed);
        }
    }

    /// The application moves the engine.
    fn moved(&self) {
        // One of two that count at once may be forgotten: that there was one is seen all the same.
        self.moves.store(self.moves.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Takes the engine in hand, if need be from its thread.
    fn take(&self) -> MutexGuard<'_, Driver> {
        match self.driver.try_lock() {
            Ok(driver) => driver,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.wanted.fetch_add(1, Ordering::Relaxed);
                let driver = self.lock();
                self.wanted.fetch_sub(1, Ordering::Relaxed);
                driver
            }
        }
    }

    /// Waits for what `take` takes, at most so long, and moves the engine meanwhile; `ready` is
    /// readable while there is something to be taken. Where a signal ends a sleep, `interrupts`
    /// says whether it ends the wait.
    pub(crate) fn wait_for<T>(
        &self,
        mut take: impl FnMut() -> Option<T>,
        ready: BorrowedFd<'_>,
        timeout: Duration,
        interrupts: impl Fn() -> bool,
    ) -> Option<T> {
        let deadline = Clock::now().checked_add(timeout);
        // Where arrivals have no descriptor the engine's thread sees to them.
        let arrivals = self.sleeper.arrivals();
        let _waits = arrivals.map(|_| Waits::begin(self));
        if arrivals.is_some() && !timeout.is_zero() {
            self.waited.store(true, Ordering::Relaxed);
            let found = self.look_for(&mut take, timeout);
            if found.is_some() {
                return found;
            }
        }
        loop {
            if let Some(what) = take() {
                return Some(what);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Clock::now()));
            let mut left = left.unwrap_or(Duration::MAX);
            if left.is_zero() {
                return None;
            }
            let is_troubled = self.troubled.load(Ordering::SeqCst);
            if is_troubled && !self.is_gone() {
                // It may be nothing: the engine's thread finds out, and leaves the port to us then.
                left = left.min(TAKE_OVER_LATE);
            }
            let arrivals = arrivals.filter(|_| !is_troubled);
            if arrivals.is_some() {
                let rest = self.with(|driver| {
                    if driver.drive() { Err(Wake::Arrived) } else { driver.settle(left) }
                });
                match rest {
                    Ok(rest) => left = rest,
                    Err(_) => continue,
                }
            }
            let timeout = Timespec::try_from(left).ok(); // What does not fit is for ever.
            let mut fds = [
                PollFd::from_borrowed_fd(ready, PollFlags::IN),
                PollFd::from_borrowed_fd(arrivals.unwrap_or(ready), PollFlags::IN),
            ];
            // A signal ends it; then the loop looks once more, or not.
            if poll(&mut fds, timeout.as_ref()) == Err(Errno::INTR) && interrupts() {
                return take();
            }
            if fds[1].revents().contains(PollFlags::ERR) {
                self.troubled.store(true, Ordering::SeqCst);
                self.rouse();
            }
        }
    }

    /// Looks for what `take` takes before a wait sleeps, unless that was in vain lately.
    fn look_for<T>(&self, take: &mut impl FnMut() -> Option<T>, timeout: Duration) -> Option<T> {
        let vain = self.vain.load(Ordering::Relaxed);
        let spin = if vain.is_multiple_of(VAIN) {
            self.sleeper.spin().min(timeout)
        } else {
            Duration::ZERO
        };
        let start = Clock::now();
        loop {
            if let Some(what) = take() {
                self.vain.store(0, Ordering::Relaxed);
                return Some(what);
            }
            if start.elapsed() >= spin {
                self.vain.store(vain.wrapping_add(1), Ordering::Relaxed);
                return None;
            }
            self.moved();
            self.with(Driver::drive_for_poll);
        }
    }

    /// Whether the interface is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether packets can come and go.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire) && !self.is_gone()
    }

    /// A sentence about a queue pair, behind what became of the port, if that is why.
    pub(crate) fn with_port(&self, story: &QueuePairStory, sentence: String) -> String {
        let no_answer = |cause: &Cause| {
            matches!(cause, Cause::PortGone | Cause::Request(_, RequestFailure::NoAnswer { .. }))
        };
        if !story.ending.is_none_or(|ending| no_answer(&ending.cause)) {
            return sentence;
        }
        let became = match (self.is_gone(), self.is_active()) {
            (true, _) => "gone",
            (_, false) => "down",
            (_, true) => return sentence,
        };
        match &self.interface {
            Some(name) => format!("the interface {name} is {became}: {sentence}"),
            None => format!("the port is {became}: {sentence}"),
        }
    }

    /// The name of the interface, if there is one.
    pub(crate) fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Has the engine's thread end.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.rouse();
    }

    /// Has the engine's thread look, however it sleeps.
    fn rouse(&self) {
        self.waker.wake();
        self.unpark();
    }

    /// Ends a rest of the engine's thread.
    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The engine's thread.
    pub(crate) fn run(&self, mut changes: Option<Changes>) {
        let _ = self.thread.set(thread::current());
        let mut idle_since = Clock::now();
        let mut looked = Clock::now();
        let mut moves = 0;
        let mut rest = TAKE_OVER;
        // One who asks for an event looks once more before the sleep.
        let mut armed_before = false;
        while !self.closing.load(Ordering::SeqCst) {
            if looked.elapsed() > LONGEST_SLEEP {
                looked = Clock::now();
                self.look(&mut changes);
            }
            if self.troubled.load(Ordering::SeqCst) {
                self.ask_whether_gone();
                // Once it is gone, nobody asks the port any more.
                self.troubled.store(self.is_gone(), Ordering::SeqCst);
            }
            if self.is_gone() {
                thread::park_timeout(LONGEST_SLEEP);
                continue;
            }
            let now = self.moves.load(Ordering::Relaxed);
            let begun = now.wrapping_sub(std::mem::replace(&mut moves, now));
            // A call that began before the last rest may take longer than that.
            let moved = if begun == 0 { self.is_in_hand().into() } else { begun };
            let armed = self.armed.swap(false, Ordering::SeqCst);
            let armed_lately = std::mem::replace(&mut armed_before, armed) || armed;
            if moved != 0 && !self.sleeps.load(Ordering::Relaxed) {
                // Who moved it all the time, and does not mean to sleep, will go on.
                let busy_for = A_MOVE.saturating_mul(moved.try_into().unwrap_or(u32::MAX));
                let goes_on = !armed_lately && rest < busy_for;
                let waits =
                    self.waiting.load(Ordering::SeqCst) != 0 || self.waited.load(Ordering::Relaxed);
                rest = rest_beside(goes_on, waits, rest);
                self.trust(rest);
                continue;
            }
            let mut driver = self.lock();
            driver.alarm = None;
            let moved = driver.drive();
            let wakes = driver.route_events();
            if self.waiting.load(Ordering::SeqCst) != 0 {
                drop(driver);
                rest = if moved { TAKE_OVER } else { LONGEST_SLEEP.min(2 * rest) };
                self.rest(rest);
                continue;
            }
            rest = TAKE_OVER;
            if moved {
                idle_since = Clock::now();
            }
            // Whoever is woken may want this core.
            if wakes || idle_since.elapsed() > TAKE_OVER {
                match driver.settle(LONGEST_SLEEP) {
                    Ok(most) => {
                        driver.set_alarm(most);
                        drop(driver);
                        if self.sleeper.sleep(most) == Wake::Gone {
                            self.troubled.store(true, Ordering::SeqCst);
                        }
                    }
                    Err(_) => drop(driver),
                }
            } else {
                drop(driver);
                // Who looks at a ring all the time takes it from the kernel's core at every packet;
                // a few packets together cost both sides less.
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            while self.wanted.load(Ordering::Relaxed) != 0 && !self.closing.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
    }

    /// The same where the application polls: a long rest ends when it asks for an event.
    fn trust(&self, most: Duration) {
        self.trusts.store(most > TAKE_OVER, Ordering::SeqCst);
        // Who asked between is heard: it did not see that we trust it, but we see that it asked.
        if most <= TAKE_OVER || !self.armed.load(Ordering::SeqCst) {
            self.rest(most);
        }
        self.trusts.store(false, Ordering::SeqCst);
    }

    /// The thread sleeps while others move the engine, whatever arrives. For a short rest nobody
    /// needs to know.
    fn rest(&self, most: Duration) {
        if most <= TAKE_OVER_LATE {
            return thread::park_timeout(most);
        }
        let mut driver = self.lock();
        let Ok(until) = driver.settle(most) else { return };
        driver.set_alarm(until);
        self.rests_long.store(true, Ordering::SeqCst);
        drop(driver);
        // Who came between is heard: it did not see that we rest, but we see that it moved.
        if self.waiting.load(Ordering::SeqCst) != 0 {
            thread::park_timeout(until);
        }
        self.rests_long.store(false, Ordering::SeqCst);
    }

    /// Looks at what no packet tells of.
    fn look(&self, changes: &mut Option<Changes>) {
        let change = changes.as_mut().map(|changes| changes()).unwrap_or_default();
        // While somebody polls, nobody waits for the port, and so nobody hears that it is gone.
        self.ask_whether_gone();
        let Change { addresses, active, gone, moved, conflicts } = change;
        let mut driver = self.lock();
        if let Some(addresses) = addresses
            && driver.set_addresses(addresses.into_iter())
        {
            driver.router.tell(AsyncEvent::GidChange);
        }
        for (destination, ethernet) in moved {
            driver.move_to(destination, ethernet);
        }
        for address in conflicts {
            driver.router.tell(AsyncEvent::AddressConflict(address));
        }
        if let Some(active) = active
            && active != self.active.swap(active, Ordering::AcqRel)
        {
            let event = if active { AsyncEvent::PortActive } else { AsyncEvent::PortError };
            driver.router.tell(event);
        }
        if gone {
            self.end(&mut driver);
        }
        if let Some((witness, watch)) = &mut *self.witness() {
            let stalled = watch.look(&driver.device);
            drop(driver);
            stalled.into_iter().for_each(witness);
        }
    }

    /// If the interface is gone: so that nobody waits for what cannot come, all ends.
    fn ask_whether_gone(&self) {
        let mut driver = self.lock();
        if driver.port.wait(Duration::ZERO) == Wake::Gone {
            self.end(&mut driver);
        }
    }

    /// The interface is gone.
    fn end(&self, driver: &mut Driver) {
        if !self.gone.swap(true, Ordering::AcqRel) {
            self.troubled.store(true, Ordering::SeqCst);
            driver.device.port_gone();
            driver.route_events();
            driver.router.tell(AsyncEvent::DeviceFatal);
        }
    }

    /// Whether somebody else has the engine in hand.
    fn is_in_hand(&self) -> bool {
        matches!(self.driver.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn lock(&self) -> MutexGuard<'_, Driver> {
        // A panic while the engine was in hand ended the application's call, not the engine.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the engine's thread rests beside an application that moves the engine, after a rest of
/// `last`. `goes_on`: it will do so for longer; `waits`: it does so by waiting beside the port.
fn rest_beside(goes_on: bool, waits: bool, last: Duration) -> Duration {
    match (goes_on, waits) {
        (true, _) => TAKE_OVER_LATE.min(2 * last),
        // As long as its waits were found to last: else each wait would end some rests again.
        (false, true) => TAKE_OVER_LATE.min(last),
        (false, false) => TAKE_OVER,
    }
}

/// A thread of the application waits beside the port.
struct Waits<'a>(&'a Engine);

impl<'a> Waits<'a> {
    fn begin(engine: &'a Engine) -> Self {
        engine.waiting.fetch_add(1, Ordering::SeqCst);
        engine.moved();
        Self(engine)
    }
}

impl Drop for Waits<'_> {
    /// The engine's thread looks soon enough whether the application goes on, unless it has lain
    /// down.
    fn drop(&mut self) {
        self.0.moved();
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        if self.0.rests_long.load(Ordering::SeqCst) {
            self.0.unpark();
        }
    }
}

/// How long the application may not have moved the engine before its thread takes over.
const TAKE_OVER: Duration = Duration::from_micros(50);

/// The longest that this may take where the application waited before, or moved the engine without
/// a break for as long.
const TAKE_OVER_LATE: Duration = Duration::from_millis(1);

/// The longest that a call takes which moves the engine: two batches of the largest packets, each
/// of which takes 4 µs by a socket.
const A_MOVE: Duration = Duration::from_micros(500);

/// After a wait that looked in vain, so many sleep at once.
const VAIN: u32 = 16;

/// How long the engine's thread pauses between two looks: a microsecond or so.
const PAUSES: u32 = 64;

/// The longest sleep of the engine's thread.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
