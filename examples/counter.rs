//! An atomic counter: four clients draw tickets from eight bytes of the server's memory, all at the
//! same time and without a lock. FETCH_ADD gives each ticket to exactly one of them.
//!
//! ```text
//! $ cargo run --example counter
//! 4 clients drew 1000 tickets each, 16 requests in flight
//! 4000 tickets, none twice, none missing
//! the counter stands at 4000
//! ```
//!
//! Five adapters run in this process, joined by memory. On several hosts, or in several network
//! namespaces: `counter server xdp:eth1` on one, `counter client xdp:eth1 HOST` on four others.

use std::collections::VecDeque;
use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use roxe::connect::{self, Listener};
use roxe::verbs::{Buffer, ConnectOptions, Connection, Context, Op, Remote, Wait, open};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long to wait for the other side.
const PATIENCE: Duration = Duration::from_secs(20);

const CLIENTS: usize = 4;

/// Tickets that each client draws.
const TICKETS: usize = 1000;

/// Requests of a client that are not answered yet: as many as its peer lets it have.
const IN_FLIGHT: usize = 16;

fn main() -> ExitCode {
    let told = run().map_err(|error| eprintln!("counter: {error}"));
    told.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn run() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => in_this_process(),
        ["server", device] => serve(&open(device)?, &Listener::bind("0.0.0.0:18515")?),
        ["client", device, host] => draw(&open(device)?, &format!("{host}:18515")),
        _ => Err("usage: counter [server DEVICE | client DEVICE HOST]".into()),
    }
}

fn in_this_process() -> Outcome {
    let adapter = open("memory:counter")?;
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_address()?.to_string();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| draw(&open("memory:counter")?, &address));
        }
        serve(&adapter, &listener)
    })
}

/// Lends the counter, and takes the tickets that the clients drew as messages when they are done.
fn serve(adapter: &Context, listener: &Listener) -> Outcome {
    let counter = Buffer::new(8);
    let counter_region = adapter.register(&counter)?;
    let drawn = Buffer::new(CLIENTS * TICKETS * 8);
    let drawn_region = adapter.register(&drawn)?;
    let key = counter_region.remote(0).to_bytes();

    let mut clients = Vec::new();
    while clients.len() < CLIENTS {
        let mut client = Connection::new(adapter)?;
        let place = (clients.len() * TICKETS * 8) as u64;
        client.post_receive(1, &drawn_region, place, (TICKETS * 8) as u32)?;
        let options = ConnectOptions::default();
        match listener.accept(client.queue_pair(), &options, &key, PATIENCE) {
            Ok(_) => clients.push(client),
            Err(error) => eprintln!("a client did not get in: {error}"),
        }
    }
    for client in &mut clients {
        client.wait(Wait(PATIENCE))?;
    }
    println!("{CLIENTS} clients drew {TICKETS} tickets each, {IN_FLIGHT} requests in flight");

    let mut bytes = vec![0; drawn.len()];
    drawn.read(0, &mut bytes);
    let mut tickets: Vec<u64> = bytes.chunks_exact(8).map(number).collect();
    tickets.sort_unstable();
    if !tickets.iter().copied().eq(0..tickets.len() as u64) {
        return Err("a ticket is missing, or was given to two".into());
    }
    println!("{} tickets, none twice, none missing", tickets.len());
    let mut bytes = [0; 8];
    counter.read(0, &mut bytes);
    println!("the counter stands at {}", number(&bytes));
    Ok(())
}

/// What an atomic works on: 64 bits in the order of the host.
fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

fn draw(adapter: &Context, server: &str) -> Outcome {
    let tickets = Buffer::new(TICKETS * 8);
    let region = adapter.register(&tickets)?;
    let mut server_side = Connection::new(adapter)?;
    let options = ConnectOptions::default();
    let queue_pair = server_side.queue_pair();
    let peer = connect::connect(server, queue_pair, &options, b"", PATIENCE)?;
    let counter = Remote::from_bytes(&peer.user).ok_or("the server told no key")?;
    let Remote { va, r_key } = counter;

    // The adapter puts what the counter was before into the place of each ticket.
    let mut in_flight = VecDeque::new();
    for ticket in 0..TICKETS as u64 {
        if in_flight.len() == IN_FLIGHT {
            let done = server_side.wait(Wait(PATIENCE))?;
            assert_eq!(in_flight.pop_front(), Some(done.wr_id), "completions come in order");
        }
        server_side.post(ticket, Op::FetchAdd { va, r_key, add: 1 }, &region, ticket * 8, 8)?;
        in_flight.push_back(ticket);
    }
    for _ in in_flight {
        server_side.wait(Wait(PATIENCE))?;
    }
    server_side.post(u64::MAX, Op::Send, &region, 0, (TICKETS * 8) as u32)?;
    server_side.wait(Wait(PATIENCE))?;
    Ok(())
}
