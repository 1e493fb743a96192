//! What an operator says while it runs, log lines and numbers, bounded over all its instances in this process: a keyed
//! operator has one instance per key group, and what each may say must not multiply by their number.
//!
//! Owns the bounds and what they count; never the text on its way out of a guest's memory, which is `host`'s.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use weir_model::limits;

use crate::bindings::LogLevel;

/// Takes what one operator logs and counts, within the bounds of `weir_model::limits`. Called on the thread that calls the instance, in the middle of the call: must
/// be quick.
pub trait HostEvents: Send + Sync {
    /// A line, cut to `LOG_LINE_BYTES_MAX`.
    fn log(&self, level: LogLevel, message: &str);
    /// Adds to a counter.
    fn count(&self, counter: &str, delta: u64);
    /// Sets a gauge.
    fn gauge(&self, gauge: &str, value: f64);
}

/// What the instances of one operator report through.
pub(crate) struct Reports {
    events: Arc<dyn HostEvents>,
    gate: Mutex<LogGate>,
    names: RwLock<MetricNames>,
}

impl Reports {
    pub(crate) fn new(events: Arc<dyn HostEvents>) -> Arc<Reports> {
        Arc::new(Reports { events, gate: Mutex::default(), names: RwLock::default() })
    }

    /// Whether a line may be written. Asked before the line is looked at, so that a flood of long ones costs nothing.
    pub(crate) fn takes_line(&self) -> bool {
        match lock(&self.gate).pass(Instant::now()) {
            Gate::Drop => return false,
            Gate::Keep { dropped_before: 0 } => {}
            Gate::Keep { dropped_before } => {
                let max = limits::LOG_LINES_PER_SECOND_MAX;
                let message = format!("{dropped_before} log lines of this operator were dropped: it may log {max} a second");
                self.events.log(LogLevel::Warn, &message);
            }
        }
        true
    }

    /// A line that [`Reports::takes_line`] has let through.
    pub(crate) fn line(&self, level: LogLevel, message: &str) {
        self.events.log(level, cut(message, limits::LOG_LINE_BYTES_MAX));
    }

    /// Whether a number may be reported under a name: it is one of those that the operator may use.
    pub(crate) fn takes(&self, kind: MetricKind, name: &str) -> bool {
        let known = self.names.read().unwrap_or_else(PoisonError::into_inner).kind(name);
        let check = match known {
            Some(known) if known == kind => return true,
            _ => self.names.write().unwrap_or_else(PoisonError::into_inner).check(kind, name),
        };
        if let NameCheck::RefusedFirst(why) = check {
            let message = format!("metric {:?} is ignored: {why}", cut(name, 64));
            self.events.log(LogLevel::Warn, &message);
        }
        check == NameCheck::Known
    }

    /// Adds to a counter whose name [`Reports::takes`].
    pub(crate) fn count(&self, counter: &str, delta: u64) {
        self.events.count(counter, delta);
    }

    /// Sets a gauge whose name [`Reports::takes`].
    pub(crate) fn gauge(&self, gauge: &str, value: f64) {
        self.events.gauge(gauge, value);
    }
}

/// What calls of one instance have counted and nobody was told yet: a counter may be added to for each row, and those who hear of it share
/// a lock.
#[derive(Default)]
pub(crate) struct Counts {
    /// Only names that [`Reports::takes`], so they are few.
    sums: HashMap<Box<str>, u64>,
    any: bool,
}

impl Counts {
    /// Adds to a counter.
    pub(crate) fn add(&mut self, reports: &Reports, counter: &str, delta: u64) {
        match self.sums.get_mut(counter) {
            Some(sum) => *sum = sum.saturating_add(delta),
            None if reports.takes(MetricKind::Counter, counter) => drop(self.sums.insert(counter.into(), delta)),
            None => return,
        }
        self.any = true;
    }

    /// Tells what was counted: at the end of a call.
    #[inline]
    pub(crate) fn hand_over(&mut self, reports: &Reports) {
        if std::mem::take(&mut self.any) {
            let counted = self.sums.iter_mut().filter(|(_, sum)| **sum > 0);
            counted.for_each(|(counter, sum)| reports.count(counter, std::mem::take(sum)));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets so many log lines through per second and counts the rest.
#[derive(Default)]
struct LogGate {
    second_start: Option<Instant>,
    kept: u32,
    dropped: u64,
}

/// What the gate says about a line.
#[derive(Debug, PartialEq, Eq)]
enum Gate {
    /// Keep it. So many were dropped in the seconds before and have not been reported.
    Keep { dropped_before: u64 },
    /// Drop it.
    Drop,
}

impl LogGate {
    fn pass(&mut self, now: Instant) -> Gate {
        let is_new_second = self.second_start.is_none_or(|start| now.duration_since(start) >= Duration::from_secs(1));
        if is_new_second {
            self.second_start = Some(now);
            self.kept = 0;
        }
        if self.kept >= limits::LOG_LINES_PER_SECOND_MAX {
            self.dropped += 1;
            return Gate::Drop;
        }
        self.kept += 1;
        Gate::Keep { dropped_before: std::mem::take(&mut self.dropped) }
    }
}

/// What a name of a metric stands for. A name is one of them for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricKind {
    Counter,
    Gauge,
}

/// The names of metrics an operator has used.
#[derive(Default)]
struct MetricNames {
    known: HashMap<Box<str>, MetricKind>,
    is_reported: bool,
}

/// Whether a metric may be reported.
#[derive(Debug, PartialEq, Eq)]
enum NameCheck {
    Known,
    /// Say so once, and why.
    RefusedFirst(&'static str),
    Refused,
}

impl MetricNames {
    fn kind(&self, name: &str) -> Option<MetricKind> {
        self.known.get(name).copied()
    }

    /// Remembers the name if there is room.
    fn check(&mut self, kind: MetricKind, name: &str) -> NameCheck {
        let why = match self.kind(name) {
            Some(known) if known == kind => return NameCheck::Known,
            Some(_) => "the name is used for a counter and for a gauge",
            None if name.len() > limits::METRIC_NAME_BYTES_MAX => "the name is too long",
            None if name.chars().any(char::is_control) => "the name has control characters",
            None if self.known.len() >= limits::METRIC_NAMES_MAX => "the operator uses too many names",
            None => {
                self.known.insert(name.into(), kind);
                return NameCheck::Known;
            }
        };
        if std::mem::replace(&mut self.is_reported, true) { NameCheck::Refused } else { NameCheck::RefusedFirst(why) }
    }
}

/// The text, cut to at most `max` bytes at a character boundary.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gate_keeps_a_bounded_number_of_lines_each_second_and_reports_the_rest() {
        let mut gate = LogGate::default();
        let start = Instant::now();
        let kept = (0..1_000).filter(|_| gate.pass(start) != Gate::Drop).count();
        assert_eq!(kept, limits::LOG_LINES_PER_SECOND_MAX as usize);
        let dropped_before = 1_000 - kept as u64;
        assert_eq!(gate.pass(start + Duration::from_secs(1)), Gate::Keep { dropped_before });
        assert_eq!(gate.pass(start + Duration::from_secs(1)), Gate::Keep { dropped_before: 0 });
    }

    #[test]
    fn metric_names_are_bounded_in_number_length_and_characters() {
        let mut names = MetricNames::default();
        let counter = MetricKind::Counter;
        let long = "x".repeat(limits::METRIC_NAME_BYTES_MAX + 1);
        assert_eq!(names.check(counter, &long), NameCheck::RefusedFirst("the name is too long"));
        assert_eq!(names.check(counter, "\u{1b}[31m"), NameCheck::Refused);
        for i in 0..limits::METRIC_NAMES_MAX {
            assert_eq!(names.check(counter, &format!("n{i}")), NameCheck::Known);
        }
        assert_eq!(names.check(counter, "one more"), NameCheck::Refused);
        assert_eq!(names.check(counter, "n0"), NameCheck::Known);
    }

    #[test]
    fn a_name_is_a_counter_or_a_gauge_but_not_both() {
        let mut names = MetricNames::default();
        assert_eq!(names.check(MetricKind::Counter, "n"), NameCheck::Known);
        assert!(matches!(names.check(MetricKind::Gauge, "n"), NameCheck::RefusedFirst(why) if why.contains("for a gauge")));
        assert_eq!(names.check(MetricKind::Counter, "n"), NameCheck::Known);
    }

    #[derive(Default)]
    struct Told(Mutex<Vec<(String, u64)>>);

    impl HostEvents for Told {
        fn log(&self, _level: LogLevel, _message: &str) {}
        fn count(&self, counter: &str, delta: u64) {
            lock(&self.0).push((counter.to_owned(), delta));
        }
        fn gauge(&self, _gauge: &str, _value: f64) {}
    }

    #[test]
    fn what_is_counted_is_told_once_and_only_of_counters_that_something_was_added_to() {
        let told = Arc::new(Told::default());
        let (reports, mut counts) = (Reports::new(told.clone()), Counts::default());
        (0..1_000).for_each(|n| counts.add(&reports, if n % 2 == 0 { "even" } else { "odd" }, n));
        assert!(reports.takes(MetricKind::Gauge, "size"));
        counts.add(&reports, "size", 7);
        assert!(lock(&told.0).is_empty());
        counts.hand_over(&reports);
        counts.hand_over(&reports);
        counts.add(&reports, "odd", 1);
        counts.hand_over(&reports);
        let mut told = lock(&told.0).clone();
        told[..2].sort();
        assert_eq!(told, [("even".to_owned(), 249_500), ("odd".to_owned(), 250_000), ("odd".to_owned(), 1)]);
    }

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("aéb", 2), "a");
        assert_eq!(cut("abc", 10), "abc");
    }
}
