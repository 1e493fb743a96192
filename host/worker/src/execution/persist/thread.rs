//! One persister thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use weir_channel::wire;
use weir_model::{CheckpointId, OperatorUid, TaskId};
use weir_protocol::{Acknowledgement, InstanceAcknowledgement, SinkAcknowledgement, SourceAcknowledgement};
use weir_storage::{InFlightState, InstanceState, JobStorage, Plan, Segment, StoredFile, StoredInstance, again, instance_name};
use weir_task::{CapturedState, InFlight, InFlightSource, Prepare, SnapshotPart, TaskState};

use super::snapshot::{InstanceKey, Open, Origins, Prepared};
use super::{Item, OfTask, Shared};

/// First wait before a store that is down is asked again.
pub(in crate::execution) const RETRY_DELAY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 250 });

/// What a checkpoint may always merge.
const MERGED_BYTES_MIN: u64 = 4 << 20;

/// What is known of a task.
#[derive(Default)]
struct State {
    stored: HashMap<InstanceKey, StoredInstance>,
    open: BTreeMap<CheckpointId, Open>,
    prepared: BTreeMap<OperatorUid, Prepared>,
    origins: Origins,
}

pub(super) struct Thread {
    shared: Arc<Shared>,
    tasks: BTreeMap<TaskId, State>,
}

impl Thread {
    pub(super) fn new(shared: Arc<Shared>, tasks: BTreeMap<TaskId, OfTask>) -> Thread {
        let tasks = tasks.into_iter().map(|(task, known)| {
            let stored = known.instances.into_iter().collect();
            (task, State { stored, origins: known.origins, ..State::default() })
        });
        Thread { tasks: tasks.collect(), shared }
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
            SnapshotPart::InFlight { checkpoint, pieces } => self.in_flight(task, checkpoint, &pieces),
            SnapshotPart::End { checkpoint } => self.end(task, checkpoint),
            SnapshotPart::Abandon { checkpoint } => {
                let state = self.tasks.entry(task).or_default();
                // One that was acknowledged may still turn out to be complete: its chains stay.
                if state.open.remove(&checkpoint).is_some() {
                    state.stored.values_mut().for_each(|instance| instance.forget(checkpoint));
                }
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

    fn in_flight(&mut self, task: TaskId, checkpoint: CheckpointId, pieces: &[InFlight]) {
        let Some(state) = self.tasks.get_mut(&task) else { return };
        let Some(open) = state.open.get_mut(&checkpoint).filter(|open| open.failure.is_none()) else { return };
        for piece in pieces.iter().filter(|piece| !piece.frames.is_empty()) {
            if let Err(reason) = store_in_flight(&self.shared, open, &state.origins, (task, checkpoint), piece) {
                open.failure = Some(format!("rows in flight: {reason}"));
                return;
            }
        }
    }

    fn end(&mut self, task: TaskId, checkpoint: CheckpointId) {
        let Some(state) = self.tasks.get_mut(&task) else { return };
        let Some(mut open) = state.open.remove(&checkpoint) else { return };
        let file = match (open.failure.take(), open.writer.take()) {
            (Some(reason), _) => Err(reason),
            (None, None) => Ok(None),
            (None, Some(writer)) => writer.finish().map(Some).map_err(|error| error.to_string()),
        };
        match file {
            Ok(file) => self.shared.voice.acknowledged(acknowledgement(task, checkpoint, open, &state.prepared, file)),
            Err(reason) => {
                state.stored.values_mut().for_each(|instance| instance.forget(checkpoint));
                self.shared.voice.persist_failed(task, checkpoint, reason);
            }
        }
    }
}

fn acknowledgement(
    task: TaskId,
    checkpoint: CheckpointId,
    open: Open,
    prepared: &BTreeMap<OperatorUid, Prepared>,
    file: Option<StoredFile>,
) -> Acknowledgement {
    let TaskState { watermarks, finished, source } = open.state;
    let source = source.map(|source| SourceAcknowledgement { splits: source.splits, event_time_max: source.event_time_max });
    let instance = |(key, state): (InstanceKey, InstanceState)| InstanceAcknowledgement {
        uid: key.uid.to_string(),
        name: instance_name(key.id),
        state,
    };
    let sink = |(uid, prepared): (&OperatorUid, &Prepared)| SinkAcknowledgement {
        uid: uid.to_string(),
        committables: prepared.up_to(checkpoint),
    };
    Acknowledgement {
        task,
        checkpoint,
        finished,
        watermarks,
        source,
        instances: open.instances.into_iter().map(instance).collect(),
        sinks: prepared.iter().map(sink).collect(),
        in_flight: open.in_flight,
        file,
        captured_bytes: open.captured_bytes,
        merged_bytes: open.merged_bytes,
        in_flight_bytes: open.in_flight_bytes,
    }
}

/// Writes frames that were in flight.
fn store_in_flight(
    shared: &Shared,
    open: &mut Open,
    origins: &Origins,
    (task, checkpoint): (TaskId, CheckpointId),
    piece: &InFlight,
) -> Result<(), String> {
    let origin = match piece.source {
        InFlightSource::Channel(channel) => &origins.channels[channel],
        InFlightSource::Restored(index) => &origins.restored[index],
    };
    let mut bytes = Vec::new();
    for frame in &piece.frames {
        bytes.extend_from_slice(&wire::encode_to_vec(frame).map_err(|error| error.to_string())?);
    }
    let writer = open.writer.get_or_insert_with(|| shared.storage.writer(shared.voice.execution().attempt, checkpoint, task));
    let frames = writer.append(&bytes).map_err(|error| error.to_string())?;
    open.in_flight_bytes += frames.length;
    open.in_flight.push(InFlightState {
        from: origin.from.clone(),
        output: origin.output,
        input: origin.input,
        sender: origin.sender,
        exchange: Some(origin.exchange.to_string()),
        groups: piece.groups.map(|groups| (groups.start, groups.end)),
        rows: piece.frames.iter().map(|frame| frame.rows_len() as u64).sum(),
        frames,
    });
    Ok(())
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
    let writer = open.writer.get_or_insert_with(|| shared.storage.writer(shared.voice.execution().attempt, checkpoint, task));
    let segment = writer.append(&image).map_err(|error| error.to_string())?;
    Ok(stored.add(checkpoint, kept, segment))
}

fn merged(storage: &JobStorage, chain: &[Segment], newest: &[u8]) -> Result<Vec<u8>, String> {
    let older = chain
        .iter()
        .map(|segment| again(RETRY_DELAY, || storage.read(segment)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let images: Vec<&[u8]> = older.iter().map(|image| &image[..]).chain([newest]).collect();
    weir_sandbox::merge(&images).map_err(|error| error.to_string())
}
