//! Real tasks on real threads, between a worker, sources, instances and sinks made for the test.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod arrivals;
mod backpressure;
mod barriers;
mod bench;
mod flow;
mod held;
mod peers;
mod rejections;
mod slow_calls;
mod support;
mod unaligned;
mod watermarks;
mod whole_rows;
