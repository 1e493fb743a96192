//! A column of byte strings as two flat arrays: the shape of `types.blobs` in the WIT.

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

    /// Whether the ends never fall and the last one is the number of bytes. What a guest or a peer sent must
    /// pass this before any item is read.
    pub fn is_valid(self) -> bool {
        let last = self.ends.last().map_or(0, |&end| end as usize);
        last == self.bytes.len() && self.ends.windows(2).all(|pair| pair[0] <= pair[1])
    }
}
