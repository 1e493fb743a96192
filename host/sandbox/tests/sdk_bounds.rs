//! The SDK refuses what the host would end an instance for. So both must have the same bounds.

use weir_model::limits;

#[test]
fn the_sdk_has_the_bounds_of_the_host() {
    assert_eq!(weir_sdk::KEY_BYTES_MAX, limits::KEY_BYTES_MAX);
    assert_eq!(weir_sdk::VALUE_BYTES_MAX, limits::VALUE_BYTES_MAX);
    assert_eq!(weir_sdk::HEADERS_BYTES_MAX, limits::HEADERS_BYTES_MAX);
    assert_eq!(weir_sdk::CALL_BYTES_MAX, limits::EMIT_BYTES_MAX);
}
