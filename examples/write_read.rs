//! One-sided: the client writes into the server's memory and reads it back, and the server's
//! program does nothing meanwhile. Then it asks for more than it was given.
//!
//! ```text
//! $ cargo run --example write_read
//! client wrote 4096 bytes and read the same 4096 bytes back
//! server finds, without having been told: "RDMA moves memory, not messages"
//! client may not write there: remote-access-error
//! ```
//!
//! Both sides run in this process, joined by memory. On two hosts, or in two network namespaces:
//! `write_read server xdp:eth1` on the one, `write_read client xdp:eth1 HOST` on the other.

use std::env;
use std::error::Error as StdError;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use roxe::connect::{self, Listener};
use roxe::verbs::{
    AccessFlags, Buffer, CompletionStatus, ConnectOptions, Connection, Context, Error, Op, Remote,
    Wait, open,
};

type Outcome<T = ()> = Result<T, Box<dyn StdError + Send + Sync>>;

/// How long to wait for the other side.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes that are written.
const LEN: u32 = 4096;

/// What they begin with.
const TEXT: &str = "RDMA moves memory, not messages";

fn main() -> ExitCode {
    let told = run().map_err(|error| eprintln!("write_read: {error}"));
    told.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn run() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => in_this_process(),
        ["server", device] => serve(&open(device)?, &Listener::bind("0.0.0.0:18515")?),
        ["client", device, host] => work(&open(device)?, &format!("{host}:18515")),
        _ => Err("usage: write_read [server DEVICE | client DEVICE HOST]".into()),
    }
}

fn in_this_process() -> Outcome {
    let (one, other) = (open("memory:write_read")?, open("memory:write_read")?);
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_address()?.to_string();
    thread::scope(|scope| {
        let server = scope.spawn(|| serve(&one, &listener));
        work(&other, &address)?;
        server.join().map_err(|_| "the server panicked")?
    })
}

/// Lends two pieces of memory, one of them to be read only, tells their keys, and sleeps until the
/// client's one message says that it is done.
fn serve(adapter: &Context, listener: &Listener) -> Outcome {
    let domain = adapter.default_pd();
    let (open_memory, closed_memory) = (Buffer::new(LEN as usize), Buffer::new(LEN as usize));
    let opened = adapter.register(&open_memory)?;
    let read_only = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    let closed = domain.register(&closed_memory, read_only)?;
    let keys = [opened.remote(0).to_bytes(), closed.remote(0).to_bytes()].concat();

    let mut client = Connection::new(adapter)?;
    client.post_receive(1, &closed, 0, 0)?;
    listener.accept(client.queue_pair(), &ConnectOptions::default(), &keys, PATIENCE)?;
    client.wait(Wait(PATIENCE))?;

    let mut text = vec![0; TEXT.len()];
    open_memory.read(0, &mut text);
    println!("server finds, without having been told: {:?}", String::from_utf8_lossy(&text));
    client.post(2, Op::Send, &closed, 0, 0)?;
    // The client's last request is refused by our adapter, which ends the connection; this program
    // is not asked. It only keeps the adapter alive until that has happened.
    client.post_receive(3, &closed, 0, 0)?;
    loop {
        match client.wait(Wait(PATIENCE)) {
            Ok(_) => {} // the client has our message
            Err(Error::Completion { status: CompletionStatus::Flushed, .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

fn work(adapter: &Context, server: &str) -> Outcome {
    let memory = Buffer::new(2 * LEN as usize);
    let region = adapter.register(&memory)?;
    let mut server_side = Connection::new(adapter)?;
    let options = ConnectOptions::default();
    let queue_pair = server_side.queue_pair();
    let peer = connect::connect(server, queue_pair, &options, b"", PATIENCE)?;
    let (opened, closed) = peer.user.split_at_checked(12).ok_or("the server told no keys")?;
    let opened = Remote::from_bytes(opened).ok_or("the server told no key")?;
    let closed = Remote::from_bytes(closed).ok_or("the server told one key")?;

    // There and back again: the requests of a connection are carried out in their order.
    memory.write(0, TEXT.as_bytes());
    let Remote { va, r_key } = opened;
    server_side.post(1, Op::Write { va, r_key }, &region, 0, LEN)?;
    server_side.post(2, Op::Read { va, r_key }, &region, LEN.into(), LEN)?;
    server_side.wait(Wait(PATIENCE))?;
    server_side.wait(Wait(PATIENCE))?;
    let mut halves = vec![0; 2 * LEN as usize];
    memory.read(0, &mut halves);
    let (written, read) = halves.split_at(LEN as usize);
    assert_eq!(written, read);
    println!("client wrote {LEN} bytes and read the same {} bytes back", read.len());

    server_side.post_receive(3, &region, 0, 0)?;
    server_side.post(4, Op::Send, &region, 0, 0)?;
    server_side.wait(Wait(PATIENCE))?;
    server_side.wait(Wait(PATIENCE))?;

    let Remote { va, r_key } = closed;
    server_side.post(5, Op::Write { va, r_key }, &region, 0, 8)?;
    match server_side.wait(Wait(PATIENCE)) {
        Err(Error::Completion { status, .. }) => {
            println!("client may not write there: {}", status.name());
        }
        other => return Err(format!("read-only memory was written: {other:?}").into()),
    }
    Ok(())
}
