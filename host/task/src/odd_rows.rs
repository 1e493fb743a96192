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

/// Rows that an operator emitted: late ones, and those for an output that the job file does not name, which go nowhere.
pub(crate) fn note_emitted(node: &Node, port: u32, rows: BatchRef<'_>) {
    if rows.is_empty() {
        return;
    }
    let example = |reason: &str| OddExample::new(rows.values.get(0), reason);
    let targets = node.outputs.get(port as usize);
    if node.late_port == Some(port) {
        node.stats.odd.add(OddKind::Late, rows.len(), || example(late_reason(targets.map(Vec::len))));
    } else if targets.is_none() {
        let named = node.outputs.len();
        node.stats.odd.add(OddKind::UnnamedOutput, rows.len(), || {
            example(&format!(
                "it came out of output {port}, which has no name in the job file, so it was discarded: outputs are numbered from 0 and \
                 `outputs` of {} has {named}; give it {} names and let a sink read the one you want",
                node.uid,
                port + 1
            ))
        });
    }
}

fn late_reason(targets: Option<usize>) -> &'static str {
    match targets {
        None => {
            "event time had passed its window when it came, and it was discarded, since the job file does not name the output for late \
             rows: outputs = [\"main\", \"late\"]; a larger watermark.delay of the source, or allowed_lateness, makes fewer rows late"
        }
        Some(0) => {
            "event time had passed its window when it came, and it was discarded, since no sink reads the output for late rows; a larger \
             watermark.delay of the source, or allowed_lateness, makes fewer rows late"
        }
        Some(_) => {
            "event time had passed its window when it came, so it went to the output for late rows; a larger watermark.delay of the \
             source, or allowed_lateness, makes fewer rows late"
        }
    }
}
