//! What a chain counts of rows that do not go the normal way, with the reason that people are shown.

use weir_model::{BatchRef, OddExample, OddKind};
use weir_sandbox::Rejection;

use crate::node::Node;

/// Rows that an operator rejected.
pub(crate) fn note_rejected(node: &Node, rows: BatchRef<'_>, rejections: &[Rejection]) {
    let Some(first) = rejections.first() else { return };
    node.stats
        .odd
        .add(OddKind::Rejected, rejections.len(), || OddExample::new(rows.values.get(first.row as usize), &first.reason));
}

/// Rows that an operator emitted: late ones, and those for an output that the operator does not have, which go nowhere.
pub(crate) fn note_emitted(node: &Node, port: u32, rows: BatchRef<'_>) {
    if rows.is_empty() {
        return;
    }
    let example = |reason: &str| OddExample::new(rows.values.get(0), reason);
    let targets = node.outputs.get(port as usize);
    if node.late_port == Some(port) {
        node.stats
            .odd
            .add(OddKind::Late, rows.len(), || example(late_reason(targets.is_some_and(|targets| !targets.is_empty()))));
    } else if targets.is_none() {
        let named = node.outputs.len();
        node.stats.odd.add(OddKind::UnnamedOutput, rows.len(), || {
            example(&format!(
                "it came out of output {port}, which {} does not have, so it was discarded: it has {named}, counted from 0",
                node.uid
            ))
        });
    }
}

fn late_reason(is_read: bool) -> &'static str {
    if is_read {
        "event time had passed its window when it came, so it went to the output for late rows; a larger watermark.delay of the \
         source, or allowed_lateness, makes fewer rows late"
    } else {
        "event time had passed its window when it came, and it was discarded, since nothing reads the output for late rows; a larger \
         watermark.delay of the source, or allowed_lateness, makes fewer rows late"
    }
}
