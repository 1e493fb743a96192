//! Cuts a stream of bytes into lines, straight into the columns of a batch.

use std::io::{self, Read};

use weir_model::{Batch, OddExample, OddKind, Oddities, RowRef, limits};

use crate::ConnectorError;

/// Bytes asked of the input at a time.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// A buffer that a long line made larger than this is given back.
const BUFFER_BYTES_KEPT: usize = 4 * BLOCK_BYTES;

/// A byte order mark, in UTF-8.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// What to do with a line that exceeds `limits::VALUE_BYTES_MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongLines {
    /// The job fails.
    Fail,
    /// The line is left out, counted and logged.
    Skip,
}

/// How lines become rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Lines with nothing in them become rows.
    pub(crate) keep_empty: bool,
    pub(crate) long_lines: LongLines,
    /// `limits::VALUE_BYTES_MAX`, smaller in tests.
    pub(crate) line_bytes_max: usize,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { keep_empty: false, long_lines: LongLines::Skip, line_bytes_max: limits::VALUE_BYTES_MAX }
    }
}

/// How much a batch may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) rows_max: usize,
    pub(crate) bytes_target: usize,
}

impl Room {
    fn is_left(self, rows: usize, bytes: usize) -> bool {
        rows < self.rows_max.max(1) && (rows == 0 || bytes < self.bytes_target)
    }
}

/// The part of the input that was read and is not yet rows.
#[derive(Default)]
pub(crate) struct Lines {
    /// Always as long as it may be used; `start..end` is filled.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// From `start`, this many bytes hold no line feed.
    searched: usize,
    /// Position in the content of the line that begins at `start` (or before it, by `dropped`).
    offset: u64,
    /// Bytes of the current, too long line that were already let go.
    dropped: u64,
    /// Lines that were too long, until somebody takes them.
    oddities: Oddities,
}

impl Lines {
    /// Of an input of which `offset` bytes are behind.
    pub(crate) fn at(offset: u64) -> Lines {
        Lines { offset, ..Lines::default() }
    }

    /// Position of the first line that is not a row yet.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Position up to which the input was read.
    pub(crate) fn read_offset(&self) -> u64 {
        self.offset + self.dropped + (self.end - self.start) as u64
    }

    /// Adds the lines that were left out since the last call.
    pub(crate) fn give_oddities(&mut self, to: &mut Oddities) {
        if !self.oddities.is_empty() {
            to.merge(&std::mem::take(&mut self.oddities));
        }
    }

    /// The beginning of the content, as far as it was read and is not rows yet; empty later on.
    pub(crate) fn begin(&self) -> &[u8] {
        if self.offset == 0 && self.dropped == 0 { &self.buffer[self.start..self.end] } else { &[] }
    }

    /// Reads one block. 0: the input has no more (now).
    pub(crate) fn fill(&mut self, input: &mut dyn Read) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() > BUFFER_BYTES_KEPT && self.end < BLOCK_BYTES {
            self.buffer.truncate(2 * BLOCK_BYTES);
            self.buffer.shrink_to_fit();
        }
        if self.buffer.len() < self.end + BLOCK_BYTES {
            // Doubling, so that a long line is moved a constant number of times.
            self.buffer.resize((self.end + BLOCK_BYTES).max(2 * self.end), 0);
        }
        loop {
            match input.read(&mut self.buffer[self.end..self.end + BLOCK_BYTES]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(bytes) => {
                    self.end += bytes;
                    return Ok(bytes);
                }
            }
        }
    }

    /// Takes back the last `bytes` that `fill` read, before they were looked at.
    pub(crate) fn unread(&mut self, bytes: usize) {
        self.end -= bytes;
    }

    /// Makes rows of the lines that are complete. Whether the batch is full.
    pub(crate) fn split(&mut self, name: &str, rows: &mut Batch, room: Room, rules: Rules) -> Result<bool, ConnectorError> {
        if !room.is_left(rows.len(), rows.values.bytes.len()) {
            return Ok(true);
        }
        let mut from = self.start + self.searched;
        while let Some(at) = memchr::memchr(b'\n', &self.buffer[from..self.end]) {
            let feed = from + at;
            self.take(name, feed, rows, rules)?;
            self.offset += self.dropped + (feed + 1 - self.start) as u64;
            self.dropped = 0;
            self.start = feed + 1;
            self.searched = 0;
            from = self.start;
            if !room.is_left(rows.len(), rows.values.bytes.len()) {
                return Ok(true);
            }
        }
        self.searched = self.end - self.start;
        // More than the limit: a carriage return and a byte order mark are not part of the line.
        if self.searched > rules.line_bytes_max + 1 + BOM.len() {
            self.refuse(name, rules)?;
            self.dropped += self.searched as u64;
            self.start = self.end;
            self.searched = 0;
        }
        Ok(false)
    }

    /// The input has ended for good: what is left is a line.
    pub(crate) fn finish(&mut self, name: &str, rows: &mut Batch, rules: Rules) -> Result<(), ConnectorError> {
        let is_only_bom = self.begin() == BOM;
        if (self.end > self.start || self.dropped > 0) && !is_only_bom {
            self.take(name, self.end, rows, rules)?;
        }
        self.offset = self.read_offset();
        (self.start, self.end, self.searched, self.dropped) = (0, 0, 0, 0);
        Ok(())
    }

    /// Makes a row of the line that ends before `end`, if it is to be one.
    #[inline]
    fn take(&mut self, name: &str, end: usize, rows: &mut Batch, rules: Rules) -> Result<(), ConnectorError> {
        let line = &self.buffer[self.start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // The mark at the beginning of the content is no part of its first line.
        let line = if self.offset == 0 && self.dropped == 0 { line.strip_prefix(BOM).unwrap_or(line) } else { line };
        if self.dropped > 0 || line.len() > rules.line_bytes_max {
            if self.dropped == 0 {
                self.refuse(name, rules)?;
            }
        } else if !line.is_empty() || rules.keep_empty {
            rows.push_row(RowRef { timestamp: 0, key: None, value: Some(line), headers: b"" });
        }
        Ok(())
    }

    /// The current line is too long.
    #[cold]
    fn refuse(&mut self, name: &str, rules: Rules) -> Result<(), ConnectorError> {
        let limit_bytes = rules.line_bytes_max;
        let offset = self.offset;
        if rules.long_lines == LongLines::Fail {
            return Err(ConnectorError::LongLine { input: name.to_owned(), offset, limit_bytes });
        }
        if self.dropped == 0 {
            tracing::warn!(input = name, offset, limit_bytes, "left out a line that is too long");
            let begin = &self.buffer[self.start..self.end];
            self.oddities.add(OddKind::LongLine, || {
                let reason = format!(
                    "the line at byte {offset} of {name} is longer than {limit_bytes} bytes and is left out; long_lines = \"fail\" would \
                     fail the job"
                );
                OddExample::new(begin, &reason)
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    /// Gives at most `step` bytes at a time.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(self.1).min(out.len());
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(content: &[u8], step: usize, room: Room, rules: Rules) -> Result<(Vec<Vec<u8>>, Lines), ConnectorError> {
        let (mut lines, mut input, mut out) = (Lines::at(0), Trickle(content, step), Vec::new());
        let mut rows = Batch::default();
        loop {
            let full = lines.split("x", &mut rows, room, rules)?;
            assert!(rows.len() <= room.rows_max);
            let ended = !full && lines.fill(&mut input).unwrap() == 0;
            if ended {
                lines.finish("x", &mut rows, rules)?;
            }
            assert!(rows.view().is_valid());
            out.extend(rows.values.iter().map(<[u8]>::to_vec));
            rows.clear();
            if ended {
                return Ok((out, lines));
            }
        }
    }

    const WIDE: Room = Room { rows_max: 1_000, bytes_target: 1 << 20 };

    #[test]
    fn lines_end_with_lf_or_crlf_or_the_end() {
        let (lines, state) = read(b"a\r\nb\n\n\r\nc\rd\n e", 3, WIDE, Rules::default()).unwrap();
        assert_eq!(lines, [&b"a"[..], b"b", b"c\rd", b" e"]);
        assert_eq!((state.oddities.total(), state.offset()), (0, 14));
        let (lines, _) = read(b"a\n\nb\n", 2, WIDE, Rules { keep_empty: true, ..Rules::default() }).unwrap();
        assert_eq!(lines, [&b"a"[..], b"", b"b"]);
    }

    #[test]
    fn s25_a_line_at_the_limit_is_whole_and_one_beyond_is_refused_with_its_place() {
        let limit = limits::VALUE_BYTES_MAX;
        let mut content = b"first\n".to_vec();
        content.extend(std::iter::repeat_n(b'x', limit));
        content.extend(b"\r\nlast\n");
        let (lines, _) = read(&content, BLOCK_BYTES, WIDE, Rules::default()).unwrap();
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [5, limit, 4]);
        content.insert(6, b'x');
        let fail = Rules { long_lines: LongLines::Fail, ..Rules::default() };
        let error = read(&content, BLOCK_BYTES, WIDE, fail).err().unwrap();
        assert!(matches!(error, ConnectorError::LongLine { offset: 6, limit_bytes, .. } if limit_bytes == limit), "{error}");
        let (lines, state) = read(&content, BLOCK_BYTES, WIDE, Rules::default()).unwrap();
        assert_eq!(lines, [&b"first"[..], b"last"], "left out by default");
        assert_eq!((state.oddities.rows(OddKind::LongLine), state.offset()), (1, content.len() as u64));
        let first = state.oddities.get(OddKind::LongLine).unwrap().first.clone().unwrap();
        assert!(first.reason.contains("byte 6 of x") && first.value.starts_with("xxx"), "{first:?}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        for step in [1, 2, 3, 100] {
            let keep = Rules { keep_empty: true, ..Rules::default() };
            let (lines, state) = read(b"\xef\xbb\xbf{\"a\":1}\n\xef\xbb\xbfb\n", step, WIDE, keep).unwrap();
            assert_eq!(lines, [&b"{\"a\":1}"[..], b"\xef\xbb\xbfb"]);
            assert_eq!(state.offset(), 16, "positions count the mark");
            assert_eq!(read(b"\xef\xbb\xbf", step, WIDE, keep).unwrap().0, [b""; 0]);
            assert_eq!(read(b"\xef\xbb\xbf\r\n", step, WIDE, keep).unwrap().0, [b""]);
            assert_eq!(read(b"\xef\xbb", step, WIDE, keep).unwrap().0, [b"\xef\xbb"]);
        }
    }

    proptest! {
        #[test]
        fn any_cut_of_the_input_gives_the_same_lines(
            content in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'a'), Just(b'b')], 0..200),
            step in 1usize..40, rows_max in 1usize..9, bytes_target in 1usize..30, keep_empty: bool, line_bytes_max in 1usize..9,
        ) {
            let rules = Rules { keep_empty, long_lines: LongLines::Skip, line_bytes_max };
            let body = content.strip_suffix(b"\n").unwrap_or(&content);
            let mut expected: Vec<&[u8]> = if content.is_empty() { vec![] } else { body.split(|&b| b == b'\n').collect() };
            expected.iter_mut().for_each(|line| *line = line.strip_suffix(b"\r").unwrap_or(line));
            let long = expected.iter().filter(|line| line.len() > line_bytes_max).count() as u64;
            expected.retain(|line| line.len() <= line_bytes_max && (keep_empty || !line.is_empty()));
            let (lines, state) = read(&content, step, Room { rows_max, bytes_target }, rules).unwrap();
            prop_assert_eq!(&lines, &expected);
            prop_assert_eq!((state.oddities.rows(OddKind::LongLine), state.offset()), (long, content.len() as u64));
        }
    }
}
