//! What is known of files that are read once: how far each was read, and which of the files there are now is which.
//!
//! A file is known by its name and how it begins. One that has another name since is known by its inode and its beginning, or,
//! where it was compressed meanwhile, by its beginning and what is left of its name. So a folder can be read again and again as
//! it grows and rotates, and what was read stays read. Says nothing of how long the content of a compressed file is: that
//! shows when it is read on.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_model::{Timestamp, WATERMARK_START};

use super::discover::open_file;
use super::input::{Head, Kind, REPLACED_HINT, head_content};
use super::names;
use super::tailed::{Inode, TailedFile};
use crate::{ConnectorError, Reach};

/// How far a file was read. The id of its split is its path ([`names::to_text`]).
#[derive(Clone, Debug)]
pub(super) struct Position {
    /// Bytes of content that are behind.
    pub(super) offset: u64,
    pub(super) is_done: bool,
    pub(super) head: Head,
    /// Size of the file, as it is stored, when its reading began; 0: nothing was read since it is stored like this.
    pub(super) size_bytes: u64,
    /// Which file it was; `None` in positions of versions that did not say.
    pub(super) inode: Option<Inode>,
    /// Greatest event time read from it; `WATERMARK_START` before any.
    pub(super) event_time_max: Timestamp,
}

impl Position {
    pub(super) fn to_json(&self) -> Value {
        let mut position =
            json!({"offset": self.offset, "done": self.is_done, "size": self.size_bytes, "head": self.head.to_json()});
        if let Some(inode) = self.inode {
            position["inode"] = json!({"device": inode.device, "number": inode.number});
        }
        if self.event_time_max != WATERMARK_START {
            position["event_time"] = json!(self.event_time_max);
        }
        position
    }

    pub(super) fn from_json(value: &Value) -> Option<Position> {
        let inode = |value: &Value| Some(Inode { device: value["device"].as_u64()?, number: value["number"].as_u64()? });
        Some(Position {
            offset: value["offset"].as_u64()?,
            is_done: value["done"].as_bool()?,
            head: Head::from_json(&value["head"])?,
            size_bytes: value["size"].as_u64()?,
            inode: value.get("inode").and_then(inode),
            event_time_max: value["event_time"].as_i64().unwrap_or(WATERMARK_START),
        })
    }

    /// All positions of a checkpoint, by id.
    pub(super) fn all(splits: &BTreeMap<String, Value>) -> Result<BTreeMap<String, Position>, ConnectorError> {
        let read = |(id, value): (&String, &Value)| match Position::from_json(value) {
            Some(position) => Ok((id.clone(), position)),
            None => {
                let reason = match TailedFile::from_json(value) {
                    Some(_) => "it was followed before (`follow = true`), and is read once now".to_owned(),
                    None => format!("{value} is not a position in a file that is read once"),
                };
                Err(ConnectorError::Position { split: names::shown(Path::new(id)), reason })
            }
        };
        splits.iter().map(read).collect()
    }
}

/// Why a file is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing of it was read.
    New,
    /// A checkpoint was taken in the middle of it.
    Begun,
    /// It was read to its end, and has grown since.
    Grown,
    /// It was read to its end, and compressed since; whether it had grown before is only in its content.
    Compressed,
}

/// A file that is to be read, from its position or from its beginning.
pub(super) struct Todo {
    pub(super) id: String,
    pub(super) path: PathBuf,
    pub(super) modified: (i64, i64),
    pub(super) position: Option<Position>,
    pub(super) why: Why,
}

/// What there is to do of the files there are.
#[derive(Default)]
pub(super) struct Resolution {
    pub(super) todo: Vec<Todo>,
    /// Files that were read to their ends, by id; also those that are no longer there.
    pub(super) done: BTreeMap<String, Position>,
}

/// What a position says of a file.
enum Place {
    Todo(Why),
    Done,
}

/// Says of each file what is to be read of it. A half-read file that is nowhere is an error. Of files that are not `is_mine`, by id,
/// only as much is looked at as shows which of the positions are those of files that are.
pub(super) fn resolve(
    files: Vec<(PathBuf, Metadata)>,
    mut positions: BTreeMap<String, Position>,
    pattern: &str,
    reach: &Reach,
    is_mine: impl Fn(&str) -> bool,
) -> Result<Resolution, ConnectorError> {
    let mut resolved = Resolution::default();
    let mut strangers = Vec::new();
    let files = distinct(files).into_iter().map(|(path, metadata)| (names::to_text(&path), path, metadata));
    let (mine, others): (Vec<_>, Vec<_>) = files.partition(|(id, ..)| is_mine(id));
    let (others_from, mut are_mine_known) = (mine.len(), true);
    for (at, (id, path, metadata)) in mine.into_iter().chain(others).enumerate() {
        let place = match positions.get(&id) {
            // Where each of mine has its own position, it does not matter whether this one is still the file it was.
            Some(position) if at >= others_from && are_mine_known && position.inode == Some(Inode::of(&metadata)) => {
                Some(if position.is_done { Place::Done } else { Place::Todo(Why::Begun) })
            }
            Some(position) => place(position, reach, &path, &metadata)?,
            None => None,
        };
        match place.and_then(|place| Some((place, positions.remove(&id)?))) {
            Some((place, position)) => resolved.add(id, path, &metadata, place, Some(position)),
            None => {
                are_mine_known &= at >= others_from;
                strangers.push((id, path, metadata));
            }
        }
    }
    // In an order that is the same for all subtasks, since each takes a position that others could mean.
    strangers.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let named = NameIndex::new(&positions);
    for (id, path, metadata) in strangers {
        match renamed(&named, &mut positions, reach, &path, &metadata)? {
            Some((place, position)) => resolved.add(id, path, &metadata, place, Some(position)),
            None => resolved.add(id, path, &metadata, Place::Todo(Why::New), None),
        }
    }
    for (id, position) in positions {
        if !position.is_done {
            let reason = if reach.metadata(Path::new(&id)).is_ok() {
                "it is half read, and was replaced since the checkpoint: it begins differently".to_owned()
            } else {
                format!("it is half read, and is gone or no longer means {pattern}")
            };
            return Err(ConnectorError::Replaced { input: names::shown(Path::new(&id)), reason, hint: REPLACED_HINT });
        }
        // Of a file that took the name of this one, the position comes when it is read.
        resolved.done.entry(id).or_insert(position);
    }
    Ok(resolved)
}

/// Each file once, however many names it has: by its own name rather than by a link's, such as `latest.log`.
fn distinct(files: Vec<(PathBuf, Metadata)>) -> Vec<(PathBuf, Metadata)> {
    let mut paths: BTreeMap<Inode, Vec<PathBuf>> = BTreeMap::new();
    for (path, metadata) in &files {
        paths.entry(Inode::of(metadata)).or_default().push(path.clone());
    }
    let is_link = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let kept = |paths: &[PathBuf]| match paths {
        [only] => only.clone(),
        several => several.iter().find(|path| !is_link(path)).unwrap_or(&several[0]).clone(),
    };
    let kept: BTreeMap<Inode, PathBuf> = paths.iter().map(|(inode, paths)| (*inode, kept(paths))).collect();
    let is_kept = |(path, metadata): &(PathBuf, Metadata)| kept.get(&Inode::of(metadata)) == Some(path);
    let (kept, others): (Vec<_>, Vec<_>) = files.into_iter().partition(is_kept);
    for (path, _) in others {
        tracing::info!(path = names::shown(&path), "another name of a file that is read");
    }
    kept
}

impl Resolution {
    fn add(&mut self, id: String, path: PathBuf, metadata: &Metadata, place: Place, position: Option<Position>) {
        match (place, position) {
            (Place::Done, Some(position)) => {
                self.done.insert(id, position);
            }
            (Place::Todo(why), position) => {
                let modified = (metadata.mtime(), metadata.mtime_nsec());
                self.todo.push(Todo { id, path, modified, position, why });
            }
            (Place::Done, None) => {}
        }
    }

    /// What there is to read, for people; `None` if nothing.
    pub(super) fn summary(&self) -> Option<String> {
        const NAMED_MAX: usize = 3;
        let kinds = [
            (Why::New, "new"),
            (Why::Grown, "grown since it was read"),
            (Why::Compressed, "compressed since it was read"),
            (Why::Begun, "half read"),
        ];
        let parts = kinds.iter().filter_map(|(why, what)| {
            let of_kind: Vec<&Todo> = self.todo.iter().filter(|todo| todo.why == *why).collect();
            let names: Vec<String> = of_kind.iter().take(NAMED_MAX).map(|todo| names::shown(&todo.path)).collect();
            let more = if of_kind.len() > NAMED_MAX { ", ..." } else { "" };
            let count = of_kind.len();
            let files = if count == 1 { "file" } else { "files" };
            (count > 0).then(|| format!("{count} {files} {what} ({}{more})", names.join(", ")))
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// What the position says of the file that has its name; `None` if it is another file.
fn place(position: &Position, reach: &Reach, path: &Path, metadata: &Metadata) -> Result<Option<Place>, ConnectorError> {
    let Some(file) = open_file(reach, path)? else { return Ok(None) };
    let (kind, content) = head_content(&file, path)?;
    if !position.head.matches(&content) {
        return Ok(None);
    }
    let is_plain = matches!(kind, Some(Kind::Plain) | None);
    let size_bytes = metadata.len();
    if is_plain && size_bytes < position.offset {
        let reason = format!("the file was cut since the checkpoint: {size_bytes} bytes, read up to {}", position.offset);
        if !position.is_done {
            return Err(ConnectorError::Replaced { input: names::shown(path), reason, hint: REPLACED_HINT });
        }
        tracing::warn!(file = names::shown(path), reason, "nothing more is read of it");
        return Ok(Some(Place::Done));
    }
    let has_grown = if is_plain { size_bytes > position.offset } else { size_bytes != position.size_bytes };
    Ok(Some(match (position.is_done, has_grown) {
        (false, _) => Place::Todo(Why::Begun),
        (true, true) if !is_plain && position.size_bytes == 0 => Place::Todo(Why::Compressed),
        (true, true) => Place::Todo(Why::Grown),
        (true, false) => Place::Done,
    }))
}

/// Positions by what a file keeps when it gets another name: its inode, or its [`series`].
struct NameIndex {
    by_inode: BTreeMap<Inode, Vec<String>>,
    by_series: BTreeMap<(PathBuf, String), Vec<String>>,
}

impl NameIndex {
    /// Those of files of which something is known.
    fn new(positions: &BTreeMap<String, Position>) -> NameIndex {
        let mut named = NameIndex { by_inode: BTreeMap::new(), by_series: BTreeMap::new() };
        for (id, position) in positions.iter().filter(|(_, position)| position.head.bytes > 0) {
            if let Some(inode) = position.inode {
                named.by_inode.entry(inode).or_default().push(id.clone());
            }
            named.by_series.entry(series(Path::new(id))).or_default().push(id.clone());
        }
        named
    }

    /// Ids of `positions` that could be those of a file, the ones that say most of it first.
    fn candidates<'a>(&'a self, positions: &BTreeMap<String, Position>, path: &Path, inode: Inode) -> Vec<&'a String> {
        let by_inode = self.by_inode.get(&inode).into_iter().flatten();
        let all = by_inode.chain(self.by_series.get(&series(path)).into_iter().flatten());
        let mut ids: Vec<&String> = all.filter(|id| positions.contains_key(*id)).collect();
        ids.sort_by_key(|id| {
            let position = &positions[*id];
            std::cmp::Reverse((position.inode == Some(inode), position.head.bytes, !position.is_done, position.offset))
        });
        ids
    }
}

/// The position of a file that had another name, which is taken out of `positions`: those whose own file is no longer there.
fn renamed(
    named: &NameIndex,
    positions: &mut BTreeMap<String, Position>,
    reach: &Reach,
    path: &Path,
    metadata: &Metadata,
) -> Result<Option<(Place, Position)>, ConnectorError> {
    let inode = Inode::of(metadata);
    let candidates = named.candidates(positions, path, inode);
    if candidates.is_empty() {
        return Ok(None);
    }
    let Some(file) = open_file(reach, path)? else { return Ok(None) };
    let (kind, content) = head_content(&file, path)?;
    let is_packed = matches!(kind, Some(Kind::Gzip | Kind::Zstd));
    for id in candidates {
        let Some(position) = positions.get(id) else { continue };
        let is_compressed = is_packed && position.inode != Some(inode);
        // A compressed copy has everything; it is long enough to be told by its beginning, or begins with all that was read.
        let is_known = position.inode == Some(inode)
            || is_compressed && (position.head.is_full() || position.offset <= content.len() as u64);
        // The size of a compressed file says nothing of its content.
        if !is_known || !position.head.matches(&content) || !is_packed && metadata.len() < position.offset {
            continue;
        }
        let size_bytes = if is_packed { position.size_bytes } else { position.size_bytes.max(position.offset) };
        let place = match (position.is_done, is_compressed, metadata.len() != size_bytes) {
            (false, ..) => Place::Todo(Why::Begun),
            (true, true, _) => Place::Todo(Why::Compressed),
            (true, false, true) => Place::Todo(Why::Grown),
            (true, false, false) => Place::Done,
        };
        let Some(mut position) = positions.remove(id) else { continue };
        tracing::info!(file = names::shown(path), was = names::shown(Path::new(id)), "a file has another name since it was read");
        // The size of what was read to its end is not yet that of this one: a checkpoint before it is read on must not say so.
        position.size_bytes = if matches!(place, Place::Done) { metadata.len() } else { 0 };
        position.inode = Some(inode);
        return Ok(Some((place, position)));
    }
    Ok(None)
}

/// What a file has in common with those it is rotated with: its folder, and its name without what rotation adds, which are
/// numbers, dates and the ending of a compressed file.
fn series(path: &Path) -> (PathBuf, String) {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let name = [".gz", ".zst", ".gzip", ".zstd"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '_')).to_owned();
    (path.parent().map(Path::to_owned).unwrap_or_default(), stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_rotated_set_are_a_series() {
        let series = |a: &str, b: &str| series(Path::new(a)) == series(Path::new(b));
        assert!(series("d/access.log", "d/access.log.1"));
        assert!(series("d/access.log.1", "d/access.log.2.gz"));
        assert!(series("d/access.log", "d/access.log-20260301.zst"));
        assert!(!series("d/access.log", "d/error.log.1"));
        assert!(!series("d/access.log", "e/access.log"));
    }
}
