#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::json;
use weir_model::{Attempt, Batch};

use super::committer::SUPERSEDED;
use super::*;
use crate::{Commit, Recovery};

fn factory(folder: &Path, more: &[(&str, &str)]) -> FileSinkFactory {
    let mut settings = json!({"path": folder.to_str().unwrap(), "format": "lines"});
    more.iter().for_each(|(key, value)| settings[*key] = json!(value));
    FileSinkFactory::from_settings(settings.as_object().unwrap(), &Reach::default()).unwrap()
}

/// Both halves of a subtask.
struct Subtask {
    sink: Box<dyn Sink>,
    committer: Box<dyn Committer>,
}

impl Subtask {
    fn of(factory: &FileSinkFactory, context: &SinkContext) -> Subtask {
        Subtask { committer: factory.committer(context).unwrap(), sink: factory.create(context).unwrap() }
    }

    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.sink.write(rows)
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, ConnectorError> {
        self.sink.prepare(checkpoint)
    }

    fn commit(&mut self, committable: &Value) -> Result<Commit, ConnectorError> {
        self.committer.commit(committable)
    }

    fn recover(&mut self, keep: &[Value]) -> Result<(), ConnectorError> {
        self.committer.recover(&Recovery { keep: keep.to_vec() })
    }

    fn retract(&mut self, checkpoint: CheckpointId) -> Result<u64, ConnectorError> {
        self.committer.retract(checkpoint)
    }
}

fn open(folder: &Path, uid: &str, index: u32, attempt: u64) -> Subtask {
    let context = SinkContext { uid: uid.to_owned(), index, parallelism: 2, attempt: Attempt(attempt) };
    Subtask::of(&factory(folder, &[]), &context)
}

fn rows(values: &[&str]) -> Batch {
    let mut batch = Batch::default();
    values.iter().for_each(|value| batch.push(0, b"", value.as_bytes()));
    batch
}

/// What a reader sees: the visible files, by name.
fn visible(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap())).collect()
}

fn content(folder: &Path) -> String {
    visible(folder).into_values().collect()
}

fn pending(folder: &Path) -> usize {
    fs::read_dir(folder.join(PENDING)).unwrap().count()
}

fn prepare(sink: &mut Subtask, checkpoint: u64) -> Value {
    sink.prepare(CheckpointId(checkpoint)).unwrap()().unwrap().unwrap()
}

#[test]
fn rows_are_visible_when_their_checkpoint_is_committed_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = open(folder.path(), "out", 0, 1);
    sink.recover(&[]).unwrap();
    sink.write(rows(&["a"]).view()).unwrap();
    let prepared = sink.prepare(CheckpointId(1)).unwrap();
    sink.write(rows(&["b"]).view()).unwrap();
    assert_eq!(content(folder.path()), "");
    let first = prepared().unwrap().unwrap();
    assert_eq!(content(folder.path()), "");
    sink.commit(&first).unwrap();
    assert_eq!(content(folder.path()), "a\n");
    let second = prepare(&mut sink, 2);
    sink.commit(&second).unwrap();
    assert_eq!(content(folder.path()), "a\nb\n");
    assert_eq!(visible(folder.path()).keys().collect::<Vec<_>>(), ["out-c00000001-a1-s0.txt", "out-c00000002-a1-s0.txt"]);
    assert_eq!((second["rows"].as_u64(), second["bytes"].as_u64(), pending(folder.path())), (Some(1), Some(2), 0));
}

#[test]
fn a_checkpoint_without_rows_makes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = open(folder.path(), "out", 0, 1);
    sink.write(Batch::default().view()).unwrap();
    assert_eq!(sink.prepare(CheckpointId(1)).unwrap()().unwrap(), None);
    assert_eq!((pending(folder.path()), visible(folder.path()).len()), (0, 0));
}

/// Crashes after `steps` steps of writing two checkpoints, then a new attempt goes on from the last checkpoint that had
/// everything, as the coordinator would: commits it again, writes what is missing.
#[test]
fn s59_a_crash_at_any_step_leaves_each_row_visible_once() {
    for steps in 0..=8 {
        for lost_notification in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            // What the manifest holds: committables, and how many of the rows a, b, c are behind.
            let (mut kept, mut done) = (Vec::new(), 0);
            let mut sink = open(folder.path(), "out", 0, 1);
            sink.recover(&[]).unwrap();
            let mut prepared = None;
            for step in 0..steps {
                match step {
                    0 => sink.write(rows(&["a"]).view()).unwrap(),
                    1 => prepared = Some(sink.prepare(CheckpointId(1)).unwrap()),
                    2 => sink.write(rows(&["b"]).view()).unwrap(),
                    3 => (kept, done) = (vec![prepared.take().unwrap()().unwrap().unwrap()], 1),
                    4 if !lost_notification => drop(sink.commit(&kept[0]).unwrap()),
                    5 => prepared = Some(sink.prepare(CheckpointId(2)).unwrap()),
                    6 => {
                        kept.push(prepared.take().unwrap()().unwrap().unwrap());
                        done = 2;
                    }
                    7 if !lost_notification => kept.iter().for_each(|committable| drop(sink.commit(committable).unwrap())),
                    _ => {}
                }
            }
            drop((sink, prepared));
            for attempt in 2..4 {
                let mut sink = open(folder.path(), "out", 0, attempt);
                sink.recover(&kept).unwrap();
                kept.iter().for_each(|committable| drop(sink.commit(committable).unwrap()));
                kept.iter().for_each(|committable| drop(sink.commit(committable).unwrap()));
                assert_eq!(content(folder.path()), ["", "a\n", "a\nb\n"][done], "crash after {steps} steps");
                assert_eq!(pending(folder.path()), 0);
                // Crashes once more with rows of its own before it gets through.
                sink.write(rows(&["a", "b", "c"][done..]).view()).unwrap();
                if attempt == 3 {
                    let last = prepare(&mut sink, 3);
                    sink.commit(&last).unwrap();
                }
            }
            assert_eq!(content(folder.path()), "a\nb\nc\n", "crash after {steps} steps");
        }
    }
}

#[test]
fn what_an_uncertain_commit_finds_is_an_error_and_never_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = open(folder.path(), "out", 0, 1);
    sink.write(rows(&["a"]).view()).unwrap();
    let committable = prepare(&mut sink, 1);
    let from = folder.path().join(PENDING).join(committable["from"].as_str().unwrap());
    let to = folder.path().join(committable["to"].as_str().unwrap());

    fs::write(&to, "someone else's").unwrap();
    let error = sink.commit(&committable).unwrap_err().to_string();
    assert!(error.contains("exists already") && error.contains(to.to_str().unwrap()), "{error}");
    assert_eq!(fs::read_to_string(&to).unwrap(), "someone else's");
    fs::remove_file(&to).unwrap();

    fs::write(&from, "longer").unwrap();
    assert!(sink.commit(&committable).unwrap_err().to_string().contains("has 6 bytes, the checkpoint says 2"));
    for bad in [json!(null), json!({"folder": "x"}), json!({"folder": "x", "from": "../y", "to": "z", "bytes": 0, "rows": 0})] {
        assert!(matches!(sink.commit(&bad), Err(ConnectorError::Commit { .. })));
    }
}

#[test]
fn a_committed_file_that_its_reader_has_moved_away_stays_committed() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = open(folder.path(), "out", 0, 1);
    sink.write(rows(&["a"]).view()).unwrap();
    let committable = prepare(&mut sink, 1);
    sink.commit(&committable).unwrap();
    fs::remove_file(folder.path().join(committable["to"].as_str().unwrap())).unwrap();
    sink.commit(&committable).unwrap();
    assert!(visible(folder.path()).is_empty(), "its rows are not written again");
}

#[test]
fn a_pending_file_that_somebody_has_deleted_is_gone_and_never_taken_for_committed() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = open(folder.path(), "out", 0, 1);
    sink.write(rows(&["a"]).view()).unwrap();
    let first = prepare(&mut sink, 1);
    sink.write(rows(&["b"]).view()).unwrap();
    let second = prepare(&mut sink, 2);
    assert_eq!(sink.commit(&first).unwrap(), Commit::Done);
    fs::remove_file(folder.path().join(PENDING).join(second["from"].as_str().unwrap())).unwrap();
    assert_eq!(sink.commit(&first).unwrap(), Commit::DoneBefore);
    let Commit::Gone { reason } = sink.commit(&second).unwrap() else { panic!("its rows are lost") };
    assert!(reason.contains("out~1~0~1") && reason.contains("its 1 rows"), "{reason}");
    // Whoever comes after cannot know.
    assert_eq!(open(folder.path(), "out", 0, 2).commit(&second).unwrap(), Commit::DoneBefore);
}

/// s89: a task of an execution that is over stands still before its commit, and carries it out while the next execution, which
/// goes on from an older checkpoint, takes output back.
#[test]
fn s89_a_commit_that_comes_at_any_time_while_output_is_taken_back_shows_no_row_twice() {
    for late in 0..=4 {
        let folder = tempfile::tempdir().unwrap();
        let mut straggler = open(folder.path(), "out", 1, 1);
        straggler.write(rows(&["again"]).view()).unwrap();
        let held = prepare(&mut straggler, 2);
        let mut next = [open(folder.path(), "out", 0, 2), open(folder.path(), "out", 1, 2)];
        // The steps of the next execution: all recover, then the first takes back; the straggler before any of them.
        for step in 0..=4 {
            if step == late {
                let _ = straggler.commit(&held);
            }
            match step {
                0 => next[0].recover(&[]).unwrap(),
                1 => next[1].recover(&[]).unwrap(),
                2 => drop(next[0].retract(CheckpointId(1)).unwrap()),
                3 => {
                    next[1].write(rows(&["again"]).view()).unwrap();
                    let own = prepare(&mut next[1], 3);
                    next[1].commit(&own).unwrap();
                }
                _ => {}
            }
        }
        assert_eq!(content(folder.path()), "again\n", "a commit before step {late}");
    }
}

#[test]
fn s140_a_checkpoint_does_not_say_where_files_are_moved() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, theirs) = (folder.path().join("mine"), folder.path().join("theirs"));
    let mut other = open(&theirs, "out", 0, 1);
    other.write(rows(&["a"]).view()).unwrap();
    let forged = prepare(&mut other, 1);
    let mut sink = open(&mine, "out", 0, 2);
    let error = sink.commit(&forged).unwrap_err().to_string();
    assert!(error.contains("the sink's path is now") && visible(&theirs).is_empty(), "{error}");
    // What was finished under an earlier path is done.
    other.commit(&forged).unwrap();
    sink.commit(&forged).unwrap();
    for (from, to) in [(".", "x"), ("..", "x"), ("out~1~0~0", ".bashrc"), ("out~1~0~0", "../x"), ("out~1~0~0", "a\0b")] {
        let value = json!({"folder": mine.to_str().unwrap(), "from": from, "to": to, "bytes": 4096, "rows": 1});
        assert!(sink.commit(&value).is_err(), "{value}");
    }
    // Nor does a link among the pending files.
    std::os::unix::fs::symlink("/etc/hostname", mine.join(PENDING).join("out~2~0~9")).unwrap();
    let value = json!({"folder": mine.to_str().unwrap(), "from": "out~2~0~9", "to": "x", "bytes": fs::metadata("/etc/hostname").unwrap().len(), "rows": 1});
    assert!(sink.commit(&value).unwrap_err().to_string().contains("not a regular file"));
}

#[test]
fn rows_that_will_be_written_again_are_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let commit = |uid: &str, checkpoint, value| {
        let mut sink = open(folder.path(), uid, 0, 1);
        sink.write(rows(&[value]).view()).unwrap();
        let committable = prepare(&mut sink, checkpoint);
        sink.commit(&committable).unwrap();
    };
    commit("out", 1, "kept");
    commit("out", 2, "again");
    commit("other", 2, "not ours");
    commit("out-c2", 3, "not ours either");
    fs::write(folder.path().join("out-c00000009-notes.txt"), "a person's").unwrap();
    let mut sink = open(folder.path(), "out", 0, 2);
    assert_eq!(sink.retract(CheckpointId(1)).unwrap(), 1);
    let names = |folder: &Path| visible(folder).into_keys().collect::<Vec<_>>();
    let left = ["other-c00000002-a1-s0.txt", "out-c00000001-a1-s0.txt", "out-c00000009-notes.txt", "out-c2-c00000003-a1-s0.txt"];
    assert_eq!(names(folder.path()), left);
    assert_eq!(sink.retract(CheckpointId(1)).unwrap(), 0, "once is enough");
    commit("out", 2, "again");
    assert_eq!(sink.retract(CheckpointId(0)).unwrap(), 2);
    let aside = ["out-c00000001-a1-s0.txt", "out-c00000002-a1-s0.txt", "out-c00000002-a1-s0.txt.2"];
    assert_eq!(names(&folder.path().join(SUPERSEDED)), aside, "nothing is deleted or overwritten");
}

#[test]
fn recovery_removes_leftovers_of_this_sink_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let leave = |uid: &str, index, attempt| {
        let mut sink = open(folder.path(), uid, index, attempt);
        sink.write(rows(&["x"]).view()).unwrap();
        prepare(&mut sink, 1)
    };
    let kept = leave("out", 1, 1);
    leave("out", 0, 1);
    leave("out", 1, 2);
    leave("other", 0, 1);
    leave("out~1~0~0", 0, 1);
    leave("out", 1, 3);
    leave("out", 5, 1);
    fs::write(folder.path().join(PENDING).join("out~notes"), "").unwrap();
    let mut first = open(folder.path(), "out", 0, 2);
    let mut second = open(folder.path(), "out", 1, 2);
    first.recover(std::slice::from_ref(&kept)).unwrap();
    assert_eq!(pending(folder.path()), 6, "its own and those of subtasks that are no more");
    first.write(rows(&["y"]).view()).unwrap();
    second.recover(std::slice::from_ref(&kept)).unwrap();
    let mut left: Vec<_> =
        fs::read_dir(folder.path().join(PENDING)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    let newer = "out~3~1~0";
    assert_eq!(left, ["other~1~0~0", "out%7e1%7e0%7e0~1~0~0", "out~1~1~0", "out~2~0~0", newer, "out~notes"]);
    open(folder.path(), "out", 0, 4).commit(&kept).unwrap();
    assert_eq!(content(folder.path()), "x\n");
}

#[test]
fn an_older_attempt_that_recovers_and_takes_back_late_leaves_the_output_of_the_newer() {
    let folder = tempfile::tempdir().unwrap();
    for index in [0, 1, 5] {
        let mut newer = open(folder.path(), "out", index, 6);
        newer.write(rows(&["shown"]).view()).unwrap();
        let shown = prepare(&mut newer, 8);
        newer.commit(&shown).unwrap();
        newer.write(rows(&["pending"]).view()).unwrap();
        let held = prepare(&mut newer, 9);
        for late in [0, 1] {
            let mut older = open(folder.path(), "out", late, 5);
            older.recover(&[]).unwrap();
            assert_eq!(older.retract(CheckpointId(7)).unwrap(), 0);
        }
        assert_eq!(newer.commit(&held).unwrap(), Commit::Done);
    }
    assert_eq!(content(folder.path()), "shown\nshown\nshown\npending\npending\npending\n");
}

#[test]
fn output_of_an_earlier_job_with_the_same_numbers_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    for value in ["old", "new"] {
        let mut sink = open(folder.path(), "out", 0, 1);
        sink.write(rows(&[value]).view()).unwrap();
        let committable = prepare(&mut sink, 1);
        sink.commit(&committable).unwrap();
    }
    let files = visible(folder.path());
    assert_eq!(files["out-c00000001-a1-s0.txt"], "old\n");
    assert_eq!(files["out-c00000001-a1-s0-2.txt"], "new\n");
}

#[test]
fn a_file_that_was_not_made_durable_stops_the_sink() {
    let folder = tempfile::tempdir().unwrap();
    let mut sink = open(folder.path(), "out", 0, 1);
    sink.write(rows(&["lost otherwise"]).view()).unwrap();
    drop(sink.prepare(CheckpointId(1)).unwrap());
    let error = sink.write(rows(&["x"]).view()).unwrap_err();
    assert!(matches!(error, ConnectorError::Unusable { .. }), "{error}");
    assert!(sink.prepare(CheckpointId(2)).is_err());

    let mut sink = open(folder.path(), "out", 0, 2);
    sink.write(rows(&["x"]).view()).unwrap();
    let prepared = sink.prepare(CheckpointId(1)).unwrap();
    fs::remove_dir_all(folder.path().join(PENDING)).unwrap();
    assert!(prepared().is_err());
    assert!(matches!(sink.prepare(CheckpointId(2)), Err(ConnectorError::Unusable { .. })));
}

#[test]
fn a_full_disk_is_named_and_stops_the_sink() {
    // Every write to this device fails with "no space left".
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join(PENDING)).unwrap();
    let path = folder.path().join(PENDING).join("full");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut pending = PendingFile::over(file, &folder.path().join(PENDING), "full");
    let error = pending.write(&vec![b'x'; 1 << 20], 1).unwrap_err().to_string();
    assert!(error.contains("/full") && error.contains("free space"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let context = SinkContext { uid: "out".to_owned(), index: 0, parallelism: 1, attempt: Attempt(1) };
    let error = factory(&file.join("out"), &[]).create(&context).err().unwrap().to_string();
    assert!(error.contains("create the folder") && error.contains("/file/out"), "{error}");
}

#[test]
fn compressed_files_decompress_to_the_rows() {
    for (name, ending) in [("gzip", "txt.gz"), ("zstd", "txt.zst")] {
        let folder = tempfile::tempdir().unwrap();
        let context = SinkContext { uid: "out".to_owned(), index: 0, parallelism: 1, attempt: Attempt(1) };
        let mut sink = Subtask::of(&factory(folder.path(), &[("compression", name)]), &context);
        let values: Vec<String> = (0..10_000).map(|i| format!("row {i}")).collect();
        for part in values.chunks(1_000) {
            sink.write(rows(&part.iter().map(String::as_str).collect::<Vec<_>>()).view()).unwrap();
        }
        let committable = prepare(&mut sink, 1);
        sink.commit(&committable).unwrap();
        let file = fs::File::open(folder.path().join(format!("out-c00000001-a1-s0.{ending}"))).unwrap();
        let mut text = String::new();
        match name {
            "gzip" => flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap(),
            _ => zstd::stream::read::Decoder::new(file).unwrap().read_to_string(&mut text).unwrap(),
        };
        assert_eq!(text, values.join("\n") + "\n");
    }
}

#[test]
fn wrong_settings_are_named() {
    let settings = |value: Value| FileSinkFactory::from_settings(value.as_object().unwrap(), &Reach::default()).err().unwrap();
    assert_eq!(settings(json!({})).key, "path");
    assert!(settings(json!({"path": "x", "formt": "json"})).to_string().contains("\"format\""));
    assert!(settings(json!({"path": "x", "format": "jsn"})).to_string().contains("\"json\""));
    assert!(settings(json!({"path": "x", "compression": "lz4"})).to_string().contains("none, gzip, zstd"));
}
