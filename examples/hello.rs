//! Two programs say hello: a SEND goes into a receive that the other side has posted.
//!
//! ```text
//! $ cargo run --example hello
//! server heard: hello, who is there? (20 bytes)
//! client heard: only roxe (9 bytes)
//! ```
//!
//! Both sides run in this process, joined by memory. On two hosts, or in two network namespaces:
//! `hello server xdp:eth1` on the one, `hello client xdp:eth1 HOST` on the other.

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use roxe::connect::{self, Listener};
use roxe::verbs::{Buffer, ConnectOptions, Connection, Context, MemoryRegion, Op, Wait, open};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long to wait for the other side.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a message, at most.
const ROOM: u32 = 256;

fn main() -> ExitCode {
    let told = run().map_err(|error| eprintln!("hello: {error}"));
    told.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn run() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => in_this_process(),
        ["server", device] => serve(&open(device)?, &Listener::bind("0.0.0.0:18515")?),
        ["client", device, host] => greet(&open(device)?, &format!("{host}:18515")),
        _ => Err("usage: hello [server DEVICE | client DEVICE HOST]".into()),
    }
}

fn in_this_process() -> Outcome {
    let (one, other) = (open("memory:hello")?, open("memory:hello")?);
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_address()?.to_string();
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&one, &listener));
        greet(&other, &address)?;
        server.join().map_err(|_| "the server panicked")?
    })
}

fn serve(adapter: &Context, listener: &Listener) -> Outcome {
    let mut peer = Side::new(adapter)?;
    // The receive is posted before the client can send: nothing arrives where no room is.
    peer.expect()?;
    listener.accept(peer.connection.queue_pair(), &ConnectOptions::default(), b"", PATIENCE)?;
    println!("server heard: {}", peer.hear()?);
    peer.say("only roxe")
}

fn greet(adapter: &Context, server: &str) -> Outcome {
    let mut peer = Side::new(adapter)?;
    peer.expect()?;
    let options = ConnectOptions::default();
    connect::connect(server, peer.connection.queue_pair(), &options, b"", PATIENCE)?;
    peer.say("hello, who is there?")?;
    println!("client heard: {}", peer.hear()?);
    Ok(())
}

/// One end: a queue pair, and memory that the adapter may use, half of it for each direction.
struct Side {
    connection: Connection,
    memory: Arc<Buffer>,
    region: MemoryRegion,
}

impl Side {
    fn new(adapter: &Context) -> Outcome<Self> {
        let memory = Buffer::new(2 * ROOM as usize);
        let region = adapter.register(&memory)?;
        Ok(Self { connection: Connection::new(adapter)?, memory, region })
    }

    /// Posts a receive into the second half of the memory.
    fn expect(&mut self) -> Outcome {
        Ok(self.connection.post_receive(1, &self.region, ROOM.into(), ROOM)?)
    }

    /// Waits until the receive has completed: a message is there.
    fn hear(&mut self) -> Outcome<String> {
        let completion = self.connection.wait(Wait(PATIENCE))?;
        let mut text = vec![0; completion.byte_len as usize];
        self.memory.read(ROOM as usize, &mut text);
        Ok(format!("{} ({} bytes)", String::from_utf8_lossy(&text), text.len()))
    }

    /// Sends the first half of the memory, and waits until the other side has it.
    fn say(&mut self, text: &str) -> Outcome {
        self.memory.write(0, text.as_bytes());
        self.connection.post(2, Op::Send, &self.region, 0, text.len() as u32)?;
        self.connection.wait(Wait(PATIENCE))?;
        Ok(())
    }
}
