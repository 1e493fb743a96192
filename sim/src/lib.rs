//! Whole jobs under a seeded scheduler, clock, network and disk.
//!
//! What runs is the real thing: tasks turn by turn (`weir_task`), with their gates, routers and aligners; the coordinator's
//! checkpoint machine and restart strategies (`weir_checkpoint`); frames as bytes between workers (`weir_channel::wire`); files,
//! manifests, the log and deletion (`weir_storage`); the rules by which rows in flight are divided after a rescale. What is
//! simulated is everything around it: time, which task is next, packets, the disk, crashes, people. One thread does it
//! all, and the seed decides everything, so a run that fails fails again in the same way.
//!
//! [`run`] runs one seed and says what it came across; [`Failure`] says what must never happen and did. `README.md` has how to
//! replay one, and what is not simulated. For development only: nothing depends on this crate.

mod clock;
mod connectors;
mod coordinator;
mod disk;
mod executor;
mod ids;
mod network;
mod operators;
mod oracle;
mod outside;
mod random;
pub mod scale;
mod scenario;

mod sightings;
mod source;
mod wishes;
mod worker;
mod world;

#[cfg(test)]
mod tests;

use std::{fmt, panic};

pub use scale::cpu_time;
pub use scenario::{Mutation, Profile};
pub use sightings::Sightings;
use world::World;

/// A run that went as it must.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Hash over everything that happened, in order.
    pub trace: u64,
    /// Steps that were made.
    pub steps: u64,
    /// Virtual time, in microseconds.
    pub time_us: u64,
    /// Rows that sinks have committed.
    pub rows: usize,
    /// What it came across.
    pub seen: Sightings,
    /// The greatest watermark that the operator in the middle was told in the second second, where there was one.
    pub watermark_in_between: Option<i64>,
}

/// A run in which something went wrong that must never happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The kind of run.
    pub profile: Profile,
    /// What went wrong.
    pub wrong: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with seed {}: {}", self.profile, self.seed, self.wrong.join("; "))
    }
}

impl std::error::Error for Failure {}

/// Runs a job from a seed to its end, and compares its output with what it must be.
///
/// # Errors
/// If a row is lost or comes twice, time runs backwards for an operator, a checkpoint completes without all of its parts, or
/// the job does not come to an end.
pub fn run(seed: u64, profile: Profile, mutation: Option<Mutation>) -> Result<Ran, Failure> {
    let ran = panic::catch_unwind(|| run_to_end(seed, profile, mutation));
    ran.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Failure { seed, profile, wrong: vec![format!("panicked: {}", text.unwrap_or("at the place named above"))] })
    })
}

fn run_to_end(seed: u64, profile: Profile, mutation: Option<Mutation>) -> Result<Ran, Failure> {
    let mut world = World::new(seed, profile, mutation);
    let went = world.go();
    let mut wrong = world.outside.broken();
    match went {
        Ok(()) => {
            let exactly_once = oracle::is_exactly_once(&world.scenario);
            wrong.extend(oracle::check(&world.scenario, &world.outside.output(), exactly_once));
        }
        Err(stuck) => wrong.push(stuck),
    }
    if !wrong.is_empty() {
        return Err(Failure { seed, profile, wrong });
    }
    for (sink, records) in world.outside.output() {
        world.trace.note_bytes(sink.as_bytes());
        for record in records {
            world.trace.note_bytes(&record.id);
            world.trace.note(&[u64::from(record.number)]);
        }
    }
    let middle = ["map", "count", "join"].into_iter().find_map(|uid| world.outside.watermark(uid, 2_000_000));
    Ok(Ran {
        trace: world.trace.hash(),
        steps: world.trace.steps(),
        time_us: world.now_us(),
        rows: world.outside.rows(),
        watermark_in_between: middle,
        seen: world.seen,
    })
}
