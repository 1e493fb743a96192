//! What is known of each execution: its receiving ends, the tasks that serve its channels, and whom it has lost.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use weir_model::{Barrier, BarrierKind, CheckpointId};
use weir_protocol::Execution;
use weir_task::Announcer;

use super::links::Link;
use crate::network::{Inbound, OnLost, PeerLost};

/// All executions that have channels to other workers.
#[derive(Default)]
pub(super) struct Executions(Mutex<HashMap<Execution, Arc<Ends>>>);

impl Executions {
    /// The ends of an execution, which may be new here.
    pub(super) fn enter(&self, execution: &Execution, lost: OnLost, runtime: &Handle) -> Arc<Ends> {
        let new = || Arc::new(Ends::new(execution.clone(), lost, runtime.clone()));
        self.0.lock().entry(execution.clone()).or_insert_with(new).clone()
    }

    /// The ends of an execution that has any.
    pub(super) fn find(&self, execution: &Execution) -> Option<Arc<Ends>> {
        self.0.lock().get(execution).cloned()
    }

    pub(super) fn close(&self, execution: &Execution) {
        let ends = self.0.lock().remove(execution);
        if let Some(ends) = ends {
            ends.close();
        }
    }

    pub(super) fn close_all(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        all.into_values().for_each(|ends| ends.close());
    }
}

/// Where a channel ends in a gate.
struct End {
    from: String,
    announcer: Announcer,
    gate_channel: usize,
    /// Until the sender has opened the channel.
    waiting: Option<Inbound>,
}

#[derive(Default)]
struct State {
    closed: bool,
    inbound: HashMap<u32, End>,
    links: Vec<Arc<Link>>,
    tasks: JoinSet<()>,
    lost: BTreeSet<String>,
}

/// The ends of the channels of one execution.
pub(super) struct Ends {
    pub(super) execution: Execution,
    /// Bytes of frames.
    pub(super) sent: AtomicU64,
    /// Bytes of frames.
    pub(super) received: AtomicU64,
    lost: OnLost,
    runtime: Handle,
    state: Mutex<State>,
}

impl Ends {
    fn new(execution: Execution, lost: OnLost, runtime: Handle) -> Ends {
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        Ends { execution, sent, received, lost, runtime, state: Mutex::default() }
    }

    /// Notes receiving ends.
    pub(super) fn expect(&self, inbound: Vec<Inbound>) -> Result<(), String> {
        let mut state = self.state.lock();
        for inbound in inbound {
            let (channel, from) = (inbound.channel, inbound.from.worker.clone());
            let (announcer, gate_channel) = (inbound.announcer.clone(), inbound.gate_channel);
            let end = End { from, announcer, gate_channel, waiting: Some(inbound) };
            if state.inbound.insert(channel, end).is_some() {
                return Err(format!("channel {channel} of {} has two receiving ends; this is a bug in weir", self.execution));
            }
        }
        Ok(())
    }

    /// Gives the receiving end of a channel that a worker has opened.
    pub(super) fn open(&self, channel: u32, worker: &str) -> Result<Inbound, String> {
        let mut state = self.state.lock();
        let end = state.inbound.get_mut(&channel).ok_or("it does not end here")?;
        if end.from != worker {
            return Err(format!("it comes from worker {}", end.from));
        }
        end.waiting.take().ok_or_else(|| "it is open already".to_owned())
    }

    /// A worker says that the marker of an unaligned barrier is on its way. The channel may not be open yet.
    pub(super) fn announce(&self, channel: u32, worker: &str, checkpoint: CheckpointId) -> Result<(), String> {
        let (announcer, gate_channel) = {
            let state = self.state.lock();
            let end = state.inbound.get(&channel).ok_or("it does not end here")?;
            if end.from != worker {
                return Err(format!("it comes from worker {}", end.from));
            }
            (end.announcer.clone(), end.gate_channel)
        };
        let attempt = self.execution.attempt;
        announcer.announce(gate_channel, Barrier { attempt, checkpoint, kind: BarrierKind::Checkpoint, unaligned: true });
        Ok(())
    }

    /// Runs something until it is over or the execution is closed.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state.lock();
        if !state.closed {
            while state.tasks.try_join_next().is_some() {}
            state.tasks.spawn_on(task, &self.runtime);
        }
    }

    /// Keeps a link until the execution is closed: a receiver that is behind still reads what has been sent, and must not take
    /// a link that nobody needs any more for a loss. Whether the execution is open.
    pub(super) fn keep(&self, link: Arc<Link>) -> bool {
        let mut state = self.state.lock();
        if !state.closed {
            state.links.push(link);
        }
        !state.closed
    }

    /// Tells that a worker is lost, unless that was told or does not matter any more.
    pub(super) fn lose(&self, worker: &str, reason: String) {
        {
            let mut state = self.state.lock();
            if state.closed || !state.lost.insert(worker.to_owned()) {
                return;
            }
        }
        (self.lost)(PeerLost { worker: worker.to_owned(), reason });
    }

    /// Drops everything that serves the execution. Links that no other execution uses are closed when this returns; tasks are
    /// told to end, and do within moments.
    fn close(&self) {
        let closed = State { closed: true, ..State::default() };
        let open = std::mem::replace(&mut *self.state.lock(), closed);
        drop(open);
    }
}
