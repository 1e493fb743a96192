//! What an operator does wrong, or says is wrong with a row.

use weir_channel::Frame;
use weir_model::{OddKind, Oddities};
use weir_sandbox::{CallError, EmittedRows, Rejection};
use weir_task::{Instances, OnReject};

use crate::support::*;

/// Rejects rows whose value is "bad", passes the others on.
fn picky() -> Operators {
    Operators::new(|_, rows, emitted| {
        let good: Vec<Row> = rows.iter().filter(|row| row.2 != "bad").cloned().collect();
        emitted.rows_to(0).extend(batch(&good).view());
        let bad = rows.iter().zip(0..).filter(|(row, _)| row.2 == "bad");
        Ok(bad.map(|(_, row)| Rejection { row, reason: "no such value".to_owned() }).collect())
    })
}

/// An operator with a sink for its output and one for its dead letters.
fn run(log: &Log, operators: &Operators, on_reject: OnReject, rows: &[Row]) -> (Memory, Memory, Running) {
    let (output, letters) = (Memory::default(), Memory::default());
    let mut place = Place::new();
    let mut sender = place.channel(&Default::default(), 0);
    sender.send(frame(rows));
    sender.send(Frame::End);
    let (signal, head) = place.head();
    let mut node = operator("op", operators, Instances::Single(0), vec![to(1)]);
    (node.on_reject, node.dead_letters) = (on_reject, vec![to(2)]);
    let nodes = vec![node, sink("out", &output), sink("letters", &letters)];
    let task = Running::start(0, log, signal, head, nodes, Vec::new());
    (output, letters, task)
}

#[test]
fn rejected_rows_and_only_they_go_to_the_dead_letters_also_from_a_batch_of_many_calls() {
    let log = Log::default();
    let value = |n: i64| if n % 1_000 == 7 { "bad" } else { "good" };
    let rows: Vec<Row> = (0..20_000).map(|n| row(n, &format!("k{n}"), value(n))).collect();
    let operators = picky();
    let (output, letters, _task) = run(&log, &operators, OnReject::DeadLetter, &rows);
    log.wait(0, &Said::Finished);
    assert!(operators.calls_of(0).iter().filter(|call| matches!(call, Called::Process { .. })).count() > 1);
    let letters = letters.rows.lock();
    let found: Vec<(i64, &str)> = letters.iter().map(|(time, key, _)| (*time, key.as_str())).collect();
    let keys: Vec<String> = (0..20).map(|n| format!("k{}", n * 1_000 + 7)).collect();
    assert_eq!(found, (0..20).map(|n| (n * 1_000 + 7, keys[n as usize].as_str())).collect::<Vec<_>>());
    let first: serde_json::Value = serde_json::from_str(&letters[0].2).unwrap();
    assert_eq!((first["operator"].as_str(), first["reason"].as_str()), (Some("op"), Some("no such value")));
    let good = output.values().iter().filter(|value| *value == "good").count();
    assert_eq!(good, 19_980);
}

#[test]
fn a_rejected_row_fails_the_job_where_it_says_so() {
    let log = Log::default();
    let _running = run(&log, &picky(), OnReject::Fail, &[row(1, "k", "good"), row(2, "key", "bad")]);
    assert_eq!(
        log.failure(0),
        "operator op rejected a row: no such value; its key is \"key\" and its value starts with \"bad\"; \
         set on_error = \"dead_letter\" to put such rows aside and go on"
    );
}

#[test]
fn an_operator_that_fails_or_breaks_the_contract_fails_the_job_by_name() {
    type Emit = fn(&mut EmittedRows) -> Result<Vec<Rejection>, CallError>;
    let cases: [(Emit, &str); 2] = [
        (|_| Err(CallError::Failed("no disk".into())), "no disk"),
        (|_| Ok(vec![Rejection { row: 2, reason: String::new() }]), "it rejected row 2 of a batch of 2 rows"),
    ];
    for (emit, reason) in cases {
        let log = Log::default();
        let operators = Operators::new(move |_, _, emitted| emit(emitted));
        let _running = run(&log, &operators, OnReject::DeadLetter, &[row(1, "", "a"), row(2, "", "b")]);
        let failure = log.failure(0);
        assert!(failure.starts_with("operator op failed: ") && failure.ends_with(reason), "{failure}");
    }
}

/// Emits each row to the output that its value says, or to output 0.
fn sorting() -> Operators {
    Operators::new(|_, rows, emitted| {
        for row in rows {
            emitted.rows_to(row.2.parse().unwrap_or(0)).extend(batch(std::slice::from_ref(row)).view());
        }
        Ok(Vec::new())
    })
}

/// Runs `sorting` to its end over rows of these values. Gives what went to its output, and what was counted.
fn sorted(late_port: Option<u32>, values: &[&str]) -> (Vec<String>, Oddities) {
    let (log, output, operators) = (Log::default(), Memory::default(), sorting());
    let mut place = Place::new();
    let mut sender = place.channel(&Default::default(), 0);
    sender.send(frame(&values.iter().map(|value| row(1, "", value)).collect::<Vec<_>>()));
    sender.send(Frame::End);
    let (signal, head) = place.head();
    let mut node = operator("op", &operators, Instances::Single(0), vec![to(1)]);
    node.late_port = late_port;
    let stats = node.stats.clone();
    let _task = Running::start(0, &log, signal, head, vec![node, sink("out", &output)], Vec::new());
    log.wait(0, &Said::Finished);
    // Without what it says at the end.
    let values = output.values().into_iter().filter(|value| value.len() == 1).collect();
    (values, stats.odd.read())
}

#[test]
fn rows_for_an_output_that_there_is_not_are_counted_and_the_job_goes_on() {
    let (output, odd) = sorted(None, &["a", "3", "b", "1", "c"]);
    assert_eq!(output, ["a", "b", "c"]);
    let found = odd.get(OddKind::UnnamedOutput).expect("some");
    let first = found.first.as_ref().expect("an example");
    assert_eq!((found.rows, odd.total(), first.value.as_str()), (2, 2, "3"));
    assert!(first.reason.contains("output 3, which op does not have") && first.reason.contains("it has 1"), "{}", first.reason);
}

#[test]
fn a_late_row_whose_output_nothing_reads_is_counted_as_late_and_the_reason_names_the_setting() {
    let (output, odd) = sorted(Some(1), &["a", "1", "b"]);
    assert_eq!(output, ["a", "b"]);
    let found = odd.get(OddKind::Late).expect("some");
    let first = found.first.as_ref().expect("an example");
    assert_eq!((found.rows, odd.total(), first.value.as_str()), (1, 1, "1"));
    assert!(first.reason.contains("discarded") && first.reason.contains("watermark.delay"), "{}", first.reason);
}

#[test]
fn late_rows_that_a_sink_reads_are_counted_as_well() {
    let (output, odd) = sorted(Some(0), &["a", "b"]);
    assert_eq!(output, ["a", "b"]);
    let reason = &odd.get(OddKind::Late).expect("some").first.as_ref().expect("an example").reason;
    assert!(odd.rows(OddKind::Late) >= 2 && !reason.contains("discarded"), "{reason}");
}
