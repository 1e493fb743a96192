//! The world outside of Weir: where sinks write, with two-phase commit. Whatever happens to processes, it stays.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::Value;
use weir_connectors::{Commit, Committer, ConnectorError, Prepared, Recovery, Sink};
use weir_model::{Attempt, BatchRef, CheckpointId, Timestamp};

use crate::clock::SimClock;
use crate::disk::Disk;
use crate::scenario::{DIGEST, Input, RowId, VALUE_HEAD};

/// A row that a sink has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) id: RowId,
    /// What a counting operator said: how many of the kind it had seen.
    pub(crate) number: u32,
    /// What an operator said at its end.
    pub(crate) digest: u64,
    /// Every byte of its body and its headers is as the source gave it.
    pub(crate) whole: bool,
}

#[derive(Debug)]
struct Piece {
    uid: String,
    index: u32,
    attempt: Attempt,
    checkpoint: CheckpointId,
    records: Vec<Record>,
}

#[derive(Debug, Default)]
struct Shelves {
    staged: BTreeMap<String, Piece>,
    visible: BTreeMap<String, Piece>,
    /// The newest attempt of each sink that has cleared away what was left behind.
    recovered: BTreeMap<String, Attempt>,
    /// Checkpoints whose manifests are durable.
    durable: BTreeSet<(Attempt, CheckpointId)>,
    taken_back: u64,
    commits_again: u64,
    broken: Vec<String>,
    /// When each operator was told which watermark first.
    watermarks: Vec<(String, u64, Timestamp)>,
}

/// What all sinks write to.
#[derive(Debug, Default)]
pub(crate) struct Outside {
    shelves: Mutex<Shelves>,
}

impl Outside {
    /// What is visible, by sink.
    pub(crate) fn output(&self) -> BTreeMap<String, Vec<Record>> {
        let mut output: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for staged in self.shelves.lock().visible.values() {
            output.entry(staged.uid.clone()).or_default().extend(staged.records.iter().cloned());
        }
        output
    }

    /// A manifest is durable.
    pub(crate) fn durable(&self, attempt: Attempt, checkpoint: CheckpointId) {
        self.shelves.lock().durable.insert((attempt, checkpoint));
    }

    /// Whether a manifest is.
    pub(crate) fn is_durable(&self, attempt: Attempt, checkpoint: CheckpointId) -> bool {
        self.shelves.lock().durable.contains(&(attempt, checkpoint))
    }

    /// How often something visible was taken back.
    pub(crate) fn taken_back(&self) -> u64 {
        self.shelves.lock().taken_back
    }

    /// What must never happen and did.
    pub(crate) fn broken(&self) -> Vec<String> {
        self.shelves.lock().broken.clone()
    }

    /// Something that must never happen.
    pub(crate) fn complain(&self, what: String) {
        self.shelves.lock().broken.push(what);
    }

    /// An operator was told a watermark.
    pub(crate) fn saw_watermark(&self, uid: &str, now_us: u64, watermark: Timestamp) {
        self.shelves.lock().watermarks.push((uid.to_owned(), now_us, watermark));
    }

    /// The greatest watermark that any instance of an operator was told up to a time.
    pub(crate) fn watermark(&self, uid: &str, until_us: u64) -> Option<Timestamp> {
        let shelves = self.shelves.lock();
        let told = shelves.watermarks.iter().filter(|(of, at_us, _)| of == uid && *at_us <= until_us);
        told.map(|(_, _, watermark)| *watermark).max()
    }

    /// Rows that are visible so far.
    pub(crate) fn rows(&self) -> usize {
        self.shelves.lock().visible.values().map(|staged| staged.records.len()).sum()
    }

    /// How often something was committed that was already.
    pub(crate) fn commits_again(&self) -> u64 {
        self.shelves.lock().commits_again
    }

    fn stage(&self, id: &str, staged: Piece) {
        if self.shelves.lock().staged.insert(id.to_owned(), staged).is_some() {
            self.complain(format!("{id} was prepared twice"));
        }
    }

    /// What a subtask had prepared and not committed is lost.
    fn forget(&self, uid: &str, index: u32, attempt: Attempt) {
        let prefix = format!("{uid}/{attempt}/{index}/");
        self.shelves.lock().staged.retain(|id, _| !id.starts_with(&prefix));
    }

    /// Something becomes visible. `by`: the attempt that wants it.
    fn commit(&self, id: &str, by: Attempt) {
        let mut shelves = self.shelves.lock();
        if shelves.visible.contains_key(id) {
            shelves.commits_again += 1;
            return;
        }
        let Some(staged) = shelves.staged.remove(id) else {
            let is_straggler = |(sink, attempt): (&String, &Attempt)| id.starts_with(&format!("{sink}/")) && *attempt > by;
            // A task of an older attempt, after a newer one has gone back further.
            if !shelves.recovered.iter().any(is_straggler) {
                shelves.broken.push(format!("{id} is to be committed and is not there: its rows are lost"));
            }
            return;
        };
        // Its rows may have been prepared for an earlier one that was given up, but some checkpoint must hold them by now.
        let (attempt, checkpoint) = (staged.attempt, staged.checkpoint);
        if !shelves.durable.iter().any(|(of, id)| *of >= attempt && *id >= checkpoint) {
            shelves.broken.push(format!("{id} is committed before any manifest that holds it is durable"));
        }
        shelves.visible.insert(id.to_owned(), staged);
    }

    /// Removes exactly what the sinks of production do: what is this subtask's, or of one that is no more, up to its own attempt.
    fn recover(&self, sink: &SimSink, keep: &[Value]) {
        let keep: BTreeSet<&str> = keep.iter().filter_map(Value::as_str).collect();
        let is_mine = |index: u32| index == sink.index || sink.index == 0 && index >= sink.parallelism;
        let is_leftover = |id: &str, staged: &Piece| {
            staged.uid == sink.uid && staged.attempt <= sink.attempt && is_mine(staged.index) && !keep.contains(id)
        };
        let mut shelves = self.shelves.lock();
        let recovered = shelves.recovered.entry(sink.uid.clone()).or_insert(sink.attempt);
        *recovered = sink.attempt.max(*recovered);
        shelves.staged.retain(|id, staged| !is_leftover(id, staged));
    }

    /// What became visible for later checkpoints is taken back, but not what a newer attempt has shown.
    fn retract(&self, uid: &str, by: Attempt, after: CheckpointId) -> u64 {
        let mut shelves = self.shelves.lock();
        let before = shelves.visible.len();
        shelves.visible.retain(|_, staged| staged.uid != uid || staged.checkpoint <= after || staged.attempt > by);
        let count = (before - shelves.visible.len()) as u64;
        shelves.taken_back += count;
        count
    }
}

/// One subtask of a sink.
pub(crate) struct SimSink {
    pub(crate) outside: Arc<Outside>,
    pub(crate) input: Arc<Input>,
    pub(crate) disk: Disk,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) uid: String,
    pub(crate) index: u32,
    pub(crate) parallelism: u32,
    pub(crate) attempt: Attempt,
    pub(crate) row_us: u64,
    pub(crate) rows: Vec<Record>,
    /// It loses what it had prepared, where the simulation is to be proven.
    pub(crate) forgets: bool,
    /// A preparation failed or was never made.
    pub(crate) unusable: Arc<AtomicBool>,
}

impl SimSink {
    fn check(&self) -> Result<(), ConnectorError> {
        if self.unusable.load(Ordering::Relaxed) {
            let reason = "a preparation failed".to_owned();
            return Err(ConnectorError::Unusable { path: PathBuf::from(&self.uid), reason });
        }
        Ok(())
    }
}

/// Notes if a preparation is dropped instead of made.
struct Must(Option<Arc<AtomicBool>>);

impl Must {
    fn made(mut self) {
        self.0 = None;
    }
}

impl Drop for Must {
    fn drop(&mut self) {
        if let Some(unusable) = &self.0 {
            unusable.store(true, Ordering::Relaxed);
        }
    }
}

impl Sink for SimSink {
    fn write(&mut self, rows: BatchRef<'_>) -> Result<(), ConnectorError> {
        self.check()?;
        self.clock.spend(self.row_us * rows.len() as u64);
        for row in rows.rows() {
            let value = row.value_bytes();
            let mut id = [0; 7];
            id.copy_from_slice(&value[..7]);
            let number = u32::from_le_bytes([value[7], value[8], value[9], value[10]]);
            let is_digest = id[0] == DIGEST;
            let mut digest = [0; 8];
            if is_digest {
                digest.copy_from_slice(&value[VALUE_HEAD..VALUE_HEAD + 8]);
            }
            let whole = is_digest || (self.input.is_whole(&id, value) && row.headers == self.input.headers(&id));
            self.rows.push(Record { key: row.key.map(<[u8]>::to_vec), id, number, digest: u64::from_le_bytes(digest), whole });
        }
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, ConnectorError> {
        self.check()?;
        if self.forgets {
            self.outside.forget(&self.uid, self.index, self.attempt);
        }
        let records = std::mem::take(&mut self.rows);
        let id = format!("{}/{}/{}/{checkpoint}", self.uid, self.attempt, self.index);
        let (outside, uid, disk) = (self.outside.clone(), self.uid.clone(), self.disk.clone());
        let (index, attempt) = (self.index, self.attempt);
        let must = Must(Some(self.unusable.clone()));
        Ok(Box::new(move || {
            if records.is_empty() {
                must.made();
                return Ok(None);
            }
            if disk.fails() {
                let source = std::io::Error::from_raw_os_error(5);
                return Err(ConnectorError::Io { action: "write", path: PathBuf::from(&id), source, hint: None });
            }
            outside.stage(&id, Piece { uid, index, attempt, checkpoint, records });
            must.made();
            Ok(Some(Value::String(id)))
        }))
    }
}

impl Committer for SimSink {
    fn commit(&mut self, committable: &Value) -> Result<Commit, ConnectorError> {
        match committable.as_str() {
            Some(id) => self.outside.commit(id, self.attempt),
            None => self.outside.complain(format!("{committable} is no committable")),
        }
        Ok(Commit::Done)
    }

    fn recover(&mut self, recovery: &Recovery) -> Result<(), ConnectorError> {
        self.outside.recover(self, &recovery.keep);
        Ok(())
    }

    fn retract(&mut self, after: CheckpointId) -> Result<u64, ConnectorError> {
        Ok(self.outside.retract(&self.uid, self.attempt, after))
    }
}
