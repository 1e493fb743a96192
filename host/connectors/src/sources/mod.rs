//! The sources.

mod files;
mod formats;
mod generator;
mod lines;
mod stdin;

pub(crate) use files::FileSourceFactory;
pub(crate) use generator::GeneratorFactory;
pub(crate) use stdin::StdinFactory;
