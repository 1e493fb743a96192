//! What a folder can hold besides logs: nothing of it panics, hangs, or goes unsaid.

#![allow(clippy::unwrap_used)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Instant;

use serde_json::json;
use weir_model::{Batch, OddKind};

use super::*;
use crate::Polled;

fn factory(path: &Path, more: &Value) -> FileSourceFactory {
    let mut settings = json!({"path": path.to_str().unwrap()});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    FileSourceFactory::from_settings(settings.as_object().unwrap(), &Reach::default()).unwrap()
}

fn poll(source: &mut dyn Source, found: &mut Vec<String>) -> Result<Polled, ConnectorError> {
    let mut rows = Batch::default();
    let polled = source.poll(&mut rows, 1_000, 1 << 20)?;
    found.extend(rows.values.iter().map(|value| String::from_utf8(value.to_vec()).unwrap()));
    Ok(polled)
}

/// All rows of files that are read once, sorted.
fn read_all(path: &Path) -> Result<Vec<String>, ConnectorError> {
    let (mut source, mut found) = (factory(path, &json!({})).create(0, 1)?, Vec::new());
    while poll(&mut *source, &mut found)? != Polled::Ended {}
    found.sort();
    Ok(found)
}

fn poll_until(source: &mut dyn Source, what: &str, mut is_done: impl FnMut(&mut dyn Source, &[String]) -> bool) -> Vec<String> {
    let (mut found, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
    while !is_done(source, &found) {
        poll(source, &mut found).unwrap();
        assert!(Instant::now() < deadline, "{what}: {found:?}");
    }
    found
}

/// A folder with logs, also in sub-folders, and with everything else there can be.
fn odd_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.log"), "a\n").unwrap();
    fs::write(folder.path().join(OsStr::from_bytes(b"caf\xe9.log")), "no UTF-8\n").unwrap();
    fs::write(path("line\nfeed.log"), "line feed\n").unwrap();
    fs::write(path(".hidden.log"), "hidden\n").unwrap();
    fs::create_dir_all(path("folder.log/deep")).unwrap();
    fs::write(path("folder.log/deep/b.log"), "b\n").unwrap();
    drop(UnixListener::bind(path("socket.log")).unwrap());
    assert!(std::process::Command::new("mkfifo").arg(path("pipe.log")).status().unwrap().success());
    symlink("nowhere", path("dangling.log")).unwrap();
    symlink("two.log", path("one.log")).unwrap();
    symlink("one.log", path("two.log")).unwrap();
    symlink("..", path("folder.log/up.log")).unwrap();
    symlink(".", path("here")).unwrap();
    folder
}

#[test]
fn whatever_a_folder_holds_its_files_are_read_and_the_rest_is_passed_over() {
    let folder = odd_folder();
    let flat = ["a", "line feed", "no UTF-8"];
    assert_eq!(read_all(folder.path()).unwrap(), flat);
    assert_eq!(read_all(&folder.path().join("*.log")).unwrap(), flat);
    assert_eq!(read_all(&folder.path().join("**/*.log")).unwrap(), ["a", "b", "line feed", "no UTF-8"], "no loop is followed");
    assert_eq!(read_all(&folder.path().join("**")).unwrap(), ["a", "b", "line feed", "no UTF-8"]);
    assert_eq!(read_all(&folder.path().join("here/{a,caf*}.log")).unwrap(), ["a", "no UTF-8"], "a link that is named is");
    assert_eq!(read_all(&folder.path().join("folder.log/*/b.log")).unwrap(), ["b"]);
    let error = read_all(&folder.path().join("dangling.log")).unwrap_err().to_string();
    assert!(error.contains("no such file"), "{error}");
}

#[test]
fn a_name_that_is_no_text_is_followed_and_found_again() {
    let folder = odd_folder();
    let factory = factory(&folder.path().join("**/*.log"), &json!({"follow": true, "rotate_wait": "0s"}));
    let mut source = factory.create(0, 1).unwrap();
    poll_until(&mut *source, "four files", |_, found| found.len() == 4);
    let splits: BTreeMap<String, Value> = serde_json::from_str(&serde_json::to_string(&source.position()).unwrap()).unwrap();
    fs::write(folder.path().join(OsStr::from_bytes(b"caf\xe9.log")), "no UTF-8\nmore\n").unwrap();
    let mut source = factory.create(0, 1).unwrap();
    source.restore(&splits).unwrap();
    assert_eq!(poll_until(&mut *source, "what was added", |_, found| !found.is_empty()), ["more"]);
}

#[test]
fn formats_that_are_no_lines_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.log");
    let formats: [(&[u8], &str); 4] =
        [(b"\xfd7zXZ\x00\x00", "xz"), (b"\xff\xfea\x00", "UTF-16"), (b"PAR1\x15\x00", "Parquet"), (b"PK\x03\x04", "zip")];
    for (content, name) in formats {
        fs::write(&path, content).unwrap();
        let error = read_all(&path).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains(name) && error.to_string().contains("hint"), "{error}");
        let mut follow = factory(&path, &json!({"follow": true})).create(0, 1).unwrap();
        let error = poll(&mut *follow, &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_foreign_file_beside_a_followed_one_is_passed_over_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("x.log"), "a\n").unwrap();
    let factory = factory(folder.path(), &json!({"follow": true}));
    let mut source = factory.create(0, 1).unwrap();
    poll_until(&mut *source, "the first line", |_, found| found.len() == 1);
    fs::write(path("x.log.1.xz"), b"\xfd7zXZ\x00\x00").unwrap();
    poll_until(&mut *source, "the xz file", |source, _| source.oddities().rows(OddKind::SkippedInput) == 1);
    let first = source.oddities().get(OddKind::SkippedInput).unwrap().first.clone().unwrap();
    assert!(first.value.contains("x.log.1.xz") && first.reason.contains("xz-compressed"), "{first:?}");
    // Once, and not again after a resume.
    let splits = source.position();
    let mut source = factory.create(0, 1).unwrap();
    source.restore(&splits).unwrap();
    fs::write(path("x.log"), "a\nb\n").unwrap();
    poll_until(&mut *source, "what was added", |_, found| found == ["b"]);
    assert_eq!(source.oddities().rows(OddKind::SkippedInput), 0);
}

#[test]
fn a_file_that_goes_while_it_waits_is_said_and_one_that_turns_into_a_pipe_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a.log", "b.log", "c.log"] {
        fs::write(path(name), name).unwrap();
    }
    let mut source = factory(folder.path(), &json!({"order": "name"})).create(0, 1).unwrap();
    fs::remove_file(path("b.log")).unwrap();
    fs::remove_file(path("c.log")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(path("c.log")).status().unwrap().success());
    let mut found = Vec::new();
    while poll(&mut *source, &mut found).unwrap() != Polled::Ended {}
    assert_eq!(found, ["a.log"]);
    assert_eq!(source.oddities().rows(OddKind::SkippedInput), 2);
}

#[test]
fn what_may_not_be_read_stops_a_start_and_is_passed_over_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("a.log"), "a\n").unwrap();
    let closed = path("b.log");
    fs::write(&closed, "b\n").unwrap();
    fs::create_dir(path("closed")).unwrap();
    let forbid = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    forbid(&path("closed"), 0o000);
    forbid(&closed, 0o000);
    if fs::File::open(&closed).is_ok() {
        // The super-user may read everything.
        forbid(&path("closed"), 0o700);
        return;
    }
    let error = read_all(&path("*.log")).unwrap_err();
    assert!(error.is_permanent() && error.to_string().contains("b.log"), "{error}");
    forbid(&closed, 0o600);
    assert_eq!(read_all(&path("**/*.log")).unwrap(), ["a", "b"], "the closed folder is passed over");
    let mut source = factory(&path("**/*.log"), &json!({"follow": true})).create(0, 1).unwrap();
    poll_until(&mut *source, "both", |_, found| found.len() == 2);
    assert_eq!(source.oddities().rows(OddKind::SkippedInput), 1, "and said");
    let new = path("c.log");
    fs::write(&new, "c\n").unwrap();
    forbid(&new, 0o000);
    poll_until(&mut *source, "the new file", |source, _| source.oddities().rows(OddKind::SkippedInput) == 2);
    forbid(&new, 0o600);
    assert_eq!(poll_until(&mut *source, "its row", |_, found| !found.is_empty()), ["c"], "it is tried again");
    forbid(&path("closed"), 0o700);
}

#[test]
fn a_file_with_several_names_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("log-2"), "two\n").unwrap();
    symlink("log-2", path("latest.log")).unwrap();
    fs::hard_link(path("log-2"), path("log-2.saved")).unwrap();
    fs::write(path("log-1"), "one\n").unwrap();
    assert_eq!(read_all(folder.path()).unwrap(), ["one", "two"]);
    let mut source = factory(folder.path(), &json!({})).create(0, 1).unwrap();
    while poll(&mut *source, &mut Vec::new()).unwrap() != Polled::Ended {}
    let names: Vec<String> = source.position().into_keys().collect();
    assert_eq!(names, [path("log-1"), path("log-2")].map(|path| path.to_str().unwrap().to_owned()), "by its own name");
    assert_eq!(read_all(&path("latest.log")).unwrap(), ["two"]);
}

#[test]
fn a_copy_that_is_seen_before_it_is_complete_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text: String = (0..100).map(|i| format!("line {i} of a log that goes on and on\n")).collect();
    fs::write(path("x.log"), &text).unwrap();
    let mut source = factory(&path("x.log*"), &json!({"follow": true})).create(0, 1).unwrap();
    poll_until(&mut *source, "the first lines", |_, found| found.len() == 100);
    fs::write(path("x.log.1"), &text[..500]).unwrap();
    let until = Instant::now() + Duration::from_millis(500);
    let found = poll_until(&mut *source, "two looks", |_, _| Instant::now() > until);
    assert_eq!(found, Vec::<String>::new());
    fs::write(path("x.log.1"), &text).unwrap();
    poll_until(&mut *source, "the copy", |source, _| source.position().len() == 2);
    fs::write(path("x.log.2"), &text[..500]).unwrap();
    let found = poll_until(&mut *source, "a file that stays as it is", |_, found| found.len() >= 13);
    assert!(found[0].starts_with("line 0 "), "what is no copy after all is read: {found:?}");
}

#[test]
fn two_followed_logs_that_begin_with_the_same_long_header_are_both_read() {
    let folder = tempfile::tempdir().unwrap();
    let header: String = (0..60).map(|i| format!("#Fields: the header has {i} lines\n")).collect();
    let rows = |name: &str| (0..60).map(|i| format!("{name} row {i}, and more of it\n")).collect::<String>();
    fs::write(folder.path().join("a.log"), header.clone() + &rows("a")).unwrap();
    let mut source = factory(folder.path(), &json!({"follow": true})).create(0, 1).unwrap();
    poll_until(&mut *source, "the first log", |_, found| found.len() == 120);
    fs::write(folder.path().join("b.log"), header + &rows("b")).unwrap();
    let found = poll_until(&mut *source, "the second log", |_, found| found.len() == 120);
    assert!(found.contains(&"b row 59, and more of it".to_owned()), "{found:?}");
}

proptest::proptest! {
    #[test]
    fn no_content_of_a_file_panics_or_hangs(
        kind in 0usize..6, bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600), cut in 0usize..600,
    ) {
        let compressed = |write: &dyn Fn(&[u8]) -> Vec<u8>| {
            let whole = write(&bytes);
            whole[..whole.len().min(cut)].to_vec()
        };
        let gzip = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, bytes).unwrap();
            encoder.finish().unwrap()
        };
        let content = match kind {
            0 => bytes.clone(),
            1 => [b"\x1f\x8b\x08\x00", &bytes[..]].concat(),
            2 => [b"\x28\xb5\x2f\xfd", &bytes[..]].concat(),
            3 => compressed(&gzip),
            4 => compressed(&|bytes| zstd::encode_all(bytes, 0).unwrap()),
            _ => [&gzip(b"whole\n")[..], &bytes].concat(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, content).unwrap();
        for more in [json!({}), json!({"follow": true})] {
            let mut source = factory(&path, &more).create(0, 1).unwrap();
            let mut rows = Batch::default();
            for _ in 0..5 {
                rows.clear();
                if !matches!(source.poll(&mut rows, 1_000, 1 << 20), Ok(Polled::Rows | Polled::Idle { .. })) {
                    break;
                }
                assert!(rows.view().is_valid());
            }
            let _ = source.position();
        }
    }
}

#[test]
fn a17_of_several_copies_a_cut_file_is_read_on_in_the_longest() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let line = |i: usize| format!("line {i} of a log that goes on and on\n");
    let text = |count: usize| (0..count).map(line).collect::<String>();
    fs::write(path("x.log"), text(100)).unwrap();
    let factory = factory(&path("x.log*"), &json!({"follow": true, "rotate_wait": "0s"}));
    let mut source = factory.create(0, 1).unwrap();
    poll_until(&mut *source, "the first lines", |_, found| found.len() == 100);
    // A backup of the beginning, sorted before the rotated copy; both are seen.
    fs::write(path("x.log.0-backup"), text(60)).unwrap();
    fs::write(path("x.log"), text(100) + "not read: ").unwrap();
    fs::write(path("x.log.1"), text(100) + "not read: but in the copy\n").unwrap();
    poll_until(&mut *source, "the copies", |source, _| source.position().len() == 3);
    fs::write(path("x.log"), "begun anew\n").unwrap();
    let mut found = poll_until(&mut *source, "the rest", |_, found| found.len() >= 2);
    found.sort();
    assert_eq!(found, ["begun anew", "not read: but in the copy"]);
    let before = Instant::now();
    poll_until(&mut *source, "two more looks", |_, found| {
        assert!(found.is_empty(), "read twice: {found:?}");
        before.elapsed() > 2 * Duration::from_millis(250)
    });
}
