//! Jobs on a cluster of a coordinator and workers: to the end, without slots, stopped and begun again, with another parallelism.

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Random, attempt, dead_letters, rows};

/// Everything is there once, and nothing else.
#[track_caller]
fn assert_exact(cluster: &Cluster, ledger: &Ledger) {
    if let Some(difference) = ledger.difference(&rows(&cluster.path("out"))) {
        panic!("{difference}");
    }
    let mut letters = dead_letters(&cluster.path("bad"));
    letters.sort();
    assert_eq!(letters, ledger.malformed, "dead letters");
}

#[test]
fn s20_two_workers_run_a_job_over_quic_to_the_end() {
    let cluster = Cluster::start(2, 1);
    let ledger = Ledger::new(&mut Random::new(1), &Amounts { files: 4, ..Amounts::default() });
    ledger.write(cluster.world(), "in");
    cluster.write("job.toml", LedgerJob::default().text());
    let done = cluster.ask(&["job", "submit", "job.toml", "--wait"]);
    assert!(done.status.success(), "{}", done.stderr);
    assert_exact(&cluster, &ledger);
    let job = cluster.job("ledger");
    assert_eq!(attempt(&job), 1, "nothing was restarted");
    let workers = &job["vertices"][1]["workers"];
    assert!(workers[0] != workers[1], "a worker with one slot has one subtask of each vertex: {workers}");
}
