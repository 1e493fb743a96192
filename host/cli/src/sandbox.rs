//! The sandbox of this process: its cache of compiled components, and how much memory operators may use.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use weir_model::ErrorNumber;
use weir_model::limits::WORKER_MEMORY_PERCENT;
use weir_plan::parse_size;
use weir_sandbox::{CompilerProcess, Sandbox, SandboxOptions, Tracking};

use crate::failure::{Exit, Failure};
use crate::global::Global;

/// What operators may use of the machine.
#[derive(clap::Args)]
pub(crate) struct MemoryArgs {
    /// Memory this process may use for operators, such as 4GiB; an operator beyond it is stopped with its name
    /// [default: three quarters of the machine's or its control group's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
}

fn size(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Ok(bytes) if bytes >= 1 << 20 => Ok(bytes),
        Ok(_) => Err("expected at least 1MiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Starts the sandbox in which jobs run.
pub(crate) fn start(memory: &MemoryArgs, global: &Global) -> Result<Sandbox, Failure> {
    let options = SandboxOptions {
        cache: Some(cache(global)),
        compiler: Some(compiler()),
        tracking: Tracking::Auto,
        memory_bytes: memory.memory.or_else(|| Some(available(Path::new("/"))? / 100 * WORKER_MEMORY_PERCENT)),
        ..SandboxOptions::default()
    };
    Sandbox::new(options).map_err(|error| {
        Failure::new(ErrorNumber::SandboxDoesNotStart, Exit::Failed, format!("cannot start the sandbox: {error}"))
    })
}

/// Where compiled components are kept: in the data folder, or where several data folders share one. A link to it would not do, since
/// whoever can change the link could exchange what is trusted.
pub(crate) fn cache(global: &Global) -> PathBuf {
    std::env::var_os("WEIR_COMPILE_CACHE")
        .filter(|path| !path.is_empty())
        .map_or_else(|| global.data_dir.join("compiled"), PathBuf::from)
}

/// This program, as the child that compiles.
pub(crate) fn compiler() -> CompilerProcess {
    CompilerProcess::this_program(["compile-component".into()])
}

/// `weir compile-component`.
pub(crate) fn compile_component() -> ExitCode {
    match weir_sandbox::compile_as_child() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            // For the parent, which gives it a number and a place.
            let _ = writeln!(std::io::stderr(), "{reason}");
            ExitCode::FAILURE
        }
    }
}

/// Bytes that this process can have at most: the machine's, or the least that one of its control groups allows. None where nobody
/// says.
fn available(root: &Path) -> Option<u64> {
    let machine = std::fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    });
    let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits_of_group(root, line)).filter_map(|file| {
        // "max" where there is no limit.
        std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    });
    limits.chain(machine).min()
}

/// Files with the limit of a line of `/proc/self/cgroup` and of the groups around it, for both versions of control groups.
fn limits_of_group(root: &Path, line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { return Vec::new() };
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        of if of.split(',').any(|controller| controller == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    // Within a container the path may be that of the host, of which only the mount's root is seen.
    let path = Path::new(path.trim_start_matches('/'));
    path.ancestors().map(|group| root.join(mount).join(group).join(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, content) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        folder
    }

    #[test]
    fn the_least_of_machine_and_control_groups_counts() {
        let meminfo = ("proc/meminfo", "MemTotal:        4096 kB\nMemFree: 1 kB\n");
        let of = |files: &[(&str, &str)]| available(machine(files).path());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[meminfo]), Some(4 << 20));
        let unified = ("proc/self/cgroup", "0::/system.slice/weir.service\n");
        let inner = "sys/fs/cgroup/system.slice/weir.service/memory.max";
        let outer = "sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(of(&[meminfo, unified, (inner, "max\n"), (outer, "1048576\n")]), Some(1 << 20));
        assert_eq!(of(&[meminfo, unified, (inner, "2097152\n"), (outer, "max\n")]), Some(2 << 20));
        let first = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/1\n");
        let unlimited = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(of(&[meminfo, first, unlimited]), Some(4 << 20));
        assert_eq!(of(&[meminfo, first, ("sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n")]), Some(3 << 20));
    }

    #[test]
    fn this_machine_says_how_much_it_has() {
        assert!(available(Path::new("/")).is_some_and(|bytes| bytes > 64 << 20));
    }
}
