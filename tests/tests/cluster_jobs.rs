//! Jobs on a cluster of a coordinator and workers: to the end, without slots, stopped and begun again, with another parallelism.

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Random, attempt, last_checkpoint, rows};

/// Bytes per second of a slow standard output: some thousand rows.
const SLOW: u64 = 150_000;
/// As fast as it comes.
const FREE: u64 = u64::MAX;

fn read(cluster: &mut Cluster, bytes_per_second: u64) {
    for worker in ["w1", "w2", "w3"] {
        cluster.read_slowly(worker, bytes_per_second);
    }
}

#[test]
fn s20_two_workers_run_a_job_over_quic_to_the_end() {
    let cluster = Cluster::start(2, 1);
    let ledger = Ledger::new(&mut Random::new(1), &Amounts { files: 4, ..Amounts::default() });
    ledger.write(cluster.world(), "in");
    cluster.write("job.toml", LedgerJob::default().text());
    let done = cluster.ask(&["job", "submit", "job.toml", "--wait"]);
    assert!(done.status.success(), "{}", done.stderr);
    cluster.assert_exact(&ledger);
    let job = cluster.job("ledger");
    assert_eq!(attempt(&job), 1, "nothing was restarted");
    let workers = &job["vertices"][1]["workers"];
    assert!(workers[0] != workers[1], "a worker with one slot has one subtask of each vertex: {workers}");
}

#[test]
fn a_job_waits_for_slots_and_says_so_and_runs_when_a_worker_joins() {
    let mut cluster = Cluster::start(1, 1);
    let ledger = Ledger::new(&mut Random::new(2), &Amounts { rows: 10_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob::default(), &ledger);
    let job = cluster.until_state("ledger", "waiting");
    let words = "it needs 2 slots, and the 1 worker that is connected has 1 slot free; start `weir worker` with 1 slot more";
    assert!(job["status"]["reason"].as_str().is_some_and(|reason| reason.contains(words)), "{job}");
    assert!(cluster.until_event("ledger", "waiting", 0).contains(words));
    assert!(cluster.good(&["job", "show", "ledger"]).contains(words), "and where people look first");
    cluster.start_worker("w2", 1);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn a_job_waits_for_the_slots_of_another_and_gets_them_when_that_ends() {
    let mut cluster = Cluster::start(2, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(9), &Amounts { rows: 20_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob { slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 1);
    let second = LedgerJob { name: "second", ..LedgerJob::default() }.text().replace("\"out\"\n\n", "\"out-2\"\n\n");
    cluster.write("second.toml", second.replace("path = \"bad\"", "path = \"bad-2\""));
    cluster.submit("second.toml", &[]);
    let reason = cluster.until_state("second", "waiting")["status"]["reason"].to_string();
    assert!(
        reason.contains("the 2 workers that are connected have 0 slots free") && reason.contains("end another job"),
        "{reason}"
    );
    read(&mut cluster, FREE);
    cluster.until_state("ledger", "finished");
    cluster.until_state("second", "finished");
    cluster.assert_exact(&ledger);
    assert_eq!(ledger.difference(&rows(&cluster.path("out-2"))), None);
}

#[test]
fn s25_rows_larger_than_frames_and_windows_arrive_whole() {
    let cluster = Cluster::start(2, 1);
    let job = |out: &str| {
        format!(
            r#"
[job]
name = "large"
parallelism = 2

[job.checkpoint]
interval = "100ms"
unaligned_after = "0s"

[[source]]
id = "rows"
connector = "generator"
rows = 12
value_bytes = 2097152
keys = 40

[[operator]]
id = "same"
component = "bench-identity@1.0.0"
input = {{ from = "rows", exchange = "hash" }}

[[sink]]
id = "out"
connector = "file"
input = "same"
path = "{out}"
"#
        )
    };
    cluster.write("cluster.toml", job("out"));
    cluster.submit("cluster.toml", &[]);
    cluster.until_state("large", "finished");
    // The same job in one process is the reference: the same position always gives the same row.
    cluster.write("alone.toml", job("alone"));
    cluster.world().run(&["alone.toml"]);
    let sorted = |folder: &str| {
        let mut values: Vec<String> = rows(&cluster.path(folder)).iter().map(|row| row.value.to_string()).collect();
        values.sort();
        values
    };
    let (found, expected) = (sorted("out"), sorted("alone"));
    assert_eq!(expected.len(), 12);
    assert!(expected.iter().all(|value| value.len() > 2_097_152), "they are large");
    assert!(found == expected, "{} rows arrived, and not all as they were", found.len());
}

#[test]
fn a_stopped_and_a_cancelled_job_go_on_from_their_last_checkpoints() {
    let mut cluster = Cluster::start(2, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(3), &Amounts { files: 4, rows: 250_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob { slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 2);
    let stopping = cluster.good(&["job", "stop", "ledger", "--no-wait", "--json"]);
    assert!(stopping.contains("\"stopping\""), "{stopping}");
    // Its last checkpoint overtakes what the slow sink has not written, so nobody has to read faster for it to end.
    let at = last_checkpoint(&cluster.until_state("ledger", "stopped"));
    assert!(rows(&cluster.path("out")).len() < ledger.len() as usize, "it was stopped on its way");

    read(&mut cluster, SLOW);
    cluster.submit("job.toml", &[]);
    assert!(cluster.until_event("ledger", "resubmitted", 0).contains("goes on from its last checkpoint"));
    assert_eq!(cluster.until_event("ledger", "running", 1), format!("attempt 2 runs from checkpoint {at}"));
    cluster.until_checkpoint("ledger", at + 2);
    cluster.good(&["job", "cancel", "ledger"]);
    cluster.until_state("ledger", "cancelled");
    let refused = cluster.bad(4, &["job", "cancel", "ledger"]);
    assert!(refused.contains("E0043") && refused.contains("it is cancelled already"), "{refused}");

    read(&mut cluster, FREE);
    cluster.submit("job.toml", &[]);
    let message = cluster.until_event("ledger", "running", 2);
    let from: u64 = message.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{message}"));
    assert!(message.starts_with("attempt 3 runs from checkpoint") && from > at, "{message}");
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn s41_a_second_coordinator_on_the_same_folder_is_refused() {
    let cluster = Cluster::start(0, 1);
    let data = cluster.path("nodes/coordinator");
    let identity = cluster.path("cluster/nodes/coordinator");
    let [data, identity] = [&data, &identity].map(|path| path.to_string_lossy().into_owned());
    let (listen, checkpoints) = (cluster.address(0).to_string(), cluster.path("checkpoints").to_string_lossy().into_owned());
    let arguments = ["coordinator", "--data-dir", &data, "--identity", &identity, "--checkpoints", &checkpoints];
    let refused = cluster.bad(1, &[&arguments[..], &["--listen", &listen, "--api", &listen]].concat());
    assert!(refused.contains("E0058") && refused.contains("coordinator"), "{refused}");
    assert!(cluster.good(&["cluster", "status"]).contains("workers      0 connected"), "the first one is there as before");
}

#[test]
fn s41_a_coordinator_on_a_copy_of_the_folder_fences_the_other() {
    let mut cluster = Cluster::start(1, 2);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(4), &Amounts { rows: 60_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob { slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 2);
    // Nobody writes while the folder is copied; to the other coordinator the first one seems dead.
    cluster.signal("coordinator", "STOP");
    let copied = std::process::Command::new("cp")
        .args(["-r", "nodes/coordinator", "nodes/copy"])
        .current_dir(cluster.path(""))
        .status()
        .expect("cp");
    assert!(copied.success());
    let mut other = cluster.beside("copy");
    other.read_slowly("w2", SLOW);
    other.start_worker("w2", 2);
    other.until_connected(1);
    other.until_event("ledger", "not-taken-over", 0);
    cluster.signal("coordinator", "CONT");

    // Each of them has a worker and believes that the job is its own. Whoever begins an attempt last has it.
    read(&mut cluster, FREE);
    other.read_slowly("w2", FREE);
    let over = |job: &serde_json::Value| job["status"]["state"] == "finished" || job["status"]["state"] == "failed";
    let ends = [&cluster, &other].map(|cluster| cluster.until_job("ledger", "it is over", over));
    assert!(ends.iter().any(|job| job["status"]["state"] == "finished"), "one of them finishes: {ends:?}");
    for job in ends.iter().filter(|job| job["status"]["state"] == "failed") {
        let reason = job["status"]["reason"].as_str().unwrap_or_default();
        let words = ["attempt", "is in use by process"];
        assert!(words.iter().any(|words| reason.contains(words)), "the other says that the job is not its own: {reason}");
    }
    cluster.assert_exact(&ledger);
}

#[test]
fn s21_s22_rescaled_up_and_down_with_rows_in_flight_on_hash_rebalance_broadcast_and_forward() {
    const INSTANCES: usize = 32;
    let mut cluster = Cluster::start(2, 4);
    read(&mut cluster, 2 * SLOW);
    let random = &mut Random::new(5);
    let ledger = Ledger::new(random, &Amounts { files: 8, rows: 120_000, ..Amounts::default() });
    let rates = Ledger::new(
        random,
        &Amounts { files: 1, rows: 600, keys: 20, malformed: u64::MAX, prefix: "rate", ..Amounts::default() },
    );
    rates.write(cluster.world(), "rates");
    let checkpoint = "interval = \"150ms\"\nunaligned_after = \"0s\"".to_owned();
    let job = format!("key_groups = {INSTANCES}");
    let job = LedgerJob { checkpoint, job, parallelism: 1, rebalance: true, broadcast: true, slow: true, ..LedgerJob::default() };
    cluster.submit_ledger(&job, &ledger);
    let mut in_flight = 0;
    for (done, parallelism) in [2, 7, 3].into_iter().enumerate() {
        let last = cluster.until_more_checkpoints("ledger", 2);
        in_flight += last["in_flight_bytes"].as_u64().unwrap_or(0);
        cluster.good(&["job", "rescale", "ledger", "--parallelism", &parallelism.to_string()]);
        cluster.until_event("ledger", "rescaling", done);
        let running = cluster.until_event("ledger", "running", done + 1);
        assert!(running.contains("from checkpoint"), "{running}");
        assert_eq!(cluster.job("ledger")["status"]["slots"], parallelism);
    }
    assert!(in_flight > 0, "there was something in flight");
    read(&mut cluster, FREE);
    cluster.until_state("ledger", "finished");
    let (broadcast, hashed): (Vec<_>, Vec<_>) =
        rows(&cluster.path("out")).into_iter().partition(|row| row.key.starts_with("rate-"));
    assert_eq!(ledger.difference_without_order(&hashed), None);
    assert_eq!(rates.difference_of_copies(&broadcast, INSTANCES), None);
    cluster.assert_dead_letters(&ledger);
}

#[test]
fn s21_rescaled_on_hash_and_forward_the_order_of_each_key_is_kept() {
    let mut cluster = Cluster::start(2, 4);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(6), &Amounts { files: 8, rows: 80_000, ..Amounts::default() });
    let checkpoint = "interval = \"150ms\"\nunaligned_after = \"0s\"".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    for (done, parallelism) in [1, 4, 3].into_iter().enumerate() {
        cluster.until_more_checkpoints("ledger", 2);
        cluster.good(&["job", "rescale", "ledger", "--parallelism", &parallelism.to_string()]);
        cluster.until_event("ledger", "running", done + 1);
    }
    read(&mut cluster, FREE);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn a_rescale_that_cannot_be_is_refused_and_the_job_goes_on() {
    let mut cluster = Cluster::start(2, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(7), &Amounts { rows: 30_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob { slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 1);
    let refused = cluster.bad(2, &["job", "rescale", "ledger", "--parallelism", "33"]);
    assert!(refused.contains("E0044") && refused.contains("key_groups"), "{refused}");
    let refused = cluster.ask(&["job", "rescale", "ledger", "--parallelism", "3"]);
    assert!(!refused.status.success() && refused.stderr.contains("slot"), "there are two slots: {}", refused.stderr);
    cluster.until_more_checkpoints("ledger", 1);
    read(&mut cluster, FREE);
    let job = cluster.until_state("ledger", "finished");
    assert_eq!(attempt(&job), 1, "nothing was restarted");
    cluster.assert_exact(&ledger);
}

#[test]
fn s28_an_idle_source_holds_up_neither_watermarks_nor_checkpoints() {
    let cluster = Cluster::start(2, 1);
    cluster.write("idle/nothing.jsonl", "");
    cluster.write(
        "job.toml",
        r#"
[job]
name = "idle"
parallelism = 2

[job.checkpoint]
interval = "100ms"

[[source]]
id = "busy"
connector = "generator"
rows_per_second = 2000
ts_numerator = 10
ts_denominator = 1

[[source]]
id = "idle"
connector = "file"
path = "idle"
follow = true
watermark = { idle_after = "100ms" }

[[operator]]
id = "count"
component = "window@1.2.0"
input = { from = ["busy", "idle"], exchange = "hash" }
config = { kind = "tumbling", size = "1s" }

[[sink]]
id = "out"
connector = "file"
input = "count"
path = "out"
"#,
    );
    cluster.submit("job.toml", &[]);
    let watermark = |job: &serde_json::Value| job["watermark"].as_i64().unwrap_or(i64::MIN);
    let first = watermark(&cluster.until_job("idle", "it has a watermark", |job| watermark(job) > 0));
    cluster.until_more_checkpoints("idle", 3);
    cluster.until_job("idle", "its watermark has grown", |job| watermark(job) > first + 1_000);
    cluster.until("windows were sent", |cluster| (!rows(&cluster.path("out")).is_empty()).then_some(()));
    cluster.good(&["job", "cancel", "idle"]);
}

#[test]
fn s29_a_key_that_takes_most_of_the_rows_can_be_seen_and_is_counted_right() {
    let cluster = Cluster::start(2, 1);
    let ledger = Ledger::new(&mut Random::new(8), &Amounts { rows: 60_000, skew: 90, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob::default(), &ledger);
    let job = cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    let sums = job["vertices"].as_array().and_then(|all| all.iter().find(|vertex| vertex["uid"] == "sums")).expect("sums");
    let by_subtask: Vec<u64> =
        sums["rows_in_by_subtask"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_u64).collect();
    assert_eq!(by_subtask.iter().sum::<u64>(), ledger.len(), "{by_subtask:?}");
    assert!(by_subtask.iter().any(|rows| *rows * 10 > ledger.len() * 9), "one of them has nine rows of ten: {by_subtask:?}");
}
