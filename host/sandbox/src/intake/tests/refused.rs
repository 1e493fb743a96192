//! Each refusal names the construct, where it is, and what to do.

use crate::intake::{inspect, prepare};

/// The message with which the component `text` is refused.
fn refusal(text: &str) -> String {
    let bytes = wat::parse_str(text).unwrap();
    let message = prepare(&bytes).unwrap_err().to_string();
    assert_eq!(inspect(&bytes).unwrap_err().to_string(), message);
    message
}

fn assert_refused(text: &str, expected: &[&str]) {
    let message = refusal(text);
    for expected in expected {
        assert!(message.contains(expected), "\"{message}\" does not say \"{expected}\"");
    }
}

const LIFECYCLE: &str = r#"(instance $lifecycle) (export "weir:operator/lifecycle@0.2.0" (instance $lifecycle))"#;

/// An operator whose only module has the given fields.
fn operator(module: &str) -> String {
    format!("(component (core module $m {module}) (core instance (instantiate $m)) {LIFECYCLE})")
}

#[test]
fn instructions_that_change_tables_are_refused_with_their_function() {
    let table = "(import \"e\" \"f\" (func)) (table $t 4 funcref) (elem $e func $g) (func $g)";
    for (name, code) in [
        ("table.set", "(table.set $t (i32.const 0) (ref.null func))"),
        ("table.grow", "(drop (table.grow $t (ref.null func) (i32.const 1)))"),
        ("table.fill", "(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))"),
        ("table.copy", "(table.copy $t $t (i32.const 0) (i32.const 1) (i32.const 1))"),
        ("table.init", "(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 1))"),
    ] {
        let text = format!("(component (core module {table} (func $culprit {code})) {LIFECYCLE})");
        let place = "function 2 (culprit) of core module 0";
        assert_refused(&text, &[&format!("component refused: `{name}` in {place}; "), "element segments", "link statically"]);
    }
}

#[test]
fn segments_that_are_dropped_are_refused_with_their_function() {
    let text = operator("(memory 1) (data $d \"x\") (func $culprit (data.drop $d))");
    assert_refused(&text, &["`data.drop` in function 0 (culprit) of core module 0", "leave the segment"]);
    let left = operator("(memory 1) (data $d \"x\") (func (memory.init $d (i32.const 0) (i32.const 0) (i32.const 1)))");
    assert!(prepare(&wat::parse_str(left).unwrap()).is_ok());
}

#[test]
fn tables_that_code_only_reads_are_taken() {
    let text = operator(
        "(table $t 4 funcref) (elem (i32.const 0) func $g) (func $g) (func (call_indirect $t (i32.const 0)) (drop (table.get $t (i32.const 0))) (drop (table.size $t)))",
    );
    assert!(prepare(&wat::parse_str(text).unwrap()).is_ok());
}

#[test]
fn globals_that_hold_references_are_refused_when_they_are_set() {
    let set = "(global $g (mut funcref) (ref.null func)) (func $culprit (global.set $g (ref.null func)))";
    assert_refused(
        &operator(set),
        &["`global.set` of global 0, which holds a reference, in function 0 (culprit)", "numbers only"],
    );
    let unset = "(global $g (export \"g\") (mut funcref) (ref.null func)) (func (drop (global.get $g)))";
    assert!(prepare(&wat::parse_str(operator(unset)).unwrap()).is_ok());
}

#[test]
fn features_that_keep_state_elsewhere_are_refused_by_name() {
    for (module, expected) in [
        ("(memory 1 1 shared)", "shared memory or threads"),
        ("(memory 1) (func (drop (i32.atomic.load (i32.const 0))))", "shared memory or threads"),
        ("(memory i64 1)", "64-bit memory"),
        ("(type (struct (field i32)))", "Wasm GC"),
        ("(table 1 externref)", "Wasm GC or host reference types"),
        ("(tag (param i32))", "exception handling"),
        ("(func (param v128) (result v128) (i32x4.relaxed_trunc_f32x4_s (local.get 0)))", "relaxed SIMD"),
    ] {
        assert_refused(&operator(module), &["component refused: ", expected, "; "]);
    }
}

#[test]
fn async_functions_are_refused() {
    let text = format!(
        "(component (core module $m (func (export \"f\"))) (core instance $i (instantiate $m))
           (func (export \"f\") async (canon lift (core func $i \"f\"))) {LIFECYCLE})"
    );
    assert_refused(&text, &["component-model async", "make the bindings synchronous"]);
}

#[test]
fn code_that_is_not_part_of_the_upload_is_refused() {
    for (fields, expected) in [
        ("(import \"m\" (core module))", "the imported core module \"m\" in the component"),
        ("(import \"c\" (component))", "the imported component \"c\" in the component"),
        ("(component (import \"m\" (core module)))", "the imported core module \"m\" in nested component 1"),
        (
            "(component $c (core module $m) (export \"m\" (core module $m))) (instance $i (instantiate $c)) (alias export $i \"m\" (core module))",
            "the core module \"m\" taken from an instance",
        ),
        (
            "(component $c (component $d) (export \"d\" (component $d))) (instance $i (instantiate $c)) (alias export $i \"d\" (component))",
            "the component \"d\" taken from an instance",
        ),
    ] {
        assert_refused(
            &format!("(component {fields} {LIFECYCLE})"),
            &[expected, "define it in the component that instantiates it"],
        );
    }
}

#[test]
fn code_instantiated_under_a_type_that_hides_its_globals_is_refused() {
    let module = "(core module $m (global (export \"g\") (mut i32) (i32.const 0)))";
    let text = format!(
        "(component {module} (core type $t (module)) (export $n \"narrow\" (core module $m) (core module (type $t)))
           (core instance (instantiate $n)) {LIFECYCLE})"
    );
    assert_refused(&text, &["core module 0 instantiated under an exported type"]);
    let text = format!(
        "(component (component $c {module} (core instance (instantiate $m))) (export $n \"narrow\" (component $c) (component))
           (instance (instantiate $n)) {LIFECYCLE})"
    );
    assert_refused(&text, &["component 1 instantiated under an exported type"]);
}

#[test]
fn imports_outside_the_contract_are_refused_by_name() {
    let with = |name: &str| format!("(component (import \"{name}\" (instance)) {LIFECYCLE})");
    for name in ["types", "output", "log", "metrics", "ambient", "state-writer"] {
        let bytes = wat::parse_str(with(&format!("weir:operator/{name}@0.2.0"))).unwrap();
        assert!(prepare(&bytes).is_ok(), "{name} is part of the contract");
    }
    for name in ["store", "timers"] {
        let name = format!("weir:operator/{name}@0.2.0");
        assert_refused(&with(&name), &[&format!("the import \"{name}\" in the component"), "for now"]);
    }
    assert_refused(&with("weir:operator/output@0.3.0"), &["weir:operator/output@0.3.0", "speaks version 0.2.0"]);
    assert_refused(&with("acme:db/query"), &["the import \"acme:db/query\"", "the host provides only weir:operator/types@0.2.0"]);
    let function = format!("(component (import \"print\" (func)) {LIFECYCLE})");
    assert_refused(&function, &["the import \"print\""]);
}

#[test]
fn a_component_of_contract_0_1_is_told_what_to_do_whatever_else_it_imports() {
    let imports = "(import \"acme:db/query\" (instance)) (import \"weir:operator/output@0.1.0\" (instance))";
    let exports = "(instance $i) (export \"weir:operator/lifecycle@0.1.0\" (instance $i))";
    for text in [format!("(component {imports} {exports})"), format!("(component {exports})")] {
        assert_refused(&text, &["@0.1.0\"", "this host speaks 0.2.0: build again with SDK 0.2"]);
    }
}

#[test]
fn wasi_imports_are_refused_with_what_to_do_about_them() {
    let imports = "(import \"wasi:cli/environment@0.2.3\" (instance)) (import \"wasi:io/streams@0.2.3\" (instance))";
    assert_refused(
        &format!("(component {imports} {LIFECYCLE})"),
        &[
            "the import \"wasi:cli/environment@0.2.3\" (and 1 more: wasi:io/streams@0.2.3)",
            "wasm32-unknown-unknown",
            "--stub-wasi",
        ],
    );
}

#[test]
fn a_component_that_is_no_operator_is_refused() {
    assert_refused("(component)", &["no export \"weir:operator/lifecycle@0.2.0\"", "weir:operator/operator@0.2.0"]);
    let other = "(component (instance $i) (export \"weir:operator/lifecycle@0.9.0\" (instance $i)))";
    assert_refused(other, &["the export \"weir:operator/lifecycle@0.9.0\"", "this host speaks version 0.2.0"]);
    let timed = format!("(component {LIFECYCLE} (export \"weir:operator/timed@0.2.0\" (instance $lifecycle)))");
    assert_refused(&timed, &["the export \"weir:operator/timed@0.2.0\"", "for now"]);
}

#[test]
fn what_is_already_instrumented_is_refused() {
    let prepared = prepare(&super::rig::fixture!("twice")).unwrap();
    let message = prepare(&prepared.init).unwrap_err().to_string();
    assert!(message.contains("a name reserved for weir") && message.contains("as the toolchain made it"), "{message}");
}

#[test]
fn a_core_module_is_told_how_to_become_a_component() {
    assert_refused("(module)", &["a core module, not a component", "no section `component-type`", "wit-bindgen"]);
    let with = |fields: &str| format!("(module (@custom \"component-type:x\" \"not even read\") {fields})");
    let preview1 = with("(import \"wasi_snapshot_preview1\" \"fd_write\" (func))");
    assert_refused(&preview1, &["the import \"wasi_snapshot_preview1\"", "wasm32-unknown-unknown"]);
    assert_refused(&with("(import \"env\" \"printf\" (func))"), &["the import \"env\"", "not linked in"]);
    assert_refused(&with(""), &["no export \"weir:operator/lifecycle@0.2.0\""]);
    let unlike = with("(func (export \"weir:operator/lifecycle@0.2.0#finish\"))");
    assert_refused(&unlike, &["could not be made a component", "build it again with bindings for this host's wit/weir.wit"]);
}

#[test]
fn a_core_module_whose_strings_are_not_utf8_is_refused() {
    let utf16 = r#"(@custom "component-type" "\00asm\0d\00\01\00\00\19\16wit-component-encoding\04\01")"#;
    assert_refused(&format!("(module {utf16})"), &["its strings are not UTF-8"]);
}

#[test]
fn more_than_the_limits_allow_is_refused_with_the_number() {
    let memories = "(memory 1)".repeat(17);
    assert_refused(&operator(&memories), &["the number of linear memories is 17, more than the limit of 16"]);
    let tables = "(table 1 funcref)".repeat(65);
    assert_refused(&operator(&tables), &["the number of tables is 65, more than the limit of 64"]);
    let tables = "(table 131073 funcref)".repeat(2);
    assert_refused(&operator(&tables), &["the number of elements of all tables is 262146, more than the limit of 262144"]);
    let nested = format!(
        "(component (component $c (core module $m (table 100000 funcref)) (core instance (instantiate $m)))
           (instance (instantiate $c)) (instance (instantiate $c)) (instance (instantiate $c)) {LIFECYCLE})"
    );
    assert_refused(&nested, &["the number of elements of all tables is 300000, more than the limit of 262144"]);
    let globals = "(global (export \"g\") (mut i32) (i32.const 0))".replace("\"g\"", "\"%\"");
    let globals: String = (0..1_025).map(|n| globals.replace('%', &n.to_string())).collect();
    assert_refused(&operator(&globals), &["the number of mutable globals in a snapshot (a v128 counts twice) is 1025"]);
    let wide: String = (0..513).map(|n| format!("(global (export \"{n}\") (mut v128) (v128.const i64x2 0 0))")).collect();
    assert_refused(&operator(&wide), &["the number of mutable globals in a snapshot (a v128 counts twice) is 1026"]);
    let large = format!("(func {})", "(drop (i32.const 0))".repeat(350_000));
    assert_refused(&operator(&large), &["the size of one function's body in bytes is 1050", "more than the limit of 1048576"]);
    let instances = "(core instance (instantiate $m))".repeat(129);
    let text = format!("(component (core module $m) {instances} {LIFECYCLE})");
    assert_refused(&text, &["the number of core instances is 129, more than the limit of 128"]);
    let bodies = "(func)".repeat(100_001);
    assert_refused(&operator(&bodies), &["the number of core functions is 100001, more than the limit of 100000"]);
}

#[test]
fn instances_that_multiply_level_by_level_are_refused_before_they_are_counted_out() {
    // 100 instances at each of 7 levels: 10^14.
    let mut text = "(component $c)".to_string();
    for _ in 0..6 {
        text = format!("(component $c {text} {})", "(instance (instantiate $c))".repeat(100));
    }
    let text = format!("(component {text} (instance (instantiate $c)) {LIFECYCLE})");
    assert_refused(&text, &["the number of component instances is 10", "more than the limit of 1000"]);
}

#[test]
fn a_file_that_is_too_large_is_refused_before_it_is_read() {
    let message = prepare(&vec![0; (32 << 20) + 1]).unwrap_err().to_string();
    assert!(message.contains("the size of the file in bytes is 33554433, more than the limit of 33554432"), "{message}");
}
