//! Trying a target again and again, with input that is nearly good.
//!
//! What is kept to go on from is input of which something was said that was not said before. What makes a target panic, or takes
//! longer than input of its length may, is a finding. Reads its corpus, and writes nothing but findings where it is asked to.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Target;
use crate::mutation::{Random, mutated};

/// Inputs that are kept to go on from.
const KEPT_MAX: usize = 4_000;

/// What any input may take. Far beyond what it needs, also on a machine that does much else.
const SLOW: Duration = Duration::from_secs(10);

/// When a campaign is over.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many mutations.
    Count(u32),
    /// Then.
    Time(Instant),
}

/// An input that a target does not deal with.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The input.
    pub bytes: Vec<u8>,
    /// What happened.
    pub what: String,
}

/// What a campaign has done.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Inputs that were tried.
    pub tried: u64,
    /// Different things that were said of them.
    pub said: usize,
    /// What was found, each kind once.
    pub findings: Vec<Finding>,
}

/// The folder of a target's corpus.
pub fn corpus(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)
}

/// Tries a target: its seeds and corpus, then mutations of these, from a seed of randomness.
///
/// # Errors
/// If the corpus cannot be read.
pub fn run(target: &Target, seed: u64, until: Until) -> io::Result<Outcome> {
    let mut kept = (target.seeds)();
    match fs::read_dir(corpus(target)) {
        Ok(files) => {
            let mut paths = files.map(|file| Ok(file?.path())).collect::<io::Result<Vec<_>>>()?;
            paths.sort();
            for path in paths {
                kept.push(fs::read(path)?);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    kept.push(Vec::new());
    let mut campaign = Campaign { target, said: BTreeSet::new(), failed: BTreeSet::new(), outcome: Outcome::default() };
    for bytes in &kept {
        campaign.attempt(bytes);
    }
    let (mut random, mut done) = (Random::new(seed), 0);
    let is_over = |done: u32| match until {
        Until::Count(count) => done >= count,
        Until::Time(end) => Instant::now() >= end,
    };
    while !is_over(done) {
        done = done.saturating_add(1);
        let (one, other) = (random.below(kept.len()), random.below(kept.len()));
        let bytes = mutated(&kept[one], &kept[other], target.words, &mut random);
        if campaign.attempt(&bytes) && kept.len() < KEPT_MAX {
            kept.push(bytes);
        }
    }
    campaign.outcome.said = campaign.said.len();
    Ok(campaign.outcome)
}

struct Campaign<'a> {
    target: &'a Target,
    said: BTreeSet<String>,
    failed: BTreeSet<String>,
    outcome: Outcome,
}

impl Campaign<'_> {
    /// Tries one input. Whether something new was said of it.
    fn attempt(&mut self, bytes: &[u8]) -> bool {
        self.outcome.tried += 1;
        let started = Instant::now();
        let attempt = catch_unwind(AssertUnwindSafe(|| (self.target.run)(bytes)));
        let took = started.elapsed();
        let what = match attempt {
            Ok(said) if took < SLOW => return self.said.insert(shape(&said)),
            Ok(_) => format!("it took {} s", took.as_secs()),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
                text.unwrap_or("a panic").to_owned()
            }
        };
        if self.failed.insert(shape(&what)) {
            self.outcome.findings.push(Finding { bytes: bytes.to_vec(), what });
        }
        false
    }
}

/// What was said without its numbers and names, which are different each time.
fn shape(said: &str) -> String {
    let words = said.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && !word.bytes().any(|byte| byte.is_ascii_digit())).take(24);
    words.map(|word| &word[..word.len().min(12)]).collect::<Vec<_>>().join(" ")
}
