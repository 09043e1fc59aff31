//! Congestion control over a real queue: two senders and a receiver around a Linux bridge, whose
//! port to the receiver is slow (tbf), and marks packets by the length of its queue.
//!
//! Needs root, iproute2 and a kernel with veth, AF_XDP, bridge and tbf; a run by anybody else
//! prints so.

#![cfg(feature = "af_xdp")]

#[path = "../../net/tests/namespace/mod.rs"]
mod namespace;

use std::thread;
use std::time::Duration;

use namespace::is_root;
use namespace::switch::Switch;
use roxe_net::marker::{Marker, Marking};
use roxe_verbs::{AckTimeout, Buffer, ConnectOptions, Connection, Context, Op, Wait};

const WAIT: Wait = Wait(Duration::from_secs(60));

/// The port to the receiver. Whatever the machine does meanwhile, a sender's burst is faster.
const BOTTLENECK: u64 = 50_000_000;

/// Bytes of a message; a sender has one outstanding.
const LEN: usize = 300_001;

/// So many messages a sender sends at the most, until what is waited for is seen.
const MOST: usize = 50;

const RECEIVER: usize = 0;
const SENDERS: [usize; 2] = [1, 2];

fn pattern(sender: usize, message: usize) -> Vec<u8> {
    (0..LEN).map(|at| u8::try_from((at * 7 + 11 * sender + message) % 251).unwrap()).collect()
}

fn count(context: &Context, name: &str) -> u64 {
    let counters = context.counters();
    counters.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

/// The receiver, and the senders under this congestion control.
struct Lab {
    switch: Switch,
    marker: Marker,
    receiver: Context,
    senders: Vec<Context>,
}

impl Lab {
    fn new(control: &str, queue: u32) -> Self {
        let switch = Switch::new(3, 1500);
        switch.limit(RECEIVER, BOTTLENECK, queue);
        let (k_min, k_max) = (10_000, 40_000);
        let marking = Marking { rate: BOTTLENECK, k_min, k_max, p_max: 0.5, limit: queue };
        let marker = switch.bridge.run(|| Marker::attach("p0", &marking)).unwrap();
        let open = |host: usize| {
            let device = format!("xdp:h{host},cc={control},rate=1").parse().unwrap();
            switch.hosts[host].run(|| Context::open_device("roxe", &device)).unwrap()
        };
        let (receiver, senders) = (open(RECEIVER), SENDERS.map(open).into());
        Self { switch, marker, receiver, senders }
    }

    /// Connections of a sender and the receiver to each other, over this address of theirs.
    fn connect(&self, sender: usize, ipv6: bool) -> [Connection; 2] {
        let ends = [&self.senders[sender], &self.receiver];
        let [one, other] = ends.map(|context| Connection::new(context).unwrap());
        let gid = |context: &Context| {
            let of_family = |entry: &roxe_verbs::GidEntry| {
                let address = entry.gid.to_ip();
                address.is_ipv6() == ipv6 && !address.to_string().starts_with("fe80")
            };
            context.gids().into_iter().find(|(_, entry)| of_family(entry)).unwrap().0
        };
        let hosts = [SENDERS[sender], RECEIVER];
        let gids = ends.map(gid);
        let endpoint = |at: usize| [&one, &other][at].queue_pair().endpoint_at(gids[at]).unwrap();
        for (at, end) in [&one, &other].into_iter().enumerate() {
            let options = ConnectOptions {
                source_gid: gids[at],
                timeout: AckTimeout::new(17).unwrap(),
                ..ConnectOptions::default()
            };
            let peer = endpoint(1 - at);
            let connect = || end.queue_pair().connect(&peer, &options).unwrap();
            self.switch.hosts[hosts[at]].run(connect);
        }
        [one, other]
    }

    /// Both send until `enough` says of each what was seen, message by message; all that came is
    /// what was sent.
    fn send(&self, ipv6: bool, enough: impl Fn(&Context, &Connection) -> bool + Sync) {
        let turn = |sender: usize| {
            let [mut here, there] = self.connect(sender, ipv6);
            let (from, to) = (Buffer::new(LEN), Buffer::new(LEN));
            let source = self.senders[sender].register(&from).unwrap();
            let target = self.receiver.register(&to).unwrap();
            let write = Op::Write { va: target.address(), r_key: target.r_key() };
            let mut bytes = vec![0; LEN];
            let mut seen = false;
            for message in 0..MOST {
                let data = pattern(sender, message);
                from.write(0, &data);
                here.post(1, write, &source, 0, u32::try_from(LEN).unwrap()).unwrap();
                here.wait(WAIT).unwrap();
                to.read(0, &mut bytes);
                assert!(bytes == data, "message {message} of sender {sender}");
                seen = seen || enough(&self.senders[sender], &here);
                if seen {
                    break;
                }
            }
            drop(there);
            assert!(seen, "not seen in {MOST} messages of sender {sender}");
        };
        thread::scope(|scope| {
            let turn = &turn;
            let threads = [0, 1].map(|sender| scope.spawn(move || turn(sender)));
            for thread in threads {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
        });
    }

    fn marks(&self, name: &str) -> u64 {
        self.marker.counters().find(|(known, _)| *known == name).unwrap().1
    }
}

#[test]
fn a_queue_that_marks_slows_its_senders_down() {
    if !is_root() {
        return;
    }
    for ipv6 in [false, true] {
        let lab = Lab::new("dcqcn", 400_000);
        lab.send(ipv6, |context, connection| {
            let point = connection.queue_pair().reaction_point().expect("it is controlled");
            let line = context.congestion().line_rate;
            count(context, "rp_cnp_handled") > 0 && point.rate() < line && point.alpha() > 0.0
        });
        let (marked, seen) =
            (lab.marks("marked"), count(&lab.receiver, "np_ecn_marked_roce_packets"));
        assert!(0 < seen && seen <= marked, "{seen} of {marked} marks were seen");
        let told = count(&lab.receiver, "np_cnp_sent");
        let handled: u64 = lab.senders.iter().map(|it| count(it, "rp_cnp_handled")).sum();
        assert!(0 < handled && handled <= told && told <= seen, "{handled} of {told} of {seen}");
        for context in lab.senders.iter().chain([&lab.receiver]) {
            assert_eq!(count(context, "rp_cnp_ignored"), 0);
            assert_eq!(count(context, "icrc_bad"), 0);
        }
    }
}

#[test]
fn without_control_the_queue_overflows_and_packets_are_sent_again() {
    if !is_root() {
        return;
    }
    let lab = Lab::new("none", 30_000);
    lab.send(false, |context, connection| {
        assert!(connection.queue_pair().reaction_point().is_none());
        count(context, "retrans_pkts") > 0
    });
    assert!(lab.switch.dropped(RECEIVER) > 0);
    // Who is not controlled does not say that he may be marked.
    assert!(lab.marks("not_ect") > 0);
    assert_eq!(lab.marks("marked"), 0);
    for (context, name) in
        [(&lab.receiver, "np_ecn_marked_roce_packets"), (&lab.receiver, "np_cnp_sent")]
    {
        assert_eq!(count(context, name), 0, "{name}");
    }
    for context in &lab.senders {
        assert_eq!(count(context, "rp_cnp_handled"), 0);
    }
}
