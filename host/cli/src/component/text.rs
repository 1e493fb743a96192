//! An inspection as text for people.

use weir_sandbox::{Inspection, SnapshotKind};

use crate::output;

/// Bytes of a WebAssembly page.
const PAGE_BYTES: u64 = 64 << 10;

pub(super) fn text(inspection: &Inspection) -> String {
    let name = inspection.name.clone().unwrap_or_else(|| "none; give one when you push it".to_owned());
    let snapshots: Vec<&str> = inspection.snapshots.iter().map(|kind| snapshot(*kind)).collect();
    let mut text = String::new();
    let mut line = |key: &str, value: String| text.push_str(&format!("{key:10} {value}\n"));
    line("name", name);
    line("digest", inspection.digest.clone());
    line("size", format!("{} ({} bytes)", output::size(inspection.size_bytes), inspection.size_bytes));
    line("state", snapshots.join("; "));
    list(&mut line, "exports", &inspection.exports);
    list(&mut line, "imports", &inspection.imports);
    let memories: Vec<String> = inspection
        .memories
        .iter()
        .map(|memory| {
            let most = match memory.maximum_pages {
                Some(pages) => format!("up to {}", output::size(pages.saturating_mul(PAGE_BYTES))),
                None => "up to the operator's limit".to_owned(),
            };
            format!("{} at the start, {most}", output::size(memory.initial_pages.saturating_mul(PAGE_BYTES)))
        })
        .collect();
    list(&mut line, "memories", &memories);
    let (defined, captured) = (inspection.mutable_globals_defined, inspection.mutable_globals_captured);
    line("globals", format!("{defined} mutable, {captured} of them written and part of images"));
    let (modules, instances) = (inspection.core_modules, inspection.core_instances);
    line("code", format!("{modules} core module(s), {instances} instance(s), {} functions", inspection.functions));
    if inspection.componentized {
        line("form", "a core module with a component type; made a component when it is taken in".to_owned());
    }
    let tools: Vec<String> =
        inspection.toolchain.iter().map(|tool| format!("{} {} ({})", tool.name, tool.version, tool.role)).collect();
    list(&mut line, "made with", &tools);
    text
}

fn snapshot(kind: SnapshotKind) -> &'static str {
    match kind {
        SnapshotKind::Image => "image: resumes with exactly this component",
        SnapshotKind::Portable => "portable: another version can take it over",
    }
}

fn list(line: &mut impl FnMut(&str, String), key: &str, items: &[String]) {
    if items.is_empty() {
        line(key, "none".to_owned());
    }
    for (index, item) in items.iter().enumerate() {
        line(if index == 0 { key } else { "" }, item.clone());
    }
}
