//! Formats that are not lines of text, known by how they begin, so that they are refused by name and not read as garbage.

use crate::ConnectorError;

const UNPACK: &str = "unpack it first, or compress with gzip or zstd";
const CONVERT: &str = "convert it to lines first (JSON, one object a line), or leave it out of path";
const UTF_8: &str = "convert it first: iconv -f UTF-16 -t UTF-8";
const EXTRACT: &str = "extract its files first, or leave it out of path";
const PIPE: &str = "pipe it through `zcat` or `zstdcat`, or read the file with the connector \"file\", which unpacks it";

/// How they begin, what they are, and what to do.
const FORMATS: [(&[u8], &str, &str); 19] = [
    (b"\xfd7zXZ\x00", "xz-compressed", UNPACK),
    (b"\x04\x22\x4d\x18", "lz4-compressed", UNPACK),
    (b"\x02\x21\x4c\x18", "lz4-compressed", UNPACK),
    (b"\x5d\x00\x00\x80\x00", "lzma-compressed", UNPACK),
    (b"\x1f\x9d", "compressed by compress (.Z)", UNPACK),
    (b"\xff\x06\x00\x00sNaPpY", "snappy-compressed", UNPACK),
    (b"\x89LZO\x00\r\n\x1a\n", "lzo-compressed", UNPACK),
    (b"PK\x03\x04", "a zip archive", EXTRACT),
    (b"PK\x05\x06", "an empty zip archive", EXTRACT),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", EXTRACT),
    (b"Rar!\x1a\x07", "a rar archive", EXTRACT),
    (b"PAR1\x15", "Parquet", CONVERT),
    (b"Obj\x01", "Avro", CONVERT),
    (b"ORC\x08", "ORC", CONVERT),
    (b"ARROW1\x00\x00", "Arrow", CONVERT),
    (b"SQLite format 3\x00", "an SQLite database", CONVERT),
    (b"\xff\xfe\x00\x00", "text in UTF-32", "convert it first: iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "text in UTF-16", UTF_8),
    (b"\xfe\xff", "text in UTF-16", UTF_8),
];

/// What content that begins so is, if it is none that can be read, and what to do about it.
pub(super) fn foreign(begin: &[u8]) -> Option<(&'static str, &'static str)> {
    let known = FORMATS.iter().find(|(magic, ..)| begin.starts_with(magic)).map(|(_, what, hint)| (*what, *hint));
    known.or_else(|| {
        // "BZh1" may begin a line; what follows it in such a file may not.
        let is_bzip2 =
            begin.len() >= 10 && begin.starts_with(b"BZh") && matches!(&begin[4..10], b"1AY&SY" | b"\x17\x72\x45\x38\x50\x90");
        let is_tar = begin.len() >= 262 && &begin[257..262] == b"ustar" && begin[..257].contains(&0);
        match () {
            () if is_bzip2 => Some(("bzip2-compressed", UNPACK)),
            () if is_tar => Some(("a tar archive", EXTRACT)),
            () => None,
        }
    })
}

/// The same for input that is not unpacked: gzip and zstd count too.
pub(super) fn foreign_in_pipe(begin: &[u8]) -> Option<(&'static str, &'static str)> {
    let packed = [(&b"\x1f\x8b\x08"[..], "gzip-compressed"), (b"\x28\xb5\x2f\xfd", "zstd-compressed")];
    packed.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, what)| (*what, PIPE)).or_else(|| foreign(begin))
}

/// Refuses content that cannot be read.
pub(super) fn refuse_foreign(input: &str, begin: &[u8]) -> Result<(), ConnectorError> {
    match foreign(begin) {
        Some((format, hint)) => Err(ConnectorError::Format { input: input.to_owned(), format, hint }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_beginnings_and_text_is_not_taken_for_one() {
        for (magic, what, _) in FORMATS {
            let content = [magic, b"more"].concat();
            assert_eq!(foreign(&content).map(|(found, _)| found), Some(what));
        }
        assert_eq!(foreign(b"BZh91AY&SY\x00").map(|(what, _)| what), Some("bzip2-compressed"));
        let mut tar = vec![0; 512];
        tar[..5].copy_from_slice(b"a.log");
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(foreign(&tar).map(|(what, _)| what), Some("a tar archive"));
        for text in ["BZh9 is a word", "PAR1,2,3", "Object", "ORCA", "PK", "", "{\"a\":1}", "\u{feff}text"] {
            assert_eq!(foreign(text.as_bytes()), None, "{text}");
        }
        assert_eq!(foreign(b"\x1f\x8b\x08\x00"), None);
        assert!(foreign_in_pipe(b"\x1f\x8b\x08\x00").is_some() && foreign_in_pipe(b"\xfd7zXZ\x00").is_some());
    }
}
