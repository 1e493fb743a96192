//! Goes through a configuration by its schema, and says what is wrong and where.
//!
//! Of forms of which one has to fit, what is wrong with the one that comes nearest is said. Never takes more than a bounded number of
//! steps, whatever the schema.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::read::ConfigSchema;
use super::words::{alternatives, joined, literal, shown};
use crate::problems::suggest;
use crate::tree::{Data, Entry, Node};

/// Steps that a check may take: values looked at, and bytes given to regular expressions.
const STEPS_MAX: usize = 200_000;

/// What it counts as to find out what a schema expects.
const EXPECTED_STEPS: usize = 50;

/// References, forms and values within each other.
const DEPTH_MAX: usize = 128;

/// Problems kept of one form.
const COMPLAINTS_MAX: usize = 20;

/// Something that is wrong with a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Complaint {
    /// Which entries or items lead to it, by place.
    pub(crate) path: Vec<usize>,
    pub(crate) wrong: Wrong,
}

/// What is wrong.
#[derive(Clone, Debug)]
pub(crate) enum Wrong {
    /// A key that is not known; what it may be instead.
    Unknown(Option<String>),
    /// A key that stands for one that is missing.
    Misspelt(String),
    /// A key is missing; what its value has to be.
    Missing(String, Vec<String>),
    /// It has to be one of these.
    Type(Vec<String>),
    /// It has to be one of these values.
    Value(Vec<String>),
    /// Anything else; what is expected.
    Other(String),
    /// Nobody knows: it would take too long.
    TooLong,
}

/// What is wrong with a configuration by its schema; nothing if it fits.
pub(crate) fn check(schema: &ConfigSchema, config: &Node) -> Vec<Complaint> {
    let checker = Checker { schema, steps: Cell::new(STEPS_MAX), depth: Cell::new(0) };
    let mut found = Complaints::default();
    checker.value(schema.root(), config, &mut Vec::new(), &mut found);
    if checker.steps.get() == 0 {
        return vec![Complaint { path: Vec::new(), wrong: Wrong::TooLong }];
    }
    found.0
}

/// Complaints about one value by one schema.
#[derive(Default)]
struct Complaints(Vec<Complaint>);

impl Complaints {
    fn add(&mut self, path: &[usize], wrong: Wrong) {
        if self.0.len() < COMPLAINTS_MAX {
            self.0.push(Complaint { path: path.to_vec(), wrong });
        }
    }
}

struct Checker<'a> {
    schema: &'a ConfigSchema,
    /// Steps left.
    steps: Cell<usize>,
    depth: Cell<usize>,
}

impl Checker<'_> {
    /// Whether it may go on after so many steps more.
    fn step(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get().saturating_sub(steps));
        self.steps.get() > 0
    }

    fn value(&self, schema: &Value, node: &Node, path: &mut Vec<usize>, found: &mut Complaints) {
        // What could not be had has been reported.
        if !self.step(1) || matches!(node.data, Data::Missing) {
            return;
        }
        let depth = self.depth.get();
        if depth >= DEPTH_MAX {
            return self.steps.set(0);
        }
        self.depth.set(depth + 1);
        match schema {
            Value::Bool(false) => found.add(path, Wrong::Other("nothing".to_owned())),
            Value::Object(keywords) => self.keywords(schema, keywords, node, path, found),
            _ => {}
        }
        self.depth.set(depth);
    }

    fn keywords(
        &self,
        schema: &Value,
        keywords: &Map<String, Value>,
        node: &Node,
        path: &mut Vec<usize>,
        found: &mut Complaints,
    ) {
        if let Some(referred) = self.schema.referred(schema) {
            self.value(referred, node, path, found);
        }
        if !is_of_type(schema, node) {
            return found.add(path, Wrong::Type(self.expected(schema)));
        }
        let allowed = keywords.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        if let Some(allowed) = keywords.get("const").map(std::slice::from_ref).or(allowed)
            && self.step(allowed.len())
            && !allowed.iter().any(|value| is_same(node, value))
        {
            found.add(path, Wrong::Value(allowed.iter().take(COMPLAINTS_MAX).map(literal).collect()));
        }
        match &node.data {
            Data::String { text, .. } => self.string(schema, text, path, found),
            Data::Integer(number) => self.number(schema, *number as f64, path, found),
            Data::Float(number) => self.number(schema, *number, path, found),
            Data::Array(items) => self.array(schema, items, path, found),
            Data::Table(_) => self.table(schema, node, path, found),
            Data::Boolean(_) | Data::Missing => {}
        }
        let list = |key: &str| keywords.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        list("allOf").iter().for_each(|part| self.value(part, node, path, found));
        self.forms(list("anyOf"), false, node, path, found);
        self.forms(list("oneOf"), true, node, path, found);
        if keywords.get("not").is_some_and(|not| self.fits(not, node)) {
            found.add(path, Wrong::Other("something else".to_owned()));
        }
        if let Some(condition) = keywords.get("if") {
            let then = if self.fits(condition, node) { "then" } else { "else" };
            keywords.get(then).into_iter().for_each(|then| self.value(then, node, path, found));
        }
    }

    fn fits(&self, schema: &Value, node: &Node) -> bool {
        self.tried(schema, node, &mut Vec::new()).0.is_empty()
    }

    fn tried(&self, schema: &Value, node: &Node, path: &mut Vec<usize>) -> Complaints {
        let mut found = Complaints::default();
        self.value(schema, node, path, &mut found);
        found
    }

    /// One of some forms has to fit, or exactly one.
    fn forms(&self, forms: &[Value], is_one: bool, node: &Node, path: &mut Vec<usize>, found: &mut Complaints) {
        if forms.is_empty() {
            return;
        }
        let tried: Vec<Complaints> = forms.iter().map(|form| self.tried(form, node, path)).collect();
        match tried.iter().filter(|tried| tried.0.is_empty()).count() {
            0 => {}
            1 => return,
            _ if !is_one => return,
            fit => return found.add(path, Wrong::Other(format!("what has one meaning, not {fit}"))),
        }
        nearest_form(&tried, node, path).into_iter().for_each(|complaint| found.add(&complaint.path, complaint.wrong));
    }

    /// What a schema expects, for a message.
    fn expected(&self, schema: &Value) -> Vec<String> {
        if self.step(EXPECTED_STEPS) { alternatives(self.schema, schema) } else { Vec::new() }
    }

    fn string(&self, schema: &Value, text: &str, path: &[usize], found: &mut Complaints) {
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && self.step(text.len())
            && !self.schema.matches(pattern, text)
        {
            found.add(path, Wrong::Type(self.expected(schema)));
        }
        counts(schema, ["minLength", "maxLength"], "characters", || text.chars().count(), path, found);
    }

    fn number(&self, schema: &Value, number: f64, path: &[usize], found: &mut Complaints) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let is_below = bound("minimum").is_some_and(|least| number < least)
            || bound("exclusiveMinimum").is_some_and(|least| number <= least);
        let is_above =
            bound("maximum").is_some_and(|most| number > most) || bound("exclusiveMaximum").is_some_and(|most| number >= most);
        if is_below || is_above {
            let expected = match self.expected(schema) {
                expected if expected.is_empty() => "a number within the bounds of the schema".to_owned(),
                expected => joined(&expected),
            };
            found.add(path, Wrong::Other(expected));
        }
        if let Some(of) = bound("multipleOf") {
            let times = number / of;
            if (times - times.round()).abs() > 1e-9 * times.abs().max(1.0) {
                found.add(path, Wrong::Other(format!("a multiple of {of}")));
            }
        }
    }

    fn array(&self, keywords: &Value, items: &[Node], path: &mut Vec<usize>, found: &mut Complaints) {
        counts(keywords, ["minItems", "maxItems"], "items", || items.len(), path, found);
        let first = keywords.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            if let Some(schema) = first.get(index).or_else(|| keywords.get("items")) {
                path.push(index);
                self.value(schema, item, path, found);
                path.pop();
            }
        }
        if let Some(contains) = keywords.get("contains") {
            let fitting = items.iter().filter(|item| self.fits(contains, item)).count();
            let bound = |key: &str| keywords.get(key).and_then(Value::as_u64);
            if (fitting as u64) < bound("minContains").unwrap_or(1)
                || bound("maxContains").is_some_and(|most| fitting as u64 > most)
            {
                let what = joined(&self.expected(contains));
                found.add(path, Wrong::Other(format!("another number of items that are {what}")));
            }
        }
        if keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
            let mut seen: Vec<String> = items.iter().map(|item| item.to_json().to_string()).collect();
            let bytes: usize = seen.iter().map(String::len).sum();
            seen.sort_unstable();
            if self.step(bytes / 16) && seen.windows(2).any(|pair| pair[0] == pair[1]) {
                found.add(path, Wrong::Other("items that differ".to_owned()));
            }
        }
    }

    fn table(&self, keywords: &Value, node: &Node, path: &mut Vec<usize>, found: &mut Complaints) {
        let entries = node.entries();
        counts(keywords, ["minProperties", "maxProperties"], "keys", || entries.len(), path, found);
        let table = |key: &str| keywords.get(key).and_then(Value::as_object);
        let properties = table("properties");
        let others = keywords.get("additionalProperties");
        let mut unknown: Vec<usize> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            path.push(index);
            let mut is_known = false;
            if let Some(schema) = properties.and_then(|properties| properties.get(&entry.key)) {
                is_known = true;
                self.value(schema, &entry.node, path, found);
            }
            for (pattern, schema) in table("patternProperties").into_iter().flatten() {
                if self.step(1 + entry.key.len()) && self.schema.matches(pattern, &entry.key) {
                    is_known = true;
                    self.value(schema, &entry.node, path, found);
                }
            }
            match others {
                Some(Value::Bool(false)) if !is_known => unknown.push(index),
                Some(schema) if !is_known => self.value(schema, &entry.node, path, found),
                _ => {}
            }
            if let Some(names) = keywords.get("propertyNames") {
                let text = Data::String { text: entry.key.clone(), loose: false };
                let name = Node { origin: entry.key_origin.clone(), data: text };
                if !self.fits(names, &name) {
                    found.add(path, Wrong::Unknown(None));
                }
            }
            path.pop();
        }
        self.required(keywords, entries, &mut unknown, path, found);
        let names: Vec<&str> = properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        for index in unknown {
            path.push(index);
            found.add(path, Wrong::Unknown(suggest(&entries[index].key, &names)));
            path.pop();
        }
        let here = |name: &str| entries.iter().any(|entry| entry.key == name);
        for (_, schema) in table("dependentSchemas").into_iter().flatten().filter(|(name, _)| here(name)) {
            self.value(schema, node, path, found);
        }
    }

    /// Keys that have to be there. A misspelt one is said where it stands.
    fn required(
        &self,
        keywords: &Value,
        entries: &[Entry],
        unknown: &mut Vec<usize>,
        path: &mut Vec<usize>,
        found: &mut Complaints,
    ) {
        let here = |name: &str| entries.iter().any(|entry| entry.key == name);
        let dependent = keywords.get("dependentRequired").and_then(Value::as_object).into_iter().flatten();
        let dependent = dependent.filter(|(name, _)| here(name)).map(|(_, names)| names);
        let lists = keywords.get("required").into_iter().chain(dependent).filter_map(Value::as_array);
        for name in lists.flatten().filter_map(Value::as_str) {
            if !self.step(1) || here(name) {
                continue;
            }
            let near = crate::nearest(name, unknown.iter().map(|&index| entries[index].key.as_str()));
            let misspelt = near.and_then(|near| unknown.iter().position(|&index| entries[index].key == near));
            if let Some(place) = misspelt {
                path.push(unknown.remove(place));
                found.add(path, Wrong::Misspelt(shown(name)));
                path.pop();
                continue;
            }
            let schema = keywords.get("properties").and_then(|properties| properties.get(name));
            let expected = schema.map(|schema| self.expected(schema)).unwrap_or_default();
            found.add(path, Wrong::Missing(shown(name), expected));
        }
    }
}

/// What is wrong with the form that comes nearest, of those of which none fits.
fn nearest_form(tried: &[Complaints], node: &Node, path: &[usize]) -> Vec<Complaint> {
    // Where all stumble over the same thing, that is what is wrong, and any of them would do.
    if let Some(complaint) = common(tried) {
        return vec![complaint];
    }
    // A constant at a key of a table says which form it is, one at an item of an array does not.
    let near = path.len() + usize::from(matches!(node.data, Data::Table(_)));
    let is_meant = |found: &&Complaints| {
        found.0.iter().all(|complaint| match complaint.wrong {
            Wrong::Type(_) => complaint.path.len() > path.len(),
            Wrong::Value(_) => complaint.path.len() > near,
            _ => true,
        })
    };
    match tried.iter().filter(is_meant).min_by_key(|found| found.0.len()) {
        Some(found) => found.0.clone(),
        None => {
            let all = tried.iter().flat_map(|found| &found.0).filter(|complaint| complaint.path.len() == path.len());
            let expected = merged(all.filter_map(|complaint| match &complaint.wrong {
                Wrong::Type(expected) | Wrong::Value(expected) => Some(expected),
                _ => None,
            }));
            vec![Complaint { path: path.to_vec(), wrong: Wrong::Type(expected) }]
        }
    }
}

/// A complaint that all forms have about the same place: the alternatives of all of them together.
fn common(tried: &[Complaints]) -> Option<Complaint> {
    let same = |a: &Complaint, b: &Complaint| {
        a.path == b.path
            && match (&a.wrong, &b.wrong) {
                (Wrong::Missing(a, _), Wrong::Missing(b, _)) => a == b,
                (Wrong::Type(_) | Wrong::Value(_), Wrong::Type(_) | Wrong::Value(_)) => true,
                _ => false,
            }
    };
    let (first, others) = tried.split_first()?;
    let common =
        first.0.iter().find(|complaint| others.iter().all(|found| found.0.iter().any(|other| same(complaint, other))))?;
    let alike = tried.iter().filter_map(|found| found.0.iter().find(|other| same(common, other)));
    let lists = alike.filter_map(|complaint| match &complaint.wrong {
        Wrong::Missing(_, expected) | Wrong::Type(expected) | Wrong::Value(expected) => Some(expected),
        _ => None,
    });
    let expected = merged(lists);
    let wrong = match &common.wrong {
        Wrong::Missing(name, _) => Wrong::Missing(name.clone(), expected),
        Wrong::Value(_) => Wrong::Value(expected),
        _ => Wrong::Type(expected),
    };
    Some(Complaint { path: common.path.clone(), wrong })
}

fn merged<'a>(lists: impl Iterator<Item = &'a Vec<String>>) -> Vec<String> {
    let mut merged: Vec<String> = Vec::new();
    for alternative in lists.flatten() {
        if merged.len() < COMPLAINTS_MAX && !merged.contains(alternative) {
            merged.push(alternative.clone());
        }
    }
    merged
}

fn is_of_type(schema: &Value, node: &Node) -> bool {
    let is = |name: &str| match (&node.data, name) {
        (Data::String { .. }, "string")
        | (Data::Boolean(_), "boolean")
        | (Data::Array(_), "array")
        | (Data::Table(_), "object") => true,
        (Data::Integer(_), "integer" | "number") | (Data::Float(_), "number") => true,
        (Data::Float(number), "integer") => number.fract() == 0.0,
        _ => false,
    };
    match schema.get("type") {
        Some(Value::String(name)) => is(name),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(is),
        _ => true,
    }
}

/// Whether a value is that of a schema. Numbers are the same whether they are written with a point or not.
fn is_same(node: &Node, value: &Value) -> bool {
    match (&node.data, value) {
        (Data::String { text, .. }, Value::String(other)) => text == other,
        (Data::Boolean(one), Value::Bool(other)) => one == other,
        (Data::Integer(number), Value::Number(other)) => {
            other.as_i64().map_or_else(|| other.as_f64() == Some(*number as f64), |other| other == *number)
        }
        (Data::Float(number), Value::Number(other)) => other.as_f64() == Some(*number),
        (Data::Array(items), Value::Array(others)) => {
            items.len() == others.len() && items.iter().zip(others).all(|(item, other)| is_same(item, other))
        }
        (Data::Table(entries), Value::Object(others)) => {
            let same = |entry: &Entry| others.get(&entry.key).is_some_and(|other| is_same(&entry.node, other));
            entries.len() == others.len() && entries.iter().all(same)
        }
        _ => false,
    }
}

/// Bounds of a number of things.
fn counts(
    keywords: &Value,
    [least, most]: [&str; 2],
    things: &str,
    count: impl Fn() -> usize,
    path: &[usize],
    found: &mut Complaints,
) {
    let bound = |key: &str| keywords.get(key).and_then(Value::as_f64);
    let of = |number: f64| if number == 1.0 { things.strip_suffix('s').unwrap_or(things) } else { things };
    if let Some(least) = bound(least).filter(|least| (count() as f64) < *least) {
        found.add(path, Wrong::Other(format!("at least {least} {}", of(least))));
    }
    if let Some(most) = bound(most).filter(|most| count() as f64 > *most) {
        found.add(path, Wrong::Other(format!("at most {most} {}", of(most))));
    }
}
