//! From a job file to a checked graph, and from the graph to chains.
//!
//! Owns the job file's format: its keys, their defaults, what is wrong with them and how that is said. Pure: the caller
//! reads the file and the environment, and knows what components say of themselves. What a component accepts is checked by its
//! description; settings of connectors are passed on as written, and [`Job::diagnostic`] places their complaints.

mod advice;
mod chain;
mod config;
mod dead_letter;
mod describe;
mod diagnostics;
mod draw;
mod env;
mod from_toml;
mod graph;
mod input;
mod job;
mod load;
mod overrides;
mod ports;
mod problems;
mod reader;
mod schema;
mod settings;
mod topology;
mod tree;
mod units;
mod vertices;

pub use describe::{Describe, DescriptionError, plain};
pub use diagnostics::{Code, Diagnostic, Diagnostics, Place, Severity};
pub use job::{
    Chain, CheckpointMode, CheckpointSettings, ComponentRef, Edge, EventTimeSpec, Exchange, Job, LimitsSpec, MaxAhead, OnError,
    OperatorSpec, Port, RestartSettings, SinkSpec, SourceSpec, Vertex, VertexKind, WatermarkSpec,
};
pub use load::load;
pub use schema::{ConfigSchema, SettingLine};
pub use topology::{ChannelSpec, Destination, Topology};
pub use units::{UnitError, format_duration, format_size, parse_duration, parse_size};
pub use weir_model::{is_component_name, is_component_version, nearest};
