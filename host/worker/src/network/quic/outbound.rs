//! The sending ends of channels: an async task for each takes frames out of the channel's gate and writes them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::JoinSet;
use weir_channel::Frame;
use weir_protocol::panics::{bug, caught_async};
use weir_protocol::{PeerMessage, encode};
use weir_transport::{ChannelHeader, ChannelWriter, ControlSender, Data, TransportError};

use super::code;
use super::ends::Ends;
use super::links::{Links, reason};
use crate::network::Outbound;

/// Serves all channels of an execution to one worker until all have ended, or tells that the worker is lost.
pub(super) async fn serve(ends: Arc<Ends>, links: Arc<Links>, outbound: Vec<Outbound>) {
    let Some(to) = outbound.first().map(|outbound| outbound.to.clone()) else { return };
    let sent = caught_async(send_all(&ends, &links, outbound)).await;
    // Nobody waits for this task, and a channel that nobody writes to would look like one whose sender has nothing to say.
    if let Err(reason) = sent.unwrap_or_else(|panic| Err(bug("what sends to it", &panic))) {
        ends.lose(&to.worker, reason);
    }
}

async fn send_all(ends: &Arc<Ends>, links: &Links, outbound: Vec<Outbound>) -> Result<(), String> {
    let Some(to) = outbound.first().map(|outbound| &outbound.to) else { return Ok(()) };
    let link = links.get(to).await?;
    let (data, control) = (link.data.clone(), link.control.clone());
    if !ends.keep(link) {
        return Ok(());
    }
    let mut channels = JoinSet::new();
    for outbound in outbound {
        let channel = Channel { ends: ends.clone(), data: data.clone(), control: control.clone(), outbound };
        channels.spawn(channel.run());
    }
    loop {
        tokio::select! {
            biased;
            ended = channels.join_next() => match ended {
                None => return Ok(()),
                Some(Ok(result)) => result?,
                Some(Err(error)) => return Err(format!("a writer ended early: {error}; this is a bug in weir")),
            },
            // A channel that has nothing to send does not notice.
            error = data.closed() => return Err(reason(&error)),
            error = control.closed() => return Err(reason(&error)),
        }
    }
}

/// One channel.
struct Channel {
    ends: Arc<Ends>,
    data: Data,
    control: ControlSender,
    outbound: Outbound,
}

impl Channel {
    async fn run(mut self) -> Result<(), String> {
        match self.send_frames().await {
            Ok(()) => Ok(()),
            Err(TransportError::ChannelClosed { code, .. }) => {
                let of = format!("channel {} of {}", self.outbound.channel, self.ends.execution);
                let unexpected = code == u64::from(code::NOT_EXPECTED);
                Err(if unexpected { format!("it does not expect {of}") } else { format!("it has closed {of} (code {code})") })
            }
            Err(error) => Err(reason(&error)),
        }
    }

    async fn send_frames(&mut self) -> Result<(), TransportError> {
        let execution = &self.ends.execution;
        let job = execution.job.as_str().into();
        let header = ChannelHeader { job, attempt: execution.attempt, channel: self.outbound.channel };
        let data = self.data.clone();
        let mut writer = self.announcing(data.open(&header)).await??;
        let mut closed = pin!(writer.closed());
        loop {
            self.announce().await?;
            let Some((_, frame)) = self.outbound.gate.poll() else {
                tokio::select! {
                    biased;
                    () = self.outbound.ready.woken() => continue,
                    error = &mut closed => return Err(error),
                }
            };
            let is_end = matches!(frame, Frame::End);
            let len = self.announcing(writer.send(frame)).await??;
            self.ends.sent.fetch_add(len as u64, Ordering::Relaxed);
            if is_end {
                return finish(writer).await;
            }
            tokio::task::consume_budget().await;
        }
    }

    /// Does something that may wait for the receiver, and says meanwhile which markers are on their way.
    async fn announcing<T>(&mut self, work: impl Future<Output = T>) -> Result<T, TransportError> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = self.outbound.ready.woken() => self.announce().await?,
            }
        }
    }

    async fn announce(&mut self) -> Result<(), TransportError> {
        for barrier in self.outbound.gate.take_announcements() {
            let (execution, channel) = (self.ends.execution.clone(), self.outbound.channel);
            let message = PeerMessage::Announce { execution, channel, checkpoint: barrier.checkpoint };
            self.control.send(encode(&message, &[]).into()).await?;
        }
        Ok(())
    }
}

/// A receiver that has read the end needs nothing more, and may have closed the channel by now.
async fn finish(writer: ChannelWriter) -> Result<(), TransportError> {
    match writer.finish().await {
        Err(TransportError::ChannelClosed { .. }) => Ok(()),
        result => result,
    }
}
