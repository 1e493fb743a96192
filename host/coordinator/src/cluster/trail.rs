//! What people did to the cluster, as far as it is no job's: numbered, written, told to the log too.
//!
//! Owns the number of the last such event. Never decides what is allowed: who asks has been let in.

use parking_lot::Mutex;
use weir_protocol::access::Person;
use weir_protocol::api::{EventLevel, JobEvent};

use super::Inner;
use crate::metadata::MetadataError;

/// Number of the last event.
pub(super) struct Trail(Mutex<u64>);

impl Trail {
    pub(super) fn new(last: u64) -> Trail {
        Trail(Mutex::new(last))
    }
}

impl Inner {
    /// Gives an event its number and has it written; the number is taken only if it was.
    pub(super) fn tell_cluster(
        &self,
        by: Option<&Person>,
        kind: &str,
        message: String,
        write: impl FnOnce(&JobEvent) -> Result<(), MetadataError>,
    ) -> Result<(), MetadataError> {
        let mut last = self.trail.0.lock();
        let event = JobEvent {
            number: *last + 1,
            at_ms: self.clock.now().wall_ms,
            level: EventLevel::Info,
            kind: kind.to_owned(),
            message,
            by: by.cloned(),
        };
        write(&event)?;
        *last = event.number;
        tracing::info!(kind, by = by.map(tracing::field::display), "{}", event.message);
        Ok(())
    }

    /// The same for what is done already: where the disk does not take it, only the log has it.
    pub(super) fn done_to_cluster(&self, by: &Person, kind: &str, message: String) {
        if let Err(error) = self.tell_cluster(Some(by), kind, message, |event| self.database.put_cluster_event(event)) {
            tracing::error!(%by, kind, %error, "an event of the cluster is lost");
        }
    }
}
