//! A coordinator's disk that does not answer for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use weir_cluster::{Change, Metadata, WriteFailure};
use weir_model::Digest;
use weir_protocol::access::{NewToken, Role};
use weir_protocol::api::{ClusterApi, JobEvent, JobState, RefusalKind};

use super::fakes::{FakeWorker, World, by, job, one_with_a_job, until, wait_event, wait_state};
use crate::metadata::Database;

/// A disk that stands still while it is told so.
struct Frozen {
    database: Arc<Database>,
    stands: Mutex<bool>,
    /// It holds somebody, or has.
    has_held: AtomicBool,
    changed: Condvar,
}

impl Frozen {
    fn new(database: Arc<Database>) -> Frozen {
        Frozen { database, stands: Mutex::new(false), has_held: AtomicBool::new(false), changed: Condvar::new() }
    }

    fn set(&self, stands: bool) {
        *self.stands.lock() = stands;
        self.changed.notify_all();
    }
}

impl Metadata for Frozen {
    fn put(&self, change: &Change) -> Result<(), WriteFailure> {
        let mut stands = self.stands.lock();
        self.has_held.fetch_or(*stands, Ordering::Relaxed);
        self.changed.wait_while(&mut stands, |stands| *stands);
        drop(stands);
        self.database.put(change)
    }

    fn events(&self, name: &str, after: u64) -> Result<Vec<JobEvent>, WriteFailure> {
        self.database.events(name, after)
    }
}

#[test]
fn s86_while_the_disk_stands_still_jobs_run_workers_come_and_go_and_what_was_asked_for_is_done_afterwards() {
    let world = World::new();
    let disk: Arc<Mutex<Option<Arc<Frozen>>>> = Arc::default();
    let kept = disk.clone();
    let cluster = world.open_through(Box::new(move |database| {
        let frozen = Arc::new(Frozen::new(database));
        *kept.lock() = Some(frozen.clone());
        frozen
    }));
    let disk = disk.lock().clone().unwrap();
    let a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "checkpoint");
    disk.set(true);
    let stopping = {
        let cluster = cluster.clone();
        std::thread::spawn(move || cluster.stop(&by(), "j"))
    };
    let submitting = {
        let cluster = cluster.clone();
        std::thread::spawn(move || cluster.submit(&by(), job("k", 1)))
    };
    let before = a.commits().len();
    until("checkpoints go on", || (a.commits().len() > before + 5).then_some(()));
    let mut b = FakeWorker::new("b", 2);
    b.join(&cluster);
    assert_eq!(cluster.workers().iter().filter(|worker| worker.alive).count(), 2);
    b.leave(&cluster);
    assert_eq!(cluster.jobs().len(), 1);
    assert_eq!(cluster.job("j").unwrap().status.state, JobState::Running, "nobody acts on what is not written");
    assert!(!a.was_told("stop: true"));
    // A person who has waited long enough is told so; what was asked for may still be done.
    let refused = cluster.cancel(&by(), "j").unwrap_err();
    assert_eq!((refused.kind, &*refused.code), (RefusalKind::Unavailable, "E0045"));
    disk.set(false);
    assert!(submitting.join().unwrap().is_ok() || stopping.is_finished());
    let _ = stopping.join();
    until("the job is over", || Some(cluster.job("j").unwrap().status.state).filter(|state| state.is_over()));
    wait_state(&cluster, "k", JobState::Running);
    cluster.leave();
}

#[test]
fn the_clock_writes_nothing_so_a_disk_that_stands_still_does_not_stop_it() {
    let world = World::new();
    let disk: Arc<Mutex<Option<Arc<Frozen>>>> = Arc::default();
    let kept = disk.clone();
    let cluster = world.open_through(Box::new(move |database| {
        let frozen = Arc::new(Frozen::new(database));
        *kept.lock() = Some(frozen.clone());
        frozen
    }));
    let disk = disk.lock().clone().unwrap();
    cluster.create_token(&by(), NewToken { name: "ci".to_owned(), role: Role::Viewer, valid_ms: None }, Digest([7; 32])).unwrap();
    disk.set(true);
    let submitting = {
        let cluster = cluster.clone();
        std::thread::spawn(move || cluster.submit(&by(), job("k", 1)))
    };
    until("the disk holds what writes to it", || disk.has_held.load(Ordering::Relaxed).then_some(()));
    cluster.who(Digest([7; 32])).unwrap();
    world.pass(&cluster, 200);
    let stored = || cluster.inner.database.tokens().unwrap()[0].1.used_at_ms;
    assert_eq!(stored(), None);
    disk.set(false);
    submitting.join().unwrap().unwrap();
    until("it is written afterwards", stored);
    cluster.leave();
}

#[test]
fn s86_a_coordinator_whose_disk_stands_still_ends_all_the_same() {
    let world = World::new();
    let disk: Arc<Mutex<Option<Arc<Frozen>>>> = Arc::default();
    let kept = disk.clone();
    let cluster = world.open_through(Box::new(move |database| {
        let frozen = Arc::new(Frozen::new(database));
        *kept.lock() = Some(frozen.clone());
        frozen
    }));
    let disk = disk.lock().clone().unwrap();
    let mut a = one_with_a_job(&cluster, 1);
    wait_event(&cluster, "j", 0, "checkpoint");
    disk.set(true);
    let stopping = {
        let cluster = cluster.clone();
        std::thread::spawn(move || cluster.stop(&by(), "j"))
    };
    a.abandon();
    cluster.leave();
    assert_eq!(stopping.join().unwrap().unwrap_err().code, "E0047");
    disk.set(false);
}
