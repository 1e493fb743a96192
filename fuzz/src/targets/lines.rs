//! What sources read, what checkpoints say to sources and sinks, and what operators make of lines.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use parse::Parse;
use serde_json::{Value, json};
use weir_connectors::{Committer, ConnectorError, Polled, Reach, Recovery, Sink, SinkContext, Source};
use weir_model::{Attempt, Batch, CheckpointId};
use weir_notation::json as notation;
use weir_notation::time::TimeFormat;
use weir_sdk::testing::Harness;

pub(super) const WORDS: &[&str] = &[
    "\"",
    "\\",
    "[",
    "]",
    " - ",
    "GET / HTTP/1.1",
    "\\x16",
    "\\x",
    "29/Feb/2023:23:59:60 +0000",
    "2026-03-01T00:00:00Z",
    "+99:99",
    "-",
    "00",
    "99999999999999999999",
    "T",
    "Z",
    ".999999999999",
    "\u{7f}",
    "é",
    "\u{0}",
];

/// Rows of an input at most; more are not needed to see what becomes of it.
const ROWS_MAX: usize = 10_000;

fn source(folder: &Path, follow: bool) -> Result<Box<dyn Source>, ConnectorError> {
    let settings = json!({"path": folder, "follow": follow, "lost_files": "skip"});
    let mut settings = settings.as_object().cloned().unwrap_or_default();
    if !follow {
        settings.remove("lost_files");
    }
    let reach = Reach::beneath(&[folder.to_owned()]).map_err(|error| panic!("{error}")).unwrap_or_default();
    let made = weir_connectors::source("file", &settings, &reach).map_err(|error| panic!("{error}"));
    made.map(|factory| factory.create(0, 1))?
}

/// Rows until the end; the words for what there was.
fn drain(source: &mut dyn Source) -> Result<String, ConnectorError> {
    let (mut count, mut bytes) = (0, 0);
    for _ in 0..ROWS_MAX {
        let mut rows = Batch::default();
        match source.poll(&mut rows, 100, 64 << 10)? {
            Polled::Ended => break,
            Polled::Idle { retry_in } if !retry_in.is_zero() => break,
            _ => {}
        }
        count += rows.len();
        bytes += rows.values.iter().map(<[u8]>::len).sum::<usize>();
        if count > ROWS_MAX {
            break;
        }
    }
    let _ = source.position();
    let odd: Vec<&str> = source.oddities().iter().map(|(kind, _)| kind.name()).collect();
    let said = odd.join(" ");
    Ok(format!("{} rows, {} bytes; {said}", ["no", "some"][usize::from(count > 0)], ["no", "some"][usize::from(bytes > 0)]))
}

/// One place for the files of this process's targets, each used by one at a time.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = if Path::new("/dev/shm").is_dir() { tempfile::tempdir_in("/dev/shm") } else { tempfile::tempdir() };
        Place(place.expect("a folder"))
    }
}

/// A file, read to its end, and followed.
pub(super) fn lines(bytes: &[u8]) -> String {
    let place = Place::new();
    let folder = place.0.path();
    fs::write(folder.join("input.log"), bytes).expect("it can be written");
    let read = |follow| source(folder, follow).and_then(|mut source| drain(&mut *source));
    let said = |read: Result<String, ConnectorError>| read.unwrap_or_else(|error| told(&error, folder));
    format!("{} / {}", said(read(false)), said(read(true)))
}

/// An error, without the folder, which is another one each time, and what it quotes.
fn told(error: &ConnectorError, folder: &Path) -> String {
    let text = error.to_string().replace(&*folder.to_string_lossy(), "");
    text.split(['"', '{', '}']).step_by(2).collect()
}

pub(super) fn plain() -> Vec<Vec<u8>> {
    [&b"one\ntwo\r\n\n{\"three\":3}\nno end"[..], b"\xef\xbb\xbfbom\n", b"PAR1\0", b"PK\x03\x04zip", b"\0\0\0"]
        .map(<[u8]>::to_vec)
        .to_vec()
}

pub(super) fn compressed() -> Vec<Vec<u8>> {
    let text: Vec<u8> = (0..200).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let gzip = encoder.write_all(&text).and_then(|()| encoder.finish()).unwrap_or_default();
    let zstd = zstd::encode_all(&text[..], 1).unwrap_or_default();
    let twice = [gzip.clone(), gzip.clone(), vec![0; 9], b"rest".to_vec()].concat();
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4][..], &zstd].concat();
    vec![gzip, twice, zstd.clone(), [zstd.clone(), zstd].concat(), skippable]
}

/// A folder with two logs, which nothing changes.
static LOGS: LazyLock<Place> = LazyLock::new(|| {
    let place = Place::new();
    for name in ["a.log", "b.log"] {
        fs::write(place.0.path().join(name), format!("{name}\n").repeat(300)).expect("it can be written");
    }
    place
});

/// Positions of a checkpoint, by split: a source goes on from them, or says why not.
pub(super) fn positions(bytes: &[u8]) -> String {
    let Ok(splits) = serde_json::from_slice::<BTreeMap<String, Value>>(bytes) else { return "unreadable".to_owned() };
    let restored = |follow| {
        let mut source = source(LOGS.0.path(), follow)?;
        source.restore(&splits)?;
        drain(&mut *source)
    };
    let said = |read: Result<String, ConnectorError>| read.unwrap_or_else(|error| told(&error, LOGS.0.path()));
    format!("{} / {}", said(restored(false)), said(restored(true)))
}

pub(super) fn noted() -> Vec<Vec<u8>> {
    let noted = |follow| {
        let mut source = source(LOGS.0.path(), follow).ok()?;
        let mut rows = Batch::default();
        while rows.is_empty() {
            source.poll(&mut rows, 10, 1 << 10).ok()?;
        }
        serde_json::to_vec(&source.position()).ok()
    };
    [false, true].into_iter().filter_map(noted).collect()
}

fn sink(folder: &Path) -> (Box<dyn Committer>, Box<dyn Sink>) {
    let settings = json!({"path": folder, "format": "lines"});
    let context = SinkContext { uid: "out".to_owned(), index: 0, parallelism: 1, attempt: Attempt(1) };
    let reach = Reach::beneath(&[folder.to_owned()]).expect("a folder");
    let factory = weir_connectors::sink("file", settings.as_object().expect("settings"), &reach).expect("a sink");
    (factory.committer(&context).expect("a sink"), factory.create(&context).expect("a sink"))
}

/// A committable of a checkpoint: it is committed, or is said to be none. A file beside the sink's folder stays as it is.
pub(super) fn committables(bytes: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return "unreadable".to_owned() };
    let place = Place::new();
    let (beside, folder) = (place.0.path().join("beside"), place.0.path().join("out"));
    fs::create_dir(&folder).expect("a folder");
    fs::write(&beside, "mine").expect("a file");
    let (mut committer, mut sink) = sink(&folder);
    let mut rows = Batch::default();
    rows.push(0, b"", b"row");
    let prepared = sink.write(rows.view()).and_then(|()| sink.prepare(CheckpointId(1))).and_then(|prepared| prepared());
    let mut own = prepared.expect("a row can be written").expect("there is one");
    // Where it was made is another place each time.
    let said = match value {
        Value::Object(fields) => {
            own.as_object_mut().expect("an object").extend(fields.into_iter().filter(|(key, _)| key != "folder"));
            own
        }
        other => other,
    };
    let done = committer.commit(&said).and_then(|_| committer.commit(&said));
    let committed = done.and_then(|_| committer.recover(&Recovery { keep: vec![said] }));
    assert_eq!(fs::read(&beside).ok().as_deref(), Some(&b"mine"[..]), "a file elsewhere was touched");
    assert_eq!(fs::read_dir(place.0.path()).map_or(0, Iterator::count), 2, "a file was made elsewhere");
    committed.map_or_else(|error| told(&error, place.0.path()), |()| "committed".to_owned())
}

pub(super) fn prepared() -> Vec<Vec<u8>> {
    let fields = [json!({}), json!({"to": "x"}), json!({"from": "x", "bytes": 4, "rows": 1}), json!({"to": "../x"}), json!([])];
    fields.iter().filter_map(|fields| serde_json::to_vec(fields).ok()).collect()
}

/// A JSON text, and a path in its first line: what is found is what a whole parser finds.
pub(super) fn json(bytes: &[u8]) -> String {
    let (path, text) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    let path = notation::Path::new(String::from_utf8_lossy(path).trim_end_matches('\n'));
    let whole = serde_json::from_slice::<Value>(text);
    match path.find(text) {
        Err(_) => {
            let is_right = whole.is_ok();
            format!("malformed, and to the other parser {}", if is_right { "not" } else { "too" })
        }
        Ok(None) => "nothing there".to_owned(),
        Ok(Some(found)) => {
            let (text, number) = (found.text().is_ok(), found.number().is_some());
            if let Ok(value) = serde_json::from_slice::<Value>(found.bytes()) {
                assert_eq!(value.is_null(), found.is_null(), "{value}");
                assert!(!value.is_string() || found.scalar().is_some() || !text, "{value}");
            }
            format!("found: text {text}, number {number}")
        }
    }
}

pub(super) fn values() -> Vec<Vec<u8>> {
    [
        "a.b\n{\"a\":{\"b\":\"text\"}}",
        "/a/0/c~1d\n{\"a\":[{\"c/d\":-1.5e3}],\"x\":null}",
        "k\n{\"k\":\"\\ud83d\\ude00\\n\",\"k\":2}",
        "\n[1,2,{\"a\":[]}]",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A line, as each of the formats.
pub(super) fn clf(bytes: &[u8]) -> String {
    let formats = ["clf", "common", "combined", "vhost", "json"];
    let said = formats.map(|format| {
        let key = if format == "json" { "a" } else { "path" };
        let config = json!({"format": format, "key": key, "malformed": "reject"}).to_string();
        let Ok(mut parse) = Harness::<Parse>::try_new(&config) else { return "no configuration".to_owned() };
        parse.try_input(0, &[(0, b"", bytes)]).expect("no row makes it fail");
        let (rows, rejected) = (parse.take(0), parse.take_rejections());
        assert!(rows.len() + rejected.len() <= 1, "one row, one answer");
        rejected.first().map_or_else(|| format!("{} rows", rows.len()), |rejected| rejected.reason.clone())
    });
    said.join(" / ")
}

pub(super) fn accesses() -> Vec<Vec<u8>> {
    [
        "127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] \"GET /apache_pb.gif HTTP/1.0\" 200 2326",
        "h - - [10/Oct/2000:13:55:36 +0000] \"GET /a?b=c HTTP/1.1\" 200 - \"http://x/\" \"Mozilla/5.0 (X11) \\\"q\\\"\"",
        "site:80 h - - [10/Oct/2000:13:55:36 +0000] \"\\x16\\x03\" 400 0 \"-\" \"-\" 0.012 extra",
        "{\"a\":\"b\",\"n\":1}",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A time in each of the notations.
pub(super) fn times(bytes: &[u8]) -> String {
    let read = TimeFormat::NAMED.map(|(name, format)| {
        let found = [format.read(bytes).is_some(), format.read_line(bytes).is_some()];
        format!("{name} {}", found.map(|found| if found { "yes" } else { "no" }).join(" "))
    });
    let text = String::from_utf8_lossy(bytes);
    let span = weir_plan::parse_duration(&text).map(weir_plan::format_duration);
    if let Ok(span) = &span {
        assert_eq!(weir_plan::parse_duration(span).ok(), weir_plan::parse_duration(&text).ok(), "{text} {span}");
    }
    format!("{} span {}", read.join(" "), if span.is_ok() { "yes" } else { "no" })
}

pub(super) fn moments() -> Vec<Vec<u8>> {
    [
        "2026-03-01T12:34:56.789Z",
        "2026-03-01 12:34:56,7+01:00",
        "1700000000",
        "1700000000.5",
        "10/Oct/2000:13:55:36 -0700",
        "x [10/Oct/2000:13:55:36 -0700] y",
        "1h 30m",
        "500ms",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
