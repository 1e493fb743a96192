//! What an operator may ask of its host: a line in the log, a number in the metrics, the time, a random number.
//!
//! Outside WebAssembly a thread-local stand-in answers, which tests look into.

/// How important a line in the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For whoever works on the operator.
    Debug,
    /// Worth knowing.
    Info,
    /// Something is not as it should be; the operator copes.
    Warn,
    /// Someone must look.
    Error,
}

/// Writes a line to the job's log. The host adds job, operator and time. Usually called as
/// [`debug!`](crate::debug), [`info!`](crate::info), [`warn!`](crate::warn) or [`error!`](crate::error).
pub fn log(level: Level, message: &str) {
    imp::log(level, message);
}

/// Numbers for the job's metrics.
pub mod metrics {
    /// Adds to a counter.
    pub fn add(counter: &str, delta: u64) {
        super::imp::add(counter, delta);
    }

    /// Sets a gauge.
    pub fn set(gauge: &str, value: f64) {
        super::imp::set(gauge, value);
    }
}

/// Processing time: milliseconds since the Unix epoch, UTC. It differs when rows are processed again after a crash;
/// results that must be the same then depend on event time only.
pub fn now() -> crate::Timestamp {
    imp::now()
}

/// A random number. It differs when rows are processed again after a crash.
pub fn random() -> u64 {
    imp::random()
}

/// Writes a line to the job's log, at level debug.
#[macro_export]
macro_rules! debug { ($($text:tt)*) => { $crate::log($crate::Level::Debug, &::std::format!($($text)*)) } }

/// Writes a line to the job's log, at level info.
#[macro_export]
macro_rules! info { ($($text:tt)*) => { $crate::log($crate::Level::Info, &::std::format!($($text)*)) } }

/// Writes a line to the job's log, at level warn.
#[macro_export]
macro_rules! warn { ($($text:tt)*) => { $crate::log($crate::Level::Warn, &::std::format!($($text)*)) } }

/// Writes a line to the job's log, at level error.
#[macro_export]
macro_rules! error { ($($text:tt)*) => { $crate::log($crate::Level::Error, &::std::format!($($text)*)) } }

#[cfg(target_arch = "wasm32")]
mod imp {
    use super::Level;
    use crate::bindings::weir::operator::{ambient, log as lines, metrics};

    pub(super) fn log(level: Level, message: &str) {
        let level = match level {
            Level::Debug => lines::Level::Debug,
            Level::Info => lines::Level::Info,
            Level::Warn => lines::Level::Warn,
            Level::Error => lines::Level::Error,
        };
        lines::write(level, message);
    }

    pub(super) fn add(counter: &str, delta: u64) {
        metrics::add(counter, delta);
    }

    pub(super) fn set(gauge: &str, value: f64) {
        metrics::set(gauge, value);
    }

    pub(super) fn now() -> crate::Timestamp {
        ambient::now()
    }

    pub(super) fn random() -> u64 {
        let bytes = ambient::random(size_of::<u64>() as u32);
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod imp {
    use super::Level;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// What the stand-in has been told and what it answers.
    #[derive(Debug, Default)]
    pub(crate) struct Stand {
        pub(crate) lines: Vec<(Level, String)>,
        pub(crate) counters: BTreeMap<String, u64>,
        pub(crate) gauges: BTreeMap<String, f64>,
        pub(crate) now: crate::Timestamp,
        pub(crate) random: u64,
        /// Memory that can still be had, where a test says so.
        pub(crate) room: Option<usize>,
    }

    thread_local! {
        static STAND: RefCell<Stand> = RefCell::default();
    }

    pub(crate) fn with<R>(f: impl FnOnce(&mut Stand) -> R) -> R {
        STAND.with_borrow_mut(f)
    }

    pub(super) fn log(level: Level, message: &str) {
        with(|stand| stand.lines.push((level, message.to_owned())));
    }

    pub(super) fn add(counter: &str, delta: u64) {
        with(|stand| *stand.counters.entry(counter.to_owned()).or_default() += delta);
    }

    pub(super) fn set(gauge: &str, value: f64) {
        with(|stand| {
            stand.gauges.insert(gauge.to_owned(), value);
        });
    }

    pub(super) fn now() -> crate::Timestamp {
        with(|stand| stand.now)
    }

    /// SplitMix64: the same numbers on each run.
    pub(super) fn random() -> u64 {
        with(|stand| {
            stand.random = stand.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = stand.random;
            z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ z >> 31
        })
    }
}
