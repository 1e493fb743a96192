//! Checkpoints of jobs whose sinks are slow, or stand still, with channels over QUIC.

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Random, last_checkpoint};

/// Bytes per second of each worker's standard output: about a thousand rows, and the source could read a hundred thousand.
const CRAWLING: u64 = 60_000;

fn vertex<'a>(job: &'a serde_json::Value, uid: &str) -> &'a serde_json::Value {
    job["vertices"].as_array().and_then(|all| all.iter().find(|vertex| vertex["uid"] == uid)).expect("the vertex")
}

#[test]
fn s26_under_total_backpressure_checkpoints_complete_and_a_kill_is_exact() {
    let mut cluster = Cluster::start(2, 1);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, CRAWLING);
    }
    let ledger = Ledger::new(&mut Random::new(1), &Amounts { files: 4, rows: 150_000, ..Amounts::default() });
    let checkpoint = "interval = \"200ms\"\nunaligned_after = \"0s\"".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_job("ledger", "its source waits most of the time", |job| {
        !job["vertices"].as_array().is_none_or(Vec::is_empty) && vertex(job, "log")["backpressured"].as_f64() > Some(0.8)
    });
    for _ in 0..3 {
        let before = cluster.job("ledger");
        let checkpoint = cluster.until_checkpoint("ledger", last_checkpoint(&before) + 1);
        assert_eq!(checkpoint["unaligned"], true, "{checkpoint}");
        assert!(checkpoint["in_flight_bytes"].as_u64() > Some(0), "rows were in flight: {checkpoint}");
        // Aligned, it would have had to wait for all that was in flight.
        let rows_left = ledger.len() - before["status"]["rows_written"].as_u64().unwrap_or(0) / 2;
        assert!(rows_left > 10_000, "the job is far from its end: {rows_left}");
    }
    cluster.kill_worker("w2");
    cluster.start_worker("w2", 1);
    let running = cluster.until_event("ledger", "running", 1);
    assert!(running.contains("from checkpoint"), "{running}");
    // Also what is still in flight from the restore goes into a checkpoint (s24).
    cluster.until_more_checkpoints("ledger", 1);
    cluster.kill_worker("w1");
    cluster.start_worker("w1", 1);
    cluster.until_event("ledger", "running", 2);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, u64::MAX);
    }
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn s26_barriers_that_wait_at_first_overtake_rows_when_time_is_up() {
    let mut cluster = Cluster::start(2, 1);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, CRAWLING);
    }
    let ledger = Ledger::new(&mut Random::new(2), &Amounts { files: 4, rows: 100_000, ..Amounts::default() });
    let checkpoint = "interval = \"200ms\"\nunaligned_after = \"100ms\"".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_job("ledger", "a checkpoint was switched", |job| job["status"]["checkpoint"]["unaligned"] == true);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, u64::MAX);
    }
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn s26_aligned_checkpoints_do_not_hang_the_job() {
    let mut cluster = Cluster::start(2, 1);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, CRAWLING);
    }
    let ledger = Ledger::new(&mut Random::new(3), &Amounts { files: 4, rows: 60_000, ..Amounts::default() });
    let checkpoint = "interval = \"200ms\"\nunaligned_after = \"never\"".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    let written = |job: &serde_json::Value| job["status"]["rows_written"].as_u64().unwrap_or(0);
    let before = written(&cluster.until_job("ledger", "rows are written", |job| written(job) > 0));
    cluster.until_job("ledger", "more rows are written", |job| written(job) > before + 500);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, u64::MAX);
    }
    let job = cluster.until_state("ledger", "finished");
    assert_eq!(job["status"]["checkpoint"]["unaligned"], false, "{job}");
    cluster.assert_exact(&ledger);
}

#[test]
fn s27_a_subtask_that_is_stuck_is_named_when_its_checkpoint_times_out_and_nothing_is_lost() {
    let mut cluster = Cluster::start(2, 1);
    // Whoever reads the output of one worker has stopped: its sink stands still in the middle of a write.
    cluster.read_slowly("w1", 0);
    let ledger = Ledger::new(&mut Random::new(4), &Amounts { files: 4, rows: 100_000, ..Amounts::default() });
    let checkpoint = "interval = \"100ms\"\ntimeout = \"1500ms\"\ntolerable_failures = 1000\nunaligned_after = \"0s\"".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    let stuck = cluster.until("a checkpoint times out", |cluster| {
        cluster.events_of("ledger", "checkpoint-failed").into_iter().find(|message| message.contains("sums"))
    });
    let workers = cluster.workers_of("ledger", "sums");
    let subtask = workers.iter().position(|worker| worker == "w1").expect("a subtask at w1");
    let name = |subtask: usize| format!("sums+out+slow[{subtask}]");
    assert!(stuck.contains(&name(subtask)), "subtask {subtask} is stuck: {stuck}");
    assert!(!stuck.contains(&name(1 - subtask)), "and the other is not: {stuck}");
    assert_eq!(cluster.job("ledger")["status"]["state"], "running", "the job goes on");
    cluster.read_slowly("w1", u64::MAX);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn s27_a_subtask_that_is_stuck_holds_up_no_recovery_and_does_no_harm_when_it_wakes() {
    let mut cluster = Cluster::start(3, 1);
    for worker in ["w1", "w2", "w3"] {
        cluster.read_slowly(worker, CRAWLING);
    }
    let ledger = Ledger::new(&mut Random::new(5), &Amounts { files: 4, rows: 60_000, ..Amounts::default() });
    let checkpoint = "interval = \"100ms\"\nunaligned_after = \"0s\"".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 2);
    let workers = cluster.workers_of("ledger", "sums");
    let [stuck, killed] = [&workers[0], &workers[1]];
    cluster.read_slowly(stuck, 0);
    cluster.kill_worker(killed);
    // Its thread does not end, which is seen at once, and the next attempt begins without waiting for that for ever.
    cluster.until_state("ledger", "restarting");
    for slow in [0, 1] {
        let message = cluster.until_event("ledger", "slow-end", slow);
        assert!(message.contains(&format!("worker {stuck} has not ended")), "{message}");
    }
    cluster.until_event("ledger", "running", 1);
    for worker in ["w1", "w2", "w3"] {
        cluster.read_slowly(worker, u64::MAX);
    }
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}
