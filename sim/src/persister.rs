//! Making snapshots durable, as a worker does it: the pieces of a task in order, one file per task and checkpoint.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;
use weir_channel::wire;
use weir_model::{Attempt, CheckpointId, InstanceId, OperatorUid, TaskId};
use weir_plan::Exchange;
use weir_protocol::{Acknowledgement, InstanceAcknowledgement, SinkAcknowledgement, SourceAcknowledgement};
use weir_storage::{
    Committable, InFlightState, InstanceState, JobStorage, Plan, Segment, SnapshotWriter, StorageError, StoredInstance,
    instance_name,
};
use weir_task::{InFlight, InFlightSource, SnapshotPart, TaskState};

use crate::operators::State;
use crate::scenario::Mutation;
use crate::worker::again;

/// What waits to be done.
pub(crate) enum Item {
    Part(SnapshotPart),
    /// The task's sinks have committed.
    Committed(CheckpointId),
    /// A checkpoint is complete.
    Completed(CheckpointId),
}

/// What came of an item.
pub(crate) enum Done {
    Acknowledged(Box<Acknowledgement>),
    Failed(CheckpointId, String),
}

/// Where rows come from that are on their way to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) from: String,
    pub(crate) output: Option<u32>,
    pub(crate) input: u32,
    pub(crate) sender: u32,
    pub(crate) exchange: Exchange,
}

struct Open {
    state: TaskState,
    writer: Option<SnapshotWriter>,
    instances: Vec<InstanceAcknowledgement>,
    in_flight: Vec<InFlightState>,
    failure: Option<String>,
}

/// The persister of one task.
#[derive(Default)]
pub(crate) struct Persister {
    pub(crate) queue: VecDeque<Item>,
    pub(crate) scheduled: bool,
    pub(crate) stored: BTreeMap<(OperatorUid, InstanceId), StoredInstance>,
    /// By channel of the gate.
    pub(crate) channels: Vec<Origin>,
    /// By entry of what a restore had put before them.
    pub(crate) restored: Vec<Origin>,
    open: BTreeMap<CheckpointId, Open>,
    prepared: BTreeMap<OperatorUid, Vec<(CheckpointId, Value)>>,
    /// Rows in flight that were stored.
    pub(crate) in_flight_rows: u64,
    /// Of these, rows that a restore had put there.
    pub(crate) again_rows: u64,
    /// Chains of which a part was merged.
    pub(crate) merges: u64,
    /// The mutation has struck, as often as it does in one task.
    mutated: bool,
}

impl Persister {
    /// Does one thing.
    pub(crate) fn step(
        &mut self,
        storage: &JobStorage,
        (attempt, task): (Attempt, TaskId),
        mutation: Option<Mutation>,
    ) -> Option<Done> {
        match self.queue.pop_front()? {
            Item::Part(part) => return self.part(storage, (attempt, task), part, mutation),
            Item::Committed(checkpoint) => {
                self.prepared.values_mut().for_each(|prepared| prepared.retain(|(id, _)| *id > checkpoint));
            }
            Item::Completed(checkpoint) => self.stored.values_mut().for_each(|stored| stored.complete(checkpoint)),
        }
        None
    }

    fn part(
        &mut self,
        storage: &JobStorage,
        (attempt, task): (Attempt, TaskId),
        part: SnapshotPart,
        mutation: Option<Mutation>,
    ) -> Option<Done> {
        match part {
            SnapshotPart::Begin { checkpoint, state, prepare } => {
                let mut open = Open { state, writer: None, instances: Vec::new(), in_flight: Vec::new(), failure: None };
                for (uid, prepare) in prepare {
                    match prepare() {
                        Ok(Some(value)) => self.prepared.entry(uid).or_default().push((checkpoint, value)),
                        Ok(None) => {}
                        Err(error) => open.failure = Some(format!("sink {uid}: {error}")),
                    }
                }
                self.open.insert(checkpoint, open);
            }
            SnapshotPart::Instance { checkpoint, uid, instance, capture, watermark, finished } => {
                let open = self.open.get_mut(&checkpoint).filter(|open| open.failure.is_none())?;
                let stored = self.stored.entry((uid.clone(), instance)).or_default();
                let chain = match capture {
                    None => stored.chain().to_vec(),
                    Some(capture) => {
                        let writer = open.writer.get_or_insert_with(|| storage.writer(attempt, checkpoint, task));
                        match store(storage, writer, stored, checkpoint, capture.encode()) {
                            Ok((chain, merged)) => {
                                self.merges += u64::from(merged);
                                chain
                            }
                            Err(error) => {
                                open.failure = Some(error.to_string());
                                return None;
                            }
                        }
                    }
                };
                let state = InstanceState { chain, watermark, finished };
                open.instances.push(InstanceAcknowledgement { uid: uid.to_string(), name: instance_name(instance), state });
            }
            SnapshotPart::InFlight { checkpoint, pieces } => {
                self.in_flight(storage, (attempt, task), checkpoint, pieces, mutation);
            }
            SnapshotPart::End { checkpoint } => return self.end(task, checkpoint),
            SnapshotPart::Abandon { checkpoint } => {
                let was_open = self.open.remove(&checkpoint).is_some();
                if was_open && mutation == Some(Mutation::ForgetPrepared) {
                    self.prepared.values_mut().for_each(|prepared| prepared.retain(|(id, _)| *id != checkpoint));
                }
                // One that was acknowledged may still turn out to be complete.
                if was_open || mutation == Some(Mutation::DropChain) {
                    self.stored.values_mut().for_each(|stored| stored.forget(checkpoint));
                }
            }
        }
        None
    }

    fn in_flight(
        &mut self,
        storage: &JobStorage,
        (attempt, task): (Attempt, TaskId),
        checkpoint: CheckpointId,
        mut pieces: Vec<InFlight>,
        mutation: Option<Mutation>,
    ) {
        let Some(open) = self.open.get_mut(&checkpoint).filter(|open| open.failure.is_none()) else { return };
        if mutation == Some(Mutation::DropInFlightFrame) && !self.mutated {
            self.mutated = pieces.iter_mut().find(|piece| !piece.frames.is_empty()).is_some_and(|of| of.frames.pop().is_some());
        }
        for piece in pieces.iter().filter(|piece| !piece.frames.is_empty()) {
            let rows: u64 = piece.frames.iter().map(|frame| frame.rows_len() as u64).sum();
            self.in_flight_rows += rows;
            let origin = match piece.source {
                InFlightSource::Channel(channel) => &self.channels[channel],
                InFlightSource::Restored(index) => {
                    self.again_rows += rows;
                    &self.restored[index]
                }
            };
            let mut bytes = Vec::new();
            for frame in &piece.frames {
                match wire::encode_to_vec(frame) {
                    Ok(encoded) => bytes.extend(encoded),
                    Err(error) => open.failure = Some(format!("rows in flight: {error}")),
                }
            }
            let writer = open.writer.get_or_insert_with(|| storage.writer(attempt, checkpoint, task));
            let frames = match writer.append(&bytes) {
                Ok(frames) => frames,
                Err(error) => {
                    open.failure = Some(format!("rows in flight: {error}"));
                    return;
                }
            };
            let Origin { from, output, input, sender, exchange } = origin.clone();
            let exchange = Some(exchange.to_string());
            let groups = piece.groups.map(|groups| (groups.start, groups.end));
            open.in_flight.push(InFlightState { from, output, input, sender, exchange, groups, rows, frames });
        }
    }

    fn end(&mut self, task: TaskId, checkpoint: CheckpointId) -> Option<Done> {
        let mut open = self.open.remove(&checkpoint)?;
        let file = match (open.failure.take(), open.writer.take()) {
            (Some(reason), _) => Err(reason),
            (None, None) => Ok(None),
            (None, Some(writer)) => writer.finish().map(Some).map_err(|error| error.to_string()),
        };
        let file = match file {
            Ok(file) => file,
            Err(reason) => {
                self.stored.values_mut().for_each(|stored| stored.forget(checkpoint));
                return Some(Done::Failed(checkpoint, reason));
            }
        };
        let TaskState { watermarks, finished, source } = open.state;
        let held = |prepared: &[(CheckpointId, Value)]| {
            let up_to = prepared.iter().filter(|(id, _)| *id <= checkpoint);
            up_to.map(|(id, value)| Committable { checkpoint: id.0, value: value.clone() }).collect()
        };
        let sink =
            |(uid, prepared): (&OperatorUid, &Vec<_>)| SinkAcknowledgement { uid: uid.to_string(), committables: held(prepared) };
        Some(Done::Acknowledged(Box::new(Acknowledgement {
            task,
            checkpoint,
            finished,
            watermarks,
            source: source.map(|of| SourceAcknowledgement { splits: of.splits, event_time_max: of.event_time_max }),
            instances: open.instances,
            sinks: self.prepared.iter().map(sink).collect(),
            in_flight: open.in_flight,
            file,
            captured_bytes: 0,
            merged_bytes: 0,
            in_flight_bytes: 0,
        })))
    }
}

/// Writes a capture, merged with stored ones where that is due, and gives the chain and whether it was merged.
fn store(
    storage: &JobStorage,
    writer: &mut SnapshotWriter,
    stored: &mut StoredInstance,
    checkpoint: CheckpointId,
    capture: Vec<u8>,
) -> Result<(Vec<Segment>, bool), StorageError> {
    let (mut image, mut kept) = (capture, stored.chain().len());
    let plan = stored.plan(true);
    if let Plan::Merge(from) = plan {
        let older = stored.chain()[from..].iter().map(|segment| Ok(again(|| storage.read(segment))?.to_vec()));
        let mut images = older.collect::<Result<Vec<_>, StorageError>>()?;
        images.push(image);
        (image, kept) = (State::merge(&images), from);
    }
    let segment = writer.append(&image)?;
    Ok((stored.add(checkpoint, kept, segment), plan != Plan::Append))
}
