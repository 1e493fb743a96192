//! The first look at an upload: bounds on size, nesting and counts, before anything is validated or kept.
//!
//! It walks sections without trusting them. Reading a component type recurses in wasmparser without a bound, so the
//! depth of types is bounded here first, with the same readers.

use wasmparser::{BinaryReader, ComponentType, ComponentTypeDeclaration, Encoding, InstanceTypeDeclaration, Parser, Payload};
use weir_model::limits;

use super::{IntakeError, features};

/// What the first look finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) is_component: bool,
    /// Core functions defined anywhere.
    pub(super) functions: u32,
    /// Levels of components; 0 for a core module.
    pub(super) nesting: u32,
}

/// Checks the bounds of `bytes`.
pub(super) fn outline(bytes: &[u8]) -> Result<Outline, IntakeError> {
    if bytes.len() > limits::COMPONENT_BYTES_MAX {
        return Err(limit(
            "the size of the file in bytes",
            bytes.len() as u64,
            limits::COMPONENT_BYTES_MAX as u64,
            "strip debug information, or leave out what the operator does not use",
        ));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(IntakeError::NotWasm { looks_like: looks_like(bytes) });
    }
    walk(bytes)
}

/// Checks the bounds of `bytes` other than its size.
pub(super) fn walk(bytes: &[u8]) -> Result<Outline, IntakeError> {
    let mut parser = Parser::new(0);
    parser.set_features(features::accepted());
    let mut outline = Outline { is_component: false, functions: 0, nesting: 0 };
    let mut open: Vec<Encoding> = Vec::new();
    let mut definitions = 0u64;
    for payload in parser.parse_all(bytes) {
        match payload.map_err(|error| features::explain(&error))? {
            Payload::Version { encoding, .. } => {
                if open.is_empty() {
                    outline.is_component = encoding == Encoding::Component;
                }
                open.push(encoding);
                definitions += 1;
                at_most(
                    "the number of core modules and components",
                    definitions,
                    limits::DEFINITIONS_MAX,
                    "split the operator in two",
                )?;
                let nesting = open.iter().filter(|encoding| **encoding == Encoding::Component).count();
                at_most(
                    "the nesting depth of components",
                    nesting as u64,
                    limits::COMPONENT_NESTING_MAX as u64,
                    "compose fewer components into one another",
                )?;
                outline.nesting = outline.nesting.max(u32::try_from(nesting).unwrap_or(u32::MAX));
            }
            Payload::End(_) => {
                open.pop();
            }
            Payload::CodeSectionStart { count, .. } => {
                outline.functions = outline.functions.saturating_add(count);
                at_most(
                    "the number of core functions",
                    u64::from(outline.functions),
                    u64::from(limits::COMPONENT_FUNCTIONS_MAX),
                    "leave out what the operator does not use (link-time optimisation, wasm-opt)",
                )?;
            }
            Payload::CodeSectionEntry(body) => at_most(
                "the size of one function's body in bytes",
                body.range().len() as u64,
                limits::FUNCTION_BYTES_MAX as u64,
                "split the function, or inline less",
            )?,
            Payload::ComponentTypeSection(section) => {
                type_depth(bytes.get(section.range()).unwrap_or_default(), section.range().start)?;
            }
            _ => {}
        }
    }
    Ok(outline)
}

fn type_depth(section: &[u8], offset: usize) -> Result<(), IntakeError> {
    let mut reader = BinaryReader::new_features(section, offset, features::accepted());
    read_types(&mut reader).map_err(|error| match error {
        Depth::TooDeep => limit(
            "the nesting depth of component types",
            limits::TYPE_NESTING_MAX as u64 + 1,
            limits::TYPE_NESTING_MAX as u64,
            "compose fewer components into one another",
        ),
        Depth::Malformed(error) => features::explain(&error),
    })
}

enum Depth {
    TooDeep,
    Malformed(wasmparser::Error),
}

impl From<wasmparser::Error> for Depth {
    fn from(error: wasmparser::Error) -> Depth {
        Depth::Malformed(error)
    }
}

fn read_types(reader: &mut BinaryReader<'_>) -> Result<(), Depth> {
    for _ in 0..reader.read_var_u32()? {
        read_type(reader, 1)?;
    }
    Ok(())
}

fn read_type(reader: &mut BinaryReader<'_>, depth: usize) -> Result<(), Depth> {
    if depth > limits::TYPE_NESTING_MAX {
        return Err(Depth::TooDeep);
    }
    let kind = peek(reader)?;
    if kind != COMPONENT_TYPE && kind != INSTANCE_TYPE {
        reader.read::<ComponentType<'_>>()?;
        return Ok(());
    }
    reader.read_u8()?;
    for _ in 0..reader.read_var_u32()? {
        match peek(reader)? {
            DECLARES_TYPE => {
                reader.read_u8()?;
                read_type(reader, depth + 1)?;
            }
            DECLARES_IMPORT if kind == COMPONENT_TYPE => drop(reader.read::<ComponentTypeDeclaration<'_>>()?),
            _ => drop(reader.read::<InstanceTypeDeclaration<'_>>()?),
        }
    }
    Ok(())
}

// Component model, Binary.md: `componenttype`, `instancetype`, `componentdecl`.
const COMPONENT_TYPE: u8 = 0x41;
const INSTANCE_TYPE: u8 = 0x42;
const DECLARES_TYPE: u8 = 0x01;
const DECLARES_IMPORT: u8 = 0x03;

fn peek(reader: &BinaryReader<'_>) -> Result<u8, wasmparser::Error> {
    reader.clone().read_u8()
}

/// Refuses if `actual` exceeds `bound`.
pub(super) fn at_most(what: &str, actual: u64, bound: u64, hint: &str) -> Result<(), IntakeError> {
    if actual > bound { Err(limit(what, actual, bound, hint)) } else { Ok(()) }
}

fn limit(what: &str, actual: u64, limit: u64, hint: &str) -> IntakeError {
    IntakeError::Limit { what: what.to_string(), actual, limit, hint: hint.to_string() }
}

/// A guess at what a file without the WebAssembly magic is.
fn looks_like(bytes: &[u8]) -> String {
    const KNOWN: [(&[u8], &str); 9] = [
        (b"\x7fELF", "an ELF executable or library for this machine, not for WebAssembly"),
        (b"PK\x03\x04", "a zip archive (a wheel or jar?)"),
        (b"\x1f\x8b", "a gzip archive; unpack it first"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first"),
        (b"MZ", "a Windows executable"),
        (b"\xcf\xfa\xed\xfe", "a macOS executable or library"),
        (b"!<arch>", "a static library (.a or .rlib)"),
        (b"#!", "a script"),
        (b"BC\xc0\xde", "LLVM bitcode"),
    ];
    if bytes.is_empty() {
        return "an empty file".to_string();
    }
    if b"\0asm".starts_with(bytes) {
        return "the first bytes of a WebAssembly file that was cut short".to_string();
    }
    if let Some((_, what)) = KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return (*what).to_string();
    }
    let start = &bytes[..bytes.len().min(512)];
    let text = match std::str::from_utf8(start) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&start[..error.valid_up_to()]).ok(),
        Err(_) => None,
    };
    match text.map(str::trim_start) {
        Some(text) if text.starts_with("(module") || text.starts_with("(component") || text.starts_with(";;") => {
            "WebAssembly text; turn it into binary first (`wasm-tools parse`)".to_string()
        }
        Some(text) if text.starts_with('<') => "a web page or XML".to_string(),
        Some(text) if !text.contains('\0') => "a text file (source code?)".to_string(),
        _ => format!("binary data of {} bytes that does not start with the WebAssembly magic", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::sections;
    use super::*;

    #[test]
    fn files_that_are_no_wasm_are_named() {
        for (bytes, expected) in [
            (&b""[..], "an empty file"),
            (b"\0a", "cut short"),
            (b"\x7fELF\x02", "ELF"),
            (b"PK\x03\x04...", "zip"),
            (b"  (module)", "WebAssembly text"),
            (b"def process(rows):\n", "a text file"),
            (b"<html>", "a web page"),
            (b"\xff\xfe\xfd\x00", "binary data of 4 bytes"),
        ] {
            let message = outline(bytes).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn types_nested_as_deep_as_a_file_is_long_are_refused_without_recursing() {
        let mut types = vec![0x01];
        for _ in 0..1_000_000 {
            types.extend_from_slice(&[0x41, 0x01, 0x01]);
        }
        let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
        sections::push(&mut bytes, 7, &types);
        let message = outline(&bytes).unwrap_err().to_string();
        assert!(message.contains("the nesting depth of component types is 17, more than the limit of 16"), "{message}");
    }

    #[test]
    fn components_nested_too_deep_are_refused() {
        let nested = |levels: usize| {
            let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
            for _ in 1..levels {
                let mut outer = b"\0asm\x0d\0\x01\0".to_vec();
                sections::push(&mut outer, sections::component::COMPONENT, &bytes);
                bytes = outer;
            }
            bytes
        };
        assert_eq!(outline(&nested(8)).unwrap().nesting, 8);
        let message = outline(&nested(9)).unwrap_err().to_string();
        assert!(message.contains("the nesting depth of components is 9, more than the limit of 8"), "{message}");
    }
}
