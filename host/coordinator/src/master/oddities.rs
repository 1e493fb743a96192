//! Which rows that did not go the normal way somebody has to hear of while the job runs: those that point to a wrong setting, and
//! those that are lost. Each vertex and kind is told of once. Pure; the numbers come with the job's progress.

use std::collections::BTreeSet;

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
pub(super) struct Watch {
    told: BTreeSet<(String, OddKind)>,
}

impl Watch {
    /// What is to be told of a job that is so far. `is_last`: nothing follows in this execution.
    pub(super) fn look(&mut self, job: &Job, vertices: &[VertexProgress], is_last: bool) -> Vec<String> {
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
                let setting = likely_setting(job, uid);
                format!("{uid} has rejected {} of {rows} rows ({percent} %){letters}; most likely {setting} does not fit the rows", odd.rows)
            })?
        }
        OddKind::NoTime => (rows >= rows_min && odd.rows >= rows).then(|| {
            format!(
                "{uid} could not read a time from any of its {rows} rows, so event time does not advance; most likely `event_time` of \
                 source {uid} (its field or format) is not that of the rows"
            )
        })?,
        OddKind::Late => is_lost(job, uid).then(|| match odd.rows {
            1 => format!("{uid} has discarded a late row"),
            rows => format!("{uid} has discarded {rows} late rows"),
        })?,
        OddKind::LongLine => format!("{uid} has skipped {} longer than is allowed", rows_of(odd)),
        OddKind::AheadOfTime => format!("{uid} has met {} too far ahead in time", rows_of(odd)),
        OddKind::UnnamedOutput => format!("{uid} has discarded {} for an output without a name", rows_of(odd)),
        OddKind::SkippedInput => format!("{uid} has passed over a part of its input"),
    };
    let first = match &odd.first {
        Some(first) if first.value.is_empty() => format!("; the first: {}", first.reason),
        Some(first) => format!("; the first: {}: {}", first.value, first.reason),
        None => String::new(),
    };
    Some(what + &first)
}

fn rows_of(odd: &Odd) -> String {
    if odd.rows == 1 { "a row".to_owned() } else { format!("{} rows", odd.rows) }
}

/// Whether nothing reads the late rows of an operator.
fn is_lost(job: &Job, uid: &str) -> bool {
    let Some(vertex) = job.vertex(uid) else { return false };
    let VertexKind::Operator(spec) = &job.vertices[vertex].kind else { return false };
    let is_late = |edge: &&weir_plan::Edge| edge.from == vertex && edge.port.number().is_some();
    spec.late_port().is_none_or(|late| !job.edges.iter().filter(is_late).any(|edge| edge.port.number() == Some(late)))
}

/// The setting that decides what an operator rejects.
fn likely_setting(job: &Job, uid: &str) -> String {
    let kind = job.vertex(uid).map(|vertex| &job.vertices[vertex].kind);
    match kind {
        Some(VertexKind::Operator(spec)) => match &spec.component {
            ComponentRef::Named { name, .. } if name == "parse" => format!("`config.format` of operator {uid}"),
            _ => format!("`config` of operator {uid}"),
        },
        _ => format!("a setting of {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use weir_model::{OddExample, Oddities};

    use super::*;

    const JOB: &str = r#"
        [job]
        name = "j"
        [[source]]
        id = "log"
        connector = "file"
        [[operator]]
        id = "parse"
        component = "parse@1.1.0"
        input = "log"
        [[operator]]
        id = "kept"
        component = "window@1.1.0"
        outputs = ["main", "late"]
        input = { from = "parse", exchange = "hash" }
        [[operator]]
        id = "lost"
        component = "window@1.1.0"
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

    fn job() -> Job {
        weir_plan::load("j.toml", JOB, &[], &|_| None).unwrap()
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
                "parse has rejected 1001 of 10000 rows (10 %); they are in bad; most likely `config.format` of operator parse does not fit \
              the rows; the first: a row: a reason"
            ]
        );
        assert!(watch.look(&job, &progress(90_000, &[("parse", OddKind::Rejected, 90_000)]), true).is_empty(), "once");
        let told = Watch::default().look(&job, &progress(10, &[("parse", OddKind::Rejected, 10)]), true);
        assert_eq!(told.len(), 1, "few are enough where no more come");
    }

    #[test]
    fn a_source_whose_first_rows_have_no_time_is_told_of_and_one_with_some_is_not() {
        let (job, mut watch) = (job(), Watch::default());
        assert!(watch.look(&job, &progress(5_000, &[("log", OddKind::NoTime, 4_999)]), false).is_empty());
        assert!(watch.look(&job, &progress(999, &[("log", OddKind::NoTime, 999)]), false).is_empty());
        let told = watch.look(&job, &progress(1_000, &[("log", OddKind::NoTime, 1_000)]), false);
        assert!(told[0].contains("any of its 1000 rows") && told[0].contains("`event_time` of source log"), "{told:?}");
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
