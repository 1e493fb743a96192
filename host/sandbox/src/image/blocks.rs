//! Memory for captured pages, in blocks that are used again.
//!
//! Owns the one pool of the process. Captures come and go with every checkpoint, and are made by tasks but dropped by others: fresh
//! memory would be mapped, faulted in page by page while an instance stands still, and unmapped by another thread, which interrupts
//! all cores. The pool never makes anybody wait: where it has no block, there is a new one, and what it has no room for is freed.

use std::sync::Mutex;

use weir_model::limits::CAPTURE_BLOCKS_BYTES_MAX;

use crate::memory::PAGE_BYTES;

/// Pages compressed together: large enough to compress well, small enough to leave out those not needed.
pub(crate) const BLOCK_PAGES: usize = 64;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: usize = BLOCK_PAGES * PAGE_BYTES;

/// Captures of fewer pages take ordinary memory of the size they need, so that thousands of small instances do not hold a block each.
const PAGES_MIN: usize = BLOCK_PAGES / 4;

static POOL: Pool = Pool::new(CAPTURE_BLOCKS_BYTES_MAX / BLOCK_BYTES);

/// Up to [`BLOCK_PAGES`] captured pages. Its memory goes back to the pool when it is dropped.
pub(crate) struct Block(Vec<u8>);

impl Block {
    /// An empty block for so many pages, or for as many as one holds.
    pub(crate) fn for_pages(pages: usize) -> Block {
        Block(if pages < PAGES_MIN { Vec::with_capacity(pages * PAGE_BYTES) } else { POOL.take() })
    }

    /// Appends pages.
    ///
    /// # Panics
    /// If they do not fit into a block.
    pub(crate) fn push(&mut self, pages: &[u8]) {
        assert!(self.0.len() + pages.len() <= BLOCK_BYTES, "a block holds {BLOCK_PAGES} pages");
        self.0.extend_from_slice(pages);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == BLOCK_BYTES
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        POOL.give(std::mem::take(&mut self.0));
    }
}

/// Memory of blocks that nobody uses now.
struct Pool {
    idle: Mutex<Vec<Vec<u8>>>,
    blocks_max: usize,
}

impl Pool {
    const fn new(blocks_max: usize) -> Pool {
        Pool { idle: Mutex::new(Vec::new()), blocks_max }
    }

    /// The one used last, which is the likeliest to be in a cache still.
    fn take(&self) -> Vec<u8> {
        let idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES))
    }

    fn give(&self, mut memory: Vec<u8>) {
        if memory.capacity() != BLOCK_BYTES {
            return;
        }
        memory.clear();
        let mut idle = self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if idle.len() < self.blocks_max {
            idle.push(memory);
        } else {
            // Unmapping takes long.
            drop(idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_hands_out_what_was_given_back_and_keeps_no_more_than_it_may() {
        let pool = Pool::new(2);
        let blocks = [pool.take(), pool.take(), pool.take()];
        let at = blocks.each_ref().map(|block| block.as_ptr());
        for mut block in blocks {
            block.push(1);
            pool.give(block);
        }
        let again = [pool.take(), pool.take(), pool.take()];
        assert_eq!([again[0].as_ptr(), again[1].as_ptr()], [at[1], at[0]], "the same memory");
        assert!(again.iter().all(|block| block.is_empty() && block.capacity() == BLOCK_BYTES));
        assert!(pool.idle.lock().unwrap().is_empty(), "the third was not kept");
    }

    #[test]
    fn memory_of_small_captures_is_as_small_as_they_are_and_not_kept() {
        let small = Block::for_pages(PAGES_MIN - 1);
        assert_eq!(small.0.capacity(), (PAGES_MIN - 1) * PAGE_BYTES);
        let pool = Pool::new(2);
        pool.give(vec![0; PAGE_BYTES]);
        assert!(pool.idle.lock().unwrap().is_empty());
    }
}
