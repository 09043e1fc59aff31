//! The side of the adapter: one thread, which sleeps until somebody asks.
//!
//! Nobody who connects can make it grow or wait: there are at most [`MOST_CLIENTS`], the one that
//! was quiet for longest has to go for a new one; a request has at most [`LONGEST_REQUEST`] bytes;
//! the next one is read when the answer to the last has been taken; a recording that is not taken
//! loses frames, and each of the two users that are answered has [`MOST_RECORDINGS`] at most, so
//! that the other one always finds room.

use std::cell::RefCell;
use std::io::{self, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use roxe_device::counters::Whose;
use roxe_net::capture::{Recording, Tap};
use roxe_net::capture_file::CaptureWriter;
use roxe_transport::congestion::Rate;
use roxe_transport::qp_state::ServiceType;
use roxe_wire::Qpn;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};

use super::{ANOTHER_USER, CounterValue, Info, LONGEST_NAME, Line, PREFIX, QueuePairStatus};
use crate::driver::Driver;
use crate::engine::Engine;

/// What does not change about an adapter.
#[derive(Clone)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) mode: String,
    pub(crate) active_mtu: u32,
}

/// The endpoint of an adapter. Dropped, it is gone.
pub(crate) struct Server {
    closing: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Makes the endpoint, in the calling thread's network namespace.
    pub(crate) fn open(
        about: About,
        engine: Arc<Engine>,
        listeners: Box<dyn Fn() -> u32 + Send>,
        tap: Tap,
    ) -> io::Result<Self> {
        let listener = bind(&about.name)?;
        listener.set_nonblocking(true)?;
        let closing = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let until = Arc::clone(&closing);
        let service = Service { about, engine, listeners, tap };
        let thread = std::thread::Builder::new()
            .name("roxe-status".to_owned())
            .stack_size(STACK)
            .spawn(move || serve(&service, &listener, &until))?;
        Ok(Self { closing, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The count is 0: it cannot fail.
        let _ = rustix::io::write(&self.closing, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Binds the first name that is free.
fn bind(name: &str) -> io::Result<UnixListener> {
    let start = format!("{PREFIX}{}/", std::process::id());
    let harmless = |c: char| if c.is_ascii_graphic() { c } else { '_' };
    let name: String = name.chars().map(harmless).collect();
    for number in 1..MOST_OF_ONE_NAME {
        let end = if number == 1 { String::new() } else { format!("#{number}") };
        let room = LONGEST_NAME - start.len() - end.len();
        let path = format!("{start}{}{end}", &name[..name.len().min(room)]);
        match UnixListener::bind_addr(&SocketAddr::from_abstract_name(path)?) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return bound,
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

/// Whom everybody asks.
struct Service {
    about: About,
    engine: Arc<Engine>,
    /// For how many services the connection manager takes requests.
    listeners: Box<dyn Fn() -> u32 + Send>,
    tap: Tap,
}

fn serve(service: &Service, listener: &UnixListener, closing: &OwnedFd) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let mut fds =
            vec![PollFd::new(closing, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        for client in &clients {
            fds.push(PollFd::new(&client.stream, client.waits_for()));
            fds.extend(client.recorded().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        // A signal ends it; then the loop looks once more.
        let _ = poll(&mut fds, None);
        if !fds[0].revents().is_empty() {
            return;
        }
        let is_called = !fds[1].revents().is_empty();
        let mut at = 0;
        while at < clients.len() {
            let others = recordings_of(&clients, clients[at].user);
            if clients[at].turn(service, others) {
                at += 1;
            } else {
                clients.remove(at);
            }
        }
        if is_called {
            accept(listener, &mut clients);
        }
    }
}

/// Lets in who waits, a few at a time.
fn accept(listener: &UnixListener, clients: &mut Vec<Client>) {
    for _ in 0..ACCEPTED_AT_ONCE {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // No descriptor is left, say: those who are here have to go, or it never ends.
                match quietest(clients) {
                    Some(at) => drop(clients.swap_remove(at)),
                    None => std::thread::sleep(PAUSE),
                }
                return;
            }
        };
        let Ok(mut client) = Client::new(stream) else { continue };
        if !client.is_allowed() {
            client.refuse(ANOTHER_USER);
            continue;
        }
        if clients.len() >= MOST_CLIENTS {
            match quietest(clients) {
                Some(at) => drop(clients.swap_remove(at)),
                None => continue,
            }
        }
        clients.push(client);
    }
}

/// How many recordings a user has.
fn recordings_of(clients: &[Client], user: Uid) -> usize {
    clients.iter().filter(|client| client.user == user && client.recording.is_some()).count()
}

/// Who did nothing for longest, of those that do not record.
fn quietest(clients: &[Client]) -> Option<usize> {
    let quiet = clients.iter().enumerate().filter(|(_, client)| client.recording.is_none());
    quiet.min_by_key(|(_, client)| client.active_at).map(|(at, _)| at)
}

/// Somebody who asks.
struct Client {
    stream: UnixStream,
    user: Uid,
    /// A request that has begun.
    request: Vec<u8>,
    /// An answer, and how much of it has been taken.
    answer: Outbox,
    taken: usize,
    recording: Option<(Recording, CaptureWriter<Outbox>)>,
    /// Nothing more is read: it goes when it has taken its answer.
    leaves: bool,
    active_at: Clock,
}

/// What is to be sent.
#[derive(Clone, Default)]
struct Outbox(Rc<RefCell<Vec<u8>>>);

impl Write for Outbox {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Client {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            user: socket_peercred(&stream)?.uid,
            stream,
            request: Vec::new(),
            answer: Outbox::default(),
            taken: 0,
            recording: None,
            leaves: false,
            active_at: Clock::now(),
        })
    }

    /// Whether it is of our user, or of root.
    fn is_allowed(&self) -> bool {
        self.user.is_root() || self.user == geteuid()
    }

    fn waits_for(&self) -> PollFlags {
        if self.answer.0.borrow().is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// The recording, if its frames can be sent now.
    fn recorded(&self) -> Option<BorrowedFd<'_>> {
        let (recording, _) = self.recording.as_ref()?;
        self.answer.0.borrow().is_empty().then(|| recording.as_fd())
    }

    /// Does what can be done now, where its user has so many recordings, but not for ever: others
    /// wait, and the adapter may close. Says whether it stays.
    fn turn(&mut self, service: &Service, recordings: usize) -> bool {
        for _ in 0..STEPS_OF_A_TURN {
            match self.send() {
                Ok(true) if self.leaves => return false,
                Ok(true) => {}
                Ok(false) => return true,
                Err(_) => return false,
            }
            match self.read(service, recordings) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => return false,
            }
            let Some((recording, writer)) = &mut self.recording else { return true };
            // Memory does not fail.
            if recording.write(writer).and_then(|_| writer.flush()).is_err() {
                return false;
            }
            if self.answer.0.borrow().is_empty() {
                return true;
            }
            self.active_at = Clock::now();
        }
        // There is an answer that was not sent, so that it goes on when there is room for it.
        !self.leaves || !self.answer.0.borrow().is_empty()
    }

    /// Sends what there is. Says whether all has gone.
    fn send(&mut self) -> io::Result<bool> {
        let mut answer = self.answer.0.borrow_mut();
        while self.taken < answer.len() {
            match self.stream.write(&answer[self.taken..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.taken += sent,
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        answer.clear();
        if answer.capacity() > KEPT {
            *answer = Vec::new();
        }
        self.taken = 0;
        Ok(true)
    }

    /// Reads a request and answers it. Says whether there was one.
    fn read(&mut self, service: &Service, recordings: usize) -> io::Result<bool> {
        let end = |request: &[u8]| request.iter().position(|byte| *byte == b'\n');
        if end(&self.request).is_none() {
            let mut bytes = [0; LONGEST_REQUEST];
            let room = LONGEST_REQUEST - self.request.len();
            let read = match self.stream.read(&mut bytes[..room]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => read,
                Err(error) if is_for_later(&error) => 0,
                Err(error) => return Err(error),
            };
            self.request.extend_from_slice(&bytes[..read]);
        }
        let Some(end) = end(&self.request) else {
            if self.request.len() == LONGEST_REQUEST {
                self.request.clear();
                self.refuse("no such request");
                return Ok(true);
            }
            return Ok(false);
        };
        let line: Vec<u8> = self.request.drain(..=end).collect();
        self.active_at = Clock::now();
        self.answer(service, recordings, String::from_utf8_lossy(&line[..end]).trim());
        Ok(true)
    }

    fn answer(&mut self, service: &Service, recordings: usize, request: &str) {
        let (word, number) = request.split_once(' ').unwrap_or((request, "0"));
        match (word, number.parse::<u32>()) {
            _ if self.recording.is_some() => self.refuse("a recording is all there is"),
            ("info", _) => self.say(&Line::Info(service.info())),
            ("counters", _) => self.counters(service),
            ("queue-pairs", Ok(from)) => self.queue_pairs(service, from),
            ("record", Ok(_)) if recordings >= MOST_RECORDINGS => self.refuse(&format!(
                "{recordings} recordings of this user go on: end one of them first"
            )),
            ("record", Ok(bytes)) => self.record(service, bytes as usize),
            _ => self.refuse("no such request"),
        }
    }

    fn say(&mut self, line: &Line) {
        // Neither memory nor what we say can fail.
        if serde_json::to_writer(&mut self.answer, line).is_ok() {
            let _ = self.answer.write_all(b"\n");
        }
    }

    /// Says what is wrong, and that is all.
    fn refuse(&mut self, what: &str) {
        self.say(&Line::Error { what: what.to_owned() });
        self.leaves = true;
        let _ = self.send();
    }

    fn counters(&mut self, service: &Service) {
        let (engine, port, now) = service.engine.with(|driver| {
            (driver.device.counters().clone(), driver.port_counters(), driver.now())
        });
        for (group, row, value) in engine.grouped() {
            let whose = match row.whose {
                Whose::Ours => "ours",
                Whose::Rxe => "rxe",
                Whose::Mlx5 => "mlx5",
            };
            self.counter(group, row.name, whose, value);
        }
        port.into_iter().for_each(|(name, value)| self.counter("port", name, "ours", value));
        self.say(&Line::End { time_ns: now.nanos(), next: None });
    }

    fn counter(&mut self, group: &str, name: &str, whose: &str, value: u64) {
        let [group, name, whose] = [group, name, whose].map(str::to_owned);
        self.say(&Line::Counter(CounterValue { group, name, whose, value }));
    }

    fn queue_pairs(&mut self, service: &Service, from: u32) {
        let mut at = from;
        let until = from.saturating_add(PLACES_IN_A_PAGE);
        loop {
            let end = until.min(at.saturating_add(PLACES_AT_ONCE));
            let read = |driver: &mut Driver| {
                let places = driver.device.queue_pair_places();
                let found = (at..end.min(places))
                    .filter_map(|place| queue_pair(&service.engine, driver, place));
                (found.collect::<Vec<_>>(), places, driver.now())
            };
            let (found, places, now) = service.engine.with(read);
            found.into_iter().for_each(|it| self.say(&Line::QueuePair(it)));
            at = end;
            if at >= places || at >= until {
                let next = (at < places).then_some(at);
                return self.say(&Line::End { time_ns: now.nanos(), next });
            }
        }
    }

    fn record(&mut self, service: &Service, bytes: usize) {
        let room = bytes.clamp(LEAST_RECORDED, MOST_RECORDED);
        let begun = service.tap.record(room).map_err(|error| error.to_string());
        let begun = begun.and_then(|recording| {
            let writer = recording.begin(self.answer.clone(), &service.about.name);
            let mut writer = writer.map_err(|error| error.to_string())?;
            writer.flush().map_err(|error| error.to_string())?;
            Ok((recording, writer))
        });
        match begun {
            Ok(begun) => self.recording = Some(begun),
            Err(error) => self.refuse(&error),
        }
    }
}

impl Service {
    fn info(&self) -> Info {
        let About { name, mode, active_mtu } = self.about.clone();
        let addresses = |driver: &mut Driver| {
            driver.device.gids().iter().map(|(_, entry)| entry.gid.to_ip()).collect()
        };
        let command = std::env::args_os().next().unwrap_or_default();
        Info {
            name,
            pid: std::process::id(),
            command: command.to_string_lossy().into_owned(),
            mode,
            active: self.engine.is_active(),
            active_mtu,
            addresses: self.engine.with(addresses),
            listeners: (self.listeners)(),
            link_type: self.tap.link_type().0,
        }
    }
}

/// Nothing is wrong: it will work when the other side has moved.
fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The queue pair in a place.
fn queue_pair(engine: &Engine, driver: &Driver, place: u32) -> Option<QueuePairStatus> {
    let device = &driver.device;
    // Queue pair 1 is the adapter's own.
    let qpn = device.queue_pair_at(place).filter(|qpn| *qpn != Qpn::GSI)?;
    let info = device.query_queue_pair(qpn).ok()?;
    let counters = device.queue_pair_counters(qpn)?;
    let path = info.path.and_then(|path| device.paths().get(path));
    let connected = path.filter(|_| info.service != ServiceType::Ud);
    let has_ended = device.has_ended(qpn);
    let story = has_ended.then(|| device.queue_pair_story(qpn)).flatten();
    let some = counters.iter().filter(|(_, value)| *value != 0);
    let controller = device.controller(driver.now(), qpn);
    let point = controller.as_ref().and_then(|it| it.reaction_point());
    let bits = |rate: Rate| rate.bits_per_second() as u64;
    Some(QueuePairStatus {
        qpn: qpn.get(),
        service: format!("{:?}", info.service).to_uppercase(),
        state: info.state.to_string(),
        peer_qpn: connected.map(|_| info.attributes.dest_qp.get()),
        peer: connected.map(|path| path.addressing.destination),
        why: story.map(|story| engine.with_port(&story, story.sentence())),
        rate_bps: controller.as_ref().map(|it| bits(it.rate())),
        target_bps: point.map(|point| bits(point.target())),
        alpha_ppm: point.map(|point| (point.alpha() * 1e6) as u32),
        counters: some.map(|(name, value)| (name.to_owned(), value)).collect(),
    })
}

/// Who asks at the same time, at most.
const MOST_CLIENTS: usize = 32;

/// Recordings of a user. Those of both users leave room for who only asks.
const MOST_RECORDINGS: usize = 8;
const _: () = assert!(2 * MOST_RECORDINGS < MOST_CLIENTS);

/// So many are let in before those that are here get their turn.
const ACCEPTED_AT_ONCE: usize = 16;

/// What one asks is answered so often before others get their turn.
const STEPS_OF_A_TURN: usize = 16;

/// Before the next try, where nobody can be let in.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes of a request.
const LONGEST_REQUEST: usize = 64;

/// Places of queue pairs that are read with the engine in hand at once, and in an answer.
const PLACES_AT_ONCE: u32 = 16;
const PLACES_IN_A_PAGE: u32 = 512;

/// Bytes of frames that wait for whoever records.
const LEAST_RECORDED: usize = 64 << 10;
const MOST_RECORDED: usize = 64 << 20;

/// Memory of an answer that is used again.
const KEPT: usize = 64 << 10;

/// Adapters of one name in a process.
const MOST_OF_ONE_NAME: u32 = 1000;

/// Of the thread.
const STACK: usize = 256 << 10;

#[cfg(test)]
mod tests;
