//! Hand-written components keep their behaviour, and their state can be read and put back.

use super::rig::{Rig, fixture, validate};
use crate::intake::{Accessor, MemoryInfo, PreparedUpload, inspect, prepare};

fn prepared(bytes: &[u8]) -> PreparedUpload {
    let prepared = prepare(bytes).unwrap();
    validate(&prepared);
    assert_eq!(prepared.inspection, inspect(bytes).unwrap());
    prepared
}

fn slots(accessors: &[Accessor]) -> Vec<u32> {
    for (position, accessor) in accessors.iter().enumerate() {
        assert_eq!(accessor.export, format!("weir:globals/a{position}"));
    }
    accessors.iter().map(|accessor| accessor.slots).collect()
}

const MEMORY_BYTES: u32 = 65_536;

fn memory(rig: &mut Rig) -> Vec<u64> {
    (0..MEMORY_BYTES / 8).map(|word| rig.call("peek", (8 * word,))).collect()
}

#[test]
fn the_instrumented_component_behaves_like_the_upload() {
    let bytes = fixture!("one-level");
    let prepared = prepared(&bytes);
    let (mut original, mut instrumented) = (Rig::new(&bytes, &[]), Rig::new(&prepared.init, &prepared.accessors));
    for _ in 0..20 {
        assert_eq!(original.call::<_, u64>("step", ()), instrumented.call::<_, u64>("step", ()));
    }
    assert_eq!(memory(&mut original), memory(&mut instrumented));
}

#[test]
fn globals_of_every_type_are_read_in_order_as_their_bits() {
    let prepared = prepared(&fixture!("one-level"));
    assert_eq!(slots(&prepared.accessors), [6], "five globals are set; the v128 takes two slots");
    let mut rig = Rig::new(&prepared.init, &prepared.accessors);
    rig.call::<_, u64>("step", ());
    let expected = [1040, 20, u64::from(1.75f32.to_bits()), (-0.375f64).to_bits(), 12, -31i64 as u64];
    assert_eq!(rig.globals(), [expected]);
}

#[test]
fn every_bit_of_every_global_can_be_set() {
    let prepared = prepared(&fixture!("one-level"));
    let mut rig = Rig::new(&prepared.run, &prepared.accessors);
    // NaNs with payloads: a float that is not moved as bits would lose them.
    let values =
        vec![0xdead_beef, u64::MAX - 1, 0x7fa0_1234, 0x7ff4_0000_dead_beef, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];
    rig.set_globals(std::slice::from_ref(&values));
    assert_eq!(rig.globals(), [values]);
}

#[test]
fn a_slot_that_does_not_exist_traps_and_changes_nothing() {
    let prepared = prepared(&fixture!("one-level"));
    for slot in [6, 7, u32::MAX] {
        assert!(Rig::new(&prepared.init, &prepared.accessors).get(0, slot).is_err());
        assert!(Rig::new(&prepared.init, &prepared.accessors).set(0, slot, 1).is_err());
    }
}

#[test]
fn instantiating_the_run_variant_runs_no_code_and_copies_no_data() {
    let prepared = prepared(&fixture!("one-level"));
    let mut rig = Rig::new(&prepared.run, &prepared.accessors);
    assert!(memory(&mut rig).iter().all(|word| *word == 0));
    assert_eq!(rig.globals()[0][0], u64::from(u32::MAX), "the start function would have set 1000");
}

#[test]
fn s50_the_run_variant_with_memory_and_globals_put_back_goes_on_like_the_original() {
    let bytes = fixture!("one-level");
    let prepared = prepared(&bytes);
    for cut in [0, 1, 7] {
        let (mut original, mut template) = (Rig::new(&bytes, &[]), Rig::new(&prepared.init, &prepared.accessors));
        for _ in 0..cut {
            assert_eq!(original.call::<_, u64>("step", ()), template.call::<_, u64>("step", ()));
        }
        let mut restored = Rig::new(&prepared.run, &prepared.accessors);
        for (at, word) in (0u32..).step_by(8).zip(memory(&mut template)) {
            restored.run("poke", (at, word)).unwrap();
        }
        restored.set_globals(&template.globals());
        for _ in 0..10 {
            assert_eq!(original.call::<_, u64>("step", ()), restored.call::<_, u64>("step", ()));
        }
        assert_eq!(memory(&mut original), memory(&mut restored));
    }
}

#[test]
fn an_active_segment_looks_dropped_to_the_code_in_both_variants() {
    let prepared = prepared(&fixture!("one-level"));
    for bytes in [&prepared.init, &prepared.run] {
        assert!(Rig::new(bytes, &prepared.accessors).run("copy-active", ()).is_err());
    }
}

#[test]
fn a_module_instantiated_twice_has_an_accessor_for_each_instance() {
    let prepared = prepared(&fixture!("twice"));
    assert_eq!(slots(&prepared.accessors), [1, 1]);
    let mut rig = Rig::new(&prepared.init, &prepared.accessors);
    for _ in 0..3 {
        rig.call::<_, u32>("bump-first", ());
    }
    rig.call::<_, u32>("bump-second", ());
    assert_eq!(rig.globals(), [[3], [1]]);
    rig.set(1, 0, 40).unwrap();
    assert_eq!((rig.call::<_, u32>("bump-first", ()), rig.call::<_, u32>("bump-second", ())), (4, 41));
}

#[test]
fn globals_of_nested_components_are_reached_from_the_top() {
    let prepared = prepared(&fixture!("nested"));
    // The top's own; then the outer component's own; then of each of its two inner ones, the counter and the own module.
    assert_eq!(slots(&prepared.accessors), [1, 1, 1, 2, 1, 2]);
    let mut rig = Rig::new(&prepared.init, &prepared.accessors);
    for (by, name) in (1u32..).zip(["bump-top", "bump-mine", "bump-left", "bump-right"]) {
        assert_eq!(rig.call::<_, u32>(name, (by,)), by);
    }
    assert_eq!(rig.call::<_, u64>("call-right", ()), 101);
    let zero = 0f64.to_bits();
    assert_eq!(rig.globals(), [vec![1], vec![2], vec![3], vec![100, zero], vec![4], vec![101, 100f64.to_bits()]]);

    let saved = rig.globals();
    let mut restored = Rig::new(&prepared.run, &prepared.accessors);
    restored.set_globals(&saved);
    for name in ["bump-top", "bump-mine", "bump-left", "bump-right"] {
        assert_eq!(rig.call::<_, u32>(name, (10u32,)), restored.call::<_, u32>(name, (10u32,)));
    }
    assert_eq!((restored.call::<_, u64>("call-left", ()), restored.call::<_, u64>("call-right", ())), (101, 102));
}

#[test]
fn a_global_that_only_another_module_sets_is_captured_where_it_is_defined() {
    let prepared = prepared(&fixture!("shared"));
    assert_eq!(slots(&prepared.accessors), [1]);
    assert_eq!((prepared.inspection.mutable_globals_defined, prepared.inspection.mutable_globals_captured), (2, 1));
    let mut rig = Rig::new(&prepared.init, &prepared.accessors);
    assert_eq!(rig.call::<_, u32>("push", ()), 484);
    assert_eq!(rig.globals(), [[484]]);
    let mut restored = Rig::new(&prepared.run, &prepared.accessors);
    restored.set_globals(&[vec![484]]);
    assert_eq!(restored.call::<_, u32>("push", ()), 468);
}

#[test]
fn a_component_is_described_by_what_one_instance_of_it_holds() {
    let one = inspect(&fixture!("one-level")).unwrap();
    assert_eq!(one.memories, [MemoryInfo { initial_pages: 1, maximum_pages: None }]);
    assert_eq!((one.mutable_globals_defined, one.mutable_globals_captured), (6, 5));
    assert_eq!((one.core_modules, one.core_instances, one.functions, one.nesting), (1, 1, 5, 1));
    assert_eq!(one.exports, ["weir:operator/lifecycle@0.2.0", "step", "copy-active", "peek", "poke"]);
    assert!(!one.is_portable && !one.componentized && one.imports.is_empty() && one.name.is_none());

    let nested = inspect(&fixture!("nested")).unwrap();
    assert_eq!((nested.core_modules, nested.core_instances, nested.nesting), (2, 6, 3));
    assert_eq!((nested.mutable_globals_defined, nested.mutable_globals_captured), (8, 8));
    assert_eq!(nested.imports, ["weir:operator/ambient@0.2.0"]);
    let json = serde_json::to_value(&nested).unwrap();
    assert_eq!(json["snapshots"], serde_json::json!(["image"]));
}

#[test]
fn preparing_twice_gives_the_same_bytes() {
    let bytes = fixture!("nested");
    let (first, second) = (prepare(&bytes).unwrap(), prepare(&bytes).unwrap());
    assert!(first.init == second.init && first.run == second.run && first.accessors == second.accessors);
}
