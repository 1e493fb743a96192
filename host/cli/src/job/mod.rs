//! `weir job ...`: job files, and the jobs of a cluster.

mod check;
pub(crate) mod list;
mod submit;
mod watch;

use std::process::ExitCode;

use weir_protocol::api::JobStatus;

use self::watch::Until;
use crate::client::{Client, ClusterArgs};
use crate::global::Global;
use crate::job_file::JobFileArgs;
use crate::output;

/// Commands about jobs.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Check a job file, its connectors' settings and its components, and show its graph
    Check {
        #[command(flatten)]
        file: JobFileArgs,
        /// Print the graph in Graphviz' dot language
        #[arg(long, conflicts_with = "json")]
        dot: bool,
    },
    /// Submit a job to the cluster, with the components it names
    Submit(submit::Args),
    /// List the cluster's jobs
    Ls {
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Show a job of the cluster
    Show {
        /// Its name
        name: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Stop a job with a last checkpoint; submitted again, it resumes from there
    Stop {
        /// Its name
        name: String,
        /// Return at once, not when it has stopped
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Cancel a job without a last checkpoint
    Cancel {
        /// Its name
        name: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Change the parallelism of a running job, from a checkpoint taken now
    Rescale {
        /// Its name
        name: String,
        /// Subtasks of every vertex that has no parallelism of its own
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        parallelism: u32,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// List what happened to a job
    Events {
        /// Its name
        name: String,
        /// Follow the events until the job is over
        #[arg(long, short)]
        follow: bool,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Remove a job that is over from the cluster's list; its checkpoints stay
    Rm {
        /// Its name
        name: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
}

pub(crate) fn execute(command: Command, global: &Global) -> anyhow::Result<ExitCode> {
    let client = |cluster: &ClusterArgs| Client::new(cluster.target_or_local(global)?);
    match command {
        Command::Check { file, dot } => check::execute(&file, dot, global)?,
        Command::Submit(args) => return submit::execute(&args, global),
        Command::Ls { cluster } => list::jobs(&client(&cluster)?, global)?,
        Command::Show { name, cluster } => list::job(&client(&cluster)?, &name, global)?,
        Command::Stop { name, no_wait, cluster } => {
            let client = client(&cluster)?;
            // What follows is shown from here on.
            let after = watch::last_event(&client, &name)?;
            let status = client.stop(&name)?;
            if !no_wait {
                return watch::execute(client, &name, after, Until::Over, global);
            }
            told(&status, "is stopping", global)?;
        }
        Command::Cancel { name, cluster } => told(&client(&cluster)?.cancel(&name)?, "is being cancelled", global)?,
        Command::Rescale { name, parallelism, cluster } => {
            let status = client(&cluster)?.rescale(&name, parallelism)?;
            told(
                &status,
                &format!("goes on with parallelism {parallelism} after a checkpoint; `weir job events {name}` says when"),
                global,
            )?;
        }
        Command::Events { name, follow, cluster } => {
            let client = client(&cluster)?;
            if follow {
                return watch::execute(client, &name, 0, Until::EventsEnd, global);
            }
            list::events(&client, &name, global)?;
        }
        Command::Rm { name, cluster } => {
            client(&cluster)?.remove(&name)?;
            global.note(&format!(
                "{name} is forgotten; its checkpoints stay, and a job submitted under this name goes on from them"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says what was begun.
fn told(status: &JobStatus, what: &str, global: &Global) -> anyhow::Result<()> {
    global.note(&format!("{} {what}", status.name));
    if global.json { output::print_json(status) } else { Ok(()) }
}
