//! Which rows that did not go the normal way somebody has to hear of while the job runs: those that point to a wrong setting, and
//! those that are lost. Each vertex and kind is told of once. Pure; the numbers come with the job's progress.

use std::collections::BTreeSet;

use serde_json::Value;
use weir_model::{Odd, OddKind};
use weir_plan::{ComponentRef, Job, VertexKind};

use crate::VertexProgress;

/// Rows that a vertex must have had before a share of them says anything while it runs.
const ROWS_MIN: u64 = 1_000;

/// The same where no more come.
const LAST_ROWS_MIN: u64 = 10;

/// Rejected rows of a hundred, above which the configuration is more likely wrong than the rows.
const REJECTED_PERCENT_MAX: u64 = 10;

/// What was told.
#[derive(Debug, Default)]
pub struct Watch {
    told: BTreeSet<(String, OddKind)>,
}

impl Watch {
    /// What is to be told of a job that is so far. `is_last`: nothing follows in this execution.
    pub fn look(&mut self, job: &Job, vertices: &[VertexProgress], is_last: bool) -> Vec<String> {
        let mut messages = Vec::new();
        for vertex in vertices {
            for (kind, odd) in vertex.oddities.iter() {
                let key = (vertex.uid.clone(), kind);
                if !self.told.contains(&key)
                    && let Some(message) = message(job, vertex, kind, odd, is_last)
                {
                    self.told.insert(key);
                    messages.push(message);
                }
            }
        }
        messages
    }
}

fn message(job: &Job, vertex: &VertexProgress, kind: OddKind, odd: &Odd, is_last: bool) -> Option<String> {
    let rows_min = if is_last { LAST_ROWS_MIN } else { ROWS_MIN };
    let (rows, uid) = (vertex.rows_in, &vertex.uid);
    let what = match kind {
        OddKind::Rejected => {
            let is_much = rows >= rows_min && odd.rows.saturating_mul(100) > rows.saturating_mul(REJECTED_PERCENT_MAX);
            is_much.then(|| {
                let percent = odd.rows.saturating_mul(100) / rows.max(1);
                let letters = job.dead_letters().join(", ");
                let letters = if letters.is_empty() { String::new() } else { format!("; they are in {letters}") };
                let reason = odd.first.as_ref().map_or("", |first| first.reason.as_str());
                let likely = match likely_setting(job, uid, reason) {
                    Some(setting) => format!("; most likely {setting} does not fit the rows"),
                    None => String::new(),
                };
                format!("{uid} has rejected {} of {} ({percent} %){letters}{likely}", number(odd.rows), rows_of(rows))
            })?
        }
        OddKind::NoTime => (rows >= rows_min && odd.rows >= rows).then(|| {
            format!(
                "{uid} could not read a time from any of its {}, so event time does not advance; most likely `event_time` of \
                 source {uid} (its field or format) is not that of the rows",
                rows_of(rows)
            )
        })?,
        OddKind::Late => is_lost(job, uid).then(|| match odd.rows {
            1 => format!("{uid} has discarded a late row"),
            rows => format!("{uid} has discarded {} late rows", number(rows)),
        })?,
        OddKind::LongLine => format!("{uid} has skipped {} longer than is allowed", some(odd)),
        OddKind::AheadOfTime => format!("{uid} has met {} too far ahead in time", some(odd)),
        OddKind::UnnamedOutput => format!("{uid} has discarded {} for an output without a name", some(odd)),
        OddKind::SkippedInput => format!("{uid} has passed over a part of its input"),
    };
    let first = match &odd.first {
        Some(first) if first.value.is_empty() => format!("; the first: {}", first.reason),
        Some(first) => format!("; the first: {}: {}", first.value, first.reason),
        None => String::new(),
    };
    Some(what + &first)
}

fn some(odd: &Odd) -> String {
    if odd.rows == 1 { "a row".to_owned() } else { rows_of(odd.rows) }
}

fn rows_of(rows: u64) -> String {
    format!("{} row{}", number(rows), if rows == 1 { "" } else { "s" })
}

/// A number with its thousands set apart, as everything that people read has it.
fn number(value: u64) -> String {
    let (rest, last) = (value / 1_000, value % 1_000);
    if rest == 0 { last.to_string() } else { format!("{},{last:03}", number(rest)) }
}

/// Whether nothing reads the late rows of an operator.
fn is_lost(job: &Job, uid: &str) -> bool {
    let Some(vertex) = job.vertex(uid) else { return false };
    let VertexKind::Operator(spec) = &job.vertices[vertex].kind else { return false };
    let is_late = |edge: &&weir_plan::Edge| edge.from == vertex && edge.port.number().is_some();
    spec.late_port().is_none_or(|late| !job.edges.iter().filter(is_late).any(|edge| edge.port.number() == Some(late)))
}

/// The setting that decides what an operator rejects; none where the reason names what is in the way.
fn likely_setting(job: &Job, uid: &str, reason: &str) -> Option<String> {
    if reason.contains("limits.memory") {
        return None;
    }
    let kind = job.vertex(uid).map(|vertex| &job.vertices[vertex].kind);
    Some(match kind {
        Some(VertexKind::Operator(spec)) => match &spec.component {
            _ if is_of_key(&spec.config, reason) => format!("`config.key` of operator {uid}"),
            ComponentRef::Named { name, .. } if name == "parse" => format!("`config.format` of operator {uid}"),
            _ => format!("`config` of operator {uid}"),
        },
        _ => format!("a setting of {uid}"),
    })
}

/// Whether a reason is about the field that the configuration names as the key.
fn is_of_key(config: &Value, reason: &str) -> bool {
    let names_field = |key: &str| {
        reason.strip_prefix("field `").and_then(|rest| rest.strip_prefix(key)).is_some_and(|rest| rest.starts_with('`'))
    };
    config.get("key").and_then(Value::as_str).is_some_and(names_field)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_model::{Description, OddExample, Oddities, OutputPort};

    use super::*;

    const JOB: &str = r#"
        [job]
        name = "j"
        [[source]]
        id = "log"
        connector = "file"
        [[operator]]
        id = "parse"
        component = "parse@1.2.0"
        input = "log"
        [[operator]]
        id = "kept"
        component = "window@1.2.0"
        input = { from = "parse", exchange = "hash" }
        [[operator]]
        id = "lost"
        component = "window@1.2.0"
        input = { from = "parse", exchange = "hash" }
        [[sink]]
        id = "out"
        connector = "file"
        input = { from = ["kept", "lost", "kept.late"] }
        [[sink]]
        id = "bad"
        connector = "file"
        path = "bad"
        input = "dead_letter"
    "#;

    /// Windows have an output for late rows.
    fn describe(_: &str, component: &ComponentRef) -> Result<Arc<Description>, weir_plan::DescriptionError> {
        let mut description = Description::plain();
        if component.to_string().starts_with("window") {
            description.outputs.push(OutputPort { name: "late".to_owned(), doc: String::new(), keeps_key: true });
        }
        Ok(Arc::new(description))
    }

    fn job() -> Job {
        weir_plan::load("j.toml", JOB, &[], &|_| None, &describe).unwrap()
    }

    fn progress(rows: u64, odd: &[(&str, OddKind, u64)]) -> Vec<VertexProgress> {
        let vertex = |uid: &str| {
            let mut oddities = Oddities::new();
            for (_, kind, rows) in odd.iter().filter(|(of, _, _)| *of == uid) {
                oddities.add_rows(*kind, *rows, || OddExample::new(b"a row", "a reason"));
            }
            VertexProgress {
                uid: uid.to_owned(),
                kind: "operator",
                rows_in: rows,
                rows_out: 0,
                rows_rejected: 0,
                oddities,
                rows_in_by_subtask: vec![rows],
                backpressured: 0.0,
                busy: 0.0,
            }
        };
        ["log", "parse", "kept", "lost"].into_iter().map(vertex).collect()
    }

    #[test]
    fn more_than_a_tenth_rejected_is_told_once_with_the_likely_setting_and_the_place() {
        let (job, mut watch) = (job(), Watch::default());
        assert!(watch.look(&job, &progress(999, &[("parse", OddKind::Rejected, 999)]), false).is_empty(), "too few");
        assert!(watch.look(&job, &progress(10_000, &[("parse", OddKind::Rejected, 1_000)]), false).is_empty(), "a tenth");
        let told = watch.look(&job, &progress(10_000, &[("parse", OddKind::Rejected, 1_001)]), false);
        assert_eq!(
            told,
            [
                "parse has rejected 1,001 of 10,000 rows (10 %); they are in bad; most likely `config.format` of operator parse does not fit \
              the rows; the first: a row: a reason"
            ]
        );
        assert!(watch.look(&job, &progress(90_000, &[("parse", OddKind::Rejected, 90_000)]), true).is_empty(), "once");
        let told = Watch::default().look(&job, &progress(10, &[("parse", OddKind::Rejected, 10)]), true);
        assert_eq!(told.len(), 1, "few are enough where no more come");
    }

    #[test]
    fn a_reason_that_names_what_is_in_the_way_says_which_setting_or_that_none_is_wrong() {
        let text = JOB
            .replace("component = \"parse@1.2.0\"", "component = \"parse@1.2.0\"\nconfig = { format = \"json\", key = \"k\" }");
        let job = weir_plan::load("j.toml", &text, &[], &|_| None, &describe).unwrap();
        let setting = |reason: &str| likely_setting(&job, "parse", reason).unwrap_or_default();
        assert_eq!(setting("field `k` is missing"), "`config.key` of operator parse");
        assert_eq!(setting("field `kind`: no time"), "`config.format` of operator parse");
        assert_eq!(setting("no JSON"), "`config.format` of operator parse");
        assert_eq!(setting("no memory for another key; limits.memory is 16 MiB"), "");
    }

    #[test]
    fn a_source_whose_first_rows_have_no_time_is_told_of_and_one_with_some_is_not() {
        let (job, mut watch) = (job(), Watch::default());
        assert!(watch.look(&job, &progress(5_000, &[("log", OddKind::NoTime, 4_999)]), false).is_empty());
        assert!(watch.look(&job, &progress(999, &[("log", OddKind::NoTime, 999)]), false).is_empty());
        let told = watch.look(&job, &progress(1_000, &[("log", OddKind::NoTime, 1_000)]), false);
        assert!(told[0].contains("any of its 1,000 rows") && told[0].contains("`event_time` of source log"), "{told:?}");
        assert!(told[0].ends_with("the first: a row: a reason"), "{told:?}");
    }

    #[test]
    fn late_rows_are_told_of_only_where_they_are_lost_and_other_kinds_at_the_first() {
        let (job, mut watch) = (job(), Watch::default());
        let told = watch.look(&job, &progress(5, &[("kept", OddKind::Late, 1), ("lost", OddKind::Late, 1)]), false);
        assert_eq!(told, ["lost has discarded a late row; the first: a row: a reason"]);
        for kind in [OddKind::LongLine, OddKind::AheadOfTime, OddKind::UnnamedOutput, OddKind::SkippedInput] {
            assert_eq!(watch.look(&job, &progress(5, &[("log", kind, 1)]), false).len(), 1, "{kind}");
            assert!(watch.look(&job, &progress(5, &[("log", kind, 2)]), false).is_empty(), "{kind} once");
        }
    }
}
