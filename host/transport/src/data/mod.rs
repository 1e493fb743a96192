//! Channels between two processes: each is one stream of frames.
//!
//! A stream's flow control is the channel's credit: what is sent and not yet read is at most
//! [`Settings::channel_window_bytes`](crate::Settings::channel_window_bytes). A channel that is not read stops its writer, and nobody else.

pub(crate) mod header;
mod reader;
mod writer;

use std::sync::{Arc, Weak};
use std::time::Duration;

use quinn::{RecvStream, VarInt};
use tokio::sync::{Mutex, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use weir_model::limits::{ACCEPTED_QUEUE_MAX, HELLO_MS_MAX};

pub use header::ChannelHeader;
pub use reader::ChannelReader;
pub use writer::ChannelWriter;

use crate::link::{Link, code};
use crate::{ConnectionMetrics, Peer, TransportError};

/// A connection for channels, which both sides may open. Closed when all clones, writers and readers are dropped.
#[derive(Clone, Debug)]
pub struct Data {
    link: Arc<Link>,
    accepted: Arc<AcceptedChannels>,
}

/// Channels that the peer has opened.
#[derive(Debug)]
struct AcceptedChannels {
    channels: Mutex<mpsc::Receiver<(ChannelHeader, ChannelReader)>>,
    acceptor: AbortHandle,
}

impl Drop for AcceptedChannels {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

impl Data {
    pub(crate) fn new(link: Arc<Link>) -> Data {
        let (channels, accepted) = mpsc::channel(ACCEPTED_QUEUE_MAX);
        let acceptor = tokio::spawn(accept_channels(Arc::downgrade(&link), link.connection.clone(), channels));
        let accepted = AcceptedChannels { channels: Mutex::new(accepted), acceptor: acceptor.abort_handle() };
        Data { link, accepted: Arc::new(accepted) }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.link.peer
    }

    /// Opens a channel to the peer. Waits while the peer allows no more of them. Cancelling opens none.
    pub async fn open(&self, header: &ChannelHeader) -> Result<ChannelWriter, TransportError> {
        let bytes = header::encode(header).map_err(|reason| TransportError::Protocol { peer: "this node".into(), reason })?;
        let stream = self.link.connection.open_uni().await.map_err(|error| self.link.lost(&error))?;
        let mut writer = ChannelWriter::new(self.link.clone(), stream);
        writer.write(&bytes).await?;
        Ok(writer)
    }

    /// The next channel that the peer has opened, whichever header arrives first. Cancelling loses nothing.
    pub async fn accept(&self) -> Result<(ChannelHeader, ChannelReader), TransportError> {
        match self.accepted.channels.lock().await.recv().await {
            Some(channel) => Ok(channel),
            None => Err(self.link.closed_now()),
        }
    }

    /// Numbers about the connection.
    pub fn metrics(&self) -> ConnectionMetrics {
        self.link.metrics()
    }

    /// For tests that do what this crate does not.
    #[cfg(test)]
    pub(crate) fn connection(&self) -> &quinn::Connection {
        &self.link.connection
    }

    /// Resolves when the connection is closed, with why.
    pub async fn closed(&self) -> TransportError {
        self.link.closed().await
    }

    /// Closes the connection and all its channels at once. The peer learns code (from 16 on) and reason.
    pub fn close(&self, code: u32, reason: &str) {
        self.link.close(code, reason);
    }
}

/// Takes streams until the connection is closed. Does not keep it open. As many wait here as the peer may open.
async fn accept_channels(
    link: Weak<Link>,
    connection: quinn::Connection,
    channels: mpsc::Sender<(ChannelHeader, ChannelReader)>,
) {
    let mut arriving = JoinSet::new();
    while let Ok(stream) = connection.accept_uni().await {
        arriving.spawn(accept_channel(link.clone(), stream, channels.clone()));
        while arriving.try_join_next().is_some() {}
    }
}

async fn accept_channel(link: Weak<Link>, mut stream: RecvStream, channels: mpsc::Sender<(ChannelHeader, ChannelReader)>) {
    let header = tokio::time::timeout(Duration::from_millis(HELLO_MS_MAX), read_header(&mut stream)).await;
    let Some(link) = link.upgrade() else { return };
    let header = match header {
        Ok(Ok(header)) => header,
        Ok(Err(reason)) => return refuse(&link, stream, &reason),
        Err(_) => return refuse(&link, stream, "it opened a channel and did not say which"),
    };
    // If nobody takes channels any more, nobody misses this one.
    let _ = channels.send((header, ChannelReader::new(link, stream))).await;
}

fn refuse(link: &Link, mut stream: RecvStream, reason: &str) {
    if link.connection.close_reason().is_none() {
        tracing::warn!(peer = %link.peer, reason, "refused a channel");
    }
    let _ = stream.stop(VarInt::from_u32(code::PROTOCOL));
}

async fn read_header(stream: &mut RecvStream) -> Result<ChannelHeader, String> {
    let mut bytes = vec![0; header::FIXED_BYTES];
    stream.read_exact(&mut bytes).await.map_err(|error| error.to_string())?;
    let fixed = bytes.first_chunk().ok_or("the header of the channel is too short")?;
    let len = header::name_len(fixed)?;
    bytes.resize(header::FIXED_BYTES + len, 0);
    stream.read_exact(&mut bytes[header::FIXED_BYTES..]).await.map_err(|error| error.to_string())?;
    header::decode(&bytes)
}
