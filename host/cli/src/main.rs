//! `weir`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::main_with(&weir::Native::new())
}
