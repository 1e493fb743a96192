//! `weir job check`: what can be said of a job file without running it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use weir_plan::{CheckpointMode, Job, OnError, Vertex, VertexKind};

use crate::global::Global;
use crate::job_file::JobFileArgs;
use crate::job_spec::JobWithComponents;
use crate::store;
use crate::{Native, job_spec, output};

/// Checks a job file against the store of this machine, and prints it.
pub(super) fn execute(file: &JobFileArgs, dot: bool, global: &Global) -> anyhow::Result<()> {
    let store = store::open(&global.data_dir);
    let JobWithComponents { file, pins, .. } = job_spec::read(file, &job_spec::in_store(&store, global), &Native::new(), global)?;
    let job = file.job;
    weir_worker::check_connectors(&job, &file.folder)?;
    let digest = |vertex: &Vertex| match &vertex.kind {
        VertexKind::Operator(spec) => {
            pins.get(&spec.component.to_string()).map(|pin| (vertex.uid.clone(), pin.digest.to_string()))
        }
        _ => None,
    };
    let digests = job.vertices.iter().filter_map(digest).collect();
    match (global.json, dot) {
        (true, _) => output::print_json(&as_json(&job, &digests)),
        (false, true) => output::print(&job.to_dot()),
        (false, false) => output::print(&job.to_text()),
    }
}

fn as_json(job: &Job, digests: &BTreeMap<String, String>) -> Value {
    let uid = |vertex: &usize| job.vertices[*vertex].uid.clone();
    let vertices: Vec<Value> = (0..job.vertices.len()).map(|vertex| vertex_json(job, vertex, digests)).collect();
    let edge_json = |(index, edge): (usize, &weir_plan::Edge)| {
        json!({
            "from": uid(&edge.from), "output": job.port_name(edge), "to": uid(&edge.to), "input": edge.input, "as": job.input_name(edge),
            "exchange": edge.exchange.to_string(), "chained": job.edge_is_chained(index),
        })
    };
    let chains = job.chains();
    let chain_json = |chain: &weir_plan::Chain| json!({ "vertices": chain.vertices.iter().map(uid).collect::<Vec<_>>(), "parallelism": chain.parallelism });
    let warning_json = |warning: &weir_plan::Diagnostic| warning.to_string();
    json!({
        "job": job.name,
        "parallelism": job.parallelism,
        "key_groups": job.key_groups,
        "checkpoint": {
            "interval_ms": job.checkpoint.interval.map(|interval| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)),
            "mode": match job.checkpoint.mode {
                CheckpointMode::ExactlyOnce => "exactly-once",
                CheckpointMode::AtLeastOnce => "at-least-once",
            },
            "retained": job.checkpoint.retained,
            "storage": job.checkpoint.storage,
        },
        "vertices": vertices,
        "edges": job.edges.iter().enumerate().map(edge_json).collect::<Vec<_>>(),
        "chains": chains.iter().map(chain_json).collect::<Vec<_>>(),
        "warnings": job.warnings().iter().map(warning_json).collect::<Vec<_>>(),
    })
}

fn vertex_json(job: &Job, vertex: usize, digests: &BTreeMap<String, String>) -> Value {
    let described = &job.vertices[vertex];
    let mut value = match &described.kind {
        VertexKind::Source(spec) => json!({ "kind": "source", "connector": spec.connector, "settings": spec.settings }),
        VertexKind::Sink(spec) => json!({ "kind": "sink", "connector": spec.connector, "settings": spec.settings }),
        VertexKind::Operator(spec) => json!({
            "kind": "operator", "component": spec.component.to_string(), "digest": digests.get(&described.uid),
            "keyed": job.is_keyed(vertex), "config": spec.config,
            "inputs": spec.description.inputs.iter().map(|input| &input.name).collect::<Vec<_>>(),
            "outputs": spec.description.outputs.iter().map(|output| &output.name).collect::<Vec<_>>(),
            "on_error": match spec.on_error { OnError::Fail => "fail", OnError::DeadLetter => "dead_letter" },
        }),
    };
    value["id"] = json!(described.uid);
    value["parallelism"] = json!(described.parallelism);
    value
}
