//! Scripts that a device on a wire cannot be asked: why.

use std::time::Duration;

use roxe_wire::PKey;

use crate::peer::Peer;

use super::super::bench::Settings;
use super::super::syntax::{
    Arguments, CallVerb, Expression, ObjectKind, Script, SendVerb, Service, Statement, Value, When,
};
use super::Terms;

/// Why a script is not run; `None` when it is.
pub(super) fn reason(script: &Script, settings: &Settings, terms: &Terms) -> Option<String> {
    if !matches!(settings.kind, Peer::Roxe) && settings.kind != terms.kind {
        return Some(format!("it is about what {} does", settings.kind.title()));
    }
    if settings.vlan.is_some() || settings.second_vlan.is_some() {
        return Some("it needs addresses on VLANs".to_owned());
    }
    if settings.congestion != Settings::default().congestion {
        return Some("it needs congestion control".to_owned());
    }
    let time: Duration = script.lines.iter().map(|line| latest(line.when)).sum();
    if time > MOST_TIME {
        return Some(format!("it takes {} s", time.as_secs()));
    }
    if is_about_engine(script) {
        return Some("it is about what only our engine counts and says".to_owned());
    }
    script.lines.iter().find_map(|line| {
        let why = of_statement(&line.statement).or_else(|| match terms.by_hand {
            Some(_) => by_hand(&line.statement),
            None => None,
        })?;
        Some(format!("line {}: {why}", line.number))
    })
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
                | Statement::Call { fails: Some(_), .. }
        )
    };
    !script.lines.iter().any(|line| judges(&line.statement))
}

/// Whether a script waits for timers of the device.
pub(super) fn takes_time(script: &Script) -> bool {
    script.lines.iter().any(|line| latest(line.when) >= Duration::from_millis(1))
}

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
        Statement::Into { packet, .. } if packet.arguments.has("outer-vlan") => {
            Some("it needs addresses on VLANs")
        }
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
        Statement::Call { .. } => Some("its verbs need an agent"),
        Statement::Fill { .. } => Some("its memory needs an agent"),
        Statement::Make { object: ObjectKind::Qp(_) | ObjectKind::Mr, fails: None, .. } => None,
        Statement::Make { .. } => Some("what it makes needs an agent"),
        _ => None,
    }
}

/// Longer scripts are not worth their time.
const MOST_TIME: Duration = Duration::from_secs(20);

const MOST_MEMORY: u64 = 1 << 24;

const FAST: &str = "user space has no fast registration";
