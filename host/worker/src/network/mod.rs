//! The data plane between workers, as executions see it.
//!
//! A sending task puts frames into a gate of one channel that the network empties; a receiving task has a sender in its gate
//! that the network feeds. So tasks never know where the other end of a channel is.

mod quic;

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;
use weir_protocol::{Execution, WorkerAddress};
use weir_task::{Announcer, Gate, Sender, Wake};

pub use quic::QuicNetwork;
pub(crate) use quic::fuzz;

/// Wakes whoever serves one end of a channel.
#[derive(Debug, Default)]
pub struct RoomWake {
    woken: Notify,
    also: OnceLock<Arc<dyn Wake>>,
}

impl RoomWake {
    /// Whoever is not an async task is woken by `wake`, from now on. Once; a second time changes nothing.
    pub fn wake_with(&self, wake: Arc<dyn Wake>) {
        let _ = self.also.set(wake);
    }

    /// Waits until there is something to do. A wake-up that came before the wait ends it at once. Cancelling loses nothing.
    pub async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Wake for RoomWake {
    fn wake(&self) {
        self.woken.notify_one();
        if let Some(also) = self.also.get() {
            also.wake();
        }
    }
}

/// The receiving end of a channel.
#[derive(Debug)]
pub struct Inbound {
    /// Its number in the job.
    pub channel: u32,
    /// The worker that sends.
    pub from: WorkerAddress,
    /// Puts frames into the receiving task's gate. It wakes `room` once there is room again.
    pub sender: Sender,
    /// Notes announcements in that gate.
    pub announcer: Announcer,
    /// The channel's index there.
    pub gate_channel: usize,
    /// Woken once there is room.
    pub room: Arc<RoomWake>,
}

/// The sending end of a channel.
#[derive(Debug)]
pub struct Outbound {
    /// Its number in the job.
    pub channel: u32,
    /// The worker that receives.
    pub to: WorkerAddress,
    /// What the sending task has put into the channel: a gate of one channel.
    pub gate: Gate,
    /// Woken once there is something in it, or an announcement.
    pub ready: Arc<RoomWake>,
}

/// Another worker cannot be reached any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLost {
    /// The worker.
    pub worker: String,
    /// How this is known.
    pub reason: String,
}

/// Told about lost peers.
pub type OnLost = Arc<dyn Fn(PeerLost) + Send + Sync>;

/// The data plane between workers.
pub trait Network: Send + Sync {
    /// Makes the receiving ends of an execution known, before any sender connects.
    ///
    /// # Errors
    /// If they cannot be.
    fn expect(&self, execution: &Execution, inbound: Vec<Inbound>, lost: OnLost) -> Result<(), String>;

    /// Connects the sending ends. Returns at once; trouble is told through `lost`.
    ///
    /// # Errors
    /// If that cannot even be tried.
    fn connect(&self, execution: &Execution, outbound: Vec<Outbound>, lost: OnLost) -> Result<(), String>;

    /// Closes all channels of an execution, of which there may be none.
    fn close(&self, execution: &Execution);

    /// Bytes sent and received for an execution.
    fn counts(&self, execution: &Execution) -> (u64, u64);
}
