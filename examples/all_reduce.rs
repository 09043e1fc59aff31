//! Ring all-reduce, as machine learning does it: each of N ranks has a vector, and in the end each
//! has the sum of all. The vectors are cut into N chunks, the last one filled up. In N-1 steps a
//! rank adds the chunk that its left neighbour wrote to it, and passes the sum on; after N-1 more
//! steps each has them all. A rank writes into its neighbour's memory; immediate data say the step.
//!
//! ```text
//! $ cargo run --example all_reduce
//! rank 0 of 4: 65536 numbers, all of them the sum of 4 ranks, after 6 steps of 65536 bytes
//! rank 1 of 4: 65536 numbers, all of them the sum of 4 ranks, after 6 steps of 65536 bytes
//! rank 2 of 4: 65536 numbers, all of them the sum of 4 ranks, after 6 steps of 65536 bytes
//! rank 3 of 4: 65536 numbers, all of them the sum of 4 ranks, after 6 steps of 65536 bytes
//! ```
//!
//! Four adapters, or as many as `all_reduce RANKS` says, run in this process, joined by memory. On
//! N hosts, each names its rank and all hosts in order: `all_reduce RANK DEVICE HOST0 HOST1 …`.

use std::{env, error::Error, process::ExitCode, thread, time::Duration};

use roxe::connect::{self, Listener};
use roxe::verbs::{Buffer, ConnectOptions, Connection, Context, Extra, ImmDt, Op, Remote};
use roxe::verbs::{Wait, open};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// How long to wait for a neighbour.
const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers of a vector.
const NUMBERS: usize = 65536;

fn main() -> ExitCode {
    let told = run().map_err(|error| eprintln!("all_reduce: {error}"));
    told.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

fn run() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => in_this_process(4),
        [ranks] if ranks.parse().is_ok_and(|it: usize| it > 1) => in_this_process(ranks.parse()?),
        [rank, device, _, _, ..] if rank.parse().is_ok_and(|it: usize| it < words.len() - 2) => {
            let ring = Ring { rank: rank.parse()?, ranks: words.len() - 2 };
            let right = &words[2 + ring.before(ring.ranks - 1)];
            let listener = Listener::bind("0.0.0.0:18515")?;
            println!("{}", ring.run(&open(device)?, &listener, &format!("{right}:18515"))?);
            Ok(())
        }
        _ => Err("usage: all_reduce [RANKS | RANK DEVICE HOST0 HOST1 …], for 2 or more".into()),
    }
}

fn in_this_process(ranks: usize) -> Outcome {
    let bind = |_| Listener::bind("127.0.0.1:0").expect("a port is free");
    let listeners: Vec<_> = (0..ranks).map(bind).collect();
    thread::scope(|scope| {
        let start = |rank| {
            let ring = Ring { rank, ranks };
            let (own, right) = (&listeners[rank], &listeners[ring.before(ranks - 1)]);
            scope.spawn(move || {
                let right = right.local_address()?.to_string();
                ring.run(&open("memory:all_reduce")?, own, &right)
            })
        };
        for rank in (0..ranks).map(start).collect::<Vec<_>>() {
            println!("{}", rank.join().map_err(|_| "a rank panicked")??);
        }
        Ok(())
    })
}

/// A place in the ring.
#[derive(Clone, Copy)]
struct Ring {
    rank: usize,
    ranks: usize,
}

impl Ring {
    /// The rank, or the chunk, so many places before this one.
    fn before(self, places: usize) -> usize {
        (self.rank + self.ranks - places % self.ranks) % self.ranks
    }

    /// Adds up the vectors of all ranks. The memory holds the vector, and behind it a slot for each
    /// sum that the left neighbour writes.
    fn run(self, adapter: &Context, listener: &Listener, right: &str) -> Outcome<String> {
        let Self { rank, ranks } = self;
        let (chunk, steps) = (NUMBERS.div_ceil(ranks) * 4, 2 * (ranks - 1));
        let memory = Buffer::new((2 * ranks - 1) * chunk);
        let region = adapter.register(&memory)?;
        let (mut to_right, mut from_left) = (Connection::new(adapter)?, Connection::new(adapter)?);
        for step in 0..steps {
            from_left.post_receive(step as u64, &region, 0, 0)?; // for the immediate data
        }
        let options = ConnectOptions::default();
        let key = region.remote(0).to_bytes();
        let (left_qp, right_qp) = (from_left.queue_pair(), to_right.queue_pair());
        let accept = || listener.accept(left_qp, &options, &key, PATIENCE);
        let reach = || connect::connect(right, right_qp, &options, b"", PATIENCE);
        if rank != 0 {
            accept()?; // somebody has to begin
        }
        let peer = reach()?;
        if rank == 0 {
            accept()?;
        }
        let there = Remote::from_bytes(&peer.user).ok_or("the neighbour told no key")?;
        let own: Vec<f32> = (0..NUMBERS).map(|at| (at % 1000 + rank) as f32).collect();
        memory.write(0, &own.iter().flat_map(|one| one.to_ne_bytes()).collect::<Vec<_>>());
        for step in 0..steps {
            let summing = step < ranks - 1;
            // What goes to the right: the sum so far; later a sum that is whole.
            let from = self.before(step) * chunk;
            let to = if summing { (ranks + step) * chunk } else { from };
            let (va, r_key) = (there.va + to as u64, there.r_key);
            let write = Op::WriteWithImm { va, r_key, imm: step as u32 };
            to_right.post(step as u64, write, &region, from as u64, chunk as u32)?;
            let arrived = from_left.wait(Wait(PATIENCE))?;
            assert_eq!(arrived.extra, Extra::Imm(ImmDt(step as u32)));
            if summing {
                let (sum, place) = (self.before(step + 1) * chunk, (ranks + step) * chunk);
                let read = |place| numbers(&memory, place, chunk);
                memory.write(sum, &add(&read(sum), &read(place)));
            }
            to_right.wait(Wait(PATIENCE))?;
        }
        let sum = numbers(&memory, 0, NUMBERS * 4);
        let expected = |at: usize| (at % 1000 * ranks + ranks * (ranks - 1) / 2) as f32;
        if let Some(at) = (0..sum.len()).find(|&at| sum[at] != expected(at)) {
            return Err(format!("number {at} is {}, not {}", sum[at], expected(at)).into());
        }
        Ok(format!(
            "rank {rank} of {ranks}: {NUMBERS} numbers, all of them the sum of {ranks} ranks, \
             after {steps} steps of {chunk} bytes"
        ))
    }
}

/// The numbers in `len` bytes of memory.
fn numbers(memory: &Buffer, place: usize, len: usize) -> Vec<f32> {
    let mut bytes = vec![0; len];
    memory.read(place, &mut bytes);
    let number = |four: &[u8]| four.try_into().map_or(f32::NAN, f32::from_ne_bytes);
    bytes.chunks_exact(4).map(number).collect()
}

/// The bytes of their sums.
fn add(one: &[f32], other: &[f32]) -> Vec<u8> {
    one.iter().zip(other).flat_map(|(a, b)| (a + b).to_ne_bytes()).collect()
}
