//! `roxe rping`: pings by RDMA over connections of the RDMA CM, as rping makes them, and with it as
//! peer.
//!
//! The client says where its ping is; the server READs it and says so; the client says where it
//! wants it back; the server WRITEs it there and says so. What is said are 16 bytes by SEND.

use std::fmt;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use roxe_verbs::cm::{
    CmError, CmOptions, CmParameters, Connected, ConnectionRequest, Listener, connect,
};
use roxe_verbs::{
    AccessFlags, Buffer, Completion, CompletionChannel, CompletionQueue, CompletionStatus, Context,
    Data, Error, MemoryRegion, QueuePair, RKey, ReceiveCapacity, ReceiveRequest, Remote,
    SendCapacity, SendOperation, SendRequest, ServiceType,
};

use crate::outcome::{Outcome, complain};
use crate::rping::arguments::RpingArguments;
use crate::side_channel::Failure;

pub(crate) mod arguments;

/// The command.
pub(crate) fn run(arguments: &RpingArguments) -> Result<Outcome> {
    let played = find(arguments).and_then(|address| {
        arguments.adapter.with_adapter(|context| match arguments.server {
            true => serve(context, address, arguments),
            false => ask(context, address, arguments),
        })
    });
    played.or_else(Failure::told)
}

/// What names a request: a receive, or one of the send queue.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// How long to sleep between two looks whether the peer has gone.
const LOOK: Duration = Duration::from_millis(20);

/// Connection requests that may wait.
const BACKLOG: usize = 64;

/// Clients that are served at the same time: each has a thread.
const MOST_CLIENTS: usize = 1000;

/// The address on the command line.
fn find(arguments: &RpingArguments) -> Result<SocketAddr, Failure> {
    let port = arguments.port;
    let Some(host) = &arguments.address else {
        return Ok(SocketAddr::new(IpAddr::from([0; 4]), port));
    };
    let found = (host.as_str(), port).to_socket_addrs().map(|mut all| all.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(Failure::lacking(format_args!("{host} has no address"))),
        Err(error) => Err(Failure::lacking(format_args!("{host}: {error}"))),
    }
}

/// Takes a client, or many.
fn serve(
    context: &Context,
    address: SocketAddr,
    arguments: &RpingArguments,
) -> Result<Outcome, Failure> {
    let listener = Listener::bind(context, address, BACKLOG)?;
    complain(format_args!("listens at {address}"));
    loop {
        let request = listener.next(Duration::MAX)?;
        if !arguments.persistent {
            match accept(context, request, arguments)? {
                Ok(end) => return answer(end),
                Err(why) => {
                    complain(format_args!("{why}: still listens"));
                    continue;
                }
            }
        }
        let served = AtomicUsize::new(0);
        thread::scope(|scope| {
            let mut request = Some(request);
            while let Some(next) = request.take() {
                if served.load(Ordering::Relaxed) >= MOST_CLIENTS {
                    // Dropping it refuses it.
                    drop(next);
                } else {
                    served.fetch_add(1, Ordering::Relaxed);
                    let serve = || {
                        let served_it = match accept(context, next, arguments) {
                            Ok(Ok(end)) => answer(end).map(drop),
                            Ok(Err(why)) => Err(Failure::failed(why)),
                            Err(failure) => Err(failure),
                        };
                        if let Err(failure) = served_it {
                            // Those who come later are served all the same.
                            let _ = failure.told();
                        }
                        served.fetch_sub(1, Ordering::Relaxed);
                    };
                    if let Err(error) = thread::Builder::new().spawn_scoped(scope, serve) {
                        served.fetch_sub(1, Ordering::Relaxed);
                        complain(format_args!("a client is refused: {error}"));
                    }
                }
                request = listener.next(Duration::MAX).ok();
            }
        });
    }
}

/// Connects with a client; or why there is none, if that is only the client's affair. Who asks may
/// never have been there: it has taken nothing from those who come later.
fn accept<'a>(
    context: &Context,
    request: ConnectionRequest,
    arguments: &'a RpingArguments,
) -> Result<Result<End<'a>, String>, Failure> {
    if request.service() != ServiceType::Rc {
        request.reject(&[])?;
        return Ok(Err("somebody asked for a connection that is not reliable".to_owned()));
    }
    let rig = Rig::new(context, arguments)?;
    let parameters = rig.parameters();
    let client = request.peer_address();
    Ok(match request.accept(&rig.qp, &parameters, arguments.patience()) {
        Ok(connected) => Ok(End::new(rig, connected, arguments)),
        Err(error @ Error::Cm(CmError::DeviceGone)) => return Err(error.into()),
        Err(error) => {
            let client = client.map_or_else(|| "a client".to_owned(), |client| client.to_string());
            Err(format!("{client} asked for a connection and did not take it: {error}"))
        }
    })
}

/// Serves a client until it ends.
fn answer(mut end: End<'_>) -> Result<Outcome, Failure> {
    while let Some(place) = end.hear()? {
        let remote = end.check(place)?;
        end.post(SendOperation::Read(remote), &end.rig.ping, place.size)?;
        if end.done()?.is_none() {
            break;
        }
        if end.arguments.verbose {
            print("server ping data: ", &end.rig.text(&end.rig.ping, place.size))?;
        }
        end.say(Place::default())?;
        let Some(place) = end.hear()? else { break };
        let remote = end.check(place)?;
        // Those programs send text, and want its end.
        let len = end.rig.text(&end.rig.ping, place.size).len() as u32 + 1;
        end.post(SendOperation::Write(remote), &end.rig.ping, len.min(place.size))?;
        if end.done()?.is_none() {
            break;
        }
        end.say(Place::default())?;
    }
    Ok(Outcome::Right)
}

/// Pings a server.
fn ask(
    context: &Context,
    address: SocketAddr,
    arguments: &RpingArguments,
) -> Result<Outcome, Failure> {
    let rig = Rig::new(context, arguments)?;
    let (parameters, options) = (rig.parameters(), CmOptions::default());
    let patience = arguments.patience();
    let connected = connect(&rig.qp, address, &parameters, options, patience);
    let connected = connected.map_err(|error| match error {
        Error::TimedOut(_) => Failure::lacking(format_args!(
            "no server answers at {address}, which has to be its adapter's address, within \
             {patience:?}: start `roxe rping -s -d …` there first, and does RoCE get through?"
        )),
        error => error.into(),
    })?;
    let mut end = End::new(rig, connected, arguments);
    let gone = || Failure::failed("the server has ended the connection");
    let mut outcome = Outcome::Right;
    for number in 0..arguments.count.unwrap_or(u64::MAX) {
        let ping = ping(number, arguments.size);
        end.rig.ping.buffer.write(0, &ping);
        end.say(end.rig.ping.place(arguments.size))?;
        end.hear()?.ok_or_else(gone)?;
        end.say(end.rig.back.place(arguments.size))?;
        end.hear()?.ok_or_else(gone)?;
        if arguments.validate && end.rig.bytes(&end.rig.back, arguments.size) != ping {
            complain(format_args!("data mismatch! ping {number} came back as something else"));
            outcome = Outcome::Findings;
            break;
        }
        if arguments.verbose {
            print("ping data: ", &end.rig.text(&end.rig.back, arguments.size))?;
        }
    }
    // That it is over, the server may hear late or not at all.
    match end.connected.disconnect(arguments.patience()) {
        Ok(()) | Err(Error::TimedOut(_)) => Ok(outcome),
        Err(error) => Err(error.into()),
    }
}

/// The text of a ping: its number, then letters; each begins a letter further.
fn ping(number: u64, size: u32) -> Vec<u8> {
    const LETTERS: std::ops::RangeInclusive<u8> = b'A'..=b'z';
    let size = size as usize;
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    text.truncate(size);
    let skipped = (number % LETTERS.len() as u64) as usize;
    let letters = LETTERS.cycle().skip(skipped);
    text.extend(letters.take(size - text.len()));
    text[size - 1] = 0;
    text
}

fn print(what: &str, text: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(what.as_bytes())?;
    let harmless = |byte: &u8| if byte.is_ascii_graphic() { *byte } else { b' ' };
    out.write_all(&text.iter().map(harmless).collect::<Vec<_>>())?;
    writeln!(out)?;
    Ok(out.flush()?)
}

/// What is said: where something is. 16 bytes, of the network's order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    va: u64,
    key: u32,
    size: u32,
}

impl Place {
    const LEN: usize = 16;

    fn emit(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_be_bytes());
        bytes[12..].copy_from_slice(&self.size.to_be_bytes());
        bytes
    }

    const fn parse(bytes: [u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, k0, k1, k2, k3, s0, s1, s2, s3] = bytes;
        Self {
            va: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_be_bytes([k0, k1, k2, k3]),
            size: u32::from_be_bytes([s0, s1, s2, s3]),
        }
    }
}

/// Memory that is registered.
struct Area {
    buffer: Arc<Buffer>,
    region: MemoryRegion,
}

impl Area {
    fn new(context: &Context, len: usize) -> Result<Self, Failure> {
        let buffer = Buffer::new(len);
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let region = context.default_pd().register(&buffer, access)?;
        Ok(Self { buffer, region })
    }

    fn place(&self, size: u32) -> Place {
        Place { va: self.region.address(), key: self.region.r_key().0, size }
    }
}

/// A queue pair and its memory.
struct Rig {
    channel: CompletionChannel,
    cq: CompletionQueue,
    qp: QueuePair,
    /// What is heard, and said.
    heard: Area,
    said: Area,
    /// A ping, and what came back of it.
    ping: Area,
    back: Area,
}

impl Rig {
    /// Ready to be connected, with a receive.
    fn new(context: &Context, arguments: &RpingArguments) -> Result<Self, Failure> {
        let channel = context.create_comp_channel()?;
        let cq = context.create_cq_on(&channel, 64)?;
        let qp = context
            .default_pd()
            .create_qp(ServiceType::Rc, &cq)
            .send(SendCapacity { depth: 16, max_sge: 1, max_inline: 0 })
            .receive(ReceiveCapacity { depth: 2, max_sge: 1 })
            .signal_all()
            .build()?;
        qp.init(AccessFlags::NONE)?;
        let area = |len: usize| Area::new(context, len);
        let size = arguments.size as usize;
        let (heard, said) = (area(Place::LEN)?, area(Place::LEN)?);
        let rig = Self { channel, cq, qp, heard, said, ping: area(size)?, back: area(size)? };
        rig.post_receive()?;
        Ok(rig)
    }

    /// As rping says it.
    fn parameters(&self) -> CmParameters<'static> {
        CmParameters {
            responder_resources: 1,
            initiator_depth: 1,
            ..CmParameters::new(self.qp.qpn(), self.qp.service())
        }
    }

    fn post_receive(&self) -> Result<(), Failure> {
        let sges = [self.heard.region.sge(0, Place::LEN as u32)];
        let receive = ReceiveRequest { wr_id: RECEIVE, sges: &sges };
        self.qp.post_receive(&[receive]).map_err(Failure::failed)
    }

    fn bytes(&self, area: &Area, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; area.buffer.len().min(len as usize)];
        area.buffer.read(0, &mut bytes);
        bytes
    }

    /// Up to the zero.
    fn text(&self, area: &Area, len: u32) -> Vec<u8> {
        let mut bytes = self.bytes(area, len);
        let end = bytes.iter().position(|byte| *byte == 0);
        bytes.truncate(end.unwrap_or(bytes.len()));
        bytes
    }
}

/// One side of a connection.
struct End<'a> {
    rig: Rig,
    connected: Connected,
    arguments: &'a RpingArguments,
    /// What was heard and not asked for yet, and requests that are done likewise.
    heard: Option<Place>,
    done: u32,
}

impl<'a> End<'a> {
    const fn new(rig: Rig, connected: Connected, arguments: &'a RpingArguments) -> Self {
        Self { rig, connected, arguments, heard: None, done: 0 }
    }

    /// What the peer says next; `None` when it has ended.
    fn hear(&mut self) -> Result<Option<Place>, Failure> {
        loop {
            if let Some(place) = self.heard.take() {
                return Ok(Some(place));
            }
            if !self.turn()? {
                return Ok(None);
            }
        }
    }

    /// That a request is done; `None` when the peer has ended.
    fn done(&mut self) -> Result<Option<()>, Failure> {
        while self.done == 0 {
            if !self.turn()? {
                return Ok(None);
            }
        }
        self.done -= 1;
        Ok(Some(()))
    }

    fn say(&mut self, place: Place) -> Result<(), Failure> {
        self.rig.said.buffer.write(0, &place.emit());
        self.post(SendOperation::Send, &self.rig.said, Place::LEN as u32)?;
        // What is said stays where it is until it has been heard.
        self.done().map(|_| ())
    }

    fn post(&self, operation: SendOperation, area: &Area, len: u32) -> Result<(), Failure> {
        let sges = [area.region.sge(0, len)];
        let request = SendRequest {
            wr_id: SEND,
            operation,
            data: Data::Regions(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        self.rig.qp.post_send(&[request]).map_err(Failure::failed)
    }

    /// Where the peer's memory is, if there is room for as much here.
    fn check(&self, place: Place) -> Result<Remote, Failure> {
        if place.size == 0 || place.size > self.arguments.size {
            return Err(Failure::failed(format_args!(
                "the client's pings have {} bytes, here is room for {}: give both sides one -S",
                place.size, self.arguments.size
            )));
        }
        Ok(Remote { va: place.va, r_key: RKey(place.key) })
    }

    /// Waits for a completion; false when the peer has ended.
    fn turn(&mut self) -> Result<bool, Failure> {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.rig.cq.poll_one() {
                return self.complete(&completion);
            }
            if self.connected.try_disconnected()? {
                return Ok(false);
            }
            // A completion that came meanwhile is seen now, or told of.
            if self.rig.cq.request_notify(false)? {
                continue;
            }
            if start.elapsed() > self.arguments.patience() {
                let silent = self.arguments.patience();
                return Err(Failure::failed(format_args!("nothing came for {silent:?}")));
            }
            self.rig.channel.wait(LOOK);
        }
    }

    fn complete(&mut self, completion: &Completion) -> Result<bool, Failure> {
        match completion.status {
            CompletionStatus::Success => {}
            status => {
                // What fails may fail because the peer has gone.
                if self.connected.try_disconnected()? {
                    return Ok(false);
                }
                return Err(Failure::failed(self.rig.qp.explain(status)));
            }
        }
        if completion.wr_id == SEND {
            self.done += 1;
            return Ok(true);
        }
        let bytes = self.rig.bytes(&self.rig.heard, Place::LEN as u32);
        if completion.byte_len as usize != Place::LEN {
            return Err(Failure::failed(Strange(completion.byte_len)));
        }
        self.heard = bytes.first_chunk().map(|bytes| Place::parse(*bytes));
        self.rig.post_receive()?;
        Ok(true)
    }
}

/// A message of another length than all have.
struct Strange(u32);

impl fmt::Display for Strange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer says {} bytes: is it rping?", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As stock rping writes them.
    #[test]
    fn pings_are_those_of_rping() {
        let text = |number| String::from_utf8(ping(number, 64)).unwrap();
        assert_eq!(text(0), "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\0");
        assert_eq!(text(1), "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs\0");
        assert!(text(58).starts_with("rdma-ping-58: ABC"));
        assert_eq!(ping(u64::MAX, 27).len(), 27);
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        let place = Place { va: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, size: 64 };
        assert_eq!(place.emit(), *b"\x01\x02\x03\x04\x05\x06\x07\x08\x0a\x0b\x0c\x0d\0\0\0\x40");
        assert_eq!(Place::parse(place.emit()), place);
    }
}
