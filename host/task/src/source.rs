//! A source at the head of a task: reads rows, gives them event times, and says how far event time is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_connectors::{EventTime, Polled, Source, WatermarkGenerator};
use weir_model::{Batch, CheckpointId, OperatorUid, Timestamp, WATERMARK_START, limits};

use crate::TaskError;
use crate::chain::Chain;
use crate::clock::Clock;
use crate::node::Target;
use crate::report::SourceState;
use crate::stats::{self, VertexStats};

/// Watermarks are passed on at most this often, since each is a call of every instance.
const WATERMARK_INTERVAL: Duration = Duration::from_millis(50);

/// Time one round of reading and working off should take, so that a barrier never waits long at a source.
const ROUND_TARGET: Duration = Duration::from_millis(10);

/// The same with the time until there is room downstream for what was read. Rows that wait there are rows that a barrier has
/// to overtake, so a source whose rows are taken slowly reads few at a time.
const WHOLE_ROUND_TARGET: Duration = Duration::from_millis(20);

/// A source subtask.
pub(crate) struct SourceHead {
    uid: OperatorUid,
    source: Box<dyn Source>,
    event_time: Option<EventTime>,
    generator: WatermarkGenerator,
    targets: Vec<Target>,
    stats: Arc<VertexStats>,
    rows: Batch,
    rows_max: usize,
    round: Option<Round>,
    window: Option<Window>,
    /// Rows a read may ask for as far as the tasks behind this one decide that: what goes through in [`WHOLE_ROUND_TARGET`].
    cap: f64,
    sent: Timestamp,
    sent_at: Option<Duration>,
    idle: bool,
    /// Odd rows of the source that its counts show.
    odd_shown: u64,
    clock: Arc<dyn Clock>,
}

/// Time from which it is told how many rows go through.
const WINDOW_MIN: Duration = Duration::from_millis(100);

/// A read, and the time for reading and working off alone.
#[derive(Clone, Copy)]
struct Round {
    rows: usize,
    took: Duration,
}

/// Reads without a pause.
#[derive(Clone, Copy)]
struct Window {
    since: Duration,
    rows: usize,
    /// Time in which there was no room downstream.
    waited: Duration,
}

/// What a round of reading gave.
pub(crate) enum Read {
    Rows,
    Nothing { retry_in: Duration },
    Ended,
}

impl SourceHead {
    pub(crate) fn new(
        uid: OperatorUid,
        mut source: Box<dyn Source>,
        event_time: Option<EventTime>,
        generator: WatermarkGenerator,
        targets: Vec<Target>,
        stats: Arc<VertexStats>,
        clock: Arc<dyn Clock>,
    ) -> SourceHead {
        if event_time.is_some()
            && let Some(times) = source.split_times()
        {
            times.set_timed();
        }
        SourceHead {
            uid,
            source,
            event_time,
            generator,
            targets,
            stats,
            rows: Batch::default(),
            rows_max: 256,
            round: None,
            window: None,
            cap: f64::MAX,
            sent: WATERMARK_START,
            sent_at: None,
            idle: false,
            odd_shown: 0,
            clock,
        }
    }

    pub(crate) fn restore(&mut self, splits: &BTreeMap<String, Value>, event_time_max: Timestamp) -> Result<(), TaskError> {
        self.source.restore(splits).map_err(TaskError::connector(&self.uid))?;
        self.generator.restore(event_time_max);
        Ok(())
    }

    pub(crate) fn state(&mut self) -> SourceState {
        SourceState { splits: self.source.position(), event_time_max: self.generator.low() }
    }

    pub(crate) fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        self.source.checkpoint_completed(checkpoint);
    }

    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    pub(crate) fn watermark(&self) -> Timestamp {
        self.generator.watermark()
    }

    /// There was no room downstream for some time.
    pub(crate) fn has_waited(&mut self, time: Duration) {
        if let Some(window) = &mut self.window {
            window.waited += time;
        }
    }

    /// Reads once and works off what was read.
    pub(crate) fn read(&mut self, chain: &mut Chain) -> Result<Read, TaskError> {
        let started = self.clock.now();
        self.adapt(started, chain);
        self.rows.clear();
        let polled =
            self.source.poll(&mut self.rows, self.rows_max, chain.worth_sending()).map_err(TaskError::connector(&self.uid))?;
        let is_empty = self.rows.is_empty();
        let read = self.rows.len();
        let wall_ms = if self.generator.needs_wall_time() && !is_empty { self.clock.wall_ms() } else { 0 };
        let assigned = self.generator.assign(&mut self.rows, self.event_time.as_ref(), self.source.split_times(), wall_ms);
        self.show_oddities();
        assigned.map_err(TaskError::connector(&self.uid))?;
        if is_empty {
            return match polled {
                Polled::Rows => Ok(Read::Rows),
                Polled::Ended => Ok(Read::Ended),
                Polled::Idle { retry_in } => self.nothing(chain, retry_in),
            };
        }
        let count = self.rows.len();
        self.idle = false;
        for (counter, rows) in [(&self.stats.rows_in, read), (&self.stats.rows_out, count)] {
            stats::add(counter, rows);
        }
        chain.start_watch();
        chain.send(&self.targets, &mut self.rows)?;
        chain.pass_on_all()?;
        let now = self.clock.now();
        if self.sent_at.is_none_or(|at| now - at >= WATERMARK_INTERVAL) {
            self.send_watermark(chain, now)?;
        }
        self.round = Some(Round { rows: count, took: self.clock.now().saturating_sub(started) });
        match polled {
            Polled::Rows => Ok(Read::Rows),
            // Rows and an end may come together: the end is said by the next read.
            Polled::Ended => Ok(Read::Rows),
            Polled::Idle { retry_in } => {
                // What passes until the next read is not spent waiting for room.
                (self.round, self.window) = (None, None);
                Ok(Read::Nothing { retry_in })
            }
        }
    }

    /// Makes the source's odd rows known, where there are more than before.
    fn show_oddities(&mut self) {
        // Neither has a kind of the other.
        let both = [self.source.oddities(), self.generator.oddities()];
        let total = both.iter().map(|oddities| oddities.total()).sum();
        if total != std::mem::replace(&mut self.odd_shown, total) {
            both.iter().for_each(|oddities| self.stats.odd.show(oddities));
        }
    }

    fn nothing(&mut self, chain: &mut Chain, retry_in: Duration) -> Result<Read, TaskError> {
        self.window = None;
        let now = self.clock.now();
        self.send_watermark(chain, now)?;
        let now_ms = now.as_millis() as u64;
        // A subtask that has nothing to read keeps nobody waiting.
        let has_none = self.source.split_times().is_some_and(|times| times.is_empty());
        if (self.generator.is_idle(now_ms) || has_none) && !self.idle {
            self.idle = true;
            chain.send_idle()?;
        }
        Ok(Read::Nothing { retry_in })
    }

    fn send_watermark(&mut self, chain: &mut Chain, now: Duration) -> Result<(), TaskError> {
        let watermark = self.generator.watermark();
        if watermark > self.sent {
            self.sent = watermark;
            self.sent_at = Some(now);
            for target in self.targets.clone() {
                chain.advance_target(target, watermark)?;
            }
        }
        Ok(())
    }

    /// Rows a read asks for follow from how long the rows before took, so that neither slow operators in the chain nor slow
    /// tasks behind it make rounds long.
    fn adapt(&mut self, now: Duration, chain: &mut Chain) {
        let Some(Round { rows, took }) = self.round.take() else { return };
        let alone = rows as f64 * ROUND_TARGET.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let window = self.window.get_or_insert(Window { since: now, rows: 0, waited: Duration::ZERO });
        window.rows += rows;
        let elapsed = now.saturating_sub(window.since);
        let now_max = self.rows_max as f64;
        if elapsed >= WINDOW_MIN {
            // Where it hardly waits, what goes through says how fast the source is, not how fast the tasks behind it are.
            let is_held_up = window.waited * 10 >= elapsed;
            let goes_through = window.rows as f64 * WHOLE_ROUND_TARGET.as_secs_f64() / elapsed.as_secs_f64();
            self.cap = if is_held_up { goes_through.clamp(now_max / 2.0, now_max * 2.0) } else { self.cap * 2.0 };
            *window = Window { since: now, rows: 0, waited: Duration::ZERO };
            chain.look();
        } else if !window.waited.is_zero() {
            // Not more before it is known how much is too much.
            self.cap = self.cap.min(now_max);
        }
        let possible = alone.min(self.cap);
        let next = possible.clamp(1.0, (self.rows_max * 2) as f64) as usize;
        self.rows_max = next.clamp(1, limits::FRAME_ROWS_MAX / 2);
    }
}
