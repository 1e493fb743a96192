//! What is asked for that decides which names are jobs, and whose place this coordinator takes: one after the other, so that one
//! name is never two jobs.

use weir_model::Epoch;
use weir_model::limits::JOBS_MAX;
use weir_protocol::access::Person;
use weir_protocol::api::{EventLevel, JobState, JobSubmission, Refusal};

use crate::book::happen;
use crate::chronicle::{self, Entry};
use crate::job::Job;
use crate::queue::{NameWrite, Then, WAITING_MAX};
use crate::record::{BegunChange, Change, Intent, JobRecord, WriteFailure};
use crate::state::State;
use crate::words::{ChangeId, NameAsk, Output, Receipt, RequestId};
use crate::{Now, kinds, refusals};

/// Something that is to be written: the change, what was attempted, what follows.
type NameDecision = (Change, String, Then);

impl State {
    /// A person asks for something about names.
    pub(crate) fn ask_name(&mut self, now: Now, request: RequestId, by: Person, ask: NameAsk, out: &mut Vec<Output>) {
        if self.names.waiting.len() >= WAITING_MAX {
            let answer = Err(refusals::disk_is_slow("take another request"));
            return out.push(Output::Answer { request, answer });
        }
        self.names.waiting.push_back((request, by, ask));
        self.name_next(now, out);
    }

    /// Takes up the next request about names, if none is being written, and its job is not being written either.
    pub(crate) fn name_next(&mut self, now: Now, out: &mut Vec<Output>) {
        while self.names.writing.is_none() {
            let Some((request, by, ask)) = self.names.waiting.pop_front() else { return };
            let judged = match &ask {
                NameAsk::Submit(submission) => match submission.spec.load() {
                    Ok(loaded) if self.is_written(&loaded.name) => {
                        self.names.waiting.push_front((request, by, ask));
                        return;
                    }
                    Ok(loaded) => self.judge_submission(now, &by, submission, &loaded),
                    Err(problems) => Err(refusals::job_file(&problems)),
                },
                NameAsk::Remove(name) if self.is_written(name) => {
                    self.names.waiting.push_front((request, by, ask));
                    return;
                }
                NameAsk::Remove(name) => self.judge_removal(name),
                NameAsk::Adopt(origin) => self.judge_adoption(origin),
            };
            match judged {
                Err(refusal) => out.push(Output::Answer { request, answer: Err(refusal) }),
                Ok((change, action, then)) => {
                    let id = self.next_change();
                    out.push(Output::Write { id, change: Box::new(change) });
                    self.names.writing = Some(NameWrite { id, request, action, then });
                }
            }
        }
    }

    /// Something of a job of this name is being written; that comes first.
    fn is_written(&self, name: &str) -> bool {
        self.jobs.get(name).is_some_and(|job| !job.is_quiet())
    }

    fn judge_submission(
        &self,
        now: Now,
        by: &Person,
        submission: &JobSubmission,
        loaded: &weir_plan::Job,
    ) -> Result<NameDecision, Refusal> {
        let name = loaded.name.clone();
        let action = format!("submit job {name}");
        let before = self.jobs.get(&name).map(|job| &job.book.record);
        match before {
            Some(record) if !record.state.is_over() => return Err(refusals::not_over("submit", &name, record.state)),
            None if self.jobs.len() >= JOBS_MAX => return Err(refusals::too_many_jobs(&name, JOBS_MAX)),
            _ => {}
        }
        let mut record = JobRecord {
            spec: submission.spec.clone(),
            fresh: submission.fresh,
            allow_dropped_state: submission.allow_dropped_state,
            desired: Intent::Run,
            rescale: None,
            state: JobState::Waiting,
            reason: None,
            slots: loaded.slots(),
            attempt: before.map_or(0, |record| record.attempt),
            attempts: 0,
            submitted_at_ms: now.wall_ms,
            since_ms: now.wall_ms,
            // The events of a job that is submitted again go on with their numbers.
            last_event: before.map_or(0, |record| record.last_event),
            counts: None,
            checkpoint: None,
        };
        let entry = submitted(&record, before.is_some()).by(by);
        let event = happen(&mut record, entry, now.wall_ms);
        // The job's page is turned: what is known of its last execution does not count for a takeover any more.
        let begun = BegunChange::Forgotten;
        let change = Change::Job { name: name.clone(), record: Box::new(record.clone()), begun, event };
        Ok((change, action, Then::Submitted { name, record: Box::new(record) }))
    }

    fn judge_removal(&self, name: &str) -> Result<NameDecision, Refusal> {
        let state = self.find("remove", name)?.book.record.state;
        if !state.is_over() {
            return Err(refusals::not_over("remove", name, state));
        }
        let name = name.to_owned();
        Ok((Change::Forget { name: name.clone() }, format!("remove job {name}"), Then::Removed { name }))
    }

    fn judge_adoption(&self, origin: &str) -> Result<NameDecision, Refusal> {
        let succeeds = self.elsewhere.with(origin);
        let succeeds = succeeds.map_err(|why| refusals::not_adopted(origin, &why, &self.elsewhere.shown()))?;
        let action = format!("adopt the workers of coordinator {origin}");
        Ok((Change::Succeeds(succeeds.clone()), action, Then::Adopted { succeeds }))
    }

    /// What became of a change that is about names. False where it is none.
    pub(crate) fn name_written(
        &mut self,
        now: Now,
        id: ChangeId,
        result: &Result<(), WriteFailure>,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(NameWrite { request, action, then, .. }) = self.names.writing.take_if(|writing| writing.id == id) else {
            return false;
        };
        if let Err(error) = result {
            out.push(Output::Answer { request, answer: Err(refusals::disk(&action, error)) });
            return true;
        }
        let done = match then {
            Then::Submitted { name, mut record } => {
                // Whether there will be slots at once; what is missing otherwise.
                let missing = self.schedule.shortage(&name, record.submitted_at_ms, record.slots);
                record.reason = missing.map(|missing| format!("too few slots: {}", chronicle::shortage(&missing)));
                self.jobs.insert(name.clone(), Job::new(*record));
                let status = self.status_of(&name);
                self.start(now, &name, None, out);
                status
            }
            Then::Removed { name } => {
                self.jobs.remove(&name);
                self.gate.forget(&name);
                self.schedule.forget(&name);
                Ok(Receipt::Written)
            }
            Then::Adopted { succeeds } => {
                let lost = succeeds.iter().map(Epoch::to_string).collect::<Vec<_>>().join(", ");
                let message = format!("this coordinator takes the place of {lost}, which are lost; workers of them may join");
                out.push(Output::log(EventLevel::Warning, message));
                self.elsewhere.adopt(succeeds);
                Ok(Receipt::Written)
            }
        };
        out.push(Output::News);
        out.push(Output::Answer { request, answer: done });
        true
    }
}

fn submitted(record: &JobRecord, again: bool) -> Entry {
    let slots = match record.slots {
        1 => "1 slot".to_owned(),
        slots => format!("{slots} slots"),
    };
    let from = match (again, record.fresh) {
        (_, true) => ", and starts over without its older checkpoints",
        (true, false) => ", and goes on from its last checkpoint",
        (false, false) => "",
    };
    let message = format!("{} was submitted, takes {slots}{from}", record.spec.file);
    let kind = if again { kinds::RESUBMITTED } else { kinds::SUBMITTED };
    Entry::event(EventLevel::Info, kind, message)
}
