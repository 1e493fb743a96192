//! The sending end of a channel.

use std::sync::Arc;

use bytes::Bytes;
use quinn::{SendStream, VarInt};
use weir_channel::Frame;
use weir_channel::wire::encode;

use crate::link::{Link, code};
use crate::{Peer, TransportError};

/// The sending end of a channel. One task owns it. If it is dropped before [`finish`](ChannelWriter::finish), the reader
/// gets an error, not an end.
#[derive(Debug)]
pub struct ChannelWriter {
    link: Arc<Link>,
    stream: SendStream,
    /// Room for the pieces of a frame, kept from frame to frame.
    pieces: Vec<Bytes>,
    finished: bool,
}

impl ChannelWriter {
    pub(crate) fn new(link: Arc<Link>, stream: SendStream) -> ChannelWriter {
        ChannelWriter { link, stream, pieces: Vec::new(), finished: false }
    }

    /// Who reads.
    pub fn peer(&self) -> &Peer {
        &self.link.peer
    }

    /// Sends a frame, and gives its bytes on the wire. Waits while the reader is behind by the channel's window. Columns are
    /// not copied before they are encrypted.
    ///
    /// Not cancel-safe: after cancelling, a part of the frame may have been sent, and the channel is of no use any more.
    pub async fn send(&mut self, frame: Frame) -> Result<usize, TransportError> {
        self.pieces.clear();
        let len = encode(frame, &mut self.pieces)
            .map_err(|source| TransportError::Frame { peer: self.link.peer.to_string(), source })?;
        self.stream.write_all_chunks(&mut self.pieces).await.map_err(|error| self.link.write_error(error))?;
        Ok(len)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Result<(), TransportError> {
        self.stream.write_all(bytes).await.map_err(|error| self.link.write_error(error))
    }

    /// Ends the channel. Resolves when the peer has received everything, which does not mean that it was read.
    pub async fn finish(mut self) -> Result<(), TransportError> {
        self.stream.finish().map_err(|_| self.link.closed_now())?;
        self.finished = true;
        match self.stream.stopped().await {
            Ok(None) => Ok(()),
            stopped => Err(why(&self.link, stopped)),
        }
    }

    /// Resolves when the reader has closed the channel or the connection is closed: what a writer that has nothing to send does
    /// not notice otherwise. Keeps the connection open. Cancelling loses nothing.
    pub fn closed(&self) -> impl Future<Output = TransportError> + Send + use<> {
        let (link, stopped) = (self.link.clone(), self.stream.stopped());
        async move { why(&link, stopped.await) }
    }
}

fn why(link: &Link, stopped: Result<Option<VarInt>, quinn::StoppedError>) -> TransportError {
    match stopped {
        Ok(Some(code)) => TransportError::ChannelClosed { peer: link.peer.to_string(), code: code.into_inner() },
        Err(quinn::StoppedError::ConnectionLost(error)) => link.lost(&error),
        Ok(None) | Err(quinn::StoppedError::ZeroRttRejected) => link.closed_now(),
    }
}

impl Drop for ChannelWriter {
    fn drop(&mut self) {
        if !self.finished {
            // Fails if the stream is closed already.
            let _ = self.stream.reset(VarInt::from_u32(code::DROPPED));
        }
    }
}
