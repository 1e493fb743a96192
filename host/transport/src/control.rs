//! Messages in order between two processes.
//!
//! A connection of its own, so that a full data connection never holds it up. On the wire a message is its length (4 bytes,
//! little-endian) and its bytes.

use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use quinn::{RecvStream, SendStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use weir_model::limits::{CONTROL_MESSAGE_BYTES_MAX, CONTROL_QUEUE_BYTES_MAX, CONTROL_QUEUE_MESSAGES_MAX};

use crate::link::Link;
use crate::{ConnectionMetrics, Peer, TransportError};

const PREFIX_BYTES: usize = 4;

/// A connection for messages. Closed when all of its parts are dropped; what was queued but not received by then is lost:
/// [`finish`](ControlSender::finish) first where that matters.
#[derive(Debug)]
pub struct Control {
    sender: ControlSender,
    receiver: ControlReceiver,
}

/// Sends messages. Clones share one queue.
#[derive(Clone, Debug)]
pub struct ControlSender {
    link: Arc<Link>,
    queue: mpsc::Sender<(Entry, OwnedSemaphorePermit)>,
    room: Arc<Semaphore>,
}

/// Receives messages.
#[derive(Debug)]
pub struct ControlReceiver {
    link: Arc<Link>,
    stream: RecvStream,
    /// What arrived but was not looked at.
    chunk: Bytes,
    prefix: BytesMut,
    /// The message that is arriving, and its length.
    message: BytesMut,
    len: Option<usize>,
}

/// What waits for being sent.
#[derive(Debug)]
enum Entry {
    Message(Bytes),
    /// Nothing follows. Answered when the peer has received everything.
    Finish(oneshot::Sender<()>),
    #[cfg(test)]
    Raw(Bytes),
}

/// Why a message was not queued.
#[derive(Debug)]
pub enum TrySend {
    /// There is no room now. The message is given back.
    Full(Bytes),
    /// There never will be.
    Failed(TransportError),
}

impl Control {
    pub(crate) fn new(link: Arc<Link>, send: SendStream, stream: RecvStream) -> Control {
        let (queue, messages) = mpsc::channel(CONTROL_QUEUE_MESSAGES_MAX);
        tokio::spawn(write(send, messages));
        let room = Arc::new(Semaphore::new(CONTROL_QUEUE_BYTES_MAX));
        Control {
            sender: ControlSender { link: link.clone(), queue, room },
            receiver: ControlReceiver {
                link,
                stream,
                chunk: Bytes::new(),
                prefix: BytesMut::new(),
                message: BytesMut::new(),
                len: None,
            },
        }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        self.sender.peer()
    }

    /// Both directions apart.
    pub fn split(self) -> (ControlSender, ControlReceiver) {
        (self.sender, self.receiver)
    }

    /// Closes the connection at once. The peer learns code (from 16 on) and reason.
    pub fn close(&self, code: u32, reason: &str) {
        self.sender.close(code, reason);
    }

    /// Numbers about the connection.
    pub fn metrics(&self) -> ConnectionMetrics {
        self.sender.metrics()
    }
}

impl ControlSender {
    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.link.peer
    }

    /// Queues a message; waits while the queue is full. `Ok` does not mean that it has arrived. Cancelling means that the
    /// message was not queued.
    pub async fn send(&self, message: Bytes) -> Result<(), TransportError> {
        let len = self.check(&message)?;
        let room = self.room.clone().acquire_many_owned(len).await.map_err(|_| self.link.closed_now())?;
        self.queue.send((Entry::Message(message), room)).await.map_err(|_| self.link.closed_now())
    }

    /// Queues a message if there is room.
    pub fn try_send(&self, message: Bytes) -> Result<(), TrySend> {
        let len = self.check(&message).map_err(TrySend::Failed)?;
        let Ok(room) = self.room.clone().try_acquire_many_owned(len) else {
            // Room is never given back when nothing is sent any more.
            return Err(if self.queue.is_closed() { TrySend::Failed(self.link.closed_now()) } else { TrySend::Full(message) });
        };
        match self.queue.try_reserve() {
            Ok(place) => {
                place.send((Entry::Message(message), room));
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(())) => Err(TrySend::Full(message)),
            Err(mpsc::error::TrySendError::Closed(())) => Err(TrySend::Failed(self.link.closed_now())),
        }
    }

    /// Sends what is queued, and nothing after it: further sends fail, also those of clones. Resolves when the peer has
    /// received everything, which does not mean that it was read. Cancelling does not undo it.
    pub async fn finish(&self) -> Result<(), TransportError> {
        let (answer, received) = oneshot::channel();
        let room = self.room.clone().acquire_many_owned(0).await.map_err(|_| self.link.closed_now())?;
        self.queue.send((Entry::Finish(answer), room)).await.map_err(|_| self.link.closed_now())?;
        received.await.map_err(|_| self.link.closed_now())
    }

    /// Bytes instead of a message, as a broken peer may send them: they become the length and the start of the next one.
    #[cfg(test)]
    pub(crate) async fn send_unchecked(&self, bytes: Bytes) {
        let room = self.room.clone().acquire_many_owned(0).await.unwrap();
        self.queue.send((Entry::Raw(bytes), room)).await.unwrap();
    }

    fn check(&self, message: &Bytes) -> Result<u32, TransportError> {
        if message.len() > CONTROL_MESSAGE_BYTES_MAX {
            return Err(TransportError::MessageTooLong {
                peer: self.link.peer.to_string(),
                len: message.len(),
                max: CONTROL_MESSAGE_BYTES_MAX,
            });
        }
        Ok(message.len() as u32)
    }

    /// Resolves when the connection is closed, with why.
    pub async fn closed(&self) -> TransportError {
        self.link.closed().await
    }

    /// Closes the connection at once. The peer learns code (from 16 on) and reason.
    pub fn close(&self, code: u32, reason: &str) {
        self.link.close(code, reason);
    }

    /// Numbers about the connection.
    pub fn metrics(&self) -> ConnectionMetrics {
        self.link.metrics()
    }
}

/// Sends what is queued until nobody can queue any more. Dropping the queue tells those who wait for room.
async fn write(mut stream: SendStream, mut messages: mpsc::Receiver<(Entry, OwnedSemaphorePermit)>) {
    while let Some((entry, _room)) = messages.recv().await {
        let mut chunks = match entry {
            Entry::Finish(answer) => {
                drop(messages);
                if stream.finish().is_ok() && matches!(stream.stopped().await, Ok(None)) {
                    // Whoever asked may have gone.
                    let _ = answer.send(());
                }
                return;
            }
            Entry::Message(message) => [Bytes::copy_from_slice(&(message.len() as u32).to_le_bytes()), message],
            #[cfg(test)]
            Entry::Raw(bytes) => [bytes, Bytes::new()],
        };
        if stream.write_all_chunks(&mut chunks).await.is_err() {
            return;
        }
    }
    // Fails if the connection is closed, and then there is nothing to finish.
    let _ = stream.finish();
}

impl ControlReceiver {
    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.link.peer
    }

    /// The next message. An error is final. Cancelling loses nothing.
    pub async fn recv(&mut self) -> Result<Bytes, TransportError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            match self.stream.read_chunk(usize::MAX, true).await {
                Ok(Some(chunk)) => self.chunk = chunk.bytes,
                Ok(None) if self.prefix.is_empty() && self.len.is_none() => {
                    return Err(TransportError::Closed {
                        peer: self.link.peer.to_string(),
                        cause: crate::CloseCause::Peer(0),
                        reason: "the peer has nothing more to say".into(),
                    });
                }
                Ok(None) => return Err(self.link.protocol("it ended its messages within one".into())),
                Err(error) => return Err(self.link.read_error(error)),
            }
        }
    }

    /// A message, if all of it has arrived.
    fn take(&mut self) -> Result<Option<Bytes>, TransportError> {
        let len = match self.len {
            Some(len) => len,
            None => {
                move_bytes(&mut self.chunk, &mut self.prefix, PREFIX_BYTES);
                let Some(&prefix) = self.prefix.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
                let len = u32::from_le_bytes(prefix) as usize;
                if len > CONTROL_MESSAGE_BYTES_MAX {
                    self.link.close(crate::link::code::PROTOCOL, "message over the limit");
                    let peer = self.link.peer.to_string();
                    return Err(TransportError::MessageTooLong { peer, len, max: CONTROL_MESSAGE_BYTES_MAX });
                }
                self.prefix.clear();
                self.len = Some(len);
                len
            }
        };
        if self.message.is_empty() && self.chunk.len() >= len {
            self.len = None;
            return Ok(Some(self.chunk.split_to(len)));
        }
        move_bytes(&mut self.chunk, &mut self.message, len);
        if self.message.len() < len {
            return Ok(None);
        }
        self.len = None;
        Ok(Some(std::mem::take(&mut self.message).freeze()))
    }
}

/// Moves bytes to the end of `to` until it has `len` or there are no more.
fn move_bytes(from: &mut Bytes, to: &mut BytesMut, len: usize) {
    let count = from.len().min(len - to.len());
    to.extend_from_slice(&from[..count]);
    from.advance(count);
}
