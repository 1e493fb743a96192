//! A template's memory: a sealed file in memory that any number of instances overlay.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use xxhash_rust::xxh3::xxh3_64;

use super::{PAGE_BYTES, PageSet, is_zero};

/// Content that never changes again.
pub(crate) struct SealedMemory {
    file: File,
    size: usize,
    scratch: Range<u32>,
    /// Where the content is mapped for reading; dangling if there is none.
    base: NonNull<u8>,
    pages: PageSet,
    hashes: Vec<u64>,
}

// SAFETY: the mapping is read-only, of a file sealed against change, and belongs to this value.
unsafe impl Send for SealedMemory {}
// SAFETY: as above.
unsafe impl Sync for SealedMemory {}

/// A memory file being written.
pub(crate) struct SealedBuilder {
    file: File,
    size: usize,
    scratch: Range<u32>,
}

impl SealedBuilder {
    /// All zeros.
    pub(crate) fn new(size: usize) -> io::Result<SealedBuilder> {
        assert!(size.is_multiple_of(PAGE_BYTES), "wasm pages are larger than the machine's");
        let file = File::from(memfd_create("weir-template", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(size as u64)?;
        Ok(SealedBuilder { file, size, scratch: 0..0 })
    }

    /// Makes these pages ones that hold no state: they stay zero, and nobody looks for what an instance writes there.
    pub(crate) fn with_scratch(self, pages: Range<u32>) -> SealedBuilder {
        SealedBuilder { scratch: pages, ..self }
    }

    /// Writes whole pages from page `first` on, leaving out those of zeros and those that hold no state.
    pub(crate) fn write(&self, first: u32, bytes: &[u8]) -> io::Result<()> {
        let offset = first as usize * PAGE_BYTES;
        assert!(offset + bytes.len() <= self.size, "writes stay inside the memory");
        for stretch in nonzero_stretches(bytes, |page| self.scratch.contains(&(first + page))) {
            self.file.write_all_at(&bytes[stretch.clone()], (offset + stretch.start) as u64)?;
        }
        Ok(())
    }

    pub(crate) fn seal(self) -> io::Result<SealedMemory> {
        let SealedBuilder { file, size, scratch } = self;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
        let base = if size == 0 {
            NonNull::dangling()
        } else {
            // SAFETY: a new read-only mapping at an address the kernel chooses; the file can neither change nor shrink.
            let base = unsafe { mmap(null_mut(), size, ProtFlags::READ, MapFlags::PRIVATE | MapFlags::NORESERVE, &file, 0) }?;
            NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?
        };
        let mut memory = SealedMemory { file, size, scratch, base, pages: PageSet::default(), hashes: Vec::new() };
        (memory.pages, memory.hashes) = memory.survey()?;
        Ok(memory)
    }
}

/// The byte ranges of `bytes` that hold pages with content, but for those left out.
fn nonzero_stretches(bytes: &[u8], is_left_out: impl Fn(u32) -> bool) -> Vec<Range<usize>> {
    let pages = (0u32..).zip(bytes.chunks(PAGE_BYTES));
    let pages: PageSet = pages.filter(|&(index, page)| !is_left_out(index) && !is_zero(page)).map(|(index, _)| index).collect();
    pages.runs().iter().map(|run| run.first as usize * PAGE_BYTES..(run.end() as usize * PAGE_BYTES).min(bytes.len())).collect()
}

impl SealedMemory {
    /// Which pages have content, and the hash of each page.
    fn survey(&self) -> io::Result<(PageSet, Vec<u64>)> {
        let mut pages = PageSet::default();
        let mut hashes = vec![zero_page_hash(); self.size / PAGE_BYTES];
        let mut offset = 0;
        // Holes are skipped: reading one would give it a page.
        while let Some(start) = seek(&self.file, rustix::fs::SeekFrom::Data(offset))? {
            let end = seek(&self.file, rustix::fs::SeekFrom::Hole(start))?.unwrap_or(self.size as u64);
            let with_data = start as usize / PAGE_BYTES..(end as usize).div_ceil(PAGE_BYTES);
            for (page, hash) in (0u32..).zip(&mut hashes).take(with_data.end).skip(with_data.start) {
                let bytes = self.page(page);
                if !is_zero(bytes) {
                    pages.push(page, 1);
                    *hash = xxh3_64(bytes);
                }
            }
            offset = end;
        }
        Ok((pages, hashes))
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Pages that hold no state.
    pub(crate) fn scratch(&self) -> &Range<u32> {
        &self.scratch
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The pages that hold anything but zeros.
    pub(crate) fn pages(&self) -> &PageSet {
        &self.pages
    }

    /// The hash of each page.
    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The content of one page.
    ///
    /// # Panics
    /// If the memory has no such page.
    pub(crate) fn page(&self, page: u32) -> &[u8] {
        let offset = page as usize * PAGE_BYTES;
        assert!(offset + PAGE_BYTES <= self.size);
        // SAFETY: inside the mapping (asserted), which is readable as long as `self` lives and never changes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), PAGE_BYTES) }
    }
}

fn seek(file: &File, to: rustix::fs::SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(offset) => Ok(Some(offset)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The hash of a page of zeros.
pub(crate) fn zero_page_hash() -> u64 {
    static HASH: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| xxh3_64(&[0; PAGE_BYTES]));
    *HASH
}

impl Drop for SealedMemory {
    fn drop(&mut self) {
        if self.size > 0 {
            // SAFETY: exactly the mapping made in `seal`; no slice of it outlives `self`.
            let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
            debug_assert!(unmapped.is_ok());
        }
    }
}
