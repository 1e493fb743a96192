//! The `weir` binary: arguments, configuration, wiring. What it wires is in the other crates. A library, so that a binary with
//! operators linked in natively can be the same in all else.
//!
//! Owns what users see of Weir on a terminal: commands, messages, exit codes, the component store on disk. Results go to
//! standard output, progress and messages to standard error.

mod address;
mod checkpoint;
mod client;
mod cluster;
mod component;
mod config;
mod config_show;
mod coordinator;
mod example;
mod explain;
mod failure;
mod files;
mod generate;
mod global;
mod job;
mod job_file;
mod job_spec;
mod markdown;
mod native;
mod odd;
mod output;
mod run;
mod sandbox;
mod sdk;
mod store;
mod token;
mod trust;
mod trusted;
mod worker;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::report;
use crate::global::{Global, GlobalArgs, Needs};
pub use crate::native::Native;

/// Runs stream operators written in any language, exactly-once.
#[derive(Parser)]
#[command(name = "weir", version)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a job in this process. The same command again goes on from the last checkpoint.
    Run(run::Args),
    /// Check job files, and manage the jobs of a cluster.
    #[command(subcommand)]
    Job(job::Command),
    /// Create, build, check and store components.
    #[command(subcommand)]
    Component(component::Command),
    /// List and show the checkpoints of a job.
    #[command(subcommand)]
    Checkpoint(checkpoint::Command),
    /// Start the coordinator of a cluster.
    Coordinator(coordinator::Args),
    /// Start a worker of a cluster, or list the workers.
    Worker(worker::Args),
    /// Create a cluster, add nodes to it, and show its state.
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Create, list and revoke the tokens with which people and programs ask a cluster.
    #[command(subcommand)]
    Token(token::Command),
    /// Show the configuration and where each value comes from.
    #[command(subcommand)]
    Config(config_show::Command),
    /// List the examples, or write one to a new folder: a job file with sample data.
    #[command(subcommand)]
    Example(example::Command),
    /// Explain an error by its number, or list all errors.
    Explain(explain::Args),
    /// Let the weir.toml of the current folder count, after showing what it sets.
    Trust(trust::Args),
    /// Print a shell's completion script.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write man pages and completion scripts, for packages.
    #[command(subcommand, hide = true)]
    Generate(generate::Command),
    /// Compile the component on standard input: the child process that weir starts for it.
    #[command(hide = true)]
    CompileComponent,
}

impl Command {
    /// What it needs of the configuration.
    fn needs(&self) -> Needs {
        match self {
            Command::Config(_) | Command::Trust(_) => Needs::Sight,
            Command::Completions { .. }
            | Command::Example(_)
            | Command::Explain(_)
            | Command::Generate(_)
            | Command::Component(component::Command::New { .. }) => Needs::Nothing,
            _ => Needs::Everything,
        }
    }
}

/// Does what the process's arguments say; the whole of the binary.
pub fn main_with(native: &Native) -> ExitCode {
    let cli = Cli::parse();
    // It has no configuration, and as little as possible happens before it is bounded.
    if let Command::CompileComponent = cli.command {
        return sandbox::compile_component();
    }
    let global = match Global::new(cli.global, cli.command.needs()) {
        Ok(global) => global,
        Err(error) => return report(&error, output::Colour::Auto),
    };
    global.start_log();
    match execute(cli.command, &global, native) {
        Ok(code) => code,
        Err(error) => report(&error, global.colour),
    }
}

/// What this process makes is for its user alone: state and rows of jobs, values of variables, components. What sinks make visible
/// follows the mask that the user has.
fn keep_private() {
    let users = rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    weir_connectors::set_output_mask(users.bits());
}

fn execute(command: Command, global: &Global, native: &Native) -> anyhow::Result<ExitCode> {
    if matches!(command, Command::Run(_) | Command::Coordinator(_) | Command::Worker(_)) {
        keep_private();
    }
    match command {
        Command::Run(args) => return run::execute(&args, global, native),
        Command::Job(command) => return job::execute(command, global),
        Command::Coordinator(args) => return coordinator::execute(&args, global),
        Command::Worker(args) => return worker::execute(args, global, native),
        Command::Cluster(command) => cluster::execute(command, global)?,
        Command::Token(command) => token::execute(command, global)?,
        Command::Component(command) => component::execute(command, global)?,
        Command::Checkpoint(command) => checkpoint::execute(command, global)?,
        Command::Config(command) => config_show::execute(&command, global)?,
        Command::Example(command) => example::execute(command, global)?,
        Command::Explain(args) => explain::execute(&args, global)?,
        Command::Generate(command) => generate::execute(&command, Cli::command())?,
        Command::Trust(args) => trust::execute(&args, global)?,
        Command::CompileComponent => unreachable!("done before there is a configuration"),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        super::Cli::command().debug_assert();
    }
}
