//! Which worker's slots a job gets. Pure: the same calls give the same answers.
//!
//! A job gets all the slots it needs or none. They are spread evenly over the workers, and a slot stays with the worker it
//! was on where that keeps the spread even, because what the worker has cached of its state is then of use. Slots may be
//! held on a worker that is not there (yet): a coordinator that was started again holds the slots of executions that it may
//! take over before their workers have found it.
//!
//! Jobs that wait are served in the order in which they were submitted: free slots are kept for those that wait, and a later
//! job gets only what is beyond. Otherwise a large job would never start where small ones come and go. Two kinds of jobs are
//! not held up by it, and hold up nobody: one that starts again has its own slots first (all or none: where they are not
//! enough, others get them), and one that needs more than all workers offer together is passed by, since nobody knows whether
//! there will ever be as many.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_master::Shortage;

/// Name of a worker.
type Name = Arc<str>;

/// The slots of all workers, and who holds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// Slots that each worker offers. A worker that is lost is not in it.
    offers: BTreeMap<Name, u32>,
    /// By job: the worker of each of its slots.
    held: BTreeMap<String, Vec<Name>>,
    /// By job: the worker of each of its slots when it last had some.
    before: BTreeMap<String, Vec<Name>>,
    /// Jobs that did not get the slots they need, which are given: by the time they were submitted, in milliseconds since the
    /// Unix epoch, and their name.
    waiting: BTreeMap<(u64, String), u32>,
}

impl Schedule {
    /// A worker is there, with this many slots.
    pub(crate) fn offer(&mut self, worker: &Name, slots: u32) {
        self.offers.insert(worker.clone(), slots);
    }

    /// A worker is lost. Whatever was held there is free again: nothing of it runs on under this coordinator.
    pub(crate) fn lose(&mut self, worker: &str) {
        self.offers.remove(worker);
        for slots in self.held.values_mut() {
            slots.retain(|name| &**name != worker);
        }
        self.held.retain(|_, slots| !slots.is_empty());
    }

    /// Notes where a job's slots are: an execution runs there already.
    pub(crate) fn hold(&mut self, job: &str, workers: Vec<Name>) {
        self.before.insert(job.to_owned(), workers.clone());
        self.held.insert(job.to_owned(), workers);
    }

    /// Gives a job's slots back, or ends its wait for some. Where they were is remembered.
    pub(crate) fn release(&mut self, job: &str) {
        self.held.remove(job);
        self.waiting.retain(|(_, name), _| name != job);
    }

    /// Forgets a job.
    pub(crate) fn forget(&mut self, job: &str) {
        self.release(job);
        self.before.remove(job);
    }

    /// Takes slots for a job, all or none; those it held before are given back first. The answer is the worker of each slot.
    /// `submitted_ms` is its place among those that wait.
    ///
    /// # Errors
    /// If there are not enough; it waits from then on.
    pub(crate) fn reserve(&mut self, job: &str, submitted_ms: u64, needed: u32) -> Result<Vec<Name>, Shortage> {
        let missing = self.shortage(job, submitted_ms, needed);
        self.release(job);
        if let Some(shortage) = missing {
            self.waiting.insert((submitted_ms, job.to_owned()), needed);
            return Err(shortage);
        }
        let before = self.before.get(job).map_or(&[][..], |slots| slots);
        let slots = assign(&spread(&self.free(None), before, needed), before, needed);
        self.hold(job, slots.clone());
        Ok(slots)
    }

    /// What a job is short of, if it cannot have as many slots now.
    pub(crate) fn shortage(&self, job: &str, submitted_ms: u64, needed: u32) -> Option<Shortage> {
        let (free, workers) = (self.free(Some(job)).values().sum(), self.offers.len() as u32);
        let ahead = self.ahead(job, submitted_ms);
        (self.within_reach(job, submitted_ms) < needed).then_some(Shortage { needed, free, ahead, workers })
    }

    /// Slots that jobs wait for which were submitted before this one, and could get.
    fn ahead(&self, job: &str, submitted_ms: u64) -> u32 {
        let all: u32 = self.offers.values().sum();
        self.waiting.range(..(submitted_ms, job.to_owned())).map(|(_, needed)| *needed).filter(|needed| *needed <= all).sum()
    }

    /// Slots that a job waits for, if it does.
    pub(crate) fn waits_for(&self, job: &str) -> Option<u32> {
        self.waiting.iter().find(|((_, name), _)| name == job).map(|(_, needed)| *needed)
    }

    /// Jobs that wait, in the order in which they are served.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &str> {
        self.waiting.keys().map(|(_, name)| name.as_str())
    }

    /// Whether a job holds slots.
    pub(crate) fn holds(&self, job: &str) -> bool {
        self.held.contains_key(job)
    }

    /// Slots in use on a worker.
    pub(crate) fn used(&self, worker: &str) -> u32 {
        self.held.values().flatten().filter(|name| &***name == worker).count() as u32
    }

    /// Jobs that hold slots on a worker.
    pub(crate) fn jobs_on(&self, worker: &str) -> Vec<String> {
        let there = |(job, slots): (&String, &Vec<Name>)| slots.iter().any(|name| &**name == worker).then(|| job.clone());
        self.held.iter().filter_map(there).collect()
    }

    /// Slots a job could have now: its own, and those that are free and not kept for others.
    pub(crate) fn within_reach(&self, job: &str, submitted_ms: u64) -> u32 {
        let (free, with_own): (u32, u32) = (self.free(None).values().sum(), self.free(Some(job)).values().sum());
        with_own - free + free.saturating_sub(self.ahead(job, submitted_ms))
    }

    /// A job has all the slots it needs, or waits for them.
    ///
    /// # Panics
    /// If one does both.
    pub(crate) fn invariants(&self) {
        assert!(self.waiting().all(|job| !self.holds(job)), "a job holds slots and waits for some");
    }

    /// Free slots of each worker that is there. Those of one job may count as free.
    fn free(&self, but: Option<&str>) -> BTreeMap<Name, u32> {
        let mut free = self.offers.clone();
        for name in self.held.iter().filter(|(job, _)| Some(job.as_str()) != but).flat_map(|(_, slots)| slots) {
            if let Some(slots) = free.get_mut(name) {
                *slots = slots.saturating_sub(1);
            }
        }
        free
    }
}

/// How many slots each worker gives: one after the other from the worker that gives fewest so far; among these from one that
/// had slots of the job and gives fewer than it did, then from the one with most left, then by name.
fn spread(free: &BTreeMap<Name, u32>, before: &[Name], needed: u32) -> BTreeMap<Name, u32> {
    let mut wanted: BTreeMap<&Name, u32> = BTreeMap::new();
    // Slots beyond the ones needed now are not missed by anyone.
    for name in before.iter().take(needed as usize) {
        *wanted.entry(name).or_default() += 1;
    }
    let mut counts: BTreeMap<Name, u32> = BTreeMap::new();
    for _ in 0..needed {
        let next = free
            .iter()
            .map(|(name, slots)| (name, *slots, counts.get(name).copied().unwrap_or(0)))
            .filter(|(_, slots, given)| given < slots)
            .min_by_key(|(name, slots, given)| {
                let missed = wanted.get(name).copied().unwrap_or(0).saturating_sub(*given);
                (*given, u32::MAX - missed, u32::MAX - (slots - given), *name)
            });
        let Some((name, ..)) = next else { break };
        *counts.entry(name.clone()).or_default() += 1;
    }
    counts
}

/// Gives each slot a worker: the one it had where that has slots to give, any other otherwise, in turn.
fn assign(counts: &BTreeMap<Name, u32>, before: &[Name], needed: u32) -> Vec<Name> {
    let mut left = counts.clone();
    let mut slots: Vec<Option<Name>> = vec![None; needed as usize];
    for (slot, name) in slots.iter_mut().zip(before) {
        if let Some(count) = left.get_mut(name).filter(|count| **count > 0) {
            *count -= 1;
            *slot = Some(name.clone());
        }
    }
    let mut turns = Vec::new();
    while let Some(most) = left.values().max().copied().filter(|most| *most > 0) {
        for (name, count) in left.iter_mut().filter(|(_, count)| **count == most) {
            *count -= 1;
            turns.push(name.clone());
        }
    }
    let mut turns = turns.into_iter();
    slots.into_iter().filter_map(|slot| slot.or_else(|| turns.next())).collect()
}

#[cfg(test)]
mod tests;
