//! What people may ask, and what they are told.

use std::time::Duration;

use weir_model::{Description, Digest};
use weir_protocol::ComponentPin;
use weir_protocol::api::{ClusterApi, JobState, JobSubmission, RefusalKind};

use super::fakes::{FakeWorker, World, by, job, kinds, one_with_a_job, until, wait_event, wait_state};

fn with_operator() -> JobSubmission {
    let mut submission = job("j", 1);
    submission.spec.text = submission.spec.text.replace(
        "[[sink]]\nid = \"out\"\nconnector = \"blackhole\"\ninput = \"in\"",
        "[[operator]]\nid = \"op\"\ncomponent = \"parse@1.0.0\"\ninput = \"in\"\n[[sink]]\nid = \"out\"\nconnector = \"blackhole\"\ninput = \"op\"",
    );
    submission
}

#[test]
fn a_wrong_job_file_is_refused_with_all_its_problems() {
    let world = World::new();
    let cluster = world.open();
    let mut wrong = job("j", 1);
    wrong.spec.text.push_str("colour = \"red\"\ninputt = \"in\"\n");
    wrong.spec.text = wrong.spec.text.replace("parallelism = 1", "paralelism = 1");
    let refusal = cluster.submit(&by(), wrong).unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::Invalid, "E0002"));
    assert!(refusal.message.contains("paralelism"), "{}", refusal.message);
    assert!(cluster.jobs().is_empty());
    cluster.leave();
}

#[test]
fn a_job_whose_component_is_missing_is_refused_and_taken_once_it_is_there() {
    let world = World::new();
    let cluster = world.open();
    let refusal = cluster.submit(&by(), with_operator()).unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::NotFound, "E0040"));
    assert!(refusal.message.contains("parse@1.0.0"), "{}", refusal.message);
    let refusal = cluster.push_component(&by(), b"text", Some(("parse", "1.0.0"))).unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::Invalid, "E0022"));
    let digest = cluster.push_component(&by(), b"\0asm1", Some(("parse", "1.0.0"))).unwrap();
    let taken = cluster.push_component(&by(), b"\0asm2", Some(("parse", "1.0.0"))).unwrap_err();
    assert_eq!((taken.kind, taken.code.as_str()), (RefusalKind::Conflict, "E0021"));
    let mut submission = with_operator();
    let pin = ComponentPin { digest, name: "parse@1.0.0".to_owned(), description: weir_model::Description::plain() };
    submission.spec.components.insert("parse@1.0.0".to_owned(), pin);
    cluster.submit(&by(), submission).unwrap();
    assert_eq!(cluster.components().unwrap()[0].name, "parse");
    cluster.remove_component(&by(), "parse", "1.0.0").unwrap();
    assert!(cluster.describe_component(digest).unwrap().is_some(), "a job needs its bytes");
    assert_eq!(cluster.inner.components.bytes(digest).unwrap(), b"\0asm1");
    cluster.leave();
}

#[test]
fn a_cluster_goes_by_its_own_word_for_what_a_component_says_of_itself() {
    let world = World::new();
    let cluster = world.open();
    let submission = |digest, description| {
        let mut submission = with_operator();
        submission.spec.text = submission.spec.text.replace("input = \"op\"", "input = { from = [\"op\", \"op.late\"] }");
        let pin = ComponentPin { digest, name: "parse@1.0.0".to_owned(), description };
        submission.spec.components.insert("parse@1.0.0".to_owned(), pin);
        submission
    };
    let plain = cluster.push_component(&by(), b"\0asm", Some(("parse", "1.0.0"))).unwrap();
    let late = cluster.push_component(&by(), b"\0asmlate", Some(("parse", "1.0.1"))).unwrap();
    let described = |digest| cluster.describe_component(digest).unwrap().unwrap();
    assert_eq!((described(plain), described(late).output("late")), (Description::plain(), Some(1)));
    assert_eq!(cluster.describe_component(Digest([0; 32])).unwrap(), None);
    let refusal = cluster.submit(&by(), submission(plain, described(late))).unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::Invalid, "E0004"), "the submitter says otherwise");
    assert!(refusal.message.contains("operator `op` has no output `late`"), "{}", refusal.message);
    // What an earlier weir has kept: bytes, and nobody has asked them.
    std::fs::remove_dir_all(world.folder.path().join("data/components/descriptions")).unwrap();
    cluster.submit(&by(), submission(late, Description::plain())).unwrap();
    cluster.leave();
}

#[test]
fn a_component_that_the_disk_does_not_take_is_refused_with_what_a_person_elsewhere_can_do() {
    let world = World::new();
    let cluster = world.open();
    // A file is where the bytes should go.
    std::fs::create_dir_all(world.folder.path().join("data/components")).unwrap();
    std::fs::write(world.folder.path().join("data/components/blobs"), b"").unwrap();
    let refusal = cluster.push_component(&by(), b"\0asm1", Some(("parse", "1.0.0"))).unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::Internal, "E0023"));
    assert!(refusal.message.starts_with("cannot write parse@1.0.0 to the component store"), "{}", refusal.message);
    assert!(refusal.hint.unwrap().contains("the coordinator's disk"));
    cluster.leave();
}

#[test]
fn a_name_belongs_to_one_job_until_that_is_over() {
    let world = World::new();
    let cluster = world.open();
    let _a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "checkpoint");
    let refusal = cluster.submit(&by(), job("j", 2)).unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::Conflict, "E0041"));
    assert_eq!(cluster.remove(&by(), "j").unwrap_err().code, "E0041");
    assert_eq!(cluster.stop(&by(), "another").unwrap_err().hint.unwrap(), "`weir job ls` lists all jobs");

    let stopping = cluster.stop(&by(), "j").unwrap();
    assert!(matches!(stopping.state, JobState::Stopping | JobState::Stopped), "{:?}", stopping.state);
    wait_state(&cluster, "j", JobState::Stopped);
    let refusal = cluster.cancel(&by(), "j").unwrap_err();
    assert_eq!((refusal.kind, refusal.code.as_str()), (RefusalKind::Conflict, "E0043"));
    let before = cluster.events("j", 0, Duration::ZERO).unwrap().last().unwrap().number;

    cluster.submit(&by(), job("j", 1)).unwrap();
    let running = wait_event(&cluster, "j", before, "running");
    assert!(running.message.contains("attempt 2 runs from checkpoint"), "{}", running.message);
    let numbers: Vec<u64> = cluster.events("j", 0, Duration::ZERO).unwrap().iter().map(|event| event.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "events go on without gaps");
    cluster.cancel(&by(), "j").unwrap();
    wait_state(&cluster, "j", JobState::Cancelled);
    cluster.remove(&by(), "j").unwrap();
    assert_eq!(cluster.job("j").unwrap_err().kind, RefusalKind::NotFound);
    assert_eq!(cluster.events("j", 0, Duration::ZERO).unwrap_err().code, "E0042");
    cluster.leave();
}

#[test]
fn whoever_waits_for_an_event_gets_it_when_it_happens() {
    let world = World::new();
    let cluster = world.open();
    cluster.submit(&by(), job("j", 1)).unwrap();
    let waiting = wait_event(&cluster, "j", 0, "waiting");
    let watcher = {
        let cluster = cluster.clone();
        std::thread::spawn(move || cluster.events("j", waiting.number, Duration::from_secs(60)).unwrap())
    };
    let mut a = FakeWorker::new("a", 1);
    a.join(&cluster);
    let events = watcher.join().unwrap();
    assert_eq!(events[0].number, waiting.number + 1);
    cluster.leave();
}

#[test]
fn a_job_goes_on_with_another_parallelism_from_a_checkpoint() {
    let world = World::new();
    let cluster = world.open();
    let (mut a, mut b) = (FakeWorker::new("a", 1), FakeWorker::new("b", 2));
    a.join(&cluster);
    cluster.submit(&by(), job("j", 2)).unwrap();
    wait_event(&cluster, "j", 0, "checkpoint");
    assert_eq!(cluster.rescale(&by(), "j", 0).unwrap_err().code, "E0044");
    let refusal = cluster.rescale(&by(), "j", 4).unwrap_err();
    assert!(refusal.message.ends_with("it would need 4 slots, and there are 2 for it"), "{}", refusal.message);
    b.join(&cluster);
    cluster.rescale(&by(), "j", 4).unwrap();
    let rescaling = wait_event(&cluster, "j", 0, "rescaling");
    assert_eq!(rescaling.message, "it goes on with parallelism 4 instead of 2, from its last checkpoint");
    wait_event(&cluster, "j", rescaling.number, "running");
    until("two tasks on each", || (a.runs() == [(2, 2)] && b.runs() == [(2, 2)]).then_some(()));
    let status = cluster.job("j").unwrap().status;
    assert_eq!((status.slots, status.attempt), (4, 2));
    a.abandon();
    b.abandon();
    cluster.leave();
    drop(cluster);
    let cluster = world.open();
    assert_eq!(cluster.job("j").unwrap().status.slots, 4, "it is kept");
    cluster.leave();
}

#[test]
fn a_job_that_starts_over_forgets_its_checkpoints_once() {
    let world = World::new();
    let cluster = world.open();
    let mut a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "checkpoint");
    cluster.cancel(&by(), "j").unwrap();
    wait_state(&cluster, "j", JobState::Cancelled);
    let last = cluster.events("j", 0, Duration::ZERO).unwrap().last().unwrap().number;
    cluster.submit(&by(), JobSubmission { fresh: true, ..job("j", 1) }).unwrap();
    let running = wait_event(&cluster, "j", last, "running");
    assert!(running.message.ends_with("runs from the beginning"), "{}", running.message);
    let checkpoint = wait_event(&cluster, "j", running.number, "checkpoint");
    cluster.leave();
    a.abandon();
    drop(cluster);
    let cluster = world.open();
    let mut anew = FakeWorker::new("a", 2);
    anew.join(&cluster);
    let running = wait_event(&cluster, "j", checkpoint.number, "running");
    assert!(running.message.contains("runs from checkpoint"), "{}", running.message);
    assert!(kinds(&cluster, "j").contains(&"not-taken-over".to_owned()));
    cluster.leave();
}
