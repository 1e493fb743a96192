//! One file as a stream of content: plain, gzip or zstd, told apart by how it begins.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_model::Batch;
use xxhash_rust::xxh3::xxh3_64;

use super::super::lines::{BLOCK_BYTES, Lines, Room, Rules};
use super::discover::open_file;
use super::gzip::Members;
use super::names::shown;
use crate::{ConnectorError, Reach};

/// Bytes of content by which a file is known again.
pub(super) const HEAD_BYTES: usize = 1_024;

/// Compressed bytes read at a time.
const COMPRESSED_BLOCK_BYTES: usize = 128 << 10;

/// Blocks of content skipped in one step, so that a poll stays short.
const SKIP_BLOCKS: usize = 64;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Gzip,
    Zstd,
}

const MAGICS: [(&[u8], Kind); 2] = [(&[0x1f, 0x8b], Kind::Gzip), (&[0x28, 0xb5, 0x2f, 0xfd], Kind::Zstd)];

impl Kind {
    /// By the first bytes; `None` where there are too few to tell.
    pub(super) fn detect(begin: &[u8]) -> Option<Kind> {
        // Skippable frames, 0x184d2a50 to 0x184d2a5f, may come before the first zstd frame.
        if begin.len() >= 4 && begin[0] & 0xf0 == 0x50 && begin[1..4] == [0x2a, 0x4d, 0x18] {
            return Some(Kind::Zstd);
        }
        if let Some((_, kind)) = MAGICS.iter().find(|(magic, _)| begin.starts_with(magic)) {
            return Some(*kind);
        }
        let too_few = begin.is_empty() || MAGICS.iter().any(|(magic, _)| magic.starts_with(begin));
        (!too_few).then_some(Kind::Plain)
    }

    /// The content of a file, from where its cursor is.
    fn decode(self, file: impl Read + Send + 'static, name: String) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Kind::Plain => Box::new(file),
            Kind::Gzip => {
                let compressed = BufReader::with_capacity(COMPRESSED_BLOCK_BYTES, file);
                Box::new(Members::new(compressed, name))
            }
            Kind::Zstd => {
                let compressed = BufReader::with_capacity(COMPRESSED_BLOCK_BYTES, file);
                let mut decoder = zstd::stream::read::Decoder::with_buffer(compressed)?;
                // As far as `zstd --long` goes; memory is taken only as far as a frame says that it needs it.
                decoder.window_log_max(31)?;
                Box::new(decoder)
            }
        })
    }

    /// A command that checks a file of this kind.
    fn check(self) -> &'static str {
        match self {
            Kind::Plain => "cat",
            Kind::Gzip => "gzip -t",
            Kind::Zstd => "zstd -t",
        }
    }
}

/// How the content of a file begins: by it a file is known again, whatever its name, inode or compression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) bytes: usize,
    hash: u64,
}

impl Head {
    pub(super) fn of(content: &[u8]) -> Head {
        let content = &content[..content.len().min(HEAD_BYTES)];
        Head { bytes: content.len(), hash: xxh3_64(content) }
    }

    /// Whether `content` begins like this.
    pub(super) fn matches(&self, content: &[u8]) -> bool {
        content.len() >= self.bytes && (self.bytes == 0 || xxh3_64(&content[..self.bytes]) == self.hash)
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes == HEAD_BYTES
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"bytes": self.bytes, "xxh3": format!("{:016x}", self.hash)})
    }

    pub(super) fn from_json(value: &Value) -> Option<Head> {
        let bytes = usize::try_from(value["bytes"].as_u64()?).ok().filter(|&bytes| bytes <= HEAD_BYTES)?;
        Some(Head { bytes, hash: u64::from_str_radix(value["xxh3"].as_str()?, 16).ok()? })
    }
}

/// Kind of a file, where it can be told yet, and how its content begins, as far as it can be read.
pub(super) fn head_content(file: &File, path: &Path) -> Result<(Option<Kind>, Vec<u8>), ConnectorError> {
    let failed = |error| ConnectorError::io("read", path, error);
    let mut begin = vec![0; HEAD_BYTES];
    let count = read_at(file, &mut begin).map_err(failed)?;
    begin.truncate(count);
    let detected = Kind::detect(&begin);
    let kind = detected.unwrap_or(Kind::Plain);
    if kind == Kind::Plain {
        return Ok((detected, begin));
    }
    let mut content = Vec::new();
    let from_start = FromStart { file: file.try_clone().map_err(failed)?, offset: 0 };
    let decoder = kind.decode(from_start, shown(path)).map_err(failed)?;
    match decoder.take(HEAD_BYTES as u64).read_to_end(&mut content) {
        Err(error) if error.raw_os_error().is_some() => Err(failed(error)),
        // Whoever reads on will meet the damage and name it.
        _ => Ok((detected, content)),
    }
}

/// A file from its beginning, without moving the cursor.
struct FromStart {
    file: File,
    offset: u64,
}

impl Read for FromStart {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Reads from the beginning, without moving the cursor, until `out` is full or the file ends.
pub(super) fn read_at(file: &File, out: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < out.len() {
        match file.read_at(&mut out[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// What reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// The batch is full.
    Full,
    /// There is more to read.
    More,
    /// Nothing more (now). A last line without line feed is still held.
    Eof,
}

/// An open file and where reading it is.
pub(super) struct Input {
    pub(super) path: PathBuf,
    /// The path for messages and positions.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// For looking at the file beside the reader's cursor.
    pub(super) file: File,
    reader: Box<dyn Read + Send>,
    pub(super) lines: Lines,
    /// Content still to be read and thrown away before `lines` begin.
    skip_bytes: u64,
}

impl Input {
    /// Opens a file of which `offset` bytes of content are behind.
    pub(super) fn open(reach: &Reach, path: &Path, offset: u64) -> Result<Input, ConnectorError> {
        match open_file(reach, path)? {
            Some(file) => Input::over(file, path, offset),
            None => Err(ConnectorError::io("open", path, io::ErrorKind::NotFound.into())),
        }
    }

    /// Takes an open file.
    pub(super) fn over(file: File, path: &Path, offset: u64) -> Result<Input, ConnectorError> {
        let failed = |error| ConnectorError::io("read", path, error);
        let mut begin = [0; 4];
        let count = read_at(&file, &mut begin).map_err(failed)?;
        let kind = Kind::detect(&begin[..count]).unwrap_or(Kind::Plain);
        let mut cursor = file.try_clone().map_err(failed)?;
        let skip_bytes = if kind == Kind::Plain { 0 } else { offset };
        cursor.seek(SeekFrom::Start(offset - skip_bytes)).map_err(failed)?;
        let name = shown(path);
        let reader = kind.decode(cursor, name.clone()).map_err(failed)?;
        Ok(Input { path: path.to_owned(), name, kind, file, reader, lines: Lines::at(offset), skip_bytes })
    }

    /// Makes rows of buffered lines, then reads one more block where there is room.
    pub(super) fn read(&mut self, rows: &mut Batch, room: Room, rules: Rules) -> Result<Got, ConnectorError> {
        if self.skip_bytes > 0 {
            return self.skip();
        }
        if self.lines.split(&self.name, rows, room, rules)? {
            return Ok(Got::Full);
        }
        match self.lines.fill(&mut self.reader) {
            Ok(0) => Ok(Got::Eof),
            Ok(_) => Ok(Got::More),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Reads one block after the buffered lines; for those who look before they make rows of it.
    pub(super) fn fill(&mut self) -> Result<usize, ConnectorError> {
        self.lines.fill(&mut self.reader).map_err(|error| self.failed(error))
    }

    /// The first rows of the file, as many as there is room for in a block. Whether it ended there. For who looks before it is read.
    pub(super) fn head(&mut self, rows: &mut Batch, room: Room, rules: Rules) -> Result<bool, ConnectorError> {
        let mut bytes = 1;
        while bytes > 0 && self.lines.read_offset() < room.bytes_target as u64 {
            bytes = self.fill()?;
        }
        let is_full = self.lines.split(&self.name, rows, room, rules)?;
        if bytes == 0 && !is_full {
            self.lines.finish(&self.name, rows, rules)?;
        }
        Ok(bytes == 0)
    }

    /// The file has ended for good: what is left is a line.
    pub(super) fn finish(&mut self, rows: &mut Batch, rules: Rules) -> Result<(), ConnectorError> {
        self.lines.finish(&self.name, rows, rules)?;
        tracing::debug!(file = self.name, bytes = self.lines.offset(), "read to the end");
        Ok(())
    }

    /// Throws away content that is behind, some of it.
    fn skip(&mut self) -> Result<Got, ConnectorError> {
        let mut scratch = vec![0; BLOCK_BYTES];
        for _ in 0..SKIP_BLOCKS {
            let wanted = self.skip_bytes.min(BLOCK_BYTES as u64) as usize;
            if wanted == 0 {
                break;
            }
            match self.reader.read(&mut scratch[..wanted]) {
                Ok(0) => {
                    let offset = self.lines.offset();
                    let reason = format!("its content ends {} bytes before the position, {offset}", self.skip_bytes);
                    return Err(ConnectorError::Replaced { input: self.name.clone(), reason, hint: REPLACED_HINT });
                }
                Ok(count) => self.skip_bytes -= count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(Got::More)
    }

    /// Whether rows are made, rather than content skipped.
    pub(super) fn is_at_position(&self) -> bool {
        self.skip_bytes == 0
    }

    fn failed(&self, error: io::Error) -> ConnectorError {
        if self.kind == Kind::Plain || error.raw_os_error().is_some() {
            return ConnectorError::io("read", &self.path, error);
        }
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => TRUNCATED.to_owned(),
            _ => error.to_string(),
        };
        let offset = self.lines.read_offset() - self.skip_bytes;
        ConnectorError::Broken { input: self.name.clone(), offset, reason, check: self.kind.check() }
    }
}

/// Why a compressed file that has no end is broken.
pub(super) const TRUNCATED: &str = "the file ends in the middle of its compressed data";

/// What to do about input that is no longer what it was.
pub(super) const REPLACED_HINT: &str = "put the file back, or start over with --fresh";
