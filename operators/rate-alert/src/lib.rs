//! Reports keys with more rows within a sliding span of event time than a limit. See README.md for its configuration.
//!
//! Rows are looked at in the order of their event time, once the watermark has passed them. So the alerts depend on the
//! rows alone, not on the order in which they arrived.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir_sdk::json::append_integer;
use weir_sdk::prelude::*;
use weir_sdk::{Port, Span, memory};

/// The output of rows that came too late.
const LATE: u32 = 1;

/// The highest limit: a key's state holds that many times.
const LIMIT_MAX: u32 = 100_000;

/// How many rows in how much time.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// Rows that are still fine
    #[schemars(range(max = 100_000))]
    limit: u32,
    /// How far back a row looks
    span: Span,
}

/// The operator.
#[derive(Debug)]
pub struct RateAlert {
    config: Config,
    state: State,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    /// Rows that the watermark has not passed: time, number of arrival, key.
    waiting: BinaryHeap<Reverse<(Timestamp, u64, Vec<u8>)>>,
    /// Rows that have arrived.
    arrived: u64,
    keys: KeyMap<Recent>,
    /// When keys that have been quiet were last forgotten.
    swept: Timestamp,
}

/// The rows of a key within the span that ends at its last row.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Recent {
    /// Their times in order; the newest `limit + 1` if there are more.
    times: VecDeque<Timestamp>,
    /// Whether the excess has been reported. It is again only after the key was at or below the limit.
    reported: bool,
}

impl Operator for RateAlert {
    type Config = Config;

    fn describe() -> Description {
        Description::new("Reports keys with more rows in a sliding span of event time than a limit")
            .keyed_output("main", "A key that has gone above the limit")
            .keyed_output("late", "Rows that the watermark had passed when they came, as they came")
    }

    fn columns(&self, _: u32) -> Columns {
        Columns::TIMESTAMPS | Columns::KEYS
    }

    fn open(config: Config, _: &Context) -> Result<RateAlert, Error> {
        if config.limit > LIMIT_MAX {
            return Err(Error::fail(format!("config.limit: {} is more than {LIMIT_MAX}", config.limit)));
        }
        if config.span.ms() == 0 {
            return Err(Error::fail("config.span: must be longer than 0"));
        }
        Ok(RateAlert { config, state: State { swept: Timestamp::MIN, ..State::default() } })
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        if row.timestamp() < out.watermark() {
            out.to(LATE).forward(row);
            return Ok(());
        }
        // Its place among the waiting, later among its key's times.
        memory::reserve(row.key().len() * 2 + 64)?;
        let waiting = &mut self.state.waiting;
        if waiting.len() == waiting.capacity() {
            memory::reserve(waiting.len().max(4) * 2 * size_of::<Reverse<(Timestamp, u64, Vec<u8>)>>())?;
            waiting.try_reserve(1).map_err(|_| memory::NoRoom)?;
        }
        self.state.arrived += 1;
        self.state.waiting.push(Reverse((row.timestamp(), self.state.arrived, row.key().to_vec())));
        Ok(())
    }

    fn advance(&mut self, watermark: Timestamp, out: &mut Outputs) -> Result<(), Error> {
        let state = &mut self.state;
        while let Some(Reverse((time, ..))) = state.waiting.peek()
            && (*time < watermark || watermark == Timestamp::MAX)
            && let Some(Reverse((time, _, key))) = state.waiting.pop()
        {
            // There is no row here to reject; what it needed was asked for when it came.
            let recent = state.keys.try_or_default(&key).map_err(Error::fail)?;
            recent.add(self.config, time, &key, out.to(0));
        }
        // After an end of the input more came.
        state.swept = state.swept.min(watermark);
        // Each key is looked at once a span, which costs less than keeping a queue of them.
        if watermark.saturating_sub(self.config.span.ms()) >= state.swept {
            let oldest = watermark.saturating_sub(self.config.span.ms());
            state.keys.retain(|_, recent| recent.times.back().is_some_and(|&time| time > oldest));
            state.swept = watermark;
        }
        Ok(())
    }
}

impl Recent {
    fn add(&mut self, config: Config, time: Timestamp, key: &[u8], out: Port<'_>) {
        let limit = config.limit as usize;
        let oldest = time.saturating_sub(config.span.ms());
        while self.times.front().is_some_and(|&first| first <= oldest) || self.times.len() > limit {
            self.times.pop_front();
        }
        self.times.push_back(time);
        if self.times.len() <= limit {
            self.reported = false;
        } else if !self.reported {
            self.reported = true;
            self.send(config, time, key, out);
        }
    }

    fn send(&self, config: Config, time: Timestamp, key: &[u8], mut out: Port<'_>) {
        out.write(time, key, |bytes| {
            let mut number = |before: &[u8], number: i64| {
                bytes.extend_from_slice(before);
                append_integer(bytes, number);
            };
            number(b"{\"count\":", self.times.len() as i64);
            number(b",\"limit\":", i64::from(config.limit));
            number(b",\"span_ms\":", config.span.ms());
            number(b",\"first\":", self.times.front().copied().unwrap_or(time));
            number(b",\"last\":", time);
            bytes.push(b'}');
        });
    }
}

weir_sdk::export!(RateAlert, portable = state);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeMap;
    use weir_sdk::testing::Harness;

    const CONFIG: &str = r#"{"limit":3,"span":"10ms"}"#;

    #[test]
    fn one_row_more_than_the_limit_is_reported_once() {
        let mut alert = Harness::<RateAlert>::new(CONFIG);
        for time in [1, 2, 3, 11, 12, 12, 13] {
            alert.row(time, "a", "");
        }
        assert!(alert.take(0).is_empty(), "nothing before the watermark");
        alert.finish();
        // At 11 the row of 1 has just left the span; at the second 12 there are 3, 11, 12, 12.
        assert_eq!(alert.take_text(0), [r#"12 a {"count":4,"limit":3,"span_ms":10,"first":3,"last":12}"#]);
    }

    #[test]
    fn it_is_reported_again_only_after_the_rate_has_fallen() {
        let mut alert = Harness::<RateAlert>::new(CONFIG);
        for time in [1, 2, 3, 4, 5, 6, 30, 31, 32, 33] {
            alert.row(time, "a", "");
        }
        alert.finish();
        let times: Vec<Timestamp> = alert.take(0).iter().map(|row| row.timestamp).collect();
        assert_eq!(times, [4, 33]);
    }

    #[test]
    fn late_rows_go_to_their_own_output() {
        let mut alert = Harness::<RateAlert>::new(CONFIG);
        alert.advance(10).row(9, "a", "x").row(10, "a", "y").finish();
        assert_eq!(alert.take_text(LATE), ["9 a x"]);
    }

    #[test]
    fn rows_are_rejected_where_memory_is_full() {
        let mut alert = Harness::<RateAlert>::new(CONFIG);
        alert.row(1, "a", "");
        alert.set_room(Some(0));
        alert.row(2, "a", "").row(3, "b", "");
        let rejected = alert.take_rejections();
        assert!(rejected.len() == 2 && rejected[0].reason.contains("raise limits.memory"), "{rejected:?}");
        alert.set_room(None);
        for time in [3, 4, 5] {
            alert.row(time, "a", "");
        }
        alert.finish();
        assert_eq!(alert.take_text(0), [r#"5 a {"count":4,"limit":3,"span_ms":10,"first":1,"last":5}"#]);
    }

    #[test]
    fn quiet_keys_are_forgotten() {
        let mut alert = Harness::<RateAlert>::new(CONFIG);
        for time in 0..1_000 {
            alert.row(time, format!("key {time}"), "").advance(time);
        }
        assert!(alert.operator().state.keys.len() <= 21, "{}", alert.operator().state.keys.len());
    }

    /// All rows in order of time: the definition.
    fn reference(rows: &[(Timestamp, &'static str)], limit: usize, span: i64) -> Vec<(Timestamp, String)> {
        let mut keys: BTreeMap<&str, Vec<Timestamp>> = BTreeMap::new();
        rows.iter().for_each(|(time, key)| keys.entry(key).or_default().push(*time));
        let mut alerts = Vec::new();
        for (key, mut times) in keys {
            times.sort_unstable();
            let mut above = false;
            for (index, &time) in times.iter().enumerate() {
                let count = times[..=index].iter().filter(|&&earlier| earlier > time - span).count();
                if count > limit && !above {
                    alerts.push((time, key.to_owned()));
                }
                above = count > limit;
            }
        }
        alerts.sort();
        alerts
    }

    #[test]
    fn alerts_equal_the_reference_whatever_the_order_of_arrival() {
        for seed in 0..200u64 {
            let mut state = seed;
            let mut next = |bound: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % bound
            };
            let rows: Vec<(Timestamp, &'static str)> =
                (0..300).map(|i| (i * 2 + next(40) as i64, ["a", "b", "c"][next(3) as usize])).collect();
            let mut alert = Harness::<RateAlert>::new(r#"{"limit":4,"span":"20ms"}"#);
            for (i, (time, key)) in rows.iter().enumerate() {
                alert.row(*time, key, "");
                if i % 7 == 0 {
                    alert.advance(i as i64 * 2);
                }
                if i == 150 {
                    alert = continued(alert);
                }
            }
            alert.finish();
            assert!(alert.take(LATE).is_empty());
            let mut alerts: Vec<(Timestamp, String)> =
                alert.take(0).into_iter().map(|row| (row.timestamp, String::from_utf8(row.key).unwrap())).collect();
            alerts.extend(EARLIER.take());
            alerts.sort();
            assert_eq!(alerts, reference(&rows, 4, 20), "seed {seed}");
        }
    }

    thread_local! {
        static EARLIER: std::cell::RefCell<Vec<(Timestamp, String)>> = const { std::cell::RefCell::new(Vec::new()) };
    }

    /// Another instance that goes on from the saved state.
    fn continued(mut alert: Harness<RateAlert>) -> Harness<RateAlert> {
        let alerts = alert.take(0).into_iter().map(|row| (row.timestamp, String::from_utf8(row.key).unwrap()));
        EARLIER.set(alerts.collect());
        alert.upgrade(r#"{"limit":4,"span":"20ms"}"#).unwrap()
    }

    #[test]
    fn what_is_wrong_with_a_configuration_is_named() {
        let error = |config: &str| Harness::<RateAlert>::try_new(config).unwrap_err();
        assert_eq!(error(r#"{"limit":3}"#), "config: key `span` is missing");
        assert_eq!(error(r#"{"limit":3,"span":"0s"}"#), "config.span: must be longer than 0");
        assert_eq!(error(r#"{"limit":100001,"span":"1s"}"#), "config.limit: 100001 is more than 100000");
        assert!(error(r#"{"limit":-1,"span":"1s"}"#).starts_with("config.limit: invalid value"));
    }
}
