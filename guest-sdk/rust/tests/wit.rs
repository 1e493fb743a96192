//! The package carries the contract with it, so that it can be used outside this repository.

#[test]
fn the_packaged_contract_is_the_one_of_the_repository() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let Ok(original) = std::fs::read_to_string(here.join("../../wit/weir.wit")) else {
        return; // Vendored beside a user's crate: nothing to compare with.
    };
    let packaged = std::fs::read_to_string(here.join("wit/weir.wit")).expect("the package has the contract");
    assert!(original == packaged, "copy wit/weir.wit to guest-sdk/rust/wit/weir.wit");
}
