//! Turns a core module that carries its component type into a component.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmparser::{Parser, Payload};

use super::{IntakeError, contract};

/// Makes a component of a valid core module. The module keeps its code as it is.
pub(super) fn componentize(module: &[u8]) -> Result<Vec<u8>, IntakeError> {
    let mut has_type = false;
    let mut imports_wasi = None;
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| super::features::explain(&error))? {
            Payload::CustomSection(section) => has_type |= section.name().starts_with("component-type"),
            Payload::ImportSection(section) => {
                let wasi = section.into_imports().flatten().find(|import| import.module.starts_with("wasi"));
                imports_wasi = imports_wasi.or(wasi.map(|import| format!("{}.{}", import.module, import.name)));
            }
            _ => {}
        }
    }
    if let Some(import) = imports_wasi {
        return Err(IntakeError::Refused {
            construct: format!("the import \"{import}\""),
            location: "the core module".to_string(),
            hint: contract::wasi_hint(),
        });
    }
    if !has_type {
        return Err(IntakeError::CoreModule {
            reason: "it has no section `component-type` that says which world it is for".to_string(),
            hint: "build it with bindings for world weir:operator/operator@0.1.0 (Rust: weir-sdk, or wit-bindgen), or turn it into a \
                   component first (`wasm-tools component new`)"
                .to_string(),
        });
    }
    // wit-component is made for a developer's own files. What it does with a stranger's, at worst, must not end the host.
    let encoded =
        catch_unwind(AssertUnwindSafe(|| wit_component::ComponentEncoder::default().module(module)?.validate(false).encode()));
    match encoded {
        Ok(Ok(component)) => Ok(component),
        Ok(Err(error)) => Err(failed(format!("{error:#}"))),
        Err(_) => Err(failed("its component type is malformed".to_string())),
    }
}

fn failed(reason: String) -> IntakeError {
    let hint = if reason.contains("__wbindgen") || reason.contains("env") {
        "the module imports functions that no component has: leave out crates that expect JavaScript or an `env` module"
    } else {
        "the bindings and the code do not fit together: build it again with bindings for world weir:operator/operator@0.1.0"
    };
    IntakeError::CoreModule { reason: format!("it could not be made a component: {reason}"), hint: hint.to_string() }
}
