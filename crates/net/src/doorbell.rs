//! A sleep that another thread can end.
//!
//! An eventfd, and a word beside it that says whether anybody sleeps, so that a call which wakes
//! nobody costs no system call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Wake;

mod bell;
mod kernel;

use bell::Bell;
use kernel::Event;

/// Ends the wait of a port from any thread. Cheap to clone, and to call while nobody waits.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

impl Waker {
    /// Ends the wait going on, or the next one.
    pub fn wake(&self) {
        self.0.ring();
    }
}

/// Sleeps for a port that is not in hand. One thread at a time sleeps; [`FramePort::wait`] is not
/// called meanwhile.
///
/// [`FramePort::wait`]: crate::FramePort::wait
#[derive(Debug)]
pub struct Sleeper {
    bell: Doorbell,
    arrivals: Option<OwnedFd>,
    spin: Duration,
}

impl Sleeper {
    /// Sleeps until something arrives, somebody calls [`Waker::wake`], or `timeout` has passed. A
    /// call of `wake` since the last sleep ends it at once. [`Wake::Gone`] is worth asking the port
    /// about.
    pub fn sleep(&self, timeout: Duration) -> Wake {
        self.bell.wait(self.arrivals(), timeout)
    }

    /// For how long it is worth looking before one sleeps: to be woken takes a while too.
    pub const fn spin(&self) -> Duration {
        self.spin
    }

    /// A descriptor that is readable while something that arrived has not been received. Without
    /// one, arrivals call [`Waker::wake`].
    pub fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        self.arrivals.as_ref().map(|fd| fd.as_fd())
    }
}

/// The side of whoever waits.
#[derive(Debug)]
pub(crate) struct Doorbell(Arc<Bell>);

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Bell::new(Event::new()?))))
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.0))
    }

    /// Another who waits for the same bell, and for this descriptor.
    pub(crate) fn sleeper(
        &self,
        arrivals: Option<BorrowedFd<'_>>,
        spin: Duration,
    ) -> io::Result<Sleeper> {
        let arrivals = arrivals.map(|fd| fd.try_clone_to_owned()).transpose()?;
        Ok(Sleeper { bell: Self(Arc::clone(&self.0)), arrivals, spin })
    }

    /// Whether the next wait will return at once.
    #[cfg(feature = "af_xdp")]
    pub(crate) fn is_rung(&self) -> bool {
        self.0.is_rung()
    }

    /// Sleeps until the bell rings, `other` has something to read, or `timeout` has passed.
    pub(crate) fn wait(&self, other: Option<BorrowedFd<'_>>, timeout: Duration) -> Wake {
        if !self.0.lie_down() {
            return Wake::Called;
        }
        let mut fds = [
            PollFd::new(&self.0.event, PollFlags::IN),
            PollFd::from_borrowed_fd(other.unwrap_or_else(|| self.0.event.as_fd()), PollFlags::IN),
        ];
        let timeout = Timespec::try_from(timeout).ok(); // What does not fit is for ever.
        // A signal ends the wait; nothing else can go wrong.
        let _ = poll(&mut fds, timeout.as_ref());
        let [bell, other] = fds.map(|fd| fd.revents());
        let rung = self.0.get_up(bell.contains(PollFlags::IN));
        if other.contains(PollFlags::ERR) {
            Wake::Gone
        } else if rung {
            Wake::Called
        } else if other.contains(PollFlags::IN) && !bell.contains(PollFlags::IN) {
            Wake::Arrived
        } else {
            Wake::TimedOut
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_before_the_wait_ends_it() {
        let bell = Doorbell::new().expect("an eventfd");
        bell.waker().wake();
        assert_eq!(bell.wait(None, Duration::MAX), Wake::Called);
        assert_eq!(bell.wait(None, Duration::from_millis(1)), Wake::TimedOut);
    }

    #[test]
    fn a_call_from_another_thread_ends_it() {
        let bell = Doorbell::new().expect("an eventfd");
        for _ in 0..1000 {
            let waker = bell.waker();
            let caller = std::thread::spawn(move || waker.wake());
            while bell.wait(None, Duration::MAX) != Wake::Called {}
            caller.join().expect("it does not panic");
        }
    }
}
