//! A schema as a component gives it: read, and looked through once, so that whoever goes by it later meets no surprise.

use std::collections::BTreeMap;

use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;

/// Levels of JSON within each other.
const DEPTH_MAX: usize = 32;

/// Regular expressions in one schema.
const PATTERNS_MAX: usize = 64;

/// Memory of one of them. What they cost a character grows with it.
const PATTERN_BYTES_MAX: usize = 64 << 10;

/// References that may lead from one to the next before there is something else.
pub(super) const REFERENCES_MAX: usize = 32;

/// A JSON Schema (2020-12) for the configuration of an operator.
///
/// Weir goes by what nearly all schemas consist of; keywords that it does not know, and formats, it takes for remarks, as the standard has
/// it. So a configuration that passes may still be refused by the component when it opens, but none is refused that it would take.
#[derive(Clone, Debug)]
pub struct ConfigSchema {
    root: Value,
    patterns: BTreeMap<String, Regex>,
}

/// Keywords whose value is one schema.
const ONE: [&str; 9] =
    ["items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else", "unevaluatedProperties"];

/// Keywords whose value is a list of schemas.
const MANY: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords whose value is a table of schemas.
const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

impl ConfigSchema {
    /// Reads a schema.
    ///
    /// # Errors
    /// Why it cannot be used: it is no JSON, it is nested deeper than 32 levels, a keyword has a value that it cannot have, it refers to
    /// something outside of it or to nothing, or a regular expression is wrong, too large, or needs more than linear time.
    pub fn parse(text: &str) -> Result<ConfigSchema, String> {
        let root: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        if !is_within(&root, DEPTH_MAX) {
            return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
        }
        let mut schema = ConfigSchema { root: Value::Null, patterns: BTreeMap::new() };
        Reader { root: &root, patterns: &mut schema.patterns }.schema(&root, "#")?;
        Ok(ConfigSchema { root, ..schema })
    }

    /// The schema itself.
    pub(super) fn root(&self) -> &Value {
        &self.root
    }

    /// Whether a text matches a regular expression of the schema.
    pub(super) fn matches(&self, pattern: &str, text: &str) -> bool {
        self.patterns.get(pattern).is_none_or(|pattern| pattern.is_match(text))
    }

    /// What a schema refers to, if it does.
    pub(super) fn referred(&self, schema: &Value) -> Option<&Value> {
        schema.get("$ref").and_then(Value::as_str).and_then(|reference| target(&self.root, reference))
    }
}

/// What a reference within a schema stands for.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    root.pointer(reference.strip_prefix('#')?)
}

fn is_within(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else { return false };
    match value {
        Value::Array(items) => items.iter().all(|item| is_within(item, below)),
        Value::Object(entries) => entries.values().all(|entry| is_within(entry, below)),
        _ => true,
    }
}

struct Reader<'a> {
    root: &'a Value,
    patterns: &'a mut BTreeMap<String, Regex>,
}

impl Reader<'_> {
    fn schema(&mut self, schema: &Value, at: &str) -> Result<(), String> {
        let entries = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(entries) => entries,
            _ => return Err(format!("{at} is no schema: expected an object, true or false")),
        };
        for (keyword, value) in entries {
            let at = format!("{at}/{keyword}");
            match keyword.as_str() {
                word if ONE.contains(&word) => self.schema(value, &at)?,
                word if MANY.contains(&word) => {
                    let schemas = value.as_array().filter(|schemas| !schemas.is_empty());
                    for (index, schema) in schemas.ok_or_else(|| format!("{at}: expected a list of schemas"))?.iter().enumerate()
                    {
                        self.schema(schema, &format!("{at}/{index}"))?;
                    }
                }
                word if NAMED.contains(&word) => {
                    for (name, schema) in value.as_object().ok_or_else(|| format!("{at}: expected an object of schemas"))? {
                        if word == "patternProperties" {
                            self.pattern(name, &at)?;
                        }
                        self.schema(schema, &format!("{at}/{name}"))?;
                    }
                }
                "$ref" => self.reference(value, &at)?,
                "$dynamicRef" | "$recursiveRef" => {
                    return Err(format!("{at} is not supported: refer to parts of the schema with $ref and #/$defs/..."));
                }
                "pattern" => self.pattern(text(value, &at)?, &at)?,
                _ => keyword_is_good(keyword, value, &at)?,
            }
        }
        Ok(())
    }

    fn reference(&self, reference: &Value, at: &str) -> Result<(), String> {
        let mut reference = text(reference, at)?;
        for _ in 0..REFERENCES_MAX {
            if !reference.starts_with('#') {
                return Err(format!("{at} refers to {reference:?}, outside of the schema"));
            }
            let Some(target) = target(self.root, reference).filter(|target| target.is_object() || target.is_boolean()) else {
                return Err(format!("{at} refers to {reference:?}, where there is no schema"));
            };
            match target.get("$ref") {
                Some(next) => reference = text(next, at)?,
                None => return Ok(()),
            }
        }
        Err(format!("{at}: references lead from one to the next"))
    }

    fn pattern(&mut self, pattern: &str, at: &str) -> Result<(), String> {
        if self.patterns.contains_key(pattern) {
            return Ok(());
        }
        if self.patterns.len() >= PATTERNS_MAX {
            return Err(format!("{at}: there are more than {PATTERNS_MAX} regular expressions"));
        }
        let regex = RegexBuilder::new(pattern).size_limit(PATTERN_BYTES_MAX).build();
        let regex = regex.map_err(|error| format!("{at}: the regular expression {pattern:?} cannot be used: {error}"))?;
        self.patterns.insert(pattern.to_owned(), regex);
        Ok(())
    }
}

fn text<'a>(value: &'a Value, at: &str) -> Result<&'a str, String> {
    value.as_str().ok_or_else(|| format!("{at}: expected a string"))
}

const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];

/// Whether a keyword that holds no schema has a value that it may have. Unknown ones may have any.
fn keyword_is_good(keyword: &str, value: &Value, at: &str) -> Result<(), String> {
    let is_type = |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    let are_names = |value: &Value| value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    let (is_good, expected) = match keyword {
        "type" => (
            is_type(value) || value.as_array().is_some_and(|names| !names.is_empty() && names.iter().all(is_type)),
            "a type or a list of types",
        ),
        "enum" => (value.as_array().is_some_and(|items| !items.is_empty()), "a list of values"),
        "required" => (are_names(value), "a list of names"),
        "dependentRequired" => {
            (value.as_object().is_some_and(|entries| entries.values().all(are_names)), "an object of lists of names")
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => (value.is_number(), "a number"),
        "multipleOf" => (value.as_f64().is_some_and(|number| number > 0.0), "a number above 0"),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minContains"
        | "maxContains" => (value.as_f64().is_some_and(|number| number >= 0.0 && number.fract() == 0.0), "a whole number"),
        "uniqueItems" => (value.is_boolean(), "true or false"),
        _ => return Ok(()),
    };
    if is_good { Ok(()) } else { Err(format!("{at}: expected {expected}")) }
}
