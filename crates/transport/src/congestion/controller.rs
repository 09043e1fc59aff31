//! One queue pair's algorithm: what it is told, and what it says.

use core::time::Duration;

use roxe_wire::{Instant, Psn};

use super::hpcc::{self, Hop};
use super::swift;
use super::timely;
use super::{CongestionControl, Rate, ReactionPoint};

/// An algorithm at work. It says a rate, and those that have one a window.
#[derive(Clone, Debug)]
pub enum Controller {
    /// DCQCN: told of notifications, bytes and time.
    Dcqcn(ReactionPoint),
    /// TIMELY: told of round trips.
    Timely(timely::RateEngine),
    /// Swift: told of round trips and losses.
    Swift(swift::Window),
    /// HPCC: told of links.
    Hpcc(hpcc::Sender),
}

/// What a controller asks of who sends requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Packets that may be unacknowledged.
    pub(crate) window: u32,
    /// At the least one in so many asks for an acknowledgement.
    pub(crate) ask_after: u32,
}

impl Limits {
    /// None.
    pub(crate) const NONE: Self = Self { window: u32::MAX, ask_after: u32::MAX };

    /// A window of so many packets, of which some ask.
    fn of_window(packets: f64) -> Self {
        let window = whole(packets);
        Self { window, ask_after: (window / ASKS_IN_WINDOW).max(1) }
    }
}

/// So many packets of a window ask for an acknowledgement.
const ASKS_IN_WINDOW: u32 = 16;

/// So many packets, those begun included, one at the least.
#[expect(clippy::cast_possible_truncation, reason = "it is in bounds")]
const fn whole(packets: f64) -> u32 {
    packets.ceil().clamp(1.0, u32::MAX as f64) as u32
}

impl Controller {
    /// One at its beginning, at the rate of the line; packets have so many bytes at the most.
    /// `None` where nothing controls.
    pub(crate) fn new(control: &CongestionControl, line_rate: Rate, packet: f64) -> Option<Self> {
        Some(match *control {
            CongestionControl::None => return None,
            CongestionControl::Dcqcn(it) => Self::Dcqcn(ReactionPoint::new(it, line_rate)),
            CongestionControl::Timely(it) => Self::Timely(timely::RateEngine::new(it, line_rate)),
            CongestionControl::Swift(it) => Self::Swift(swift::Window::new(it, line_rate, packet)),
            CongestionControl::Hpcc(it) => Self::Hpcc(hpcc::Sender::new(it, line_rate)),
        })
    }

    /// Begins anew, with the same parameters.
    pub(crate) fn restart(&mut self, line_rate: Rate, packet: f64) {
        if let Some(fresh) = Self::new(&self.control(), line_rate, packet) {
            *self = fresh;
        }
    }

    /// Goes on with other parameters of the same algorithm, up to `line_rate`. False when it is
    /// another one.
    pub(crate) fn set(&mut self, control: &CongestionControl, line_rate: Rate) -> bool {
        match (self, control) {
            (Self::Dcqcn(point), CongestionControl::Dcqcn(it)) => point.set(*it, line_rate),
            (Self::Timely(engine), CongestionControl::Timely(it)) => engine.set(*it, line_rate),
            (Self::Swift(window), CongestionControl::Swift(it)) => window.set(*it, line_rate),
            (Self::Hpcc(sender), CongestionControl::Hpcc(it)) => sender.set(*it, line_rate),
            _ => return false,
        }
        true
    }

    /// Which algorithm it is, with its parameters.
    pub const fn control(&self) -> CongestionControl {
        match self {
            Self::Dcqcn(point) => CongestionControl::Dcqcn(*point.dcqcn()),
            Self::Timely(engine) => CongestionControl::Timely(*engine.timely()),
            Self::Swift(window) => CongestionControl::Swift(*window.swift()),
            Self::Hpcc(sender) => CongestionControl::Hpcc(*sender.hpcc()),
        }
    }

    /// The reaction point, if it is DCQCN.
    pub const fn reaction_point(&self) -> Option<&ReactionPoint> {
        match self {
            Self::Dcqcn(point) => Some(point),
            _ => None,
        }
    }

    /// How fast it may send now.
    pub fn rate(&self) -> Rate {
        match self {
            Self::Dcqcn(point) => point.rate(),
            Self::Timely(engine) => engine.rate(),
            Self::Swift(window) => window.rate(),
            Self::Hpcc(sender) => sender.rate(),
        }
    }

    /// What it asks of who sends requests in packets of so many bytes.
    pub(crate) fn limits(&self, packet: f64) -> Limits {
        match self {
            Self::Dcqcn(_) => Limits::NONE,
            Self::Timely(engine) => {
                let segment = engine.timely().segment as f64 / packet;
                Limits { ask_after: whole(segment), ..Limits::NONE }
            }
            Self::Swift(window) => Limits::of_window(window.cwnd()),
            Self::Hpcc(sender) => Limits::of_window(sender.window() / packet),
        }
    }

    /// Whether packets may have to wait for each other: not at the rate of the line.
    pub(crate) fn is_limiting(&self, line_rate: Rate) -> bool {
        match self {
            Self::Dcqcn(point) => point.is_limiting(),
            _ => self.rate() < line_rate,
        }
    }

    /// Whether it wants to know how long round trips take.
    pub(crate) const fn measures(&self) -> bool {
        matches!(self, Self::Timely(_) | Self::Swift(_))
    }

    /// When the rate changes next if nothing happens.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        match self {
            Self::Dcqcn(point) => point.next_change(),
            _ => None,
        }
    }

    /// That moment is there.
    pub(crate) fn change(&mut self, at: Instant) {
        if let Self::Dcqcn(point) = self {
            point.change(at);
        }
    }

    /// All changes to `now` were called: what else time does is done.
    pub(crate) fn pass(&mut self, now: Instant) {
        if let Self::Dcqcn(point) = self {
            point.pass(now);
        }
    }

    /// What it estimates is what it is now, for who looks at it.
    pub(crate) fn age(&mut self, now: Instant) {
        if let Self::Dcqcn(point) = self {
            point.age_alpha(now);
        }
    }

    /// A notification came. Says whether anything follows from it.
    pub(crate) fn notified(&mut self, now: Instant) -> bool {
        match self {
            Self::Dcqcn(point) => {
                point.notified(now);
                true
            }
            _ => false,
        }
    }

    /// So many bytes were sent.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if let Self::Dcqcn(point) = self {
            point.sent(bytes);
        }
    }

    /// So many packets were acknowledged, one of them so long after it was sent.
    pub(crate) fn acknowledged(&mut self, now: Instant, rtt: Duration, packets: u32) {
        match self {
            Self::Timely(engine) => engine.completed(rtt),
            Self::Swift(window) => window.acknowledged(now, rtt, packets),
            Self::Dcqcn(_) | Self::Hpcc(_) => {}
        }
    }

    /// Packets were lost, as an answer shows.
    pub(crate) fn lost(&mut self, now: Instant) {
        if let Self::Swift(window) = self {
            window.lost(now);
        }
    }

    /// No answer came in time.
    pub(crate) fn timed_out(&mut self, now: Instant) {
        if let Self::Swift(window) = self {
            window.timed_out(now);
        }
    }

    /// An answer brought telemetry.
    pub(crate) fn telemetry(&mut self, acknowledged: Psn, next: Psn, hops: &[Hop]) {
        if let Self::Hpcc(sender) = self {
            sender.acknowledged(acknowledged, next, hops);
        }
    }
}
