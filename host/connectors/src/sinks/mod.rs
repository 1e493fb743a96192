//! The sinks.

mod blackhole;
mod files;
mod format;
pub(crate) mod mask;
mod stdout;

pub(crate) use blackhole::BlackholeFactory;
pub(crate) use files::FileSinkFactory;
pub use format::bytes_as_json;
pub use mask::set_output_mask;
pub(crate) use stdout::StdoutFactory;
pub use stdout::{stdout_is_closed, stdout_waits_for};
