//! Files that are read once, run by run, while logs rotate in between: each line comes once, whatever became of its file.

#![allow(clippy::unwrap_used)]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use serde_json::json;
use weir_model::Batch;

use super::*;
use crate::Polled;

type Splits = BTreeMap<String, Value>;

fn all_of(folder: &Path) -> FileSourceFactory {
    FileSourceFactory::from_settings(json!({"path": folder.to_str().unwrap()}).as_object().unwrap(), &Reach::default()).unwrap()
}

/// Reads to the end with some subtasks: the rows, sorted, and where the next run goes on.
fn run(folder: &Path, splits: &Splits, parallelism: u32) -> (Vec<String>, Splits) {
    let (mut found, mut next) = (Vec::new(), Splits::new());
    for index in 0..parallelism {
        let mut source = all_of(folder).create(index, parallelism).unwrap();
        source.restore(splits).unwrap();
        let mut polled = Polled::Rows;
        while polled != Polled::Ended {
            let mut rows = Batch::default();
            polled = source.poll(&mut rows, 1_000, 1 << 20).unwrap();
            found.extend(rows.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()));
        }
        next.extend(serde_json::from_str::<Splits>(&serde_json::to_string(&source.position()).unwrap()).unwrap());
    }
    found.sort();
    (found, next)
}

fn lines(name: &str, from: usize, to: usize) -> Vec<String> {
    (from..to).map(|i| format!("{name} line {i:05} of a log that goes on and on")).collect()
}

fn text(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn append(path: &Path, lines: &[String]) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text(lines).as_bytes()).unwrap();
}

/// What logrotate does: the compressed copy first, then the file goes.
fn compress(path: &Path, to: &Path) {
    let content = fs::read(path).unwrap();
    let compressed = if to.extension().is_some_and(|end| end == "zst") {
        zstd::encode_all(&content[..], 0).unwrap()
    } else {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&content).unwrap();
        encoder.finish().unwrap()
    };
    fs::write(to, compressed).unwrap();
    fs::remove_file(path).unwrap();
}

fn nothing_more(folder: &Path, splits: &Splits) -> bool {
    matches!(all_of(folder).more(splits).unwrap(), More::Nothing(_))
}

#[test]
fn a_compressed_file_that_gets_another_name_is_not_read_again() {
    for (one, other) in [("x.log.1.gz", "x.log.2.gz"), ("x.log.1.zst", "x.log.2.zst")] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        append(&path("x.log"), &lines("x", 0, 500));
        compress(&path("x.log"), &path(one));
        let (found, splits) = run(folder.path(), &Splits::new(), 1);
        assert_eq!(found, lines("x", 0, 500));
        fs::rename(path(one), path(other)).unwrap();
        assert!(nothing_more(folder.path(), &splits), "{other}");
        assert_eq!(run(folder.path(), &splits, 1).0, Vec::<String>::new(), "{other}");
    }
}

#[test]
fn a_half_read_compressed_file_that_gets_another_name_is_read_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    append(&path("x.log"), &lines("x", 0, 500));
    compress(&path("x.log"), &path("x.log.1.gz"));
    let mut source = all_of(folder.path()).create(0, 1).unwrap();
    let mut rows = Batch::default();
    while rows.len() < 300 {
        source.poll(&mut rows, 300, 1 << 20).unwrap();
    }
    let splits = source.position();
    fs::rename(path("x.log.1.gz"), path("x.log.2.gz")).unwrap();
    let (found, splits) = run(folder.path(), &splits, 1);
    assert_eq!(found, lines("x", rows.len(), 500));
    assert!(nothing_more(folder.path(), &splits));
}

#[test]
fn what_was_added_to_a_file_before_it_was_compressed_is_read() {
    // Also a log that is shorter than what a file is known by.
    for (before, after) in [(500, 520), (3, 5), (3, 500)] {
        for copy in ["x.log.1.gz", "x.log-20260301.zst"] {
            for parallelism in 1..=3 {
                let folder = tempfile::tempdir().unwrap();
                let path = |name: &str| folder.path().join(name);
                append(&path("x.log"), &lines("x", 0, before));
                let splits = run(folder.path(), &Splits::new(), parallelism).1;
                append(&path("x.log"), &lines("x", before, after));
                compress(&path("x.log"), &path(copy));
                append(&path("x.log"), &lines("y", 0, 2));
                let More::Some(what) = all_of(folder.path()).more(&splits).unwrap() else { panic!("{copy} is to be read") };
                assert!(what.contains("1 file new") && what.contains("1 file compressed since it was read"), "{what}");
                let (found, splits) = run(folder.path(), &splits, parallelism);
                assert_eq!(found, [lines("x", before, after), lines("y", 0, 2)].concat(), "{copy}, {before}, {parallelism}");
                assert!(nothing_more(folder.path(), &splits), "{copy}");
                // And another night.
                fs::rename(path(copy), path("x.log.2.gz")).unwrap();
                compress(&path("x.log"), &path("x.log.1.gz"));
                let (found, splits) = run(folder.path(), &splits, parallelism % 3 + 1);
                assert_eq!(found, Vec::<String>::new(), "{copy}, {before}, {parallelism}");
                assert!(nothing_more(folder.path(), &splits), "{copy}");
            }
        }
    }
}

#[test]
fn what_was_added_is_read_also_after_a_stop_before_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    append(&path("x.log"), &lines("x", 0, 500));
    let (_, splits) = run(folder.path(), &Splits::new(), 1);
    append(&path("x.log"), &lines("x", 500, 520));
    compress(&path("x.log"), &path("x.log.1.gz"));
    let mut source = all_of(folder.path()).create(0, 1).unwrap();
    source.restore(&splits).unwrap();
    // A checkpoint before the first row, even of a file that is as large as the one that was read.
    let mut splits = source.position();
    let stored = fs::metadata(path("x.log.1.gz")).unwrap().len();
    let position = splits.values_mut().next().unwrap();
    assert_ne!(position["size"], json!(stored), "it would be taken for a file that was read to its end");
    let (found, splits) = run(folder.path(), &splits, 1);
    assert_eq!(found, lines("x", 500, 520));
    assert!(nothing_more(folder.path(), &splits));
}

#[test]
fn a_compressed_file_that_only_begins_like_one_that_is_gone_is_read_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let header = lines("header", 0, 40);
    append(&path("x.log"), &[header.clone(), lines("x", 0, 500)].concat());
    let (_, splits) = run(folder.path(), &Splits::new(), 1);
    fs::remove_file(path("x.log")).unwrap();
    append(&path("other"), &[header.clone(), lines("y", 0, 9)].concat());
    compress(&path("other"), &path("x.log.1.gz"));
    let (found, splits) = run(folder.path(), &splits, 1);
    assert_eq!(found, [header, lines("y", 0, 9)].concat());
    assert!(nothing_more(folder.path(), &splits));
}

/// The compressed copy and the file that is written anew belong to different subtasks for some of the names.
#[test]
fn a_file_that_is_cut_in_place_and_its_compressed_copy_are_read_once_by_several_subtasks() {
    for name in ["a.log", "b.log", "c.log", "d.log", "e.log", "f.log"] {
        for (before, anew) in [(500, 20), (500, 500), (3, 3)] {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            let copy = format!("{name}.1.gz");
            append(&path(name), &lines("x", 0, before));
            append(&path("other"), &lines("o", 0, 10));
            let splits = run(folder.path(), &Splits::new(), 3).1;
            fs::copy(path(name), path("copy")).unwrap();
            compress(&path("copy"), &path(&copy));
            fs::write(path(name), text(&lines("y", 0, anew))).unwrap();
            let (found, splits) = run(folder.path(), &splits, 3);
            assert_eq!(found, lines("y", 0, anew), "{name}, {before}, {anew}");
            assert!(nothing_more(folder.path(), &splits), "{name}");
            assert_eq!(run(folder.path(), &splits, 2).0, Vec::<String>::new(), "{name}");
        }
    }
}
