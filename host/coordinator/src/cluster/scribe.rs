//! The thread that writes to the coordinator's disk: one change after the other, in the order in which they were decided.
//!
//! A disk that hangs holds it, and nobody else: the machine goes on, and what waits for a change waits.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_cluster::{Change, ChangeId, Input, Metadata, WriteFailure};
use weir_model::limits::JOBS_MAX;
use weir_protocol::panics::{bug, caught};

use super::Inner;

/// Changes on their way to the disk: one of each job at a time, and one that is about names.
const ON_THEIR_WAY_MAX: usize = JOBS_MAX + 1;

/// How long the disk is waited for when the coordinator ends.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// A change and its number.
type NumberedChange = (ChangeId, Box<Change>);

/// What the thread is started with.
pub(super) struct Changes {
    changes: Receiver<NumberedChange>,
    alive: Sender<()>,
}

/// The way to the thread.
pub(super) struct Scribe {
    changes: Option<SyncSender<NumberedChange>>,
    /// Closed when the thread has ended.
    end: Option<Receiver<()>>,
}

/// A thread that is to end when it has written what it was given.
pub(super) struct ScribeEnd(Option<Receiver<()>>);

impl Scribe {
    pub(super) fn new() -> (Scribe, Changes) {
        let (changes, inbox) = sync_channel(ON_THEIR_WAY_MAX);
        #[allow(clippy::disallowed_methods, reason = "nothing is ever sent: its end is what is waited for")]
        let (alive, end) = channel();
        (Scribe { changes: Some(changes), end: Some(end) }, Changes { changes: inbox, alive })
    }

    /// Writes a change when those before it are written.
    pub(super) fn write(&self, id: ChangeId, change: Box<Change>) {
        let Some(changes) = &self.changes else {
            tracing::warn!(?id, "a change came after the end, and is not written");
            return;
        };
        let taken = changes.try_send((id, change));
        assert!(taken.is_ok(), "more changes are on their way than there are jobs");
    }

    /// Takes no more.
    pub(super) fn close(&mut self) -> ScribeEnd {
        self.changes = None;
        ScribeEnd(self.end.take())
    }
}

impl ScribeEnd {
    /// Waits until the thread has ended. False where the disk holds it.
    pub(super) fn ends(self) -> bool {
        self.0.is_none_or(|end| end.recv_timeout(CLOSE_PATIENCE) != Err(RecvTimeoutError::Timeout))
    }
}

/// Starts the thread. It ends when the way to it is closed.
pub(super) fn start(inner: &Arc<Inner>, metadata: Arc<dyn Metadata>, changes: Changes) -> std::io::Result<()> {
    let inner = Arc::downgrade(inner);
    let thread = std::thread::Builder::new().name("metadata".to_owned());
    thread.spawn(move || write(&inner, &*metadata, changes)).map(drop)
}

fn write(inner: &Weak<Inner>, metadata: &dyn Metadata, Changes { changes, alive }: Changes) {
    while let Ok((change, what)) = changes.recv() {
        let result = caught(|| metadata.put(&what));
        let result = result.unwrap_or_else(|panic| Err(WriteFailure(bug("what writes the coordinator's metadata", &panic))));
        let Some(inner) = inner.upgrade() else { break };
        inner.told(Input::Written { change, result });
    }
    drop(alive);
}
