//! The checkpoint folder hangs, really: its file system is frozen.

use weir_tests::{Amounts, Cluster, Frozen, Ledger, LedgerJob, Random, skip};

/// Bytes per second of a slow standard output.
const SLOW: u64 = 150_000;

#[test]
fn s86_a_mount_that_hangs_is_told_of_holds_up_nobody_who_wants_something_and_all_goes_on_when_it_answers() {
    let mut cluster = Cluster::start(3, 2);
    // Dropped before the processes are waited for: none that waits for the mount can be killed.
    let mount = match Frozen::new() {
        Ok(mount) => mount,
        Err(reason) => return skip(&reason),
    };
    ["w1", "w2", "w3"].iter().for_each(|worker| cluster.read_slowly(worker, SLOW));
    let ledger = Ledger::new(&mut Random::new(86), &Amounts { files: 4, rows: 40_000, ..Amounts::default() });
    let checkpoint = format!("interval = \"100ms\"\ntimeout = \"2s\"\nstorage = \"{}\"", mount.path().display());
    let job = LedgerJob { checkpoint, slow: true, ..LedgerJob::default() };
    cluster.submit_ledger(&job, &ledger);
    let second = LedgerJob { name: "second", ..job }.text().replace("\"out\"\n\n", "\"out-2\"\n\n");
    cluster
        .write("second.toml", second.replace("path = \"out\"", "path = \"out-2\"").replace("path = \"bad\"", "path = \"bad-2\""));
    cluster.submit("second.toml", &[]);
    cluster.until_checkpoint("ledger", 2);
    cluster.until_checkpoint("second", 2);
    let before = weir_tests::last_checkpoint(&cluster.job("ledger"));

    mount.freeze().expect("it can be frozen");
    // No worker can be killed now: its threads wait in the kernel. One that stands still is lost as well.
    let worker = cluster.workers_of("ledger", "sums")[0].clone();
    cluster.signal(&worker, "STOP");
    cluster.until_event("ledger", "worker-lost", 0);
    let slow = cluster.until_event("ledger", "slow-storage", 0);
    assert!(slow.contains(&*mount.path().to_string_lossy()) && slow.contains(" has not answered for "), "{slow}");
    cluster.good(&["job", "cancel", "second"]);
    cluster.until_state("second", "cancelled");

    mount.thaw().expect("it can be thawed");
    cluster.signal(&worker, "CONT");
    cluster.until_checkpoint("ledger", before + 2);
    ["w1", "w2", "w3"].iter().for_each(|worker| cluster.read_slowly(worker, u64::MAX));
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}
