//! Congestion control: how fast a queue pair may send, and who tells whom of a full queue.
//!
//! Annex A17 §A17.9 of IBA volume 1 has the notification packet; what adapters do with it is
//! DCQCN (Zhu et al., SIGCOMM 2015). Switches mark packets (CE, RFC 3168) when their queue is long;
//! the receiver, the [notification point](notification_point), tells the sender with a CNP; the
//! sender, the [reaction point](reaction_point), cuts its rate and raises it again while no CNP
//! comes. Others need no notifications: [TIMELY](timely) and [Swift](swift) look at round trips,
//! [HPCC](hpcc) at what switches say of their links. The [pacer](Pacer) holds packets back so that
//! the rate is kept.
//!
//! | algorithm | is told | says | paper |
//! |---|---|---|---|
//! | [`reaction_point`] | notifications, bytes, time | a rate | DCQCN, SIGCOMM 2015 |
//! | [`timely`] | round trips | a rate | TIMELY, SIGCOMM 2015 |
//! | [`swift`] | round trips, losses | a window in packets | Swift, SIGCOMM 2020 |
//! | [`hpcc`] | telemetry of links | a window in bytes | HPCC, SIGCOMM 2019 |
//!
//! Those of round trips and links are about what a requester of a reliable connection sends: only
//! that is acknowledged. Data that a peer READs, and what the other services send, go at the rate
//! of the line with them. DCQCN paces all of these, and so does a line that is a [ceiling](Line).
//!
//! Nothing here knows packets or clocks: it is told the time, bytes that were sent, and answers.

mod controller;
pub mod hpcc;
pub mod notification_point;
mod paced;
mod pacer;
mod parameter;
mod rate;
pub mod reaction_point;
mod round_trip;
pub mod swift;
pub mod timely;

use core::convert::Infallible;
use core::fmt;
use core::str::FromStr;

use self::parameter::Parameter;
use roxe_wire::{CnpReserved, Headers, PKey, Qpn, cnp_bth};

use crate::emit::{Emitted, Outlet, emit};

pub use controller::Controller;
pub(crate) use controller::Limits;
pub use hpcc::Hpcc;
pub use notification_point::NotificationPoint;
pub use paced::Line;
pub(crate) use paced::Paced;
pub use pacer::{Burst, Pacer};
pub use parameter::ParameterError;
pub use rate::Rate;
use reaction_point::Form;
pub use reaction_point::{Dcqcn, ReactionPoint};
pub use swift::Swift;
pub use timely::Timely;

/// What controls how fast a queue pair sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CongestionControl {
    /// Nothing: notifications are ignored, and packets do not say that they may be marked.
    #[default]
    None,
    /// DCQCN, with these parameters.
    Dcqcn(Dcqcn),
    /// TIMELY, with these.
    Timely(Timely),
    /// Swift, with these.
    Swift(Swift),
    /// HPCC, with these. Only simulated switches give the telemetry that it needs.
    Hpcc(Hpcc),
}

impl CongestionControl {
    /// All of them by their names, with the parameters that these stand for.
    pub const NAMED: &[(&str, Self)] = &[
        ("none", Self::None),
        ("dcqcn", Self::Dcqcn(Dcqcn::MLX5)),
        ("dcqcn-paper", Self::Dcqcn(Dcqcn::PAPER)),
        ("timely", Self::Timely(Timely::PAPER)),
        ("swift", Self::Swift(Swift::DEFAULT)),
        ("hpcc", Self::Hpcc(Hpcc::PAPER)),
    ];

    /// The algorithm's name in [`CongestionControl::NAMED`], whatever its parameters are.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Dcqcn(Dcqcn { form: Form::Mlx5, .. }) => "dcqcn",
            Self::Dcqcn(Dcqcn { form: Form::Paper, .. }) => "dcqcn-paper",
            Self::Timely(_) => "timely",
            Self::Swift(_) => "swift",
            Self::Hpcc(_) => "hpcc",
        }
    }

    /// Whether it needs what only simulated switches give.
    pub const fn needs_telemetry(&self) -> bool {
        matches!(self, Self::Hpcc(_))
    }

    /// Whether switches are asked to mark its packets: somebody listens.
    pub const fn wants_marks(&self) -> bool {
        matches!(self, Self::Dcqcn(_))
    }

    /// Sets a parameter: `rp_ai_rate` to `5M`. A number without unit is in that of mlx5: Mb/s, µs,
    /// bytes.
    ///
    /// # Errors
    /// There is no such parameter, the text is no value, or it is out of range. Then nothing has
    /// changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let whose = self.name();
        match self {
            Self::None => parameter::set::<()>(&[], whose, &mut (), name, value),
            Self::Dcqcn(it) => parameter::set(Dcqcn::PARAMETERS, whose, it, name, value),
            Self::Timely(it) => parameter::set(Timely::PARAMETERS, whose, it, name, value),
            Self::Swift(it) => parameter::set(Swift::PARAMETERS, whose, it, name, value),
            Self::Hpcc(it) => parameter::set(Hpcc::PARAMETERS, whose, it, name, value),
        }
    }

    /// Whether all parameters are in the ranges that [`CongestionControl::set`] keeps them in:
    /// their fields are anybody's. What is not may let a queue pair wait for ever. And whether none
    /// contradicts another: a least value is not above its greatest.
    ///
    /// # Errors
    /// The first one that is not.
    pub fn check(&self) -> Result<(), ParameterError> {
        match self {
            Self::None => Ok(()),
            Self::Dcqcn(it) => {
                let rates = ["rp_min_rate", "rp_max_rate"];
                let has_max = !it.rp_max_rate.is_zero();
                let orders = if has_max { &[rates][..] } else { &[] };
                Self::check_all(Dcqcn::PARAMETERS, it, orders)
            }
            Self::Timely(it) => Self::check_all(Timely::PARAMETERS, it, &[["t_low", "t_high"]]),
            Self::Swift(it) => {
                let orders = [["fs_min_cwnd", "fs_max_cwnd"], ["min_cwnd", "max_cwnd"]];
                Self::check_all(Swift::PARAMETERS, it, &orders)
            }
            Self::Hpcc(it) => Self::check_all(Hpcc::PARAMETERS, it, &[]),
        }
    }

    fn check_all<P: Clone>(
        table: &[Parameter<P>],
        of: &P,
        orders: &[[&str; 2]],
    ) -> Result<(), ParameterError> {
        parameter::check(table, of)?;
        orders.iter().try_for_each(|order| parameter::check_order(table, of, *order))
    }

    /// The rate that it never goes below, by its parameter's name.
    pub const fn least_rate(&self) -> Option<(&'static str, Rate)> {
        match self {
            Self::Dcqcn(it) => Some(("rp_min_rate", it.rp_min_rate)),
            Self::Timely(it) => Some(("min_rate", it.min_rate)),
            Self::Hpcc(it) => Some(("min_rate", it.min_rate)),
            Self::None | Self::Swift(_) => None,
        }
    }

    /// All parameters by their names, and what they are, as [`CongestionControl::set`] reads them.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::None => Vec::new(),
            Self::Dcqcn(it) => parameter::list(Dcqcn::PARAMETERS, it),
            Self::Timely(it) => parameter::list(Timely::PARAMETERS, it),
            Self::Swift(it) => parameter::list(Swift::PARAMETERS, it),
            Self::Hpcc(it) => parameter::list(Hpcc::PARAMETERS, it),
        }
    }
}

impl FromStr for CongestionControl {
    type Err = UnknownControl;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::NAMED.iter().find(|(name, _)| *name == text);
        found.map(|(_, control)| *control).ok_or(UnknownControl)
    }
}

/// No algorithm has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownControl;

impl fmt::Display for UnknownControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = CongestionControl::NAMED.iter().map(|(name, _)| *name).collect();
        write!(f, "not one of {}", names.join(", "))
    }
}

impl core::error::Error for UnknownControl {}

/// Writes a notification to the queue pair `dest_qp`.
//= BC-017
pub fn write_cnp(outlet: Outlet<'_>, dest_qp: Qpn, p_key: PKey) -> Option<Emitted> {
    let mut headers = Headers {
        bth: cnp_bth(dest_qp, p_key),
        cnp_reserved: Some(CnpReserved::default()),
        ..Headers::default()
    };
    emit(outlet, &mut headers, 0, |_| Ok::<_, Infallible>(()))?.ok()
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn each_name_is_an_algorithm_and_another_is_told_which_there_are() {
        for (name, control) in CongestionControl::NAMED {
            assert_eq!(name.parse(), Ok(*control));
            assert_eq!(*name, control.name());
        }
        let told = "reno".parse::<CongestionControl>().unwrap_err().to_string();
        assert_eq!(told, "not one of none, dcqcn, dcqcn-paper, timely, swift, hpcc");
    }

    /// Each parameter is read as it is written, and changes nothing else.
    #[test]
    fn all_parameters_are_read_as_they_are_written() {
        for (name, control) in CongestionControl::NAMED {
            let mut copy = *control;
            for (parameter, value) in control.parameters() {
                copy.set(parameter, &value).unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
            }
            assert_eq!(copy, *control);
        }
    }

    #[test]
    fn fields_out_of_their_ranges_are_told_by_name() {
        for (_, control) in CongestionControl::NAMED {
            assert_eq!(control.check(), Ok(()));
        }
        for (control, told) in [
            (
                CongestionControl::Dcqcn(Dcqcn { rp_min_rate: Rate::ZERO, ..Dcqcn::MLX5 }),
                "rp_min_rate=0M: 0.1 to 10000000 Mb/s are possible",
            ),
            (
                CongestionControl::Timely(Timely { min_rate: Rate::ZERO, ..Timely::PAPER }),
                "min_rate=0M: 0.1 to 10000000 Mb/s are possible",
            ),
            (
                CongestionControl::Swift(Swift { min_cwnd: f64::NAN, ..Swift::DEFAULT }),
                "min_cwnd=NaN: 0.0001 to 1000000 are possible",
            ),
            (
                CongestionControl::Hpcc(Hpcc { t: Duration::MAX, ..Hpcc::PAPER }),
                "t=18446744073709552000000000us: 0.1 to 1000000 us are possible",
            ),
        ] {
            let error = control.check().unwrap_err();
            assert_eq!(error.to_string(), told);
            assert!(told.starts_with(&error.name));
        }
    }

    #[test]
    fn parameters_that_contradict_one_another_are_told_by_name() {
        let set = |name: &str, words: &[[&str; 2]]| {
            let mut control: CongestionControl = name.parse().unwrap();
            for [name, text] in words {
                control.set(name, text).unwrap_or_else(|wrong| panic!("{wrong}"));
            }
            control.check().map_err(|wrong| wrong.to_string())
        };
        for (name, words, told) in [
            (
                "dcqcn",
                [["rp_min_rate", "2G"], ["rp_max_rate", "1G"]],
                "rp_min_rate=2000M is above rp_max_rate=1000M",
            ),
            ("timely", [["t_low", "600"], ["n", "1"]], "t_low=600us is above t_high=500us"),
            ("swift", [["min_cwnd", "9"], ["max_cwnd", "8"]], "min_cwnd=9 is above max_cwnd=8"),
            (
                "swift",
                [["fs_min_cwnd", "200"], ["hops", "1"]],
                "fs_min_cwnd=200 is above fs_max_cwnd=100",
            ),
        ] {
            assert_eq!(set(name, &words), Err(told.to_owned()));
        }
        let no_max = [["rp_min_rate", "2G"], ["rp_max_rate", "0"]];
        assert_eq!(set("dcqcn", &no_max), Ok(()), "0 is for no greatest rate");
        assert_eq!(set("swift", &[["min_cwnd", "8"], ["max_cwnd", "8"]]), Ok(()));
    }

    /// 0 stands for never in some of them.
    #[test]
    fn what_is_not_0_does_not_become_0() {
        let mut control = CongestionControl::Dcqcn(Dcqcn::MLX5);
        for (name, text, least) in [
            ("rp_time_reset", "0.4ns", "0.001 us"),
            ("rp_dce_tcp_rtt", "0.0004", "0.001 us"),
            ("rp_byte_reset", "0.4", "1 bytes"),
        ] {
            let told = control.set(name, text).unwrap_err().to_string();
            assert_eq!(told, format!("{name}={text}: {least} is the least above 0"));
        }
        assert_eq!(control, CongestionControl::Dcqcn(Dcqcn::MLX5), "nothing has changed");
        control.set("rp_time_reset", "1ns").unwrap();
        control.set("rp_dce_tcp_rtt", "0").unwrap();
        let expected = Dcqcn {
            rp_time_reset: Duration::from_nanos(1),
            rp_dce_tcp_rtt: Duration::ZERO,
            ..Dcqcn::MLX5
        };
        assert_eq!(control, CongestionControl::Dcqcn(expected));
    }

    #[test]
    fn microseconds_are_read_with_either_letter_too() {
        for text in ["40us", "40\u{b5}s", "40\u{3bc}s", "40 \u{b5}s"] {
            let mut control = CongestionControl::Dcqcn(Dcqcn::MLX5);
            control.set("rp_time_reset", text).unwrap_or_else(|wrong| panic!("{wrong}"));
            let rp_time_reset = Duration::from_micros(40);
            let expected = Dcqcn { rp_time_reset, ..Dcqcn::MLX5 };
            assert_eq!(control, CongestionControl::Dcqcn(expected), "{text}");
        }
    }

    #[test]
    fn values_have_units() {
        let mut control = CongestionControl::Dcqcn(Dcqcn::MLX5);
        for (name, text) in [
            ("rp_ai_rate", "40"),
            ("rp_hai_rate", "0.2Gb/s"),
            ("rp_time_reset", "55"),
            ("rp_dce_tcp_rtt", "0.055 ms"),
            ("rp_byte_reset", "10M"),
            ("rp_clamp_tgt_rate", "on"),
            ("rp_threshold", "5"),
        ] {
            control.set(name, text).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        let expected = Dcqcn {
            rp_ai_rate: Rate::from_mbps(40),
            rp_hai_rate: Rate::from_mbps(200),
            rp_time_reset: Duration::from_micros(55),
            rp_dce_tcp_rtt: Duration::from_micros(55),
            rp_byte_reset: 10_000_000,
            rp_clamp_tgt_rate: true,
            rp_threshold: 5,
            ..Dcqcn::MLX5
        };
        assert_eq!(control, CongestionControl::Dcqcn(expected));
    }

    #[test]
    fn what_is_no_value_is_told_in_one_line_and_changes_nothing() {
        let mut control = CongestionControl::Timely(Timely::PAPER);
        for (name, text, told) in [
            ("delta", "fast", "delta=fast: not a rate, such as 40M or 1.5Gb/s"),
            ("delta", "5us", "delta=5us: not a rate, such as 40M or 1.5Gb/s"),
            ("t_low", "-1", "t_low=-1: not a time, such as 55us or 1ms"),
            ("t_low", "", "t_low=: not a time, such as 55us or 1ms"),
            ("t_high", "2s", "t_high=2s: 0 to 1000000 us are possible"),
            ("n", "2.5", "n=2.5: not a whole number, such as 5"),
            ("n", "0", "n=0: 1 to 1000 are possible"),
            ("beta", "1e9", "beta=1e9: not a number, such as 0.8"),
            ("beta", "nan", "beta=nan: not a number, such as 0.8"),
            ("segment", "12.5.1", "segment=12.5.1: not bytes, such as 32767 or 64k"),
        ] {
            let error = control.set(name, text).unwrap_err();
            assert_eq!((error.name.as_str(), error.to_string().as_str()), (name, told));
        }
        assert_eq!(control, CongestionControl::Timely(Timely::PAPER));
        let mut dcqcn = CongestionControl::Dcqcn(Dcqcn::MLX5);
        let told = dcqcn.set("rp_threshold", "on").unwrap_err().to_string();
        assert_eq!(told, "rp_threshold=on: not a whole number, such as 5");
        let told = control.set("rp_ai_rate", "5").unwrap_err().to_string();
        assert!(told.starts_with("timely has no parameter `rp_ai_rate`: it has alpha, "), "{told}");
        let told = CongestionControl::None.set("g", "1").unwrap_err().to_string();
        assert_eq!(told, "none has no parameter `g`");
    }
}
