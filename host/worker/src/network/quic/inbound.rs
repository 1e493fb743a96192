//! The receiving ends of channels: connections that other workers make, and an async task for each channel that decodes its
//! frames into the receiving task's gate.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_channel::Frame;
use weir_channel::wire::HEADER_BYTES;
use weir_protocol::{Execution, PeerMessage, decode};
use weir_transport::{ChannelReader, Control, Data, Incoming, TransportError};

use super::code;
use super::ends::{Ends, Executions};
use super::links::reason;
use crate::network::Inbound;

/// Serves a connection until it is closed.
pub(super) async fn serve(executions: Arc<Executions>, incoming: Incoming) {
    match incoming {
        Incoming::Data(data) => channels(&executions, &data).await,
        Incoming::Control(control) => messages(&executions, control).await,
    }
}

/// Takes channels. One that nobody expects is refused before anything of it is read: it is of an attempt that is over.
async fn channels(executions: &Executions, data: &Data) {
    let worker = data.peer().node.as_str();
    while let Ok((header, reader)) = data.accept().await {
        let channel = header.channel;
        let execution = Execution { job: header.job.into(), attempt: header.attempt };
        let ends = executions.find(&execution);
        let opened = ends.as_ref().ok_or_else(|| "it does not run here".to_owned()).and_then(|ends| ends.open(channel, worker));
        match (ends, opened) {
            (Some(ends), Ok(inbound)) => {
                let channel = Channel { ends: ends.clone(), data: data.clone(), reader, inbound };
                ends.spawn(channel.run());
            }
            (_, opened) => {
                let reason = opened.err();
                tracing::info!(worker, %execution, channel, reason, "refused a channel");
                reader.stop(code::NOT_EXPECTED);
            }
        }
    }
}

/// Hears what a worker says beside the data.
async fn messages(executions: &Executions, control: Control) {
    // Nothing is said on it, but without its sender the peer would find it ended.
    let (sender, mut receiver) = control.split();
    let worker = sender.peer().node.as_str();
    while let Ok(message) = receiver.recv().await {
        match decode::<PeerMessage>(&message) {
            Ok(envelope) => hear(executions, worker, envelope.message),
            Err(error) => {
                tracing::warn!(worker, %error, "closed the connection of a worker that cannot be understood");
                return sender.close(code::GARBAGE, &error.to_string());
            }
        }
    }
}

fn hear(executions: &Executions, worker: &str, message: PeerMessage) {
    let PeerMessage::Announce { execution, channel, checkpoint } = message;
    // An execution that is over misses nothing.
    let Some(ends) = executions.find(&execution) else { return };
    if let Err(reason) = ends.announce(channel, worker, checkpoint) {
        tracing::warn!(worker, %execution, channel, reason, "ignored an announcement");
    }
}

/// One channel.
struct Channel {
    ends: Arc<Ends>,
    /// Tells while the receiving task has no room that the connection is closed.
    data: Data,
    reader: ChannelReader,
    inbound: Inbound,
}

impl Channel {
    async fn run(mut self) {
        if let Err(error) = self.receive().await {
            let reason = match error {
                TransportError::ChannelClosed { code, .. } => {
                    format!("it has closed channel {} of {} (code {code})", self.inbound.channel, self.ends.execution)
                }
                error => reason(&error),
            };
            self.ends.lose(&self.inbound.from.worker, reason);
        }
    }

    /// Reads on only once the gate has taken everything, so that a receiver that is behind stops the sender and nobody else.
    async fn receive(&mut self) -> Result<(), TransportError> {
        loop {
            let Some(frame) = self.reader.recv().await? else {
                let reason = format!("it ended channel {} without saying so", self.inbound.channel);
                return Err(TransportError::Protocol { peer: self.data.peer().to_string(), reason });
            };
            self.ends.received.fetch_add((HEADER_BYTES + frame.size_bytes()) as u64, Ordering::Relaxed);
            let is_end = matches!(frame, Frame::End);
            self.inbound.sender.send(frame);
            while !self.inbound.sender.is_flushed() {
                tokio::select! {
                    biased;
                    () = self.inbound.room.woken() => {}
                    error = self.data.closed() => return Err(error),
                }
                self.inbound.sender.flush();
            }
            if is_end {
                // The end of the stream; that it comes does not matter any more.
                let _ = self.reader.recv().await;
                return Ok(());
            }
            tokio::task::consume_budget().await;
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Nobody waits for this task, and a channel that nobody reads would look like one whose sender has nothing to say.
        if std::thread::panicking() {
            self.ends.lose(&self.inbound.from.worker, "its reader panicked; this is a bug in weir".into());
        }
    }
}
