//! Watermarks of a source: how far event time has come.
//!
//! Pure: the caller passes the time of day.

use weir_model::{Batch, Timestamp, WATERMARK_START};

use crate::EventTime;

/// Bounded out-of-orderness with idleness: the watermark trails the greatest time seen by `delay_ms`.
#[derive(Clone, Debug)]
pub struct WatermarkGenerator {
    delay_ms: i64,
    idle_after_ms: Option<u64>,
    /// Greatest time seen; `WATERMARK_START` before any row had one.
    max: Timestamp,
    /// Rows came since `is_idle` was last asked.
    is_active: bool,
    /// When rows were last known to come; `None` until `is_idle` is asked for the first time.
    active_ms: Option<u64>,
}

impl WatermarkGenerator {
    /// Rows may be up to `delay_ms` later than the latest one. After `idle_after_ms` without a row the source is idle and no
    /// longer holds others back; `None`: never.
    pub fn new(delay_ms: u64, idle_after_ms: Option<u64>) -> WatermarkGenerator {
        let delay_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
        WatermarkGenerator { delay_ms, idle_after_ms, max: WATERMARK_START, is_active: false, active_ms: None }
    }

    /// Sees the rows from `first` on. With `event_time` their timestamps are set from their values; a row whose time cannot be
    /// read gets the greatest time seen so far (or 0) and does not advance it. Without, timestamps are taken as they are.
    pub fn assign(&mut self, rows: &mut Batch, first: usize, event_time: Option<&EventTime>) {
        let Batch { timestamps, values, .. } = rows;
        self.is_active |= first < timestamps.len();
        match event_time {
            None => self.max = timestamps[first..].iter().fold(self.max, |max, &t| max.max(t)),
            Some(event_time) => {
                for (row, timestamp) in timestamps.iter_mut().enumerate().skip(first) {
                    *timestamp = match event_time.of(values.get(row)) {
                        Some(time) => {
                            self.max = self.max.max(time);
                            time
                        }
                        None if self.max == WATERMARK_START => 0,
                        None => self.max,
                    };
                }
            }
        }
    }

    /// No row with a time at or before this is expected any more.
    pub fn watermark(&self) -> Timestamp {
        if self.max == WATERMARK_START { WATERMARK_START } else { self.max.saturating_sub(self.delay_ms).saturating_sub(1) }
    }

    /// Whether no row came for `idle_after_ms`. `now_ms` is of any clock that does not go back.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        if std::mem::take(&mut self.is_active) {
            self.active_ms = Some(now_ms);
        }
        let active_ms = *self.active_ms.get_or_insert(now_ms);
        self.idle_after_ms.is_some_and(|after| now_ms.saturating_sub(active_ms) >= after)
    }

    /// Greatest time seen, for the checkpoint; `WATERMARK_START` before any.
    pub fn max(&self) -> Timestamp {
        self.max
    }

    /// Continues from a checkpoint. Never goes back.
    pub fn restore(&mut self, max: Timestamp) {
        self.max = self.max.max(max);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn batch(times: &[i64]) -> Batch {
        let mut batch = Batch::default();
        times.iter().for_each(|&t| batch.push(t, b"", format!("{t}").as_bytes()));
        batch
    }

    #[test]
    fn watermark_trails_the_greatest_time_and_never_falls() {
        let mut watermarks = WatermarkGenerator::new(5, None);
        assert_eq!(watermarks.watermark(), WATERMARK_START);
        watermarks.assign(&mut batch(&[100, 90]), 0, None);
        assert_eq!(watermarks.watermark(), 94);
        watermarks.assign(&mut batch(&[50, 101, 7]), 2, None);
        assert_eq!(watermarks.watermark(), 94, "rows before `first` were seen already");
        watermarks.restore(3);
        assert_eq!(watermarks.max(), 100);
        watermarks.assign(&mut batch(&[i64::MIN + 1]), 0, None);
        assert_eq!(watermarks.watermark(), 94);
        let mut far = WatermarkGenerator::new(u64::MAX, None);
        far.assign(&mut batch(&[-10]), 0, None);
        assert!(far.watermark() < i64::MIN / 2, "saturates");
    }

    #[test]
    fn a_row_without_readable_time_gets_the_greatest_so_far_and_does_not_advance_it() {
        let event_time = EventTime::new(None, crate::EventTimeFormat::UnixMs).unwrap();
        let mut rows = Batch::default();
        [&b"bad"[..], b"100", b"bad", b"50", b"worse"].iter().for_each(|line| rows.push(-1, b"", line));
        let mut watermarks = WatermarkGenerator::new(0, None);
        watermarks.assign(&mut rows, 0, Some(&event_time));
        assert_eq!(rows.timestamps, [0, 100, 100, 50, 100]);
        assert_eq!(watermarks.watermark(), 99);
        let mut rows = Batch::default();
        rows.push(0, b"", b"bad");
        let mut watermarks = WatermarkGenerator::new(0, None);
        watermarks.assign(&mut rows, 0, Some(&event_time));
        assert_eq!((rows.timestamps[0], watermarks.watermark()), (0, WATERMARK_START));
    }

    #[test]
    fn s28_idle_after_the_time_without_rows_and_active_again_with_the_next() {
        let mut watermarks = WatermarkGenerator::new(0, Some(30));
        assert!(!watermarks.is_idle(1_000), "counts from the first question");
        assert!(!watermarks.is_idle(1_029));
        assert!(watermarks.is_idle(1_030));
        watermarks.assign(&mut batch(&[1]), 0, None);
        assert!(!watermarks.is_idle(1_040));
        watermarks.assign(&mut batch(&[]), 0, None);
        assert!(watermarks.is_idle(1_070), "no rows are no activity");
        assert!(!WatermarkGenerator::new(0, None).is_idle(u64::MAX));
    }
}
