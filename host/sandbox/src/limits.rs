//! What one instance may use: memory and time. The fixed bounds are in `weir_model::limits`; [`InstanceLimits`] holds those a
//! job can set.

use std::sync::Arc;
use std::time::Duration;

use weir_model::limits;

use crate::memory::Region;

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
