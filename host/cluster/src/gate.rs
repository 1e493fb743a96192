//! What a worker may say: that of its own tasks, in executions it is placed in, with numbers and texts that can be true.
//!
//! One gate before all masters. A worker is authenticated, and yet it may have gone bad, and runs strangers' code: it can fail its
//! own tasks, and must not be able to touch another's. So everything it says passes here, by what the coordinator itself has told workers
//! to do. What passes, masters may take as it is: tasks exist, sums do not overflow, texts are short. Knows nothing of what a report
//! means for its job, and never waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_model::limits::{EXECUTIONS_HEARD_MAX, METRIC_NAME_BYTES_MAX, METRIC_NAMES_MAX, PARALLELISM_MAX, REPORT_TEXT_BYTES_MAX};
use weir_model::{CheckpointId, Digest, InstanceId, KeyGroupRange, TaskId};
use weir_plan::{Job, Topology, VertexKind};
use weir_protocol::manifest::edge_of;
use weir_protocol::{
    Acknowledgement, Command, Execution, Failure, InFlightState, Prepare, Register, Report, Running, TaskProgress, WorkerProgress,
};
use weir_storage::{instance_id, is_file_of};

/// Bytes that one task may say it has written: sums over all tasks of a job fit into 64 bits.
const BYTES_MAX: u64 = 1 << 43;

/// Numbers of checkpoints that one execution may use up.
const CHECKPOINTS_MAX: u64 = 1 << 40;

/// Acknowledgements of a task that are remembered, so that none counts twice.
const ACKNOWLEDGED_KEPT: usize = 4;

/// Buckets of a task's durations.
const BUCKETS_MAX: usize = 1_024;

/// Longest name of what an operator counts, with the operator's.
const NAME_BYTES_MAX: usize = METRIC_NAME_BYTES_MAX + 65;

/// Longest version and address of a worker.
const REGISTER_TEXT_BYTES_MAX: usize = 256;

/// Why something is not heard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    /// It is about an execution that nobody waits for any more, which is no worker's fault.
    Over,
    /// It may not say that.
    Foreign(String),
}

type Check = Result<(), Objection>;

fn foreign<T>(what: impl Into<String>) -> Result<T, Objection> {
    Err(Objection::Foreign(what.into()))
}

/// One execution, as workers were told to run it.
pub(crate) struct Part {
    execution: Execution,
    job: Job,
    topology: Topology,
    /// The worker of each task.
    workers: Vec<Arc<str>>,
    /// Channels that end in each task.
    inputs: Vec<u32>,
    components: BTreeSet<Digest>,
    /// The greatest number of a checkpoint that workers were told of.
    told: u64,
    first_checkpoint: u64,
    /// The last few that each task has acknowledged.
    acknowledged: BTreeMap<TaskId, Vec<CheckpointId>>,
    /// Names of what operators count and measure, by worker.
    names: BTreeMap<Arc<str>, BTreeSet<String>>,
}

/// All executions that are listened to, and what was refused.
#[derive(Default)]
pub(crate) struct Gate {
    /// By job, oldest first.
    parts: BTreeMap<String, Vec<Part>>,
    refused: BTreeMap<Arc<str>, u64>,
    /// Told already: one event for each execution and worker, however much it says.
    noted: BTreeSet<(String, u64, Arc<str>)>,
    news: Vec<(String, String)>,
}

impl Part {
    /// What a preparation says of who may say what; none where its job file cannot be read, which then no worker can either.
    pub(crate) fn of(prepare: &Prepare) -> Option<Part> {
        let job = prepare.spec.load().ok()?.with_edges_apart(&prepare.edges_apart);
        let topology = Topology::new(&job);
        let names: Vec<Arc<str>> = prepare.placement.workers.iter().map(|worker| worker.worker.as_str().into()).collect();
        let workers: Option<Vec<_>> = prepare.placement.tasks.iter().map(|index| names.get(*index as usize).cloned()).collect();
        let workers = workers.filter(|workers| workers.len() == topology.tasks())?;
        let mut inputs = vec![0; topology.tasks()];
        topology.channels().iter().for_each(|channel| inputs[channel.to.0 as usize] += 1);
        Some(Part {
            execution: prepare.execution.clone(),
            components: prepare.spec.components.values().map(|pin| pin.digest).collect(),
            job,
            topology,
            workers,
            inputs,
            told: prepare.first_checkpoint.0.saturating_sub(1),
            first_checkpoint: prepare.first_checkpoint.0,
            acknowledged: BTreeMap::new(),
            names: BTreeMap::new(),
        })
    }

    fn is_placed(&self, worker: &str) -> bool {
        self.workers.iter().any(|other| **other == *worker)
    }

    fn own(&self, worker: &str, task: TaskId) -> Check {
        match self.workers.get(task.0 as usize) {
            Some(of) if **of == *worker => Ok(()),
            Some(_) => foreign(format!("speaks for {}, which runs elsewhere", self.topology.name(task))),
            None => foreign(format!("speaks for task {task}, of which there is none")),
        }
    }

    fn known(&self, checkpoint: CheckpointId) -> Check {
        if checkpoint.0 <= self.told {
            Ok(())
        } else {
            foreign(format!("speaks of checkpoint {checkpoint}, which has not begun"))
        }
    }

    /// Vertices of a task's chain.
    fn vertices(&self, task: TaskId) -> (&[usize], u32) {
        let (chain, subtask) = self.topology.locate(task);
        (&self.topology.chains()[chain].vertices, subtask)
    }

    fn check(&mut self, worker: &str, report: &mut Report) -> Check {
        if !self.is_placed(worker) {
            return foreign("speaks of an execution that it has no part in");
        }
        match report {
            Report::Register(_)
            | Report::Heartbeat { .. }
            | Report::Certificate { .. }
            | Report::Stuck { .. }
            | Report::Need { .. } => Ok(()),
            Report::Prepared { .. } | Report::Restored { .. } | Report::Built { .. } => Ok(()),
            Report::Looked { sources, .. } => {
                let is_source = |uid: &str| {
                    self.job.vertex(uid).is_some_and(|index| matches!(self.job.vertices[index].kind, VertexKind::Source(_)))
                };
                let few = sources.len() <= self.job.vertices.len();
                if !few || !sources.iter().all(|looked| is_source(&looked.uid)) {
                    return foreign("has looked at sources that there are not");
                }
                sources.iter_mut().for_each(|looked| cut(&mut looked.what));
                Ok(())
            }
            Report::Opened { templates, .. } => {
                let is_operator = |uid: &str| {
                    self.job.vertex(uid).is_some_and(|index| matches!(self.job.vertices[index].kind, VertexKind::Operator(_)))
                };
                let opener = &self.workers[self.topology.task(0, 0).0 as usize];
                let few = templates.len() <= self.job.vertices.len();
                let fits = few && **opener == *worker && templates.iter().all(|(uid, _)| is_operator(uid));
                if fits { Ok(()) } else { foreign("has opened operators that it was not asked for") }
            }
            Report::Acknowledged { acknowledgement, .. } => self.acknowledgement(worker, acknowledgement),
            Report::PersistFailed { task, checkpoint, reason, .. } => {
                cut(reason);
                self.own(worker, *task).and_then(|()| self.known(*checkpoint))
            }
            Report::Declined { task, checkpoint, subsumed_by, reason, .. } => {
                cut(reason);
                self.own(worker, *task)?;
                subsumed_by.iter().chain([&*checkpoint]).try_for_each(|checkpoint| self.known(*checkpoint))
            }
            Report::TaskRestored { task, .. } | Report::Finished { task, .. } => self.own(worker, *task),
            Report::Committed { task, checkpoint, .. } => self.own(worker, *task).and_then(|()| self.known(*checkpoint)),
            Report::Failed { failure, .. } => {
                self.failure(failure);
                Ok(())
            }
            Report::Ended { progress, .. } => {
                self.progress(worker, progress);
                Ok(())
            }
        }
    }

    fn failure(&self, failure: &mut Failure) {
        cut(&mut failure.reason);
        failure.uid = failure.uid.take().filter(|uid| self.job.vertex(uid).is_some());
    }

    fn acknowledgement(&mut self, worker: &str, said: &Acknowledgement) -> Check {
        let (task, checkpoint) = (said.task, said.checkpoint);
        self.own(worker, task)?;
        self.known(checkpoint)?;
        let name = self.topology.name(task);
        let wrong = |what: &str| foreign(format!("acknowledges {what} for {name}"));
        let (vertices, subtask) = self.vertices(task);
        let named = |uid: &str| vertices.iter().copied().find(|vertex| self.job.vertices[*vertex].uid == uid);
        let mut seen = BTreeSet::new();
        for instance in &said.instances {
            let own = named(&instance.uid).is_some_and(|vertex| self.is_own_instance(vertex, subtask, &instance.name));
            if !own || !seen.insert((&instance.uid, &instance.name)) {
                return wrong("state of another's");
            }
        }
        let is_sink = |vertex: usize| matches!(self.job.vertices[vertex].kind, VertexKind::Sink(_));
        let mut sinks = BTreeSet::new();
        if !said.sinks.iter().all(|sink| named(&sink.uid).is_some_and(is_sink) && sinks.insert(&sink.uid)) {
            return wrong("sinks of another's");
        }
        let head = vertices[0];
        if said.source.is_some() && !matches!(self.job.vertices[head].kind, VertexKind::Source(_)) {
            return wrong("a source that is none");
        }
        let inputs = self.inputs[task.0 as usize] as usize;
        if said.watermarks.len() > inputs || !said.in_flight.iter().all(|one| self.is_on_its_way(head, one)) {
            return wrong("channels that there are not");
        }
        let attempt = self.execution.attempt;
        if said.file.as_ref().is_some_and(|file| !is_file_of(&file.name, attempt, checkpoint, task)) {
            return wrong("a file of another's");
        }
        let bytes =
            [said.captured_bytes, said.merged_bytes, said.in_flight_bytes, said.file.as_ref().map_or(0, |file| file.bytes)];
        if bytes.iter().any(|bytes| *bytes > BYTES_MAX) {
            return wrong("more bytes than can be");
        }
        let before = self.acknowledged.entry(task).or_default();
        if before.contains(&checkpoint) {
            return foreign(format!("acknowledges checkpoint {checkpoint} twice for {name}"));
        }
        before.push(checkpoint);
        if before.len() > ACKNOWLEDGED_KEPT {
            before.remove(0);
        }
        Ok(())
    }

    fn is_own_instance(&self, vertex: usize, subtask: u32, name: &str) -> bool {
        let parallelism = self.job.vertices[vertex].parallelism;
        match instance_id(name) {
            Some(InstanceId::KeyGroup(group)) => {
                self.job.is_keyed(vertex) && KeyGroupRange::of(subtask, self.job.key_groups, parallelism).contains(group)
            }
            Some(InstanceId::Subtask(index)) => index == subtask,
            None => false,
        }
    }

    fn is_on_its_way(&self, head: usize, one: &InFlightState) -> bool {
        // Rows that were in flight when the job had another parallelism, and are so again, keep the sender that they had then.
        edge_of(&self.job, head, one).is_some() && one.sender < PARALLELISM_MAX && one.rows <= BYTES_MAX
    }

    /// Leaves of a worker's counts those that are its own and can be true.
    fn progress(&mut self, worker: &str, progress: &mut WorkerProgress) {
        let WorkerProgress { tasks, oddities, counters, gauges, sent_bytes, received_bytes, restored_bytes, restore_bytes } =
            progress;
        oddities.retain(|uid, odd| {
            odd.cut();
            self.job.vertex(uid).is_some()
        });
        let most = u64::MAX / (2 * self.workers.len().max(1) as u64);
        let mut seen = BTreeSet::new();
        tasks.retain_mut(|task| {
            let is_own = self.own(worker, task.task).is_ok() && seen.insert(task.task);
            is_own && self.task_progress(task, most)
        });
        // Heartbeats carry what has changed, so names add up over all of them.
        let names_max = METRIC_NAMES_MAX * self.job.vertices.len();
        let job = &self.job;
        let known = self.names.entry(worker.into()).or_default();
        let mut is_kept = |name: &str| {
            let is_named = name.split_once('.').is_some_and(|(uid, _)| job.vertex(uid).is_some());
            known.contains(name)
                || (is_named && name.len() <= NAME_BYTES_MAX && known.len() < names_max && known.insert(name.to_owned()))
        };
        gauges.retain(|name, _| is_kept(name));
        counters.retain(|name, value| {
            *value = (*value).min(most);
            is_kept(name)
        });
        for bytes in [sent_bytes, received_bytes, restored_bytes, restore_bytes] {
            *bytes = (*bytes).min(most);
        }
    }

    fn task_progress(&self, task: &mut TaskProgress, most: u64) -> bool {
        for number in [&mut task.busy_ns, &mut task.backpressured_ns, &mut task.pause_max_ns] {
            *number = (*number).min(most);
        }
        for counts in &mut task.vertices {
            for number in [&mut counts.rows_in, &mut counts.rows_out, &mut counts.rows_rejected] {
                *number = (*number).min(most);
            }
        }
        task.pauses.truncate(BUCKETS_MAX);
        task.pauses.iter_mut().for_each(|(_, count)| *count = (*count).min(most / BUCKETS_MAX as u64));
        task.vertices.len() == self.vertices(task.task).0.len()
    }

    /// What a worker says that it runs of this, when it comes back.
    fn running(&mut self, worker: &str, running: &mut Running) -> Check {
        let tasks = running.tasks.iter().chain(&running.finished).chain(running.committed.iter().map(|(task, _)| task));
        tasks.copied().try_for_each(|task| self.own(worker, task))?;
        let most = self.first_checkpoint.saturating_add(CHECKPOINTS_MAX);
        if running.last_checkpoint.0 > most
            || running.committed.iter().any(|(_, checkpoint)| checkpoint.0 > running.last_checkpoint.0)
        {
            return foreign("speaks of checkpoints that there cannot have been");
        }
        running.failure.iter_mut().for_each(|failure| self.failure(failure));
        self.told = self.told.max(running.last_checkpoint.0);
        Ok(())
    }
}

impl Gate {
    /// Whether an execution that is prepared so is listened to already: the first of its workers was told.
    pub(crate) fn hears(&self, prepare: &Prepare) -> bool {
        // The number of an attempt that only tries is used again, each time it may be another job file.
        let execution = &prepare.execution;
        let parts = self.parts.get(&execution.job).filter(|_| execution.attempt.0 > 0);
        parts.is_some_and(|parts| parts.iter().any(|part| part.execution == *execution))
    }

    /// Listens to an execution from now on. Of a job the last few are: older ones may still be ending.
    pub(crate) fn listen(&mut self, part: Part) {
        let parts = self.parts.entry(part.execution.job.clone()).or_default();
        // Attempt 0, which only tries, is used again and again.
        parts.retain(|other| other.execution != part.execution);
        parts.push(part);
        if parts.len() > EXECUTIONS_HEARD_MAX {
            parts.remove(0);
        }
    }

    /// A job is gone.
    pub(crate) fn forget(&mut self, job: &str) {
        self.parts.remove(job);
        self.noted.retain(|(of, _, _)| of != job);
    }

    /// Workers are told something: what it names exists from now on.
    pub(crate) fn tells(&mut self, command: &Command) {
        let (Command::Trigger { execution, checkpoint, .. }
        | Command::Completed { execution, checkpoint, .. }
        | Command::Abort { execution, checkpoint }) = command
        else {
            return;
        };
        if let Ok(part) = self.part(execution) {
            part.told = part.told.max(checkpoint.0);
        }
    }

    fn part(&mut self, execution: &Execution) -> Result<&mut Part, Objection> {
        let parts = self.parts.get_mut(&execution.job).ok_or(Objection::Over)?;
        parts.iter_mut().find(|part| part.execution == *execution).ok_or(Objection::Over)
    }

    /// Checks a report, and cuts what is only too long.
    pub(crate) fn check(&mut self, worker: &str, report: &mut Report) -> Check {
        let Some(execution) = report.execution().cloned() else { return Ok(()) };
        self.part(&execution)?.check(worker, report)
    }

    /// Leaves of a worker's counts what is its own.
    pub(crate) fn check_progress(&mut self, worker: &str, execution: &Execution, progress: &mut WorkerProgress) -> Check {
        let part = self.part(execution)?;
        if !part.is_placed(worker) {
            return foreign("counts for an execution that it has no part in");
        }
        part.progress(worker, progress);
        Ok(())
    }

    /// Checks a registration: texts are short, and what is said to run is the worker's own. The rest is refused, piece by piece.
    pub(crate) fn check_register(&mut self, worker: &Arc<str>, register: &mut Register) -> Result<(), String> {
        for (text, what) in [(&register.version, "version"), (&register.data_address, "address")] {
            if text.len() > REGISTER_TEXT_BYTES_MAX || text.chars().any(char::is_control) {
                return Err(format!("worker {worker} gives a {what} that cannot be one"));
            }
        }
        let mut refused = Vec::new();
        register.running.retain_mut(|running| {
            let Ok(part) = self.part(&running.execution) else { return true };
            match part.running(worker, running) {
                Ok(()) => true,
                Err(objection) => {
                    refused.push((running.execution.clone(), objection));
                    false
                }
            }
        });
        refused.into_iter().for_each(|(execution, objection)| self.refuse(worker, &execution, objection));
        Ok(())
    }

    /// Whether a worker runs something that needs a component.
    pub(crate) fn needs(&self, worker: &str, digest: Digest) -> bool {
        self.parts.values().flatten().any(|part| part.components.contains(&digest) && part.is_placed(worker))
    }

    /// Counts what was not heard, and has it told: each execution's job learns once what a worker tried.
    pub(crate) fn refuse(&mut self, worker: &Arc<str>, execution: &Execution, objection: Objection) {
        let Objection::Foreign(what) = objection else { return };
        *self.refused.entry(worker.clone()).or_default() += 1;
        if self.parts.contains_key(&execution.job)
            && self.noted.insert((execution.job.clone(), execution.attempt.0, worker.clone()))
        {
            self.news.push((execution.job.clone(), format!("worker {worker} {what}; it is not heard with that")));
        }
    }

    /// How often a worker was not heard.
    pub(crate) fn refused(&self, worker: &str) -> u64 {
        self.refused.get(worker).copied().unwrap_or_default()
    }

    /// What is to be told since this was asked last: job and message.
    pub(crate) fn take_news(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.news)
    }
}

/// Cuts a text that is told to people.
fn cut(text: &mut String) {
    if text.len() > REPORT_TEXT_BYTES_MAX {
        let end = (0..=REPORT_TEXT_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push_str("... (cut)");
    }
}

#[cfg(test)]
mod tests;
