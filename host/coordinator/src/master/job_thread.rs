//! The thread on which a job's master runs: it waits for what happens, hands it to the machine, and does what that says.
//!
//! Decides nothing. What may take long is done elsewhere: by workers, by the storekeeper.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_master::{Input, JobError, Limits, Master, MasterJob, Now, Outcome, Output, StoreFailure, StoreFailureKind};
use weir_protocol::panics::{bug, caught};
use weir_storage::{JobLog, Writer};

use super::mailbox::{Inbox, Mailbox, mailbox};
use super::storekeeper::Storekeeper;
use crate::Surroundings;

/// Longest wait for the storage once the job is over or left: what it still does then does not count.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// The master of one job, before it runs.
pub struct JobThread {
    settings: MasterJob,
    limits: Limits,
    surroundings: Arc<dyn Surroundings>,
    told: Mailbox,
    inbox: Inbox,
}

/// A master that runs.
struct Driver {
    master: Master,
    surroundings: Arc<dyn Surroundings>,
    clock: Instant,
    storekeeper: Storekeeper,
    /// Answers that are there at once.
    answers: VecDeque<Input>,
    end: Option<Result<Outcome, JobError>>,
}

impl JobThread {
    /// A master, and the way to tell it something.
    pub fn new(settings: MasterJob, surroundings: Arc<dyn Surroundings>) -> (JobThread, Mailbox) {
        JobThread::with_limits(settings, surroundings, Limits::DEFAULT)
    }

    /// The same with other limits.
    pub fn with_limits(settings: MasterJob, surroundings: Arc<dyn Surroundings>, limits: Limits) -> (JobThread, Mailbox) {
        let (told, inbox) = mailbox();
        (JobThread { settings, limits, surroundings, told: told.clone(), inbox }, told)
    }

    /// Runs the job to its end, on the caller's thread.
    ///
    /// # Errors
    /// If the job may not start, or has failed for good. A panic of the master itself is such a failure, if it cannot be got over.
    pub fn run(self) -> Result<Outcome, JobError> {
        let JobThread { settings, limits, surroundings, told, inbox } = self;
        let master = Master::new(settings, limits)?;
        let (url, job) = (master.storage().to_owned(), master.job().to_owned());
        let opener = surroundings.clone();
        let storekeeper = Storekeeper::start(
            Box::new(move || {
                let by = Writer { epoch: opener.epoch(), nonce: random() };
                opener.storage(&url, &job).map(|storage| JobLog::new(storage, by))
            }),
            // Nobody listens any more once the job is over.
            Box::new(move |request, answer| {
                let _ = told.send(Input::Stored { request, answer });
            }),
        );
        let storekeeper = storekeeper.map_err(|error| {
            let reason = format!("cannot start a thread for the checkpoint storage: {error}");
            JobError::Storage(StoreFailure { kind: StoreFailureKind::Broken, reason })
        })?;
        let clock = Instant::now();
        let mut driver = Driver { master, surroundings, clock, storekeeper, answers: VecDeque::new(), end: None };
        let end = caught(|| driver.drive(&inbox)).unwrap_or_else(|panic| {
            driver.abandon();
            Err(JobError::Failed {
                reason: bug("its master", &panic),
                why_not_restarted: "submitted again, the job goes on from its last checkpoint".to_owned(),
            })
        });
        driver.storekeeper.close(CLOSE_PATIENCE);
        end
    }
}

impl Driver {
    fn drive(&mut self, inbox: &Inbox) -> Result<Outcome, JobError> {
        self.handle(Input::Tick);
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            let input = match self.answers.pop_front() {
                Some(answer) => answer,
                None => self.wait(inbox),
            };
            self.handle(input);
        }
    }

    fn wait(&self, inbox: &Inbox) -> Input {
        let left = self
            .master
            .deadline_ms()
            .map(|deadline_ms| (self.clock + Duration::from_millis(deadline_ms)).saturating_duration_since(Instant::now()));
        match inbox.next(left) {
            Ok(input) => input.unwrap_or(Input::Tick),
            // The storekeeper holds a way to the inbox for as long as it lives.
            Err(_) => unreachable!("nobody is there any more who could say anything"),
        }
    }

    fn handle(&mut self, input: Input) {
        let mut out = Vec::new();
        let now = self.now();
        let handled = caught(|| self.master.handle(now, input, &mut out));
        if let Err(panic) = handled {
            // What it had said by then may have been half of something.
            out.clear();
            self.master.recover(now, &panic, &mut out);
        }
        out.into_iter().for_each(|output| self.carry_out(output));
    }

    /// What surrounds the master has panicked.
    fn abandon(&mut self) {
        let mut out = Vec::new();
        self.master.abandon(&mut out);
        for output in out {
            if let Output::Send { worker, command } = output {
                self.surroundings.send(self.master.job(), &worker, command);
            }
        }
        self.surroundings.release(self.master.job());
    }

    fn carry_out(&mut self, output: Output) {
        let surroundings = &*self.surroundings;
        match output {
            Output::Send { worker, command } => surroundings.send(self.master.job(), &worker, command),
            Output::Reserve { slots } => self.answers.push_back(Input::Slots(surroundings.reserve(self.master.job(), slots))),
            Output::Release => surroundings.release(self.master.job()),
            Output::Store { request, what, deadline_ms } => {
                self.storekeeper.ask(request, what, self.clock + Duration::from_millis(deadline_ms));
            }
            Output::Record(begun) => {
                let answer = surroundings.record(self.master.job(), begun);
                self.answers.extend(answer.map(Input::Recorded));
            }
            Output::Notice(notice) => surroundings.notice(self.master.job(), notice),
            Output::Over(end) => self.end = Some(*end),
        }
    }

    fn now(&self) -> Now {
        Now {
            steady_ms: self.clock.elapsed().as_millis() as u64,
            wall_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
            random: random(),
        }
    }
}

/// Keyed anew by the operating system's randomness each time.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
