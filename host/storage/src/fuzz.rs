//! Entry point for fuzzing: documents that storage holds, as whoever can write to it may have left them.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{JobInfo, MANIFEST_FORMAT, MANIFEST_FORMAT_MIN, Manifest, document, instance_id};

/// Reads a manifest, given as it is stored or as the JSON in it, and looks at all that a restore and a retention look at. What is read is
/// the same when it is written again.
///
/// # Panics
/// If it is not.
pub fn manifest(bytes: &[u8]) -> String {
    let manifest: Manifest = match read(bytes, Some(MANIFEST_FORMAT_MIN..=MANIFEST_FORMAT)) {
        Ok(manifest) => manifest,
        Err(reason) => return reason,
    };
    let instances = manifest.operators.values().flat_map(|operator| operator.instances.keys());
    let named = instances.filter(|name| instance_id(name).is_some()).count();
    format!("{} segments, {named} instances, {} files", manifest.segments().count(), manifest.references().len())
}

/// The same of what is known of a job.
///
/// # Panics
/// If it is not the same.
pub fn job_info(bytes: &[u8]) -> String {
    read::<JobInfo>(bytes, None).map_or_else(|reason| reason, |_| "a job".to_owned())
}

fn read<T: DeserializeOwned + Serialize>(bytes: &[u8], formats: Option<std::ops::RangeInclusive<u32>>) -> Result<T, String> {
    let framed = serde_json::from_slice::<Value>(bytes).ok().and_then(|content| document::encode(&content).ok());
    let read = document::decode("x", framed.as_deref().unwrap_or(bytes), formats.clone());
    let value: T = read.map_err(|error| error.to_string())?;
    let once = document::encode(&value).map_err(|error| error.to_string())?;
    let again: T = document::decode("x", &once, formats).map_err(|error| format!("written again: {error}"))?;
    assert_eq!(document::encode(&again).ok(), Some(once), "it is another one when it is written again");
    Ok(value)
}
