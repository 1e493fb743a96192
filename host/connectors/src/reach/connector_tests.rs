//! Sources and sinks that may not reach everything.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_model::{Attempt, Batch, CheckpointId};

use super::*;
use crate::{Commit, ConnectorError, Polled, Recovery, Sink, SinkContext, Source, sink, source};

struct World {
    _folder: tempfile::TempDir,
    mine: PathBuf,
    other: PathBuf,
    reach: Reach,
}

/// A folder with a log and with links to logs and folders elsewhere.
fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (mine, other) = (root.join("mine"), root.join("other"));
    fs::create_dir_all(mine.join("day-1")).unwrap();
    fs::create_dir_all(&other).unwrap();
    fs::write(mine.join("day-1/a.log"), "mine\n").unwrap();
    for name in ["a.log", "b.log"] {
        fs::write(other.join(name), "a secret that is long enough to be known again by how it begins\n").unwrap();
    }
    symlink("../../other/b.log", mine.join("day-1/b.log")).unwrap();
    symlink(&other, mine.join("day-2")).unwrap();
    let reach = Reach::beneath(std::slice::from_ref(&mine)).unwrap();
    World { _folder: folder, mine, other, reach }
}

fn open(path: &Path, more: &Value, reach: &Reach) -> Result<Box<dyn Source>, ConnectorError> {
    let mut settings = json!({"path": path});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    source("file", settings.as_object().unwrap(), reach).unwrap().create(0, 1)
}

/// All rows until the end, or until a source that follows has given one and looked again; and its oddities.
fn rows(source: &mut dyn Source, looks: usize) -> Result<Vec<String>, ConnectorError> {
    let (mut found, mut left, deadline) = (Vec::new(), looks, Instant::now() + Duration::from_secs(60));
    loop {
        let mut rows = Batch::default();
        let polled = source.poll(&mut rows, 1_000, 1 << 20)?;
        found.extend(rows.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()));
        match polled {
            Polled::Ended => return Ok(found),
            Polled::Idle { retry_in } if !found.is_empty() || left < looks => {
                let Some(fewer) = left.checked_sub(1) else { return Ok(found) };
                left = fewer;
                std::thread::park_timeout(retry_in);
            }
            _ => assert!(Instant::now() < deadline, "{found:?}"),
        }
    }
}

#[test]
fn s137_a_link_that_a_wildcard_meets_leads_no_source_elsewhere() {
    let World { mine, reach, .. } = &world();
    for pattern in ["day-1", "day-1/*.log", "day-*/*.log", "**/*.log", "*/b.log", "{day-1,day-2}/*.log", "day-?/[ab].log"] {
        for follow in [false, true] {
            // Without a bound, or a link of another kind, there is more: so it is the bound that keeps it out.
            let everything =
                rows(&mut *open(&mine.join(pattern), &json!({"follow": follow}), &Reach::default()).unwrap(), 3).unwrap();
            assert!(everything.iter().any(|row| row.contains("secret")), "{pattern}");
            let made = open(&mine.join(pattern), &json!({"follow": follow}), reach);
            let mut source = match made {
                // All that there is lies elsewhere, or it is named without a wildcard.
                Err(error) => {
                    assert!(!follow && ["*/b.log", "{day-1,day-2}/*.log"].contains(&pattern), "{pattern}: {error}");
                    continue;
                }
                Ok(source) => source,
            };
            if follow && pattern == "*/b.log" {
                let mut none = Batch::default();
                assert!(matches!(source.poll(&mut none, 9, 999), Ok(Polled::Idle { .. })) && none.is_empty());
            } else {
                match rows(&mut *source, 3) {
                    Ok(found) => assert_eq!(found, ["mine"], "{pattern} {follow}"),
                    Err(error) => assert!(error.to_string().contains("--allow-path"), "{pattern}: {error}"),
                }
            }
            let said = source.oddities().iter().map(|(_, oddity)| format!("{oddity:?}")).collect::<String>();
            assert!(said.contains("--allow-path") || pattern.contains('{'), "{pattern} {follow}: {said}");
        }
    }
}

#[test]
fn s137_a_checkpoint_leads_no_source_elsewhere() {
    let World { mine, other, reach, .. } = &world();
    // A position such as somebody could have written into a checkpoint: of a file elsewhere, begun.
    let mut theirs = open(other, &json!({"follow": true}), &Reach::default()).unwrap();
    assert_eq!(rows(&mut *theirs, 1).unwrap().len(), 2);
    let mut positions = theirs.position();
    for position in positions.values_mut() {
        position["offset"] = json!(5);
    }
    let mut free = open(mine, &json!({"follow": true}), &Reach::default()).unwrap();
    free.restore(&positions).unwrap();
    assert_eq!(rows(&mut *free, 1).unwrap().len(), 2, "without a bound it goes on there");
    let mut bound = open(mine, &json!({"follow": true}), reach).unwrap();
    let error = bound.restore(&positions).unwrap_err().to_string();
    assert!(error.contains("not found again"), "{error}");
    let mut skips = open(&mine.join("day-1"), &json!({"follow": true, "lost_files": "skip"}), reach).unwrap();
    skips.restore(&positions).unwrap();
    assert_eq!(rows(&mut *skips, 3).unwrap(), ["mine"]);
}

#[test]
fn s137_no_link_leads_a_sink_elsewhere() {
    let World { mine, other, reach, .. } = &world();
    let open = |path: &str| {
        let settings = json!({"path": mine.join(path), "format": "lines"});
        let context = SinkContext { uid: "out".to_owned(), index: 0, parallelism: 1, attempt: Attempt(1) };
        let factory = sink("file", settings.as_object().unwrap(), reach).unwrap();
        factory.committer(&context).and_then(|committer| Ok((committer, factory.create(&context)?)))
    };
    let write = |sink: &mut Box<dyn Sink>| -> Result<Value, ConnectorError> {
        let mut rows = Batch::default();
        rows.push(0, b"", b"row");
        sink.write(rows.view())?;
        sink.prepare(CheckpointId(1))?().map(Option::unwrap)
    };
    fs::create_dir(other.join(".pending")).unwrap();
    // Links that are there before.
    assert!(open("day-2").is_err() && open("day-2/new").is_err());
    fs::create_dir(mine.join("pending")).unwrap();
    symlink(other, mine.join("pending/.pending")).unwrap();
    assert!(open("pending").is_err());
    // And ones that come later, at every step.
    let swap = |path: &str, is_back: bool| {
        let (there, aside) = (mine.join(path), mine.join("aside"));
        if is_back {
            fs::remove_file(&there).unwrap();
            fs::rename(aside, there).unwrap();
        } else {
            fs::rename(&there, aside).unwrap();
            symlink(other, there).unwrap();
        }
    };
    for folder in ["out/.pending", "out"] {
        let (mut committer, mut sink) = open("out").unwrap();
        swap(folder, false);
        let error = write(&mut sink).unwrap_err().to_string();
        assert!(error.contains("--allow-path"), "{error}");
        assert!(committer.recover(&Recovery::default()).is_err());
        swap(folder, true);
        let (mut committer, mut sink) = open("out").unwrap();
        committer.recover(&Recovery::default()).unwrap();
        let committable = write(&mut sink).unwrap();
        swap(folder, false);
        assert!(
            committer.commit(&committable).is_err() && (folder == "out/.pending" || committer.retract(CheckpointId(0)).is_err())
        );
        swap(folder, true);
        assert_eq!(committer.commit(&committable).unwrap(), Commit::Done);
        committer.retract(CheckpointId(0)).unwrap();
    }
    let mut left: Vec<_> = fs::read_dir(other).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".pending", "a.log", "b.log"], "nothing was made, moved or removed elsewhere");
    assert_eq!(fs::read_dir(other.join(".pending")).unwrap().count(), 0);
}
