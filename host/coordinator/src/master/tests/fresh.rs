//! Starting over, killed between any two steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use weir_model::{Attempt, CheckpointId, Epoch};
use weir_protocol::{Command, Failure, FailureKind, JobSpec, Prepare, Report};
use weir_storage::{JobLog, JobStorage, MANIFEST_FORMAT, Manifest, ManifestKind, Writer};

use crate::faulty::{Fault, FaultyStore, faulty};
use crate::{Input, JobError, JobThread, LOCAL_WORKER, Local, Mailbox, MasterJob, Outcome, Wish};

const OLD: CheckpointId = CheckpointId(1);

/// The world outside: whether the output of the run before is still to be seen.
#[derive(Clone)]
struct World {
    store: FaultyStore,
    output: Arc<Mutex<bool>>,
    /// What its worker says where it should prepare operators that are only opened.
    failure: Option<Failure>,
}

pub(super) fn spec(file: &str) -> JobSpec {
    let text = "[job]\nname = \"j\"\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[sink]]\nid = \"out\"\n\
                connector = \"blackhole\"\ninput = \"in\"\n";
    JobSpec::new(file, text)
}

impl World {
    /// A job of `a.toml` that has run and left a checkpoint, and output.
    fn new() -> World {
        let world = World { store: faulty(), output: Arc::new(Mutex::new(false)), failure: None };
        let (from, end) = world.run("a.toml", false);
        assert_eq!(from.map(|prepare| (prepare.restore, prepare.retract_after)), Some((None, None)));
        assert!(matches!(end, Ok(Outcome::Cancelled)), "{end:?}");
        *world.output.lock() = true;
        complete(&world.storage(), manifest());
        world
    }

    fn storage(&self) -> JobStorage {
        JobStorage::with_store(Arc::new(self.store.clone()), "memory:", "j").unwrap()
    }

    /// Runs the job until its tasks would start, then cancels it. Gives how it was prepared.
    fn run(&self, file: &str, fresh: bool) -> (Option<Prepare>, Result<Outcome, JobError>) {
        #[allow(clippy::disallowed_methods, reason = "as a worker's: what a master says never waits")]
        let (commands, told): (Sender<Command>, Receiver<Command>) = channel();
        let store = self.store.clone();
        let surroundings = Local::new(
            Box::new(move |command| drop(commands.send(command))),
            Box::new(move |url, job| JobStorage::with_store(Arc::new(store.clone()), url, job)),
            Box::new(|_| {}),
        );
        let settings = MasterJob {
            spec: spec(file),
            default_storage: "memory:".to_owned(),
            fresh,
            allow_dropped_state: false,
            patient: false,
            adopted: None,
        };
        let (master, inbox) = JobThread::new(settings, Arc::new(surroundings));
        let (output, failure) = (self.output.clone(), self.failure.clone());
        let worker = std::thread::spawn(move || {
            let mut prepared = None;
            while let Ok(command) = told.recv_timeout(Duration::from_secs(60)) {
                if let (Command::Prepare(prepare), Some(failure)) = (&command, &failure)
                    && prepare.execution.attempt == Attempt(0)
                {
                    let report = Report::Failed { execution: prepare.execution.clone(), failure: failure.clone() };
                    let _ = inbox.send(Input::Report { worker: LOCAL_WORKER.into(), report: Box::new(report) });
                    continue;
                }
                work(command, &inbox, &mut prepared, &output);
            }
            prepared
        });
        let end = master.run();
        (worker.join().unwrap(), end)
    }
}

/// What a worker does: its sinks take back what they are told to when they are built.
fn work(command: Command, inbox: &Mailbox, prepared: &mut Option<Prepare>, output: &Mutex<bool>) {
    let Some(execution) = command.execution().cloned() else { return };
    let report = match command {
        Command::Prepare(prepare) => {
            if execution.attempt > Attempt(0) {
                *prepared = Some(*prepare);
            }
            Report::Prepared { execution }
        }
        Command::Restore { .. } => Report::Restored { execution },
        Command::Build { .. } => {
            if prepared.as_ref().and_then(|prepare| prepare.retract_after) == Some(CheckpointId(0)) {
                *output.lock() = false;
            }
            Report::Built { execution }
        }
        Command::Start { .. } => {
            let _ = inbox.send(Input::Wish(Wish::Cancel));
            return;
        }
        Command::Cancel { .. } => Report::Ended { execution, progress: Box::default() },
        _ => return,
    };
    let _ = inbox.send(Input::Report { worker: LOCAL_WORKER.into(), report: Box::new(report) });
}

pub(super) fn manifest() -> Manifest {
    Manifest {
        format: MANIFEST_FORMAT,
        job: "j".to_owned(),
        attempt: Attempt(1),
        checkpoint: OLD.0,
        kind: ManifestKind::Checkpoint,
        triggered_at_ms: 1,
        completed_at_ms: 2,
        key_groups: 128,
        bytes_written: 0,
        origin: Some("a.toml".to_owned()),
        operators: BTreeMap::new(),
        files: Vec::new(),
    }
}

/// Completes a checkpoint of the attempt that was begun last, as the coordinator would that goes on with it.
pub(super) fn complete(storage: &JobStorage, manifest: Manifest) {
    let nonce = manifest.checkpoint << 32 | manifest.attempt.0;
    let mut log = JobLog::new(storage.clone(), Writer { epoch: Epoch { origin: [9; 16], count: 1 }, nonce });
    assert_eq!(log.lead(manifest.attempt).unwrap().newest_attempt, manifest.attempt);
    log.complete(&Arc::new(manifest), 3).unwrap();
}

/// Whether the run that follows a kill repeats nothing that is still to be seen, and skips nothing that is not.
fn assert_exact(world: &World, file: &str, at: &str) {
    let (from, end) = world.run(file, false);
    if let Err(JobError::Refused(reason)) = &end {
        assert!(file == "b.toml" && reason.contains("its state belongs to a.toml"), "{at}: {reason}");
        return;
    }
    assert!(matches!(end, Ok(Outcome::Cancelled)), "{at}: {end:?}");
    let restored = from.unwrap().restore;
    assert_eq!(restored.is_some(), *world.output.lock(), "{at}: runs from {restored:?}");
    assert!(file == "a.toml" || restored.is_none(), "{at}: a checkpoint of another job");
}

#[test]
fn s85_starting_over_killed_between_any_two_steps_leaves_output_exact() {
    for file in ["a.toml", "b.toml"] {
        for crash in [Fault::CrashBefore as fn(u64) -> Fault, Fault::CrashAfter] {
            let mut request = 0;
            loop {
                let world = World::new();
                world.store.set(crash(request));
                let (_, end) = world.run(file, true);
                let reached_end = world.store.requests() <= request;
                world.store.set(Fault::None);
                assert_exact(&world, file, &format!("{file}, {:?}", crash(request)));
                if reached_end {
                    assert!(end.is_ok() && request > 10, "{end:?} after {request} requests");
                    break;
                }
                request += 1;
            }
        }
    }
}

#[test]
fn s85_starting_over_that_nobody_kills_begins_at_the_beginning_once() {
    let world = World::new();
    let (from, _) = world.run("a.toml", true);
    let from = from.unwrap();
    assert_eq!((from.restore, from.retract_after), (None, Some(CheckpointId(0))));
    assert!(!*world.output.lock());
    let (from, _) = world.run("a.toml", false);
    let prepare = from.unwrap();
    assert_eq!(prepare.retract_after, Some(CheckpointId(0)), "nothing was committed since: what was made visible before goes");
    let newer = Manifest { attempt: prepare.execution.attempt, checkpoint: prepare.first_checkpoint.0, ..manifest() };
    complete(&world.storage(), newer);
    let (from, _) = world.run("a.toml", false);
    assert_eq!(from.unwrap().retract_after, None, "output of the run that started over stays");
}

#[test]
fn damage_that_a_worker_tells_of_where_no_checkpoint_is_read_is_a_failure_and_nothing_is_forgotten() {
    let mut world = World::new();
    world.failure = Some(Failure { kind: FailureKind::Damaged, uid: None, reason: "a folder is not readable".to_owned() });
    let (from, end) = world.run("a.toml", true);
    assert!(from.is_none());
    let Err(JobError::Failed { reason, .. }) = end else { panic!("{end:?}") };
    assert!(reason.contains("a folder is not readable"), "{reason}");
    world.failure = None;
    assert_exact(&world, "a.toml", "after the failure");
}
