//! What a coordinator must not forget, on its disk: jobs, the execution each of them began last, their events.
//!
//! ```text
//! key                          value (JSON)
//! schema                       version of this layout
//! epoch                        Epoch: whose metadata this is, and starts of a coordinator from it
//! succeeds                     [Epoch]: coordinators that are lost for good, whose workers this one may lead; none until then
//! job/<name>                   JobRecord
//! begun/<name>                 Begun: the last execution
//! event/<name>/<number>        JobEvent; number as 8 bytes, big-endian
//! ```
//!
//! What is no job's has its keys in modules of its own.
//!
//! They are rows of one table of an SQLite database (docs/decisions/0015). Each change is one transaction, synced before the call
//! returns: it is there as a whole or not at all, whenever the process or the power fails. Never decides what is written when: the machine does (`weir_cluster`).

mod lock;
mod tokens;
mod trail;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction};
use serde::de::DeserializeOwned;
use weir_cluster::{BegunChange, Change, Metadata, StoredJob, WriteFailure};
use weir_model::Epoch;
use weir_model::limits::EVENTS_PER_JOB_MAX;
use weir_protocol::api::JobEvent;

pub(crate) use self::lock::DataLock;
pub(crate) use self::tokens::{TokenChange, TokenRecord};

/// Version of the layout. 1 was a RocksDB database in the same folder.
const SCHEMA: u32 = 2;

/// The database, in the folder of the metadata.
const FILE: &str = "coordinator.sqlite";

/// Events read at once.
const EVENTS_READ_MAX: usize = 500;

const _: () = assert!(EVENTS_READ_MAX as u64 <= EVENTS_PER_JOB_MAX);

/// How long whoever reads waits for one who writes, on a disk that does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// The open database.
pub(crate) struct Database {
    folder: PathBuf,
    /// None once it is closed.
    connection: Mutex<Option<Connection>>,
}

impl Database {
    /// Opens the metadata in a data folder. The caller holds the folder's [`DataLock`].
    pub(crate) fn open(data_dir: &Path) -> Result<Database, MetadataError> {
        let folder = data_dir.join("metadata");
        let failed = |reason: String| MetadataError::Database { action: "open", folder: folder.clone(), reason };
        // It holds what jobs take from their submitters' environment.
        let private = std::fs::Permissions::from_mode(0o700);
        let made = std::fs::create_dir_all(&folder).and_then(|()| std::fs::set_permissions(&folder, private));
        made.map_err(|error| failed(error.to_string()))?;
        if folder.join("CURRENT").exists() && !folder.join(FILE).exists() {
            return Err(MetadataError::Schema { folder, found: "1".to_owned() });
        }
        let mut connection = connect(&folder.join(FILE)).map_err(|error| failed(reason(&error)))?;
        let damage: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(|error| failed(reason(&error)))?;
        if damage != "ok" {
            return Err(failed(format!("it is damaged ({damage}){DAMAGED_HINT}")));
        }
        let made = prepare(&mut connection).map_err(|error| failed(reason(&error)))?;
        let metadata = Database { folder, connection: Mutex::new(Some(connection)) };
        match metadata.get::<u32>(b"schema")? {
            Some(SCHEMA) => Ok(metadata),
            Some(found) => Err(MetadataError::Schema { folder: metadata.folder.clone(), found: found.to_string() }),
            None if made => {
                metadata.write(|batch| batch.put(b"schema", &SCHEMA))?;
                Ok(metadata)
            }
            None => Err(MetadataError::Schema { folder: metadata.folder.clone(), found: "none".to_owned() }),
        }
    }

    /// Closes the database. Nothing can be read or written afterwards. Not left to the last owner, who may be a thread that is
    /// about to die with its process, in the middle of it.
    pub(crate) fn close(&self) {
        self.connection.lock().take();
    }

    fn connection(&self) -> Result<MappedMutexGuard<'_, Connection>, MetadataError> {
        let failed = |reason: String| MetadataError::Database { action: "use", folder: self.folder.clone(), reason };
        let locked = self
            .connection
            .try_lock_for(PATIENCE)
            .ok_or_else(|| failed(format!("the disk has not answered for {} s what was asked for before", PATIENCE.as_secs())))?;
        MutexGuard::try_map(locked, Option::as_mut).map_err(|_| failed("the coordinator ends".to_owned()))
    }

    /// Counts one more start of a coordinator; durable when this returns. The origin is made with the first.
    pub(crate) fn next_epoch(&self) -> Result<Epoch, MetadataError> {
        let epoch = match self.get::<Epoch>(b"epoch")? {
            Some(before) => Epoch { count: before.count.saturating_add(1), ..before },
            None => Epoch { origin: self.random()?, count: 1 },
        };
        self.write(|batch| batch.put(b"epoch", &epoch))?;
        Ok(epoch)
    }

    /// Sixteen random bytes. SQLite's generator is seeded by the operating system.
    fn random(&self) -> Result<[u8; 16], MetadataError> {
        let bytes = self.connection()?.query_row("SELECT randomblob(16)", [], |row| row.get(0));
        bytes.map_err(|error| self.failed("make an id for", &error))
    }

    /// Coordinators that are lost for good, whose workers this one may lead.
    pub(crate) fn succeeds(&self) -> Result<Vec<Epoch>, MetadataError> {
        Ok(self.get(b"succeeds")?.unwrap_or_default())
    }

    /// All jobs, by name.
    pub(crate) fn stored(&self) -> Result<Vec<StoredJob>, MetadataError> {
        let mut jobs = Vec::new();
        for (key, value) in self.range(b"job/", b"job0", None)? {
            let name = &key[b"job/".len()..];
            let record = self.decode(&key, &value)?;
            jobs.push(StoredJob { record, begun: self.get(&[b"begun/", name].concat())? });
        }
        Ok(jobs)
    }

    fn write_change(&self, change: &Change) -> Result<(), MetadataError> {
        self.write(|batch| match change {
            Change::Job { name, record, begun, event } => {
                batch.put(&key("job", name), record)?;
                match begun {
                    BegunChange::Kept => {}
                    BegunChange::Forgotten => batch.delete(&key("begun", name))?,
                    BegunChange::Is(begun) => batch.put(&key("begun", name), begun)?,
                }
                if let Some(event) = event {
                    debug_assert_eq!(event.number, record.last_event, "events have no gaps");
                    batch.put(&event_key(name, event.number), event)?;
                    if let Some(old) = event.number.checked_sub(EVENTS_PER_JOB_MAX) {
                        batch.delete(&event_key(name, old))?;
                    }
                }
                Ok(())
            }
            Change::Forget { name } => {
                batch.delete(&key("job", name))?;
                batch.delete(&key("begun", name))?;
                batch.delete_range(&event_key(name, 0), &event_key(name, u64::MAX))
            }
            Change::Succeeds(lost) => batch.put(b"succeeds", lost),
        })
    }

    fn events_after(&self, name: &str, after: u64) -> Result<Vec<JobEvent>, MetadataError> {
        let from = event_key(name, after.saturating_add(1));
        let entries = self.range(&from, &event_key(name, u64::MAX), Some(EVENTS_READ_MAX))?;
        entries.into_iter().map(|(key, value)| self.decode(&key, &value)).collect()
    }

    /// One change, durable as a whole when this returns; after an error nothing of it is there.
    fn write(&self, change: impl FnOnce(&Batch<'_>) -> rusqlite::Result<()>) -> Result<(), MetadataError> {
        let mut connection = self.connection()?;
        let apply = || {
            let batch = Batch(connection.transaction()?);
            change(&batch)?;
            batch.0.commit()
        };
        apply().map_err(|error| self.failed("write", &error))
    }

    fn get<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, MetadataError> {
        let value: Option<Vec<u8>> = self
            .connection()?
            .query_row("SELECT value FROM entries WHERE key = ?1", [key], |row| row.get(0))
            .optional()
            .map_err(|error| self.failed("read", &error))?;
        value.map(|value| self.decode(key, &value)).transpose()
    }

    /// Entries with keys from `from` up to before `end`, in order.
    fn range(&self, from: &[u8], end: &[u8], limit: Option<usize>) -> Result<Vec<Entry>, MetadataError> {
        let limit = limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        let connection = self.connection()?;
        let read = || {
            let sql = "SELECT key, value FROM entries WHERE key >= ?1 AND key < ?2 ORDER BY key LIMIT ?3";
            let mut statement = connection.prepare_cached(sql)?;
            let entries = statement.query_map((from, end, limit), |row| Ok((row.get(0)?, row.get(1)?)))?;
            entries.collect::<rusqlite::Result<Vec<Entry>>>()
        };
        read().map_err(|error| self.failed("read", &error))
    }

    /// The entry with the greatest key from `from` up to before `end`.
    fn last(&self, from: &[u8], end: &[u8]) -> Result<Option<Entry>, MetadataError> {
        let sql = "SELECT key, value FROM entries WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT 1";
        let found = self.connection()?.query_row(sql, (from, end), |row| Ok((row.get(0)?, row.get(1)?))).optional();
        found.map_err(|error| self.failed("read", &error))
    }

    fn decode<T: DeserializeOwned>(&self, key: &[u8], value: &[u8]) -> Result<T, MetadataError> {
        serde_json::from_slice(value).map_err(|error| self.damaged(key, &error.to_string()))
    }

    fn damaged(&self, key: &[u8], why: &str) -> MetadataError {
        let reason = format!("the entry `{}` is damaged: {why}", key.escape_ascii());
        MetadataError::Database { action: "read", folder: self.folder.clone(), reason }
    }

    fn failed(&self, action: &'static str, error: &rusqlite::Error) -> MetadataError {
        MetadataError::Database { action, folder: self.folder.clone(), reason: reason(error) }
    }
}

impl Metadata for Database {
    fn put(&self, change: &Change) -> Result<(), WriteFailure> {
        self.write_change(change).map_err(|error| WriteFailure(error.to_string()))
    }

    fn events(&self, name: &str, after: u64) -> Result<Vec<JobEvent>, WriteFailure> {
        self.events_after(name, after).map_err(|error| WriteFailure(error.to_string()))
    }
}

/// Key and value.
type Entry = (Vec<u8>, Vec<u8>);

/// A change that is being put together.
struct Batch<'a>(Transaction<'a>);

impl Batch<'_> {
    fn put<T: serde::Serialize>(&self, key: &[u8], value: &T) -> rusqlite::Result<()> {
        self.put_bytes(key, &encode(value))
    }

    fn put_bytes(&self, key: &[u8], value: &[u8]) -> rusqlite::Result<()> {
        let mut statement = self.0.prepare_cached("INSERT OR REPLACE INTO entries (key, value) VALUES (?1, ?2)")?;
        statement.execute((key, value)).map(drop)
    }

    fn delete(&self, key: &[u8]) -> rusqlite::Result<()> {
        self.0.prepare_cached("DELETE FROM entries WHERE key = ?1")?.execute([key]).map(drop)
    }

    /// Deletes keys from `from` up to before `end`.
    fn delete_range(&self, from: &[u8], end: &[u8]) -> rusqlite::Result<()> {
        self.0.execute("DELETE FROM entries WHERE key >= ?1 AND key < ?2", (from, end)).map(drop)
    }
}

/// Opens the file, or makes it. It is ours alone, as the folder's [`DataLock`] is, so the index of the write-ahead log stays in
/// memory; every commit is synced.
fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // A few kilobytes a job are kept: memory matters more than speed. In KiB where negative, in pages otherwise.
    connection.pragma_update(None, "cache_size", -1_024)?;
    connection.pragma_update(None, "wal_autocheckpoint", 256)?;
    Ok(connection)
}

/// Makes the table where there is none, and says whether it did.
fn prepare(connection: &mut Connection) -> rusqlite::Result<bool> {
    let batch = connection.transaction()?;
    let tables: i64 = batch.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        batch.execute("CREATE TABLE entries (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID, STRICT", [])?;
    }
    batch.commit()?;
    Ok(tables == 0)
}

const DAMAGED_HINT: &str = "; restore the folder from a copy, or start with an empty one and submit the jobs again";

/// What SQLite says, and what can be done about it.
fn reason(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "no space left on device".to_owned(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => format!("{error}{DAMAGED_HINT}"),
        _ => error.to_string(),
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({})", self.folder.display())
    }
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
