//! The target that `WEIR_FUZZ_TARGET` names, with libFuzzer's coverage.
#![no_main]

use std::sync::LazyLock;

use weir_fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("WEIR_FUZZ_TARGET").expect("WEIR_FUZZ_TARGET names a target");
    weir_fuzz::target(&name).expect("a target of this name")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = (TARGET.run)(bytes);
});
