//! A cluster of real processes on this machine: one coordinator and some workers, asked over its HTTP API.

use super::Stand;
use crate::shell;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Longest time for anything but a measurement. Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Workers that get certificates.
const WORKERS: [&str; 2] = ["worker-1", "worker-2"];

/// A process. Killed when dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Cluster<'a> {
    stand: &'a Stand,
    folder: PathBuf,
    /// Where the coordinator listens for workers.
    address: String,
    /// Host and port of its API.
    api: String,
    workers: BTreeMap<&'static str, Node>,
    /// When workers wrote to their standard outputs.
    written: Arc<Mutex<Vec<u64>>>,
    /// Last, so that workers end first.
    _coordinator: Node,
    slots: u32,
}

impl<'a> Cluster<'a> {
    /// A coordinator and two connected workers with so many slots each, in a folder that is made anew.
    pub(crate) fn start(stand: &'a Stand, slots: u32) -> Result<Cluster<'a>> {
        let folder = stand.scratch.join("cluster");
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let mut init = Command::new(&stand.prepared.weir);
        init.args(["cluster", "init"]).arg(folder.join("identities")).args(["--quiet", "--node", "coordinator"]);
        shell::read(init.args(WORKERS.iter().flat_map(|name| ["--node", name])))?;
        let mut command = Command::new(&stand.prepared.weir);
        command.args(["coordinator", "--json", "--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--identity"]);
        command.arg(folder.join("identities/nodes/coordinator")).arg("--checkpoints").arg(folder.join("checkpoints"));
        command.arg("--data-dir").arg(folder.join("coordinator"));
        let (coordinator, mut output) = spawn(&mut command, &folder.join("coordinator.log"))?;
        let mut line = String::new();
        output.read_line(&mut line).context("cannot read what the coordinator says")?;
        let said: Value = serde_json::from_str(&line).with_context(|| format!("the coordinator said {line:?}"))?;
        let text = |key: &str| said[key].as_str().map(str::to_string).with_context(|| format!("the coordinator said {line:?}"));
        let (address, api) = (text("workers")?, text("api")?.trim_start_matches("http://").to_string());
        let mut cluster = Cluster {
            stand,
            folder,
            address,
            api,
            workers: BTreeMap::new(),
            written: Arc::default(),
            _coordinator: coordinator,
            slots,
        };
        for name in WORKERS {
            cluster.start_worker(name)?;
        }
        Ok(cluster)
    }

    /// Starts a worker, and waits until it is connected.
    pub(crate) fn start_worker(&mut self, name: &'static str) -> Result<()> {
        let mut command = Command::new(&self.stand.prepared.weir);
        // It may be root who measures.
        command.args([
            "worker",
            "--allow-any-path",
            "--listen",
            "127.0.0.1:0",
            "--slots",
            &self.slots.to_string(),
            "--coordinator",
            &self.address,
        ]);
        command.arg("--identity").arg(self.folder.join("identities/nodes").join(name));
        command.arg("--data-dir").arg(self.folder.join(name));
        let (node, mut output) = spawn(&mut command, &self.folder.join(format!("{name}.log")))?;
        self.workers.insert(name, node);
        let written = self.written.clone();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while output.read(&mut buffer).is_ok_and(|read| read > 0) {
                lock(&written).push(now_ms());
            }
        });
        self.until(&format!("{name} is connected"), |cluster| {
            let workers = cluster.get("/api/v1/workers")?;
            let ours = |worker: &&Value| worker["name"] == name && worker["alive"] == true;
            Ok(workers.as_array().and_then(|all| all.iter().find(ours)).map(drop))
        })
    }

    /// When a worker first wrote to its standard output from a moment on, after the last kill.
    pub(crate) fn output_since(&self, from_ms: u64) -> Result<u64> {
        self.until("a worker writes a row", |cluster| Ok(lock(&cluster.written).iter().copied().find(|at| *at >= from_ms)))
    }

    /// SIGKILL; gives when, in milliseconds since the Unix epoch.
    pub(crate) fn kill_worker(&mut self, name: &str) -> Result<u64> {
        let mut node = self.workers.remove(name).with_context(|| format!("there is no worker {name}"))?;
        lock(&self.written).clear();
        let at = now_ms();
        node.0.kill().with_context(|| format!("cannot kill {name}"))?;
        Ok(at)
    }

    /// Names and process ids of all workers.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.workers.iter().map(|(name, node)| (*name, node.0.id()))
    }

    /// Gives the cluster a job of bench/jobs.
    pub(crate) fn submit(&self, job: &str, settings: &[String], fresh: bool) -> Result<()> {
        let mut command = Command::new(&self.stand.prepared.weir);
        command.args(["job", "submit"]).arg(self.stand.workspace.root.join("bench/jobs").join(job));
        command.args(["--json", "--coordinator", &self.api]).arg("--data-dir").arg(&self.stand.prepared.data_dir);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        if fresh {
            command.arg("--fresh");
        }
        shell::read(&mut command).map(drop)
    }

    /// Everything about a job. Fails if it is over although it should run.
    pub(crate) fn job(&self, name: &str) -> Result<Value> {
        let job = self.get(&format!("/api/v1/jobs/{name}"))?;
        if job["status"]["state"] == "failed" {
            bail!("job {name} has failed: {}", job["status"]["reason"]);
        }
        Ok(job)
    }

    /// What happened to a job after an event: when, of which kind, in words; and the number of the last.
    pub(crate) fn events(&self, name: &str, after: u64) -> Result<Vec<Value>> {
        match self.get(&format!("/api/v1/jobs/{name}/events?after={after}"))? {
            Value::Array(events) => Ok(events),
            other => bail!("events of {name}: {other}"),
        }
    }

    /// Waits until something is true of a job.
    pub(crate) fn until_job(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until(&format!("job {name}: {what}"), |cluster| Ok(Some(cluster.job(name)?).filter(&holds)))
    }

    /// Ends a job: `stop` with a last checkpoint, `cancel` without one.
    pub(crate) fn end(&self, name: &str, how: &str) -> Result<()> {
        let mut command = Command::new(&self.stand.prepared.weir);
        command.args(["job", how, name, "--json", "--coordinator", &self.api]);
        shell::read(command.arg("--data-dir").arg(&self.stand.prepared.data_dir))?;
        let over = |job: &Value| ["stopped", "cancelled", "finished"].iter().any(|state| job["status"]["state"] == *state);
        self.until_job(name, "it is over", over).map(drop)
    }

    fn until<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Result<Option<T>>) -> Result<T> {
        let started = Instant::now();
        loop {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if started.elapsed() > PATIENCE {
                bail!("waited in vain for {} s until {what}; see the logs in {}", PATIENCE.as_secs(), self.folder.display());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn get(&self, path: &str) -> Result<Value> {
        let asked = || -> Result<String> {
            let mut stream = TcpStream::connect(&self.api)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.api)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = asked().with_context(|| format!("cannot ask the coordinator for {path}"))?;
        body(&answer).with_context(|| format!("the coordinator answered to {path}: {answer}"))
    }
}

/// The JSON of a successful answer.
fn body(answer: &str) -> Result<Value> {
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("refused");
    }
    Ok(serde_json::from_str(body)?)
}

fn spawn(command: &mut Command, log: &Path) -> Result<(Node, BufReader<ChildStdout>)> {
    let messages = File::options().create(true).append(true).open(log);
    let messages = messages.with_context(|| format!("cannot write {}", log.display()))?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages).spawn();
    let mut node = Node(child.with_context(|| format!("cannot start `{}`", shell::display(command)))?);
    let output = node.0.stdout.take().context("a child without a stdout")?;
    Ok((node, BufReader::new(output)))
}

fn lock(written: &Mutex<Vec<u64>>) -> MutexGuard<'_, Vec<u64>> {
    written.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Milliseconds since the Unix epoch, as in events.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_a_refusal_is_none() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":1}";
        assert_eq!(body(answer).unwrap()["a"], 1);
        assert!(body("HTTP/1.1 404 Not Found\r\n\r\n{}").is_err() && body("").is_err());
    }
}
