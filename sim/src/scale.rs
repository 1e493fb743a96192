//! What a checkpoint of a large job costs its coordinator: the job's master and manifest-sized acknowledgements, without a network.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::memory::InMemory;
use weir_coordinator::carry_out;
use weir_master::{Input, Limits, Master, MasterJob, Now, Output, Slots, Store, Stored};
use weir_model::{Attempt, CheckpointId, Epoch, TaskId};
use weir_plan::{Job, Topology};
use weir_protocol::{
    Acknowledgement, Command, InstanceAcknowledgement, JobSpec, Report, SinkAcknowledgement, SourceAcknowledgement,
    WorkerAddress, WorkerId,
};
use weir_storage::{Committable, InstanceState, JobLog, JobStorage, Segment, StoredFile, Writer};

/// Key groups that each subtask of a keyed operator has.
const KEY_GROUPS_EACH: u32 = 4;

/// Captures of which each instance's state is made.
const CHAIN: u64 = 3;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Subtasks of the job.
    pub subtasks: usize,
    /// CPU time of the coordinator's threads for one checkpoint, the least of several: reports decoded, the master from the trigger to
    /// the last commit, the manifest put together and made into its document.
    pub per_checkpoint: Duration,
    /// Of it, decoding the reports.
    pub decoding: Duration,
    /// Size of the manifest.
    pub manifest_bytes: usize,
}

/// As many pipelines as make `subtasks` subtasks a worker: in each, a source, and behind it a keyed operator with a sink.
fn job(workers: usize, subtasks: usize) -> JobSpec {
    let key_groups = KEY_GROUPS_EACH * workers as u32;
    let mut text = format!(
        "[job]\nname = \"scale\"\nparallelism = {workers}\nkey_groups = {key_groups}\non_error = \"fail\"\n\
         [job.checkpoint]\ninterval = \"1s\"\n"
    );
    for n in 0..subtasks / 2 {
        let _ = write!(
            text,
            "[[source]]\nid = \"a{n}\"\nconnector = \"x\"\n\
             [[operator]]\nid = \"count{n}\"\ncomponent = \"count@1.0.0\"\ninput = {{ from = \"a{n}\", exchange = \"hash\" }}\n\
             [[sink]]\nid = \"out{n}\"\nconnector = \"x\"\ninput = \"count{n}\"\n"
        );
    }
    JobSpec::new("scale.toml", &text)
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
        state: InstanceState::of_memory((0..CHAIN).map(|number| segment(&file, number)).collect(), 1_700_000_000_000, false),
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

/// A master whose job's tasks run, and the place of its checkpoints.
struct Bench {
    master: Master,
    log: JobLog,
    now_ms: u64,
}

impl Bench {
    fn new(spec: &JobSpec, workers: usize, tasks: u32) -> Bench {
        let settings = MasterJob {
            spec: spec.clone(),
            default_storage: "memory:".to_owned(),
            fresh: false,
            allow_dropped_state: false,
            patient: true,
            adopted: None,
        };
        let master = Master::new(settings, Limits::DEFAULT).unwrap_or_else(|error| panic!("the job of the measurement: {error}"));
        let storage = JobStorage::with_store(Arc::new(InMemory::new()), "memory:", "scale");
        let storage = storage.unwrap_or_else(|error| panic!("a storage in memory: {error}"));
        let log = JobLog::new(storage, Writer { epoch: Epoch { origin: [1; 16], count: 1 }, nonce: 1 });
        let mut running = Bench { master, log, now_ms: 0 };
        let mut inputs = vec![Input::Tick];
        while let Some(input) = inputs.pop() {
            for output in running.handle(input) {
                inputs.extend(running.answer(output, workers));
            }
        }
        // Nothing was to be restored.
        for task in (0..tasks).map(TaskId) {
            let execution = weir_protocol::Execution { job: "scale".to_owned(), attempt: Attempt(1) };
            let report = Box::new(Report::TaskRestored { execution, task });
            running.handle(Input::Report { worker: "w0".into(), report });
        }
        running
    }

    fn handle(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.master.handle(Now { steady_ms: self.now_ms, wall_ms: self.now_ms, random: 0 }, input, &mut out);
        out
    }

    /// What workers, slots, disk and storage answer until tasks run.
    fn answer(&mut self, output: Output, workers: usize) -> Option<Input> {
        Some(match output {
            Output::Reserve { slots } => {
                let address = |worker: usize| WorkerAddress { worker: format!("w{worker}"), address: String::new() };
                let workers = (0..workers).map(address).collect();
                Input::Slots(Ok(Slots { workers, slots: (0..slots).collect() }))
            }
            Output::Record(_) => Input::Recorded(Ok(())),
            Output::Store { request, what, .. } => {
                let answer = carry_out(&mut self.log, &what).transpose()?;
                Input::Stored { request, answer }
            }
            Output::Send { worker, command } => {
                let execution = command.execution()?.clone();
                let report = match command {
                    Command::Prepare(_) => Report::Prepared { execution },
                    Command::Restore { .. } => Report::Restored { execution },
                    Command::Build { .. } => Report::Built { execution },
                    _ => return None,
                };
                Input::Report { worker, report: Box::new(report) }
            }
            Output::Release | Output::Notice(_) | Output::Over(_) => return None,
        })
    }
}

/// Measures a job of `workers` workers with `subtasks` subtasks each, over some checkpoints.
///
/// # Panics
/// If the master does not do what it must.
pub fn measure(workers: usize, subtasks: usize, checkpoints: u64) -> Measurement {
    let spec = job(workers, subtasks);
    let planned = weir_plan::load(&spec.file, &spec.text, &[], &|_| None, &weir_plan::plain);
    let job = planned.unwrap_or_else(|problems| panic!("the job file of the measurement is wrong: {problems}"));
    let topology = Topology::new(&job);
    let tasks = topology.tasks();
    let mut running = Bench::new(&spec, workers, tasks as u32);
    let mut times = Vec::new();
    let mut manifest_bytes = 0;
    for checkpoint in (1..=checkpoints).map(CheckpointId) {
        running.now_ms += 1_000;
        let execution = weir_protocol::Execution { job: "scale".to_owned(), attempt: Attempt(1) };
        let report = |task| Report::Acknowledged {
            execution: execution.clone(),
            acknowledgement: Box::new(acknowledgement(&job, &topology, TaskId(task), checkpoint)),
        };
        let packets: Vec<Vec<u8>> = (0..tasks as u32).map(|task| serde_json::to_vec(&report(task)).unwrap_or_default()).collect();
        let worker = |task: usize| -> WorkerId { format!("w{}", topology.locate(TaskId(task as u32)).1).into() };
        let from: Vec<WorkerId> = (0..tasks).map(worker).collect();
        let started = cpu_time();
        let decode = |packet: &Vec<u8>| serde_json::from_slice::<Report>(packet).unwrap_or_else(|error| panic!("{error}"));
        let reports: Vec<Report> = packets.iter().map(decode).collect();
        let decoding = cpu_time() - started;
        let triggered = running.handle(Input::Tick);
        let is_trigger = |output: &&Output| matches!(output, Output::Send { command: Command::Trigger { .. }, .. });
        assert_eq!(triggered.iter().filter(is_trigger).count(), workers, "{triggered:?}");
        running.now_ms += 1;
        let mut asked = Vec::new();
        for (worker, report) in from.iter().zip(reports) {
            asked.extend(running.handle(Input::Report { worker: worker.clone(), report: Box::new(report) }));
        }
        let Some(Output::Store { request, what: Store::Complete { manifest, retained }, .. }) = asked.pop() else {
            panic!("{asked:?}")
        };
        manifest_bytes = serde_json::to_vec(&*manifest).map_or(0, |document| document.len());
        let before_storage = cpu_time() - started;
        let durable = running.log.complete(&manifest, retained).unwrap_or_else(|error| panic!("{error}"));
        let started = cpu_time();
        running.now_ms += 1;
        let completed = running.handle(Input::Stored { request, answer: Ok(Stored::Completed(durable)) });
        let is_completed = |output: &&Output| matches!(output, Output::Send { command: Command::Completed { .. }, .. });
        assert_eq!(completed.iter().filter(is_completed).count(), workers);
        for (task, worker) in from.iter().enumerate() {
            let committed = Report::Committed { execution: execution.clone(), task: TaskId(task as u32), checkpoint };
            running.handle(Input::Report { worker: worker.clone(), report: Box::new(committed) });
        }
        times.push((before_storage + (cpu_time() - started), decoding));
    }
    let (per_checkpoint, decoding) = times.into_iter().min().unwrap_or_default();
    Measurement { subtasks: tasks, per_checkpoint, decoding, manifest_bytes }
}
