//! The masters of jobs: how they start, and what they say.

use std::sync::Arc;

use weir_master::{Adopted, Begun, Input as MasterInput, JobError, MasterJob, Notice, Outcome, Output as Says, Shortage, Slots};
use weir_protocol::api::EventLevel;
use weir_protocol::{Command, WorkerAddress, WorkerId};

use crate::Now;
use crate::chronicle;
use crate::gate::Part;
use crate::job::{Edit, Item, Way};
use crate::state::State;
use crate::words::Output;

impl State {
    /// Starts the master of a job that has none, and tells it what was said before and what people wish.
    pub(crate) fn start(&mut self, _: Now, name: &str, adopted: Option<Adopted>, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Way::Later(before) = std::mem::replace(&mut job.way, Way::Master) else {
            unreachable!("a job is started once: when it was submitted or found, or the wait for its workers is over");
        };
        let record = &job.book.record;
        let master = MasterJob {
            spec: adopted.as_ref().map_or_else(|| record.spec.clone(), |adopted| adopted.begun.prepare.spec.clone()),
            default_storage: self.settings.default_storage.clone(),
            fresh: record.fresh,
            allow_dropped_state: record.allow_dropped_state,
            patient: true,
            adopted,
        };
        out.push(Output::Start { job: name.to_owned(), master: Box::new(master) });
        let wishes = job.open_wishes().into_iter().map(MasterInput::Wish);
        for input in wishes.chain(before) {
            out.push(Output::Inform { job: name.to_owned(), input: Box::new(input) });
        }
        if self.closing {
            out.push(Output::Inform { job: name.to_owned(), input: Box::new(MasterInput::Leave) });
        }
    }

    /// A job's master says something.
    pub(crate) fn hear(&mut self, now: Now, name: &str, says: Says, out: &mut Vec<Output>) {
        match says {
            Says::Send { worker, command } => self.pass_on(&worker, command, out),
            Says::Reserve { slots } => {
                let answer = self.reserve(name, slots, out);
                self.inform(name, MasterInput::Slots(answer), out);
            }
            Says::Release => {
                self.schedule.release(name);
                self.slots_changed(Some(name), out);
            }
            Says::Record(begun) => self.record(now, name, begun, out),
            Says::Notice(notice) => self.notice(now, name, &notice, out),
            Says::Over(end) => self.over(now, name, &end, out),
            // Whoever drives the master asks the job's storage itself.
            Says::Store { request, .. } => {
                let message = format!("job {name} asks the cluster for its storage (request {request:?}); this is a bug in weir");
                out.push(Output::log(EventLevel::Error, message));
            }
        }
    }

    fn pass_on(&mut self, worker: &WorkerId, command: Command, out: &mut Vec<Output>) {
        // Before the worker can answer.
        if let Command::Prepare(prepare) = &command
            && !self.gate.hears(prepare)
        {
            Part::of(prepare).into_iter().for_each(|part| self.gate.listen(part));
        }
        self.gate.tells(&command);
        self.send(worker, command, out);
    }

    pub(crate) fn reserve(&mut self, name: &str, slots: u32, out: &mut Vec<Output>) -> Result<Slots, Shortage> {
        let submitted_ms = self.jobs.get(name).map_or(u64::MAX, |job| job.book.record.submitted_at_ms);
        let gives_back = self.schedule.holds(name);
        let waited_for = self.schedule.waits_for(name);
        let answer = self.schedule.reserve(name, submitted_ms, slots).map(|names| self.addresses(names));
        // Nothing is kept any more for one that waited and does not, or for other slots.
        if gives_back || (waited_for.is_some() && waited_for != self.schedule.waits_for(name)) {
            self.slots_changed(Some(name), out);
        }
        answer
    }

    fn addresses(&self, names: Vec<Arc<str>>) -> Slots {
        let mut workers: Vec<WorkerAddress> = Vec::new();
        let index = |name: Arc<str>| {
            let known = workers.iter().position(|address| address.worker == *name).unwrap_or_else(|| {
                let address = self.registry.member(&name).map(|member| member.candidate.address.clone());
                workers.push(WorkerAddress { worker: name.to_string(), address: address.unwrap_or_default() });
                workers.len() - 1
            });
            known as u32
        };
        let slots = names.into_iter().map(index).collect();
        Slots { workers, slots }
    }

    fn record(&mut self, now: Now, name: &str, begun: Box<Begun>, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        job.waiting.push_back(Item::Record(begun));
        self.write_next(now, name, out);
    }

    fn notice(&mut self, now: Now, name: &str, notice: &Notice, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        job.master_is_alive();
        let Some(entry) = job.book.notice(notice, now.wall_ms) else { return };
        let edit = match notice {
            Notice::RescaleRefused { parallelism, .. } => Edit::RescaleRefused(*parallelism),
            // Operators that are only opened, to see whether they can be, are no attempt.
            Notice::Deploying { attempt, .. } if attempt.0 > 0 => Edit::Attempt(attempt.0),
            _ => Edit::Nothing,
        };
        self.note(now, name, entry, edit, out);
    }

    /// A job's master has ended.
    fn over(&mut self, now: Now, name: &str, end: &Result<Outcome, JobError>, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        match end {
            Ok(
                Outcome::Finished(progress)
                | Outcome::Stopped(progress)
                | Outcome::StoppedBetween { progress: Some(progress), .. },
            ) => job.book.hear(progress),
            Ok(Outcome::Left) => {
                job.way = Way::Nobody;
                return;
            }
            Err(error) => out.push(Output::log(
                EventLevel::Error,
                format!("job {name} failed: {}", job.book.record.spec.covered(&error.to_string())),
            )),
            _ => {}
        }
        job.way = Way::Nobody;
        let (counts, checkpoint) = (job.book.counts.clone(), job.book.checkpoint.clone());
        self.schedule.release(name);
        self.slots_changed(None, out);
        // Last: once it is over, a job of the same name may be submitted, whose slots these would be.
        if let Some(entry) = chronicle::of_end(end) {
            self.note(now, name, entry, Edit::Over { counts, checkpoint }, out);
        }
    }
}
