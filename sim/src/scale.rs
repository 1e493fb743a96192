//! What a checkpoint of a large job costs its coordinator: the machine and manifest-sized acknowledgements, without a network.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use weir_checkpoint::coordinator::{Action, Config, Coordinator, Event};
use weir_model::{Attempt, CheckpointId, TaskId};
use weir_plan::{Job, Topology};
use weir_protocol::manifest::{Header, assemble};
use weir_protocol::{Acknowledgement, InstanceAcknowledgement, JobSpec, Report, SinkAcknowledgement, SourceAcknowledgement};
use weir_storage::{Committable, InstanceState, ManifestKind, Segment, StoredFile};

/// Key groups that each subtask of a keyed operator has.
const KEY_GROUPS_EACH: u32 = 4;

/// Captures of which each instance's state is made.
const CHAIN: u64 = 3;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Subtasks of the job.
    pub subtasks: usize,
    /// CPU time of the coordinator's thread for one checkpoint, the least of several: reports decoded, the machine, the manifest
    /// put together and made into its document.
    pub per_checkpoint: Duration,
    /// Of it, decoding the reports.
    pub decoding: Duration,
    /// Size of the manifest.
    pub manifest_bytes: usize,
}

/// As many pipelines as make `subtasks` subtasks a worker: in each, a source, and behind it a keyed operator with a sink.
fn job(workers: usize, subtasks: usize) -> JobSpec {
    let key_groups = KEY_GROUPS_EACH * workers as u32;
    let mut text = format!("[job]\nname = \"scale\"\nparallelism = {workers}\nkey_groups = {key_groups}\non_error = \"fail\"\n");
    for n in 0..subtasks / 2 {
        let _ = write!(
            text,
            "[[source]]\nid = \"a{n}\"\nconnector = \"x\"\n\
             [[operator]]\nid = \"count{n}\"\ncomponent = \"count@1.0.0\"\ninput = {{ from = \"a{n}\", exchange = \"hash\" }}\n\
             [[sink]]\nid = \"out{n}\"\nconnector = \"x\"\ninput = \"count{n}\"\n"
        );
    }
    JobSpec {
        file: "scale.toml".to_owned(),
        text,
        overrides: Vec::new(),
        environment: BTreeMap::new(),
        job_dir: String::new(),
        dead_letters: String::new(),
        components: BTreeMap::new(),
    }
}

fn segment(file: &str, number: u64) -> Segment {
    Segment { file: file.to_owned(), offset: number * 65_536, length: 65_000, checksum: "0123456789abcdef".to_owned() }
}

/// What the task says of a checkpoint.
fn acknowledgement(job: &Job, topology: &Topology, task: TaskId, checkpoint: CheckpointId) -> Acknowledgement {
    let (chain, subtask) = topology.locate(task);
    let parallelism = topology.chains()[chain].parallelism;
    let file = format!("1-{checkpoint}-{task}-{}", task.0);
    let uids: Vec<&str> = topology.chains()[chain].vertices.iter().map(|vertex| job.vertices[*vertex].uid.as_str()).collect();
    let is_source = uids.len() == 1;
    let groups = weir_model::KeyGroupRange::of(subtask, job.key_groups, parallelism);
    let instance = |group: u16| InstanceAcknowledgement {
        uid: uids[0].to_owned(),
        name: format!("g{group}"),
        state: InstanceState {
            chain: (0..CHAIN).map(|number| segment(&file, number)).collect(),
            watermark: 1_700_000_000_000,
            finished: false,
        },
    };
    let value = serde_json::json!({"path": format!("part-{subtask}-{checkpoint}"), "bytes": 123_456});
    Acknowledgement {
        task,
        checkpoint,
        finished: false,
        watermarks: vec![1_700_000_000_000; 20],
        source: is_source.then(|| SourceAcknowledgement {
            splits: BTreeMap::from([(format!("split-{subtask}"), serde_json::json!({"offset": 123_456_789}))]),
            event_time_max: 1_700_000_000_000,
        }),
        instances: if is_source { Vec::new() } else { (groups.start..groups.end).map(instance).collect() },
        sinks: if is_source {
            Vec::new()
        } else {
            vec![SinkAcknowledgement {
                uid: uids[1].to_owned(),
                committables: vec![Committable { checkpoint: checkpoint.0, value }],
            }]
        },
        in_flight: Vec::new(),
        file: Some(StoredFile { name: file, bytes: 400_000 }),
        captured_bytes: 400_000,
        merged_bytes: 0,
        in_flight_bytes: 0,
    }
}

/// CPU time of this thread so far, where the system says it (Linux); else the time since some start.
pub fn cpu_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let said = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = said.and_then(|text| text.split_whitespace().next()?.parse().ok());
    ns.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// Measures a job of `workers` workers with `subtasks` subtasks each, over some checkpoints.
///
/// # Panics
/// If the machine does not do what it must.
pub fn measure(workers: usize, subtasks: usize, checkpoints: u64) -> Measured {
    let spec = job(workers, subtasks);
    let planned = weir_plan::load(&spec.file, &spec.text, &[], &|_| None);
    let job = planned.unwrap_or_else(|problems| panic!("the job file of the measurement is wrong: {problems}"));
    let topology = Topology::new(&job);
    let config = Config {
        interval_ms: Some(1_000),
        min_pause_ms: 0,
        timeout_ms: 600_000,
        tolerable_failures: 3,
        max_concurrent: 1,
        unaligned_after_ms: Some(1_000),
    };
    let tasks = topology.tasks();
    let mut coordinator = Coordinator::new(config, Attempt(1), tasks, CheckpointId(1), 0);
    let mut times = Vec::new();
    let mut manifest_bytes = 0;
    for checkpoint in (1..=checkpoints).map(CheckpointId) {
        let now_ms = checkpoint.0 * 1_000;
        let execution = weir_protocol::Execution { job: "scale".to_owned(), attempt: Attempt(1) };
        let report = |task| Report::Acknowledged {
            execution: execution.clone(),
            acknowledgement: Box::new(acknowledgement(&job, &topology, TaskId(task), checkpoint)),
        };
        let packets: Vec<Vec<u8>> = (0..tasks as u32).map(|task| serde_json::to_vec(&report(task)).unwrap_or_default()).collect();
        let started = cpu_time();
        let decode = |packet: &Vec<u8>| match serde_json::from_slice(packet) {
            Ok(Report::Acknowledged { acknowledgement, .. }) => *acknowledgement,
            other => panic!("a report that cannot be read: {other:?}"),
        };
        let acknowledgements: Vec<Acknowledgement> = packets.iter().map(decode).collect();
        let decoding = cpu_time() - started;
        let mut actions = Vec::new();
        coordinator.handle(now_ms, Event::Tick, &mut actions);
        assert!(matches!(actions[..], [Action::Trigger(_)]), "{actions:?}");
        for Acknowledgement { task, .. } in &acknowledgements {
            actions.clear();
            let event = Event::Acknowledged { task: *task, attempt: Attempt(1), checkpoint };
            coordinator.handle(now_ms + 1, event, &mut actions);
            // The master asks after each event when the next tick is due.
            assert!(coordinator.deadline_ms().is_some() || !actions.is_empty(), "nothing is due");
        }
        assert!(matches!(actions[..], [Action::WriteManifest { .. }]), "{actions:?}");
        let header = Header {
            attempt: Attempt(1),
            checkpoint,
            kind: ManifestKind::Checkpoint,
            triggered_at_ms: now_ms,
            completed_at_ms: now_ms,
        };
        let manifest = assemble(&spec, &job, &topology, &BTreeMap::new(), &header, &acknowledgements);
        manifest_bytes = serde_json::to_vec(&manifest).map_or(0, |document| document.len());
        actions.clear();
        coordinator.handle(now_ms + 2, Event::ManifestWritten(checkpoint), &mut actions);
        assert!(matches!(actions[..], [Action::Complete { .. }]), "{actions:?}");
        times.push((cpu_time() - started, decoding));
    }
    let (per_checkpoint, decoding) = times.into_iter().min().unwrap_or_default();
    Measured { subtasks: tasks, per_checkpoint, decoding, manifest_bytes }
}
