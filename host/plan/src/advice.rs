//! Warnings about job files that can run, but not as anybody wants: rows that will be lost, windows that never close, a job that
//! stops at one bad row. A job file without warnings does not stop because of one row, one long line or one late record.
//!
//! Goes by what components say of themselves, and by what is known of first-party connectors by their names and settings; nothing
//! here is an error, and nothing here changes what a job does.

use serde_json::{Map, Value};

use crate::diagnostics::Code;
use crate::job::{Edge, OnError, OperatorSpec, SourceSpec, VertexKind};
use crate::problems::Problems;
use crate::vertices::Draft;

/// A source whose rows bring their times along.
const TIMED_CONNECTOR: &str = "generator";

/// Adds warnings. `edges` are those of the drafts.
pub(crate) fn warn(drafts: &[Draft], edges: &[Edge], problems: &mut Problems) {
    for (index, draft) in drafts.iter().enumerate() {
        match &draft.vertex.kind {
            VertexKind::Source(spec) => source(draft, spec, problems),
            VertexKind::Operator(spec) => operator(drafts, edges, index, spec, problems),
            VertexKind::Sink(_) => {}
        }
    }
}

fn source(draft: &Draft, spec: &SourceSpec, problems: &mut Problems) {
    let fails = |settings: &Map<String, Value>, key: &str| settings.get(key).and_then(Value::as_str) == Some("fail");
    if fails(&spec.settings, "long_lines") {
        one_row_fails(draft, "line that is too long", "long_lines", problems);
    }
    if spec.event_time.as_ref().is_some_and(|event_time| fails(&event_time.settings, "no_time")) {
        one_row_fails(draft, "row without a readable time", "event_time.no_time", problems);
    }
}

fn one_row_fails(draft: &Draft, row: &str, key: &str, problems: &mut Problems) {
    let message = format!("one {row} in {} ends the job (`{key} = \"fail\"`)", draft.name());
    let hint = format!("without `{key}` such rows are counted and shown, and the job goes on");
    problems.warning(Code::Value, &draft.id, message, Some(hint));
}

fn operator(drafts: &[Draft], edges: &[Edge], index: usize, spec: &OperatorSpec, problems: &mut Problems) {
    let draft = &drafts[index];
    if spec.on_error == OnError::Fail {
        let message = format!("one row that {} cannot process ends the job (`on_error = \"fail\"`)", draft.name());
        let hint = "on_error = \"dead_letter\" puts such rows aside with their reasons".to_owned();
        problems.warning(Code::Value, &draft.id, message, Some(hint));
    }
    if spec.late_port().is_none() {
        return;
    }
    for source in sources_of(edges, index).into_iter().filter_map(|source| drafts.get(source)) {
        let VertexKind::Source(spec) = &source.vertex.kind else { continue };
        if spec.connector == TIMED_CONNECTOR {
            continue;
        }
        if spec.event_time.is_none() {
            let message = format!(
                "{} goes by event time, but {} has no `event_time`: all its windows close at the end of the input, and never if it has none",
                draft.name(),
                source.name()
            );
            let hint = "event_time = { field = \"...\", format = \"rfc3339\" } says where a row's time is".to_owned();
            problems.warning(Code::Value, &source.id, message, Some(hint));
        } else if !source.is_delay_set {
            let message = format!(
                "{} goes by event time, and {} has no `watermark.delay`: each row that is older than one before it may be late",
                draft.name(),
                source.name()
            );
            let hint = "watermark = { delay = \"5s\" } waits for such rows; \"0s\" says that there are none".to_owned();
            problems.warning(Code::Value, &source.id, message, Some(hint));
        }
    }
}

/// The vertices without inputs that a vertex gets its rows from.
fn sources_of(edges: &[Edge], vertex: usize) -> Vec<usize> {
    let (mut seen, mut next) = (vec![vertex], 0);
    while next < seen.len() {
        let readers_of = seen[next];
        for edge in edges.iter().filter(|edge| edge.to == readers_of) {
            if !seen.contains(&edge.from) {
                seen.push(edge.from);
            }
        }
        next += 1;
    }
    seen.into_iter().filter(|&vertex| !edges.iter().any(|edge| edge.to == vertex)).collect()
}
