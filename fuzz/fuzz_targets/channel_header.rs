//! The first bytes of a channel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weir_transport::fuzz::channel_header(bytes);
});
