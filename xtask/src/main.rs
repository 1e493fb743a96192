//! `cargo xtask COMMAND`: everything a developer or CI does with this repository, each with all the set-up it needs.
//!
//! Uses the other crates only through their binaries, never as libraries: what it checks, it checks from outside.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

mod bench;
mod child;
mod debian;
mod demo;
mod progress;
mod setup;
mod shell;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup [--data-dir DIR] [--release] [--python]
                        install what is missing, build `weir` and the operators, push the operators into DIR
  demo [--lines N]      run the page-view job, kill it in the middle, run it again, compare with a recount of its input
  test [NEXTEST ARGS]   set up, then run every test
  tidy                  check the house rules
  bench [--peer flink] [--quick] [--only NAME] [--dev]
                        measure, and write bench/results.md; --dev takes the dev build, to try the bench itself
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", arguments.as_slice()),
    };
    let outcome = match command {
        "setup" => setup::main(rest),
        "demo" => demo::main(rest),
        "test" => test::main(rest),
        "tidy" => tidy::main(rest),
        "bench" => bench::main(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
