//! Gives wasmtime the memories of an instance that is being made.
//!
//! wasmtime asks for memories one by one and does not say for which instance. Instantiation is synchronous, and the
//! order of memories is fixed for a given binary, so the plan for the instance lies in a thread-local while it is made
//! (decision 0026). An order other than at the template would exchange memories; the tests `s96_*` hold it.

use std::cell::RefCell;
use std::sync::Arc;

use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use super::{Region, SealedMemory};

/// How one memory starts.
#[derive(Clone)]
pub(crate) struct Start {
    /// What it is an overlay of.
    pub(crate) template: Arc<SealedMemory>,
    /// Its size, at least the template's.
    pub(crate) size: usize,
}

struct Plan {
    /// In order of creation. None: every memory starts empty at its minimum size, however many there are.
    starts: Option<Vec<Start>>,
    made: Vec<Arc<Region>>,
}

thread_local! {
    static PLAN: RefCell<Option<Plan>> = const { RefCell::new(None) };
}

/// Runs an instantiation with a plan for its memories; gives its result and the memories made, in order.
///
/// # Errors
/// The instantiation's, or that it made fewer memories than planned.
pub(crate) fn with_plan<T>(
    starts: Option<Vec<Start>>,
    instantiate: impl FnOnce() -> wasmtime::Result<T>,
) -> wasmtime::Result<(T, Vec<Arc<Region>>)> {
    /// Takes the plan away again, also if the instantiation panics.
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            PLAN.with_borrow_mut(|slot| *slot = None);
        }
    }
    let planned = starts.as_ref().map(Vec::len);
    PLAN.with_borrow_mut(|slot| {
        assert!(slot.is_none(), "one instance at a time is made on a thread");
        *slot = Some(Plan { starts, made: Vec::new() });
    });
    let clear = Clear;
    let result = instantiate()?;
    let made = PLAN.with_borrow_mut(Option::take).map_or_else(Vec::new, |plan| plan.made);
    drop(clear);
    match planned {
        Some(planned) if planned != made.len() => {
            Err(wasmtime::Error::msg(format!("the component made {} memories, its image holds {planned}", made.len())))
        }
        _ => Ok((result, made)),
    }
}

/// The host memory creator.
pub(crate) struct Creator;

// SAFETY: every memory is a `Region`: it lies in a reservation of the size asked for plus the guard, all of it
// inaccessible but the first `byte_size` bytes, which are zero or a template's content, and it never moves.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved_size_in_bytes: Option<usize>,
        guard_size_in_bytes: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let reserved = reserved_size_in_bytes.ok_or("a memory that may move is not supported")?;
        PLAN.with_borrow_mut(|slot| {
            let plan = slot.as_mut().ok_or("a memory was made outside of an instantiation")?;
            let start = match &plan.starts {
                Some(starts) => Some(starts.get(plan.made.len()).ok_or("the component made more memories than its image holds")?),
                None => None,
            };
            let size = start.map_or(minimum, |start| start.size);
            if size < minimum || size > maximum.unwrap_or(reserved) || size > reserved {
                let maximum = maximum.unwrap_or(reserved);
                return Err(format!(
                    "its image holds a memory of {size} bytes, the component one of {minimum} to {maximum} bytes"
                ));
            }
            let failed = |error| format!("cannot map a memory of {size} bytes: {error}");
            let region = Region::reserve(reserved + guard_size_in_bytes).map_err(failed)?;
            if let Some(start) = start {
                region.overlay(&start.template).map_err(failed)?;
            }
            region.grow_to(size).map_err(failed)?;
            let region = Arc::new(region);
            plan.made.push(region.clone());
            let capacity = maximum.unwrap_or(reserved).min(reserved);
            Ok(Box::new(Linear { region, capacity }) as Box<dyn LinearMemory>)
        })
    }
}

/// wasmtime's share of a region.
struct Linear {
    region: Arc<Region>,
    capacity: usize,
}

// SAFETY: as for `Creator`. The region lives at least as long as this value and never moves or shrinks.
unsafe impl LinearMemory for Linear {
    fn byte_size(&self) -> usize {
        self.region.size()
    }

    fn byte_capacity(&self) -> usize {
        self.capacity
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        Ok(self.region.grow_to(new_size)?)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.region.base()
    }
}
