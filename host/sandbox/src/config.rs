//! How wasmtime is set up: the same in the process that runs operators and in the one that compiles them, since an artefact serves
//! only an engine of the very same settings.

use std::sync::Arc;

use wasmtime::{Config, OptLevel};
use weir_model::limits::GUEST_STACK_BYTES_MAX;

use crate::memory::{Creator, GUARD_BYTES, RESERVATION_BYTES};

pub(crate) fn config(epoch_interruption: bool) -> Config {
    let mut config = Config::new();
    config
        .with_host_memory(Arc::new(Creator))
        .memory_init_cow(false)
        .memory_reservation(RESERVATION_BYTES as u64)
        .memory_guard_size(GUARD_BYTES as u64)
        .guard_before_linear_memory(false)
        .memory_may_move(false)
        .max_wasm_stack(GUEST_STACK_BYTES_MAX)
        .epoch_interruption(epoch_interruption)
        .cranelift_opt_level(OptLevel::Speed)
        .concurrency_support(false)
        .gc_support(false)
        .wasm_memory64(false);
    config
}
