//! Connections that this worker makes to others.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use weir_protocol::WorkerAddress;
use weir_transport::{ControlSender, Data, Endpoint, Expected, NodeId, TransportError};

use super::code;

/// The two connections to a worker. Closed when dropped.
pub(super) struct Link {
    pub(super) data: Data,
    pub(super) control: ControlSender,
}

impl Link {
    async fn connect(endpoint: &Endpoint, to: &WorkerAddress) -> Result<Link, String> {
        let node = NodeId::new(&to.worker).map_err(|error| error.to_string())?;
        let (data, control) = tokio::try_join!(
            endpoint.connect_data(&to.address, &node),
            endpoint.connect_control(&to.address, Expected::Worker(&node))
        )
        .map_err(|error| reason(&error))?;
        if data.peer().incarnation != control.peer().incarnation {
            return Err("it was restarted while it was connected to".into());
        }
        // It only listens on this one.
        let (control, _) = control.split();
        tracing::debug!(worker = to.worker, address = to.address, "connected to a worker");
        Ok(Link { data, control })
    }

    /// Whether either connection is closed.
    async fn is_closed(&self) -> bool {
        tokio::select! {
            biased;
            _ = self.data.closed() => true,
            _ = self.control.closed() => true,
            () = std::future::ready(()) => false,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Those who still serve a channel have parts of it.
        self.data.close(code::NOT_NEEDED, "the execution is closed");
        self.control.close(code::NOT_NEEDED, "the execution is closed");
    }
}

/// The links to all workers, shared by all executions.
pub(super) struct Links {
    endpoint: Weak<Endpoint>,
    places: Mutex<HashMap<(String, String), Arc<Place>>>,
}

/// One worker at one address. The lock is held while it is connected to, so that all who want to wait for the same attempt.
#[derive(Default)]
struct Place(tokio::sync::Mutex<Known>);

#[derive(Default)]
struct Known {
    link: Weak<Link>,
    /// When the last attempt failed, and why.
    failed: Option<(Instant, String)>,
}

impl Links {
    pub(super) fn new(endpoint: &Arc<Endpoint>) -> Links {
        Links { endpoint: Arc::downgrade(endpoint), places: Mutex::default() }
    }

    /// A link to a worker: the one that is in use, or a new one. Cancelling does no harm.
    pub(super) async fn get(&self, to: &WorkerAddress) -> Result<Arc<Link>, String> {
        let asked = Instant::now();
        let place = self.place(to);
        let mut known = place.0.lock().await;
        if let Some(link) = known.link.upgrade()
            && !link.is_closed().await
        {
            return Ok(link);
        }
        if let Some((at, reason)) = &known.failed
            && *at >= asked
        {
            return Err(reason.clone());
        }
        let endpoint = self.endpoint.upgrade().ok_or("this worker is shutting down")?;
        match Link::connect(&endpoint, to).await {
            Ok(link) => {
                let link = Arc::new(link);
                *known = Known { link: Arc::downgrade(&link), failed: None };
                Ok(link)
            }
            Err(reason) => {
                known.failed = Some((Instant::now(), reason.clone()));
                Err(reason)
            }
        }
    }

    fn place(&self, to: &WorkerAddress) -> Arc<Place> {
        let mut places = self.places.lock();
        // Workers come and go, each time at another address.
        places.retain(|_, place| {
            let is_idle = Arc::strong_count(place) == 1 && place.0.try_lock().is_ok_and(|known| known.link.strong_count() == 0);
            !is_idle
        });
        places.entry((to.worker.clone(), to.address.clone())).or_default().clone()
    }
}

/// Why a connection cannot be used, without repeating whom it was to.
pub(super) fn reason(error: &TransportError) -> String {
    match error {
        TransportError::Closed { reason, .. } => reason.clone(),
        error => error.to_string(),
    }
}
