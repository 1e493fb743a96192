//! One running execution: the checkpoint machine is fed with what workers report, and what it says is done.

use std::collections::{BTreeMap, BTreeSet};

use weir_checkpoint::coordinator::{Action, CompletionKind, Config, Coordinator, Event as Heard};
use weir_model::{Barrier, BarrierKind, CheckpointId, TaskId};
use weir_protocol::manifest::{Header, assemble};
use weir_protocol::{Acknowledgement, Command, Commits};
use weir_storage::{ErrorKind, JobStorage, Manifest, ManifestKind, StorageError};

use super::{Deployed, Driver, Next, Phase, Timer};
use crate::build::Planned;
use crate::scenario::{Fault, Mode, Mutation};
use crate::worker::name_of;
use crate::world::{Event, World};

/// Attempts whose checkpoints may have less time than they need, and what later ones get.
const IMPATIENT_ATTEMPTS: u64 = 6;
const PATIENT_TIMEOUT_MS: u64 = 120_000;

/// Times that a manifest is written before it counts as failed.
const MANIFEST_TRIES: u32 = 4;

impl Driver {
    pub(super) fn all_committed(&self) -> Option<Next> {
        let kind = self.done?;
        if self.committed.iter().any(|checkpoint| *checkpoint < self.last_completed) {
            return None;
        }
        Some(if kind == CompletionKind::Final { Next::Finished } else { Next::Stopped })
    }

    pub(super) fn committables(&self, task: TaskId, manifest: &Manifest) -> Commits {
        let Planned { job, topology } = &*self.deployed.planned;
        let (chain, subtask) = topology.locate(task);
        let of_vertex = |&vertex: &usize| {
            let uid = &job.vertices[vertex].uid;
            let subtask = manifest.operators.get(uid)?.subtasks.get(subtask as usize)?;
            let values: Vec<_> = subtask.committables.iter().map(|committable| committable.value.clone()).collect();
            (!values.is_empty()).then(|| (uid.clone(), values))
        };
        topology.chains()[chain].vertices.iter().filter_map(of_vertex).collect()
    }
}

impl World {
    pub(super) fn run(&mut self, deployed: Deployed, first: CheckpointId) {
        let scenario = &self.scenario;
        // Somebody who has seen a job fail again and again gives its checkpoints time.
        let (timeout_ms, tolerable_failures) = match self.seen.attempts {
            0..=IMPATIENT_ATTEMPTS => (scenario.timeout_ms, scenario.tolerable_failures),
            _ => (PATIENT_TIMEOUT_MS, 1_000),
        };
        let config = Config {
            interval_ms: scenario.interval_ms,
            min_pause_ms: scenario.min_pause_ms,
            timeout_ms,
            tolerable_failures,
            max_concurrent: 1,
            unaligned_after_ms: match scenario.mode {
                Mode::ExactlyOnce(after_ms) => after_ms,
                Mode::AtLeastOnce => None,
            },
        };
        let tasks = deployed.planned.topology.tasks();
        let driver = Driver {
            coordinator: Coordinator::new(config, deployed.id.attempt, tasks, first, 0),
            deployed,
            started_us: self.now_us(),
            acknowledgements: BTreeMap::new(),
            last_completed: CheckpointId(0),
            last_triggered: CheckpointId(0),
            committed: vec![CheckpointId(0); tasks],
            done: None,
            rescale_from: None,
            writing: None,
        };
        self.set_phase(Phase::Running(Box::new(driver)));
        self.plan_tick();
    }

    /// Sees to it that the machine hears the time when it wants to.
    pub(super) fn plan_tick(&mut self) {
        let Phase::Running(driver) = &self.master.phase else { return };
        let Some(deadline_ms) = driver.coordinator.deadline_ms() else { return };
        let at_us = driver.started_us + deadline_ms * 1_000;
        if self.master.tick_us.is_none_or(|tick_us| at_us < tick_us || tick_us <= self.now_us()) {
            self.master.tick_us = Some(at_us);
            let generation = self.master.generation;
            self.at(at_us.max(self.now_us() + 1), Event::Master(generation, Timer::Tick));
        }
    }

    /// Feeds the machine and does what it says.
    pub(super) fn feed(&mut self, event: Heard) {
        let now_us = self.now_us();
        let Phase::Running(driver) = &mut self.master.phase else { return };
        let mut actions = Vec::new();
        driver.coordinator.handle((now_us - driver.started_us) / 1_000, event, &mut actions);
        let generation = self.master.generation;
        for action in actions {
            self.act(action);
            if self.master.generation != generation {
                return;
            }
        }
        self.plan_tick();
    }

    pub(super) fn act(&mut self, action: Action) {
        let Phase::Running(driver) = &mut self.master.phase else { return };
        match action {
            Action::Trigger(Barrier { checkpoint, kind, unaligned, .. }) => {
                driver.last_triggered = checkpoint;
                let stop = kind == BarrierKind::Stop;
                self.log(|| format!("checkpoint {checkpoint}: stop {stop}, unaligned {unaligned}"));
                self.tell_all(|execution| Command::Trigger { execution, checkpoint, stop, unaligned });
            }
            Action::Unalign(checkpoint) => {
                self.seen.unaligned_late += 1;
                self.tell_all(|execution| Command::Unalign { execution, checkpoint });
            }
            Action::Abort { checkpoint, reason } => {
                self.seen.aborted += 1;
                let again = driver.rescale_from.is_some();
                self.log(|| format!("checkpoint {checkpoint} is given up: {reason}"));
                self.tell_all(|execution| Command::Abort { execution, checkpoint });
                if again {
                    self.feed(Heard::RequestCheckpoint);
                }
            }
            Action::WriteManifest { checkpoint, kind } => {
                let manifest = self.assemble(checkpoint, kind);
                if let (Phase::Running(driver), Some(manifest)) = (&mut self.master.phase, manifest) {
                    driver.writing = Some((manifest, 0));
                    let delay_us = self.disk_us();
                    let delay_us = self.random.delay_us(delay_us);
                    self.timer(delay_us, Timer::Manifest);
                }
            }
            Action::Complete { checkpoint, .. } => {
                driver.acknowledgements.retain(|id, _| *id > checkpoint);
                let attempt = driver.deployed.id.attempt;
                self.on_storage(|storage| storage.retain(attempt, 2).map(|_| ()));
            }
            Action::Discard(checkpoint) => {
                let of = driver.acknowledgements.remove(&checkpoint).unwrap_or_default();
                self.remove_files(of);
            }
            Action::DiscardOf { task, checkpoint } => {
                let all = driver.acknowledgements.entry(checkpoint).or_default();
                let (of_task, others) = all.drain(..).partition(|acknowledgement| acknowledgement.task == task);
                *all = others;
                self.remove_files(of_task);
            }
            Action::FailJob { reason } => self.end(Next::Restart(reason.to_string())),
            Action::Done(kind) => {
                driver.done = Some(kind);
                if let Some(next) = driver.all_committed() {
                    self.end(next);
                }
            }
        }
    }

    pub(super) fn on_storage(&mut self, operation: impl FnOnce(&JobStorage) -> Result<(), StorageError>) {
        if let Some(storage) = &self.master.storage
            && let Err(error) = operation(storage)
            && error.kind() != ErrorKind::Retry
        {
            self.outside.complain(error.to_string());
        }
    }

    pub(super) fn remove_files(&mut self, acknowledgements: Vec<Acknowledgement>) {
        let names: Vec<String> = acknowledgements.into_iter().filter_map(|of| of.file).map(|file| file.name).collect();
        if !names.is_empty() {
            self.on_storage(|storage| storage.remove_files(&names));
        }
    }

    pub(super) fn assemble(&mut self, checkpoint: CheckpointId, kind: CompletionKind) -> Option<Manifest> {
        let now_us = self.now_us();
        let Phase::Running(driver) = &self.master.phase else { return None };
        let header = Header {
            attempt: driver.deployed.id.attempt,
            checkpoint,
            kind: match kind {
                CompletionKind::Checkpoint => ManifestKind::Checkpoint,
                CompletionKind::Stop => ManifestKind::Stop,
                CompletionKind::Final => ManifestKind::Final,
            },
            triggered_at_ms: now_us / 1_000,
            completed_at_ms: now_us / 1_000,
        };
        let mut acknowledgements = driver.acknowledgements.get(&checkpoint).cloned().unwrap_or_default();
        if self.mutation == Some(Mutation::SkipAcknowledgement) {
            acknowledgements.pop();
        }
        let tasks: BTreeSet<TaskId> = acknowledgements.iter().map(|of| of.task).collect();
        if tasks.len() != driver.deployed.planned.topology.tasks() {
            self.outside.complain(format!("checkpoint {checkpoint} is complete with {} acknowledgements", tasks.len()));
        }
        let Planned { job, topology } = &*driver.deployed.planned;
        Some(assemble(&driver.deployed.prepare.spec, job, topology, &BTreeMap::new(), &header, &acknowledgements))
    }

    pub(super) fn write_manifest(&mut self) {
        let Some(storage) = self.master.storage.clone() else { return };
        let Phase::Running(driver) = &mut self.master.phase else { return };
        let Some((manifest, tries)) = driver.writing.take() else { return };
        let checkpoint = manifest.id();
        match storage.put_manifest(&manifest) {
            Ok(()) => {
                if let Err(error) = storage.check(&manifest)
                    && error.kind() != ErrorKind::Retry
                {
                    self.outside.complain(format!("checkpoint {checkpoint} is complete and not whole: {error}"));
                }
                if self.step_fault(Fault::CoordinatorCrash, 0) {
                    return;
                }
                let uncertain = self.scenario.uncertain_percent;
                if uncertain > 0 && self.random.percent(uncertain) {
                    return self.never_heard_of(checkpoint);
                }
                self.completed(&manifest);
            }
            Err(error) if error.kind() == ErrorKind::Retry && tries + 1 < MANIFEST_TRIES => {
                driver.writing = Some((manifest, tries + 1));
                self.timer(50_000, Timer::Manifest);
            }
            Err(error) if error.kind() == ErrorKind::Retry => {
                self.seen.manifest_failed += 1;
                self.feed(Heard::ManifestFailed { checkpoint, reason: error.to_string() });
            }
            Err(error) => self.outside.complain(format!("the manifest of checkpoint {checkpoint}: {error}")),
        }
    }

    /// A manifest is durable, but no answer to its writing comes. The coordinator may end before another checkpoint is complete.
    fn never_heard_of(&mut self, checkpoint: CheckpointId) {
        self.seen.uncertain.push(checkpoint);
        self.log(|| format!("the manifest of checkpoint {checkpoint} is there, and nobody knows"));
        self.feed(Heard::ManifestFailed { checkpoint, reason: "no answer".to_owned() });
        if self.random.percent(50) {
            let delay_us = self.random.below(20_000);
            self.after(delay_us, Event::Fault(Fault::CoordinatorCrash));
        }
    }

    /// A manifest is durable.
    pub(super) fn completed(&mut self, manifest: &Manifest) {
        let checkpoint = manifest.id();
        let now_us = self.now_us();
        let in_flight = manifest.operators.values().flat_map(|of| &of.subtasks).flat_map(|of| &of.in_flight);
        let rows: u64 = in_flight.map(|of| of.rows).sum();
        self.seen.completed.push((now_us, checkpoint));
        self.seen.completed_with_rows += u64::from(rows > 0);
        self.seen.stopped_with_rows += u64::from(rows > 0 && manifest.kind == ManifestKind::Stop);
        self.log(|| format!("checkpoint {checkpoint} is complete, {rows} rows in flight"));
        if let Phase::Running(driver) = &mut self.master.phase {
            driver.last_completed = checkpoint;
        }
        self.say_completed(manifest);
        let generation = self.master.generation;
        self.feed(Heard::ManifestWritten(checkpoint));
        if self.master.generation == generation
            && let Phase::Running(driver) = &self.master.phase
            && driver.rescale_from.is_some_and(|from| checkpoint >= from)
        {
            self.end(Next::Rescaled);
        }
    }

    pub(super) fn say_completed(&mut self, manifest: &Manifest) {
        let Phase::Running(driver) = &self.master.phase else { return };
        let checkpoint = manifest.id();
        let mut commands = Vec::new();
        for &worker in &driver.deployed.alive {
            let tasks = driver.deployed.prepare.placement.tasks_of(&name_of(worker));
            let commits = tasks.into_iter().map(|task| (task, driver.committables(task, manifest))).collect();
            commands.push((worker, Command::Completed { execution: driver.deployed.id.clone(), checkpoint, commits }));
        }
        for (worker, command) in commands {
            self.command(worker, command);
        }
    }

    /// Somebody wants something of the job.
    pub(crate) fn wish(&mut self, wish: Fault) {
        let Phase::Running(driver) = &mut self.master.phase else { return };
        if driver.done.is_some() || driver.coordinator.is_over() {
            return;
        }
        match wish {
            Fault::Stop => {
                driver.rescale_from = None;
                self.master.stop_wanted = true;
                self.feed(Heard::RequestStop);
            }
            Fault::Rescale if self.scenario.rescales => {
                driver.rescale_from = Some(CheckpointId(driver.last_triggered.0.max(driver.last_completed.0) + 1));
                self.feed(Heard::RequestCheckpoint);
            }
            _ => self.feed(Heard::RequestCheckpoint),
        }
    }
}
