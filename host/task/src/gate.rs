//! The input of a task: one bounded queue per channel under one lock.
//!
//! A producer waits for room in its own channel only, so one slow consumer never stops its neighbours. A gate owns its
//! queues, notes which markers and ends have come into them, and captures rows on their way when told to; it decides nothing and
//! knows nothing of what rows mean.
//!
//! The same gate, with one channel, is where frames wait for a writer to another process.

mod channel;
mod sender;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use weir_channel::{Frame, Limits};
use weir_checkpoint::align::Event;
use weir_model::Barrier;

use crate::clock::{Clock, SystemClock};
use crate::signal::Wake;
use channel::{Channel, FrameKind};
pub use sender::{Announcer, Sender};

#[derive(Debug, Default)]
struct Queues {
    channels: Vec<Channel>,
    /// Markers and ends that have come into the queues or were announced, and that nobody has been told of.
    arrivals: Vec<Event>,
}

#[derive(Debug)]
struct Inlet {
    queues: Mutex<Queues>,
    /// Whether `arrivals` holds anything, so that who looks every time takes the lock only when there is something.
    has_arrivals: AtomicBool,
    receiver: Arc<dyn Wake>,
}

impl Inlet {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock()
    }
}

impl Queues {
    fn push(&mut self, channel: usize, frame: Frame, shared: &Inlet) {
        let arrival = match self.channels[channel].push(frame) {
            FrameKind::Frame => return,
            FrameKind::Marker(barrier) => Event::Arrived { channel, barrier },
            FrameKind::End => Event::EndArrived { channel },
        };
        self.arrived(arrival, shared);
    }

    fn announced(&mut self, channel: usize, barrier: Barrier, shared: &Inlet) {
        self.arrived(Event::Announced { channel, barrier }, shared);
    }

    fn arrived(&mut self, arrival: Event, shared: &Inlet) {
        self.arrivals.push(arrival);
        shared.has_arrivals.store(true, Ordering::Release);
    }

    /// Forgets arrivals that reading has made pointless. Keeps the list short where nobody asks for it.
    fn reached(&mut self, channel: usize, frame: &Frame) {
        match frame {
            Frame::Barrier(read) => self.arrivals.retain(|arrival| match arrival {
                Event::Arrived { channel: of, barrier } => *of != channel || barrier != read,
                _ => true,
            }),
            Frame::End => self.arrivals.retain(|arrival| *arrival != Event::EndArrived { channel }),
            _ => {}
        }
    }
}

/// The receiving side of all channels into a task.
pub struct Gate {
    shared: Arc<Inlet>,
    next: usize,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("shared", &self.shared).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Gate {
    /// A gate without channels. `receiver` is woken when something has come.
    pub fn new(receiver: Arc<dyn Wake>) -> Gate {
        let shared = Inlet { queues: Mutex::default(), has_arrivals: AtomicBool::new(false), receiver };
        Gate { shared: Arc::new(shared), next: 0, clock: Arc::new(SystemClock::default()) }
    }

    /// The time by which the gate measures how fast its channels are read. A task's gate has the task's clock.
    pub fn set_clock(&mut self, clock: Arc<dyn Clock>) {
        self.clock = clock;
    }

    /// Adds a channel. `sender` is woken when there is room again after there was none.
    pub fn connect(&mut self, sender: Arc<dyn Wake>, limits: Limits) -> Sender {
        let mut queues = self.shared.lock();
        queues.channels.push(Channel::new(sender, limits));
        Sender::new(self.shared.clone(), queues.channels.len() - 1)
    }

    /// Where it is said that markers are on their way from other processes.
    pub fn announcer(&self) -> Announcer {
        Announcer::new(self.shared.clone())
    }

    /// Barriers that the senders have said do not wait, and that were not given here before: for whoever writes the frames of
    /// this gate to another process, which has to be told aside from the frames.
    pub fn take_announcements(&mut self) -> Vec<Barrier> {
        self.shared.lock().channels.iter_mut().filter_map(Channel::take_said).collect()
    }

    /// Number of channels.
    pub fn len(&self) -> usize {
        self.shared.lock().channels.len()
    }

    /// Whether there is no channel.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next frame of a channel that is not blocked, channel by channel in turn.
    pub fn poll(&mut self) -> Option<(usize, Frame)> {
        let mut queues = self.shared.queues.lock();
        let count = queues.channels.len();
        for offset in 0..count {
            let index = (self.next + offset) % count;
            let Some(frame) = queues.channels[index].pop(|| self.clock.now()) else { continue };
            if !queues.arrivals.is_empty() {
                queues.reached(index, &frame);
            }
            self.next = (index + 1) % count;
            return Some((index, frame));
        }
        None
    }

    /// Moves what has come into the queues, and was not told yet, to the end of `events`. Costs nothing where there is nothing.
    pub(crate) fn take_arrivals(&mut self, events: &mut Vec<Event>) {
        if self.shared.has_arrivals.load(Ordering::Acquire) {
            let mut queues = self.shared.lock();
            events.append(&mut queues.arrivals);
            self.shared.has_arrivals.store(false, Ordering::Release);
        }
    }

    /// Holds a channel back, or lets it go on.
    pub(crate) fn set_blocked(&mut self, channel: usize, blocked: bool) {
        self.shared.lock().channels[channel].set_blocked(blocked);
    }

    /// Captures the rows of a channel that are before the marker of this checkpoint: those that wait, and those that come until
    /// the marker does.
    pub(crate) fn capture(&mut self, channel: usize, barrier: Barrier) {
        self.shared.lock().channels[channel].capture(barrier);
    }

    /// Ends all captures. Gives what they got, by channel, those without rows left out.
    pub(crate) fn take_captured(&mut self) -> Vec<(usize, Vec<Frame>)> {
        let mut queues = self.shared.lock();
        let captured = queues.channels.iter_mut().map(Channel::take_captured).enumerate();
        captured.filter(|(_, frames)| !frames.is_empty()).collect()
    }

    /// Bytes of rows that wait in all channels.
    pub fn queued_bytes(&self) -> usize {
        self.shared.lock().channels.iter().map(Channel::bytes).sum()
    }
}

#[cfg(test)]
mod tests;
