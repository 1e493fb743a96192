//! What a job's master says, put into a state and an event for people. Pure.

use std::time::Duration;

use weir_model::{Attempt, Timestamp};
use weir_plan::format_duration;
use weir_protocol::access::Person;
use weir_protocol::api::EventLevel::{self, Error, Info, Warning};
use weir_protocol::api::JobState;

use weir_master::{JobError, Notice, Outcome, RestoreProgress, Shortage};

use crate::kinds;

/// What follows from a notice for those who watch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// The new state with its reason; `None` where it stays.
    pub(crate) state: Option<(JobState, Option<String>)>,
    /// Level, kind, message; `None` where another event says it.
    pub(crate) event: Option<(EventLevel, &'static str, String)>,
    /// Who asked for it, if anybody did.
    pub(crate) by: Option<Person>,
}

fn entry(state: impl Into<Option<JobState>>, level: EventLevel, kind: &'static str, message: String) -> Entry {
    Entry { state: state.into().map(|state| (state, None)), event: Some((level, kind, message)), by: None }
}

impl Entry {
    /// An event that changes no state.
    pub(crate) fn event(level: EventLevel, kind: &'static str, message: String) -> Entry {
        entry(None, level, kind, message)
    }

    /// Somebody asked for it.
    pub(crate) fn by(self, person: &Person) -> Entry {
        Entry { by: Some(person.clone()), ..self }
    }

    /// The event's message is also the reason of the state.
    fn with_reason(mut self) -> Entry {
        if let (Some((_, reason)), Some((_, _, message))) = (&mut self.state, &self.event) {
            *reason = Some(message.clone());
        }
        self
    }
}

/// In words.
pub(crate) fn shortage(shortage: &Shortage) -> String {
    let Shortage { needed, free, ahead, workers } = shortage;
    let slots = |count: u32| if count == 1 { "1 slot".to_owned() } else { format!("{count} slots") };
    let there = match workers {
        0 => "no worker is connected".to_owned(),
        1 => format!("the 1 worker that is connected has {} free", slots(*free)),
        _ => format!("the {workers} workers that are connected have {} free", slots(*free)),
    };
    let turn = match ahead {
        0 => String::new(),
        _ => format!(" after jobs that were submitted before it and wait for {}", slots(*ahead)),
    };
    format!(
        "it needs {}{turn}, and {there}; start `weir worker` with {} more, or end another job",
        slots(*needed),
        slots((needed + ahead).saturating_sub(*free))
    )
}

/// What follows from a notice; nothing from those that come all the time.
pub(crate) fn of_notice(notice: &Notice) -> Option<Entry> {
    Some(match notice {
        Notice::Progress(_) | Notice::Completed { .. } => return None,
        Notice::Waiting(missing) => {
            entry(JobState::Waiting, Warning, kinds::WAITING, format!("too few slots: {}", shortage(missing))).with_reason()
        }
        Notice::Deploying { attempt: Attempt(0), workers } => {
            let message = format!("operators are opened on {}, to see whether they can be", workers.join(", "));
            entry(JobState::Deploying, Info, kinds::DEPLOYING, message)
        }
        Notice::Deploying { attempt, workers } => {
            let message = format!("attempt {attempt}: tasks are being built on {}", workers.join(", "));
            entry(JobState::Deploying, Info, kinds::DEPLOYING, message)
        }
        Notice::Started { attempt, from } => {
            let from = from.map_or("the beginning".to_owned(), |checkpoint| format!("checkpoint {checkpoint}"));
            entry(JobState::Running, Info, kinds::RUNNING, format!("attempt {attempt} runs from {from}"))
        }
        Notice::WaitsForRestore { what, checkpoint, restore: RestoreProgress { restored_bytes, bytes } } => {
            let message = format!(
                "{what} waits until checkpoint {checkpoint} is restored ({restored_bytes} of {bytes} bytes so far); the job runs meanwhile"
            );
            entry(None, Info, kinds::RESTORING, message)
        }
        Notice::Restored { checkpoint } => {
            entry(None, Info, kinds::RESTORED, format!("all state of checkpoint {checkpoint} is with its tasks"))
        }
        Notice::MoreInput { checkpoint, found, event_time_max } => {
            let from = event_time_max.map(|time| format!("; event time goes on from {}", moment(time))).unwrap_or_default();
            let message =
                format!("it had finished with checkpoint {checkpoint}, and there is more to read: {}{from}", listed(found));
            entry(None, Info, kinds::MORE_INPUT, message)
        }
        Notice::TakenOver { attempt } => {
            let message = format!("attempt {attempt} goes on under the new coordinator; no task was restarted");
            entry(JobState::Running, Info, kinds::TAKEN_OVER, message)
        }
        Notice::FellBack { checkpoint, reason } => {
            let message = format!("checkpoint {checkpoint} could not be restored, an older one is tried: {reason}");
            entry(None, Warning, kinds::FELL_BACK, message)
        }
        Notice::CheckpointFailed { checkpoint, reason } => {
            entry(None, Warning, kinds::CHECKPOINT_FAILED, format!("checkpoint {checkpoint} failed: {reason}"))
        }
        Notice::WorkerLost { worker, reason } => {
            entry(None, Warning, kinds::WORKER_LOST, format!("worker {worker} is lost: {reason}"))
        }
        Notice::Ending { restarts, reason } => {
            let state = if *restarts { JobState::Restarting } else { JobState::Stopping };
            let reason = reason.as_ref().map(|reason| format!("{reason}; its tasks are being ended"));
            Entry { state: Some((state, reason)), event: None, by: None }
        }
        Notice::SlowStep { workers, step, waited } => {
            let message = format!("worker {} {step} (waited for {} s)", workers.join(", "), waited.as_secs());
            entry(None, Warning, kinds::SLOW_STEP, message)
        }
        Notice::SlowEnd { workers, waited, patience } => {
            entry(None, Warning, kinds::SLOW_END, slow_end(workers, *waited, *patience))
        }
        Notice::SlowStorage { what, place, waited } => {
            let message = format!("{place} has not answered for {} s: {what}", waited.as_secs());
            entry(None, Warning, kinds::SLOW_STORAGE, message)
        }
        Notice::SlowCommit { sinks, workers, waited } => {
            let (sinks, workers, waited) = (sinks.join(", "), workers.join(", "), waited.as_secs());
            let message = format!(
                "sink {sinks} on worker {workers} has not committed its output for {waited} s; what it writes to may be a mount or a store that hangs"
            );
            entry(None, Warning, kinds::SLOW_COMMIT, message)
        }
        Notice::NotRecorded { reason } => {
            let message = format!("the coordinator cannot record the execution, which begins once it can: {reason}");
            entry(None, Warning, kinds::NOT_RECORDED, message)
        }
        Notice::Restarting { reason, delay } => {
            let after = if delay.is_zero() { "at once".to_owned() } else { format!("after {}", format_duration(*delay)) };
            let message = format!("{reason}; it starts again {after}");
            entry(JobState::Restarting, Warning, kinds::RESTARTING, message).with_reason()
        }
        Notice::Rescaling { from, to } => {
            let message = format!("it goes on with parallelism {to} instead of {from}, from its last checkpoint");
            entry(None, Info, kinds::RESCALING, message)
        }
        Notice::RescaleRefused { reason, .. } => {
            let message = format!("the parallelism cannot be changed, the job goes on as it was: {reason}");
            entry(None, Warning, kinds::RESCALE_REFUSED, message)
        }
        Notice::OddRows { message } => entry(None, Warning, kinds::ODD_ROWS, message.clone()),
        Notice::Stopping => {
            let message = "its sources have stopped; the last checkpoint is being taken".to_owned();
            entry(JobState::Stopping, Info, kinds::STOPPING, message)
        }
    })
}

/// What sources say, as a list.
fn listed(said: &[(String, String)]) -> String {
    said.iter().map(|(uid, what)| format!("{uid}: {what}")).collect::<Vec<_>>().join("; ")
}

/// Event time for people.
fn moment(time: Timestamp) -> String {
    let mut text = Vec::new();
    weir_notation::time::write_rfc3339(time, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// In words.
fn slow_end(workers: &[String], waited: Duration, patience: Duration) -> String {
    let who = match workers {
        [worker] => format!("worker {worker} has"),
        _ => format!("workers {} have", workers.join(", ")),
    };
    let patience = patience.as_secs();
    if waited.as_secs() < patience {
        return format!(
            "{who} not ended the tasks of this job yet: a call of an operator takes long, or a sink stands still in a write; they are \
             waited for {patience} s in all"
        );
    }
    format!(
        "{who} not ended the tasks of this job within {patience} s, and nobody waits for them any longer; what they still do does \
         not count, but they keep their memory until they end, or the worker is started again"
    )
}

/// A size for people, to three digits or so.
fn size(bytes: u64) -> String {
    let in_units = |factor: u64| bytes as f64 / factor as f64;
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", in_units(1 << 10)),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", in_units(1 << 20)),
        _ => format!("{:.1} GiB", in_units(1 << 30)),
    }
}

/// What follows from the first completed checkpoint of an attempt.
pub(crate) fn first_checkpoint(notice: &Notice) -> Option<Entry> {
    let Notice::Completed { checkpoint, duration, bytes, .. } = notice else { return None };
    let message = format!(
        "checkpoint {checkpoint} is complete after {} ms, with {}; later ones are not listed here",
        duration.as_millis(),
        size(*bytes)
    );
    Some(entry(None, Info, kinds::CHECKPOINT, message))
}

/// What follows from the end of a job's master; nothing where only this process ends.
pub(crate) fn of_end(end: &Result<Outcome, JobError>) -> Option<Entry> {
    Some(match end {
        Ok(Outcome::Left) => return None,
        Ok(Outcome::Finished(_)) => {
            entry(JobState::Finished, Info, kinds::FINISHED, "all input is processed and committed".to_owned())
        }
        Ok(Outcome::AlreadyFinished { checkpoint, looked_at, .. }) => {
            let message = format!(
                "all input was processed with checkpoint {checkpoint} already, and there is nothing more to read ({}); submit it with \
                 other input, or start over with --fresh",
                listed(looked_at)
            );
            entry(JobState::Finished, Info, kinds::FINISHED, message).with_reason()
        }
        Ok(Outcome::Stopped(_)) => {
            let message = "it has stopped with a last checkpoint; submit it again to go on from there".to_owned();
            entry(JobState::Stopped, Info, kinds::STOPPED, message)
        }
        Ok(Outcome::StoppedBetween { failure: None, .. }) => {
            let message = "it was asked to stop while it was not running, so no last checkpoint was taken; submit it again to go \
                           on from the one before";
            entry(JobState::Stopped, Info, kinds::STOPPED, message.to_owned())
        }
        Ok(Outcome::StoppedBetween { failure: Some(reason), .. }) => {
            let message = format!(
                "it has stopped without a last checkpoint, since it failed before that was complete: {reason}; submit it again to \
                 go on from the checkpoint before"
            );
            entry(JobState::Stopped, Warning, kinds::STOPPED, message).with_reason()
        }
        Ok(Outcome::Cancelled) => cancelled(),
        Err(error) => entry(JobState::Failed, Error, kinds::FAILED, error.to_string()).with_reason(),
    })
}

/// A job ends without a last checkpoint.
pub(crate) fn cancelled() -> Entry {
    let message = "it was ended without a last checkpoint; submitted again, it goes on from the one before".to_owned();
    entry(JobState::Cancelled, Info, kinds::CANCELLED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_names_all_numbers_and_what_to_do() {
        let text = |needed, free, ahead, workers| shortage(&Shortage { needed, free, ahead, workers });
        assert_eq!(
            text(4, 1, 0, 2),
            "it needs 4 slots, and the 2 workers that are connected have 1 slot free; start `weir worker` with 3 slots more, or \
             end another job"
        );
        assert!(text(1, 0, 0, 0).contains("it needs 1 slot, and no worker is connected"));
        assert_eq!(
            text(1, 2, 3, 1),
            "it needs 1 slot after jobs that were submitted before it and wait for 3 slots, and the 1 worker that is connected has 2 \
             slots free; start `weir worker` with 2 slots more, or end another job"
        );
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!([0, 1_023, 323_556, 5 << 20, 3 << 30].map(size), ["0 B", "1023 B", "316.0 KiB", "5.0 MiB", "3.0 GiB"]);
    }

    #[test]
    fn a_slow_end_names_who_is_slow_and_what_follows() {
        let text = |workers: &[&str], waited| {
            let workers: Vec<String> = workers.iter().map(|worker| (*worker).to_owned()).collect();
            slow_end(&workers, Duration::from_millis(waited), Duration::from_secs(3))
        };
        let first = text(&["a"], 1_001);
        assert!(first.starts_with("worker a has not ended") && first.ends_with("they are waited for 3 s in all"), "{first}");
        let last = text(&["a", "b"], 3_000);
        assert!(last.starts_with("workers a, b have not ended the tasks of this job within 3 s, and nobody waits"), "{last}");
    }

    #[test]
    fn the_reason_of_a_state_is_what_the_event_says() {
        let reason = "source a failed".to_owned();
        let entry = of_notice(&Notice::Restarting { reason, delay: std::time::Duration::from_millis(200) }).unwrap();
        let message = entry.event.unwrap().2;
        assert_eq!(message, "source a failed; it starts again after 200ms");
        assert_eq!(entry.state, Some((JobState::Restarting, Some(message))));
        assert_eq!(of_end(&Ok(Outcome::Left)), None);
    }
}
