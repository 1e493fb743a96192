//! A component as text for people: what it is made of, and what it says of itself.

use weir_model::{Description, StateKind};
use weir_plan::{ConfigSchema, SettingLine};
use weir_sandbox::Inspection;

use crate::output;

/// Bytes of a WebAssembly page.
const PAGE_BYTES: u64 = 64 << 10;

pub(super) fn text(inspection: &Inspection, description: &Description) -> String {
    let name = inspection.name.clone().unwrap_or_else(|| "none; give one when you push it".to_owned());
    let mut text = String::new();
    let mut line = |key: &str, value: String| text.push_str(&format!("{key:10} {value}\n"));
    line("name", name);
    line("digest", inspection.digest.clone());
    line("size", format!("{} ({} bytes)", output::size(inspection.size_bytes), inspection.size_bytes));
    described(&mut line, description);
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

/// What a component says of itself, alone.
pub(super) fn description(description: &Description) -> String {
    let mut text = String::new();
    described(&mut |key: &str, value: String| text.push_str(&format!("{key:10} {value}\n")), description);
    text
}

fn described(line: &mut impl FnMut(&str, String), description: &Description) {
    let with = |name: &str, doc: &str| if doc.is_empty() { name.to_owned() } else { format!("{name}: {doc}") };
    if !description.doc.is_empty() {
        line("for", description.doc.clone());
    }
    let inputs: Vec<String> = description.inputs.iter().map(|input| with(&input.name, &input.doc)).collect();
    list(line, "inputs", &inputs);
    let output = |output: &weir_model::OutputPort| {
        let name = if output.keeps_key { format!("{} (keeps keys)", output.name) } else { output.name.clone() };
        with(&name, &output.doc)
    };
    list(line, "outputs", &description.outputs.iter().map(output).collect::<Vec<_>>());
    line("state", state(description));
    let settings = match ConfigSchema::parse(&description.config) {
        Ok(schema) => schema.lines().iter().map(setting).collect(),
        Err(reason) => vec![format!("what it says of it cannot be used: {reason}")],
    };
    list(line, "config", &settings);
}

fn state(description: &Description) -> String {
    match description.state {
        StateKind::None if description.pure => {
            "none, and what it emits depends on the row and the configuration alone".to_owned()
        }
        StateKind::None => "none: never captured".to_owned(),
        StateKind::Memory => "its memory: resumes with exactly this component".to_owned(),
        StateKind::Portable(version) => {
            format!("its memory, or rows of version {version}, which another version of it can take over")
        }
    }
}

fn setting(line: &SettingLine) -> String {
    let needed = match &line.default {
        _ if line.is_required => ", required".to_owned(),
        Some(default) => format!(", {default} where it is not given"),
        None => String::new(),
    };
    let doc = if line.doc.is_empty() { String::new() } else { format!(" ({})", line.doc) };
    format!("{}: {}{needed}{doc}", line.key, line.expected)
}

fn list(line: &mut impl FnMut(&str, String), key: &str, items: &[String]) {
    if items.is_empty() {
        line(key, "none".to_owned());
    }
    for (index, item) in items.iter().enumerate() {
        line(if index == 0 { key } else { "" }, item.clone());
    }
}

#[cfg(test)]
mod tests {
    use weir_model::OutputPort;

    use super::*;

    #[test]
    fn people_see_ports_state_and_configuration() {
        let config = r#"{ "properties": {
            "size": { "type": "string", "examples": ["5m"], "description": "How long" },
            "kind": { "enum": ["tumbling", "session"], "default": "tumbling" }
        }, "required": ["size"] }"#;
        let mut windows = Description { doc: "Counts.".to_owned(), config: config.to_owned(), ..Description::plain() };
        windows.outputs[0].keeps_key = true;
        windows.outputs.push(OutputPort { name: "late".to_owned(), doc: "what came too late".to_owned(), keeps_key: false });
        windows.state = StateKind::Portable(2);
        let expected = "\
for        Counts.
inputs     in
outputs    main (keeps keys)
           late: what came too late
state      its memory, or rows of version 2, which another version of it can take over
config     size: a string such as \"5m\", required (How long)
           kind: \"tumbling\" or \"session\", \"tumbling\" where it is not given
";
        assert_eq!(description(&windows), expected);
        assert!(description(&Description::plain()).ends_with("config     none\n"));
    }
}
