//! Batches against the plainest model of them there is: a list of rows.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{
    Batch, BatchRef, Blobs, Extras, KeyGroup, KeyGroupRange, KeyedBatch, KeyedBatchError, Partitioner, RowRef, key_group_of,
    push_header, subtask_of,
};

/// A row that owns what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<u8>,
}

impl Row {
    fn of(row: RowRef<'_>) -> Row {
        let (key, value) = (row.key.map(<[u8]>::to_vec), row.value.map(<[u8]>::to_vec));
        Row { timestamp: row.timestamp, key, value, headers: row.headers.to_vec() }
    }

    fn view(&self) -> RowRef<'_> {
        RowRef { timestamp: self.timestamp, key: self.key.as_deref(), value: self.value.as_deref(), headers: &self.headers }
    }
}

fn batch_of(rows: &[Row]) -> Batch {
    let mut batch = Batch::default();
    rows.iter().for_each(|row| batch.push_row(row.view()));
    batch
}

fn rows_of(batch: BatchRef<'_>) -> Vec<Row> {
    batch.rows().map(Row::of).collect()
}

/// A batch is these rows: by every way to read it, and equal to one that was made of them one by one.
fn check(batch: &Batch, rows: &[Row]) {
    let view = batch.view();
    assert!(view.is_valid(), "{batch:?}");
    assert_eq!(rows_of(view), rows);
    assert_eq!((0..view.len()).map(|row| Row::of(view.row(row))).collect::<Vec<_>>(), rows);
    assert_eq!(*batch, batch_of(rows));
    assert_eq!(batch.extras.is_some(), rows.iter().any(|row| !row.view().is_plain()), "extras only where they say something");
}

prop_compose! {
    fn headers()(pairs in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..3), prop::collection::vec(any::<u8>(), 0..5)), 0..3)) -> Vec<u8> {
        let mut headers = Vec::new();
        pairs.iter().for_each(|(name, value)| push_header(&mut headers, name, value));
        headers
    }
}

prop_compose! {
    fn row(odd: bool)(
        timestamp in any::<i64>(),
        key in prop::option::weighted(0.7, prop::collection::vec(0u8..4, 0..4)),
        value in prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..20)),
        headers in headers(),
    ) -> Row {
        if odd {
            Row { timestamp, key, value, headers }
        } else {
            Row { timestamp, key: Some(key.unwrap_or_default()), value: Some(value.unwrap_or_default()), headers: Vec::new() }
        }
    }
}

prop_compose! {
    /// Rows of one width or of many, all plain, or some, or none.
    fn rows()(odd in prop::collection::vec(any::<bool>(), 1..4), wide in any::<bool>())
        (mut rows in odd.iter().map(|&odd| prop::collection::vec(row(odd), 0..12)).collect::<Vec<_>>(), wide in Just(wide)) -> Vec<Row> {
        let mut rows: Vec<Row> = rows.drain(..).flatten().collect();
        if wide {
            rows.iter_mut().filter_map(|row| row.value.as_mut()).for_each(|value| value.resize(8, 7));
        }
        rows
    }
}

proptest! {
    #[test]
    fn s114_rows_appended_in_any_way_stay_as_they_were(steps in prop::collection::vec((0u8..7, rows(), any::<prop::sample::Index>(), any::<prop::sample::Index>(), prop::collection::vec(any::<prop::sample::Index>(), 0..20)), 0..8)) {
        let (mut batch, mut model) = (Batch::default(), Vec::<Row>::new());
        for (step, rows, from, to, picks) in steps {
            let other = batch_of(&rows);
            let (from, to) = (from.index(rows.len() + 1), to.index(rows.len() + 1));
            let range = from.min(to)..from.max(to);
            let picked: Vec<u32> = if rows.is_empty() { Vec::new() } else { picks.iter().map(|pick| pick.index(rows.len()) as u32).collect() };
            match step {
                0 => {
                    rows.iter().for_each(|row| batch.push_row(row.view()));
                    model.extend(rows);
                }
                1 => {
                    batch.push(1, b"key", b"value");
                    model.push(Row::of(RowRef::new(1, b"key", b"value")));
                }
                2 => {
                    batch.extend(other.view());
                    model.extend(rows);
                }
                3 => {
                    batch.extend_range(other.view(), range.clone());
                    model.extend_from_slice(&rows[range]);
                }
                4 => {
                    // As it comes, and in runs.
                    let runs: Vec<u32> = range.clone().chain(range).map(|row| row as u32).collect();
                    for numbers in [picked, runs] {
                        batch.gather(other.view(), &numbers);
                        model.extend(numbers.iter().map(|&row| rows[row as usize].clone()));
                    }
                }
                5 => {
                    let mut values = Blobs::default();
                    let says_absent = to % 2 == 0;
                    let mut absent = Vec::new();
                    for (at, &row) in picked.iter().enumerate() {
                        let value = vec![at as u8; at % 5];
                        let is_absent = says_absent && at % 3 == 0;
                        values.push(if is_absent { b"" } else { &value });
                        absent.push(if is_absent { Extras::VALUE_ABSENT } else { 0 });
                        model.push(Row { value: (!is_absent).then_some(value), ..rows[row as usize].clone() });
                    }
                    batch.gather_with_values(other.view(), &picked, values.view(), says_absent.then_some(&absent));
                }
                _ => {
                    let len = from.min(model.len());
                    batch.truncate(len);
                    model.truncate(len);
                }
            }
            check(&batch, &model);
        }
        batch.clear();
        check(&batch, &[]);
    }

    #[test]
    fn s114_rows_pass_the_partitioner_and_what_divides_its_batches_as_they_were(rows in rows(), key_groups in 1u16..20, parallelism in 1u32..4, first in any::<prop::sample::Index>()) {
        let batch = batch_of(&rows);
        let mut expected = BTreeMap::<KeyGroup, Vec<Row>>::new();
        rows.iter().for_each(|row| expected.entry(key_group_of(row.view().key_bytes(), key_groups)).or_default().push(row.clone()));
        let mut found = BTreeMap::new();
        let mut all = Vec::new();
        Partitioner::new(key_groups, parallelism).partition(batch.view(), |subtask, keyed| all.push((subtask, keyed)));
        for (subtask, keyed) in &all {
            let again = KeyedBatch::from_parts(keyed.columns().clone(), keyed.section_ends().to_vec());
            prop_assert_eq!(again.as_ref(), Ok(keyed), "the partitioner makes what a peer's frame must be");
            prop_assert_eq!(keyed.columns().extras.is_some(), keyed.sections().any(|(_, rows)| rows.rows().any(|row| !row.is_plain())));
            for (group, section) in keyed.sections() {
                prop_assert_eq!(subtask_of(group, key_groups, parallelism), *subtask);
                prop_assert_eq!(section.extras.is_some(), section.rows().any(|row| !row.is_plain()), "only where they say something");
                let section_rows = rows_of(section);
                check(&section.to_batch(), &section_rows);
                prop_assert!(found.insert(group, section_rows).is_none());
            }
            let halves = [KeyGroupRange { start: 0, end: key_groups / 2 }, KeyGroupRange { start: key_groups / 2, end: key_groups }];
            let joined: Vec<_> = halves.iter().filter_map(|half| keyed.within(*half)).collect();
            prop_assert_eq!(joined.iter().flat_map(sections_of).collect::<Vec<_>>(), sections_of(keyed));
            let (_, section) = keyed.section(0);
            let first = first.index(section.len());
            let rest: Vec<Row> = sections_of(keyed).into_iter().flat_map(|(_, rows)| rows).skip(first).collect();
            prop_assert_eq!(sections_of(&keyed.rest(0, first)).into_iter().flat_map(|(_, rows)| rows).collect::<Vec<_>>(), rest);
            for part in joined.iter().chain([&keyed.rest(0, first)]) {
                let again = KeyedBatch::from_parts(part.columns().clone(), part.section_ends().to_vec());
                prop_assert_eq!(again.as_ref(), Ok(part));
            }
        }
        prop_assert_eq!(found, expected);
    }
}

fn sections_of(keyed: &KeyedBatch) -> Vec<(KeyGroup, Vec<Row>)> {
    keyed.sections().map(|(group, rows)| (group, rows_of(rows))).collect()
}

#[test]
fn extras_that_disagree_with_their_rows_are_refused() {
    let mut batch = Batch::default();
    batch.push(1, b"key", b"value");
    batch.push_row(RowRef { timestamp: 2, ..RowRef::default() });
    let mut headers = Vec::new();
    push_header(&mut headers, b"name", b"value");
    batch.push_row(RowRef { headers: &headers, ..RowRef::new(3, b"", b"") });
    assert!(batch.view().is_valid());

    let spoilt = |spoil: &dyn Fn(&mut Extras)| {
        let mut batch = batch.clone();
        spoil(batch.extras.as_mut().unwrap());
        let mut sections = Vec::new();
        Partitioner::new(1, 1).partition(batch.view(), |_, keyed| sections = keyed.section_ends().to_vec());
        (batch.view().is_valid(), KeyedBatch::from_parts(batch, sections).map(|_| ()))
    };
    let disagrees = (false, Err(KeyedBatchError::ItemsDisagree { section: 0 }));
    assert_eq!(spoilt(&|_| ()), (true, Ok(())));
    assert_eq!(spoilt(&|extras| extras.absent[0] = Extras::KEY_ABSENT), disagrees, "an absent key of three bytes");
    assert_eq!(spoilt(&|extras| extras.absent[0] = Extras::VALUE_ABSENT), disagrees);
    assert_eq!(spoilt(&|extras| extras.absent[2] = 4), disagrees, "a bit that says nothing");
    assert_eq!(spoilt(&|extras| extras.headers.bytes[0] += 1), disagrees);
    assert_eq!(spoilt(&|extras| extras.headers.ends[1] = 1), disagrees, "headers that are cut");
    let shorter = (false, Err(KeyedBatchError::ColumnsDiffer));
    let checked = |spoil: &dyn Fn(&mut Extras)| {
        let mut batch = batch.clone();
        spoil(batch.extras.as_mut().unwrap());
        (batch.view().is_valid(), KeyedBatch::from_parts(batch, Vec::new()).map(|_| ()))
    };
    assert_eq!(checked(&|extras| extras.absent.truncate(2)), shorter);
    assert_eq!(checked(&|extras| extras.headers.ends.truncate(2)), shorter);
}

#[test]
fn ends_of_headers_are_checked_also_in_a_section_that_has_none() {
    let mut batch = Batch::default();
    (0..40u8).for_each(|n| batch.push_row(RowRef { key: (n > 0).then_some(&[n]), ..RowRef::new(0, b"", b"") }));
    let mut whole = KeyedBatch::default();
    Partitioner::new(4, 1).partition(batch.view(), |_, keyed| whole = keyed);
    let odd = key_group_of(b"", 4);
    let at = whole.section_ends().iter().position(|section| section.key_group != odd).unwrap();
    let mut columns = whole.columns().clone();
    let last_row = whole.section_ends()[at].rows_end as usize - 1;
    columns.extras.as_mut().unwrap().headers.ends[last_row] = 1;
    let error = KeyedBatch::from_parts(columns, whole.section_ends().to_vec());
    assert_eq!(error, Err(KeyedBatchError::ItemsDisagree { section: at }));
}

#[test]
fn ends_that_fall_are_found_wherever_they_are() {
    for len in [0, 1, 2, 63, 64, 65, 127, 128, 129, 200] {
        let items = vec![&b"ab"[..]; len];
        let blobs: Blobs = items.into_iter().collect();
        assert!(blobs.view().is_valid());
        for at in 0..len.saturating_sub(1) {
            let mut wrong = blobs.clone();
            wrong.ends[at] = wrong.ends[at + 1] + 1;
            assert!(!wrong.view().is_valid(), "{at} of {len}");
        }
    }
}
