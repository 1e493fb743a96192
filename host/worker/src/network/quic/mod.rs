//! The data plane over QUIC.
//!
//! ```text
//! task -> gate of one channel -> outbound: writer --stream--> inbound: reader -> sender -> gate of the receiving task
//!              announcements  -> outbound: writer ==control=> inbound ------------------> announcer -^
//! ```
//!
//! Owns the connections that this worker makes to others ([`links`]), the tasks that serve both ends of channels
//! ([`outbound`], [`inbound`]), and what is known of each execution ([`ends`]). It never looks into rows and never queues
//! frames: what a receiving task does not take stays in the stream, whose window is all a sender may be ahead.
//!
//! Whoever sends connects, so two workers that send to each other have two pairs of connections. A pair lives as long as an
//! execution uses it; what comes next makes a new one, so that no attempt inherits trouble from the one before.

mod ends;
pub(crate) mod fuzz;
mod inbound;
mod links;
mod outbound;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use weir_model::limits::CHANNELS_PER_CONNECTION_MAX;
use weir_protocol::Execution;
use weir_transport::{Endpoint, Incoming};

use self::ends::Executions;
use self::links::Links;
use super::{Inbound, Network, OnLost, Outbound};

/// Codes that channels and connections are closed with.
mod code {
    /// The execution of a channel is not here, or has no such channel.
    pub(super) const NOT_EXPECTED: u32 = 16;
    /// No execution uses the connection any more.
    pub(super) const NOT_NEEDED: u32 = 17;
    /// What was said cannot be understood.
    pub(super) const GARBAGE: u32 = 18;
}

/// The data plane over QUIC. Dropping it closes all channels.
pub struct QuicNetwork {
    runtime: Handle,
    executions: Arc<Executions>,
    links: Arc<Links>,
    /// One task per connection that another worker has made.
    incoming: Mutex<JoinSet<()>>,
}

impl fmt::Debug for QuicNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicNetwork").finish_non_exhaustive()
    }
}

impl QuicNetwork {
    /// A data plane that connects from `endpoint`, does not keep it open, and works on `runtime`, which nothing that waits or
    /// computes for long may use. Connections that other workers make to the endpoint are to be given to
    /// [`incoming`](Self::incoming).
    pub fn new(endpoint: &Arc<Endpoint>, runtime: &Handle) -> QuicNetwork {
        QuicNetwork {
            runtime: runtime.clone(),
            executions: Arc::default(),
            links: Arc::new(Links::new(endpoint)),
            incoming: Mutex::default(),
        }
    }

    /// Another worker has connected.
    pub fn incoming(&self, incoming: Incoming) {
        let mut connections = self.incoming.lock();
        while connections.try_join_next().is_some() {}
        connections.spawn_on(inbound::serve(self.executions.clone(), incoming), &self.runtime);
    }
}

impl Network for QuicNetwork {
    fn expect(&self, execution: &Execution, inbound: Vec<Inbound>, lost: OnLost) -> Result<(), String> {
        self.executions.enter(execution, lost, &self.runtime).expect(inbound)
    }

    fn connect(&self, execution: &Execution, outbound: Vec<Outbound>, lost: OnLost) -> Result<(), String> {
        let mut by_worker: BTreeMap<String, Vec<Outbound>> = BTreeMap::new();
        for outbound in outbound {
            by_worker.entry(outbound.to.worker.clone()).or_default().push(outbound);
        }
        let max = CHANNELS_PER_CONNECTION_MAX as usize;
        if let Some((worker, channels)) = by_worker.iter().find(|(_, channels)| channels.len() > max) {
            return Err(format!(
                "cannot open {} channels to worker {worker}: at most {max} fit on a connection; lower the job's parallelism, or \
                 spread it over more workers",
                channels.len()
            ));
        }
        let ends = self.executions.enter(execution, lost, &self.runtime);
        for channels in by_worker.into_values() {
            ends.spawn(outbound::serve(ends.clone(), self.links.clone(), channels));
        }
        Ok(())
    }

    fn close(&self, execution: &Execution) {
        self.executions.close(execution);
    }

    fn counts(&self, execution: &Execution) -> (u64, u64) {
        let ends = self.executions.find(execution);
        ends.map_or((0, 0), |ends| (ends.sent.load(Ordering::Relaxed), ends.received.load(Ordering::Relaxed)))
    }
}

impl Drop for QuicNetwork {
    fn drop(&mut self) {
        self.executions.close_all();
    }
}

#[cfg(test)]
mod tests;
