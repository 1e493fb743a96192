//! Divides rows over the subtasks of a hash exchange, each subtask's ordered by key group.

use crate::{Batch, BatchRef, Blobs, BlobsRef, Extras, KeyGroup, KeyedBatch, Section, key_group_of, subtask_of};

/// Divides rows over the subtasks of a hash exchange. Keeps its scratch space from call to call.
#[derive(Debug)]
pub struct Partitioner {
    key_groups: u16,
    parallelism: u32,
    /// Key group of each row.
    groups: Vec<KeyGroup>,
    /// First slot of each key group in `order`, then one past its last.
    slots: Vec<u32>,
    /// Row numbers ordered by key group.
    order: Vec<u32>,
}

impl Partitioner {
    /// For an exchange to `parallelism` subtasks that share `key_groups`.
    pub fn new(key_groups: u16, parallelism: u32) -> Partitioner {
        Partitioner { key_groups, parallelism, groups: Vec::new(), slots: Vec::new(), order: Vec::new() }
    }

    /// Calls `send` with (subtask, rows) for each subtask that gets any row.
    pub fn partition(&mut self, rows: BatchRef<'_>, mut send: impl FnMut(u32, KeyedBatch)) {
        self.sort(rows);
        let mut first = 0;
        let mut group = 0;
        while first < self.order.len() {
            while self.slots[usize::from(group)] as usize == first {
                group += 1;
            }
            let subtask = subtask_of(group, self.key_groups, self.parallelism);
            let mut last = group;
            while last + 1 < self.key_groups && subtask_of(last + 1, self.key_groups, self.parallelism) == subtask {
                last += 1;
            }
            let end = self.slots[usize::from(last)] as usize;
            send(subtask, self.gather(rows, group, last, first..end));
            first = end;
            group = last;
        }
    }

    /// Counting sort of row numbers by key group. Afterwards `slots[g]` is one past the last slot of group `g`.
    fn sort(&mut self, rows: BatchRef<'_>) {
        self.groups.clear();
        self.slots.clear();
        self.slots.resize(usize::from(self.key_groups), 0);
        for key in rows.keys.iter() {
            let group = key_group_of(key, self.key_groups);
            self.groups.push(group);
            self.slots[usize::from(group)] += 1;
        }
        let mut next = 0;
        for slot in &mut self.slots {
            next += std::mem::replace(slot, next);
        }
        self.order.clear();
        self.order.resize(rows.len(), 0);
        for (row, &group) in self.groups.iter().enumerate() {
            let slot = &mut self.slots[usize::from(group)];
            self.order[*slot as usize] = row as u32;
            *slot += 1;
        }
    }

    /// Copies the rows of key groups `first..=last`, which are at `order[range]`.
    fn gather(&self, rows: BatchRef<'_>, first: KeyGroup, last: KeyGroup, range: std::ops::Range<usize>) -> KeyedBatch {
        let start = range.start;
        let order = &self.order[range];
        let mut sections = Vec::with_capacity(usize::from(last - first) + 1);
        let mut from = 0;
        for group in first..=last {
            let to = self.slots[usize::from(group)] as usize - start;
            if to > from {
                sections.push(Section { key_group: group, rows_end: to as u32, ..Section::default() });
                from = to;
            }
        }
        let timestamps = order.iter().map(|&row| rows.timestamps[row as usize]).collect();
        let keys = gather_column(rows.keys, order, &mut sections, |section, end| section.key_bytes_end = end);
        let values = gather_column(rows.values, order, &mut sections, |section, end| section.value_bytes_end = end);
        let plain = rows.extras.is_none_or(|extras| order.iter().all(|&row| extras.is_plain_at(row as usize)));
        let extras = rows.extras.filter(|_| !plain).map(|extras| {
            let headers = gather_column(extras.headers, order, &mut sections, |section, end| section.header_bytes_end = end);
            Box::new(Extras { absent: order.iter().map(|&row| extras.absent[row as usize]).collect(), headers })
        });
        KeyedBatch::of_checked(Batch { timestamps, keys, values, extras }, sections)
    }
}

/// Copies the items `order` of a column, with `ends` that restart in every section.
fn gather_column(column: BlobsRef<'_>, order: &[u32], sections: &mut [Section], set_end: impl Fn(&mut Section, u32)) -> Blobs {
    if let Some(width) = column.uniform_width() {
        return gather_uniform(column, width, order, sections, set_end);
    }
    let mut out = Blobs::with_capacity(order.len(), column.bytes.len() * order.len() / column.len().max(1));
    let mut from = 0;
    for section in sections {
        let base = out.bytes.len();
        for &row in &order[from..section.rows_end as usize] {
            out.bytes.extend_from_slice(column.get(row as usize));
            out.ends.push((out.bytes.len() - base) as u32);
        }
        from = section.rows_end as usize;
        set_end(section, out.bytes.len() as u32);
    }
    out
}

/// The same where all items are equally wide.
fn gather_uniform(
    column: BlobsRef<'_>,
    width: usize,
    order: &[u32],
    sections: &mut [Section],
    set_end: impl Fn(&mut Section, u32),
) -> Blobs {
    let mut out = Blobs::with_capacity(order.len(), order.len() * width);
    out.gather_uniform(column, width, order);
    let mut from = 0;
    for section in sections {
        let rows = section.rows_end as usize - from;
        out.ends.extend((1..=rows).map(|n| (n * width) as u32));
        from = section.rows_end as usize;
        set_end(section, (from * width) as u32);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyedBatchError;

    #[test]
    fn the_parts_within_all_ranges_are_the_whole() {
        let mut rows = Batch::default();
        (0..1_000i64).for_each(|n| rows.push(n, format!("key{n}").as_bytes(), n.to_string().as_bytes()));
        let mut whole = Vec::new();
        Partitioner::new(12, 1).partition(rows.view(), |_, keyed| whole.push(keyed));
        let mut seen = Vec::new();
        for subtask in 0..5 {
            let groups = crate::KeyGroupRange::of(subtask, 12, 5);
            let part = whole[0].within(groups).unwrap();
            assert!(part.sections().all(|(group, _)| groups.contains(group)));
            assert!(KeyedBatch::from_parts(part.columns().clone(), part.section_ends().to_vec()).is_ok());
            seen.extend(part.sections().flat_map(|(group, rows)| {
                rows.rows().map(|row| (group, row.timestamp, row.value_bytes().to_vec())).collect::<Vec<_>>()
            }));
        }
        let all: Vec<_> = whole[0]
            .sections()
            .flat_map(|(group, rows)| {
                rows.rows().map(|row| (group, row.timestamp, row.value_bytes().to_vec())).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(seen, all);
        assert_eq!(whole[0].within(crate::KeyGroupRange { start: 12, end: 20 }), None);
    }
    use std::collections::BTreeMap;

    /// Rows with keys of differing or equal widths.
    fn rows(count: usize, width: impl Fn(usize) -> usize) -> Batch {
        let mut batch = Batch::default();
        for i in 0..count {
            let key = format!("{:0width$}", i * 7919 % 97, width = width(i));
            batch.push(i as i64, key.as_bytes(), &i.to_le_bytes());
        }
        batch
    }

    fn check(batch: &Batch, key_groups: u16, parallelism: u32) {
        let mut partitioner = Partitioner::new(key_groups, parallelism);
        for _ in 0..2 {
            let mut per_key: BTreeMap<Vec<u8>, Vec<(i64, Vec<u8>)>> = BTreeMap::new();
            let mut total = 0;
            partitioner.partition(batch.view(), |subtask, keyed| {
                total += keyed.len();
                let mut last = None;
                for (group, section) in keyed.sections() {
                    assert!(section.is_valid() && !section.is_empty());
                    assert!(last < Some(group), "one section a group, ascending");
                    last = Some(group);
                    assert_eq!(subtask_of(group, key_groups, parallelism), subtask);
                    for row in section.rows() {
                        assert_eq!(key_group_of(row.key_bytes(), key_groups), group);
                        per_key.entry(row.key_bytes().to_vec()).or_default().push((row.timestamp, row.value_bytes().to_vec()));
                    }
                }
            });
            let mut expected: BTreeMap<Vec<u8>, Vec<(i64, Vec<u8>)>> = BTreeMap::new();
            for row in batch.rows() {
                expected.entry(row.key_bytes().to_vec()).or_default().push((row.timestamp, row.value_bytes().to_vec()));
            }
            assert_eq!(total, batch.len());
            assert_eq!(per_key, expected);
        }
    }

    #[test]
    fn every_row_arrives_once_in_order_at_the_owner_of_its_group() {
        for (groups, parallelism) in [(128, 1), (128, 2), (128, 5), (5, 8), (1, 1)] {
            for count in [0, 1, 3, 1_000] {
                check(&rows(count, |_| 8), groups, parallelism);
                check(&rows(count, |_| 3), groups, parallelism);
                check(&rows(count, |i| i % 5), groups, parallelism);
            }
        }
    }

    #[test]
    fn rows_without_keys_share_one_group() {
        let mut batch = Batch::default();
        for i in 0..10 {
            batch.push(i, b"", b"v");
        }
        check(&batch, 128, 3);
    }

    #[test]
    fn parts_make_a_batch_only_if_everything_agrees() {
        let mut whole = None;
        Partitioner::new(8, 1).partition(rows(20, |i| i % 5).view(), |_, keyed| whole = Some(keyed));
        let whole = whole.unwrap();
        let (columns, sections) = (whole.columns().clone(), whole.section_ends().to_vec());
        assert_eq!(KeyedBatch::from_parts(columns.clone(), sections.clone()), Ok(whole));
        assert_eq!(KeyedBatch::from_parts(Batch::default(), Vec::new()), Ok(KeyedBatch::default()));

        let with = |change: &dyn Fn(&mut Batch, &mut Vec<Section>)| {
            let (mut columns, mut sections) = (columns.clone(), sections.clone());
            change(&mut columns, &mut sections);
            KeyedBatch::from_parts(columns, sections).unwrap_err()
        };
        assert_eq!(with(&|c, _| c.timestamps.push(0)), KeyedBatchError::ColumnsDiffer);
        assert_eq!(with(&|_, s| s[1].key_group = s[0].key_group), KeyedBatchError::Disordered { section: 1 });
        assert_eq!(with(&|_, s| s[1].rows_end = s[0].rows_end), KeyedBatchError::Disordered { section: 1 });
        assert_eq!(with(&|_, s| s[0].rows_end = 0), KeyedBatchError::Disordered { section: 0 });
        assert_eq!(with(&|_, s| s[0].key_bytes_end = u32::MAX), KeyedBatchError::Disordered { section: 1 });
        assert_eq!(with(&|_, s| s[0].key_group = u16::MAX), KeyedBatchError::KeyGroupTooLarge { key_group: u16::MAX });
        assert_eq!(with(&|_, s| s.clear()), KeyedBatchError::EndsElsewhere);
        assert_eq!(with(&|c, _| c.values.bytes.push(0)), KeyedBatchError::EndsElsewhere);
        assert_eq!(with(&|c, _| c.values.ends[0] += 1000), KeyedBatchError::ItemsDisagree { section: 0 });
    }
}
