//! Written pages from the kernel: userfaultfd write protection in its asynchronous mode, read and renewed with the
//! PAGEMAP_SCAN ioctl (Linux 6.7). The kernel resolves the faults itself; nobody listens on the descriptor.
//!
//! A memory is an overlay of a file, so before the first capture the pages that differ from the template are exactly
//! those that are private and present: nothing needs to be armed, and an instance that is never captured pays nothing.
//!
//! Traps this code steps around (see reference/wasmtime.md): pages that were never populated read as written, so only
//! present or swapped ones count; untouched pages of the template are file-backed and do not count, nor does the
//! shared zero page; a scan over a mapping without write protection would say "written" for everything, so it is told
//! to fail (EPERM) instead.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::mm::{UserfaultfdFlags, userfaultfd};

use super::super::{PAGE_BYTES, PageSet, Region, SealedBuilder};

/// Not in rustix: faults of user space only, which needs no privilege.
const UFFD_USER_MODE_ONLY: u32 = 1;
const UFFD_API: u64 = 0xAA;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_API: libc::Ioctl = 0xC018_AA3F_u32 as libc::Ioctl;
const UFFDIO_REGISTER: libc::Ioctl = 0xC020_AA00_u32 as libc::Ioctl;

const PAGEMAP_SCAN: libc::Ioctl = 0xC060_6610_u32 as libc::Ioctl;
const PM_SCAN_WP_MATCHING: u64 = 1 << 0;
const PM_SCAN_CHECK_WPASYNC: u64 = 1 << 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;

/// Runs one scan can return; a scan that finds more is continued.
const SCAN_RUNS: usize = 512;

/// `struct uffdio_api` of linux/userfaultfd.h.
#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register` of linux/userfaultfd.h.
#[repr(C)]
struct UffdioRegister {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<PmScanArg>() == 96 && size_of::<PageRegion>() == 24 && size_of::<UffdioRegister>() == 32);

/// The two descriptors that tracking needs, for all memories of a sandbox.
pub(crate) struct Kernel {
    uffd: OwnedFd,
    pagemap: File,
}

impl Kernel {
    /// Opens the descriptors and tries everything out on a small memory.
    ///
    /// # Errors
    /// What does not work, in words.
    pub(super) fn probe() -> Result<Arc<Kernel>, String> {
        let kernel = Arc::new(Kernel::open()?);
        try_out(&kernel).map_err(|error| format!("trying it out failed: {error}"))?;
        Ok(kernel)
    }

    fn open() -> Result<Kernel, String> {
        let flags =
            UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK | UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY);
        // SAFETY: opening a descriptor affects no memory; ranges are registered one by one later.
        let uffd = unsafe { userfaultfd(flags) }.map_err(|error| format!("userfaultfd: {error}"))?;
        let mut api = UffdioApi { api: UFFD_API, features: UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED, ioctls: 0 };
        // SAFETY: the request takes a `struct uffdio_api`, which this is.
        unsafe { ioctl(&uffd, UFFDIO_API, &mut api) }
            .map_err(|error| format!("userfaultfd without asynchronous write protection, which needs Linux 6.7: {error}"))?;
        let pagemap = File::open("/proc/self/pagemap").map_err(|error| format!("/proc/self/pagemap: {error}"))?;
        Ok(Kernel { uffd, pagemap })
    }

    /// Puts write protection on offer for the whole reservation, so that memory grown later has it too.
    fn register(&self, region: &Region) -> io::Result<()> {
        let mut register = UffdioRegister {
            start: region.base() as u64,
            len: region.reserved() as u64,
            mode: UFFDIO_REGISTER_MODE_WP,
            ioctls: 0,
        };
        // SAFETY: the request takes a `struct uffdio_register`, which this is. The range is the region's own
        // reservation. In asynchronous mode a protected page costs its writer a fault and changes nothing else.
        unsafe { ioctl(&self.uffd, UFFDIO_REGISTER, &mut register) }
    }

    /// The private pages of a memory, only the written ones if `is_written` says so; protects them. Pages of `scratch` are neither
    /// found nor protected, so that writing them costs nothing.
    fn scan(&self, region: &Region, scratch: &Range<u32>, is_written: bool) -> io::Result<PageSet> {
        let pages = (region.size() / PAGE_BYTES) as u32;
        let mut found = PageSet::default();
        for part in [0..scratch.start.min(pages), scratch.end.min(pages)..pages] {
            self.scan_part(region, part, is_written, &mut found)?;
        }
        Ok(found)
    }

    fn scan_part(&self, region: &Region, part: Range<u32>, is_written: bool, found: &mut PageSet) -> io::Result<()> {
        let base = region.base() as u64;
        let mut start = base + u64::from(part.start) * PAGE_BYTES as u64;
        let end = base + u64::from(part.end) * PAGE_BYTES as u64;
        let mut runs = [PageRegion::default(); SCAN_RUNS];
        while start < end {
            let mut arg = PmScanArg {
                size: size_of::<PmScanArg>() as u64,
                flags: PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC,
                start,
                end,
                vec: runs.as_mut_ptr() as u64,
                vec_len: runs.len() as u64,
                category_inverted: PAGE_IS_FILE | PAGE_IS_PFNZERO,
                category_mask: PAGE_IS_FILE | PAGE_IS_PFNZERO | if is_written { PAGE_IS_WRITTEN } else { 0 },
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_WRITTEN,
                ..PmScanArg::default()
            };
            // SAFETY: the request takes a `struct pm_scan_arg`, which this is; `vec` points to `vec_len` structs that
            // outlive the call. It changes the protection of pages of the region, never their content.
            let filled = unsafe { ioctl_count(&self.pagemap, PAGEMAP_SCAN, &mut arg) }?;
            for run in &runs[..filled] {
                found.push(((run.start - base) / PAGE_BYTES as u64) as u32, ((run.end - run.start) / PAGE_BYTES as u64) as u32);
            }
            if arg.walk_end <= start {
                return Err(io::Error::other("PAGEMAP_SCAN does not advance"));
            }
            start = arg.walk_end;
        }
        Ok(())
    }
}

/// Overlay, anonymous growth, written and re-armed pages: what instances rely on.
fn try_out(kernel: &Arc<Kernel>) -> io::Result<()> {
    let expect = |what: &str, found: &PageSet, pages: &[u32]| {
        if found.iter().eq(pages.iter().copied()) {
            return Ok(());
        }
        Err(io::Error::other(format!("{what}: pages {pages:?} were written, the kernel says {:?}", found.runs())))
    };
    let builder = SealedBuilder::new(4 * PAGE_BYTES)?;
    builder.write(0, &[7; 4 * PAGE_BYTES])?;
    let template = builder.seal()?;
    let region = Region::reserve(16 * PAGE_BYTES)?;
    region.overlay(&template)?;
    region.grow_to(6 * PAGE_BYTES)?;
    // SAFETY: no guest knows this region, no other slice of it lives.
    let write = |page: usize| unsafe { region.write(page * PAGE_BYTES + 1, b"x") };
    // SAFETY: as above. Reading populates a page without writing it.
    let read = |page: usize| std::hint::black_box(unsafe { region.bytes() }[page * PAGE_BYTES]);
    let mut armed = KernelTracker::new(kernel.clone(), 0..0);
    write(1);
    read(2);
    read(4);
    expect("before arming", &armed.take_written(&region)?, &[1])?;
    expect("at rest", &armed.take_written(&region)?, &[])?;
    region.grow_to(8 * PAGE_BYTES)?;
    [0, 2, 4, 7].into_iter().for_each(write);
    read(3);
    expect("after arming", &armed.take_written(&region)?, &[0, 2, 4, 7])?;
    [1, 2].into_iter().for_each(write);
    expect("after arming again", &armed.take_written(&region)?, &[1, 2])
}

/// # Safety
/// `arg` must be what the request takes.
unsafe fn ioctl<T>(file: &impl AsRawFd, request: libc::Ioctl, arg: &mut T) -> io::Result<()> {
    // SAFETY: passed on to our caller.
    unsafe { ioctl_count(file, request, arg) }.map(|_| ())
}

/// # Safety
/// `arg` must be what the request takes.
unsafe fn ioctl_count<T>(file: &impl AsRawFd, request: libc::Ioctl, arg: &mut T) -> io::Result<usize> {
    loop {
        // SAFETY: the descriptor is open as long as `file` is borrowed; `arg` is right for the request, says our caller.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(arg)) };
        match usize::try_from(result) {
            Ok(count) => return Ok(count),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Tracks one memory.
pub(crate) struct KernelTracker {
    kernel: Arc<Kernel>,
    /// Pages that are not tracked.
    scratch: Range<u32>,
    is_registered: bool,
}

impl KernelTracker {
    pub(super) fn new(kernel: Arc<Kernel>, scratch: Range<u32>) -> KernelTracker {
        KernelTracker { kernel, scratch, is_registered: false }
    }

    /// See [`super::Tracker::take_written`].
    pub(super) fn take_written(&mut self, region: &Region) -> io::Result<PageSet> {
        if self.is_registered {
            match self.kernel.scan(region, &self.scratch, true) {
                // Something replaced a mapping and with it the registration: everything private may have been written.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    tracing::warn!("write protection of a memory was lost; capturing all of its private pages");
                }
                result => return result,
            }
        }
        self.kernel.register(region)?;
        self.is_registered = true;
        self.kernel.scan(region, &self.scratch, false)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout)]
    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;

    fn template(pages: usize) -> crate::memory::SealedMemory {
        let builder = SealedBuilder::new(pages * PAGE_BYTES).unwrap();
        builder.write(0, &vec![1; pages * PAGE_BYTES]).unwrap();
        builder.seal().unwrap()
    }

    fn write(region: &Region, page: usize) {
        // SAFETY: no guest knows this region, no slice of it lives.
        unsafe { region.write(page * PAGE_BYTES, b"x") };
    }

    #[test]
    fn a_lost_registration_gives_all_private_pages_and_tracking_goes_on() {
        let kernel = match Kernel::probe() {
            Ok(kernel) => kernel,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let template = template(8);
        let region = Region::reserve(64 * PAGE_BYTES).unwrap();
        region.overlay(&template).unwrap();
        let mut armed = KernelTracker::new(kernel, 0..0);
        write(&region, 0);
        assert!(armed.take_written(&region).unwrap().iter().eq([0]));
        write(&region, 3);
        // SAFETY: replaces a part of the region's own mapping by the same content; no slice of it lives.
        unsafe {
            let (at, flags) = (region.base().add(4 * PAGE_BYTES).cast(), MapFlags::PRIVATE | MapFlags::FIXED);
            mmap(at, PAGE_BYTES, ProtFlags::READ | ProtFlags::WRITE, flags, template.file(), 4 * PAGE_BYTES as u64).unwrap();
        }
        write(&region, 4);
        assert!(armed.take_written(&region).unwrap().iter().eq([0, 3, 4]), "all private pages, written or not");
        write(&region, 4);
        assert!(armed.take_written(&region).unwrap().iter().eq([4]));
    }

    #[test]
    fn more_runs_than_one_scan_returns_are_all_found() {
        let kernel = match Kernel::probe() {
            Ok(kernel) => kernel,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let pages = 4 * SCAN_RUNS;
        let template = template(pages);
        let region = Region::reserve(2 * pages * PAGE_BYTES).unwrap();
        region.overlay(&template).unwrap();
        let mut armed = KernelTracker::new(kernel, 0..0);
        for _ in 0..2 {
            (0..pages).step_by(2).for_each(|page| write(&region, page));
            assert!(armed.take_written(&region).unwrap().iter().eq((0..pages as u32).step_by(2)));
        }
    }
}
