//! What stands on the wire of worlds with devices that are not ours.

use roxe_trace::IcrcVerdict;
use roxe_wire::opcode::Operation;
use roxe_wire::{Credits, Syndrome};

use std::collections::VecDeque;

use roxe_wire::{Frame, Packet, RawFrame};

use crate::peer::{Peer, Peers};
use crate::world::{Node, Recorded};

use super::*;
use std::time::Duration;

/// The frames of a lossy world of two devices, and that nothing was wrong in it.
fn frames(peers: &[Peer]) -> VecDeque<Recorded> {
    let profile = Profile::by_name("lossy").expect("a profile");
    let peers = Peers::of(peers);
    let mut all = VecDeque::new();
    for seed in 0..20 {
        let recipe = Recipe { devices: 2, peers, ..Recipe::new(seed, profile) };
        let mut world = build(&recipe, &Conditions::default());
        world.record = Some(VecDeque::new());
        assert_eq!(live(&mut world, &mut Workload::new(&recipe)), Ok(()), "{recipe}");
        all.extend(world.record.unwrap_or_default());
    }
    all
}

/// What both devices' frames look like.
#[derive(Debug, Default)]
struct Look {
    frames: u64,
    shortest: usize,
    low_ports: u64,
    reserved_bits: u64,
    migrated: u64,
    credits: u64,
    notifications: u64,
    naks: u64,
    acknowledgements: u64,
    asks: u64,
    flow_labels: u64,
}

fn look(frames: &VecDeque<Recorded>, of: usize) -> Look {
    let mut look = Look { shortest: usize::MAX, ..Look::default() };
    for Recorded { bytes, ends, .. } in frames.iter().filter(|frame| frame.ends.0 == of) {
        assert_eq!(ends.1, Some(1 - of));
        let frame = Frame::parse(RawFrame::ethernet(bytes)).expect("a frame");
        assert_eq!(IcrcVerdict::of(&frame), IcrcVerdict::Good);
        let packet = Packet::parse(frame.body).expect("a packet");
        let bth = packet.headers.bth;
        look.frames += 1;
        look.shortest = look.shortest.min(bytes.len());
        look.low_ports += u64::from(frame.udp.source_port < 0xc000);
        look.reserved_bits += u64::from(bth.reserved_6 != 0);
        look.migrated += u64::from(bth.mig_req);
        look.asks += u64::from(bth.ack_req);
        look.flow_labels += u64::from(frame.received().addressing.flow_label != 0);
        look.notifications += u64::from(packet.opcode.operation == Operation::Notify);
        match packet.headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(credits)) => {
                look.acknowledgements +=
                    u64::from(packet.opcode.operation == Operation::Acknowledge);
                look.credits += u64::from(credits != Credits::INVALID);
            }
            Some(Syndrome::Nak(_)) => look.naks += 1,
            _ => {}
        }
    }
    look
}

//= 06-6.2 test
#[test]
fn frames_like_those_of_connectx_are_right_and_differ_from_ours() {
    let frames = frames(&[Peer::Adapter, Peer::ConnectX]);
    let [ours, theirs] = [0, 1].map(|of| look(&frames, of));
    assert!(ours.shortest < 60 && ours.low_ports + ours.reserved_bits + ours.credits == 0);
    assert_eq!((ours.migrated, ours.notifications), (ours.frames, 0));
    assert_eq!((theirs.shortest, theirs.low_ports), (60, theirs.frames));
    assert_eq!(theirs.reserved_bits, theirs.frames - theirs.notifications);
    assert_eq!(theirs.migrated, theirs.frames - theirs.notifications);
    assert!(theirs.credits > 0 && theirs.naks > 0, "{theirs:?}");
    // A notification that its port had no time for gives way to the next.
    assert!(theirs.notifications > 0 && theirs.notifications <= theirs.naks, "{theirs:?}");
    assert!(theirs.acknowledgements < ours.acknowledgements, "{theirs:?} {ours:?}");
}

//= 06-6.1 test
#[test]
fn frames_like_those_of_rxe_are_right_and_differ_from_ours() {
    let frames = frames(&[Peer::Adapter, Peer::Rxe]);
    let [ours, theirs] = [0, 1].map(|of| look(&frames, of));
    assert_eq!((theirs.migrated, theirs.credits, theirs.flow_labels), (0, 0, 0));
    assert_eq!(theirs.low_ports + theirs.reserved_bits + theirs.notifications, 0);
    assert!(theirs.shortest < 60 && theirs.naks > 0 && ours.flow_labels > 0, "{theirs:?}");
    // Each that asks is answered; ours answers several at once. What asked is the other's.
    let [answered, joined] = [(&theirs, &ours), (&ours, &theirs)]
        .map(|(of, other)| of.acknowledgements as f64 / other.asks as f64);
    assert!(answered > joined, "{theirs:?} {ours:?}");
}

/// A failure comes with the smallest world that has it, a line that makes it again, and its frames.
#[test]
fn a_failure_is_made_small_and_can_be_made_again() {
    let profile = Profile::by_name("chaos").expect("a profile");
    let fails = |recipe: Recipe| recipe.requests >= 2 && recipe.features.has(Feature::Six);
    let mut all = (0..).map(|seed| Recipe::new(seed, profile));
    let large = |recipe: &Recipe| fails(*recipe) && recipe.devices > 2 && recipe.pairs > 2;
    let whole = all.find(large).expect("one of many");
    let smallest = shrink(whole, fails);
    assert_eq!((smallest.requests, smallest.pairs, smallest.devices), (2, 1, 2));
    assert_eq!(smallest.features, Features::of(&[Feature::Six]));
    assert_eq!(smallest.peers.kinds(), 0);
    let frames = frames(&[Peer::Adapter]).into_iter().take(10).collect();
    let mut conditions = Conditions::default();
    conditions.set_faults("drop psn 5 once").expect("a rule");
    let (what, ended) = ("x".to_owned(), Vec::new());
    let failure = Finding { recipe: smallest, conditions, what, ended, frames };
    let text = failure.to_string();
    let change = text.split('"').nth(1).unwrap_or_default();
    assert_eq!(whole.changed(change), Ok(smallest), "{text}");
    assert!(
        text.contains("--change \"") && text.contains(" --faults \"drop psn 5 once\"\n"),
        "{text}"
    );
    assert!(text.contains(" 0 192.0.2.1 → 1 192.0.2.2 RC_"), "{text}");
}

/// Links do what is said, and worlds allow for it.
#[test]
fn what_is_said_of_links_is_done() {
    let clean = Recipe::new(5, Profile::by_name("clean").expect("a profile"));
    let lossy = Recipe::new(5, Profile::by_name("lossy").expect("a profile"));
    let mut conditions = Conditions::default();
    assert_eq!(run(clean, &conditions, false).retransmissions, 0);
    assert!(conditions.set_faults("lose 2%").is_err());
    conditions.set_faults("drop 10%").expect("a rule");
    conditions.set_latency(Duration::from_micros(1)).expect("a latency");
    conditions.set_picos_per_byte(80).expect("a rate");
    let life = run(clean, &conditions, true);
    assert!(life.failure.is_none(), "{:?}", life.failure.map(|failure| failure.what));
    let told = life.to_string();
    assert!(told.contains("links 1000 ns, 100 Gb/s"), "{told}");
    assert!(life.recorded.iter().any(|frame| frame.passage.arrives.is_none()), "{told}");
    conditions.set_faults("").expect("no rule");
    assert!(life.impairments.by_name()[0].1 > 0, "{told}");
    assert!(told.contains(" lost, ") && told.contains(" bad for "), "{told}");
    let life = run(lossy, &conditions, true);
    assert!(!life.recipe.features.has(Feature::Drop), "{life}");
    assert!(life.recorded.iter().all(|frame| frame.passage.arrives.is_some()), "{life}");
}

/// A queue pair that ended is counted, though it is reset or destroyed before the world's end.
#[test]
fn queue_pairs_that_ended_are_counted() {
    let errors = Profile::by_name("errors").expect("a profile");
    let ended = |profile| run(Recipe::new(1, profile), &Conditions::default(), false).ended;
    let clean = Profile::by_name("clean").expect("a profile");
    assert_eq!(ended(clean), 0);
    assert!(
        (0..10).any(|seed| run(Recipe::new(seed, errors), &Conditions::default(), false).ended > 1)
    );
}

/// What did not hold is said for people: without the names of our types.
#[test]
fn failures_are_told_in_words() {
    let profile = Profile::by_name("clean").expect("a profile");
    let mut conditions = Conditions::default();
    conditions.set_faults("drop 30%; corrupt 10%").expect("rules");
    let failed = (0..20).filter_map(|seed| {
        // Nobody told this world that it would be bad.
        attempt(Recipe::new(seed, profile), &conditions, true).failure
    });
    let told: Vec<String> = failed.map(|failure| failure.to_string()).collect();
    assert!(told.len() > 10, "{}", told.len());
    for text in told {
        let debug = ["Some(", "None", " { ", "(0x"];
        assert!(debug.iter().all(|mark| !text.contains(mark)), "{text}");
    }
}

#[test]
fn a_change_is_refused_if_no_world_can_have_it() {
    let whole = Recipe::new(3, Profile::by_name("lossy").unwrap());
    for (change, told) in [
        ("devices=0", "\"devices=0\": a number is needed from 2 to 254"),
        ("pairs=1001", "\"pairs=1001\": a number is needed from 1 to 1000"),
        ("requests=4294967295", "\"requests=4294967295\": a number is needed from 1 to 100000"),
        ("requests=-1", "\"requests=-1\": a number is needed from 1 to 100000"),
        ("devices=255", "\"devices=255\": a number is needed from 2 to 254"),
        ("requests", "\"requests\": no `=`"),
        ("hosts=1", "\"hosts\" is no option"),
        ("without=", "\"\" is no feature"),
    ] {
        assert_eq!(whole.changed(change), Err(told.to_owned()));
    }
    let changed = whole.changed("devices=254 pairs=1 requests=1").expect("possible");
    assert_eq!((changed.devices, changed.pairs, changed.requests), (254, 1, 1));
}

/// Frames in the name of a peer are refused for the one thing in which they lie.
#[test]
fn forged_frames_are_refused_for_every_lie() {
    let forged = Profile::by_name("forged").expect("a profile");
    let mut refused = [0; 5];
    const LIES: [&str; 5] =
        ["addr_mismatch", "bad_pkey", "bad_qkey", "wrong_service", "out_of_sequence"];
    for seed in 0..60 {
        let recipe = Recipe::new(seed, forged).changed("without=restart,drop").unwrap();
        let mut world = build(&recipe, &Conditions::default());
        assert_eq!(live(&mut world, &mut Workload::new(&recipe)), Ok(()), "{recipe}");
        for (sum, lie) in refused.iter_mut().zip(LIES) {
            let of = |node: &Node| node.device.counters().by_name(lie).expect(lie);
            *sum += world.nodes.iter().map(of).sum::<u64>();
        }
    }
    assert!(refused.iter().all(|count| *count > 50), "{LIES:?} {refused:?}");
}
