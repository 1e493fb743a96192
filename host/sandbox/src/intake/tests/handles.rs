//! s90: no handle is ever made, whatever a component is composed of.

use super::rig::{Rig, fixture, validate};
use crate::intake::handles::Handles;
use crate::intake::{inspect, prepare};

/// A component whose module with the given fields is given `resource.new` as `"h" "new"`.
fn given(fields: &str, module: &str) -> String {
    format!(
        "(component (type $r (resource (rep i32))) (core func $new (canon resource.new $r)) {fields}
           (core module $m {module}) (core instance $i (instantiate $m (with \"h\" (instance (export \"new\" (func $new))))))
           (instance $lifecycle) (export \"weir:operator/lifecycle@0.2.0\" (instance $lifecycle)))"
    )
}

fn refusal(bytes: &[u8]) -> String {
    let message = prepare(bytes).unwrap_err().to_string();
    assert_eq!(inspect(bytes).unwrap_err().to_string(), message);
    message
}

const IMPORT: &str = "(import \"h\" \"new\" (func $new (param i32) (result i32)))";

#[test]
fn s90_components_that_share_resources_are_refused_with_construct_place_and_remedy() {
    let message = refusal(&fixture!("handles"));
    for expected in [
        "component refused: `resource.new`, which a core module uses as \"handles\" \"new\", in nested component 1; ",
        "no snapshot holds",
        "pass numbers or bytes instead of resources",
    ] {
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn s90_whatever_could_make_a_handle_is_refused() {
    for module in [
        "(func (export \"f\") (drop (call $new (i32.const 1))))",
        "(func (export \"f\") (param i32) (result i32) (return_call $new (local.get 0)))",
        "(export \"f\" (func $new))",
        "(table 1 funcref) (elem (i32.const 0) func $new)",
        "(table 1 funcref) (elem (i32.const 0) funcref (ref.func $new))",
        "(elem declare func $new) (func (drop (ref.func $new)))",
        "(global funcref (ref.func $new))",
    ] {
        let used = wat::parse_str(given("", &format!("{IMPORT} {module}"))).unwrap();
        let message = refusal(&used);
        assert!(
            message.contains("`resource.new`, which a core module uses as \"h\" \"new\", in the component"),
            "{module}: {message}"
        );
    }
    let unused = wat::parse_str(given("", IMPORT)).unwrap();
    assert!(prepare(&unused).is_ok(), "only its use is refused");
}

#[test]
fn s90_a_maker_of_handles_is_followed_through_bundles_and_aliases() {
    let detour = "(core instance $a (export \"x\" (func $new))) (alias core export $a \"x\" (core func $again))
        (core instance $b (export \"y\" (func $again)))
        (core module $n (import \"b\" \"y\" (func $y (param i32) (result i32))) (func (export \"f\") (drop (call $y (i32.const 1)))))
        (core instance (instantiate $n (with \"b\" (instance $b))))";
    let message = refusal(&wat::parse_str(given(detour, IMPORT)).unwrap());
    assert!(message.contains("which a core module uses as \"b\" \"y\""), "{message}");

    let lifted = "(func (export \"f\") (param \"x\" u32) (result u32) (canon lift (core func $new)))";
    let message = refusal(&wat::parse_str(given(lifted, IMPORT)).unwrap());
    assert!(message.contains("`resource.new`, which makes handles, in the component"), "{message}");
}

#[test]
fn s90_resources_that_are_no_part_of_a_stub_are_refused_though_nobody_uses_them() {
    let lifecycle = "(instance $lifecycle) (export \"weir:operator/lifecycle@0.2.0\" (instance $lifecycle))";
    for (fields, expected) in [
        ("(type (resource (rep i32)))", "a resource type in the component"),
        (
            "(type $r (resource (rep i32))) (core func (canon resource.new $r))",
            "`resource.new`, which makes handles, in the component",
        ),
        ("(type $r (resource (rep i32))) (core func (canon resource.rep $r))", "a resource type in the component"),
        ("(component (type (resource (rep i32))))", "a resource type in nested component 1"),
    ] {
        let message = refusal(&wat::parse_str(format!("(component {fields} {lifecycle})")).unwrap());
        assert!(message.contains(expected), "{fields}: {message}");
    }
}

#[test]
fn s90_a_stub_that_makes_no_handle_is_taken_and_traps_when_it_is_called() {
    let prepared = prepare(&fixture!("stub")).unwrap();
    validate(&prepared);
    let mut rig = Rig::new(&prepared.init, &prepared.accessors);
    assert_eq!(rig.call::<(), u32>("count", ()), 42);
    assert!(rig.run("make", ()).is_err());
}

#[test]
fn s90_canonical_functions_of_versions_to_come_are_refused() {
    let unknown = wasmparser::CanonicalFunction::ThreadAvailableParallelism;
    let construct = Handles::default().canonical(&unknown).unwrap_err();
    assert!(construct.contains("`ThreadAvailableParallelism`, which neither lifts nor lowers"), "{construct}");
}
