//! What one instance may use: memory, time, log lines, names of metrics. The fixed bounds are in
//! `weir_model::limits`; [`InstanceLimits`] holds those a job can set.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_model::limits;

use crate::memory::Region;

/// Longest name of a counter or gauge.
pub(crate) const METRIC_NAME_BYTES_MAX: usize = 256;

/// The bounds of an instance that a job can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceLimits {
    /// Bytes of linear memory of one instance, all its memories together. Growing beyond fails inside the guest.
    pub memory_bytes: u64,
    /// How long one call may take before it traps. Rounded up to the next 10 ms. Not enforced where epoch interruption
    /// is off.
    pub call_deadline: Duration,
}

impl Default for InstanceLimits {
    fn default() -> InstanceLimits {
        InstanceLimits {
            memory_bytes: limits::INSTANCE_MEMORY_BYTES_DEFAULT,
            call_deadline: Duration::from_millis(limits::CALL_DEADLINE_MS_DEFAULT),
        }
    }
}

/// Answers wasmtime's questions whether something may be made or grown.
pub(crate) struct Limiter {
    memory_bytes_max: u64,
    /// The instance's memories, once it stands. Their sizes are the account; a restored memory starts larger than its
    /// type says, which wasmtime does not tell here.
    regions: Vec<Arc<Region>>,
    /// What was asked for while the instance was being made.
    starting_bytes: u64,
}

impl Limiter {
    pub(crate) fn new(memory_bytes_max: u64) -> Limiter {
        Limiter { memory_bytes_max, regions: Vec::new(), starting_bytes: 0 }
    }

    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }

    /// From now on the account is what these memories hold.
    pub(crate) fn watch(&mut self, regions: Vec<Arc<Region>>) {
        self.regions = regions;
        self.starting_bytes = 0;
    }
}

impl wasmtime::ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let held: u64 = self.starting_bytes + self.regions.iter().map(|region| region.size() as u64).sum::<u64>();
        let wanted = held + (desired - current) as u64;
        if wanted > self.memory_bytes_max {
            return Ok(false);
        }
        if self.regions.is_empty() {
            self.starting_bytes = wanted;
        }
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= limits::TABLE_ELEMENTS_MAX && maximum.is_none_or(|maximum| desired <= maximum))
    }

    fn instances(&self) -> usize {
        limits::CORE_INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        limits::TABLES_MAX
    }

    fn memories(&self) -> usize {
        limits::MEMORIES_MAX
    }
}

/// Lets so many log lines through per second and counts the rest.
pub(crate) struct LogGate {
    second_start: Option<Instant>,
    kept: u32,
    dropped: u64,
}

/// What the gate says about a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Keep it. So many were dropped in the seconds before and have not been reported.
    Keep { dropped_before: u64 },
    /// Drop it.
    Drop,
}

impl LogGate {
    pub(crate) fn new() -> LogGate {
        LogGate { second_start: None, kept: 0, dropped: 0 }
    }

    pub(crate) fn pass(&mut self, now: Instant) -> Gate {
        let is_new_second = self.second_start.is_none_or(|start| now.duration_since(start) >= Duration::from_secs(1));
        if is_new_second {
            self.second_start = Some(now);
            self.kept = 0;
        }
        if self.kept >= limits::LOG_LINES_PER_SECOND_MAX {
            self.dropped += 1;
            return Gate::Drop;
        }
        self.kept += 1;
        Gate::Keep { dropped_before: std::mem::take(&mut self.dropped) }
    }
}

/// The names of metrics an instance has used.
#[derive(Default)]
pub(crate) struct MetricNames {
    known: HashSet<Box<str>>,
    is_reported: bool,
}

/// Whether a metric may be reported.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NameCheck {
    Known,
    /// Too many or too long; say so once.
    RefusedFirst,
    Refused,
}

impl MetricNames {
    pub(crate) fn is_known(&self, name: &str) -> bool {
        self.known.contains(name)
    }

    /// Remembers the name if there is room.
    pub(crate) fn check(&mut self, name: &str) -> NameCheck {
        if self.is_known(name) {
            return NameCheck::Known;
        }
        if self.known.len() < limits::METRIC_NAMES_MAX && name.len() <= METRIC_NAME_BYTES_MAX {
            self.known.insert(name.into());
            return NameCheck::Known;
        }
        if std::mem::replace(&mut self.is_reported, true) { NameCheck::Refused } else { NameCheck::RefusedFirst }
    }
}

/// The text, cut to at most `max` bytes at a character boundary.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gate_keeps_a_bounded_number_of_lines_each_second_and_reports_the_rest() {
        let mut gate = LogGate::new();
        let start = Instant::now();
        let kept = (0..1_000).filter(|_| gate.pass(start) != Gate::Drop).count();
        assert_eq!(kept, limits::LOG_LINES_PER_SECOND_MAX as usize);
        let dropped_before = 1_000 - kept as u64;
        assert_eq!(gate.pass(start + Duration::from_secs(1)), Gate::Keep { dropped_before });
        assert_eq!(gate.pass(start + Duration::from_secs(1)), Gate::Keep { dropped_before: 0 });
    }

    #[test]
    fn metric_names_are_bounded_in_number_and_length() {
        let mut names = MetricNames::default();
        assert_eq!(names.check(&"x".repeat(METRIC_NAME_BYTES_MAX + 1)), NameCheck::RefusedFirst);
        for i in 0..limits::METRIC_NAMES_MAX {
            assert_eq!(names.check(&format!("n{i}")), NameCheck::Known);
        }
        assert_eq!(names.check("one more"), NameCheck::Refused);
        assert_eq!(names.check("n0"), NameCheck::Known);
    }

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("abc", 10), "abc");
    }
}
