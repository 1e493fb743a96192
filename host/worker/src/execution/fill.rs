//! Instances of a checkpoint on their way into their tasks, which run meanwhile: a few lanes read images, make instances of them and
//! hand them over. Those that rows wait for come first.
//!
//! Owns what is still to be read and how far that is. Whatever is damaged in an image shows here and ends the execution; nothing that
//! it has done counts then, since no checkpoint begins before all instances are with their tasks.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use weir_model::TaskId;
use weir_storage::{JobStorage, Segment};
use weir_task::{Arrival, InstanceFactory, OperatorInstance, RestoredInstance, Turn, Wake};

use super::failure::{OfOperator, Trouble};
use super::lanes::SeatedLane;
use super::prepare::PreparedJob;
use super::restore::Factories;
use super::voice::Voice;
use crate::WorkerOptions;
use crate::executor::{Actor, Place, PlaceRole, Seat};

/// Instances that come back, by vertex and subtask.
pub(super) type InstancesBySubtask = BTreeMap<(usize, u32), Vec<RestoredInstance>>;

/// The instances of an execution that are to be read here.
pub(super) struct Fill {
    storage: JobStorage,
    wanted: Vec<Item>,
    queue: Mutex<Queue>,
    bytes: Arc<FillBytes>,
}

/// Stored bytes of instances.
pub(super) struct FillBytes {
    /// Of those that are whole.
    restored: AtomicU64,
    /// Of all.
    all: u64,
}

/// One of the instances that are to be read.
struct Item {
    uid: String,
    /// Its images, oldest first.
    images: Vec<Segment>,
    factory: Arc<dyn InstanceFactory>,
    /// Wakes its task.
    wake: Arc<dyn Wake>,
    /// It, from when it is whole until its task takes it.
    instance: Mutex<Option<Box<dyn OperatorInstance>>>,
}

/// What is still to be read, by number.
struct Queue {
    /// Those that rows wait for, in that order.
    hurried: VecDeque<usize>,
    /// Of the others, those from this one on.
    next: usize,
    /// Those that a lane has, or had, or will take from `hurried`.
    is_chosen: Vec<bool>,
    is_closed: bool,
}

impl Fill {
    /// All instances of the checkpoint that fall to tasks here, and what their tasks know of them.
    pub(super) fn new(
        job: &PreparedJob,
        factories: &Factories,
        seats: &BTreeMap<TaskId, Box<dyn Seat>>,
    ) -> (Arc<Fill>, InstancesBySubtask) {
        let (mut wanted, mut coming) = (Vec::new(), Vec::new());
        for (task, chain, subtask) in job.subtasks() {
            for &vertex in &job.topology.chains()[chain].vertices {
                for (id, state) in job.instances_of(vertex, subtask) {
                    let (uid, images) = (job.job.vertices[vertex].uid.clone(), state.memory().to_vec());
                    let (factory, wake) = (factories[&vertex].clone(), seats[&task].wake());
                    wanted.push(Item { uid, images, factory, wake, instance: Mutex::default() });
                    coming.push(((vertex, subtask), id, state.watermark, state.finished));
                }
            }
        }
        let bytes = |of: &Item| of.images.iter().map(|image| image.length).sum::<u64>();
        let queue = Queue { hurried: VecDeque::new(), next: 0, is_chosen: vec![false; wanted.len()], is_closed: false };
        let fill = Arc::new(Fill {
            storage: job.storage.clone(),
            bytes: Arc::new(FillBytes { restored: AtomicU64::new(0), all: wanted.iter().map(bytes).sum() }),
            queue: Mutex::new(queue),
            wanted,
        });
        let mut restored = InstancesBySubtask::new();
        for (number, (place, id, watermark, finished)) in coming.into_iter().enumerate() {
            let instance = Box::new(Way { fill: fill.clone(), number });
            restored.entry(place).or_default().push(RestoredInstance { id, instance, watermark, finished });
        }
        (fill, restored)
    }

    /// Those who read; none where there is nothing to read.
    pub(super) fn lanes(self: &Arc<Fill>, voice: &Arc<Voice>, options: &WorkerOptions) -> Vec<SeatedLane> {
        let count = options.executor.lanes().min(self.wanted.len());
        let lane = |number| {
            let (execution, name) = (voice.execution().clone(), format!("restore-{number}"));
            let place = Place { execution, role: PlaceRole::Fill(number), name };
            let seat = options.executor.seat(&place);
            SeatedLane { place, seat, actor: Box::new(FillLane { fill: self.clone(), voice: voice.clone() }) }
        };
        (0..count).map(lane).collect()
    }

    /// Begins no more; the lanes are over then.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
    }

    /// How far it is.
    pub(super) fn bytes(&self) -> &Arc<FillBytes> {
        &self.bytes
    }

    /// Reads one instance and hands it over.
    fn fill(&self, number: usize) -> Result<(), Trouble> {
        let Item { uid, images, factory, wake, instance } = &self.wanted[number];
        // Twice, as where a checkpoint is chosen: damage that heals at once is none, and this checkpoint would be given up for good.
        let read = |segment| self.storage.read(segment).or_else(|_| self.storage.read(segment));
        let read = images.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let read: Vec<&[u8]> = read.iter().map(Deref::deref).collect();
        // One without images is as its template: it was never called, or keeps no state.
        let made = if read.is_empty() { factory.instantiate() } else { factory.restore(&read) };
        *instance.lock() = Some(made.map_err(|error| OfOperator(uid, error))?);
        self.bytes.restored.fetch_add(images.iter().map(|image| image.length).sum(), Ordering::Relaxed);
        wake.wake();
        Ok(())
    }
}

impl FillBytes {
    /// Those that are whole, and all.
    pub(super) fn read(&self) -> (u64, u64) {
        (self.restored.load(Ordering::Relaxed), self.all)
    }
}

impl Queue {
    fn pop(&mut self) -> Option<usize> {
        if self.is_closed {
            return None;
        }
        if let Some(number) = self.hurried.pop_front() {
            return Some(number);
        }
        while let Some(is_chosen) = self.is_chosen.get_mut(self.next) {
            self.next += 1;
            if !std::mem::replace(is_chosen, true) {
                return Some(self.next - 1);
            }
        }
        None
    }

    fn hurry(&mut self, number: usize) {
        if !std::mem::replace(&mut self.is_chosen[number], true) {
            self.hurried.push_back(number);
        }
    }
}

/// An instance, as its task waits for it.
struct Way {
    fill: Arc<Fill>,
    number: usize,
}

impl Arrival<dyn OperatorInstance> for Way {
    fn take(&mut self) -> Option<Box<dyn OperatorInstance>> {
        self.fill.wanted[self.number].instance.lock().take()
    }

    fn hurry(&self) {
        self.fill.queue.lock().hurry(self.number);
    }
}

struct FillLane {
    fill: Arc<Fill>,
    voice: Arc<Voice>,
}

impl Actor for FillLane {
    fn turn(&mut self) -> Turn {
        // In a statement of its own: rows are to be able to hurry another one while this one is read.
        let next = self.fill.queue.lock().pop();
        let Some(number) = next else { return Turn::Over };
        match self.fill.fill(number) {
            Ok(()) => Turn::Go,
            Err(trouble) => {
                self.voice.failed(trouble);
                self.fill.close();
                Turn::Over
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s112_what_rows_wait_for_comes_first_and_everything_once() {
        let mut queue = Queue { hurried: VecDeque::new(), next: 0, is_chosen: vec![false; 6], is_closed: false };
        assert_eq!(queue.pop(), Some(0));
        [4, 0, 3, 4].into_iter().for_each(|number| queue.hurry(number));
        let rest: Vec<usize> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [4, 3, 1, 2, 5]);
        queue.hurry(5);
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn what_is_closed_begins_nothing_more() {
        let mut queue = Queue { hurried: VecDeque::new(), next: 0, is_chosen: vec![false; 2], is_closed: false };
        queue.hurry(1);
        queue.is_closed = true;
        assert_eq!(queue.pop(), None);
    }
}
