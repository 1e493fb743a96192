//! Follows files as they grow, through rotation: by rename (the file is read to its end under its new name, the new one from
//! its beginning) and by copy-and-truncate (the file is begun anew; a copy within the path is known as such and gives only
//! what was not read before the cut).
//!
//! A split is a file, called by its device and inode. All files of one folder belong to one subtask, so that whoever sees a
//! file cut also sees its copy. What a writer adds and cuts away between two looks cannot be seen by anyone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_model::{Batch, OddExample, OddKind, Oddities, WATERMARK_START};

use super::super::formats::foreign;
use super::super::lines::Room;
use super::discover::{files_of_folder, is_folder, open_file};
use super::input::{HEAD_BYTES, Head, Kind, head_content};
use super::tailed::{Inode, State, Step, TailedFile, is_copy};
use super::{FileSettings, names, not_followed, owner};
use crate::{ConnectorError, Polled, Source, SplitTimes};

/// How often the path is looked at for new, renamed and removed files, where that is quick.
const SCAN_INTERVAL: Duration = Duration::from_millis(200);

/// How often it is looked at however long that takes.
const SCAN_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// Part of the time that is spent on looking at the path at most, but for `SCAN_INTERVAL_MAX`: one in so many.
const SCAN_SHARE: u32 = 20;

/// How long a file that begins like a known one and is shorter than its beginning may be a copy in the making.
const COPYING: Duration = Duration::from_secs(2);

/// Every so many batches the file that has waited longest comes first, so that none starves whose rows have no time.
const FAIR_TURNS: u64 = 4;

/// When to ask again, caught up with all files.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// One subtask of a `file` source that follows.
pub(super) struct Follow {
    settings: FileSettings,
    index: u32,
    parallelism: u32,
    files: Vec<TailedFile>,
    /// Batches that were filled.
    turn: u64,
    scanned: Option<Instant>,
    /// When to look at the path again.
    scan_interval: Duration,
    /// What was passed over, and said.
    passed_over: BTreeSet<PathBuf>,
    times: SplitTimes,
    oddities: Oddities,
    /// No checkpoint and no scan yet: `start` applies to what is found.
    is_first_scan: bool,
    /// The path was looked at by this subtask.
    has_looked: bool,
}

impl Follow {
    pub(super) fn new(settings: FileSettings, index: u32, parallelism: u32) -> Follow {
        Follow {
            settings,
            index,
            parallelism,
            files: Vec::new(),
            turn: 0,
            scanned: None,
            scan_interval: SCAN_INTERVAL,
            passed_over: BTreeSet::new(),
            times: SplitTimes::default(),
            oddities: Oddities::new(),
            is_first_scan: true,
            has_looked: false,
        }
    }

    fn is_mine(&self, path: &Path) -> bool {
        owner(&names::to_text(folder_of(path)), self.parallelism) == self.index
    }

    /// Looks at what the path means now. Files that are known keep their places.
    fn scan(&mut self) -> Result<(), ConnectorError> {
        let now = Instant::now();
        self.scanned = Some(now);
        let mut found: BTreeMap<Inode, (Metadata, Vec<PathBuf>)> = BTreeMap::new();
        let listed = self.settings.pattern.files(&self.settings.reach)?;
        for (path, reason) in listed.skipped {
            self.pass_over(&path, &reason);
        }
        // One subtask says it for all. A path that is meant for files to come looks like one that is mistyped.
        if self.index == 0 && self.files.is_empty() && listed.files.is_empty() && !std::mem::replace(&mut self.has_looked, true) {
            tracing::warn!("no file is {} yet; waiting for one", self.settings.pattern.text());
        }
        self.has_looked = true;
        for (path, metadata) in listed.files {
            if self.is_mine(&path) {
                found.entry(Inode::of(&metadata)).or_insert((metadata, Vec::new())).1.push(path);
            }
        }
        for file in &mut self.files {
            match found.remove(&file.inode) {
                None => {
                    file.gone_since.get_or_insert(now);
                }
                Some((metadata, paths)) => {
                    file.gone_since = None;
                    if !paths.contains(&file.path) {
                        tracing::info!(file = %file.path.display(), renamed_to = %paths[0].display(), "followed file was renamed");
                        file.path.clone_from(&paths[0]);
                        file.renamed_at = Some(now);
                    }
                    if !file.is_still_there(&self.settings.reach, &metadata)? {
                        (file.gone_since, file.state) = (Some(now), State::Done);
                        found.insert(std::mem::replace(&mut file.inode, Inode::NONE), (metadata, paths));
                    }
                }
            }
        }
        let mut new: Vec<(Inode, PathBuf)> =
            found.into_iter().map(|(inode, (_, mut paths))| (inode, paths.swap_remove(0))).collect();
        new.sort_by(|a, b| a.1.cmp(&b.1));
        for (inode, path) in new {
            self.adopt(inode, path)?;
        }
        self.is_first_scan = false;
        self.scan_interval = scan_interval(now.elapsed());
        Ok(())
    }

    /// Says once that something of what the path means is not read.
    fn pass_over(&mut self, path: &Path, reason: &str) {
        if self.is_mine(path) && self.passed_over.insert(path.to_owned()) {
            let path = names::shown(path);
            tracing::warn!(path, reason, "passed over");
            self.oddities.add(OddKind::SkippedInput, || OddExample::new(path.as_bytes(), reason));
        }
    }

    /// Takes up a file that was not there before.
    fn adopt(&mut self, inode: Inode, path: PathBuf) -> Result<(), ConnectorError> {
        let file = match open_file(&self.settings.reach, &path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(()),
            // Who starts the job is told. Later it may be a file that is being made, or none of ours: it is tried again.
            Err(error) if !self.is_first_scan => {
                self.pass_over(&path, &error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.passed_over.remove(&path);
        let (kind, content) = head_content(&file, &path)?;
        if let Some((format, hint)) = foreign(&content) {
            let input = names::shown(&path);
            if self.is_first_scan {
                return Err(ConnectorError::Format { input, format, hint });
            }
            self.pass_over(&path, &format!("it is {format}; {hint}"));
            let mut tailed = TailedFile::new(inode, path, State::Done, 0);
            tailed.head = Head::of(&content);
            self.files.push(tailed);
            return Ok(());
        }
        if content.is_empty() && !self.is_first_scan {
            // Perhaps a copy that has no content yet: decided when it has.
            return Ok(());
        }
        if !self.is_first_scan && self.is_perhaps_copy(&file, &path, &content)? {
            return Ok(());
        }
        let mut tailed = TailedFile::new(inode, path, State::Reading, 0);
        let is_copied =
            |known: &&TailedFile| known.is_copied_in(&tailed.path, &content) && !goes_on_otherwise(known, &file, kind);
        if let Some(original) = self.files.iter().find(is_copied) {
            tailed.state = if original.state == State::Done { State::Done } else { State::CopyOf(original.inode) };
            tailed.offset = original.offset();
            tracing::info!(file = %tailed.path.display(), of = %original.path.display(), "found a copy of a followed file");
        } else if let Some(offset) = self.files.iter().find_map(|file| {
            let (head, offset) = file.previous.as_ref()?;
            is_copy(head, &file.path, &tailed.path, &content).then_some(*offset)
        }) {
            tailed.offset = offset;
            tailed.renamed_at = self.scanned;
        } else if self.is_first_scan && self.settings.from_end {
            let metadata = file.metadata().map_err(|error| ConnectorError::io("look at", &tailed.path, error))?;
            match kind {
                // An empty file has no kind yet, and its end is its beginning.
                Some(Kind::Plain) | None => tailed.offset = metadata.len(),
                Some(Kind::Gzip | Kind::Zstd) => tailed.state = State::Done,
            }
        }
        tailed.head = Head::of(&content);
        if tailed.state == State::Reading {
            // Held from now on, wherever it is moved.
            tailed.open(file)?;
        }
        self.files.push(tailed);
        Ok(())
    }

    /// Whether a file may be a copy of a known one that is being made: it is too short to tell, begins like it, and was written to
    /// a moment ago. It is decided later.
    fn is_perhaps_copy(&self, file: &File, path: &Path, content: &[u8]) -> Result<bool, ConnectorError> {
        let modified = file.metadata().and_then(|metadata| metadata.modified());
        let modified = modified.map_err(|error| ConnectorError::io("look at", path, error))?;
        // A time in the future says nothing.
        let is_fresh = modified.elapsed().is_ok_and(|age| age < COPYING);
        if !is_fresh || content.len() >= HEAD_BYTES {
            return Ok(false);
        }
        for known in self.files.iter().filter(|known| known.head.bytes > content.len()) {
            let begins_so = match &known.input {
                Some(input) => head_content(&input.file, &input.path)?.1.starts_with(content),
                None => match open_file(&self.settings.reach, &known.path)? {
                    Some(file) => head_content(&file, &known.path)?.1.starts_with(content),
                    None => false,
                },
            };
            if begins_so {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// File `at` was cut or written anew.
    fn cut(&mut self, at: usize, rows: &mut Batch) -> Result<(), ConnectorError> {
        // Whoever cuts copies before.
        self.scan()?;
        let inode = self.files[at].inode;
        let offset = self.files[at].offset();
        tracing::info!(file = %self.files[at].path.display(), offset, "followed file was cut and is read from its beginning");
        let rules = self.settings.rules;
        let event_time_max = self.files[at].event_time_max;
        let copy = self.best_copy(inode, offset);
        for (other, file) in self.files.iter_mut().enumerate().filter(|(_, file)| file.state == State::CopyOf(inode)) {
            file.state = if Some(other) == copy { State::Reading } else { State::Done };
            (file.offset, file.renamed_at, file.event_time_max) = (offset, self.scanned, event_time_max);
        }
        self.files[at].begin_anew(if copy.is_some() { None } else { Some(rows) }, rules)
    }

    /// Of the copies of a file, the one that has what was not read of it: the longest, since an older backup ends before. How much
    /// is in a compressed one is not known; it is taken where no other is long enough.
    fn best_copy(&self, inode: Inode, offset: u64) -> Option<usize> {
        let copies = self.files.iter().enumerate().filter(|(_, file)| file.state == State::CopyOf(inode));
        let length = |(at, file): (usize, &TailedFile)| {
            let file = open_file(&self.settings.reach, &file.path).ok()??;
            let (kind, _) = head_content(&file, &self.files[at].path).ok()?;
            let bytes = file.metadata().ok()?.len();
            match kind {
                Some(Kind::Plain) | None if bytes >= offset => Some((1, bytes, at)),
                Some(Kind::Plain) | None => None,
                Some(Kind::Gzip | Kind::Zstd) => Some((0, bytes, at)),
            }
        };
        copies.filter_map(length).max().map(|(.., at)| at)
    }

    /// Reads file `at`.
    fn read(&mut self, at: usize, rows: &mut Batch, room: Room) -> Result<Step, ConnectorError> {
        loop {
            match self.files[at].read(&self.settings.reach, rows, room, self.settings.rules)? {
                Step::Cut => self.cut(at, rows)?,
                step => return Ok(step),
            }
        }
    }

    /// Forgets file `at`, which is read to its end and gone.
    fn forget(&mut self, at: usize) {
        let gone = self.files.remove(at);
        if let Some(slot) = gone.slot {
            self.times.close(slot);
        }
        let (file, offset) = (gone.path.display(), gone.offset());
        if gone.state == State::Reading && gone.input.is_none() && gone.head.bytes > 0 {
            tracing::warn!(%file, offset, "followed file was gone before it could be read to its end");
        } else {
            tracing::info!(%file, offset, "followed file is gone and was read to its end");
        }
        for file in &mut self.files {
            if file.state == State::CopyOf(gone.inode) {
                file.state = State::Done;
            }
        }
    }

    /// Finds the file that a position of the checkpoint was in, wherever it is now.
    fn find(
        &self,
        position: &TailedFile,
        candidates: &[(PathBuf, Metadata)],
    ) -> Result<Option<(Inode, PathBuf)>, ConnectorError> {
        let mut best: Option<(u8, Inode, PathBuf)> = None;
        for (path, metadata) in candidates {
            let inode = Inode::of(metadata);
            if self.files.iter().any(|file| file.inode == inode) {
                continue;
            }
            let is_inode = inode == position.inode;
            let is_path = *path == position.path;
            let (kind, content) = match open_file(&self.settings.reach, path) {
                Ok(None) => continue,
                Ok(Some(file)) => head_content(&file, path)?,
                // Someone else's file beside ours.
                Err(_) if !is_inode && !is_path => continue,
                Err(error) => return Err(error),
            };
            let is_long_enough = matches!(kind, Some(Kind::Gzip | Kind::Zstd)) || metadata.len() >= position.offset;
            let is_same = position.head.matches(&content) && (position.head.bytes > 0 || position.offset == 0);
            let rank = match () {
                () if !is_same => continue,
                () if is_inode && is_long_enough => 3,
                () if is_path && is_long_enough => 2,
                () if position.is_copied_in(path, &content) => 1,
                () => continue,
            };
            if best.as_ref().is_none_or(|(best_rank, ..)| rank > *best_rank) {
                best = Some((rank, inode, path.clone()));
            }
        }
        Ok(best.map(|(_, inode, path)| (inode, path)))
    }

    /// Takes up a split where the checkpoint left it.
    fn resume(&mut self, mut position: TailedFile, candidates: &[(PathBuf, Metadata)]) -> Result<(), ConnectorError> {
        let Some((inode, path)) = self.find(&position, candidates)? else {
            if position.state != State::Reading || position.offset == 0 {
                return Ok(());
            }
            let input = names::shown(&position.path);
            if self.settings.skip_lost {
                tracing::warn!(
                    file = input,
                    offset = position.offset,
                    "a half-read file is gone, what was not read of it is lost"
                );
                return Ok(());
            }
            let reason =
                format!("it was read up to byte {} and is not found again, under any name in its folder", position.offset);
            return Err(ConnectorError::Replaced { input, reason, hint: LOST_HINT });
        };
        if path != position.path {
            position.renamed_at = Some(Instant::now());
        }
        (position.inode, position.path) = (inode, path);
        if position.state == State::Reading {
            // Held from now on, wherever it is moved.
            if let Some(file) = open_file(&self.settings.reach, &position.path)? {
                position.open(file)?;
            }
        }
        self.files.push(position);
        Ok(())
    }
}

/// Whether a plain file that begins like a known one has other content further on, as far as both are there: two logs that begin
/// with the same long header. Of a known one that was cut since nothing can be said.
fn goes_on_otherwise(known: &TailedFile, file: &File, kind: Option<Kind>) -> bool {
    let Some(input) = known.input.as_ref().filter(|input| input.kind == Kind::Plain && kind == Some(Kind::Plain)) else {
        return false;
    };
    let length = |file: &File| file.metadata().map_or(0, |metadata| metadata.len());
    let end = length(&input.file).min(length(file));
    let Some(start) = end.checked_sub(HEAD_BYTES as u64).filter(|start| *start > 0) else { return false };
    let block = |file: &File| {
        let mut block = vec![0; HEAD_BYTES];
        file.read_exact_at(&mut block, start).is_ok().then_some(block)
    };
    matches!((block(&input.file), block(file)), (Some(one), Some(other)) if one != other)
}

/// When to look at the path again, after a look that took so long.
fn scan_interval(took: Duration) -> Duration {
    took.saturating_mul(SCAN_SHARE).clamp(SCAN_INTERVAL, SCAN_INTERVAL_MAX)
}

/// What to do about a half-read file that is gone.
const LOST_HINT: &str =
    "put the file back, set lost_files = \"skip\" to go on without the rest of it, or start over with --fresh";

impl Source for Follow {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        self.is_first_scan = false;
        let mut positions = Vec::new();
        for (id, value) in splits {
            let Some(position) = TailedFile::from_json(value) else { return Err(not_followed(id, value)) };
            if self.is_mine(&position.path) {
                positions.push(position);
            }
        }
        // Also files that rotation moved out of the path while nothing ran.
        let folders: BTreeSet<PathBuf> = positions.iter().map(|position| folder_of(&position.path).to_owned()).collect();
        let FileSettings { pattern, reach, .. } = &self.settings;
        let mut candidates = pattern.files(reach)?.files;
        // A checkpoint is input like any other: what it names beyond reach is not looked at, and its files are gone.
        for folder in folders.iter().filter(|folder| is_folder(reach, folder)) {
            candidates.extend(files_of_folder(reach, folder)?.into_iter().map(|(path, metadata)| {
                // As the pattern writes it: "x", not "./x".
                let path =
                    if folder == Path::new(".") { path.strip_prefix(".").map_or(path.clone(), Path::to_owned) } else { path };
                (path, metadata)
            }));
        }
        // What is being read first: it has the better claim to a file that several positions could mean.
        positions.sort_by_key(|position| position.state != State::Reading);
        positions.into_iter().try_for_each(|position| self.resume(position, &candidates))?;
        // Rows of all of them were given, whichever of them is read on.
        for file in &self.files {
            self.times.reach_max(file.event_time_max);
        }
        Ok(())
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        let room = Room { rows_max, bytes_target };
        self.note_times();
        self.times.begin();
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= self.scan_interval) {
            self.scan()?;
            self.take_slots();
            // What is done stays known as long as it is there, so that it is not read again.
            self.files.retain(|file| file.state == State::Reading || file.gone_since.is_none());
        }
        self.take_slots();
        let (mut gone, mut is_busy) = (Vec::new(), false);
        for at in self.order() {
            let step = self.read(at, rows, room)?;
            let is_over = step == Step::Caught && {
                let Follow { files, settings, .. } = self;
                files[at].settle(rows, settings.rotate_wait, settings.rules)?
            };
            let file = &mut self.files[at];
            if let Some(input) = &mut file.input {
                input.lines.give_oddities(&mut self.oddities);
            }
            if let Some(slot) = file.slot {
                self.times.rows_until(slot, rows.len());
                // What it is yet to give, once it is caught up with, happens now.
                self.times.set_holds(slot, step != Step::Caught);
            }
            match step {
                Step::Full => {
                    self.turn += 1;
                    file.turn = self.turn;
                    break;
                }
                Step::Busy | Step::Cut => is_busy = true,
                Step::Caught if is_over => gone.push(at),
                Step::Caught => {}
            }
        }
        gone.sort_unstable();
        gone.into_iter().rev().for_each(|at| self.forget(at));
        let retry_in = if is_busy { Duration::ZERO } else { POLL_INTERVAL };
        Ok(if rows.is_empty() { Polled::Idle { retry_in } } else { Polled::Rows })
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        self.note_times();
        let is_known = |file: &&TailedFile| file.state == State::Reading || file.gone_since.is_none();
        self.files.iter().filter(is_known).map(|file| (file.inode.id(), file.to_json())).collect()
    }

    fn split_times(&mut self) -> Option<&mut SplitTimes> {
        Some(&mut self.times)
    }

    fn oddities(&self) -> &Oddities {
        &self.oddities
    }
}

impl Follow {
    /// Gives every file that is read, and no other, a place where its event time is kept.
    fn take_slots(&mut self) {
        for file in &mut self.files {
            match (file.state == State::Reading, file.slot) {
                (true, None) => file.slot = Some(self.times.open(file.event_time_max)),
                (false, Some(slot)) => {
                    self.times.close(slot);
                    file.slot = None;
                }
                _ => {}
            }
        }
    }

    /// Notes how far event time is in what was read with the last poll.
    fn note_times(&mut self) {
        if self.times.is_timed() {
            for file in &mut self.files {
                file.event_time_max = file.slot.map_or(file.event_time_max, |slot| self.times.time(slot));
            }
        }
    }

    /// The files that are read, in the order in which they are asked: the one whose rows are oldest first, so that event time moves
    /// on in all; at times the one that has waited longest.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.files.len()).filter(|&at| self.files[at].state == State::Reading).collect();
        let is_by_time = self.times.is_timed() && !self.turn.is_multiple_of(FAIR_TURNS);
        order.sort_by_key(|&at| {
            let file = &self.files[at];
            let time = file.slot.filter(|_| is_by_time).map_or(WATERMARK_START, |slot| self.times.time(slot));
            (time, file.turn, at)
        });
        order
    }
}

/// The folder a file is in; "." where the path names none.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_takes_long_to_look_at_is_looked_at_less_often() {
        let interval = |ms| scan_interval(Duration::from_millis(ms));
        assert_eq!(interval(1), SCAN_INTERVAL);
        assert_eq!(interval(50), Duration::from_secs(1));
        assert_eq!(interval(60_000), SCAN_INTERVAL_MAX);
    }
}
