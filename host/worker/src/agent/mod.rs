//! The network side of a worker's process: its connection to the coordinator, and the components it gets from there.
//!
//! Owns the endpoint, the runtime and the way of every word between [`Worker`] and coordinator. It decides nothing: what the
//! coordinator says is handed to the worker, in order; what the worker reports is sent, in order. While there is no
//! coordinator, tasks go on, and what they report is not kept: the registration that follows says where they are.
//!
//! ```text
//! connect -> Register(what runs here) -> Welcome(what may go on) -> commands, reports, heartbeats -> connection lost -> connect ...
//! ```
//!
//! A coordinator that is not the one that leads what runs here is not obeyed: nothing is ended, and the next address is tried
//! (`weir_protocol::follows`).

mod allegiance;
mod beats;
mod components;
mod connect;
mod fitting;
mod hosted;
mod lease;
mod outbox;
mod session;
mod station;
mod watch;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use weir_model::limits::HEARTBEAT_INTERVAL_MS;
use weir_sandbox::Sandbox;
use weir_task::InstanceFactory;
use weir_transport::{Endpoint, Identity, Role, Settings, TransportError};

use self::allegiance::Allegiance;
use self::components::FetchedComponents;
use self::outbox::Outbox;
use self::station::Station;
use crate::executor::Threads;
use crate::{CONGESTED_BYTES_DEFAULT, Connectors, QuicNetwork, Storages, Worker, WorkerOptions};

/// Threads of the network.
const NETWORK_THREADS: usize = 2;

/// What a worker's process is made of.
pub struct AgentOptions {
    /// Folder of its certificate, as `weir cluster add-node` makes it.
    pub identity_dir: PathBuf,
    /// Where other workers connect to. Port 0: any free one.
    pub listen: SocketAddr,
    /// `host:port` at which other workers reach it, where that is not what it listens at.
    pub advertise: Option<String>,
    /// `host:port` of coordinators; they are tried in turn.
    pub coordinators: Vec<String>,
    /// Slots it offers.
    pub slots: u32,
    /// Folder of components that were fetched.
    pub cache_dir: PathBuf,
    /// Runs components.
    pub sandbox: Sandbox,
    /// Makes sources and sinks.
    pub connectors: Arc<dyn Connectors>,
    /// Opens checkpoints.
    pub storages: Arc<dyn Storages>,
    /// Operators that run natively, by uid.
    pub native: BTreeMap<String, Arc<dyn InstanceFactory>>,
}

/// A worker's process cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its certificate cannot be used, or its address is taken.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No coordinator is named.
    #[error("cannot start a worker: no coordinator is named; name one as HOST:PORT with --coordinator")]
    NoCoordinator,
    /// A thread or a file cannot be had.
    #[error("cannot start a worker: {0}")]
    Process(#[source] std::io::Error),
}

/// Ends a worker's process from outside. All clones are one.
#[derive(Clone, Debug)]
pub struct Shutdown(tokio::sync::watch::Sender<bool>);

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown(tokio::sync::watch::Sender::new(false))
    }
}

impl Shutdown {
    /// Asks for the end. The tasks are cancelled, and the coordinator knows at once.
    pub fn request(&self) {
        self.0.send_replace(true);
    }

    /// Resolves when it was asked for. Cancelling loses nothing.
    async fn requested(&self) {
        let mut asked = self.0.subscribe();
        // The sender is in `self`.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}

/// Runs a worker's process until `shutdown` is requested. Blocks.
///
/// It tries for ever to reach a coordinator, and says in the log what is wrong.
///
/// # Errors
/// If it cannot start.
pub fn run(options: AgentOptions, shutdown: &Shutdown) -> Result<(), AgentError> {
    if options.coordinators.is_empty() {
        return Err(AgentError::NoCoordinator);
    }
    let identity = Arc::new(Identity::load_as(&options.identity_dir, Role::Worker)?);
    let runtime = Builder::new_multi_thread().worker_threads(NETWORK_THREADS).thread_name("network").enable_all().build();
    let runtime = runtime.map_err(AgentError::Process)?;
    let endpoint = Arc::new(Endpoint::bind(identity.clone(), options.listen, Settings::default(), runtime.handle())?);
    let network = Arc::new(QuicNetwork::new(&endpoint, runtime.handle()));
    let outbox = Arc::new(Outbox::default());
    let components = FetchedComponents::new(&options.cache_dir, outbox.clone()).map_err(AgentError::Process)?;
    let components = Arc::new(components);
    let worker = Worker::new(WorkerOptions {
        name: identity.node().as_str().into(),
        sandbox: options.sandbox,
        components: components.clone(),
        connectors: options.connectors,
        storages: options.storages,
        native: options.native,
        network: Some(network.clone()),
        reports: outbox.clone(),
        executor: Arc::new(Threads::default()),
        congested_bytes: CONGESTED_BYTES_DEFAULT,
    });
    let local_addr = endpoint.local_addr()?;
    tracing::info!(%local_addr, slots = options.slots, worker = %identity.node(), "worker started");
    let station = Station {
        identity,
        endpoint: endpoint.clone(),
        coordinators: options.coordinators,
        advertise: options.advertise,
        local_addr,
        slots: options.slots,
        outbox,
        components,
        allegiance: Allegiance::default(),
        worker: Arc::new(worker.clone()),
    };
    runtime.block_on(async {
        tokio::select! {
            () = connect::run(&station) => {}
            () = tick(&worker) => {}
            () = accept(&endpoint, &network) => {}
            () = shutdown.requested() => {}
        }
    });
    drop(station);
    worker.shutdown();
    drop((worker, network));
    if let Some(endpoint) = Arc::into_inner(endpoint) {
        runtime.block_on(endpoint.close());
    }
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
    Ok(())
}

/// Lets time pass for the worker. Never returns; cancelling it between two ticks loses nothing.
async fn tick(worker: &Worker) {
    let mut beat = interval(Duration::from_millis(HEARTBEAT_INTERVAL_MS));
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let worker = worker.clone();
        if let Err(error) = spawn_blocking(move || worker.tick()).await {
            tracing::error!(%error, "the worker's clock panicked; this is a bug in weir");
        }
    }
}

/// Hands the connections of other workers to the data plane.
async fn accept(endpoint: &Endpoint, network: &QuicNetwork) {
    while let Some(incoming) = endpoint.accept().await {
        network.incoming(incoming);
    }
}

#[cfg(test)]
mod tests;
