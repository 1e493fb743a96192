//! Figures, printed: `cargo nextest run -p weir-sandbox --run-ignored only --no-capture bench`.

use std::time::Instant;

use super::*;

/// The shortest of many short runs, per item, in nanoseconds: one that nothing else on the machine interrupted.
fn nanos_per(items: u64, mut work: impl FnMut()) -> f64 {
    (0..100)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / items as f64
        })
        .fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "prints figures, asserts nothing about them"]
fn bench_calls_instances_and_captures() {
    for epoch_interruption in [true, false] {
        let sandbox = Sandbox::new(SandboxOptions { epoch_interruption, ..SandboxOptions::default() }).unwrap();
        let component = sandbox.take_in(&GUEST).unwrap();
        let template = template(&component);
        println!("epochs {epoch_interruption}, tracking {}", sandbox.tracking());
        let mut instance = Instance::new(&template).unwrap();
        let empty = Batch::default();
        let call = nanos_per(5_000, || (0..5_000).for_each(|_| drop(instance.advance(1, &mut EmittedRows::new()))));
        println!("  advance: {call:.0} ns a call");
        let call = nanos_per(5_000, || (0..5_000).for_each(|_| drop(run(&mut instance, op::POKE, &empty))));
        println!("  process, no rows: {call:.0} ns a call");
        for count in [16, 64, 256, 1024] {
            let mut batch = Batch::default();
            (0..count).for_each(|n| batch.push(n * 8 + 0x30000, b"01234567", &n.to_le_bytes()));
            let calls = 20_000 / count as u64;
            let mut measure = |name: &str, op| {
                let row = nanos_per(calls * count as u64, || (0..calls).for_each(|_| drop(run(&mut instance, op, &batch))));
                println!("  {name}, {count} rows a call: {row:.1} ns a row");
            };
            measure("store", op::POKE);
            measure("echo", op::ECHO);
            measure("machine step", op::STEP);
        }
        let made = nanos_per(100, || (0..100).for_each(|_| drop(Instance::new(&template).unwrap())));
        println!("  instantiate + drop: {:.1} us", made / 1_000.0);

        let mut instance = Instance::new(&template).unwrap();
        grow(&mut instance, (64 << 20) / 65_536);
        let start = instance.memory_bytes() as usize - (64 << 20);
        run(&mut instance, op::FILL, &rows(&[(start as i64, 0), (64 << 20, 0), (1, 0)]));
        let mut checkpoint = 1;
        let began = Instant::now();
        let full = instance.capture(CheckpointId(1)).unwrap();
        println!("  capture of 64 MiB, all written: {} pages in {:?}", full.pages(), began.elapsed());
        let began = Instant::now();
        let bytes = full.encode();
        println!("  its encode: {} bytes in {:?}", bytes.len(), began.elapsed());
        instance.checkpoint_completed(CheckpointId(1));
        let mut fastest = std::time::Duration::MAX;
        let mut first_writes = std::time::Duration::MAX;
        for _ in 0..10 {
            checkpoint += 1;
            let batch = rows(&(0..164).map(|n| ((start + n * 99 * 4096) as i64, checkpoint)).collect::<Vec<_>>());
            let began = Instant::now();
            run(&mut instance, op::POKE, &batch);
            first_writes = first_writes.min(began.elapsed());
            let began = Instant::now();
            let delta = instance.capture(CheckpointId(checkpoint)).unwrap();
            fastest = fastest.min(began.elapsed());
            assert!(delta.pages() >= 164);
            instance.checkpoint_completed(CheckpointId(checkpoint));
        }
        println!("  first writes to 164 pages: {first_writes:?}; capture of 1 % of 64 MiB: {fastest:?}");
        let began = Instant::now();
        let restored = Instance::restore(&template, &[&bytes]).unwrap();
        println!("  restore of 64 MiB: {:?}", began.elapsed());
        drop(restored);
    }
}

/// Rows per second of any component: give its path in WEIR_BENCH_COMPONENT, its configuration in WEIR_BENCH_CONFIG.
#[test]
#[ignore = "needs a component; prints figures, asserts nothing about them"]
fn bench_component() {
    let Ok(path) = std::env::var("WEIR_BENCH_COMPONENT") else { return println!("skipped: WEIR_BENCH_COMPONENT is not set") };
    let config = std::env::var("WEIR_BENCH_CONFIG").unwrap_or_else(|_| "{}".to_string());
    for epoch_interruption in [true, false] {
        let sandbox = Sandbox::new(SandboxOptions { epoch_interruption, ..SandboxOptions::default() }).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (component, description) = (sandbox.take_in(&bytes).unwrap(), sandbox.describe(&bytes).unwrap());
        let events = Arc::new(Events::default());
        let template = Template::open(&component, &description, &context(&config), &InstanceLimits::default(), events).unwrap();
        let mut instance = Instance::new(&template).unwrap();
        println!(
            "epochs {epoch_interruption}, {} bytes of memory, template image {} bytes",
            instance.memory_bytes(),
            template.encode().len()
        );
        for count in [16, 64, 256, 1024] {
            let mut numbers = Numbers(1);
            let batches: Vec<Batch> = (0..64)
                .map(|_| {
                    let mut batch = Batch::default();
                    (0..count).for_each(|n| batch.push(n, &numbers.below(10_000).to_le_bytes(), &1u64.to_le_bytes()));
                    batch
                })
                .collect();
            let calls = 20_000 / count as u64;
            let row = nanos_per(calls * count as u64, || {
                let mut emitted = EmittedRows::new();
                let start = emitted.mark();
                for call in 0..calls as usize {
                    instance.process(0, batches[call % 64].view(), &mut emitted).unwrap();
                    emitted.truncate(start);
                }
            });
            println!("  process, {count} rows a call, 10,000 keys: {row:.1} ns a row");
        }
        let made = nanos_per(100, || (0..100).for_each(|_| drop(Instance::new(&template).unwrap())));
        println!("  instantiate + drop: {:.1} us", made / 1_000.0);
    }
}
