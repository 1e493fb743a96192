//! Making an instance's parts: a form of a component, instantiated over memories as planned. A template is sealed from such parts,
//! an instance goes on with them.
//!
//! Owns the order in which wasmtime is asked for store, memories and functions, and what its errors mean then; never calls what the
//! operator exports.

use std::sync::Arc;

use wasmtime::Store;
use wasmtime::component::Instance as RawInstance;
use weir_model::Digest;
use weir_model::limits::HOSTCALL_BYTES_MAX;

use crate::component::{Component, Exports, Form};
use crate::engine::SharedEngine;
use crate::error::{SandboxError, Trap};
use crate::guest::Guest;
use crate::limits::InstanceLimits;
use crate::memory::{Region, Start, with_plan};

/// The parts of an instance that was just made.
pub(crate) struct Parts {
    pub(crate) store: Store<Guest>,
    pub(crate) exports: Exports,
    pub(crate) regions: Vec<Arc<Region>>,
}

impl Parts {
    /// Instantiates one form of a component, with its memories as planned.
    pub(crate) fn new(
        engine: &SharedEngine,
        digest: Digest,
        form: &Form,
        limits: &InstanceLimits,
        guest: Guest,
        starts: Option<Vec<Start>>,
    ) -> Result<Parts, SandboxError> {
        let mut store = Store::new(&engine.engine, guest);
        store.set_hostcall_fuel(HOSTCALL_BYTES_MAX);
        store.limiter(|guest| &mut guest.limiter);
        store.set_epoch_deadline(engine.deadline_epochs(limits.call_deadline));
        let made = with_plan(starts, || form.pre.instantiate(&mut store));
        let met = store.data().limiter.met();
        let (instance, regions): (RawInstance, _) = made.map_err(|error| {
            if error.is::<wasmtime::Trap>() {
                SandboxError::Start { digest, trap: Trap::of(&error, limits.call_deadline).after(met) }
            } else {
                SandboxError::Instantiate { digest, reason: met.unwrap_or_else(|| format!("{error:#}")) }
            }
        })?;
        store.data_mut().limiter.watch(regions.clone());
        let exports = form
            .exports(&mut store, &instance)
            .map_err(|error| SandboxError::Contract { digest, reason: format!("{error:#}") })?;
        Ok(Parts { store, exports, regions })
    }
}

/// Refuses memories that are larger together than one instance may have.
pub(crate) fn check_sizes(
    component: &Component,
    sizes: impl Iterator<Item = u64>,
    limits: &InstanceLimits,
) -> Result<(), SandboxError> {
    let (needed, limit) = (sizes.sum(), limits.memory_bytes);
    if needed > limit { Err(SandboxError::MemoryLimit { digest: component.digest(), needed, limit }) } else { Ok(()) }
}
