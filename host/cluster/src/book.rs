//! What is known of one job: as it is on disk, and as its master said last. Pure data, and the rules by which an event becomes part of it.

use weir_master::{Notice, Progress, Shortage};
use weir_protocol::api::{CheckpointStatus, JobEvent};

use crate::chronicle::{self, Entry};
use crate::counts;
use crate::record::{Counts, JobRecord};

/// A job's page.
pub(crate) struct Book {
    /// As it is on disk, or is going to be as soon as the disk takes it again.
    pub(crate) record: JobRecord,
    /// How far it is, as its master said last; where it is over, how far it was.
    pub(crate) counts: Option<Counts>,
    /// Rows read per second, as its master said last.
    pub(crate) rows_per_second: f64,
    /// The checkpoint completed last.
    pub(crate) checkpoint: Option<CheckpointStatus>,
    /// Set until the first checkpoint of an attempt was told.
    checkpoint_is_news: bool,
    /// The shortage that was told last.
    shortage: Option<Shortage>,
}

impl Book {
    pub(crate) fn new(record: JobRecord) -> Book {
        Book {
            counts: record.counts.clone(),
            rows_per_second: 0.0,
            checkpoint: record.checkpoint.clone(),
            record,
            checkpoint_is_news: true,
            shortage: None,
        }
    }

    /// Its master says how far it is.
    pub(crate) fn hear(&mut self, progress: &Progress) {
        let mut counts = counts::counts(progress);
        counts.vertices.iter_mut().for_each(|vertex| vertex.oddities.edit_examples(|text| self.record.spec.covered(text)));
        (self.counts, self.rows_per_second) = (Some(counts), progress.rows_per_second);
    }

    /// An execution begins, and is on disk.
    pub(crate) fn begins(&mut self) {
        (self.checkpoint_is_news, self.shortage, self.counts) = (true, None, None);
    }

    /// Its master says something. What is to be written of that.
    pub(crate) fn notice(&mut self, notice: &Notice, wall_ms: u64) -> Option<Entry> {
        let mut entry = chronicle::of_notice(notice);
        match notice {
            Notice::Progress(progress) => self.hear(progress),
            Notice::Completed { checkpoint, duration, bytes, in_flight_bytes, unaligned } => {
                self.checkpoint = Some(CheckpointStatus {
                    id: *checkpoint,
                    duration_ms: duration.as_millis() as u64,
                    bytes: *bytes,
                    in_flight_bytes: *in_flight_bytes,
                    unaligned: *unaligned,
                    completed_at_ms: wall_ms,
                });
                if std::mem::take(&mut self.checkpoint_is_news) {
                    entry = chronicle::first_checkpoint(notice);
                }
            }
            Notice::Waiting(shortage) => {
                let told = self.shortage.replace(*shortage);
                // How many wait before it changes often, and is shown; an event of each change would be one of each job that waits.
                if told.is_some_and(|told| (told.needed, told.workers) == (shortage.needed, shortage.workers))
                    && let Some((_, reason)) = entry.take().and_then(|entry| entry.state)
                {
                    self.record.reason = reason;
                }
            }
            _ => {}
        }
        entry
    }
}

/// Puts what happened into a record; gives the event, if it is one. Values of variables are covered in both.
pub(crate) fn happen(record: &mut JobRecord, entry: Entry, now_ms: u64) -> Option<JobEvent> {
    if let Some((state, reason)) = entry.state {
        if record.state != state {
            record.since_ms = now_ms;
        }
        (record.state, record.reason) = (state, reason.map(|reason| record.spec.covered(&reason)));
    }
    let (level, kind, message) = entry.event?;
    let message = record.spec.covered(&message);
    record.last_event += 1;
    Some(JobEvent { number: record.last_event, at_ms: now_ms, level, kind: kind.to_owned(), message, by: entry.by })
}

#[cfg(test)]
mod tests {
    use weir_model::{OddExample, OddKind, Oddities};
    use weir_protocol::api::{EventLevel, JobState};

    use super::*;

    #[test]
    fn s138_events_reasons_and_examples_name_a_variable_in_place_of_its_value() {
        let record = serde_json::json!({
            "spec": {
                "file": "j.toml", "text": "", "overrides": [], "environment": { "PASSWORD": "hunter2" }, "job_dir": "/", "dead_letters": "/",
                "components": {},
            },
            "fresh": false, "allow_dropped_state": false, "desired": "run", "rescale": null, "state": "running", "reason": null, "slots": 1,
            "attempt": 1, "attempts": 1, "submitted_at_ms": 1, "since_ms": 1, "last_event": 0,
        });
        let mut record: JobRecord = serde_json::from_value(record).unwrap();
        let why = "cannot open /d/hunter2".to_owned();
        let event = (EventLevel::Error, crate::kinds::FAILED, why.clone());
        let entry = Entry { state: Some((JobState::Failed, Some(why))), event: Some(event), by: None };
        let event = happen(&mut record, entry, 2).unwrap();
        assert_eq!(
            (event.message.as_str(), record.reason.as_deref()),
            ("cannot open /d/${PASSWORD}", Some("cannot open /d/${PASSWORD}"))
        );

        let mut oddities = Oddities::new();
        oddities.add(OddKind::Rejected, || OddExample::new(b"{}", "no field hunter2"));
        oddities.edit_examples(|text| record.spec.covered(text));
        let first = oddities.get(OddKind::Rejected).unwrap().first.clone().unwrap();
        assert_eq!((first.value.as_str(), first.reason.as_str()), ("{}", "no field ${PASSWORD}"));
    }
}
