//! s20: a job that is killed again and again gives the output of one that never was.

use std::time::{Duration, Instant};

use weir_tests::{Amounts, Ledger, Random, World, dead_letters, rows, sums};

/// Kills that must have hit a running job, over all seeds.
const KILLS: u32 = 200;
/// Kills of one job.
const KILLS_PER_JOB: u32 = 10;

fn case(random: &mut Random) -> Ledger {
    let files = 1 + random.below(4) as usize;
    let keys = 1 + random.below(500);
    let rows = 150_000 + random.below(150_000);
    Ledger::new(random, &Amounts { files, keys, rows, ..Amounts::default() })
}

fn job(random: &mut Random, mode: &str) -> String {
    let (reading, summing) = (*random.pick(&[1, 2, 5]), *random.pick(&[1, 2, 5, 20]));
    let interval = *random.pick(&["10ms", "30ms", "100ms"]);
    let retained = 1 + random.below(3);
    format!(
        r#"
[job]
name = "kill"
key_groups = 64
on_error = "dead_letter"

[job.checkpoint]
interval = "{interval}"
retained = {retained}
mode = "{mode}"

[[source]]
id = "log"
connector = "file"
path = "in"
parallelism = {reading}
event_time = {{ field = "at", format = "unix-ms" }}

[[operator]]
id = "parse"
component = "parse@1.2.0"
input = "log"
parallelism = {reading}
config = {{ format = "json", key = "account" }}

[[operator]]
id = "sums"
component = "ledger@1.2.0"
input = {{ from = "parse", exchange = "hash" }}
parallelism = {summing}
config = {{ field = "amount", emit = "each" }}

[[sink]]
id = "out"
connector = "file"
input = "sums"
parallelism = {summing}
path = "out"

[[sink]]
id = "bad"
connector = "file"
input = "dead_letter"
path = "bad"
"#
    )
}

/// How long such a job takes on this machine: kills come within that time.
fn usual_duration() -> Duration {
    let mut random = Random::new(0);
    let world = world(&case(&mut random), &job(&mut random, "exactly-once"));
    let started = Instant::now();
    world.run(&["job.toml", "--quiet"]);
    started.elapsed()
}

fn world(case: &Ledger, job: &str) -> World {
    let world = World::new();
    case.write(&world, "in");
    world.write("job.toml", job);
    world
}

/// Runs the job, killing it at random moments; then to its end. Returns how many kills hit.
fn run_and_kill(world: &World, random: &mut Random, usual: Duration) -> u32 {
    let mut kills = 0;
    for _ in 0..KILLS_PER_JOB {
        let mut running = world.start(&mut world.weir(["run", "job.toml", "--quiet"]));
        let delay = Duration::from_micros(random.below(usual.as_micros() as u64));
        if let Some(status) = running.ended_within(delay) {
            assert!(status.success(), "it ended with {status}:\n{}", running.messages());
            break;
        }
        kills += u32::from(running.kill());
        // Nothing partial is ever visible, also right after a kill: `rows` checks each line.
        rows(&world.path("out"));
    }
    world.run(&["job.toml", "--quiet"]);
    kills
}

fn seeds() -> Box<dyn Iterator<Item = u64>> {
    match std::env::var("WEIR_SEED") {
        Ok(seed) => Box::new(std::iter::once(seed.parse().expect("WEIR_SEED is a number"))),
        Err(_) => Box::new(1..1_000),
    }
}

#[test]
fn s20_killed_jobs_give_the_output_of_jobs_that_never_were() {
    let usual = usual_duration();
    let mut kills = 0;
    for seed in seeds() {
        let mut random = Random::new(seed);
        let case = case(&mut random);
        let world = world(&case, &job(&mut random, "exactly-once"));
        kills += run_and_kill(&world, &mut random, usual);

        if let Some(difference) = case.difference(&rows(&world.path("out"))) {
            panic!("WEIR_SEED={seed}: {difference}");
        }
        let mut letters = dead_letters(&world.path("bad"));
        letters.sort();
        assert_eq!(letters, case.malformed, "WEIR_SEED={seed}: dead letters");
        if kills >= KILLS {
            return;
        }
    }
    assert!(std::env::var("WEIR_SEED").is_ok(), "only {kills} kills hit a running job");
}

#[test]
fn s20_at_least_once_loses_nothing() {
    let usual = usual_duration();
    for seed in 1..5 {
        let mut random = Random::new(seed);
        let case = case(&mut random);
        let world = world(&case, &job(&mut random, "at-least-once"));
        run_and_kill(&world, &mut random, usual);
        let found = sums(&rows(&world.path("out")));
        for (key, expected) in &case.expected {
            let highest = found.get(key).and_then(|rows| rows.iter().map(|(count, _)| *count).max());
            assert!(highest >= Some(expected.len() as u64), "seed {seed}: {key}: {highest:?} of {} rows counted", expected.len());
        }
        let letters = dead_letters(&world.path("bad"));
        assert!(case.malformed.iter().all(|line| letters.contains(line)), "seed {seed}: a dead letter is missing");
    }
}
