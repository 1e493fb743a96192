//! A column of byte strings as two flat arrays: the shape of `types.blobs` in the WIT.

use std::ops::Range;

/// Ends that are compared before the first look whether one of them fell: comparing without a branch each is several times as fast.
const ENDS_AT_ONCE: usize = 64;

/// Owned column of byte strings. Item `i` is `bytes[ends[i-1]..ends[i]]`, with `ends[-1]` taken as 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blobs {
    /// Where each item ends in `bytes`.
    pub ends: Vec<u32>,
    /// The items, one after the other.
    pub bytes: Vec<u8>,
}

/// Borrowed [`Blobs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobsRef<'a> {
    /// Where each item ends in `bytes`.
    pub ends: &'a [u32],
    /// The items, one after the other.
    pub bytes: &'a [u8],
}

impl Blobs {
    /// An empty column with room for `items` of `bytes` in all.
    pub fn with_capacity(items: usize, bytes: usize) -> Blobs {
        Blobs { ends: Vec::with_capacity(items), bytes: Vec::with_capacity(bytes) }
    }

    /// Appends one item.
    ///
    /// # Panics
    /// If the column would exceed 4 GiB; frames are closed long before.
    #[inline]
    pub fn push(&mut self, item: &[u8]) {
        self.bytes.extend_from_slice(item);
        self.close_item();
    }

    /// Ends an item whose bytes were appended to `bytes` directly.
    #[inline]
    pub fn close_item(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("a column holds less than 4 GiB");
        self.ends.push(end);
    }

    /// Appends all items of another column.
    pub fn extend(&mut self, other: BlobsRef<'_>) {
        let base = u32::try_from(self.bytes.len()).expect("a column holds less than 4 GiB");
        assert!(self.bytes.len() + other.bytes.len() <= u32::MAX as usize, "a column holds less than 4 GiB");
        self.bytes.extend_from_slice(other.bytes);
        self.ends.extend(other.ends.iter().map(|end| end + base));
    }

    /// Appends some items of another column.
    pub fn extend_range(&mut self, other: BlobsRef<'_>, range: Range<usize>) {
        self.extend_range_from(0, other, range);
    }

    /// Appends some items of another column, whose ends count from byte `base` of this one.
    pub(crate) fn extend_range_from(&mut self, base: usize, other: BlobsRef<'_>, range: Range<usize>) {
        let (start, end) = (other.start(range.start), other.start(range.end));
        let at = self.bytes.len();
        assert!(at + (end - start) <= u32::MAX as usize, "a column holds less than 4 GiB");
        self.bytes.extend_from_slice(&other.bytes[start..end]);
        // Modulo 2^32, as the difference may be negative; each sum is an end again.
        let shift = ((at - base) as u32).wrapping_sub(start as u32);
        self.ends.extend(other.ends[range].iter().map(|end| end.wrapping_add(shift)));
    }

    /// Appends items of another column by their numbers, in any order, and again. Numbers that follow each other are copied at once.
    pub fn gather(&mut self, other: BlobsRef<'_>, items: &[u32]) {
        // To see whether all are equally wide costs a pass over the ends of the other column.
        let width = if other.len() <= 8 * items.len() { other.uniform_width() } else { None };
        if let Some(width) = width {
            let at = self.bytes.len();
            assert!(at + items.len() * width <= u32::MAX as usize, "a column holds less than 4 GiB");
            self.gather_uniform(other, width, items);
            self.ends.extend((1..=items.len()).map(|n| (at + n * width) as u32));
            return;
        }
        let mut at = 0;
        while let Some(&first) = items.get(at) {
            let mut end = at + 1;
            while items.get(end).is_some_and(|&item| item.wrapping_sub(first) as usize == end - at) {
                end += 1;
            }
            if end - at == 1 {
                self.push(other.get(first as usize));
            } else {
                self.extend_range(other, first as usize..first as usize + (end - at));
            }
            at = end;
        }
    }

    /// Appends the bytes, and not the ends, of items of a column in which all are equally wide.
    pub(crate) fn gather_uniform(&mut self, other: BlobsRef<'_>, width: usize, items: &[u32]) {
        let (bytes, out) = (other.bytes, &mut self.bytes);
        match width {
            0 => {}
            8 => copy_fixed::<8>(bytes, items, out),
            16 => copy_fixed::<16>(bytes, items, out),
            32 => copy_fixed::<32>(bytes, items, out),
            64 => copy_fixed::<64>(bytes, items, out),
            _ => items.iter().for_each(|&item| out.extend_from_slice(&bytes[item as usize * width..][..width])),
        }
    }

    /// Removes all items but the first ones.
    pub fn truncate(&mut self, items: usize) {
        self.ends.truncate(items);
        self.bytes.truncate(self.ends.last().map_or(0, |&end| end as usize));
    }

    /// Removes all items, keeps the room.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.bytes.clear();
    }

    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Item `index`.
    #[inline]
    pub fn get(&self, index: usize) -> &[u8] {
        self.view().get(index)
    }

    /// The column, borrowed.
    #[inline]
    pub fn view(&self) -> BlobsRef<'_> {
        BlobsRef { ends: &self.ends, bytes: &self.bytes }
    }

    /// The items in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.view().iter()
    }
}

impl<'a> FromIterator<&'a [u8]> for Blobs {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(items: I) -> Blobs {
        let mut blobs = Blobs::default();
        items.into_iter().for_each(|item| blobs.push(item));
        blobs
    }
}

impl<'a> BlobsRef<'a> {
    /// Number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Item `index`.
    #[inline]
    pub fn get(&self, index: usize) -> &'a [u8] {
        &self.bytes[self.start(index)..self.ends[index] as usize]
    }

    /// Where item `index` starts in `bytes`; `len()` is allowed and gives the end of the last item.
    #[inline]
    pub fn start(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.ends[index - 1] as usize }
    }

    /// The items in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let item = &self.bytes[start..end as usize];
            start = end as usize;
            item
        })
    }

    /// The width of all items, where they are all equally wide.
    pub(crate) fn uniform_width(self) -> Option<usize> {
        let width = *self.ends.first()? as usize;
        let uniform = self.bytes.len() == width * self.len()
            && self.ends.iter().zip(1u32..).all(|(&end, n)| end as usize == width * n as usize);
        uniform.then_some(width)
    }

    /// Whether the ends never fall and the last one is the number of bytes. What a guest or a peer sent must
    /// pass this before any item is read.
    pub fn is_valid(self) -> bool {
        let last = self.ends.last().map_or(0, |&end| end as usize);
        let mut pieces = self.ends.chunks(ENDS_AT_ONCE).zip(self.ends.get(1..).unwrap_or_default().chunks(ENDS_AT_ONCE));
        last == self.bytes.len()
            && !pieces.any(|(ends, nexts)| ends.iter().zip(nexts).fold(false, |falls, (end, next)| falls | (end > next)))
    }
}

/// The copy with a width known to the compiler, which becomes a few moves instead of a call.
fn copy_fixed<const WIDTH: usize>(bytes: &[u8], items: &[u32], out: &mut Vec<u8>) {
    let (all, _) = bytes.as_chunks::<WIDTH>();
    items.iter().for_each(|&item| out.extend_from_slice(&all[item as usize]));
}
