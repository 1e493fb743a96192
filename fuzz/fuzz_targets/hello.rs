//! The first words of a connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = weir_transport::fuzz::hello(bytes);
});
