//! Rows on their way over a hash exchange: ordered by key group by the sender, so that the receiver hands each
//! instance slices of the columns without touching a row.

use std::fmt;

use crate::limits::KEY_GROUPS_MAX;
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

impl Section {
    /// Whether the section can come right after another.
    fn follows(&self, before: &Section) -> bool {
        self.key_group > before.key_group
            && self.rows_end > before.rows_end
            && self.key_bytes_end >= before.key_bytes_end
            && self.value_bytes_end >= before.value_bytes_end
    }
}

/// Rows ordered by key group. Within a key group the order is that of arrival, so order per key is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyedBatch {
    /// The columns. `ends` start again at zero in every section.
    columns: Batch,
    sections: Vec<Section>,
}

/// Why columns and sections do not make a [`KeyedBatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyedBatchError {
    /// The columns differ in length.
    ColumnsDiffer,
    /// A section does not follow the one before: key groups and rows must rise, bytes must not fall.
    Disordered {
        /// Index of the section.
        section: usize,
    },
    /// A key group that no job can have.
    KeyGroupTooLarge {
        /// The key group.
        key_group: KeyGroup,
    },
    /// The last section does not end where the columns do.
    EndsElsewhere,
    /// The ends of a section's items fall, or the last one is not the number of its bytes.
    ItemsDisagree {
        /// Index of the section.
        section: usize,
    },
}

impl fmt::Display for KeyedBatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyedBatchError::ColumnsDiffer => f.write_str("the columns differ in length"),
            KeyedBatchError::Disordered { section } => write!(f, "section {section} does not follow the one before"),
            KeyedBatchError::KeyGroupTooLarge { key_group } => {
                write!(f, "key group {key_group} is beyond the limit of {KEY_GROUPS_MAX}")
            }
            KeyedBatchError::EndsElsewhere => f.write_str("the last section does not end where the columns do"),
            KeyedBatchError::ItemsDisagree { section } => write!(f, "the items of section {section} disagree with its bytes"),
        }
    }
}

impl std::error::Error for KeyedBatchError {}

impl KeyedBatch {
    /// Joins columns, whose `ends` start again at zero in every section, and where each section ends. Checks all that
    /// the other methods rely on: the parts may come from a file or a peer. Constant memory, one pass.
    pub fn from_parts(columns: Batch, sections: Vec<Section>) -> Result<KeyedBatch, KeyedBatchError> {
        let rows = columns.len();
        if columns.keys.len() != rows || columns.values.len() != rows {
            return Err(KeyedBatchError::ColumnsDiffer);
        }
        let mut before: Option<Section> = None;
        for (index, section) in sections.iter().enumerate() {
            if section.key_group >= KEY_GROUPS_MAX {
                return Err(KeyedBatchError::KeyGroupTooLarge { key_group: section.key_group });
            }
            let follows = match before {
                None => section.rows_end > 0,
                Some(before) => section.follows(&before),
            };
            if !follows {
                return Err(KeyedBatchError::Disordered { section: index });
            }
            before = Some(*section);
        }
        let ends = before.map_or((0, 0, 0), |s| (s.rows_end as usize, s.key_bytes_end as usize, s.value_bytes_end as usize));
        if ends != (rows, columns.keys.bytes.len(), columns.values.bytes.len()) {
            return Err(KeyedBatchError::EndsElsewhere);
        }
        let batch = KeyedBatch { columns, sections };
        // From here on a section's slices are within the columns.
        let wrong = batch.sections().position(|(_, rows)| !rows.is_valid());
        match wrong {
            Some(section) => Err(KeyedBatchError::ItemsDisagree { section }),
            None => Ok(batch),
        }
    }

    /// The columns as they are: `ends` start again at zero in every section.
    pub fn columns(&self) -> &Batch {
        &self.columns
    }

    /// Where each section ends, in order.
    pub fn section_ends(&self) -> &[Section] {
        &self.sections
    }

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

    /// A copy of the rows from row `first` of a section on.
    pub fn rest(&self, section: usize, first: usize) -> KeyedBatch {
        let mut rest = KeyedBatch::default();
        for index in section..self.sections.len() {
            let (key_group, rows) = self.section(index);
            let skipped = if index == section { first } else { 0 };
            rest.push_section(key_group, rows, skipped..rows.len());
        }
        rest
    }

    /// Appends some rows of a key group, which must be greater than those that are here.
    fn push_section(&mut self, key_group: KeyGroup, rows: BatchRef<'_>, range: std::ops::Range<usize>) {
        if range.is_empty() {
            return;
        }
        let mut part = Batch::default();
        part.extend_range(rows, range);
        self.columns.timestamps.append(&mut part.timestamps);
        for (column, part) in [(&mut self.columns.keys, part.keys), (&mut self.columns.values, part.values)] {
            column.bytes.extend_from_slice(&part.bytes);
            column.ends.extend_from_slice(&part.ends);
        }
        self.sections.push(Section {
            key_group,
            rows_end: self.columns.timestamps.len() as u32,
            key_bytes_end: self.columns.keys.bytes.len() as u32,
            value_bytes_end: self.columns.values.bytes.len() as u32,
        });
    }

    /// The rows of some key groups, copied; `None` where there are none.
    pub fn within(&self, groups: crate::KeyGroupRange) -> Option<KeyedBatch> {
        let mut part = KeyedBatch::default();
        for (key_group, rows) in self.sections().filter(|(group, _)| groups.contains(*group)) {
            part.columns.timestamps.extend_from_slice(rows.timestamps);
            for (column, section) in [(&mut part.columns.keys, rows.keys), (&mut part.columns.values, rows.values)] {
                column.ends.extend_from_slice(section.ends);
                column.bytes.extend_from_slice(section.bytes);
            }
            part.sections.push(Section {
                key_group,
                rows_end: part.columns.timestamps.len() as u32,
                key_bytes_end: part.columns.keys.bytes.len() as u32,
                value_bytes_end: part.columns.values.bytes.len() as u32,
            });
        }
        (!part.is_empty()).then_some(part)
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
            seen.extend(
                part.sections().flat_map(|(group, rows)| {
                    rows.rows().map(|(time, _, value)| (group, time, value.to_vec())).collect::<Vec<_>>()
                }),
            );
        }
        let all: Vec<_> = whole[0]
            .sections()
            .flat_map(|(group, rows)| rows.rows().map(|(time, _, value)| (group, time, value.to_vec())).collect::<Vec<_>>())
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
