//! The receiving end of a channel.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use quinn::{RecvStream, VarInt};
use weir_channel::Frame;
use weir_channel::wire::{Decoder, WireError};

use crate::link::{Link, code};
use crate::{Peer, TransportError};

/// Chunks taken from a stream at a time: each is at most a packet.
const CHUNKS: usize = 32;

/// The receiving end of a channel. The peer learns when it is dropped.
#[derive(Debug)]
pub struct ChannelReader {
    link: Arc<Link>,
    stream: RecvStream,
    decoder: Decoder,
    chunks: VecDeque<Bytes>,
}

impl ChannelReader {
    pub(crate) fn new(link: Arc<Link>, stream: RecvStream) -> ChannelReader {
        ChannelReader { link, stream, decoder: Decoder::new(), chunks: VecDeque::with_capacity(CHUNKS) }
    }

    /// Who sends.
    pub fn peer(&self) -> &Peer {
        &self.link.peer
    }

    /// The next frame; none when the sender has finished. What is no frame closes the channel. An error is final.
    /// Cancelling loses nothing.
    pub async fn recv(&mut self) -> Result<Option<Frame>, TransportError> {
        loop {
            while let Some(chunk) = self.chunks.front_mut() {
                let mut rest = &chunk[..];
                let frame = self.decoder.push(&mut rest);
                let used = chunk.len() - rest.len();
                if used == chunk.len() {
                    self.chunks.pop_front();
                } else {
                    let _ = chunk.split_to(used);
                }
                match frame {
                    Ok(Some(frame)) => return Ok(Some(frame)),
                    Ok(None) => {}
                    Err(error) => return Err(self.refuse(error)),
                }
            }
            let mut chunks = [const { Bytes::new() }; CHUNKS];
            match self.stream.read_chunks(&mut chunks).await {
                Ok(Some(count)) => self.chunks.extend(chunks.into_iter().take(count)),
                Ok(None) if self.decoder.is_between_frames() => return Ok(None),
                Ok(None) => return Err(self.refuse(WireError::Truncated)),
                Err(error) => return Err(self.link.read_error(error)),
            }
        }
    }

    /// Closes the channel. The sender's next send fails with this code.
    pub fn stop(mut self, code: u32) {
        // Fails if the stream has ended already.
        let _ = self.stream.stop(VarInt::from_u32(code));
    }

    fn refuse(&mut self, source: WireError) -> TransportError {
        let _ = self.stream.stop(VarInt::from_u32(code::PROTOCOL));
        self.chunks.clear();
        TransportError::Frame { peer: self.link.peer.to_string(), source }
    }
}
