//! Written pages by comparing hashes: 64 bits of XXH3 per page. A changed page goes unseen with probability 2^-64.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::super::sealed::zero_page_hash;
use super::super::{PAGE_BYTES, PageSet, Region, SealedMemory, is_zero};

/// The hashes of a memory's pages when it was last captured.
pub(crate) struct Hashing {
    template: Arc<SealedMemory>,
    /// Empty until the first capture: until then the template's hashes count, which all instances share.
    hashes: Vec<u64>,
}

impl Hashing {
    pub(super) fn new(template: Arc<SealedMemory>) -> Hashing {
        Hashing { template, hashes: Vec::new() }
    }

    /// See [`super::Tracker::take_written`].
    ///
    /// # Safety
    /// The guest must not run.
    pub(super) unsafe fn take_written(&mut self, region: &Region) -> PageSet {
        if self.hashes.is_empty() {
            self.hashes = self.template.hashes().to_vec();
        }
        let zero = zero_page_hash();
        self.hashes.resize(region.size() / PAGE_BYTES, zero);
        // SAFETY: nobody writes, says our caller.
        let pages = unsafe { region.bytes() }.chunks_exact(PAGE_BYTES);
        let mut written = PageSet::default();
        let scratch = self.template.scratch();
        for ((index, page), known) in (0u32..).zip(pages).zip(&mut self.hashes).filter(|((index, _), _)| !scratch.contains(index))
        {
            // Most pages that never were written are zero, which is found out faster than a hash.
            let hash = if *known == zero && is_zero(page) { zero } else { xxh3_64(page) };
            if hash != *known {
                *known = hash;
                written.push(index, 1);
            }
        }
        written
    }
}
