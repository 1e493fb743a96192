//! What comes from outside of Weir, with its handling: one target for each way in.
//!
//! A target is a function of bytes that must not panic, whatever they are; it says in a word or two what became of them. Words that were
//! not heard before are what a campaign looks for, in place of a compiler's coverage, so it runs with any compiler (`campaign`).
//! `libfuzzer/` has the same targets for cargo-fuzz. Owns no knowledge of formats: the crates have that, each in its `fuzz` module.

pub mod campaign;
mod mutation;
mod targets;

/// One way in.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its folder in `corpus/`.
    pub name: &'static str,
    /// What is tried, and what became of it.
    pub run: fn(&[u8]) -> String,
    /// What is tried first, beside the corpus: good input.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of its language.
    pub words: &'static [&'static str],
    /// How many mutations every change of the code is tried with.
    pub bounded: u32,
}

/// All targets, those first whose senders are trusted least.
pub fn targets() -> Vec<Target> {
    targets::all()
}

/// A target by its name.
pub fn target(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}
