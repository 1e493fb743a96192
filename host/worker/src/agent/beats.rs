//! What heartbeats carry: what has changed since the last one on the same connection, in messages of bounded size.
//!
//! A coordinator keeps what it was told and merges what comes. It may throw a heartbeat away (a master that is busy, a job it has
//! not taken over yet), so everything is said again now and then. Owns what was said on one connection; sends nothing.

use std::collections::BTreeMap;

use weir_model::limits::HEARTBEAT_BYTES_MAX;
use weir_model::{Oddities, TaskId};
use weir_protocol::{Execution, Report, TaskProgress, WorkerProgress, encode};

/// Everything is said again after so many heartbeats: 5 seconds.
const BEATS_UNTIL_WHOLE: u32 = 20;

type Progress = Vec<(Execution, WorkerProgress)>;

/// What was said on one connection.
#[derive(Default)]
pub(super) struct Beats {
    said: BTreeMap<Execution, LastBeat>,
    beats: u32,
}

#[derive(Default)]
struct LastBeat {
    tasks: BTreeMap<TaskId, TaskProgress>,
    oddities: BTreeMap<String, Oddities>,
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
}

impl Beats {
    /// The next heartbeat, encoded: one message, or several where one would be too large. Never none, since it also says that the
    /// worker is alive.
    pub(super) fn next(&mut self, mut progress: Progress) -> Vec<Vec<u8>> {
        if self.beats.is_multiple_of(BEATS_UNTIL_WHOLE) {
            self.said.clear();
        }
        self.beats = self.beats.wrapping_add(1);
        self.said.retain(|execution, _| progress.iter().any(|(running, _)| running == execution));
        for (execution, progress) in &mut progress {
            self.said.entry(execution.clone()).or_default().leave_out(progress);
        }
        let mut messages = Vec::new();
        fit(progress, &mut messages);
        messages
    }
}

impl LastBeat {
    /// Leaves out what was said before, and remembers the rest.
    fn leave_out(&mut self, progress: &mut WorkerProgress) {
        progress.tasks.retain(|task| self.tasks.get(&task.task) != Some(task));
        progress.oddities.retain(|uid, odd| self.oddities.get(uid) != Some(odd));
        progress.counters.retain(|name, value| self.counters.get(name) != Some(value));
        // Compared by their bits: a gauge that is no number would differ from itself for ever.
        progress.gauges.retain(|name, value| self.gauges.get(name).map(|said| said.to_bits()) != Some(value.to_bits()));
        self.tasks.extend(progress.tasks.iter().map(|task| (task.task, task.clone())));
        self.oddities.extend(progress.oddities.iter().map(|(uid, odd)| (uid.clone(), odd.clone())));
        self.counters.extend(progress.counters.iter().map(|(name, value)| (name.clone(), *value)));
        self.gauges.extend(progress.gauges.iter().map(|(name, value)| (name.clone(), *value)));
    }
}

/// Encodes progress, in halves where it is too large. What cannot be divided, one task and one number of each kind, takes a
/// thousandth of a message; were it larger, it would be left out, loudly.
fn fit(progress: Progress, messages: &mut Vec<Vec<u8>>) {
    let report = Report::Heartbeat { progress };
    let message = encode(&report, &[]);
    if message.len() <= HEARTBEAT_BYTES_MAX {
        messages.push(message);
        return;
    }
    let Report::Heartbeat { progress } = report else { unreachable!("it was made above") };
    match halves(progress) {
        Ok((first, second)) => {
            fit(first, messages);
            fit(second, messages);
        }
        Err(execution) => {
            tracing::error!(
                ?execution,
                bytes = message.len(),
                "a count is left out of heartbeats: it is too large; this is a bug in weir"
            );
            messages.push(encode(&Report::Heartbeat { progress: Vec::new() }, &[]));
        }
    }
}

/// Two smaller parts, or the execution whose progress cannot be divided.
fn halves(mut progress: Progress) -> Result<(Progress, Progress), Option<Execution>> {
    if progress.len() > 1 {
        let second = progress.split_off(progress.len() / 2);
        return Ok((progress, second));
    }
    let Some((execution, mut first)) = progress.pop() else { return Err(None) };
    let mut second =
        WorkerProgress { sent_bytes: first.sent_bytes, received_bytes: first.received_bytes, ..WorkerProgress::default() };
    if first.tasks.len() > 1 {
        second.tasks = first.tasks.split_off(first.tasks.len() / 2);
    } else if let Some(middle) = middle(&first.counters) {
        second.counters = first.counters.split_off(&middle);
    } else if let Some(middle) = middle(&first.gauges) {
        second.gauges = first.gauges.split_off(&middle);
    } else if let Some(middle) = middle(&first.oddities) {
        second.oddities = first.oddities.split_off(&middle);
    } else {
        return Err(Some(execution));
    }
    Ok((vec![(execution.clone(), first)], vec![(execution, second)]))
}

/// The name at which to divide; none if there are fewer than two.
fn middle<T>(values: &BTreeMap<String, T>) -> Option<String> {
    if values.len() < 2 { None } else { values.keys().nth(values.len() / 2).cloned() }
}

#[cfg(test)]
mod tests {
    use weir_model::{Attempt, limits};
    use weir_protocol::decode;

    use super::*;

    fn execution(job: &str) -> Execution {
        Execution { job: job.to_owned(), attempt: Attempt(1) }
    }

    fn task(number: u32, rows: u64) -> TaskProgress {
        let vertices = vec![weir_protocol::VertexCounts { rows_in: rows, ..Default::default() }; 8];
        let pauses = (0..64).map(|bucket| (1 << bucket, rows)).collect();
        let (watermark, busy_ns, backpressured_ns, pause_max_ns, finished) = (0, rows, rows, rows, false);
        TaskProgress { task: TaskId(number), watermark, busy_ns, backpressured_ns, pauses, pause_max_ns, vertices, finished }
    }

    /// What a coordinator makes of messages.
    fn merged(messages: &[Vec<u8>]) -> BTreeMap<Execution, WorkerProgress> {
        let mut merged: BTreeMap<Execution, WorkerProgress> = BTreeMap::new();
        for message in messages {
            let Ok(decoded) = decode::<Report>(message) else { panic!("a heartbeat that is none") };
            let Report::Heartbeat { progress } = decoded.message else { panic!("{:?}", decoded.message) };
            progress.into_iter().for_each(|(execution, progress)| merged.entry(execution).or_default().merge(progress));
        }
        merged
    }

    /// The most one execution may have: 1,024 tasks, and all names that are kept.
    fn most() -> WorkerProgress {
        let names = limits::METRIC_BYTES_MAX / limits::METRIC_NAME_BYTES_MAX;
        // Quotes are escaped.
        let name = |number: usize| format!("{number}{}", "\"".repeat(limits::METRIC_NAME_BYTES_MAX - 6));
        WorkerProgress {
            tasks: (0..limits::PARALLELISM_MAX).map(|number| task(number, 7)).collect(),
            counters: (0..names / 2).map(|number| (name(number), u64::MAX)).collect(),
            gauges: (names / 2..names).map(|number| (name(number), f64::INFINITY)).collect(),
            sent_bytes: 5,
            received_bytes: 6,
            ..WorkerProgress::default()
        }
    }

    #[test]
    fn s91_the_largest_heartbeat_is_sent_in_parts_that_fit_and_say_everything() {
        let progress: Progress = vec![(execution("a"), most()), (execution("b"), WorkerProgress::default())];
        let messages = Beats::default().next(progress.clone());
        assert!(messages.iter().all(|message| message.len() <= HEARTBEAT_BYTES_MAX), "{:?}", messages.len());
        assert_eq!(merged(&messages), progress.into_iter().collect());
    }

    #[test]
    fn s91_what_has_not_changed_is_not_said_again_but_now_and_then() {
        let mut beats = Beats::default();
        let mut progress = WorkerProgress { tasks: (0..9).map(|number| task(number, 7)).collect(), ..WorkerProgress::default() };
        progress.counters = (0..99).map(|number| (format!("op.counter{number}"), 1)).collect();
        let mut next = |progress: &WorkerProgress| {
            let messages = beats.next(vec![(execution("a"), progress.clone())]);
            assert_eq!(messages.len(), 1);
            messages[0].len()
        };
        let whole = next(&progress);
        assert!(whole > 9 * 64 * 8, "{whole}");
        let nothing = next(&progress);
        assert!(nothing < 200, "{nothing}");
        progress.counters.insert("op.counter5".to_owned(), 2);
        progress.gauges.insert("op.none".to_owned(), f64::NAN);
        let changed = next(&progress);
        assert!(changed > nothing && changed < nothing + 50, "{changed}");
        assert_eq!(next(&progress), nothing, "a gauge that is no number is said once");
        for _ in 4..BEATS_UNTIL_WHOLE {
            assert_eq!(next(&progress), nothing);
        }
        assert!(next(&progress) > whole, "everything is said again");
    }

    #[test]
    fn an_execution_that_is_gone_is_forgotten_and_a_heartbeat_without_any_is_still_sent() {
        let mut beats = Beats::default();
        beats.next(vec![(execution("a"), WorkerProgress::default())]);
        assert_eq!(beats.next(Vec::new()).len(), 1);
        assert!(beats.said.is_empty());
    }
}
