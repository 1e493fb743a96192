//! Names and versions in components.

use super::rig::fixture;
use crate::intake::{inspect, prepare, stamp};

#[test]
fn a_stamped_component_carries_its_name_and_a_second_stamp_replaces_the_first() {
    let bytes = fixture!("one-level");
    let first = stamp(&bytes, "count", "1.0.0").unwrap();
    assert_eq!(inspect(&first).unwrap().name.as_deref(), Some("count@1.0.0"));
    let second = stamp(&first, "count", "1.1.0-rc.1").unwrap();
    assert_eq!(prepare(&second).unwrap().name.as_deref(), Some("count@1.1.0-rc.1"));
    assert_ne!(prepare(&first).unwrap().digest, prepare(&second).unwrap().digest);
    assert_eq!(stamp(&second, "count", "1.0.0").unwrap(), first, "nothing of the replaced name is left");
}

#[test]
fn a_core_module_can_be_stamped_too() {
    let module = stamp(b"\0asm\x01\0\0\0", "m", "1").unwrap();
    wasmparser::Validator::new().validate_all(&module).unwrap();
}

#[test]
fn names_that_no_job_file_could_hold_are_refused() {
    let bytes = fixture!("one-level");
    let long = "n".repeat(65);
    for (name, version) in
        [("", "1"), ("a", ""), ("a@b", "1"), ("../a", "1"), ("a", "1/2"), ("a b", "1"), ("é", "1"), (&long, "1")]
    {
        let message = stamp(&bytes, name, version).unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot stamp a component as {name}@{version}: a ")), "{message}");
    }
    assert!(stamp(b"text", "a", "1").unwrap_err().to_string().contains("a text file"));
}

#[test]
fn a_name_section_that_holds_no_name_is_refused() {
    let mut bytes = fixture!("one-level");
    let mut payload = Vec::new();
    wasm_encoder::Encode::encode("weir:component", &mut payload);
    payload.extend_from_slice(b"../../etc@1");
    crate::intake::sections::push(&mut bytes, 0, &payload);
    let message = inspect(&bytes).unwrap_err().to_string();
    assert!(message.contains("`weir:component` that holds no name@version"), "{message}");
}
