//! Entry point for fuzzing: documents that storage holds, as whoever can write to it may have left them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weir_model::Attempt;

pub use crate::log::fuzz::{entries, entry};
use crate::{
    Committable, InFlightState, InstanceState, MANIFEST_FORMAT, Manifest, ManifestKind, OperatorState, Segment, StoredFile,
    SubtaskState, document, instance_id,
};

/// Reads a manifest, given as it is stored or as the JSON in it, and looks at all that a restore and a retention look at. What is read is
/// the same when it is written again.
///
/// # Panics
/// If it is not.
pub fn manifest(bytes: &[u8]) -> String {
    let manifest: Manifest = match read(bytes, MANIFEST_FORMAT) {
        Ok(manifest) => manifest,
        Err(reason) => return reason,
    };
    let instances = manifest.operators.values().flat_map(|operator| operator.instances.keys());
    let named = instances.filter(|name| instance_id(name).is_some()).count();
    format!("{} segments, {named} instances, {} files", manifest.segments().count(), manifest.references().len())
}

/// Manifests to begin with, as JSON.
pub fn manifests() -> Vec<Vec<u8>> {
    let segment = |offset| Segment { file: "1-3-0-0".to_owned(), offset, length: 9, checksum: "00".repeat(8) };
    let instance = |offset| InstanceState::of_memory(vec![segment(offset), segment(offset + 9)], 17, false);
    let in_flight = InFlightState {
        from: "in".to_owned(),
        output: Some(0),
        input: 0,
        sender: 1,
        exchange: "hash".to_owned(),
        groups: Some((0, 63)),
        rows: 1,
        frames: segment(40),
    };
    let subtask = SubtaskState {
        splits: BTreeMap::from([("a".to_owned(), json!({"offset": 5}))]),
        committables: vec![Committable { checkpoint: 3, value: json!({"from": "a", "to": "b"}) }],
        watermarks: vec![17],
        source_watermark: Some(17),
        in_flight: vec![in_flight],
        ..SubtaskState::default()
    };
    let operator = OperatorState {
        parallelism: 1,
        template: Some(segment(90)),
        instances: BTreeMap::from([("g0".to_owned(), instance(0)), ("s1".to_owned(), instance(18))]),
        subtasks: vec![subtask],
        ..OperatorState::default()
    };
    let manifest = Manifest {
        format: MANIFEST_FORMAT,
        job: "j".to_owned(),
        attempt: Attempt(1),
        checkpoint: 3,
        kind: ManifestKind::Checkpoint,
        triggered_at_ms: 1,
        completed_at_ms: 2,
        key_groups: 128,
        bytes_written: 100,
        origin: Some("/jobs/j.toml".to_owned()),
        operators: BTreeMap::from([("count".to_owned(), operator)]),
        files: vec![StoredFile { name: "1-3-0-0".to_owned(), bytes: 100 }],
    };
    serde_json::to_vec(&manifest).into_iter().collect()
}

pub(crate) fn read<T: DeserializeOwned + Serialize>(bytes: &[u8], format: u32) -> Result<T, String> {
    let formats = Some(format..=format);
    let framed = serde_json::from_slice::<Value>(bytes).ok().and_then(|content| document::encode(&content).ok());
    let read = document::decode("x", framed.as_deref().unwrap_or(bytes), formats.clone());
    let value: T = read.map_err(|error| error.to_string())?;
    let once = document::encode(&value).map_err(|error| error.to_string())?;
    let again: T = document::decode("x", &once, formats).map_err(|error| format!("written again: {error}"))?;
    assert_eq!(document::encode(&again).ok(), Some(once), "it is another one when it is written again");
    Ok(value)
}
