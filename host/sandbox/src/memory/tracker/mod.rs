//! Finding the pages a guest, or the host on its behalf, has written.
//!
//! Two ways, with the same meaning: ask the kernel, or compare hashes. Which one is used is decided once per sandbox.

mod hashing;
mod kernel;

use std::fmt;
use std::io;
use std::sync::Arc;

use super::{PageSet, Region, SealedMemory};
use crate::error::SandboxError;
use hashing::Hashing;
use kernel::{Kernel, KernelTracker};

/// How written pages are to be found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// With the kernel where that works, else by hashing.
    #[default]
    Auto,
    /// With the kernel (userfaultfd write protection and PAGEMAP_SCAN, Linux 6.7): costs about a microsecond per page
    /// first written after a capture, and next to nothing for pages that are not.
    Kernel,
    /// By comparing a hash of every page with that of the last capture: works anywhere, costs reading all memory at
    /// every capture.
    Hash,
}

/// How written pages are found, and why so.
#[derive(Clone)]
pub struct TrackingInUse {
    kernel: Option<Arc<Kernel>>,
    reason: String,
}

impl TrackingInUse {
    /// Whether the kernel does it.
    pub fn is_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// Why it is done this way.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// A tracker for a memory that was just made as an overlay of `template`.
    pub(crate) fn tracker(&self, template: &Arc<SealedMemory>) -> Tracker {
        match &self.kernel {
            Some(kernel) => Tracker::Kernel(KernelTracker::new(kernel.clone(), template.scratch().clone())),
            None => Tracker::Hash(Hashing::new(template.clone())),
        }
    }
}

impl fmt::Display for TrackingInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", if self.is_kernel() { "kernel" } else { "hash" }, self.reason)
    }
}

impl fmt::Debug for TrackingInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrackingInUse({self})")
    }
}

/// Probes what works here and chooses.
///
/// # Errors
/// If the kernel was asked for and does not track.
pub(crate) fn choose_tracking(tracking: Tracking) -> Result<TrackingInUse, SandboxError> {
    let hash = |reason: String| TrackingInUse { kernel: None, reason };
    if tracking == Tracking::Hash {
        return Ok(hash("asked for".to_string()));
    }
    match (Kernel::probe(), tracking) {
        (Ok(kernel), _) => {
            let reason = "userfaultfd write protection and PAGEMAP_SCAN work here".to_string();
            Ok(TrackingInUse { kernel: Some(kernel), reason })
        }
        (Err(reason), Tracking::Kernel) => Err(SandboxError::Tracking(reason)),
        (Err(reason), _) => Ok(hash(format!("the kernel cannot track: {reason}"))),
    }
}

/// Finds the written pages of one memory.
pub(crate) enum Tracker {
    Kernel(KernelTracker),
    Hash(Hashing),
}

impl Tracker {
    /// The pages written since the last time this was called, or since the memory was made. From now on all pages
    /// count as unwritten. May name pages whose content is the same as before. Never names those that hold no state.
    ///
    /// After an error nothing is known about the pages: the instance must not be captured again.
    ///
    /// # Safety
    /// The guest must not run, and `region` must always be the same.
    pub(crate) unsafe fn take_written(&mut self, region: &Region) -> io::Result<PageSet> {
        match self {
            Tracker::Kernel(armed) => armed.take_written(region),
            // SAFETY: passed on to our caller.
            Tracker::Hash(hashing) => Ok(unsafe { hashing.take_written(region) }),
        }
    }
}
