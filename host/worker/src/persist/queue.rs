//! What waits for a persister.
//!
//! Owns the items and counts their bytes; knows nothing of what becomes of them. Unbounded in name only: a task hands over one
//! snapshot at a time, and what was handed over for a checkpoint that is given up leaves the queue with the word that it is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use weir_model::{CheckpointId, TaskId};
use weir_task::{SnapshotPart, TaskState, Wake};

use super::Item;

/// Bytes that wait in all queues of an execution, or are being written.
#[derive(Debug, Default)]
pub struct Load(AtomicUsize);

impl Load {
    /// How many they are now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was popped with so many bytes is written, or given up.
    pub fn done(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What a driver of a persister finds in its queue.
pub enum Popped {
    /// Something to do, and the bytes that it held: [`Load::done`] is told once it is done.
    Item(Item, usize),
    /// Nothing now; the driver is woken when there is.
    Nothing,
    /// Nothing ever again.
    Closed,
}

/// Items on their way to one persister. Pushed by tasks, which never wait here; popped by one driver.
pub struct Queue {
    state: Mutex<State>,
    wake: Arc<dyn Wake>,
    load: Arc<Load>,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    is_closed: bool,
    /// What is here is dropped by whoever pops.
    is_discarded: bool,
}

impl Queue {
    /// An empty queue, whose driver waits for `wake`.
    pub fn new(wake: Arc<dyn Wake>, load: Arc<Load>) -> Queue {
        Queue { state: Mutex::default(), wake, load }
    }

    /// Puts an item behind the others. Nothing happens where the queue is closed.
    pub fn push(&self, item: Item) {
        {
            let mut state = self.state.lock();
            if state.is_closed {
                return;
            }
            if let Item::Part(task, SnapshotPart::Abandon { checkpoint }) = &item {
                let (freed, is_unknown) = state.abandon(*task, *checkpoint);
                self.load.done(freed);
                if is_unknown {
                    return;
                }
            }
            self.load.add(item.held_bytes());
            state.items.push_back(item);
        }
        self.wake.wake();
    }

    /// Takes the oldest item. Of a queue that is discarded all are dropped here, for as long as that takes.
    pub fn pop(&self) -> Popped {
        let mut state = self.state.lock();
        if state.is_discarded {
            let dropped = std::mem::take(&mut state.items);
            drop(state);
            drop(dropped);
            return Popped::Closed;
        }
        match state.items.pop_front() {
            Some(item) => {
                let bytes = item.held_bytes();
                Popped::Item(item, bytes)
            }
            None if state.is_closed => Popped::Closed,
            None => Popped::Nothing,
        }
    }

    /// Nothing more is taken; what is here is still popped.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake.wake();
    }

    /// Nothing more is taken, and what is here counts no more. It is the driver that drops it: closing a file may wait for a mount, and
    /// whoever says this must not.
    pub fn discard(&self) {
        {
            let mut state = self.state.lock();
            state.is_closed = true;
            if !std::mem::replace(&mut state.is_discarded, true) {
                self.load.done(state.items.iter().map(Item::held_bytes).sum());
            }
        }
        self.wake.wake();
    }
}

impl State {
    /// Drops what was handed over for a checkpoint that is given up, and gives the bytes that it held, and whether nobody will have heard of
    /// it. The sinks' rows stay: those of a checkpoint that died belong to the next one, and a sink whose rows are not made durable is of
    /// no use any more.
    fn abandon(&mut self, task: TaskId, of: CheckpointId) -> (usize, bool) {
        let (mut freed, mut is_unknown) = (0, false);
        self.items.retain_mut(|item| {
            let drop = match item {
                Item::Part(at, SnapshotPart::Begin { checkpoint, state, prepare }) if (*at, *checkpoint) == (task, of) => {
                    *state = TaskState::default();
                    is_unknown = prepare.is_empty();
                    is_unknown
                }
                Item::Part(at, SnapshotPart::Instance { checkpoint, .. })
                | Item::Part(at, SnapshotPart::InFlight { checkpoint, .. })
                | Item::Part(at, SnapshotPart::End { checkpoint }) => (*at, *checkpoint) == (task, of),
                Item::Part(_, SnapshotPart::Begin { .. } | SnapshotPart::Abandon { .. })
                | Item::Committed(..)
                | Item::Completed(_) => false,
            };
            freed += if drop { item.held_bytes() } else { 0 };
            !drop
        });
        (freed, is_unknown)
    }
}

#[cfg(test)]
mod tests {
    use weir_model::{InstanceId, OperatorUid, WATERMARK_START};
    use weir_sandbox::EncodedImage;
    use weir_task::{CapturedState, Signal, SinkPrepare};

    use super::*;

    const TASK: TaskId = TaskId(1);

    struct Page;

    impl CapturedState for Page {
        fn raw_bytes(&self) -> usize {
            4_096
        }

        fn encode(self: Box<Self>, _: &mut EncodedImage) {}

        fn merge(self: Box<Self>, _: &[&[u8]], _: &mut EncodedImage) -> Result<(), String> {
            Ok(())
        }
    }

    fn queue() -> (Queue, Arc<Load>) {
        let load = Arc::new(Load::default());
        (Queue::new(Arc::new(Signal::default()), load.clone()), load)
    }

    fn hand_over(queue: &Queue, checkpoint: u64) {
        hand_over_with(queue, checkpoint, Vec::new());
    }

    fn hand_over_with(queue: &Queue, checkpoint: u64, prepare: Vec<(OperatorUid, SinkPrepare)>) {
        let checkpoint = CheckpointId(checkpoint);
        let state = TaskState { watermarks: vec![0; 9], ..TaskState::default() };
        queue.push(Item::Part(TASK, SnapshotPart::Begin { checkpoint, state, prepare }));
        let (uid, instance) = ("count".into(), InstanceId::Subtask(0));
        let (capture, watermark, finished) = (Some(Box::new(Page) as Box<dyn CapturedState>), WATERMARK_START, false);
        queue.push(Item::Part(TASK, SnapshotPart::Instance { checkpoint, uid, instance, capture, watermark, finished }));
        queue.push(Item::Part(TASK, SnapshotPart::End { checkpoint }));
    }

    fn popped(queue: &Queue) -> Vec<&'static str> {
        let mut found = Vec::new();
        while let Popped::Item(item, _) = queue.pop() {
            found.push(match item {
                Item::Part(_, SnapshotPart::Begin { .. }) => "begin",
                Item::Part(_, SnapshotPart::Instance { .. }) => "instance",
                Item::Part(_, SnapshotPart::InFlight { .. }) => "in flight",
                Item::Part(_, SnapshotPart::End { .. }) => "end",
                Item::Part(_, SnapshotPart::Abandon { .. }) => "abandon",
                Item::Committed(..) => "committed",
                Item::Completed(_) => "completed",
            });
        }
        found
    }

    #[test]
    fn s86_checkpoints_that_are_given_up_while_storage_hangs_leave_nothing_that_grows() {
        let (queue, load) = queue();
        for checkpoint in 1..=1_000 {
            hand_over(&queue, checkpoint);
            assert_eq!(load.bytes(), 4_096, "one snapshot waits");
            queue.push(Item::Part(TASK, SnapshotPart::Abandon { checkpoint: CheckpointId(checkpoint) }));
            assert_eq!(load.bytes(), 0);
        }
        hand_over(&queue, 1_001);
        assert_eq!(popped(&queue), ["begin", "instance", "end"]);
    }

    #[test]
    fn of_a_checkpoint_that_is_given_up_the_rows_of_its_sinks_are_kept_and_nothing_else() {
        let (queue, _) = queue();
        let prepare: SinkPrepare = Box::new(|| Ok(None));
        hand_over_with(&queue, 1, vec![("out".into(), prepare)]);
        queue.push(Item::Part(TASK, SnapshotPart::Abandon { checkpoint: CheckpointId(1) }));
        let Popped::Item(Item::Part(_, SnapshotPart::Begin { state, prepare, .. }), _) = queue.pop() else { panic!() };
        assert_eq!((state.watermarks.len(), prepare.len()), (0, 1));
        assert_eq!(popped(&queue), ["abandon"]);
        // Of one that is begun already, whoever has begun it hears.
        hand_over(&queue, 2);
        assert!(matches!(queue.pop(), Popped::Item(Item::Part(_, SnapshotPart::Begin { .. }), _)));
        queue.push(Item::Part(TASK, SnapshotPart::Abandon { checkpoint: CheckpointId(2) }));
        assert_eq!(popped(&queue), ["abandon"]);
    }

    #[test]
    fn another_task_keeps_what_it_has_handed_over() {
        let (queue, _) = queue();
        hand_over(&queue, 1);
        queue.push(Item::Part(TaskId(2), SnapshotPart::Abandon { checkpoint: CheckpointId(1) }));
        queue.push(Item::Part(TASK, SnapshotPart::Abandon { checkpoint: CheckpointId(2) }));
        assert_eq!(popped(&queue), ["begin", "instance", "end", "abandon", "abandon"]);
    }

    #[test]
    fn what_is_discarded_is_dropped_by_the_driver_of_the_queue_and_not_by_who_says_so() {
        struct Slow(Arc<AtomicUsize>);

        impl Drop for Slow {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        let (queue, _) = queue();
        let dropped = Arc::new(AtomicUsize::new(0));
        let slow = Slow(dropped.clone());
        let prepare: SinkPrepare = Box::new(move || {
            drop(slow);
            Ok(None)
        });
        let (checkpoint, state) = (CheckpointId(1), TaskState::default());
        queue.push(Item::Part(TASK, SnapshotPart::Begin { checkpoint, state, prepare: vec![("out".into(), prepare)] }));
        queue.discard();
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "it may take for ever");
        assert!(matches!(queue.pop(), Popped::Closed));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_discarded_counts_no_more_and_nothing_comes_after() {
        let (queue, load) = queue();
        hand_over(&queue, 1);
        queue.discard();
        hand_over(&queue, 2);
        assert!(matches!(queue.pop(), Popped::Closed));
        assert_eq!(load.bytes(), 0);
    }
}
