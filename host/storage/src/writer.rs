//! Writing one file of a checkpoint as a stream, in bounded memory.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::document::Checksum;
use crate::folder::JobFolder;
use crate::{Segment, StorageError, StoredFile};

/// Size of a part. Some stores want all parts but the last to be of one size, and none below 5 MiB.
const PART_BYTES: usize = 8 << 20;
/// Parts on their way at the same time: one is filled while the others travel.
const PARTS_IN_FLIGHT_MAX: usize = 2;

/// Writes one file of a checkpoint, segment after segment.
///
/// Holds at most three parts of 8 MiB in memory. If it is dropped without [`SnapshotWriter::finish`], or `finish` fails,
/// no file is visible or, if the storage did not say, it is swept when a later attempt begins.
pub struct SnapshotWriter {
    folder: Arc<JobFolder>,
    name: String,
    path: Path,
    /// What is not part of the upload yet: less than a part.
    buffer: Vec<u8>,
    bytes: u64,
    upload: Option<Box<dyn MultipartUpload>>,
    parts: JoinSet<object_store::Result<()>>,
    failed: bool,
}

impl SnapshotWriter {
    pub(crate) fn new(folder: Arc<JobFolder>, name: String) -> SnapshotWriter {
        let path = folder.file_path(&name);
        SnapshotWriter { folder, name, path, buffer: Vec::new(), bytes: 0, upload: None, parts: JoinSet::new(), failed: false }
    }

    /// The file's name, as it will be in segments.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes appended so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a payload and says where it lies. It can be read once `finish` has returned.
    ///
    /// # Errors
    /// What the storage said to an earlier part or to this one. The writer is of no use afterwards: drop it.
    pub fn append(&mut self, payload: &[u8]) -> Result<Segment, StorageError> {
        self.append_pieces(&[payload])
    }

    /// The same for a payload that is not in one piece.
    ///
    /// # Errors
    /// As [`SnapshotWriter::append`].
    pub fn append_pieces(&mut self, payload: &[&[u8]]) -> Result<Segment, StorageError> {
        if self.failed {
            return Err(StorageError::Misuse(format!("file `{}` is written to after an error", self.name)));
        }
        let mut checksum = Checksum::default();
        let offset = self.bytes;
        for piece in payload {
            checksum.add(piece);
            self.fill(piece).inspect_err(|_| self.failed = true)?;
        }
        Ok(Segment { file: self.name.clone(), offset, length: self.bytes - offset, checksum: checksum.digits() })
    }

    fn fill(&mut self, mut rest: &[u8]) -> Result<(), StorageError> {
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(PART_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            self.bytes += now.len() as u64;
            rest = later;
            if self.buffer.len() == PART_BYTES {
                self.send_part()?;
            }
        }
        Ok(())
    }

    /// Completes the file. It is whole, visible and durable when this returns.
    pub fn finish(mut self) -> Result<StoredFile, StorageError> {
        if self.failed {
            return Err(StorageError::Misuse(format!("file `{}` is finished after an error", self.name)));
        }
        self.complete()?;
        Ok(StoredFile { name: self.name.clone(), bytes: self.bytes })
    }

    fn complete(&mut self) -> Result<(), StorageError> {
        let folder = self.folder.clone();
        let backend = &folder.backend;
        if self.upload.is_none() {
            return backend.put(&self.path, mem::take(&mut self.buffer));
        }
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        self.wait_for_parts(0)?;
        if let Some(upload) = &mut self.upload {
            backend.wait(upload.complete()).map_err(|error| backend.error("write", &self.path, &error))?;
        }
        self.upload = None;
        Ok(())
    }

    fn send_part(&mut self) -> Result<(), StorageError> {
        self.wait_for_parts(PARTS_IN_FLIGHT_MAX - 1)?;
        // The first part grows as it is filled, since most files have no other. Whoever has filled one fills the next as well.
        let room = if self.buffer.len() == PART_BYTES { PART_BYTES } else { 0 };
        let part = mem::replace(&mut self.buffer, Vec::with_capacity(room));
        let backend = &self.folder.backend;
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => none.insert(backend.upload(&self.path)?),
        };
        let sent = upload.put_part(PutPayload::from_bytes(Bytes::from(part)));
        self.parts.spawn_on(sent, backend.handle());
        Ok(())
    }

    /// Waits until at most `in_flight` parts are on their way.
    fn wait_for_parts(&mut self, in_flight: usize) -> Result<(), StorageError> {
        let backend = &self.folder.backend;
        while self.parts.len() > in_flight {
            match backend.wait(self.parts.join_next()) {
                Some(Ok(Ok(()))) | None => {}
                Some(Ok(Err(error))) => return Err(backend.error("write", &self.path, &error)),
                Some(Err(error)) => {
                    return Err(StorageError::Misuse(format!("writing `{}` panicked: {error}", backend.place(&self.path))));
                }
            }
        }
        Ok(())
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        self.parts.abort_all();
        let Some(mut upload) = self.upload.take() else { return };
        if Handle::try_current().is_err() {
            let backend = &self.folder.backend;
            if let Err(error) = backend.wait(upload.abort()) {
                tracing::debug!(%error, file = self.name, "could not abort an upload");
            }
        }
    }
}
