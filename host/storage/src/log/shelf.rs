//! Where entries lie: the requests of a [`Pen`](super::pen::Pen), carried out on an object store.

use object_store::path::Path;

use super::entry::{Entry, LOG_FORMAT};
use super::pen::{Answer, Ask, Next, Outcome, Pen};
use super::state::JobState;
use crate::folder::JobFolder;
use crate::layout::{self, EntryName};
use crate::{StorageError, document};

/// Requests of one operation. It makes less than ten, unless what it would read is gone each time, because newer ones came meanwhile.
const REQUESTS_MAX: usize = 200;

impl JobFolder {
    /// The state after the newest entry.
    ///
    /// # Errors
    /// `OldFolder`, `Damaged`, `UnknownFormat`, and what the storage says.
    pub(crate) fn newest_state(&self) -> Result<JobState, StorageError> {
        let mut pen = Pen::reader();
        let ask = pen.reload();
        self.carry_out(&mut pen, ask)?;
        if pen.number() == 0 {
            self.refuse_old_folder()?;
        }
        Ok(JobState::clone(pen.state()))
    }

    /// Carries out an operation of a pen to its end.
    ///
    /// # Errors
    /// What the storage says; the pen then knows that an answer is missing.
    pub(crate) fn carry_out(&self, pen: &mut Pen, first: Ask) -> Result<Outcome, StorageError> {
        let mut ask = first;
        for _ in 0..REQUESTS_MAX {
            let answer = self.answer(ask).inspect_err(|_| pen.lost_answer())?;
            match pen.answer(answer) {
                Next::Ask(next) => ask = next,
                Next::Done(outcome) => return Ok(outcome),
                Next::Confused => return Err(StorageError::Misuse("an answer that nobody asked for".to_owned())),
            }
        }
        pen.lost_answer();
        Err(self.races())
    }

    fn answer(&self, ask: Ask) -> Result<Answer, StorageError> {
        Ok(match ask {
            Ask::List { after } => Answer::Listed(self.entry_numbers(after)?),
            Ask::Get(number) => Answer::Got(self.entry(number)?.map(Box::new)),
            Ask::Put(entry) => {
                let written = self.backend.put_new(&self.entry_path(entry.number), document::encode(&*entry)?)?;
                if written { Answer::Written } else { Answer::Taken }
            }
        })
    }

    /// Numbers of the entries that are there, beyond `after`.
    pub(crate) fn entry_numbers(&self, after: u64) -> Result<Vec<u64>, StorageError> {
        let folder = self.path(layout::LOG);
        let names =
            if after == 0 { self.backend.list(&folder)? } else { self.backend.list_after(&folder, &self.entry_path(after))? };
        Ok(names.iter().filter_map(|name| EntryName::parse(name)).map(|name| name.0).collect())
    }

    fn entry(&self, number: u64) -> Result<Option<Entry>, StorageError> {
        let path = self.entry_path(number);
        let place = self.backend.place(&path);
        let bytes = match self.backend.get(&path) {
            Ok(bytes) => bytes,
            Err(StorageError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let damaged = |reason: String| StorageError::DamagedEntry { job: self.job.clone(), path: place.clone(), reason };
        let entry: Entry = document::decode(&place, &bytes, Some(LOG_FORMAT..=LOG_FORMAT)).map_err(|error| match error {
            StorageError::Damaged { reason, .. } => damaged(reason),
            error => error,
        })?;
        if entry.number != number {
            return Err(damaged(format!("it holds entry {}", entry.number)));
        }
        if !entry.can_be() {
            return Err(damaged("it has numbers that no job reaches".to_owned()));
        }
        Ok(Some(entry))
    }

    pub(crate) fn entry_path(&self, number: u64) -> Path {
        self.path(layout::LOG).join(EntryName(number).to_string())
    }

    /// A folder that was written before there were logs is not taken for an empty one.
    pub(crate) fn refuse_old_folder(&self) -> Result<(), StorageError> {
        let old = [self.path(layout::OLD_JOB_INFO)];
        if self.backend.sizes(old.to_vec())?.iter().all(Option::is_none) {
            return Ok(());
        }
        Err(StorageError::OldFolder { job: self.job.clone(), path: self.backend.place(&self.path("")) })
    }

    fn races(&self) -> StorageError {
        StorageError::Unavailable {
            action: "read the newest entry of",
            path: self.backend.place(&self.path(layout::LOG)),
            reason: "each time it was gone before it was read, because others write at the same moment".to_owned(),
        }
    }
}
