//! The instances of one operator in one task: one per key group on keyed inputs, else one.
//!
//! Owns the order of captures: an instance is captured right before its next call after a barrier, or in the background
//! of the loop, whichever comes first, so no pause is longer than one instance's dirty pages.

use std::sync::Arc;
use std::time::Duration;

use weir_model::{
    BatchRef, CheckpointId, InstanceId, KeyGroup, KeyGroupRange, OperatorUid, Timestamp, WATERMARK_END, WATERMARK_START, limits,
};
use weir_sandbox::{CallError, EmittedRows, KeyShare, Rejection, SandboxError, TrapKind};

use crate::TaskError;
use crate::arrival::{Arrival, Berth};
use crate::clock::Clock;
use crate::pace::{CallRows, Pace};
use crate::report::CapturedState;
use crate::stats::TaskStats;

/// One instance, as a task sees it.
pub trait OperatorInstance: Send {
    /// Rows in; emitted rows and rejections out.
    fn process(&mut self, input: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError>;
    /// Event time has reached a watermark.
    fn advance(&mut self, watermark: Timestamp, emitted: &mut EmittedRows) -> Result<(), CallError>;
    /// All inputs have ended.
    fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError>;
    /// What changed since the last completed checkpoint.
    fn capture(&mut self, checkpoint: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError>;
    /// A checkpoint is complete.
    fn checkpoint_completed(&mut self, checkpoint: CheckpointId);
    /// All rows that it is given are of this key group, of so many: what it emits under a key that it should have kept is checked by that.
    fn keep_to(&mut self, _group: KeyGroup, _key_groups: u16) {}
}

impl OperatorInstance for weir_sandbox::Instance {
    fn process(&mut self, input: u32, rows: BatchRef<'_>, emitted: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
        weir_sandbox::Instance::process(self, input, rows, emitted)
    }

    fn advance(&mut self, watermark: Timestamp, emitted: &mut EmittedRows) -> Result<(), CallError> {
        weir_sandbox::Instance::advance(self, watermark, emitted)
    }

    fn finish(&mut self, emitted: &mut EmittedRows) -> Result<(), CallError> {
        weir_sandbox::Instance::finish(self, emitted)
    }

    fn capture(&mut self, checkpoint: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
        if self.is_stateless() {
            return Ok(None);
        }
        let capture = weir_sandbox::Instance::capture(self, checkpoint)?;
        Ok(Some(Box::new(capture)))
    }

    fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        weir_sandbox::Instance::checkpoint_completed(self, checkpoint);
    }

    fn keep_to(&mut self, group: KeyGroup, key_groups: u16) {
        let keyed_inputs = vec![true; limits::PORTS_MAX];
        weir_sandbox::Instance::keep_to(self, KeyShare { group, key_groups, keyed_inputs });
    }
}

/// Makes instances as they are right after `open`.
pub trait InstanceFactory: Send + Sync {
    /// A new instance.
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError>;

    /// An instance as its captures have it: encoded, oldest first, at least one.
    fn restore(&self, images: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError>;

    /// The number of key groups, where an instance is given no rows but those of its own; `None`: of any.
    fn key_groups(&self) -> Option<u16> {
        None
    }
}

/// Makes instances that are given no rows but those of their key group, of so many: all that comes to the operator is divided by key.
pub struct KeyedTemplate(pub weir_sandbox::Template, pub u16);

impl InstanceFactory for KeyedTemplate {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.0.instantiate()
    }

    fn restore(&self, images: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        self.0.restore(images)
    }

    fn key_groups(&self) -> Option<u16> {
        Some(self.1)
    }
}

impl InstanceFactory for weir_sandbox::Template {
    fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        Ok(Box::new(weir_sandbox::Instance::new(self)?))
    }

    fn restore(&self, images: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
        Ok(Box::new(weir_sandbox::Instance::restore(self, images)?))
    }
}

/// An instance that comes back from a checkpoint. Its task begins before it is there.
pub struct RestoredInstance {
    /// Which one.
    pub id: InstanceId,
    /// Its way into the task.
    pub instance: Box<dyn Arrival<dyn OperatorInstance>>,
    /// The last watermark it was told.
    pub watermark: Timestamp,
    /// It was told that all inputs have ended.
    pub finished: bool,
}

/// What becomes of instances that were told the end of their inputs, if more comes all the same: a job that had finished goes
/// on where its sources have more, and a source may have more at a resume while others never ended.
#[derive(Clone, Copy, Debug)]
pub struct AfterEnd {
    /// The greatest event time that was read before the end. They are told it as the watermark, and go on from there: what the
    /// end has closed up to it stays closed.
    pub event_time_max: Timestamp,
    /// More comes for certain: all of them go on before anything else. Otherwise they go on once something comes.
    pub more: bool,
}

/// What an operator measures with.
#[derive(Clone)]
pub(crate) struct Meters {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stats: Arc<TaskStats>,
}

/// One captured instance.
pub(crate) struct InstanceCapture {
    pub(crate) id: InstanceId,
    pub(crate) capture: Option<Box<dyn CapturedState>>,
    pub(crate) watermark: Timestamp,
    pub(crate) finished: bool,
}

struct Slot {
    instance: Berth<dyn OperatorInstance>,
    watermark: Timestamp,
    finished: bool,
    /// Calls so far, the calls when captures were taken, and those that the last completed checkpoint holds.
    calls: u64,
    captured: Vec<(CheckpointId, u64)>,
    completed_calls: u64,
}

/// A snapshot that is being taken.
struct CaptureRound {
    checkpoint: CheckpointId,
    /// Slots at or above this one may still have to be captured in the background.
    next: usize,
    done: Vec<bool>,
    remaining: usize,
}

/// All instances of an operator in a task.
pub(crate) struct Operator {
    uid: OperatorUid,
    factory: Arc<dyn InstanceFactory>,
    /// Owned key groups, or the subtask's index.
    keys: Keys,
    slots: Vec<Option<Slot>>,
    capturing: Option<CaptureRound>,
    captured: Vec<InstanceCapture>,
    watermark: Timestamp,
    after_end: AfterEnd,
    pace: Pace,
    call_rows: Arc<CallRows>,
    clock: Arc<dyn Clock>,
    stats: Arc<TaskStats>,
}

#[derive(Clone, Copy)]
enum Keys {
    Groups(KeyGroupRange),
    Subtask(u32),
}

/// What a call gave.
pub(crate) struct Call<'a> {
    pub(crate) emitted: &'a mut EmittedRows,
    /// Rejected rows, with the row's number within the rows given.
    pub(crate) rejections: &'a mut Vec<Rejection>,
}

impl Operator {
    /// A keyed operator has an instance per owned key group, made when its first row comes.
    pub(crate) fn keyed(uid: OperatorUid, factory: Arc<dyn InstanceFactory>, groups: KeyGroupRange, meters: Meters) -> Operator {
        Operator::new(uid, factory, Keys::Groups(groups), groups.len(), meters)
    }

    /// Any other operator has one instance.
    pub(crate) fn single(uid: OperatorUid, factory: Arc<dyn InstanceFactory>, subtask: u32, meters: Meters) -> Operator {
        Operator::new(uid, factory, Keys::Subtask(subtask), 1, meters)
    }

    fn new(uid: OperatorUid, factory: Arc<dyn InstanceFactory>, keys: Keys, slots: usize, meters: Meters) -> Operator {
        Operator {
            uid,
            factory,
            keys,
            slots: std::iter::repeat_with(|| None).take(slots).collect(),
            capturing: None,
            captured: Vec::new(),
            watermark: WATERMARK_START,
            after_end: AfterEnd { event_time_max: WATERMARK_START, more: false },
            pace: Pace::default(),
            call_rows: Arc::default(),
            clock: meters.clock,
            stats: meters.stats,
        }
    }

    /// What is known of calls of earlier executions.
    pub(crate) fn set_call_rows(&mut self, call_rows: Arc<CallRows>) {
        self.call_rows = call_rows;
    }

    /// Puts instances of a checkpoint in place, before the first call.
    pub(crate) fn restore(&mut self, instances: Vec<RestoredInstance>, after_end: AfterEnd) {
        self.after_end = after_end;
        // Instances may come from subtasks that were told different watermarks. One that is made later must not find rows
        // late that were not, so it starts from the least.
        self.watermark = instances.iter().map(|restored| restored.watermark).min().unwrap_or(WATERMARK_START);
        // If more comes after an end all the same, that is no end to one that is made later.
        if self.watermark == WATERMARK_END {
            self.watermark = after_end.event_time_max;
        }
        for restored in instances {
            let slot = match (self.keys, restored.id) {
                (Keys::Groups(groups), InstanceId::KeyGroup(group)) if groups.contains(group) => {
                    usize::from(group - groups.start)
                }
                (Keys::Subtask(index), InstanceId::Subtask(of)) if index == of => 0,
                (_, id) => unreachable!("{id} of operator {} was deployed to a task that does not own it", self.uid),
            };
            self.slots[slot] = Some(Slot {
                instance: Berth::Coming(restored.instance),
                watermark: restored.watermark,
                finished: restored.finished,
                calls: 0,
                captured: Vec::new(),
                completed_calls: 0,
            });
        }
    }

    /// Takes in instances that have come from the checkpoint. Says whether all are here.
    pub(crate) fn look(&mut self) -> bool {
        let (keys, key_groups, mut all) = (self.keys, self.factory.key_groups(), true);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            let was_coming = matches!(slot.instance, Berth::Coming(_));
            let is_here = slot.instance.look();
            if was_coming && is_here {
                keep_to(keys, key_groups, index, slot.instance.instance());
            }
            all &= is_here;
        }
        all
    }

    /// Whether the instance of a slot is here, or none is to come.
    pub(crate) fn is_here(&self, slot: usize) -> bool {
        !matches!(&self.slots[slot], Some(Slot { instance: Berth::Coming(_), .. }))
    }

    /// What comes next is for this slot, or for all.
    pub(crate) fn hurry(&self, slot: usize) {
        if let Some(slot) = &self.slots[slot] {
            slot.instance.hurry();
        }
    }

    /// Whether its instances are called before anything is read.
    pub(crate) fn calls_first(&self) -> bool {
        self.after_end.more
    }

    /// Event time has reached a watermark, of which instances are told later, each before its next rows.
    pub(crate) fn note(&mut self, watermark: Timestamp) {
        self.watermark = self.watermark.max(watermark);
    }

    pub(crate) fn uid(&self) -> &OperatorUid {
        &self.uid
    }

    /// Slot of the instance that a key group's rows belong to.
    pub(crate) fn slot_of(&self, group: KeyGroup) -> usize {
        match self.keys {
            Keys::Groups(groups) => usize::from(group - groups.start),
            Keys::Subtask(_) => 0,
        }
    }

    /// The key groups of some slots, where slots are key groups.
    pub(crate) fn groups_of(&self, slots: std::ops::Range<usize>) -> Option<KeyGroupRange> {
        match self.keys {
            Keys::Groups(groups) => {
                Some(KeyGroupRange { start: groups.start + slots.start as u16, end: groups.start + slots.end as u16 })
            }
            Keys::Subtask(_) => None,
        }
    }

    /// Number of slots; broadcast rows go to each.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Calls the instance once, with rows from `first` on, as many as take about [`limits::CALL_TARGET_MS`]. Gives how many.
    pub(crate) fn process(
        &mut self,
        slot: usize,
        input: u32,
        rows: BatchRef<'_>,
        first: usize,
        call: &mut Call<'_>,
    ) -> Result<usize, TaskError> {
        self.before_call(slot, call.emitted)?;
        let part = self.pace.take(rows, first, self.call_rows.max());
        let count = part.len();
        if count == 0 {
            return Ok(0);
        }
        let instance = self.slots[slot].as_mut().expect("made before the call");
        instance.calls += 1;
        let rejected = instance.instance.instance().process(input, part, call.emitted).map_err(|error| {
            if matches!(&error, CallError::Trapped(trap) if trap.kind == TrapKind::Deadline) {
                self.call_rows.were_too_many(count);
            }
            TaskError::call(&self.uid, &error)
        })?;
        self.call_rows.were_fine(count);
        for mut rejection in rejected {
            if rejection.row as usize >= count {
                return Err(TaskError::Operator {
                    uid: self.uid.clone(),
                    reason: format!("it rejected row {} of a batch of {count} rows", rejection.row),
                });
            }
            rejection.row += first as u32;
            call.rejections.push(rejection);
        }
        Ok(count)
    }

    /// Before the first call, where more comes after the end: all instances go on.
    pub(crate) fn begin(&mut self, emitted: &mut EmittedRows) -> Result<(), TaskError> {
        if self.after_end.more {
            (0..self.slots.len()).try_for_each(|slot| self.go_on(slot, emitted))?;
        }
        Ok(())
    }

    /// An instance that was told the end goes on: event time is again where its input had ended. One at a time, since others may be
    /// at their end for good: what was in flight to one subtask and what another had finished may be in one task now.
    fn go_on(&mut self, index: usize, emitted: &mut EmittedRows) -> Result<(), TaskError> {
        if self.slots[index].as_ref().is_none_or(|slot| !slot.finished && slot.watermark < WATERMARK_END) {
            return Ok(());
        }
        self.capture_if_due(index)?;
        let watermark = self.after_end.event_time_max;
        let uid = &self.uid;
        let slot = self.slots[index].as_mut().expect("checked above");
        slot.calls += 1;
        (slot.finished, slot.watermark) = (false, watermark);
        slot.instance.instance().advance(watermark, emitted).map_err(|error| TaskError::call(uid, &error))
    }

    /// Tells one instance the watermark, if that is news to it. Instances that do not exist yet are told before their first
    /// rows. Gives whether the instance was called.
    pub(crate) fn advance(&mut self, slot: usize, watermark: Timestamp, emitted: &mut EmittedRows) -> Result<bool, TaskError> {
        self.note(watermark);
        if self.slots[slot].as_ref().is_none_or(|slot| slot.watermark >= watermark || slot.finished) {
            return Ok(false);
        }
        self.capture_if_due(slot)?;
        let uid = &self.uid;
        let slot = self.slots[slot].as_mut().expect("checked above");
        slot.calls += 1;
        slot.watermark = watermark;
        slot.instance.instance().advance(watermark, emitted).map_err(|error| TaskError::call(uid, &error))?;
        Ok(true)
    }

    /// Tells one instance that all inputs have ended, once. Gives whether the instance was called.
    pub(crate) fn finish(&mut self, slot: usize, emitted: &mut EmittedRows) -> Result<bool, TaskError> {
        if self.slots[slot].as_ref().is_none_or(|slot| slot.finished) {
            return Ok(false);
        }
        self.capture_if_due(slot)?;
        let uid = &self.uid;
        let slot = self.slots[slot].as_mut().expect("checked above");
        slot.calls += 1;
        slot.finished = true;
        slot.instance.instance().finish(emitted).map_err(|error| TaskError::call(uid, &error))?;
        Ok(true)
    }

    fn before_call(&mut self, slot: usize, emitted: &mut EmittedRows) -> Result<(), TaskError> {
        // Its input had ended, or event time had while it was captured, and its source reads on.
        let goes_on = self.watermark < WATERMARK_END;
        if self.slots[slot].as_ref().is_some_and(|slot| slot.finished || goes_on && slot.watermark == WATERMARK_END) {
            self.go_on(slot, emitted)?;
        }
        self.ensure(slot)?;
        self.capture_if_due(slot)?;
        self.advance(slot, self.watermark, emitted).map(drop)
    }

    /// Makes an instance where there is none.
    pub(crate) fn ensure(&mut self, slot: usize) -> Result<(), TaskError> {
        if self.slots[slot].is_some() {
            return Ok(());
        }
        let made = self.factory.instantiate();
        let mut instance = made.map_err(|error| TaskError::Sandbox { uid: self.uid.clone(), error })?;
        keep_to(self.keys, self.factory.key_groups(), slot, &mut *instance);
        self.slots[slot] = Some(Slot {
            instance: Berth::Here(instance),
            watermark: WATERMARK_START,
            finished: false,
            calls: 1,
            captured: Vec::new(),
            completed_calls: 0,
        });
        if let Some(capturing) = &mut self.capturing {
            // Made after the barrier: it is no part of the snapshot.
            capturing.mark_done(slot);
        }
        Ok(())
    }

    /// A call with this many rows, and all that came of it, took so long.
    pub(crate) fn learn(&mut self, rows: usize, took: Duration) {
        self.pace.learn(rows, took);
    }

    /// Begins a snapshot: every instance that exists now is to be captured before its next call.
    pub(crate) fn begin_capture(&mut self, checkpoint: CheckpointId) -> Result<(), TaskError> {
        while self.capture_next()? {}
        let done: Vec<bool> = self.slots.iter().map(Option::is_none).collect();
        let remaining = done.iter().filter(|done| !**done).count();
        self.capturing = Some(CaptureRound { checkpoint, next: 0, done, remaining });
        Ok(())
    }

    /// Captures one more instance. Returns whether there was one.
    pub(crate) fn capture_next(&mut self) -> Result<bool, TaskError> {
        let Some(capturing) = &mut self.capturing else { return Ok(false) };
        while capturing.next < capturing.done.len() && capturing.done[capturing.next] {
            capturing.next += 1;
        }
        let slot = capturing.next;
        if slot == capturing.done.len() {
            return Ok(false);
        }
        self.capture(slot)?;
        Ok(true)
    }

    /// Whether every instance is captured.
    pub(crate) fn is_captured(&self) -> bool {
        self.capturing.as_ref().is_none_or(|capturing| capturing.remaining == 0)
    }

    /// The captures taken since the last call.
    pub(crate) fn take_captured(&mut self) -> std::vec::Drain<'_, InstanceCapture> {
        self.captured.drain(..)
    }

    /// Whether captures were taken that nobody has fetched.
    pub(crate) fn has_captured(&self) -> bool {
        !self.captured.is_empty()
    }

    /// Ends a snapshot, taken or dead.
    pub(crate) fn end_capture(&mut self) {
        self.capturing = None;
        self.captured.clear();
    }

    /// A checkpoint is complete: what it holds need not be captured again.
    pub(crate) fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        for slot in self.slots.iter_mut().flatten() {
            if let Berth::Here(instance) = &mut slot.instance {
                instance.checkpoint_completed(checkpoint);
            }
            if let Some(&(_, calls)) = slot.captured.iter().rev().find(|(id, _)| *id <= checkpoint) {
                slot.completed_calls = slot.completed_calls.max(calls);
            }
            slot.captured.retain(|(id, _)| *id > checkpoint);
        }
    }

    fn capture_if_due(&mut self, slot: usize) -> Result<(), TaskError> {
        match &self.capturing {
            Some(capturing) if !capturing.done[slot] => {
                let started = self.clock.now();
                self.capture(slot)?;
                self.stats.pauses.record(self.clock.now().saturating_sub(started));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn capture(&mut self, index: usize) -> Result<(), TaskError> {
        let Some(capturing) = &mut self.capturing else { return Ok(()) };
        let Some(slot) = self.slots[index].as_mut() else { return Ok(()) };
        let checkpoint = capturing.checkpoint;
        // An instance that was not called since the last completed checkpoint is as that checkpoint holds it; so is one that is not
        // here yet.
        let capture = if slot.calls == slot.completed_calls {
            None
        } else {
            slot.instance.instance().capture(checkpoint).map_err(|error| TaskError::Sandbox { uid: self.uid.clone(), error })?
        };
        slot.captured.push((checkpoint, slot.calls));
        let id = match self.keys {
            Keys::Groups(groups) => InstanceId::KeyGroup(groups.start + index as u16),
            Keys::Subtask(index) => InstanceId::Subtask(index),
        };
        self.captured.push(InstanceCapture { id, capture, watermark: slot.watermark, finished: slot.finished });
        capturing.mark_done(index);
        Ok(())
    }
}

impl CaptureRound {
    fn mark_done(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.done[slot], true) {
            self.remaining -= 1;
        }
    }
}

/// Tells the instance of a slot which keys it is given, where it is given no others.
fn keep_to(keys: Keys, key_groups: Option<u16>, slot: usize, instance: &mut dyn OperatorInstance) {
    if let (Keys::Groups(groups), Some(key_groups)) = (keys, key_groups) {
        instance.keep_to(groups.start + slot as u16, key_groups);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use super::*;
    use crate::clock::SystemClock;

    type Told = Arc<Mutex<Vec<(KeyGroup, u16)>>>;

    /// Remembers which keys it was told that it is given.
    struct Listener(Told);

    impl OperatorInstance for Listener {
        fn process(&mut self, _: u32, _: BatchRef<'_>, _: &mut EmittedRows) -> Result<Vec<Rejection>, CallError> {
            Ok(Vec::new())
        }

        fn advance(&mut self, _: Timestamp, _: &mut EmittedRows) -> Result<(), CallError> {
            Ok(())
        }

        fn finish(&mut self, _: &mut EmittedRows) -> Result<(), CallError> {
            Ok(())
        }

        fn capture(&mut self, _: CheckpointId) -> Result<Option<Box<dyn CapturedState>>, SandboxError> {
            Ok(None)
        }

        fn checkpoint_completed(&mut self, _: CheckpointId) {}

        fn keep_to(&mut self, group: KeyGroup, key_groups: u16) {
            self.0.lock().unwrap().push((group, key_groups));
        }
    }

    struct Factory(Told, Option<u16>);

    impl InstanceFactory for Factory {
        fn instantiate(&self) -> Result<Box<dyn OperatorInstance>, SandboxError> {
            Ok(Box::new(Listener(self.0.clone())))
        }

        fn restore(&self, _: &[&[u8]]) -> Result<Box<dyn OperatorInstance>, SandboxError> {
            self.instantiate()
        }

        fn key_groups(&self) -> Option<u16> {
            self.1
        }
    }

    #[test]
    fn s113_each_instance_is_told_its_key_group_where_it_is_given_no_other_keys() {
        for key_groups in [Some(128), None] {
            let told = Told::default();
            let factory = Arc::new(Factory(told.clone(), key_groups));
            let meters = Meters { clock: Arc::new(SystemClock::default()), stats: Arc::default() };
            let groups = KeyGroupRange { start: 64, end: 96 };
            let mut operator = Operator::keyed(OperatorUid::from("count"), factory.clone(), groups, meters);
            let restored = RestoredInstance {
                id: InstanceId::KeyGroup(70),
                instance: Box::new(Some(factory.instantiate().unwrap())),
                watermark: WATERMARK_START,
                finished: false,
            };
            operator.restore(vec![restored], AfterEnd { event_time_max: WATERMARK_START, more: false });
            assert!(operator.look() && operator.look());
            operator.ensure(2).unwrap();
            operator.ensure(6).unwrap();
            let expected: &[_] = if key_groups.is_some() { &[(70, 128), (66, 128)] } else { &[] };
            assert_eq!(*told.lock().unwrap(), expected);
        }
    }
}
