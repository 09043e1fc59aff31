//! The states of a queue pair, and what each step between them needs.
//!
//! IBA vol 1 §10.3.1; the table is that of Linux's `ib_modify_qp_is_ok` and `ibv_modify_qp(3)`.

use core::fmt;

use roxe_wire::opcode::Service;

use Attribute as A;
use QpState::{Error, Init, Reset, Rtr, Rts, SqDrain, SqError};
use ServiceType::{Rc, Uc, Ud};

/// The services a queue pair may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram. Queue pair 1 is one of these.
    Ud,
}

impl ServiceType {
    /// As packets have it.
    pub const fn on_the_wire(self) -> Service {
        match self {
            Rc => Service::Rc,
            Uc => Service::Uc,
            Ud => Service::Ud,
        }
    }
}

/// The state of a queue pair: `ibv_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Nothing is queued, nothing moves.
    #[default]
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Send queue drain: messages begun are finished, no new one begins.
    SqDrain,
    /// Send queue error: sends are flushed, receiving goes on. UC and UD.
    SqError,
    /// Everything is flushed.
    Error,
}

impl QpState {
    /// All states.
    pub const ALL: [Self; 7] = [Reset, Init, Rtr, Rts, SqDrain, SqError, Error];

    /// Whether requests of peers are handled.
    //= R33
    pub const fn receives(self) -> bool {
        matches!(self, Rtr | Rts | SqDrain | SqError)
    }

    /// Whether our requests may be sent, and their responses are handled.
    pub const fn sends(self) -> bool {
        matches!(self, Rts | SqDrain)
    }

    /// Whether receive requests may be posted. C10-97.2.1
    //= V04, IBA C10-97.2.1
    pub const fn takes_receives(self) -> bool {
        !matches!(self, Reset)
    }

    /// Whether send requests may be posted. In the error states they are flushed at once.
    //= V04
    pub const fn takes_sends(self) -> bool {
        matches!(self, Rts | SqDrain | SqError | Error)
    }

    /// The name as `ibv_qp_state` has it, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Reset => "reset",
            Init => "init",
            Rtr => "rtr",
            Rts => "rts",
            SqDrain => "sqd",
            SqError => "sqe",
            Error => "error",
        }
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An attribute that a step may need, with its bit in `ibv_qp_attr_mask`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of ibv_qp_attr_mask")]
pub enum Attribute {
    State = 0,
    CurState = 1,
    EnSqdAsyncNotify = 2,
    AccessFlags = 3,
    PkeyIndex = 4,
    Port = 5,
    Qkey = 6,
    Av = 7,
    PathMtu = 8,
    Timeout = 9,
    RetryCnt = 10,
    RnrRetry = 11,
    RqPsn = 12,
    MaxQpRdAtomic = 13,
    AltPath = 14,
    MinRnrTimer = 15,
    SqPsn = 16,
    MaxDestRdAtomic = 17,
    PathMigState = 18,
    Cap = 19,
    DestQpn = 20,
    RateLimit = 25,
}

impl Attribute {
    /// All of them, by their bits, with their names in `ibv_qp_attr_mask`.
    const NAMES: [(Self, &'static str); 22] = [
        (Self::State, "IBV_QP_STATE"),
        (Self::CurState, "IBV_QP_CUR_STATE"),
        (Self::EnSqdAsyncNotify, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
        (Self::AccessFlags, "IBV_QP_ACCESS_FLAGS"),
        (Self::PkeyIndex, "IBV_QP_PKEY_INDEX"),
        (Self::Port, "IBV_QP_PORT"),
        (Self::Qkey, "IBV_QP_QKEY"),
        (Self::Av, "IBV_QP_AV"),
        (Self::PathMtu, "IBV_QP_PATH_MTU"),
        (Self::Timeout, "IBV_QP_TIMEOUT"),
        (Self::RetryCnt, "IBV_QP_RETRY_CNT"),
        (Self::RnrRetry, "IBV_QP_RNR_RETRY"),
        (Self::RqPsn, "IBV_QP_RQ_PSN"),
        (Self::MaxQpRdAtomic, "IBV_QP_MAX_QP_RD_ATOMIC"),
        (Self::AltPath, "IBV_QP_ALT_PATH"),
        (Self::MinRnrTimer, "IBV_QP_MIN_RNR_TIMER"),
        (Self::SqPsn, "IBV_QP_SQ_PSN"),
        (Self::MaxDestRdAtomic, "IBV_QP_MAX_DEST_RD_ATOMIC"),
        (Self::PathMigState, "IBV_QP_PATH_MIG_STATE"),
        (Self::Cap, "IBV_QP_CAP"),
        (Self::DestQpn, "IBV_QP_DEST_QPN"),
        (Self::RateLimit, "IBV_QP_RATE_LIMIT"),
    ];
}

impl fmt::Display for Attribute {
    /// By its name in `ibv_qp_attr_mask`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        AttributeMask::of(&[*self]).fmt(f)
    }
}

/// A set of attributes: `attr_mask` of `ibv_modify_qp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AttributeMask(u32);

impl AttributeMask {
    /// No attribute.
    pub const NONE: Self = Self(0);

    /// These attributes.
    pub const fn of(attributes: &[Attribute]) -> Self {
        let mut mask = 0;
        let mut i = 0;
        while i < attributes.len() {
            mask |= 1 << attributes[i] as u32;
            i += 1;
        }
        Self(mask)
    }

    /// The bits as libibverbs has them.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits as libibverbs has them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the attribute is among these.
    pub const fn contains(self, attribute: Attribute) -> bool {
        self.0 >> attribute as u32 & 1 == 1
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this set but not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for AttributeMask {
    /// By their names in `ibv_qp_attr_mask`; bits without a name as a number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut nameless = *self;
        for (attribute, name) in Attribute::NAMES {
            if self.contains(attribute) {
                write!(f, "{between}{name}")?;
                nameless = nameless.without(Self::of(&[attribute]));
                between = ", ";
            }
        }
        if nameless.is_empty() { Ok(()) } else { write!(f, "{between}0x{:x}", nameless.bits()) }
    }
}

/// A step between two states.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    /// Where it begins.
    pub from: QpState,
    /// Where it ends.
    pub to: QpState,
    /// For which service.
    pub service: ServiceType,
    /// What must be given.
    pub required: AttributeMask,
    /// What may be given.
    pub optional: AttributeMask,
}

/// Why a step is refused: `EINVAL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// There is no such step.
    NoSuchTransition {
        /// The present state.
        from: QpState,
        /// The state asked for.
        to: QpState,
    },
    /// Attributes that the step needs were not given.
    Missing(AttributeMask),
    /// Attributes were given that the step does not take.
    NotAllowed(AttributeMask),
    /// `cur_qp_state` is not the present state.
    WrongCurrentState,
    /// An attribute's value is out of range.
    Value(Attribute),
    /// No such queue pair.
    NoSuchQueuePair,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchTransition { from, to } => write!(f, "no step from {from} to {to}"),
            Self::Missing(mask) => write!(f, "attr_mask lacks {mask}"),
            Self::NotAllowed(mask) => write!(f, "attr_mask has {mask}, which has no place there"),
            Self::WrongCurrentState => f.write_str("cur_qp_state is not the present state"),
            Self::Value(attribute) => write!(f, "the value of {attribute} is out of range"),
            Self::NoSuchQueuePair => f.write_str("no such queue pair"),
        }
    }
}

impl core::error::Error for ModifyError {}

const RC_INIT: &[A] = &[A::PkeyIndex, A::Port, A::AccessFlags];
const UD_INIT: &[A] = &[A::PkeyIndex, A::Port, A::Qkey];
const RC_SQD: &[A] = &[
    A::Port,
    A::Av,
    A::Timeout,
    A::RetryCnt,
    A::RnrRetry,
    A::MaxQpRdAtomic,
    A::MaxDestRdAtomic,
    A::AltPath,
    A::AccessFlags,
    A::PkeyIndex,
    A::MinRnrTimer,
    A::PathMigState,
];
const RC_RTR: &[A] = &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer];
const UC_RTR: &[A] = &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn];
const RTR_MAY: &[A] = &[A::AltPath, A::AccessFlags, A::PkeyIndex];
const RC_RTS: &[A] = &[A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic];
const RC_RUN: &[A] = &[A::CurState, A::AltPath, A::AccessFlags, A::MinRnrTimer, A::PathMigState];
const UC_RUN: &[A] = &[A::CurState, A::AltPath, A::AccessFlags, A::PathMigState];
const UD_RUN: &[A] = &[A::CurState, A::Qkey];
const UC_SQD: &[A] = &[A::Av, A::AltPath, A::AccessFlags, A::PkeyIndex, A::PathMigState];

/// Every step but those to Reset, which every state may take, and to Error, which every state but
/// Reset may; both with nothing but the state.
#[rustfmt::skip]
pub const TRANSITIONS: &[Transition] = &[
    //   from     to       service required              optional
    step(Reset,   Init,    Rc,     RC_INIT,              &[]),
    step(Reset,   Init,    Uc,     RC_INIT,              &[]),
    step(Reset,   Init,    Ud,     UD_INIT,              &[]),
    step(Init,    Init,    Rc,     &[],                  RC_INIT),
    step(Init,    Init,    Uc,     &[],                  RC_INIT),
    step(Init,    Init,    Ud,     &[],                  UD_INIT),
    step(Init,    Rtr,     Rc,     RC_RTR,               RTR_MAY),
    step(Init,    Rtr,     Uc,     UC_RTR,               RTR_MAY),
    step(Init,    Rtr,     Ud,     &[],                  &[A::PkeyIndex, A::Qkey]),
    step(Rtr,     Rts,     Rc,     RC_RTS,               RC_RUN),
    step(Rtr,     Rts,     Uc,     &[A::SqPsn],          UC_RUN),
    step(Rtr,     Rts,     Ud,     &[A::SqPsn],          UD_RUN),
    step(Rts,     Rts,     Rc,     &[],                  RC_RUN),
    step(Rts,     Rts,     Uc,     &[],                  UC_RUN),
    step(Rts,     Rts,     Ud,     &[],                  UD_RUN),
    step(Rts,     SqDrain, Rc,     &[],                  &[A::EnSqdAsyncNotify]),
    step(Rts,     SqDrain, Uc,     &[],                  &[A::EnSqdAsyncNotify]),
    step(Rts,     SqDrain, Ud,     &[],                  &[A::EnSqdAsyncNotify]),
    step(SqDrain, Rts,     Rc,     &[],                  RC_RUN),
    step(SqDrain, Rts,     Uc,     &[],                  UC_RUN),
    step(SqDrain, Rts,     Ud,     &[],                  UD_RUN),
    step(SqDrain, SqDrain, Rc,     &[],                  RC_SQD),
    step(SqDrain, SqDrain, Uc,     &[],                  UC_SQD),
    step(SqDrain, SqDrain, Ud,     &[],                  &[A::PkeyIndex, A::Qkey]),
    step(SqError, Rts,     Uc,     &[],                  &[A::CurState, A::AccessFlags]),
    step(SqError, Rts,     Ud,     &[],                  UD_RUN),
];

const fn step(
    from: QpState,
    to: QpState,
    service: ServiceType,
    required: &[Attribute],
    optional: &[Attribute],
) -> Transition {
    Transition {
        from,
        to,
        service,
        required: AttributeMask::of(required),
        optional: AttributeMask::of(optional),
    }
}

/// The step between two states, if the service has one; there is none to Reset and Error, which
/// need nothing.
pub fn transition(service: ServiceType, from: QpState, to: QpState) -> Option<&'static Transition> {
    TRANSITIONS.iter().find(|row| (row.service, row.from, row.to) == (service, from, to))
}

/// Whether a queue pair of `service` in state `from` may go to `to` with the attributes `given`
/// (the state itself counts as given).
///
/// # Errors
/// Why not.
//= V01, V02, 05-5.1
pub fn check_transition(
    service: ServiceType,
    from: QpState,
    to: QpState,
    given: AttributeMask,
) -> Result<(), ModifyError> {
    let given = given.without(AttributeMask::of(&[A::State]));
    let (required, optional) = match to {
        Reset => (AttributeMask::NONE, AttributeMask::NONE),
        Error if from != Reset => (AttributeMask::NONE, AttributeMask::NONE),
        _ => transition(service, from, to)
            .map(|row| (row.required, row.optional))
            .ok_or(ModifyError::NoSuchTransition { from, to })?,
    };
    let missing = required.without(given);
    if !missing.is_empty() {
        return Err(ModifyError::Missing(missing));
    }
    let strange = given.without(required.with(optional));
    if !strange.is_empty() {
        return Err(ModifyError::NotAllowed(strange));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_named_as_programs_name_them() {
        let mask = AttributeMask::of(&[A::State, A::MinRnrTimer, A::RateLimit]);
        let told = ModifyError::Missing(mask).to_string();
        assert_eq!(told, "attr_mask lacks IBV_QP_STATE, IBV_QP_MIN_RNR_TIMER, IBV_QP_RATE_LIMIT");
        assert_eq!(AttributeMask::from_bits(1 << 28 | 1 << 7).to_string(), "IBV_QP_AV, 0x10000000");
        assert_eq!(AttributeMask::from_bits(1 << 28).to_string(), "0x10000000");
    }

    //= 05-5.1 test
    #[test]
    fn every_step_outside_the_table_is_refused() {
        for service in [Rc, Uc, Ud] {
            for from in QpState::ALL {
                for to in QpState::ALL {
                    let row = transition(service, from, to);
                    let given = row.map_or(AttributeMask::NONE, |row| row.required);
                    let verdict = check_transition(service, from, to, given);
                    let right = to == Reset || to == Error && from != Reset || row.is_some();
                    assert_eq!(verdict.is_ok(), right, "{service:?} {from} {to}");
                }
            }
        }
        let direct = check_transition(Rc, Reset, Rts, AttributeMask::NONE);
        assert_eq!(direct, Err(ModifyError::NoSuchTransition { from: Reset, to: Rts }));
    }

    //= V02 test
    #[test]
    fn each_required_attribute_is_required_and_each_other_refused() {
        for row in TRANSITIONS {
            let check = |given| check_transition(row.service, row.from, row.to, given);
            for bit in 1..26 {
                let one = AttributeMask::from_bits(1 << bit);
                if row.required.without(one) == row.required {
                    let strange = row.optional.without(one) == row.optional;
                    let verdict = check(row.required.with(one));
                    assert_eq!(verdict.is_err(), strange, "{row:?} bit {bit}");
                } else {
                    let verdict = check(row.required.without(one));
                    assert_eq!(verdict, Err(ModifyError::Missing(one)), "{row:?} bit {bit}");
                }
            }
        }
    }
}
