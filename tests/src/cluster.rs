//! Clusters of real processes on this machine: a coordinator and workers with certificates of their own, which are killed,
//! started again and cut off from each other.
//!
//! Every cluster has a loopback address of its own, so that a process that is started again finds its port free.

mod asking;
mod jobs;
mod namespaces;
mod node;
mod place;
mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use self::jobs::LedgerJob;
pub use self::namespaces::Namespaces;
use self::node::Node;
pub use self::place::Place;
pub use self::wire::{Weather, Wire};
use crate::process::World;

/// Longest time anything is waited for. Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often is looked.
const LOOK: Duration = Duration::from_millis(25);

/// Workers that have certificates from the beginning.
const NODES: [&str; 6] = ["coordinator", "w1", "w2", "w3", "w4", "w5"];

/// What is not as usual with a process.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Where it runs; with the coordinator otherwise.
    pub place: Option<Place>,
    /// Folder of its certificate.
    pub identity: Option<PathBuf>,
    /// Where a worker is told that the coordinator is.
    pub coordinator: Option<String>,
    /// Where else a coordinator may be.
    pub other_coordinator: Option<String>,
    /// Where a worker listens.
    pub listen: Option<String>,
    /// Where a worker says that it listens.
    pub advertise: Option<String>,
    /// Folders that jobs have to stay below; any path, if there are none.
    pub allow_path: Vec<String>,
    /// Environment variables.
    pub environment: Vec<(String, String)>,
}

/// A coordinator, workers, and whoever asks them for something.
pub struct Cluster {
    world: World,
    coordinator: Option<Node>,
    /// What its coordinator's data folder and logs are called.
    coordinator_name: String,
    /// Where its coordinator listens for workers, and where its API is; ports are 0 before its first start.
    addresses: (String, String),
    workers: BTreeMap<String, Node>,
    /// What is not as usual with processes, by name.
    setups: BTreeMap<String, Setup>,
    place: Place,
    /// Bytes per second that are read of each worker's standard output.
    readers: BTreeMap<String, Arc<node::Reader>>,
    /// Processes started so far: names of logs.
    started: u32,
}

impl Cluster {
    /// A coordinator and workers `w1`, `w2` and so on, all connected.
    pub fn start(workers: u32, slots: u32) -> Cluster {
        let mut cluster = Cluster::with_coordinator(Place::loopback());
        cluster.start_workers(workers, slots);
        cluster
    }

    /// A coordinator without workers.
    pub fn with_coordinator(place: Place) -> Cluster {
        let mut cluster = Cluster::prepared(place);
        cluster.start_coordinator();
        cluster
    }

    /// Certificates, and nothing that runs.
    ///
    /// # Panics
    /// If they cannot be made.
    pub fn prepared(place: Place) -> Cluster {
        let world = World::new();
        let init = ["cluster", "init", "cluster", "--quiet"].into_iter();
        let made = world.finish(&mut world.weir(init.chain(NODES.iter().flat_map(|node| ["--node", node]))));
        assert!(made.status.success(), "weir cluster init: {}", made.stderr);
        fs::create_dir_all(world.path("logs")).expect("a folder for logs");
        let any_port = format!("{}:0", place.address);
        // Other addresses than those of the machine itself ask for a token.
        let api = if place.address.is_loopback() { any_port.clone() } else { "127.0.0.1:0".to_owned() };
        Cluster {
            world,
            coordinator: None,
            coordinator_name: "coordinator".to_owned(),
            addresses: (any_port, api),
            workers: BTreeMap::new(),
            setups: BTreeMap::new(),
            place,
            readers: BTreeMap::new(),
            started: 0,
        }
    }

    /// Another coordinator with the same certificate in the same world, whose data folder is `nodes/<name>`.
    pub fn beside(&self, name: &str) -> Cluster {
        let place = self.place.clone();
        let any_port = format!("{}:0", place.address);
        let mut other = Cluster {
            world: self.world.clone(),
            coordinator: None,
            coordinator_name: name.to_owned(),
            addresses: (any_port.clone(), any_port),
            workers: BTreeMap::new(),
            setups: BTreeMap::new(),
            place,
            readers: BTreeMap::new(),
            started: self.started + 100,
        };
        other.start_coordinator();
        other
    }

    /// What is to be different with a process from its next start on.
    pub fn setup(&mut self, node: &str) -> &mut Setup {
        self.setups.entry(node.to_owned()).or_default()
    }

    /// The folder it lives in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    /// Writes a file and gives its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        self.world.write(name, content)
    }

    fn node(&mut self, name: &str, arguments: &[&str]) -> Node {
        self.started += 1;
        let data = self.path("nodes").join(name);
        self.world.share(&data, &[]);
        let setup = self.setups.get(name).cloned().unwrap_or_default();
        let mut command = setup.place.as_ref().unwrap_or(&self.place).command(&self.world, arguments);
        command.env("WEIR_DATA_DIR", data).env("WEIR_LOG", "info").env("RUST_BACKTRACE", "1").envs(setup.environment);
        let reader = self.readers.entry(name.to_owned()).or_default().clone();
        Node::start(command, self.path(&format!("logs/{:03}-{name}.txt", self.started)), reader)
    }

    /// Starts the coordinator, at the same addresses as before if there was one, and waits until it answers.
    ///
    /// # Panics
    /// If it ends instead.
    pub fn start_coordinator(&mut self) {
        let (listen, api) = self.addresses.clone();
        let identity = self.path("cluster/nodes/coordinator").to_string_lossy().into_owned();
        let checkpoints = self.path("checkpoints").to_string_lossy().into_owned();
        let arguments = ["coordinator", "--json", "--identity", &identity, "--listen", &listen];
        let name = self.coordinator_name.clone();
        let allowed = self.setup(&name).allow_path.clone();
        let allowed: Vec<&str> = allowed.iter().flat_map(|folder| ["--allow-path", folder.as_str()]).collect();
        let mut node = self.node(&name, &[&arguments[..], &["--api", &api, "--checkpoints", &checkpoints], &allowed].concat());
        let line = node.first_line();
        let text = |key: &str| line[key].as_str().unwrap_or_else(|| panic!("the coordinator said {line}")).to_owned();
        self.addresses = (text("workers"), text("api").rsplit('/').next().unwrap_or_default().to_owned());
        self.coordinator = Some(node);
    }

    /// Starts workers `w1`, `w2` and so on, and waits until they are connected.
    pub fn start_workers(&mut self, workers: u32, slots: u32) {
        (1..=workers).for_each(|number| self.start_worker(&format!("w{number}"), slots));
        self.until_connected(workers as usize);
    }

    /// Starts a worker, and does not wait for it. One of this name that runs is killed.
    pub fn start_worker(&mut self, name: &str, slots: u32) {
        self.workers.remove(name);
        let setup = self.setup(name).clone();
        let identity = setup.identity.unwrap_or_else(|| self.path("cluster/nodes").join(name));
        let address = setup.place.as_ref().unwrap_or(&self.place).address;
        let listen = setup.listen.unwrap_or_else(|| format!("{address}:0"));
        let (coordinator, slots) = (setup.coordinator.unwrap_or_else(|| self.addresses.0.clone()), slots.to_string());
        let mut arguments = vec!["worker", "--coordinator", &coordinator, "--slots", &slots, "--listen", &listen];
        match &setup.allow_path[..] {
            // Tests may run as root, and on addresses that are no loopback ones.
            [] => arguments.push("--allow-any-path"),
            allowed => arguments.extend(allowed.iter().flat_map(|folder| ["--allow-path", folder.as_str()])),
        }
        let identity = identity.to_string_lossy().into_owned();
        arguments.extend(["--identity", &identity]);
        if let Some(advertise) = &setup.advertise {
            arguments.extend(["--advertise", advertise]);
        }
        if let Some(other) = &setup.other_coordinator {
            arguments.extend(["--coordinator", other]);
        }
        let node = self.node(name, &arguments);
        self.workers.insert(name.to_owned(), node);
    }

    /// Kills a worker without warning.
    ///
    /// # Panics
    /// If there is none of this name.
    pub fn kill_worker(&mut self, name: &str) {
        let node = self.workers.remove(name).unwrap_or_else(|| panic!("there is no worker {name}"));
        node.kill();
    }

    /// Kills the coordinator without warning.
    ///
    /// # Panics
    /// If there is none.
    pub fn kill_coordinator(&mut self) {
        self.coordinator.take().expect("a coordinator").kill();
    }

    /// Sends a process a signal by name, such as `STOP`.
    ///
    /// # Panics
    /// If there is no such process, or the system refuses.
    pub fn signal(&self, node: &str, signal: &str) {
        let node = match node {
            "coordinator" => self.coordinator.as_ref(),
            worker => self.workers.get(worker),
        };
        node.unwrap_or_else(|| panic!("there is no such process")).signal(signal);
    }

    /// Names of the workers that were started and not killed.
    pub fn workers(&self) -> Vec<String> {
        self.workers.keys().cloned().collect()
    }

    /// How many bytes of a worker's standard output are read in a second: a `stdout` sink there is as slow as that.
    pub fn read_slowly(&mut self, worker: &str, bytes_per_second: u64) {
        self.readers.entry(worker.to_owned()).or_default().set(bytes_per_second);
    }

    /// An address at which its processes listen, with a port that nothing else has.
    pub fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.place.address, port)
    }

    /// Where the coordinator listens for workers.
    pub fn coordinator_address(&self) -> &str {
        &self.addresses.0
    }

    /// What a process has said so far, over all its starts.
    pub fn log(&self, node: &str) -> String {
        self.logs(node).iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
    }

    fn logs(&self, node: &str) -> Vec<PathBuf> {
        let mut logs: Vec<PathBuf> =
            fs::read_dir(self.path("logs")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        logs.retain(|path| path.to_string_lossy().ends_with(&format!("-{node}.txt")));
        logs.sort();
        logs
    }
}

/// The number of the checkpoint that was completed last; 0 before the first.
pub fn last_checkpoint(job: &Value) -> u64 {
    job["status"]["checkpoint"]["id"].as_u64().unwrap_or(0)
}

/// The number of a job's attempt.
pub fn attempt(job: &Value) -> u64 {
    job["status"]["attempt"].as_u64().unwrap_or(0)
}

impl Drop for Cluster {
    #[allow(clippy::print_stdout, reason = "it is for whoever reads of a failure")]
    fn drop(&mut self) {
        if !std::thread::panicking() && std::env::var_os("WEIR_SHOW").is_none() {
            return;
        }
        // `WEIR_SHOW=1` shows it without a failure. Whoever reads of one needs what the processes said, and what happened to the jobs.
        let jobs = self.json(&["job", "ls", "--json"]).unwrap_or_default();
        for name in jobs.as_array().into_iter().flatten().filter_map(|job| job["name"].as_str()) {
            println!("--- events of {name}\n{}", self.ask(&["job", "events", name]).stdout);
            println!("--- {name}\n{}", self.ask(&["job", "show", name]).stdout);
        }
        let mut logs: Vec<PathBuf> =
            fs::read_dir(self.path("logs")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        logs.sort();
        for log in logs {
            println!("--- {}\n{}", log.display(), node::end_of(&fs::read_to_string(&log).unwrap_or_default()));
        }
    }
}
