//! An execution: what it consists of, and who of its workers is there.

use std::collections::{BTreeMap, BTreeSet};

use weir_model::{Attempt, CheckpointId, TaskId};
use weir_plan::{Job, OperatorSpec, Topology, VertexKind};
use weir_protocol::{Command, Execution, JobSpec, Placement, Prepare, WorkerId};
use weir_storage::{ConfigDigests, Manifest, Segment};

use crate::{Output, Slots};

/// A job as it was submitted, and read.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) spec: JobSpec,
    pub(crate) job: Job,
}

/// An execution that is being built, runs or ends.
pub(crate) struct Deployed {
    pub(crate) id: Execution,
    pub(crate) spec: JobSpec,
    pub(crate) job: Job,
    pub(crate) topology: Topology,
    pub(crate) placement: Placement,
    /// The tasks of each worker.
    pub(crate) tasks: BTreeMap<WorkerId, Vec<TaskId>>,
    pub(crate) templates: BTreeMap<String, Segment>,
    /// Workers that are not lost.
    pub(crate) alive: BTreeSet<WorkerId>,
}

impl Deployed {
    /// A new one on these slots.
    pub(crate) fn on_slots(planned: Planned, attempt: Attempt, slots: &Slots) -> Deployed {
        let topology = Topology::new(&planned.job);
        let tasks = (0..topology.tasks() as u32).map(|task| {
            let (_, subtask) = topology.locate(TaskId(task));
            slots.slots[subtask as usize]
        });
        let placement = Placement { workers: slots.workers.clone(), tasks: tasks.collect() };
        let id = Execution { job: planned.job.name.clone(), attempt };
        Deployed::placed(id, planned, topology, placement)
    }

    /// One that was prepared before. `job` is read from its specification, with its edges apart.
    pub(crate) fn prepared(prepare: &Prepare, job: Job) -> Deployed {
        let planned = Planned { spec: prepare.spec.clone(), job };
        let topology = Topology::new(&planned.job);
        Deployed::placed(prepare.execution.clone(), planned, topology, prepare.placement.clone())
    }

    fn placed(id: Execution, planned: Planned, topology: Topology, placement: Placement) -> Deployed {
        let names: Vec<WorkerId> = placement.workers.iter().map(|address| address.worker.as_str().into()).collect();
        let mut tasks: BTreeMap<WorkerId, Vec<TaskId>> = names.iter().map(|worker| (worker.clone(), Vec::new())).collect();
        for (task, worker) in placement.tasks.iter().enumerate() {
            if let Some(of_worker) = names.get(*worker as usize).and_then(|worker| tasks.get_mut(worker)) {
                of_worker.push(TaskId(task as u32));
            }
        }
        let Planned { spec, job } = planned;
        let (alive, templates) = (names.into_iter().collect(), BTreeMap::new());
        Deployed { id, spec, job, topology, placement, tasks, templates, alive }
    }

    /// Names of its workers, for people.
    pub(crate) fn workers(&self) -> Vec<String> {
        self.placement.workers.iter().map(|worker| worker.worker.clone()).collect()
    }

    /// The worker that opens operators: it runs their first subtasks, all of which share a slot.
    pub(crate) fn opener(&self) -> WorkerId {
        self.placement.worker_of(self.topology.task(0, 0)).worker.as_str().into()
    }

    /// Operators that run a component, by uid.
    pub(crate) fn operators(&self) -> impl Iterator<Item = (&str, &OperatorSpec)> {
        self.job.vertices.iter().filter_map(|vertex| match &vertex.kind {
            VertexKind::Operator(operator) if self.spec.components.contains_key(&operator.component.to_string()) => {
                Some((vertex.uid.as_str(), operator))
            }
            _ => None,
        })
    }

    /// Templates that a checkpoint holds and that belong to the job's components.
    pub(crate) fn stored_templates(&self, manifest: &Manifest) -> BTreeMap<String, Segment> {
        let stored = |(uid, operator): (&str, &OperatorSpec)| {
            let pin = &self.spec.components[&operator.component.to_string()];
            let state = manifest.operators.get(uid)?;
            let component = state.component.as_ref()?;
            let same =
                component.digest == pin.digest.to_string() && component.config_digests == ConfigDigests::of(&operator.config);
            Some((uid.to_owned(), state.template.clone().filter(|_| same)?))
        };
        self.operators().filter_map(stored).collect()
    }

    /// Tells all its workers something.
    pub(crate) fn tell_all(&self, command: impl Fn(Execution) -> Command, out: &mut Vec<Output>) {
        let tell = |worker: &WorkerId| Output::Send { worker: worker.clone(), command: command(self.id.clone()) };
        out.extend(self.alive.iter().map(tell));
    }

    /// How it is prepared.
    pub(crate) fn prepare(&self, storage: &str, from: Option<CheckpointId>, first_checkpoint: CheckpointId) -> Prepare {
        Prepare {
            execution: self.id.clone(),
            spec: self.spec.clone(),
            placement: self.placement.clone(),
            storage: storage.to_owned(),
            restore: from,
            first_checkpoint,
            edges_apart: Vec::new(),
            retract_after: None,
        }
    }
}
