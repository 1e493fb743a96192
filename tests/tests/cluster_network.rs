//! Clusters on bad networks: packets that are late or lost, and ways on which nothing gets through, in both directions or one.
//!
//! Between all processes are wires of the test's own, which need no privileges; and where the machine allows it, network
//! namespaces, in which the kernel does the same.

use std::time::Duration;

use weir_tests::{Amounts, Cluster, Ledger, LedgerJob, Namespaces, Place, Random, Weather, Wire, attempt, skip};

/// How long a way is closed: twice as long as silence is borne.
const CLOSED: Duration = Duration::from_secs(10);

/// Bytes per second of a slow standard output.
const SLOW: u64 = 200_000;

const WORKERS: [&str; 2] = ["w1", "w2"];

/// A cluster of two workers, in which every way is a wire.
struct Wired {
    cluster: Cluster,
    /// From each worker to the coordinator.
    to_coordinator: [Wire; 2],
    /// From any other worker to each worker.
    to_worker: [Wire; 2],
}

fn wired() -> Wired {
    let mut cluster = Cluster::with_coordinator(Place::loopback());
    let coordinator = cluster.coordinator_address().parse().expect("an address");
    let to_coordinator = [7_901, 7_902].map(|port| Wire::new(cluster.address(port), coordinator, u64::from(port)));
    let to_worker = [7_911, 7_912].map(|port| Wire::new(cluster.address(port), cluster.address(port - 100), u64::from(port)));
    for (number, worker) in WORKERS.into_iter().enumerate() {
        let listen = cluster.address(7_811 + number as u16);
        let setup = cluster.setup(worker);
        setup.coordinator = Some(to_coordinator[number].address().to_string());
        setup.advertise = Some(to_worker[number].address().to_string());
        setup.listen = Some(listen.to_string());
    }
    cluster.start_workers(2, 1);
    Wired { cluster, to_coordinator, to_worker }
}

impl Wired {
    /// A job that goes on for as long as the test wants, with some checkpoints behind it.
    fn with_job(seed: u64) -> (Wired, Ledger) {
        let mut wired = wired();
        wired.read(SLOW);
        let ledger = Ledger::new(&mut Random::new(seed), &Amounts { files: 4, rows: 60_000, ..Amounts::default() });
        let checkpoint = "interval = \"50ms\"\nunaligned_after = \"100ms\"\ntimeout = \"5s\"".to_owned();
        wired.cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
        wired.cluster.until_checkpoint("ledger", 2);
        (wired, ledger)
    }

    fn read(&mut self, bytes_per_second: u64) {
        WORKERS.iter().for_each(|worker| self.cluster.read_slowly(worker, bytes_per_second));
    }

    /// The job goes to its end, and everything came out once.
    fn finish(&mut self, ledger: &Ledger) -> serde_json::Value {
        self.read(u64::MAX);
        let job = self.cluster.until_state("ledger", "finished");
        self.cluster.assert_exact(ledger);
        job
    }
}

fn weather(wires: &[Wire], weather: Weather) {
    wires.iter().for_each(|wire| wire.set(weather));
}

#[test]
fn with_20_ms_of_delay_and_1_percent_of_loss_a_job_runs_to_its_end_without_a_restart() {
    let mut wired = wired();
    for wires in [&wired.to_coordinator, &wired.to_worker] {
        weather(wires, Weather { delay: Duration::from_millis(20), loss: 100, ..Weather::default() });
    }
    let ledger = Ledger::new(&mut Random::new(1), &Amounts { files: 4, rows: 60_000, ..Amounts::default() });
    wired.cluster.submit_ledger(&LedgerJob::default(), &ledger);
    let job = wired.finish(&ledger);
    assert_eq!(attempt(&job), 1, "nothing was restarted");
}

#[test]
fn two_workers_that_do_not_reach_each_other_for_a_while_recover() {
    let (mut wired, ledger) = Wired::with_job(2);
    weather(&wired.to_worker, Weather::BLACKHOLE);
    let reason = wired.cluster.until_event("ledger", "restarting", 0);
    assert!(WORKERS.iter().any(|worker| reason.contains(worker)), "it says between whom: {reason}");
    std::thread::sleep(CLOSED);
    wired.cluster.until_connected(2);
    weather(&wired.to_worker, Weather::default());
    // Nobody runs an attempt that others have given up.
    wired.cluster.until_more_checkpoints("ledger", 2);
    wired.finish(&ledger);
}

#[test]
fn a_worker_that_does_not_reach_the_coordinator_for_a_while_is_lost_and_comes_back() {
    let (mut wired, ledger) = Wired::with_job(3);
    wired.to_coordinator[0].set(Weather::BLACKHOLE);
    let lost = wired.cluster.until_event("ledger", "worker-lost", 0);
    assert!(lost.starts_with("worker w1 is lost"), "{lost}");
    let reason = wired.cluster.until_state("ledger", "waiting")["status"]["reason"].to_string();
    assert!(reason.contains("it needs 2 slots"), "{reason}");
    std::thread::sleep(CLOSED);
    wired.to_coordinator[0].set(Weather::default());
    wired.cluster.until_more_checkpoints("ledger", 2);
    wired.finish(&ledger);
}

#[test]
fn a_worker_that_hears_the_coordinator_but_is_not_heard_is_lost_and_comes_back() {
    let (mut wired, ledger) = Wired::with_job(4);
    wired.to_coordinator[0].set(Weather { swallows_there: true, ..Weather::default() });
    let lost = wired.cluster.until_event("ledger", "worker-lost", 0);
    assert!(lost.starts_with("worker w1 is lost"), "{lost}");
    wired.to_coordinator[0].set(Weather::default());
    wired.cluster.until_more_checkpoints("ledger", 2);
    wired.finish(&ledger);
}

#[test]
fn a_worker_that_is_heard_but_does_not_hear_the_coordinator_notices_and_comes_back() {
    let (mut wired, ledger) = Wired::with_job(5);
    wired.to_coordinator[0].set(Weather { swallows_back: true, ..Weather::default() });
    wired.cluster.until_event("ledger", "worker-lost", 0);
    wired.to_coordinator[0].set(Weather::default());
    wired.cluster.until_more_checkpoints("ledger", 2);
    wired.finish(&ledger);
}

#[test]
fn rows_that_get_through_in_one_direction_only_do_not_hang_the_job() {
    let (mut wired, ledger) = Wired::with_job(6);
    weather(&wired.to_worker, Weather { swallows_back: true, ..Weather::default() });
    wired.cluster.until_event("ledger", "restarting", 0);
    weather(&wired.to_worker, Weather::default());
    wired.cluster.until_more_checkpoints("ledger", 2);
    wired.finish(&ledger);
}

#[test]
fn a_coordinator_without_network_for_a_while_finds_its_workers_again() {
    let (mut wired, ledger) = Wired::with_job(7);
    weather(&wired.to_coordinator, Weather::BLACKHOLE);
    wired.cluster.until_event("ledger", "worker-lost", 0);
    std::thread::sleep(Duration::from_secs(3));
    weather(&wired.to_coordinator, Weather::default());
    wired.cluster.until_connected(2);
    wired.cluster.until_more_checkpoints("ledger", 2);
    wired.finish(&ledger);
}

/// A cluster whose processes are machines of their own to the kernel: 0 is the coordinator.
fn on_machines() -> Result<(Namespaces, Cluster), String> {
    let machines = Namespaces::new(3)?;
    let mut cluster = Cluster::with_coordinator(machines.place(0));
    for (worker, machine) in WORKERS.into_iter().zip(1..) {
        cluster.setup(worker).place = Some(machines.place(machine));
    }
    cluster.start_workers(2, 1);
    Ok((machines, cluster))
}

#[test]
fn machines_that_do_not_reach_each_other_by_the_kernels_network_recover() {
    let (machines, mut cluster) = match on_machines() {
        Ok(made) => made,
        Err(reason) => return skip(&reason),
    };
    WORKERS.iter().for_each(|worker| cluster.read_slowly(worker, SLOW));
    let ledger = Ledger::new(&mut Random::new(8), &Amounts { files: 4, rows: 60_000, ..Amounts::default() });
    let checkpoint = "interval = \"50ms\"\nunaligned_after = \"100ms\"\ntimeout = \"5s\"".to_owned();
    cluster.submit_ledger(&LedgerJob { checkpoint, slow: true, ..LedgerJob::default() }, &ledger);
    cluster.until_checkpoint("ledger", 2);
    // One worker does not reach the other, which does reach it.
    machines.swallow(1, 2, true);
    cluster.until_event("ledger", "restarting", 0);
    machines.swallow(1, 2, false);
    cluster.until_more_checkpoints("ledger", 2);
    // And one is cut off from the coordinator.
    let lost = cluster.events_of("ledger", "worker-lost").len();
    machines.swallow(2, 0, true);
    machines.swallow(0, 2, true);
    let message = cluster.until_event("ledger", "worker-lost", lost);
    assert!(message.starts_with("worker w2 is lost"), "{message}");
    machines.swallow(2, 0, false);
    machines.swallow(0, 2, false);
    cluster.until_more_checkpoints("ledger", 2);
    WORKERS.iter().for_each(|worker| cluster.read_slowly(worker, u64::MAX));
    cluster.until_state("ledger", "finished");
    cluster.assert_exact(&ledger);
}

#[test]
fn with_netems_delay_and_loss_a_job_runs_to_its_end_without_a_restart() {
    let (machines, cluster) = match on_machines() {
        Ok(made) => made,
        Err(reason) => return skip(&reason),
    };
    for machine in 0..3 {
        if let Err(reason) = machines.netem(machine, &["delay", "20ms", "loss", "1%"]) {
            return skip(&reason);
        }
    }
    let ledger = Ledger::new(&mut Random::new(9), &Amounts { files: 4, rows: 60_000, ..Amounts::default() });
    cluster.submit_ledger(&LedgerJob::default(), &ledger);
    let job = cluster.until_state("ledger", "finished");
    assert_eq!(attempt(&job), 1, "nothing was restarted");
    cluster.assert_exact(&ledger);
}
