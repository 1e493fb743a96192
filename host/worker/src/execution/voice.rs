//! What an execution says to its coordinator. Remembers what a coordinator that is started again has to know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use weir_checkpoint::align::DeclineReason;
use weir_model::{CheckpointId, TaskId};
use weir_protocol::{Acknowledgement, Execution, Failure, Report, Running};

use super::failure::Trouble;
use crate::{OnLost, Reports};

struct Said {
    tasks: Vec<TaskId>,
    started: bool,
    restored: BTreeSet<TaskId>,
    finished: BTreeSet<TaskId>,
    committed: BTreeMap<TaskId, CheckpointId>,
    last_checkpoint: CheckpointId,
    failure: Option<Failure>,
}

/// The voice of an execution.
pub(crate) struct Voice {
    execution: Execution,
    reports: Arc<dyn Reports>,
    said: Mutex<Said>,
}

/// What a lost peer means for an execution.
pub(crate) fn on_lost(voice: &Arc<Voice>) -> OnLost {
    let voice = voice.clone();
    Arc::new(move |lost| voice.failed(lost))
}

impl Voice {
    pub(crate) fn new(execution: Execution, tasks: Vec<TaskId>, reports: Arc<dyn Reports>) -> Voice {
        let said = Said {
            tasks,
            started: false,
            restored: BTreeSet::new(),
            finished: BTreeSet::new(),
            committed: BTreeMap::new(),
            last_checkpoint: CheckpointId(0),
            failure: None,
        };
        Voice { execution, reports, said: Mutex::new(said) }
    }

    pub(crate) fn execution(&self) -> &Execution {
        &self.execution
    }

    pub(crate) fn say(&self, report: impl FnOnce(Execution) -> Report) {
        self.reports.report(report(self.execution.clone()));
    }

    /// Says why the execution cannot go on: the first reason counts, what follows from it is not said.
    pub(crate) fn failed(&self, trouble: impl Into<Trouble>) {
        let Trouble(failure) = trouble.into();
        {
            let mut said = self.said.lock();
            if said.failure.is_some() {
                return;
            }
            said.failure = Some(failure.clone());
        }
        self.say(|execution| Report::Failed { execution, failure });
    }

    /// It is told to end. A coordinator that comes after must not go on with it: its threads may take long to end, but they will.
    pub(crate) fn told_to_end(&self) {
        self.said.lock().failure.get_or_insert_with(|| Trouble::transient("it had been told to end").0);
    }

    /// Whether it cannot go on, or was told to end.
    pub(crate) fn has_failed(&self) -> bool {
        self.said.lock().failure.is_some()
    }

    pub(crate) fn started(&self) {
        self.said.lock().started = true;
    }

    pub(crate) fn told_of(&self, checkpoint: CheckpointId) {
        let mut said = self.said.lock();
        said.last_checkpoint = said.last_checkpoint.max(checkpoint);
    }

    pub(crate) fn restored(&self, task: TaskId) {
        self.said.lock().restored.insert(task);
        self.say(|execution| Report::TaskRestored { execution, task });
    }

    pub(crate) fn finished(&self, task: TaskId) {
        self.said.lock().finished.insert(task);
        self.say(|execution| Report::Finished { execution, task });
    }

    pub(crate) fn is_finished(&self, task: TaskId) -> bool {
        self.said.lock().finished.contains(&task)
    }

    pub(crate) fn committed(&self, task: TaskId, checkpoint: CheckpointId) {
        self.said.lock().committed.insert(task, checkpoint);
        self.say(|execution| Report::Committed { execution, task, checkpoint });
    }

    pub(crate) fn declined(&self, task: TaskId, checkpoint: CheckpointId, reason: &DeclineReason) {
        let subsumed_by = match reason {
            DeclineReason::Subsumed { by } => Some(*by),
            DeclineReason::Failed(_) => None,
        };
        let reason = reason.to_string();
        self.say(|execution| Report::Declined { execution, task, checkpoint, subsumed_by, reason });
    }

    pub(crate) fn acknowledged(&self, acknowledgement: Box<Acknowledgement>) {
        self.say(|execution| Report::Acknowledged { execution, acknowledgement });
    }

    pub(crate) fn persist_failed(&self, task: TaskId, checkpoint: CheckpointId, reason: String) {
        self.say(|execution| Report::PersistFailed { execution, task, checkpoint, reason });
    }

    pub(crate) fn running(&self) -> Running {
        let said = self.said.lock();
        Running {
            execution: self.execution.clone(),
            tasks: said.tasks.clone(),
            started: said.started,
            restored: said.restored.iter().copied().collect(),
            finished: said.finished.iter().copied().collect(),
            committed: said.committed.iter().map(|(task, checkpoint)| (*task, *checkpoint)).collect(),
            last_checkpoint: said.last_checkpoint,
            failure: said.failure.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Reports for Nobody {
        fn report(&self, _: Report) {}
    }

    #[test]
    fn an_execution_that_was_told_to_end_does_not_look_as_if_it_could_go_on() {
        let execution = Execution { job: "j".to_owned(), attempt: weir_model::Attempt(1) };
        let voice = Voice::new(execution, vec![TaskId(0)], Arc::new(Nobody));
        voice.started();
        assert_eq!(voice.running().failure, None);
        voice.told_to_end();
        assert_eq!(voice.running().failure, Some(Trouble::transient("it had been told to end").0));
    }
}
