//! Sinks before their tasks run: leftovers of earlier executions are removed, and output is taken back as the checkpoint says. What it
//! holds to be committed waits until it is known to be whole (`committers.rs`), or is committed here where no task runs.
//!
//! In two steps, and the first is over on every worker before the second begins on any (it belongs to `Restore`): a task of an earlier
//! execution that stood still may commit at any time. Once nothing is left to commit but what the checkpoint holds, whatever it
//! has made visible is there to be taken back.

use std::collections::BTreeMap;

use weir_connectors::{Committer, ConnectorError, Recovery, SinkContext, TakeBack};
use weir_model::{CheckpointId, OperatorUid, TaskId};
use weir_storage::Committable;

use super::committers::{Committers, check_there};
use super::failure::{OfConnector, Trouble};
use super::prepare::PreparedJob;
use super::voice::Voice;

/// What a checkpoint holds to be committed, by task and sink.
pub(super) type HeldByTask = BTreeMap<TaskId, Vec<(OperatorUid, Vec<Committable>)>>;

/// The committing halves of sinks, by vertex and subtask.
pub(super) type Sinks = BTreeMap<(usize, u32), Box<dyn Committer>>;

/// Refuses to go back further than the last checkpoint where a sink cannot take back what it has shown since.
pub(super) fn check_take_back(job: &PreparedJob) -> Result<(), Trouble> {
    let (Some(from), Some(after)) = (job.message.restore, job.message.retract_after) else { return Ok(()) };
    if job.message.spec.allow_repeated_output {
        return Ok(());
    }
    let shown: Vec<String> = job
        .sinks
        .iter()
        .filter(|(_, sink)| sink.take_back() == TakeBack::Impossible)
        .map(|(&vertex, sink)| format!("`{}` ({})", job.job.vertices[vertex].uid, sink.describe()))
        .collect();
    if shown.is_empty() {
        return Ok(());
    }
    Err(Trouble::permanent(format!(
        "cannot go on from checkpoint {from}, which is older than the last: what sink {} has shown after checkpoint {after} cannot be taken back, \
         and would be shown again; --allow-repeated-output goes on all the same",
        shown.join(", ")
    )))
}

/// What names a subtask of a sink.
pub(super) fn context(job: &PreparedJob, vertex: usize, index: u32) -> SinkContext {
    let described = &job.job.vertices[vertex];
    let attempt = job.message.execution.attempt;
    SinkContext { uid: described.uid.clone(), index, parallelism: described.parallelism, attempt }
}

/// The first step: the committing halves of the sinks whose subtasks run here, with earlier leftovers removed.
pub(super) fn recover(job: &PreparedJob, voice: &Voice) -> Result<Sinks, Trouble> {
    check_newest(job, voice)?;
    let mut sinks = Sinks::new();
    for (_, chain, index) in job.subtasks() {
        let vertices = &job.topology.chains()[chain].vertices;
        for (&vertex, factory) in vertices.iter().filter_map(|vertex| job.sinks.get_key_value(vertex)) {
            let uid = &job.job.vertices[vertex].uid;
            let failed = |error| failed(uid, error);
            let mut committer = factory.committer(&context(job, vertex, index)).map_err(failed)?;
            let recovery = Recovery { keep: held(job, uid).into_iter().map(|held| held.value.clone()).collect() };
            committer.recover(&recovery).map_err(failed)?;
            sinks.insert((vertex, index), committer);
        }
    }
    Ok(sinks)
}

/// Whether output may be removed or taken back: only where the execution was not given up meanwhile. A read that took long may have
/// ended when a newer attempt has begun, whose output nothing here is about.
fn check_newest(job: &PreparedJob, voice: &Voice) -> Result<(), Trouble> {
    let attempt = job.message.execution.attempt;
    if voice.has_failed() {
        return Err(Trouble::transient(format!("attempt {attempt} was given up before its output was taken care of")));
    }
    let newest = job.storage.state()?.attempt;
    if newest != attempt {
        return Err(Trouble::transient(format!("attempt {attempt} is over: attempt {newest} of the job has begun")));
    }
    Ok(())
}

/// The second: the first subtask of each sink takes back what the checkpoint says for all.
pub(super) fn take_back(job: &PreparedJob, sinks: &mut Sinks, voice: &Voice) -> Result<(), Trouble> {
    let Some(checkpoint) = job.message.retract_after else { return Ok(()) };
    for (&(vertex, _), sink) in sinks.iter_mut().filter(|((_, index), _)| *index == 0) {
        let uid = &job.job.vertices[vertex].uid;
        check_newest(job, voice)?;
        let count = sink.retract(checkpoint).map_err(|error| failed(uid, error))?;
        if count > 0 {
            tracing::warn!(sink = uid, count, "output was taken back, since its rows are written again");
        }
    }
    Ok(())
}

/// The first subtask of each sink commits what the checkpoint says for all.
pub(super) fn commit(job: &PreparedJob, sinks: &mut Sinks) -> Result<(), Trouble> {
    for (&(vertex, _), sink) in sinks.iter_mut().filter(|((_, index), _)| *index == 0) {
        let uid = &job.job.vertices[vertex].uid;
        for held in held(job, uid) {
            let done = sink.commit(&held.value).map_err(|error| failed(uid, error))?;
            check_there(uid, CheckpointId(held.checkpoint), done)?;
        }
    }
    Ok(())
}

/// What [`commit`] would commit, by task and uid: to each subtask what it had itself, so that no later commit of it, which takes the same way, is
/// before that. Where there are fewer subtasks now, they share what the others had.
pub(super) fn to_commit(job: &PreparedJob) -> HeldByTask {
    let mut all = HeldByTask::new();
    for (task, chain, index) in job.subtasks() {
        for &vertex in job.topology.chains()[chain].vertices.iter().filter(|vertex| job.sinks.contains_key(vertex)) {
            let described = &job.job.vertices[vertex];
            let falls_here = |old: usize| old as u32 % described.parallelism == index;
            let held: Vec<Committable> = held_of(job, &described.uid, falls_here).into_iter().cloned().collect();
            if !held.is_empty() {
                all.entry(task).or_default().push((described.uid.as_str().into(), held));
            }
        }
    }
    all
}

/// The same sinks by task and uid.
pub(super) fn by_task(job: &PreparedJob, mut sinks: Sinks) -> Committers {
    let mut committers = Committers::new();
    for (task, chain, index) in job.subtasks() {
        for &vertex in &job.topology.chains()[chain].vertices {
            let committer = sinks.remove(&(vertex, index));
            committers.extend(committer.map(|committer| (key(job, task, vertex), committer)));
        }
    }
    committers
}

fn key(job: &PreparedJob, task: TaskId, vertex: usize) -> (TaskId, String) {
    (task, job.job.vertices[vertex].uid.clone())
}

/// All that the checkpoint holds for a sink, of all its subtasks, oldest first.
fn held<'a>(job: &'a PreparedJob, uid: &str) -> Vec<&'a Committable> {
    held_of(job, uid, |_| true)
}

/// The same of some of the subtasks that there were.
fn held_of<'a>(job: &'a PreparedJob, uid: &str, is_meant: impl Fn(usize) -> bool) -> Vec<&'a Committable> {
    let subtasks = job.state(uid).into_iter().flat_map(|state| state.subtasks.iter().enumerate());
    let meant = subtasks.filter(|(old, _)| is_meant(*old));
    let mut held: Vec<_> = meant.flat_map(|(_, subtask)| &subtask.committables).collect();
    held.sort_by_key(|committable| committable.checkpoint);
    held
}

fn failed(uid: &str, error: ConnectorError) -> Trouble {
    OfConnector(&format!("sink {uid}"), error).into()
}
