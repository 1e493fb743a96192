//! Asking a cluster for something, with the command that people use, and waiting for what it is to say.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::{Cluster, LOOK, LedgerJob, PATIENCE, last_checkpoint};
use crate::ledger::Ledger;
use crate::output::{dead_letters, rows};
use crate::process::Finished;

impl Cluster {
    /// A `weir` command that asks this cluster.
    pub fn weir<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.place.command(&self.world, arguments);
        command.env("WEIR_COORDINATOR", &self.addresses.1).env("WEIR_DATA_DIR", self.world.data());
        command
    }

    /// Runs a command to its end, whatever that is.
    pub fn ask(&self, arguments: &[&str]) -> Finished {
        self.world.finish(&mut self.weir(arguments))
    }

    /// Runs what must succeed; its standard output.
    ///
    /// # Panics
    /// If it fails.
    pub fn good(&self, arguments: &[&str]) -> String {
        let done = self.ask(arguments);
        assert!(done.status.success(), "weir {arguments:?}: {}\n{}", done.status, done.stderr);
        done.stdout
    }

    /// Runs what must fail with that exit code; its standard error.
    ///
    /// # Panics
    /// If it does not.
    pub fn bad(&self, code: i32, arguments: &[&str]) -> String {
        let done = self.ask(arguments);
        assert_eq!(done.status.code(), Some(code), "weir {arguments:?}: {}{}", done.stdout, done.stderr);
        done.stderr
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let done = self.ask(arguments);
        if !done.status.success() {
            return Err(done.stderr);
        }
        serde_json::from_str(&done.stdout).map_err(|error| format!("{error}: {}", done.stdout))
    }

    /// Everything about a job.
    ///
    /// # Panics
    /// If there is none.
    pub fn job(&self, name: &str) -> Value {
        self.json(&["job", "show", name, "--json"]).unwrap_or_else(|error| panic!("job {name}: {error}"))
    }

    /// What happened to a job, oldest first.
    ///
    /// # Panics
    /// If there is none.
    pub fn events(&self, name: &str) -> Vec<Value> {
        let lines = self.good(&["job", "events", name, "--json"]);
        lines.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// Those of a job's events that are of one kind, as people read them.
    pub fn events_of(&self, name: &str, kind: &str) -> Vec<String> {
        let events = self.events(name).into_iter().filter(|event| event["kind"] == kind);
        events.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Waits until `look` finds something.
    ///
    /// # Panics
    /// If it does not.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut(&Cluster) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until something is true of a job, as `job show` tells it.
    ///
    /// # Panics
    /// If it does not become true.
    pub fn until_job(&self, name: &str, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        let mut last = String::new();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            // The coordinator may be away for a moment.
            match self.json(&["job", "show", name, "--json"]) {
                Ok(job) if holds(&job) => return job,
                Ok(job) => last = job.to_string(),
                Err(error) => last = error,
            }
            std::thread::sleep(LOOK);
        }
        panic!("waited in vain until {what}: {last}");
    }

    /// Waits until a job is in a state; one that has failed instead is told at once.
    ///
    /// # Panics
    /// If it does not get there.
    pub fn until_state(&self, name: &str, state: &str) -> Value {
        self.until_job(name, &format!("job {name} is {state}"), |job| {
            let now = &job["status"]["state"];
            let over = ["stopped", "finished", "failed", "cancelled"].iter().any(|over| now == over);
            assert!(now == state || !over, "job {name} is not {state}, but {now}: {}", job["status"]["reason"]);
            now == state
        })
    }

    /// The worker of each subtask of a vertex, as soon as it is known.
    pub fn workers_of(&self, name: &str, vertex: &str) -> Vec<String> {
        self.until(&format!("it is known where {vertex} of job {name} runs"), |cluster| {
            let job = cluster.json(&["job", "show", name, "--json"]).ok()?;
            let vertex = job["vertices"].as_array()?.iter().find(|other| other["uid"] == vertex)?;
            let workers = vertex["workers"].as_array()?.iter().filter_map(|worker| worker.as_str().map(str::to_owned));
            Some(workers.collect::<Vec<_>>()).filter(|workers| !workers.is_empty())
        })
    }

    /// Waits until some checkpoint of at least this number is complete; gives the status of the last.
    pub fn until_checkpoint(&self, name: &str, number: u64) -> Value {
        let job = self.until_job(name, &format!("job {name} has checkpoint {number}"), |job| {
            job["status"]["checkpoint"]["id"].as_u64() >= Some(number)
        });
        job["status"]["checkpoint"].clone()
    }

    /// Waits until this many more checkpoints are complete than there are now.
    pub fn until_more_checkpoints(&self, name: &str, more: u64) -> Value {
        let now = last_checkpoint(&self.job(name));
        self.until_checkpoint(name, now + more)
    }

    /// Waits until an event of a kind was told after those that were there; its message.
    pub fn until_event(&self, name: &str, kind: &str, after: usize) -> String {
        self.until(&format!("job {name} has event {} of kind {kind}", after + 1), |cluster| {
            cluster.events_of(name, kind).get(after).cloned()
        })
    }

    /// Waits until as many workers are connected.
    pub fn until_connected(&self, count: usize) {
        self.until(&format!("{count} workers are connected"), |cluster| {
            let workers = cluster.json(&["worker", "ls", "--json"]).ok()?;
            let alive = workers.as_array()?.iter().filter(|worker| worker["alive"] == true).count();
            (alive == count).then_some(())
        });
    }

    /// Everything came out once, in order, and nothing else.
    ///
    /// # Panics
    /// If something is missing, or is there twice, or should not be there.
    #[track_caller]
    pub fn assert_exact(&self, ledger: &Ledger) {
        if let Some(difference) = ledger.difference(&rows(&self.path("out"))) {
            panic!("{difference}");
        }
        self.assert_dead_letters(ledger);
    }

    /// All lines that are malformed came out as dead letters, once.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_dead_letters(&self, ledger: &Ledger) {
        let mut letters = dead_letters(&self.path("bad"));
        letters.sort();
        assert_eq!(letters, ledger.malformed, "dead letters");
    }

    /// Submits a ledger job that reads these rows.
    pub fn submit_ledger(&self, job: &LedgerJob, ledger: &Ledger) {
        ledger.write(&self.world, "in");
        self.write("job.toml", job.text());
        self.submit("job.toml", &[]);
    }

    /// Submits a job file of its folder.
    pub fn submit(&self, file: &str, more: &[&str]) {
        self.good(&[&["job", "submit", file][..], more].concat());
    }
}
