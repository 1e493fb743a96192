//! s53: both ways of finding written pages mean the same.

use super::*;

#[test]
fn s53_both_trackers_give_equal_images_of_random_write_programs() {
    let Some((sandbox, kernel)) = &*KERNEL else {
        println!("skipped: the kernel cannot track here");
        return;
    };
    assert!(sandbox.tracking().to_string().starts_with("kernel ("), "{}", sandbox.tracking());
    assert_eq!(HASH.0.tracking().to_string(), "hash (asked for)");
    for seed in 0..30 {
        let mut numbers = Numbers(seed);
        let templates = [kernel, &HASH.1].map(template);
        let mut instances = templates.each_ref().map(|template| Instance::new(template).unwrap());
        let mut fresh = 1 << 40;
        for checkpoint in 1..8 {
            for _ in 0..numbers.below(6) {
                let size = instances[0].memory_bytes();
                if numbers.below(4) == 0 && size < 200 << 20 {
                    let pages = numbers.below(40) as i64;
                    instances.iter_mut().for_each(|instance| grow(instance, pages));
                }
                // Never the same value twice, never across pages: a page written is a page changed.
                let batch: Vec<(i64, u64)> = (0..numbers.below(30))
                    .map(|_| {
                        fresh += 1;
                        ((0x11_0000 + (numbers.below(size - 0x11_0000) & !7)) as i64, fresh)
                    })
                    .collect();
                instances.iter_mut().for_each(|instance| drop(run(instance, op::POKE, &rows(&batch))));
            }
            let captures = instances.each_mut().map(|instance| instance.capture(CheckpointId(checkpoint)).unwrap());
            let is_completed = numbers.below(2) == 0;
            // The page of arguments is overwritten by each call, perhaps with the same.
            let [by_kernel, by_hash] = captures
                .each_ref()
                .map(|capture| capture.memories[0].pages.iter().filter(|&page| page >= 0x110).collect::<Vec<_>>());
            assert_eq!(by_kernel, by_hash, "seed {seed}, checkpoint {checkpoint}");
            assert!(captures[1].memories[0].pages.iter().all(|page| captures[0].memories[0].pages.contains(page)));
            if is_completed {
                instances.iter_mut().for_each(|instance| instance.checkpoint_completed(CheckpointId(checkpoint)));
            }
            assert_eq!(captures[0].globals, captures[1].globals);
        }
        assert!(memory(&instances[0]) == memory(&instances[1]));
    }
}

#[test]
fn s53_a_chain_written_with_one_tracker_restores_with_the_other() {
    let Some((_, kernel)) = &*KERNEL else {
        println!("skipped: the kernel cannot track here");
        return;
    };
    for (from, to) in [(kernel, &HASH.1), (&HASH.1, kernel)] {
        let template = template(from);
        let mut instance = Instance::new(&template).unwrap();
        let mut chain = Vec::new();
        for checkpoint in 1..4 {
            step(&mut instance, &[checkpoint as i64, 5, 6]);
            chain.push(capture(&mut instance, checkpoint));
            instance.checkpoint_completed(CheckpointId(checkpoint));
        }
        let limits = InstanceLimits::default();
        let other = Template::decode(to, &described(), &template.encode(), &limits, Arc::new(Events::default())).unwrap();
        let mut restored = restore(&other, &chain);
        step(&mut instance, &[9]);
        step(&mut restored, &[9]);
        let deltas = [&mut instance, &mut restored].map(|instance| instance.capture(CheckpointId(4)).unwrap().encode());
        for delta in deltas {
            chain.push(delta);
            assert!(memory(&restore(&other, &chain)) == memory(&instance));
            chain.pop();
        }
    }
}
