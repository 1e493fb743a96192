//! The machine: items in, what is to be said out.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use weir_channel::wire;
use weir_model::{Attempt, CheckpointId, OperatorUid, TaskId};
use weir_protocol::{Acknowledgement, InstanceAcknowledgement, SinkAcknowledgement, SourceAcknowledgement};
use weir_sandbox::EncodedImage;
use weir_storage::{InFlightState, InstanceState, JobStorage, Plan, Segment, StoredFile, StoredInstance, again, instance_name};
use weir_task::{CapturedState, InFlight, InFlightSource, SinkPrepare, SnapshotPart, TaskState};

use super::snapshot::{Held, InstanceKey, Open, Origins, TaskStart};

/// First wait before a store that is down is asked again.
pub const RETRY_DELAY: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 250 });

/// What a checkpoint may always merge.
const MERGED_BYTES_MIN: u64 = 4 << 20;

/// What a persister is asked to do.
pub enum Item {
    /// A piece of a snapshot.
    Part(TaskId, SnapshotPart),
    /// A task's sinks have committed.
    Committed(TaskId, CheckpointId),
    /// A checkpoint is complete. Every persister of an execution is told, before any of its tasks is.
    Completed(CheckpointId),
}

impl Item {
    /// Bytes that it holds in memory: captured state and rows in flight.
    pub fn held_bytes(&self) -> usize {
        match self {
            Item::Part(_, SnapshotPart::Instance { capture: Some(capture), .. }) => capture.raw_bytes(),
            Item::Part(_, SnapshotPart::InFlight { pieces, .. }) => {
                pieces.iter().flat_map(|piece| &piece.frames).map(weir_channel::Frame::size_bytes).sum()
            }
            Item::Part(..) | Item::Committed(..) | Item::Completed(_) => 0,
        }
    }
}

/// What became of a task's snapshot.
#[derive(Debug)]
pub enum Outcome {
    /// It is durable.
    Acknowledged(Box<Acknowledgement>),
    /// It cannot be made durable.
    Failed {
        /// The task.
        task: TaskId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What went wrong, with a hint.
        reason: String,
    },
}

/// What is known of a task.
#[derive(Default)]
struct Known {
    stored: HashMap<InstanceKey, StoredInstance>,
    open: BTreeMap<CheckpointId, Open>,
    held: BTreeMap<OperatorUid, Held>,
    /// Rows of a sink were not made durable, and why. No later checkpoint has them.
    lost: Option<String>,
    origins: Origins,
}

/// Where files go.
struct Place {
    storage: JobStorage,
    attempt: Attempt,
    retry_delay: Duration,
}

/// Makes the snapshots of some tasks durable.
pub struct Persister {
    place: Place,
    tasks: BTreeMap<TaskId, Known>,
    /// What is being written; its buffers serve all captures.
    image: EncodedImage,
}

impl Persister {
    /// One for these tasks of an attempt. A storage that is down is asked again after `retry_delay`, a few times.
    pub fn new(storage: JobStorage, attempt: Attempt, retry_delay: Duration, tasks: BTreeMap<TaskId, TaskStart>) -> Persister {
        let tasks = tasks.into_iter().map(|(task, start)| {
            let stored = start.instances.into_iter().collect();
            let held = start.held.into_iter().map(|(uid, held)| (uid, Held::of(held))).collect();
            (task, Known { stored, held, origins: start.origins, ..Known::default() })
        });
        Persister { place: Place { storage, attempt, retry_delay }, tasks: tasks.collect(), image: EncodedImage::default() }
    }

    /// Does one thing, for as long as the storage takes. Gives what is to be said, after the last part of a snapshot only.
    pub fn handle(&mut self, item: Item) -> Option<Outcome> {
        match item {
            Item::Part(task, part) => return self.part(task, part),
            Item::Committed(task, checkpoint) => {
                let known = self.tasks.entry(task).or_default();
                known.held.values_mut().for_each(|held| held.committed(checkpoint));
            }
            Item::Completed(checkpoint) => {
                let stored = self.tasks.values_mut().flat_map(|task| task.stored.values_mut());
                stored.for_each(|instance| instance.complete(checkpoint));
            }
        }
        None
    }

    fn part(&mut self, task: TaskId, part: SnapshotPart) -> Option<Outcome> {
        match part {
            SnapshotPart::Begin { checkpoint, state, prepare } => self.begin(task, checkpoint, state, prepare),
            SnapshotPart::Instance { checkpoint, uid, instance, capture, watermark, finished } => {
                let key = InstanceKey { uid, id: instance };
                self.instance(task, checkpoint, key, capture, watermark, finished);
            }
            SnapshotPart::InFlight { checkpoint, pieces } => self.in_flight(task, checkpoint, &pieces),
            SnapshotPart::End { checkpoint } => return self.end(task, checkpoint),
            SnapshotPart::Abandon { checkpoint } => {
                let state = self.tasks.entry(task).or_default();
                // One that was acknowledged may still turn out to be complete: its chains stay.
                if state.open.remove(&checkpoint).is_some() {
                    state.stored.values_mut().for_each(|instance| instance.forget(checkpoint));
                }
            }
        }
        None
    }

    fn begin(&mut self, task: TaskId, checkpoint: CheckpointId, state: TaskState, prepare: Vec<(OperatorUid, SinkPrepare)>) {
        let mut open = Open::new(state);
        let of_task = self.tasks.entry(task).or_default();
        for (uid, prepare) in prepare {
            match prepare() {
                Ok(Some(value)) => of_task.held.entry(uid).or_default().add(checkpoint, value),
                Ok(None) => {}
                // The sink refuses further rows after this, so the job fails over to its last checkpoint. It may have closed what
                // belongs to a later checkpoint before it knew: that one must not complete without these rows either, even if this
                // one was given up.
                Err(error) => drop(of_task.lost.get_or_insert(format!("sink {uid}: {error}"))),
            }
        }
        open.failure.clone_from(&of_task.lost);
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
                match store(&self.place, &mut self.image, open, stored, (task, checkpoint), capture) {
                    Ok(chain) => chain,
                    Err(reason) => {
                        open.failure = Some(format!("{} of operator {}: {reason}", key.id, key.uid));
                        return;
                    }
                }
            }
        };
        open.instances.push((key, InstanceState::of_memory(chain, watermark, finished)));
    }

    fn in_flight(&mut self, task: TaskId, checkpoint: CheckpointId, pieces: &[InFlight]) {
        let Some(state) = self.tasks.get_mut(&task) else { return };
        let Some(open) = state.open.get_mut(&checkpoint).filter(|open| open.failure.is_none()) else { return };
        for piece in pieces.iter().filter(|piece| !piece.frames.is_empty()) {
            if let Err(reason) = store_in_flight(&self.place, open, &state.origins, (task, checkpoint), piece) {
                open.failure = Some(format!("rows in flight: {reason}"));
                return;
            }
        }
    }

    fn end(&mut self, task: TaskId, checkpoint: CheckpointId) -> Option<Outcome> {
        let state = self.tasks.get_mut(&task)?;
        let mut open = state.open.remove(&checkpoint)?;
        let file = match (open.failure.take(), open.writer.take()) {
            (Some(reason), _) => Err(reason),
            (None, None) => Ok(None),
            (None, Some(writer)) => writer.finish().map(Some).map_err(|error| error.to_string()),
        };
        Some(match file {
            Ok(file) => Outcome::Acknowledged(Box::new(acknowledgement(task, checkpoint, open, &state.held, file))),
            Err(reason) => {
                state.stored.values_mut().for_each(|instance| instance.forget(checkpoint));
                Outcome::Failed { task, checkpoint, reason }
            }
        })
    }
}

fn acknowledgement(
    task: TaskId,
    checkpoint: CheckpointId,
    open: Open,
    held: &BTreeMap<OperatorUid, Held>,
    file: Option<StoredFile>,
) -> Acknowledgement {
    let TaskState { watermarks, finished, source } = open.state;
    let source = source.map(|source| SourceAcknowledgement { splits: source.splits, event_time_max: source.event_time_max });
    let instance = |(key, state): (InstanceKey, InstanceState)| InstanceAcknowledgement {
        uid: key.uid.to_string(),
        name: instance_name(key.id),
        state,
    };
    let sink =
        |(uid, held): (&OperatorUid, &Held)| SinkAcknowledgement { uid: uid.to_string(), committables: held.up_to(checkpoint) };
    Acknowledgement {
        task,
        checkpoint,
        finished,
        watermarks,
        source,
        instances: open.instances.into_iter().map(instance).collect(),
        sinks: held.iter().map(sink).collect(),
        in_flight: open.in_flight,
        file,
        captured_bytes: open.captured_bytes,
        merged_bytes: open.merged_bytes,
        in_flight_bytes: open.in_flight_bytes,
    }
}

/// Writes frames that were in flight.
fn store_in_flight(
    place: &Place,
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
    let writer = open.writer.get_or_insert_with(|| place.storage.writer(place.attempt, checkpoint, task));
    let frames = writer.append(&bytes).map_err(|error| error.to_string())?;
    open.in_flight_bytes += frames.length;
    open.in_flight.push(InFlightState {
        from: origin.from.clone(),
        output: origin.output,
        input: origin.input,
        sender: origin.sender,
        exchange: origin.exchange.to_string(),
        groups: piece.groups.map(|groups| (groups.start, groups.end)),
        rows: piece.frames.iter().map(|frame| frame.rows_len() as u64).sum(),
        frames,
    });
    Ok(())
}

/// Writes a capture, merged with stored ones where that is due. Returns the instance's chain in this checkpoint.
fn store(
    place: &Place,
    image: &mut EncodedImage,
    open: &mut Open,
    stored: &mut StoredInstance,
    (task, checkpoint): (TaskId, CheckpointId),
    capture: Box<dyn CapturedState>,
) -> Result<Vec<Segment>, String> {
    // A checkpoint merges about as much as it captured, so that merging never costs more than what it is for.
    let may_merge = open.merged_bytes < open.captured_bytes.max(MERGED_BYTES_MIN);
    let kept = match stored.plan(may_merge) {
        Plan::Merge(from) => {
            merge(place, &stored.chain()[from..], capture, image)?;
            open.merged_bytes += image.size_bytes() as u64;
            from
        }
        Plan::Append => {
            capture.encode(image);
            stored.chain().len()
        }
    };
    let writer = open.writer.get_or_insert_with(|| place.storage.writer(place.attempt, checkpoint, task));
    let segment = writer.append_pieces(&image.pieces()).map_err(|error| error.to_string())?;
    Ok(stored.add(checkpoint, kept, segment))
}

fn merge(place: &Place, chain: &[Segment], capture: Box<dyn CapturedState>, image: &mut EncodedImage) -> Result<(), String> {
    let older = chain
        .iter()
        .map(|segment| again(place.retry_delay, || place.storage.read(segment)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let older: Vec<&[u8]> = older.iter().map(|image| &image[..]).collect();
    capture.merge(&older, image)
}
