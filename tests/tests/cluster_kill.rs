//! Processes of a cluster that are killed without warning, again and again: workers, the coordinator, both.

use std::time::Duration;

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Random, attempt, last_checkpoint};

/// Bytes per second of a slow standard output.
const SLOW: u64 = 400_000;

/// Kills of one job; `WEIR_KILLS` asks for more.
fn kills() -> u64 {
    std::env::var("WEIR_KILLS").map_or(3, |kills| kills.parse().expect("WEIR_KILLS is a number"))
}

/// The seed of a test; `WEIR_SEED` is another.
#[allow(clippy::print_stdout, reason = "whoever reads of a failure needs it")]
fn seed(usual: u64) -> u64 {
    let seed = std::env::var("WEIR_SEED").map_or(usual, |seed| seed.parse().expect("WEIR_SEED is a number"));
    println!("WEIR_SEED={seed}");
    seed
}

fn pause(random: &mut Random, most_ms: u64) {
    // Not a wait for something: the moment of a kill is meant to be any.
    std::thread::sleep(Duration::from_micros(random.below(most_ms * 1_000)));
}

fn read(cluster: &mut Cluster, bytes_per_second: u64) {
    for worker in ["w1", "w2", "w3"] {
        cluster.read_slowly(worker, bytes_per_second);
    }
}

/// A job whose standard output is slow, until all kills were done.
fn slow(parallelism: u32, checkpoint: &str) -> LedgerJob {
    LedgerJob { parallelism, checkpoint: checkpoint.to_owned(), slow: true, ..LedgerJob::default() }
}

/// Kills random workers of three at random moments; two of them have slots for all of the job.
fn kill_workers(seed: u64, job: &LedgerJob) {
    let random = &mut Random::new(seed);
    let slots = job.parallelism.div_ceil(2);
    let mut cluster = Cluster::start(3, slots);
    read(&mut cluster, SLOW);
    let files = job.parallelism as usize;
    let ledger = Ledger::new(random, &Amounts { files, rows: 100_000 + 20_000 * kills(), ..Amounts::default() });
    cluster.submit_ledger(job, &ledger);
    cluster.until_event("ledger", "running", 0);
    for _ in 0..kills() {
        pause(random, 700);
        assert_eq!(cluster.events_of("ledger", "finished"), [""; 0], "it was killed while it ran");
        let worker = victim(&cluster, random);
        cluster.kill_worker(worker);
        pause(random, 300);
        if random.below(4) == 0 {
            // Another one while the job recovers from this.
            let another = if worker == "w1" { "w2" } else { "w1" };
            cluster.kill_worker(another);
            cluster.start_worker(another, slots);
        }
        cluster.start_worker(worker, slots);
    }
    read(&mut cluster, u64::MAX);
    let finished = cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    assert!(attempt(&finished) > 1, "some kill has hit the job: {finished}");
}

/// A worker, more often than not one that has tasks of the job.
fn victim(cluster: &Cluster, random: &mut Random) -> &'static str {
    let busy = cluster.job("ledger")["vertices"].to_string();
    let mut workers: Vec<&'static str> = vec!["w1", "w2", "w3"];
    if random.below(4) > 0 {
        workers.retain(|worker| busy.contains(worker));
    }
    if workers.is_empty() { "w3" } else { random.pick::<&str>(&workers) }
}

#[test]
fn s20_one_subtask_and_workers_that_are_killed() {
    kill_workers(seed(1), &slow(1, "interval = \"50ms\""));
}

#[test]
fn s20_five_subtasks_over_quic_and_in_processes_and_workers_that_are_killed() {
    kill_workers(seed(2), &slow(5, "interval = \"50ms\""));
}

#[test]
fn s20_barriers_that_overtake_rows_and_workers_that_are_killed() {
    kill_workers(seed(3), &slow(3, "interval = \"50ms\"\nunaligned_after = \"0s\""));
}

#[test]
fn s20_twenty_subtasks_and_workers_that_are_killed() {
    kill_workers(seed(4), &slow(20, "interval = \"100ms\""));
}

#[test]
fn a_worker_that_is_lost_leaves_the_job_to_the_others_and_without_slots_it_waits() {
    let mut cluster = Cluster::start(3, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(5), &Amounts { rows: 60_000, ..Amounts::default() });
    cluster.submit_ledger(&slow(2, "interval = \"100ms\""), &ledger);
    cluster.until_checkpoint("ledger", 1);
    let first = cluster.workers_of("ledger", "log");
    cluster.kill_worker(&first[0]);
    let told = cluster.until_event("ledger", "worker-lost", 0);
    assert!(told.starts_with(&format!("worker {} is lost: ", first[0])), "{told}");
    assert!(cluster.until_event("ledger", "running", 1).starts_with("attempt 2 runs from checkpoint"));
    let second = cluster.until("it runs on the others", |cluster| {
        Some(cluster.workers_of("ledger", "log")).filter(|workers| !workers.contains(&first[0]))
    });
    cluster.kill_worker(&second[0]);
    let reason = cluster.until_state("ledger", "waiting")["status"]["reason"].to_string();
    assert!(reason.contains("it needs 2 slots"), "{reason}");
    read(&mut cluster, u64::MAX);
    cluster.start_worker(&first[0], 1);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn s38_the_coordinator_is_killed_at_any_moment_and_no_task_is_restarted() {
    let random = &mut Random::new(seed(6));
    let mut cluster = Cluster::start(2, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(random, &Amounts { rows: 60_000 + 15_000 * kills(), ..Amounts::default() });
    cluster.submit_ledger(&slow(2, "interval = \"20ms\""), &ledger);
    cluster.until_checkpoint("ledger", 2);
    for kill in 0..kills() {
        // Checkpoints come all the time: it is killed while manifests are written, committed and deleted.
        pause(random, 300);
        cluster.kill_coordinator();
        pause(random, 200);
        cluster.start_coordinator();
        let message = cluster.until_event("ledger", "taken-over", kill as usize);
        assert_eq!(message, "attempt 1 goes on under the new coordinator; no task was restarted");
        cluster.until_more_checkpoints("ledger", 1);
    }
    read(&mut cluster, u64::MAX);
    let job = cluster.until_state("ledger", "finished");
    assert_eq!(attempt(&job), 1, "no task was restarted");
    cluster.assert_exact(&ledger);
}

#[test]
fn s38_a_coordinator_that_is_away_when_all_is_processed_commits_it_when_it_is_back() {
    let mut cluster = Cluster::start(2, 1);
    let ledger = Ledger::new(&mut Random::new(7), &Amounts { rows: 60_000, ..Amounts::default() });
    read(&mut cluster, SLOW);
    cluster.submit_ledger(&slow(2, "interval = \"50ms\""), &ledger);
    cluster.until_checkpoint("ledger", 1);
    cluster.kill_coordinator();
    read(&mut cluster, u64::MAX);
    // The tasks run to the end of their input without it; nothing counts until a checkpoint is complete.
    std::thread::sleep(Duration::from_millis(1_500));
    cluster.start_coordinator();
    let job = cluster.until_state("ledger", "finished");
    assert_eq!(attempt(&job), 1, "no task was restarted");
    cluster.assert_exact(&ledger);
}

#[test]
fn a_coordinator_and_workers_that_are_killed_together_go_on_from_the_last_checkpoint() {
    let mut cluster = Cluster::start(2, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(8), &Amounts { rows: 80_000, ..Amounts::default() });
    cluster.submit_ledger(&slow(2, "interval = \"50ms\""), &ledger);
    // One worker first, then all.
    for (round, workers) in [&["w1"][..], &["w1", "w2"]].into_iter().enumerate() {
        cluster.until_event("ledger", "running", round);
        cluster.until_more_checkpoints("ledger", 2);
        cluster.kill_coordinator();
        workers.iter().for_each(|worker| cluster.kill_worker(worker));
        workers.iter().for_each(|worker| cluster.start_worker(worker, 1));
        cluster.start_coordinator();
    }
    read(&mut cluster, u64::MAX);
    let running = cluster.until_event("ledger", "running", 2);
    assert!(running.contains("from checkpoint"), "{running}");
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn a_coordinator_that_stands_still_for_a_while_costs_a_restart_at_most() {
    let mut cluster = Cluster::start(2, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(9), &Amounts { rows: 60_000, ..Amounts::default() });
    cluster.submit_ledger(&slow(2, "interval = \"50ms\""), &ledger);
    cluster.until_checkpoint("ledger", 2);
    cluster.signal("coordinator", "STOP");
    std::thread::sleep(Duration::from_secs(4));
    cluster.signal("coordinator", "CONT");
    cluster.until_connected(2);
    cluster.until_more_checkpoints("ledger", 2);
    read(&mut cluster, u64::MAX);
    let job = cluster.until_state("ledger", "finished");
    assert!(attempt(&job) <= 2, "{job}");
    cluster.assert_exact(&ledger);
}

#[test]
fn a_worker_that_stands_still_is_lost_and_does_no_harm_when_it_wakes() {
    let mut cluster = Cluster::start(3, 1);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(&mut Random::new(10), &Amounts { rows: 80_000, ..Amounts::default() });
    cluster.submit_ledger(&slow(2, "interval = \"50ms\""), &ledger);
    cluster.until_checkpoint("ledger", 2);
    let stands_still = cluster.workers_of("ledger", "log").remove(0);
    cluster.signal(&stands_still, "STOP");
    let told = cluster.until_event("ledger", "worker-lost", 0);
    assert!(told.starts_with(&format!("worker {stands_still} is lost")), "{told}");
    // The others have gone on when it wakes, with tasks, sinks and connections of an attempt that is over.
    cluster.until_event("ledger", "running", 1);
    let at = last_checkpoint(&cluster.job("ledger"));
    cluster.until_checkpoint("ledger", at + 2);
    cluster.signal(&stands_still, "CONT");
    cluster.until_connected(3);
    cluster.until_checkpoint("ledger", at + 4);
    read(&mut cluster, u64::MAX);
    let job = cluster.until_state("ledger", "finished");
    assert_eq!(attempt(&job), 2, "it has disturbed nothing");
    cluster.assert_exact(&ledger);
}

#[test]
fn s21_a_rescale_in_which_a_worker_or_the_coordinator_is_killed_is_done_nonetheless() {
    let random = &mut Random::new(seed(11));
    let mut cluster = Cluster::start(2, 4);
    read(&mut cluster, SLOW);
    let ledger = Ledger::new(random, &Amounts { files: 8, rows: 60_000 + 30_000 * kills(), ..Amounts::default() });
    cluster.submit_ledger(&slow(2, "interval = \"100ms\"\nunaligned_after = \"0s\""), &ledger);
    cluster.until_checkpoint("ledger", 2);
    for (round, parallelism) in [3, 1, 4].into_iter().cycle().take(kills() as usize).enumerate() {
        cluster.good(&["job", "rescale", "ledger", "--parallelism", &parallelism.to_string()]);
        pause(random, 150);
        if round % 2 == 0 {
            cluster.kill_worker("w2");
            cluster.start_worker("w2", 4);
        } else {
            cluster.kill_coordinator();
            cluster.start_coordinator();
        }
        cluster.until_job("ledger", &format!("it has parallelism {parallelism}"), |job| {
            job["status"]["slots"] == parallelism && job["status"]["state"] == "running"
        });
        let at = last_checkpoint(&cluster.job("ledger"));
        cluster.until_checkpoint("ledger", at + 1);
    }
    read(&mut cluster, u64::MAX);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}
