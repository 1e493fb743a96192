//! Reads one table of the job file: typed values, and in the end the keys that nothing asked for.
//!
//! A value that is absent or wrong reads as None; what is wrong has been reported then, so callers go on with a default
//! and all problems of a file are found at once.

use std::time::Duration;

use serde_json::{Map, Value};
use weir_model::nearest;

use crate::diagnostics::Code;
use crate::problems::{Problems, suggest};
use crate::tree::{Data, Entry, Node, Origin};
use crate::units::{UnitError, parse_duration, parse_size};

/// One table that is being read.
pub(crate) struct Section<'a> {
    /// How messages call it: "[job.checkpoint]", "operator `count`".
    pub(crate) name: String,
    node: &'a Node,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(name: impl Into<String>, node: &'a Node) -> Section<'a> {
        Section { name: name.into(), node, known: Vec::new() }
    }

    /// Where the table begins.
    pub(crate) fn origin(&self) -> &'a Origin {
        &self.node.origin
    }

    /// The value of a key, which counts as known from here on.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a Node> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.node.get(key).filter(|node| !matches!(node.data, Data::Missing))
    }

    /// Where a key is written, or the table if it is not.
    pub(crate) fn origin_of(&self, key: &str) -> Origin {
        self.node.entry(key).map_or_else(|| self.node.origin.clone(), Entry::origin)
    }

    /// Reports a key that must be there and is not.
    pub(crate) fn require(&self, key: &'static str, expected: &str, problems: &mut Problems) {
        if self.node.get(key).is_none() {
            // A misspelt key is shown where it stands, not as something that is missing elsewhere.
            let near = nearest(key, self.unknown().map(|entry| entry.key.as_str())).filter(|_| key.len() > 4);
            let misspelt = near.and_then(|near| self.node.entry(near));
            if let Some(entry) = misspelt {
                let message = format!("unknown key `{}` in {}, and `{key}` is missing", entry.key, self.name);
                problems.error(Code::UnknownKey, &entry.key_origin, message, Some(format!("did you mean `{key}`?")));
                return;
            }
            let message = format!("`{key}` is missing in {}: expected {expected}", self.name);
            problems.error(Code::Value, self.origin(), message, None);
        }
    }

    /// Reports a value that is not what it should be.
    pub(crate) fn wrong(&self, key: &str, node: &Node, expected: &str, hint: Option<String>, problems: &mut Problems) {
        let message = format!("`{key}` in {}: expected {expected}, found {}", self.name, node.describe());
        problems.error(Code::Value, &node.origin, message, hint);
    }

    pub(crate) fn string(&mut self, key: &'static str, expected: &str, problems: &mut Problems) -> Option<String> {
        let node = self.get(key)?;
        let text = text_of(node);
        if text.is_none() {
            self.wrong(key, node, expected, None, problems);
        }
        text
    }

    /// A whole number of the range.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u32>,
        problems: &mut Problems,
    ) -> Option<u32> {
        let node = self.get(key)?;
        let number = match &node.data {
            Data::Integer(number) => Some(*number),
            Data::String { text, loose: true } => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.and_then(|number| u32::try_from(number).ok()).filter(|number| range.contains(number));
        if number.is_none() {
            let expected = match *range.end() {
                u32::MAX => format!("a whole number of at least {}", range.start()),
                end => format!("a whole number from {} to {end}", range.start()),
            };
            self.wrong(key, node, &expected, None, problems);
        }
        number
    }

    /// A number of the range, whole or not.
    pub(crate) fn float(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<f64>,
        problems: &mut Problems,
    ) -> Option<f64> {
        let node = self.get(key)?;
        let number = match &node.data {
            Data::Integer(number) => Some(*number as f64),
            Data::Float(number) => Some(*number),
            Data::String { text, loose: true } => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            self.wrong(key, node, &format!("a number from {} to {}", range.start(), range.end()), None, problems);
        }
        number
    }

    pub(crate) fn duration(&mut self, key: &'static str, problems: &mut Problems) -> Option<Duration> {
        let node = self.get(key)?;
        self.duration_of(key, node, "", problems)
    }

    /// A duration, or the word that stands for none: `Some(None)`.
    pub(crate) fn duration_or(&mut self, key: &'static str, none: &str, problems: &mut Problems) -> Option<Option<Duration>> {
        let node = self.get(key)?;
        if node.as_str() == Some(none) {
            return Some(None);
        }
        self.duration_of(key, node, &format!(", or \"{none}\""), problems).map(Some)
    }

    /// A duration of at least one millisecond.
    pub(crate) fn duration_above_zero(&mut self, key: &'static str, problems: &mut Problems) -> Option<Duration> {
        let duration = self.duration(key, problems)?;
        self.above_zero(key, duration, "", problems)
    }

    /// Passes on a duration that is not zero, reports one that is.
    pub(crate) fn above_zero(&self, key: &str, duration: Duration, or: &str, problems: &mut Problems) -> Option<Duration> {
        match self.node.get(key) {
            Some(node) if duration.is_zero() => {
                self.wrong(key, node, &format!("a duration of at least 1ms{or}"), None, problems);
                None
            }
            _ => Some(duration),
        }
    }

    fn duration_of(&self, key: &str, node: &Node, or: &str, problems: &mut Problems) -> Option<Duration> {
        let parsed = text_of(node).ok_or(UnitError::Duration).and_then(|text| parse_duration(&text));
        let hint = match &node.data {
            Data::Integer(number) if *number >= 0 => Some(format!("say the unit: \"{number}s\" or \"{number}ms\"")),
            _ => None,
        };
        match parsed {
            Ok(duration) => return Some(duration),
            Err(UnitError::TooLarge) => self.wrong(key, node, "a shorter duration", hint, problems),
            Err(_) => {
                let expected = format!("a duration such as \"500ms\", \"10s\" or \"1h30m\"{or}");
                self.wrong(key, node, &expected, hint, problems);
            }
        }
        None
    }

    /// A size in bytes of the range.
    pub(crate) fn size(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Problems,
    ) -> Option<u64> {
        let node = self.get(key)?;
        let size = text_of(node).and_then(|text| parse_size(&text).ok()).filter(|size| range.contains(size));
        if size.is_none() {
            let (least, most) = (crate::format_size(*range.start()), crate::format_size(*range.end()));
            self.wrong(key, node, &format!("a size from \"{least}\" to \"{most}\""), None, problems);
        }
        size
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let node = self.get(key)?;
        self.choice_of(key, node, choices, problems)
    }

    pub(crate) fn choice_of<T: Copy>(
        &self,
        key: &str,
        node: &Node,
        choices: &[(&'static str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let found = node.as_str().and_then(|text| choices.iter().find(|(word, _)| *word == text));
        if found.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            let hint = node.as_str().and_then(|text| crate::nearest(text, words.iter().copied()));
            let hint = hint.map(|meant| format!("did you mean {meant:?}?"));
            self.wrong(key, node, &one_of(&words), hint, problems);
        }
        found.map(|(_, value)| *value)
    }

    /// A table within this one, as a section of that name.
    pub(crate) fn section(&mut self, key: &'static str, name: String, problems: &mut Problems) -> Option<Section<'a>> {
        let node = self.get(key)?;
        if !matches!(node.data, Data::Table(_)) {
            self.wrong(key, node, "a table", None, problems);
            return None;
        }
        Some(Section::new(name, node))
    }

    /// A table within this one, as JSON.
    pub(crate) fn json_table(&mut self, key: &'static str, problems: &mut Problems) -> Option<Map<String, Value>> {
        let section = self.section(key, String::new(), problems)?;
        section.node.entries().iter().for_each(|entry| report_not_finite(entry, problems));
        match section.node.to_json() {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    pub(crate) fn known_keys(&self) -> &[&'static str] {
        &self.known
    }

    /// Reports all keys that nothing asked for.
    pub(crate) fn finish(self, problems: &mut Problems) {
        for entry in self.unknown() {
            let message = format!("unknown key `{}` in {}", entry.key, self.name);
            problems.error(Code::UnknownKey, &entry.key_origin, message, suggest(&entry.key, &self.known));
        }
    }

    /// All keys that nothing asked for, as JSON: the settings of a connector.
    pub(crate) fn rest(self, problems: &mut Problems) -> Map<String, Value> {
        self.unknown()
            .inspect(|entry| report_not_finite(entry, problems))
            .map(|entry| (entry.key.clone(), entry.node.to_json()))
            .collect()
    }

    pub(crate) fn unknown(&self) -> impl Iterator<Item = &'a Entry> + use<'a, '_> {
        self.node.entries().iter().filter(|entry| !self.known.contains(&entry.key.as_str()))
    }
}

/// A string; the text of any value that came from a flag.
fn text_of(node: &Node) -> Option<String> {
    match (&node.data, &node.origin) {
        (Data::String { text, .. }, _) => Some(text.clone()),
        (Data::Integer(_) | Data::Float(_) | Data::Boolean(_), Origin::Flag(flag)) => Some(flag.value.clone()),
        _ => None,
    }
}

/// "a", "b" or "c", quoted.
fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => quoted.concat(),
    }
}

/// JSON has no infinity and no NaN.
fn report_not_finite(entry: &Entry, problems: &mut Problems) {
    fn visit(key: &str, node: &Node, problems: &mut Problems) {
        match &node.data {
            Data::Float(number) if !number.is_finite() => {
                problems.error(Code::Value, &node.origin, format!("`{key}`: expected a finite number, found {number}"), None);
            }
            Data::Array(items) => items.iter().for_each(|item| visit(key, item, problems)),
            Data::Table(entries) => entries.iter().for_each(|entry| visit(&entry.key, &entry.node, problems)),
            _ => {}
        }
    }
    visit(&entry.key, &entry.node, problems);
}
