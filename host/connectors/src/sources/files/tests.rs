#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::json;
use weir_model::{Batch, OddKind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::*;
use crate::Polled;

/// Seeded numbers.
struct Random(u64, u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.1 += 1;
        (xxh3_64_with_seed(&self.1.to_le_bytes(), self.0) % bound as u64) as usize
    }
}

fn factory(path: &Path, more: &Value) -> FileSourceFactory {
    let mut settings = json!({"path": path.to_str().unwrap()});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    FileSourceFactory::from_settings(settings.as_object().unwrap(), &Reach::default()).unwrap()
}

fn following(path: &Path) -> FileSourceFactory {
    factory(path, &json!({"follow": true, "rotate_wait": "0s"}))
}

/// Positions as a manifest keeps them.
fn through_json(splits: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    serde_json::from_str(&serde_json::to_string(splits).unwrap()).unwrap()
}

fn values(rows: &Batch) -> Vec<String> {
    assert!(rows.view().is_valid());
    rows.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn gzip(content: &[u8], members: usize) -> Vec<u8> {
    let parts = content.chunks(content.len().div_ceil(members).max(1));
    let mut out = Vec::new();
    for part in parts {
        let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
        encoder.write_all(part).unwrap();
        out = encoder.finish().unwrap();
    }
    out
}

fn zstd(content: &[u8], frames: usize) -> Vec<u8> {
    content.chunks(content.len().div_ceil(frames).max(1)).flat_map(|part| zstd::encode_all(part, 0).unwrap()).collect()
}

/// All rows of a bounded source to its end, or its error.
fn drain(source: &mut dyn Source) -> Result<Vec<String>, ConnectorError> {
    let (mut out, mut rows) = (Vec::new(), Batch::default());
    loop {
        rows.clear();
        let polled = source.poll(&mut rows, 1_000, 1 << 20)?;
        out.extend(values(&rows));
        if polled == Polled::Ended {
            return Ok(out);
        }
    }
}

fn read_all(path: &Path) -> Result<Vec<String>, ConnectorError> {
    drain(&mut *factory(path, &json!({})).create(0, 1)?)
}

/// Polls until `count` rows have come.
fn wait_for(source: &mut dyn Source, count: usize) -> Vec<String> {
    let (mut out, mut rows, deadline) = (Vec::new(), Batch::default(), Instant::now() + Duration::from_secs(30));
    while out.len() < count {
        rows.clear();
        source.poll(&mut rows, 1_000, 1 << 20).unwrap();
        out.extend(values(&rows));
        assert!(Instant::now() < deadline, "{} of {count} rows in time: {out:?}", out.len());
    }
    out
}

/// Polls until the folder was looked at again and everything was read, and nothing came of it.
fn nothing_comes(source: &mut dyn Source) {
    let (mut rows, until) = (Batch::default(), Instant::now() + Duration::from_millis(500));
    while Instant::now() < until {
        source.poll(&mut rows, 1_000, 1 << 20).unwrap();
    }
    assert_eq!(values(&rows), Vec::<String>::new());
}

#[test]
fn any_polls_and_restores_of_any_files_give_each_line_once_and_in_order() {
    for seed in 0..40 {
        let mut random = Random(seed, 0);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub-folder")).unwrap();
        fs::write(folder.path().join(".hidden"), "hidden\n").unwrap();
        let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in 0..1 + random.below(5) {
            let mut content = Vec::new();
            let lines = random.below(3_000);
            let name = format!("f{file}");
            let mut wanted = Vec::new();
            for number in 0..lines {
                let line = format!("{name} {number} {}", "x".repeat(random.below(60)));
                content.extend_from_slice(line.as_bytes());
                wanted.push(line);
                let is_last_without_end = number + 1 == lines && random.below(2) == 0;
                content.extend_from_slice(if is_last_without_end {
                    b""
                } else {
                    [&b"\n"[..], b"\r\n", b"\n\n"][random.below(3)]
                });
            }
            let parts = 1 + random.below(4);
            let bytes = vec![content.clone(), gzip(&content, parts), zstd(&content, parts)].swap_remove(random.below(3));
            fs::write(folder.path().join(&name), bytes).unwrap();
            expected.insert(name, wanted);
        }
        let factory = factory(folder.path(), &json!({}));
        let (mut found, mut splits, mut rows) = (BTreeMap::<String, Vec<String>>::new(), BTreeMap::new(), Batch::default());
        for round in 0.. {
            let parallelism = 1 + random.below(3) as u32;
            let (mut next, mut ended) = (BTreeMap::new(), 0);
            for index in 0..parallelism {
                let mut source = factory.create(index, parallelism).unwrap();
                if round > 0 {
                    source.restore(&splits).unwrap();
                }
                for _ in 0..random.below(12) {
                    rows.clear();
                    let rows_max = 1 + random.below(400);
                    let polled = source.poll(&mut rows, rows_max, 1 + random.below(20_000)).unwrap();
                    assert!(rows.len() <= rows_max);
                    for line in values(&rows) {
                        found.entry(line.split(' ').next().unwrap().to_owned()).or_default().push(line);
                    }
                    if polled == Polled::Ended {
                        ended += 1;
                        break;
                    }
                }
                next.extend(source.position());
            }
            splits = through_json(&next);
            if ended == parallelism {
                break;
            }
        }
        expected.retain(|_, lines| !lines.is_empty());
        assert_eq!(found, expected, "seed {seed}");
    }
}

/// Makes a file look as if it was last written so many seconds after some fixed time.
fn modified(path: &Path, seconds: u64) {
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

#[test]
fn files_are_told_apart_by_content_and_read_oldest_first_then_by_the_numbers_in_their_names() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b.gz"), "plain in spite of its name\n").unwrap();
    fs::write(folder.path().join("a.log"), gzip(b"gzip\n", 1)).unwrap();
    fs::write(folder.path().join("c"), zstd(b"zstd", 1)).unwrap();
    fs::write(folder.path().join("d"), "\x1f").unwrap();
    fs::write(folder.path().join("e"), "").unwrap();
    for name in ["a.log", "b.gz", "c", "d", "e"] {
        modified(&folder.path().join(name), 0);
    }
    assert_eq!(read_all(folder.path()).unwrap(), ["gzip", "plain in spite of its name", "zstd", "\x1f"]);
    modified(&folder.path().join("a.log"), 3);
    modified(&folder.path().join("c"), 2);
    assert_eq!(read_all(folder.path()).unwrap(), ["plain in spite of its name", "\x1f", "zstd", "gzip"]);
    modified(&folder.path().join("a.log"), 0);
    assert_eq!(read_all(&folder.path().join("[ac]*")).unwrap(), ["gzip", "zstd"]);
    assert_eq!(read_all(&folder.path().join("c")).unwrap(), ["zstd"]);
}

#[test]
fn damaged_compressed_files_are_named_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let content: Vec<u8> = (0..100_000).flat_map(|i| format!("line {}\n", i * 7919 % 100_003).into_bytes()).collect();
    for compressed in [gzip(&content, 1), zstd(&content, 1)] {
        fs::write(&path, &compressed[..compressed.len() / 2]).unwrap();
        let error = read_all(&path).unwrap_err();
        let ConnectorError::Broken { offset, reason, .. } = &error else { panic!("{error}") };
        assert!(*offset > 0 && *offset < content.len() as u64 && reason.contains("in the middle"), "{error}");
        let mut flipped = compressed.clone();
        for byte in &mut flipped[compressed.len() / 2..][..64] {
            *byte ^= 0x55;
        }
        fs::write(&path, &flipped).unwrap();
        let error = read_all(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()) && error.contains("after byte"), "{error}");
    }
    let whole = gzip(b"a\n", 1);
    for trailing in [&[0; 512][..], b"rubbish after the end"] {
        fs::write(&path, [&whole[..], trailing].concat()).unwrap();
        assert_eq!(read_all(&path).unwrap(), ["a"], "as gzip -d takes it");
    }
}

#[test]
fn a_path_that_means_no_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| read_all(path).unwrap_err().to_string();
    assert!(error(&folder.path().join("missing.log")).contains("missing.log: there is no such file"));
    assert!(error(&folder.path().join("*.log")).contains("*.log: no file matches"));
    assert!(error(folder.path()).contains("the folder has no file"));
    let status = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
    assert!(status.success() && error(&folder.path().join("pipe")).contains("neither a file nor a folder"));
    let settings = |value: Value| FileSourceFactory::from_settings(value.as_object().unwrap(), &Reach::default()).err().unwrap();
    assert_eq!(settings(json!({"follow": true})).key, "path");
    assert!(settings(json!({"path": "logs/[a"})).to_string().contains("not a valid glob"));
    assert!(settings(json!({"path": "x", "start": "end"})).to_string().contains("follow = true"));
    assert!(settings(json!({"path": "x", "follow": true, "order": "name"})).to_string().contains("without follow"));
    assert!(settings(json!({"path": "~someone/x"})).to_string().contains("shell"));
    assert!(settings(json!({"path": "x", "folow": true})).to_string().contains("\"follow\""));
}

#[test]
fn what_changed_since_the_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let factory = factory(folder.path(), &json!({}));
    let restored = |content: Option<&str>, splits: &BTreeMap<String, Value>| {
        content.map_or_else(|| fs::rename(&path, folder.path().join("y")), |content| fs::write(&path, content)).unwrap();
        let mut source = factory.create(0, 1)?;
        source.restore(splits)?;
        drain(&mut *source)
    };
    fs::write(&path, "a\nb\nc\n").unwrap();
    let mut source = factory.create(0, 1).unwrap();
    source.poll(&mut Batch::default(), 2, 1 << 20).unwrap();
    let splits = through_json(&source.position());
    assert_eq!(restored(Some("a\nb\nc\nadded\n"), &splits).unwrap(), ["c", "added"]);
    assert!(restored(Some("A\nB\nC\n"), &splits).unwrap_err().to_string().contains("replaced since the checkpoint"));
    assert!(restored(Some("a\n"), &splits).is_err());
    assert!(restored(None, &splits).unwrap_err().to_string().contains("half read, and is gone"));
    assert!(matches!(
        restored(Some("a\n"), &BTreeMap::from([("z".to_owned(), json!({}))])),
        Err(ConnectorError::Position { .. })
    ));
}

#[test]
fn s25_a_line_beyond_the_limit_fails_or_is_left_out_as_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let mut content = b"before\n".to_vec();
    content.extend(std::iter::repeat_n(b'x', weir_model::limits::VALUE_BYTES_MAX + 1));
    content.extend_from_slice(b"\nafter\n");
    for bytes in [content.clone(), gzip(&content, 3)] {
        fs::write(&path, &bytes).unwrap();
        let mut source = factory(&path, &json!({"long_lines": "fail"})).create(0, 1).unwrap();
        let error = drain(&mut *source).unwrap_err();
        assert!(
            matches!(error, ConnectorError::LongLine { offset: 7, .. }) && error.to_string().contains("long_lines"),
            "{error}"
        );
        let mut source = factory(&path, &json!({})).create(0, 1).unwrap();
        assert_eq!(drain(&mut *source).unwrap(), ["before", "after"]);
        assert_eq!(source.oddities().rows(OddKind::LongLine), 1, "left out by default, and counted");
    }
}

#[test]
fn following_waits_for_the_file_and_for_the_ends_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let mut source = following(&path).create(0, 1).unwrap();
    nothing_comes(&mut *source);
    append(&path, "a\nb");
    assert_eq!(wait_for(&mut *source, 1), ["a"]);
    nothing_comes(&mut *source);
    append(&path, "c\n");
    assert_eq!(wait_for(&mut *source, 1), ["bc"]);
}

#[test]
fn following_from_the_end_takes_only_what_is_added() {
    let folder = tempfile::tempdir().unwrap();
    append(&folder.path().join("x.log"), "old\n");
    fs::write(folder.path().join("old.gz"), gzip(b"old\n", 1)).unwrap();
    let settings = json!({"follow": true, "start": "end", "rotate_wait": "0s"});
    let mut source = factory(folder.path(), &settings).create(0, 1).unwrap();
    nothing_comes(&mut *source);
    append(&folder.path().join("x.log"), "new\n");
    append(&folder.path().join("y.log"), "also new\n");
    let mut found = wait_for(&mut *source, 2);
    found.sort();
    assert_eq!(found, ["also new", "new"]);
}

/// Content whose beginning is long enough to be known by.
fn lines(name: &str, count: usize) -> String {
    (0..count).map(|i| format!("{name} line {i} of a log that goes on\n")).collect()
}

#[test]
fn a_file_rotated_by_rename_is_finished_and_the_new_one_begun() {
    for pattern in ["x.log", ""] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        append(&path, "a\nb\n");
        let mut source = following(&folder.path().join(pattern)).create(0, 1).unwrap();
        assert_eq!(wait_for(&mut *source, 2), ["a", "b"]);
        fs::rename(&path, folder.path().join("x.log.1")).unwrap();
        append(&folder.path().join("x.log.1"), "late\nlast without end");
        append(&path, "new\n");
        let mut found = wait_for(&mut *source, 3);
        found.sort();
        assert_eq!(found, ["last without end", "late", "new"], "{pattern}");
        nothing_comes(&mut *source);
        // Rotated again, and removed.
        fs::rename(&path, folder.path().join("x.log.2")).unwrap();
        fs::remove_file(folder.path().join("x.log.2")).unwrap();
        append(&path, "newer\n");
        assert_eq!(wait_for(&mut *source, 1), ["newer"]);
        nothing_comes(&mut *source);
    }
}

#[test]
fn a_file_rotated_by_copy_and_truncate_is_begun_anew_and_its_copy_not_read_twice() {
    for pattern in ["x.log", ""] {
        for (count, partial) in [(3, ""), (100, ""), (100, "no end")] {
            let folder = tempfile::tempdir().unwrap();
            let (path, copy) = (folder.path().join("x.log"), folder.path().join("x.log.1"));
            append(&path, &lines("first", count));
            append(&path, partial);
            let mut source = following(&folder.path().join(pattern)).create(0, 1).unwrap();
            assert_eq!(wait_for(&mut *source, count).len(), count);
            fs::copy(&path, &copy).unwrap();
            if pattern.is_empty() {
                // Seen as a copy before the cut, or only at it.
                if count == 100 {
                    nothing_comes(&mut *source);
                }
            }
            File::create(&path).unwrap();
            append(&path, "second\n");
            let mut found = wait_for(&mut *source, 1 + usize::from(!partial.is_empty()));
            found.sort();
            assert_eq!(found, if partial.is_empty() { vec!["second"] } else { vec!["no end", "second"] });
            nothing_comes(&mut *source);
        }
    }
}

#[test]
fn what_a_cut_took_before_it_was_read_comes_from_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("x.log"), folder.path().join("x.log.1"));
    append(&path, &lines("first", 100));
    let mut source = following(folder.path()).create(0, 1).unwrap();
    assert_eq!(wait_for(&mut *source, 100).len(), 100);
    append(&path, "unread 1\nunread 2\n");
    fs::copy(&path, &copy).unwrap();
    File::create(&path).unwrap();
    append(&path, "second\n");
    let mut found = wait_for(&mut *source, 3);
    found.sort();
    assert_eq!(found, ["second", "unread 1", "unread 2"]);
    nothing_comes(&mut *source);
}

#[test]
fn a_rotated_file_that_is_compressed_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let content = lines("first", 100);
    append(&path, &content);
    let mut source = following(folder.path()).create(0, 1).unwrap();
    wait_for(&mut *source, 100);
    fs::rename(&path, folder.path().join("x.log.1")).unwrap();
    append(&path, "second\n");
    assert_eq!(wait_for(&mut *source, 1), ["second"]);
    fs::write(folder.path().join("x.log.1.gz"), gzip(content.as_bytes(), 1)).unwrap();
    nothing_comes(&mut *source);
    fs::remove_file(folder.path().join("x.log.1")).unwrap();
    nothing_comes(&mut *source);
    let splits = through_json(&source.position());
    let mut source = following(folder.path()).create(0, 1).unwrap();
    source.restore(&splits).unwrap();
    nothing_comes(&mut *source);
    append(&path, "third\n");
    assert_eq!(wait_for(&mut *source, 1), ["third"]);
}

#[test]
fn rotation_while_nothing_ran_loses_nothing() {
    for pattern in ["x.log", ""] {
        for rotation in ["rename", "copy", "compress", "none"] {
            let folder = tempfile::tempdir().unwrap();
            let (path, old) = (folder.path().join("x.log"), folder.path().join("x.log.1"));
            append(&path, &lines("first", 100));
            let factory = following(&folder.path().join(pattern));
            let mut source = factory.create(0, 1).unwrap();
            wait_for(&mut *source, 100);
            let splits = through_json(&source.position());
            drop(source);
            append(&path, "unread\n");
            match rotation {
                "rename" => fs::rename(&path, &old).unwrap(),
                "copy" => {
                    fs::copy(&path, &old).unwrap();
                    File::create(&path).unwrap();
                }
                "compress" => {
                    fs::write(folder.path().join("x.log.1.gz"), gzip(&fs::read(&path).unwrap(), 2)).unwrap();
                    fs::remove_file(&path).unwrap();
                }
                _ => {}
            }
            append(&path, "second\n");
            let mut source = factory.create(0, 1).unwrap();
            source.restore(&splits).unwrap();
            let mut found = wait_for(&mut *source, 2);
            found.sort();
            assert_eq!(found, ["second", "unread"], "{pattern} {rotation}");
            nothing_comes(&mut *source);
        }
    }
}

#[test]
fn a_half_read_file_that_is_gone_is_an_error_unless_told_to_skip() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    append(&path, &lines("first", 100));
    let mut source = following(&path).create(0, 1).unwrap();
    wait_for(&mut *source, 100);
    let splits = through_json(&source.position());
    fs::remove_file(&path).unwrap();
    append(&path, "other\n");
    let error = following(&path).create(0, 1).unwrap().restore(&splits).unwrap_err().to_string();
    assert!(error.contains("x.log") && error.contains("lost_files"), "{error}");
    let skipping = factory(&path, &json!({"follow": true, "lost_files": "skip"}));
    let mut source = skipping.create(0, 1).unwrap();
    source.restore(&splits).unwrap();
    assert_eq!(wait_for(&mut *source, 1), ["other"]);
}

#[test]
fn a_compressed_file_that_is_still_written_is_read_as_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gz");
    let content = lines("first", 20_000);
    let compressed = gzip(content.as_bytes(), 1);
    fs::write(&path, &compressed[..compressed.len() / 2]).unwrap();
    let mut source = following(folder.path()).create(0, 1).unwrap();
    let mut found = wait_for(&mut *source, 1);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(&compressed[compressed.len() / 2..]).unwrap();
    let left = 20_000 - found.len();
    found.extend(wait_for(&mut *source, left));
    assert_eq!(found.join("\n") + "\n", content);
    nothing_comes(&mut *source);
}

/// A writer that appends, rotates by rename and stops at random; a reader that is restored at random.
#[test]
fn following_through_any_rotations_and_restores_gives_each_line_once() {
    for seed in 0..8 {
        let mut random = Random(seed, 0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.log");
        let is_single = seed % 2 == 0;
        let factory = following(if is_single { &path } else { folder.path() });
        let (mut written, mut found, mut rotations) = (0, Vec::new(), 0);
        let mut source = factory.create(0, 1).unwrap();
        let mut rows = Batch::default();
        let deadline = Instant::now() + Duration::from_secs(60);
        for step in 0..400 {
            match random.below(12) {
                0..=5 => {
                    let count = random.below(30);
                    let text: String = (written..written + count).map(|i| format!("{i} {}\n", "y".repeat(i % 50))).collect();
                    append(&path, &text);
                    written += count;
                }
                6 if path.exists() && fs::metadata(&path).unwrap().len() > 2_000 => {
                    // A file that comes and goes between two looks of a source that knows only its path cannot be seen.
                    let id = super::tailed::Inode::of(&fs::metadata(&path).unwrap()).id();
                    while is_single && !source.position().contains_key(&id) {
                        source.poll(&mut rows, 1_000, 1 << 20).unwrap();
                        found.extend(values(&rows));
                        rows.clear();
                        assert!(Instant::now() < deadline, "seed {seed}: the file is not found");
                    }
                    rotations += 1;
                    fs::rename(&path, folder.path().join(format!("x.log.{rotations}"))).unwrap();
                }
                7 if step > 0 => {
                    let splits = through_json(&source.position());
                    source = factory.create(0, 1).unwrap();
                    source.restore(&splits).unwrap();
                }
                _ => {
                    source.poll(&mut rows, 1 + random.below(50), 10_000).unwrap();
                    found.extend(values(&rows));
                    rows.clear();
                }
            }
        }
        while found.len() < written {
            source.poll(&mut rows, 1_000, 1 << 20).unwrap();
            found.extend(values(&rows));
            rows.clear();
            assert!(Instant::now() < deadline, "seed {seed}: {} of {written} lines, {rotations} rotations", found.len());
        }
        nothing_comes(&mut *source);
        let mut numbers: Vec<usize> = found.iter().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..written).collect::<Vec<_>>(), "seed {seed}, {rotations} rotations");
    }
}

#[test]
fn files_of_a_folder_belong_to_one_subtask_when_followed() {
    let folder = tempfile::tempdir().unwrap();
    for sub in ["a", "b", "c", "d"] {
        fs::create_dir(folder.path().join(sub)).unwrap();
        append(&folder.path().join(sub).join("x.log"), &format!("{sub}1\n"));
        append(&folder.path().join(sub).join("y.log"), &format!("{sub}2\n"));
    }
    let factory = following(&folder.path().join("*/*.log"));
    let mut found = Vec::new();
    for index in 0..3 {
        let mut source = factory.create(index, 3).unwrap();
        let mut rows = Batch::default();
        source.poll(&mut rows, 100, 1 << 20).unwrap();
        let mine = values(&rows);
        for line in &mine {
            let twin = format!("{}{}", &line[..1], if line.ends_with('1') { 2 } else { 1 });
            assert!(mine.contains(&twin));
        }
        found.extend(mine);
    }
    found.sort();
    assert_eq!(found, ["a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"]);
}

/// A job that read everything and is run again, three days in a row.
#[test]
fn a_finished_source_says_what_is_new_and_reads_only_that() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.log"), lines("a", 60)).unwrap();
    let factory = factory(folder.path(), &json!({}));
    let run = |splits: &BTreeMap<String, Value>| {
        let (mut found, mut next) = (Vec::new(), BTreeMap::new());
        for index in 0..3 {
            let mut source = factory.create(index, 3).unwrap();
            source.restore(splits).unwrap();
            found.extend(drain(&mut *source).unwrap());
            next.extend(through_json(&source.position()));
        }
        found.sort();
        (found, next)
    };
    let (found, splits) = run(&BTreeMap::new());
    assert_eq!(found.len(), 60);
    let More::Nothing(looked_at) = factory.more(&splits).unwrap() else { panic!("nothing is new") };
    assert!(looked_at.contains("the file was read to its end"), "{looked_at}");

    // A new file, and one that has grown.
    fs::write(path("b.log"), "b\n").unwrap();
    append(&path("a.log"), "added\n");
    let More::Some(what) = factory.more(&splits).unwrap() else { panic!("there is more") };
    assert!(what.contains("1 file new") && what.contains("b.log") && what.contains("1 file grown"), "{what}");
    let (found, splits) = run(&splits);
    assert_eq!(found, ["added", "b"]);
    assert!(matches!(factory.more(&splits).unwrap(), More::Nothing(_)));

    // Rotated: read files under other names, one of them compressed, and a new one under an old name.
    fs::write(path("a.log.1.gz"), gzip(&fs::read(path("a.log")).unwrap(), 1)).unwrap();
    fs::remove_file(path("a.log")).unwrap();
    fs::rename(path("b.log"), path("b.log.1")).unwrap();
    append(&path("b.log.1"), "late b\n");
    fs::write(path("b.log"), "new b\n").unwrap();
    let (found, splits) = run(&splits);
    assert_eq!(found, ["late b", "new b"]);
    assert!(matches!(factory.more(&splits).unwrap(), More::Nothing(_)));
    assert_eq!(run(&splits).0, Vec::<String>::new());

    // Written anew under the same name.
    fs::write(path("b.log"), "b of another day\n").unwrap();
    assert!(matches!(factory.more(&splits).unwrap(), More::Some(_)));
    assert_eq!(run(&splits).0, ["b of another day"]);
}

#[test]
fn a_finished_source_reads_another_path_and_keeps_what_it_knows_of_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    fs::write(&one, "1\n").unwrap();
    fs::write(&other, "2\n").unwrap();
    let mut source = factory(&one, &json!({})).create(0, 1).unwrap();
    assert_eq!(drain(&mut *source).unwrap(), ["1"]);
    let splits = through_json(&source.position());
    let at_other = factory(&other, &json!({}));
    assert!(matches!(at_other.more(&splits).unwrap(), More::Some(what) if what.contains("other")));
    let mut source = at_other.create(0, 1).unwrap();
    source.restore(&splits).unwrap();
    assert_eq!(drain(&mut *source).unwrap(), ["2"]);
    let splits = through_json(&source.position());
    assert!(matches!(factory(&one, &json!({})).more(&splits).unwrap(), More::Nothing(_)));
    let missing = factory(&folder.path().join("missing"), &json!({}));
    let error = missing.more(&splits).unwrap_err();
    assert!(
        error.is_permanent() && error.to_string().contains("no such file"),
        "a mistyped path is told as at a first run: {error}"
    );
    let followed = factory(&one, &json!({"follow": true}));
    let error = followed.more(&splits).unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("`follow` has changed"), "{error}");
    let error = followed.create(0, 1).unwrap().restore(&splits).unwrap_err();
    assert!(error.to_string().contains("`follow` has changed"), "{error}");
}
