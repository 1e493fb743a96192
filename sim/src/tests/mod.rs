//! Thousands of seeds, by scenario.

mod holds;
mod proof;
mod scale;
