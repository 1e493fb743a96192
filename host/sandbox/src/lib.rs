//! The sandbox: components, instances, memory images (being written).

pub mod intake;
