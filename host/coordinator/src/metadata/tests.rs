//! What was written is there after any end of the process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use weir_cluster::{Intent, JobRecord};
use weir_master::Begun;
use weir_model::{Attempt, CheckpointId};
use weir_protocol::api::{EventLevel, JobState};
use weir_protocol::{Execution, JobSpec, Placement, Prepare, WorkerAddress};

use super::*;
use crate::ServeError;

fn record() -> JobRecord {
    JobRecord {
        spec: JobSpec {
            overrides: vec![("job.parallelism".to_owned(), "3".to_owned())],
            environment: [("A".to_owned(), "b".to_owned())].into(),
            job_dir: "dir".to_owned(),
            dead_letters: "dead".to_owned(),
            ..JobSpec::new("j.toml", "[job]")
        },
        fresh: true,
        allow_dropped_state: false,
        desired: Intent::Run,
        rescale: Some(3),
        state: JobState::Waiting,
        reason: Some("why".to_owned()),
        slots: 3,
        attempt: 0,
        attempts: 0,
        submitted_at_ms: 1,
        since_ms: 2,
        last_event: 0,
        counts: None,
        checkpoint: None,
    }
}

fn begun(attempt: u64) -> Begun {
    let prepare = Prepare {
        execution: Execution { job: "j".to_owned(), attempt: Attempt(attempt) },
        spec: record().spec,
        placement: Placement {
            workers: vec![WorkerAddress { worker: "a".to_owned(), address: "x:1".to_owned() }],
            tasks: vec![0, 0],
        },
        storage: "file:x".to_owned(),
        restore: Some(CheckpointId(4)),
        first_checkpoint: CheckpointId(7),
        edges_apart: vec![1],
        retract_after: None,
    };
    Begun { prepare, templates: Vec::new() }
}

fn event(number: u64) -> JobEvent {
    JobEvent {
        number,
        at_ms: number,
        level: EventLevel::Info,
        kind: "k".to_owned(),
        message: format!("the {number}. event"),
        by: None,
    }
}

fn put(
    metadata: &Database,
    name: &str,
    record: &JobRecord,
    begun: BegunChange,
    event: Option<JobEvent>,
) -> Result<(), WriteFailure> {
    metadata.put(&Change::Job { name: name.to_owned(), record: Box::new(record.clone()), begun, event })
}

fn write_event(metadata: &Database, name: &str, record: &mut JobRecord) {
    record.last_event += 1;
    put(metadata, name, record, BegunChange::Kept, Some(event(record.last_event))).unwrap();
}

#[test]
fn jobs_executions_and_events_are_there_when_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut written = record();
    {
        let metadata = Database::open(folder.path()).unwrap();
        write_event(&metadata, "j", &mut written);
        written.attempt = 5;
        put(&metadata, "j", &written, BegunChange::Is(Box::new(begun(5))), None).unwrap();
        put(&metadata, "jj", &record(), BegunChange::Kept, None).unwrap();
    }
    let metadata = Database::open(folder.path()).unwrap();
    let jobs = metadata.stored().unwrap();
    assert_eq!(jobs.iter().map(|job| &job.record).collect::<Vec<_>>(), [&written, &record()]);
    assert_eq!(jobs[0].begun, Some(begun(5)));
    assert_eq!(jobs[1].begun, None);
    assert_eq!(metadata.events("j", 0).unwrap(), [event(1)]);
    put(&metadata, "j", &written, BegunChange::Forgotten, None).unwrap();
    assert_eq!(metadata.stored().unwrap()[0].begun, None);
}

#[test]
fn each_start_has_a_greater_count_of_one_origin_and_two_folders_never_share_an_origin() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |folder: &tempfile::TempDir| Database::open(folder.path()).unwrap().next_epoch().unwrap();
    let epochs = [start(&one), start(&one), start(&other), start(&one)];
    assert_eq!(epochs.map(|epoch| epoch.count), [1, 2, 1, 3]);
    assert!(epochs[0] < epochs[1] && epochs[1] < epochs[3]);
    assert_ne!(epochs[2].origin, epochs[0].origin);
    assert_ne!(epochs[0].origin, [0; 16]);
}

#[test]
fn a_record_of_an_older_coordinator_which_kept_no_counts_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Database::open(folder.path()).unwrap();
    let mut old = serde_json::to_value(record()).unwrap();
    for field in ["counts", "checkpoint"] {
        assert!(old.as_object_mut().unwrap().remove(field).is_some(), "{field}");
    }
    metadata.write(|batch| batch.put(&key("job", "j"), &old)).unwrap();
    assert_eq!(metadata.stored().unwrap()[0].record, record());
}

#[test]
fn events_are_bounded_and_those_of_other_jobs_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Database::open(folder.path()).unwrap();
    let (mut one, mut other) = (record(), record());
    for _ in 0..3 {
        write_event(&metadata, "j-", &mut other);
    }
    // All at once, as the disk's speed is not what is tested.
    one.last_event = EVENTS_PER_JOB_MAX + 20;
    let all = 1..=one.last_event;
    metadata.write(|batch| all.clone().try_for_each(|number| batch.put(&event_key("j", number), &event(number)))).unwrap();
    for _ in 0..20 {
        write_event(&metadata, "j", &mut one);
    }
    // Each of the last twenty took the place of one.
    assert_eq!(metadata.events("j", 20).unwrap()[0].number, 41);
    assert_eq!(one.last_event - 40, EVENTS_PER_JOB_MAX);
    assert_eq!(metadata.events("j", one.last_event - 2).unwrap().len(), 2);
    assert_eq!(metadata.events("j", one.last_event).unwrap(), []);
    assert_eq!(metadata.events("j", u64::MAX).unwrap(), []);
    assert_eq!(metadata.events("j", 0).unwrap().len(), EVENTS_READ_MAX);
    metadata.put(&Change::Forget { name: "j".to_owned() }).unwrap();
    assert_eq!(metadata.events("j", 0).unwrap(), []);
    assert_eq!(metadata.events("j-", 0).unwrap().len(), 3);
}

#[test]
fn another_layout_is_refused_by_number() {
    let folder = tempfile::tempdir().unwrap();
    Database::open(folder.path()).unwrap().write(|batch| batch.put(b"schema", &7)).unwrap();
    let error = Database::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("its layout has version 7, this weir knows 2"), "{error}");
}

#[test]
fn the_layout_of_earlier_versions_is_refused_by_number() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("metadata")).unwrap();
    std::fs::write(folder.path().join("metadata/CURRENT"), "MANIFEST-000005\n").unwrap();
    let error = Database::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("its layout has version 1, this weir knows 2"), "{error}");
    assert!(!folder.path().join("metadata").join(FILE).exists(), "nothing was written");
}

#[test]
fn a_damaged_database_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Database::open(folder.path()).unwrap();
    let mut record = record();
    (0..200).for_each(|_| write_event(&metadata, "j", &mut record));
    drop(metadata);
    let file = folder.path().join("metadata").join(FILE);
    let mut bytes = std::fs::read(&file).unwrap();
    let end = bytes.len().min(16_384);
    bytes[4_096..end].fill(0x5a);
    std::fs::write(&file, bytes).unwrap();
    let error = Database::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("damaged") || error.contains("malformed"), "{error}");
    assert!(error.contains("restore the folder from a copy"), "{error}");
}

#[test]
fn a_damaged_entry_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Database::open(folder.path()).unwrap();
    metadata.write(|batch| batch.put_bytes(&key("job", "j"), b"{")).unwrap();
    let error = metadata.stored().unwrap_err().to_string();
    assert!(error.contains("the entry `job/j` is damaged"), "{error}");
}

#[test]
fn s41_a_second_coordinator_on_the_same_folder_is_refused_with_the_process_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let lock = DataLock::take(folder.path()).unwrap();
    let error = DataLock::take(folder.path()).unwrap_err();
    assert!(matches!(&error, ServeError::Locked { holder: Some(pid), .. } if *pid == std::process::id()), "{error:?}");
    assert!(error.to_string().contains("another one runs on this folder (process "), "{error}");
    drop(lock);
    DataLock::take(folder.path()).unwrap();
}

/// A disk of its own, as large as a test wants it.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// None where mounting is not permitted.
    fn mount(options: &str) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(folder.path()).output();
        mounted.is_ok_and(|done| done.status.success()).then_some(SmallDisk(folder))
    }

    fn resize(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(Command::new("mount").args(["-o", &options]).arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_named_what_was_written_can_be_read_and_all_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("size=700k") else {
        eprintln!("mounting is not permitted here");
        return;
    };
    let metadata = Database::open(disk.0.path()).unwrap();
    let mut written = record();
    let try_write = |written: &mut JobRecord| {
        let mut next = written.clone();
        next.last_event += 1;
        let result = put(&metadata, "j", &next, BegunChange::Kept, Some(event(next.last_event)));
        if result.is_ok() {
            *written = next;
        }
        result
    };
    let error = (0..10_000).find_map(|_| try_write(&mut written).err()).expect("the disk is full some day").to_string();
    assert!(error.to_lowercase().contains("no space left on device"), "{error}");
    assert!(try_write(&mut written).is_err(), "and stays so");
    assert_eq!(metadata.stored().unwrap()[0].record, written);
    assert_eq!(metadata.events("j", written.last_event - 1).unwrap().len(), 1);

    disk.resize("size=64m");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Err(error) = try_write(&mut written) {
        assert!(std::time::Instant::now() < deadline, "it does not recover: {error}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(metadata.stored().unwrap()[0].record, written);
    drop(metadata);
    let metadata = Database::open(disk.0.path()).unwrap();
    assert_eq!(metadata.stored().unwrap()[0].record, written, "and nothing is lost when it is opened again");
    drop(metadata);
}

const CHILD: &str = "WEIR_TEST_METADATA_CHILD";

/// Writes events until it is killed, saying each number once it is durable. Only within the test after it.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let _lock = DataLock::take(folder).unwrap();
    let metadata = Database::open(folder).unwrap();
    let mut record = metadata.stored().unwrap().pop().map_or_else(record, |job| job.record);
    loop {
        record.attempt += 1;
        record.last_event += 1;
        let execution = BegunChange::Is(Box::new(begun(record.attempt)));
        put(&metadata, "j", &record, execution, Some(event(record.last_event))).unwrap();
        println!("durable {}", record.last_event);
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9_and_the_lock_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut said = 0;
    for round in 0..3 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "metadata::tests::child_that_writes_until_it_is_killed", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = lines.by_ref().filter_map(|line| line.unwrap().split("durable ").nth(1)?.parse::<u64>().ok());
        said = numbers.take(5 + 7 * round).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        // What it said after we stopped listening counts too.
        said = lines.map_while(Result::ok).filter_map(|line| line.split("durable ").nth(1)?.parse().ok()).last().unwrap_or(said);
        let _lock = DataLock::take(folder.path()).unwrap();
        let metadata = Database::open(folder.path()).unwrap();
        let job = metadata.stored().unwrap().pop().unwrap();
        assert!(job.record.last_event >= said, "{} is there, {said} was said", job.record.last_event);
        assert_eq!(job.begun, Some(begun(job.record.attempt)), "record and execution are of one batch");
        let mut numbers = Vec::new();
        while let Some(last) = metadata.events("j", numbers.last().copied().unwrap_or(0)).ok().filter(|e| !e.is_empty()) {
            numbers.extend(last.iter().map(|event| event.number));
        }
        assert_eq!(*numbers.last().unwrap(), job.record.last_event);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "events have no gaps");
    }
    assert!(said > 0);
}
