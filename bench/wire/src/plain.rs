//! Over TCP, one connection per channel; and what it has in common with TLS over it.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use anyhow::{Context, Result};
use bytes::{Buf, Bytes};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use weir_channel::Frame;
use weir_channel::wire::{Decoder, encode};

use crate::link::Options;
use crate::work::{Tally, frame};

/// What is read at a time.
const READ_BYTES: usize = 256 << 10;

pub(crate) async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
    Ok(stream)
}

pub(crate) async fn listen(listening: impl Fn(SocketAddr)) -> Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen")?;
    listening(listener.local_addr().context("a listener without an address")?);
    Ok(listener)
}

pub(crate) async fn send(address: SocketAddr, options: Options) -> Result<(Tally, Value)> {
    let (frame, until) = (frame(options.frame_bytes), Instant::now() + options.time);
    let mut channels = JoinSet::new();
    for _ in 0..options.channels {
        let (stream, frame) = (connect(address).await?, frame.clone());
        channels.spawn(async move { write_frames(stream, &frame, until).await });
    }
    let tallies = channels.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    Ok((Tally::sum(tallies), json!({})))
}

pub(crate) async fn receive(options: Options, listening: impl Fn(SocketAddr)) -> Result<Tally> {
    let listener = listen(listening).await?;
    let mut channels = JoinSet::new();
    for _ in 0..options.channels {
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        channels.spawn(read_frames(stream));
    }
    Ok(Tally::sum(channels.join_all().await.into_iter().collect::<Result<Vec<_>>>()?))
}

/// Sends a frame again and again, then waits until the other side has read it all.
pub(crate) async fn write_frames<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    frame: &Frame,
    until: Instant,
) -> Result<Tally> {
    let (mut tally, mut pieces) = (Tally::default(), Vec::new());
    while Instant::now() < until {
        let bytes = encode(frame.clone(), &mut pieces)?;
        stream.write_all_buf(&mut Pieces::new(&mut pieces)).await.context("cannot send")?;
        pieces.clear();
        tally.add(frame.rows_len(), bytes);
    }
    stream.shutdown().await.context("cannot end a connection")?;
    // The receiver closes its side when it has read everything.
    stream.read(&mut [0]).await.context("the receiver did not read everything")?;
    Ok(tally)
}

/// Receives frames to the end.
pub(crate) async fn read_frames<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> Result<Tally> {
    let (mut tally, mut decoder, mut buffer) = (Tally::default(), Decoder::new(), vec![0; READ_BYTES]);
    loop {
        let read = stream.read(&mut buffer).await.context("cannot receive")?;
        if read == 0 {
            stream.shutdown().await.context("cannot end a connection")?;
            return Ok(tally);
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            if let Some(frame) = decoder.push(&mut rest)? {
                tally.add(frame.rows_len(), 0);
            }
        }
    }
}

/// Pieces of a frame, for one system call that takes all of them.
struct Pieces<'a> {
    pieces: &'a mut [Bytes],
    /// The first that is not sent yet.
    first: usize,
}

impl Pieces<'_> {
    fn new(pieces: &mut [Bytes]) -> Pieces<'_> {
        Pieces { pieces, first: 0 }
    }
}

impl Buf for Pieces<'_> {
    fn remaining(&self) -> usize {
        self.pieces[self.first..].iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.pieces[self.first..].iter().find(|piece| !piece.is_empty()).map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.pieces[self.first..].iter().filter(|piece| !piece.is_empty());
        slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let piece = &mut self.pieces[self.first];
            let taken = count.min(piece.len());
            piece.advance(taken);
            count -= taken;
            if piece.is_empty() {
                self.first += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_channel::wire::encode_to_vec;

    #[test]
    fn pieces_are_sent_in_order_however_they_are_cut() {
        let mut pieces = [Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"two"), Bytes::from_static(b"three")];
        let mut buf = Pieces::new(&mut pieces);
        let mut sent = Vec::new();
        while buf.has_remaining() {
            let chunk = buf.chunk();
            let taken = chunk.len().min(2);
            sent.extend_from_slice(&chunk[..taken]);
            buf.advance(taken);
        }
        assert_eq!(sent, b"onetwothree");
    }

    #[tokio::test]
    async fn frames_arrive_over_a_stream_that_ends_well() {
        let frame = frame(64 << 10);
        let (near, far) = tokio::io::duplex(10_000);
        let until = Instant::now() + std::time::Duration::from_millis(50);
        let (sent, received) = tokio::join!(write_frames(near, &frame, until), read_frames(far));
        let (sent, received) = (sent.expect("sent"), received.expect("received"));
        assert!(sent.rows > 0 && sent.rows == received.rows, "{sent:?} {received:?}");
        let one = encode_to_vec(&frame).expect("a frame that fits").len() as u64;
        assert_eq!(sent.bytes % one, 0);
    }
}
