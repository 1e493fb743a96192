//! The WebAssembly features Weir takes, and what to say about the others.
//!
//! The rule: everything an instance knows must be in its linear memories and numeric globals. What keeps state elsewhere
//! (a garbage-collected heap, other stacks, other threads) is off. The engine must be configured to the same set. What is no
//! feature of its own and keeps state elsewhere is refused where it is met: instructions in `scan_module`, handles in `handles`.

use wasmparser::WasmFeatures;

use super::IntakeError;

/// The features that are on.
pub(crate) fn accepted() -> WasmFeatures {
    WasmFeatures::WASM2
        .difference(WasmFeatures::GC_TYPES)
        .union(WasmFeatures::TAIL_CALL)
        .union(WasmFeatures::EXTENDED_CONST)
        .union(WasmFeatures::MULTI_MEMORY)
        .union(WasmFeatures::COMPONENT_MODEL)
}

/// Turns a validator's error into ours: a refusal if a feature that is off was used, invalid otherwise.
pub(super) fn explain(error: &wasmparser::Error) -> IntakeError {
    let Some(feature) = error.missing_wasm_feature() else {
        return IntakeError::Invalid {
            message: error.message().to_string(),
            offset: error.offset() as u64,
            hint: invalid_hint(error.message()),
        };
    };
    let (construct, hint) = describe(feature);
    IntakeError::Refused {
        construct: construct.map_or_else(|| format!("`{}`", error.message()), str::to_string),
        location: format!("the code at byte {:#x} ({})", error.offset(), error.message()),
        hint: hint.to_string(),
    }
}

fn invalid_hint(message: &str) -> String {
    if message.contains("unexpected end") {
        "; the file is cut short: build or copy it again".to_string()
    } else {
        "; build it again, and check it with `wasm-tools validate`".to_string()
    }
}

fn describe(feature: WasmFeatures) -> (Option<&'static str>, &'static str) {
    let any = |features: WasmFeatures| features.intersects(feature);
    if any(WasmFeatures::THREADS | WasmFeatures::SHARED_EVERYTHING_THREADS | WasmFeatures::CM_THREADING) {
        return (
            Some("shared memory or threads"),
            "an instance is used by one thread: build without -pthread and without the `atomics` target feature",
        );
    }
    if any(WasmFeatures::MEMORY64 | WasmFeatures::CM64) {
        return (Some("a 64-bit memory or table"), "build for a 32-bit target such as wasm32-unknown-unknown");
    }
    if any(WasmFeatures::GC | WasmFeatures::GC_TYPES | WasmFeatures::FUNCTION_REFERENCES | WasmFeatures::CM_GC) {
        return (
            Some("Wasm GC or host reference types"),
            "a snapshot holds linear memories and numeric globals only: use a toolchain that keeps its objects in linear memory",
        );
    }
    if any(WasmFeatures::EXCEPTIONS | WasmFeatures::LEGACY_EXCEPTIONS) {
        return (
            Some("exception handling"),
            "build without WebAssembly exceptions (Rust: panic=abort; clang: leave out -fwasm-exceptions)",
        );
    }
    if any(WasmFeatures::STACK_SWITCHING) {
        return (Some("stack switching"), "suspended stacks cannot be part of a snapshot: build without it");
    }
    if any(WasmFeatures::CM_ASYNC
        | WasmFeatures::CM_ASYNC_STACKFUL
        | WasmFeatures::CM_MORE_ASYNC_BUILTINS
        | WasmFeatures::CM_ERROR_CONTEXT)
    {
        return (Some("component-model async"), "every call of an operator runs to its end: make the bindings synchronous");
    }
    if any(WasmFeatures::RELAXED_SIMD) {
        return (Some("relaxed SIMD"), "its results differ between machines: build without the `relaxed-simd` target feature");
    }
    (None, "build without this WebAssembly proposal")
}
