//! The hosts, the bridge, and what is seen of them from time to time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use roxe::verbs::congestion::{CongestionControl, Rate};
use roxe::verbs::{AckTimeout, Buffer, ConnectOptions, Connection, Context, Op, Wait};
use roxe_net::marker::{Marker, Marking};

use crate::namespace::switch::Switch;
use crate::picture::Series;
use crate::setup::Setup;

/// What came of a run.
pub(crate) struct Outcome {
    /// Time, queue, and the payload of each sender.
    pub(crate) series: Series,
    /// When each sender's last message was acknowledged, from the beginning.
    pub(crate) ended: [Duration; 2],
    /// Packets that the port marked.
    pub(crate) marked: u64,
    /// Notifications that came to the senders.
    pub(crate) handled: u64,
    /// The least that each sender was allowed to send when it was looked at, in bits a second.
    pub(crate) least: [f64; 2],
    /// Frames that found the port's queue full.
    pub(crate) dropped: u64,
    /// Packets that were sent again.
    pub(crate) again: u64,
    /// The longest queue that was seen, in bytes.
    pub(crate) queue: u32,
}

/// The run in which nobody is told of marks.
const UNTOLD: &str = "none";

const RECEIVER: usize = 2;
const WAIT: Wait = Wait(Duration::from_secs(60));

/// A sender, and the other end of its connection.
struct Lane {
    context: Context,
    connection: Connection,
    _there: Connection,
    write: Op,
}

/// Does a run of the lab; `options` stand behind the receiver's device.
pub(crate) fn play(setup: &Setup, run: &str, options: &str) -> Result<Outcome> {
    let switch = Switch::new(3, 1500);
    switch.limit(RECEIVER, setup.rate(), setup.limit);
    let Setup { k_min, k_max, p_max, limit, .. } = *setup;
    let rate = (setup.rate() as f64 * setup.share) as u64;
    let marking = Marking { rate, k_min, k_max, p_max, limit };
    let marker = switch.bridge.run(|| Marker::attach(&format!("p{RECEIVER}"), &marking))?;
    let told = if run == UNTOLD { ",cnp=off" } else { "" };
    let receiver = open(&switch, RECEIVER, &format!("{told}{options}"))?;
    let target = receiver.register(&Buffer::new(setup.message))?;
    let write = Op::Write { va: target.address(), r_key: target.r_key() };
    let lanes = [0, 1].map(|host| lane(&switch, setup, (host, &receiver), write));
    let [one, other] = lanes;
    let mut lanes = [one?, other?];

    let contexts = [0, 1].map(|at| lanes[at].context.clone());
    let queue_pairs = [0, 1].map(|at| lanes[at].connection.queue_pair().clone());
    let left = AtomicUsize::new(lanes.len());
    let start = Instant::now();
    let (mut least, mut queue) = ([f64::INFINITY; 2], 0);
    let mut series = Series::new();
    let ended = thread::scope(|scope| {
        let senders = lanes.iter_mut().enumerate().map(|(at, lane)| {
            let left = &left;
            let begin = setup.stagger * at as u32;
            scope.spawn(move || {
                let sent = send(lane, setup, begin);
                left.fetch_sub(1, Ordering::Relaxed);
                sent.map(|()| start.elapsed())
            })
        });
        let senders: Vec<_> = senders.collect();
        let (mut before, mut then) = (contexts.each_ref().map(payload), Duration::ZERO);
        while left.load(Ordering::Relaxed) > 0 {
            thread::sleep(setup.sample);
            let (now, sent) = (start.elapsed(), contexts.each_ref().map(payload));
            let seconds = (now - then).as_secs_f64();
            let gbps = [0, 1].map(|at| (sent[at] - before[at]) as f64 * 8e-9 / seconds);
            let waiting = marker.queue_length();
            series.push(now, f64::from(waiting) / 1e3, gbps);
            (before, then, queue) = (sent, now, queue.max(waiting));
            for (least, queue_pair) in least.iter_mut().zip(&queue_pairs) {
                let rate = queue_pair.reaction_point().map(|it| it.rate().bits_per_second());
                *least = least.min(rate.unwrap_or(f64::INFINITY));
            }
        }
        let ended = senders.into_iter().map(|it| it.join().map_err(|_| anyhow!("a sender ended")));
        ended.map(|it| it.and_then(|it| it)).collect::<Result<Vec<_>>>()
    })?;

    let of = |name| contexts.iter().map(|context| count(context, name)).sum();
    let marked = marker.counters().find(|(name, _)| *name == "marked").map_or(0, |it| it.1);
    Ok(Outcome {
        series,
        ended: [ended[0], ended[1]],
        marked,
        handled: of("rp_cnp_handled"),
        least,
        dropped: switch.dropped(RECEIVER),
        again: of("retrans_pkts"),
        queue,
    })
}

fn open(switch: &Switch, host: usize, options: &str) -> Result<Context> {
    let device = format!("xdp:h{host}{options}").parse()?;
    let name = format!("host{host}");
    Ok(switch.hosts[host].run(|| Context::open_device(&name, &device))?)
}

/// A sender that is connected to the receiver.
fn lane(
    switch: &Switch,
    setup: &Setup,
    (host, receiver): (usize, &Context),
    write: Op,
) -> Result<Lane> {
    let context = open(switch, host, "")?;
    // One that may send at the rate of its port is not held back: the kernel's has none.
    let port = Rate::from_bits_per_second(setup.rate() as f64 * 1.001);
    let mut congestion = context.congestion();
    (congestion.control, congestion.line_rate) = (CongestionControl::Dcqcn(setup.dcqcn), port);
    congestion.burst = setup.burst;
    context.set_congestion(congestion)?;
    let (connection, there) = (Connection::new(&context)?, Connection::new(receiver)?);
    let (here, at) = (connection.endpoint()?, there.endpoint()?);
    // A full queue is not silence.
    let timeout = AckTimeout::new(17).context("0 to 31")?;
    let options = ConnectOptions { timeout, path_mtu: setup.path_mtu, ..ConnectOptions::default() };
    switch.hosts[host].run(|| connection.queue_pair().connect(&at, &options))?;
    switch.hosts[RECEIVER].run(|| there.queue_pair().connect(&here, &options))?;
    Ok(Lane { context, connection, _there: there, write })
}

/// Sends what the lab says, from `begin` on.
fn send(lane: &mut Lane, setup: &Setup, begin: Duration) -> Result<()> {
    let source = lane.context.register(&Buffer::new(setup.message))?;
    thread::sleep(begin);
    let messages = setup.bytes.div_ceil(setup.message);
    let len = u32::try_from(setup.message)?;
    for message in 0..messages + setup.outstanding {
        if message >= setup.outstanding {
            lane.connection.wait(WAIT)?;
        }
        if message < messages {
            lane.connection.post(message as u64, lane.write, &source, 0, len)?;
        }
    }
    Ok(())
}

/// Payload that an adapter has sent, what it sent again included: without BTH and ICRC.
fn payload(context: &Context) -> u64 {
    count(context, "rdma_tx_bytes").saturating_sub(16 * count(context, "rdma_tx_packets"))
}

fn count(context: &Context, name: &str) -> u64 {
    let counters = context.counters();
    counters.iter().find(|(known, _)| *known == name).map_or(0, |it| it.1)
}
