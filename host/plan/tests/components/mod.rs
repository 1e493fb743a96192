//! What the components of these tests say of themselves.
#![allow(dead_code, clippy::unwrap_used, reason = "a module of several tests")]

use std::sync::Arc;

use serde_json::json;
use weir_model::{Description, InputPort, OutputPort};
use weir_plan::{ComponentRef, DescriptionError};

/// A description with these inputs and outputs, and this schema.
pub(crate) fn described(inputs: &[&str], outputs: &[&str], schema: &serde_json::Value) -> Description {
    let input = |name: &&str| InputPort { name: (*name).to_owned(), doc: String::new() };
    let output = |name: &&str| OutputPort { name: (*name).to_owned(), doc: String::new(), keeps_key: false };
    Description {
        inputs: inputs.iter().map(input).collect(),
        outputs: outputs.iter().map(output).collect(),
        config: schema.to_string(),
        ..Description::plain()
    }
}

/// Components by name, whatever their version; `unknown` is one that nobody knows. All others have an input and an output.
pub(crate) fn describe(_uid: &str, component: &ComponentRef) -> Result<Arc<Description>, DescriptionError> {
    let name = match component {
        ComponentRef::Named { name, .. } => name.as_str(),
        ComponentRef::Path(path) => path.strip_suffix(".wasm").unwrap_or(path),
    };
    let sends = |key: &str| json!({ "properties": { key: { "enum": ["discard", "output"] } } });
    let description = match name {
        "unknown" => {
            let hint = Some("weir component ls".to_owned());
            return Err(DescriptionError { message: "there is no component unknown@1".to_owned(), hint });
        }
        "window" | "distinct" | "rate-alert" => described(&["in"], &["main", "late"], &json!(true)),
        "parse" => described(&["in"], &["main", "malformed"], &sends("malformed")),
        "filter" => described(&["in"], &["main", "dropped"], &sends("dropped")),
        "join" => described(&["left", "right"], &["main"], &json!(true)),
        "typed" => described(&["in"], &["main"], &typed()),
        "broken" => described(&["in"], &["main"], &json!({ "type": 1 })),
        _ => Description::plain(),
    };
    Ok(Arc::new(description))
}

/// The configuration of `typed`: as a window's, with forms by kind.
fn typed() -> serde_json::Value {
    let span = json!({ "$ref": "#/$defs/Span" });
    let form = |kind: &str, key: &str| {
        json!({
            "type": "object", "properties": { "kind": { "const": kind }, key: span, "field": { "$ref": "#/$defs/Field" } },
            "required": ["kind", key], "additionalProperties": false,
        })
    };
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {
            "Span": { "type": "string", "pattern": "^([0-9]+(d|h|m|s|ms) ?)+$", "examples": ["5m"] },
            "Field": { "type": "object", "properties": {
                "name": { "type": "string", "minLength": 1 },
                "numbers": { "enum": ["exact", "rounded", "float"], "default": "rounded" },
                "digits": { "type": "integer", "minimum": 0, "maximum": 9 },
            }, "required": ["name"], "additionalProperties": false },
        },
        "oneOf": [form("tumbling", "size"), form("session", "gap")],
    })
}
