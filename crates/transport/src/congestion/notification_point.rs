//! The receiver of marked packets: when one earns its sender a notification.
//!
//! At most one an interval, of a queue pair, of a peer's address or of the whole port: the three
//! scopes that adapters have. A17.9.3; the interval is mlx5's `np_min_time_between_cnps`.

use core::time::Duration;

use roxe_wire::{Instant, TrafficClass};

use super::parameter::{self, Parameter, ParameterError, row};

/// Among what one notification an interval is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CnpScope {
    /// The packets of one queue pair.
    #[default]
    QueuePair,
    /// All packets from one address.
    Address,
    /// All packets.
    Port,
}

/// How notifications are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotificationPoint {
    /// So long passes between two: `np_min_time_between_cnps`. Zero for one a marked packet.
    pub np_min_time_between_cnps: Duration,
    /// Between two of what.
    pub scope: CnpScope,
    /// The DSCP of notifications, 0 ..= 63: `np_cnp_dscp`.
    pub np_cnp_dscp: u8,
}

impl NotificationPoint {
    /// 4 µs a queue pair, DSCP 48: as mlx5.
    pub const DEFAULT: Self = Self {
        np_min_time_between_cnps: Duration::from_micros(4),
        scope: CnpScope::QueuePair,
        np_cnp_dscp: 48,
    };

    /// 50 µs a queue pair: as the paper.
    pub const PAPER: Self =
        Self { np_min_time_between_cnps: Duration::from_micros(50), ..Self::DEFAULT };

    const PARAMETERS: &[Parameter<Self>] =
        &[row!(np_min_time_between_cnps, Time, 0.0, 4095.0), row!(np_cnp_dscp, Small, 0.0, 63.0)];

    /// Whether this is the name of a parameter of notification points.
    pub fn has(name: &str) -> bool {
        Self::PARAMETERS.iter().any(|row| row.name == name)
    }

    /// Sets a parameter, as [`CongestionControl::set`](super::CongestionControl::set) does.
    ///
    /// # Errors
    /// There is no such parameter, the text is no value, or it is out of range.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        parameter::set(Self::PARAMETERS, "a notification point", self, name, value)
    }

    /// All parameters by their names, and what they are.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        parameter::list(Self::PARAMETERS, self)
    }

    /// The traffic class of notifications: nobody marks them.
    pub const fn traffic_class(&self) -> TrafficClass {
        TrafficClass(self.np_cnp_dscp << 2)
    }

    /// Whether a notification is due when the last one of its scope was sent at `last`.
    //= C01
    pub fn is_due(&self, now: Instant, last: Option<Instant>) -> bool {
        last.is_none_or(|last| now.since(last) >= self.np_min_time_between_cnps)
    }
}

impl Default for NotificationPoint {
    fn default() -> Self {
        Self::DEFAULT
    }
}
