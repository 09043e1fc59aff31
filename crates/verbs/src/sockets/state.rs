//! How a stream begins, goes on and ends. Nothing here waits.

use std::any::Any;
use std::collections::VecDeque;
use std::time::Instant as Clock;

use roxe_cm::RejectReason;
use roxe_transport::qp_state::QpState;
use roxe_transport::work::{AccessFlags, Completion, CompletionStatus, Extra, PostError, Remote};

use crate::cm::{CmEventKind, CmId, CmParameters, Connected, EventChannel, Offer, why};
use crate::error::Error;
use crate::memory_region::MemoryRegion;
use crate::program_memory::{ProgramRange, ProgramRegion};
use crate::sockets::error::SocketError;
use crate::sockets::gather::Gather;
use crate::sockets::incoming::Incoming;
use crate::sockets::options::StreamOptions;
use crate::sockets::outgoing::Outgoing;
use crate::sockets::post::{Post, Work};
use crate::sockets::stream::{Stream, Waiters};
use crate::sockets::wire::{Hello, Mapped, Message, Place};

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The way to the peer is looked for.
    Resolving,
    /// The peer was asked.
    Connecting,
    /// The peer asked, and was answered.
    Accepting,
    /// Bytes go both ways, or one.
    Open,
    /// Nothing goes any more; what has come can be read.
    Over,
}

/// Which direction is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The program reads no more.
    Read,
    /// The program sends no more, which the peer is told.
    Write,
    /// Neither.
    Both,
}

/// What can be done with a socket without waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Something can be read, if only that the stream has ended or failed.
    pub readable: bool,
    /// Something can be sent, or fails.
    pub writable: bool,
    /// Everything that came was read, and nothing goes any more.
    pub hung_up: bool,
    /// The connection failed.
    pub failed: bool,
}

/// Memory of the program that the peer may write into.
pub struct Exposed {
    place: Place,
    /// What it is registered by, as long as it is open.
    _keep: Box<dyn Any + Send>,
}

impl Exposed {
    /// All of a region that peers may write to.
    pub fn region(region: MemoryRegion) -> Self {
        let len = u32::try_from(region.len()).unwrap_or(u32::MAX);
        let place = Place { address: region.address(), key: region.r_key(), len };
        Self { place, _keep: Box::new(region) }
    }

    /// Memory of the program that this library serves, which peers may write to.
    pub fn program(region: ProgramRegion, range: ProgramRange) -> Self {
        let len = u32::try_from(range.len).unwrap_or(u32::MAX);
        let place = Place { address: range.va, key: region.r_key(), len };
        Self { place, _keep: Box::new(region) }
    }
}

/// Memory of the program under an offset.
struct Opened {
    exposed: Exposed,
    offset: u64,
}

/// A stream.
pub(super) struct State {
    phase: Phase,
    link: Connected,
    post: Post,
    outgoing: Outgoing,
    incoming: Incoming,
    options: StreamOptions,
    /// What the peer said of itself.
    peer: Option<Hello>,
    /// Where the peer is told of a place next.
    entry: u32,
    /// The peer sends no more.
    peer_done: bool,
    /// More may be sent.
    writes: bool,
    /// What the program has closed.
    closed_read: bool,
    closed_write: bool,
    /// The peer was told that all is over.
    parted: bool,
    /// What it is to be told of that when it stands.
    owed: Option<Message>,
    /// The peer is gone, and acknowledges nothing more.
    peer_gone: bool,
    /// When the peer was last heard, or asked whether it is there.
    heard: Clock,
    /// Why it ended, unless in order.
    trouble: Option<SocketError>,
    /// The program was not told yet.
    untold: bool,
    /// Memory that is open to the peer, by its entry there.
    opened: Vec<Option<Opened>>,
    /// Entries of which the peer is still to be told, in order.
    untold_places: VecDeque<u16>,
    /// The peer's.
    mapped: Vec<Mapped>,
    pub(super) waiters: Waiters,
}

impl State {
    /// One that asks a peer, whose address is being looked for.
    pub(super) fn asks(
        id: CmId,
        channel: EventChannel,
        post: Post,
        options: StreamOptions,
    ) -> Result<Self, Error> {
        let link = Connected::new(id, channel, &post.qp, Offer::default());
        Self::new(Phase::Resolving, link, post, options)
    }

    /// One whose peer asked, and is answered.
    pub(super) fn answers(
        id: CmId,
        channel: EventChannel,
        post: Post,
        options: StreamOptions,
        peer: Hello,
    ) -> Result<Self, Error> {
        let link = Connected::new(id, channel, &post.qp, Offer::default());
        let mut state = Self::new(Phase::Accepting, link, post, options)?;
        state.link.move_to(QpState::Rtr, |_| {})?;
        let hello = state.post.hello().to_bytes();
        state.greeted(peer);
        let parameters = parameters(&state.post, &hello);
        state.link.id().accept(&parameters)?;
        Ok(state)
    }

    fn new(
        phase: Phase,
        link: Connected,
        post: Post,
        options: StreamOptions,
    ) -> Result<Self, Error> {
        // Whoever asks does not know yet what the peer will do.
        link.move_to(QpState::Init, |values| values.access = AccessFlags::REMOTE_WRITE)?;
        post.receive(options.receive_queue).map_err(refused)?;
        Ok(Self {
            phase,
            link,
            post,
            outgoing: Outgoing::new(options.send_queue, options.send_buffer),
            incoming: Incoming::new(options.receive_queue as u16, options.receive_buffer),
            options,
            peer: None,
            entry: 0,
            peer_done: false,
            writes: true,
            closed_read: false,
            closed_write: false,
            parted: false,
            owed: None,
            peer_gone: false,
            heard: Clock::now(),
            trouble: None,
            untold: false,
            opened: Vec::new(),
            untold_places: VecDeque::new(),
            mapped: vec![Mapped::default(); options.maps as usize],
            waiters: Waiters::default(),
        })
    }

    /// The identifier of the connection.
    pub(super) const fn id(&self) -> &CmId {
        self.link.id()
    }

    /// How large everything is.
    pub(super) const fn options(&self) -> &StreamOptions {
        &self.options
    }

    /// Sees what has happened, and says what is to be said. Says whether anything had.
    pub(super) fn progress(&mut self) -> bool {
        let mut changed = self.poll();
        while let Some(event) = self.link.try_event() {
            changed = true;
            self.happened(event);
        }
        if changed {
            self.heard = Clock::now();
        }
        self.speak();
        changed
    }

    /// Asks for an event at the next completion. Says whether some wait already.
    pub(super) fn arm(&mut self) -> bool {
        // Its queue has a channel.
        self.post.cq.request_notify(false).unwrap_or(true)
    }

    /// Sees what has completed.
    fn poll(&mut self) -> bool {
        let mut room = [Completion::BLANK; 32];
        let mut changed = false;
        loop {
            let found = self.post.cq.poll(&mut room);
            let mut received = 0;
            for completion in &room[..found] {
                changed = true;
                let work = Work::of(completion);
                received += u32::from(work == Work::Receive);
                self.completed(work, completion);
            }
            if received != 0
                && self.trouble.is_none()
                && let Err(error) = self.post.receive(received)
            {
                self.refused(error);
            }
            if found < room.len() {
                return changed;
            }
        }
    }

    fn completed(&mut self, work: Work, completion: &Completion) {
        let status = completion.status;
        match work {
            Work::Receive if status != CompletionStatus::Success => {}
            Work::Receive => {
                if let Err(violation) = self.received(completion.extra) {
                    self.violated(violation);
                }
            }
            Work::Stream(bytes) => self.outgoing.done(bytes),
            Work::Control => self.outgoing.control_done(),
            Work::Disconnect => {
                self.outgoing.control_done();
                if status == CompletionStatus::Success {
                    self.end(None);
                }
            }
        }
        if status != CompletionStatus::Success && self.phase != Phase::Over {
            let why = self.post.qp.explain(status);
            self.end(Some(match status {
                CompletionStatus::RetryExceeded | CompletionStatus::RnrRetryExceeded => {
                    SocketError::Silent(why)
                }
                _ => SocketError::Failed(why),
            }));
        }
    }

    /// A message came.
    fn received(&mut self, extra: Extra) -> Result<(), &'static str> {
        let Extra::Imm(bits) = extra else { return Err("it sends messages without a meaning") };
        match Message::from_bits(bits.0)? {
            Message::Data(len) => {
                self.incoming.arrived(len)?;
                if self.closed_read {
                    self.incoming.consume(len);
                }
            }
            Message::Credits(upto) => {
                self.outgoing.credits(upto);
                let place = self.post.take_place(self.outgoing.expected());
                if place.len != 0 {
                    self.outgoing.place(place)?;
                }
            }
            Message::Mapped(index) => {
                self.incoming.arrived_aside();
                let entry = self.mapped.get_mut(usize::from(index));
                let entry = entry.ok_or("it opens more memory than there are places for")?;
                *entry = self.post.mapped(index);
            }
            Message::Disconnect => {
                self.peer_gone = true;
                self.end(None);
            }
            Message::Shutdown => {
                self.peer_done = true;
                if !self.writes {
                    self.end(None);
                }
            }
            Message::KeepAlive | Message::Other => {}
        }
        Ok(())
    }

    /// Something happened to the connection.
    fn happened(&mut self, kind: CmEventKind) {
        let done = match (self.phase, kind) {
            (Phase::Over, kind) => {
                self.peer_gone |=
                    matches!(kind, CmEventKind::Disconnected | CmEventKind::TimewaitExit);
                Ok(())
            }
            (Phase::Resolving, CmEventKind::AddressResolved) => self.ask(),
            (Phase::Connecting, CmEventKind::ConnectResponse(offer)) => self.answered(&offer),
            (Phase::Accepting, CmEventKind::Established) => self.established(),
            (
                Phase::Accepting | Phase::Open,
                CmEventKind::Disconnected | CmEventKind::TimewaitExit,
            ) => {
                // The last word may have come with it.
                self.poll();
                self.peer_gone = true;
                // With both shut down only an acknowledgement may be missing, which is lost then.
                let in_order = self.peer_done && !self.writes;
                self.end((!in_order).then_some(SocketError::Reset));
                Ok(())
            }
            // Who asked and was answered went before he knew.
            (Phase::Accepting, CmEventKind::Rejected { .. }) => {
                self.peer_gone = true;
                self.end(Some(SocketError::Reset));
                Ok(())
            }
            (Phase::Open, CmEventKind::Established) => Ok(()),
            (_, kind) => Err(why(kind)),
        };
        if let Err(error) = done {
            self.end(Some(SocketError::no_connection(&error)));
        }
    }

    /// The way to the peer is known.
    fn ask(&mut self) -> Result<(), Error> {
        let hello = self.post.hello().to_bytes();
        self.link.id().connect(&parameters(&self.post, &hello))?;
        self.phase = Phase::Connecting;
        Ok(())
    }

    /// The peer has answered.
    fn answered(&mut self, offer: &Offer) -> Result<(), Error> {
        match Hello::parse(&offer.private_data) {
            Ok(peer) => self.greeted(peer),
            Err(violation) => {
                let _ = self.link.id().reject(RejectReason::ConsumerReject, &[]);
                self.violated(violation);
                return Ok(());
            }
        }
        self.link.move_to(QpState::Rtr, |_| {})?;
        self.link.move_to(QpState::Rts, |_| {})?;
        self.link.id().establish()?;
        self.phase = Phase::Open;
        Ok(())
    }

    /// The peer is ready.
    fn established(&mut self) -> Result<(), Error> {
        self.link.move_to(QpState::Rts, |_| {})?;
        self.phase = Phase::Open;
        Ok(())
    }

    fn greeted(&mut self, peer: Hello) {
        self.outgoing.begin(&peer);
        // The first entry is that of the greeting.
        self.entry = 1 % peer.table.len;
        self.peer = Some(peer);
    }

    /// Nothing goes any more: why, unless in order.
    fn end(&mut self, trouble: Option<SocketError>) {
        if self.phase == Phase::Over {
            return;
        }
        self.untold = trouble.is_some();
        let failed = trouble.is_some();
        self.trouble = trouble;
        (self.phase, self.peer_done, self.writes) = (Phase::Over, true, false);
        if failed {
            // Whoever waits for requests is to get them back. One that is gone has none.
            let _ = self.link.end();
        }
    }

    fn violated(&mut self, violation: &'static str) {
        self.end(Some(SocketError::Violation(violation)));
        // One that never stood has nobody to be told.
        let _ = self.link.id().disconnect();
    }

    fn refused(&mut self, error: PostError) {
        // A queue pair that ended for the peer's doing takes nothing more: its story says why.
        let why = format!("{error}: {}", self.post.qp.why());
        self.end(Some(SocketError::Failed(why)));
    }

    /// Says what the peer is to be told.
    fn speak(&mut self) {
        while self.phase == Phase::Open
            && !self.peer_done
            && self.outgoing.may_control()
            && let Some(grant) = self.incoming.due()
            && let Some(peer) = self.peer
        {
            let upto = Message::Credits(grant.upto);
            self.outgoing.control();
            let said = match grant.half {
                None => self.post.say_only(Work::Control, upto),
                Some(begin) => {
                    let place = self.post.half(begin).to_bytes(peer.order);
                    let to = Remote { va: peer.place(self.entry), r_key: peer.table.key };
                    self.entry = (self.entry + 1) % peer.table.len;
                    self.post.say(Work::Control, to, &place, upto)
                }
            };
            self.incoming.told(grant);
            said.unwrap_or_else(|error| self.refused(error));
        }
        while self.phase == Phase::Open
            && self.writes
            && self.outgoing.may_tell()
            && let Some(peer) = self.peer
            && let Some(index) = self.untold_places.pop_front()
        {
            let Some(opened) = &self.opened[usize::from(index)] else { continue };
            let mapped = Mapped { offset: opened.offset, place: opened.exposed.place };
            let to = Remote { va: peer.map(index), r_key: peer.table.key };
            let bytes = mapped.to_bytes(peer.order);
            self.outgoing.tell();
            let said = self.post.say(Work::Stream(0), to, &bytes, Message::Mapped(index));
            said.unwrap_or_else(|error| self.refused(error));
        }
        if self.phase == Phase::Open
            && let Some(message) = self.owed
            && self.try_say(message).is_some()
        {
            self.owed = None;
        }
    }

    /// Whether there is a connection, or why there is none; nothing as long as that is open.
    pub(super) fn connected(&mut self) -> Option<Result<(), SocketError>> {
        match (self.phase, &self.trouble) {
            (Phase::Open, _) | (Phase::Over, None) => Some(Ok(())),
            (Phase::Over, Some(trouble)) => {
                self.untold = false;
                Some(Err(trouble.clone()))
            }
            _ => None,
        }
    }

    /// Sends what can be sent at once; nothing if that is nothing.
    pub(super) fn try_send<'a>(
        &mut self,
        bytes: &mut Gather<'a, impl Iterator<Item = &'a [u8]> + Clone>,
    ) -> Option<Result<usize, SocketError>> {
        if let Some(ended) = self.ended_writing() {
            return Some(Err(ended));
        }
        if self.phase != Phase::Open {
            return None;
        }
        // What the peer is told of memory comes before what is sent then.
        if !self.untold_places.is_empty() {
            self.speak();
            self.untold_places.is_empty().then_some(())?;
        }
        let now = bytes.left().min(self.outgoing.room() as usize);
        if now == 0 {
            return None;
        }
        let to = self.outgoing.send(now as u32);
        Some(self.write(to, bytes, Some(Message::Data(to.len))))
    }

    /// Writes what can be written at once to where the peer's memory has this offset.
    pub(super) fn try_write_at<'a>(
        &mut self,
        bytes: &mut Gather<'a, impl Iterator<Item = &'a [u8]> + Clone>,
        offset: u64,
    ) -> Option<Result<usize, SocketError>> {
        if let Some(ended) = self.ended_writing() {
            return Some(Err(ended));
        }
        if self.phase != Phase::Open {
            return None;
        }
        let Some(to) = self.mapped.iter().find_map(|mapped| mapped.at(offset)) else {
            return Some(Err(SocketError::NotMapped));
        };
        let room = self.outgoing.direct_room().min(to.len) as usize;
        let now = bytes.left().min(room);
        if now == 0 {
            return None;
        }
        self.outgoing.send_direct();
        Some(self.write(Place { len: now as u32, ..to }, bytes, None))
    }

    /// Writes as many bytes as the place has.
    fn write<'a>(
        &mut self,
        to: Place,
        bytes: &mut Gather<'a, impl Iterator<Item = &'a [u8]> + Clone>,
        message: Option<Message>,
    ) -> Result<usize, SocketError> {
        let len = to.len;
        let is_inline = self.post.is_inline(len) && bytes.together() >= len as usize;
        let ring = (!is_inline).then(|| self.outgoing.take_ring(len));
        if let Err(error) = self.post.write(to, bytes, ring, message) {
            self.refused(error);
            return Err(self.ended_writing().unwrap_or(SocketError::Reset));
        }
        Ok(len as usize)
    }

    /// Why nothing can be sent any more.
    fn ended_writing(&mut self) -> Option<SocketError> {
        if self.writes {
            return None;
        }
        self.untold = false;
        Some(match &self.trouble {
            _ if self.closed_write => SocketError::ShutDown,
            Some(trouble) => trouble.clone(),
            None => SocketError::Closed,
        })
    }

    /// Reads what is there; 0 at the end of the stream; nothing if more may come.
    pub(super) fn try_recv(
        &mut self,
        into: &mut [u8],
        peek: bool,
    ) -> Option<Result<usize, SocketError>> {
        if self.incoming.unread() == 0 {
            return match &self.trouble {
                _ if self.closed_read => Some(Ok(0)),
                Some(trouble) => {
                    self.untold = false;
                    Some(Err(trouble.clone()))
                }
                None => self.peer_done.then_some(Ok(0)),
            };
        }
        let mut read = 0;
        for (at, len) in self.incoming.look(into.len()) {
            let end = read + len as usize;
            self.post.read(at, &mut into[read..end]);
            read = end;
        }
        if !peek {
            self.incoming.consume(read as u32);
            self.speak();
        }
        Some(Ok(read))
    }

    /// Whether so many bytes are there, or no more can come before some are read.
    pub(super) fn has(&self, len: usize) -> bool {
        self.incoming.unread() as usize >= len || self.incoming.is_full() || !self.reads()
    }

    /// Whether more can come.
    const fn reads(&self) -> bool {
        !self.peer_done && !self.closed_read
    }

    /// What can be done.
    pub(super) fn readiness(&mut self) -> Readiness {
        let over = self.phase == Phase::Over;
        let unread = self.incoming.unread() != 0;
        let open = self.phase == Phase::Open;
        Readiness {
            readable: unread || !self.reads(),
            writable: !self.writes || open && self.outgoing.room() != 0,
            hung_up: over && !unread,
            failed: self.trouble.is_some(),
        }
    }

    /// The program will no more read, or send: what the peer is to be told now, if anything.
    pub(super) fn close(&mut self, how: How) -> Result<Option<Message>, SocketError> {
        if matches!(self.phase, Phase::Resolving | Phase::Connecting) {
            return Err(SocketError::NotConnected);
        }
        let (read, write) = (how != How::Write, how != How::Read);
        let wrote = self.writes;
        self.closed_read |= read;
        self.closed_write |= write;
        self.writes &= !write;
        if self.closed_read {
            self.incoming.consume(self.incoming.unread());
        }
        if self.phase == Phase::Over || self.parted || self.writes {
            return Ok(None);
        }
        self.parted = !self.reads();
        let message = match self.parted {
            true => Some(Message::Disconnect),
            false => wrote.then_some(Message::Shutdown),
        };
        if self.phase == Phase::Accepting {
            self.owed = message.or(self.owed);
            return Ok(None);
        }
        Ok(message)
    }

    /// Whether the program has closed a direction.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed_read || self.closed_write
    }

    /// One that does not stand yet never will. Says whether it did not.
    pub(super) fn give_up(&mut self) -> bool {
        let stands = matches!(self.phase, Phase::Open | Phase::Over);
        if !stands {
            self.end(Some(SocketError::ShutDown));
        }
        !stands
    }

    /// Tells the peer what it is to be told; nothing if that has to wait.
    pub(super) fn try_say(&mut self, message: Message) -> Option<()> {
        if self.is_heard() {
            self.outgoing.may_control().then_some(())?;
            self.outgoing.control();
            let work =
                if message == Message::Disconnect { Work::Disconnect } else { Work::Control };
            let said = self.post.say_only(work, message);
            said.unwrap_or_else(|error| self.refused(error));
        }
        Some(())
    }

    /// Asks whether the peer is there, if it was not heard for long, and nothing under way does.
    pub(super) fn probe(&mut self) {
        if self.phase == Phase::Open
            && self.outgoing.is_idle()
            && self.heard.elapsed() >= Stream::PROBE_EVERY
        {
            self.heard = Clock::now();
            self.try_say(Message::KeepAlive);
        }
    }

    /// Whether the way to the peer is looked for, and it was not asked yet.
    pub(super) fn resolves_still(&self) -> bool {
        self.phase == Phase::Resolving
    }

    /// Whether the peer was answered, and is not ready yet.
    pub(super) fn answers_still(&self) -> bool {
        self.phase == Phase::Accepting
    }

    /// Whether the peer takes what it is sent. Both may have shut down before all has arrived.
    fn is_heard(&self) -> bool {
        let in_order = self.trouble.is_none() && !self.peer_gone;
        self.phase == Phase::Open || self.phase == Phase::Over && in_order
    }

    /// Whether all that was posted is done, or will never be.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_heard() || self.outgoing.is_idle()
    }

    /// How many requests are under way.
    pub(super) const fn under_way(&self) -> u32 {
        self.outgoing.under_way()
    }

    /// Why it ended, once.
    pub(super) fn take_error(&mut self) -> Option<SocketError> {
        std::mem::take(&mut self.untold).then(|| self.trouble.clone()).flatten()
    }

    /// Opens memory to the peer, who hears of it before what is sent then.
    pub(super) fn open(&mut self, exposed: Exposed, offset: u64) -> Result<(), SocketError> {
        let peer = self.peer.filter(|_| self.phase != Phase::Over);
        let most = peer.ok_or(SocketError::NotConnected)?.maps.get() as usize;
        let free = self.opened.iter().position(Option::is_none).unwrap_or(self.opened.len());
        let index = u16::try_from(free).ok().filter(|_| free < most).ok_or(SocketError::NoPlace)?;
        if free == self.opened.len() {
            self.opened.push(None);
        }
        self.opened[free] = Some(Opened { exposed, offset });
        self.untold_places.push_back(index);
        self.speak();
        Ok(())
    }

    /// Closes memory that begins there and has so many bytes to the peer.
    pub(super) fn shut(&mut self, address: u64, len: u64) -> bool {
        let is_it = |opened: &Option<Opened>| {
            opened.as_ref().is_some_and(|opened| {
                let place = opened.exposed.place;
                (place.address, u64::from(place.len)) == (address, len)
            })
        };
        let Some(at) = self.opened.iter().position(is_it) else { return false };
        self.opened[at] = None;
        self.untold_places.retain(|&index| usize::from(index) != at);
        true
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // Before the connection manager parts from the peer. One that is gone is in error already.
        let _ = self.link.end();
    }
}

/// As rdma-core asks and answers.
fn parameters<'a>(post: &Post, hello: &'a [u8; Hello::LEN]) -> CmParameters<'a> {
    CmParameters {
        flow_control: true,
        responder_resources: 0,
        initiator_depth: 0,
        private_data: hello,
        ..CmParameters::of(&post.qp)
    }
}

fn refused(reason: PostError) -> Error {
    crate::error::BadRequest { index: 0, reason }.into()
}
