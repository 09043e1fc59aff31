//! Scripts that a device on a wire cannot be asked: why.

use std::time::Duration;

use roxe_device::Congestion;
use roxe_transport::congestion::CongestionControl;
use roxe_wire::PKey;

use crate::peer::Peer;

use super::super::bench::Settings;
use super::super::syntax::{
    Arguments, CallVerb, Expression, Line, ObjectKind, PacketName, Script, SendVerb, Service,
    Statement, Value, When,
};
use super::Terms;

/// How slowly a script is run.
///
/// # Errors
/// It is not run, and why.
pub(super) fn pace(script: &Script, settings: &Settings, terms: &Terms) -> Result<Pace, String> {
    if !matches!(settings.kind, Peer::Roxe) && settings.kind != terms.kind {
        return Err(format!("it is about what {} does", settings.kind.title()));
    }
    if settings.vlan.is_some() || settings.second_vlan.is_some() {
        return Err(VLANS.to_owned());
    }
    let Congestion { control, notification_point, .. } = settings.congestion;
    if control != CongestionControl::None || notification_point.is_some() {
        return Err("it needs congestion control".to_owned());
    }
    let pace = Pace::of(script)?;
    let is_quiet = |line: &&Line| matches!(line.statement, Statement::Quiet);
    // The end is one too.
    let silences = script.lines.iter().filter(is_quiet).count() + 1;
    let silence = terms.silence.saturating_mul(u32::try_from(silences).unwrap_or(u32::MAX));
    let waits = script.lines.iter().map(|line| pace.stretch(latest(line.when)));
    let time = waits.fold(silence, Duration::saturating_add);
    if time > MOST_TIME {
        return Err(format!("it takes {} s", time.as_secs()));
    }
    if is_about_engine(script) {
        return Err("it is about what only our engine counts and says".to_owned());
    }
    let why = script.lines.iter().find_map(|line| {
        let why = of_statement(&line.statement)
            .or_else(|| terms.by_hand.and_then(|_| by_hand(&line.statement)))?;
        Some(format!("line {}: {why}", line.number))
    });
    match why {
        Some(why) => Err(why),
        // All else is taken for true then.
        None if terms.by_hand.is_some() && !is_about_frames(script) => {
            Err("it is about what only an agent sees".to_owned())
        }
        None => Ok(pace),
    }
}

/// A script that nothing is left of without counters and stories.
fn is_about_engine(script: &Script) -> bool {
    let judges = |statement: &Statement| {
        matches!(
            statement,
            Statement::Out { .. }
                | Statement::Completion { .. }
                | Statement::Event { .. }
                | Statement::Memory { .. }
                | Statement::State { .. }
                | Statement::Quiet
                | Statement::Make { fails: Some(_), .. }
                | Statement::PostReceive { fails: Some(_), .. }
                | Statement::PostSend { fails: Some(_), .. }
                | Statement::Call { .. }
        )
    };
    !script.lines.iter().any(|line| judges(&line.statement))
}

/// A script that looks at what the device sends.
fn is_about_frames(script: &Script) -> bool {
    let judges = |it: &Statement| matches!(it, Statement::Out { .. } | Statement::Quiet);
    script.lines.iter().any(|line| judges(&line.statement))
}

/// How the ACK timers of a script go here: slowly enough for the way to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// Added to the codes of timeouts: each doubles the times of the script.
    pub(super) doublings: u8,
    /// A queue pair's timeout, where the script says none.
    pub(super) timeout: u8,
}

impl Pace {
    /// # Errors
    /// It cannot be slower, and why.
    pub(super) fn of(script: &Script) -> Result<Self, &'static str> {
        let said = script.lines.iter().filter_map(|line| timeout(&line.statement));
        let said = said.filter(|code| *code != 0).min();
        let waits = script.lines.iter().any(|line| latest(line.when) >= SHORTEST_WAIT);
        let has_rnr = script.lines.iter().any(|line| is_about_rnr(&line.statement));
        match (said, waits) {
            (None, false) => Ok(Self { doublings: 0, timeout: PATIENT }),
            // Timers of receivers that are not ready do not go slower.
            (None, true) if has_rnr => Ok(Self { doublings: 0, timeout: PATIENT }),
            (Some(code), _) if has_rnr && code < SLOW => {
                Err("its timers are shorter than the way to the device")
            }
            (code, _) => {
                let doublings = SLOW.saturating_sub(code.unwrap_or(DEFAULT));
                Ok(Self { doublings, timeout: DEFAULT + doublings })
            }
        }
    }

    pub(super) fn stretch(self, time: Duration) -> Duration {
        time.saturating_mul(1 << self.doublings)
    }
}

/// The code of a timeout that a statement gives a queue pair.
fn timeout(statement: &Statement) -> Option<u8> {
    let (Statement::Make { arguments, .. } | Statement::Call { arguments, .. }) = statement else {
        return None;
    };
    match arguments.get("timeout")? {
        Value::Number(Expression { plus, .. }) => u8::try_from(*plus).ok(),
        _ => None,
    }
}

fn is_about_rnr(statement: &Statement) -> bool {
    match statement {
        Statement::Into { packet, .. } => packet.name == PacketName::RnrNak,
        Statement::Out { forms, .. } => forms.iter().any(|form| form.name == PacketName::RnrNak),
        _ => false,
    }
}

/// The code of a timeout that outlasts the way to a slow host: 134 ms.
const SLOW: u8 = 15;
/// What scripts have if they say nothing.
const DEFAULT: u8 = 14;
/// 1.07 s: nothing is sent again because the way takes long.
const PATIENT: u8 = 18;
/// Who waits so long may wait for the timeout that scripts have if they say nothing.
const SHORTEST_WAIT: Duration = Duration::from_millis(60);

fn latest(when: When) -> Duration {
    match when {
        When::After(after) => after,
        When::Between(_, until) => until,
    }
}

fn of_statement(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::Make { object: ObjectKind::Qp(Service::Gsi), .. } => {
            Some("queue pair 1 is the kernel's")
        }
        Statement::Make { object: ObjectKind::Cm, .. } => Some(MANAGER),
        Statement::Make { object: ObjectKind::Qp(_), arguments, .. } => {
            if arguments.has("window") {
                Some("`window` is our engine's own")
            } else {
                partition(arguments)
            }
        }
        Statement::Make { object: ObjectKind::Mr, arguments, .. } if arguments.has("fast") => {
            Some(FAST)
        }
        Statement::Make { object: ObjectKind::Mr, arguments, .. } => {
            let long = matches!(arguments.get("len"), Some(Value::Number(Expression { plus, .. }))
                if *plus > MOST_MEMORY);
            long.then_some("the agent's host has no such region")
        }
        Statement::PostSend { verb, .. } => match verb {
            SendVerb::Register => Some(FAST),
            SendVerb::AtomicWrite | SendVerb::Flush => {
                Some("the agent posts no FLUSH and no atomic WRITE")
            }
            _ => None,
        },
        Statement::Call { verb, arguments, .. } => match verb {
            CallVerb::Hold | CallVerb::Release => Some("a kernel's port cannot be held"),
            CallVerb::Lose => Some("memory does not go away from below a kernel"),
            CallVerb::AddGid | CallVerb::RemoveGid => Some("addresses are the kernel's"),
            CallVerb::Reregister if arguments.has("len") => {
                Some("the agent registers no other memory anew")
            }
            CallVerb::Modify => partition(arguments),
            _ => None,
        },
        Statement::Into { packet, .. } if packet.arguments.has("outer-vlan") => Some(VLANS),
        _ => None,
    }
}

/// A verb names an entry of the P_Key table, which the device fills.
fn partition(arguments: &Arguments) -> Option<&'static str> {
    match arguments.get("pkey") {
        Some(Value::Number(Expression { plus, .. })) if *plus != u64::from(PKey::DEFAULT.0) => {
            Some("the device has one partition, 0xffff")
        }
        _ => None,
    }
}

/// What a queue pair that somebody made by hand cannot be asked.
fn by_hand(statement: &Statement) -> Option<&'static str> {
    match statement {
        Statement::PostSend { .. } => Some("its requests need an agent"),
        Statement::PostReceive { fails: Some(_), .. } => Some("its refusals need an agent"),
        Statement::Call { .. } => Some("its verbs need an agent"),
        Statement::Fill { .. } => Some("its memory needs an agent"),
        Statement::Make { object: ObjectKind::Qp(_) | ObjectKind::Mr, fails: None, .. } => None,
        Statement::Make { .. } => Some("what it makes needs an agent"),
        _ => None,
    }
}

/// Longer scripts are not worth their time.
const MOST_TIME: Duration = Duration::from_secs(60);

const MOST_MEMORY: u64 = 1 << 24;

/// Why nothing of connection management is asked of a device.
pub(super) const MANAGER: &str = "connections are made by the kernel's own manager";

const VLANS: &str = "it needs addresses on VLANs";

const FAST: &str = "user space has no fast registration";
