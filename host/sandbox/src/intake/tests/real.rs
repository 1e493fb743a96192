//! Components as rustc makes them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::rig::{Rig, validate};
use crate::intake::{PreparedUpload, SnapshotKind, prepare};

/// A core module built by rustc and wit-bindgen: an operator of this repository.
pub(super) fn core_module() -> Vec<u8> {
    static BUILT: LazyLock<Vec<u8>> = LazyLock::new(build);
    BUILT.clone()
}

fn build() -> Vec<u8> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A target folder of its own, as the one in use may be locked by whoever runs this test.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from).join("intake-test");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(&workspace)
        .args([
            "build",
            "--offline",
            "--quiet",
            "--package",
            "bench-count",
            "--profile",
            "guest",
            "--target",
            "wasm32-unknown-unknown",
        ])
        .arg("--target-dir")
        .arg(&target)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read(target.join("wasm32-unknown-unknown/guest/bench_count.wasm")).unwrap()
}

#[test]
fn a_core_module_from_rustc_becomes_an_instrumented_component() {
    let bytes = core_module();
    let prepared = prepare(&bytes).unwrap();
    validate(&prepared);
    let inspection = &prepared.inspection;
    assert!(inspection.componentized && inspection.is_portable);
    assert_eq!(inspection.snapshots, [SnapshotKind::Image, SnapshotKind::Portable]);
    assert!(inspection.exports.contains(&"weir:operator/lifecycle@0.2.0".to_string()), "{:?}", inspection.exports);
    assert_eq!(inspection.memories.len(), 1);
    assert_eq!(inspection.toolchain.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["wit-component"]);
    // rustc's only mutable global is the stack pointer.
    assert_eq!(prepared.accessors.len(), 1);
    let mut rig = Rig::new(&prepared.init, &prepared.accessors);
    let stack_pointer = rig.get(0, 0).unwrap();
    assert!(stack_pointer > 0 && stack_pointer.is_multiple_of(16), "{stack_pointer}");
    Rig::new(&prepared.run, &prepared.accessors).set(0, 0, stack_pointer).unwrap();
}

#[test]
fn a_component_made_outside_is_the_same_operator_as_the_core_module_it_was_made_of() {
    let module = core_module();
    let component = wit_component::ComponentEncoder::default().module(&module).unwrap().encode().unwrap();
    let (from_module, from_component) = (prepare(&module).unwrap(), prepare(&component).unwrap());
    validate(&from_component);
    assert_eq!(from_module.accessors, from_component.accessors);
    assert_ne!(from_module.digest, from_component.digest, "the digest is of what was uploaded");
    let shape = |prepared: &PreparedUpload| {
        let inspection = prepared.inspection.clone();
        let sorted = |names: Vec<String>| names.into_iter().collect::<BTreeSet<_>>();
        (sorted(inspection.imports), sorted(inspection.exports), inspection.memories, inspection.functions)
    };
    assert_eq!(shape(&from_module), shape(&from_component));
}
