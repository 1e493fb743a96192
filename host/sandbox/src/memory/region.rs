//! The mapping behind one linear memory.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap};

use super::{PAGE_BYTES, SealedMemory};

/// Reserved address space of which the first `size` bytes are a guest's linear memory. Shared by wasmtime, which lets
/// the guest use it, and by the instance that captures it; unmapped when both are gone.
pub(crate) struct Region {
    base: NonNull<u8>,
    reserved: usize,
    /// Accessible bytes; a multiple of the page size, only ever grows.
    size: AtomicUsize,
}

// SAFETY: the mapping belongs to this value alone and is reached through its address only. Contents are read and
// written by the guest during calls, and by the host in `bytes` and `write`, whose callers guarantee that no call runs.
unsafe impl Send for Region {}
// SAFETY: as above; `size` is atomic.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves address space; nothing of it is accessible.
    pub(crate) fn reserve(bytes: usize) -> io::Result<Region> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address the kernel chooses touches no other memory.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }?;
        // The kernel never maps page zero for us, so the address is not null.
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Region { base, reserved: bytes, size: AtomicUsize::new(0) };
        // Huge pages would be split on the first tracked write, and written as a whole. Kernels without them refuse.
        // SAFETY: advice on our own mapping that changes no content.
        let _ = unsafe { madvise(region.base.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        Ok(region)
    }

    /// Makes the memory a private copy of a template, copied page by page when first written. Only before anything
    /// else happened to it.
    pub(crate) fn overlay(&self, template: &SealedMemory) -> io::Result<()> {
        let size = template.size();
        assert!(self.size() == 0 && size <= self.reserved);
        if size == 0 {
            return Ok(());
        }
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: replaces a part of our own reservation (size checked above) that nobody has a pointer into yet.
        unsafe { mmap(self.base.as_ptr().cast(), size, ProtFlags::READ | ProtFlags::WRITE, flags, template.file(), 0) }?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    /// Makes the memory larger; the new part is zero.
    pub(crate) fn grow_to(&self, size: usize) -> io::Result<()> {
        let old = self.size();
        assert!(size.is_multiple_of(PAGE_BYTES), "wasm pages are larger than the machine's");
        if size > self.reserved {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        if size <= old {
            return Ok(());
        }
        let protection = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: stays within our own reservation (checked above), in the part that was inaccessible until now.
        unsafe { mprotect(self.base.as_ptr().add(old).cast(), size - old, protection) }?;
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Accessible bytes.
    pub(crate) fn size(&self) -> usize {
        self.size.load(Ordering::Acquire)
    }

    /// The memory's content.
    ///
    /// # Safety
    /// Neither the guest nor `write` may run while the slice lives.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: `base..base + size` is mapped readable for the life of `self`; nobody writes, says the caller.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.size()) }
    }

    /// Has the kernel make private pages of a part of the memory at once, instead of one fault each: for what is written next. Where
    /// it cannot (Linux before 5.14), they come as they are written.
    pub(crate) fn populate(&self, offset: usize, length: usize) {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.size()), "only what is accessible is populated");
        // SAFETY: inside our own mapping (asserted); contents stay as they are.
        let _ = unsafe { madvise(self.base.as_ptr().add(offset).cast(), length, Advice::LinuxPopulateWrite) };
    }

    /// A part of the memory, to be overwritten.
    ///
    /// # Safety
    /// Neither the guest nor `write` may run, and no other slice of the region be made, while the slice lives.
    ///
    /// # Panics
    /// If the part is not inside the memory.
    #[allow(clippy::mut_from_ref, reason = "the mapping is shared with wasmtime; the caller says that nobody else uses it now")]
    pub(crate) unsafe fn slice_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.size()), "slices stay inside the memory");
        // SAFETY: mapped writable (asserted) for the life of `self`; nobody else reads or writes, says the caller.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), length) }
    }

    /// Overwrites a part of the memory.
    ///
    /// # Safety
    /// The guest must not run, and no slice of `bytes` may live.
    ///
    /// # Panics
    /// If the part is not inside the memory.
    pub(crate) unsafe fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.size()), "writes stay inside the memory");
        // SAFETY: the destination is mapped writable (asserted), the source is elsewhere (it is borrowed, and no slice
        // of this region lives, says the caller), and nobody else writes, says the caller.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len()) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `reserve`; wasmtime and the instance have dropped their shares.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.reserved) };
        debug_assert!(unmapped.is_ok());
    }
}
