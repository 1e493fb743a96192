//! Whether there is room for more state: an operator that asks before it keeps something can reject the row that would fill its
//! memory, instead of ending for it, again and again.
//!
//! Owns the reserve that is never given to state, so that calls can still be answered when the rest is full. Never knows the
//! limits themselves (`limits.memory` and `limits.memory_total` in the job file, the worker's `--memory`): it asks for memory and
//! looks whether it gets it.

use std::cell::Cell;
use std::fmt;

/// The least that is kept free. What was looked for counts as held from then on, so it is not more than small instances need.
const RESERVE_BYTES_MIN: usize = 512 << 10;

thread_local! {
    /// Bytes that may be kept before the next look.
    static CREDIT_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// There is no room for more state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "there is no room for more state in this instance's memory; raise limits.memory (or what bounds it: \
             limits.memory_total, the worker's --memory), or keep less",
        )
    }
}

impl From<NoRoom> for crate::Error {
    fn from(error: NoRoom) -> crate::Error {
        crate::Error::reject(error)
    }
}

/// Asks for room to keep about `bytes` more. Looks at the memory only now and then, so it may be called for each row.
///
/// # Errors
/// If there is none beyond the reserve. `?` makes it a rejection of the row at hand.
#[inline]
pub fn reserve(bytes: usize) -> Result<(), NoRoom> {
    let credit = CREDIT_BYTES.get();
    if bytes <= credit {
        CREDIT_BYTES.set(credit - bytes);
        return Ok(());
    }
    look(bytes)
}

#[cold]
fn look(bytes: usize) -> Result<(), NoRoom> {
    // In proportion, so that it is there under any limit; an eighth of the default limit answers any ordinary call.
    let reserve = (imp::held_bytes() / 8).max(RESERVE_BYTES_MIN);
    let credit = reserve / 4;
    if imp::has(bytes.saturating_add(credit).saturating_add(reserve)) {
        CREDIT_BYTES.set(credit);
        return Ok(());
    }
    Err(NoRoom)
}

#[cfg(target_arch = "wasm32")]
mod imp {
    /// The memory that the instance has.
    pub(super) fn held_bytes() -> usize {
        core::arch::wasm32::memory_size(0) << 16
    }

    /// Whether so many bytes could be had in one piece. They are given back at once.
    pub(super) fn has(bytes: usize) -> bool {
        let mut piece: Vec<u8> = Vec::new();
        let got = piece.try_reserve_exact(bytes).is_ok();
        // Without this the compiler may take the answer for granted.
        std::hint::black_box(&piece);
        got
    }
}

/// Outside WebAssembly tests say how much there is.
#[cfg(not(target_arch = "wasm32"))]
mod imp {
    pub(super) fn held_bytes() -> usize {
        0
    }

    pub(super) fn has(bytes: usize) -> bool {
        crate::host::imp::with(|stand| stand.room.is_none_or(|room| bytes <= room))
    }
}

/// Forgets what was granted: a test begins anew.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn forget() {
    CREDIT_BYTES.set(0);
}
