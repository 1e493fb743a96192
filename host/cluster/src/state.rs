//! What a cluster's coordinator knows, and the few ways in which everything that happens reaches a master, a worker or the disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_master::Input as MasterInput;
use weir_model::Epoch;
use weir_protocol::Command;
use weir_protocol::api::Refusal;

use crate::elsewhere::Elsewhere;
use crate::expiry::Expiry;
use crate::gate::Gate;
use crate::job::{Job, WAITING_MAX, Way};
use crate::queue::Names;
use crate::registry::Registry;
use crate::schedule::Schedule;
use crate::takeover::Takeover;
use crate::words::{ChangeId, Output};
use crate::{Now, refusals};

/// What a coordinator knows of itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The cluster's id, for people.
    pub cluster: String,
    /// Until when this node's certificate counts, in milliseconds since the Unix epoch, as it was said last.
    pub certificate_until_ms: u64,
    /// This program's version.
    pub version: String,
    /// Where checkpoints go of jobs that name no place.
    pub default_storage: String,
    /// Which coordinator this is, and which of its lives. Counted durably before the machine is made.
    pub epoch: Epoch,
    /// Coordinators that are lost for good, whose place this one takes.
    pub succeeds: Vec<Epoch>,
}

/// All of it.
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) started_at_ms: u64,
    pub(crate) registry: Registry,
    pub(crate) schedule: Schedule,
    pub(crate) jobs: BTreeMap<String, Job>,
    /// Executions that may go on, and wait for their workers.
    pub(crate) takeovers: BTreeMap<String, Takeover>,
    /// What workers may say.
    pub(crate) gate: Gate,
    /// Who this coordinator is, and the workers that follow another.
    pub(crate) elsewhere: Elsewhere,
    /// Workers that may not join, and why; so that the same is not said again and again.
    pub(crate) refused: BTreeMap<Arc<str>, String>,
    /// Whose certificates end soon.
    pub(crate) expiry: Expiry,
    pub(crate) names: Names,
    pub(crate) closing: bool,
    pub(crate) changes: u64,
}

impl State {
    pub(crate) fn new(settings: Settings, now: Now) -> State {
        State {
            started_at_ms: now.wall_ms,
            registry: Registry::new(&settings.version),
            schedule: Schedule::default(),
            jobs: BTreeMap::new(),
            takeovers: BTreeMap::new(),
            gate: Gate::default(),
            elsewhere: Elsewhere::new(settings.epoch, settings.succeeds.clone()),
            refused: BTreeMap::new(),
            expiry: Expiry::default(),
            names: Names::default(),
            closing: false,
            changes: 0,
            settings,
        }
    }

    /// The process ends: masters leave everything as it is.
    pub(crate) fn leave(&mut self, out: &mut Vec<Output>) {
        self.closing = true;
        for name in self.jobs.keys().cloned().collect::<Vec<_>>() {
            self.inform(&name, MasterInput::Leave, out);
        }
        out.push(Output::News);
    }

    pub(crate) fn next_change(&mut self) -> ChangeId {
        self.changes += 1;
        ChangeId(self.changes)
    }

    /// Tells a job's master something; nobody where it is over. False where that has to be kept for it, and is too much.
    pub(crate) fn inform(&mut self, name: &str, input: MasterInput, out: &mut Vec<Output>) -> bool {
        let Some(job) = self.jobs.get_mut(name) else { return true };
        match &mut job.way {
            Way::Nobody => {}
            Way::Later(before) if before.len() >= WAITING_MAX => return false,
            Way::Later(before) => before.push(input),
            Way::Master => out.push(Output::Inform { job: name.to_owned(), input: Box::new(input) }),
        }
        true
    }

    /// Tells a worker something, if it is there.
    pub(crate) fn send(&self, worker: &str, command: Command, out: &mut Vec<Output>) {
        if let Some(link) = self.registry.link(worker) {
            out.push(Output::Tell { link, command });
        }
    }

    /// There may be slots where there were none.
    pub(crate) fn slots_changed(&mut self, but: Option<&str>, out: &mut Vec<Output>) {
        for name in self.schedule.waiting().filter(|name| Some(*name) != but).map(str::to_owned).collect::<Vec<_>>() {
            self.inform(&name, MasterInput::SlotsChanged, out);
        }
    }

    pub(crate) fn find(&self, action: &str, name: &str) -> Result<&Job, Refusal> {
        self.jobs.get(name).ok_or_else(|| refusals::no_job(action, name, self.jobs.keys().map(String::as_str)))
    }

    /// What must hold after everything that happens.
    ///
    /// # Panics
    /// If it does not: nothing that this coordinator would decide could be trusted.
    pub(crate) fn invariants(&self) {
        for (name, job) in &self.jobs {
            assert!(job.writing.is_some() || job.waiting.is_empty(), "job {name}: changes wait for nothing");
            let waits = self.takeovers.contains_key(name);
            assert!(!waits || matches!(job.way, Way::Later(_)), "job {name} has a master, and waits for its workers");
            let is_over = job.book.record.state.is_over();
            assert!(!is_over || matches!(job.way, Way::Nobody), "job {name} is over, and has a master");
        }
        assert!(self.takeovers.keys().all(|name| self.jobs.contains_key(name)), "an execution of no job is waited for");
        self.schedule.invariants();
    }
}
