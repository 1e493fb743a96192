//! The job file as a tree of values that remember where they come from.
//!
//! TOML values, `--set` overrides and environment variables end up in one tree, so that whoever reads a value later can
//! say where a wrong one was written.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;
use weir_model::nearest;

use crate::diagnostics::{Code, Diagnostic, Diagnostics, Place, Severity};

/// Where a node comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Origin {
    /// Bytes of the job file.
    File(Range<usize>),
    /// A `--set` flag.
    Flag(Arc<Flag>),
}

/// A `--set` flag.
#[derive(Debug, PartialEq)]
pub(crate) struct Flag {
    /// Dotted name of what is set.
    pub(crate) key: String,
    /// The value's text.
    pub(crate) value: String,
}

/// A value and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) origin: Origin,
    pub(crate) data: Data,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    String {
        text: String,
        /// The text stands for a value of any type: it came from a flag or holds an environment variable, so a reader
        /// that wants a number may read it as one.
        loose: bool,
    },
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
    /// A value that could not be had and has been reported; readers pass over it silently.
    Missing,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Where the key is written.
    pub(crate) key_origin: Origin,
    pub(crate) node: Node,
}

/// The tree together with the text it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) file: Arc<str>,
    pub(crate) text: Arc<str>,
    pub(crate) root: Node,
}

impl Node {
    /// The entries of a table; none of anything else.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.data {
            Data::Table(entries) => entries,
            _ => &[],
        }
    }

    /// The entry of that key, if this is a table that has it.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    pub(crate) fn entry_mut(&mut self, key: &str) -> Option<&mut Entry> {
        match &mut self.data {
            Data::Table(entries) => entries.iter_mut().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The value of that key, if this is a table that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    /// The text, if this is a string.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.data {
            Data::String { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The items, if this is an array.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.data {
            Data::Array(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        match &self.data {
            Data::String { text, .. } => Value::from(text.as_str()),
            Data::Integer(number) => Value::from(*number),
            Data::Float(number) => Value::from(*number),
            Data::Boolean(value) => Value::from(*value),
            Data::Array(items) => items.iter().map(Node::to_json).collect(),
            Data::Table(entries) => entries.iter().map(|entry| (entry.key.clone(), entry.node.to_json())).collect(),
            Data::Missing => Value::Null,
        }
    }

    /// The value as a message names it: its type, and what it is where that is short.
    pub(crate) fn describe(&self) -> String {
        match &self.data {
            Data::String { text, .. } if text.chars().count() <= 60 => format!("the string {text:?}"),
            Data::String { .. } => "a long string".to_owned(),
            Data::Integer(number) => format!("the number {number}"),
            Data::Float(number) => format!("the number {number:?}"),
            Data::Boolean(value) => value.to_string(),
            Data::Array(items) => format!("an array of {}", items.len()),
            Data::Table(_) => "a table".to_owned(),
            Data::Missing => "nothing".to_owned(),
        }
    }
}

impl Document {
    /// Where an origin is.
    pub(crate) fn place(&self, origin: &Origin) -> Place {
        match origin {
            Origin::File(span) => Place::of_span(&self.file, &self.text, span),
            Origin::Flag(flag) => Place::Flag(flag.to_string()),
        }
    }

    /// An error about a setting of a vertex, or of `[job]` if `vertex` is empty. See [`crate::Job::diagnostic`].
    pub(crate) fn diagnostic(&self, vertex: &str, key: &str, message: &str, hint: Option<&str>) -> Diagnostics {
        let (described, node, common) = self.find(vertex);
        let mut origin = node.origin.clone();
        let mut around = node;
        for segment in key.split('.').filter(|segment| !segment.is_empty()) {
            let Some(entry) = around.entry(segment) else { break };
            origin = entry.origin();
            around = &entry.node;
        }
        // Connectors do not know the keys that all vertices share, so a slip in one of those is noticed here.
        let is_foreign = node.entry(key).is_some() && !common.contains(&key);
        let meant = if is_foreign { nearest(key, common.iter().copied()) } else { None };
        let hint = hint.filter(|hint| meant.is_none() || hint.contains("did you mean")).map(str::to_owned);
        let hint = hint.or_else(|| meant.map(|meant| format!("did you mean `{meant}`?")));
        Diagnostics(vec![Diagnostic {
            severity: Severity::Error,
            code: Code::Setting,
            message: if described.is_empty() { message.to_owned() } else { format!("{described}: {message}") },
            place: self.place(&origin),
            hint,
        }])
    }

    /// What the vertex is called in messages, its table, and the keys of its kind that Weir itself knows.
    fn find(&self, vertex: &str) -> (String, &Node, &'static [&'static str]) {
        let common: [(&str, &'static [&'static str]); 3] =
            [("source", &SOURCE_KEYS), ("operator", &OPERATOR_KEYS), ("sink", &SINK_KEYS)];
        for (kind, keys) in common {
            let tables = self.root.get(kind).map_or(&[][..], Node::items);
            if let Some(table) = tables.iter().find(|table| table.get("id").and_then(Node::as_str) == Some(vertex)) {
                return (format!("{kind} `{vertex}`"), table, keys);
            }
        }
        (String::new(), self.root.get("job").unwrap_or(&self.root), &[])
    }
}

/// Keys of a source that Weir itself reads; all others are its connector's.
pub(crate) const SOURCE_KEYS: [&str; 5] = ["id", "connector", "parallelism", "event_time", "watermark"];
/// Keys of an operator.
pub(crate) const OPERATOR_KEYS: [&str; 8] = ["id", "component", "parallelism", "input", "inputs", "config", "limits", "on_error"];
/// Keys of a sink that Weir itself reads; all others are its connector's.
pub(crate) const SINK_KEYS: [&str; 4] = ["id", "connector", "parallelism", "input"];

impl Entry {
    /// Key and value, or just the key if they do not come from the same line of thought.
    pub(crate) fn origin(&self) -> Origin {
        match (&self.key_origin, &self.node.origin) {
            (Origin::File(key), Origin::File(value)) if key.start <= value.end && !matches!(self.node.data, Data::Table(_)) => {
                Origin::File(key.start..value.end)
            }
            (Origin::File(_), Origin::Flag(_)) => self.node.origin.clone(),
            _ => self.key_origin.clone(),
        }
    }
}

impl std::fmt::Display for Flag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "--set {}={}", self.key, self.value)
    }
}
