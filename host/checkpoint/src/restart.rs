//! Restart strategies: whether a job that failed starts again, and after how long.
//!
//! Owns the memory of past failures. Never waits: the caller does, and hands in time and randomness.

use std::collections::VecDeque;

/// How a job is restarted. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Strategy {
    /// Never.
    None,
    /// After the same delay each time.
    Fixed {
        /// The delay.
        delay_ms: u64,
        /// Restarts allowed in the job's life; `None` for any number.
        attempts: Option<u32>,
    },
    /// As long as failures are rare enough.
    FailureRate {
        /// Failures tolerated within `per_ms`; one more ends the job.
        failures: u32,
        /// Length of the sliding time span.
        per_ms: u64,
        /// Delay before each restart.
        delay_ms: u64,
    },
    /// For ever, waiting longer each time.
    Exponential {
        /// The first delay.
        initial_ms: u64,
        /// The longest delay.
        max_ms: u64,
        /// Factor from one delay to the next; below 1 counts as 1.
        multiplier: f64,
        /// Running this long after a restart without failure starts over with `initial_ms`.
        reset_after_ms: u64,
        /// Share of the delay, `0.0..=1.0`, by which it is randomly longer or shorter, so that jobs do not restart in step.
        jitter: f64,
    },
}

/// What to do about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Restart after this many milliseconds.
    RestartAfter(u64),
    /// The job has failed for good; the text says which rule ended it.
    GiveUp(String),
}

/// A strategy with its memory of past failures.
#[derive(Clone, Debug)]
pub struct Restarts {
    strategy: Strategy,
    failures: u64,
    /// When the failures within the time span of a failure rate happened, oldest first; at most as many as are tolerated.
    recent_ms: VecDeque<u64>,
    /// Delay given last, before jitter, and when the restart after it was due.
    backoff: Option<(f64, u64)>,
}

impl Restarts {
    /// Starts with no failure.
    pub fn new(strategy: Strategy) -> Restarts {
        Restarts { strategy, failures: 0, recent_ms: VecDeque::new(), backoff: None }
    }

    /// Failures so far.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// The job failed now. `random` is any uniformly random number; only jitter uses it.
    pub fn failed(&mut self, now_ms: u64, random: u64) -> Decision {
        self.failures += 1;
        match self.strategy {
            Strategy::None => Decision::GiveUp("restart strategy \"none\": a failure ends the job".to_owned()),
            Strategy::Fixed { delay_ms, attempts } => match attempts {
                Some(attempts) if self.failures > u64::from(attempts) => {
                    Decision::GiveUp(format!("restart strategy \"fixed\": all {attempts} restarts are used up"))
                }
                _ => Decision::RestartAfter(delay_ms),
            },
            Strategy::FailureRate { failures, per_ms, delay_ms } => self.failed_at_rate(now_ms, failures, per_ms, delay_ms),
            Strategy::Exponential { initial_ms, max_ms, multiplier, reset_after_ms, jitter } => {
                let quiet = self.backoff.is_some_and(|(_, restarted_ms)| now_ms.saturating_sub(restarted_ms) >= reset_after_ms);
                if quiet {
                    self.backoff = None;
                }
                let delay = match self.backoff {
                    None => initial_ms as f64,
                    // `max` also turns a multiplier that is not a number into 1.
                    Some((last, _)) => last * multiplier.max(1.0),
                };
                let delay = delay.min(max_ms as f64);
                let delay_ms = jittered(delay, jitter, random).min(max_ms);
                self.backoff = Some((delay, now_ms.saturating_add(delay_ms)));
                Decision::RestartAfter(delay_ms)
            }
        }
    }

    fn failed_at_rate(&mut self, now_ms: u64, failures: u32, per_ms: u64, delay_ms: u64) -> Decision {
        while self.recent_ms.front().is_some_and(|then_ms| now_ms.saturating_sub(*then_ms) >= per_ms) {
            self.recent_ms.pop_front();
        }
        if self.recent_ms.len() >= failures as usize {
            let reason = format!("restart strategy \"failure-rate\": more than {failures} failures within {per_ms} ms");
            return Decision::GiveUp(reason);
        }
        self.recent_ms.push_back(now_ms);
        Decision::RestartAfter(delay_ms)
    }
}

/// `delay` times a factor uniform in `1 - jitter ..= 1 + jitter`.
fn jittered(delay: f64, jitter: f64, random: u64) -> u64 {
    let uniform = random as f64 / u64::MAX as f64;
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) };
    (delay * (1.0 + jitter * (2.0 * uniform - 1.0))).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(restarts: &mut Restarts, failures_ms: &[u64]) -> Vec<Option<u64>> {
        let decisions = failures_ms.iter().map(|now_ms| restarts.failed(*now_ms, u64::MAX / 2));
        decisions.map(|decision| if let Decision::RestartAfter(ms) = decision { Some(ms) } else { None }).collect()
    }

    const EXPONENTIAL: Strategy =
        Strategy::Exponential { initial_ms: 100, max_ms: 1_000, multiplier: 2.0, reset_after_ms: 5_000, jitter: 0.0 };

    #[test]
    fn none_never_restarts() {
        assert_eq!(delays(&mut Restarts::new(Strategy::None), &[0]), [None]);
    }

    #[test]
    fn fixed_restarts_as_often_as_allowed() {
        let mut bounded = Restarts::new(Strategy::Fixed { delay_ms: 7, attempts: Some(2) });
        assert_eq!(delays(&mut bounded, &[0, 1_000_000, 2_000_000]), [Some(7), Some(7), None]);
        let mut unbounded = Restarts::new(Strategy::Fixed { delay_ms: 7, attempts: None });
        assert!(delays(&mut unbounded, &[0; 1_000]).iter().all(|delay| *delay == Some(7)));
    }

    #[test]
    fn failure_rate_counts_only_failures_within_the_time_span() {
        let strategy = Strategy::FailureRate { failures: 2, per_ms: 100, delay_ms: 7 };
        let mut restarts = Restarts::new(strategy.clone());
        assert_eq!(delays(&mut restarts, &[0, 60, 100, 160, 200]), [Some(7); 5]);
        assert_eq!(delays(&mut restarts, &[250]), [None]);
        assert_eq!(delays(&mut Restarts::new(strategy), &[0, 1, 2]), [Some(7), Some(7), None]);
    }

    #[test]
    fn exponential_grows_to_its_maximum_and_stays_there() {
        let mut restarts = Restarts::new(EXPONENTIAL);
        let expected = [100, 200, 400, 800, 1_000, 1_000].map(Some);
        assert_eq!(delays(&mut restarts, &[0, 200, 500, 1_000, 2_000, 3_000]), expected);
    }

    #[test]
    fn exponential_starts_over_after_running_well_for_long_enough() {
        let mut restarts = Restarts::new(EXPONENTIAL);
        // The second restart is due at 1_200. Waiting for a restart is not running well: it counts from there.
        let expected = [100, 200, 400, 100].map(Some);
        assert_eq!(delays(&mut restarts, &[0, 1_000, 6_199, 6_599 + 5_000]), expected);
    }

    #[test]
    fn jitter_stays_within_its_share_and_below_the_maximum() {
        let strategy =
            |jitter| Strategy::Exponential { initial_ms: 800, max_ms: 1_000, multiplier: 1.0, reset_after_ms: 0, jitter };
        let first = |jitter, random| Restarts::new(strategy(jitter)).failed(0, random);
        assert_eq!(first(0.1, 0), Decision::RestartAfter(720));
        assert_eq!(first(0.1, u64::MAX), Decision::RestartAfter(880));
        assert_eq!(first(0.5, u64::MAX), Decision::RestartAfter(1_000));
        assert_eq!(first(7.0, 0), Decision::RestartAfter(0));
        assert_eq!(first(f64::NAN, 0), Decision::RestartAfter(800));
    }

    #[test]
    fn extreme_numbers_do_not_overflow() {
        let strategy = Strategy::Exponential {
            initial_ms: u64::MAX,
            max_ms: u64::MAX,
            multiplier: f64::INFINITY,
            reset_after_ms: u64::MAX,
            jitter: 1.0,
        };
        let mut restarts = Restarts::new(strategy);
        for _ in 0..3 {
            assert_eq!(restarts.failed(u64::MAX, u64::MAX), Decision::RestartAfter(u64::MAX));
        }
    }
}
