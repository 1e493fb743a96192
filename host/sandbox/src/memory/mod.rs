//! Linear memories as mappings of our own: reserved, overlaid on a template, grown, and watched for written pages.
//!
//! Owns every mapping of guest memory. Knows pages and bytes, nothing of components, calls or image formats.
#![allow(unsafe_code, reason = "mappings, page tables and the kernel's interfaces to them; see each SAFETY comment")]

mod creator;
mod keeper;
mod pages;
mod region;
mod sealed;
mod tracker;

pub(crate) use creator::{Creator, Start, with_plan};
pub use keeper::keep_memory_past_the_end;
pub(crate) use pages::{PageSet, Run};
pub(crate) use region::Region;
pub(crate) use sealed::{SealedBuilder, SealedMemory};
pub(crate) use tracker::{Tracker, choose_tracking};
pub use tracker::{Tracking, TrackingInUse};

/// Bytes of a page of the machine, the unit in which writes are tracked.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Address space of one linear memory: all a 32-bit address reaches.
pub(crate) const RESERVATION_BYTES: usize = 4 << 30;

/// Inaccessible space behind it, which lets compiled code leave out bounds checks.
pub(crate) const GUARD_BYTES: usize = 32 << 20;

/// Whether a page holds only zeros.
pub(crate) fn is_zero(page: &[u8]) -> bool {
    let (chunks, rest) = page.as_chunks::<64>();
    // A loop over fixed chunks with one branch each, which the compiler turns into vector instructions.
    chunks.iter().all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0) && rest.iter().all(|&byte| byte == 0)
}
