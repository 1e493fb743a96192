//! What Linux says about a process: CPU time and resident memory, from /proc.

use anyhow::{Context, Result};
use std::fs;
use std::time::{Duration, Instant};

/// Linux gives times to user space in hundredths of a second, on every architecture.
const TICKS_PER_S: f64 = 100.0;

/// A machine is quiet when its processes use less than this many cores over this long.
const QUIET_CORES: f64 = 0.35;
const QUIET_LOOK: Duration = Duration::from_secs(2);

/// CPU seconds, user and system, that all threads of a process have used.
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    let stat = read(pid, "stat")?;
    cpu_of_stat(&stat).with_context(|| format!("/proc/{pid}/stat has an unknown form"))
}

fn cpu_of_stat(stat: &str) -> Option<f64> {
    // The second field is the program's name, which may hold anything, also spaces and parentheses.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks as f64 / TICKS_PER_S)
}

/// Resident memory now, in MiB.
pub(crate) fn resident_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "VmRSS:")
}

/// The most resident memory so far, in MiB.
pub(crate) fn resident_max_mib(pid: u32) -> Result<f64> {
    memory_mib(pid, "VmHWM:")
}

fn memory_mib(pid: u32, name: &str) -> Result<f64> {
    let status = read(pid, "status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("/proc/{pid}/status has no {name}"))? / 1024.0)
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    fs::read_to_string(&path).with_context(|| format!("cannot read {path}; is the process gone?"))
}

/// CPU seconds that the whole machine has been busy.
pub(crate) fn machine_busy_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    busy_of_stat(&stat).context("/proc/stat has an unknown form")
}

/// Waits until the machine is quiet, as the peer's scripts do, but no longer than `patience`.
pub(crate) fn wait_for_quiet(patience: Duration) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < patience {
        let (before, since) = (machine_busy_s()?, Instant::now());
        std::thread::sleep(QUIET_LOOK);
        if (machine_busy_s()? - before) / since.elapsed().as_secs_f64() <= QUIET_CORES {
            break;
        }
    }
    Ok(())
}

fn busy_of_stat(stat: &str) -> Option<f64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let idle = fields.get(3)? + fields.get(4)?;
    Some((fields.iter().take(8).sum::<u64>() - idle) as f64 / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = "12 (a) b) S 1 1 1 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 1 1 1";
        assert_eq!(cpu_of_stat(stat), Some(3.0));
        assert_eq!(busy_of_stat("cpu  100 0 100 700 50 0 0 0 0 0\ncpu0"), Some(2.0));
    }

    #[test]
    fn we_can_be_measured_ourselves() {
        let pid = std::process::id();
        assert!(cpu_s(pid).unwrap() >= 0.0);
        assert!(resident_max_mib(pid).unwrap() >= 1.0 && resident_mib(pid).unwrap() >= 1.0);
        assert!(machine_busy_s().unwrap() > 0.0);
    }
}
