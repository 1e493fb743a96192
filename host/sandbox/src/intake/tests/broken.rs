//! Whatever the bytes, intake answers: no panic, and what it takes in stays valid when it is instrumented.

use super::rig::{fixture, validate};
use crate::intake::{prepare, stamp};

/// Bytes drawn from a seed (xorshift64*), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % bound.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

fn fixtures() -> Vec<Vec<u8>> {
    let mut all =
        vec![fixture!("one-level"), fixture!("twice"), fixture!("nested"), fixture!("shared"), super::real::core_module()];
    all.push(stamp(&all[0], "count", "1.0.0").unwrap());
    all
}

/// Says whether it was taken in.
fn survives(bytes: &[u8], what: &str) -> bool {
    let outcome = std::panic::catch_unwind(|| match prepare(bytes) {
        Ok(prepared) => {
            validate(&prepared);
            true
        }
        Err(error) => {
            assert!(!error.to_string().contains("bug in weir"), "{error}");
            false
        }
    });
    outcome.unwrap_or_else(|_| panic!("intake failed on {what}"))
}

#[test]
fn random_bytes_are_refused() {
    for seed in 1..2_000u64 {
        let mut random = Random(seed);
        let mut bytes: Vec<u8> = (0..random.below(300)).map(|_| random.byte()).collect();
        match seed % 3 {
            0 => {}
            1 => drop(bytes.splice(0..0, *b"\0asm\x01\0\0\0")),
            _ => drop(bytes.splice(0..0, *b"\0asm\x0d\0\x01\0")),
        }
        survives(&bytes, &format!("random bytes of seed {seed}"));
    }
}

#[test]
fn every_truncation_is_refused() {
    for (number, fixture) in fixtures().iter().enumerate() {
        // Every length of the small ones; of a large one, some hundred.
        for length in (0..fixture.len()).step_by(1 + fixture.len() / 2_000) {
            survives(&fixture[..length], &format!("fixture {number} cut to {length} bytes"));
        }
    }
}

#[test]
fn changed_bytes_are_refused_or_give_something_valid() {
    let fixtures = fixtures();
    let mut taken = 0;
    for seed in 1..6_000u64 {
        let mut random = Random(seed);
        let number = random.below(fixtures.len());
        let mut bytes = fixtures[number].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[at] = random.byte(),
                1 => bytes[at] ^= 1 << random.below(8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.byte()),
            }
        }
        taken += u32::from(survives(&bytes, &format!("fixture {number} changed with seed {seed}")));
    }
    assert!(taken > 100, "only {taken} were taken in: the changes no longer reach past the checks");
}
