//! Reports as messages of the size that a connection takes.
//!
//! A message that is too large fails its connection, and the next one would meet the same. So a report that does not fit is replaced
//! by one that says so. Owns what is said instead; sends nothing.

use weir_model::limits::{CONTROL_MESSAGE_BYTES_MAX, REASON_BYTES_MAX};
use weir_protocol::{Acknowledgement, Failure, FailureKind, Register, Report, encode};

/// A report as a message of at most [`CONTROL_MESSAGE_BYTES_MAX`] bytes.
pub(super) fn fitting(report: Report) -> Vec<u8> {
    let message = encode(&report, &[]);
    let bytes = message.len();
    if bytes <= CONTROL_MESSAGE_BYTES_MAX {
        return message;
    }
    let Some(execution) = report.execution().cloned() else { return message };
    tracing::error!(%execution, bytes, "a report is too large to be told");
    let instead = match report {
        // What heartbeats have said stays.
        Report::Ended { execution, .. } => Report::Ended { execution, progress: Box::default() },
        Report::Acknowledged { execution, acknowledgement } => {
            let (task, checkpoint, reason) =
                (acknowledgement.task, acknowledgement.checkpoint, too_much(&acknowledgement, bytes));
            Report::PersistFailed { execution, task, checkpoint, reason }
        }
        Report::Failed { execution, mut failure } => {
            failure.reason.truncate(failure.reason.floor_char_boundary(REASON_BYTES_MAX));
            Report::Failed { execution, failure }
        }
        _ => Report::Failed {
            execution,
            failure: Failure {
                kind: FailureKind::Permanent,
                uid: None,
                reason: format!(
                    "a worker's answer takes {bytes} bytes, and a message may have {CONTROL_MESSAGE_BYTES_MAX}; give the job fewer sources \
                     and operators, or divide it into several jobs"
                ),
            },
        },
    };
    encode(&instead, &[])
}

/// A registration as a message of at most [`CONTROL_MESSAGE_BYTES_MAX`] bytes. What does not fit is left out, the largest first: the
/// coordinator takes it for gone and has it ended, and begins it anew.
pub(super) fn fitting_registration(mut register: Register) -> Vec<u8> {
    for failure in register.running.iter_mut().filter_map(|running| running.failure.as_mut()) {
        failure.reason.truncate(failure.reason.floor_char_boundary(REASON_BYTES_MAX));
    }
    register.running.sort_by_cached_key(|running| encode(running, &[]).len());
    loop {
        let report = Report::Register(register);
        let message = encode(&report, &[]);
        let Report::Register(again) = report else { unreachable!("it was made above") };
        register = again;
        if message.len() <= CONTROL_MESSAGE_BYTES_MAX {
            return message;
        }
        let Some(left_out) = register.running.pop() else { return message };
        let (execution, tasks) = (left_out.execution, left_out.tasks.len());
        tracing::error!(%execution, tasks, "a registration would be too large: an execution is left out, and ends");
    }
}

/// Why a snapshot cannot be told, and what to do about it.
fn too_much(acknowledgement: &Acknowledgement, bytes: usize) -> String {
    let inputs = acknowledgement.source.as_ref().map_or(0, |source| source.splits.len());
    let outputs: usize = acknowledgement.sinks.iter().map(|sink| sink.committables.len()).sum();
    let instances = acknowledgement.instances.len();
    let in_flight = acknowledgement.in_flight.len();
    let size_bytes_of_outputs = encode(&acknowledgement.sinks, &[]).len();
    let advice = if size_bytes_of_outputs > bytes / 2 {
        "outputs of a sink whose commits do not end pile up: see to what it writes to (a mount or a store that hangs)"
    } else {
        "raise `parallelism`, so that each task has fewer of them, or let a source read fewer files (move those that are read out of its path)"
    };
    format!(
        "what it has to tell of it takes {bytes} bytes, and a message may have {CONTROL_MESSAGE_BYTES_MAX}: positions in {inputs} inputs, \
         {outputs} outputs to commit, {instances} instances, rows in flight from {in_flight} channels; {advice}"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;
    use weir_model::{Attempt, CheckpointId, TaskId};
    use weir_protocol::{Execution, Looked, Running, SinkAcknowledgement, SourceAcknowledgement, decode};
    use weir_storage::Committable;

    use super::*;

    fn execution() -> Execution {
        Execution { job: "j".to_owned(), attempt: Attempt(3) }
    }

    fn acknowledged(files: usize) -> Report {
        let position = json!({"offset": 7, "head": "x".repeat(64)});
        let splits = (0..files).map(|file| (format!("/logs/{}/{file}.log", "f".repeat(64)), position.clone())).collect();
        Report::Acknowledged {
            execution: execution(),
            acknowledgement: Box::new(Acknowledgement {
                task: TaskId(4),
                checkpoint: CheckpointId(5),
                finished: false,
                watermarks: Vec::new(),
                source: Some(SourceAcknowledgement { splits, event_time_max: 0 }),
                instances: Vec::new(),
                sinks: Vec::new(),
                in_flight: Vec::new(),
                file: None,
                captured_bytes: 0,
                merged_bytes: 0,
                in_flight_bytes: 0,
            }),
        }
    }

    fn said(report: Report) -> Report {
        let message = fitting(report);
        assert!(message.len() <= CONTROL_MESSAGE_BYTES_MAX, "{}", message.len());
        decode::<Report>(&message).unwrap().message
    }

    #[test]
    fn a_snapshot_that_no_message_can_tell_of_fails_its_checkpoint_with_what_to_do() {
        let small = acknowledged(1_000);
        assert_eq!(said(small.clone()), small);
        let Report::PersistFailed { execution: of, task, checkpoint, reason } = said(acknowledged(100_000)) else { panic!() };
        assert_eq!((of, task, checkpoint), (execution(), TaskId(4), CheckpointId(5)));
        for part in ["may have 16777216", "positions in 100000 inputs", "raise `parallelism`"] {
            assert!(reason.contains(part), "{reason}");
        }
        assert!(reason.len() < REASON_BYTES_MAX, "{}", reason.len());
    }

    #[test]
    fn outputs_that_pile_up_because_no_commit_ends_are_told_from_too_many_inputs() {
        let Report::Acknowledged { execution, mut acknowledgement } = acknowledged(10) else { panic!() };
        let committable = |checkpoint| Committable { checkpoint, value: json!({"path": "x".repeat(200)}) };
        let committables = (0..100_000).map(committable).collect();
        acknowledgement.sinks.push(SinkAcknowledgement { uid: "out".to_owned(), committables });
        let Report::PersistFailed { reason, .. } = said(Report::Acknowledged { execution, acknowledgement }) else { panic!() };
        assert!(reason.contains("100000 outputs to commit") && reason.contains("see to what it writes to"), "{reason}");
        assert!(!reason.contains("parallelism"), "{reason}");
    }

    #[test]
    fn whatever_else_is_too_large_fails_the_execution_instead_of_the_connection() {
        let long = "x".repeat(CONTROL_MESSAGE_BYTES_MAX);
        let looked = Looked { uid: "in".to_owned(), more: true, what: long.clone() };
        let Report::Failed { failure, .. } = said(Report::Looked { execution: execution(), sources: vec![looked] }) else {
            panic!()
        };
        assert!(failure.kind == FailureKind::Permanent && failure.reason.contains("may have 16777216"), "{failure:?}");
        let failed = Failure { kind: FailureKind::Transient, uid: None, reason: long };
        let Report::Failed { failure, .. } = said(Report::Failed { execution: execution(), failure: failed }) else { panic!() };
        assert_eq!((failure.kind, failure.reason.len()), (FailureKind::Transient, REASON_BYTES_MAX));
    }

    #[test]
    fn a_registration_that_is_too_large_leaves_out_what_is_largest_and_is_sent() {
        let running = |job: &str, tasks: u32| Running {
            execution: Execution { job: job.to_owned(), attempt: Attempt(3) },
            tasks: (0..tasks).map(TaskId).collect(),
            started: true,
            restored: Vec::new(),
            finished: Vec::new(),
            committed: Vec::new(),
            last_checkpoint: CheckpointId(1),
            failure: None,
        };
        let register = Register {
            version: "0".to_owned(),
            slots: 1,
            data_address: "a:1".to_owned(),
            clock_ms: 1,
            led_by: None,
            running: vec![running("large", 3_000_000), running("small", 3), running("medium", 3_000)],
        };
        let message = fitting_registration(register);
        assert!(message.len() <= CONTROL_MESSAGE_BYTES_MAX);
        let Report::Register(said) = decode::<Report>(&message).unwrap().message else { panic!() };
        let jobs: Vec<_> = said.running.iter().map(|running| running.execution.job.as_str()).collect();
        assert_eq!(jobs, ["small", "medium"]);
    }
}
