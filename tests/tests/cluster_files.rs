//! s137: jobs of a cluster read and write below the folders that each worker's owner named, and nowhere else.

use std::fs;
use std::os::unix::fs::symlink;

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Place, Random};

#[test]
fn s137_no_worker_reads_or_writes_outside_of_its_folders() {
    let mut cluster = Cluster::prepared(Place::loopback());
    for folder in ["in", "out", "bad", "checkpoints", "elsewhere"] {
        fs::create_dir_all(cluster.path(folder)).expect("a folder");
    }
    let allowed = ["in", "out", "bad", "checkpoints"].map(|folder| cluster.path(folder).to_string_lossy().into_owned());
    for node in ["coordinator", "w1", "w2"] {
        cluster.setup(node).allow_path = allowed.to_vec();
    }
    cluster.start_coordinator();
    cluster.start_workers(2, 1);
    // Links in the folder that is read, to a file and to a folder elsewhere.
    cluster.write("elsewhere/secret", "{\"account\":\"secret\",\"at\":1,\"amount\":1}\n");
    symlink(cluster.path("elsewhere/secret"), cluster.path("in/a-link")).expect("a link");
    symlink("../elsewhere", cluster.path("in/deep")).expect("a link");
    let ledger = Ledger::new(&mut Random::new(137), &Amounts { rows: 4_000, ..Amounts::default() });
    let job = LedgerJob::default();
    cluster.submit_ledger(&job, &ledger);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    let shown = cluster.good(&["job", "show", "ledger"]);
    assert!(shown.contains("--allow-path"), "what was passed over is said: {shown}");

    // Paths that are written out, of a source, a sink, dead letters and checkpoints.
    let elsewhere = cluster.path("elsewhere").to_string_lossy().into_owned();
    for (name, from, to) in [
        ("source", "path = \"in\"".to_owned(), "path = \"in/../elsewhere\"".to_owned()),
        ("link", "path = \"in\"".to_owned(), "path = \"in/deep/secret\"".to_owned()),
        ("sink", "path = \"out\"".to_owned(), "path = \"out/../elsewhere/made\"".to_owned()),
        ("letters", "path = \"bad\"".to_owned(), format!("path = \"{elsewhere}\"")),
        ("storage", "[job.checkpoint]".to_owned(), format!("[job.checkpoint]\nstorage = \"{elsewhere}\"")),
    ] {
        let text = job.text().replace("name = \"ledger\"", &format!("name = \"{name}\"")).replacen(&from, &to, 1);
        assert!(text.contains(&to), "{text}");
        cluster.write("other.toml", text);
        cluster.submit("other.toml", &[]);
        let over = cluster.until_job(name, &format!("job {name} has failed"), |job| job["status"]["state"] == "failed");
        let reason = over["status"]["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("--allow-path"), "{name}: {reason}");
    }
    let names: Vec<_> =
        fs::read_dir(cluster.path("elsewhere")).expect("a folder").map(|file| file.expect("a file").file_name()).collect();
    assert_eq!(names, ["secret"], "nothing was made there");
}
