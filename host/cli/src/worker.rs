//! `weir worker`: a process that runs tasks for a coordinator; and the list of a cluster's workers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_model::ErrorNumber;
use weir_protocol::api::WorkerStatus;
use weir_worker::agent::{self, AgentOptions, Shutdown};
use weir_worker::{Beneath, BuiltinConnectors, Connectors, Storages, UrlStorages};

use crate::Native;
use crate::address::{self, Address};
use crate::client::{Client, ClusterArgs};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;
use crate::sandbox::{self, MemoryArgs};

/// `weir worker`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Where the coordinator listens for workers: the address of its --listen (not of its API); several may be given. Without a
    /// port: 7700
    #[arg(long, value_name = "HOST[:PORT]", required = true, value_parser = address::coordinator_for_workers)]
    coordinator: Vec<String>,
    /// Folder of this node's certificate, as `weir cluster add-node` makes it
    #[arg(long, value_name = "DIR", required = true)]
    identity: Option<PathBuf>,
    /// Subtasks of each chain that may run here [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: Option<u32>,
    /// Where other workers connect to (UDP, and TCP beside it); without a port, or with port 0, any that is free [default: 0.0.0.0,
    /// or [::] for a coordinator with an IPv6 address]
    #[arg(long, value_name = "ADDRESS", value_parser = address::listen_for_peers)]
    listen: Option<SocketAddr>,
    /// A folder below which sources, sinks, dead letters and checkpoints of jobs have to lie; may be given several times. Needed where the
    /// coordinator is on another machine, and for root
    #[arg(long, value_name = "DIR", conflicts_with = "allow_any_path")]
    allow_path: Vec<PathBuf>,
    /// Jobs may name any path that this user can read and write, in place of --allow-path: whoever may submit jobs can then read and
    /// write as this user
    #[arg(long)]
    allow_any_path: bool,
    /// What other workers are told to connect to [default: the address from which it reaches the coordinator]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = address::advertised)]
    advertise: Option<Address>,
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Commands about workers.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the cluster's workers
    Ls {
        #[command(flatten)]
        cluster: ClusterArgs,
    },
}

pub(crate) fn execute(args: Args, global: &Global, native: &Native) -> anyhow::Result<ExitCode> {
    if let Some(Command::Ls { cluster }) = args.command {
        list(&Client::new(cluster.target_or_local(global)?)?, global)?;
        return Ok(ExitCode::SUCCESS);
    }
    // First of all, before there is anything that the keeper would have a copy of.
    if let Err(error) = weir_sandbox::keep_memory_past_the_end() {
        tracing::debug!("the end of this process will be noticed a little later: {error}");
    }
    let (listening, advertise) = addresses(&args)?;
    let (connectors, storages) = files(&args)?;
    let sandbox = sandbox::start(&args.memory, global)?;
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1));
    let options = AgentOptions {
        identity_dir: args.identity.unwrap_or_default(),
        listen: listening,
        advertise,
        coordinators: args.coordinator,
        slots: args.slots.unwrap_or(cpus),
        cache_dir: global.data_dir.join("fetched"),
        sandbox,
        connectors,
        storages,
        native: native.clone(),
    };
    let shutdown = Shutdown::default();
    listen(shutdown.clone(), global)?;
    global.note(&format!("worker with {} slots for the coordinator at {}", options.slots, options.coordinators.join(", ")));
    agent::run(options, &shutdown)
        .map_err(|error| Failure::new(ErrorNumber::ProcessDoesNotStart, Exit::Failed, error.to_string()))?;
    Ok(ExitCode::SUCCESS)
}

type Files = (Arc<dyn Connectors>, Arc<dyn Storages>);

/// Connectors and storages, which stay below the folders that are named, if there are any.
fn files(args: &Args) -> Result<Files, Failure> {
    let allowed = &args.allow_path;
    if allowed.is_empty() {
        must_be_bounded(args)?;
        return Ok((Arc::new(BuiltinConnectors), Arc::new(UrlStorages)));
    }
    let wrong = |error: std::io::Error| {
        Failure::new(
            ErrorNumber::FileInaccessible,
            Exit::Usage,
            format!("--allow-path names a folder that is not there: {error}"),
        )
    };
    let beneath = Arc::new(Beneath::new(allowed).map_err(wrong)?);
    Ok((beneath.clone(), beneath))
}

/// A job is given by whoever may use the coordinator's API, and reads and writes as this process. Where others than this process's user may
/// do so, its owner says what that comes to.
fn must_be_bounded(args: &Args) -> Result<(), Failure> {
    if args.allow_any_path {
        return Ok(());
    }
    let is_here = |coordinator: &String| Address::parse(coordinator).is_ok_and(|address| address.is_here());
    let reason = match args.coordinator.iter().find(|coordinator| !is_here(coordinator)) {
        Some(other) => format!("the coordinator {other} is not on a loopback address, so jobs may come from other machines"),
        None if rustix::process::geteuid().is_root() => "this is root, so jobs could read and write every file".to_owned(),
        None => return Ok(()),
    };
    let message = format!("--allow-path is missing: {reason}");
    Err(Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message).hint(
        "--allow-path DIR, once or several times, names the folders that jobs may use (checkpoints too); --allow-any-path allows all that this \
         user can read and write",
    ))
}

/// Where the worker listens, and what it tells others to connect to.
fn addresses(args: &Args) -> Result<(SocketAddr, Option<String>), Failure> {
    // A socket of IPv4 reaches no address of IPv6; the other way round it does.
    let is_v6 = |coordinator: &String| coordinator.starts_with('[');
    let any: IpAddr =
        if args.coordinator.iter().any(is_v6) { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let listening = args.listen.unwrap_or_else(|| SocketAddr::new(any, 0));
    match &args.advertise {
        Some(advertise) if advertise.port().is_none() && listening.port() == 0 => {
            let message = "--advertise names no port, and --listen takes any that is free";
            Err(Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message)
                .hint("give both the same port: --listen 0.0.0.0:7702 --advertise HOST:7702"))
        }
        advertise => Ok((listening, advertise.as_ref().map(|advertise| advertise.with_port(listening.port())))),
    }
}

/// A signal ends the worker; its jobs go on elsewhere from their last checkpoint. A second one ends the process at once.
fn listen(shutdown: Shutdown, global: &Global) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (quiet, colour) = (global.quiet, global.colour);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut signals = signals.forever();
        signals.next();
        if !quiet {
            output::message("ending; jobs go on from their last checkpoint, on the workers that are left", colour);
        }
        shutdown.request();
        signals.next();
        std::process::exit(130);
    })?;
    Ok(())
}

fn list(client: &Client, global: &Global) -> anyhow::Result<()> {
    let workers = client.workers()?;
    if global.json {
        return output::print_json(&workers);
    }
    if workers.is_empty() {
        global.note("no worker has connected yet; `weir worker --coordinator HOST:PORT --identity DIR` starts one");
        return Ok(());
    }
    output::print(&table(&workers))
}

/// Workers as a table.
pub(crate) fn table(workers: &[WorkerStatus]) -> String {
    let header = ["WORKER", "STATE", "SINCE", "SLOTS", "ADDRESS", "VERSION", "CERTIFICATE", "JOBS"].map(str::to_owned).to_vec();
    let rows = workers.iter().map(|worker| {
        vec![
            worker.name.clone(),
            if worker.alive { "connected" } else { "lost" }.to_owned(),
            output::ago(worker.since_ms),
            format!("{} of {} used", worker.slots_used, worker.slots),
            worker.address.clone(),
            worker.version.clone(),
            match worker.certificate_until_ms {
                0 => "?".to_owned(),
                until_ms => format!("{} days", until_ms.saturating_sub(output::now_ms()) / 86_400_000),
            },
            worker.jobs.join(", "),
        ]
    });
    output::table(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}
