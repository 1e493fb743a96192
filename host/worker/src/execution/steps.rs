//! The steps of an execution: whatever may take long, with all that it needs, so that it can be done anywhere.
//!
//! A step holds no lock and knows nothing of the execution's state: what comes of it goes back to `life.rs`.

use std::any::Any;
use std::sync::Arc;

use weir_protocol::panics::caught;
use weir_protocol::{Looked, Prepare};
use weir_storage::Segment;

use super::build::{Built, build};
use super::failure::{Panic, Trouble};
use super::look::look;
use super::open::open;
use super::prepare::{PreparedJob, prepare};
use super::restore::{LoadedState, restore};
use super::sinks::{self, Sinks};
use super::voice::Voice;
use crate::context::WorkerContext;

/// Something to be done.
pub(super) enum Step {
    /// Takes the job in.
    Prepare(Box<Prepare>),
    /// Asks sources for more.
    Look(Arc<PreparedJob>),
    /// Runs `open`.
    Open { job: Arc<PreparedJob>, uids: Vec<String>, store: bool },
    /// Has sinks commit what the checkpoint holds.
    Commit(Arc<PreparedJob>),
    /// Reads the checkpoint, and has sinks remove what is left of earlier executions.
    Restore { job: Arc<PreparedJob>, templates: Vec<(String, Segment)> },
    /// Has sinks take back, and builds the tasks.
    Build { job: Arc<PreparedJob>, loaded: Box<LoadedState>, sinks: Sinks },
    /// Takes down what is needed no more: giving memory back takes time, and closing a file may wait for a mount.
    Discard(Box<dyn Any + Send>),
}

/// What came of a step.
pub(super) enum StepResult {
    Prepared(Arc<PreparedJob>),
    Looked(Arc<PreparedJob>, Vec<Looked>),
    Opened(Arc<PreparedJob>, Vec<(String, Segment)>),
    Committed(Arc<PreparedJob>),
    Restored { job: Arc<PreparedJob>, loaded: Box<LoadedState>, sinks: Sinks },
    Built(Box<Built>),
    Discarded,
}

impl Step {
    /// What it does, for people.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Step::Prepare(_) => "takes the job in",
            Step::Look(_) => "looks for more input",
            Step::Open { .. } => "opens operators",
            Step::Commit(_) => "commits output",
            Step::Restore { .. } => "restores state",
            Step::Build { .. } => "builds tasks",
            Step::Discard(_) => "closes files and gives memory back",
        }
    }

    /// Does it, for as long as it takes. A panic is a failure.
    pub(super) fn carry_out(self, context: &WorkerContext, voice: &Arc<Voice>) -> Result<StepResult, Trouble> {
        let done = caught(|| self.try_carry_out(context, voice));
        done.unwrap_or_else(|panic| Err(Panic("the worker's part of the job", &panic).into()))
    }

    fn try_carry_out(self, context: &WorkerContext, voice: &Arc<Voice>) -> Result<StepResult, Trouble> {
        let options = &context.options;
        Ok(match self {
            Step::Prepare(message) => {
                let job = prepare(options, *message)?;
                sinks::check_take_back(&job)?;
                StepResult::Prepared(Arc::new(job))
            }
            Step::Look(job) => {
                let looked = look(&job)?;
                StepResult::Looked(job, looked)
            }
            Step::Open { job, uids, store } => {
                let templates = open(&job, &uids, store)?;
                StepResult::Opened(job, templates)
            }
            Step::Commit(job) => {
                let mut sinks = sinks::recover(&job, voice)?;
                sinks::take_back(&job, &mut sinks, voice)?;
                sinks::commit(&job, &mut sinks)?;
                StepResult::Committed(job)
            }
            Step::Restore { job, templates } => {
                let loaded = Box::new(restore(&job, options, templates)?);
                let sinks = sinks::recover(&job, voice)?;
                StepResult::Restored { job, loaded, sinks }
            }
            Step::Build { job, loaded, mut sinks } => {
                sinks::take_back(&job, &mut sinks, voice)?;
                StepResult::Built(Box::new(build(&job, context, voice, *loaded, sinks)?))
            }
            Step::Discard(what) => {
                drop(what);
                StepResult::Discarded
            }
        })
    }
}
