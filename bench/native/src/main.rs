//! `weir` with the operators of bench/jobs compiled natively into it: the same pipeline without the sandbox, so that the
//! difference is what the sandbox costs. For `cargo xtask bench` only: the operators' state is not captured, so a job does
//! not survive a restart.

mod operator;

use operator::Factory;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    // By the operators' ids in the job files.
    let mut native = weir::Native::new();
    native.insert("map".to_string(), Arc::new(Factory::<bench_identity::Identity>::new("map")));
    native.insert("count".to_string(), Arc::new(Factory::<bench_count::Count>::new("count")));
    weir::main_with(&native)
}
