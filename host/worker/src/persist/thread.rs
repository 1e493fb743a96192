//! One persister thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use weir_model::{CheckpointId, OperatorUid, TaskId};
use weir_sandbox::Template;
use weir_storage::{ErrorKind, InstanceState, JobStorage, Manifest, Segment, StorageError};
use weir_task::{CapturedState, Prepare, SnapshotPart, TaskState};

use super::chains::{Plan, StoredInstance};
use super::snapshot::{Acknowledgement, InstanceKey, Open, Prepared, SinkState};
use super::{Item, Shared};
use crate::events::Event;

/// A store that is down is asked again this often, before the checkpoint counts as failed.
const ATTEMPTS_MAX: u32 = 4;
const RETRY_DELAY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 250 });

/// What a checkpoint may always merge.
const MERGED_BYTES_MIN: u64 = 4 << 20;

/// Number of the task in the name of a file that holds a template; counts down from here.
const TEMPLATE_TASK_MAX: u32 = u32::MAX;

#[derive(Default)]
struct OfTask {
    stored: HashMap<InstanceKey, StoredInstance>,
    open: BTreeMap<CheckpointId, Open>,
    prepared: BTreeMap<OperatorUid, Prepared>,
}

pub(super) struct Thread {
    shared: Arc<Shared>,
    tasks: BTreeMap<TaskId, OfTask>,
    /// Templates stored so far, or tried.
    templates: u32,
    /// Templates that could not be stored yet. No manifest is written without them.
    unstored: Vec<(OperatorUid, Template)>,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>, restored: BTreeMap<TaskId, Vec<(InstanceKey, StoredInstance)>>) -> Thread {
        let tasks = restored.into_iter().map(|(task, instances)| {
            let state = OfTask { stored: instances.into_iter().collect(), ..OfTask::default() };
            (task, state)
        });
        Thread { tasks: tasks.collect(), shared, templates: 0, unstored: Vec::new() }
    }

    /// Works until nobody can ask any more.
    pub(super) fn run(mut self, queue: &Receiver<Item>) {
        while let Ok(item) = queue.recv() {
            if self.shared.cancelled.load(Ordering::Relaxed) {
                continue;
            }
            match item {
                Item::Part(task, part) => self.part(task, part),
                Item::Committed(task, checkpoint) => {
                    let state = self.tasks.entry(task).or_default();
                    state.prepared.values_mut().for_each(|prepared| prepared.committed(checkpoint));
                }
                Item::Completed(checkpoint) => {
                    let stored = self.tasks.values_mut().flat_map(|task| task.stored.values_mut());
                    stored.for_each(|instance| instance.complete(checkpoint));
                }
                Item::Template(uid, template) => self.template(uid, template),
                Item::Manifest(manifest) => self.manifest(*manifest),
                Item::Retain(keep) => {
                    if let Err(error) = self.shared.storage.retain(keep) {
                        tracing::warn!(%error, "old checkpoints could not be deleted; the next completion tries again");
                    }
                }
                Item::Remove(names) => {
                    if let Err(error) = self.shared.storage.remove_files(&names) {
                        tracing::warn!(%error, "files of a failed checkpoint could not be deleted; the next start does it");
                    }
                }
            }
        }
    }

    fn part(&mut self, task: TaskId, part: SnapshotPart) {
        match part {
            SnapshotPart::Begin { checkpoint, state, prepare } => self.begin(task, checkpoint, state, prepare),
            SnapshotPart::Instance { checkpoint, uid, instance, capture, watermark, finished } => {
                let waiting = capture.as_ref().map_or(0, |capture| capture.raw_bytes());
                let key = InstanceKey { uid, id: instance };
                self.instance(task, checkpoint, key, capture, watermark, finished);
                self.shared.waiting_bytes.fetch_sub(waiting, Ordering::Relaxed);
            }
            SnapshotPart::InFlight { checkpoint, pieces } => {
                if let Some(open) = self.tasks.get_mut(&task).and_then(|state| state.open.get_mut(&checkpoint)) {
                    open.failure = Some(format!("{} pieces of in-flight data cannot be stored", pieces.len()));
                }
            }
            SnapshotPart::End { checkpoint } => self.end(task, checkpoint),
            SnapshotPart::Abandon { checkpoint } => {
                let state = self.tasks.entry(task).or_default();
                state.open.remove(&checkpoint);
                state.stored.values_mut().for_each(|instance| instance.abandon(checkpoint));
            }
        }
    }

    fn begin(&mut self, task: TaskId, checkpoint: CheckpointId, state: TaskState, prepare: Vec<(OperatorUid, Prepare)>) {
        let mut open = Open::new(state);
        let of_task = self.tasks.entry(task).or_default();
        for (uid, prepare) in prepare {
            match prepare() {
                Ok(Some(value)) => of_task.prepared.entry(uid).or_default().add(checkpoint, value),
                Ok(None) => {}
                // The sink refuses further rows after this, so the job fails over to its last checkpoint.
                Err(error) => open.failure = Some(format!("sink {uid}: {error}")),
            }
        }
        of_task.open.insert(checkpoint, open);
    }

    fn instance(
        &mut self,
        task: TaskId,
        checkpoint: CheckpointId,
        key: InstanceKey,
        capture: Option<Box<dyn CapturedState>>,
        watermark: i64,
        finished: bool,
    ) {
        let Some(state) = self.tasks.get_mut(&task) else { return };
        let Some(open) = state.open.get_mut(&checkpoint).filter(|open| open.failure.is_none()) else { return };
        let stored = state.stored.entry(key.clone()).or_default();
        let chain = match capture {
            None => stored.chain().to_vec(),
            Some(capture) => {
                open.captured_bytes += capture.raw_bytes() as u64;
                match store(&self.shared, open, stored, (task, checkpoint), &*capture) {
                    Ok(chain) => chain,
                    Err(reason) => {
                        open.failure = Some(format!("{} of operator {}: {reason}", key.id, key.uid));
                        return;
                    }
                }
            }
        };
        open.instances.push((key, InstanceState { chain, watermark, finished }));
    }

    fn end(&mut self, task: TaskId, checkpoint: CheckpointId) {
        let Some(state) = self.tasks.get_mut(&task) else { return };
        let Some(mut open) = state.open.remove(&checkpoint) else { return };
        let file = match (open.failure.take(), open.writer.take()) {
            (Some(reason), _) => Err(reason),
            (None, None) => Ok(None),
            (None, Some(writer)) => writer.finish().map(Some).map_err(|error| error.to_string()),
        };
        let event = match file {
            Ok(file) => Event::Acknowledged(Box::new(Acknowledgement {
                task,
                checkpoint,
                state: open.state,
                instances: open.instances,
                sinks: state
                    .prepared
                    .iter()
                    .map(|(uid, prepared)| SinkState { uid: uid.clone(), committables: prepared.up_to(checkpoint) })
                    .collect(),
                file,
                captured_bytes: open.captured_bytes,
                merged_bytes: open.merged_bytes,
            })),
            Err(reason) => {
                state.stored.values_mut().for_each(|instance| instance.abandon(checkpoint));
                Event::PersistFailed { task, checkpoint, reason }
            }
        };
        self.shared.tell(event);
    }

    fn template(&mut self, uid: OperatorUid, template: Template) {
        if let Err(error) = self.store_template(&uid, &template) {
            tracing::warn!(%uid, %error, "the operator's template could not be stored; the next checkpoint tries again");
            self.unstored.push((uid, template));
        }
    }

    fn store_template(&mut self, uid: &OperatorUid, template: &Template) -> Result<(), StorageError> {
        let task = TaskId(TEMPLATE_TASK_MAX - self.templates);
        self.templates += 1;
        let image = template.encode();
        let segment = again(|| {
            let mut writer = self.shared.storage.writer(self.shared.attempt, self.shared.template_id, task);
            let segment = writer.append(&image)?;
            writer.finish()?;
            Ok(segment)
        })?;
        self.shared.templates.lock().expect("no thread panics while it holds this lock").insert(uid.clone(), segment);
        Ok(())
    }

    fn manifest(&mut self, mut manifest: Manifest) {
        let checkpoint = manifest.id();
        let event = match self.put(&mut manifest) {
            Ok(()) => Event::ManifestWritten(Box::new(manifest)),
            Err(error) if error.kind() == ErrorKind::Fenced => Event::Fenced { reason: error.to_string() },
            Err(error) => Event::ManifestFailed { checkpoint, reason: error.to_string() },
        };
        self.shared.tell(event);
    }

    fn put(&mut self, manifest: &mut Manifest) -> Result<(), StorageError> {
        while let Some((uid, template)) = self.unstored.pop() {
            if let Err(error) = self.store_template(&uid, &template) {
                self.unstored.push((uid, template));
                return Err(error);
            }
        }
        let templates = self.shared.templates.lock().expect("no thread panics while it holds this lock").clone();
        for (uid, operator) in manifest.operators.iter_mut().filter(|(_, operator)| operator.component.is_some()) {
            let Some(segment) = templates.get(uid.as_str()) else {
                return Err(StorageError::Misuse(format!("a manifest without the template of operator {uid}")));
            };
            operator.template = Some(segment.clone());
        }
        again(|| self.shared.storage.put_manifest(manifest))
    }
}

/// Writes a capture, merged with stored ones where that is due. Returns the instance's chain in this checkpoint.
fn store(
    shared: &Shared,
    open: &mut Open,
    stored: &mut StoredInstance,
    (task, checkpoint): (TaskId, CheckpointId),
    capture: &dyn CapturedState,
) -> Result<Vec<Segment>, String> {
    let mut image = capture.encode();
    let mut kept = stored.chain().len();
    // A checkpoint merges about as much as it captured, so that merging never costs more than what it is for.
    let may_merge = open.merged_bytes < open.captured_bytes.max(MERGED_BYTES_MIN);
    if let Plan::Merge(from) = stored.plan(may_merge) {
        image = merged(&shared.storage, &stored.chain()[from..], &image)?;
        kept = from;
        open.merged_bytes += image.len() as u64;
    }
    let writer = open.writer.get_or_insert_with(|| shared.storage.writer(shared.attempt, checkpoint, task));
    let segment = writer.append(&image).map_err(|error| error.to_string())?;
    Ok(stored.add(checkpoint, kept, segment))
}

fn merged(storage: &JobStorage, chain: &[Segment], newest: &[u8]) -> Result<Vec<u8>, String> {
    let older = chain
        .iter()
        .map(|segment| again(|| storage.read(segment)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let images: Vec<&[u8]> = older.iter().map(|image| &image[..]).chain([newest]).collect();
    weir_sandbox::merge(&images).map_err(|error| error.to_string())
}

/// Tries an operation again as long as the store says that this may help.
fn again<T>(operation: impl Fn() -> Result<T, StorageError>) -> Result<T, StorageError> {
    let mut attempt = 1;
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::Retry && attempt < ATTEMPTS_MAX => {
                tracing::warn!(%error, attempt, "storage: trying again");
                std::thread::sleep(RETRY_DELAY * attempt);
                attempt += 1;
            }
            result => return result,
        }
    }
}
