//! Quantiles of values that were counted in buckets.

/// An upper bound of the `q` quantile (0 to 1), from (upper bound, count) of each bucket, ascending. Never more than `max`, the
/// greatest value; 0 where nothing was counted.
pub fn quantile(buckets: &[(u64, u64)], max: u64, q: f64) -> u64 {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let rank = (q * total as f64).ceil() as u64;
    let mut seen = 0;
    let reached = buckets.iter().find(|(_, count)| {
        seen += count;
        seen >= rank
    });
    reached.map_or(0, |(bound, _)| *bound).min(max)
}
