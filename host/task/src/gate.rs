//! The input of a task: one bounded queue per channel under one lock.
//!
//! A producer waits for room in its own channel only, so one slow consumer never stops its neighbours. A gate owns its
//! queues; it knows nothing of what frames mean.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_channel::{Budget, Frame, Limits};

use crate::signal::Signal;

#[derive(Debug)]
struct Channel {
    frames: VecDeque<Frame>,
    budget: Budget,
    /// Set while an aligned barrier holds the channel back.
    blocked: bool,
    sender: Arc<Signal>,
}

#[derive(Debug)]
struct Shared {
    channels: Mutex<Vec<Channel>>,
    receiver: Arc<Signal>,
}

/// The receiving side of all channels into a task.
#[derive(Debug)]
pub struct Gate {
    shared: Arc<Shared>,
    next: usize,
}

/// The sending side of one channel. Frames that found no room wait here, in order.
#[derive(Debug)]
pub struct Sender {
    gate: Arc<Shared>,
    channel: usize,
    overflow: VecDeque<Frame>,
}

impl Gate {
    /// A gate without channels for the task that waits on `receiver`.
    pub fn new(receiver: Arc<Signal>) -> Gate {
        Gate { shared: Arc::new(Shared { channels: Mutex::new(Vec::new()), receiver }), next: 0 }
    }

    /// Adds a channel from the task that waits on `sender`.
    pub fn connect(&mut self, sender: Arc<Signal>, limits: Limits) -> Sender {
        let mut channels = self.shared.channels.lock();
        channels.push(Channel { frames: VecDeque::new(), budget: Budget::new(limits), blocked: false, sender });
        Sender { gate: self.shared.clone(), channel: channels.len() - 1, overflow: VecDeque::new() }
    }

    /// Number of channels.
    pub fn len(&self) -> usize {
        self.shared.channels.lock().len()
    }

    /// Whether there is no channel.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next frame of a channel that is not blocked, channel by channel in turn.
    pub fn poll(&mut self) -> Option<(usize, Frame)> {
        let mut channels = self.shared.channels.lock();
        let count = channels.len();
        for offset in 0..count {
            let index = (self.next + offset) % count;
            let channel = &mut channels[index];
            if channel.blocked {
                continue;
            }
            let Some(frame) = channel.frames.pop_front() else { continue };
            if frame.rows_len() > 0 && channel.budget.remove(frame.size_bytes()) {
                channel.sender.notify();
            }
            self.next = (index + 1) % count;
            return Some((index, frame));
        }
        None
    }

    /// Holds a channel back, or lets it go on.
    pub fn set_blocked(&mut self, channel: usize, blocked: bool) {
        self.shared.channels.lock()[channel].blocked = blocked;
    }

    /// Bytes of rows that wait in all channels.
    pub fn queued_bytes(&self) -> usize {
        self.shared.channels.lock().iter().map(|channel| channel.budget.bytes()).sum()
    }
}

impl Sender {
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

    /// Tries again to send what waits in the overflow. Returns whether all is sent.
    pub fn flush(&mut self) -> bool {
        self.drain(false);
        self.overflow.is_empty()
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
            let mut channels = self.gate.channels.lock();
            let channel = &mut channels[self.channel];
            while let Some(frame) = self.overflow.pop_front() {
                if frame.rows_len() > 0 {
                    if !beyond_bound && !channel.budget.has_room() {
                        self.overflow.push_front(frame);
                        break;
                    }
                    channel.budget.add(frame.size_bytes());
                }
                channel.frames.push_back(frame);
                sent = true;
            }
        }
        if sent {
            self.gate.receiver.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::Batch;

    fn rows(n: i64) -> Frame {
        let mut batch = Batch::default();
        batch.push(n, b"", b"x");
        Frame::Rows(Arc::new(batch))
    }

    fn gate(channels: usize) -> (Gate, Vec<Sender>) {
        let mut gate = Gate::new(Arc::default());
        let limits = Limits { frames_max: 2, bytes_max: 1 << 20 };
        let senders = (0..channels).map(|_| gate.connect(Arc::default(), limits)).collect();
        (gate, senders)
    }

    #[test]
    fn frames_keep_their_order_through_a_full_channel() {
        let (mut gate, mut senders) = gate(1);
        (0..5).for_each(|n| senders[0].send(rows(n)));
        senders[0].send(Frame::Watermark(9));
        assert!(!senders[0].is_flushed(), "two frames fit");
        let mut seen = Vec::new();
        while let Some((_, frame)) = gate.poll() {
            seen.push(frame);
            senders[0].flush();
        }
        assert_eq!(seen, [rows(0), rows(1), rows(2), rows(3), rows(4), Frame::Watermark(9)]);
    }

    #[test]
    fn a_full_or_blocked_channel_does_not_stop_the_others() {
        let (mut gate, mut senders) = gate(2);
        (0..3).for_each(|n| senders[0].send(rows(n)));
        senders[1].send(rows(7));
        gate.set_blocked(0, true);
        assert_eq!(gate.poll(), Some((1, rows(7))));
        assert_eq!(gate.poll(), None);
        gate.set_blocked(0, false);
        assert_eq!(gate.poll(), Some((0, rows(0))));
    }

    #[test]
    fn channels_are_read_in_turn() {
        let (mut gate, mut senders) = gate(2);
        for sender in &mut senders {
            sender.send(rows(0));
            sender.send(rows(1));
        }
        let order: Vec<usize> = std::iter::from_fn(|| gate.poll().map(|(channel, _)| channel)).collect();
        assert_eq!(order, [0, 1, 0, 1]);
    }

    #[test]
    fn what_a_task_still_holds_goes_beyond_the_bound_before_its_barrier() {
        let (mut gate, mut senders) = gate(1);
        (0..4).for_each(|n| senders[0].send(rows(n)));
        senders[0].send_beyond_bound(Frame::End);
        assert!(senders[0].is_flushed());
        assert_eq!(std::iter::from_fn(|| gate.poll()).count(), 5);
    }
}
