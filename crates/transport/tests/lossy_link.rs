//! Two queue pairs over a link that loses, doubles and reorders: every message arrives once and in
//! order, every request completes once, memory holds what was sent.

#![allow(clippy::cast_possible_truncation, reason = "small numbers of a test")]

mod world;

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use roxe_transport::adapter::Count;
use roxe_transport::qp_state::{QpState, ServiceType};
use roxe_transport::work::{
    Attributes, CompletionStatus, Data, Remote, SendOperation, SendRequest,
};
use roxe_wire::{Instant, Psn, RKey};
use world::{End, KEY, attributes, sge};

/// What a link does to one packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Pass,
    Drop,
    Double,
    Late,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![8 => Just(Fate::Pass), 2 => Just(Fate::Drop), 1 => Just(Fate::Double),
                1 => Just(Fate::Late)]
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Send,
    Write,
    Read,
    Add,
    Swap,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Send),
        Just(Kind::Write),
        Just(Kind::Read),
        Just(Kind::Add),
        Just(Kind::Swap)
    ]
}

const SLOT: u64 = 2048;

/// Request `index` of `kind`: each has its own 2 KiB at both ends.
fn request(index: u64, kind: Kind, len: u32) -> (SendOperation, u64, u32) {
    let remote = Remote { va: index * SLOT, r_key: RKey(KEY) };
    let local = index * SLOT;
    match kind {
        Kind::Send => (SendOperation::Send, local, len),
        Kind::Write => (SendOperation::Write(remote), local, len),
        Kind::Read => (SendOperation::Read(remote), local, len),
        Kind::Add => (SendOperation::FetchAdd { remote, add: 5 }, local, 8),
        Kind::Swap => (SendOperation::CompareSwap { remote, compare: 0, swap: 9 }, local, 8),
    }
}

fn run(kinds: &[(Kind, u32)], fates: &[Fate], late_receives: bool, first: Psn) {
    let mut a = End::new(ServiceType::Rc, Attributes { sq_psn: first, ..attributes(1, 2) });
    let mut b = End::new(ServiceType::Rc, Attributes { rq_psn: first, ..attributes(2, 1) });
    for (index, (kind, len)) in kinds.iter().enumerate() {
        let base = index * SLOT as usize;
        for at in 0..*len as usize {
            match kind {
                Kind::Send | Kind::Write => a.adapter.memory[base + at] = (index + at * 7) as u8,
                Kind::Read => b.adapter.memory[base + at] = (index + at * 11) as u8,
                _ => {}
            }
        }
    }
    let mut receives: VecDeque<_> = (0..kinds.len() as u64)
        .filter(|index| matches!(kinds[*index as usize].0, Kind::Send))
        .map(|index| (index, sge(index * SLOT, SLOT as u32)))
        .collect();
    if !late_receives {
        b.adapter.receives.append(&mut receives);
    }
    for (index, (kind, len)) in kinds.iter().enumerate() {
        let (operation, va, len) = request(index as u64, *kind, *len);
        let sges = [sge(va, len)];
        let data = Data::Regions(&sges);
        let wr_id = index as u64;
        let request = SendRequest {
            wr_id,
            operation,
            data,
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        a.qp.post_send(&request, &mut a.adapter).unwrap();
    }
    let mut now = Instant::ZERO;
    let mut fates = fates.iter().copied();
    let mut to_a: VecDeque<Vec<u8>> = VecDeque::new();
    let mut to_b: VecDeque<Vec<u8>> = VecDeque::new();
    let mut idle = 0;
    for _ in 0..20_000 {
        let mut moved = false;
        for (end, link) in [(&mut a, &mut to_b), (&mut b, &mut to_a)] {
            while let Some(packet) = end.poll(now) {
                moved = true;
                match fates.next().unwrap_or(Fate::Pass) {
                    Fate::Pass => link.push_back(packet),
                    Fate::Drop => {}
                    Fate::Double => {
                        link.push_back(packet.clone());
                        link.push_back(packet);
                    }
                    Fate::Late => link.push_front(packet),
                }
            }
        }
        for (end, link) in [(&mut b, &mut to_b), (&mut a, &mut to_a)] {
            if let Some(packet) = link.pop_front() {
                moved = true;
                end.receive(now, &packet);
            }
        }
        if !moved {
            b.adapter.receives.extend(receives.pop_front());
            let deadline = [a.qp.deadline(), b.qp.deadline()].into_iter().flatten().min();
            now = deadline.unwrap_or(now + Duration::from_millis(1)).max(now);
            a.qp.handle_timeout(now, &mut a.adapter);
            b.qp.handle_timeout(now, &mut b.adapter);
            idle += 1;
        }
        if a.adapter.sent.len() == kinds.len() || idle > 500 {
            break;
        }
    }
    if a.qp.state() == QpState::Error && a.adapter.count_of(Count::RetryExceeded) == 1 {
        return; // So many losses in a row that the retries were used up: fair.
    }
    let ids: Vec<_> = a.adapter.sent.iter().map(|c| (c.wr_id, c.status)).collect();
    let all: Vec<_> = (0..kinds.len() as u64).map(|id| (id, CompletionStatus::Success)).collect();
    assert_eq!(ids, all, "each request completes once, in order");
    let received: Vec<_> = b.adapter.received.iter().map(|c| (c.wr_id, c.byte_len)).collect();
    let sends: Vec<_> = kinds
        .iter()
        .enumerate()
        .filter(|(_, (kind, _))| matches!(kind, Kind::Send))
        .map(|(index, (_, len))| (index as u64, *len))
        .collect();
    assert_eq!(received, sends, "each message arrives once, in order");
    for (index, (kind, len)) in kinds.iter().enumerate() {
        let base = index * SLOT as usize;
        let (ours, theirs) = (&a.adapter.memory[base..], &b.adapter.memory[base..]);
        match kind {
            Kind::Send | Kind::Write | Kind::Read => {
                assert_eq!(ours[..*len as usize], theirs[..*len as usize], "{kind:?} {index}");
            }
            Kind::Add => assert_eq!(theirs[..8], 5u64.to_ne_bytes(), "added once"),
            Kind::Swap => assert_eq!(theirs[..8], 9u64.to_ne_bytes(), "swapped"),
        }
        if matches!(kind, Kind::Add | Kind::Swap) {
            assert_eq!(ours[..8], 0u64.to_ne_bytes(), "the value from before");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn nothing_is_lost_doubled_or_reordered(
        kinds in prop::collection::vec((kind(), 0u32..1500), 1..24),
        fates in prop::collection::vec(fate(), 0..200),
        late in any::<bool>(),
        until_the_wrap in 0u32..150,
    ) {
        run(&kinds, &fates, late, Psn::new(Psn::MODULUS - until_the_wrap));
    }
}

#[test]
fn a_clean_link_needs_no_retry() {
    let kinds = [(Kind::Send, 1000), (Kind::Write, 700), (Kind::Read, 900), (Kind::Add, 0)];
    run(&kinds, &[], false, Psn::new(1000));
}
