//! Memory for what lives within one call: the rows that a call gets. Described to the host, which then does not capture its pages.
//!
//! Nothing of state can lie here, by construction: it is lent out only for the arguments of calls after `open`, whose own an operator may
//! keep, and these come into `Lent`, which operators never see as an owned value. Only on wasm32.
#![allow(unsafe_code, reason = "the allocation function of the canonical ABI, and memory that it lends")]

use std::alloc::{Layout, alloc, handle_alloc_error, realloc};
use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// Pages of 64 KiB. A call has 32,768 rows at most, whose times, keys of 8 bytes and ends take 700 KiB; what is larger goes to the heap.
const ARENA_BYTES: usize = 16 << 16;

/// Integers come first in what is lent, and are viewed in place.
const ALIGN: usize = 8;

#[repr(C, align(65536))]
struct Arena(UnsafeCell<[u8; ARENA_BYTES]>);

// SAFETY: a component has one thread.
unsafe impl Sync for Arena {}

static ARENA: Arena = Arena(UnsafeCell::new([0; ARENA_BYTES]));

thread_local! {
    /// Bytes of the arena that are lent; none at all before `open` has returned.
    static LENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Where the arena is: its offset and length.
pub(crate) fn place() -> (u32, u32) {
    (ARENA.0.get().addr() as u32, ARENA_BYTES as u32)
}

/// A call has its arguments: what the host puts here from now on, for an import, is of the heap, since anybody may keep it.
#[inline]
pub(crate) fn begin_call() {
    LENT.set(None);
}

/// After a call: what was lent for it is free again.
#[inline]
pub(crate) fn end_call() {
    LENT.set(Some(0));
}

fn is_ours(at: *const u8) -> bool {
    let start = ARENA.0.get().addr();
    (start..start + ARENA_BYTES).contains(&at.addr())
}

/// What the host has put into this memory for the length of a call: freed if it is of the heap.
#[derive(Debug)]
pub(crate) struct Lent(ManuallyDrop<Vec<u8>>);

impl Lent {
    /// Takes what the bindings made of it.
    #[inline]
    pub(crate) fn new(bytes: Vec<u8>) -> Lent {
        Lent(ManuallyDrop::new(bytes))
    }
}

impl Deref for Lent {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        if !is_ours(self.0.as_ptr()) {
            // SAFETY: it is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.0) }
        }
    }
}

/// What the host calls to put something into this memory. Calls no import.
#[unsafe(export_name = "cabi_realloc")]
unsafe extern "C" fn cabi_realloc(old: *mut u8, old_len: usize, align: usize, len: usize) -> *mut u8 {
    let align = align.max(ALIGN);
    if old_len == 0 {
        if len == 0 {
            return std::ptr::without_provenance_mut(align);
        }
        if let Some(lent) = LENT.get() {
            let start = lent.next_multiple_of(align);
            if len <= ARENA_BYTES - start.min(ARENA_BYTES) {
                LENT.set(Some(start + len));
                // SAFETY: within the arena.
                return unsafe { ARENA.0.get().cast::<u8>().add(start) };
            }
        }
        // SAFETY: the length is not 0; `align` is a power of two by the canonical ABI.
        return unsafe {
            let layout = Layout::from_size_align_unchecked(len, align);
            let made = alloc(layout);
            if made.is_null() { handle_alloc_error(layout) } else { made }
        };
    }
    if is_ours(old) {
        // Strings that grow while they are transcoded; rows never do.
        // SAFETY: a new place of `len` bytes, which is no shorter than what is copied.
        return unsafe {
            let made = cabi_realloc(std::ptr::null_mut(), 0, align, len);
            std::ptr::copy(old, made, old_len.min(len));
            made
        };
    }
    // SAFETY: it was made above with this alignment, or by the bindings with that of bytes, for which the allocator makes no difference.
    unsafe {
        let layout = Layout::from_size_align_unchecked(old_len, align);
        let made = realloc(old, layout, len);
        if made.is_null() { handle_alloc_error(layout) } else { made }
    }
}
