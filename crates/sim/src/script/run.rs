//! A script, line by line, against a device in virtual time.

use std::fmt;

use roxe_device::Congestion;
use roxe_device::HostMemory;
use roxe_transport::congestion::notification_point::CnpScope;
use roxe_transport::congestion::{Burst, NotificationPoint, Rate};
use roxe_transport::work::{Completion, CompletionStatus, Extra};
use roxe_wire::{Frame, ImmDt, Instant, Mtu, Qpn, RKey, RawFrame, Start};

use roxe_transport::qp_state::ServiceType;

use crate::peer::Peer;
use crate::phrase;

use super::{Outcome, Play, Played, PlayedFrame};

use super::bench::{Bench, Done, Object, Pending, Settings, is_receive};
use super::cm::By;
use super::frame_in::{self, PeerSide};
use super::frame_out::differ;
use super::mistake::{Instead, Mistake, Stop};
use super::objects::{Refused, Verb, mtu};
use super::parse::show_instant;
use super::symbols::{NoSymbols, Numbers, Symbols};
use super::syntax::{
    Arguments, Line, PacketForm, PacketName, Place, Script, Statement, Value, When,
};

/// A line that did not come true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The file's name, as it was given.
    pub file: String,
    /// From 1 on.
    pub line: usize,
    /// Where in it the statement begins, in characters from 1 on.
    pub column: usize,
    /// The line, without comment.
    pub text: String,
    /// What is wrong.
    pub what: String,
    /// What happened before, oldest first: lines of the script and what the device did.
    pub before: Vec<String>,
    /// What queue pairs that ended say of it.
    pub ended: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}: {}", self.file, self.line, self.text)?;
        write!(f, "  {}", self.what)?;
        if !self.before.is_empty() {
            write!(f, "\n  before:")?;
        }
        self.before.iter().chain(&self.ended).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Runs a script to its end, or to the first line that does not come true.
pub(super) fn run(file: &str, script: &Script, how: &Play) -> Played {
    let Some(first) = script.lines.first() else { return Outcome::Passed { statements: 0 }.into() };
    let wrong = |line: &Line, mistake| Outcome::Wrong(vec![line.place(file, mistake)]);
    let mut bench = match begin(first) {
        Ok(bench) => bench,
        Err(mistake) => return wrong(first, mistake).into(),
    };
    bench.frames = how.frames.then(Vec::new);
    let outcome = match play(&mut bench, script, how) {
        Ok(()) => Outcome::Passed { statements: script.lines.len() },
        Err((line, Stop::Mistake(mistake))) => wrong(line, mistake),
        Err((line, Stop::Difference { what, instead })) => {
            tell_in_frames(bench.frames.as_deref_mut(), instead, line, &what);
            Outcome::Failed(failure(file, line, what, &bench, how.before))
        }
    };
    Played { outcome, history: bench.history, frames: bench.frames.unwrap_or_default() }
}

fn play<'a>(bench: &mut Bench, script: &'a Script, how: &Play) -> Result<(), (&'a Line, Stop)> {
    let mut shown = None;
    for line in &script.lines {
        let come = bench.frames.as_ref().map_or(0, Vec::len);
        bench.line(line).map_err(|stop| (line, stop))?;
        // What a line speaks of has its comment. The rest came when time passed here.
        let rest = bench.frames.iter_mut().flat_map(|frames| &mut frames[come..]);
        for frame in rest.filter(|frame| frame.comment.is_empty()) {
            frame.comment = comment(line);
        }
        // A line of several statements is one line.
        if shown.replace(line.number) != Some(line.number) {
            let told = format!("{:>9} {:>3} {}", show_instant(bench.now), line.number, line.text);
            bench.history.push(told);
        }
        if !how.transcript {
            bench.forget(how.before);
        }
    }
    bench.collect();
    let rest = bench.frames.iter_mut().flatten().filter(|frame| frame.comment.is_empty());
    rest.for_each(|frame| frame.comment.push_str("behind the last line"));
    let Some(last) = script.lines.last() else { return Ok(()) };
    let ended = bench.nothing_more(Instant::MAX, "the script ends here, but the device did more");
    ended.map_err(|stop| (last, stop))
}

/// What is kept with the frames of a line.
pub(super) fn comment(line: &Line) -> String {
    format!("line {}: {}", line.number, line.text)
}

/// With what is kept with the frame at which a line did not come true.
fn expected(line: &Line) -> String {
    format!("line {}: expected: {}; ", line.number, line.text)
}

/// What is kept with a frame that a line speaks of: where it is not as the line says, how.
pub(super) fn comment_checked(line: &Line, difference: Option<&str>) -> String {
    let Some(what) = difference else { return comment(line) };
    let what = match what.strip_prefix("instead: ").map(|it| it.split_once('\n')) {
        Some(None) => "instead this".to_owned(),
        Some(Some((_, how))) => format!("instead this: {}", one_line(how)),
        None => one_line(what),
    };
    expected(line) + &what
}

/// Says in the frames that are kept which line did not come true, unless one says so already: at
/// that which came `instead`, at its time; if it was no frame that came, behind the last one until
/// then, or if nothing came, behind the last one.
pub(super) fn tell_in_frames(
    frames: Option<&mut [PlayedFrame]>,
    instead: Option<Instead>,
    line: &Line,
    what: &str,
) {
    let Some(frames) = frames else { return };
    let head = match what.contains(DID_MORE) {
        true => format!("line {}: expected: nothing more; ", line.number),
        false => expected(line),
    };
    if frames.iter().any(|frame| frame.comment.starts_with(&head)) {
        return;
    }
    let kept = instead.and_then(|it| it.kept);
    if let Some(frame) = kept.and_then(|kept| frames.get_mut(kept)) {
        frame.comment = head + "instead this";
        return;
    }
    let until = |it: Instead| frames.iter().take_while(|frame| frame.time <= it.at).count();
    let before = instead.map_or(frames.len(), until);
    if let Some(last) = frames.get_mut(before.saturating_sub(1)) {
        let separator = if last.comment.is_empty() { "" } else { "; then " };
        last.comment += &format!("{separator}{head}{}", one_line(what));
    }
}

/// Several lines as one.
fn one_line(what: &str) -> String {
    what.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

/// What is said where the device did what no line speaks of.
const DID_MORE: &str = "the device did more: ";

/// The same, where a line has yet to come true.
const BEFORE: &str = "before this line the device did more";

fn failure(file: &str, line: &Line, what: String, bench: &Bench, before: usize) -> Failure {
    let from = bench.history.len().saturating_sub(before);
    Failure {
        file: file.to_owned(),
        line: line.number,
        column: line.column(),
        text: line.text.to_string(),
        what,
        before: bench.history[from..].to_vec(),
        ended: bench.ended(),
    }
}

/// The bench of a script whose first line may be about it.
fn begin(line: &Line) -> Result<Bench, Mistake> {
    let settings = Settings::read(line)?;
    let mut bench = Bench::new(settings);
    match bench.prepare() {
        Ok(()) => Ok(bench),
        Err(Refused::Script(mistake)) => Err(mistake),
        Err(Refused::Errno(errno, why)) => Err(format!("{errno}, {why}").into()),
    }
}

impl Settings {
    /// Those of a script, whose first line may be about them.
    pub(super) fn read(line: &Line) -> Result<Self, Mistake> {
        let nothing = Arguments::default();
        let arguments = match &line.statement {
            Statement::Device(arguments) => arguments,
            _ => &nothing,
        };
        let mut settings = Self::default();
        let path_mtu = u64::from(settings.path_mtu.bytes());
        settings.path_mtu = mtu(NoSymbols.number_or(arguments, "path-mtu", path_mtu)?)?;
        settings.seed = NoSymbols.number_or(arguments, "seed", settings.seed)?;
        settings.address = arguments.address("address").unwrap_or(settings.address);
        settings.second_address = arguments.address("second-address");
        settings.kind = arguments.word("as").and_then(Peer::by_name).unwrap_or_default();
        settings.peer = arguments.address("peer").unwrap_or(settings.peer);
        let vlan = |name: &str| NoSymbols.number(arguments, name, None);
        settings.vlan = vlan("vlan")?.map(|vlan| vlan as u16);
        settings.second_vlan = vlan("second-vlan")?.map(|vlan| vlan as u16);
        settings.congestion = congestion(arguments)?;
        Ok(settings)
    }
}

/// How the device takes part in congestion control: not at all unless it says so.
fn congestion(arguments: &Arguments) -> Result<Congestion, Mistake> {
    let control = arguments.word("cc").and_then(|name| name.parse().ok()).unwrap_or_default();
    let scope = arguments.word("cnp").map(|scope| match scope {
        "address" => CnpScope::Address,
        "port" => CnpScope::Port,
        _ => CnpScope::QueuePair,
    });
    let notification_point =
        scope.map(|scope| NotificationPoint { scope, ..NotificationPoint::DEFAULT });
    let megabits = NoSymbols.number_or(arguments, "rate", 10_000)? as u32;
    let (line_rate, burst) = (Rate::from_mbps(megabits), Burst::DEFAULT);
    Ok(Congestion { control, line_rate, is_ceiling: false, burst, notification_point })
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            path_mtu: Mtu::B1024,
            seed: 1,
            address: [192, 0, 2, 1].into(),
            second_address: None,
            peer: [192, 0, 2, 2].into(),
            kind: Peer::Roxe,
            vlan: None,
            second_vlan: None,
            congestion: Congestion::default(),
        }
    }
}

/// Whether a verb ended as the script says.
fn expect(outcome: Verb, fails: Option<&str>) -> Result<(), Stop> {
    let difference = match (outcome, fails) {
        (Err(Refused::Script(mistake)), _) => return Err(mistake.into()),
        (Ok(()), None) => return Ok(()),
        (Ok(()), Some(errno)) => format!("it succeeded, and should have failed: {errno}"),
        (Err(Refused::Errno(errno, why)), None) => format!("it failed: {errno}, {why}"),
        (Err(Refused::Errno(is, _)), Some(errno)) if is == errno => return Ok(()),
        (Err(Refused::Errno(is, why)), Some(errno)) => {
            format!("it failed with {is} ({why}), not with {errno}")
        }
    };
    Err(difference.into())
}

impl Bench {
    fn line(&mut self, line: &Line) -> Result<(), Stop> {
        match &line.statement {
            Statement::Out { qp, forms } => {
                self.qp(qp)?;
                let pending = self.next(line.when, |pending| match &pending.what {
                    Done::Frame { qp: Some(sender), .. } => sender == qp,
                    _ => false,
                });
                let pending = pending?;
                let kept = pending.kept();
                let checked = self.check_frame(qp, forms, pending);
                self.comment(kept, line, &checked);
                checked
            }
            Statement::Completion { qp, receive, arguments } => {
                let qpn = qp.as_ref().map(|qp| self.qp(qp).map(|qp| qp.qpn)).transpose()?;
                let pending = self.next(line.when, |pending| match &pending.what {
                    Done::Completion(completion) => {
                        is_receive(completion) == *receive
                            && qpn.is_none_or(|qpn| qpn == completion.qpn)
                    }
                    _ => false,
                });
                self.check_completion(arguments, pending?)
            }
            Statement::Event { object, name, arguments } => {
                let of_cm = self.events_of(object);
                let pending = self.next(line.when, |pending| match &pending.what {
                    Done::Event { object: of, .. } => of == object,
                    Done::Told(told) => Some(told.of) == of_cm,
                    _ => false,
                })?;
                match pending.what {
                    Done::Event { name: is, .. } if is == name => Ok(()),
                    Done::Told(told) if told.name == name => {
                        let shown = told.show(object);
                        self.check_told(object, arguments, told).map_err(|stop| match stop {
                            Stop::Difference { what, .. } => {
                                format!("instead: {shown}\n  {what}").into()
                            }
                            mistake => mistake,
                        })
                    }
                    other => Err(format!("instead: {}", self.show(&other)).into()),
                }
            }
            _ => {
                if let When::After(after) = line.when
                    && !after.is_zero()
                {
                    self.move_on(self.now + after)?;
                }
                self.act(&line.statement)
            }
        }
    }

    /// A line speaks of what the device sent, perhaps at a line before.
    fn comment(&mut self, kept: Option<usize>, line: &Line, checked: &Result<(), Stop>) {
        let mut frames = self.frames.iter_mut().flatten();
        if let Some(frame) = kept.and_then(|kept| frames.nth(kept)) {
            frame.comment =
                comment_checked(line, checked.as_ref().err().and_then(Stop::difference));
        }
    }

    /// Time passes; nothing may have happened that no line spoke of.
    fn move_on(&mut self, until: Instant) -> Result<(), Stop> {
        self.advance(until)?;
        self.nothing_more(until, BEFORE)
    }

    /// The device did nothing before `until` that no line spoke of; if it did, that is told behind
    /// `head`.
    fn nothing_more(&self, until: Instant, head: &str) -> Result<(), Stop> {
        let Some(more) = self.pending.iter().find(|pending| pending.at < until) else {
            return Ok(());
        };
        let what = format!("{head}: {} (at {})", self.show(&more.what), show_instant(more.at));
        Err(Stop::Difference { what, instead: Some(Instead { at: more.at, kept: more.kept() }) })
    }

    /// The next thing of a kind that the device does, at the right time.
    fn next(&mut self, when: When, wanted: impl Fn(&Pending) -> bool) -> Result<Pending, Stop> {
        let start = self.now;
        let (from, until) = match when {
            When::After(after) => (start + after, start + after),
            When::Between(from, until) => (start + from, start + until),
        };
        self.collect();
        // What happens at once counts as between, so only a later time has a before.
        if from > start {
            self.nothing_more(Instant::MAX, BEFORE)?;
        }
        match when {
            When::After(_) => self.advance(until)?,
            When::Between(_, _) => self.await_until(until, &wanted)?,
        }
        let Some(index) = self.pending.iter().position(&wanted) else {
            self.nothing_more(Instant::MAX, "instead the device did this")?;
            let rest = match self.next_deadline() {
                Some(at) => format!("; its next timer ends at {}", show_instant(at)),
                None => ", and waits for nothing".to_owned(),
            };
            return Err(format!("the device did nothing{rest}").into());
        };
        let found = self.pending.remove(index);
        if found.at < from || found.at > until {
            let (shown, at) = (self.show(&found.what), show_instant(found.at));
            let wanted = show_range(from, until);
            return Err(format!("it came at {at}, not at {wanted}: {shown}").into());
        }
        self.nothing_more(self.now, BEFORE)?;
        Ok(found)
    }

    /// What happens at once: everything that the device does not do by itself.
    fn act(&mut self, statement: &Statement) -> Result<(), Stop> {
        match statement {
            Statement::Make { object, name, arguments, fails } => {
                expect(self.make(*object, name, arguments), fails.as_deref())
            }
            Statement::PostReceive { queue, arguments, fails } => {
                expect(self.post_receive(queue, arguments), fails.as_deref())
            }
            Statement::PostSend { verb, qp, arguments, fails } => {
                expect(self.post_send(*verb, qp, arguments), fails.as_deref())
            }
            Statement::Call { verb, target, arguments, fails } => {
                expect(self.call(*verb, target, arguments), fails.as_deref())
            }
            Statement::Fill { place, bytes } => {
                let region = self.region(&place.region)?;
                let filled = self.device.host_mut().write(region.host, place.offset, bytes);
                Ok(filled.map_err(|gone| gone.to_string())?)
            }
            Statement::Into { qp, packet } => Ok(self.inject(qp, packet)?),
            Statement::Counter { qp, name, value } => {
                self.check_counter(qp.as_deref(), name, *value)
            }
            Statement::Memory { place, bytes } => self.check_memory(place, bytes),
            Statement::State { qp, name } => {
                let info = self.device.query_queue_pair(self.qp(qp)?.qpn);
                let state = info.map_err(|error| error.to_string())?.state.name();
                holds(state == name, || format!("{qp} is in state {state}"))
            }
            Statement::Why { qp, sentence } => {
                let story = self.device.queue_pair_story(self.qp(qp)?.qpn);
                let told = story.map_or_else(String::new, |story| story.sentence());
                holds(is_like(&told, sentence), || format!("instead: {told}"))
            }
            Statement::Turn => {
                self.collect();
                Ok(())
            }
            Statement::Quiet => {
                self.collect();
                self.nothing_more(Instant::MAX, "the device did this")
            }
            Statement::Device(_)
            | Statement::Out { .. }
            | Statement::Completion { .. }
            | Statement::Event { .. } => Ok(()),
        }
    }

    fn inject(&mut self, name: &str, form: &PacketForm) -> Result<(), Mistake> {
        let numbers = Numbers { symbols: self, arguments: &form.arguments, qp: name };
        let message = match form.name {
            PacketName::Cm(message) => Some(message),
            _ => None,
        };
        let own = message.map(|it| numbers.or(it.own_name(), 0)).transpose()?.unwrap_or(0);
        let other = numbers.or("remote-comm-id", own)?;
        let tid = message.zip(self.manager.as_ref());
        let tid = tid.and_then(|(it, manager)| manager.tid_of(By::Peer, it.name, own, other));
        let qp = self.qp(name)?;
        let peer = PeerSide {
            service: qp.service.on_the_wire(),
            dest_qp: qp.qpn,
            source_qp: qp.values.dest_qp,
            q_key: qp.values.q_key,
            p_key: qp.values.p_key,
            from: qp.peer_address,
            to: qp.own_address,
            vlan: qp.vlan,
            tid,
        };
        let frame = frame_in::build(form, &peer, &numbers)?;
        if let Some(message) = message {
            let sent = message.tid(&numbers, tid)?;
            if let Some(manager) = &mut self.manager {
                manager.remember(By::Peer, message.name, own, sent);
            }
        }
        let (first, second) = frame.bytes.split_at(frame.split);
        let wire_len = frame.bytes.len();
        let raw = RawFrame { start: Start::Ethernet, first, second, wire_len };
        let (time, bytes) = (self.now, &frame.bytes);
        if let Some(frames) = &mut self.frames {
            let (bytes, comment) = (bytes.clone(), String::new());
            frames.push(PlayedFrame { time, outbound: false, bytes, comment });
        }
        let parsed = Frame::parse(raw).and_then(|frame| match frame.check_udp_checksum() {
            Some(Err(reason)) => Err(reason),
            _ => Ok(frame),
        });
        match parsed {
            Ok(frame) => self.device.handle_packet(self.now, frame.received()),
            Err(reason) => *self.refused.entry(reason.name()).or_insert(0) += 1,
        }
        Ok(())
    }

    fn check_frame(
        &mut self,
        name: &str,
        forms: &[PacketForm],
        pending: Pending,
    ) -> Result<(), Stop> {
        let Done::Frame { seen: Ok(seen), .. } = &pending.what else {
            return Err(self.show(&pending.what).into());
        };
        let ours = self.our_side(name)?;
        let mut differences = Vec::new();
        for form in forms {
            let numbers = Numbers { symbols: self, arguments: &form.arguments, qp: name };
            match seen.compare(form, &ours, &numbers) {
                Ok(()) => {
                    let port = seen.source_port();
                    return Ok(self.check_source_port(name, port)?);
                }
                Err(Stop::Difference { what, .. }) => differences.push(what),
                Err(mistake) => return Err(mistake),
            }
        }
        let differences = differences.join("; ");
        Err(format!("instead: {}\n  {differences}", self.show(&pending.what)).into())
    }

    /// All frames of a connection have one UDP source port, so that they take one way.
    fn check_source_port(&mut self, name: &str, port: u64) -> Result<(), String> {
        if !(0xc000..=0xffff).contains(&port) {
            return Err(format!("the UDP source port 0x{port:x} is not from 0xc000 to 0xffff"));
        }
        let Some(Object::Qp(qp)) = self.objects.get_mut(name) else { return Ok(()) };
        let first = *qp.source_port.get_or_insert(port);
        if first != port && qp.service != ServiceType::Ud {
            return Err(format!("the UDP source port is 0x{port:x}, and was 0x{first:x} before"));
        }
        Ok(())
    }

    fn check_completion(&self, a: &Arguments, pending: Pending) -> Result<(), Stop> {
        let Done::Completion(completion) = &pending.what else { return Ok(()) };
        self.compare_completion(a, completion).map_err(|stop| match stop {
            Stop::Difference { what, .. } => {
                format!("instead: {}\n  {what}", self.show(&pending.what)).into()
            }
            mistake => mistake,
        })
    }

    fn compare_completion(&self, a: &Arguments, is: &Completion) -> Result<(), Stop> {
        compare_completion(self, a, is)?;
        if let Some((wanted, skip, len)) = bytes_of_completion(a, is) {
            let there = self.posted_bytes(is_receive(is), is.wr_id, skip, len)?;
            differ(&there, wanted)?;
        }
        Ok(())
    }

    fn check_counter(&mut self, qp: Option<&str>, name: &str, wanted: u64) -> Result<(), Stop> {
        self.collect();
        let value = match qp {
            Some(qp) if self.manager.is_some() && self.qp(qp)?.qpn == Qpn::GSI => {
                self.manager.as_ref().and_then(|manager| manager.counter(name))
            }
            Some(qp) => {
                let counters = self.device.queue_pair_counters(self.qp(qp)?.qpn);
                counters.and_then(|counters| counters.by_name(name))
            }
            None => {
                let refused = self.refused.get(name).copied().unwrap_or(0);
                self.device.counters().by_name(name).map(|counted| counted + refused)
            }
        };
        holds(value == Some(wanted), || match value {
            Some(value) => format!("{name} is {value}"),
            None => format!("{name} is counted no more"),
        })
    }

    /// When the next timer of a queue pair ends.
    fn next_deadline(&self) -> Option<Instant> {
        let qps = self.objects.values().filter_map(|object| match object {
            Object::Qp(qp) => self.device.queue_pair_deadline(qp.qpn),
            _ => None,
        });
        qps.chain(self.manager.as_ref().and_then(|manager| manager.poll_timeout())).min()
    }

    /// What queue pairs that ended say of it, a line each.
    fn ended(&self) -> Vec<String> {
        let told = self.objects.iter().filter_map(|(name, object)| {
            let Object::Qp(qp) = object else { return None };
            let story = self.device.queue_pair_story(qp.qpn)?;
            story.ending.map(|_| format!("{name} is in {}: {}", story.state, story.sentence()))
        });
        told.collect()
    }

    fn check_memory(&mut self, place: &Place, wanted: &[u8]) -> Result<(), Stop> {
        self.collect();
        let region = self.region(&place.region)?;
        let mut there = vec![0; wanted.len()];
        let read = self.device.host().read(region.host, place.offset, &mut there);
        read.map_err(|gone| gone.to_string())?;
        Ok(differ(&there, wanted)?)
    }
}

/// Whether a completion is as a script says, but for the bytes.
pub(super) fn compare_completion(
    symbols: &dyn Symbols,
    a: &Arguments,
    is: &Completion,
) -> Result<(), Stop> {
    let number = |name: &str| match a.get(name) {
        Some(Value::Any) => Ok(None),
        _ => symbols.number(a, name, None),
    };
    let check = |name: &str, is: u64| match number(name)? {
        Some(wanted) => holds(wanted == is, || format!("{name} is {is}, not {wanted}")),
        None => Ok(()),
    };
    let status = a.word("status").unwrap_or("ok");
    let name = is.status.name();
    holds(name == status, || format!("it is {name}, not {status}"))?;
    check("id", is.wr_id)?;
    if status != "ok" {
        return Ok(());
    }
    check("len", u64::from(is.byte_len))?;
    check("source-qp", u64::from(is.source_qp.get()))?;
    let op = phrase::operation(is.opcode);
    let wanted = a.word("op").unwrap_or(op);
    holds(op == wanted, || format!("op is {op}, not {wanted}"))?;
    let extra = match (number("imm")?, number("inv")?) {
        (Some(imm), _) => Extra::Imm(ImmDt(imm as u32)),
        (None, Some(key)) => Extra::Invalidated(RKey(key as u32)),
        (None, None) => Extra::None,
    };
    holds(is.extra == extra, || {
        let [is, wanted] = [is.extra, extra].map(|extra| match phrase::extra(extra) {
            nothing if nothing.is_empty() => "nothing".to_owned(),
            shown => shown,
        });
        format!("with it came {is}, not {wanted}")
    })?;
    holds(is.grh == a.has("grh"), || format!("it has {} GRH", if is.grh { "a" } else { "no" }))
}

/// The bytes that must lie in a completed request's memory, if a script says so: behind how many
/// others, and how many there are.
pub(super) fn bytes_of_completion<'a>(
    a: &'a Arguments,
    is: &Completion,
) -> Option<(&'a [u8], usize, usize)> {
    let skip = if is.grh { 40 } else { 0 };
    let wanted = a.bytes().filter(|_| is.status == CompletionStatus::Success)?;
    Some((wanted, skip, (is.byte_len as usize).saturating_sub(skip)))
}

/// A difference, unless all is well.
pub(super) fn holds(well: bool, otherwise: impl FnOnce() -> String) -> Result<(), Stop> {
    if well { Ok(()) } else { Err(otherwise().into()) }
}

/// Whether a sentence is the wanted one, where `*` is any text.
fn is_like(sentence: &str, wanted: &str) -> bool {
    let mut parts = wanted.split('*');
    let begins = parts.next().unwrap_or_default();
    let Some(ends) = parts.next_back() else { return sentence == wanted };
    let inner = sentence.strip_prefix(begins).and_then(|rest| rest.strip_suffix(ends));
    let Some(mut rest) = inner else { return false };
    // What comes earliest leaves the most for the parts behind it.
    parts.all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

fn show_range(from: Instant, until: Instant) -> String {
    if from == until {
        show_instant(from)
    } else {
        format!("{}..{}", show_instant(from), show_instant(until))
    }
}

#[cfg(test)]
mod tests {
    use super::{Instant, Instead, PlayedFrame, is_like, tell_in_frames};

    /// On a wire frames go on while a completion is on its way here.
    #[test]
    fn what_should_not_have_been_is_told_at_the_frame_that_was_there_by_then() {
        let script = super::super::parse::parse("x.roce", "+0 quiet").expect("it is a script");
        let told = |at: u64| {
            let frame = |nanos| PlayedFrame {
                time: Instant::from_nanos(nanos),
                outbound: false,
                bytes: Vec::new(),
                comment: String::new(),
            };
            let mut frames = [1, 2, 3].map(frame);
            let instead = Some(Instead { at: Instant::from_nanos(at), kept: None });
            tell_in_frames(Some(&mut frames), instead, &script.lines[0], "a completion");
            frames.map(|frame| frame.comment.contains("expected: +0 quiet; a completion"))
        };
        assert_eq!(told(2), [false, true, false]);
        assert_eq!(told(9), [false, false, true]);
        assert_eq!(told(0), [true, false, false], "there is none before it");
    }

    #[test]
    fn a_star_is_any_text() {
        for (sentence, wanted, like) in [
            ("in state rts", "in state rts", true),
            ("in state rts", "in state rt", false),
            ("in state rts", "in*rts", true),
            ("in state rts", "*", true),
            ("", "*", true),
            ("", "", true),
            ("aba", "ab*ba", false),
            ("abba", "ab*ba", true),
            ("in state rts", "*state*", true),
            ("in state rts", "*rts*state*", false),
            ("one two one three", "one*one*three", true),
        ] {
            assert_eq!(is_like(sentence, wanted), like, "{sentence:?} {wanted:?}");
        }
        // Each star is looked at once.
        assert!(!is_like(&"a".repeat(1000), &format!("{}b", "*a".repeat(400))));
    }
}
