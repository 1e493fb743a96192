//! The sources.

mod files;
mod generator;
mod lines;
mod stdin;

pub(crate) use files::FileSourceFactory;
pub(crate) use generator::GeneratorFactory;
pub(crate) use stdin::StdinFactory;
