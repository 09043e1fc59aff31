//! A key-value store on tokio. PUT is a message that the server answers. GET is a READ of the slot
//! where the key must be: the server's program sleeps, its adapter alone has work.
//!
//! ```text
//! $ cargo run --example key_value --features tokio
//! alice put 100 entries, bob got them
//! bob read one entry 1000 times while alice changed it: each time one value, whole
//! messages that the server's program saw: 1100, all of them from alice
//! ```
//!
//! All run in this process, joined by memory. On several hosts, or in several network namespaces:
//! `key_value server xdp:eth1`, then `key_value put xdp:eth1 HOST KEY VALUE` or `… get … KEY`.

mod client;
mod end;
mod entry;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, error::Error, process::ExitCode, sync::Arc, time::Duration};

use client::Client;
use end::End;
use entry::{Entry, SLOT, SLOTS, place};
use roxe::verbs::asynchronous::{AsyncListener, Caller};
use roxe::verbs::{Buffer, ConnectOptions, Context, MemoryRegion, open};
use tokio::{task::spawn, time::sleep};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PATIENCE: Duration = Duration::from_secs(20);

/// Between two tries to serve somebody.
const PAUSE: Duration = Duration::from_millis(100);

/// Messages that the server's program has answered.
static ANSWERED: AtomicUsize = AtomicUsize::new(0);

#[tokio::main]
async fn main() -> ExitCode {
    let told = run().await.map_err(|error| eprintln!("key_value: {error}"));
    told.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

async fn run() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    let client = async |device, host| Client::new(&open(device)?, format!("{host}:18515")).await;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => in_this_process().await,
        ["server", device] => {
            serve(open(device)?, AsyncListener::bind("0.0.0.0:18515").await?).await
        }
        ["put", device, host, key, value] => client(device, host).await?.put(key, value).await,
        ["get", device, host, key] => {
            println!("{}", client(device, host).await?.get(key).await?.ok_or("no such key")?);
            Ok(())
        }
        _ => Err("usage: key_value [server DEVICE | (put|get) DEVICE HOST KEY [VALUE]]".into()),
    }
}

async fn in_this_process() -> Outcome {
    let listener = AsyncListener::bind("127.0.0.1:0").await?;
    let server = listener.local_address()?.to_string();
    spawn(serve(open("memory:key_value")?, listener));
    let alice = Client::new(&open("memory:key_value")?, server.clone()).await?;
    let bob = Client::new(&open("memory:key_value")?, server).await?;
    for number in 0..100 {
        let (key, value) = (format!("key {number}"), format!("value {number}"));
        assert_eq!(bob.get(&key).await?, None);
        alice.put(&key, &value).await?;
        assert_eq!(bob.get(&key).await?, Some(value));
    }
    println!("alice put 100 entries, bob got them");

    let changing = async {
        for letter in ('a'..='z').cycle().take(1000) {
            alice.put("key 7", &String::from(letter).repeat(30)).await?;
        }
        Outcome::Ok(())
    };
    let reading = async {
        for _ in 0..1000 {
            let value = bob.get("key 7").await?.ok_or("the key is there")?;
            assert!(value == "value 7" || value == value[..1].repeat(30), "{value}");
        }
        Outcome::Ok(())
    };
    let (changed, read) = tokio::join!(changing, reading);
    changed.and(read)?;
    println!("bob read one entry 1000 times while alice changed it: each time one value, whole");
    let answered = ANSWERED.load(Ordering::Relaxed);
    println!("messages that the server's program saw: {answered}, all of them from alice");
    Ok(())
}

/// Lends its table to each client that comes. Who is slow, or a stranger, keeps nobody waiting.
async fn serve(adapter: Context, listener: AsyncListener) -> Outcome {
    let table = Buffer::new(SLOTS * SLOT);
    let lent = Arc::new(adapter.register(&table)?);
    loop {
        let next = async { Outcome::Ok((listener.next().await?, End::new(&adapter)?)) };
        let (caller, end) = match next.await {
            Ok(next) => next,
            Err(error) => {
                // There are too many of them: those who say nothing will be gone some time.
                eprintln!("a client is not served: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        let served = answer(caller, end, Arc::clone(&table), Arc::clone(&lent));
        spawn(async { served.await.map_err(|error| eprintln!("a client has gone: {error}")) });
    }
}

/// Stores what one client sends. An entry that was in its slot is forgotten, as in a cache.
async fn answer(
    caller: Caller,
    client: End,
    table: Arc<Buffer>,
    lent: Arc<MemoryRegion>,
) -> Outcome {
    let (options, key) = (ConnectOptions::default(), lent.remote(0).to_bytes());
    caller.meet(&client.connection, &options, &key, PATIENCE).await?;
    let mut entry = client.receive().await?;
    loop {
        if let Some((key, _)) = entry.open() {
            table.write(place(key), &entry.0);
        }
        ANSWERED.fetch_add(1, Ordering::Relaxed);
        // The next message may come as soon as the client has the answer.
        let (next, answered) = tokio::join!(client.receive(), client.send(&Entry::FREE));
        answered?;
        entry = next?;
    }
}
