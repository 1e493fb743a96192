//! Being watched by the coordinator, and watching it by the same connection: its kernel tells when its process has ended.

use std::time::Duration;

use weir_transport::{Identity, Peer, TransportError, liveness};

/// Pause before the next attempt to be watched.
const PAUSE: Duration = Duration::from_secs(2);

/// Resolves when the coordinator's process has certainly ended. Without it, a lost connection would show only when it is silent
/// for long. A connection that breaks for another reason proves nothing, so it is made anew: an answer by another process, or
/// by nobody, is proof.
pub(super) async fn until_gone(address: &str, identity: &Identity, coordinator: &Peer) {
    let mut was_watched = false;
    loop {
        match liveness::connect(address, identity, Some(&coordinator.node)).await {
            Ok(mut watched) if watched.peer().incarnation == coordinator.incarnation => {
                was_watched = true;
                watched.closed().await;
                continue;
            }
            Ok(_) => return,
            Err(TransportError::Refused { .. }) if was_watched => return,
            Err(error) => tracing::debug!(%error, "not watched by the coordinator"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
