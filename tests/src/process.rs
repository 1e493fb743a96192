//! `weir` processes, each test in a folder of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest time anything is waited for. Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder with a data folder, in which jobs run. Clones are the same folder.
#[derive(Clone)]
pub struct World {
    folder: Arc<tempfile::TempDir>,
}

/// A process that ended.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A process that runs.
pub struct Running {
    child: Child,
    stderr: PathBuf,
}

fn environment(name: &str) -> PathBuf {
    let value =
        std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: end-to-end tests are run by `cargo xtask test`"));
    PathBuf::from(value)
}

impl World {
    /// An empty world with all operators in its component store. The store and the compile cache are shared by all tests.
    ///
    /// # Panics
    /// If the folder cannot be made.
    pub fn new() -> World {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let world = World { folder: Arc::new(folder) };
        world.share(&world.data(), &["components"]);
        world
    }

    /// Makes a data folder, if it is not there, that shares parts with all tests.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn share(&self, data: &Path, parts: &[&str]) {
        let shared = environment("WEIR_TEST_COMPONENTS");
        fs::create_dir_all(data).expect("a data folder");
        for part in parts.iter().filter(|part| !data.join(part).exists()) {
            fs::create_dir_all(shared.join(part)).expect("the shared folder");
            symlink(shared.join(part), data.join(part)).expect("a link to the shared folder");
        }
    }

    /// A path in the world.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// Writes a file and gives its path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file in the world")).expect("its folder");
        fs::write(&path, content).expect("a written file");
        path
    }

    /// A `weir` command in this world.
    pub fn weir<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(environment("WEIR_BIN"));
        self.at_home(command.args(arguments));
        command
    }

    /// The same, started by another program, which is given these arguments, the path of `weir`, and those of `weir`.
    pub fn weir_by<A: AsRef<OsStr>>(&self, program: &str, before: &[String], arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(program);
        self.at_home(command.args(before).arg(environment("WEIR_BIN")).args(arguments));
        command
    }

    /// Nothing of this machine's configuration counts.
    fn at_home(&self, command: &mut Command) {
        let compiled = environment("WEIR_TEST_COMPONENTS").join("compiled");
        command.env("WEIR_COMPILE_CACHE", compiled);
        command.current_dir(self.folder.path()).env("WEIR_DATA_DIR", self.data()).env_remove("WEIR_LOG").stdin(Stdio::null());
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// If it does not end.
    pub fn finish(&self, command: &mut Command) -> Finished {
        let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().expect("a started process");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Finished { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Runs `weir run` with these arguments to its end, and expects it to succeed.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, arguments: &[&str]) -> Finished {
        let finished = self.finish(&mut self.weir([&["run"], arguments].concat()));
        assert!(
            finished.status.success(),
            "weir run {arguments:?}: {}\n{}\n{}",
            finished.status,
            finished.stdout,
            finished.stderr
        );
        finished
    }

    /// Starts a command. Its standard output is discarded unless read; its standard error goes to a file.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&self, command: &mut Command) -> Running {
        let stderr = self.path("stderr.txt");
        let file = fs::File::create(&stderr).expect("a file for messages");
        let child = command.stdout(Stdio::piped()).stderr(file).spawn().expect("a started process");
        Running { child, stderr }
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl Running {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it without warning. Returns whether it was still running.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn kill(mut self) -> bool {
        self.child.kill().expect("a killed process");
        self.child.wait().expect("its end").signal().is_some()
    }

    /// Waits until it ends, or until some time has passed. Whether it ended.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn ended_within(&mut self, time: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + time;
        loop {
            if let Some(status) = self.child.try_wait().expect("a state") {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait(&mut self) -> ExitStatus {
        self.ended_within(PATIENCE).unwrap_or_else(|| panic!("the process does not end:\n{}", self.messages()))
    }

    /// Reads events (lines of `--json`) until one is wanted, and gives it.
    ///
    /// # Panics
    /// If the process ends before.
    pub fn event(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let stdout = self.child.stdout.as_mut().expect("its output is read by one reader");
        let mut lines = BufReader::with_capacity(1, stdout);
        let mut line = String::new();
        while lines.read_line(&mut line).expect("its output") > 0 {
            if let Ok(event) = serde_json::from_str::<Value>(&line)
                && wanted(&event)
            {
                return event;
            }
            line.clear();
        }
        panic!("the process ended before the event:\n{}", self.messages());
    }

    /// Sends it a signal by name, such as `INT`.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().expect("kill");
        assert!(status.success(), "kill -{name}");
    }

    /// What it has said so far on its standard error.
    pub fn messages(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
