//! A seed makes a world; the world runs to its end; everything that was promised must have held.
//!
//! Swarm testing: each seed switches on a random part of all features and faults, so that some
//! worlds are full of one thing and free of what would hide its mistakes. A world that fails is
//! made smaller for as long as it still fails, and its last frames are kept.

mod conditions;
mod features;
mod life;
mod profiles;
mod recipe;
mod shrink;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use roxe_net::fault::Faults;
use roxe_transport::ending::Cause;
use roxe_wire::Instant;

use crate::link::Link;
use crate::rng::Rng;
use crate::workload::{Action, Workload, is_in_error};
use crate::world::{Due, World};

use shrink::shrink;

pub use conditions::Conditions;
pub use features::{Feature, Features};
pub use life::{Finding, Life};
pub use profiles::{PROFILES, Profile};
pub use recipe::Recipe;

/// Runs a world under other conditions than its own; makes it smaller if it fails. `record` is
/// whether the last frames of one that holds are kept too.
pub fn run(recipe: Recipe, conditions: &Conditions, record: bool) -> Life {
    let recipe = conditions.admit(recipe);
    let mut life = attempt(recipe, conditions, record);
    if life.failure.is_some() {
        // A smaller world has the faults still that are said.
        let fails = |recipe| {
            conditions.admit(recipe) == recipe
                && attempt(recipe, conditions, false).failure.is_some()
        };
        let again = attempt(shrink(recipe, fails), conditions, true);
        // A failure that does not come again by itself is worse than any other: keep the first.
        life.failure = again.failure.or(life.failure);
    }
    life
}

/// Runs a world once. An assertion of the engine that fails is a failure like any other.
fn attempt(recipe: Recipe, conditions: &Conditions, record: bool) -> Life {
    let mut world = build(&recipe, conditions);
    world.record = record.then(VecDeque::new);
    let mut workload = Workload::new(&recipe);
    let ended = catch_unwind(AssertUnwindSafe(|| live(&mut world, &mut workload)));
    let what = match ended {
        Ok(Ok(())) => None,
        Ok(Err(what)) => Some(what),
        Err(panic) => Some(match panic.downcast_ref::<String>() {
            Some(message) => format!("panic: {message}"),
            None => format!("panic: {}", panic.downcast_ref::<&str>().unwrap_or(&"?")),
        }),
    };
    let recorded = world.record.take().unwrap_or_default();
    let counted = |name| {
        let each = world.nodes.iter().filter_map(|node| node.device.counters().by_name(name));
        each.sum()
    };
    let in_error = world.nodes.iter().map(|node| {
        let device = &node.device;
        device.queue_pair_numbers().filter(|qpn| is_in_error(device, *qpn)).count() as u64
    });
    let (link, bad_for) = conditions.links(&recipe);
    let mut life = Life {
        recipe,
        link,
        bad_for,
        frames: world.frames,
        requests: workload.posted,
        retransmissions: counted("retrans_pkts"),
        rnr_naks: counted("send_rnr_err"),
        ended: workload.ended + in_error.sum::<u64>(),
        impairments: world.impairments,
        time: world.now.since(Instant::ZERO),
        digest: world.digest,
        recorded,
        failure: None,
    };
    life.failure = what.map(|what| Finding {
        recipe,
        conditions: conditions.clone(),
        what,
        frames: std::mem::take(&mut life.recorded),
        ended: who_ended(&world),
    });
    life
}

/// What the queue pairs that ended say of it. Those that applications moved to state Error did what
/// they were told.
fn who_ended<A>(world: &World<A>) -> Vec<String> {
    let nodes = world.nodes.iter().enumerate();
    let stories = nodes
        .flat_map(|(index, node)| node.device.ended_queue_pairs().map(move |story| (index, story)));
    let told = stories
        .filter(|(_, story)| story.ending.is_some_and(|ending| ending.cause != Cause::Modified));
    told.map(|(index, story)| {
        let address = world.nodes[index].addresses[0];
        format!("device {index} {address}, queue pair {}: {}", story.qpn, story.sentence())
    })
    .collect()
}

/// More events than this and the world goes in circles.
const MOST_EVENTS: u64 = 3_000_000;

fn live(world: &mut World<Action>, workload: &mut Workload) -> Result<(), String> {
    workload.begin(world)?;
    while world.any() {
        while let Some(due) = world.step() {
            match due {
                Due::Device(index) => workload.look_at(world, index)?,
                Due::Action(action) => workload.act(world, action)?,
            }
            if let Some(finding) = world.finding.take() {
                return Err(finding);
            }
            if world.count > MOST_EVENTS {
                return Err(format!("it does not end: {}", workload.state(world)));
            }
        }
        workload.look_everywhere(world)?;
    }
    workload.finish(world)
}

/// The devices and links of a world.
fn build(recipe: &Recipe, conditions: &Conditions) -> World<Action> {
    let (settings, bad_for) = conditions.links(recipe);
    let rules = conditions.rules(recipe);
    let seed = recipe.seed;
    let mut world = World::new(recipe.devices as usize, recipe.peers, seed, |from, to| {
        let own = Rng::new(seed).fork(from as u64 * 1000 + to as u64).next();
        Link::new(settings, Faults::new(rules.iter().cloned(), own))
    });
    world.stretch = settings.stretch();
    world.faulty_until = Instant::ZERO + bad_for;
    world
}

#[cfg(test)]
mod tests;
