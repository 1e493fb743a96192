//! `--set` flags: values that replace or add to those of the job file.

use std::sync::Arc;

use weir_model::limits::{JOB_FILE_BYTES_MAX, JOB_NESTING_MAX, JOB_OVERRIDES_MAX};

use crate::diagnostics::Code;
use crate::from_toml;
use crate::problems::{Problems, suggest};
use crate::tree::{Data, Document, Entry, Flag, Node, Origin};

const TARGETS: [&str; 4] = ["job", "source", "operator", "sink"];

/// Applies the flags in their order.
pub(crate) fn apply(document: &mut Document, overrides: &[(String, String)], problems: &mut Problems) {
    let mut bytes = document.text.len();
    for (index, (key, value)) in overrides.iter().enumerate() {
        bytes += key.len() + value.len();
        if index >= JOB_OVERRIDES_MAX || bytes > JOB_FILE_BYTES_MAX {
            let origin = Origin::Flag(Arc::new(Flag { key: key.chars().take(60).collect(), value: "...".to_owned() }));
            let message = format!(
                "there are more than {JOB_OVERRIDES_MAX} `--set` flags, or more than {JOB_FILE_BYTES_MAX} bytes of them and the file"
            );
            problems.error(Code::Override, &origin, message, None);
            break;
        }
        let origin = Origin::Flag(Arc::new(Flag { key: key.clone(), value: value.clone() }));
        if let Err(wrong) = apply_one(&mut document.root, key, value, &origin) {
            problems.error(Code::Override, &origin, wrong.message, wrong.hint);
        }
    }
}

struct Wrong {
    message: String,
    hint: Option<String>,
}

fn wrong(message: impl Into<String>, hint: Option<String>) -> Wrong {
    Wrong { message: message.into(), hint }
}

const SHAPES: &str = "write source.ID.KEY, operator.ID.KEY, sink.ID.KEY or job.KEY, then =VALUE";

fn apply_one(root: &mut Node, key: &str, value: &str, origin: &Origin) -> Result<(), Wrong> {
    let keys = toml_edit::Key::parse(key).map_err(|_| wrong(format!("`{key}` is not a dotted key"), Some(SHAPES.to_owned())))?;
    let path: Vec<&str> = keys.iter().map(toml_edit::Key::get).collect();
    if path.len() > JOB_NESTING_MAX {
        return Err(wrong(format!("the key has more than {JOB_NESTING_MAX} parts"), None));
    }
    let (target, rest) = path.split_first().ok_or_else(|| wrong("no key is given", Some(SHAPES.to_owned())))?;
    if !TARGETS.contains(target) {
        return Err(wrong(format!("`{target}` is not a part of a job"), suggest(target, &TARGETS)));
    }
    let (table, rest) = if *target == "job" {
        (child(root, "job", origin)?, rest)
    } else {
        let (id, rest) = rest.split_first().ok_or_else(|| wrong(format!("no {target} is named"), Some(SHAPES.to_owned())))?;
        (vertex(root, target, id)?, rest)
    };
    let (last, between) =
        rest.split_last().ok_or_else(|| wrong(format!("`{key}` names a whole table, not a value"), Some(SHAPES.to_owned())))?;
    let mut around = table;
    for segment in between {
        around = child(around, segment, origin)?;
    }
    let node = Node { origin: origin.clone(), data: read_value(value, origin) };
    set(around, last, node, origin)
}

/// The table of a vertex.
fn vertex<'a>(root: &'a mut Node, kind: &str, id: &str) -> Result<&'a mut Node, Wrong> {
    let tables = root.get(kind).map_or(&[][..], Node::items);
    let id_of = |table: &Node| table.get("id").and_then(Node::as_str).map(str::to_owned);
    let ids: Vec<String> = tables.iter().filter_map(id_of).collect();
    let Some(index) = tables.iter().position(|table| id_of(table).as_deref() == Some(id)) else {
        let candidates: Vec<&str> = ids.iter().map(String::as_str).collect();
        return Err(wrong(format!("the job has no {kind} `{id}`"), suggest(id, &candidates)));
    };
    let found = match root.entry_mut(kind).map(|entry| &mut entry.node.data) {
        Some(Data::Array(items)) => items.get_mut(index),
        _ => None,
    };
    found.ok_or_else(|| wrong(format!("the job has no {kind} `{id}`"), None))
}

/// What a table holds under a key, or an array at an index; a table gets an empty table where it holds nothing.
fn child<'a>(node: &'a mut Node, segment: &str, origin: &Origin) -> Result<&'a mut Node, Wrong> {
    if matches!(node.data, Data::Table(_)) && node.get(segment).is_none() {
        set(node, segment, Node { origin: origin.clone(), data: Data::Table(Vec::new()) }, origin)?;
    }
    let described = node.describe();
    let found = match &mut node.data {
        Data::Table(entries) => entries.iter_mut().find(|entry| entry.key == segment).map(|entry| &mut entry.node),
        Data::Array(items) => segment.parse().ok().and_then(|index: usize| items.get_mut(index)),
        _ => None,
    };
    found.ok_or_else(|| wrong(format!("`{segment}` cannot be set within {described}"), None))
}

fn set(around: &mut Node, key: &str, node: Node, origin: &Origin) -> Result<(), Wrong> {
    if let Some(entry) = around.entry_mut(key) {
        entry.node = node;
        return Ok(());
    }
    let described = around.describe();
    match &mut around.data {
        Data::Table(entries) => entries.push(Entry { key: key.to_owned(), key_origin: origin.clone(), node }),
        Data::Array(items) => match key.parse().ok().and_then(|index: usize| items.get_mut(index)) {
            Some(item) => *item = node,
            None => return Err(wrong(format!("`{key}` is not an item of {described}"), None)),
        },
        _ => return Err(wrong(format!("`{key}` cannot be set within {described}"), None)),
    }
    Ok(())
}

/// A TOML value if the text is one, otherwise the text.
fn read_value(text: &str, origin: &Origin) -> Data {
    if let Ok(Node { data: Data::Table(mut entries), .. }) = from_toml::parse(&format!("value = {text}"), Some(origin)) {
        // More than one entry: the text goes on after a line break, so it is not one value.
        if entries.len() == 1
            && let Some(entry) = entries.pop()
            && !matches!(entry.node.data, Data::Float(number) if !number.is_finite())
        {
            return entry.node.data;
        }
    }
    Data::String { text: text.to_owned(), loose: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_toml_or_else_text() {
        let origin = Origin::File(0..0);
        let json = |text: &str| Node { origin: origin.clone(), data: read_value(text, &origin) }.to_json();
        for (text, expected) in [
            ("4", serde_json::json!(4)),
            ("true", serde_json::json!(true)),
            ("\"4\"", serde_json::json!("4")),
            ("[1, 2]", serde_json::json!([1, 2])),
            ("{ a = 1 }", serde_json::json!({ "a": 1 })),
            ("1m", serde_json::json!("1m")),
            ("/var/log/access.log", serde_json::json!("/var/log/access.log")),
            ("", serde_json::json!("")),
            ("1\nother = 2", serde_json::json!("1\nother = 2")),
            ("a=b", serde_json::json!("a=b")),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }
}
