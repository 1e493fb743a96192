//! Two coordinators with one certificate, and workers that know the addresses of both.

use serde_json::Value;
use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Place, Random};

/// Bytes per second of a slow standard output.
const SLOW: u64 = 400_000;

/// A coordinator, a second one on an empty folder, and two workers of the first that know both addresses and run a job.
fn two_coordinators(ledger: &Ledger) -> (Cluster, Cluster) {
    let mut cluster = Cluster::with_coordinator(Place::loopback());
    let other = cluster.beside("other");
    for worker in ["w1", "w2"] {
        cluster.setup(worker).other_coordinator = Some(other.coordinator_address().to_owned());
        cluster.read_slowly(worker, SLOW);
    }
    cluster.start_workers(2, 1);
    let job = LedgerJob { parallelism: 2, checkpoint: "interval = \"100ms\"".to_owned(), slow: true, ..LedgerJob::default() };
    cluster.submit_ledger(&job, ledger);
    cluster.until_checkpoint("ledger", 2);
    (cluster, other)
}

/// Workers that follow another coordinator, as this one shows them.
fn led_elsewhere(cluster: &Cluster) -> Vec<Value> {
    let status: Value = serde_json::from_str(&cluster.good(&["cluster", "status", "--json"])).expect("JSON");
    status["cluster"]["led_elsewhere"].as_array().cloned().unwrap_or_default()
}

#[test]
fn s88_a_second_coordinator_during_a_blip_of_the_first_leaves_running_jobs_untouched() {
    let ledger = Ledger::new(&mut Random::new(88), &Amounts { rows: 60_000, ..Amounts::default() });
    let (mut cluster, other) = two_coordinators(&ledger);
    cluster.kill_coordinator();
    other.until("both workers were there, and did not join", |other| (led_elsewhere(other).len() == 2).then_some(()));
    assert!(other.good(&["cluster", "status"]).contains("0 connected"));
    cluster.start_coordinator();
    let message = cluster.until_event("ledger", "taken-over", 0);
    assert_eq!(message, "attempt 1 goes on under the new coordinator; no task was restarted");
    ["w1", "w2"].iter().for_each(|worker| cluster.read_slowly(worker, u64::MAX));
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    assert!(cluster.log("w1").contains("is not obeyed") || cluster.log("w1").contains("stays with it"), "the worker says so");
}

#[test]
fn s88_the_workers_of_a_coordinator_that_is_lost_for_good_are_adopted_and_its_job_goes_on_from_its_checkpoint() {
    let ledger = Ledger::new(&mut Random::new(89), &Amounts { rows: 60_000, ..Amounts::default() });
    let (mut cluster, other) = two_coordinators(&ledger);
    cluster.kill_coordinator();
    let lost = other.until("a worker was there", |other| {
        led_elsewhere(other).first().and_then(|worker| worker["led_by"]["origin"].as_str().map(str::to_owned))
    });
    other.good(&["cluster", "adopt", &lost[..8]]);
    other.until_connected(2);
    ["w1", "w2"].iter().for_each(|worker| cluster.read_slowly(worker, u64::MAX));
    let job = LedgerJob { parallelism: 2, checkpoint: "interval = \"100ms\"".to_owned(), slow: true, ..LedgerJob::default() };
    other.submit_ledger(&job, &ledger);
    assert!(other.until_event("ledger", "running", 0).contains("from checkpoint"));
    other.until_state("ledger", "finished");
    other.assert_exact(&ledger);
}
