//! Randomness from a seed (splitmix64), and a hash of what happened.

/// A stream of random numbers that is the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(mix(seed ^ 0x5DEE_CE66_D1CE_4E5B))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A stream of its own, so that what draws from it does not shift others.
    pub(crate) fn fork(&mut self) -> Random {
        Random(self.next())
    }

    /// Uniform in `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Uniform in `from..=to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, of which there must be some.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// Short most of the time, now and then long: the way delays are.
    pub(crate) fn delay_us(&mut self, usual_us: u64) -> u64 {
        let base = 1 + self.below(usual_us.max(1));
        match self.below(100) {
            0 => base * 40,
            1..=9 => base * 6,
            _ => base,
        }
    }
}

pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// Hash over everything that happened in a run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    steps: u64,
}

impl Trace {
    pub(crate) fn note(&mut self, words: &[u64]) {
        self.steps += 1;
        for word in words {
            self.hash = mix(self.hash ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        }
    }

    pub(crate) fn note_bytes(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.note(&[u64::from_le_bytes(word)]);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
}
