//! The sources.

mod generator;

pub(crate) use generator::GeneratorFactory;
