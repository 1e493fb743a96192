//! How far an execution is on a worker.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_model::{Oddities, TaskId, Timestamp};

/// Counts of one subtask of a vertex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VertexCounts {
    /// Rows in (a source: rows read).
    pub rows_in: u64,
    /// Rows out (a sink: rows written).
    pub rows_out: u64,
    /// Rows rejected.
    pub rows_rejected: u64,
}

/// Counts of durations: (upper bound in nanoseconds, count), ascending; buckets without any are left out.
pub type Durations = Vec<(u64, u64)>;

/// One task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProgress {
    /// Which.
    pub task: TaskId,
    /// Its watermark, in milliseconds since the Unix epoch.
    pub watermark: Timestamp,
    /// Nanoseconds it had work to do.
    pub busy_ns: u64,
    /// Nanoseconds it waited for room downstream.
    pub backpressured_ns: u64,
    /// Interruptions of the data path by checkpoints.
    pub pauses: Durations,
    /// The longest interruption.
    pub pause_max_ns: u64,
    /// By vertex of its chain, in the chain's order.
    pub vertices: Vec<VertexCounts>,
    /// All its inputs have ended.
    pub finished: bool,
}

/// What a worker knows of one execution. In a heartbeat: what of it has changed, or a part of that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerProgress {
    /// Its tasks.
    pub tasks: Vec<TaskProgress>,
    /// Rows that did not go the normal way, by the uid of their vertex, over its subtasks here. Over workers these add up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub oddities: BTreeMap<String, Oddities>,
    /// What operators count: `operator.name`. Over workers these add up.
    pub counters: BTreeMap<String, u64>,
    /// What operators measure: `operator.name`. Over workers the largest is shown.
    #[serde(with = "any_number")]
    pub gauges: BTreeMap<String, f64>,
    /// Bytes sent to other workers.
    pub sent_bytes: u64,
    /// Bytes received from other workers.
    pub received_bytes: u64,
    /// Stored bytes of instances of the checkpoint that are with their tasks.
    #[serde(default)]
    pub restored_bytes: u64,
    /// Stored bytes of all that are to be.
    #[serde(default)]
    pub restore_bytes: u64,
}

impl WorkerProgress {
    /// Takes in what was said later. What that does not name stays as it was. Tasks come, and are kept, in order of their numbers.
    pub fn merge(&mut self, later: WorkerProgress) {
        // Named one by one, so that what is added later is merged as well.
        let WorkerProgress { tasks, oddities, counters, gauges, sent_bytes, received_bytes, restored_bytes, restore_bytes } =
            later;
        for task in tasks {
            match self.tasks.binary_search_by_key(&task.task, |held| held.task) {
                Ok(held) => self.tasks[held] = task,
                Err(place) => self.tasks.insert(place, task),
            }
        }
        self.oddities.extend(oddities);
        self.counters.extend(counters);
        self.gauges.extend(gauges);
        self.sent_bytes = self.sent_bytes.max(sent_bytes);
        self.received_bytes = self.received_bytes.max(received_bytes);
        self.restored_bytes = self.restored_bytes.max(restored_bytes);
        self.restore_bytes = self.restore_bytes.max(restore_bytes);
    }
}

/// Numbers of any kind: JSON has neither infinities nor what is no number, and guests set gauges to them.
mod any_number {
    use std::collections::BTreeMap;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(serde::Serialize, Deserialize)]
    #[serde(untagged)]
    enum Number {
        Finite(f64),
        Other(String),
    }

    pub(super) fn serialize<S: Serializer>(values: &BTreeMap<String, f64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(values.iter().map(|(name, &value)| {
            (name, if value.is_finite() { Number::Finite(value) } else { Number::Other(value.to_string()) })
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
        let values = BTreeMap::<String, Number>::deserialize(deserializer)?;
        let number = |(name, value)| match value {
            Number::Finite(value) => Ok((name, value)),
            Number::Other(text) => text.parse().map(|value| (name, value)).map_err(D::Error::custom),
        };
        values.into_iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{decode, encode};

    #[test]
    fn gauges_that_json_has_no_number_for_are_told() {
        let gauges = [("a", f64::INFINITY), ("b", f64::NEG_INFINITY), ("c", 0.5), ("d", f64::NAN)];
        let progress =
            WorkerProgress { gauges: gauges.map(|(name, value)| (name.to_owned(), value)).into(), ..Default::default() };
        let Ok(told) = decode::<WorkerProgress>(&encode(&progress, &[])) else { panic!("it cannot be read") };
        let bits = |progress: &WorkerProgress| progress.gauges.values().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&told.message), bits(&progress));
    }

    #[test]
    fn what_was_said_later_counts_and_what_it_leaves_out_stays() {
        let task = |number, busy_ns| TaskProgress {
            task: TaskId(number),
            watermark: 0,
            busy_ns,
            backpressured_ns: 0,
            pauses: Vec::new(),
            pause_max_ns: 0,
            vertices: Vec::new(),
            finished: false,
        };
        let counters = |values: &[(&str, u64)]| values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let mut held = WorkerProgress {
            tasks: vec![task(1, 1), task(3, 1)],
            counters: counters(&[("a", 1), ("b", 1)]),
            ..Default::default()
        };
        held.merge(WorkerProgress {
            tasks: vec![task(2, 2), task(3, 2)],
            counters: counters(&[("b", 2)]),
            sent_bytes: 7,
            ..Default::default()
        });
        assert_eq!(held.tasks, [task(1, 1), task(2, 2), task(3, 2)]);
        assert_eq!((held.counters, held.sent_bytes), (counters(&[("a", 1), ("b", 2)]), 7));
    }
}
