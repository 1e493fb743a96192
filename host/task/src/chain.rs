//! What one task runs after its input: operators and sinks joined by forward edges, and the routers at their ends.
//!
//! Rows, watermarks and the end go depth first through the chain. Outputs of a call are gathered during the call and
//! passed on after it, so no guest frame is on the stack when rows move.

use std::time::Duration;

use weir_channel::Frame;
use weir_model::{Barrier, Batch, BatchRef, CheckpointId, KeyGroup, KeyGroupRange, OperatorUid, Timestamp};
use weir_sandbox::{EmittedRows, Rejection};

use crate::TaskError;
use crate::dead_letter;
use crate::node::{Node, NodeKind, OnReject, Target};
use crate::odd_rows;
use crate::operator::{Call, Operator};
use crate::report::SinkPrepare;
use crate::router::Router;
use crate::stats;
use crate::worth::Worth;

/// The nodes of a task and the edges that leave it.
pub(crate) struct Chain {
    nodes: Vec<Node>,
    routers: Vec<Router>,
    /// Buffers for what calls emit, used again from call to call.
    spare: Vec<EmittedRows>,
}

impl Chain {
    pub(crate) fn new(nodes: Vec<Node>, routers: Vec<Router>) -> Chain {
        Chain { nodes, routers, spare: Vec::new() }
    }

    /// Before anything else: operators whose input had ended and has more go on.
    pub(crate) fn begin(&mut self) -> Result<(), TaskError> {
        for node in 0..self.nodes.len() {
            let NodeKind::Operator(operator) = &mut self.nodes[node].kind else { continue };
            let mut emitted = self.spare.pop().unwrap_or_default();
            operator.begin(&mut emitted)?;
            self.emitted(node, emitted)?;
        }
        Ok(())
    }

    /// Passes rows on. Their columns may be taken; the caller clears them.
    pub(crate) fn send(&mut self, targets: &[Target], rows: &mut Batch) -> Result<(), TaskError> {
        let Some((&last, others)) = targets.split_last() else { return Ok(()) };
        for &target in others {
            match target {
                Target::Node { node, input } => self.rows(node, input, rows.view())?,
                Target::Router(router) => self.routers[router].push(&mut rows.clone()),
            }
        }
        match last {
            Target::Node { node, input } => self.rows(node, input, rows.view())?,
            Target::Router(router) => self.routers[router].push(rows),
        }
        Ok(())
    }

    /// Rows for a node. Rows that are not divided by key group reach every instance of a keyed operator (broadcast).
    pub(crate) fn rows(&mut self, node: usize, input: u32, rows: BatchRef<'_>) -> Result<(), TaskError> {
        self.count_in(node, rows.len());
        for slot in 0..self.slots(node) {
            let mut first = 0;
            while first < rows.len() {
                first += self.some_rows(node, slot, input, rows, first)?;
            }
        }
        Ok(())
    }

    /// Calls a node once, with rows from `first` on, and passes on what comes of it. Gives how many it took: at least one.
    pub(crate) fn some_rows(
        &mut self,
        node: usize,
        slot: usize,
        input: u32,
        rows: BatchRef<'_>,
        first: usize,
    ) -> Result<usize, TaskError> {
        let n = &mut self.nodes[node];
        let operator = match &mut n.kind {
            NodeKind::Sink(sink) => {
                let count = sink.write(rows, first).map_err(TaskError::connector(&n.uid))?;
                stats::add(&n.stats.rows_out, count);
                return Ok(count);
            }
            NodeKind::Operator(operator) => operator,
        };
        let mut emitted = self.spare.pop().unwrap_or_default();
        let mut rejections = Vec::new();
        let mut call = Call { emitted: &mut emitted, rejections: &mut rejections };
        let started = operator.now();
        let count = operator.process(slot, input, rows, first, &mut call)?;
        if !rejections.is_empty() {
            self.rejected(node, input, rows, &rejections)?;
        }
        self.emitted(node, emitted)?;
        // With what came of the rows further on in the chain: a barrier waits for that as well.
        if let NodeKind::Operator(operator) = &mut self.nodes[node].kind
            && count > 0
        {
            let took = operator.now().saturating_sub(started);
            operator.learn(count, took);
        }
        Ok(count)
    }

    /// Counts rows that come into a node.
    pub(crate) fn count_in(&self, node: usize, rows: usize) {
        stats::add(&self.nodes[node].stats.rows_in, rows);
    }

    /// How often rows that are not divided by key group are handed to a node: once for each of an operator's instances.
    pub(crate) fn slots(&self, node: usize) -> usize {
        match &self.nodes[node].kind {
            NodeKind::Sink(_) => 1,
            NodeKind::Operator(operator) => operator.slots(),
        }
    }

    /// The slots of a node that rows for these key groups go to, or for all.
    pub(crate) fn slots_of(&self, node: usize, groups: Option<KeyGroupRange>) -> std::ops::Range<usize> {
        match groups {
            Some(groups) if !groups.is_empty() => self.slot_of(node, groups.start)..self.slot_of(node, groups.end - 1) + 1,
            Some(_) => 0..0,
            None => 0..self.slots(node),
        }
    }

    /// The key groups of some slots of a node, where they are not all there is.
    pub(crate) fn groups_of(&self, node: usize, slots: std::ops::Range<usize>) -> Option<KeyGroupRange> {
        match &self.nodes[node].kind {
            NodeKind::Operator(operator) if slots != (0..operator.slots()) => operator.groups_of(slots),
            NodeKind::Operator(_) | NodeKind::Sink(_) => None,
        }
    }

    /// Slot of a key group's instance; the only one of a sink.
    pub(crate) fn slot_of(&self, node: usize, group: KeyGroup) -> usize {
        match &self.nodes[node].kind {
            NodeKind::Sink(_) => 0,
            NodeKind::Operator(operator) => operator.slot_of(group),
        }
    }

    fn emitted(&mut self, node: usize, mut emitted: EmittedRows) -> Result<(), TaskError> {
        emitted.drain(|port, rows| {
            let n = &mut self.nodes[node];
            stats::add(&n.stats.rows_out, rows.len());
            odd_rows::note_emitted(n, port, rows.view());
            let Some(targets) = n.outputs.get_mut(port as usize).map(std::mem::take) else { return Ok(()) };
            let sent = self.send(&targets, rows);
            self.nodes[node].outputs[port as usize] = targets;
            sent
        })?;
        self.spare.push(emitted);
        Ok(())
    }

    fn rejected(&mut self, node: usize, input: u32, rows: BatchRef<'_>, rejections: &[Rejection]) -> Result<(), TaskError> {
        let n = &mut self.nodes[node];
        odd_rows::note_rejected(n, rows, rejections);
        if n.on_reject == OnReject::Fail {
            return Err(dead_letter::failure(&n.uid, rows, &rejections[0]));
        }
        let mut letters = dead_letter::rows(&n.uid, &n.component, input, rows, rejections);
        let targets = std::mem::take(&mut n.dead_letters);
        let sent = self.send(&targets, &mut letters);
        self.nodes[node].dead_letters = targets;
        sent
    }

    /// Event time has reached `watermark` at a node; all after it learn it once its own output is on the way.
    pub(crate) fn advance(&mut self, node: usize, watermark: Timestamp) -> Result<(), TaskError> {
        let mut slot = 0;
        while self.advance_some(node, &mut slot, watermark)? {}
        Ok(())
    }

    /// The same in steps: tells the next instance from `slot` on, or in the last step all after the node. Gives whether
    /// there is more to do.
    pub(crate) fn advance_some(&mut self, node: usize, slot: &mut usize, watermark: Timestamp) -> Result<bool, TaskError> {
        let told = self.call_some(node, slot, |operator, slot, emitted| operator.advance(slot, watermark, emitted))?;
        if !told {
            self.for_targets(node, |chain, target| chain.advance_target(target, watermark))?;
        }
        Ok(told)
    }

    /// Calls instances from `slot` on until one had something to be told. Gives whether there was one.
    fn call_some(
        &mut self,
        node: usize,
        slot: &mut usize,
        mut call: impl FnMut(&mut Operator, usize, &mut EmittedRows) -> Result<bool, TaskError>,
    ) -> Result<bool, TaskError> {
        let NodeKind::Operator(operator) = &mut self.nodes[node].kind else { return Ok(false) };
        let mut emitted = self.spare.pop().unwrap_or_default();
        let mut called = false;
        while !called && *slot < operator.slots() {
            called = call(operator, *slot, &mut emitted)?;
            *slot += 1;
        }
        self.emitted(node, emitted)?;
        Ok(called)
    }

    pub(crate) fn advance_target(&mut self, target: Target, watermark: Timestamp) -> Result<(), TaskError> {
        match target {
            Target::Node { node, .. } => self.advance(node, watermark),
            Target::Router(router) => {
                self.routers[router].send_to_all(&Frame::Watermark(watermark));
                Ok(())
            }
        }
    }

    /// The input of a node has ended.
    pub(crate) fn finish(&mut self, node: usize) -> Result<(), TaskError> {
        let mut slot = 0;
        while self.finish_some(node, &mut slot)? {}
        Ok(())
    }

    /// The same in steps, like [`Chain::advance_some`].
    pub(crate) fn finish_some(&mut self, node: usize, slot: &mut usize) -> Result<bool, TaskError> {
        let told = self.call_some(node, slot, Operator::finish)?;
        if !told {
            self.for_targets(node, Chain::finish_target)?;
        }
        Ok(told)
    }

    pub(crate) fn finish_target(&mut self, target: Target) -> Result<(), TaskError> {
        match target {
            Target::Node { node, .. } => self.finish(node),
            Target::Router(router) => {
                self.routers[router].send_to_all(&Frame::End);
                Ok(())
            }
        }
    }

    /// Calls `f` once for every target of a node, dead letters included.
    fn for_targets(
        &mut self,
        node: usize,
        mut f: impl FnMut(&mut Chain, Target) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let n = &self.nodes[node];
        let mut targets: Vec<Target> = n.outputs.iter().flatten().chain(&n.dead_letters).copied().collect();
        let mut seen = Vec::new();
        targets.retain(|&target| {
            let key = match target {
                Target::Node { node, .. } => (0, node),
                Target::Router(router) => (1, router),
            };
            let new = !seen.contains(&key);
            seen.push(key);
            new
        });
        targets.into_iter().try_for_each(|target| f(self, target))
    }

    /// Sends what routers have gathered.
    pub(crate) fn flush(&mut self) {
        self.routers.iter_mut().for_each(Router::flush);
    }

    /// Sends what routers have gathered and held for long enough.
    pub(crate) fn flush_if_due(&mut self, now: Duration) {
        self.routers.iter_mut().for_each(|router| router.flush_if_due(now));
    }

    /// Tries to send what found no room. Returns whether all is sent.
    pub(crate) fn drain(&mut self) -> bool {
        // All of them: a full channel must not keep frames from the others.
        self.routers.iter_mut().filter_map(|router| (!router.drain()).then_some(())).count() == 0
    }

    /// Bytes that what is sent at once should not exceed, so that it takes up only part of the room in each channel.
    pub(crate) fn worth_sending(&self) -> usize {
        self.routers.iter().map(Router::worth_sending).fold(Worth::default(), Worth::and).bytes()
    }

    /// Looks at all channels again, in case nothing was sent into some for long.
    pub(crate) fn look(&mut self) {
        self.routers.iter_mut().for_each(Router::look);
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.routers.iter().all(Router::is_drained)
    }

    /// Sends a frame without rows out of the task.
    pub(crate) fn send_to_all(&mut self, frame: &Frame) {
        self.routers.iter_mut().for_each(|router| router.send_to_all(frame));
    }

    /// Sends a barrier out of the task, after everything still held, beyond the channels' bounds if need be.
    pub(crate) fn send_barrier(&mut self, barrier: Barrier) {
        self.routers.iter_mut().for_each(|router| router.send_barrier(barrier));
    }

    /// Says out of the task that a barrier, which was sent, does not wait for the rows before it.
    pub(crate) fn announce(&mut self, barrier: Barrier) {
        self.routers.iter_mut().for_each(|router| router.announce(barrier));
    }

    /// Begins the snapshot of every node. Gives what the sinks have yet to make durable.
    pub(crate) fn begin_snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<(OperatorUid, SinkPrepare)>, TaskError> {
        let mut prepare = Vec::new();
        for node in &mut self.nodes {
            match &mut node.kind {
                NodeKind::Operator(operator) => operator.begin_capture(checkpoint)?,
                NodeKind::Sink(sink) => {
                    let closure = sink.prepare(checkpoint).map_err(TaskError::connector(&node.uid))?;
                    prepare.push((node.uid.clone(), closure));
                }
            }
        }
        Ok(prepare)
    }

    pub(crate) fn operators(&mut self) -> impl Iterator<Item = &mut Operator> {
        self.nodes.iter_mut().filter_map(|node| match &mut node.kind {
            NodeKind::Operator(operator) => Some(&mut **operator),
            NodeKind::Sink(_) => None,
        })
    }

    /// A checkpoint is complete: its pages are safe.
    pub(crate) fn checkpoint_completed(&mut self, checkpoint: CheckpointId) {
        self.operators().for_each(|operator| operator.checkpoint_completed(checkpoint));
    }
}
