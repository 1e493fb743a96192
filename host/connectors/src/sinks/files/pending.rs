//! A file that is being written and is not visible yet.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;

use super::folders::{open, sync};
use crate::{ConnectorError, Reach};

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// How files are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    pub(super) const CHOICES: [(&'static str, Compression); 3] =
        [("none", Compression::None), ("gzip", Compression::Gzip), ("zstd", Compression::Zstd)];

    /// Last ending of file names.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }
}

enum Encoder {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

/// An invisible file and what was written to it.
pub(super) struct PendingFile {
    folder: PathBuf,
    name: String,
    encoder: Encoder,
    rows: u64,
}

impl PendingFile {
    /// Creates the file, which must not exist.
    pub(super) fn create(
        reach: &Reach,
        folder: &Path,
        name: String,
        compression: Compression,
    ) -> Result<PendingFile, ConnectorError> {
        let failed = |error| ConnectorError::io("create", &folder.join(&name), error);
        let file = open(reach, folder)?.create(OsStr::new(&name)).map_err(failed)?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let encoder = match compression {
            Compression::None => Encoder::Plain(file),
            Compression::Gzip => Encoder::Gzip(GzEncoder::new(file, flate2::Compression::fast())),
            Compression::Zstd => Encoder::Zstd(zstd::stream::write::Encoder::new(file, 0).map_err(failed)?),
        };
        Ok(PendingFile { folder: folder.to_owned(), name, encoder, rows: 0 })
    }

    /// An open, uncompressed file.
    #[cfg(test)]
    pub(super) fn over(file: File, folder: &Path, name: &str) -> PendingFile {
        PendingFile { folder: folder.to_owned(), name: name.to_owned(), encoder: Encoder::Plain(BufWriter::new(file)), rows: 0 }
    }

    /// Appends bytes that hold `rows` rows.
    pub(super) fn write(&mut self, bytes: &[u8], rows: usize) -> Result<(), ConnectorError> {
        let written = match &mut self.encoder {
            Encoder::Plain(out) => out.write_all(bytes),
            Encoder::Gzip(out) => out.write_all(bytes),
            Encoder::Zstd(out) => out.write_all(bytes),
        };
        self.rows += rows as u64;
        written.map_err(|error| ConnectorError::io("write to", &self.folder.join(&self.name), error))
    }

    /// Its name within its folder.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes what is buffered, and waits until file and folder are on the disk. Rows and bytes of the file.
    pub(super) fn make_durable(self, reach: &Reach) -> Result<(u64, u64), ConnectorError> {
        let PendingFile { folder, name, encoder, rows } = self;
        let finish = || -> io::Result<u64> {
            let out = match encoder {
                Encoder::Plain(out) => out,
                Encoder::Gzip(out) => out.finish()?,
                Encoder::Zstd(out) => out.finish()?,
            };
            let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.sync_all()?;
            Ok(file.metadata()?.len())
        };
        let bytes = finish().map_err(|error| ConnectorError::io("write to", &folder.join(&name), error))?;
        sync(&open(reach, &folder)?)?;
        Ok((rows, bytes))
    }
}
