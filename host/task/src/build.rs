//! Putting the parts of a task together: instances and positions of a checkpoint are put in place, nothing runs yet.

use std::sync::Arc;

use crate::TaskError;
use crate::clock::Clock;
use crate::head::{GateHead, Head};
use crate::node::{Node, NodeKind, SinkNode};
use crate::operator::{Meters, Operator};
use crate::source::SourceHead;
use crate::spec::{HeadSpec, Instances, NodeSpec, NodeWork};

/// What a task starts with, and how many channels come into it.
pub(crate) fn head(spec: HeadSpec, clock: &Arc<dyn Clock>) -> Result<(Head, usize), TaskError> {
    match spec {
        HeadSpec::Source { uid, source, event_time, generator, targets, stats, restore } => {
            let mut head = SourceHead::new(uid, source, event_time, generator, targets, stats, clock.clone());
            if let Some((splits, max)) = restore {
                head.restore(&splits, max)?;
            }
            Ok((Head::Source(Box::new(head)), 0))
        }
        HeadSpec::Gate { mut gate, channels, restored } => {
            gate.set_clock(clock.clone());
            let count = gate.len();
            assert_eq!(count, channels.len(), "every channel belongs to an input");
            Ok((Head::Gate(GateHead::new(gate, channels, restored)), count))
        }
    }
}

/// A node of a chain, with the instances of a checkpoint in place.
pub(crate) fn node(spec: NodeSpec, meters: &Meters) -> Result<Node, TaskError> {
    let kind = match spec.work {
        NodeWork::Sink(sink) => NodeKind::Sink(SinkNode::new(sink)),
        NodeWork::Operator { factory, instances, restored, after_end, call_rows } => {
            let mut operator = match instances {
                Instances::Keyed { groups, .. } => Operator::keyed(spec.uid.clone(), factory, groups, meters.clone()),
                Instances::Single(index) => Operator::single(spec.uid.clone(), factory, index, meters.clone()),
            };
            operator.set_call_rows(call_rows);
            operator.restore(restored, after_end);
            if matches!(instances, Instances::Single(_) | Instances::Keyed { eager: true, .. }) {
                (0..operator.slots()).try_for_each(|slot| operator.ensure(slot))?;
            }
            NodeKind::Operator(Box::new(operator))
        }
    };
    Ok(Node {
        uid: spec.uid,
        component: spec.component,
        kind,
        on_reject: spec.on_reject,
        outputs: spec.outputs,
        late_port: spec.late_port,
        dead_letters: spec.dead_letters,
        stats: spec.stats,
    })
}
