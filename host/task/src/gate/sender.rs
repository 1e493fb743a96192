//! The ends of channels that are not a gate's: where frames go in, and where announcements do.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_channel::Frame;
use weir_model::{Barrier, limits};

use super::Inlet;
use crate::worth::Worth;

/// The sending side of one channel. Frames that found no room wait here, in order.
#[derive(Debug)]
pub struct Sender {
    gate: Arc<Inlet>,
    channel: usize,
    overflow: VecDeque<Frame>,
    /// Bytes that might wait in the channel when it was last looked at.
    bytes_max: usize,
    /// Nothing waited in it then, so nobody knows whether its receiver is slow.
    is_free: bool,
}

impl Sender {
    pub(super) fn new(gate: Arc<Inlet>, channel: usize) -> Sender {
        Sender { gate, channel, overflow: VecDeque::new(), bytes_max: limits::CHANNEL_BYTES_MIN, is_free: true }
    }

    /// Sends a frame, or keeps it in the overflow where the channel has no room. Frames without rows take no room and
    /// still keep their place.
    pub fn send(&mut self, frame: Frame) {
        self.overflow.push_back(frame);
        self.drain(false);
    }

    /// Sends the frame and all before it beyond the channel's bound.
    pub fn send_beyond_bound(&mut self, frame: Frame) {
        self.overflow.push_back(frame);
        self.drain(true);
    }

    /// Sends all that waits in the overflow beyond the channel's bound.
    pub(crate) fn flush_beyond_bound(&mut self) {
        self.drain(true);
    }

    /// Says that a barrier, which was sent, does not wait for the rows before it. A receiver in this process has the marker in
    /// its queue and needs no more; a gate whose receiver writes to another process hands it on, see [`super::Gate::take_announcements`].
    pub fn announce(&mut self, barrier: Barrier) {
        self.gate.lock().channels[self.channel].say(barrier);
        self.gate.receiver.wake();
    }

    /// Tries again to send what waits in the overflow. Returns whether all is sent.
    pub fn flush(&mut self) -> bool {
        self.drain(false);
        self.overflow.is_empty()
    }

    /// Bytes that a frame should not exceed, so that a few of them fit into the channel.
    pub(crate) fn worth_sending(&self) -> Worth {
        Worth::of(self.bytes_max / 2, self.is_free)
    }

    /// Looks at the channel again, in case nothing was sent for long.
    pub(crate) fn look(&mut self) {
        let gate = self.gate.lock();
        let channel = &gate.channels[self.channel];
        (self.bytes_max, self.is_free) = (channel.bytes_max(), channel.bytes() == 0);
    }

    /// Whether nothing waits in the overflow.
    pub fn is_flushed(&self) -> bool {
        self.overflow.is_empty()
    }

    fn drain(&mut self, beyond_bound: bool) {
        if self.overflow.is_empty() {
            return;
        }
        let mut sent = false;
        {
            let mut gate = self.gate.lock();
            self.is_free = gate.channels[self.channel].bytes() == 0;
            while let Some(frame) = self.overflow.pop_front() {
                if frame.rows_len() > 0 && !beyond_bound && !gate.channels[self.channel].has_room() {
                    self.overflow.push_front(frame);
                    break;
                }
                gate.push(self.channel, frame, &self.gate);
                sent = true;
            }
            self.bytes_max = gate.channels[self.channel].bytes_max();
        }
        if sent {
            self.gate.receiver.wake();
        }
    }
}

/// Where it is said that a marker is on its way to a gate from another process. For the transport's control side.
#[derive(Clone, Debug)]
pub struct Announcer {
    gate: Arc<Inlet>,
}

impl Announcer {
    pub(super) fn new(gate: Arc<Inlet>) -> Announcer {
        Announcer { gate }
    }

    /// Bytes of rows that may wait in a channel at present; they follow how fast the channel is read.
    pub fn bytes_max(&self, channel: usize) -> usize {
        self.gate.lock().channels.get(channel).map_or(0, |of| of.bytes_max())
    }

    /// An unaligned barrier is on its way through this channel. The task acts on it at once, and until the marker is pushed the
    /// channel takes everything, whatever its bound. Without effect where the marker or a newer one was pushed already, and
    /// where the gate has no such channel.
    pub fn announce(&self, channel: usize, barrier: Barrier) {
        let sender = {
            let mut gate = self.gate.lock();
            let Some(of) = gate.channels.get_mut(channel) else { return };
            if !of.announce(barrier) {
                return;
            }
            let sender = of.sender.clone();
            gate.announced(channel, barrier, &self.gate);
            sender
        };
        self.gate.receiver.wake();
        sender.wake();
    }
}
