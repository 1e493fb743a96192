//! What a coordinator must not forget, on its disk: jobs, the execution each of them began last, their events.
//!
//! ```text
//! key                          value (JSON)
//! schema                       version of this layout
//! job/<name>                   JobRecord
//! begun/<name>                 Begun: the last execution
//! event/<name>/<number>        JobEvent; number as 8 bytes, big-endian
//! ```
//!
//! Each change is one batch, synced before the call returns: it is there as a whole or not at all, whenever the process or the
//! power fails. Never decides what is written when; see `cluster/mod.rs` for the order of writes and messages.

mod lock;
mod record;

use std::path::{Path, PathBuf};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, ErrorKind, IteratorMode, Options, WriteBatch, WriteOptions,
};
use serde::de::DeserializeOwned;
use weir_protocol::api::JobEvent;

pub(crate) use self::lock::DataLock;
pub(crate) use self::record::{Counts, Desired, JobRecord};
use crate::Begun;

/// Version of the layout.
const SCHEMA: u32 = 1;

/// Events kept of each job; older ones are dropped.
pub(crate) const EVENTS_PER_JOB_MAX: u64 = 1_000;

/// Events read at once.
const EVENTS_READ_MAX: usize = 500;

const _: () = assert!(EVENTS_READ_MAX as u64 <= EVENTS_PER_JOB_MAX);

/// A coordinator's memory cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The disk does not do it, or what is there is damaged.
    #[error("cannot {action} the coordinator's metadata in {}: {reason}", folder.display())]
    Database {
        /// What was attempted.
        action: &'static str,
        /// Its folder.
        folder: PathBuf,
        /// Why it failed.
        reason: String,
    },
    /// It was written by another version of weir.
    #[error(
        "cannot use the coordinator's metadata in {}: its layout has version {found}, this weir knows {SCHEMA}; use the \
         version of weir that wrote it", folder.display()
    )]
    Schema {
        /// Its folder.
        folder: PathBuf,
        /// The version found.
        found: String,
    },
}

/// A job as it was found at start.
#[derive(Debug)]
pub(crate) struct StoredJob {
    /// Its record.
    pub(crate) record: JobRecord,
    /// Its last execution.
    pub(crate) begun: Option<Begun>,
}

/// One change of a job. Everything in it becomes durable together.
#[derive(Default)]
pub(crate) struct Change<'a> {
    /// The execution that begins.
    pub(crate) begun: Option<&'a Begun>,
    /// What is known of earlier executions is dropped.
    pub(crate) forget_begun: bool,
    /// What happened. Its number is the record's last.
    pub(crate) event: Option<&'a JobEvent>,
}

/// The open database.
pub(crate) struct Metadata {
    folder: PathBuf,
    /// None once it is closed.
    db: RwLock<Option<DB>>,
}

impl Metadata {
    /// Opens the metadata in a data folder. The caller holds the folder's [`DataLock`].
    pub(crate) fn open(data_dir: &Path) -> Result<Metadata, MetadataError> {
        let folder = data_dir.join("metadata");
        let failed = |reason: String| MetadataError::Database { action: "open", folder: folder.clone(), reason };
        std::fs::create_dir_all(&folder).map_err(|error| failed(error.to_string()))?;
        let db = DB::open(&options(), &folder).map_err(|error| failed(error.to_string()))?;
        let metadata = Metadata { folder, db: RwLock::new(Some(db)) };
        match metadata.get::<u32>(b"schema")? {
            Some(SCHEMA) => {}
            Some(found) => return Err(MetadataError::Schema { folder: metadata.folder.clone(), found: found.to_string() }),
            None if metadata.db()?.iterator(IteratorMode::Start).next().is_some() => {
                return Err(MetadataError::Schema { folder: metadata.folder.clone(), found: "none".to_owned() });
            }
            None => {
                let mut batch = WriteBatch::default();
                batch.put(b"schema", encode(&SCHEMA));
                metadata.write_batch(batch)?;
            }
        }
        Ok(metadata)
    }

    /// Closes the database. Nothing can be read or written afterwards. Not left to the last owner, who may be a thread that is
    /// about to die with its process, in the middle of it.
    pub(crate) fn close(&self) {
        self.db.write().take();
    }

    fn db(&self) -> Result<MappedRwLockReadGuard<'_, DB>, MetadataError> {
        RwLockReadGuard::try_map(self.db.read(), Option::as_ref).map_err(|_| MetadataError::Database {
            action: "use",
            folder: self.folder.clone(),
            reason: "the coordinator ends".to_owned(),
        })
    }

    /// All jobs, by name.
    pub(crate) fn jobs(&self) -> Result<Vec<StoredJob>, MetadataError> {
        let mut jobs = Vec::new();
        let db = self.db()?;
        for entry in db.iterator(IteratorMode::From(b"job/", Direction::Forward)) {
            let (key, value) = entry.map_err(|error| self.failed("read", &error))?;
            let Some(name) = key.strip_prefix(b"job/") else { break };
            let record = self.decode(&key, &value)?;
            jobs.push(StoredJob { record, begun: self.get(&[b"begun/", name].concat())? });
        }
        Ok(jobs)
    }

    /// Writes a job's record, and what belongs to it.
    pub(crate) fn put(&self, name: &str, record: &JobRecord, change: &Change<'_>) -> Result<(), MetadataError> {
        let mut batch = WriteBatch::default();
        batch.put(key("job", name), encode(record));
        if change.forget_begun {
            batch.delete(key("begun", name));
        }
        if let Some(begun) = change.begun {
            batch.put(key("begun", name), encode(begun));
        }
        if let Some(event) = change.event {
            debug_assert_eq!(event.number, record.last_event, "events have no gaps");
            batch.put(event_key(name, event.number), encode(event));
            if let Some(old) = event.number.checked_sub(EVENTS_PER_JOB_MAX) {
                batch.delete(event_key(name, old));
            }
        }
        self.write_batch(batch)
    }

    /// Forgets a job with its events.
    pub(crate) fn remove(&self, name: &str) -> Result<(), MetadataError> {
        let mut batch = WriteBatch::default();
        batch.delete(key("job", name));
        batch.delete(key("begun", name));
        batch.delete_range(event_key(name, 0), event_key(name, u64::MAX));
        self.write_batch(batch)
    }

    /// Events of a job with numbers greater than `after`, oldest first; no more than a few hundred at once.
    pub(crate) fn events(&self, name: &str, after: u64) -> Result<Vec<JobEvent>, MetadataError> {
        let prefix = [&key("event", name)[..], b"/"].concat();
        let from = event_key(name, after.saturating_add(1));
        let mut events = Vec::new();
        let db = self.db()?;
        for entry in db.iterator(IteratorMode::From(&from, Direction::Forward)).take(EVENTS_READ_MAX) {
            let (key, value) = entry.map_err(|error| self.failed("read", &error))?;
            if !key.starts_with(&prefix) {
                break;
            }
            events.push(self.decode(&key, &value)?);
        }
        Ok(events)
    }

    fn write_batch(&self, batch: WriteBatch) -> Result<(), MetadataError> {
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        self.db()?.write_opt(batch, &durable).map_err(|error| self.failed("write", &error))
    }

    fn get<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, MetadataError> {
        let db = self.db()?;
        let value = db.get_pinned(key).map_err(|error| self.failed("read", &error))?;
        value.map(|value| self.decode(key, &value)).transpose()
    }

    fn decode<T: DeserializeOwned>(&self, key: &[u8], value: &[u8]) -> Result<T, MetadataError> {
        serde_json::from_slice(value).map_err(|error| MetadataError::Database {
            action: "read",
            folder: self.folder.clone(),
            reason: format!("the entry `{}` is damaged: {error}", key.escape_ascii()),
        })
    }

    fn failed(&self, action: &'static str, error: &rocksdb::Error) -> MetadataError {
        let hint = match error.kind() {
            ErrorKind::Corruption => "; restore the folder from a copy, or start with an empty one and submit the jobs again",
            _ => "",
        };
        MetadataError::Database { action, folder: self.folder.clone(), reason: format!("{error}{hint}") }
    }
}

impl std::fmt::Debug for Metadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Metadata({})", self.folder.display())
    }
}

/// A few kilobytes a job are kept: memory matters more than speed.
fn options() -> Options {
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&Cache::new_lru_cache(1 << 20));
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&tables);
    options.set_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(1 << 20);
    options.set_max_write_buffer_number(2);
    options.set_db_write_buffer_size(2 << 20);
    options.set_max_total_wal_size(4 << 20);
    options.set_max_open_files(64);
    options.set_max_file_opening_threads(1);
    options.set_max_background_jobs(2);
    options.set_stats_dump_period_sec(0);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options
}

fn key(kind: &str, name: &str) -> Vec<u8> {
    format!("{kind}/{name}").into_bytes()
}

fn event_key(name: &str, number: u64) -> Vec<u8> {
    // Names of jobs have no slash, so no job's events are among another's.
    [format!("event/{name}/").as_bytes(), &number.to_be_bytes()].concat()
}

fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    match serde_json::to_vec(value) {
        Ok(bytes) => bytes,
        Err(error) => unreachable!("records have only string keys and no own serializer that fails: {error}"),
    }
}

#[cfg(test)]
mod tests;
