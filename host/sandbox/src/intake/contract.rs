//! What a component may import and must export.

use super::IntakeError;
use crate::names::{self, LIFECYCLE, PORTABLE, TIMED, WORLD};

/// How the name of `lifecycle` begins, whatever its version.
const LIFECYCLE_ANY: &str = "weir:operator/lifecycle";

/// Interfaces the host provides.
const PROVIDED: [&str; 6] = [names::TYPES, names::OUTPUT, names::LOG, names::METRICS, names::AMBIENT, names::STATE_WRITER];

/// Interfaces of the contract that the host does not provide yet.
const PLANNED: [&str; 2] = [names::STORE, names::TIMERS];

/// Instances that instrumentation exports begin with this.
pub(super) const RESERVED_INSTANCE: &str = "weir:globals/";

/// Whether the component can save and load portable state.
pub(super) fn is_portable(exports: &[(String, bool)]) -> bool {
    exports_instance(exports, PORTABLE)
}

/// Whether an interface is one that the host looks for among a component's exports.
pub(super) fn is_export(name: &str) -> bool {
    [LIFECYCLE, TIMED, PORTABLE].contains(&name) || name.starts_with(LIFECYCLE_ANY)
}

/// Checks the names that the outermost component imports and exports, each with whether it is an instance.
pub(super) fn check(imports: &[(String, bool)], exports: &[(String, bool)]) -> Result<(), IntakeError> {
    let refused: Vec<&str> = imports
        .iter()
        .filter(|(name, is_instance)| !(*is_instance && PROVIDED.contains(&name.as_str())))
        .map(|(name, _)| name.as_str())
        .collect();
    // Whoever made it for another version of the contract is told so, whatever else it imports.
    let other_version = |name: &&&str| name.starts_with(names::PACKAGE) && !name.ends_with(names::VERSION);
    if let Some(first) = refused.iter().find(other_version).or(refused.first()) {
        let more = match refused.len() - 1 {
            0 => String::new(),
            more => {
                let others: Vec<&str> = refused.iter().filter(|name| *name != first).copied().collect();
                format!(" (and {more} more: {})", shorten(&others))
            }
        };
        return Err(refusal(format!("the import \"{first}\"{more}"), import_hint(first)));
    }
    if let Some((name, _)) = exports.iter().find(|(name, _)| name.starts_with(RESERVED_INSTANCE)) {
        return Err(refusal(
            format!("the export \"{name}\", a name reserved for weir,"),
            "upload the component as the toolchain made it, before weir instrumented it".to_string(),
        ));
    }
    if exports_instance(exports, TIMED) {
        return Err(refusal(
            format!("the export \"{TIMED}\""),
            "the host has no timers for now: do timed work in `advance`, and leave the export out".to_string(),
        ));
    }
    if !exports_instance(exports, LIFECYCLE) {
        let other = exports.iter().find(|(name, _)| name.starts_with(LIFECYCLE_ANY));
        return Err(match other {
            Some((name, _)) => refusal(format!("the export \"{name}\""), version_hint(name)),
            None => refusal(
                format!("no export \"{LIFECYCLE}\""),
                format!("every operator exports it: build the component for world {WORLD} (wit/weir.wit)"),
            ),
        });
    }
    Ok(())
}

fn exports_instance(exports: &[(String, bool)], name: &str) -> bool {
    exports.iter().any(|(export, is_instance)| *is_instance && export == name)
}

fn refusal(construct: String, hint: String) -> IntakeError {
    IntakeError::Refused { construct, location: "the component".to_string(), hint }
}

fn import_hint(name: &str) -> String {
    if name.starts_with("wasi") {
        return wasi_hint();
    }
    if name == "env" || name.starts_with("__wbindgen") {
        return "no component has such functions: leave out crates that expect JavaScript, and libraries that are not linked in"
            .to_string();
    }
    if PLANNED.contains(&name) {
        return "the host does not provide it for now: keep state in the operator's own memory, which is snapshotted".to_string();
    }
    if name.starts_with(names::PACKAGE) && !name.ends_with(names::VERSION) {
        return version_hint(name);
    }
    format!("the host provides only {}", PROVIDED.join(", "))
}

/// What to do with a component for another version of the contract.
fn version_hint(name: &str) -> String {
    let version = names::VERSION.trim_start_matches('@');
    if name.ends_with(names::VERSION_BEFORE) {
        return format!("it was made for contract 0.1, and this host speaks {version}: build again with SDK 0.2");
    }
    format!(
        "this host speaks version {version} of weir:operator: build against its contract (`weir component wit`, wit/weir.wit)"
    )
}

fn wasi_hint() -> String {
    "the host provides no WASI for now: in Rust, build for wasm32-unknown-unknown instead of a wasm32-wasi target; in Python, \
     give componentize-py the option --stub-wasi; in JavaScript, disable all features of componentize-js"
        .to_string()
}

fn shorten(names: &[&str]) -> String {
    let mut text = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 3 {
        text.push_str(", ...");
    }
    text
}
