//! What one task runs after its input: operators and sinks joined by forward edges, and the routers at their ends.
//!
//! Rows, watermarks and the end go depth first through the chain. Outputs of a call are gathered during the call, so no guest frame is
//! on the stack when rows move, and held back until they are worth passing on (`held_rows.rs`), at the latest before a watermark, an end or a
//! barrier, and at the end of the task's turn. The order over an edge is that in which rows were emitted, whenever they are passed on.

use std::sync::Arc;
use std::time::Duration;

use weir_channel::Frame;
use weir_model::{Barrier, Batch, BatchRef, CheckpointId, KeyGroup, KeyGroupRange, OperatorUid, Timestamp};
use weir_sandbox::{EmittedRows, Rejection};

use crate::TaskError;
use crate::clock::{Clock, StopWatch};
use crate::dead_letter;
use crate::held_rows::HeldRows;
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
    /// What each node has emitted and is not passed on.
    held: Vec<HeldRows>,
    /// All targets of each node, each once.
    onward: Vec<Vec<Target>>,
    watch: StopWatch,
    /// What the rows that are being passed on have cost so far, what is expected of those that are held again included.
    cost: Duration,
    /// Of the call that is made.
    rejections: Vec<Rejection>,
}

impl Chain {
    pub(crate) fn new(nodes: Vec<Node>, routers: Vec<Router>, clock: Arc<dyn Clock>) -> Chain {
        let (held, onward) = (nodes.iter().map(|_| HeldRows::new()).collect(), nodes.iter().map(Node::targets).collect());
        let (watch, cost, rejections) = (StopWatch::new(clock), Duration::ZERO, Vec::new());
        let mut chain = Chain { nodes, routers, held, onward, watch, cost, rejections };
        (0..chain.nodes.len()).for_each(|node| chain.look_at_frames(node));
        chain
    }

    /// Before anything else: operators whose input had ended and has more go on.
    pub(crate) fn begin(&mut self) -> Result<(), TaskError> {
        self.start_watch();
        for node in 0..self.nodes.len() {
            let NodeKind::Operator(operator) = &mut self.nodes[node].kind else { continue };
            operator.begin(&mut self.held[node].rows)?;
            self.pass_on(node)?;
        }
        Ok(())
    }

    /// What comes now is work of the chain. Gives the time.
    pub(crate) fn start_watch(&mut self) -> Duration {
        self.watch.lap();
        self.watch.last()
    }

    /// The time after the last call.
    pub(crate) fn time(&self) -> Duration {
        self.watch.last()
    }

    /// Takes in instances that have come from the checkpoint. Says whether all are here.
    pub(crate) fn arrive(&mut self) -> bool {
        self.operators().filter_map(|operator| (!operator.look()).then_some(())).count() == 0
    }

    /// Whether all is here that is called without a chance to wait: the operators from a node on, since nothing can wait in the
    /// middle of a chain, and those that are called before anything is read. Hurries what is not.
    pub(crate) fn is_ready(&self, from: usize) -> bool {
        let nodes = self.nodes.iter().enumerate();
        let operators = nodes.filter_map(|(node, of)| match &of.kind {
            NodeKind::Operator(operator) if node >= from || operator.calls_first() => Some(&**operator),
            NodeKind::Operator(_) | NodeKind::Sink(_) => None,
        });
        let misses = |operator: &Operator, slot: &usize| {
            operator.hurry(*slot);
            !operator.is_here(*slot)
        };
        // All of them, so that all are hurried.
        operators.map(|operator| (0..operator.slots()).filter(|slot| misses(operator, slot)).count()).sum::<usize>() == 0
    }

    /// Whether the instance of a slot is here.
    pub(crate) fn is_here(&self, node: usize, slot: usize) -> bool {
        match &self.nodes[node].kind {
            NodeKind::Sink(_) => true,
            NodeKind::Operator(operator) => operator.is_here(slot),
        }
    }

    /// The instance of a slot is to come next.
    pub(crate) fn hurry(&self, node: usize, slot: usize) {
        if let NodeKind::Operator(operator) = &self.nodes[node].kind {
            operator.hurry(slot);
        }
    }

    /// Event time has reached `watermark` at a node; its instances are told before their next rows, and those after it later.
    pub(crate) fn note(&mut self, node: usize, watermark: Timestamp) {
        if let NodeKind::Operator(operator) = &mut self.nodes[node].kind {
            operator.note(watermark);
        }
    }

    /// Passes rows on. Their columns may be taken; the caller clears them.
    pub(crate) fn send(&mut self, targets: &[Target], rows: &mut Batch) -> Result<(), TaskError> {
        let Some((&last, others)) = targets.split_last() else { return Ok(()) };
        for &target in others {
            match target {
                Target::Node { node, input } => self.rows(node, input, rows.view())?,
                Target::Router(router) => self.leave(router, |router| router.push_copy(rows.view())),
            }
        }
        match last {
            Target::Node { node, input } => self.rows(node, input, rows.view())?,
            Target::Router(router) => self.leave(router, |router| router.push(rows)),
        }
        Ok(())
    }

    fn leave(&mut self, router: usize, push: impl FnOnce(&mut Router)) {
        push(&mut self.routers[router]);
        self.cost += self.watch.lap();
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

    /// Calls a node once, with rows from `first` on, and passes on what is worth it. Gives how many it took: at least one.
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
                let took = self.watch.lap();
                sink.learn(count, took);
                self.cost += took;
                return Ok(count);
            }
            NodeKind::Operator(operator) => operator,
        };
        let (held, cost) = (&mut self.held[node], self.cost);
        let before = held.rows.rows_len();
        let mut call = Call { emitted: &mut held.rows, rejections: &mut self.rejections };
        let count = operator.process(slot, input, rows, first, &mut call)?;
        self.cost += self.watch.lap() + held.cost(held.rows.rows_len() - before);
        if !self.rejections.is_empty() {
            self.rejected(node, input, rows)?;
        }
        // With what comes of the rows further on in the chain: a barrier waits for that as well.
        if let NodeKind::Operator(operator) = &mut self.nodes[node].kind
            && count > 0
        {
            operator.learn(count, self.cost - cost);
        }
        self.pass_on_if_due(node)?;
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

    /// Passes on all that is held, from the first node to the last.
    pub(crate) fn pass_on_all(&mut self) -> Result<(), TaskError> {
        self.watch.lap();
        (0..self.nodes.len()).try_for_each(|node| self.pass_on(node))
    }

    /// Whether nothing is held.
    pub(crate) fn holds_nothing(&self) -> bool {
        self.held.iter().all(|held| held.rows.is_empty())
    }

    fn pass_on_if_due(&mut self, node: usize) -> Result<(), TaskError> {
        if self.held[node].is_due() { self.pass_on(node) } else { Ok(()) }
    }

    /// Passes on what a node has emitted, and learns what that costs.
    fn pass_on(&mut self, node: usize) -> Result<(), TaskError> {
        let count = self.held[node].rows.rows_len();
        if count == 0 {
            return Ok(());
        }
        // Nothing comes from this node meanwhile: no way leads from it back to it.
        let mut rows = std::mem::take(&mut self.held[node].rows);
        // Calls were given their share of this when they were made.
        let cost = std::mem::take(&mut self.cost);
        let passed = rows.drain(|port, rows| self.come_out(node, port, rows));
        self.held[node].rows = rows;
        passed?;
        let took = std::mem::replace(&mut self.cost, cost);
        self.held[node].learn(count, took);
        self.look_at_frames(node);
        Ok(())
    }

    /// Rows come out of a node.
    fn come_out(&mut self, node: usize, port: u32, rows: &mut Batch) -> Result<(), TaskError> {
        let n = &mut self.nodes[node];
        stats::add(&n.stats.rows_out, rows.len());
        odd_rows::note_emitted(n, port, rows.view());
        let Some(targets) = n.outputs.get_mut(port as usize).map(std::mem::take) else { return Ok(()) };
        let sent = self.send(&targets, rows);
        self.nodes[node].outputs[port as usize] = targets;
        sent
    }

    /// Looks how much is worth sending over the edges that leave the task from a node, where any do.
    fn look_at_frames(&mut self, node: usize) {
        let worth = self.nodes[node].outputs.iter().flatten().filter_map(|target| match target {
            Target::Router(router) => Some(self.routers[*router].worth_sending()),
            Target::Node { .. } => None,
        });
        if let Some(worth) = worth.reduce(Worth::and) {
            self.held[node].set_frame_bytes(worth.bytes());
        }
    }

    /// Passes on the rows that a call has rejected.
    fn rejected(&mut self, node: usize, input: u32, rows: BatchRef<'_>) -> Result<(), TaskError> {
        let n = &mut self.nodes[node];
        odd_rows::note_rejected(n, rows, &self.rejections);
        if n.on_reject == OnReject::Fail {
            return Err(dead_letter::failure(&n.uid, rows, &self.rejections[0]));
        }
        let mut letters = dead_letter::rows(&n.uid, &n.component, input, rows, &self.rejections);
        self.rejections.clear();
        self.cost += self.watch.lap();
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
            self.pass_on(node)?;
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
        let mut called = false;
        while !called && *slot < operator.slots() {
            called = call(operator, *slot, &mut self.held[node].rows)?;
            *slot += 1;
        }
        self.watch.lap();
        self.pass_on_if_due(node)?;
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
            self.pass_on(node)?;
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
        let targets = std::mem::take(&mut self.onward[node]);
        let told = targets.iter().try_for_each(|&target| f(self, target));
        self.onward[node] = targets;
        told
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

    /// Says out of the task that it idles, after all rows before that.
    pub(crate) fn send_idle(&mut self) -> Result<(), TaskError> {
        self.pass_on_all()?;
        self.routers.iter_mut().for_each(|router| router.send_to_all(&Frame::Idle));
        Ok(())
    }

    /// Sends a barrier out of the task, after everything still held, beyond the channels' bounds if need be.
    pub(crate) fn send_barrier(&mut self, barrier: Barrier) -> Result<(), TaskError> {
        self.pass_on_all()?;
        self.routers.iter_mut().for_each(|router| router.send_barrier(barrier));
        Ok(())
    }

    /// Sends what found no room, beyond the channels' bounds: an end, which counts as the marker, has to come where nobody reads for now.
    pub(crate) fn flush_beyond_bound(&mut self) {
        self.routers.iter_mut().for_each(Router::flush_beyond_bound);
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

#[cfg(test)]
mod tests;
