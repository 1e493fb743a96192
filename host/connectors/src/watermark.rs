//! Event times of a source's rows, and watermarks: how far event time has come.
//!
//! Pure: the caller passes the time of day.

use std::ops::Range;

use weir_model::{Batch, OddExample, OddKind, Oddities, Timestamp, WATERMARK_START};

use crate::no_time::{self, NoTime, NoTimeRule};
use crate::split_times::SplitTimes;
use crate::{ConnectorError, EventTime};

/// Bounded out-of-orderness with idleness: the watermark trails the greatest time seen by a delay; where there are several splits,
/// the greatest time of the one that is furthest behind.
#[derive(Clone, Debug)]
pub struct WatermarkGenerator {
    delay_ms: i64,
    idle_after_ms: Option<u64>,
    max_ahead_ms: Option<i64>,
    no_time: Box<NoTimeRule>,
    /// Greatest time seen; `WATERMARK_START` before any row had one.
    max: Timestamp,
    /// Where event time is, but for the delay. Never falls.
    low: Timestamp,
    /// Rows came since `is_idle` was last asked.
    is_active: bool,
    /// When rows were last known to come; `None` until `is_idle` is asked for the first time.
    active_ms: Option<u64>,
    oddities: Oddities,
}

/// How the times of rows are read, for one call.
struct Reading<'a> {
    event_time: Option<&'a EventTime>,
    /// No time beyond this moves event time.
    limit: Timestamp,
    wall_ms: Timestamp,
}

impl WatermarkGenerator {
    /// Rows may be up to `delay_ms` later than the latest one. After `idle_after_ms` without a row the source is idle and no
    /// longer holds others back; `None`: never.
    pub fn new(delay_ms: u64, idle_after_ms: Option<u64>) -> WatermarkGenerator {
        WatermarkGenerator {
            delay_ms: i64::try_from(delay_ms).unwrap_or(i64::MAX),
            idle_after_ms,
            max_ahead_ms: None,
            no_time: Box::default(),
            max: WATERMARK_START,
            low: WATERMARK_START,
            is_active: false,
            active_ms: None,
            oddities: Oddities::new(),
        }
    }

    /// A row whose time is more than this beyond the time of day does not move event time, and is counted. `None`: any may.
    #[must_use]
    pub fn with_max_ahead(mut self, max_ahead_ms: Option<u64>) -> WatermarkGenerator {
        self.max_ahead_ms = max_ahead_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        self
    }

    /// What becomes of a row whose time cannot be read.
    #[must_use]
    pub fn with_no_time(mut self, no_time: NoTimeRule) -> WatermarkGenerator {
        self.no_time = Box::new(no_time);
        self
    }

    /// Sees the rows of a poll, all of the batch. With `event_time` their timestamps are set from their values; without, they are taken
    /// as they are. `times`: the splits they came from, where the source has several. `wall_ms`: the time of day, in milliseconds
    /// since 1970. Fails where a row's time cannot be read and that is to be a failure.
    pub fn assign(
        &mut self,
        rows: &mut Batch,
        event_time: Option<&EventTime>,
        times: Option<&mut SplitTimes>,
        wall_ms: Timestamp,
    ) -> Result<(), ConnectorError> {
        self.is_active |= !rows.is_empty();
        let limit = self.max_ahead_ms.map_or(Timestamp::MAX, |ahead| wall_ms.saturating_add(ahead));
        let reading = Reading { event_time, limit, wall_ms };
        let mut left_out = Vec::new();
        let low = match times.filter(|times| times.is_timed()) {
            None => {
                let all = 0..rows.len();
                self.max = self.read(rows, all, self.max, &reading, &mut left_out)?;
                self.max
            }
            Some(times) => {
                for (slot, head) in times.take_heads() {
                    let readable = head.values.iter().filter_map(|value| event_time.and_then(|time| time.of(value)));
                    times.reach(slot, readable.filter(|time| *time <= limit).min().unwrap_or(WATERMARK_START));
                }
                let parts = times.take_parts();
                for (slot, range) in &parts {
                    let before = times.time(*slot);
                    let reached = self.read(rows, range.clone(), before, &reading, &mut left_out)?;
                    times.reach(*slot, reached);
                    times.reach_max(reached);
                    self.max = self.max.max(reached);
                }
                times.put_parts(parts);
                times.low()
            }
        };
        self.low = self.low.max(low);
        if !left_out.is_empty() {
            no_time::leave_out(rows, &left_out);
        }
        Ok(())
    }

    /// Sets the times of some rows that follow one another in a split. Gives the greatest, or `reached`, where the split was before.
    fn read(
        &mut self,
        rows: &mut Batch,
        range: Range<usize>,
        reached: Timestamp,
        reading: &Reading<'_>,
        left_out: &mut Vec<usize>,
    ) -> Result<Timestamp, ConnectorError> {
        let Batch { timestamps, values, .. } = rows;
        if reading.event_time.is_none() && reading.limit == Timestamp::MAX {
            return Ok(timestamps[range].iter().fold(reached, |max, time| max.max(*time)));
        }
        let mut max = reached;
        for row in range {
            let time = match reading.event_time {
                None => Some(timestamps[row]),
                Some(event_time) => event_time.of(values.get(row)),
            };
            match time {
                Some(time) if time <= reading.limit => {
                    timestamps[row] = time;
                    max = max.max(time);
                }
                Some(time) => {
                    timestamps[row] = time;
                    self.is_ahead(values.get(row), time, reading.wall_ms);
                }
                None => {
                    let value = values.get(row);
                    let rule = &self.no_time;
                    self.oddities.add(OddKind::NoTime, || OddExample::new(value, &rule.reason(value)));
                    match rule.outcome {
                        NoTime::Fail => return Err(rule.failure(value)),
                        NoTime::Skip => left_out.push(row),
                        NoTime::Previous => {}
                    }
                    // In a split that has had no time yet: that of the others.
                    let known = if max == WATERMARK_START { self.max } else { max };
                    timestamps[row] = if known == WATERMARK_START { 0 } else { known };
                }
            }
        }
        Ok(max)
    }

    #[cold]
    fn is_ahead(&mut self, value: &[u8], time: Timestamp, wall_ms: Timestamp) {
        self.oddities.add(OddKind::AheadOfTime, || {
            let mut text = Vec::new();
            crate::write_rfc3339(time, &mut text);
            let mut now = Vec::new();
            crate::write_rfc3339(wall_ms, &mut now);
            let reason = format!(
                "its time is {}, and it was {} when it was read: event time stays where it is; watermark.max_ahead says how far ahead \
                 a row may be",
                String::from_utf8_lossy(&text),
                String::from_utf8_lossy(&now)
            );
            OddExample::new(value, &reason)
        });
    }

    /// No row with a time at or before this is expected any more.
    pub fn watermark(&self) -> Timestamp {
        if self.low == WATERMARK_START { WATERMARK_START } else { self.low.saturating_sub(self.delay_ms).saturating_sub(1) }
    }

    /// Whether no row came for `idle_after_ms`. `now_ms` is of any clock that does not go back.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        if std::mem::take(&mut self.is_active) {
            self.active_ms = Some(now_ms);
        }
        let active_ms = *self.active_ms.get_or_insert(now_ms);
        self.idle_after_ms.is_some_and(|after| now_ms.saturating_sub(active_ms) >= after)
    }

    /// Whether `assign` looks at the time of day.
    pub fn needs_wall_time(&self) -> bool {
        self.max_ahead_ms.is_some()
    }

    /// Where event time is, for the checkpoint: the watermark without the delay. `WATERMARK_START` before any.
    pub fn low(&self) -> Timestamp {
        self.low
    }

    /// Rows without a time, and rows too far ahead.
    pub fn oddities(&self) -> &Oddities {
        &self.oddities
    }

    /// Continues from a checkpoint. Never goes back.
    pub fn restore(&mut self, low: Timestamp) {
        (self.low, self.max) = (self.low.max(low), self.max.max(low));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::event_time_settings;
    use serde_json::json;

    fn batch(times: &[i64]) -> Batch {
        let mut batch = Batch::default();
        times.iter().for_each(|&t| batch.push(t, b"", format!("{t}").as_bytes()));
        batch
    }

    fn lines(lines: &[&str]) -> Batch {
        let mut batch = Batch::default();
        lines.iter().for_each(|line| batch.push(-1, b"", line.as_bytes()));
        batch
    }

    fn with(settings: &serde_json::Value) -> (EventTime, NoTimeRule) {
        event_time_settings(settings.as_object().unwrap()).unwrap()
    }

    fn ms() -> EventTime {
        with(&json!({"format": "unix-ms"})).0
    }

    fn no_time(outcome: &str) -> NoTimeRule {
        with(&json!({"format": "unix-ms", "no_time": outcome})).1
    }

    #[test]
    fn watermark_trails_the_greatest_time_and_never_falls() {
        let mut watermarks = WatermarkGenerator::new(5, None);
        assert_eq!(watermarks.watermark(), WATERMARK_START);
        watermarks.assign(&mut batch(&[100, 90]), None, None, 0).unwrap();
        assert_eq!(watermarks.watermark(), 94);
        watermarks.assign(&mut batch(&[7]), None, None, 0).unwrap();
        assert_eq!(watermarks.watermark(), 94);
        watermarks.restore(3);
        assert_eq!(watermarks.low(), 100);
        watermarks.assign(&mut batch(&[i64::MIN + 1]), None, None, 0).unwrap();
        assert_eq!(watermarks.watermark(), 94);
        let mut far = WatermarkGenerator::new(u64::MAX, None);
        far.assign(&mut batch(&[-10]), None, None, 0).unwrap();
        assert!(far.watermark() < i64::MIN / 2, "saturates");
    }

    #[test]
    fn a_row_without_readable_time_gets_the_greatest_so_far_and_is_counted() {
        let mut rows = lines(&["bad", "100", "bad", "50", "worse"]);
        let mut watermarks = WatermarkGenerator::new(0, None);
        watermarks.assign(&mut rows, Some(&ms()), None, 0).unwrap();
        assert_eq!(rows.timestamps, [0, 100, 100, 50, 100]);
        assert_eq!(watermarks.watermark(), 99);
        let odd = watermarks.oddities().get(OddKind::NoTime).unwrap();
        assert_eq!((odd.rows, odd.first.as_ref().unwrap().value.as_str()), (3, "bad"));
        let mut rows = lines(&["bad"]);
        let mut watermarks = WatermarkGenerator::new(0, None);
        watermarks.assign(&mut rows, Some(&ms()), None, 0).unwrap();
        assert_eq!((rows.timestamps[0], watermarks.watermark()), (0, WATERMARK_START));
    }

    #[test]
    fn a_row_without_readable_time_is_left_out_or_fails_as_asked() {
        let mut rows = lines(&["bad", "100", "worse", "50"]);
        let mut watermarks = WatermarkGenerator::new(0, None).with_no_time(no_time("skip"));
        watermarks.assign(&mut rows, Some(&ms()), None, 0).unwrap();
        assert_eq!(rows.timestamps, [100, 50]);
        assert_eq!(rows.values.iter().collect::<Vec<_>>(), [b"100".as_slice(), b"50"]);
        assert!(rows.view().is_valid());
        assert_eq!(watermarks.oddities().rows(OddKind::NoTime), 2);
        let mut watermarks = WatermarkGenerator::new(0, None).with_no_time(no_time("fail"));
        let error = watermarks.assign(&mut lines(&["bad"]), Some(&ms()), None, 0).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("\"bad\""), "{error}");
    }

    #[test]
    fn a_row_of_the_far_future_keeps_its_time_and_does_not_move_event_time() {
        let mut watermarks = WatermarkGenerator::new(0, None).with_max_ahead(Some(1_000));
        let mut rows = lines(&["100", "2500", "9223372036854775807", "1100"]);
        watermarks.assign(&mut rows, Some(&ms()), None, 500).unwrap();
        assert_eq!(rows.timestamps, [100, 2500, i64::MAX, 1100]);
        assert_eq!(watermarks.watermark(), 1_099);
        let odd = watermarks.oddities().get(OddKind::AheadOfTime).unwrap();
        assert_eq!(odd.rows, 2);
        assert!(odd.first.as_ref().unwrap().reason.contains("1970-01-01T00:00:02.500Z"), "{odd:?}");
        watermarks.assign(&mut lines(&["2500"]), Some(&ms()), None, 1_500).unwrap();
        assert_eq!(watermarks.watermark(), 2_499, "its time has come");
    }

    #[test]
    fn the_split_that_is_furthest_behind_holds_event_time_back() {
        let (mut times, mut watermarks) = (SplitTimes::default(), WatermarkGenerator::new(0, None).with_max_ahead(Some(1_000)));
        times.set_timed();
        let (old, new) = (times.open(WATERMARK_START), times.open(WATERMARK_START));
        times.show_head(old, lines(&["header", "60", "50", "99999"]));
        watermarks.assign(&mut Batch::default(), Some(&ms()), Some(&mut times), 0).unwrap();
        assert_eq!((times.time(old), watermarks.watermark()), (50, WATERMARK_START));
        times.begin();
        times.rows_until(new, 2);
        watermarks.assign(&mut lines(&["100", "300"]), Some(&ms()), Some(&mut times), 0).unwrap();
        assert_eq!(watermarks.watermark(), 49, "the old one is yet to come");
        times.begin();
        times.rows_until(old, 1);
        times.rows_until(new, 2);
        let mut rows = lines(&["bad", "bad"]);
        watermarks.assign(&mut rows, Some(&ms()), Some(&mut times), 0).unwrap();
        assert_eq!(rows.timestamps, [50, 300], "each the time of its own split");
        times.begin();
        times.rows_until(old, 1);
        times.close(old);
        watermarks.assign(&mut lines(&["200"]), Some(&ms()), Some(&mut times), 0).unwrap();
        assert_eq!(watermarks.watermark(), 299);
    }

    #[test]
    fn s28_idle_after_the_time_without_rows_and_active_again_with_the_next() {
        let mut watermarks = WatermarkGenerator::new(0, Some(30));
        assert!(!watermarks.is_idle(1_000), "counts from the first question");
        assert!(!watermarks.is_idle(1_029));
        assert!(watermarks.is_idle(1_030));
        watermarks.assign(&mut batch(&[1]), None, None, 0).unwrap();
        assert!(!watermarks.is_idle(1_040));
        watermarks.assign(&mut batch(&[]), None, None, 0).unwrap();
        assert!(watermarks.is_idle(1_070), "no rows are no activity");
        assert!(!WatermarkGenerator::new(0, None).is_idle(u64::MAX));
    }
}
