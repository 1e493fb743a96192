//! One channel of a gate: its queue, and what was seen of its barriers. All under the gate's lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use weir_channel::{Budget, Frame, Limits};
use weir_model::{Barrier, CheckpointId};

use crate::signal::Wake;

#[derive(Debug)]
pub(super) struct Channel {
    frames: VecDeque<Frame>,
    budget: Budget,
    /// Set while an aligned barrier holds the channel back.
    blocked: bool,
    /// The newest marker that was pushed.
    newest: Option<CheckpointId>,
    /// The marker of this checkpoint is on its way and must not wait for room.
    announced: Option<Barrier>,
    /// Rows that are pushed before the marker of this checkpoint belong to it.
    armed: Option<Barrier>,
    /// Rows that belong to the checkpoint that is being captured, in order.
    captured: Vec<Frame>,
    /// The newest barrier that the sender has said does not wait.
    said: Option<Barrier>,
    pub(super) sender: Arc<dyn Wake>,
}

/// What was pushed, as far as barriers are concerned.
pub(super) enum FrameKind {
    Frame,
    Marker(Barrier),
    End,
}

/// Whether `marker` ends what belongs to `barrier`: it is the marker itself, or a later one, which says that there will be none.
fn ends(marker: &Barrier, barrier: &Barrier) -> bool {
    marker.attempt == barrier.attempt && marker.checkpoint >= barrier.checkpoint
}

impl Channel {
    pub(super) fn new(sender: Arc<dyn Wake>, limits: Limits) -> Channel {
        Channel {
            frames: VecDeque::new(),
            budget: Budget::new(limits),
            blocked: false,
            newest: None,
            announced: None,
            armed: None,
            captured: Vec::new(),
            said: None,
            sender,
        }
    }

    /// Whether a frame with rows may be pushed.
    pub(super) fn has_room(&self) -> bool {
        self.announced.is_some() || self.budget.has_room()
    }

    pub(super) fn push(&mut self, frame: Frame) -> FrameKind {
        let pushed = match &frame {
            Frame::Barrier(barrier) => {
                self.newest = self.newest.max(Some(barrier.checkpoint));
                self.announced.take_if(|announced| ends(barrier, announced));
                self.armed.take_if(|armed| ends(barrier, armed));
                FrameKind::Marker(*barrier)
            }
            Frame::End => {
                (self.announced, self.armed) = (None, None);
                FrameKind::End
            }
            _ => FrameKind::Frame,
        };
        if frame.rows_len() > 0 {
            self.budget.add(frame.size_bytes());
            if self.armed.is_some() {
                self.captured.push(frame.clone());
            }
        }
        self.frames.push_back(frame);
        pushed
    }

    /// The next frame, unless the channel is held back. The time now is asked for where rows are taken.
    pub(super) fn pop(&mut self, now: impl FnOnce() -> Duration) -> Option<Frame> {
        if self.blocked {
            return None;
        }
        let frame = self.frames.pop_front()?;
        if frame.rows_len() > 0 && self.budget.remove(frame.size_bytes(), now()) {
            self.sender.wake();
        }
        Some(frame)
    }

    pub(super) fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
        self.budget.pause();
    }

    /// Notes that a marker is on its way. Gives whether that is news.
    pub(super) fn announce(&mut self, barrier: Barrier) -> bool {
        let is_news = self.newest.is_none_or(|newest| barrier.checkpoint > newest)
            && self.announced.is_none_or(|announced| barrier.checkpoint > announced.checkpoint);
        if is_news {
            self.announced = Some(barrier);
        }
        is_news
    }

    /// Captures the rows before the marker of a checkpoint: those that wait, and those to come.
    pub(super) fn capture(&mut self, barrier: Barrier) {
        let is_before =
            |frame: &&Frame| !matches!(frame, Frame::Barrier(marker) if ends(marker, &barrier)) && **frame != Frame::End;
        let before = self.frames.iter().take_while(is_before);
        let mut passed = 0;
        self.captured = before.inspect(|_| passed += 1).filter(|frame| frame.rows_len() > 0).cloned().collect();
        self.armed = (passed == self.frames.len()).then_some(barrier);
    }

    /// Ends a capture. Gives what it got.
    pub(super) fn take_captured(&mut self) -> Vec<Frame> {
        self.armed = None;
        std::mem::take(&mut self.captured)
    }

    pub(super) fn bytes(&self) -> usize {
        self.budget.bytes()
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.budget.bytes_max()
    }

    /// The sender says that a barrier does not wait.
    pub(super) fn say(&mut self, barrier: Barrier) {
        if self.said.is_none_or(|said| barrier.checkpoint > said.checkpoint) {
            self.said = Some(barrier);
        }
    }

    pub(super) fn take_said(&mut self) -> Option<Barrier> {
        self.said.take()
    }
}
