//! What people ask of the cluster: handed to the machine, and its answer waited for.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use weir_cluster::{Ask, Input, JobAsk, NameAsk, Receipt, RequestId, WriteFailure, component, kinds, refusals};
use weir_model::limits::{COMPONENT_BYTES_MAX, JOB_DESCRIPTIONS_BYTES_MAX};
use weir_model::{Description, Digest};
use weir_plan::{VertexKind, format_size};
use weir_protocol::access::{Asker, NewToken, Person, TokenStatus};
use weir_protocol::api::{
    ClusterApi, ClusterStatus, ComponentStatus, JobDetail, JobEvent, JobStatus, JobSubmission, Refusal, WorkerStatus,
};
use weir_storage::Pushed;

use super::Cluster;

/// The longest wait for an event.
const EVENT_WAIT_MAX: Duration = Duration::from_secs(60);

/// The longest wait for the disk. What was asked for may still be done after it. Shorter than clients wait for an answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

impl Cluster {
    /// Asks for something, and waits until it is done durably. `action` is for messages.
    fn ask(&self, by: &Person, action: &str, ask: Ask) -> Result<Receipt, Refusal> {
        let (asker, answer) = sync_channel(1);
        let request = {
            let mut desk = self.inner.desk.lock();
            desk.next_request += 1;
            let request = RequestId(desk.next_request);
            desk.askers.insert(request, asker);
            self.inner.handle(&mut desk, Input::Asked { request, by: by.clone(), ask });
            request
        };
        answer.recv_timeout(ANSWER_WAIT_MAX).unwrap_or_else(|error| {
            self.inner.desk.lock().askers.remove(&request);
            Err(match error {
                RecvTimeoutError::Timeout => refusals::disk_is_slow(action),
                RecvTimeoutError::Disconnected => refusals::coordinator_ends(action),
            })
        })
    }

    fn ask_job(&self, by: &Person, action: &str, name: &str, ask: JobAsk) -> Result<JobStatus, Refusal> {
        let done = self.ask(by, &format!("{action} job {name}"), Ask::Job { name: name.to_owned(), ask })?;
        status(done, || self.job(name).map(|detail| detail.status))
    }

    /// What the component of a digest says of itself, if it is there. It is asked where nobody has kept that: it came with an
    /// earlier weir.
    fn description(&self, digest: Digest) -> Result<Option<Description>, Refusal> {
        let components = &self.inner.components;
        if !components.has(digest) {
            return Ok(None);
        }
        if let Some(description) = components.description(digest) {
            return Ok(Some(description));
        }
        let bytes = components.bytes(digest).map_err(refusals::component)?;
        let description = (self.inner.describe)(&bytes).map_err(|reason| refusals::not_a_component(&reason))?;
        components.keep_description(digest, &description).map_err(refusals::component)?;
        Ok(Some(description))
    }

    /// Goes by this cluster's own word for what components say of themselves, whatever the submitter says.
    fn describe_pins(&self, submission: &mut JobSubmission) -> Result<(), Refusal> {
        let mut bytes = 0;
        for pin in submission.spec.components.values_mut() {
            pin.description = self.description(pin.digest)?.unwrap_or_else(Description::plain);
            bytes += pin.description.bytes_len();
        }
        if bytes > JOB_DESCRIPTIONS_BYTES_MAX {
            return Err(refusals::descriptions_too_large(bytes, JOB_DESCRIPTIONS_BYTES_MAX));
        }
        Ok(())
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
}

fn status(done: Receipt, otherwise: impl FnOnce() -> Result<JobStatus, Refusal>) -> Result<JobStatus, Refusal> {
    match done {
        Receipt::Job(status) => Ok(*status),
        Receipt::Written => otherwise(),
    }
}

impl ClusterApi for Cluster {
    fn status(&self) -> ClusterStatus {
        self.inner.desk.lock().machine.status()
    }

    fn adopt(&self, by: &Person, origin: &str) -> Result<ClusterStatus, Refusal> {
        let action = format!("adopt the workers of coordinator {origin}");
        self.ask(by, &action, Ask::Name(NameAsk::Adopt(origin.to_owned())))?;
        let message = format!("this coordinator takes the place of coordinator {origin}, which is lost");
        self.inner.done_to_cluster(by, kinds::COORDINATOR_ADOPTED, message);
        Ok(self.status())
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        self.inner.desk.lock().machine.workers()
    }

    fn push_component(&self, by: &Person, bytes: &[u8], name: Option<(&str, &str)>) -> Result<Digest, Refusal> {
        if bytes.len() > COMPONENT_BYTES_MAX {
            let (size, max) = (format_size(bytes.len() as u64), format_size(COMPONENT_BYTES_MAX as u64));
            return Err(refusals::not_a_component(&format!("it has {size}, and {max} are the most")));
        }
        let components = &self.inner.components;
        let digest = weir_storage::digest_of(bytes);
        let known = components.description(digest);
        let is_known = known.is_some();
        let description = match known {
            Some(description) => description,
            None => (self.inner.describe)(bytes).map_err(|reason| refusals::not_a_component(&reason))?,
        };
        let (pushed, what) = match name {
            Some((name, version)) => {
                (components.push(bytes, name, version).map_err(refusals::component)?, format!("component {name}@{version}"))
            }
            None => match components.has(digest) {
                true => (Pushed::AlreadyThere(digest), String::new()),
                false => (Pushed::New(components.keep(bytes).map_err(refusals::component)?), "a component".to_owned()),
            },
        };
        if !is_known {
            components.keep_description(digest, &description).map_err(refusals::component)?;
        }
        if let Pushed::New(digest) = pushed {
            self.inner.done_to_cluster(by, kinds::COMPONENT_PUSHED, format!("{what} was pushed, digest {digest}"));
        }
        Ok(pushed.digest())
    }

    fn describe_component(&self, digest: Digest) -> Result<Option<Description>, Refusal> {
        self.description(digest)
    }

    fn components(&self) -> Result<Vec<ComponentStatus>, Refusal> {
        let stored = self.inner.components.list().map_err(refusals::component)?;
        Ok(stored.into_iter().map(component).collect())
    }

    fn remove_component(&self, by: &Person, name: &str, version: &str) -> Result<(), Refusal> {
        let needed = |digest| self.inner.desk.lock().machine.needs(digest);
        self.inner.components.remove(name, version, &needed).map_err(refusals::component)?;
        self.inner.done_to_cluster(by, kinds::COMPONENT_REMOVED, format!("component {name}@{version} was removed"));
        Ok(())
    }

    fn submit(&self, by: &Person, mut submission: JobSubmission) -> Result<JobStatus, Refusal> {
        self.describe_pins(&mut submission)?;
        let loaded = submission.spec.load().map_err(|problems| refusals::job_file(&problems))?;
        self.check_components(&loaded, &submission)?;
        let done = self.ask(by, &format!("submit job {}", loaded.name), Ask::Name(NameAsk::Submit(Box::new(submission))))?;
        status(done, || self.job(&loaded.name).map(|detail| detail.status))
    }

    fn jobs(&self) -> Vec<JobStatus> {
        self.inner.desk.lock().machine.jobs()
    }

    fn job(&self, name: &str) -> Result<JobDetail, Refusal> {
        self.inner.desk.lock().machine.job(name)
    }

    fn stop(&self, by: &Person, name: &str) -> Result<JobStatus, Refusal> {
        self.ask_job(by, "stop", name, JobAsk::Stop)
    }

    fn cancel(&self, by: &Person, name: &str) -> Result<JobStatus, Refusal> {
        self.ask_job(by, "cancel", name, JobAsk::Cancel)
    }

    fn rescale(&self, by: &Person, name: &str, parallelism: u32) -> Result<JobStatus, Refusal> {
        self.ask_job(by, "change the parallelism of", name, JobAsk::Rescale(parallelism))
    }

    fn remove(&self, by: &Person, name: &str) -> Result<(), Refusal> {
        self.ask(by, &format!("remove job {name}"), Ask::Name(NameAsk::Remove(name.to_owned())))?;
        self.inner.done_to_cluster(by, kinds::JOB_REMOVED, format!("job {name} was removed with its events"));
        Ok(())
    }

    fn events(&self, name: &str, after: u64, wait: Duration) -> Result<Vec<JobEvent>, Refusal> {
        let deadline = Instant::now() + wait.min(EVENT_WAIT_MAX);
        let mut desk = self.inner.desk.lock();
        loop {
            let (last, goes_on) = desk.machine.last_event(name)?;
            if last > after {
                break;
            }
            if !goes_on || self.inner.news.wait_until(&mut desk, deadline).timed_out() {
                return Ok(Vec::new());
            }
        }
        drop(desk);
        let events = self.inner.metadata.events(name, after);
        events.map_err(|error| refusals::disk(&format!("show events of job {name}"), &error))
    }

    fn cluster_events(&self, after: u64) -> Result<Vec<JobEvent>, Refusal> {
        let events = self.inner.database.cluster_events(after);
        events.map_err(|error| refusals::disk("show events of the cluster", &WriteFailure(error.to_string())))
    }

    fn who(&self, token: Digest) -> Option<Asker> {
        self.inner.who(token)
    }

    fn tokens(&self) -> Vec<TokenStatus> {
        self.inner.list_tokens()
    }

    fn create_token(&self, by: &Person, token: NewToken, digest: Digest) -> Result<TokenStatus, Refusal> {
        self.inner.create_token(by, &token, digest)
    }

    fn revoke_token(&self, by: &Person, name: &str) -> Result<(), Refusal> {
        self.inner.revoke_token(by, name)
    }
}
