//! s133: a worker that has gone bad fails its own tasks, and nothing else.

use weir_model::{CheckpointId, TaskId};
use weir_protocol::api::{ClusterApi, JobState};
use weir_protocol::{Command, Execution, Failure, FailureKind, Report};

use super::fakes::{
    FakeWorker, World, acknowledged, by, job, kinds, one_with_a_job, two_with_a_job, until, value_of, wait_event, wait_state,
};

fn failure(kind: FailureKind) -> Failure {
    Failure { kind, uid: None, reason: "so it says".to_owned() }
}

/// Everything that a worker can say of a task and a checkpoint.
fn about(execution: &Execution, task: TaskId, checkpoint: CheckpointId) -> Vec<Report> {
    let (execution, reason) = (execution.clone(), "so it says".to_owned());
    vec![
        acknowledged(&execution, task, checkpoint),
        Report::PersistFailed { execution: execution.clone(), task, checkpoint, reason: reason.clone() },
        Report::Declined { execution: execution.clone(), task, checkpoint, subsumed_by: None, reason },
        Report::TaskRestored { execution: execution.clone(), task },
        Report::Finished { execution: execution.clone(), task },
        Report::Committed { execution, task, checkpoint },
    ]
}

#[test]
fn s133_a_worker_is_heard_for_its_own_tasks_only() {
    let world = World::new();
    let cluster = world.open();
    let (a, b) = two_with_a_job(&cluster, 4);
    wait_state(&cluster, "j", JobState::Running);
    let mut c = FakeWorker::new("c", 3);
    c.join(&cluster);
    cluster.submit(&by(), job("other", 2)).unwrap();
    wait_state(&cluster, "other", JobState::Running);
    let (execution, of_a) = a.part_of("j");
    let first = CheckpointId(1);
    until("a checkpoint has begun", || a.was_told("Trigger").then_some(()));

    // One that has no part in the job.
    let mut said = about(&execution, of_a[0], first);
    said.push(Report::Failed { execution: execution.clone(), failure: failure(FailureKind::Permanent) });
    said.push(Report::Ended { execution: execution.clone(), progress: Box::default() });
    said.push(Report::Opened { execution: execution.clone(), templates: Vec::new() });
    let by_c = said.len();
    said.into_iter().for_each(|report| c.report(&cluster, report));
    // One that has, of tasks that are another's or that there are not.
    let mut by_b = 0;
    for task in [of_a[0], of_a[1], TaskId(4), TaskId(u32::MAX)] {
        for report in about(&execution, task, first) {
            b.report(&cluster, report);
            by_b += 1;
        }
    }
    // And of its own, with numbers that cannot be.
    let own = b.part_of("j").1[0];
    for report in about(&execution, own, CheckpointId(u64::MAX / 1_000)) {
        if !matches!(report, Report::Finished { .. } | Report::TaskRestored { .. }) {
            b.report(&cluster, report);
            by_b += 1;
        }
    }
    let looked = weir_protocol::Looked { uid: "no source".to_owned(), more: true, what: String::new() };
    b.report(&cluster, Report::Looked { execution: execution.clone(), sources: vec![looked] });
    by_b += 1;
    world.pass(&cluster, 50);
    let refused = |name: &str| cluster.workers().iter().find(|worker| worker.name == name).unwrap().reports_refused;
    assert_eq!((refused("a"), refused("b"), refused("c")), (0, by_b, by_c as u64));
    let told = || kinds(&cluster, "j").iter().filter(|kind| *kind == "report-refused").count();
    until("one of each worker", || (told() >= 2).then_some(()));

    // The job goes on as if nothing had been said: each task commits its own.
    let before = a.commits().len();
    until("more is committed", || (a.commits().len() > before + 4).then_some(()));
    for (task, value) in a.commits().into_iter().chain(b.commits()) {
        assert_eq!(value, value_of(task, CheckpointId(value / 100)));
    }
    assert_eq!(told(), 2, "one of each worker, and no more");
    let status = cluster.job("j").unwrap().status;
    assert_eq!((status.state, status.attempt), (JobState::Running, 1));
    assert_eq!(cluster.job("other").unwrap().status.attempt, 1);
}

#[test]
fn s133_nobody_completes_a_checkpoint_for_another() {
    let world = World::new();
    let cluster = world.open();
    let (a, b) = two_with_a_job(&cluster, 4);
    wait_state(&cluster, "j", JobState::Running);
    a.mute.store(true, std::sync::atomic::Ordering::SeqCst);
    // The newest that b was told of waits for a.
    let number = until("a checkpoint waits", || {
        let newest = world.storage("j").checkpoints().unwrap().first().map_or(0, |id| id.0);
        b.was_told(&format!("checkpoint: CheckpointId({}), stop", newest + 1)).then_some(newest + 1)
    });
    let (execution, _) = a.part_of("j");
    for task in 0..4 {
        b.report(&cluster, acknowledged(&execution, TaskId(task), CheckpointId(number)));
    }
    a.mute.store(false, std::sync::atomic::Ordering::SeqCst);
    // What follows is handled after it, and a manifest that was begun is written before the next attempt chooses one.
    b.report(&cluster, Report::Failed { execution, failure: failure(FailureKind::Transient) });
    let restarting = wait_event(&cluster, "j", 0, "restarting");
    let running = wait_event(&cluster, "j", restarting.number, "running").message;
    let from: u64 = running.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default();
    assert!(from < number, "checkpoint {number} has no state of a's tasks: {running}");
}

#[test]
fn s133_who_comes_back_with_what_is_not_its_own_is_not_taken_over() {
    for bad in 0..3 {
        let world = World::new();
        let cluster = world.open();
        let mut a = one_with_a_job(&cluster, 2);
        wait_state(&cluster, "j", JobState::Running);
        a.abandon();
        cluster.leave();
        drop(cluster);
        let cluster = world.open();
        let mut register = a.register();
        let running = register.running.iter_mut().find(|running| running.execution.job == "j").unwrap();
        match bad {
            0 => running.finished = vec![TaskId(u32::MAX)],
            1 => running.last_checkpoint = CheckpointId(u64::MAX),
            _ => running.committed = vec![(TaskId(0), CheckpointId(u64::MAX))],
        }
        a.join_as(&cluster, register);
        wait_event(&cluster, "j", 0, "not-taken-over");
        until(&format!("case {bad} begins anew"), || {
            let status = cluster.job("j").unwrap().status;
            ((status.attempt, status.state) == (2, JobState::Running)).then_some(())
        });
        let mut register = a.register();
        register.data_address = "x".repeat(10_000);
        let mut other = FakeWorker::new("other", 9);
        assert!(matches!(other.join_as(&cluster, register), Command::Refused { .. }));
    }
}
