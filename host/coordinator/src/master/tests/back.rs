//! Going back to an older checkpoint, killed between any two steps.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use weir_model::CheckpointId;
use weir_protocol::{Command, Failure, FailureKind, Prepare, Report};
use weir_storage::{JobStorage, Manifest};

use super::fresh::{complete, manifest, spec};
use crate::faulty::{Fault, FaultyStore, faulty};
use crate::{Input, JobError, JobThread, LOCAL_WORKER, Local, Mailbox, MasterJob, Outcome, Wish};

/// What can be seen of what a sink has written: rows up to this checkpoint, and those of the next that are pending.
#[derive(Clone, Copy, Debug)]
struct Output {
    visible: u64,
    pending: u64,
}

impl Output {
    /// What a file sink does when it is built.
    fn recover(&mut self, prepare: &Prepare) {
        if let Some(after) = prepare.retract_after {
            self.visible = self.visible.min(after.0);
            self.pending = self.pending.min(after.0);
        }
        let restored = prepare.restore.map_or(0, |checkpoint| checkpoint.0);
        // It commits what that checkpoint holds. What is not pending any more was committed before.
        if self.pending == restored {
            self.visible = restored;
        }
    }
}

/// How a checkpoint is found damaged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    /// By who reads its manifest, so many times.
    OfManifest(u64),
    /// By a worker that restores it, so many times.
    OfFiles(u64),
}

struct World {
    store: FaultyStore,
    output: Arc<Mutex<Output>>,
    /// Times that a worker still finds checkpoint 2 damaged.
    damaged: Arc<Mutex<u64>>,
    /// The next execution fails once its sinks are built.
    dies: Arc<Mutex<bool>>,
}

impl World {
    /// A job that has run up to checkpoint 2, the output of which is pending or visible.
    fn new(visible: u64) -> World {
        let output = Arc::new(Mutex::new(Output { visible: 0, pending: 0 }));
        let world = World { store: faulty(), output, damaged: Arc::default(), dies: Arc::default() };
        assert!(matches!(world.run().1, Ok(Outcome::Cancelled)));
        for checkpoint in [1, 2] {
            complete(&world.storage(), Manifest { checkpoint, ..manifest() });
        }
        *world.output.lock() = Output { visible, pending: 2 };
        world
    }

    fn storage(&self) -> JobStorage {
        JobStorage::with_store(Arc::new(self.store.clone()), "memory:", "j").unwrap()
    }

    /// Runs the job until its tasks start, then cancels it: what was visible at each start, and where that began.
    fn run(&self) -> (Vec<(u64, u64)>, Result<Outcome, JobError>) {
        #[allow(clippy::disallowed_methods, reason = "as a worker's: what a master says never waits")]
        let (commands, told): (Sender<Command>, Receiver<Command>) = channel();
        let store = self.store.clone();
        let surroundings = Local::new(
            Box::new(move |command| drop(commands.send(command))),
            Box::new(move |url, job| JobStorage::with_store(Arc::new(store.clone()), url, job)),
            Box::new(|_| {}),
        );
        let settings = MasterJob {
            spec: spec("a.toml"),
            default_storage: "memory:".to_owned(),
            fresh: false,
            allow_dropped_state: false,
            patient: false,
            adopted: None,
        };
        let (master, inbox) = JobThread::new(settings, Arc::new(surroundings));
        let (output, damaged, dies) = (self.output.clone(), self.damaged.clone(), self.dies.clone());
        let worker = std::thread::spawn(move || work(&told, &inbox, &output, &damaged, &dies));
        let end = master.run();
        (worker.join().unwrap(), end)
    }
}

fn work(
    told: &Receiver<Command>,
    inbox: &Mailbox,
    output: &Mutex<Output>,
    damaged: &Mutex<u64>,
    dies: &Mutex<bool>,
) -> Vec<(u64, u64)> {
    let (mut starts, mut prepared) = (Vec::new(), None::<Prepare>);
    while let Ok(command) = told.recv_timeout(Duration::from_secs(60)) {
        let execution = command.execution().cloned().unwrap();
        let restored = prepared.as_ref().and_then(|prepare| prepare.restore);
        let report = match command {
            Command::Prepare(prepare) => {
                prepared = Some(*prepare);
                Report::Prepared { execution }
            }
            Command::Restore { .. } if restored == Some(CheckpointId(2)) && *damaged.lock() > 0 => {
                *damaged.lock() -= 1;
                let failure = Failure { kind: FailureKind::Damaged, uid: None, reason: "a file is cut off".to_owned() };
                Report::Failed { execution, failure }
            }
            Command::Restore { .. } => Report::Restored { execution },
            Command::Build { .. } => {
                output.lock().recover(prepared.as_ref().unwrap());
                if std::mem::take(&mut *dies.lock()) {
                    let failure = Failure { kind: FailureKind::Transient, uid: None, reason: "its power is gone".to_owned() };
                    Report::Failed { execution, failure }
                } else {
                    Report::Built { execution }
                }
            }
            Command::Start { .. } => {
                starts.push((output.lock().visible, restored.map_or(0, |checkpoint| checkpoint.0)));
                let _ = inbox.send(Input::Wish(Wish::Cancel));
                continue;
            }
            Command::Cancel { .. } => Report::Ended { execution, progress: Box::default() },
            _ => continue,
        };
        let _ = inbox.send(Input::Report { worker: LOCAL_WORKER.into(), report: Box::new(report) });
    }
    starts
}

#[test]
fn s84_going_back_killed_between_any_two_steps_leaves_output_exact_whether_the_damage_stays_or_not() {
    const SECOND: &str = "manifests/00000000000000000002";
    for damage in [1, 2, u64::MAX].into_iter().flat_map(|times| [Damage::OfManifest(times), Damage::OfFiles(times)]) {
        for (visible, crash) in [(1, Fault::CrashBefore as fn(u64) -> Fault), (2, Fault::CrashBefore), (2, Fault::CrashAfter)] {
            let mut request = 0;
            loop {
                let world = World::new(visible);
                match damage {
                    Damage::OfManifest(times) => world.store.damage(SECOND, times),
                    Damage::OfFiles(times) => *world.damaged.lock() = times,
                }
                // The first dies at that request; the second after its sinks were built; the third lives.
                world.store.set(crash(request));
                let (mut starts, end) = world.run();
                let reached_end = world.store.requests() <= request;
                world.store.set(Fault::None);
                let at = format!("{damage:?}, {visible} visible, {:?}, {end:?}", crash(request));
                *world.dies.lock() = true;
                let (second, end) = world.run();
                assert!(matches!(end, Err(JobError::Failed { .. })) && second.is_empty(), "{at}: {end:?}");
                let (third, end) = world.run();
                assert!(matches!(end, Ok(Outcome::Cancelled)) && third.len() == 1, "{at}: {end:?}");
                starts.extend(third);
                for (visible, from) in starts {
                    assert_eq!(visible, from, "{at}: rows are lost or doubled");
                }
                if reached_end {
                    assert!(request > 5, "{at}");
                    break;
                }
                request += 1;
            }
        }
    }
}
