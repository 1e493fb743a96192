//! What becomes of a job that people ask for something. Decides; changes nothing.

use weir_master::Wish;
use weir_model::limits::PARALLELISM_MAX;
use weir_protocol::api::{EventLevel, JobState, Refusal};

use crate::chronicle::Entry;
use crate::record::{Intent, JobRecord};
use crate::state::State;
use crate::words::{JobAsk, Receipt};
use crate::{kinds, refusals, views};

/// The key of the job file that a person changes by rescaling.
const PARALLELISM: &str = "job.parallelism";

/// What is to become of a job that a person asks for something.
pub(crate) struct Decision {
    /// What was attempted, for messages.
    pub(crate) action: String,
    pub(crate) record: JobRecord,
    pub(crate) entry: Entry,
    pub(crate) wish: Wish,
}

impl State {
    /// How a job is, for whoever has asked it for something.
    pub(crate) fn status_of(&self, name: &str) -> Result<Receipt, Refusal> {
        self.find("show", name).map(|job| Receipt::Job(Box::new(views::status(name, &job.book))))
    }

    /// What becomes of a job that is asked for something; `None` where it was asked for it already.
    pub(crate) fn judge(&self, name: &str, ask: JobAsk) -> Result<Option<Decision>, Refusal> {
        match ask {
            JobAsk::Stop => self.judge_stop(name),
            JobAsk::Cancel => self.judge_cancel(name),
            JobAsk::Rescale(parallelism) => self.judge_rescale(name, parallelism),
        }
    }

    fn judge_stop(&self, name: &str) -> Result<Option<Decision>, Refusal> {
        let record = &self.find("stop", name)?.book.record;
        match record.desired {
            _ if record.state.is_over() => return Err(refusals::over("stop", name, record.state)),
            Intent::Cancel => return Err(refusals::ending("stop", name, "end without a last checkpoint")),
            Intent::Stop => return Ok(None),
            Intent::Run => {}
        }
        let message = "it was asked to stop with a last checkpoint".to_owned();
        let event = Some((EventLevel::Info, kinds::STOP_REQUESTED, message));
        let entry = Entry { state: Some((JobState::Stopping, None)), event, by: None };
        let record = JobRecord { desired: Intent::Stop, ..record.clone() };
        Ok(Some(Decision { action: format!("stop job {name}"), record, entry, wish: Wish::Stop }))
    }

    fn judge_cancel(&self, name: &str) -> Result<Option<Decision>, Refusal> {
        let record = &self.find("cancel", name)?.book.record;
        if record.state.is_over() {
            return Err(refusals::over("cancel", name, record.state));
        }
        if record.desired == Intent::Cancel {
            return Ok(None);
        }
        let message = "it was asked to end without a last checkpoint".to_owned();
        let entry = Entry::event(EventLevel::Info, kinds::CANCEL_REQUESTED, message);
        let record = JobRecord { desired: Intent::Cancel, ..record.clone() };
        Ok(Some(Decision { action: format!("cancel job {name}"), record, entry, wish: Wish::Cancel }))
    }

    fn judge_rescale(&self, name: &str, parallelism: u32) -> Result<Option<Decision>, Refusal> {
        let action = "change the parallelism of";
        let record = &self.find(action, name)?.book.record;
        match record.desired {
            _ if record.state.is_over() => return Err(refusals::over(action, name, record.state)),
            Intent::Run => {}
            _ => return Err(refusals::ending(action, name, "end")),
        }
        if parallelism == 0 || parallelism > PARALLELISM_MAX {
            let reason = format!("it must be 1 to {PARALLELISM_MAX}");
            return Err(refusals::rescale(name, parallelism, &reason, "name a number in that range"));
        }
        let now = record.spec.load().map_err(|problems| refusals::job_file(&problems))?;
        if record.rescale.unwrap_or(now.parallelism) == parallelism {
            return Ok(None);
        }
        let mut spec = record.spec.clone();
        spec.overrides.retain(|(key, _)| key != PARALLELISM);
        spec.overrides.push((PARALLELISM.to_owned(), parallelism.to_string()));
        let wanted = spec.load().map_err(|problems| {
            let hint = "`key_groups` bounds the parallelism of keyed operators";
            refusals::rescale(name, parallelism, &problems.to_string(), hint)
        })?;
        let same = |(a, b): (&weir_plan::Vertex, &weir_plan::Vertex)| a.parallelism == b.parallelism;
        if parallelism != now.parallelism && now.vertices.iter().zip(&wanted.vertices).all(same) {
            let reason = "every source, operator and sink of it has a parallelism of its own in the job file";
            let hint = "take `parallelism` out of those that should follow the job's, and submit it again";
            return Err(refusals::rescale(name, parallelism, reason, hint));
        }
        let (needed, there) = (wanted.slots(), self.schedule.within_reach(name, record.submitted_at_ms));
        if needed > there && needed > record.slots {
            // It would be stopped, and then wait.
            let reason = format!("it would need {needed} slots, and there are {there} for it");
            return Err(refusals::rescale(name, parallelism, &reason, "start more workers first, or end another job"));
        }
        let message = format!("it was asked to go on with parallelism {parallelism} instead of {}", now.parallelism);
        let entry = Entry::event(EventLevel::Info, kinds::RESCALE_REQUESTED, message);
        let record = JobRecord { rescale: Some(parallelism), ..record.clone() };
        Ok(Some(Decision { action: format!("{action} job {name}"), record, entry, wish: Wish::Rescale(parallelism) }))
    }
}
