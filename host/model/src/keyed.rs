//! Rows on their way over a hash exchange: ordered by key group by the sender, so that the receiver hands each
//! instance slices of the columns without touching a row.

use crate::{Batch, BatchRef, Blobs, BlobsRef, KeyGroup, key_group_of, subtask_of};

/// Where the rows of one key group end in a [`KeyedBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The key group of all rows in the section.
    pub key_group: KeyGroup,
    /// One past its last row.
    pub rows_end: u32,
    /// One past its last byte of keys.
    pub key_bytes_end: u32,
    /// One past its last byte of values.
    pub value_bytes_end: u32,
}

/// Rows ordered by key group. Within a key group the order is that of arrival, so order per key is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyedBatch {
    /// The columns. `ends` start again at zero in every section.
    columns: Batch,
    sections: Vec<Section>,
}

impl KeyedBatch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Memory the rows take.
    pub fn size_bytes(&self) -> usize {
        self.columns.size_bytes() + self.sections.len() * size_of::<Section>()
    }

    /// Number of key groups that have rows here.
    pub fn sections_len(&self) -> usize {
        self.sections.len()
    }

    /// Key group and rows of section `index`, in constant time.
    pub fn section(&self, index: usize) -> (KeyGroup, BatchRef<'_>) {
        let end = self.sections[index];
        let (row, key, value) = match index.checked_sub(1).map(|previous| self.sections[previous]) {
            Some(s) => (s.rows_end as usize, s.key_bytes_end as usize, s.value_bytes_end as usize),
            None => (0, 0, 0),
        };
        let rows = row..end.rows_end as usize;
        let batch = BatchRef {
            timestamps: &self.columns.timestamps[rows.clone()],
            keys: BlobsRef {
                ends: &self.columns.keys.ends[rows.clone()],
                bytes: &self.columns.keys.bytes[key..end.key_bytes_end as usize],
            },
            values: BlobsRef {
                ends: &self.columns.values.ends[rows],
                bytes: &self.columns.values.bytes[value..end.value_bytes_end as usize],
            },
        };
        (end.key_group, batch)
    }

    /// The sections in order.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = (KeyGroup, BatchRef<'_>)> {
        (0..self.sections.len()).map(|index| self.section(index))
    }
}

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
                sections.push(Section { key_group: group, rows_end: to as u32, key_bytes_end: 0, value_bytes_end: 0 });
                from = to;
            }
        }
        let timestamps = order.iter().map(|&row| rows.timestamps[row as usize]).collect();
        let keys = gather_column(rows.keys, order, &mut sections, |section, end| section.key_bytes_end = end);
        let values = gather_column(rows.values, order, &mut sections, |section, end| section.value_bytes_end = end);
        KeyedBatch { columns: Batch { timestamps, keys, values }, sections }
    }
}

/// Copies the items `order` of a column, with `ends` that restart in every section.
fn gather_column(column: BlobsRef<'_>, order: &[u32], sections: &mut [Section], set_end: impl Fn(&mut Section, u32)) -> Blobs {
    if let Some(width) = uniform_width(column) {
        return gather_uniform(column.bytes, width, order, sections, set_end);
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

/// The width of all items, where they are all equally wide.
fn uniform_width(column: BlobsRef<'_>) -> Option<usize> {
    let width = *column.ends.first()? as usize;
    let uniform = column.bytes.len() == width * column.len()
        && column.ends.iter().zip(1u32..).all(|(&end, n)| end as usize == width * n as usize);
    uniform.then_some(width)
}

fn gather_uniform(
    bytes: &[u8],
    width: usize,
    order: &[u32],
    sections: &mut [Section],
    set_end: impl Fn(&mut Section, u32),
) -> Blobs {
    let mut out = Blobs::with_capacity(order.len(), order.len() * width);
    match width {
        0 => {}
        8 => copy_fixed::<8>(bytes, order, &mut out.bytes),
        16 => copy_fixed::<16>(bytes, order, &mut out.bytes),
        32 => copy_fixed::<32>(bytes, order, &mut out.bytes),
        64 => copy_fixed::<64>(bytes, order, &mut out.bytes),
        _ => order.iter().for_each(|&row| out.bytes.extend_from_slice(&bytes[row as usize * width..][..width])),
    }
    let mut from = 0;
    for section in sections {
        let rows = section.rows_end as usize - from;
        out.ends.extend((1..=rows).map(|n| (n * width) as u32));
        from = section.rows_end as usize;
        set_end(section, (from * width) as u32);
    }
    out
}

/// The copy with a width known to the compiler, which becomes a few moves instead of a call.
fn copy_fixed<const WIDTH: usize>(bytes: &[u8], order: &[u32], out: &mut Vec<u8>) {
    let (items, _) = bytes.as_chunks::<WIDTH>();
    order.iter().for_each(|&row| out.extend_from_slice(&items[row as usize]));
}

#[cfg(test)]
mod tests {
    use super::*;
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
                    for (timestamp, key, value) in section.rows() {
                        assert_eq!(key_group_of(key, key_groups), group);
                        per_key.entry(key.to_vec()).or_default().push((timestamp, value.to_vec()));
                    }
                }
            });
            let mut expected: BTreeMap<Vec<u8>, Vec<(i64, Vec<u8>)>> = BTreeMap::new();
            for (timestamp, key, value) in batch.rows() {
                expected.entry(key.to_vec()).or_default().push((timestamp, value.to_vec()));
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
}
