//! `cargo xtask bare`: the README's commands on a machine that has nothing. Makes a minimal Debian root with what README asks for and
//! cargo's own folders, and runs them in a clone there. Nothing that was installed on this machine by hand can be found from inside.
//!
//! Needs root, mount and PID namespaces. Where they are not allowed this says so and ends with [`NOT_POSSIBLE`], never with success.

use crate::needs;
use crate::shell::{self, Arguments};
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Exit code where this machine cannot make a bare root.
pub(crate) const NOT_POSSIBLE: u8 = 3;

/// What README asks for beside rustup's cargo.
const PACKAGES: &str = "ca-certificates,gcc,libc6-dev,git";

/// How long the first command may take on two cores until its first row, and both together, in minutes.
const FIRST_ROW_MINUTES_MAX: u64 = 12;
const BOTH_MINUTES_MAX: u64 = 40;

/// The clone, inside.
const CLONE: &str = "/srv/weir";

/// The home folder, inside.
const HOME: &str = "/srv/me";

/// What of this machine's environment is how it reaches registries.
const NETWORK: [&str; 12] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "PIP_INDEX_URL",
];

/// Files and folders that say how registries are reached; mounted where they are there.
const NETWORK_FILES: [&str; 5] = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs", "/etc/apt", "/etc/pip.conf"];

pub(crate) fn main(arguments: &[String]) -> Result<ExitCode> {
    let (mut demo_only, mut package) = (false, None);
    let mut arguments = Arguments::new(arguments);
    while let Some(argument) = arguments.next() {
        match argument {
            "--demo-only" => demo_only = true,
            "--deb" => package = Some(fs::canonicalize(arguments.value(argument)?).context("cannot find the package")?),
            other => return shell::unknown("bare", other),
        }
    }
    let workspace = Workspace::load()?;
    if let Some(reason) = why_not() {
        eprintln!("a bare root cannot be made here: {reason}");
        return Ok(ExitCode::from(NOT_POSSIBLE));
    }
    let bare = Bare::make(&workspace)?;
    if let Some(package) = package {
        bare.install(&package)?;
        return Ok(ExitCode::SUCCESS);
    }
    bare.clone_repository(&workspace)?;
    let demo = bare.time("cargo xtask demo")?;
    println!("\ncargo xtask demo: {}", minutes(demo));
    let mut total = demo;
    if !demo_only {
        total += bare.time("cargo xtask test")?;
        println!("\nboth commands: {}", minutes(total));
    }
    if demo > Duration::from_secs(60 * FIRST_ROW_MINUTES_MAX) || total > Duration::from_secs(60 * BOTH_MINUTES_MAX) {
        bail!("the aim is {FIRST_ROW_MINUTES_MAX} minutes for the first and {BOTH_MINUTES_MAX} for both, on two idle cores");
    }
    Ok(ExitCode::SUCCESS)
}

fn minutes(time: Duration) -> String {
    format!("{} min {:02} s", time.as_secs() / 60, time.as_secs() % 60)
}

/// Why this machine cannot do it.
fn why_not() -> Option<String> {
    if shell::read(Command::new("id").arg("-u")).map_or(true, |id| id.trim() != "0") {
        return Some("it takes root (mounts, chroot)".to_string());
    }
    if !shell::succeeds(Command::new("unshare").args(["--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"])) {
        return Some("mount and PID namespaces are not allowed (`unshare --mount --pid` fails)".to_string());
    }
    if !shell::succeeds(Command::new("mmdebstrap").arg("--version"))
        && let Err(error) = needs::install(&["mmdebstrap"])
    {
        return Some(format!("there is no mmdebstrap, and it cannot be installed: {error:#}"));
    }
    None
}

/// A minimal root folder.
struct Bare {
    root: PathBuf,
    cargo_home: PathBuf,
    rustup_home: PathBuf,
}

impl Bare {
    fn make(workspace: &Workspace) -> Result<Bare> {
        let folder = workspace.target.join("xtask/bare");
        let root = folder.join("root");
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let release = fs::read_to_string("/etc/os-release").context("cannot tell which Debian this is")?;
        let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or("stable").to_string();
        let mut make = Command::new("mmdebstrap");
        make.args(["--variant=minbase", "--mode=root", "--quiet", &format!("--include={PACKAGES}")]);
        // As this machine's apt is told to work, and from where it takes packages.
        for file in files_below(Path::new("/etc/apt/apt.conf.d"), "")? {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if text.contains("Acquire::") && !text.contains("DPkg::") {
                make.arg(format!("--aptopt={}", file.display()));
            }
        }
        make.arg(&suite).arg(&root);
        make.args(files_below(Path::new("/etc/apt/sources.list.d"), ".sources")?);
        make.args(Some("/etc/apt/sources.list").filter(|list| fs::metadata(list).is_ok_and(|list| list.len() > 0)));
        shell::run(&mut make)?;
        let home = std::env::var("HOME").context("HOME is not set")?;
        let of = |name: &str, or: &str| std::env::var_os(name).map_or_else(|| Path::new(&home).join(or), PathBuf::from);
        Ok(Bare { root, cargo_home: of("CARGO_HOME", ".cargo"), rustup_home: of("RUSTUP_HOME", ".rustup") })
    }

    fn clone_repository(&self, workspace: &Workspace) -> Result<()> {
        let mut clone = Command::new("git");
        clone.args(["clone", "--quiet", "--no-hardlinks"]).arg(&workspace.root).arg(self.root.join(&CLONE[1..]));
        shell::run(&mut clone)
    }

    /// Installs a package, and uses what it brings.
    fn install(&self, package: &Path) -> Result<()> {
        let there = self.root.join("weir.deb");
        fs::copy(package, &there).with_context(|| format!("cannot copy {}", package.display()))?;
        self.run("/", "xtask/src/bare/package.sh", include_str!("bare/package.sh"))
    }

    /// Runs a command in the clone.
    fn time(&self, command: &str) -> Result<Duration> {
        let started = Instant::now();
        self.run(CLONE, command, command)?;
        Ok(started.elapsed())
    }

    /// Runs a script inside, in namespaces of its own: what it mounts and starts goes with it. `name` is for messages.
    fn run(&self, folder: &str, name: &str, script: &str) -> Result<()> {
        let root = self.root.display();
        let mut outside = format!("set -e\nmount --bind {root} {root}\nmkdir -p {root}{HOME}/.cargo {root}{HOME}/.rustup\n");
        outside
            .push_str(&format!("mount -t proc proc {root}/proc\nmount --rbind /dev {root}/dev\nmount --rbind /sys {root}/sys\n"));
        outside.push_str(&format!("mount -t tmpfs tmpfs {root}/run\n"));
        let inside = |name: &str| format!("{HOME}/{name}");
        let homes = [(self.cargo_home.as_path(), inside(".cargo")), (self.rustup_home.as_path(), inside(".rustup"))];
        let files = NETWORK_FILES.iter().map(|file| (Path::new(file), (*file).to_string()));
        for (from, to) in homes.into_iter().chain(files).filter(|(from, _)| from.exists()) {
            let make = if from.is_dir() { "mkdir -p" } else { "touch" };
            outside.push_str(&format!("{make} {root}{to}\nmount --bind {} {root}{to}\n", from.display()));
        }
        outside
            .push_str(&format!("exec chroot {root} /bin/sh -ec 'cd {folder}; exec /bin/sh -ec \"$0\"' \"$WEIR_BARE_SCRIPT\"\n"));
        eprintln!("+ (in the bare root, in {folder}) {name}");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", &outside]).env_clear();
        command.envs(NETWORK.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
        let path = format!("{HOME}/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", HOME).env("PATH", path);
        command.env("WEIR_BARE_SCRIPT", script).env("LC_ALL", "C.UTF-8");
        let status = command.stdin(Stdio::null()).status().context("cannot start unshare")?;
        if !status.success() {
            bail!("in the bare root, this failed ({status}): {name}");
        }
        Ok(())
    }
}

/// Files of a folder whose names end so, in order.
fn files_below(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.is_file() && file.to_string_lossy().ends_with(end));
    files.sort();
    Ok(files)
}
