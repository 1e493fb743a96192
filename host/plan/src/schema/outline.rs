//! A schema as lines for people: which keys there are, what each may be, and what it is for.

use serde_json::Value;

use super::read::{ConfigSchema, REFERENCES_MAX};
use super::words::{alternatives, joined, literal, shown};

/// Lines of one schema.
const LINES_MAX: usize = 200;

/// Tables and forms that are looked at for them.
const FORMS_MAX: usize = 2_000;

/// One key of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingLine {
    /// Its dotted name; of forms of which one has to fit, the same name may come several times.
    pub key: String,
    /// What it may be.
    pub expected: String,
    /// Whether it has to be there.
    pub is_required: bool,
    /// What stands for it where it is not given, as JSON.
    pub default: Option<String>,
    /// What it is for, one line.
    pub doc: String,
}

impl ConfigSchema {
    /// The keys of the configuration, those within tables after them. None where anything goes.
    pub fn lines(&self) -> Vec<SettingLine> {
        let mut lines = Vec::new();
        self.keys_of(self.root(), "", REFERENCES_MAX, &mut { FORMS_MAX }, &mut lines);
        lines
    }

    /// Whether the configuration may have a key of this name.
    pub(crate) fn has_key(&self, name: &str) -> bool {
        self.lines().iter().any(|line| line.key == name)
    }

    /// What the configuration is for, if the schema says so.
    pub fn doc(&self) -> Option<&str> {
        self.root().get("description").and_then(Value::as_str)
    }

    fn keys_of(&self, schema: &Value, within: &str, depth: usize, forms: &mut usize, lines: &mut Vec<SettingLine>) {
        let (Some(depth), Some(left)) = (depth.checked_sub(1), forms.checked_sub(1)) else { return };
        *forms = left;
        if let Some(referred) = self.referred(schema) {
            self.keys_of(referred, within, depth, forms, lines);
        }
        let required: Vec<&str> =
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        for (name, of) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let key = format!("{within}{name}");
            let line = SettingLine {
                expected: match alternatives(self, of) {
                    alternatives if alternatives.is_empty() => "anything".to_owned(),
                    alternatives => joined(&alternatives),
                },
                is_required: required.contains(&name.as_str()),
                default: of.get("default").filter(|default| !default.is_null()).map(literal),
                doc: self.doc_of(of),
                key: shown(&key),
            };
            if lines.len() >= LINES_MAX {
                return;
            }
            if !lines.contains(&line) {
                lines.push(line);
            }
            self.keys_of(of, &format!("{key}."), depth, forms, lines);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let each = schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
            each.for_each(|form| self.keys_of(form, within, depth, forms, lines));
        }
    }

    /// The remark at a key, or else at what it refers to; on one line.
    fn doc_of(&self, schema: &Value) -> String {
        let here = |schema: &Value| schema.get("description").and_then(Value::as_str).map(str::to_owned);
        let doc = here(schema).or_else(|| self.referred(schema).and_then(here)).unwrap_or_default();
        doc.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
