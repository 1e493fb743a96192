//! s96: two memories in one component. wasmtime asks for memories without saying which is which, so a change of its order would
//! exchange them, and nothing but these tests would notice: their sizes are equal.

use super::*;
use crate::merge;

/// What `process` of `twins.wat` does for each input.
mod op {
    pub(super) const POKE_RIGHT: u32 = 0;
    pub(super) const POKE_LEFT: u32 = 1;
    pub(super) const GROW_RIGHT: u32 = 2;
    pub(super) const GROW_LEFT: u32 = 3;
    pub(super) const CHECK: u32 = 4;
}

/// Positions of the memories: in the order in which their modules are instantiated, not in that of their definitions.
const LEFT: usize = 0;
const RIGHT: usize = 1;

/// The component under each tracker that works here.
fn twins() -> Vec<Component> {
    let bytes = wat::parse_str(include_str!("twins.wat")).unwrap();
    let sandboxes = KERNEL.as_ref().map(|(sandbox, _)| sandbox).into_iter().chain(Some(&HASH.0));
    sandboxes.map(|sandbox| sandbox.take_in(&bytes).unwrap()).collect()
}

#[allow(unsafe_code, reason = "reads a guest's memories")]
fn memories(instance: &Instance) -> [Vec<u8>; 2] {
    // SAFETY: the instance is borrowed and not in a call.
    [LEFT, RIGHT].map(|memory| unsafe { instance.region(memory).bytes() }.to_vec())
}

fn call(instance: &mut Instance, op: u32, timestamp: i64, value: u64) {
    run(instance, op, &rows(&[(timestamp, value)]));
}

/// Both the guest and the host see each memory where it belongs.
fn check(instance: &mut Instance) {
    call(instance, op::CHECK, 0, 0);
    let [left, right] = memories(instance);
    assert_eq!((&left[1024..1032], &right[1024..1032]), (&b"left...."[..], &b"right..."[..]));
    assert_eq!((&left[0x3000..0x3005], &right[0x3000..0x3005]), (&b"left\0"[..], &b"right"[..]));
    assert_eq!((left[0x2000], right[0x2000]), (5, 0), "written by a start function, which runs once");
}

#[test]
fn s96_two_memories_of_equal_size_are_the_same_ones_in_template_instances_and_images() {
    for component in twins() {
        let template = template_of(&component, 5);
        check(&mut Instance::new(&template).unwrap());
        let limits = InstanceLimits::default();
        let again =
            Template::decode(&component, &described_with(5), &template.encode(), &limits, Arc::new(Events::default())).unwrap();
        check(&mut Instance::new(&again).unwrap());
        let mut instance = Instance::new(&template).unwrap();
        let image = capture(&mut instance, 1);
        check(&mut restore(&again, &[image]));
    }
}

#[test]
fn s96_what_is_written_to_one_memory_is_captured_and_restored_there() {
    for component in twins() {
        let template = template_of(&component, 5);
        let mut instance = Instance::new(&template).unwrap();
        call(&mut instance, op::POKE_LEFT, 0x8000, 1);
        call(&mut instance, op::POKE_RIGHT, 0x9000, 2);
        let captured = instance.capture(CheckpointId(1)).unwrap();
        let holds = |memory: usize, page: u32| captured.memories[memory].pages.contains(page);
        assert!(holds(LEFT, 8) && !holds(LEFT, 9) && holds(RIGHT, 9) && !holds(RIGHT, 8));
        let mut restored = restore(&template, &[captured.encode()]);
        assert!(memories(&restored) == memories(&instance));
        check(&mut restored);
    }
}

#[test]
fn s96_memories_that_grow_apart_are_merged_and_restored_apart() {
    for component in twins() {
        let template = template_of(&component, 5);
        let mut numbers = Numbers(96);
        let mut steady = Instance::new(&template).unwrap();
        let mut interrupted = Instance::new(&template).unwrap();
        let mut chain: Vec<Vec<u8>> = Vec::new();
        for checkpoint in 1..=12 {
            for _ in 0..=numbers.below(6) {
                let side = numbers.below(2);
                if numbers.below(4) == 0 {
                    let grow = if side == 0 { op::GROW_RIGHT } else { op::GROW_LEFT };
                    let pages = 1 + numbers.below(2) as i64;
                    [&mut steady, &mut interrupted].into_iter().for_each(|instance| call(instance, grow, pages, 0));
                }
                let poke = if side == 0 { op::POKE_RIGHT } else { op::POKE_LEFT };
                let size = memories(&steady)[if side == 0 { RIGHT } else { LEFT }].len() as u64;
                // Beyond the arguments of the call.
                let address = 0x20000 + 8 * numbers.below((size - 0x20000) / 8) as i64;
                let value = numbers.next();
                [&mut steady, &mut interrupted].into_iter().for_each(|instance| call(instance, poke, address, value));
            }
            chain.push(capture(&mut interrupted, checkpoint));
            if numbers.below(3) == 0 {
                chain = vec![merge(&chain.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()];
            }
            interrupted = restore(&template, &chain);
            assert!(memories(&interrupted) == memories(&steady), "checkpoint {checkpoint}");
            [&mut steady, &mut interrupted].into_iter().for_each(check);
        }
        let [left, right] = memories(&steady);
        assert_ne!(left.len(), right.len(), "they have grown differently");
    }
}
