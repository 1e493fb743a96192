//! How a job's changes get onto the disk: one after the other, and nobody is told before.

use weir_master::Input as MasterInput;
use weir_protocol::access::Person;
use weir_protocol::api::EventLevel;

use crate::book::happen;
use crate::chronicle::Entry;
use crate::job::{CHANGES_WAITING_MAX, Edit, Item, JobWrite, Note, Then};
use crate::record::{BegunChange, Change, WriteFailure};
use crate::state::State;
use crate::words::{ChangeId, JobAsk, Output, RequestId};
use crate::{Now, refusals};

impl State {
    /// Writes down what happened to a job.
    pub(crate) fn note(&mut self, now: Now, name: &str, entry: Entry, edit: Edit, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        // What is written of it from now on is that it is submitted again, or removed: this would undo that.
        if job.book.record.state.is_over() {
            out.push(Output::log(EventLevel::Warning, format!("an event of job {name}, which is over, is not kept: {entry:?}")));
            return;
        }
        let is_end = matches!(edit, Edit::Over { .. });
        if job.waiting.len() >= CHANGES_WAITING_MAX && !is_end {
            out.push(Output::log(
                EventLevel::Error,
                format!("an event of job {name} is lost: the disk takes no more: {entry:?}"),
            ));
            return;
        }
        job.waiting.push_back(Item::Note(Box::new(Note { entry, edit })));
        self.write_next(now, name, out);
    }

    /// A person asks a job for something.
    pub(crate) fn ask_job(
        &mut self,
        now: Now,
        (request, by): (RequestId, Person),
        name: &str,
        ask: JobAsk,
        out: &mut Vec<Output>,
    ) {
        let action = match ask {
            JobAsk::Stop => "stop",
            JobAsk::Cancel => "cancel",
            JobAsk::Rescale(_) => "change the parallelism of",
        };
        match self.find(action, name) {
            Err(refusal) => return out.push(Output::Answer { request, answer: Err(refusal) }),
            Ok(job) if job.waiting.len() >= CHANGES_WAITING_MAX => {
                let refusal = refusals::disk_is_slow(&format!("{action} job {name}"));
                return out.push(Output::Answer { request, answer: Err(refusal) });
            }
            Ok(_) => {}
        }
        if let Some(job) = self.jobs.get_mut(name) {
            job.waiting.push_back(Item::Ask(request, by, ask));
        }
        self.write_next(now, name, out);
    }

    /// Writes the next change of a job, unless one is being written.
    pub(crate) fn write_next(&mut self, now: Now, name: &str, out: &mut Vec<Output>) {
        while let Some(job) = self.jobs.get_mut(name).filter(|job| job.writing.is_none()) {
            let Some(item) = job.waiting.pop_front() else { return };
            let mut record = job.book.record.clone();
            let (begun, entry, then) = match item {
                Item::Note(note) => {
                    note.edit.apply(&mut record);
                    (BegunChange::Kept, Some(note.entry.clone()), Then::Noted(note))
                }
                Item::Ask(request, by, ask) => match self.judge(name, ask) {
                    Ok(Some(wanted)) => {
                        record = wanted.record;
                        let then = Then::Asked { request, action: wanted.action, wish: wanted.wish };
                        (BegunChange::Kept, Some(wanted.entry.by(&by)), then)
                    }
                    Ok(None) => {
                        out.push(Output::Answer { request, answer: self.status_of(name) });
                        continue;
                    }
                    Err(refusal) => {
                        out.push(Output::Answer { request, answer: Err(refusal) });
                        continue;
                    }
                },
                Item::Record(begun) => match begun.prepare.spec.load() {
                    Ok(loaded) => {
                        record.spec = begun.prepare.spec.clone();
                        record.slots = loaded.slots();
                        record.fresh = false;
                        record.rescale = record.rescale.filter(|wanted| *wanted != loaded.parallelism);
                        (BegunChange::Is(begun), None, Then::Recorded)
                    }
                    Err(problems) => {
                        self.inform(name, MasterInput::Recorded(Err(problems.to_string())), out);
                        continue;
                    }
                },
            };
            let event = entry.and_then(|entry| happen(&mut record, entry, now.wall_ms));
            let id = self.next_change();
            let change = Change::Job { name: name.to_owned(), record: Box::new(record.clone()), begun, event };
            out.push(Output::Write { id, change: Box::new(change) });
            if let Some(job) = self.jobs.get_mut(name) {
                job.writing = Some(JobWrite { id, record: Box::new(record), then });
            }
        }
    }

    /// What became of a change of a job.
    pub(crate) fn job_written(&mut self, now: Now, id: ChangeId, result: Result<(), WriteFailure>, out: &mut Vec<Output>) {
        let of = |job: &crate::job::Job| job.writing.as_ref().is_some_and(|writing| writing.id == id);
        let Some(name) = self.jobs.iter().find(|(_, job)| of(job)).map(|(name, _)| name.clone()) else { return };
        self.follow(&name, result, out);
        self.write_next(now, &name, out);
    }

    fn follow(&mut self, name: &str, result: Result<(), WriteFailure>, out: &mut Vec<Output>) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        let Some(JobWrite { record, then, .. }) = job.writing.take() else { return };
        if result.is_ok() {
            job.book.record = *record;
            out.push(Output::News);
        }
        match (then, result) {
            (Then::Noted(_), Ok(())) => {}
            (Then::Noted(note), Err(error)) => {
                note.edit.apply(&mut job.book.record);
                if let Some((state, reason)) = note.entry.state {
                    let reason = reason.map(|reason| job.book.record.spec.covered(&reason));
                    (job.book.record.state, job.book.record.reason) = (state, reason);
                }
                out.push(Output::log(EventLevel::Error, format!("an event of job {name} is lost: {error}")));
            }
            (Then::Asked { request, wish, .. }, Ok(())) => {
                self.inform(name, MasterInput::Wish(wish), out);
                out.push(Output::Answer { request, answer: self.status_of(name) });
            }
            (Then::Asked { request, action, .. }, Err(error)) => {
                out.push(Output::Answer { request, answer: Err(refusals::disk(&action, &error)) });
            }
            (Then::Recorded, result) => {
                if result.is_ok() {
                    job.book.begins();
                }
                self.inform(name, MasterInput::Recorded(result.map_err(|error| error.to_string())), out);
            }
        }
    }
}
