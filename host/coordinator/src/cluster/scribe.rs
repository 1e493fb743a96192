//! The thread that writes to the coordinator's disk: one change after the other, in the order in which they were decided.
//!
//! Between them, when tokens were used last.
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

/// How often it is looked whether the use of tokens is to be written, where nothing else is.
const TOKEN_USE_LOOKED_AT: Duration = Duration::from_secs(1);

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

/// What has gone wrong where it panics.
const WHO: &str = "what writes the coordinator's metadata";

/// Starts the thread. It ends when the way to it is closed.
pub(super) fn start(inner: &Arc<Inner>, metadata: Arc<dyn Metadata>, changes: Changes) -> std::io::Result<()> {
    let inner = Arc::downgrade(inner);
    let thread = std::thread::Builder::new().name("metadata".to_owned());
    thread.spawn(move || write(&inner, &*metadata, changes)).map(drop)
}

fn write(inner: &Weak<Inner>, metadata: &dyn Metadata, Changes { changes, alive }: Changes) {
    loop {
        let next = changes.recv_timeout(TOKEN_USE_LOOKED_AT);
        let ends = matches!(next, Err(RecvTimeoutError::Disconnected));
        let written = next.ok().map(|(change, what)| {
            let result = caught(|| metadata.put(&what));
            (change, result.unwrap_or_else(|panic| Err(WriteFailure(bug(WHO, &panic)))))
        });
        let Some(inner) = inner.upgrade() else { break };
        if let Some((change, result)) = written {
            inner.told(Input::Written { change, result });
        }
        if let Err(panic) = caught(|| inner.write_token_use(ends)) {
            tracing::error!("{}", bug(WHO, &panic));
        }
        if ends {
            break;
        }
    }
    drop(alive);
}
