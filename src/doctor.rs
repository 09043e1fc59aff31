//! `roxe doctor`: what this machine lacks for an adapter, and what to do about it.
//!
//! It looks and changes nothing: no program is attached, no socket bound.

pub(crate) mod host;
mod interface;

use std::fmt;
use std::io::{self, Write as _};

use anyhow::Result;
use roxe_net::neighbor::{Interface, Netlink};

use crate::cli::DoctorArguments;
use crate::explain::ink::Ink;
use crate::explain::json::Object;
use crate::outcome::{Outcome, complain, counted, visible};

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Right,
    /// It works, but not as well as it could, or not for everybody.
    Warning,
    /// It does not work.
    Wrong,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Right => "ok",
            Self::Warning => "warn",
            Self::Wrong => "fail",
        }
    }
}

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    level: Level,
    /// The interface, of what is about one.
    interface: Option<String>,
    what: &'static str,
    found: String,
    /// What to do.
    advice: String,
}

impl Check {
    fn new(level: Level, what: &'static str, found: impl Into<String>) -> Self {
        let (found, advice) = (found.into(), String::new());
        Self { level, interface: None, what, found, advice }
    }

    fn right(what: &'static str, found: impl Into<String>) -> Self {
        Self::new(Level::Right, what, found)
    }

    /// It could not be looked at, and why.
    fn unknown(what: &'static str, why: impl fmt::Display) -> Self {
        Self::new(Level::Warning, what, format!("not known: {why}"))
            .advise("where /proc is mounted, outside of this chroot or container, it is")
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }
}

/// The command.
pub(crate) fn run(arguments: &DoctorArguments) -> Result<Outcome> {
    let interfaces = match Netlink::open().and_then(|mut netlink| netlink.interfaces()) {
        Ok(interfaces) => interfaces,
        Err(error) => {
            complain(format_args!("cannot list interfaces: {error}"));
            return Ok(Outcome::Lacking);
        }
    };
    let mut checks = host::checks();
    let named = |name: &String| (name.clone(), interfaces.iter().find(|it| it.name == *name));
    let wanted: Vec<_> = if arguments.netdevs.is_empty() {
        let usable = interfaces.iter().filter(|it| it.is_up && !it.is_loopback());
        usable.map(|it| (it.name.clone(), Some(it))).collect()
    } else {
        arguments.netdevs.iter().map(named).collect()
    };
    if arguments.netdevs.is_empty() {
        checks.extend(not_looked_at(&interfaces, wanted.is_empty()));
    }
    for (name, interface) in wanted {
        let about = interface.map_or_else(
            || vec![interface::missing(&interfaces)],
            |interface| interface::checks(interface, &interfaces, arguments.path_mtu),
        );
        checks.extend(about.into_iter().map(|it| Check { interface: Some(name.clone()), ..it }));
    }

    let mut ink = Ink::new(false);
    if arguments.json {
        checks.iter().for_each(|check| json(check, &mut ink));
    } else {
        text(&checks, &mut ink);
    }
    io::stdout().write_all(ink.bytes())?;
    let is_wrong = checks.iter().any(|check| check.level == Level::Wrong);
    Ok(if is_wrong { Outcome::Findings } else { Outcome::Right })
}

/// Of interfaces that nobody named, those that are down are left out.
fn not_looked_at(interfaces: &[Interface], none_is_up: bool) -> Option<Check> {
    let down = interfaces.iter().filter(|it| !it.is_up && !it.is_loopback());
    let down: Vec<_> = down.map(|it| it.name.as_str()).collect();
    let what = "interfaces";
    let names = if down.is_empty() { String::new() } else { format!("down: {}", down.join(", ")) };
    if none_is_up {
        let gap = if down.is_empty() { "" } else { "; " };
        let found = format!("no interface is up but loopback{gap}{names}");
        let advice = "`ip link set NETDEV up`, or an adapter on loopback: `udp:127.0.0.1`";
        return Some(Check::new(Level::Warning, what, found).advise(advice));
    }
    let advice = "`ip link set NETDEV up`; `roxe doctor NETDEV` looks at it as it is";
    (!down.is_empty()).then(|| Check::right(what, names).advise(advice))
}

fn text(checks: &[Check], ink: &mut Ink) {
    let width = checks.iter().map(|check| check.what.len()).max().unwrap_or(0);
    for group in checks.chunk_by(|a, b| a.interface == b.interface) {
        let title = group[0].interface.as_deref().unwrap_or("this machine");
        ink.display(format_args!("{}\n", visible(title, |_| false)));
        for Check { level, what, found, advice, .. } in group {
            let found = visible(found, |_| false);
            ink.display(format_args!("  {:<4}  {what:<width$}  {found}\n", level.name()));
            if !advice.is_empty() {
                let advice = visible(advice, |_| false);
                ink.display(format_args!("  {:<4}  {:<width$}  → {advice}\n", "", ""));
            }
        }
    }
    let count = |level| checks.iter().filter(|check| check.level == level).count();
    let [wrong, warnings] = [Level::Wrong, Level::Warning].map(count);
    let [all, warnings] =
        [(checks.len(), "check"), (warnings, "warning")].map(|(count, what)| counted(count, what));
    ink.display(format_args!("{all}, {wrong} failed, {warnings}\n"));
}

fn json(check: &Check, ink: &mut Ink) {
    let mut object = Object::begin(ink);
    object.text("check", check.what);
    if let Some(interface) = &check.interface {
        object.text("netdev", interface);
    }
    object.text("level", check.level.name());
    object.text("found", &check.found);
    if !check.advice.is_empty() {
        object.text("advice", &check.advice);
    }
    object.end();
}
