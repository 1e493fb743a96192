//! What goes wrong around a cluster, and the words that a person gets: on the command, in the log of the process, in the events
//! of the job. The job waits or recovers.

use std::path::{Path, PathBuf};
use std::process::Command;

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Place, Random, skip};

fn ledger(seed: u64) -> Ledger {
    Ledger::new(&mut Random::new(seed), &Amounts { rows: 20_000, ..Amounts::default() })
}

/// Waits until a process has said these words.
fn until_said(cluster: &Cluster, node: &str, words: &[&str]) -> String {
    cluster.until(&format!("{node} says {words:?}"), |cluster| {
        cluster.log(node).lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned)
    })
}

/// A library that, loaded first, moves a process's wall clock by `TEST_CLOCK_SECONDS`. None where there is no C compiler.
fn wrong_clock(cluster: &Cluster) -> Option<PathBuf> {
    let source = cluster.write(
        "clock.c",
        r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    const char *seconds = getenv("TEST_CLOCK_SECONDS");
    if (result == 0 && clock == CLOCK_REALTIME && seconds) time->tv_sec += atoll(seconds);
    return result;
}
"#,
    );
    let library = cluster.path("clock.so");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).output();
    compiled.is_ok_and(|done| done.status.success()).then_some(library)
}

fn clock_environment(library: &Path, seconds: i64) -> Vec<(String, String)> {
    let preload = library.to_string_lossy().into_owned();
    vec![("LD_PRELOAD".to_owned(), preload), ("TEST_CLOCK_SECONDS".to_owned(), seconds.to_string())]
}

#[test]
fn a_worker_with_a_certificate_of_another_cluster_gets_no_answer_and_says_what_may_be_wrong() {
    let mut cluster = Cluster::start(0, 1);
    cluster.good(&["cluster", "init", "stranger", "--node", "w1"]);
    cluster.setup("w1").identity = Some(cluster.path("stranger/nodes/w1"));
    cluster.start_worker("w1", 1);
    until_said(&cluster, "w1", &["cannot connect to the coordinator", "of another cluster than"]);
    assert!(cluster.good(&["cluster", "status"]).contains("workers      0 connected"));
    // With the right one it joins.
    cluster.setup("w1").identity = None;
    cluster.start_worker("w1", 1);
    cluster.until_connected(1);
}

#[test]
fn an_expired_certificate_is_named_with_its_file_and_so_is_one_that_is_not_valid_yet() {
    let mut cluster = Cluster::start(0, 1);
    let Some(library) = wrong_clock(&cluster) else { return skip("no C compiler, so clocks cannot be moved") };
    let days = |days: i64| clock_environment(&library, days * 86_400);
    let mut made_long_ago = cluster.weir(["cluster", "init", "old", "--node", "w1", "--validity", "1d"]);
    let made = made_long_ago.envs(days(-10)).output().expect("weir starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for (identity, days, words) in
        [("old/nodes/w1", days(0), "expired"), ("cluster/nodes/w1", days(-365), "is the clock of this machine right?")]
    {
        let setup = cluster.setup("w1");
        (setup.identity, setup.environment) = (None, days);
        let identity = cluster.path(identity);
        cluster.setup("w1").identity = Some(identity);
        cluster.start_worker("w1", 1);
        until_said(&cluster, "w1", &["error[", "node.pem", words]);
    }
}

#[test]
fn a_worker_with_a_wrong_clock_is_refused_with_the_difference_and_the_waiting_job_says_so() {
    let mut cluster = Cluster::start(0, 1);
    let Some(library) = wrong_clock(&cluster) else { return skip("no C compiler, so clocks cannot be moved") };
    let ledger = ledger(1);
    cluster.submit_ledger(&LedgerJob { parallelism: 1, ..LedgerJob::default() }, &ledger);
    cluster.until_state("ledger", "waiting");
    cluster.setup("w1").environment = clock_environment(&library, 120);
    cluster.start_worker("w1", 1);
    until_said(&cluster, "w1", &["does not take this worker", "clock"]);
    let event = cluster.until_event("ledger", "worker-refused", 0);
    assert!(event.contains("w1") && event.contains("clock"), "{event}");
    cluster.setup("w1").environment.clear();
    cluster.start_worker("w1", 1);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn a_coordinator_that_does_not_answer_is_told_and_workers_try_until_it_does() {
    let mut cluster = Cluster::start(0, 1);
    cluster.kill_coordinator();
    let message = cluster.bad(3, &["job", "ls"]);
    assert!(message.contains("E0050") && message.contains("cannot reach the coordinator"), "{message}");
    cluster.start_worker("w1", 1);
    let address = cluster.coordinator_address().to_owned();
    until_said(&cluster, "w1", &["cannot connect to the coordinator", &address, "nothing listens there"]);
    cluster.start_coordinator();
    cluster.until_connected(1);
}

#[test]
fn a_component_that_nobody_has_is_refused_at_once() {
    let cluster = Cluster::start(0, 1);
    cluster.write("in/0.jsonl", "");
    cluster.write("job.toml", LedgerJob::default().text().replace("ledger@1.2.0", "ledgre@1.2.0"));
    let message = cluster.bad(2, &["job", "submit", "job.toml"]);
    assert!(message.contains("ledgre@1.2.0") && message.contains("nor on the cluster"), "{message}");
    assert!(message.contains("job.toml:"), "with its place: {message}");
}

#[test]
fn a_component_that_the_coordinator_has_lost_is_named_and_the_job_recovers_when_it_is_pushed_again() {
    let mut cluster = Cluster::start(0, 1);
    let ledger = ledger(2);
    cluster.submit_ledger(&LedgerJob::default(), &ledger);
    let components = cluster.path("nodes/coordinator/coordinator/components/blobs");
    let away = cluster.path("away");
    std::fs::rename(&components, &away).expect("moved");
    cluster.start_workers(2, 1);
    let message = cluster.until("an event names it", |cluster| {
        let events = cluster.events("ledger").into_iter().filter_map(|event| event["message"].as_str().map(str::to_owned));
        events.into_iter().find(|message| message.contains("component") && !message.contains("was submitted"))
    });
    assert!(message.contains("parse@1.2.0") || message.contains("ledger@1.2.0"), "{message}");
    let state = cluster.job("ledger")["status"]["state"].to_string();
    assert!(!state.contains("failed"), "the job waits rather than ends: {message}");
    let _ = std::fs::remove_dir_all(&components);
    std::fs::rename(&away, &components).expect("moved back");
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn two_workers_with_one_certificate_do_not_take_turns() {
    let mut cluster = Cluster::start(1, 1);
    cluster.setup("w5").identity = Some(cluster.path("cluster/nodes/w1"));
    cluster.start_worker("w5", 1);
    until_said(&cluster, "w5", &["does not take this worker", "w1"]);
    assert!(!cluster.log("w1").contains("lost the coordinator"), "the first one stays: {}", cluster.log("w1"));
    // When that has ended, the other takes its place.
    cluster.kill_worker("w1");
    until_said(&cluster, "w5", &["joined the cluster"]);
}

/// A command line that makes a file system of its own at a path before it becomes the rest of the line.
fn behind_a_mount(path: &Path, options: &str) -> Place {
    let script = format!("mount -t tmpfs -o {options} none '{}' && exec \"$0\" \"$@\"", path.display());
    let mut place = Place::loopback();
    place.enter = ["unshare", "--mount", "sh", "-c", &script].map(str::to_owned).to_vec();
    place
}

fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", "mount -t tmpfs none /mnt"]).output();
    tried.is_ok_and(|done| done.status.success())
}

#[test]
fn a_worker_that_does_not_see_the_checkpoints_folder_of_the_others_is_named() {
    let mut cluster = Cluster::start(0, 1);
    if !may_mount() {
        return skip("mounting is not permitted here");
    }
    let checkpoints = cluster.path("checkpoints");
    std::fs::create_dir_all(&checkpoints).expect("a folder");
    let mut place = behind_a_mount(&checkpoints, "size=64m");
    place.address = cluster.address(0).ip();
    cluster.setup("w2").place = Some(place);
    cluster.start_workers(2, 1);
    let ledger = ledger(3);
    cluster.submit_ledger(&LedgerJob::default(), &ledger);
    let message = cluster.until("an event names the worker and the folder", |cluster| {
        let events = cluster.events("ledger").into_iter().filter_map(|event| event["message"].as_str().map(str::to_owned));
        events.into_iter().find(|message| message.contains("w2") && message.contains("checkpoints"))
    });
    assert!(message.contains("same"), "it says what must hold: {message}");
    let state = cluster.job("ledger")["status"]["state"].to_string();
    assert!(!state.contains("failed") && !state.contains("finished"), "the job waits: {state}");
    cluster.setup("w2").place = None;
    cluster.start_worker("w2", 1);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

/// A small file system that all processes see, until this is dropped.
struct Small(PathBuf);

impl Small {
    fn mount(path: &Path, options: &str) -> Small {
        std::fs::create_dir_all(path).expect("a folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(path).status().expect("mount");
        assert!(mounted.success());
        Small(path.to_owned())
    }

    fn resize(&self, options: &str) {
        let options = format!("remount,{options}");
        let mounted = Command::new("mount").args(["-o", &options]).arg(&self.0).status().expect("mount");
        assert!(mounted.success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_for_checkpoints_is_named_and_the_job_goes_on_when_there_is_room() {
    if !may_mount() {
        return skip("mounting is not permitted here");
    }
    let mut cluster = Cluster::start(2, 1);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, 100_000);
    }
    let small = Small::mount(&cluster.path("checkpoints"), "size=256k");
    let ledger = ledger(4);
    let checkpoint = "interval = \"50ms\"\ntolerable_failures = 1000".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    let message = cluster.until("an event names the full disk", |cluster| {
        let events = cluster.events("ledger").into_iter().filter_map(|event| event["message"].as_str().map(str::to_owned));
        events.into_iter().find(|message| message.to_lowercase().contains("no space left"))
    });
    assert!(message.contains("checkpoint"), "{message}");
    small.resize("size=256m");
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, u64::MAX);
    }
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    drop(small);
}

#[test]
fn a_full_disk_of_the_coordinator_is_named_jobs_run_on_and_all_is_right_when_there_is_room() {
    if !may_mount() {
        return skip("mounting is not permitted here");
    }
    let mut cluster = Cluster::prepared(Place::loopback());
    let small = Small::mount(&cluster.path("nodes/coordinator/coordinator"), "size=16m");
    cluster.start_coordinator();
    cluster.start_workers(2, 1);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, 20_000);
    }
    let ledger = ledger(6);
    cluster.submit_ledger(&LedgerJob { slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 2);

    let filler = cluster.path("nodes/coordinator/coordinator/filler");
    std::fs::write(&filler, vec![0; 64 << 20]).expect_err("the disk is full");
    // Some room is taken by the log of the metadata already, so it may be that a few jobs are accepted. They never have the slots.
    let long = "# a job file that is long\n".repeat(2_000);
    let submit = |number: u32| {
        let job = LedgerJob { name: "waits", parallelism: 32, ..LedgerJob::default() }
            .text()
            .replace("waits", &format!("waits-{number}"));
        let file = format!("waits-{number}.toml");
        cluster.write(&file, format!("{job}{long}"));
        cluster.ask(&["job", "submit", &file])
    };
    let refused = (0..200).map(submit).find(|submitted| !submitted.status.success()).expect("it is refused some day").stderr;
    assert!(refused.contains("E0045") && refused.contains("cannot submit job waits-"), "{refused}");
    assert!(refused.to_lowercase().contains("no space left") && refused.contains("nothing was changed"), "{refused}");
    let blobs = std::fs::read_dir(cluster.world().data().join("components/blobs")).expect("components");
    let component = blobs.map(|file| file.expect("a file").path()).next().expect("a component");
    let component = component.to_string_lossy();
    let push = ["component", "push", &component, "--name", "another", "--version", "1.0.0"];
    let refused = cluster.bad(1, &push);
    assert!(refused.contains("cannot write another@1.0.0") && refused.to_lowercase().contains("no space left"), "{refused}");
    assert_eq!(cluster.job("ledger")["status"]["state"], "running");
    cluster.until_more_checkpoints("ledger", 2);

    std::fs::remove_file(filler).expect("there is room again");
    small.resize("size=256m");
    cluster.until("jobs are accepted again", |_| submit(99).status.success().then_some(()));
    cluster.good(&push);
    for worker in ["w1", "w2"] {
        cluster.read_slowly(worker, u64::MAX);
    }
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    let shown = |cluster: &Cluster| cluster.job("ledger")["status"].clone();
    let before = shown(&cluster);
    assert!(before["rows_written"].as_u64() > Some(0), "{before}");
    cluster.kill_coordinator();
    cluster.start_coordinator();
    assert_eq!(shown(&cluster), before);
}

#[test]
fn a_worker_whose_own_disk_is_full_runs_its_tasks_and_says_what_it_cannot_keep() {
    if !may_mount() {
        return skip("mounting is not permitted here");
    }
    let mut cluster = Cluster::start(1, 1);
    let data = cluster.path("nodes/w2");
    std::fs::create_dir_all(&data).expect("a folder");
    let mut place = behind_a_mount(&data, "size=16k");
    place.address = cluster.address(0).ip();
    cluster.setup("w2").place = Some(place);
    cluster.start_worker("w2", 1);
    cluster.until_connected(2);
    let ledger = ledger(5);
    cluster.submit_ledger(&LedgerJob::default(), &ledger);
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
    until_said(&cluster, "w2", &["cannot keep a component in the cache"]);
}
