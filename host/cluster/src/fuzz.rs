//! Entry point for fuzzing: what a worker says, with the gate that it has to pass. A worker `a` of two that run one job says it.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::{Attempt, CheckpointId, Digest, TaskId};
use weir_plan::Topology;
use weir_protocol::manifest::{Header, assemble};
use weir_protocol::{
    Acknowledgement, Command, ComponentPin, Envelope, Execution, InFlightState, InstanceAcknowledgement, JobSpec, Placement,
    Prepare, Report, SinkAcknowledgement, WorkerAddress, decode, encode,
};
use weir_storage::{InstanceState, ManifestKind, Segment, StoredFile};

use crate::gate::{Gate, Objection, Part};

const KEYED: &str = "[job]\nname = \"j\"\nparallelism = 2\n[[source]]\nid = \"in\"\nconnector = \"generator\"\n[[operator]]\nid = \"op\"\n\
                     component = \"op@1.0.0\"\ninput = { from = \"in\", exchange = \"hash\" }\n[[sink]]\nid = \"out\"\nconnector = \"blackhole\"\ninput = \"op\"\n";

fn keyed_spec() -> JobSpec {
    let pin =
        ComponentPin { digest: Digest([7; 32]), name: "op@1.0.0".to_owned(), description: weir_model::Description::plain() };
    JobSpec { job_dir: "/jobs".to_owned(), components: [("op@1.0.0".to_owned(), pin)].into(), ..JobSpec::new("j.toml", KEYED) }
}

/// Tasks 0 and 1 read, 2 and 3 run operator and sink; a has the first of each, b the second.
pub(crate) fn keyed() -> (Gate, Execution) {
    let execution = Execution { job: "j".to_owned(), attempt: Attempt(3) };
    let spec = keyed_spec();
    let address = |worker: &str| WorkerAddress { worker: worker.to_owned(), address: String::new() };
    let tasks = weir_plan::Topology::new(&spec.load().expect("a job")).tasks() as u32;
    let prepare = Prepare {
        execution: execution.clone(),
        spec,
        placement: Placement { workers: vec![address("a"), address("b")], tasks: (0..tasks).map(|task| task % 2).collect() },
        storage: "memory:".to_owned(),
        restore: None,
        first_checkpoint: CheckpointId(5),
        edges_apart: Vec::new(),
        retract_after: None,
    };
    let mut gate = Gate::default();
    gate.listen(Part::of(&prepare).expect("a job"));
    let begun = Command::Trigger { execution: execution.clone(), checkpoint: CheckpointId(6), stop: false, unaligned: false };
    gate.tells(&begun);
    (gate, execution)
}

pub(crate) fn segment() -> Segment {
    Segment { file: "3-6-2-0".to_owned(), offset: 0, length: 1, checksum: String::new() }
}

/// What worker a may say of task 2.
pub(crate) fn good() -> Acknowledgement {
    let state = InstanceState::of_memory(vec![segment()], 0, false);
    let in_flight = InFlightState {
        from: "in".to_owned(),
        output: Some(0),
        input: 0,
        sender: 1,
        exchange: "hash".to_owned(),
        groups: None,
        rows: 1,
        frames: segment(),
    };
    Acknowledgement {
        task: TaskId(2),
        checkpoint: CheckpointId(6),
        finished: false,
        watermarks: vec![0, 0],
        source: None,
        instances: vec![InstanceAcknowledgement { uid: "op".to_owned(), name: "g3".to_owned(), state }],
        sinks: vec![SinkAcknowledgement { uid: "out".to_owned(), committables: Vec::new() }],
        in_flight: vec![in_flight],
        file: Some(StoredFile { name: "3-6-2-0".to_owned(), bytes: 1 }),
        captured_bytes: 1,
        merged_bytes: 0,
        in_flight_bytes: 0,
    }
}

/// Hears a report, given as a message or as the JSON of one. Says what became of it.
///
/// # Panics
/// If something passes the gate that a master cannot take as it is.
pub fn report(bytes: &[u8]) -> String {
    let framed = serde_json::from_slice::<serde_json::Value>(bytes).map(|value| encode(&value, &[]));
    let Ok(Envelope { message, .. }) = decode::<Report>(framed.as_deref().unwrap_or(bytes)) else {
        return "unreadable".to_owned();
    };
    let (mut gate, _) = keyed();
    let worker: Arc<str> = "a".into();
    let checked = match message {
        Report::Register(mut register) => match gate.check_register(&worker, &mut register) {
            Ok(()) => Ok(None),
            Err(reason) => Err(Objection::Foreign(reason)),
        },
        Report::Heartbeat { progress } => {
            let mut check = |(execution, mut progress)| gate.check_progress(&worker, &execution, &mut progress);
            progress.into_iter().try_for_each(&mut check).map(|()| None)
        }
        mut report => gate.check(&worker, &mut report).map(|()| Some(report)),
    };
    match checked {
        Err(objection) => {
            let said = format!("{objection:?}");
            gate.refuse(&worker, &keyed().1, objection);
            said
        }
        Ok(Some(Report::Acknowledged { acknowledgement, .. })) => {
            complete(*acknowledgement);
            "a manifest".to_owned()
        }
        Ok(_) => "heard".to_owned(),
    }
}

/// Makes a manifest, as a master does of what all tasks have acknowledged.
fn complete(acknowledgement: Acknowledgement) {
    let spec = keyed_spec();
    let job = spec.load().expect("a job");
    let header = Header {
        attempt: Attempt(3),
        checkpoint: CheckpointId(6),
        kind: ManifestKind::Checkpoint,
        triggered_at_ms: 0,
        completed_at_ms: 0,
    };
    let manifest = assemble(&spec, &job, &Topology::new(&job), &BTreeMap::new(), &header, &[acknowledgement, good()]);
    assert!(manifest.operators["op"].instances.keys().all(|name| name.starts_with('g')), "{manifest:?}");
}

/// Reports to begin with, as JSON.
pub fn reports() -> Vec<Vec<u8>> {
    let execution = keyed().1;
    let (task, checkpoint, reason) = (TaskId(2), CheckpointId(6), "so it says".to_owned());
    let running = weir_protocol::Running {
        execution: execution.clone(),
        tasks: vec![TaskId(0), task],
        started: true,
        restored: vec![TaskId(0), task],
        finished: vec![TaskId(0)],
        committed: vec![(task, checkpoint)],
        last_checkpoint: checkpoint,
        failure: None,
    };
    let register = weir_protocol::Register {
        version: "1".to_owned(),
        slots: 2,
        data_address: "a:7".to_owned(),
        clock_ms: 1,
        led_by: None,
        running: vec![running],
    };
    let vertices = vec![weir_protocol::VertexCounts { rows_in: 1, rows_out: 2, rows_rejected: 3 }; 2];
    let counts = weir_protocol::TaskProgress {
        task,
        watermark: 5,
        busy_ns: 1,
        backpressured_ns: 2,
        pauses: vec![(1, 2)],
        pause_max_ns: 3,
        vertices,
        finished: false,
    };
    let progress = weir_protocol::WorkerProgress {
        tasks: vec![counts],
        counters: [("op.n".to_owned(), 1)].into(),
        ..weir_protocol::WorkerProgress::default()
    };
    let failure =
        weir_protocol::Failure { kind: weir_protocol::FailureKind::Damaged, uid: Some("op".to_owned()), reason: reason.clone() };
    let looked = weir_protocol::Looked { uid: "in".to_owned(), more: true, what: reason.clone() };
    let all = [
        Report::Register(register),
        Report::Heartbeat { progress: vec![(execution.clone(), progress.clone())] },
        Report::Certificate { until_ms: 1 },
        Report::Stuck { executions: 1 },
        Report::Need { digest: Digest([7; 32]) },
        Report::Looked { execution: execution.clone(), sources: vec![looked] },
        Report::Opened { execution: execution.clone(), templates: vec![("op".to_owned(), segment())] },
        Report::Acknowledged { execution: execution.clone(), acknowledgement: Box::new(good()) },
        Report::PersistFailed { execution: execution.clone(), task, checkpoint, reason: reason.clone() },
        Report::Declined { execution: execution.clone(), task, checkpoint, subsumed_by: Some(checkpoint), reason },
        Report::TaskRestored { execution: execution.clone(), task },
        Report::Finished { execution: execution.clone(), task },
        Report::Committed { execution: execution.clone(), task, checkpoint },
        Report::Failed { execution: execution.clone(), failure },
        Report::Ended { execution, progress: Box::new(progress) },
    ];
    all.iter().filter_map(|report| serde_json::to_vec(report).ok()).collect()
}
