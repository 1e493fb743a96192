//! The members of a gzip file, one after another, and what may come after the last: as `gzip -d` takes it, zeros are padding and
//! other bytes are left out with a warning.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// How a member begins.
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of all members.
pub(super) struct Members<R> {
    state: State<R>,
    /// Named in the warning.
    name: String,
}

enum State<R> {
    In(GzDecoder<R>),
    /// Between two members.
    Between(R),
    Over,
}

impl<R: BufRead> Members<R> {
    pub(super) fn new(input: R, name: String) -> Members<R> {
        Members { state: State::In(GzDecoder::new(input)), name }
    }

    /// Whether another member follows; if not, nothing more is read.
    fn is_followed(&self, input: &mut R) -> io::Result<bool> {
        let mut padding = 0_u64;
        loop {
            let buffer = input.fill_buf()?;
            let zeros = buffer.iter().take_while(|&&byte| byte == 0).count();
            let is_all = zeros == buffer.len();
            if buffer.is_empty() {
                return Ok(false);
            }
            if is_all {
                input.consume(zeros);
                padding += zeros as u64;
                continue;
            }
            let rest = &buffer[zeros..];
            // Of a single byte at the end of what was read so far the decoder says whether a member follows.
            if padding == 0 && zeros == 0 && rest[0] == MAGIC[0] && rest.get(1).is_none_or(|&byte| byte == MAGIC[1]) {
                return Ok(true);
            }
            tracing::warn!(file = self.name, "what follows the compressed data is not gzip and is left out, as `gzip -d` does");
            return Ok(false);
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return Ok(0),
                State::Between(mut input) => match self.is_followed(&mut input) {
                    Ok(true) => self.state = State::In(GzDecoder::new(input)),
                    Ok(false) => {}
                    Err(error) => {
                        self.state = State::Between(input);
                        return Err(error);
                    }
                },
                State::In(mut decoder) => match decoder.read(out) {
                    Ok(0) if !out.is_empty() => self.state = State::Between(decoder.into_inner()),
                    read => {
                        self.state = State::In(decoder);
                        return read;
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::{BufReader, Write};

    fn member(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn read(bytes: &[u8], buffer: usize) -> io::Result<Vec<u8>> {
        let mut content = Vec::new();
        Members::new(BufReader::with_capacity(buffer, bytes), "x".to_owned()).read_to_end(&mut content).map(|_| content)
    }

    #[test]
    fn what_follows_the_last_member_is_taken_as_gzip_takes_it() {
        let two = [member(b"one "), member(b""), member(b"two")].concat();
        let ends: [&[u8]; 5] = [b"", &[0; 512], &[0], b"rubbish", b"\0\0rubbish"];
        for end in ends {
            for buffer in [1, 2, 3, 7, 4_096] {
                let bytes = [&two[..], end].concat();
                assert_eq!(read(&bytes, buffer).unwrap(), b"one two", "{end:?} {buffer}");
            }
        }
    }

    #[test]
    fn an_end_in_the_middle_of_the_data_is_an_error() {
        let whole = [member(b"one "), member(b"two and more of it")].concat();
        for length in member(b"one ").len() + 1..whole.len() {
            for buffer in [1, 4_096] {
                let error = read(&whole[..length], buffer).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length} of {} bytes", whole.len());
            }
        }
    }
}
