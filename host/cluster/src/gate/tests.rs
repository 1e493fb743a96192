//! s133: what a worker may say, with every number that can be wrong.

use serde_json::json;
use weir_model::Attempt;
use weir_protocol::{FailureKind, SourceAcknowledgement, VertexCounts};

use super::*;
use crate::fuzz::{self, good, keyed, segment};

fn failure(kind: FailureKind) -> Failure {
    Failure { kind, uid: None, reason: "so it says".to_owned() }
}

/// Everything else that a worker can say of a task and a checkpoint.
fn about(execution: &Execution, task: TaskId, checkpoint: CheckpointId) -> Vec<Report> {
    let (execution, reason) = (execution.clone(), "so it says".to_owned());
    vec![
        Report::PersistFailed { execution: execution.clone(), task, checkpoint, reason: reason.clone() },
        Report::Declined { execution: execution.clone(), task, checkpoint, subsumed_by: None, reason },
        Report::TaskRestored { execution: execution.clone(), task },
        Report::Finished { execution: execution.clone(), task },
        Report::Committed { execution, task, checkpoint },
    ]
}

#[test]
fn s133_every_number_of_an_acknowledgement_is_checked() {
    let say = |gate: &mut Gate, execution: &Execution, said: Acknowledgement| {
        gate.check("a", &mut Report::Acknowledged { execution: execution.clone(), acknowledgement: Box::new(said) })
    };
    let (mut gate, execution) = keyed();
    assert_eq!(say(&mut gate, &execution, good()), Ok(()));
    assert!(say(&mut gate, &execution, good()).is_err(), "once is enough");
    let mut rescaled = good();
    // It was in flight when there were more subtasks, and is so again.
    (rescaled.in_flight[0].sender, rescaled.checkpoint, rescaled.file) = (7, CheckpointId(5), None);
    assert_eq!(say(&mut gate, &execution, rescaled), Ok(()));
    type Edit = fn(&mut Acknowledgement);
    let edits: [(&str, Edit); 21] = [
        ("another's task", |said| said.task = TaskId(3)),
        ("no task", |said| said.task = TaskId(u32::MAX)),
        ("a checkpoint that has not begun", |said| said.checkpoint = CheckpointId(7)),
        ("no operator of the task", |said| said.instances[0].uid = "in".to_owned()),
        ("another's key group", |said| said.instances[0].name = "g127".to_owned()),
        ("no key group", |said| said.instances[0].name = "g40000".to_owned()),
        ("another's instance", |said| said.instances[0].name = "s1".to_owned()),
        ("an instance twice", |said| said.instances.push(said.instances[0].clone())),
        ("no sink", |said| said.sinks[0].uid = "op".to_owned()),
        ("a sink twice", |said| said.sinks.push(said.sinks[0].clone())),
        ("a source that is none", |said| {
            said.source = Some(SourceAcknowledgement { splits: [("x".to_owned(), json!(1))].into(), event_time_max: 0 });
        }),
        ("channels that are not", |said| said.watermarks = vec![0; 3]),
        ("an edge that is not", |said| said.in_flight[0].from = "out".to_owned()),
        ("another exchange", |said| said.in_flight[0].exchange = "rebalance".to_owned()),
        ("no exchange", |said| said.in_flight[0].exchange = String::new()),
        ("a sender that no job has", |said| said.in_flight[0].sender = u32::MAX),
        ("more rows than can be", |said| said.in_flight[0].rows = u64::MAX),
        ("another task's file", |said| said.file.as_mut().unwrap().name = "3-6-3-0".to_owned()),
        ("a way out", |said| said.file.as_mut().unwrap().name = "3-6-2-../../x".to_owned()),
        ("a size that cannot be", |said| said.file.as_mut().unwrap().bytes = u64::MAX),
        ("a sum that overflows", |said| said.captured_bytes = u64::MAX / 2),
    ];
    for (what, edit) in edits {
        let (mut gate, execution) = keyed();
        let mut said = good();
        edit(&mut said);
        assert!(matches!(say(&mut gate, &execution, said), Err(Objection::Foreign(_))), "{what}");
    }
}

#[test]
fn s133_counts_and_texts_are_cut_to_what_can_be() {
    let (mut gate, execution) = keyed();
    let task = |task: u32| TaskProgress {
        task: TaskId(task),
        watermark: 5,
        busy_ns: u64::MAX,
        backpressured_ns: 0,
        pauses: vec![(1, u64::MAX); 5_000],
        pause_max_ns: 0,
        vertices: vec![VertexCounts { rows_in: u64::MAX, rows_out: 0, rows_rejected: 0 }; if task % 4 < 2 { 1 } else { 2 }],
        finished: false,
    };
    let mut progress = WorkerProgress {
        tasks: vec![task(0), task(0), task(1), task(2), task(u32::MAX)],
        counters: [("op.n".to_owned(), u64::MAX), ("nobody.n".to_owned(), 1), ("n".to_owned(), 1)].into(),
        sent_bytes: u64::MAX,
        ..WorkerProgress::default()
    };
    assert_eq!(gate.check_progress("a", &execution, &mut progress), Ok(()));
    assert_eq!(progress.tasks.iter().map(|task| task.task.0).collect::<Vec<_>>(), [0, 2], "its own, once");
    assert_eq!(progress.counters.len(), 1);
    for beat in 0..10 {
        let counters = (0..500).map(|name| (format!("op.{beat}-{name}"), 1)).collect();
        let mut more = WorkerProgress { counters, ..WorkerProgress::default() };
        assert_eq!(gate.check_progress("a", &execution, &mut more), Ok(()));
        assert!(beat < 3 || more.counters.is_empty(), "names are bounded over all heartbeats");
    }
    let sum = 4u64.checked_mul(progress.tasks[0].vertices[0].rows_in.max(progress.sent_bytes));
    assert!(sum.is_some() && progress.tasks[0].pauses.len() <= 1_024, "all workers together do not overflow");
    assert!(gate.check_progress("nobody", &execution, &mut progress).is_err());

    let reason = "é".repeat(1 << 20);
    let mut report = Report::Failed {
        execution: execution.clone(),
        failure: Failure { kind: FailureKind::Permanent, uid: Some("nobody".to_owned()), reason },
    };
    assert_eq!(gate.check("a", &mut report), Ok(()));
    let Report::Failed { failure, .. } = report else { unreachable!() };
    assert!(failure.reason.len() < 17 << 10 && failure.reason.ends_with("(cut)") && failure.uid.is_none());
    let over = Execution { attempt: Attempt(2), ..execution };
    assert_eq!(gate.check("a", &mut Report::Built { execution: over }), Err(Objection::Over), "no worker's fault");
    assert!(gate.needs("b", Digest([7; 32])) && !gate.needs("b", Digest([8; 32])) && !gate.needs("c", Digest([7; 32])));
}

#[test]
fn s133_whatever_can_be_read_as_a_report_is_handled_and_what_passes_makes_a_manifest() {
    let execution = keyed().1;
    let mut said = about(&execution, TaskId(2), CheckpointId(6));
    said.push(Report::Failed { execution: execution.clone(), failure: failure(FailureKind::Damaged) });
    said.push(Report::Opened { execution: execution.clone(), templates: vec![("op".to_owned(), segment())] });
    said.push(Report::Acknowledged { execution, acknowledgement: Box::new(good()) });
    // Others, and changed ones, are tried in `fuzz/`.
    let outcomes: Vec<String> = said.iter().map(|report| fuzz::report(&serde_json::to_vec(report).unwrap())).collect();
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "heard").count(), 7, "{outcomes:?}");
    assert_eq!(outcomes.last().unwrap(), "a manifest", "{outcomes:?}");
}
