//! Frames as a peer or a file may hold them: no panic, nothing beyond the bounds, and what is accepted is written back the
//! same.
#![no_main]

use weir_channel::wire::fuzz;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::frames(bytes));
