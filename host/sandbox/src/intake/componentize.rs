//! Turns a core module into a component.
//!
//! The module says with a section `component-type*` what world it was built for, but that section is not read: decoding a
//! malformed one can recurse without end, and the host accepts one contract only. The world is made here instead, from
//! wit/weir.wit and the names of what the module imports and exports, after those have been checked.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use super::sections::{self, CUSTOM, HEADER_BYTES};
use super::{IntakeError, contract, features};

const WIT: &str = include_str!("../../../../wit/weir.wit");

/// Custom sections that begin with this say what world a module was built for.
const TYPE_SECTION: &[u8] = b"component-type";

/// Within such a section, the one that says how strings are encoded.
const ENCODING_SECTION: &[u8] = b"wit-component-encoding";

/// Makes a component of a valid core module. The module keeps its code as it is.
pub(super) fn componentize(module: &[u8]) -> Result<Vec<u8>, IntakeError> {
    let (imports, exports) = interfaces(module)?;
    let mut bare = without_type(module)?;
    contract::check(&imports, &exports)?;
    // wit-component is made for a developer's own files. What it does with a stranger's, at worst, must not end the host.
    let encoded = catch_unwind(AssertUnwindSafe(|| {
        let mut resolve = Resolve::default();
        resolve.push_source("weir.wit", WIT)?;
        let package = resolve.push_source("uploaded.wit", &world(&imports, &exports))?;
        let world = resolve.select_world(&[package], None)?;
        embed_component_metadata(&mut bare, &resolve, world, StringEncoding::UTF8)?;
        ComponentEncoder::default().module(&bare)?.validate(false).encode()
    }));
    match encoded {
        Ok(Ok(component)) => Ok(component),
        Ok(Err(error)) => Err(failed(&format!("{error:#}"))),
        Err(_) => Err(failed("wit-component failed on it")),
    }
}

type Names = Vec<(String, bool)>;

/// The interfaces that a module imports and exports, by the names that bindings give to functions.
fn interfaces(module: &[u8]) -> Result<(Names, Names), IntakeError> {
    let (mut imports, mut exports) = (BTreeSet::new(), BTreeSet::new());
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(|error| features::explain(&error))? {
            Payload::ImportSection(section) => {
                imports.extend(section.into_imports().flatten().map(|import| import.module.to_string()));
            }
            Payload::ExportSection(section) => {
                let names = section.into_iter().flatten().filter_map(|export| export.name.split_once('#'));
                exports
                    .extend(names.map(|(interface, _)| interface).filter(|name| contract::is_export(name)).map(str::to_string));
            }
            _ => {}
        }
    }
    let instances = |names: BTreeSet<String>| names.into_iter().map(|name| (name, true)).collect();
    Ok((instances(imports), instances(exports)))
}

fn world(imports: &Names, exports: &Names) -> String {
    let mut text = "package weir:uploaded;\nworld uploaded {\n".to_string();
    // Writing to a string does not fail.
    for (name, _) in imports {
        let _ = writeln!(text, "  import {name};");
    }
    for (name, _) in exports {
        let _ = writeln!(text, "  export {name};");
    }
    text.push_str("}\n");
    text
}

/// The module without the sections that say what it was built for.
fn without_type(module: &[u8]) -> Result<Vec<u8>, IntakeError> {
    let mut out = module.get(..HEADER_BYTES).unwrap_or(module).to_vec();
    let mut has_type = false;
    for section in sections::sections(module) {
        let (kind, payload) = section?;
        match sections::custom(payload).filter(|(name, _)| kind == CUSTOM && name.starts_with(TYPE_SECTION)) {
            Some((_, content)) => {
                has_type = true;
                if uses_other_strings(content) {
                    return Err(IntakeError::CoreModule {
                        reason: "its strings are not UTF-8".to_string(),
                        hint: "make the bindings with UTF-8 strings".to_string(),
                    });
                }
            }
            None => sections::push(&mut out, kind, payload),
        }
    }
    if !has_type {
        return Err(IntakeError::CoreModule {
            reason: "it has no section `component-type` that says which world it is for".to_string(),
            hint: format!(
                "build it with bindings for world {} (Rust: weir-sdk, or wit-bindgen), or turn it into a component first \
                 (`wasm-tools component new`)",
                crate::names::WORLD
            ),
        });
    }
    Ok(out)
}

/// Whether a type section says that strings are encoded otherwise than in UTF-8, which is encoding 0.
fn uses_other_strings(content: &[u8]) -> bool {
    sections::sections(content)
        .flatten()
        .filter(|(kind, _)| *kind == CUSTOM)
        .filter_map(|(_, payload)| sections::custom(payload))
        .any(|(name, content)| name == ENCODING_SECTION && content.get(1).is_some_and(|encoding| *encoding != 0))
}

fn failed(reason: &str) -> IntakeError {
    IntakeError::CoreModule {
        reason: format!("it could not be made a component: {reason}"),
        hint: "the bindings and the code do not fit together: build it again with bindings for this host's wit/weir.wit"
            .to_string(),
    }
}
