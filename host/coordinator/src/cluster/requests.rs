//! What people ask of the cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_model::Digest;
use weir_model::limits::{COMPONENT_BYTES_MAX, PARALLELISM_MAX};
use weir_plan::{VertexKind, format_size};
use weir_protocol::api::{
    ClusterApi, ClusterStatus, ComponentStatus, EventLevel, JobDetail, JobEvent, JobState, JobStatus, JobSubmission, Refusal,
    WorkerStatus,
};

use super::chronicle::{self, Entry};
use super::{Cluster, Job, kinds, refusals, views};
use crate::metadata::{Change, Desired, JobRecord};
use crate::{Input, Wish};

/// Jobs one coordinator has at most: each has a thread.
const JOBS_MAX: usize = 1_000;

/// The longest wait for an event.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(60);

/// The key of the job file that a person changes by rescaling.
const PARALLELISM: &str = "job.parallelism";

impl Cluster {
    fn find(&self, action: &str, name: &str) -> Result<Arc<Job>, Refusal> {
        let state = self.inner.state.lock();
        let known = state.jobs.keys().map(String::as_str);
        state.jobs.get(name).cloned().ok_or_else(|| refusals::no_job(action, name, known))
    }

    /// The pins of all components that a job names must be there, and their bytes too.
    fn check_components(&self, job: &weir_plan::Job, submission: &JobSubmission) -> Result<(), Refusal> {
        for vertex in &job.vertices {
            let VertexKind::Operator(operator) = &vertex.kind else { continue };
            let reference = operator.component.to_string();
            let Some(pin) = submission.spec.components.get(&reference) else {
                return Err(refusals::component_missing(&job.name, &reference, None));
            };
            if !self.inner.components.has(pin.digest) {
                return Err(refusals::component_missing(&job.name, &reference, Some(pin.digest.to_string())));
            }
        }
        Ok(())
    }

    /// Durably asks a job for something, then tells its master.
    fn ask(&self, job: &Job, action: &str, edit: impl Fn(&mut JobRecord), entry: Entry, wish: Wish) -> Result<(), Refusal> {
        job.write(&self.inner, edit, Some(entry), None).map_err(|error| refusals::disk(action, &error))?;
        job.tell(Input::Wish(wish));
        Ok(())
    }

    fn status_of(&self, job: &Job) -> JobStatus {
        views::status(job.name(), &job.book.lock())
    }
}

impl ClusterApi for Cluster {
    fn status(&self) -> ClusterStatus {
        let workers = self.workers();
        views::cluster(&self.inner.options, self.inner.started_at_ms, &workers, &self.inner.state.lock().elsewhere)
    }

    fn adopt(&self, origin: &str) -> Result<ClusterStatus, Refusal> {
        let _names = self.inner.names.lock();
        let succeeds = {
            let state = self.inner.state.lock();
            let seen = state.elsewhere.shown();
            state.elsewhere.with(origin).map_err(|why| refusals::not_adopted(origin, &why, &seen))?
        };
        let action = format!("adopt the workers of coordinator {origin}");
        self.inner.metadata.put_succeeds(&succeeds).map_err(|error| refusals::disk(&action, &error))?;
        tracing::warn!(origin, ?succeeds, "this coordinator takes the place of one that is lost; workers of it may join");
        self.inner.state.lock().elsewhere.adopt(succeeds);
        Ok(self.status())
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        let state = self.inner.state.lock();
        let worker = |(name, member): (&Arc<str>, _)| views::worker(name, member, &state.schedule, state.gate.refused(name));
        state.registry.members().map(worker).collect()
    }

    fn push_component(&self, bytes: &[u8], name: Option<(&str, &str)>) -> Result<Digest, Refusal> {
        if bytes.len() > COMPONENT_BYTES_MAX {
            let (size, max) = (format_size(bytes.len() as u64), format_size(COMPONENT_BYTES_MAX as u64));
            return Err(refusals::not_a_component(&format!("it has {size}, and {max} are the most")));
        }
        (self.inner.options.inspect)(bytes).map_err(|reason| refusals::not_a_component(&reason))?;
        let components = &self.inner.components;
        match name {
            Some((name, version)) => components.push(bytes, name, version).map(weir_storage::Pushed::digest),
            None => components.keep(bytes),
        }
        .map_err(refusals::component)
    }

    fn has_component(&self, digest: Digest) -> bool {
        self.inner.components.has(digest)
    }

    fn components(&self) -> Result<Vec<ComponentStatus>, Refusal> {
        let stored = self.inner.components.list().map_err(refusals::component)?;
        Ok(stored.into_iter().map(views::component).collect())
    }

    fn remove_component(&self, name: &str, version: &str) -> Result<(), Refusal> {
        let removed = self.inner.components.remove(name, version, &|digest| self.inner.needs(digest));
        removed.map(drop).map_err(refusals::component)
    }

    fn submit(&self, submission: JobSubmission) -> Result<JobStatus, Refusal> {
        let loaded = submission.spec.load().map_err(|problems| refusals::job_file(&problems))?;
        let name = loaded.name.clone();
        self.check_components(&loaded, &submission)?;
        let _names = self.inner.names.lock();
        let (before, count) = {
            let state = self.inner.state.lock();
            if state.closing {
                return Err(refusals::coordinator_ends(&format!("submit job {name}")));
            }
            (state.jobs.get(&name).cloned(), state.jobs.len())
        };
        let before_record = before.as_ref().map(|job| job.book.lock().record.clone());
        match &before_record {
            Some(record) if !record.state.is_over() => return Err(refusals::not_over("submit", &name, record.state)),
            None if count >= JOBS_MAX => return Err(refusals::too_many_jobs(&name, JOBS_MAX)),
            _ => {}
        }
        let now_ms = self.inner.now().wall_ms;
        let slots = loaded.slots();
        let mut record = JobRecord {
            spec: submission.spec,
            fresh: submission.fresh,
            allow_dropped_state: submission.allow_dropped_state,
            desired: Desired::Run,
            rescale: None,
            state: JobState::Waiting,
            reason: None,
            slots,
            attempt: before_record.as_ref().map_or(0, |record| record.attempt),
            attempts: 0,
            submitted_at_ms: now_ms,
            since_ms: now_ms,
            last_event: before_record.as_ref().map_or(0, |record| record.last_event),
            counts: None,
            checkpoint: None,
        };
        let entry = submitted(&record, before.is_some());
        let event = super::job::happen(&mut record, entry, now_ms);
        // The job's page is turned: what is known of its last execution does not count for a takeover any more.
        let change = Change { begun: None, forget_begun: true, event: event.as_ref() };
        let written = self.inner.metadata.put(&name, &record, &change);
        written.map_err(|error| refusals::disk(&format!("submit job {name}"), &error))?;
        // Whether there will be slots at once; what is missing otherwise.
        let missing = self.inner.state.lock().schedule.shortage(&name, now_ms, slots);
        record.reason = missing.map(|missing| format!("too few slots: {}", chronicle::shortage(&missing)));
        let job = Arc::new(Job::new(&name, record));
        self.inner.state.lock().jobs.insert(name, job.clone());
        if let Some(before) = before {
            before.book.lock().gone = true;
            before.wake();
        }
        let status = self.status_of(&job);
        self.start_master(&job, None);
        Ok(status)
    }

    fn jobs(&self) -> Vec<JobStatus> {
        let jobs: Vec<Arc<Job>> = self.inner.state.lock().jobs.values().cloned().collect();
        jobs.iter().map(|job| self.status_of(job)).collect()
    }

    fn job(&self, name: &str) -> Result<JobDetail, Refusal> {
        let job = self.find("show", name)?;
        let book = job.book.lock();
        Ok(views::detail(name, &book, &self.inner.options.default_storage))
    }

    fn stop(&self, name: &str) -> Result<JobStatus, Refusal> {
        let job = self.find("stop", name)?;
        let record = job.book.lock().record.clone();
        match record.desired {
            _ if record.state.is_over() => return Err(refusals::over("stop", name, record.state)),
            Desired::Cancel => return Err(refusals::ending("stop", name, "end without a last checkpoint")),
            Desired::Stop => return Ok(self.status_of(&job)),
            Desired::Run => {}
        }
        let message = "it was asked to stop with a last checkpoint".to_owned();
        let event = Some((EventLevel::Info, kinds::STOP_REQUESTED, message));
        let entry = Entry { state: Some((JobState::Stopping, None)), event };
        let edit = |record: &mut JobRecord| record.desired = Desired::Stop;
        self.ask(&job, &format!("stop job {name}"), edit, entry, Wish::Stop)?;
        Ok(self.status_of(&job))
    }

    fn cancel(&self, name: &str) -> Result<JobStatus, Refusal> {
        let job = self.find("cancel", name)?;
        let record = job.book.lock().record.clone();
        if record.state.is_over() {
            return Err(refusals::over("cancel", name, record.state));
        }
        if record.desired == Desired::Cancel {
            return Ok(self.status_of(&job));
        }
        let message = "it was asked to end without a last checkpoint".to_owned();
        let entry = Entry::event(EventLevel::Info, kinds::CANCEL_REQUESTED, message);
        let edit = |record: &mut JobRecord| record.desired = Desired::Cancel;
        self.ask(&job, &format!("cancel job {name}"), edit, entry, Wish::Cancel)?;
        Ok(self.status_of(&job))
    }

    fn rescale(&self, name: &str, parallelism: u32) -> Result<JobStatus, Refusal> {
        let job = self.find("change the parallelism of", name)?;
        let record = job.book.lock().record.clone();
        match record.desired {
            _ if record.state.is_over() => return Err(refusals::over("change the parallelism of", name, record.state)),
            Desired::Run => {}
            _ => return Err(refusals::ending("change the parallelism of", name, "end")),
        }
        if parallelism == 0 || parallelism > PARALLELISM_MAX {
            let reason = format!("it must be 1 to {PARALLELISM_MAX}");
            return Err(refusals::rescale(name, parallelism, &reason, "name a number in that range"));
        }
        let now = record.spec.load().map_err(|problems| refusals::job_file(&problems))?;
        if record.rescale.unwrap_or(now.parallelism) == parallelism {
            return Ok(self.status_of(&job));
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
        let (needed, there) = (wanted.slots(), self.inner.state.lock().schedule.within_reach(name, record.submitted_at_ms));
        if needed > there && needed > record.slots {
            // It would be stopped, and then wait.
            let reason = format!("it would need {needed} slots, and there are {there} for it");
            return Err(refusals::rescale(name, parallelism, &reason, "start more workers first, or end another job"));
        }
        let message = format!("it was asked to go on with parallelism {parallelism} instead of {}", now.parallelism);
        let entry = Entry::event(EventLevel::Info, kinds::RESCALE_REQUESTED, message);
        let edit = |record: &mut JobRecord| record.rescale = Some(parallelism);
        self.ask(&job, &format!("change the parallelism of job {name}"), edit, entry, Wish::Rescale(parallelism))?;
        Ok(self.status_of(&job))
    }

    fn remove(&self, name: &str) -> Result<(), Refusal> {
        let _names = self.inner.names.lock();
        let job = self.find("remove", name)?;
        let state = job.book.lock().record.state;
        if !state.is_over() {
            return Err(refusals::not_over("remove", name, state));
        }
        let removed = self.inner.metadata.remove(name);
        removed.map_err(|error| refusals::disk(&format!("remove job {name}"), &error))?;
        {
            let mut state = self.inner.state.lock();
            state.jobs.remove(name);
            state.gate.forget(name);
            state.schedule.forget(name);
        }
        job.book.lock().gone = true;
        job.wake();
        Ok(())
    }

    fn events(&self, name: &str, after: u64, wait: Duration) -> Result<Vec<JobEvent>, Refusal> {
        let deadline = Instant::now() + wait.min(EVENT_WAIT_MAX);
        loop {
            let job = self.find("show events of", name)?;
            let mut book = job.book.lock();
            // The events of a job that was submitted again go on with their numbers.
            while !book.gone && book.record.last_event <= after {
                if self.inner.state.lock().closing || !job.wait(&mut book, deadline) {
                    return Ok(Vec::new());
                }
            }
            if !book.gone {
                drop(book);
                let events = self.inner.metadata.events(name, after);
                return events.map_err(|error| refusals::disk(&format!("show events of job {name}"), &error));
            }
        }
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
