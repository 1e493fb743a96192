//! The sinks.

mod blackhole;

pub(crate) use blackhole::BlackholeFactory;
