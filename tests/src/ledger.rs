//! Accounts with amounts: what a job reads, and what must come out of it, computed without Weir.

use std::collections::BTreeMap;

use crate::output::Row;
use crate::process::World;
use crate::random::Random;

/// Per key, its count and total after each of its rows, in order.
pub(crate) type Sums = BTreeMap<String, Vec<(u64, String)>>;

/// What a job reads, and what must come out of it.
pub struct Ledger {
    files: Vec<String>,
    /// What must come out.
    pub expected: Sums,
    /// Lines that must become dead letters, sorted.
    pub malformed: Vec<String>,
}

/// How rows come to be.
pub struct Amounts {
    /// Files they stand in. Each key stands in one file only, so that the order of its rows is defined.
    pub files: usize,
    /// Rows in all.
    pub rows: u64,
    /// Different keys at most.
    pub keys: u64,
    /// Of a hundred rows, how many have the first key beside those it gets anyway.
    pub skew: u64,
    /// One of so many rows is malformed.
    pub malformed: u64,
    /// What keys begin with.
    pub prefix: &'static str,
}

impl Default for Amounts {
    fn default() -> Amounts {
        Amounts { files: 2, rows: 100_000, keys: 200, skew: 0, malformed: 5_000, prefix: "account" }
    }
}

impl Ledger {
    /// Makes rows.
    pub fn new(random: &mut Random, amounts: &Amounts) -> Ledger {
        let mut ledger = Ledger { files: vec![String::new(); amounts.files], expected: BTreeMap::new(), malformed: Vec::new() };
        let mut sums: BTreeMap<String, (u64, i64)> = BTreeMap::new();
        for row in 0..amounts.rows {
            let number = if random.below(100) < amounts.skew { 0 } else { random.below(amounts.keys) };
            let file = &mut ledger.files[number as usize % amounts.files];
            if random.below(amounts.malformed) == 0 {
                let line = format!("malformed {row}");
                *file += &format!("{line}\n");
                ledger.malformed.push(line);
                continue;
            }
            let key = format!("{}-{number}", amounts.prefix);
            let cents = random.below(2_000_000) as i64 - 1_000_000;
            *file += &format!("{{\"account\":\"{key}\",\"at\":{row},\"amount\":{}}}\n", amount(cents));
            let (count, sum) = sums.entry(key.clone()).or_default();
            *count += 1;
            *sum += cents;
            ledger.expected.entry(key).or_default().push((*count, amount(*sum)));
        }
        ledger.malformed.sort();
        ledger
    }

    /// Writes the files into a folder.
    pub fn write(&self, world: &World, folder: &str) {
        for (number, content) in self.files.iter().enumerate() {
            world.write(&format!("{folder}/{number}.jsonl"), content);
        }
    }

    /// Rows that come out.
    pub fn len(&self) -> u64 {
        self.expected.values().map(|rows| rows.len() as u64).sum()
    }

    /// Whether nothing comes out.
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// How what came out differs, where every row must be there once and in order; none if it does not.
    pub fn difference(&self, rows: &[Row]) -> Option<String> {
        let found = sums(rows);
        if let Some(key) = found.keys().find(|key| !self.expected.contains_key(*key)) {
            return Some(format!("{key} was never there"));
        }
        self.expected.iter().find_map(|(key, expected)| {
            let found = found.get(key).map_or(&[][..], Vec::as_slice);
            difference(key, expected, found)
        })
    }

    /// The same, where rows of a key may come in another order: every count is there once, and the last has the whole sum.
    pub fn difference_without_order(&self, rows: &[Row]) -> Option<String> {
        let mut found = sums(rows);
        if let Some(key) = found.keys().find(|key| !self.expected.contains_key(*key)) {
            return Some(format!("{key} was never there"));
        }
        self.expected.iter().find_map(|(key, expected)| {
            let mut found = found.remove(key).unwrap_or_default();
            found.sort();
            let last = found.last() != expected.last();
            let counts = |rows: &[(u64, String)]| rows.iter().map(|(count, _)| (*count, String::new())).collect::<Vec<_>>();
            difference(key, &counts(expected), &counts(&found))
                .or_else(|| last.then(|| format!("{key}: the last is {:?} instead of {:?}", found.last(), expected.last())))
        })
    }

    /// The same, where each row reaches that many instances, and each of them says its sums.
    pub fn difference_of_copies(&self, rows: &[Row], copies: usize) -> Option<String> {
        let mut found = sums(rows);
        if let Some(key) = found.keys().find(|key| !self.expected.contains_key(*key)) {
            return Some(format!("{key} was never there"));
        }
        self.expected.iter().find_map(|(key, expected)| {
            let mut found = found.remove(key).unwrap_or_default();
            found.sort();
            let expected: Vec<_> = expected.iter().flat_map(|row| std::iter::repeat_n(row.clone(), copies)).collect();
            difference(key, &expected, &found)
        })
    }
}

fn difference(key: &str, expected: &[(u64, String)], found: &[(u64, String)]) -> Option<String> {
    let place = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    (found != expected).then(|| {
        format!(
            "{key}: {} rows came out, {} should have; they differ at {place}: {:?} instead of {:?}",
            found.len(),
            expected.len(),
            found.get(place),
            expected.get(place),
        )
    })
}

/// Cents as a decimal number, without trailing zeros: as the operator prints it.
fn amount(cents: i64) -> String {
    let text = format!("{}{}.{:02}", if cents < 0 { "-" } else { "" }, cents.abs() / 100, cents.abs() % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Per key, what came out, in the order of checkpoints.
///
/// # Panics
/// If a row has no count.
pub fn sums(rows: &[Row]) -> Sums {
    let mut found = Sums::new();
    for row in rows {
        let count = row.value["count"].as_u64().expect("a count");
        found.entry(row.key.clone()).or_default().push((count, row.value["total"].to_string()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(ledger: &Ledger) -> Vec<Row> {
        let row = |key: &String, (count, total): &(u64, String)| Row {
            file: String::new(),
            key: key.clone(),
            time: String::new(),
            value: serde_json::from_str(&format!("{{\"count\":{count},\"total\":{total}}}")).expect("JSON"),
        };
        ledger.expected.iter().flat_map(|(key, sums)| sums.iter().map(move |sum| row(key, sum))).collect()
    }

    #[test]
    fn what_is_missing_twice_or_out_of_order_is_seen() {
        let ledger = Ledger::new(&mut Random::new(1), &Amounts { rows: 300, keys: 3, ..Amounts::default() });
        let good = rows(&ledger);
        assert_eq!(ledger.difference(&good), None);
        assert_eq!(ledger.difference_without_order(&good), None);
        let twice: Vec<Row> = good.iter().flat_map(|row| [row.clone(), row.clone()]).collect();
        assert_eq!(ledger.difference_of_copies(&twice, 2), None);
        for (what, change) in [
            ("missing", Box::new(|rows: &mut Vec<Row>| drop(rows.remove(7))) as Box<dyn Fn(&mut Vec<Row>)>),
            ("twice", Box::new(|rows: &mut Vec<Row>| rows.insert(7, rows[7].clone()))),
            ("wrong", Box::new(|rows: &mut Vec<Row>| rows[7].value["count"] = 1_000.into())),
        ] {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(ledger.difference(&bad).is_some(), "{what}");
            assert!(ledger.difference_without_order(&bad).is_some(), "{what}");
            assert!(ledger.difference_of_copies(&bad, 1).is_some(), "{what}");
        }
        let mut swapped = good;
        swapped.swap(7, 8);
        assert!(ledger.difference(&swapped).is_some());
        assert_eq!(ledger.difference_without_order(&swapped), None);
    }
}
