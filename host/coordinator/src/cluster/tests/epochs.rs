//! Workers and coordinators that are not theirs.

use weir_protocol::Command;
use weir_protocol::api::{ClusterApi, JobState, RefusalKind};

use super::fakes::{FakeWorker, World, by, job, kinds, one_with_a_job, wait_event, wait_state};
use super::restarts::copy_folder;

#[test]
fn s88_a_second_coordinator_leaves_running_jobs_alone_and_the_first_goes_on_with_them() {
    let world = World::new();
    let first = world.open();
    let mut a = one_with_a_job(&first, 2);
    wait_event(&first, "j", 0, "checkpoint");
    first.leave();
    a.abandon();

    // Another coordinator on an empty folder, with a job that waits for slots.
    let second = world.open_at(&world.folder.path().join("other"));
    second.submit(&by(), job("k", 1)).unwrap();
    wait_event(&second, "k", 0, "waiting");
    for _ in 0..2 {
        let answer = a.join(&second);
        assert!(matches!(&answer, Command::Refused { reason } if reason.contains("job j")), "{answer:?}");
    }
    let event = wait_event(&second, "k", 0, "worker-led-elsewhere");
    assert!(event.message.contains("stays with it"), "{}", event.message);
    assert_eq!(kinds(&second, "k").iter().filter(|kind| *kind == "worker-led-elsewhere").count(), 1, "it is said once");
    let status = second.status();
    assert_eq!((status.workers, status.led_elsewhere.len()), (0, 1));
    assert_eq!((&*status.led_elsewhere[0].worker, &*status.led_elsewhere[0].jobs), ("a", &["j".to_owned()][..]));
    // One that runs nothing joins whom it finds.
    assert!(matches!(FakeWorker::new("b", 2).join(&second), Command::Welcome { .. }));

    let first = world.open();
    assert!(matches!(a.join(&first), Command::Welcome { keep, .. } if keep.len() == 1));
    wait_event(&first, "j", 0, "taken-over");
    assert_eq!(a.starts(), 1, "nothing was restarted");
    first.leave();
    second.leave();
}

#[test]
fn s88_an_older_life_of_the_same_coordinator_is_not_followed() {
    let world = World::new();
    let cluster = world.open();
    let backup = world.folder.path().join("backup");
    cluster.leave();
    copy_folder(&world.folder.path().join("data"), &backup);
    world.open().leave();
    let cluster = world.open();
    let mut a = one_with_a_job(&cluster, 2);
    wait_state(&cluster, "j", JobState::Running);
    cluster.leave();
    a.abandon();
    let older = world.open_at(&backup);
    assert!(matches!(a.join(&older), Command::Refused { .. }));
    assert_eq!(a.runs().len(), 1);
    older.leave();
}

#[test]
fn s88_a_coordinator_that_adopts_a_lost_ones_workers_leads_them_and_still_does_when_it_is_started_again() {
    let world = World::new();
    let first = world.open();
    let mut a = one_with_a_job(&first, 2);
    wait_event(&first, "j", 0, "checkpoint");
    let lost = first.epoch();
    first.leave();
    a.abandon();
    let other = world.folder.path().join("other");
    let second = world.open_at(&other);
    let refused = second.adopt(&by(), &lost.origin_short()).unwrap_err();
    assert_eq!((refused.kind, &*refused.code), (RefusalKind::NotFound, "E0048"));
    assert!(matches!(a.join(&second), Command::Refused { .. }));
    assert_eq!(second.adopt(&by(), &lost.origin_short()).unwrap().succeeds, [lost]);
    second.leave();

    let second = world.open_at(&other);
    assert_eq!(a.join(&second), Command::Welcome { keep: Vec::new(), succeeds: vec![lost] }, "it ends what it ran");
    assert!(second.status().led_elsewhere.is_empty());
    // Its jobs go on from their checkpoints when they are submitted again.
    second.submit(&by(), job("j", 2)).unwrap();
    let running = wait_event(&second, "j", 0, "running");
    assert!(running.message.contains("checkpoint"), "{}", running.message);
    // The first one was not lost after all.
    second.leave();
    a.abandon();
    let first = world.open();
    assert!(matches!(a.join(&first), Command::Refused { .. }));
    first.leave();
}
