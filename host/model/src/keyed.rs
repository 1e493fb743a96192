//! Rows on their way over a hash exchange: ordered by key group by the sender, so that the receiver hands each
//! instance slices of the columns without touching a row.

use std::fmt;
use std::ops::Range;

use crate::limits::KEY_GROUPS_MAX;
use crate::{Batch, BatchRef, BlobsRef, ExtrasRef, KeyGroup};

/// Where the rows of one key group end in a [`KeyedBatch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// The key group of all rows in the section.
    pub key_group: KeyGroup,
    /// One past its last row.
    pub rows_end: u32,
    /// One past its last byte of keys.
    pub key_bytes_end: u32,
    /// One past its last byte of values.
    pub value_bytes_end: u32,
    /// One past its last byte of headers; zero where the rows have no extras.
    pub header_bytes_end: u32,
}

impl Section {
    /// Whether the section can come right after another.
    fn follows(&self, before: &Section) -> bool {
        self.key_group > before.key_group
            && self.rows_end > before.rows_end
            && self.key_bytes_end >= before.key_bytes_end
            && self.value_bytes_end >= before.value_bytes_end
            && self.header_bytes_end >= before.header_bytes_end
    }

    /// Where rows and bytes end: of rows, keys, values, headers.
    fn ends(&self) -> [usize; 4] {
        [self.rows_end, self.key_bytes_end, self.value_bytes_end, self.header_bytes_end].map(|end| end as usize)
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
        let of_extras = columns
            .extras
            .as_ref()
            .map_or((rows, rows, 0), |extras| (extras.absent.len(), extras.headers.len(), extras.headers.bytes.len()));
        if [columns.keys.len(), columns.values.len(), of_extras.0, of_extras.1] != [rows; 4] {
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
        let ends = before.map_or([0; 4], |last| last.ends());
        if ends != [rows, columns.keys.bytes.len(), columns.values.bytes.len(), of_extras.2] {
            return Err(KeyedBatchError::EndsElsewhere);
        }
        let batch = KeyedBatch { columns, sections };
        // From here on a section's slices are within the columns.
        let wrong = (0..batch.sections.len()).position(|section| !batch.slices(section).is_valid());
        match wrong {
            Some(section) => Err(KeyedBatchError::ItemsDisagree { section }),
            None => Ok(batch),
        }
    }

    /// Columns and sections that are known to make one: those of the partitioner.
    pub(crate) fn of_checked(columns: Batch, sections: Vec<Section>) -> KeyedBatch {
        KeyedBatch { columns, sections }
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

    /// Key group and rows of section `index`; in constant time where there are no extras.
    pub fn section(&self, index: usize) -> (KeyGroup, BatchRef<'_>) {
        let mut rows = self.slices(index);
        rows.extras = rows.extras.filter(|extras| !extras.is_plain());
        (self.sections[index].key_group, rows)
    }

    /// Section `index` of each column that is there.
    #[inline]
    fn slices(&self, index: usize) -> BatchRef<'_> {
        let [row, key, value, header] = index.checked_sub(1).map_or([0; 4], |before| self.sections[before].ends());
        let [rows_end, keys_end, values_end, headers_end] = self.sections[index].ends();
        let rows = row..rows_end;
        let columns = &self.columns;
        BatchRef {
            timestamps: &columns.timestamps[rows.clone()],
            keys: BlobsRef { ends: &columns.keys.ends[rows.clone()], bytes: &columns.keys.bytes[key..keys_end] },
            values: BlobsRef { ends: &columns.values.ends[rows.clone()], bytes: &columns.values.bytes[value..values_end] },
            extras: columns.extras.as_ref().map(|extras| ExtrasRef {
                absent: &extras.absent[rows.clone()],
                headers: BlobsRef { ends: &extras.headers.ends[rows], bytes: &extras.headers.bytes[header..headers_end] },
            }),
        }
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

    /// Appends some rows of a key group, which must be greater than those that are here. No rows make no section.
    pub fn push_section(&mut self, key_group: KeyGroup, rows: BatchRef<'_>, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        debug_assert!(self.sections.last().is_none_or(|last| last.key_group < key_group), "key groups rise");
        self.columns.extend_section(rows, range);
        self.sections.push(Section {
            key_group,
            rows_end: self.columns.len() as u32,
            key_bytes_end: self.columns.keys.bytes.len() as u32,
            value_bytes_end: self.columns.values.bytes.len() as u32,
            header_bytes_end: self.columns.extras.as_ref().map_or(0, |extras| extras.headers.bytes.len() as u32),
        });
    }

    /// The rows of some key groups, copied; `None` where there are none.
    pub fn within(&self, groups: crate::KeyGroupRange) -> Option<KeyedBatch> {
        let mut part = KeyedBatch::default();
        for (key_group, rows) in self.sections().filter(|(group, _)| groups.contains(*group)) {
            part.push_section(key_group, rows, 0..rows.len());
        }
        (!part.is_empty()).then_some(part)
    }

    /// The sections in order.
    pub fn sections(&self) -> impl ExactSizeIterator<Item = (KeyGroup, BatchRef<'_>)> {
        (0..self.sections.len()).map(|index| self.section(index))
    }
}
