//! Everything that can be checked before a row is read: connectors' settings, components, compilation.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use weir_connectors::{EventTime, SettingError, SinkFactory, SourceFactory};
use weir_plan::{ComponentRef, Diagnostics, Edge, Exchange, Job, OnError, Port, SinkSpec, Vertex, VertexKind};
use weir_sandbox::Component;

use crate::{JobError, Options};

/// Uid of the sink for dead letters that the job file has no sink for.
const DEAD_LETTER_SINK: &str = "dead_letter";

/// An operator's component, taken in.
pub(crate) struct PreparedComponent {
    pub(crate) component: Component,
    pub(crate) name: String,
}

/// A job that is ready to start.
pub struct PreparedJob {
    pub(crate) job: Job,
    pub(crate) options: Options,
    pub(crate) sources: BTreeMap<usize, Box<dyn SourceFactory>>,
    pub(crate) event_times: BTreeMap<usize, EventTime>,
    pub(crate) sinks: BTreeMap<usize, Box<dyn SinkFactory>>,
    pub(crate) components: BTreeMap<usize, PreparedComponent>,
}

/// A connector of a job: its uid and one line about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectorLine {
    /// The source or sink.
    pub uid: String,
    /// What it reads or writes.
    pub description: String,
    /// What it promises.
    pub promise: String,
}

impl PreparedJob {
    /// What the job reads and writes, and what readers of its output may rely on.
    pub fn connectors(&self) -> Vec<ConnectorLine> {
        let sources = self.sources.iter().map(|(&vertex, source)| {
            let promise = if source.is_replayable() { "replayable" } else { "cannot replay: rows in flight at a crash are lost" };
            (vertex, source.describe(), promise.to_owned())
        });
        let sinks = self.sinks.iter().map(|(&vertex, sink)| (vertex, sink.describe(), sink.guarantee().to_string()));
        let line = |(vertex, description, promise): (usize, String, String)| {
            let uid = self.job.vertices[vertex].uid.clone();
            ConnectorLine { uid, description, promise }
        };
        sources.chain(sinks).map(line).collect()
    }

    /// The job, with what was added to it.
    pub fn job(&self) -> &Job {
        &self.job
    }
}

/// Checks a job and takes its components in. Nothing is started, and nothing outside the compile cache is written.
///
/// # Errors
/// All that is wrong with connectors' settings and components, at their places in the job file.
pub fn prepare(mut job: Job, options: Options) -> Result<PreparedJob, JobError> {
    add_dead_letter_sink(&mut job, &options.data_dir);
    let connectors = connectors(&job, &options.job_dir);
    let components = components(&job, &options);
    match (connectors, components) {
        (Ok((sources, event_times, sinks)), Ok(components)) => {
            Ok(PreparedJob { job, options, sources, event_times, sinks, components })
        }
        (Err(mut diagnostics), Err(more)) => {
            diagnostics.extend(more);
            Err(JobError::JobFile(diagnostics))
        }
        (Err(diagnostics), _) | (_, Err(diagnostics)) => Err(JobError::JobFile(diagnostics)),
    }
}

/// Checks the connectors' settings of a job and nothing else.
///
/// # Errors
/// All that is wrong with them, at their places in the job file.
pub fn check_connectors(job: &Job, job_dir: &Path) -> Result<(), Diagnostics> {
    connectors(job, job_dir).map(|_| ())
}

type Connectors = (BTreeMap<usize, Box<dyn SourceFactory>>, BTreeMap<usize, EventTime>, BTreeMap<usize, Box<dyn SinkFactory>>);

fn connectors(job: &Job, job_dir: &Path) -> Result<Connectors, Diagnostics> {
    let mut problems = Diagnostics::default();
    let (mut sources, mut event_times, mut sinks) = Connectors::default();
    for (index, vertex) in job.vertices.iter().enumerate() {
        let mut note = |prefix: &str, error: SettingError| {
            let key = if prefix.is_empty() { error.key.clone() } else { format!("{prefix}.{}", error.key) };
            problems.extend(job.diagnostic(&vertex.uid, &key, &error.message, error.hint.as_deref()));
        };
        match &vertex.kind {
            VertexKind::Source(spec) => {
                match weir_connectors::source(&spec.connector, &with_absolute_path(&spec.settings, job_dir)) {
                    Ok(source) => drop(sources.insert(index, source)),
                    Err(error) => note("", error),
                }
                match spec.event_time.as_ref().map(|spec| EventTime::from_settings(&spec.settings)) {
                    Some(Ok(event_time)) => drop(event_times.insert(index, event_time)),
                    Some(Err(error)) => note("event_time", error),
                    None => {}
                }
            }
            VertexKind::Sink(spec) => {
                match weir_connectors::sink(&spec.connector, &with_absolute_path(&spec.settings, job_dir)) {
                    Ok(sink) => drop(sinks.insert(index, sink)),
                    Err(error) => note("", error),
                }
            }
            VertexKind::Operator(_) => {}
        }
    }
    if problems.is_empty() { Ok((sources, event_times, sinks)) } else { Err(problems) }
}

/// Relative paths in a job file start at its folder.
fn with_absolute_path(settings: &Map<String, Value>, job_dir: &Path) -> Map<String, Value> {
    let mut settings = settings.clone();
    if let Some(Value::String(path)) = settings.get_mut("path") {
        *path = job_dir.join(&*path).to_string_lossy().into_owned();
    }
    settings
}

fn components(job: &Job, options: &Options) -> Result<BTreeMap<usize, PreparedComponent>, Diagnostics> {
    let mut problems = Diagnostics::default();
    let mut taken: BTreeMap<String, PreparedComponent> = BTreeMap::new();
    let mut components = BTreeMap::new();
    for (index, vertex) in job.vertices.iter().enumerate() {
        let VertexKind::Operator(spec) = &vertex.kind else { continue };
        if options.native.contains_key(&vertex.uid) {
            continue;
        }
        let reference = spec.component.to_string();
        if !taken.contains_key(&reference) {
            match take_in(&spec.component, options) {
                Ok(component) => drop(taken.insert(reference.clone(), component)),
                Err(reason) => {
                    problems.extend(job.diagnostic(&vertex.uid, "component", &reason, None));
                    continue;
                }
            }
        }
        let PreparedComponent { component, name } = &taken[&reference];
        components.insert(index, PreparedComponent { component: component.clone(), name: name.clone() });
    }
    if problems.is_empty() { Ok(components) } else { Err(problems) }
}

fn take_in(reference: &ComponentRef, options: &Options) -> Result<PreparedComponent, String> {
    let found = options.components.resolve(reference)?;
    let component = options.sandbox.take_in(&found.bytes).map_err(|error| format!("component {reference}: {error}"))?;
    Ok(PreparedComponent { component, name: found.name })
}

/// Rejected rows are never dropped: where no sink of the job reads them, they go to a folder beside the checkpoints.
fn add_dead_letter_sink(job: &mut Job, data_dir: &Path) {
    if job.edges.iter().any(|edge| edge.port == Port::DeadLetter) {
        return;
    }
    let rejects = |vertex: &Vertex| matches!(&vertex.kind, VertexKind::Operator(spec) if spec.on_error == OnError::DeadLetter);
    let writers: Vec<usize> = (0..job.vertices.len()).filter(|&vertex| rejects(&job.vertices[vertex])).collect();
    if writers.is_empty() {
        return;
    }
    let path = data_dir.join("jobs").join(&job.name).join("dead-letter");
    let settings = json!({ "path": path.to_string_lossy(), "format": "json" });
    let Value::Object(settings) = settings else { unreachable!("an object was written above") };
    let to = job.vertices.len();
    let sink = SinkSpec { connector: "file".to_owned(), settings };
    job.vertices.push(Vertex { uid: DEAD_LETTER_SINK.to_owned(), parallelism: 1, kind: VertexKind::Sink(sink) });
    for from in writers {
        let exchange = if job.vertices[from].parallelism == 1 { Exchange::Forward } else { Exchange::Rebalance };
        job.edges.push(Edge { from, port: Port::DeadLetter, to, input: 0, exchange });
    }
}
