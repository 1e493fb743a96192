//! Whether an execution that began under the coordinator before this one can go on. Pure.
//!
//! It can if every worker it was placed on is back with all its tasks, started and without failure. As soon as it is known that
//! this cannot be, or when the time to wait is over, the job begins a new attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_master::{Adopted, Begun};
use weir_model::TaskId;
use weir_plan::Topology;
use weir_protocol::{Execution, Running, WorkerId};

/// What is decided.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It goes on.
    Adopt(Box<Adopted>),
    /// It does not, and this is why.
    Anew(String),
}

/// The wait for the workers of one execution.
#[derive(Debug)]
pub(crate) struct Takeover {
    begun: Begun,
    expected: BTreeMap<Arc<str>, Vec<TaskId>>,
    back: BTreeMap<Arc<str>, Running>,
    deadline_ms: u64,
}

impl Takeover {
    /// Waits until `deadline_ms` of the steady clock.
    pub(crate) fn new(begun: Begun, deadline_ms: u64) -> Takeover {
        let placement = &begun.prepare.placement;
        let tasks = |worker: &str| (Arc::from(worker), placement.tasks_of(worker));
        let expected = placement.workers.iter().map(|address| tasks(&address.worker)).filter(|(_, tasks)| !tasks.is_empty());
        let expected = expected.collect();
        Takeover { begun, expected, back: BTreeMap::new(), deadline_ms }
    }

    /// The execution.
    pub(crate) fn execution(&self) -> &Execution {
        &self.begun.prepare.execution
    }

    /// The worker of each slot; empty where the job file cannot be read any more.
    pub(crate) fn slots(&self) -> Vec<WorkerId> {
        let Ok(job) = self.begun.prepare.spec.load() else { return Vec::new() };
        let job = job.with_edges_apart(&self.begun.prepare.edges_apart);
        let topology = Topology::new(&job);
        let widest = topology.chains().iter().enumerate().max_by_key(|(_, chain)| chain.parallelism);
        let Some((index, chain)) = widest else { return Vec::new() };
        let placement = &self.begun.prepare.placement;
        let tasks = (0..chain.parallelism).map(|subtask| topology.task(index, subtask));
        let known = tasks.filter(|task| (task.0 as usize) < placement.tasks.len());
        known.map(|task| placement.worker_of(task).worker.as_str().into()).collect()
    }

    /// Workers that are not back.
    pub(crate) fn missing(&self) -> Vec<&str> {
        self.expected.keys().filter(|worker| !self.back.contains_key(*worker)).map(|worker| &**worker).collect()
    }

    /// Workers that are back.
    pub(crate) fn back(&self) -> impl Iterator<Item = &Arc<str>> {
        self.back.keys()
    }

    /// Whether a worker that registers may go on with its part.
    pub(crate) fn keeps(&self, worker: &str, running: &Running) -> bool {
        running.execution == *self.execution() && self.expected.contains_key(worker)
    }

    /// A worker has registered and runs this, as of now. Nothing that happens there afterwards is missed: a worker takes down what
    /// it reports before it says it, and keeps what it says for the connection before it is asked what it runs, so that all is in
    /// one of the two or in both; and what it says while the others are waited for is kept for the master (`Job::tell`).
    pub(crate) fn registered(&mut self, worker: &Arc<str>, running: &[Running]) -> Option<Verdict> {
        let tasks = self.expected.get(worker)?;
        let anew = |reason: String| Some(Verdict::Anew(format!("worker {worker} {reason}")));
        let Some(mine) = running.iter().find(|running| running.execution == self.begun.prepare.execution) else {
            return anew("does not run it any more".to_owned());
        };
        if let Some(failure) = &mine.failure {
            return anew(format!("has failed with it: {}", failure.reason));
        }
        if !mine.started {
            return anew("had not started its tasks yet".to_owned());
        }
        if let Some(task) = tasks.iter().find(|task| !mine.tasks.contains(task)) {
            return anew(format!("does not run task {task} of it"));
        }
        self.back.insert(worker.clone(), mine.clone());
        if !self.missing().is_empty() {
            return None;
        }
        let running = self.back.iter().map(|(worker, running)| (worker.clone(), running.clone())).collect();
        Some(Verdict::Adopt(Box::new(Adopted { begun: self.begun.clone(), running })))
    }

    /// A worker is lost. It may come back in time.
    pub(crate) fn lost(&mut self, worker: &str) {
        self.back.remove(worker);
    }

    /// Time has passed.
    pub(crate) fn tick(&self, steady_ms: u64) -> Option<Verdict> {
        let is_late = steady_ms >= self.deadline_ms;
        is_late.then(|| Verdict::Anew(format!("these workers are not back: {}", self.missing().join(", "))))
    }
}

#[cfg(test)]
mod tests;
