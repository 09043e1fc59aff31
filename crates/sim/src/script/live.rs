//! A script against a device elsewhere: its verbs by an agent on its host, its frames on a wire.
//!
//! What the device chooses takes the place of what the script names, both ways: queue pair numbers,
//! keys, addresses in memory and on the network. PSNs and the peer's numbers are the script's own.
//! What is exact in virtual time is here an order, and bounds: what must come at once comes in
//! [`Terms::slack`], what must come later does not come before its time, and silence is nothing for
//! [`Terms::silence`].

mod agent;
mod judge;
mod objects;
mod seen;
mod skip;
mod work;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use roxe_wire::{Instant, Qpn};

use crate::peer::Peer;

use super::bench::{Done, Pending, Settings};
use super::frame_in::{self, PeerSide};
use super::frame_out::OurSide;
use super::mistake::{Instead, Mistake, Stop, suggest};
use super::parse::show_instant;
use super::run::{Failure, comment, comment_checked, tell_in_frames};
use super::symbols::{Numbers, Symbols};
use super::syntax::{Arguments, Line, PacketForm, Script, Statement, Value, When};
use super::{Outcome, Play, Played, PlayedFrame};

use agent::{Answer, errno, expect, number};
use objects::{OwnGid, Qp, Region, Thing};
use skip::Pace;
use work::Posted;

/// Where a device under test is: its host's verbs, and the wire to it.
pub trait Site {
    /// Says a line to the agent on the device's host, and hears its answer: `ok …` or
    /// `error NUMBER …`, as `tests/interop/README.md` has them.
    ///
    /// # Errors
    /// The conversation is over, and why.
    fn ask(&mut self, line: &str) -> Result<String, String>;

    /// Sends a frame. Its Ethernet addresses are filled in.
    ///
    /// # Errors
    /// The wire does not take it, and why.
    fn send(&mut self, frame: &mut [u8]) -> Result<(), String>;

    /// The next RoCEv2 frame that arrived, be it a broken one, from its Ethernet header on; waits
    /// for one, but not longer than `patience`.
    ///
    /// # Errors
    /// Nothing will ever arrive, and why.
    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, String>;

    /// The time.
    fn now(&mut self) -> Instant;

    /// What a line waits for has not come for some seconds. It is told once a line.
    fn waits_long(&mut self, line: &str);
}

/// How a script is run there.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What the device is, as far as its frames differ by it.
    pub kind: Peer,
    /// Our addresses on the network of the device.
    pub ours: Vec<IpAddr>,
    /// The device has no agent: its one queue pair was made by hand.
    pub by_hand: Option<ByHand>,
    /// Events that the device is known not to tell: none of them may come.
    pub untold: Vec<String>,
    /// How much later than in virtual time something may come.
    pub slack: Duration,
    /// How long nothing must happen where a script wants silence.
    pub silence: Duration,
    /// The number of the first queue pair of ours; each run has others, so that nothing of the
    /// last one is taken for its own.
    pub first_peer: u32,
    /// What is told.
    pub play: Play,
}

/// A queue pair and a region that somebody made on a device without an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// The device's queue pair.
    pub qpn: Qpn,
    /// The address of the device.
    pub address: IpAddr,
    /// Where the region begins.
    pub va: u64,
    /// The region's key.
    pub r_key: u32,
}

/// Why a script does not go on.
enum Halt {
    Stop(Stop),
    /// The device, or its host, cannot do what the script is about.
    Skip(String),
    /// The device refused a verb: the number of errno, and what it said.
    Refused(u32, String),
    /// There is no conversation any more.
    Broken(String),
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<Mistake> for Halt {
    fn from(mistake: Mistake) -> Self {
        Self::Stop(Stop::Mistake(mistake))
    }
}

fn difference(what: impl Into<String>) -> Halt {
    Halt::Stop(Stop::Difference { what: what.into(), instead: None })
}

/// Runs a checked script.
pub(super) fn run(file: &str, script: &Script, site: &mut dyn Site, terms: &Terms) -> Played {
    let Some(first) = script.lines.first() else {
        return Outcome::Unreadable(format!("{file}: there is no statement in it")).into();
    };
    let settings = match Settings::read(first) {
        Ok(settings) => settings,
        Err(mistake) => return Outcome::Wrong(vec![first.place(file, mistake)]).into(),
    };
    let pace = match skip::pace(script, &settings, terms) {
        Ok(pace) => pace,
        Err(why) => return Outcome::Skipped(why).into(),
    };
    let mut live = Live::new(site, terms, settings, pace);
    // Nothing of that is the script's.
    let prepared = live.prepare().map_err(|halt| match halt {
        Halt::Refused(number, why) => Halt::Broken(format!(
            "the agent refuses what any script needs: {}, {why}",
            errno(number)
        )),
        other => other,
    });
    let ended = prepared.map_err(|halt| (first, halt)).and_then(|()| live.play(script));
    let outcome = match ended {
        Ok(()) if terms.by_hand.is_some() && !live.heard => {
            Outcome::Skipped(NEVER_HEARD.to_owned())
        }
        Ok(()) => Outcome::Passed { statements: script.lines.len() },
        Err((line, Halt::Stop(Stop::Mistake(mistake)))) => {
            Outcome::Wrong(vec![line.place(file, mistake)])
        }
        Err((line, Halt::Stop(Stop::Difference { what, instead }))) => {
            Outcome::Failed(live.failure(file, line, what, instead))
        }
        Err((line, Halt::Refused(number, what))) => {
            let what = format!("it failed: {}, {what}", errno(number));
            Outcome::Failed(live.failure(file, line, what, None))
        }
        Err((line, Halt::Skip(why))) => Outcome::Skipped(format!("line {}: {why}", line.number)),
        Err((line, Halt::Broken(why))) => {
            Outcome::Unreadable(format!("{file}:{}: {why}", line.number))
        }
    };
    Played { outcome, history: live.history, frames: live.frames.unwrap_or_default() }
}

/// A script under way.
struct Live<'s> {
    site: &'s mut dyn Site,
    terms: &'s Terms,
    settings: Settings,
    /// How much slower its timers go.
    pace: Pace,
    gids: Vec<OwnGid>,
    /// Addresses of the script, and those that they are here.
    swaps: Vec<(IpAddr, IpAddr)>,
    objects: BTreeMap<String, Thing>,
    /// How many queue pairs were made.
    peers: u32,
    /// Requests, by the number that the device knows them by.
    posted: Vec<Posted>,
    /// Memory for requests that do not say where their bytes are.
    buffer: Region,
    used: u64,
    /// What the device did and no line has spoken of yet.
    pending: Vec<Pending>,
    history: Vec<String>,
    frames: Option<Vec<PlayedFrame>>,
    began: Instant,
    /// When the last line came true.
    now: Instant,
    /// When the last frame was sent, or came: what timers are counted from at the latest.
    frame_at: Instant,
    /// A frame is on its way, or was just handled.
    unsettled: bool,
    /// A frame of the device came.
    heard: bool,
}

impl<'s> Live<'s> {
    fn new(site: &'s mut dyn Site, terms: &'s Terms, settings: Settings, pace: Pace) -> Self {
        let now = site.now();
        Self {
            site,
            terms,
            settings,
            pace,
            gids: Vec::new(),
            swaps: Vec::new(),
            objects: BTreeMap::new(),
            peers: 0,
            posted: Vec::new(),
            buffer: Region::default(),
            used: 0,
            pending: Vec::new(),
            history: Vec::new(),
            frames: terms.play.frames.then(Vec::new),
            began: now,
            now,
            frame_at: now,
            unsettled: false,
            heard: false,
        }
    }

    fn play<'a>(&mut self, script: &'a Script) -> Result<(), (&'a Line, Halt)> {
        let mut shown = None;
        for line in &script.lines {
            let come = self.frames.as_ref().map_or(0, Vec::len);
            self.line(line).map_err(|halt| (line, halt))?;
            // What the device sent has the line that speaks of it.
            let sent = self.frames.iter_mut().flat_map(|frames| &mut frames[come..]);
            sent.filter(|frame| !frame.outbound).for_each(|frame| frame.comment = comment(line));
            if shown.replace(line.number) != Some(line.number) {
                let at = show_instant(self.clock());
                self.history.push(format!("{at:>9} {:>3} {}", line.number, line.text));
            }
        }
        let Some(last) = script.lines.last() else { return Ok(()) };
        let ended = self.silence("the script ends here, but the device did more");
        ended.map_err(|halt| (last, halt))
    }

    /// What time it is in the history.
    fn clock(&mut self) -> Instant {
        Instant::ZERO + self.site.now().since(self.began)
    }

    /// Whoever answers slowly enough would never be done.
    fn in_time(&mut self) -> Result<(), Halt> {
        match self.site.now().since(self.began) > LONGEST {
            true => Err(Halt::Broken(format!("it takes more than {} s here", LONGEST.as_secs()))),
            false => Ok(()),
        }
    }

    fn line(&mut self, line: &Line) -> Result<(), Halt> {
        self.in_time()?;
        match &line.statement {
            Statement::Out { qp, forms } => {
                let wanted = Wanted::Frame(self.qp(qp)?.qpn);
                let pending = self.next(line, &wanted)?;
                let kept = pending.kept();
                let checked = self.check_frame(qp, forms, pending);
                self.comment(kept, line, &checked);
                checked
            }
            Statement::Completion { qp, receive, arguments } => {
                if self.terms.by_hand.is_some() {
                    return Ok(());
                }
                let qpn = qp.as_ref().map(|qp| self.qp(qp).map(|qp| qp.qpn)).transpose()?;
                let pending = self.next(line, &Wanted::Completion(qpn, *receive))?;
                self.check_completion(arguments, pending)
            }
            Statement::Event { object, name, .. } => {
                if self.terms.by_hand.is_some() || self.terms.untold.contains(name) {
                    return Ok(());
                }
                let pending = self.next(line, &Wanted::Event(object.clone()))?;
                match pending.what {
                    Done::Event { name: is, .. } if is == name => Ok(()),
                    other => Err(difference(format!("instead: {}", self.show(&other)))),
                }
            }
            _ => {
                if let When::After(after) = line.when
                    && !after.is_zero()
                {
                    self.move_on(after)?;
                }
                self.act(&line.statement)?;
                self.now = self.site.now();
                Ok(())
            }
        }
    }

    /// Time passes, while what arrives is kept.
    fn move_on(&mut self, by: Duration) -> Result<(), Halt> {
        let until = self.now + self.pace.stretch(by);
        loop {
            let left = until.since(self.site.now());
            if left.is_zero() {
                return Ok(());
            }
            self.arrivals(left.min(LOOK))?;
        }
    }

    /// The next thing of a kind that the device does, in time.
    fn next(&mut self, line: &Line, wanted: &Wanted) -> Result<Pending, Halt> {
        let (from, until) = match line.when {
            When::After(after) => (after, after),
            When::Between(from, until) => (from, until),
        };
        let (from, until) = (self.pace.stretch(from), self.pace.stretch(until));
        let start = self.now;
        let mut told = false;
        let began = self.site.now();
        let end = (start + until).max(self.site.now()) + self.terms.slack;
        loop {
            let found = self.pending.iter().position(|pending| self.is(wanted, &pending.what));
            if let Some(index) = found {
                let found = self.pending.remove(index);
                let base = start.min(self.frame_at);
                self.now = found.at.max(start);
                if matches!(found.what, Done::Frame { .. }) {
                    self.frame_at = found.at;
                }
                if found.at + EARLY < base + from {
                    let (after, shown) = (found.at.since(base), self.show(&found.what));
                    let what = format!("it came after {after:?}, not after {from:?}: {shown}");
                    return Err(difference(what));
                }
                return Ok(found);
            }
            if self.site.now() > end {
                self.nothing_more("instead the device did this")?;
                return Err(difference("the device did nothing"));
            }
            if !told && self.site.now().since(began) >= LONG {
                told = true;
                self.site.waits_long(&format!("line {}: {}", line.number, line.text));
            }
            self.look(wanted)?;
        }
    }

    /// For some time the device does nothing that no line spoke of; if it did, that is told behind
    /// `head`.
    fn silence(&mut self, head: &str) -> Result<(), Halt> {
        let end = self.site.now() + self.terms.silence;
        while self.site.now() < end {
            self.arrivals(LOOK)?;
        }
        self.look_at_all()?;
        self.nothing_more(head)
    }

    fn nothing_more(&self, head: &str) -> Result<(), Halt> {
        let Some(more) = self.pending.first() else { return Ok(()) };
        let at = Instant::ZERO + more.at.since(self.began);
        let what = format!("{head}: {} (at {})", self.show(&more.what), show_instant(at));
        let instead = Some(Instead { at, kept: more.kept() });
        Err(Halt::Stop(Stop::Difference { what, instead }))
    }

    /// What happens at once: everything that the device does not do by itself.
    fn act(&mut self, statement: &Statement) -> Result<(), Halt> {
        match statement {
            Statement::Make { object, name, arguments, fails } => {
                let made = self.make(*object, name, arguments);
                expect(made, fails.as_deref())
            }
            Statement::PostReceive { queue, arguments, fails } => {
                let posted = self.post_receive(queue, arguments);
                expect(posted, fails.as_deref())
            }
            Statement::PostSend { verb, qp, arguments, fails } => {
                let posted = self.post_send(*verb, qp, arguments);
                expect(posted, fails.as_deref())
            }
            Statement::Call { verb, target, arguments, fails } => {
                let called = self.call(*verb, target, arguments);
                expect(called, fails.as_deref())
            }
            Statement::Fill { place, bytes } => {
                let region = self.region(&place.region)?;
                self.poke(region, place.offset, bytes)
            }
            Statement::Into { qp, packet } => self.inject(qp, packet),
            Statement::Memory { place, bytes } => self.check_memory(place, bytes),
            Statement::State { qp, name } => self.check_state(qp, name),
            // What only our engine counts and says.
            Statement::Counter { .. } | Statement::Why { .. } => Ok(()),
            Statement::Quiet => self.silence("the device did this"),
            Statement::Turn
            | Statement::Device(_)
            | Statement::Out { .. }
            | Statement::Completion { .. }
            | Statement::Event { .. } => Ok(()),
        }
    }

    fn inject(&mut self, name: &str, form: &PacketForm) -> Result<(), Halt> {
        let qp = self.qp(name)?;
        let peer = PeerSide {
            service: qp.service.on_the_wire(),
            dest_qp: qp.qpn,
            source_qp: qp.values.dest_qp,
            q_key: qp.values.q_key,
            p_key: qp.values.p_key,
            from: qp.peer_address,
            to: qp.own_address,
            vlan: None,
            tid: None,
        };
        let form = PacketForm { name: form.name, arguments: self.here(&form.arguments) };
        let numbers = Numbers { symbols: self, arguments: &form.arguments, qp: name };
        let mut frame = frame_in::build(&form, &peer, &numbers)?.bytes;
        self.site.send(&mut frame).map_err(Halt::Broken)?;
        self.unsettled = true;
        self.frame_at = self.site.now();
        if self.frames.is_some() {
            self.keep(false, frame);
        }
        Ok(())
    }

    /// Addresses of the script as they are here.
    fn here(&self, arguments: &Arguments) -> Arguments {
        let mut arguments = arguments.clone();
        for (_, value) in &mut arguments.named {
            if let Value::Address(address) = value {
                *address = self.real(*address);
            }
        }
        arguments
    }

    fn real(&self, address: IpAddr) -> IpAddr {
        let swap = self.swaps.iter().find(|(of_script, _)| *of_script == address);
        swap.map_or(address, |(_, here)| *here)
    }

    fn keep(&mut self, outbound: bool, bytes: Vec<u8>) -> Option<usize> {
        let time = self.clock();
        let frames = self.frames.as_mut()?;
        frames.push(PlayedFrame { time, outbound, bytes, comment: String::new() });
        Some(frames.len() - 1)
    }

    fn comment(&mut self, kept: Option<usize>, line: &Line, checked: &Result<(), Halt>) {
        let difference = match checked {
            Err(Halt::Stop(stop)) => stop.difference(),
            _ => None,
        };
        let mut frames = self.frames.iter_mut().flatten();
        if let Some(frame) = kept.and_then(|kept| frames.nth(kept)) {
            frame.comment = comment_checked(line, difference);
        }
    }

    fn failure(
        &mut self,
        file: &str,
        line: &Line,
        what: String,
        instead: Option<Instead>,
    ) -> Failure {
        tell_in_frames(self.frames.as_deref_mut(), instead, line, &what);
        let from = self.history.len().saturating_sub(self.terms.play.before);
        Failure {
            file: file.to_owned(),
            line: line.number,
            column: line.column(),
            text: line.text.to_string(),
            what,
            before: self.history[from..].to_vec(),
            ended: Vec::new(),
        }
    }

    /// What stands in frames of a queue pair if a script says nothing.
    fn our_side(&self, name: &str) -> Result<OurSide, Mistake> {
        let qp = self.qp(name)?;
        Ok(OurSide {
            own_qp: qp.qpn,
            peer_qp: qp.values.dest_qp,
            p_key: qp.values.p_key.0,
            q_key: qp.values.q_key.0,
            from: qp.own_address,
            to: qp.peer_address,
            traffic_class: qp.vector.traffic_class,
            hop_limit: if qp.vector.hop_limit == 0 { 64 } else { qp.vector.hop_limit },
            kind: self.terms.kind,
            vlan: 0,
            priority: 0,
            guid: 0,
        })
    }

    fn qp(&self, name: &str) -> Result<&Qp, Mistake> {
        match self.objects.get(name) {
            Some(Thing::Qp(qp)) => Ok(qp),
            _ => Err(self.no("queue pair", name)),
        }
    }

    fn region(&self, name: &str) -> Result<Region, Mistake> {
        match self.objects.get(name) {
            Some(Thing::Region(region)) => Ok(*region),
            _ => Err(self.no("memory region", name)),
        }
    }

    fn no(&self, kind: &str, name: &str) -> Mistake {
        let known = self.objects.keys().map(String::as_str);
        Mistake::at(name, format!("{name} is no {kind}{}", suggest(name, known)))
    }
}

impl Symbols for Live<'_> {
    fn symbol(&self, object: &str, part: &str, qp: Option<&str>) -> Result<u64, Mistake> {
        if object == "peer" && part == "qpn" {
            let qp = self.qp(qp.ok_or_else(|| {
                Mistake::at("peer", "peer.qpn belongs to a line about a queue pair")
            })?)?;
            return Ok(u64::from(qp.values.dest_qp.get()));
        }
        let found = self.objects.get(object).ok_or_else(|| self.no("name of anything", object))?;
        Ok(match (found, part) {
            (Thing::Region(region), "va") => region.va,
            (Thing::Region(region), "rkey") => u64::from(region.r_key),
            (Thing::Region(region), "lkey") => u64::from(region.l_key),
            (Thing::Window { key, .. }, "rkey") => u64::from(*key),
            (Thing::Qp(qp), "qpn") => u64::from(qp.qpn.get()),
            (Thing::Qp(qp), "peer") => u64::from(qp.values.dest_qp.get()),
            _ => return Err(Mistake::at(object, format!("{object} has no {part}"))),
        })
    }
}

/// Who waits for so long without a word is taken to hang.
const LONG: Duration = Duration::from_secs(4);

/// A script of a minute is not done by then only if somebody holds it up.
const LONGEST: Duration = Duration::from_secs(600);

/// Who is not there is silent too.
const NEVER_HEARD: &str = "no frame of the device ever came: silence shows nothing";

/// What a line waits for.
enum Wanted {
    /// A frame of this queue pair's.
    Frame(Qpn),
    /// A completion, of a queue pair or any; a receive's or not.
    Completion(Option<Qpn>, bool),
    /// An event of this object's.
    Event(String),
}

/// So much earlier than it must come something may be seen: the way of what it is counted from
/// took longer than its own.
const EARLY: Duration = Duration::from_millis(30);

/// How long one look at the wire lasts while something is waited for.
const LOOK: Duration = Duration::from_millis(5);
