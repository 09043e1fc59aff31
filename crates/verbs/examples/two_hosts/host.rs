//! What the two hosts do.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use roxe_verbs::connect::{self, Listener};
use roxe_verbs::{
    Buffer, ConnectOptions, Connection, Context, Extra, ImmDt, MemoryRegion, Op, Remote, Wait,
};

use crate::{Outcome, kernel};

/// A part of the main job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Each operation once.
    Operations,
    /// How fast they are.
    Speed,
    /// Over a network that loses packets.
    Loss,
}

impl Step {
    pub(crate) const ALL: [Self; 3] = [Self::Operations, Self::Speed, Self::Loss];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Operations => "operations",
            Self::Speed => "speed",
            Self::Loss => "loss",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Operations => "each operation, its data verified at both ends:",
            Self::Speed => "how fast, beside the kernel's sockets on the same way:",
            Self::Loss => "the network loses one packet of a hundred, both ways:",
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|step| step.name() == name);
        found.ok_or_else(|| format!("there is no step {name}"))
    }
}

/// The longest message.
const MESSAGE: usize = 1 << 20;

/// Messages on their way at the same time.
const DEPTH: usize = 8;

const PATIENCE: Duration = Duration::from_secs(20);

/// How long one line of the table is measured.
const TIME: Duration = Duration::from_secs(1);

/// One end: places for messages that go and for messages that come.
struct End {
    connection: Connection,
    memory: Arc<Buffer>,
    region: MemoryRegion,
}

impl End {
    fn new(context: &Context) -> Outcome<Self> {
        let memory = Buffer::new(2 * DEPTH * MESSAGE);
        let region = context.register(&memory)?;
        let mut end = Self { connection: Connection::new(context)?, memory, region };
        for slot in 0..DEPTH {
            end.receive(slot)?;
        }
        Ok(end)
    }

    /// Posts a receive into a place.
    fn receive(&mut self, slot: usize) -> Outcome {
        let place = ((DEPTH + slot) * MESSAGE) as u64;
        Ok(self.connection.post_receive(slot as u64, &self.region, place, MESSAGE as u32)?)
    }

    /// Does one operation with the first place.
    fn perform(&mut self, operation: Op, len: usize) -> Outcome {
        self.connection.post(OWN, operation, &self.region, 0, len as u32)?;
        self.connection.wait(Wait(PATIENCE))?;
        Ok(())
    }

    fn bytes<const N: usize>(&self, place: usize) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read(place, &mut bytes);
        bytes
    }

    fn holds(&self, place: usize, expected: &[u8]) -> bool {
        let mut bytes = vec![0; expected.len()];
        self.memory.read(place, &mut bytes);
        bytes == expected
    }
}

/// The `wr_id` of what is no receive.
const OWN: u64 = u64::MAX;

/// Bytes that differ from place to place, and from seed to seed.
fn pattern(seed: u32) -> Vec<u8> {
    let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 7) as u8 ^ seed as u8;
    (0..MESSAGE).map(byte).collect()
}

/// Lends its memory, and takes messages until one is empty. One with immediate data, the seed of
/// its bytes, is answered with 1 if it is right. What else is done to the memory, the adapter does
/// by itself.
pub(crate) fn serve(context: &Context, listener: &Listener) -> Outcome {
    let mut client = End::new(context)?;
    let lent = client.region.remote(0).to_bytes();
    let options = ConnectOptions::default();
    listener.accept(client.connection.queue_pair(), &options, &lent, PATIENCE)?;
    loop {
        let message = client.connection.wait(Wait(PATIENCE))?;
        let slot = message.wr_id as usize;
        match message.extra {
            _ if message.wr_id == OWN => continue,
            Extra::None if message.byte_len == 0 => return Ok(()),
            Extra::Imm(ImmDt(seed)) => {
                let right = message.byte_len as usize == MESSAGE
                    && client.holds((DEPTH + slot) * MESSAGE, &pattern(seed));
                let answer = Op::SendWithImm(right.into());
                client.connection.post(OWN, answer, &client.region, 0, 0)?;
            }
            _ => {}
        }
        client.receive(slot)?;
    }
}

/// The client's part.
pub(crate) fn work(step: Step, context: &Context, host: &str, ports: [u16; 2]) -> Outcome {
    println!("  {}", context.summary());
    let mut server = End::new(context)?;
    let (options, queue_pair) = (ConnectOptions::default(), server.connection.queue_pair());
    let peer = connect::connect((host, ports[0]), queue_pair, &options, b"", PATIENCE)?;
    let lent = Remote::from_bytes(&peer.user).ok_or("the server told no key")?;
    match step {
        Step::Operations => operations(&mut server, lent)?,
        Step::Speed => speed(&mut server, lent, host, ports[1])?,
        Step::Loss => loss(&mut server, lent, context)?,
    }
    server.perform(Op::Send, 0)
}

fn operations(server: &mut End, Remote { va, r_key }: Remote) -> Outcome {
    println!("  {:<22} {:>10} {:>14}", "operation", "bytes", "time");
    let line = |name: &str, len: usize, start: Clock| {
        println!("  {name:<22} {len:>10} {:>14}", format!("{:.1?}", start.elapsed()));
    };
    let start = Clock::now();
    server.memory.write(0, &pattern(1));
    server.perform(Op::SendWithImm(1), MESSAGE)?;
    line("SEND with immediate", MESSAGE, start);
    let answer = server.connection.wait(Wait(PATIENCE))?;
    if answer.extra != Extra::Imm(ImmDt(1)) {
        return Err("the message arrived changed".into());
    }

    server.memory.write(0, &pattern(2));
    let start = Clock::now();
    server.perform(Op::Write { va, r_key }, MESSAGE)?;
    line("RDMA WRITE", MESSAGE, start);
    server.memory.write(0, &pattern(3));
    let start = Clock::now();
    server.perform(Op::Read { va, r_key }, MESSAGE)?;
    line("RDMA READ", MESSAGE, start);
    if !server.holds(0, &pattern(2)) {
        return Err("what was written is not what was read".into());
    }

    server.memory.write(0, &[0; 8]);
    server.perform(Op::Write { va, r_key }, 8)?;
    const TURNS: u64 = 100;
    let start = Clock::now();
    for turn in 0..TURNS {
        server.perform(Op::FetchAdd { va, r_key, add: 3 }, 8)?;
        if u64::from_ne_bytes(server.bytes(0)) != 3 * turn {
            return Err(format!("FETCH_ADD {turn} found another number").into());
        }
    }
    line("FETCH_ADD, 100 times", 8, start);
    let start = Clock::now();
    let (compare, swap) = (3 * TURNS, 42);
    server.perform(Op::CompareSwap { va, r_key, compare, swap }, 8)?;
    let found = u64::from_ne_bytes(server.bytes(0));
    server.perform(Op::CompareSwap { va, r_key, compare, swap: 0 }, 8)?;
    if found != compare || u64::from_ne_bytes(server.bytes(0)) != swap {
        return Err("CMP_SWAP found another number".into());
    }
    line("CMP_SWAP, twice", 8, start);
    println!("  all data verified");
    Ok(())
}

fn speed(server: &mut End, Remote { va, r_key }: Remote, host: &str, port: u16) -> Outcome {
    println!("  {:<22} {:>10} {:>10} {:>18}", "", "#bytes", "#messages", "BW average[Gb/s]");
    for (name, operation) in [
        ("SEND", Op::Send),
        ("RDMA WRITE", Op::Write { va, r_key }),
        ("RDMA READ", Op::Read { va, r_key }),
    ] {
        let (messages, rate) = stream(server, operation)?;
        println!("  {name:<22} {MESSAGE:>10} {messages:>10} {:>18.2}", rate / 1e9);
    }
    let dash = "-";
    let tcp = kernel::tcp(host, port, TIME)?;
    println!("  {:<22} {dash:>10} {dash:>10} {:>18.2}", "kernel TCP", tcp / 1e9);
    let udp = kernel::udp(host, port, TIME)?;
    println!("  {:<22} {:>10} {dash:>10} {:>18.2}", "kernel UDP, send()", 4096, udp / 1e9);
    Ok(())
}

/// Messages that were done, one behind the other, and bits a second.
fn stream(server: &mut End, operation: Op) -> Outcome<(u64, f64)> {
    let (start, mut posted, mut done) = (Clock::now(), 0, 0);
    while done < posted || start.elapsed() < TIME {
        while posted - done < DEPTH as u64 && start.elapsed() < TIME {
            let place = posted % DEPTH as u64 * MESSAGE as u64;
            server.connection.post(OWN, operation, &server.region, place, MESSAGE as u32)?;
            posted += 1;
        }
        server.connection.wait(Wait(PATIENCE))?;
        done += 1;
    }
    Ok((done, done as f64 * MESSAGE as f64 * 8.0 / start.elapsed().as_secs_f64()))
}

fn loss(server: &mut End, Remote { va, r_key }: Remote, context: &Context) -> Outcome {
    const LEN: usize = 64 << 10;
    const TURNS: u32 = 32;
    let start = Clock::now();
    for turn in 0..TURNS {
        let bytes = &pattern(turn)[..LEN];
        server.memory.write(0, bytes);
        server.perform(Op::Write { va, r_key }, LEN)?;
        server.memory.write(0, &vec![0; LEN]);
        server.perform(Op::Read { va, r_key }, LEN)?;
        if !server.holds(0, bytes) {
            return Err(format!("WRITE and READ {turn}: the data arrived changed").into());
        }
    }
    println!("  {TURNS} WRITEs and READs of {LEN} bytes, data verified: {:.1?}", start.elapsed());
    for (name, count) in context.counters() {
        let meaning = match name {
            "fault_tx_dropped" => "packets that were lost on the way to the server",
            "fault_rx_dropped" => "packets that were lost on the way back",
            "retrans_pkts" => "packets that the client sent again",
            "packet_seq_err" => "times that the server reported a gap",
            "implied_nak_seq_err" => "gaps that the client saw in answers",
            "local_ack_timeout_err" => "times that no answer came in time",
            _ => continue,
        };
        println!("  {count:>6}  {name:<24} {meaning}");
    }
    Ok(())
}
