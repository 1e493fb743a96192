//! What a coordinator makes of the jobs that the one before has left.

use weir_model::limits::HEARTBEAT_TIMEOUT_MS;
use weir_protocol::api::EventLevel;

use crate::chronicle::{self, Entry};
use crate::gate::Part;
use crate::job::{Edit, Job, Way};
use crate::record::{Intent, StoredJob};
use crate::state::State;
use crate::takeover::Takeover;
use crate::words::Output;
use crate::{Now, kinds};

/// How long a new coordinator waits for the workers of an execution. Longer than a connection takes to find out that its
/// other end has gone, and the worker then waits until it tries again.
pub(crate) const TAKEOVER_WAIT_MS: u64 = 4 * HEARTBEAT_TIMEOUT_MS;

impl State {
    /// A job is found at start. Its name where it is to be started at once.
    pub(crate) fn resume(&mut self, now: Now, stored: StoredJob, out: &mut Vec<Output>) -> Option<String> {
        let name = match stored.record.spec.load() {
            Ok(job) => job.name,
            // Nothing but another version of weir can cause this.
            Err(problems) => {
                let message = format!("a job that was accepted before cannot be read: {}: {problems}", stored.record.spec.file);
                out.push(Output::log(EventLevel::Error, message));
                return None;
            }
        };
        let (is_over, desired, state) = (stored.record.state.is_over(), stored.record.desired, stored.record.state);
        self.jobs.insert(name.clone(), Job::new(stored.record));
        if is_over {
            return None;
        }
        if desired == Intent::Cancel {
            self.jobs.get_mut(&name)?.way = Way::Nobody;
            let (counts, checkpoint) = (None, None);
            self.note(now, &name, chronicle::cancelled(), Edit::Over { counts, checkpoint }, out);
            return None;
        }
        let starts = stored.begun.is_none();
        let message = match stored.begun {
            None => "the coordinator was started again, and starts the job".to_owned(),
            Some(begun) => {
                let part = Part::of(&begun.prepare);
                let takeover = Takeover::new(begun, now.steady_ms.saturating_add(TAKEOVER_WAIT_MS));
                let attempt = takeover.execution().attempt;
                let workers = takeover.missing().join(", ");
                self.schedule.hold(&name, takeover.slots());
                part.into_iter().for_each(|part| self.gate.listen(part));
                self.takeovers.insert(name.clone(), takeover);
                format!("the coordinator was started again, and waits for the workers of attempt {attempt}: {workers}")
            }
        };
        // Its state stays: its tasks may run.
        let event = (EventLevel::Info, kinds::COORDINATOR_RESTARTED, message.clone());
        let entry = Entry { state: Some((state, Some(message))), event: Some(event), by: None };
        self.note(now, &name, entry, Edit::Nothing, out);
        starts.then_some(name)
    }
}
