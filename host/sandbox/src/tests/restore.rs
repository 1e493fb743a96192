//! Snapshots: what is captured is what is restored.

use weir_model::Scratch;

use super::*;
use crate::{EncodedImage, ImageError, SandboxError, merge};

/// Captures, restores and goes on at random places of a random program; compares with never having stopped.
fn go_on_after_restores(component: &Component, seed: u64) {
    let mut numbers = Numbers(seed);
    let template = template(component);
    let mut steady = Instance::new(&template).unwrap();
    let mut interrupted = Instance::new(&template).unwrap();
    let mut chain: Vec<Vec<u8>> = Vec::new();
    let mut checkpoint = 0;
    for round in 0..12 {
        for _ in 0..=numbers.below(3) {
            let values: Vec<i64> = (0..numbers.below(20)).map(|_| numbers.next() as i64).collect();
            assert_eq!(step(&mut interrupted, &values), step(&mut steady, &values), "seed {seed}, round {round}");
        }
        checkpoint += 1 + numbers.below(3);
        let image = capture(&mut interrupted, checkpoint);
        match numbers.below(3) {
            // The checkpoint completes.
            0 => {
                chain.push(image);
                interrupted.checkpoint_completed(CheckpointId(checkpoint));
            }
            // It completes, and the instance is lost: restore, perhaps from a merged chain.
            1 => {
                chain.push(image);
                if numbers.below(2) == 0 {
                    chain = vec![merge(&chain.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()];
                }
                interrupted = restore(&template, &chain);
                assert!(memory(&interrupted) == memory(&steady), "seed {seed}, round {round}");
            }
            // It is aborted; nothing is called.
            _ => {}
        }
    }
}

#[test]
fn s50_a_program_interrupted_anywhere_goes_on_as_if_it_had_not_been() {
    for component in guests() {
        (0..40).for_each(|seed| go_on_after_restores(component, seed));
    }
}

/// Runs the machine of `nested.wat`; gives its state.
fn spell(instance: &mut Instance, value: i64) -> String {
    let rejected = instance.process(0, rows(&[(value, 0)]).view(), &mut EmittedRows::new()).unwrap();
    rejected[0].reason.clone()
}

#[test]
fn s50_globals_spread_over_nested_components_are_captured_and_restored() {
    let bytes = wat::parse_str(include_str!("nested.wat")).unwrap();
    for sandbox in KERNEL.as_ref().map(|(sandbox, _)| sandbox).into_iter().chain(Some(&HASH.0)) {
        let component = sandbox.take_in(&bytes).unwrap();
        let template = template_of(&component, 1);
        for seed in 0..10 {
            let mut numbers = Numbers(seed);
            let mut steady = Instance::new(&template).unwrap();
            let mut interrupted = Instance::new(&template).unwrap();
            let mut chain = Vec::new();
            for checkpoint in 1..10 {
                for _ in 0..numbers.below(40) {
                    let value = numbers.next() as i64;
                    assert_eq!(spell(&mut interrupted, value), spell(&mut steady, value), "seed {seed}, {checkpoint}");
                }
                chain.push(capture(&mut interrupted, checkpoint));
                interrupted = restore(&template, &chain);
            }
        }
    }
}

#[test]
fn s51_pages_of_a_checkpoint_that_did_not_complete_are_in_the_next() {
    for component in guests() {
        let template = template(component);
        let mut instance = Instance::new(&template).unwrap();
        poke(&mut instance, 0x30000, 1);
        let base = capture(&mut instance, 1);
        instance.checkpoint_completed(CheckpointId(1));

        poke(&mut instance, 0x31000, 2);
        let lost = instance.capture(CheckpointId(2)).unwrap();
        drop(lost);
        poke(&mut instance, 0x32000, 3);
        let lost = instance.capture(CheckpointId(3)).unwrap();
        drop(lost);
        poke(&mut instance, 0x33000, 4);
        let delta = capture(&mut instance, 4);
        let restored = restore(&template, &[base.clone(), delta.clone()]);
        assert!(memory(&restored) == memory(&instance));

        instance.checkpoint_completed(CheckpointId(4));
        poke(&mut instance, 0x34000, 5);
        let last = instance.capture(CheckpointId(5)).unwrap();
        assert!(!last.memories[0].pages.contains(0x33), "what completed is not written again");
        assert!(memory(&restore(&template, &[base, delta, last.encode()])) == memory(&instance));
    }
}

#[test]
fn s51_more_aborted_checkpoints_than_are_kept_apart_lose_nothing() {
    for component in guests() {
        let template = template(component);
        let mut instance = Instance::new(&template).unwrap();
        for n in 1..=30 {
            poke(&mut instance, 0x30000 + n as usize * 0x1000, n);
            instance.capture(CheckpointId(n)).unwrap();
        }
        instance.checkpoint_completed(CheckpointId(3));
        let base_of_three: Vec<u32> = (1..=3).map(|n| 0x30 + n).collect();
        let all = instance.capture(CheckpointId(31)).unwrap();
        assert!((4..=30).all(|n| all.memories[0].pages.contains(0x30 + n)));
        // Pages 1 to 3 may be held longer than needed, never shorter: that is all that joining sets costs.
        assert!(base_of_three.len() == 3);
    }
}

#[test]
fn s52_grown_memory_holes_and_pages_written_by_the_host_are_restored() {
    for component in guests() {
        let template = template(component);
        let mut instance = Instance::new(&template).unwrap();
        let before = instance.memory_bytes();
        let first = capture(&mut instance, 1);
        instance.checkpoint_completed(CheckpointId(1));

        grow(&mut instance, 64);
        assert_eq!(instance.memory_bytes(), before + (64 << 16));
        // Far into the grown part, with a hole before and behind.
        poke(&mut instance, before as usize + (40 << 16), 7);
        // Only the host writes the arguments of a call.
        let wide = rows(&(0..5_000).map(|n| (n, n as u64)).collect::<Vec<_>>());
        run(&mut instance, op::ECHO, &wide);
        let second = instance.capture(CheckpointId(2)).unwrap();
        assert!(second.memories[0].pages.contains((0x10_0000 + 0x1000) >> 12), "a page written by the host alone");
        assert!(second.raw_bytes() < 1 << 20, "holes are not captured");
        let second = second.encode();
        instance.checkpoint_completed(CheckpointId(2));

        // Content becomes zero again: in the template's part, and in the grown one.
        run(&mut instance, op::FILL, &rows(&[(0x20000, 0), (0x2000, 0), (0, 0)]));
        poke(&mut instance, before as usize + (40 << 16), 0);
        let third = capture(&mut instance, 3);
        let chain = [first, second, third];
        let mut restored = restore(&template, &chain);
        assert_eq!(restored.memory_bytes(), instance.memory_bytes());
        assert!(memory(&restored) == memory(&instance));
        // The guest sees the size too, and can go on growing.
        grow(&mut restored, 1);
        assert_eq!(restored.memory_bytes(), before + (65 << 16));

        let merged = merge(&chain.each_ref().map(Vec::as_slice)).unwrap();
        assert!(memory(&restore(&template, &[merged])) == memory(&instance));
    }
}

#[test]
fn a_restored_instance_captures_only_what_it_writes() {
    for component in guests() {
        let template = template(component);
        let mut instance = Instance::new(&template).unwrap();
        for page in 0..100 {
            poke(&mut instance, 0x30000 + page * 0x1000, 1 + page as u64);
        }
        let base = capture(&mut instance, 1);
        let mut restored = restore(&template, &[base]);
        poke(&mut restored, 0x40000, 5);
        let delta = restored.capture(CheckpointId(2)).unwrap();
        let pages: Vec<u32> = delta.memories[0].pages.iter().filter(|&page| (0x10..0x100).contains(&page)).collect();
        assert_eq!(pages, [0x40], "apart from the pages every call of this guest writes");
    }
}

fn image_error(result: Result<Instance, SandboxError>) -> ImageError {
    match result {
        Err(SandboxError::Image(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("restored"),
    }
}

#[test]
fn s50_images_that_are_cut_off_or_of_other_code_are_refused_by_name() {
    let template = template(&HASH.1);
    let mut instance = Instance::new(&template).unwrap();
    step(&mut instance, &[1, 2, 3]);
    let good = capture(&mut instance, 1);
    instance.checkpoint_completed(CheckpointId(1));
    step(&mut instance, &[4]);
    let next = capture(&mut instance, 2);
    let refusal = |chain: &[&[u8]]| image_error(Instance::restore(&template, chain));

    assert_eq!(refusal(&[]), ImageError::Empty);
    for length in 0..good.len() {
        let error = refusal(&[&good[..length]]);
        assert!(
            matches!(error, ImageError::Length { image: 0, .. } | ImageError::NotAnImage { image: 0, .. }),
            "{length}: {error}"
        );
    }
    let mut other = good.clone();
    other[8] = 1;
    assert_eq!(refusal(&[&good, &other]), ImageError::Version { image: 1, version: 1, supported: 2 });
    other.push(0);
    assert!(matches!(refusal(&[&other]), ImageError::Version { .. }), "said first: the rest may mean something else");
    assert!(matches!(refusal(&[&next, &good]), ImageError::Order { image: 1, checkpoint: 1, previous: 2 }));
    // Columns come before its image.
    let template_image = template.encode();
    assert!(matches!(refusal(&[&template_image]), ImageError::NotAnImage { image: 0, .. }));
    assert!(matches!(refusal(&[&template_image[25..]]), ImageError::Kind { image: 0, .. }));

    // The same program with another name: another digest.
    let module = format!("{} ", include_str!("guest.wat")).replace("(i64.const 0x123456789abcdef)", "(i64.const 1)");
    let other = HASH.0.take_in(&component(&module)).unwrap();
    let other_template = super::template(&other);
    let error = image_error(Instance::restore(&other_template, &[&good]));
    assert!(
        matches!(&error, ImageError::WrongComponent { image_digest, component, .. }
        if *image_digest == HASH.1.digest() && *component == other.digest()),
        "{error}"
    );
    let limits = InstanceLimits::default();
    let error = Template::decode(&other, &described(), &template.encode(), &limits, Arc::new(Events::default())).err().unwrap();
    assert!(matches!(error, SandboxError::Image(ImageError::WrongComponent { .. })), "{error}");

    // After all these refusals the good chain still restores.
    assert!(memory(&restore(&template, &[good, next])) == memory(&instance));
}

#[test]
fn images_with_senseless_content_are_refused() {
    let template = template(&HASH.1);
    let mut instance = Instance::new(&template).unwrap();
    step(&mut instance, &[1, 2, 3]);
    let good = capture(&mut instance, 1);
    let mut numbers = Numbers(11);
    let mut refused = 0;
    for _ in 0..2_000 {
        let mut forged = good.clone();
        for _ in 0..=numbers.below(2) {
            // Past the fixed part and the digest, where the structure is.
            let position = 72 + numbers.below(200.min(forged.len() as u64 - 72)) as usize;
            forged[position] = numbers.next() as u8;
        }
        // Some forgeries mean something else and restore; none may panic or map without bounds.
        refused += usize::from(Instance::restore(&template, &[&forged]).is_err());
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn pages_of_zeros_are_captured_without_their_bytes() {
    for component in guests() {
        let template = template(component);
        let mut instance = Instance::new(&template).unwrap();
        grow(&mut instance, 64);
        // The template's own pages become zero, others are zero again, and one page in the middle is not.
        run(&mut instance, op::FILL, &rows(&[(0x20000, 7), (0x40_0000, 0), (7, 0)]));
        instance.capture(CheckpointId(1)).unwrap();
        run(&mut instance, op::FILL, &rows(&[(0x20000, 0), (0x40_0000, 0), (0, 0)]));
        poke(&mut instance, 0x30_0000, 1);
        let full = instance.capture(CheckpointId(2)).unwrap();
        let memory = &full.memories[0];
        assert!(memory.zero.contains(0x20) && memory.zero.contains(0x2ff) && memory.zero.contains(0x301));
        assert!(memory.pages.contains(0x300) && !memory.zero.contains(0x300));
        assert!(full.raw_bytes() < 64 << 10 && full.pages() > 900, "{full:?} of {} bytes", full.raw_bytes());
        let restored = restore(&template, &[full.encode()]);
        assert!(super::memory(&restored) == super::memory(&instance));
    }
}

#[test]
fn a_capture_that_is_merged_as_it_is_says_the_same_as_one_that_was_encoded_before() {
    for component in guests() {
        let template = template(component);
        let mut instance = Instance::new(&template).unwrap();
        let mut numbers = Numbers(3);
        let mut chain: Vec<Vec<u8>> = Vec::new();
        let mut image = EncodedImage::default();
        for checkpoint in 1..8 {
            // More pages than a block has, some of them zero again.
            let batch: Vec<(i64, u64)> =
                (0..100).map(|_| (0x30000 + 0x1000 * numbers.below(150) as i64, numbers.below(3))).collect();
            run(&mut instance, op::POKE, &rows(&batch));
            // Twice the same pages: no checkpoint has completed.
            let again = instance.capture(CheckpointId(2 * checkpoint)).unwrap();
            let capture = instance.capture(CheckpointId(2 * checkpoint + 1)).unwrap();
            assert_eq!(again.pages(), capture.pages());
            instance.checkpoint_completed(CheckpointId(2 * checkpoint + 1));
            let older: Vec<&[u8]> = chain.iter().map(Vec::as_slice).collect();
            let mut both: Vec<Vec<u8>> = chain.clone();
            if older.is_empty() {
                assert_eq!(capture.merge_into(&older, &mut image), Err(ImageError::Empty));
                both.push(again.encode());
                chain = both;
                continue;
            }
            capture.merge_into(&older, &mut image).unwrap();
            let merged = image.to_vec();
            assert_eq!(merged.len(), image.size_bytes());
            assert!(memory(&restore(&template, std::slice::from_ref(&merged))) == memory(&instance), "checkpoint {checkpoint}");
            both.push(again.encode());
            let mut encoded = merge(&both.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
            // The number of its checkpoint, and that alone, differs.
            encoded[72..80].copy_from_slice(&merged[72..80]);
            assert!(encoded == merged, "checkpoint {checkpoint}");
            chain = vec![merged];
        }
    }
}

#[test]
fn a_capture_is_merged_only_with_what_it_follows() {
    let template = template(&HASH.1);
    let mut instance = Instance::new(&template).unwrap();
    let first = instance.capture(CheckpointId(1)).unwrap();
    let newer = capture(&mut instance, 2);
    let error = first.merge_into(&[&newer], &mut EncodedImage::default()).unwrap_err();
    assert_eq!(error, ImageError::Order { image: 1, checkpoint: 1, previous: 2 });
    let first = instance.capture(CheckpointId(3)).unwrap();
    let error = first.merge_into(&[&template.encode()[25..]], &mut EncodedImage::default()).unwrap_err();
    assert!(matches!(error, ImageError::Kind { image: 0, .. }), "{error}");
}

/// What the guest is, with memory that holds no state.
fn with_scratch(scratch: Option<Scratch>) -> Description {
    Description { scratch, ..described() }
}

#[test]
fn scratch_is_never_captured_and_zero_in_templates_and_after_a_restore() {
    // Where the guest gets its arguments.
    let scratch = Some(Scratch { offset: 0x10_0000, len: 0x8_0000 });
    let in_scratch = |pages: &crate::memory::PageSet| pages.iter().any(|page| (0x100..0x180).contains(&page));
    for component in guests() {
        let events = || Arc::new(Events::default());
        let limits = InstanceLimits::default();
        let plain = Instance::new(&template(component)).unwrap();
        assert!(memory(&plain)[0x10_0000..0x18_0000].iter().any(|&byte| byte != 0), "`open` has written there");
        let template = Template::open(component, &with_scratch(scratch), &context("{}"), &limits, events()).unwrap();
        let decoded = Template::decode(component, &with_scratch(scratch), &template.encode(), &limits, events()).unwrap();
        assert_eq!(decoded.id(), template.id());
        for template in [&template, &decoded] {
            let mut instance = Instance::new(template).unwrap();
            assert!(memory(&instance)[0x10_0000..0x18_0000].iter().all(|&byte| byte == 0));
            let mut chain = Vec::new();
            for checkpoint in 1..6 {
                // Pages on both sides of it, its first and last ones, and what a call writes.
                let at = [0xff_000, 0x10_0ff8, 0x17_f000, 0x18_0000, 0x18_1000];
                run(&mut instance, op::POKE, &rows(&at.map(|at| (at, checkpoint))));
                let capture = instance.capture(CheckpointId(checkpoint)).unwrap();
                let captured = &capture.memories[0];
                assert!(!in_scratch(&captured.pages) && !in_scratch(&captured.zero), "{:?}", captured.pages);
                assert!([0xff, 0x180, 0x181].iter().all(|&page| captured.pages.contains(page)), "{:?}", captured.pages);
                chain.push(capture.encode());
                instance.checkpoint_completed(CheckpointId(checkpoint));
                let mut expected = memory(&instance);
                assert!(expected[0x17_f000] == checkpoint as u8, "a running instance goes on with what it has there");
                expected[0x10_0000..0x18_0000].fill(0);
                assert!(memory(&restore(template, &chain)) == expected, "checkpoint {checkpoint}");
            }
        }
    }
}

#[test]
fn scratch_that_an_instance_uses_is_charged() {
    for component in guests() {
        let limits = InstanceLimits { memory_total_bytes: Some(64 << 20), ..InstanceLimits::default() };
        let held = |scratch: Option<Scratch>| {
            let template =
                Template::open(component, &with_scratch(scratch), &context("{}"), &limits, Arc::new(Events::default())).unwrap();
            let mut instance = Instance::new(&template).unwrap();
            let before = template.held_bytes();
            poke(&mut instance, 0x30000, 1);
            instance.capture(CheckpointId(1)).unwrap();
            template.held_bytes() - before
        };
        let all = 0x8_0000;
        let (with, without) = (held(Some(Scratch { offset: 0x10_0000, len: all })), held(None));
        assert!(without < 0x1_0000 && with >= u64::from(all) && with <= u64::from(all) + without, "{with}, {without}");
    }
}

#[test]
fn restoring_more_memory_than_allowed_is_refused_before_anything_is_mapped() {
    let template = template(&HASH.1);
    let mut instance = Instance::new(&template).unwrap();
    grow(&mut instance, 200);
    let image = capture(&mut instance, 1);
    let small = Template::decode(&HASH.1, &described(), &template.encode(), &tight(), Arc::new(Events::default())).unwrap();
    let error = Instance::restore(&small, &[&image]).err().unwrap();
    assert!(matches!(error, SandboxError::MemoryLimit { limit, .. } if limit == tight().memory_bytes), "{error}");
}

#[test]
fn captures_need_growing_numbers() {
    let mut instance = Instance::new(&template(&HASH.1)).unwrap();
    instance.capture(CheckpointId(5)).unwrap();
    let error = instance.capture(CheckpointId(5)).unwrap_err();
    assert!(matches!(error, SandboxError::CheckpointOrder { asked: 5, last: 5 }), "{error}");
    instance.capture(CheckpointId(6)).unwrap();
}
