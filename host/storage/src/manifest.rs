//! What a checkpoint is, as it is stored: which files hold which state of which operator.
//!
//! A manifest is JSON that a person can read. Only a manifest makes files count: a file that none names is garbage.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_model::{Attempt, CheckpointId, InstanceId};

use crate::ConfigDigests;

/// The format number written to [`Manifest::format`], and the only one that is read. Raised when an older build would misread a newer
/// manifest. What stands in one is in docs/formats.md.
pub const MANIFEST_FORMAT: u32 = 4;

/// A range of a stored file, with the checksum of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// Name of the file in the job's `files` folder.
    pub file: String,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// xxh3_64 of the bytes, 16 hexadecimal digits.
    pub checksum: String,
}

/// A whole stored file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    /// Its name in the job's `files` folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Why a checkpoint was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ManifestKind {
    /// The interval.
    Checkpoint,
    /// All inputs have ended; everything is committed. A job goes on from it where its sources have more.
    Final,
    /// A person stopped the job.
    Stop,
    /// A person asked for it: it stays until a person deletes it.
    Savepoint,
}

/// A completed checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_FORMAT`].
    pub format: u32,
    /// The job's name.
    pub job: String,
    /// The attempt that took it.
    #[serde(with = "attempt_number")]
    pub attempt: Attempt,
    /// Its number.
    pub checkpoint: u64,
    /// Why it was taken.
    pub kind: ManifestKind,
    /// When, in milliseconds since the Unix epoch, the coordinator triggered it.
    pub triggered_at_ms: u64,
    /// When its last task had stored its part.
    pub completed_at_ms: u64,
    /// Number of key groups of the job.
    pub key_groups: u16,
    /// Bytes that this checkpoint wrote (not what it needs: it also needs files of older ones).
    pub bytes_written: u64,
    /// Path of the job file.
    pub origin: Option<String>,
    /// State by operator uid.
    pub operators: BTreeMap<String, OperatorState>,
    /// Files that this checkpoint wrote.
    pub files: Vec<StoredFile>,
}

/// State of one operator, source or sink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperatorState {
    /// Number of subtasks that took the checkpoint.
    pub parallelism: u32,
    /// The component, for an operator that runs one: the code and the configuration that have written this state.
    pub component: Option<ComponentState>,
    /// How often that was replaced while the job ran, until this checkpoint.
    pub generation: u64,
    /// The encoded template that the instances' images are relative to.
    pub template: Option<Segment>,
    /// Memory images by instance: `g12` is key group 12, `s0` subtask 0.
    pub instances: BTreeMap<String, InstanceState>,
    /// What subtasks hold outside instances, by index.
    pub subtasks: Vec<SubtaskState>,
}

/// Name of an instance in a manifest.
pub fn instance_name(id: InstanceId) -> String {
    match id {
        InstanceId::KeyGroup(group) => format!("g{group}"),
        InstanceId::Subtask(index) => format!("s{index}"),
    }
}

/// The instance of that name.
pub fn instance_id(name: &str) -> Option<InstanceId> {
    match name.split_at_checked(1)? {
        ("g", group) => group.parse().ok().map(InstanceId::KeyGroup),
        ("s", index) => index.parse().ok().map(InstanceId::Subtask),
        _ => None,
    }
}

/// Which component wrote an operator's images.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentState {
    /// SHA-256 of the component, 64 hexadecimal digits.
    pub digest: String,
    /// Its `name@version`.
    pub name: Option<String>,
    /// Of the configuration it was opened with, which its images contain.
    pub config_digests: ConfigDigests,
}

/// State of one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceState {
    /// What it consists of. Each part is a chain of encoded captures, oldest first.
    pub parts: BTreeMap<StatePart, Vec<Segment>>,
    /// The last watermark it was told.
    pub watermark: i64,
    /// Whether it was told the end of its inputs.
    pub finished: bool,
}

/// What an instance's state consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatePart {
    /// The image of its memory, relative to the operator's template.
    Memory,
    /// What it keeps in the host's store.
    Store,
    /// Timers that it has set.
    Timers,
}

impl InstanceState {
    /// Of an instance that has nothing but memory.
    pub fn of_memory(chain: Vec<Segment>, watermark: i64, finished: bool) -> InstanceState {
        InstanceState { parts: BTreeMap::from([(StatePart::Memory, chain)]), watermark, finished }
    }

    /// The chain of its memory; empty where it has none.
    pub fn memory(&self) -> &[Segment] {
        self.parts.get(&StatePart::Memory).map_or(&[], Vec::as_slice)
    }

    /// Whether anything is stored of it.
    pub fn is_empty(&self) -> bool {
        self.parts.values().all(Vec::is_empty)
    }
}

/// State of one subtask outside its instances.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubtaskState {
    /// A source's positions by split.
    pub splits: BTreeMap<String, Value>,
    /// What a sink has prepared and not committed yet.
    pub committables: Vec<Committable>,
    /// The last watermark of each input channel.
    pub watermarks: Vec<i64>,
    /// The last watermark a source gave.
    pub source_watermark: Option<i64>,
    /// Whether it has ended.
    pub finished: bool,
    /// Rows that were on their way to it and that an unaligned barrier has overtaken, in the order they are to be processed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_flight: Vec<InFlightState>,
}

/// Rows that were on their way over one channel when a barrier overtook them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlightState {
    /// Uid of the vertex that wrote them.
    pub from: String,
    /// The output they left by; none: dead letters.
    pub output: Option<u32>,
    /// The input they come in by.
    pub input: u32,
    /// Subtask that wrote them.
    pub sender: u32,
    /// How the rows of the edge found their subtask, as job files name it: they are divided anew by the same rule only.
    pub exchange: String,
    /// For rows that every instance of a keyed operator gets: the key groups that have not had them, as first and one past
    /// the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<(u16, u16)>,
    /// Number of rows.
    pub rows: u64,
    /// The frames, one after the other, as they are on the wire.
    pub frames: Segment,
}

/// Something that a sink has prepared, to be committed once the checkpoint is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Committable {
    /// The checkpoint it belongs to.
    pub checkpoint: u64,
    /// What the sink needs to commit it.
    pub value: Value,
}

impl Manifest {
    /// Its number, typed.
    pub fn id(&self) -> CheckpointId {
        CheckpointId(self.checkpoint)
    }

    /// Every segment that a restore reads.
    pub fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.operators.values().flat_map(|operator| {
            let images = operator.instances.values().flat_map(|instance| instance.parts.values().flatten());
            let in_flight = operator.subtasks.iter().flat_map(|subtask| &subtask.in_flight);
            operator.template.iter().chain(images).chain(in_flight.map(|in_flight| &in_flight.frames))
        })
    }

    /// Names of all files that belong to it: those it reads and those it wrote.
    pub(crate) fn references(&self) -> BTreeSet<String> {
        self.segments().map(|segment| &segment.file).chain(self.files.iter().map(|file| &file.name)).cloned().collect()
    }
}

/// An attempt as a plain number.
mod attempt_number {
    use serde::{Deserialize, Deserializer, Serializer};
    use weir_model::Attempt;

    pub(super) fn serialize<S: Serializer>(attempt: &Attempt, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(attempt.0)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Attempt, D::Error> {
        u64::deserialize(deserializer).map(Attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_names_survive() {
        for id in [InstanceId::KeyGroup(0), InstanceId::KeyGroup(32_767), InstanceId::Subtask(3)] {
            assert_eq!(instance_id(&instance_name(id)), Some(id));
        }
        assert_eq!(instance_id(""), None);
        assert_eq!(instance_id("x1"), None);
        assert_eq!(instance_id("g70000"), None);
    }
}
