//! A stream, as programs have it, and how they wait for it.
//!
//! Whoever waits sees to the stream meanwhile: completions are taken by the thread that needs one.
//! One of those that wait sleeps at the descriptor, the others until it is back. Who waits for
//! several sockets at once sleeps at their descriptors; it hears by a bell that another thread has
//! taken what woke it.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant as Clock};
use std::{io, iter, mem};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::cm::EventChannel;
use crate::completion_channel::CompletionChannel;
use crate::context::Context;
use crate::error::Error;
use crate::events::Mailbox;
use crate::sockets::error::SocketError;
use crate::sockets::gather::Gather;
use crate::sockets::options::{Patience, Reading, StreamOptions};
use crate::sockets::state::{Exposed, How, Readiness, State};

/// A stream of bytes in both directions. One thread may send while another reads.
///
/// Its descriptor is readable when something may have happened: [`readiness`](Self::readiness) says
/// what can be done then. Dropped, it is shut down in both directions, and what was sent is waited
/// for as long as a second.
pub struct Stream {
    context: Context,
    state: Mutex<State>,
    /// How often others that wait were to look again, counted around: a futex, for unlike a
    /// condition variable it tells of signals.
    changed: AtomicU32,
    completions: CompletionChannel,
    events: EventChannel,
    /// Rings for who sleeps at the descriptor.
    rouse: Bell,
    /// Readable while one of the three is.
    ready: OwnedFd,
}

/// Who waits for a stream.
#[derive(Default)]
pub(super) struct Waiters {
    /// The completion queue tells of the next completion.
    armed: bool,
    /// A thread sleeps at the descriptor, and sees to the stream when it wakes.
    attended: bool,
    bells: Vec<Bell>,
    /// Of who sends, and who reads.
    turns: [Turns; 2],
}

/// A call sends, or reads, as a whole.
#[derive(Clone, Copy, Default)]
struct Turns {
    /// One does.
    taken: bool,
    /// So many wait until it is done.
    wanted: u32,
}

/// Whose turns.
#[derive(Clone, Copy)]
enum Way {
    Send,
    Read,
}

/// A call's turn to send, or to read.
struct Turn<'a> {
    stream: &'a Stream,
    way: Way,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.stream.lock();
        let turns = &mut state.waiters.turns[self.way as usize];
        turns.taken = false;
        if turns.wanted != 0 {
            self.stream.tell(&state);
        }
    }
}

/// Tells a thread that waits for several sockets that one of them is to be looked at. The
/// descriptor is readable while it rings. Clones are the same bell.
#[derive(Clone)]
pub struct Bell(Arc<Mailbox<()>>);

impl Bell {
    /// One that does not ring.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Mailbox::new()?)))
    }

    /// It rings no more.
    pub fn hush(&self) {
        while self.0.try_take().is_some() {}
    }

    /// It rings until it is hushed.
    pub fn ring(&self) {
        self.0.put_among(1, ());
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A bell rings for a stream, as long as this is there.
pub struct Watch<'a> {
    stream: &'a Stream,
    bell: Bell,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let bells = &mut self.stream.lock().waiters.bells;
        let known = bells.iter().position(|bell| Arc::ptr_eq(&bell.0, &self.bell.0));
        if let Some(at) = known {
            bells.swap_remove(at);
        }
    }
}

/// How long one that is dropped waits for what it has sent.
const PARTING: Duration = Duration::from_secs(1);

impl Stream {
    pub(super) fn new(
        state: State,
        completions: CompletionChannel,
        events: EventChannel,
    ) -> Result<Self, Error> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let rouse = Bell::new()?;
        for what in [completions.as_fd(), events.as_fd(), rouse.as_fd()] {
            epoll::add(&ready, what, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
                .map_err(io::Error::from)?;
        }
        Ok(Self {
            context: state.id().context().clone(),
            state: Mutex::new(state),
            changed: AtomicU32::new(0),
            completions,
            events,
            rouse,
            ready,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the connection stands.
    ///
    /// # Errors
    /// Why it does not; [`SocketError::WouldBlock`] and the like.
    pub fn wait_connected(&self, patience: Patience<'_>) -> Result<(), SocketError> {
        self.until(patience, State::connected)?
    }

    /// Waits until the way to the peer is known and it was asked, or will not be.
    ///
    /// # Errors
    /// [`SocketError::WouldBlock`] and the like.
    pub fn wait_asked(&self, patience: Patience<'_>) -> Result<(), SocketError> {
        self.until(patience, |state| (!state.resolves_still()).then_some(()))
    }

    /// Sends bytes, all of them unless the wait ends: says how many.
    ///
    /// # Errors
    /// [`SocketError`], if not one was sent.
    pub fn send(&self, bytes: &[u8], patience: Patience<'_>) -> Result<usize, SocketError> {
        self.send_vectored(iter::once(bytes), patience)
    }

    /// Sends pieces as if they were one, in as few messages as the peer and the ring have room for:
    /// says how many bytes of them. No other call's come between.
    ///
    /// # Errors
    /// [`SocketError`], if not one was sent.
    pub fn send_vectored<'a>(
        &self,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
        patience: Patience<'_>,
    ) -> Result<usize, SocketError> {
        self.send_with(pieces, patience, |state, rest, _| state.try_send(rest))
    }

    /// Writes bytes to the memory that the peer has opened at this offset, and which may be read
    /// there when what is sent then has come. Says how many.
    ///
    /// # Errors
    /// [`SocketError::NotMapped`]; else as [`send`](Self::send).
    pub fn write_at(
        &self,
        bytes: &[u8],
        offset: u64,
        patience: Patience<'_>,
    ) -> Result<usize, SocketError> {
        self.send_with(iter::once(bytes), patience, |state, rest, sent| {
            // Behind the last offset there is nothing.
            let Some(at) = offset.checked_add(sent as u64) else {
                return Some(Err(SocketError::NotMapped));
            };
            state.try_write_at(rest, at)
        })
    }

    fn send_with<'a, I: Iterator<Item = &'a [u8]> + Clone>(
        &self,
        pieces: I,
        patience: Patience<'_>,
        mut step: impl FnMut(
            &mut State,
            &mut Gather<'a, I>,
            usize,
        ) -> Option<Result<usize, SocketError>>,
    ) -> Result<usize, SocketError> {
        let _turn = self.turn(Way::Send, patience)?;
        let (mut rest, mut sent) = (Gather::new(pieces), 0);
        while rest.left() != 0 {
            match self.until(patience, |state| step(state, &mut rest, sent)).flatten() {
                Ok(now) => sent += now,
                Err(_) if sent != 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    /// Reads bytes: says how many; 0 at the end of the stream.
    ///
    /// # Errors
    /// [`SocketError`], if not one was read.
    pub fn recv(
        &self,
        into: &mut [u8],
        reading: Reading,
        patience: Patience<'_>,
    ) -> Result<usize, SocketError> {
        let _turn = self.turn(Way::Read, patience)?;
        if reading.peek && reading.all {
            match self.until(patience, |state| state.has(into.len()).then_some(())) {
                // What is there is told all the same.
                Ok(()) | Err(SocketError::WouldBlock | SocketError::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
        let mut read = 0;
        while read < into.len() {
            let rest = &mut into[read..];
            match self.until(patience, |state| state.try_recv(rest, reading.peek)).flatten() {
                Ok(0) => break,
                Ok(now) => read += now,
                Err(_) if read != 0 => break,
                Err(error) => return Err(error),
            }
            if reading.peek || !reading.all {
                break;
            }
        }
        Ok(read)
    }

    /// Whether a direction was shut down here.
    pub fn is_shut_down(&self) -> bool {
        self.lock().is_closed()
    }

    /// Closes a direction, or both, and waits until what was sent is with the peer. One that was
    /// accepted and does not stand within a second is not waited for.
    ///
    /// # Errors
    /// [`SocketError::NotConnected`]; [`SocketError::WouldBlock`] and the like: the direction is
    /// closed all the same.
    pub fn shutdown(&self, how: How, patience: Patience<'_>) -> Result<(), SocketError> {
        // One that was accepted stands when the peer says so, and perhaps nobody has looked yet.
        // Who never says so holds nobody up: he would be told when he does.
        self.readiness();
        let short = match patience {
            Patience::None => Patience::None,
            Patience::For(time) => Patience::For(time.min(PARTING)),
            Patience::Unless(_) => Patience::For(PARTING),
        };
        let _ = self.until(short, |state| (!state.answers_still()).then_some(()));
        let message = {
            let mut state = self.lock();
            let message = state.close(how)?;
            // Everybody looks again, for the program has done something.
            self.tell(&state);
            message
        };
        if let Some(message) = message {
            self.until(patience, |state| state.try_say(message))?;
        }
        match how {
            How::Read if message.is_none() => Ok(()),
            _ => self.until(patience, |state| state.is_idle().then_some(())),
        }
    }

    /// Shuts it down in both directions, and waits for what was sent as long as the peer takes some
    /// of it within `stall`, and a second for a connection that does not stand yet.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown).
    pub fn close(&self, stall: Duration) -> Result<(), SocketError> {
        let stands = |state: &mut State| (!state.answers_still()).then_some(());
        let stood = self.until(Patience::For(PARTING), stands);
        let mut before = {
            let mut state = self.lock();
            if state.give_up() {
                self.tell(&state);
                return stood.and(Err(SocketError::NotConnected));
            }
            // And the last word.
            state.under_way() + 1
        };
        let mut closed = self.shutdown(How::Both, Patience::For(stall));
        while closed == Err(SocketError::TimedOut) {
            let left = self.lock().under_way();
            if left >= before {
                break;
            }
            before = left;
            closed = self.shutdown(How::Both, Patience::For(stall));
        }
        closed
    }

    /// What can be done without waiting. If it is not what the caller waits for, the descriptor
    /// will be readable when something happens.
    pub fn readiness(&self) -> Readiness {
        let mut state = self.lock();
        if !state.waiters.attended {
            self.rouse.hush();
        }
        loop {
            while self.completions.shared.fired.try_take().is_some() {
                state.waiters.armed = false;
            }
            if state.progress() {
                self.tell(&state);
            }
            if state.waiters.armed || !self.arm(&mut state) {
                return state.readiness();
            }
        }
    }

    /// How long whoever waits does so before he asks whether the peer is there: its credits may be
    /// used up, and nothing under way that would tell.
    pub const PROBE_EVERY: Duration = Duration::from_secs(10);

    /// Asks whether the peer is there, if it was not heard for [`PROBE_EVERY`](Self::PROBE_EVERY)
    /// and nothing under way does. The stream fails when it does not answer. Calls of the stream
    /// that wait do so by themselves.
    pub fn probe(&self) {
        self.lock().probe();
    }

    /// The bell rings from now on when a thread has seen to the stream.
    pub fn watch(&self, bell: &Bell) -> Watch<'_> {
        self.lock().waiters.bells.push(bell.clone());
        Watch { stream: self, bell: bell.clone() }
    }

    /// Why it failed, unless the program heard of it already: `SO_ERROR`.
    pub fn take_error(&self) -> Option<SocketError> {
        self.lock().take_error()
    }

    /// Opens memory to the peer under an offset. The peer knows of it when what is sent then has
    /// come.
    ///
    /// # Errors
    /// [`SocketError::NoPlace`]; [`SocketError::NotConnected`].
    pub fn open(&self, exposed: Exposed, offset: u64) -> Result<(), SocketError> {
        self.lock().open(exposed, offset)
    }

    /// Closes memory to the peer that begins at this address and has so many bytes. Says whether it
    /// was open.
    pub fn shut(&self, address: u64, len: u64) -> bool {
        self.lock().shut(address, len)
    }

    /// How large everything is: what was asked for, as far as the adapter can.
    pub fn options(&self) -> StreamOptions {
        *self.lock().options()
    }

    /// The adapter.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Its own address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.lock().id().local_address()
    }

    /// The peer's.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.lock().id().peer_address()
    }

    /// Waits until no other call sends, or reads.
    fn turn(&self, way: Way, patience: Patience<'_>) -> Result<Turn<'_>, SocketError> {
        let mine = |state: &mut State| {
            let turns = &mut state.waiters.turns[way as usize];
            // Not even made where it is another's: dropped, it would be over.
            (!mem::replace(&mut turns.taken, true)).then(|| Turn { stream: self, way })
        };
        let at_once = mine(&mut self.lock());
        if let Some(turn) = at_once {
            return Ok(turn);
        }
        self.lock().waiters.turns[way as usize].wanted += 1;
        let turn = self.until(patience, mine);
        self.lock().waiters.turns[way as usize].wanted -= 1;
        turn
    }

    /// Waits until `look` finds something.
    fn until<T>(
        &self,
        patience: Patience<'_>,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, SocketError> {
        let mut state = self.lock();
        if let Some(found) = look(&mut state) {
            return Ok(found);
        }
        let deadline = match patience {
            Patience::For(time) => Clock::now().checked_add(time),
            _ => None,
        };
        loop {
            if state.progress() {
                self.tell(&state);
            }
            if let Some(found) = look(&mut state) {
                return Ok(found);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Clock::now()));
            match patience {
                Patience::None => return Err(SocketError::WouldBlock),
                _ if left.is_some_and(|left| left.is_zero()) => return Err(SocketError::TimedOut),
                _ => {}
            }
            if !state.waiters.armed && self.arm(&mut state) {
                continue;
            }
            let left = left.unwrap_or(Duration::MAX);
            let interrupted = Cell::new(false);
            if state.waiters.attended {
                let before = self.changed.load(Ordering::SeqCst);
                drop(state);
                self.wait_for_others(before, left.min(LOOK_AGAIN), patience, &interrupted);
                state = self.lock();
                if interrupted.get() {
                    return look(&mut state).ok_or(SocketError::Interrupted);
                }
                continue;
            }
            state.waiters.attended = true;
            drop(state);
            let woken = self.sleep(left.min(Self::PROBE_EVERY), patience, &interrupted);
            state = self.lock();
            state.waiters.attended = false;
            self.rouse.hush();
            if woken == Some(Woken::ByCompletion) {
                state.waiters.armed = false;
            }
            // Others may have relied on this one.
            self.tell(&state);
            if woken.is_none() && interrupted.get() {
                return look(&mut state).ok_or(SocketError::Interrupted);
            }
            state.probe();
        }
    }

    /// Asks to be told of the next completion. Says whether some wait already.
    fn arm(&self, state: &mut State) -> bool {
        let waiting = state.arm();
        state.waiters.armed = !waiting;
        waiting
    }

    /// Sleeps until something happened.
    fn sleep(
        &self,
        timeout: Duration,
        patience: Patience<'_>,
        interrupted: &Cell<bool>,
    ) -> Option<Woken> {
        let fired = &self.completions.shared.fired;
        let take = || match fired.try_take() {
            Some(_) => Some(Woken::ByCompletion),
            None if self.events.is_ready() => Some(Woken::ByEvent),
            None => self.rouse.0.try_take().map(|()| Woken::ByEvent),
        };
        let interrupts = || {
            interrupted.set(patience.is_interrupted());
            interrupted.get()
        };
        self.context.wait_for(take, self.ready.as_fd(), timeout, interrupts)
    }

    /// Sleeps until the others that wait are told, who were so often before.
    fn wait_for_others(
        &self,
        before: u32,
        timeout: Duration,
        patience: Patience<'_>,
        interrupted: &Cell<bool>,
    ) {
        let timeout = Timespec::try_from(timeout).ok();
        let woken = futex::wait(&self.changed, futex::Flags::PRIVATE, before, timeout.as_ref());
        interrupted.set(woken == Err(Errno::INTR) && patience.is_interrupted());
    }

    /// Others that wait look again: also who sleeps at the descriptor, which may be readable no
    /// more.
    fn tell(&self, state: &State) {
        self.changed.fetch_add(1, Ordering::SeqCst);
        // Nothing is wrong where nobody sleeps.
        let _ = futex::wake(&self.changed, futex::Flags::PRIVATE, u32::MAX >> 1);
        state.waiters.bells.iter().for_each(Bell::ring);
        if state.waiters.attended {
            self.rouse.ring();
        }
    }
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    ByCompletion,
    ByEvent,
}

/// Who waits for another thread, which sleeps at the descriptor, looks for itself so often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Whoever wants to know whether all has arrived shuts it down himself.
        let _ = self.shutdown(How::Both, Patience::For(PARTING));
    }
}
