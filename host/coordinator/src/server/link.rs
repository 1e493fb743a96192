//! What a worker is told, on its way into its connection.

use bytes::Bytes;
use tokio::sync::mpsc;
use weir_model::Epoch;
use weir_protocol::{Command, Order};
use weir_transport::ControlSender;

use crate::cluster::WorkerLink;

/// Messages that wait for a connection to take them. A worker that lets more pile up is closed: it does not read, and its
/// heartbeats would not be believed either.
const WAITING_MAX: usize = 8_192;

/// Codes of closed connections that have no meaning in the transport begin here.
pub(super) const CLOSED: u32 = 16;

enum LinkMessage {
    Message(Bytes),
    Close(String),
}

/// The sending side of a worker's connection.
pub(super) struct NetworkLink {
    epoch: Epoch,
    queue: mpsc::Sender<LinkMessage>,
    sender: ControlSender,
}

impl NetworkLink {
    /// What goes over it is said by the coordinator of this epoch. Must be called within a runtime.
    pub(super) fn new(epoch: Epoch, sender: ControlSender) -> NetworkLink {
        let (queue, messages) = mpsc::channel(WAITING_MAX);
        tokio::spawn(send(sender.clone(), messages));
        NetworkLink { epoch, queue, sender }
    }

    fn put(&self, outgoing: LinkMessage) {
        if self.queue.try_send(outgoing).is_err() {
            self.sender.close(CLOSED, "too many messages wait for this worker, which does not read them");
        }
    }
}

impl WorkerLink for NetworkLink {
    fn tell(&self, command: Command) {
        self.put(LinkMessage::Message(weir_protocol::encode(&Order { epoch: self.epoch, command }, &[]).into()));
    }

    fn close(&self, reason: &str) {
        self.put(LinkMessage::Close(reason.to_owned()));
    }
}

async fn send(sender: ControlSender, mut messages: mpsc::Receiver<LinkMessage>) {
    while let Some(outgoing) = messages.recv().await {
        let closed = match outgoing {
            LinkMessage::Message(message) => sender.send(message).await.err().map(|error| error.to_string()),
            LinkMessage::Close(reason) => Some(reason),
        };
        if let Some(reason) = closed {
            sender.close(CLOSED, &reason);
            return;
        }
    }
}
