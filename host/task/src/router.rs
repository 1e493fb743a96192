//! The output of a task over one edge: which subtask gets which row.
//!
//! Rows are gathered until a frame is full; `flush` sends what there is. Nothing waits here across a barrier.

use std::sync::Arc;
use std::time::Duration;

use weir_channel::Frame;
use weir_model::{Barrier, Batch, BatchRef, Partitioner, limits};

use crate::gate::Sender;
use crate::worth::Worth;

/// How rows are divided over the subtasks downstream.
#[derive(Debug)]
enum Division {
    /// All rows to the only channel.
    Forward,
    /// Frame by frame in turn.
    Rebalance { next: usize },
    /// By the key group of each row's key.
    Hash(Partitioner),
    /// Every row to every channel.
    Broadcast,
}

/// One outgoing edge of a task.
#[derive(Debug)]
pub struct Router {
    division: Division,
    senders: Vec<Sender>,
    pending: Batch,
    /// Since when, at least, there are rows in `pending`.
    pending_since: Option<Duration>,
}

/// Time after which rows that were gathered are sent although the frame is not full, so that a task that always has work does
/// not hold rows back that others wait for, or that a checkpoint would have to store.
const GATHER_TARGET: Duration = Duration::from_millis(10);

/// Rows that are worth a frame of their own.
const DIRECT_ROWS_MIN: usize = limits::FRAME_ROWS_MAX / 4;

impl Router {
    /// To the one subtask with the same index.
    pub fn forward(sender: Sender) -> Router {
        Router::new(Division::Forward, vec![sender])
    }

    /// To all subtasks in turn. `first` should differ from sender to sender, so that they do not march in step.
    pub fn rebalance(senders: Vec<Sender>, first: usize) -> Router {
        let next = first % senders.len().max(1);
        Router::new(Division::Rebalance { next }, senders)
    }

    /// To the owner of each row's key group.
    pub fn hash(senders: Vec<Sender>, key_groups: u16) -> Router {
        let partitioner = Partitioner::new(key_groups, senders.len() as u32);
        Router::new(Division::Hash(partitioner), senders)
    }

    /// To every subtask.
    pub fn broadcast(senders: Vec<Sender>) -> Router {
        Router::new(Division::Broadcast, senders)
    }

    fn new(division: Division, senders: Vec<Sender>) -> Router {
        Router { division, senders, pending: Batch::default(), pending_since: None }
    }

    /// Takes rows. May take the columns themselves and leave others in `rows`; the caller clears it either way.
    pub fn push(&mut self, rows: &mut Batch) {
        if rows.is_empty() {
            return;
        }
        let worth = self.worth_sending().bytes();
        if rows.len() >= DIRECT_ROWS_MIN || rows.size_bytes() >= worth / 4 {
            self.flush();
            self.send(rows);
            return;
        }
        if self.pending.is_empty() {
            std::mem::swap(&mut self.pending, rows);
        } else {
            self.pending.extend(rows.view());
        }
        if self.pending.len() >= limits::FRAME_ROWS_MAX / 2 || self.pending.size_bytes() >= worth {
            self.flush();
        }
    }

    /// Takes a copy of rows.
    pub(crate) fn push_copy(&mut self, rows: BatchRef<'_>) {
        self.push(&mut rows.to_batch());
    }

    /// Bytes that what is sent at once should not exceed, so that it takes up only part of the room in each channel.
    pub(crate) fn worth_sending(&self) -> Worth {
        let all = self.senders.iter().map(Sender::worth_sending).fold(Worth::default(), Worth::and);
        match self.division {
            Division::Hash(_) => all.times(self.senders.len()),
            Division::Forward | Division::Rebalance { .. } | Division::Broadcast => all,
        }
    }

    /// Looks at the channels again, in case nothing was sent for long.
    pub(crate) fn look(&mut self) {
        self.senders.iter_mut().for_each(Sender::look);
    }

    /// Sends the rows that were gathered.
    pub fn flush(&mut self) {
        self.pending_since = None;
        if !self.pending.is_empty() {
            let mut rows = std::mem::take(&mut self.pending);
            self.send(&mut rows);
            rows.clear();
            // A hash exchange copies out of the columns, so their room can be used again.
            self.pending = rows;
        }
    }

    /// Sends the rows that were gathered if they have waited long enough. To be called after each round of work, with the time
    /// since any fixed start.
    pub fn flush_if_due(&mut self, now: Duration) {
        if self.pending.is_empty() {
            return;
        }
        let since = *self.pending_since.get_or_insert(now);
        if now.saturating_sub(since) >= GATHER_TARGET {
            self.flush();
        }
    }

    /// Sends a frame without rows to every subtask, after all rows before it.
    pub fn send_to_all(&mut self, frame: &Frame) {
        self.flush();
        self.senders.iter_mut().for_each(|sender| sender.send(frame.clone()));
    }

    /// Sends a barrier to every subtask, beyond the channels' bounds if need be, after all rows before it. An unaligned one
    /// is announced as well.
    pub fn send_barrier(&mut self, barrier: Barrier) {
        self.flush();
        self.senders.iter_mut().for_each(|sender| sender.send_beyond_bound(Frame::Barrier(barrier)));
        if barrier.unaligned {
            self.announce(barrier);
        }
    }

    /// Sends all that found no room, beyond the channels' bounds.
    pub(crate) fn flush_beyond_bound(&mut self) {
        self.senders.iter_mut().for_each(Sender::flush_beyond_bound);
    }

    /// Says to every subtask that this barrier, which was sent, does not wait for the rows before it.
    pub fn announce(&mut self, barrier: Barrier) {
        self.senders.iter_mut().for_each(|sender| sender.announce(barrier));
    }

    /// Tries to send what found no room. Returns whether all is sent.
    pub fn drain(&mut self) -> bool {
        // All of them: a full channel must not keep frames from its neighbours.
        self.senders.iter_mut().filter_map(|sender| (!sender.flush()).then_some(())).count() == 0
    }

    /// Whether no frame waits for room.
    pub fn is_drained(&self) -> bool {
        self.senders.iter().all(Sender::is_flushed)
    }

    fn send(&mut self, rows: &mut Batch) {
        match &mut self.division {
            Division::Forward => self.senders[0].send(Frame::Rows(Arc::new(std::mem::take(rows)))),
            Division::Rebalance { next } => {
                self.senders[*next].send(Frame::Rows(Arc::new(std::mem::take(rows))));
                *next = (*next + 1) % self.senders.len();
            }
            Division::Broadcast => {
                let rows = Arc::new(std::mem::take(rows));
                self.senders.iter_mut().for_each(|sender| sender.send(Frame::Rows(rows.clone())));
            }
            Division::Hash(partitioner) => {
                let senders = &mut self.senders;
                partitioner.partition(rows.view(), |subtask, keyed| senders[subtask as usize].send(Frame::Keyed(keyed)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Gate;
    use crate::signal::Signal;
    use weir_channel::Limits;

    fn gates(count: usize) -> (Vec<Gate>, Vec<Sender>) {
        let mut gates: Vec<Gate> = (0..count).map(|_| Gate::new(Arc::new(Signal::default()))).collect();
        let senders = gates.iter_mut().map(|gate| gate.connect(Arc::new(Signal::default()), Limits::default())).collect();
        (gates, senders)
    }

    fn batch(rows: std::ops::Range<i64>) -> Batch {
        let mut batch = Batch::default();
        rows.for_each(|n| batch.push(n, &n.to_le_bytes(), b"v"));
        batch
    }

    fn received(gates: &mut [Gate]) -> Vec<Vec<i64>> {
        let rows_of = |gate: &mut Gate| {
            let frames = std::iter::from_fn(|| gate.poll());
            let rows = frames.flat_map(|(_, frame)| match frame {
                Frame::Rows(rows) => rows.timestamps.clone(),
                Frame::Keyed(rows) => rows.sections().flat_map(|(_, rows)| rows.timestamps.to_vec()).collect(),
                _ => Vec::new(),
            });
            rows.collect()
        };
        gates.iter_mut().map(rows_of).collect()
    }

    #[test]
    fn rows_are_gathered_until_flushed() {
        let (mut gates, senders) = gates(1);
        let mut router = Router::rebalance(senders, 0);
        router.push(&mut batch(0..3));
        router.push(&mut batch(3..5));
        assert_eq!(received(&mut gates), [[0i64; 0]]);
        router.flush();
        assert_eq!(received(&mut gates), [[0, 1, 2, 3, 4]]);
    }

    #[test]
    fn rows_that_have_waited_are_sent_though_the_frame_is_not_full() {
        let (mut gates, senders) = gates(1);
        let mut router = Router::rebalance(senders, 0);
        let at = |ms| Duration::from_millis(ms);
        router.push(&mut batch(0..3));
        router.flush_if_due(at(100));
        router.push(&mut batch(3..5));
        router.flush_if_due(at(109));
        assert_eq!(received(&mut gates), [[0i64; 0]], "the oldest is 9 ms old");
        router.flush_if_due(at(110));
        assert_eq!(received(&mut gates), [[0, 1, 2, 3, 4]]);
        router.push(&mut batch(5..6));
        router.flush_if_due(at(119));
        assert_eq!(received(&mut gates), [[0i64; 0]], "time counts anew");
    }

    #[test]
    fn a_barrier_comes_after_all_rows_before_it() {
        let (mut gates, senders) = gates(1);
        let mut router = Router::forward(senders.into_iter().next().unwrap());
        router.push(&mut batch(0..3));
        let (attempt, checkpoint) = (weir_model::Attempt(1), weir_model::CheckpointId(1));
        let barrier = Barrier { attempt, checkpoint, kind: weir_model::BarrierKind::Checkpoint, unaligned: false };
        router.send_barrier(barrier);
        assert!(matches!(gates[0].poll(), Some((0, Frame::Rows(_)))));
        assert_eq!(gates[0].poll(), Some((0, Frame::Barrier(barrier))));
    }

    #[test]
    fn each_division_sends_every_row_where_it_belongs() {
        let expected: Vec<i64> = (0..20_000).collect();
        let (mut targets, senders) = gates(3);
        let mut hash = Router::hash(senders, 128);
        hash.push(&mut batch(0..20_000));
        hash.flush();
        let mut all = received(&mut targets).concat();
        all.sort_unstable();
        assert_eq!(all, expected);

        let (mut targets, senders) = gates(3);
        let mut broadcast = Router::broadcast(senders);
        broadcast.push(&mut batch(0..20_000));
        assert_eq!(received(&mut targets), [expected.clone(), expected.clone(), expected]);

        let (mut targets, senders) = gates(2);
        let mut rebalance = Router::rebalance(senders, 1);
        let many = DIRECT_ROWS_MIN as i64;
        rebalance.push(&mut batch(0..many));
        rebalance.push(&mut batch(many..2 * many));
        let parts = received(&mut targets);
        assert_eq!((parts[0].len(), parts[1][0]), (many as usize, 0), "starts at the second, then in turn");
    }
}
