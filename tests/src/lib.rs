//! What the end-to-end tests share: a `weir` process in a folder of its own, its output, and a random generator.
//!
//! The tests run the binary and the operators that `cargo xtask test` has built; it says where they are in `WEIR_BIN` and
//! `WEIR_TEST_COMPONENTS`.

mod cluster;
mod frozen;
mod keyed;
mod ledger;
mod output;
mod process;
mod random;

pub use cluster::{Cluster, LedgerJob, Namespaces, Place, Setup, Weather, Wire, attempt, last_checkpoint};
pub use frozen::Frozen;
pub use keyed::KeyedJob;
pub use ledger::{Amounts, Ledger, sums};
pub use output::{Row, dead_letters, rows};
pub use process::{Finished, Running, World};
pub use random::Random;

/// Says loudly that a test cannot run on this machine. Its output is shown although it passes.
#[allow(clippy::print_stdout, reason = "it is for whoever runs the tests")]
pub fn skip(why: &str) {
    println!("SKIPPED: {why}");
}
