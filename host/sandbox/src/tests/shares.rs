//! s94: the instances of an operator, and all operators of a process, are bounded together; over a bound the operator is told, and the
//! others do not notice.

use super::*;
use crate::{CallError, SandboxError, TrapKind};

const MIB: u64 = 1 << 20;

/// A template of which all instances may hold so much beside what they share.
fn shared(component: &Component, total: u64) -> Result<Template, SandboxError> {
    let limits = InstanceLimits { memory_total_bytes: Some(total), ..InstanceLimits::default() };
    Template::open(component, &described(), &context("{}"), &limits, Arc::new(Events::default()))
}

/// Pages of 64 KiB that are granted until growing is refused.
fn grow_until_refused(instance: &mut Instance) -> u64 {
    for grown in 0.. {
        if let Err(error) = instance.process(op::GROW, rows(&[(1, 0)]).view(), &mut EmittedRows::new()) {
            assert!(matches!(error, CallError::Failed(_)), "{error}");
            return grown;
        }
    }
    unreachable!()
}

#[test]
fn s94_instances_of_an_operator_share_one_bound_and_give_back_what_they_held() {
    let component = &HASH.1;
    // The first instance has 32 pages, the template then holds those with content.
    let template = shared(component, 16 * MIB).unwrap();
    let mut instances: Vec<Instance> = (0..4).map(|_| Instance::new(&template).unwrap()).collect();
    let grown: Vec<u64> = instances.iter_mut().map(grow_until_refused).collect();
    assert!(grown[0] * 64 * 1024 > 15 * MIB && grown[0] * 64 * 1024 < 16 * MIB, "{grown:?}");
    assert_eq!(grown[1..], [0, 0, 0], "one bound for all");
    let mut other = Instance::new(&shared(component, 16 * MIB).unwrap()).unwrap();
    grow(&mut other, 100);
    instances.remove(0);
    assert_eq!(grow_until_refused(&mut instances[0]), grown[0], "what was held is there again");
}

#[test]
fn s94_an_image_that_does_not_fit_is_refused_with_what_to_do() {
    let component = &HASH.1;
    let roomy = shared(component, 64 * MIB).unwrap();
    let mut instance = Instance::new(&roomy).unwrap();
    grow(&mut instance, 320);
    let image = capture(&mut instance, 1);
    let template = shared(component, 16 * MIB).unwrap();
    let error = Instance::restore(&template, &[&image]).err().unwrap();
    assert!(matches!(error, SandboxError::TotalMemory { .. }), "{error}");
    assert!(error.to_string().contains("may hold 16777216; raise `limits.memory_total`"), "{error}");
    let error = shared(component, MIB).err().unwrap();
    assert!(error.to_string().contains("memory"), "{error}");
}

#[test]
fn s94_pages_written_over_the_template_count_from_the_next_capture_on() {
    for component in guests() {
        let template = shared(component, 3 * MIB).unwrap();
        let mut other = Instance::new(&self::template(component)).unwrap();
        let mut instances: Vec<Instance> = (0..4).map(|_| Instance::new(&template).unwrap()).collect();
        let fill = |instance: &mut Instance| run(instance, op::FILL, &rows(&[(0x20000, 0), (0x100000 - 0x20000, 0), (9, 0)]));
        // Twice the same pages of one instance are counted once.
        for checkpoint in 1..=4 {
            fill(&mut instances[0]);
            capture(&mut instances[0], checkpoint);
        }
        fill(&mut instances[0]);
        for instance in &mut instances {
            fill(instance);
            capture(instance, 5);
        }
        for instance in &mut instances {
            let error = instance.process(op::ECHO, rows(&[(1, 1)]).view(), &mut EmittedRows::new()).unwrap_err();
            let CallError::Trapped(trap) = error else { panic!("{error}") };
            assert!(
                trap.kind == TrapKind::Limit && trap.message.contains("may hold 3145728; raise `limits.memory_total`"),
                "{trap}"
            );
        }
        step(&mut other, &[1]);
        // Another attempt starts with nothing held.
        drop(instances);
        step(&mut Instance::new(&shared(component, 3 * MIB).unwrap()).unwrap(), &[1]);
    }
}

#[test]
fn s94_states_that_do_not_fit_together_are_refused_at_the_restore_with_the_setting_to_raise() {
    for component in guests() {
        let roomy = shared(component, 64 * MIB).unwrap();
        let image = |checkpoint| {
            let mut instance = Instance::new(&roomy).unwrap();
            run(&mut instance, op::FILL, &rows(&[(0x20000, 0), (0x100000 - 0x20000, 0), (9, 0)]));
            capture(&mut instance, checkpoint)
        };
        let images = [image(7), image(7), image(7), image(7)];
        let restored: Vec<_> = images.iter().map(|image| Instance::restore(&roomy, &[image]).map(drop)).collect();
        assert!(restored.iter().all(Result::is_ok), "there is room");
        let small = shared(component, 3 * MIB).unwrap();
        let mut restored = Vec::new();
        let error = images
            .iter()
            .find_map(|image| Instance::restore(&small, &[image]).map(|instance| restored.push(instance)).err())
            .unwrap();
        assert!(matches!(error, SandboxError::TotalMemory { .. }), "{error}");
        let text = error.to_string();
        for part in ["state of checkpoint 7 does not fit", "may hold 3145728; raise `limits.memory_total` of the operator"] {
            assert!(text.contains(part), "{text}");
        }
        // All of them go with the execution, and another attempt starts with nothing held.
        drop(restored);
        assert!(Instance::restore(&shared(component, 3 * MIB).unwrap(), &[&images[0]]).is_ok());
    }
}

#[test]
fn s94_all_operators_of_a_process_share_its_bound() {
    let sandbox = Sandbox::new(SandboxOptions { memory_bytes: Some(1 << 40), ..SandboxOptions::default() }).unwrap();
    let component = sandbox.take_in(&GUEST).unwrap();
    let [mut one, mut other] = [(), ()].map(|()| Instance::new(&template(&component)).unwrap());
    step(&mut one, &[1]);
    grow(&mut other, 100);
    let small = Sandbox::new(SandboxOptions { memory_bytes: Some(MIB), ..SandboxOptions::default() }).unwrap();
    let component = small.take_in(&GUEST).unwrap();
    let error = Template::open(&component, &described(), &context("{}"), &InstanceLimits::default(), Arc::new(Events::default()))
        .err()
        .unwrap();
    assert!(error.to_string().contains("memory"), "{error}");
}

#[test]
fn s94_a_guest_that_gives_up_for_lack_of_shared_memory_says_which_bound_it_reached() {
    let template = shared(&HASH.1, 4 * MIB).unwrap();
    let mut instance = Instance::new(&template).unwrap();
    let mut batch = Batch::default();
    batch.push(1, b"", &vec![0; 8 << 20]);
    let error = instance.process(op::ECHO, batch.view(), &mut EmittedRows::new()).unwrap_err();
    let CallError::Trapped(trap) = error else { panic!("{error}") };
    assert_eq!(trap.kind, TrapKind::Limit, "{trap}");
    assert!(trap.message.contains("may hold 4194304; raise `limits.memory_total` of the operator; then: "), "{trap}");
}
