//! The main job: two hosts exchange RoCEv2, every operation once, with the data verified.
//!
//! As root it makes two network namespaces joined by a veth cable and runs an adapter on AF_XDP in
//! each, in a process of its own; otherwise two adapters in this process, joined by memory.

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use namespace::{Cable, is_root};
use roxe_verbs::af_xdp::Settings;
use roxe_verbs::{Buffer, Connection, Context, Endpoint, Mtu, Op, RKey, Wait};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const WAIT: Wait = Wait(Duration::from_secs(10));
const LEN: usize = 8 << 20;
const SERVER: &str = "192.0.2.2:18515";

fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    let done = match role.as_deref() {
        Some("server") => server(TcpListener::bind(SERVER).map_err(Into::into), || xdp("vb")),
        Some("client") => client(|| TcpStream::connect(SERVER).ok(), || xdp("va")),
        _ if is_root() => two_processes(),
        _ => in_this_process(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("two_hosts: {error}");
            ExitCode::FAILURE
        }
    }
}

fn xdp(interface: &str) -> Outcome<Context> {
    let context = Context::open_xdp(interface, Settings::default())?;
    println!("  {}", context.summary());
    Ok(context)
}

/// A process in each of two namespaces.
fn two_processes() -> Outcome {
    println!("two network namespaces, a veth cable, an adapter on AF_XDP in each:");
    let cable = Cable::new(4200);
    let program = std::env::current_exe()?;
    let mut server = cable.b.run(|| Command::new(&program).arg("server").spawn())?;
    let client = cable.a.run(|| Command::new(&program).arg("client").status())?;
    if !client.success() {
        let _ = server.kill();
    }
    let server = server.wait()?;
    if client.success() && server.success() { Ok(()) } else { Err("a host failed".into()) }
}

fn in_this_process() -> Outcome {
    println!("two adapters in this process, joined by memory (root would get AF_XDP):");
    let [one, other] = Context::memory_pair(Mtu::B4096)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || server(Ok(listener), || Ok(other)));
        client(move || TcpStream::connect(address).ok(), || Ok(one))?;
        serving.join().map_err(|_| "the server panicked")?
    })
}

/// What the two tell each other before RDMA can begin: a line of text.
fn exchange(
    stream: &TcpStream,
    own: &Endpoint,
    va: u64,
    key: RKey,
) -> Outcome<(Endpoint, u64, RKey)> {
    writeln!(&mut &*stream, "{own} {va} {}", key.0)?;
    let line = line(stream)?;
    let mut words = line.split_whitespace();
    let mut word = || words.next().ok_or("the peer said too little");
    let endpoint = word()?.parse()?;
    Ok((endpoint, word()?.parse()?, RKey(word()?.parse()?)))
}

fn line(stream: &TcpStream) -> Outcome<String> {
    let mut line = String::new();
    BufReader::with_capacity(1, stream).read_line(&mut line)?;
    Ok(line)
}

fn pattern(seed: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8 ^ seed as u8).collect()
}

/// Lends its memory and takes one message. Whatever else comes, its engine answers by itself.
fn server(listener: Outcome<TcpListener>, open: impl FnOnce() -> Outcome<Context>) -> Outcome {
    let listener = listener?;
    let context = open()?;
    let (stream, _) = listener.accept()?;
    let buffer = Buffer::new(2 * LEN);
    let region = context.register(&buffer)?;
    let mut connection = Connection::new(&context)?;
    let (peer, ..) = exchange(&stream, &connection.endpoint()?, region.address(), region.r_key())?;
    connection.connect(&peer)?;
    connection.post_receive(1, &region, LEN as u64, LEN as u32)?;
    writeln!(&mut &stream, "ready")?;
    let received = connection.wait(Wait(Duration::from_secs(60)))?;
    let mut bytes = vec![0; LEN];
    buffer.read(LEN, &mut bytes);
    let verdict = received.byte_len as usize == LEN && bytes == pattern(1);
    writeln!(&mut &stream, "{verdict}")?;
    line(&stream)?; // The client is done with our memory.
    Ok(())
}

fn client(
    connect: impl Fn() -> Option<TcpStream>,
    open: impl FnOnce() -> Outcome<Context>,
) -> Outcome {
    let context = open()?;
    let stream = (0..100).find_map(|_| {
        connect().or_else(|| {
            std::thread::sleep(Duration::from_millis(50));
            None
        })
    });
    let stream = stream.ok_or("the server does not answer")?;
    let buffer = Buffer::new(2 * LEN);
    let region = context.register(&buffer)?;
    let mut connection = Connection::new(&context)?;
    let own = connection.endpoint()?;
    let (peer, va, r_key) = exchange(&stream, &own, region.address(), region.r_key())?;
    connection.connect(&peer)?;
    line(&stream)?;

    println!("  {:<12} {:>10} {:>12}  data", "operation", "bytes", "Gb/s");
    let mut bytes = vec![0; LEN];
    let mut run = |name: &str, operation, offset: usize| -> Outcome {
        let start = Instant::now();
        connection.post(1, operation, &region, offset as u64, LEN as u32)?;
        connection.wait(WAIT)?;
        let rate = LEN as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9;
        println!("  {name:<12} {LEN:>10} {rate:>12.2}");
        Ok(())
    };
    buffer.write(0, &pattern(1));
    run("SEND", Op::Send, 0)?;
    if line(&stream)?.trim() != "true" {
        return Err("the message arrived changed".into());
    }
    buffer.write(0, &pattern(2));
    run("RDMA WRITE", Op::Write { va, r_key }, 0)?;
    run("RDMA READ", Op::Read { va, r_key }, LEN)?;
    buffer.read(LEN, &mut bytes);
    if bytes != pattern(2) {
        return Err("what was written is not what was read".into());
    }

    let start = Instant::now();
    let counter = va + LEN as u64;
    connection.post(1, Op::Write { va: counter, r_key }, &region, LEN as u64, 8)?;
    connection.wait(WAIT)?;
    let mut first = [0; 8];
    buffer.read(LEN, &mut first);
    const TURNS: u64 = 1000;
    for _ in 0..TURNS {
        connection.post(1, Op::FetchAdd { va: counter, r_key, add: 3 }, &region, 0, 8)?;
        connection.wait(WAIT)?;
    }
    let mut last = [0; 8];
    buffer.read(0, &mut last);
    let added = u64::from_ne_bytes(last).wrapping_sub(u64::from_ne_bytes(first));
    if added != 3 * (TURNS - 1) {
        return Err(format!("{TURNS} atomics added {added}").into());
    }
    let each = start.elapsed() / TURNS as u32;
    println!("  {:<12} {:>10}   {each:>9.1?} each", "FETCH_ADD", 8);
    writeln!(&mut &stream, "bye")?;
    println!("  all data verified at both ends");
    Ok(())
}
