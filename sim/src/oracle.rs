//! What the output of a job must be, computed from its input without Weir.

use std::collections::{BTreeMap, BTreeSet};

use crate::operators::digest;
use crate::outside::Record;
use crate::scenario::{DIGEST, Input, Mode, RowId, Scenario, Shape};

/// Complaints about one kind of thing that are listed.
const LISTED_MAX: usize = 5;

/// What a sink must have got.
#[derive(Default)]
struct Output {
    /// By id: the key, and how many copies. All copies differ in their number, where they are numbered.
    rows: BTreeMap<RowId, (Option<Vec<u8>>, u32)>,
    /// Rows of a key are numbered from 1.
    numbered: bool,
    /// What operators say at their end.
    digest: Option<(u32, u64)>,
}

fn ids(input: &Input, source: usize) -> impl Iterator<Item = RowId> {
    let splits = input.sources[source].iter().enumerate();
    splits.flat_map(move |(split, of)| (0..of.rows).map(move |row| Input::id(source, split, row)))
}

fn expected(scenario: &Scenario) -> BTreeMap<&'static str, Output> {
    let input = &scenario.input;
    let from = |source: usize, fan: u8| {
        let copies = move |id: RowId| {
            (0..fan).map(move |copy| {
                let mut id = id;
                id[6] = copy;
                id
            })
        };
        ids(input, source).flat_map(copies).map(|id| (id, (input.key(&id), 1))).collect::<BTreeMap<_, _>>()
    };
    let fan = match scenario.shape {
        Shape::Hash | Shape::UnionHash | Shape::TwoInput => 1,
        Shape::Rebalance | Shape::UnionForward | Shape::Broadcast | Shape::Deep => scenario.fan,
    };
    let mut out = Output { rows: from(0, fan), numbered: true, digest: None };
    let mut sinks = BTreeMap::new();
    match scenario.shape {
        Shape::Hash | Shape::Rebalance | Shape::Deep => {}
        Shape::UnionForward => out.rows.extend(from(1, fan)),
        Shape::UnionHash => {
            out.rows.extend(from(1, fan));
            sinks.insert("out2", Output { rows: from(0, 1), numbered: false, digest: None });
        }
        Shape::TwoInput => {
            // Each key group has its own instance, and each gives the row once.
            let broadcast = ids(input, 1).map(|id| (id, (None, u32::from(scenario.key_groups))));
            out.rows.extend(broadcast);
        }
        Shape::Broadcast => {
            let all: Vec<RowId> = ids(input, 1).collect();
            let digest = Some((all.len() as u32, digest(all.iter())));
            sinks.insert("out2", Output { rows: BTreeMap::new(), numbered: false, digest });
        }
    }
    sinks.insert("out", out);
    sinks
}

/// Compares what sinks have committed with what they must have. Gives what is wrong.
pub(crate) fn check(scenario: &Scenario, output: &BTreeMap<String, Vec<Record>>, exactly_once: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let none = Vec::new();
    for (sink, expected) in expected(scenario) {
        let records = output.get(sink).unwrap_or(&none);
        let mut complaints = Complaints { sink, of: BTreeMap::new() };
        rows(&expected, records, exactly_once, &mut complaints);
        if exactly_once && expected.numbered {
            numbers(records, &mut complaints);
            if scenario.keeps_order() {
                order(records, &mut complaints);
            }
        }
        ends(&expected, records, exactly_once, &mut complaints);
        wrong.extend(complaints.list());
    }
    let unknown = output.keys().filter(|sink| !["out", "out2"].contains(&sink.as_str()));
    wrong.extend(unknown.map(|sink| format!("{sink}: there is no such sink")));
    wrong
}

/// What is wrong with one sink, by kind.
struct Complaints {
    sink: &'static str,
    of: BTreeMap<&'static str, Vec<String>>,
}

impl Complaints {
    fn add(&mut self, kind: &'static str, what: String) {
        self.of.entry(kind).or_default().push(what);
    }

    fn list(self) -> Vec<String> {
        let sink = self.sink;
        let list = |(kind, all): (&str, Vec<String>)| {
            let some = all.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
            format!("{sink}: {} {kind}: {some}", all.len())
        };
        self.of.into_iter().map(list).collect()
    }
}

fn rows(expected: &Output, records: &[Record], exactly_once: bool, complaints: &mut Complaints) {
    let mut found: BTreeMap<RowId, u32> = BTreeMap::new();
    for record in records.iter().filter(|record| record.id[0] != DIGEST) {
        *found.entry(record.id).or_default() += 1;
        match expected.rows.get(&record.id) {
            None => complaints.add("rows that nobody sent", format!("{:?}", record.id)),
            Some((key, _)) if *key != record.key => complaints.add("rows with another key", format!("{:?}", record.id)),
            Some(_) if !record.whole => complaints.add("rows that are not whole", format!("{:?}", record.id)),
            Some((_, copies)) if exactly_once && *copies > 1 && record.number != 1 => {
                complaints.add("broadcast rows that one key group had again", format!("{:?}: {}", record.id, record.number));
            }
            Some(_) => {}
        }
    }
    for (id, (_, copies)) in &expected.rows {
        let count = found.get(id).copied().unwrap_or(0);
        if count < *copies {
            complaints.add("rows lost", format!("{id:?}: {count} of {copies}"));
        } else if exactly_once && count > *copies {
            complaints.add("rows too many", format!("{id:?}: {count} of {copies}"));
        }
    }
}

/// Rows of a key are numbered from 1 to how many there are: what the operator remembers is exactly once, too.
fn numbers(records: &[Record], complaints: &mut Complaints) {
    let mut numbers: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
    for (record, key) in records.iter().filter_map(|record| Some((record, record.key.as_deref()?))) {
        numbers.entry(key).or_default().push(record.number);
    }
    for (key, mut numbers) in numbers {
        numbers.sort_unstable();
        if numbers.iter().zip(1..).any(|(number, expected)| *number != expected) {
            complaints.add("keys that were counted wrong", format!("{}: {numbers:?}", String::from_utf8_lossy(key)));
        }
    }
}

/// Key, source and split.
type Lane<'a> = (&'a [u8], u8, u8);

/// Rows of one split and key were counted in the order in which the split has them.
fn order(records: &[Record], complaints: &mut Complaints) {
    let mut by_key: BTreeMap<Lane<'_>, Vec<(u32, u32)>> = BTreeMap::new();
    for (record, key) in records.iter().filter_map(|record| Some((record, record.key.as_deref()?))) {
        let [source, split, a, b, c, d, _] = record.id;
        let row = u32::from_le_bytes([a, b, c, d]);
        by_key.entry((key, source, split)).or_default().push((record.number, row));
    }
    for ((key, source, split), mut rows) in by_key {
        rows.sort_unstable();
        if !rows.is_sorted_by_key(|(_, row)| *row) {
            let key = String::from_utf8_lossy(key);
            complaints.add("keys out of order", format!("{key} of split {split} of source {source}: {rows:?}"));
        }
    }
}

/// What operators said at their end is about all rows.
fn ends(expected: &Output, records: &[Record], exactly_once: bool, complaints: &mut Complaints) {
    let said: Vec<(u32, u64)> = records.iter().filter(|of| of.id[0] == DIGEST).map(|of| (of.number, of.digest)).collect();
    match expected.digest {
        None if said.is_empty() => {}
        None => complaints.add("ends that nobody said", format!("{said:?}")),
        Some(_) if said.is_empty() => complaints.add("ends missing", String::new()),
        Some(digest) => {
            let others: BTreeSet<&(u32, u64)> = said.iter().filter(|said| **said != digest).collect();
            if exactly_once && !others.is_empty() {
                complaints.add("ends after other rows", format!("{others:?}, it should be {digest:?}"));
            }
        }
    }
}

/// Whether the output is held to exactly once.
pub(crate) fn is_exactly_once(scenario: &Scenario) -> bool {
    matches!(scenario.mode, Mode::ExactlyOnce(_))
}
