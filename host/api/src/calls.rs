//! Calls into the cluster: on blocking threads, a bounded number at a time.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use weir_model::{Digest, ErrorNumber};
use weir_protocol::access::Asker;
use weir_protocol::api::ClusterApi;

use crate::answer::Refused;
use crate::limits::{CALLS_MAX, FOLLOWERS_MAX, TURN_MAX, UPLOADS_MAX};

/// The cluster, and turns at it.
#[derive(Clone)]
pub(crate) struct Calls {
    cluster: Arc<dyn ClusterApi>,
    calls: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
    followers: Arc<Semaphore>,
}

/// The right to hold something that is bounded, until it is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

impl Calls {
    pub(crate) fn new(cluster: Arc<dyn ClusterApi>) -> Calls {
        let turns = |count| Arc::new(Semaphore::new(count));
        Calls { cluster, calls: turns(CALLS_MAX), uploads: turns(UPLOADS_MAX), followers: turns(FOLLOWERS_MAX) }
    }

    /// Calls the cluster when it is this call's turn. That the caller goes away does not end a call that has begun.
    ///
    /// # Errors
    /// If its turn does not come.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn ClusterApi) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let turn = turn(&self.calls).await?;
        self.run(turn, call).await
    }

    /// Calls the cluster under a turn that is held already. The call keeps it, as it may outlive its request.
    ///
    /// # Errors
    /// If the call panics.
    pub(crate) async fn follow<T: Send + 'static>(
        &self,
        turn: &Arc<Turn>,
        call: impl FnOnce(&dyn ClusterApi) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        self.run(Arc::clone(turn), call).await
    }

    /// Who shows a token. Needs no turn, as it never blocks.
    pub(crate) fn who(&self, token: Digest) -> Option<Asker> {
        self.cluster.who(token)
    }

    /// The right to wait for events.
    pub(crate) fn follower(&self) -> Result<Arc<Turn>, Refused> {
        Arc::clone(&self.followers).try_acquire_owned().map(Arc::new).map_err(|_| busy())
    }

    /// The right to hold an upload in memory.
    pub(crate) async fn upload(&self) -> Result<Turn, Refused> {
        turn(&self.uploads).await
    }

    async fn run<T: Send + 'static>(
        &self,
        turn: impl Send + 'static,
        call: impl FnOnce(&dyn ClusterApi) -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let cluster = Arc::clone(&self.cluster);
        let called = tokio::task::spawn_blocking(move || {
            let result = call(&*cluster);
            drop(turn);
            result
        });
        called.await.map_err(|error| {
            let message = format!("cannot answer a request: {error}");
            let hint = "this is a bug in weir, please report it";
            Refused::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorNumber::ApiBusy, message, Some(hint))
        })
    }
}

async fn turn(turns: &Arc<Semaphore>) -> Result<Turn, Refused> {
    match timeout(TURN_MAX, Arc::clone(turns).acquire_owned()).await {
        Ok(Ok(turn)) => Ok(turn),
        _ => Err(busy()),
    }
}

fn busy() -> Refused {
    let message = "cannot answer a request now: there are too many others";
    Refused::new(StatusCode::SERVICE_UNAVAILABLE, ErrorNumber::ApiBusy, message, Some("try again in a moment"))
}
