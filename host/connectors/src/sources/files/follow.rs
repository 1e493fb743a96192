//! Follows files as they grow, through rotation: by rename (the file is read to its end under its new name, the new one from
//! its beginning) and by copy-and-truncate (the file is begun anew; a copy within the path is known as such and gives only
//! what was not read before the cut).
//!
//! A split is a file, called by its device and inode. All files of one folder belong to one subtask, so that whoever sees a
//! file cut also sees its copy. What a writer adds and cuts away between two looks cannot be seen by anyone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_model::Batch;

use super::super::lines::Room;
use super::discover::files_of_folder;
use super::input::{Head, Kind, REPLACED_HINT, head_content};
use super::tailed::{Inode, State, Step, Tailed, is_copy};
use super::{FileSettings, names, owner};
use crate::{ConnectorError, Polled, Source};

/// How often the path is looked at for new, renamed and removed files.
const SCAN_INTERVAL: Duration = Duration::from_millis(200);

/// When to ask again, caught up with all files.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// One subtask of a `file` source that follows.
pub(super) struct Follow {
    settings: FileSettings,
    index: u32,
    parallelism: u32,
    files: Vec<Tailed>,
    /// Which of `files` is asked first, so that a busy one does not starve the others.
    next: usize,
    scanned: Option<Instant>,
    /// No checkpoint and no scan yet: `start` applies to what is found.
    is_first_scan: bool,
}

impl Follow {
    pub(super) fn new(settings: FileSettings, index: u32, parallelism: u32) -> Follow {
        Follow { settings, index, parallelism, files: Vec::new(), next: 0, scanned: None, is_first_scan: true }
    }

    fn is_mine(&self, path: &Path) -> bool {
        owner(&names::to_text(folder_of(path)), self.parallelism) == self.index
    }

    /// Looks at what the path means now. Files that are known keep their places.
    fn scan(&mut self) -> Result<(), ConnectorError> {
        let now = Instant::now();
        self.scanned = Some(now);
        let mut found: BTreeMap<Inode, (Metadata, Vec<PathBuf>)> = BTreeMap::new();
        for (path, metadata) in self.settings.pattern.files()?.files {
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
                    if !file.is_still_there(&metadata)? {
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
        Ok(())
    }

    /// Takes up a file that was not there before.
    fn adopt(&mut self, inode: Inode, path: PathBuf) -> Result<(), ConnectorError> {
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(ConnectorError::io("open", &path, error)),
        };
        let (kind, content) = head_content(&file, &path)?;
        if content.is_empty() && !self.is_first_scan {
            // Perhaps a copy that has no content yet: decided when it has.
            return Ok(());
        }
        let mut tailed = Tailed::new(inode, path, State::Reading, 0);
        if let Some(original) = self.files.iter().find(|file| file.is_copied_in(&tailed.path, &content)) {
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

    /// File `at` was cut or written anew.
    fn cut(&mut self, at: usize, rows: &mut Batch) -> Result<(), ConnectorError> {
        // Whoever cuts copies before.
        self.scan()?;
        let inode = self.files[at].inode;
        let offset = self.files[at].offset();
        tracing::info!(file = %self.files[at].path.display(), offset, "followed file was cut and is read from its beginning");
        let rules = self.settings.rules;
        let mut is_continued = false;
        for copy in self.files.iter_mut().filter(|file| file.state == State::CopyOf(inode)) {
            copy.state = if is_continued { State::Done } else { State::Reading };
            (copy.offset, copy.renamed_at) = (offset, self.scanned);
            is_continued = true;
        }
        self.files[at].begin_anew(if is_continued { None } else { Some(rows) }, rules)
    }

    /// Reads file `at`.
    fn read(&mut self, at: usize, rows: &mut Batch, room: Room) -> Result<Step, ConnectorError> {
        loop {
            match self.files[at].read(rows, room, self.settings.rules)? {
                Step::Cut => self.cut(at, rows)?,
                step => return Ok(step),
            }
        }
    }

    /// Forgets file `at`, which is read to its end and gone.
    fn forget(&mut self, at: usize) {
        let gone = self.files.remove(at);
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
    fn find(&self, position: &Tailed, candidates: &[(PathBuf, Metadata)]) -> Result<Option<(Inode, PathBuf)>, ConnectorError> {
        let mut best: Option<(u8, Inode, PathBuf)> = None;
        for (path, metadata) in candidates {
            let inode = Inode::of(metadata);
            if self.files.iter().any(|file| file.inode == inode) {
                continue;
            }
            let is_inode = inode == position.inode;
            let is_path = *path == position.path;
            let file = File::open(path);
            let (kind, content) = match file.map_err(|error| ConnectorError::io("open", path, error)) {
                Ok(file) => head_content(&file, path)?,
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
    fn resume(&mut self, mut position: Tailed, candidates: &[(PathBuf, Metadata)]) -> Result<(), ConnectorError> {
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
            let file = File::open(&position.path).map_err(|error| ConnectorError::io("open", &position.path, error))?;
            position.open(file)?;
        }
        self.files.push(position);
        Ok(())
    }
}

/// What to do about a half-read file that is gone.
const LOST_HINT: &str =
    "put the file back, set lost_files = \"skip\" to go on without the rest of it, or start over with --fresh";

impl Source for Follow {
    fn restore(&mut self, splits: &BTreeMap<String, Value>) -> Result<(), ConnectorError> {
        self.is_first_scan = false;
        let mut positions = Vec::new();
        for (id, value) in splits {
            let Some(position) = Tailed::from_json(value) else {
                let reason = format!("{value} is not a position in a followed file; {REPLACED_HINT}");
                return Err(ConnectorError::Position { split: id.clone(), reason });
            };
            if self.is_mine(&position.path) {
                positions.push(position);
            }
        }
        // Also files that rotation moved out of the path while nothing ran.
        let folders: BTreeSet<PathBuf> = positions.iter().map(|position| folder_of(&position.path).to_owned()).collect();
        let mut candidates = self.settings.pattern.files()?.files;
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            candidates.extend(files_of_folder(folder)?.into_iter().map(|(path, metadata)| {
                // As the pattern writes it: "x", not "./x".
                let path =
                    if folder == Path::new(".") { path.strip_prefix(".").map_or(path.clone(), Path::to_owned) } else { path };
                (path, metadata)
            }));
        }
        // What is being read first: it has the better claim to a file that several positions could mean.
        positions.sort_by_key(|position| position.state != State::Reading);
        positions.into_iter().try_for_each(|position| self.resume(position, &candidates))
    }

    fn poll(&mut self, rows: &mut Batch, rows_max: usize, bytes_target: usize) -> Result<Polled, ConnectorError> {
        let room = Room { rows_max, bytes_target };
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= SCAN_INTERVAL) {
            self.scan()?;
            // What is done stays known as long as it is there, so that it is not read again.
            self.files.retain(|file| file.state == State::Reading || file.gone_since.is_none());
        }
        let (known, first) = (self.files.len(), self.next);
        let (mut gone, mut is_busy) = (Vec::new(), false);
        for at in (0..known).map(|turn| (first + turn) % known) {
            if self.files[at].state != State::Reading {
                continue;
            }
            match self.read(at, rows, room)? {
                Step::Full => {
                    self.next = (at + 1) % known;
                    break;
                }
                Step::Busy | Step::Cut => is_busy = true,
                Step::Caught => {
                    if self.files[at].settle(rows, self.settings.rotate_wait, self.settings.rules)? {
                        gone.push(at);
                    }
                }
            }
        }
        gone.sort_unstable();
        gone.into_iter().rev().for_each(|at| self.forget(at));
        let retry_in = if is_busy { Duration::ZERO } else { POLL_INTERVAL };
        Ok(if rows.is_empty() { Polled::Idle { retry_in } } else { Polled::Rows })
    }

    fn position(&mut self) -> BTreeMap<String, Value> {
        let is_known = |file: &&Tailed| file.state == State::Reading || file.gone_since.is_none();
        self.files.iter().filter(is_known).map(|file| (file.inode.id(), file.to_json())).collect()
    }
}

/// The folder a file is in; "." where the path names none.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
