//! Calls and what comes out of them.

use super::*;
use crate::{CallError, SandboxError, TrapKind};

#[test]
fn what_is_emitted_is_what_was_sent_column_by_column() {
    let mut instance = Instance::new(&template(&HASH.1)).unwrap();
    let mut batch = Batch::default();
    batch.push(-5, b"key", b"value");
    // A key of no bytes says that there is none.
    batch.push_row(weir_model::RowRef { timestamp: i64::MAX, key: None, value: Some(b""), headers: b"" });
    batch.push(0, b"k", &[0xff; 100]);
    let mut emitted = EmittedRows::new();
    emitted.rows_to(9).push(1, b"before", b"");
    let before = emitted.rows_to(9).clone();
    assert_eq!(instance.process(op::ECHO, batch.view(), &mut emitted).unwrap(), []);
    let expected = [(9, before.view()), (3, batch.view())];
    assert!(emitted.entries().eq(expected), "appended to what was there: {emitted:?}");
    instance.advance(1, &mut emitted).unwrap();
    instance.finish(&mut emitted).unwrap();
    assert!(emitted.entries().eq(expected));
    instance.process(op::ECHO, batch.view(), &mut emitted).unwrap();
    let mut twice = batch.clone();
    twice.extend(batch.view());
    assert!(emitted.entries().eq([(9, before.view()), (3, twice.view())]), "one entry for both calls: {emitted:?}");
}

#[test]
fn a_failed_call_emits_nothing_and_leaves_the_instance_usable() {
    let mut instance = Instance::new(&template(&HASH.1)).unwrap();
    let batch = rows(&[(1, 2)]);
    let mut emitted = EmittedRows::new();
    emitted.rows_to(3).push(1, b"before", b"");
    let error = instance.process(op::FAIL, batch.view(), &mut emitted).unwrap_err();
    assert!(matches!(&error, CallError::Failed(reason) if reason == "a line"), "{error}");
    assert_eq!(emitted.rows_len(), 1, "what was there before is");
    assert_eq!(run(&mut instance, op::ECHO, &batch).rows_len(), 1);
}

#[test]
fn rejections_name_rows_of_the_call_and_nothing_else() {
    let mut instance = Instance::new(&template(&HASH.1)).unwrap();
    let mut emitted = EmittedRows::new();
    let rejected = instance.process(op::REJECT, rows(&[(1, 0), (0, 0)]).view(), &mut emitted).unwrap();
    assert_eq!(rejected, [crate::Rejection { row: 1, reason: "a line".to_string() }]);
    let error = instance.process(op::REJECT, rows(&[(2, 0), (0, 0)]).view(), &mut emitted).unwrap_err();
    assert!(matches!(&error, CallError::Trapped(trap) if trap.kind == TrapKind::Contract), "{error}");
}

#[test]
fn a_refusal_to_open_names_the_operator_and_its_reason() {
    let events = Arc::new(Events::default());
    let error = Template::open(&HASH.1, &described(), &context("fail"), &InstanceLimits::default(), events).err().unwrap();
    assert!(matches!(&error, SandboxError::Open { operator, reason } if operator == "op" && reason == "fail"), "{error}");
}

#[test]
fn state_saved_as_rows_loads_into_another_instance() {
    let template = template(&HASH.1);
    let mut first = Instance::new(&template).unwrap();
    step(&mut first, &[1, 2, 3]);
    let saved = first.save().unwrap();
    assert_eq!(saved.len(), 1);
    let mut second = Instance::new(&template).unwrap();
    second.load(saved[0].view(), "guest@1").unwrap();
    assert_eq!(second.save().unwrap(), saved);
    assert_eq!(first.save().unwrap(), saved, "saving changes nothing");
}

#[test]
fn instances_of_a_template_share_nothing_they_write() {
    for component in guests() {
        let template = template(component);
        let fresh = memory(&Instance::new(&template).unwrap());
        assert_eq!(fresh[0x20000], 7, "written by open");
        let mut one = Instance::new(&template).unwrap();
        poke(&mut one, 0x20000, 99);
        step(&mut one, &[1]);
        let other = Instance::new(&template).unwrap();
        assert_eq!(memory(&other), fresh);
        assert_ne!(memory(&one), fresh);
    }
}

#[test]
fn a_template_survives_encoding_and_serves_captures_of_the_first() {
    let limits = InstanceLimits::default();
    for component in guests() {
        let template = template(component);
        let mut instance = Instance::new(&template).unwrap();
        step(&mut instance, &[4, 5, 6]);
        let image = capture(&mut instance, 1);
        let again = Template::decode(component, &described(), &template.encode(), &limits, Arc::new(Events::default())).unwrap();
        assert_eq!(again.encode(), template.encode());
        assert_eq!(step(&mut restore(&again, &[image]), &[7]), step(&mut instance, &[7]));
    }
}

#[test]
fn a_component_from_the_cache_runs_like_one_just_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Some(folder.path().join("cache"));
    let entries = || std::fs::read_dir(folder.path().join("cache")).unwrap().count();
    let mut states = Vec::new();
    for round in 0..2 {
        let sandbox = Sandbox::new(SandboxOptions { cache: cache.clone(), ..SandboxOptions::default() }).unwrap();
        let component = sandbox.take_in(&GUEST).unwrap();
        let mut instance = Instance::new(&template(&component)).unwrap();
        states.push(step(&mut instance, &[1, 2, 3]));
        // The key, and the component in its two forms.
        assert_eq!(entries(), 3, "round {round}");
    }
    assert_eq!(states[0], states[1]);
}
