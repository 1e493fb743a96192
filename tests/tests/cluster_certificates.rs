//! Certificates and authorities that are exchanged while jobs run, as docs/guide/cluster.md says it.

use std::fs;
use std::path::Path;
use std::process::Command;

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Random, attempt};

/// Bytes per second of a slow standard output, so that the job runs until it was all done.
const SLOW: u64 = 300_000;

/// What a process says when it has taken new files.
const TAKEN: &str = "have changed and count from now on";

/// The commands of the guide for another authority, one text for each step.
fn steps() -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/cluster.md");
    let text = fs::read_to_string(guide).expect("the guide");
    let section = text.split("\n## ").find(|section| section.starts_with("New certificates")).expect("its section");
    section.split("```sh\n").skip(1).filter_map(|part| Some(part.split_once("\n```")?.0.to_owned())).collect()
}

/// Runs a step as a person would: in the folder that the cluster's is in, with `weir` on the path.
fn carry_out(cluster: &Cluster, step: &str) {
    let weir = cluster.world().weir(["--version"]).get_program().to_owned();
    let folder = Path::new(&weir).parent().expect("its folder").to_owned();
    let mut path = folder.into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let done = Command::new("sh").args(["-euc", step]).current_dir(cluster.path(".")).env("PATH", path).output().expect("sh");
    assert!(done.status.success(), "{step}: {}", String::from_utf8_lossy(&done.stderr));
}

/// What a process has written to its log.
fn log(cluster: &Cluster, node: &str) -> String {
    let files = fs::read_dir(cluster.path("logs")).expect("logs").map(|file| file.expect("a log").path());
    let own = files.filter(|path| path.to_string_lossy().ends_with(&format!("-{node}.txt")));
    own.map(|path| String::from_utf8_lossy(&fs::read(path).expect("a log")).into_owned()).collect()
}

#[test]
fn s139_another_authority_takes_over_under_load_and_no_job_is_restarted() {
    let mut cluster = Cluster::start(2, 1);
    // One that stays behind: it has all that it was once given.
    let (behind, kept) = (cluster.path("cluster/nodes/w4"), cluster.path("behind"));
    fs::create_dir(&kept).expect("a folder");
    for file in ["ca.pem", "node.pem", "node-key.pem", "reset.key"] {
        fs::copy(behind.join(file), kept.join(file)).expect("a copy");
    }
    ["w1", "w2"].iter().for_each(|worker| cluster.read_slowly(worker, SLOW));
    let ledger = Ledger::new(&mut Random::new(139), &Amounts { rows: 60_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob { slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 1);
    let steps = steps();
    assert_eq!(steps.len(), 3, "{steps:?}");
    for (number, step) in steps.iter().enumerate() {
        carry_out(&cluster, step);
        for node in ["coordinator", "w1", "w2"] {
            cluster.until(&format!("{node} has taken step {}", number + 1), |cluster| {
                (log(cluster, node).matches(TAKEN).count() > number).then_some(())
            });
        }
        cluster.until_more_checkpoints("ledger", 1);
        assert_eq!(cluster.events_of("ledger", "finished"), [""; 0], "it runs all the time");
    }
    // A node of the new authority comes in, one of the old does not.
    cluster.setup("w4").identity = Some(kept);
    cluster.start_worker("w4", 1);
    cluster.until("the old certificate is refused", |cluster| log(cluster, "w4").contains("certificate").then_some(()));
    cluster.start_worker("w3", 1);
    cluster.until_connected(3);
    let names = cluster.good(&["worker", "ls"]);
    assert!(names.contains("w3") && !names.contains("w4"), "{names}");

    ["w1", "w2"].iter().for_each(|worker| cluster.read_slowly(worker, u64::MAX));
    let finished = cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    assert_eq!(attempt(&finished), 1, "{finished}");
    for kind in ["restarting", "worker-lost"] {
        assert_eq!(cluster.events_of("ledger", kind), [""; 0]);
    }
}

#[test]
fn s132_a_certificate_that_ends_soon_is_told_to_the_jobs_that_need_it() {
    let mut cluster = Cluster::start(1, 2);
    cluster.read_slowly("w1", SLOW);
    let ledger = Ledger::new(&mut Random::new(132), &Amounts { rows: 30_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob { slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 1);
    assert_eq!(cluster.events_of("ledger", "certificate-expires"), [""; 0]);
    carry_out(
        &cluster,
        "weir cluster add-node cluster w1 --validity 20d --output brief\ncp brief/node-key.pem brief/node.pem cluster/nodes/w1",
    );
    let told = cluster.until_event("ledger", "certificate-expires", 0);
    assert!(told.starts_with("the certificate of worker w1 expires in 1") && told.contains("add-node"), "{told}");
    let listed = cluster.good(&["worker", "ls"]);
    assert!(listed.contains("19 days") || listed.contains("20 days"), "{listed}");
    cluster.until("the worker warns of it too", |cluster| log(cluster, "w1").contains("node.pem expires in 1").then_some(()));
    cluster.read_slowly("w1", u64::MAX);
    let finished = cluster.until_state("ledger", "finished");
    assert_eq!((attempt(&finished), cluster.events_of("ledger", "certificate-expires").len()), (1, 1), "once a day");
    cluster.assert_exact(&ledger);
}
