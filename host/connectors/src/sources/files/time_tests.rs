//! Event time over several files: whatever the names, ages and order of files, no row is late that would not be in one sorted file.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Write;
use std::time::Instant;

use serde_json::json;
use weir_model::{Batch, Timestamp, WATERMARK_START};

use super::*;
use crate::{EventTime, Polled, WatermarkGenerator, event_time_settings};

/// A subtask as a task runs it: reads, gives times, and says how far event time is.
struct Subtask {
    source: Box<dyn Source>,
    generator: WatermarkGenerator,
    ended: bool,
}

/// What came of a run.
#[derive(Debug, Default)]
struct Seen {
    rows: Vec<(Timestamp, String)>,
    late: Vec<(Timestamp, String)>,
    /// Rows behind the newest one of their time, at most: what windows have to keep open.
    spread: Timestamp,
}

fn event_time() -> EventTime {
    event_time_settings(json!({"format": "unix-ms"}).as_object().unwrap()).unwrap().0
}

impl Subtask {
    fn new(mut source: Box<dyn Source>, low: Timestamp) -> Subtask {
        source.split_times().unwrap().set_timed();
        let mut generator = WatermarkGenerator::new(0, None);
        generator.restore(low);
        Subtask { source, generator, ended: false }
    }

    /// Event time as others see it.
    fn watermark(&mut self) -> Timestamp {
        let is_idle = self.source.split_times().unwrap().is_empty();
        if self.ended || is_idle { Timestamp::MAX } else { self.generator.watermark() }
    }

    fn poll(&mut self, rows_max: usize, watermark: Timestamp, seen: &mut Seen) {
        let mut rows = Batch::default();
        let polled = self.source.poll(&mut rows, rows_max, 1 << 20).unwrap();
        self.generator.assign(&mut rows, Some(&event_time()), self.source.split_times(), 0).unwrap();
        self.ended |= polled == Polled::Ended;
        for row in rows.rows() {
            let time = row.timestamp;
            let row = (time, String::from_utf8(row.value_bytes().to_vec()).unwrap());
            let newest = seen.rows.iter().rev().map(|(time, _)| *time).max().unwrap_or(time);
            seen.spread = seen.spread.max(newest - time);
            if time <= watermark && watermark != Timestamp::MAX {
                seen.late.push(row.clone());
            }
            seen.rows.push(row);
        }
    }
}

/// Reads until `count` rows have come, with a stop and a resume at another parallelism in between.
fn run(factory: &FileSourceFactory, count: usize, parallelism: u32, rows_max: usize) -> Seen {
    let mut seen = Seen::default();
    let make = |parallelism: u32| (0..parallelism).map(move |index| factory.create(index, parallelism).unwrap());
    let mut subtasks: Vec<Subtask> = make(parallelism).map(|source| Subtask::new(source, WATERMARK_START)).collect();
    let (mut watermark, mut is_resumed) = (WATERMARK_START, false);
    let deadline = Instant::now() + Duration::from_secs(60);
    while seen.rows.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} rows", seen.rows.len());
        let spread = seen.spread;
        for subtask in subtasks.iter_mut().filter(|subtask| !subtask.ended) {
            subtask.poll(rows_max, watermark, &mut seen);
        }
        if is_resumed {
            // Subtasks do not wait for one another.
            seen.spread = spread;
        }
        let combined = subtasks.iter_mut().map(Subtask::watermark).min().unwrap();
        watermark = watermark.max(if combined == Timestamp::MAX { WATERMARK_START } else { combined });
        if !is_resumed && seen.rows.len() > count / 2 {
            is_resumed = true;
            let splits: BTreeMap<String, Value> = subtasks.iter_mut().flat_map(|subtask| subtask.source.position()).collect();
            let splits = serde_json::from_str(&serde_json::to_string(&splits).unwrap()).unwrap();
            let low = subtasks.iter().map(|subtask| subtask.generator.low()).min().unwrap();
            let next = parallelism % 3 + 1;
            let restored = make(next).map(|mut source| {
                source.restore(&splits).unwrap();
                Subtask::new(source, low)
            });
            subtasks = restored.collect();
        }
    }
    seen.rows.sort();
    seen
}

/// Lines of one host, one every `step` milliseconds.
fn lines(host: &str, from: i64, to: i64, step: usize) -> Vec<(Timestamp, String)> {
    (from..to).step_by(step).map(|time| (time, format!("{time} {host} and what it did"))).collect()
}

fn write(path: &std::path::Path, lines: &[(Timestamp, String)], age: u64) {
    let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
    let mut file = File::create(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut encoder = flate2::write::GzEncoder::new(&file, flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
    } else {
        file.write_all(text.as_bytes()).unwrap();
    }
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000 - age)).unwrap();
}

fn factory(path: &std::path::Path, more: &Value) -> FileSourceFactory {
    let mut settings = json!({"path": path.to_str().unwrap()});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    FileSourceFactory::from_settings(settings.as_object().unwrap(), &Reach::default()).unwrap()
}

type Set = Vec<(&'static str, Vec<(Timestamp, String)>, u64)>;

/// Files with their lines and ages in seconds.
fn sets() -> Vec<(&'static str, Set)> {
    vec![
        ("rotated", vec![("in.log", lines("a", 30_000, 45_000, 10), 0), ("in.log.1", lines("a", 0, 30_000, 10), 60)]),
        (
            "rotated and compressed, ages of a copy that did not keep them",
            vec![
                ("in.log", lines("a", 30_000, 40_000, 10), 5),
                ("in.log.1", lines("a", 20_000, 30_000, 10), 5),
                ("in.log.2.gz", lines("a", 10_000, 20_000, 10), 5),
                ("in.log.10.gz", lines("a", 0, 10_000, 10), 0),
            ],
        ),
        (
            "two hosts of a day, and one of another",
            vec![
                ("in.log-a", lines("a", 1_000, 40_000, 13), 1),
                ("in.log-b", lines("b", 0, 39_000, 31), 2),
                ("in.log-c", lines("c", 50_000, 60_000, 31), 9),
            ],
        ),
    ]
}

#[test]
fn several_files_give_the_rows_and_event_time_of_one_sorted_file() {
    for (name, set) in sets() {
        let folder = tempfile::tempdir().unwrap();
        let mut expected: Vec<(Timestamp, String)> = set.iter().flat_map(|(_, lines, _)| lines.clone()).collect();
        expected.sort();
        for (file, lines, age) in &set {
            write(&folder.path().join(file), lines, *age);
        }
        for order in ["time", "modified", "name"] {
            for parallelism in 1..=3 {
                let factory = factory(&folder.path().join("in.log*"), &json!({"order": order}));
                let seen = run(&factory, expected.len(), parallelism, 40);
                assert_eq!(seen.rows, expected, "{name}, {order}, {parallelism}");
                assert_eq!(seen.late, [], "{name}, {order}, {parallelism}");
                if order == "time" && parallelism == 1 {
                    // A batch of the sparser host, and no whole file.
                    assert!(seen.spread <= 40 * 31 * 2, "{name}: rows {} ms behind", seen.spread);
                }
            }
        }
    }
}

#[test]
fn the_first_start_of_a_followed_set_gives_the_event_time_of_one_sorted_file() {
    for (name, set) in sets() {
        let folder = tempfile::tempdir().unwrap();
        let mut expected: Vec<(Timestamp, String)> = set.iter().flat_map(|(_, lines, _)| lines.clone()).collect();
        expected.sort();
        for (file, lines, age) in &set {
            write(&folder.path().join(file), lines, *age);
        }
        for parallelism in 1..=3 {
            let factory = factory(&folder.path().join("in.log*"), &json!({"follow": true}));
            let seen = run(&factory, expected.len(), parallelism, 40);
            assert_eq!(seen.rows, expected, "{name}, {parallelism}");
            assert_eq!(seen.late, [], "{name}, {parallelism}");
        }
    }
}

#[test]
fn a_subtask_without_a_followed_file_keeps_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.log"), &lines("a", 0, 1_000, 10), 0);
    let factory = factory(&folder.path().join("in.log*"), &json!({"follow": true}));
    let mut seen = Seen::default();
    let watermarks = (0..4).map(|index| {
        let mut subtask = Subtask::new(factory.create(index, 4).unwrap(), WATERMARK_START);
        (0..3).for_each(|_| subtask.poll(1_000, WATERMARK_START, &mut seen));
        subtask.watermark()
    });
    assert_eq!(watermarks.min(), Some(989), "that of the only subtask with a file, which is caught up with");
}

#[test]
fn a_file_that_is_caught_up_with_does_not_hold_the_others_back() {
    let folder = tempfile::tempdir().unwrap();
    let quiet = folder.path().join("in.log.quiet");
    write(&quiet, &lines("q", 0, 100, 10), 0);
    write(&folder.path().join("in.log"), &lines("a", 0, 1_000, 10), 0);
    let factory = factory(&folder.path().join("in.log*"), &json!({"follow": true}));
    let mut subtask = Subtask::new(factory.create(0, 1).unwrap(), WATERMARK_START);
    let mut seen = Seen::default();
    let deadline = Instant::now() + Duration::from_secs(30);
    while subtask.watermark() != 989 {
        subtask.poll(7, WATERMARK_START, &mut seen);
        assert!(Instant::now() < deadline, "event time stands at {}", subtask.watermark());
    }
    assert_eq!(seen.rows.len(), 110);
    // Positions say how far event time was in each.
    let splits = subtask.source.position();
    let mut times: Vec<i64> = splits.values().map(|position| position["event_time"].as_i64().unwrap()).collect();
    times.sort_unstable();
    assert_eq!(times, [90, 990]);
    fs::remove_file(quiet).unwrap();
}

/// A subtask that goes on where another one stopped.
fn resumed(factory: &FileSourceFactory, stopped: &mut Subtask) -> Subtask {
    let mut source = factory.create(0, 1).unwrap();
    source.restore(&stopped.source.position()).unwrap();
    Subtask::new(source, stopped.generator.low())
}

#[test]
fn event_time_at_the_end_is_that_of_the_newest_row_wherever_a_run_was_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let (newer, older) = (folder.path().join("in.log-a"), folder.path().join("in.log-b"));
    write(&newer, &lines("a", 0, 200, 10), 9);
    write(&older, &lines("b", 0, 150, 10), 0);
    for order in ["name", "modified", "time"] {
        // Also where the newest row is in the last batch of its file, and with the last one of all.
        for rows_max in [1, 3, 7, 100] {
            for stop_at in 0..35 {
                let factory = factory(&folder.path().join("in.log*"), &json!({"order": order}));
                let mut subtask = Subtask::new(factory.create(0, 1).unwrap(), WATERMARK_START);
                let mut seen = Seen::default();
                while !subtask.ended && seen.rows.len() < stop_at {
                    subtask.poll(rows_max, WATERMARK_START, &mut seen);
                }
                let mut subtask = resumed(&factory, &mut subtask);
                while !subtask.ended {
                    subtask.poll(rows_max, WATERMARK_START, &mut seen);
                }
                let case = format!("{order}, {rows_max} rows, stopped at {stop_at}");
                assert_eq!((seen.rows.len(), subtask.generator.low()), (35, 190), "{case}");
                let splits = subtask.source.position();
                let times: Vec<i64> = splits.values().map(|position| position["event_time"].as_i64().unwrap()).collect();
                assert_eq!(times, [190, 140], "{case}");
            }
        }
    }
}

#[test]
fn event_time_of_followed_files_that_are_caught_up_with_is_the_same_after_a_resume() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("in.log-a"), &lines("a", 0, 1_000, 10), 0);
    let late = folder.path().join("in.log-b");
    write(&late, &lines("b", 0, 500, 10), 0);
    let factory = factory(&folder.path().join("in.log*"), &json!({"follow": true}));
    let mut subtask = Subtask::new(factory.create(0, 1).unwrap(), WATERMARK_START);
    let mut seen = Seen::default();
    // The last rows of the one that is behind are read by the next run.
    let deadline = Instant::now() + Duration::from_secs(30);
    while seen.rows.len() < 150 {
        subtask.poll(7, WATERMARK_START, &mut seen);
        assert!(Instant::now() < deadline, "{} rows", seen.rows.len());
    }
    let mut next = resumed(&factory, &mut subtask);
    // What event time was does not hide where it gets to.
    next.generator = WatermarkGenerator::new(0, None);
    while next.watermark() != 989 {
        next.poll(7, WATERMARK_START, &mut seen);
        assert!(Instant::now() < deadline, "event time stands at {}", next.watermark());
    }
}
