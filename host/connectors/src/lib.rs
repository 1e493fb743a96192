//! Sources and sinks, and what gives their rows event time and watermarks.
//!
//! Owns: reading and writing of the outside world, positions of sources, two-phase commit of sinks, parsing of the
//! times that rows carry. Floor 3: files, threads and clocks are allowed here. Never: decides when a checkpoint is
//! taken, keeps a position or a committable longer than asked (the caller puts both in the checkpoint), or drops a
//! row without an error, a count or a setting that says so.

mod api;
mod error;
mod event_time;
mod no_time;
mod reach;
mod registry;
mod settings;
mod sinks;
mod sources;
mod split_times;
mod watermark;

pub use api::{
    Commit, Committer, Guarantee, More, NothingToCommit, Polled, Prepared, Recovery, Sink, SinkContext, SinkFactory, Source,
    SourceFactory, TakeBack,
};
pub use error::{ConnectorError, SettingError};
pub use event_time::{EventTime, EventTimeFormat, write_rfc3339};
pub use no_time::{NoTime, NoTimeRule, event_time_settings};
pub use reach::Reach;
pub use registry::{SINKS, SOURCES, sink, source};
pub use sinks::set_output_mask;
pub use sinks::{bytes_as_json, stdout_is_closed, stdout_waits_for};
pub use split_times::{Slot, SplitTimes};
pub use watermark::WatermarkGenerator;
