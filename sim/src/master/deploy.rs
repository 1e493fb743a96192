//! Bringing an execution into being, step by step on all its workers.

use std::sync::Arc;

use weir_model::TaskId;
use weir_protocol::manifest::edges_apart;
use weir_protocol::{Command, Placement, Prepare, WorkerAddress};
use weir_storage::{ErrorKind, JobStorage, Manifest, ManifestKind, StorageError};

use super::{Answer, Deployed, Next, Phase};
use crate::build::Planned;
use crate::scenario::Fault;
use crate::worker::name_of;
use crate::world::World;

impl World {
    /// One execution, from choosing its checkpoint.
    pub(super) fn execute(&mut self) {
        let workers: Vec<usize> = self.master.connected.keys().copied().collect();
        if workers.is_empty() {
            self.set_phase(Phase::Waiting { for_slots: true });
            return;
        }
        self.set_phase(Phase::Waiting { for_slots: false });
        // A job that fails while it stops has stopped; whoever starts it again wants it to run.
        self.master.stop_wanted = false;
        if self.scenario.rescales && self.random.percent(60) {
            let scenario = self.scenario.clone();
            self.master.parallelism = scenario.parallelism(&mut self.random);
            self.seen.rescaled += 1;
        }
        match self.deploy(&workers) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Retry => self.restart(&error.to_string()),
            Err(error) => {
                self.outside.complain(format!("cannot go on: {error}"));
                self.restart(&error.to_string());
            }
        }
    }

    pub(super) fn deploy(&mut self, workers: &[usize]) -> Result<(), StorageError> {
        let Some(storage) = self.master.storage.clone() else { return Ok(()) };
        let spec = self.spec(&self.master.parallelism);
        let attempt = storage.new_attempt()?;
        storage.sweep(attempt)?;
        let manifest = choose(&storage)?;
        let job = match spec.load() {
            Ok(job) => job,
            Err(problems) => panic!("the job file of the simulation is wrong: {problems}\n{}", spec.text),
        };
        let apart = manifest.as_ref().map_or_else(Vec::new, |manifest| edges_apart(&job, manifest));
        let job = job.with_edges_apart(&apart);
        let planned = Arc::new(Planned { topology: weir_plan::Topology::new(&job), job });
        self.plans.insert(attempt, planned.clone());
        let first_checkpoint = storage.next_checkpoint_id()?;
        let topology = &planned.topology;
        let slots: Vec<u32> = (0..planned.job.slots()).map(|_| self.random.below(workers.len() as u64) as u32).collect();
        let tasks = (0..topology.tasks() as u32).map(|task| slots[topology.locate(TaskId(task)).1 as usize]).collect();
        let address = |worker: &usize| WorkerAddress { worker: name_of(*worker), address: String::new() };
        let restore = manifest.as_ref().map(Manifest::id);
        let prepare = Prepare {
            execution: self.execution_id(attempt),
            spec,
            placement: Placement { workers: workers.iter().map(address).collect(), tasks },
            storage: String::new(),
            restore,
            first_checkpoint,
            edges_apart: apart,
            retract_after: None,
        };
        let in_flight = manifest.iter().flat_map(|manifest| manifest.operators.values()).flat_map(|of| &of.subtasks);
        self.seen.restored_rows += in_flight.flat_map(|of| &of.in_flight).map(|of| of.rows).sum::<u64>();
        self.seen.attempts += 1;
        self.log(|| format!("attempt {attempt} goes on from {restore:?}"));
        let deployed = Deployed {
            id: prepare.execution.clone(),
            prepare: prepare.clone(),
            planned,
            alive: workers.iter().copied().collect(),
            final_manifest: manifest.is_some_and(|manifest| manifest.kind == ManifestKind::Final),
        };
        let missing = deployed.alive.clone();
        self.set_phase(Phase::Building { deployed: Box::new(deployed), answer: Answer::Prepared, missing });
        self.tell_all(|_| Command::Prepare(Box::new(prepare.clone())));
        Ok(())
    }

    pub(super) fn answered(&mut self, worker: usize, answer: Answer) {
        let Phase::Building { deployed, answer: waits, missing } = &mut self.master.phase else { return };
        if *waits != answer {
            return;
        }
        missing.remove(&worker);
        if !missing.is_empty() {
            return;
        }
        let next = match answer {
            Answer::Prepared if deployed.final_manifest => Answer::Built,
            Answer::Prepared => Answer::Restored,
            Answer::Restored => Answer::Built,
            Answer::Built => return self.built(),
        };
        (*waits, *missing) = (next, deployed.alive.clone());
        let only_commit = deployed.final_manifest;
        if self.step_fault(Fault::CoordinatorCrash, 0) {
            return;
        }
        self.tell_all(|execution| match next {
            Answer::Restored => Command::Restore { execution, templates: Vec::new() },
            _ if only_commit => Command::Commit { execution },
            _ => Command::Build { execution },
        });
    }

    pub(super) fn built(&mut self) {
        let Phase::Building { deployed, .. } = &self.master.phase else { return };
        if deployed.final_manifest {
            return self.end(Next::Finished);
        }
        self.master.recorded = Some(deployed.prepare.clone());
        if self.step_fault(Fault::CoordinatorCrash, 0) {
            return;
        }
        self.tell_all(|execution| Command::Start { execution });
        let Phase::Building { deployed, .. } = std::mem::replace(&mut self.master.phase, Phase::Down) else { return };
        let first = deployed.prepare.first_checkpoint;
        self.run(*deployed, first);
    }
}

/// The newest checkpoint. Nothing is ever damaged here, so it must be whole.
fn choose(storage: &JobStorage) -> Result<Option<Manifest>, StorageError> {
    let Some(id) = storage.checkpoints()?.first().copied() else { return Ok(None) };
    let manifest = storage.manifest(id)?;
    storage.check(&manifest)?;
    Ok(Some(manifest))
}
