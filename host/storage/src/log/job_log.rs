//! What is decided about a job, by the one coordinator that leads it.

use std::sync::Arc;

use weir_model::{Attempt, CheckpointId};

use super::decision::{Decision, Owner, StoredCheckpoint, Writer};
use super::pen::{Outcome, Pen};
use super::references::References;
use super::state::{JobState, Refusal};
use super::trash::{Deleted, Trash, Yard, remove_staging};
use crate::manifest::{MANIFEST_FORMAT, Manifest};
use crate::{Durable, ErrorKind, JobStorage, StorageError, document, layout};

/// Times that another writer may be faster before we give up.
const RACES_MAX: usize = 100;

/// The log of a job, open for writing. What is decided is in it before this crate says so, and so before anybody acts on it.
///
/// Whoever opens it leads from its first decision on, and whoever led before learns it with the next of his own. Every call blocks until the
/// storage has answered. On an error of kind `Retry` it is not known whether the decision was made: the same call can be made again.
pub struct JobLog {
    storage: JobStorage,
    pub(super) pen: Pen,
    references: References,
    trash: Trash,
    /// Manifests that were forgotten by an entry of which nobody has heard yet that it is there: whoever takes checkpoints may build on what
    /// they name until it hears of a later one.
    unheard: Vec<String>,
    /// What was written as a manifest last, and may be there or not.
    manifest_put: Option<(String, String)>,
}

/// A checkpoint that could not be gone on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its number. It is void from now on.
    pub checkpoint: CheckpointId,
    /// What is wrong with it.
    pub reason: String,
}

/// An attempt that has begun.
#[derive(Debug)]
pub struct Begun {
    /// Its number.
    pub attempt: Attempt,
    /// What it goes on from; none: from the beginning.
    pub from: Option<Durable>,
    /// Newer checkpoints that were found damaged just now, newest first.
    pub skipped: Vec<Skipped>,
    /// The number of its first checkpoint.
    pub first_checkpoint: CheckpointId,
    /// Output that follows this checkpoint (0: the beginning) is to be taken back before anything runs.
    pub retract_after: Option<CheckpointId>,
}

/// What a coordinator finds that goes on with an attempt of another.
#[derive(Debug)]
pub struct Led {
    /// The newest attempt. Unless it is the one that was to be gone on with, that one is over, and nothing was decided.
    pub newest_attempt: Attempt,
    /// The newest checkpoint, of whichever attempt.
    pub newest: Option<Durable>,
    /// Greater than the number of any completed checkpoint.
    pub next_checkpoint: CheckpointId,
}

impl JobLog {
    /// The log of the job that is stored there. Nothing is read before the first call, and nothing written before the first decision.
    ///
    /// What reads it says `OldFolder`, `Damaged`, `UnknownFormat`, and what the storage says.
    pub fn new(storage: JobStorage, by: Writer) -> JobLog {
        let pen = Pen::new(by);
        JobLog {
            storage,
            pen,
            references: References::default(),
            trash: Trash::default(),
            unheard: Vec::new(),
            manifest_put: None,
        }
    }

    /// Where the job is stored.
    pub fn storage(&self) -> &JobStorage {
        &self.storage
    }

    /// What is decided, as far as this writer knows. While it leads, that is all.
    pub fn state(&self) -> &JobState {
        self.pen.state()
    }

    /// Whose state it is, after a job that has none was given to `owner`.
    ///
    /// # Errors
    /// `Deposed` if a later coordinator of the same metadata leads; what the storage says.
    pub fn claim(&mut self, owner: &Owner) -> Result<Owner, StorageError> {
        self.lead_with(|state| Ok(if state.owner.is_none() { Some(Decision::Claimed(owner.clone())) } else { None }))?;
        Ok(self.state().owner.clone().unwrap_or_else(|| owner.clone()))
    }

    /// Makes all checkpoints void and gives the job to `owner`; then deletes what can be deleted now.
    ///
    /// # Errors
    /// As [`JobLog::claim`].
    pub fn start_over(&mut self, owner: &Owner) -> Result<(), StorageError> {
        self.lead_with(|_| Ok(Some(Decision::StartedOver(owner.clone()))))?;
        self.delete_trash();
        Ok(())
    }

    /// Begins an attempt, from the newest checkpoint that is whole and not in `damaged`. Checkpoints that are newer are void from here
    /// on. Then sweeps what older attempts have left behind.
    ///
    /// # Errors
    /// `NoneWhole` if there are checkpoints and all are damaged: nothing is decided then. `Deposed`; what the storage says.
    pub fn begin(&mut self, damaged: &[CheckpointId]) -> Result<Begun, StorageError> {
        let mut chosen = (None, Vec::new());
        let storage = self.storage.clone();
        self.lead_with(|state| {
            chosen = choose(&storage, state, damaged)?;
            let (from, skipped) = &chosen;
            let found = skipped.iter().map(|skipped: &Skipped| skipped.checkpoint);
            let void = damaged.iter().copied().filter(|id| state.checkpoint(*id).is_some()).chain(found).collect();
            let from = from.as_ref().map(|from: &Durable| from.id());
            Ok(Some(Decision::Begun { attempt: Attempt(state.attempt.0 + 1), from, void }))
        })?;
        let (from, skipped) = chosen;
        let attempt = self.state().attempt;
        let used = self.sweep(attempt)?;
        let first_checkpoint = CheckpointId(used.max(self.state().checkpoint_max).0 + 1);
        let after = from.as_ref().map_or(CheckpointId(0), |from| from.id());
        let retract_after = self.state().takes_back.then_some(after);
        Ok(Begun { attempt, from, skipped, first_checkpoint, retract_after })
    }

    /// Goes on with an attempt that another coordinator has begun, if it is the newest.
    ///
    /// # Errors
    /// If the newest checkpoint can't be read: it is complete all the same. `Deposed`; what the storage says.
    pub fn lead(&mut self, attempt: Attempt) -> Result<Led, StorageError> {
        self.lead_with(|state| Ok((state.attempt == attempt).then_some(Decision::Led { attempt })))?;
        let newest = self.newest()?;
        let state = self.state();
        Ok(Led { newest_attempt: state.attempt, newest, next_checkpoint: CheckpointId(state.checkpoint_max.0 + 1) })
    }

    /// The newest checkpoint that is whole, as far as can be seen without reading all of it. Decides nothing.
    ///
    /// # Errors
    /// `NoneWhole`; what the storage says.
    pub fn newest_whole(&mut self) -> Result<Option<Durable>, StorageError> {
        self.catch_up()?;
        choose(&self.storage, self.pen.state(), &[]).map(|(newest, _)| newest)
    }

    fn newest(&mut self) -> Result<Option<Durable>, StorageError> {
        let Some(newest) = self.state().newest().cloned() else { return Ok(None) };
        self.storage.stored_manifest(&newest).map(|manifest| Some(Durable::new(Arc::new(manifest))))
    }

    /// Completes a checkpoint, and forgets all but the newest `keep` (at least one; this one included, savepoints not counted). Two requests.
    ///
    /// # Errors
    /// `Deposed` if another writer leads: it has settled whether this checkpoint counts, so nobody may commit it. `Dangling` if a file it names is
    /// gone. `Exists` if the number is taken.
    pub fn complete(&mut self, manifest: &Arc<Manifest>, keep: usize) -> Result<Durable, StorageError> {
        let job = self.storage.job();
        if manifest.format != MANIFEST_FORMAT || manifest.job != job {
            let (format, of) = (manifest.format, &manifest.job);
            return Err(StorageError::Misuse(format!("a manifest of format {format} and job `{of}` in job `{job}`")));
        }
        self.catch_up()?;
        let id = manifest.id();
        let name = layout::manifest_name(id, manifest.attempt, self.pen.by().nonce);
        let bytes = document::encode(&**manifest)?;
        let put = (name.clone(), document::checksum(&bytes));
        let exists = |log: &JobLog| StorageError::Exists { checkpoint: id, path: log.storage.place_of_manifest(&name) };
        if self.manifest_put.as_ref().is_some_and(|(other, checksum)| *other == name && *checksum != put.1) {
            return Err(exists(self));
        }
        if self.state().checkpoint(id).is_some_and(|there| there.manifest == name) {
            // Its answer was lost the last time.
            self.trash.add_manifests(self.unheard.drain(..));
            return Ok(Durable::new(Arc::clone(manifest)));
        }
        let checkpoint = StoredCheckpoint { id, attempt: manifest.attempt, kind: manifest.kind, manifest: name.clone() };
        let keeps_itself = keep.max(1) - usize::from(!checkpoint.is_pinned());
        let forgets = self.state().beyond(keeps_itself);
        let decision = Decision::Completed { checkpoint, forgets };
        if let Some(refusal) = self.state().refusal(&self.pen.by(), &decision) {
            return Err(if refusal == Refusal::Exists { exists(self) } else { self.refused(refusal, &decision) });
        }
        self.refuse_dangling(manifest)?;
        self.manifest_put = Some(put);
        self.storage.folder.backend.put(&self.storage.folder.path(layout::MANIFESTS).join(&*name), bytes)?;
        let references = Arc::new(manifest.references());
        match self.append(decision)? {
            Ok(()) => {
                self.references.learn(name, references);
                Ok(Durable::new(Arc::clone(manifest)))
            }
            Err(decision) => Err(self.refused(Refusal::Fenced, &decision)),
        }
    }

    /// Deletes what was forgotten: manifests, files that only they need, old entries. Files of checkpoints that are still being taken are
    /// never touched. Costs in proportion to what is deleted. What can't be deleted now is remembered, and told of once in the log of the
    /// process.
    pub fn delete_trash(&mut self) -> Deleted {
        // A checkpoint may be complete without anybody having heard of it: what it needs must not go.
        if let Err(error) = self.catch_up() {
            let backlog = self.trash.backlog();
            tracing::warn!(%error, backlog, "nothing is deleted before the log was read; trying again later");
            return Deleted { backlog, ..Deleted::default() };
        }
        let Self { storage, pen, references, unheard, .. } = self;
        self.trash.delete(&mut Yard { storage, pen, references, unheard })
    }

    /// Deletes files of a checkpoint that was given up. What a completed one needs stays.
    pub fn discard(&mut self, names: Vec<String>) -> Deleted {
        self.trash.add_files(names);
        self.delete_trash()
    }

    /// Deletes what crashes and attempts before `current` have left behind. `current` must be this writer's own. Lists everything. Gives the
    /// greatest number of a checkpoint that any file has.
    fn sweep(&mut self, current: Attempt) -> Result<CheckpointId, StorageError> {
        let Self { storage, pen, references, unheard, .. } = self;
        let used = self.trash.sweep(&Yard { storage, pen, references, unheard }, current)?;
        self.delete_trash();
        remove_staging(&self.storage, self.pen.number(), current);
        Ok(used)
    }

    /// Decides something that makes this writer the leader: what `decide` says of the newest state, if anything. Others may be faster
    /// several times.
    fn lead_with(
        &mut self,
        mut decide: impl FnMut(&JobState) -> Result<Option<Decision>, StorageError>,
    ) -> Result<(), StorageError> {
        self.settle()?;
        self.storage.folder.make_folders()?;
        for _ in 0..RACES_MAX {
            self.reload()?;
            let state = Arc::clone(self.pen.state());
            let Some(decision) = decide(&state)? else { return Ok(()) };
            if self.append(decision)?.is_ok() {
                return Ok(());
            }
        }
        Err(StorageError::Unavailable {
            action: "lead",
            path: self.storage.place_of_log(),
            reason: format!("{RACES_MAX} times another coordinator was faster"),
        })
    }

    /// Puts an entry. Gives the decision back if another writer was faster.
    fn append(&mut self, decision: Decision) -> Result<Result<(), Decision>, StorageError> {
        let before = Arc::clone(self.pen.state());
        let ask = match self.pen.append(decision.clone()) {
            Ok(ask) => ask,
            Err(refusal) => return Err(self.refused(refusal, &decision)),
        };
        let outcome = self.storage.folder.carry_out(&mut self.pen, ask)?;
        if outcome != Outcome::Won {
            return Ok(Err(decision));
        }
        // What nobody can go back to any more is to be deleted, whoever has decided it.
        self.forgot(&before);
        self.trash.add_manifests(self.unheard.drain(..));
        Ok(Ok(()))
    }

    /// Finds out what became of an entry whose answer was lost.
    fn settle(&mut self) -> Result<(), StorageError> {
        let before = Arc::clone(self.pen.state());
        if let Some(ask) = self.pen.settle() {
            let outcome = self.storage.folder.carry_out(&mut self.pen, ask)?;
            if outcome == Outcome::Won {
                self.forgot(&before);
            }
        }
        Ok(())
    }

    /// What an entry of this writer has forgotten.
    fn forgot(&mut self, before: &JobState) {
        let lost = before.lost_in(self.pen.state());
        self.unheard.extend(lost.into_iter().map(|checkpoint| checkpoint.manifest));
    }

    fn reload(&mut self) -> Result<(), StorageError> {
        let ask = self.pen.reload();
        self.storage.folder.carry_out(&mut self.pen, ask)?;
        if self.pen.number() == 0 { self.storage.folder.refuse_old_folder() } else { Ok(()) }
    }

    /// Makes sure that this writer knows what became of its own entries, and has read the log.
    fn catch_up(&mut self) -> Result<(), StorageError> {
        self.settle()?;
        if self.pen.is_behind() { self.reload() } else { Ok(()) }
    }

    fn refused(&self, refusal: Refusal, decision: &Decision) -> StorageError {
        let attempted = decision.attempted();
        match refusal {
            Refusal::Fenced | Refusal::Exists => {
                let state = self.state();
                let leader = state.leader.map_or_else(|| "nobody".to_owned(), |leader| leader.epoch.to_string());
                StorageError::Deposed { job: self.storage.job().to_owned(), attempted, newest: state.attempt, leader }
            }
            Refusal::Misuse(why) => StorageError::Misuse(format!("cannot {attempted}: {why}")),
        }
    }

    /// Refuses a manifest that names a file that is gone. Files that it wrote itself, and files that a completed checkpoint
    /// holds, are there; any other is looked at.
    fn refuse_dangling(&mut self, manifest: &Manifest) -> Result<(), StorageError> {
        let mut unknown = manifest.references();
        for file in &manifest.files {
            unknown.remove(&file.name);
        }
        for checkpoint in self.state().checkpoints.clone().iter().rev() {
            if unknown.is_empty() {
                return Ok(());
            }
            // One that cannot be read vouches for nothing.
            if let Ok(references) = self.references.of(&self.storage, checkpoint) {
                unknown.retain(|name| !references.contains(name));
            }
        }
        let folder = &self.storage.folder;
        let sizes = folder.backend.sizes(unknown.iter().map(|name| folder.file_path(name)).collect())?;
        match unknown.into_iter().zip(sizes).find(|(_, size)| size.is_none()) {
            Some((file, _)) => Err(StorageError::Dangling { checkpoint: manifest.id(), file }),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for JobLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JobLog({:?}, entry {})", self.storage, self.pen.number())
    }
}

/// The newest checkpoint that is whole, and the newer ones that are not.
fn choose(
    storage: &JobStorage,
    state: &JobState,
    damaged: &[CheckpointId],
) -> Result<(Option<Durable>, Vec<Skipped>), StorageError> {
    let mut skipped = Vec::new();
    let candidates: Vec<&StoredCheckpoint> =
        state.checkpoints.iter().rev().filter(|checkpoint| !checkpoint.is_pinned()).collect();
    for checkpoint in candidates.iter().filter(|checkpoint| !damaged.contains(&checkpoint.id)) {
        let whole = || {
            let manifest = storage.stored_manifest(checkpoint)?;
            storage.check(&manifest).map(|()| manifest)
        };
        // What is skipped is void for good, so damage that heals at once is none.
        let read = whole().or_else(|error| if error.kind() == ErrorKind::Damaged { whole() } else { Err(error) });
        match read {
            Ok(manifest) => return Ok((Some(Durable::new(Arc::new(manifest))), skipped)),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                skipped.push(Skipped { checkpoint: checkpoint.id, reason: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    if candidates.is_empty() {
        return Ok((None, skipped));
    }
    Err(StorageError::NoneWhole { job: storage.job().to_owned(), checkpoints: candidates.len() })
}
