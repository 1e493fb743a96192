//! An image as bytes, in two pieces that are written one after the other.

/// Bytes of a buffer that are kept for the next image.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Bytes to store. Its buffers are used again for the next image: whoever writes many keeps one.
#[derive(Debug, Default)]
pub struct EncodedImage {
    /// What it holds and where.
    pub(super) head: Vec<u8>,
    /// Content. Bytes beyond `blocks_len` are left from before.
    pub(super) blocks: Vec<u8>,
    pub(super) blocks_len: usize,
}

impl EncodedImage {
    /// Its bytes: one piece, and the rest.
    pub fn pieces(&self) -> [&[u8]; 2] {
        [&self.head, &self.blocks[..self.blocks_len]]
    }

    /// Number of its bytes.
    pub fn size_bytes(&self) -> usize {
        self.head.len() + self.blocks_len
    }

    /// Its bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces().concat()
    }

    /// Replaces it by these bytes: for state that is no memory image.
    pub fn set(&mut self, bytes: &[u8]) {
        self.clear();
        self.head.extend_from_slice(bytes);
    }

    /// Empties it, and lets go of buffers that an uncommonly large image has left.
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.head.shrink_to(KEPT_BYTES_MAX);
        self.blocks.truncate(KEPT_BYTES_MAX);
        self.blocks.shrink_to(KEPT_BYTES_MAX);
        self.blocks_len = 0;
    }
}
