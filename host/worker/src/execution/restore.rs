//! Reading the state of a checkpoint into memory: templates, instances, rows that were in flight.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use rayon::ThreadPoolBuilder;
use rayon::prelude::*;
use weir_channel::{Frame, wire};
use weir_model::{InstanceId, KeyGroupRange, TaskId};
use weir_plan::{Exchange, VertexKind};
use weir_protocol::Failure;
use weir_protocol::manifest::edge_of;
use weir_protocol::panics::{bug, caught};
use weir_sandbox::Template;
use weir_storage::{InFlightState, InstanceState, Segment};
use weir_task::in_flight::{self, Place};
use weir_task::{RestoredInFlight, RestoredInstance};

use super::deploy::{Deployer, limits, sandbox_failure};
use super::host::Metrics;
use super::prepare::unusable;
use super::runner::damaged;
use super::voice::transient;
use crate::persist::Origin;

/// What of a checkpoint is in memory and whole.
pub(super) struct Restored {
    /// By vertex.
    pub(super) templates: BTreeMap<usize, Template>,
    pub(super) metrics: Arc<Metrics>,
    /// By vertex and subtask.
    pub(super) instances: BTreeMap<(usize, u32), Vec<RestoredInstance>>,
    pub(super) in_flight: BTreeMap<TaskId, Vec<(Origin, RestoredInFlight)>>,
}

/// An instance that is to be made.
struct Wanted<'a> {
    vertex: usize,
    subtask: u32,
    id: InstanceId,
    state: &'a InstanceState,
}

impl Deployer<'_> {
    /// Reads templates, images and what was in flight. Whatever of the checkpoint is damaged shows here, before anything is
    /// committed that an older checkpoint would write again.
    pub(super) fn restore(&self, stored: Vec<(String, Segment)>) -> Result<Restored, Failure> {
        let metrics = Arc::default();
        let templates = self.templates(&stored.into_iter().collect(), &metrics)?;
        let mut wanted = Vec::new();
        let mut in_flight = BTreeMap::new();
        for (task, chain, subtask) in self.subtasks() {
            let vertices = &self.job.topology.chains()[chain].vertices;
            for &vertex in vertices {
                let instances = self.instances_of(vertex, subtask).into_iter();
                wanted.extend(instances.map(|(id, state)| Wanted { vertex, subtask, id, state }));
            }
            in_flight.insert(task, self.in_flight(vertices[0], subtask)?);
        }
        let made = self.instances(&wanted, &templates)?;
        let mut instances: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (one, made) in wanted.iter().zip(made) {
            instances.entry((one.vertex, one.subtask)).or_default().push(made);
        }
        Ok(Restored { templates, metrics, instances, in_flight })
    }

    fn templates(
        &self,
        stored: &BTreeMap<String, Segment>,
        metrics: &Arc<Metrics>,
    ) -> Result<BTreeMap<usize, Template>, Failure> {
        let mut templates = BTreeMap::new();
        for (&vertex, prepared) in &self.job.components {
            let uid = &self.job.job.vertices[vertex].uid;
            let VertexKind::Operator(spec) = &self.job.job.vertices[vertex].kind else {
                unreachable!("only operators have components")
            };
            let Some(segment) = stored.get(uid) else {
                return Err(transient(format!("operator {uid} is to be restored without a template")));
            };
            let image = self.read(segment)?;
            // A template remembers the host that it was made for, and with it the counts of an execution.
            let template = prepared.component.restore_template(&image, &limits(spec), self.host(uid, metrics));
            templates.insert(vertex, template.map_err(|error| sandbox_failure(uid, &error))?);
        }
        Ok(templates)
    }

    fn read(&self, segment: &Segment) -> Result<impl Deref<Target = [u8]> + use<>, Failure> {
        self.job.storage.read(segment).map_err(|error| unusable(&error))
    }

    /// Makes instances, on all cores: decompressing and writing pages is most of a restart with large state.
    fn instances(&self, wanted: &[Wanted<'_>], templates: &BTreeMap<usize, Template>) -> Result<Vec<RestoredInstance>, Failure> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        // Not in the pool that compiles components: reads of a storage that hangs must hold up this job alone.
        let threads = ThreadPoolBuilder::new().thread_name(|_| "restore".to_owned()).build();
        let threads = threads.map_err(|error| transient(error.to_string()))?;
        // Caught where it happens: the place of a panic is known to its own thread only.
        let instance = |one: &Wanted<'_>| {
            let made = caught(|| self.instance(one, &templates[&one.vertex]));
            made.unwrap_or_else(|panic| Err(transient(bug("the restore of an instance", &panic))))
        };
        threads.install(|| wanted.par_iter().map(instance).collect())
    }

    fn instance(&self, wanted: &Wanted<'_>, template: &Template) -> Result<RestoredInstance, Failure> {
        let Wanted { vertex, id, state, .. } = *wanted;
        let images = state.chain.iter().map(|segment| self.read(segment)).collect::<Result<Vec<_>, Failure>>()?;
        let images: Vec<&[u8]> = images.iter().map(|image| &image[..]).collect();
        // One without images is as its template: it was never called, or keeps no state.
        let instance = if images.is_empty() { template.instantiate() } else { template.restore(&images) };
        let instance = instance.map_err(|error| sandbox_failure(&self.job.job.vertices[vertex].uid, &error))?;
        Ok(RestoredInstance { id, instance: Box::new(instance), watermark: state.watermark, finished: state.finished })
    }

    /// What was in flight to the head of a chain and falls to a subtask, with where it came from.
    fn in_flight(&self, vertex: usize, subtask: u32) -> Result<Vec<(Origin, RestoredInFlight)>, Failure> {
        let job = &self.job.job;
        let described = &job.vertices[vertex];
        let Some(state) = self.state(&described.uid) else { return Ok(Vec::new()) };
        let place = |subtask, parallelism| Place { subtask, parallelism, key_groups: job.key_groups };
        let now = place(subtask, described.parallelism);
        let mut found = Vec::new();
        for (old, then) in state.subtasks.iter().enumerate() {
            let then_place = place(old as u32, state.parallelism);
            for in_flight in &then.in_flight {
                // An edge that the job no longer has, or that divides rows by another rule: its rows were given up with --allow-dropped-state.
                let Some(edge) = edge_of(job, vertex, in_flight) else { continue };
                let groups = in_flight.groups.map(|(start, end)| KeyGroupRange { start, end });
                let share = in_flight::share(edge.exchange, job.is_keyed(vertex), groups, then_place, now);
                if share == in_flight::Share::None {
                    continue;
                }
                let taken = in_flight::take(share, edge.exchange, then_place, in_flight.input, self.frames(in_flight)?);
                let taken = taken.map_err(|error| damaged(format!("rows in flight in {}: {error}", in_flight.frames.file)))?;
                if let Some(restored) = taken {
                    found.push((origin_of(in_flight, edge.exchange), restored));
                }
            }
        }
        Ok(found)
    }

    fn frames(&self, in_flight: &InFlightState) -> Result<Vec<Frame>, Failure> {
        let bytes = self.read(&in_flight.frames)?;
        wire::decode_all(&bytes).map_err(|error| damaged(format!("rows in flight in {}: {error}", in_flight.frames.file)))
    }
}

fn origin_of(in_flight: &InFlightState, exchange: Exchange) -> Origin {
    let InFlightState { from, output, input, sender, .. } = in_flight;
    Origin { from: from.clone(), output: *output, input: *input, sender: *sender, exchange }
}
