//! The built binary, each test in a folder of its own.
#![allow(dead_code, reason = "not every test file uses all of it")]

pub(crate) mod cluster;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Where crates of tests are built: kept from run to run, and not the folder that this workspace's own builds lock.
pub(crate) const TARGET_DIR: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/built-by-weir");

/// A folder with a data folder.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    pub(crate) fn new() -> World {
        World { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        std::fs::write(&path, content).expect("the file");
        path
    }

    /// Writes the smallest component, told apart by `number`, which carries that name and version.
    pub(crate) fn component(&self, file: &str, number: u32, stamp: Option<(&str, &str)>) -> PathBuf {
        let bytes = component(number);
        let bytes = match stamp {
            Some((name, version)) => weir_sandbox::stamp(&bytes, name, version).expect("a name and a version"),
            None => bytes,
        };
        self.write(file, bytes)
    }

    /// `weir`, in this folder, with nothing of this machine's configuration.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).current_dir(self.folder.path());
        for variable in [
            "WEIR_CONFIG",
            "WEIR_COLOR",
            "WEIR_LOG",
            "XDG_DATA_HOME",
            "WEIR_COORDINATOR",
            "WEIR_TOKEN",
            "WEIR_TOKEN_FILE",
            "WEIR_CA",
        ] {
            command.env_remove(variable);
        }
        command.env("XDG_CONFIG_HOME", self.path("config"));
        command.env("WEIR_DATA_DIR", self.path("data")).env("CARGO_TARGET_DIR", TARGET_DIR);
        command
    }

    pub(crate) fn weir(&self, arguments: &[&str]) -> Done {
        run(&mut self.command(arguments))
    }

    /// Runs what must succeed; its standard output.
    pub(crate) fn good(&self, arguments: &[&str]) -> String {
        let done = self.weir(arguments);
        assert_eq!(done.code, Some(0), "weir {arguments:?}: {done:?}");
        done.stdout
    }

    /// Runs what must fail with that code; its standard error. There must be nothing on standard output.
    pub(crate) fn bad(&self, code: i32, arguments: &[&str]) -> String {
        let done = self.weir(arguments);
        assert_eq!((done.code, done.stdout.as_str()), (Some(code), ""), "weir {arguments:?}: {done:?}");
        done.stderr
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

pub(crate) fn run(command: &mut Command) -> Done {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Done { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// The smallest component with the export that every operator has. It passes the checks, but cannot run.
fn component(number: u32) -> Vec<u8> {
    let function = |name: &str, params: &str, code: &str| {
        format!("(func (export \"weir:operator/lifecycle@0.2.0#{name}\") {params} (result i32) {code})")
    };
    // One input `in`, one output `main`, the schema `true`, state in memory. Nothing but `describe` is ever called.
    let module = format!(
        r#"(module (memory (export "memory") 1)
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
          (func (export "number") (result i32) i32.const {number})
          {} {} {} {} {}
          (data (i32.const 64) "in") (data (i32.const 72) "\40\00\00\00\02\00\00\00")
          (data (i32.const 88) "true") (data (i32.const 96) "main") (data (i32.const 104) "\60\00\00\00\04\00\00\00")
          (data (i32.const 136) "\48\00\00\00\01\00\00\00\68\00\00\00\01\00\00\00\58\00\00\00\04\00\00\00\01"))"#,
        function("describe", "", "i32.const 128"),
        function("open", "(param i32 i32 i32 i32 i32 i32 i32 i32)", "unreachable"),
        function("process", "(param i32 i32 i32 i32 i32)", "unreachable"),
        function("advance", "(param i64)", "unreachable"),
        function("finish", "", "unreachable"),
    );
    let mut module = wat::parse_str(module).expect("a module");
    let mut resolve = wit_parser::Resolve::default();
    let package = resolve.push_source("weir.wit", include_str!("../../../../wit/weir.wit")).expect("the contract");
    let world = resolve.select_world(&[package], Some("operator")).expect("its world");
    wit_component::embed_component_metadata(&mut module, &resolve, world, wit_component::StringEncoding::UTF8).expect("embedded");
    wit_component::ComponentEncoder::default().module(&module).and_then(|mut encoder| encoder.encode()).expect("a component")
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has a handler for SIGINT.
pub(crate) fn handles_interrupts(pid: i32) -> bool {
    const SIGINT: u32 = 2;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (SIGINT - 1)) != 0
}

/// A process that runs until it is told to end.
pub(crate) struct Daemon {
    child: Child,
    /// What it said when it was ready.
    pub(crate) line: serde_json::Value,
}

impl Daemon {
    /// A coordinator with a data folder of its own, ready.
    pub(crate) fn coordinator(world: &World, identity: &str, api: &str, data: &str) -> Daemon {
        Daemon::listening(world, identity, api, data, "127.0.0.1:0")
    }

    /// A worker, which may not have joined yet.
    pub(crate) fn worker(world: &World, identity: &str, coordinator: &str) -> Daemon {
        let mut command =
            world.command(&["worker", "--allow-any-path", "--identity", identity, "--coordinator", coordinator, "--slots", "1"]);
        let child = command.stdout(Stdio::null()).spawn().expect("weir starts");
        Daemon { child, line: serde_json::Value::Null }
    }

    /// A coordinator that listens for workers at an address.
    pub(crate) fn listening(world: &World, identity: &str, api: &str, data: &str, listen: &str) -> Daemon {
        let flags = ["--json", "coordinator", "--identity", identity, "--listen", listen, "--checkpoints", "cp", "--api", api];
        let mut command = world.command(&flags);
        let mut child = command.env("WEIR_DATA_DIR", world.path(data)).stdout(Stdio::piped()).spawn().expect("weir starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let line = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Daemon { child, line }
    }

    /// Asks it to end; its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(told.is_ok_and(|status| status.success()));
        self.child.wait().expect("its end").code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
