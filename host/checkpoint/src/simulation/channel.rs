//! A channel: frames on the wire, frames in the receiver's queue, and what is captured on the way.

use std::collections::VecDeque;

use weir_model::{Barrier, CheckpointId};

use crate::align::Event;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Row(u64),
    Marker(Barrier),
    End,
}

#[derive(Debug, Default)]
pub(super) struct Channel {
    /// Index among the inputs of the receiver.
    input: usize,
    /// Frames of another process, on their way; always empty within a process.
    pub(super) wire: VecDeque<Frame>,
    is_remote: bool,
    pub(super) queue: VecDeque<Frame>,
    /// Said aside from the frames, on another way.
    pub(super) announcements: VecDeque<Barrier>,
    newest: Option<CheckpointId>,
    armed: Option<Barrier>,
    captured: Vec<u64>,
}

fn ends(frame: &Frame, barrier: &Barrier) -> bool {
    match frame {
        Frame::Row(_) => false,
        Frame::Marker(marker) => marker.attempt == barrier.attempt && marker.checkpoint >= barrier.checkpoint,
        Frame::End => true,
    }
}

impl Channel {
    pub(super) fn new(input: usize, is_remote: bool) -> Channel {
        Channel { input, is_remote, ..Channel::default() }
    }

    /// Sends a frame. Gives what the receiver can be told of it at once.
    pub(super) fn send(&mut self, frame: Frame) -> Option<Event> {
        self.wire.push_back(frame);
        if self.is_remote { None } else { self.carry() }
    }

    pub(super) fn announce(&mut self, barrier: Barrier) {
        if self.is_remote {
            self.announcements.push_back(barrier);
        }
    }

    /// The next frame on the wire comes into the queue. Gives what the receiver can be told of it.
    pub(super) fn carry(&mut self) -> Option<Event> {
        let frame = self.wire.pop_front()?;
        self.armed.take_if(|armed| ends(&frame, armed));
        self.queue.push_back(frame);
        let channel = self.input;
        match frame {
            Frame::Row(row) => {
                self.captured.extend(self.armed.map(|_| row));
                None
            }
            Frame::Marker(barrier) => {
                self.newest = self.newest.max(Some(barrier.checkpoint));
                Some(Event::Arrived { channel, barrier })
            }
            Frame::End => Some(Event::EndArrived { channel }),
        }
    }

    /// An announcement reaches the receiver, unless the marker was faster.
    pub(super) fn hear(&mut self) -> Option<Event> {
        let barrier = self.announcements.pop_front()?;
        let is_news = self.newest.is_none_or(|newest| barrier.checkpoint > newest);
        is_news.then_some(Event::Announced { channel: self.input, barrier })
    }

    pub(super) fn capture(&mut self, barrier: Barrier) {
        let before: Vec<Frame> = self.queue.iter().take_while(|frame| !ends(frame, &barrier)).copied().collect();
        self.armed = (before.len() == self.queue.len()).then_some(barrier);
        let row = |frame| if let Frame::Row(row) = frame { Some(row) } else { None };
        self.captured = before.into_iter().filter_map(row).collect();
    }

    pub(super) fn take_captured(&mut self) -> Vec<u64> {
        self.armed = None;
        std::mem::take(&mut self.captured)
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed.is_some()
    }
}
