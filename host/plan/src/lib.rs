//! From a job file to a checked graph, and from the graph to chains.
//!
//! Owns the job file's format: its keys, their defaults, what is wrong with them and how that is said. Pure: the caller
//! reads the file and the environment. Never looks into what connectors and components accept; their settings are
//! passed on as written, and [`Job::diagnostic`] places their complaints.

mod advice;
mod chain;
mod dead_letter;
mod diagnostics;
mod draw;
mod env;
mod first_party;
mod from_toml;
mod graph;
mod input;
mod job;
mod load;
mod overrides;
mod problems;
mod reader;
mod settings;
mod topology;
mod tree;
mod units;
mod vertices;

pub use diagnostics::{Code, Diagnostic, Diagnostics, Place, Severity};
pub use job::{
    Chain, CheckpointMode, CheckpointSettings, ComponentRef, Edge, EventTimeSpec, Exchange, Job, LimitsSpec, MaxAhead, OnError,
    OperatorSpec, Port, RestartSettings, SinkSpec, SourceSpec, Vertex, VertexKind, WatermarkSpec,
};
pub use load::load;
pub use topology::{ChannelSpec, Destination, Topology};
pub use units::{UnitError, format_duration, format_size, parse_duration, parse_size};
pub use weir_model::{is_component_name, is_component_version, nearest};
