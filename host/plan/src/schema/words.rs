//! How messages say what a schema expects.

use serde_json::Value;

use super::read::{ConfigSchema, REFERENCES_MAX};

/// Alternatives that a message names.
const ALTERNATIVES_MAX: usize = 12;

/// Forms that are looked at for them.
const FORMS_MAX: usize = 200;

/// Characters of one of them.
const SHOWN_CHARS_MAX: usize = 80;

/// What a schema expects: alternatives, each as a message says it ("\"count\"", "a whole number from 1 to 5"). None where it says nothing.
pub(super) fn alternatives(schema: &ConfigSchema, wanted: &Value) -> Vec<String> {
    let mut found = Vec::new();
    add(schema, wanted, REFERENCES_MAX, &mut { FORMS_MAX }, &mut found);
    found
}

/// Alternatives as one text.
pub(crate) fn joined(alternatives: &[String]) -> String {
    match alternatives.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        Some((last, _)) => last.clone(),
        None => "something else".to_owned(),
    }
}

/// `forms` is how many may still be looked at.
fn add(schema: &ConfigSchema, wanted: &Value, depth: usize, forms: &mut usize, found: &mut Vec<String>) {
    let (Some(depth), Some(left)) = (depth.checked_sub(1), forms.checked_sub(1)) else { return };
    *forms = left;
    if found.len() >= ALTERNATIVES_MAX {
        return;
    }
    if let Some(referred) = schema.referred(wanted) {
        return add(schema, referred, depth, forms, found);
    }
    let list = |key: &str| wanted.get(key).and_then(Value::as_array);
    if let Some(constant) = wanted.get("const") {
        return push(found, literal(constant));
    }
    if let Some(values) = list("enum") {
        return values.iter().take(ALTERNATIVES_MAX).for_each(|value| push(found, literal(value)));
    }
    if let Some(each) = list("anyOf").or_else(|| list("oneOf")) {
        return each.iter().for_each(|form| add(schema, form, depth, forms, found));
    }
    match wanted.get("type") {
        Some(Value::String(name)) => push(found, of_type(wanted, name)),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).for_each(|name| push(found, of_type(wanted, name)));
        }
        _ if wanted.get("pattern").is_some() => push(found, string(wanted)),
        _ => list("allOf").into_iter().flatten().for_each(|part| add(schema, part, depth, forms, found)),
    }
}

fn push(found: &mut Vec<String>, alternative: String) {
    // TOML has no null.
    if alternative != "null" && found.len() < ALTERNATIVES_MAX && !found.contains(&alternative) {
        found.push(alternative);
    }
}

/// A value as a job file has it.
pub(super) fn literal(value: &Value) -> String {
    shown(&value.to_string())
}

/// A text, cut where it is long.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn of_type(schema: &Value, name: &str) -> String {
    match name {
        "string" => string(schema),
        "integer" => format!("a whole number{}", range(schema)),
        "number" => format!("a number{}", range(schema)),
        "boolean" => "true or false".to_owned(),
        "array" => "an array".to_owned(),
        "object" => "a table".to_owned(),
        _ => "null".to_owned(),
    }
}

fn string(schema: &Value) -> String {
    let examples = schema.get("examples").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let examples: Vec<String> = examples.iter().filter(|example| example.is_string()).take(3).map(literal).collect();
    match (examples.is_empty(), schema.get("pattern").and_then(Value::as_str)) {
        (false, _) => format!("a string such as {}", joined(&examples)),
        (true, Some(pattern)) => format!("a string that matches `{}`", shown(pattern)),
        (true, None) => "a string".to_owned(),
    }
}

fn range(schema: &Value) -> String {
    let bound =
        |key: &str, words: &str| schema.get(key).filter(|bound| bound.is_number()).map(|bound| format!("{words} {bound}"));
    let (least, most) = (bound("minimum", "from"), bound("maximum", "to"));
    if let (Some(least), Some(most)) = (&least, &most) {
        return format!(" {least} {most}");
    }
    let least = bound("minimum", "of at least").or_else(|| bound("exclusiveMinimum", "above"));
    let most = bound("maximum", "of at most").or_else(|| bound("exclusiveMaximum", "below"));
    match (least, most) {
        (Some(least), Some(most)) => format!(" {least} and {most}"),
        (one, other) => one.or(other).map_or_else(String::new, |bound| format!(" {bound}")),
    }
}
