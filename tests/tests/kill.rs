//! s20: a job that is killed again and again gives the output of one that never was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_tests::{Random, Row, World, dead_letters, rows};

/// Kills that must have hit a running job, over all seeds.
const KILLS: u32 = 200;
/// Kills of one job.
const KILLS_PER_JOB: u32 = 10;

/// What a job reads, and what must come out of it, computed here.
struct Case {
    files: Vec<String>,
    /// Per key, the count and total after each of its rows, in order.
    expected: BTreeMap<String, Vec<(u64, String)>>,
    malformed: Vec<String>,
}

/// Each key stands in one file only, so that the order of its rows is defined.
fn case(random: &mut Random) -> Case {
    let files = 1 + random.below(4) as usize;
    let keys = 1 + random.below(500);
    let mut case = Case { files: vec![String::new(); files], expected: BTreeMap::new(), malformed: Vec::new() };
    let mut sums: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for row in 0..150_000 + random.below(150_000) {
        let number = random.below(keys);
        let file = &mut case.files[number as usize % files];
        if random.below(5_000) == 0 {
            let line = format!("malformed {row}");
            *file += &format!("{line}\n");
            case.malformed.push(line);
            continue;
        }
        let key = format!("account-{number}");
        let cents = random.below(2_000_000) as i64 - 1_000_000;
        *file += &format!("{{\"account\":\"{key}\",\"at\":{row},\"amount\":{}}}\n", amount(cents));
        let (count, sum) = sums.entry(key.clone()).or_default();
        *count += 1;
        *sum += cents;
        case.expected.entry(key).or_default().push((*count, amount(*sum)));
    }
    case.malformed.sort();
    case
}

/// Cents as a decimal number, without trailing zeros: as the operator prints it.
fn amount(cents: i64) -> String {
    let text = format!("{}{}.{:02}", if cents < 0 { "-" } else { "" }, cents.abs() / 100, cents.abs() % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
component = "parse@1.0.0"
input = "log"
parallelism = {reading}
config = {{ format = "json", key = "account" }}

[[operator]]
id = "sums"
component = "ledger@1.0.0"
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

fn world(case: &Case, job: &str) -> World {
    let world = World::new();
    for (number, content) in case.files.iter().enumerate() {
        world.write(&format!("in/{number}.jsonl"), content);
    }
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

/// Per key, what came out, in the order of checkpoints.
fn per_key(rows: &[Row]) -> BTreeMap<String, Vec<(u64, String)>> {
    let mut found: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    for row in rows {
        let count = row.value["count"].as_u64().expect("a count");
        found.entry(row.key.clone()).or_default().push((count, row.value["total"].to_string()));
    }
    found
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

        let found = per_key(&rows(&world.path("out")));
        for (key, expected) in &case.expected {
            let found = found.get(key).map_or(&[][..], Vec::as_slice);
            let difference = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
            assert!(
                found == expected,
                "WEIR_SEED={seed}: {key}: {} rows came out, {} should have; they differ at {difference}: {:?} instead of {:?}",
                found.len(),
                expected.len(),
                found.get(difference),
                expected.get(difference),
            );
        }
        assert_eq!(found.len(), case.expected.len(), "WEIR_SEED={seed}: keys that were never there");
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
        let found = per_key(&rows(&world.path("out")));
        for (key, expected) in &case.expected {
            let highest = found.get(key).and_then(|rows| rows.iter().map(|(count, _)| *count).max());
            assert!(highest >= Some(expected.len() as u64), "seed {seed}: {key}: {highest:?} of {} rows counted", expected.len());
        }
        let letters = dead_letters(&world.path("bad"));
        assert!(case.malformed.iter().all(|line| letters.contains(line)), "seed {seed}: a dead letter is missing");
    }
}
