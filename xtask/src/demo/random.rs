//! Seeded random numbers: the same seed gives the same log on every machine.

/// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Uniform in `0..below`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        // The bias of at most below / 2^64 is of no concern to a made-up log.
        ((u128::from(self.next()) * u128::from(below)) >> 64) as u64
    }

    /// Uniform in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True `per_million` times in a million.
    pub(crate) fn chance(&mut self, per_million: u64) -> bool {
        self.below(1_000_000) < per_million
    }

    /// Exponentially distributed with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// A hash of one number: what belongs to a user or page stays the same wherever it shows up.
pub(crate) fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Ranks whose frequency falls with `1 / rank^exponent`, as pages and users of a site do.
pub(crate) struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(count: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let cumulated = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Zipf { cumulated: cumulated.collect() }
    }

    /// A rank from 0.
    pub(crate) fn pick(&self, random: &mut Random) -> usize {
        let total = self.cumulated.last().copied().unwrap_or_default();
        let at = random.unit() * total;
        self.cumulated.partition_point(|sum| *sum <= at).min(self.cumulated.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_favours_low_ranks_in_proportion() {
        let (zipf, mut random) = (Zipf::new(100, 1.0), Random::new(1));
        let mut counts = [0u32; 100];
        (0..100_000).for_each(|_| counts[zipf.pick(&mut random)] += 1);
        let ratio = f64::from(counts[0]) / f64::from(counts[9]);
        assert!((8.0..12.5).contains(&ratio), "rank 1 is seen {ratio} times as often as rank 10");
        assert!(counts[99] > 0);
    }

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(2);
        assert!((0..10_000).all(|_| random.below(7) < 7 && (0.0..1.0).contains(&random.unit())));
        let hits = (0..100_000).filter(|_| random.chance(10_000)).count();
        assert!((800..1_200).contains(&hits), "{hits}");
    }
}
