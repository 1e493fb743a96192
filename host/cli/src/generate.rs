//! `weir generate`: man pages and completion scripts of all commands, for packages. Not a command for users, so it is hidden.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap_complete::Shell;
use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};

/// What is generated.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Write a man page of each command
    Man {
        /// The folder to write them to; it is made if it is not there
        dir: PathBuf,
    },
    /// Write the completion script of each shell
    Completions {
        /// The folder to write them to; it is made if it is not there
        dir: PathBuf,
    },
}

/// Writes what is asked for about `weir`, the command with all its subcommands.
pub(crate) fn execute(command: &Command, mut weir: clap::Command) -> Result<(), Failure> {
    let dir = match command {
        Command::Man { dir } | Command::Completions { dir } => dir,
    };
    fs::create_dir_all(dir).map_err(|error| not_written(dir, &error))?;
    match command {
        Command::Man { dir } => clap_mangen::generate_to(weir, dir),
        Command::Completions { dir } => Shell::value_variants()
            .iter()
            .try_for_each(|shell| clap_complete::generate_to(*shell, &mut weir, "weir", dir).map(drop)),
    }
    .map_err(|error| not_written(dir, &error))
}

fn not_written(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::new(ErrorNumber::FileInaccessible, Exit::Failed, format!("cannot write to the folder {}: {error}", dir.display()))
}
