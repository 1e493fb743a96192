//! `cargo xtask COMMAND`: everything a developer or CI does with this repository, each with all the set-up it needs.
//!
//! Uses the other crates only through their binaries, never as libraries: what it checks, it checks from outside.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

mod bare;
mod bench;
mod build;
mod child;
mod demo;
mod deny;
mod dist;
mod fuzz;
mod needs;
mod operators;
mod progress;
mod setup;
mod shell;
mod sim;
mod soak;
mod test;
mod tidy;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup [--release] [--python]
                        install what is missing, build the `weir` binary and say where it is
  demo [--lines N]      run the page-view job, kill it in the middle, run it again, compare with a recount of its input
  test [NEXTEST ARGS]   set up, then run every test
  tidy                  check the house rules
  deny                  check licences, sources, bans and duplicates of all crates, and advisories where cargo-deny can reach them
  fuzz [--minutes N] [--seed N] [--libfuzzer] [TARGET...]
                        look for input that something does not deal with
  operators [--check]   build the first-party operators, which are in the binary; --check: compare with what is there
  sim [--minutes N] [--seed N] [--guards] [--guard NAME]
                        fresh seeds in the simulator, and what one costs; --guards: takes guards of the protocol out, seeds must find each
  soak [--minutes N] [--seed N]
                        fresh seeds and many kills, for as long as asked; writes bench/soak.log
  dist [--dev]          make a tarball, a Debian package, a Python wheel and a folder to build an image from
  bare [--demo-only] [--deb FILE]
                        run README's commands in a bare Debian root, or install a package there; needs root and namespaces
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
        "bare" => match bare::main(rest) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        "dist" => dist::main(rest),
        "sim" => sim::main(rest),
        "soak" => soak::main(rest),
        "setup" => setup::main(rest),
        "demo" => demo::main(rest),
        "test" => test::main(rest),
        "tidy" => tidy::main(rest),
        "deny" => deny::main(rest),
        "fuzz" => fuzz::main(rest),
        "operators" => operators::main(rest),
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
