//! The masters of jobs: their threads, and what surrounds them.

use std::sync::Arc;

use weir_protocol::api::{CheckpointStatus, EventLevel};
use weir_protocol::{Command, WorkerAddress};
use weir_storage::{JobStorage, StorageError};

use super::chronicle::{self, Entry};
use super::gate::Part;
use super::{Cluster, Inner, Job, kinds, open_wishes};
use crate::takeover::Verdict;
use crate::{Begun, Input, JobError, JobThread, MasterJob, Notice, Outcome, Shortage, Slots, Surroundings};

impl Cluster {
    /// Starts the master of a job that has none.
    pub(super) fn start_master(&self, job: &Arc<Job>, verdict: Option<Verdict>) {
        let (adopted, anew) = match verdict {
            Some(Verdict::Adopt(adopted)) => (Some(*adopted), None),
            Some(Verdict::Anew(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        let record = job.book.lock().record.clone();
        let master_job = MasterJob {
            spec: adopted.as_ref().map_or(record.spec.clone(), |adopted| adopted.begun.prepare.spec.clone()),
            default_storage: self.inner.options.default_storage.clone(),
            fresh: record.fresh,
            allow_dropped_state: record.allow_dropped_state,
            patient: true,
            adopted,
        };
        let (master, inbox) = JobThread::with_limits(master_job, self.inner.clone(), self.inner.options.limits);
        for wish in open_wishes(&record) {
            let _ = inbox.send(Input::Wish(wish));
        }
        if !job.has_master(inbox) {
            return;
        }
        let (inner, running) = (self.inner.clone(), job.clone());
        let started = std::thread::Builder::new().name(format!("job-{}", job.name())).spawn(move || {
            if let Some(reason) = anew {
                let message = format!("the execution cannot go on under the new coordinator, a new attempt begins: {reason}");
                inner.note(&running, Entry::event(EventLevel::Warning, kinds::NOT_TAKEN_OVER, message));
            }
            // A master that panics takes no other job along: it says so as a failure.
            inner.ended(&running, &master.run());
        });
        match started {
            Ok(thread) => {
                let mut masters = self.inner.masters.lock();
                masters.retain(|master| !master.is_finished());
                masters.push(thread);
            }
            Err(error) => {
                let reason = format!("a thread for its master cannot be started: {error}");
                let why_not_restarted = "submit it again when the machine has room".to_owned();
                self.inner.ended(job, &Err(JobError::Failed { reason, why_not_restarted }));
            }
        }
    }
}

impl Inner {
    /// A job's master has ended.
    fn ended(&self, job: &Job, end: &Result<Outcome, JobError>) {
        match end {
            Ok(
                Outcome::Finished(progress)
                | Outcome::Stopped(progress)
                | Outcome::StoppedBetween { progress: Some(progress), .. },
            ) => {
                job.book.lock().hear(progress);
            }
            Ok(Outcome::Left) => return,
            Err(error) => tracing::error!(job = job.name(), %error, "a job failed"),
            _ => {}
        }
        {
            let mut state = self.state.lock();
            state.schedule.release(job.name());
            state.slots_changed(None);
        }
        // Last: once it is over, a job of the same name may be submitted, whose slots these would be.
        if let Some(entry) = chronicle::of_end(end) {
            let (counts, checkpoint) = {
                let book = job.book.lock();
                (book.counts.clone(), book.checkpoint.clone())
            };
            self.note_and(job, entry, |record| {
                record.rescale = None;
                (record.counts, record.checkpoint) = (counts.clone(), checkpoint.clone());
            });
        }
    }

    fn job_named(&self, name: &str) -> Option<Arc<Job>> {
        self.state.lock().jobs.get(name).cloned()
    }
}

impl Surroundings for Inner {
    fn reserve(&self, job: &str, slots: u32) -> Result<Slots, Shortage> {
        let submitted_ms = self.job_named(job).map_or(u64::MAX, |job| job.book.lock().record.submitted_at_ms);
        let mut state = self.state.lock();
        let gives_back = state.schedule.holds(job);
        let waited_for = state.schedule.waits_for(job);
        let answer = state.schedule.reserve(job, submitted_ms, slots).map(|names| {
            let mut workers: Vec<WorkerAddress> = Vec::new();
            let index = |name: Arc<str>| {
                let known = workers.iter().position(|address| address.worker == *name).unwrap_or_else(|| {
                    let address = state.registry.member(&name).map(|member| member.candidate.address.clone());
                    workers.push(WorkerAddress { worker: name.to_string(), address: address.unwrap_or_default() });
                    workers.len() - 1
                });
                known as u32
            };
            let slots = names.into_iter().map(index).collect();
            Slots { workers, slots }
        });
        // Nothing is kept any more for one that waited and does not, or for other slots.
        if gives_back || (waited_for.is_some() && waited_for != state.schedule.waits_for(job)) {
            state.slots_changed(Some(job));
        }
        answer
    }

    fn release(&self, job: &str) {
        let mut state = self.state.lock();
        state.schedule.release(job);
        state.slots_changed(Some(job));
    }

    fn send(&self, worker: &str, command: Command) {
        // Before the worker can answer. Without the lock, as a job may have many channels.
        let part = match &command {
            Command::Prepare(prepare) if !self.state.lock().gate.hears(prepare) => Part::of(prepare),
            _ => None,
        };
        let mut state = self.state.lock();
        part.into_iter().for_each(|part| state.gate.listen(part));
        state.gate.tells(&command);
        state.send(worker, command);
    }

    fn storage(&self, url: &str, job: &str) -> Result<JobStorage, StorageError> {
        (self.options.storage)(url, job)
    }

    fn record(&self, begun: &Begun) -> Result<(), String> {
        let execution = &begun.prepare.execution;
        let Some(job) = self.job_named(&execution.job) else { return Err(format!("there is no job {}", execution.job)) };
        let loaded = begun.prepare.spec.load().map_err(|problems| problems.to_string())?;
        let edit = |record: &mut crate::metadata::JobRecord| {
            record.spec = begun.prepare.spec.clone();
            record.slots = loaded.slots();
            record.fresh = false;
            record.rescale = record.rescale.filter(|wanted| *wanted != loaded.parallelism);
        };
        job.write(self, edit, None, Some(begun)).map_err(|error| error.to_string())?;
        let mut book = job.book.lock();
        (book.checkpoint_is_news, book.shortage, book.counts) = (true, None, None);
        Ok(())
    }

    fn notice(&self, job: &str, notice: &Notice) {
        let Some(job) = self.job_named(job) else { return };
        job.master_is_alive();
        let mut entry = chronicle::of_notice(notice);
        {
            let mut book = job.book.lock();
            match notice {
                Notice::Progress(progress) => book.hear(progress),
                Notice::Completed { checkpoint, duration, bytes, in_flight_bytes, unaligned } => {
                    book.checkpoint = Some(CheckpointStatus {
                        id: *checkpoint,
                        duration_ms: duration.as_millis() as u64,
                        bytes: *bytes,
                        in_flight_bytes: *in_flight_bytes,
                        unaligned: *unaligned,
                        completed_at_ms: self.now().wall_ms,
                    });
                    if std::mem::take(&mut book.checkpoint_is_news) {
                        entry = chronicle::first_checkpoint(notice);
                    }
                }
                Notice::Waiting(shortage) => {
                    let told = book.shortage.replace(*shortage);
                    // How many wait before it changes often, and is shown; an event of each change would be one of each job that waits.
                    if told.is_some_and(|told| (told.needed, told.workers) == (shortage.needed, shortage.workers))
                        && let Some((_, reason)) = entry.take().and_then(|entry| entry.state)
                    {
                        book.record.reason = reason;
                    }
                }
                _ => {}
            }
        }
        let Some(entry) = entry else { return };
        self.note_and(&job, entry, |record| match notice {
            Notice::RescaleRefused { .. } => record.rescale = None,
            // Operators that are only opened, to see whether they can be, are no attempt.
            Notice::Deploying { attempt, .. } if attempt.0 > 0 => {
                record.attempt = attempt.0;
                record.attempts += 1;
            }
            _ => {}
        });
    }
}
