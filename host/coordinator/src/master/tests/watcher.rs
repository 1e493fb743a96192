//! What surrounds a master panics.

use std::sync::mpsc::{Receiver, Sender, channel};

use weir_protocol::{Command, Report};
use weir_storage::JobStorage;

use super::fresh::spec;
use crate::faulty::faulty;
use crate::{Input, JobError, JobThread, LOCAL_WORKER, Local, MasterJob, Notice};

#[test]
fn where_what_surrounds_a_master_panics_its_tasks_are_ended_and_it_says_so() {
    #[allow(clippy::disallowed_methods, reason = "as a worker's: what a master says never waits")]
    let (commands, told): (Sender<Command>, Receiver<Command>) = channel();
    let store = faulty();
    let surroundings = Local::new(
        Box::new(move |command| drop(commands.send(command))),
        Box::new(move |url, job| JobStorage::with_store(std::sync::Arc::new(store.clone()), url, job)),
        Box::new(|notice| assert!(!matches!(notice, Notice::Started { .. }), "told to panic")),
    );
    let settings = MasterJob {
        spec: spec("a.toml"),
        default_storage: "memory:".to_owned(),
        fresh: false,
        allow_dropped_state: false,
        patient: true,
        adopted: None,
    };
    let (master, inbox) = JobThread::new(settings, std::sync::Arc::new(surroundings));
    let worker = std::thread::spawn(move || {
        let mut heard = Vec::new();
        while let Ok(command) = told.recv() {
            let execution = command.execution().cloned().unwrap();
            heard.push(command.clone());
            let report = match command {
                Command::Prepare(_) => Report::Prepared { execution },
                Command::Restore { .. } => Report::Restored { execution },
                Command::Build { .. } => Report::Built { execution },
                _ => continue,
            };
            let _ = inbox.send(Input::Report { worker: LOCAL_WORKER.into(), report: Box::new(report) });
        }
        heard
    });
    let Err(JobError::Failed { reason, why_not_restarted }) = master.run() else { panic!("it goes on") };
    assert!(reason.starts_with("its master panicked at ") && reason.contains("told to panic"), "{reason}");
    assert!(why_not_restarted.contains("submitted again"), "{why_not_restarted}");
    let heard = worker.join().unwrap();
    assert!(matches!(heard.last(), Some(Command::Cancel { .. })), "{heard:?}");
}
