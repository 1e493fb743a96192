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
    /// What was refused first since the call began.
    refused: Option<Refused>,
}

/// Something that was not allowed to grow.
#[derive(Clone, Copy, Debug)]
enum Refused {
    Memory { held: u64, wanted: u64 },
    Table { elements: usize },
}

impl Limiter {
    pub(crate) fn new(memory_bytes_max: u64) -> Limiter {
        Limiter { memory_bytes_max, regions: Vec::new(), starting_bytes: 0, refused: None }
    }

    /// A call begins: what follows is its own doing.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.refused = None;
    }

    /// Which limit the guest has met since the call began, with its use and its setting. Guests rarely say it themselves: most give up
    /// with `unreachable` when they get no memory.
    pub(crate) fn met(&self) -> Option<String> {
        let max = self.memory_bytes_max;
        self.refused.map(|refused| match refused {
            Refused::Memory { held, wanted } => format!(
                "it met its memory limit: it has {held} bytes and asked for {} more, of {max} that it may have; raise `limits.memory` of \
                 the operator in the job file, or let it keep less",
                wanted - held
            ),
            Refused::Table { elements } => {
                format!("it asked for a table of {elements} elements, more than the {} that one may have", limits::TABLE_ELEMENTS_MAX)
            }
        })
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
        let held: u64 = self.starting_bytes + self.regions.iter().map(|region| region.size() as u64).sum::<u64>();
        let wanted = held + (desired - current) as u64;
        if wanted > self.memory_bytes_max {
            self.refused.get_or_insert(Refused::Memory { held, wanted });
            return Ok(false);
        }
        // What the memory's own type forbids.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        if self.regions.is_empty() {
            self.starting_bytes = wanted;
        }
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > limits::TABLE_ELEMENTS_MAX {
            self.refused.get_or_insert(Refused::Table { elements: desired });
            return Ok(false);
        }
        Ok(maximum.is_none_or(|maximum| desired <= maximum))
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
