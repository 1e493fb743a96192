//! What one instance may use: memory and time. The fixed bounds are in `weir_model::limits`; [`InstanceLimits`] holds those a
//! job can set.

use std::sync::Arc;
use std::time::Duration;

use weir_model::limits;

use crate::account::Charge;
use crate::memory::Region;

/// The bounds of an instance that a job can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceLimits {
    /// Bytes of linear memory of one instance, all its memories together. Growing beyond fails inside the guest.
    pub memory_bytes: u64,
    /// Bytes that all instances of the operator in this process hold together, their template included. None: as much as all
    /// operators may hold together ([`crate::SandboxOptions::memory_bytes`]). Growing beyond fails inside the guest.
    pub memory_total_bytes: Option<u64>,
    /// How long one call may take before it traps. Rounded up to the next 10 ms. Not enforced where epoch interruption
    /// is off.
    pub call_deadline: Duration,
}

impl Default for InstanceLimits {
    fn default() -> InstanceLimits {
        InstanceLimits {
            memory_bytes: limits::INSTANCE_MEMORY_BYTES_DEFAULT,
            memory_total_bytes: None,
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
    /// Elements of all its tables.
    table_elements: usize,
    /// What it holds of its operator's share.
    pub(crate) charge: Charge,
    /// Whether memories are charged from their first byte, as they are no overlay of a template.
    is_first: bool,
    last_growth_bytes: u64,
    /// What was refused first since the call began.
    refused: Option<RefusedGrowth>,
}

/// Something that was not allowed to grow.
#[derive(Debug)]
enum RefusedGrowth {
    Memory {
        held: u64,
        wanted: u64,
    },
    Table {
        elements: usize,
    },
    /// By a bound that it shares with others, or by the operating system; and which.
    Shared(String),
}

impl Limiter {
    pub(crate) fn new(memory_bytes_max: u64, charge: Charge, is_first: bool) -> Limiter {
        let (regions, starting_bytes, table_elements, last_growth_bytes) = (Vec::new(), 0, 0, 0);
        Limiter { memory_bytes_max, regions, starting_bytes, table_elements, charge, is_first, last_growth_bytes, refused: None }
    }

    /// A call begins: what follows is its own doing.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.refused.is_some() {
            self.refused = None;
        }
    }

    /// Which limit the guest has met since the call began, with its use and its setting. Guests rarely say it themselves: most give up
    /// with `unreachable` when they get no memory.
    pub(crate) fn met(&self) -> Option<String> {
        let max = self.memory_bytes_max;
        self.refused.as_ref().map(|refused| match refused {
            RefusedGrowth::Memory { held, wanted } => format!(
                "it met its memory limit: it has {held} bytes and asked for {} more, of {max} that it may have; raise `limits.memory` of \
                 the operator in the job file, or let it keep less",
                wanted - held
            ),
            RefusedGrowth::Table { elements } => {
                format!("it asked for tables of {elements} elements, more than the {} that it may have", limits::TABLE_ELEMENTS_MAX)
            }
            RefusedGrowth::Shared(which) => format!("it asked for memory that it did not get: {which}"),
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

    /// Takes more of the operator's share.
    fn take(&mut self, bytes: u64) -> bool {
        match self.charge.take(bytes) {
            Ok(()) => true,
            Err(which) => {
                self.refused.get_or_insert(RefusedGrowth::Shared(which));
                false
            }
        }
    }
}

impl wasmtime::ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.last_growth_bytes = 0;
        let held: u64 = self.starting_bytes + self.regions.iter().map(|region| region.size() as u64).sum::<u64>();
        let more = (desired - current) as u64;
        let wanted = held + more;
        if wanted > self.memory_bytes_max {
            self.refused.get_or_insert(RefusedGrowth::Memory { held, wanted });
            return Ok(false);
        }
        // What the memory's own type forbids.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        if self.is_first || !self.regions.is_empty() {
            if !self.take(more) {
                return Ok(false);
            }
            self.last_growth_bytes = more;
        }
        if self.regions.is_empty() {
            self.starting_bytes = wanted;
        }
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.charge.give_back(std::mem::take(&mut self.last_growth_bytes));
        self.refused.get_or_insert_with(|| RefusedGrowth::Shared(format!("the operating system has none: {error:#}")));
        Ok(())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let elements = self.table_elements.saturating_add(more);
        if elements > limits::TABLE_ELEMENTS_MAX {
            self.refused.get_or_insert(RefusedGrowth::Table { elements });
            return Ok(false);
        }
        if maximum.is_some_and(|maximum| desired > maximum) || !self.take((size_of::<usize>() * more) as u64) {
            return Ok(false);
        }
        self.table_elements = elements;
        Ok(true)
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
