//! The proof that a checkpoint is complete.

use std::ops::Deref;
use std::sync::Arc;

use crate::Manifest;

/// A manifest that is in the storage and counts. Nobody but the storage makes one, so whoever demands it (a master, before it has
/// sinks commit) cannot be told of a checkpoint that may not be there.
#[derive(Clone, Debug, PartialEq)]
pub struct Durable(Arc<Manifest>);

impl Durable {
    /// Of a manifest that the log names.
    pub(crate) fn new(manifest: Arc<Manifest>) -> Durable {
        Durable(manifest)
    }
}

impl Deref for Durable {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        &self.0
    }
}
