//! The coordinator on the network: connections of workers, and the threads that a coordinator has beside its masters.
//!
//! Owns sockets and the runtime. Decides nothing: what comes in is handed to [`Cluster`], in order for each connection. What
//! may wait for the disk does so on a blocking thread, so that heartbeats of other workers are heard meanwhile.

mod connection;
mod link;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use weir_protocol::api::ClusterApi;
use weir_protocol::panics::{bug, caught};
use weir_transport::liveness::{self, Sign};
use weir_transport::{Endpoint, Identity, Incarnation, Incoming, NodeId, Role, Settings};

use crate::cluster::{Cluster, ClusterOptions, SystemClock};
use crate::{ServeError, ServeOptions};

/// How often the cluster is told that time has passed.
const TICK: Duration = Duration::from_millis(50);

/// Threads of the network. It only moves messages.
const NETWORK_THREADS: usize = 2;

/// Free ports that are tried where any will do.
const PORTS_TRIED_MAX: usize = 16;

/// What runs in a coordinator's process.
struct ServerParts {
    cluster: Cluster,
    runtime: Runtime,
    stop_network: watch::Sender<bool>,
    network: tokio::task::JoinHandle<()>,
    stop_clock: SyncSender<()>,
    clock: JoinHandle<()>,
}

impl ServerParts {
    fn shutdown(self) {
        let _ = self.stop_clock.send(());
        let _ = self.clock.join();
        self.cluster.leave();
        let _ = self.stop_network.send(true);
        let _ = self.runtime.block_on(self.network);
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }
}

/// A coordinator that runs.
pub struct Server {
    /// What people can ask of it.
    pub cluster: Arc<dyn ClusterApi>,
    /// Where it listens for workers.
    pub local_addr: SocketAddr,
    parts: ServerParts,
}

impl Server {
    /// Ends the coordinator and leaves everything as it is: workers go on, and the next coordinator takes their jobs over.
    /// Blocks until its threads have ended.
    pub fn shutdown(self) {
        self.parts.shutdown();
    }
}

/// Starts a coordinator: takes its data folder, goes on with its jobs, and listens for workers.
///
/// # Errors
/// If another one has the folder, its metadata or certificate cannot be used, or the address is taken.
pub fn serve(options: ServeOptions) -> Result<Server, ServeError> {
    let identity = Arc::new(Identity::load_as(&options.identity_dir, Role::Coordinator)?);
    let shown = identity.clone();
    let cluster = Cluster::open(ClusterOptions {
        data_dir: options.data_dir,
        cluster: identity.cluster().to_string(),
        certificate_until_ms: Arc::new(move || until_ms(shown.valid_until())),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        default_storage: options.default_storage,
        describe: options.describe,
        storage: options.storage,
        token: options.token,
        clock: Arc::new(SystemClock::default()),
        limits: crate::Limits::DEFAULT,
    })?;
    match listen(&cluster, &identity, options.listen) {
        Ok((runtime, network, stop_network, local_addr)) => {
            let (stop_clock, clock) = start_clock(cluster.clone())?;
            let api: Arc<dyn ClusterApi> = Arc::new(cluster.clone());
            let parts = ServerParts { cluster, runtime, stop_network, network, stop_clock, clock };
            Ok(Server { cluster: api, local_addr, parts })
        }
        Err(error) => {
            // Jobs were resumed; they are left as they are.
            cluster.leave();
            Err(error)
        }
    }
}

fn until_ms(time: std::time::SystemTime) -> u64 {
    let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

type NetworkParts = (Runtime, tokio::task::JoinHandle<()>, watch::Sender<bool>, SocketAddr);

fn listen(cluster: &Cluster, identity: &Arc<Identity>, address: SocketAddr) -> Result<NetworkParts, ServeError> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(NETWORK_THREADS)
        .thread_name("network")
        .enable_all()
        .build()
        .map_err(ServeError::Process)?;
    let (endpoint, watched) = bind(identity, address, &runtime)?;
    let local_addr = endpoint.local_addr()?;
    let (stop, stopped) = watch::channel(false);
    runtime.spawn(watch_processes(cluster.clone(), identity.clone(), watched, stopped.clone()));
    let network = runtime.spawn(accept(cluster.clone(), endpoint, stopped));
    tracing::info!(%local_addr, "listening for workers");
    Ok((runtime, network, stop, local_addr))
}

/// The endpoint, and the TCP port of the same number for watching processes. Where any free port will do, one that is free for both.
fn bind(
    identity: &Arc<Identity>,
    address: SocketAddr,
    runtime: &Runtime,
) -> Result<(Endpoint, io::Result<TcpListener>), ServeError> {
    let mut tries_left = PORTS_TRIED_MAX;
    loop {
        let endpoint = Endpoint::bind(identity.clone(), address, Settings::default(), runtime.handle())?;
        let watched = TcpListener::bind(endpoint.local_addr()?);
        tries_left -= 1;
        if watched.is_ok() || address.port() != 0 || tries_left == 0 {
            return Ok((endpoint, watched));
        }
    }
}

/// Takes connections until it is told to stop, then closes the endpoint with all of them.
async fn accept(cluster: Cluster, endpoint: Endpoint, mut stopped: watch::Receiver<bool>) {
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            _ = stopped.changed() => None,
        };
        match incoming {
            Some(Incoming::Control(control)) => drop(tokio::spawn(connection::serve(cluster.clone(), control))),
            Some(Incoming::Data(data)) => tracing::warn!(peer = %data.peer(), "a connection for rows; a coordinator has none"),
            None => break,
        }
    }
    endpoint.close().await;
}

/// Notices at once that a worker's process has ended, on the TCP port of the same number. Without it, heartbeats tell later.
async fn watch_processes(
    cluster: Cluster,
    identity: Arc<Identity>,
    listener: io::Result<TcpListener>,
    mut stopped: watch::Receiver<bool>,
) {
    let listener = listener.and_then(|listener| {
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    });
    let watcher = match listener {
        Ok(listener) => liveness::serve(listener, &identity).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let mut watcher = match watcher {
        Ok(watcher) => watcher,
        Err(error) => {
            tracing::warn!(error, "cannot listen on TCP; workers that are killed are noticed by their heartbeats only");
            return;
        }
    };
    loop {
        let sign = tokio::select! {
            sign = watcher.next() => sign,
            _ = stopped.changed() => None,
        };
        match sign {
            Some(Sign::Gone(node, incarnation)) => drop(tokio::spawn(look_after(cluster.clone(), node, incarnation))),
            Some(Sign::Came(peer)) => tracing::debug!(%peer, "watching a process"),
            None => return,
        }
    }
}

/// A connection that watched a process is gone. If the process's port is closed, so is the process; otherwise it is lost
/// unless it is heard again.
async fn look_after(cluster: Cluster, node: NodeId, incarnation: Incarnation) {
    let Some(address) = cluster.suspect(node.as_str(), incarnation.0) else { return };
    if liveness::is_port_closed(&address).await {
        let _ = spawn_blocking(move || cluster.ended(node.as_str(), incarnation.0)).await;
    }
}

fn start_clock(cluster: Cluster) -> Result<(SyncSender<()>, JoinHandle<()>), ServeError> {
    let (stop, stopped) = sync_channel(1);
    let run = move || {
        while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            // Without it no worker would ever be found lost.
            if let Err(panic) = caught(|| cluster.tick()) {
                tracing::error!("{}", bug("the cluster's clock", &panic));
            }
        }
    };
    let thread = std::thread::Builder::new().name("cluster-clock".to_owned()).spawn(run).map_err(ServeError::Process)?;
    Ok((stop, thread))
}

#[cfg(test)]
mod tests;
