//! One worker's connection, from its registration to its end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use weir_cluster::LinkId;
use weir_model::limits::COMPONENT_PART_BYTES;
use weir_model::{Digest, Epoch};
use weir_protocol::panics::{bug, caught_async};
use weir_protocol::{Command, Envelope, Order, Register, Report, decode, encode};
use weir_transport::{Control, ControlReceiver, ControlSender};

use super::link::{CLOSED, NetworkLink};
use crate::cluster::{Cluster, Hello, WorkerLink};

/// How long a new connection may take to register.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a worker that may not join may take to read why.
const REFUSED_TIMEOUT: Duration = Duration::from_secs(2);

/// Components a worker may ask for before it has got the first.
const NEEDS_WAITING_MAX: usize = 64;

/// Serves a connection until it is closed.
pub(super) async fn serve(cluster: Cluster, control: Control) {
    let (sender, receiver) = control.split();
    let number = OnceLock::new();
    let reason = caught_async(hear(cluster.clone(), &sender, receiver, &number)).await.unwrap_or_else(|panic| {
        // A connection on which nobody hears must not look as if its worker had nothing to say.
        let reason = bug("what serves a worker's connection", &panic);
        tracing::error!(peer = %sender.peer(), "{reason}");
        reason
    });
    sender.close(CLOSED, &reason);
    // However it ended: while the cluster has the link, the connection keeps its place among those of its node.
    if let Some(number) = number.into_inner() {
        let _ = spawn_blocking(move || cluster.detach(number, &reason)).await;
    }
}

/// Gives why nothing more is heard. Sets the number under which the cluster knows the connection.
async fn hear(cluster: Cluster, sender: &ControlSender, mut receiver: ControlReceiver, attached: &OnceLock<LinkId>) -> String {
    let peer = sender.peer().clone();
    let register = match tokio::time::timeout(REGISTER_TIMEOUT, receive(&mut receiver)).await {
        Ok(Ok(Report::Register(register))) => register,
        Ok(Ok(_)) => return unregistered(&peer, "the first message was no registration".to_owned()),
        Ok(Err(reason)) => return unregistered(&peer, reason),
        Err(_) => return unregistered(&peer, "it did not register in time".to_owned()),
    };
    let hello = Hello { name: peer.node.as_str().into(), incarnation: peer.incarnation.0, from: peer.address.to_string() };
    let link: Arc<dyn WorkerLink> = Arc::new(NetworkLink::new(cluster.epoch(), sender.clone()));
    let number = *attached.get_or_init(|| cluster.attach(link));
    if !join(&cluster, number, hello, register).await {
        // It closes the connection when it has read why.
        let _ = tokio::time::timeout(REFUSED_TIMEOUT, receiver.recv()).await;
        return "refused".to_owned();
    }
    let (needs, needed) = mpsc::channel(NEEDS_WAITING_MAX);
    tokio::spawn(send_components(cluster.clone(), number, sender.clone(), needed));
    loop {
        match receive(&mut receiver).await {
            Ok(Report::Need { digest }) => {
                if needs.try_send(digest).is_err() {
                    return "it asked for too many components at once".to_owned();
                }
            }
            Ok(report) => cluster.report(number, report),
            Err(reason) => return reason,
        }
    }
}

async fn join(cluster: &Cluster, number: LinkId, hello: Hello, register: Register) -> bool {
    let cluster = cluster.clone();
    spawn_blocking(move || cluster.register(number, hello, register)).await.unwrap_or(false)
}

fn unregistered(peer: &weir_transport::Peer, reason: String) -> String {
    tracing::warn!(%peer, reason, "a connection ends before its worker has registered");
    reason
}

/// The next report; why there is none otherwise.
async fn receive(receiver: &mut ControlReceiver) -> Result<Report, String> {
    let bytes = receiver.recv().await.map_err(|error| error.to_string())?;
    decode(&bytes).map(|envelope: Envelope<Report>| envelope.message).map_err(|error| error.to_string())
}

/// Sends what a worker needs, one component after the other. Beside what it is told, which never waits for a component.
async fn send_components(cluster: Cluster, link: u64, sender: ControlSender, mut needed: mpsc::Receiver<Digest>) {
    let epoch = cluster.epoch();
    while let Some(digest) = needed.recv().await {
        let cluster = cluster.clone();
        let read = spawn_blocking(move || cluster.component(link, digest)).await;
        let sent = match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(bytes) => send_component(&sender, epoch, digest, &bytes).await,
            Err(reason) => {
                let command = Command::NoComponent { digest, reason };
                sender.send(encode(&Order { epoch, command }, &[]).into()).await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn send_component(
    sender: &ControlSender,
    epoch: Epoch,
    digest: Digest,
    bytes: &[u8],
) -> Result<(), weir_transport::TransportError> {
    let total = bytes.len() as u64;
    for (index, part) in bytes.chunks(COMPONENT_PART_BYTES).enumerate() {
        let offset = (index * COMPONENT_PART_BYTES) as u64;
        let command = Command::Component { digest, offset, total };
        sender.send(encode(&Order { epoch, command }, part).into()).await?;
    }
    Ok(())
}
