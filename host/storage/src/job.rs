//! The stored state of one job: opening it, beginning attempts, reading.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use weir_model::{Attempt, CheckpointId, TaskId};

use crate::backend::Backend;
use crate::layout::{self, AttemptName, ManifestName};
use crate::log::{JobState, StoredCheckpoint};
use crate::manifest::{JobInfo, MANIFEST_FORMAT, MANIFEST_FORMAT_MIN, Manifest};
use crate::writer::SnapshotWriter;
use crate::{Segment, StorageError, document};

/// Older attempts whose entries are kept, for people who look. Entries are tiny, but one is made at each restart.
const ATTEMPTS_KEPT: u64 = 8;
/// Other attempts that may begin at the same moment before we give up.
const ATTEMPT_RACES_MAX: usize = 100;

/// The stored state of one job. Cheap to clone; all clones share one set of threads.
///
/// Every call blocks the caller's thread until the storage has answered. Never call one from async code.
#[derive(Clone)]
pub struct JobStorage {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) backend: Backend,
    pub(crate) job: String,
    folder: Path,
    /// Numbers the files that this process writes.
    files_begun: AtomicU64,
    /// Held while manifests are written or anything is deleted.
    pub(crate) ledger: Mutex<Ledger>,
}

/// What this process remembers of the storage, so that a checkpoint costs no more reads than it must.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Files that a manifest names. Manifests never change, so this is never out of date.
    pub(crate) references: HashMap<ManifestName, Arc<BTreeSet<String>>>,
    /// What the newest attempt with such a record inherits; the record never changes either.
    inherited: Option<(Attempt, Arc<Inherited>)>,
    /// Files that nothing references and that could not be deleted yet.
    pub(crate) backlog: BTreeSet<String>,
}

/// What an attempt records when it begins: the manifests of older attempts that it found. One that an older attempt
/// writes later does not count, because the new attempt has already gone on from what it found.
#[derive(serde::Serialize, serde::Deserialize)]
struct Inheritance {
    manifests: Vec<String>,
    /// The greatest checkpoint number used so far, also of those that are deleted later.
    checkpoint_max: u64,
}

/// The same, parsed.
struct Inherited {
    manifests: BTreeSet<ManifestName>,
    checkpoint_max: u64,
}

/// The entries of the attempts folder.
pub(crate) struct Attempts {
    begun: Vec<Attempt>,
    recorded: Vec<Attempt>,
}

impl Attempts {
    pub(crate) fn newest(&self) -> Option<Attempt> {
        self.begun.iter().chain(&self.recorded).max().copied()
    }
}

impl JobStorage {
    /// Opens the stored state of `job` below `url`: a plain path, or `file:` and a path. The folder is made if it does not
    /// exist; nothing of the job is written yet.
    ///
    /// # Errors
    /// `UnsupportedScheme` for any other URL, `InvalidName`, and what the disk says.
    pub fn open(url: &str, job: &str) -> Result<JobStorage, StorageError> {
        JobStorage::with_backend(Backend::open(url)?, job)
    }

    /// Uses an object store as it is; `label` is how it is shown to people. It must read what it wrote, at once, and know
    /// `PutMode::Create`.
    pub fn with_store(store: Arc<dyn ObjectStore>, label: &str, job: &str) -> Result<JobStorage, StorageError> {
        JobStorage::with_backend(Backend::new(store, label.to_owned(), None)?, job)
    }

    pub(crate) fn with_backend(backend: Backend, job: &str) -> Result<JobStorage, StorageError> {
        let folder = layout::job_folder(job)?;
        Ok(JobStorage {
            inner: Arc::new(Inner {
                backend,
                job: job.to_owned(),
                folder,
                files_begun: AtomicU64::new(0),
                ledger: Mutex::new(Ledger::default()),
            }),
        })
    }

    /// Begins an attempt: its number is greater than that of any before, and from now on all older attempts are refused.
    ///
    /// Which checkpoints this attempt can resume from is settled here: [`JobStorage::checkpoints`] shows them afterwards,
    /// and one that an older attempt writes in spite of all does not count.
    pub fn new_attempt(&self) -> Result<Attempt, StorageError> {
        let inner = &self.inner;
        inner.make_folders()?;
        let mut ledger = inner.ledger.lock();
        // Names carry attempts: even if someone deleted the entries, no name may be used twice.
        let mut used = inner.highest_used(&mut ledger)?.0;
        for _ in 0..ATTEMPT_RACES_MAX {
            let attempt = Attempt(used + 1);
            let entry = serde_json::json!({"attempt": attempt.0, "process": std::process::id()}).to_string();
            let begun = inner.backend.put_new(&inner.attempt_path(AttemptName::Begun(attempt)), entry.into_bytes())?;
            let attempts = inner.attempts()?;
            used = attempts.newest().map_or(attempt.0, |newest| newest.0.max(attempt.0));
            if !begun || used > attempt.0 {
                continue;
            }
            let manifests = inner.valid_manifests(&mut ledger)?.iter().map(ManifestName::to_string).collect();
            let checkpoint_max = inner.highest_used(&mut ledger)?.1;
            let record = document::encode(&Inheritance { manifests, checkpoint_max })?;
            let path = inner.attempt_path(AttemptName::Inherits(attempt));
            if !inner.backend.put_new(&path, record)? {
                return Err(StorageError::Misuse(format!("`{}` exists before its attempt", inner.backend.place(&path))));
            }
            inner.remove_old_entries(&attempts, attempt);
            return Ok(attempt);
        }
        Err(StorageError::Unavailable {
            action: "begin an attempt in",
            path: inner.backend.place(&inner.path(layout::ATTEMPTS)),
            reason: format!("{ATTEMPT_RACES_MAX} other attempts began at the same moment"),
        })
    }

    /// The newest attempt that has begun; 0 where none has.
    ///
    /// # Errors
    /// What the storage says.
    pub fn newest_attempt(&self) -> Result<Attempt, StorageError> {
        Ok(self.inner.attempts()?.newest().unwrap_or(Attempt(0)))
    }

    /// Whether an attempt has begun here. Tells a place that all machines share from one that only looks like it.
    ///
    /// # Errors
    /// What the storage says.
    pub fn has_attempt(&self, attempt: Attempt) -> Result<bool, StorageError> {
        Ok(self.inner.attempts()?.begun.contains(&attempt))
    }

    /// A number greater than that of any checkpoint that has left a manifest or a file, completed or not, or had when the
    /// current attempt began. Numbers go up by one from there. Lists the whole folder: call it once, after
    /// [`JobStorage::new_attempt`].
    pub fn next_checkpoint_id(&self) -> Result<CheckpointId, StorageError> {
        Ok(CheckpointId(self.inner.highest_used(&mut self.inner.ledger.lock())?.1 + 1))
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.inner.job
    }

    /// What is decided about the job, as things are now. For those who only read; two requests.
    ///
    /// # Errors
    /// `OldFolder`, `Damaged`, `UnknownFormat`, and what the storage says.
    pub fn state(&self) -> Result<JobState, StorageError> {
        self.inner.newest_state()
    }

    /// Reads the manifest of a checkpoint that the log names.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `UnknownFormat`, and what the storage says.
    pub fn stored_manifest(&self, checkpoint: &StoredCheckpoint) -> Result<Manifest, StorageError> {
        let manifest = self.manifest_of_name(&checkpoint.manifest)?;
        if manifest.id() == checkpoint.id && manifest.attempt == checkpoint.attempt {
            return Ok(manifest);
        }
        let reason = format!("it holds checkpoint {} of attempt {}", manifest.id(), manifest.attempt);
        Err(StorageError::Damaged { path: self.place_of_manifest(&checkpoint.manifest), reason })
    }

    pub(crate) fn manifest_of_name(&self, name: &str) -> Result<Manifest, StorageError> {
        let inner = &self.inner;
        let place = self.place_of_manifest(name);
        let bytes = inner.backend.get(&inner.path(layout::MANIFESTS).join(name))?;
        let manifest: Manifest = document::decode(&place, &bytes, Some(MANIFEST_FORMAT_MIN..=MANIFEST_FORMAT))?;
        if manifest.job == inner.job {
            return Ok(manifest);
        }
        Err(StorageError::Damaged { path: place, reason: format!("it is of job `{}`", manifest.job) })
    }

    pub(crate) fn place_of_manifest(&self, name: &str) -> String {
        self.inner.backend.place(&self.inner.path(layout::MANIFESTS).join(name))
    }

    pub(crate) fn place_of_log(&self) -> String {
        self.inner.backend.place(&self.inner.path(layout::LOG))
    }

    /// Begins a file for one task's part of a checkpoint. Nothing is visible before [`SnapshotWriter::finish`].
    pub fn writer(&self, attempt: Attempt, checkpoint: CheckpointId, task: TaskId) -> SnapshotWriter {
        let sequence = self.inner.files_begun.fetch_add(1, Ordering::Relaxed);
        SnapshotWriter::new(self.clone(), layout::file_name(attempt, checkpoint, task, sequence))
    }

    /// Reads a segment, and checks that it is what was written.
    ///
    /// # Errors
    /// `Missing`, `Damaged` (cut off or changed), `Unavailable`, `Refused`.
    pub fn read(&self, segment: &Segment) -> Result<Bytes, StorageError> {
        let inner = &self.inner;
        let path = inner.file_path(&segment.file);
        let damaged = |reason: String| StorageError::Damaged { path: inner.backend.place(&path), reason };
        let end = segment.offset.checked_add(segment.length).ok_or_else(|| damaged("its range is impossible".to_owned()))?;
        // Stores refuse empty ranges.
        let bytes = if segment.length == 0 { Bytes::new() } else { inner.backend.get_range(&path, segment.offset..end)? };
        let computed = document::checksum(&bytes);
        if computed == segment.checksum {
            return Ok(bytes);
        }
        Err(damaged(format!("the checksum of bytes {}..{end} is {computed}, it should be {}", segment.offset, segment.checksum)))
    }

    /// What is known of the job beside its checkpoints; `None` for a job that has no state yet.
    pub fn job_info(&self) -> Result<Option<JobInfo>, StorageError> {
        let path = self.inner.path(layout::JOB_INFO);
        match self.inner.backend.get(&path) {
            Ok(bytes) => document::decode(&self.inner.backend.place(&path), &bytes, None).map(Some),
            Err(StorageError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes what is known of the job.
    pub fn put_job_info(&self, info: &JobInfo) -> Result<(), StorageError> {
        self.inner.make_folders()?;
        self.inner.backend.put(&self.inner.path(layout::JOB_INFO), document::encode(info)?)
    }
}

impl std::fmt::Debug for JobStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobStorage({})", self.inner.backend.place(&self.inner.folder))
    }
}

impl Inner {
    /// A place in the job's folder.
    pub(crate) fn path(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    pub(crate) fn file_path(&self, name: &str) -> Path {
        self.path(layout::FILES).join(name)
    }

    pub(crate) fn manifest_path(&self, name: ManifestName) -> Path {
        self.path(layout::MANIFESTS).join(name.to_string())
    }

    fn attempt_path(&self, name: AttemptName) -> Path {
        self.path(layout::ATTEMPTS).join(name.to_string())
    }

    /// Makes the folders that a local store needs.
    pub(crate) fn make_folders(&self) -> Result<(), StorageError> {
        let Some(local) = &self.backend.local else { return Ok(()) };
        local.make_folder(&self.folder)?;
        [layout::ATTEMPTS, layout::LOG, layout::MANIFESTS, layout::FILES]
            .iter()
            .try_for_each(|name| local.make_folder(&self.path(name)))
    }

    pub(crate) fn attempts(&self) -> Result<Attempts, StorageError> {
        let (mut begun, mut recorded) = (Vec::new(), Vec::new());
        for name in self.backend.list(&self.path(layout::ATTEMPTS))? {
            match AttemptName::parse(&name) {
                Some(AttemptName::Begun(attempt)) => begun.push(attempt),
                Some(AttemptName::Inherits(attempt)) => recorded.push(attempt),
                None => {}
            }
        }
        Ok(Attempts { begun, recorded })
    }

    pub(crate) fn manifest_names(&self) -> Result<Vec<ManifestName>, StorageError> {
        let names = self.backend.list(&self.path(layout::MANIFESTS))?;
        Ok(names.iter().filter_map(|name| ManifestName::parse(name)).collect())
    }

    /// The manifests that count, newest first.
    pub(crate) fn valid_manifests(&self, ledger: &mut Ledger) -> Result<Vec<ManifestName>, StorageError> {
        let recorded = self.attempts()?.recorded.into_iter().max();
        // Manifests are listed after attempts: an attempt that begins in between can only take away, and the list of an
        // attempt that has lost its job is never acted on.
        let mut names = self.manifest_names()?;
        if let Some(newest) = recorded {
            let inherited = self.inherited(ledger, newest)?;
            names.retain(|name| name.attempt >= newest || inherited.manifests.contains(name));
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names)
    }

    fn inherited(&self, ledger: &mut Ledger, attempt: Attempt) -> Result<Arc<Inherited>, StorageError> {
        if let Some((_, inherited)) = ledger.inherited.as_ref().filter(|(known, _)| *known == attempt) {
            return Ok(Arc::clone(inherited));
        }
        let path = self.attempt_path(AttemptName::Inherits(attempt));
        let record: Inheritance = document::decode(&self.backend.place(&path), &self.backend.get(&path)?, None)?;
        let manifests = record.manifests.iter().filter_map(|name| ManifestName::parse(name)).collect();
        let inherited = Arc::new(Inherited { manifests, checkpoint_max: record.checkpoint_max });
        ledger.inherited = Some((attempt, Arc::clone(&inherited)));
        Ok(inherited)
    }

    /// The greatest attempt and checkpoint that any name carries or carried; 0 if there is none.
    fn highest_used(&self, ledger: &mut Ledger) -> Result<(u64, u64), StorageError> {
        let attempts = self.attempts()?;
        let mut attempt = attempts.newest().map_or(0, |newest| newest.0);
        let mut checkpoint = match attempts.recorded.iter().max() {
            Some(newest) => self.inherited(ledger, *newest)?.checkpoint_max,
            None => 0,
        };
        for name in self.manifest_names()? {
            attempt = attempt.max(name.attempt.0);
            checkpoint = checkpoint.max(name.checkpoint.0);
        }
        for name in self.backend.list(&self.path(layout::FILES))? {
            if let Some((by, of)) = layout::parse_file_name(&name) {
                attempt = attempt.max(by.0);
                checkpoint = checkpoint.max(of.0);
            }
        }
        Ok((attempt, checkpoint))
    }

    /// Deletes the entries of attempts that have been over for long. Records first: an entry alone means nothing.
    fn remove_old_entries(&self, attempts: &Attempts, current: Attempt) {
        let old = |attempt: &&Attempt| attempt.0 + ATTEMPTS_KEPT < current.0;
        let recorded = attempts.recorded.iter().filter(old).map(|attempt| AttemptName::Inherits(*attempt));
        let begun = attempts.begun.iter().filter(old).map(|attempt| AttemptName::Begun(*attempt));
        let failed = self.backend.delete(recorded.chain(begun).map(|name| self.attempt_path(name)).collect());
        if let Some((_, error)) = failed.first() {
            tracing::warn!(%error, entries = failed.len(), "could not delete entries of old attempts; the next attempt tries again");
        }
    }
}
