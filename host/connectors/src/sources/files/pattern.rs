//! What a `path` setting means: a path as it is, or a glob. Parses; looks at the disk only to see whether a file has the very name.

use std::path::{Component, Path, PathBuf};

use crate::settings::at_home;

/// Paths that the braces of one pattern may stand for.
const ALTERNATIVES_MAX: usize = 1_000;

/// How the parts of a glob match names: hidden files only where the dot is written.
pub(super) const OPTIONS: glob::MatchOptions =
    glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// What the `path` setting means.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    alternatives: Vec<Alternative>,
}

/// One of the things a pattern means; without braces there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Alternative {
    /// A file, or a folder: its files, without sub-folders and hidden files.
    Path(PathBuf),
    /// Steps from a folder on.
    Glob { root: PathBuf, steps: Vec<Step> },
}

/// One part of a glob, between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Name(String),
    Match(glob::Pattern),
    /// `**`: any number of folders; at the end, the files in all of them.
    AnyDepth,
}

impl Pattern {
    /// `Err`: what is wrong with it.
    pub(super) fn new(path: &str) -> Result<Pattern, String> {
        // A file whose name looks like a glob is that file.
        let alternatives = if Path::new(path).exists() {
            vec![Alternative::Path(PathBuf::from(path))]
        } else {
            let path = at_home(path)?;
            let (folder, rest) = literal_folder(&path);
            expand(rest)?.iter().map(|rest| Alternative::new(folder, rest)).collect::<Result<_, _>>()?
        };
        Ok(Pattern { text: path.to_owned(), alternatives })
    }

    /// As the user wrote it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn alternatives(&self) -> &[Alternative] {
        &self.alternatives
    }
}

impl Alternative {
    /// `path` within `folder`, which is taken as it is; empty: on its own.
    fn new(folder: &str, path: &str) -> Result<Alternative, String> {
        if !path.contains(['*', '?', '[']) || Path::new(folder).join(path).exists() {
            return Ok(Alternative::Path(Path::new(folder).join(path)));
        }
        if let Err(error) = glob::Pattern::new(path) {
            return Err(format!("is not a valid glob: at character {}: {}", error.pos, error.msg));
        }
        let mut steps = Vec::new();
        let mut root = PathBuf::from(if folder.is_empty() { "." } else { folder });
        for part in Path::new(path).components() {
            match part {
                Component::RootDir | Component::Prefix(_) => root = PathBuf::from("/"),
                Component::CurDir => {}
                Component::ParentDir => steps.push(Step::Name("..".to_owned())),
                Component::Normal(part) => steps.push(Step::new(&part.to_string_lossy())?),
            }
        }
        Ok(Alternative::Glob { root, steps })
    }
}

impl Step {
    fn new(part: &str) -> Result<Step, String> {
        if part == "**" {
            return Ok(Step::AnyDepth);
        }
        if !part.contains(['*', '?', '[']) {
            return Ok(Step::Name(part.to_owned()));
        }
        let wrong =
            |error: glob::PatternError| format!("is not a valid glob: {part:?} at character {}: {}", error.pos, error.msg);
        glob::Pattern::new(part).map(Step::Match).map_err(wrong)
    }
}

/// Takes off the longest folder there is whose own name looks like a glob: job files may lie in one.
fn literal_folder(path: &str) -> (&str, &str) {
    let ends = path.rmatch_indices('/').map(|(at, _)| at).filter(|at| path[..*at].contains(['*', '?', '[', '{']));
    let mut folders = ends.map(|at| (&path[..at], &path[at + 1..]));
    folders.find(|(folder, _)| Path::new(folder).is_dir()).unwrap_or(("", path))
}

/// What braces stand for: `{a,b}` is both, also one in another. Braces without a partner or a comma are themselves.
fn expand(path: &str) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    let mut open = vec![path.to_owned()];
    while let Some(text) = open.pop() {
        match braces(&text) {
            None => done.push(text),
            Some((from, to, commas)) => {
                let mut start = from + 1;
                for end in commas.into_iter().chain([to]) {
                    open.push(format!("{}{}{}", &text[..from], &text[start..end], &text[to + 1..]));
                    start = end + 1;
                }
            }
        }
        if open.len() + done.len() > ALTERNATIVES_MAX {
            return Err(format!("has braces that stand for more than {ALTERNATIVES_MAX} paths"));
        }
    }
    done.reverse();
    Ok(done)
}

/// The first pair of braces that holds a comma of its own: where it begins, ends, and its commas.
fn braces(text: &str) -> Option<(usize, usize, Vec<usize>)> {
    text.match_indices('{').find_map(|(from, _)| {
        let (mut depth, mut commas) = (0, Vec::new());
        for (at, byte) in text.bytes().enumerate().skip(from) {
            match byte {
                b'{' => depth += 1,
                b',' if depth == 1 => commas.push(at),
                b'}' => {
                    depth -= 1;
                    if depth == 0 {
                        return (!commas.is_empty()).then_some((from, at, commas));
                    }
                }
                _ => {}
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn braces_stand_for_each_of_their_parts() {
        let expanded = |text: &str| expand(text).unwrap();
        assert_eq!(expanded("logs/{a,b{1,2},}.log"), ["logs/a.log", "logs/b1.log", "logs/b2.log", "logs/.log"]);
        assert_eq!(expanded("x{1}y{,z"), ["x{1}y{,z"]);
        assert_eq!(expanded("{a}{b,c}"), ["{a}b", "{a}c"]);
        assert!(expand(&"{a,b}".repeat(11)).unwrap_err().contains("1000"));
    }

    #[test]
    fn a_folder_whose_name_looks_like_a_glob_is_that_folder() {
        let folder = tempfile::tempdir().unwrap();
        let odd = folder.path().join("job [1] {a,b}");
        std::fs::create_dir(&odd).unwrap();
        let pattern = Pattern::new(&format!("{}/logs/*.log", odd.display())).unwrap();
        let [Alternative::Glob { root, steps }] = pattern.alternatives() else { panic!("{pattern:?}") };
        assert_eq!((root, steps.len()), (&odd, 2));
        let pattern = Pattern::new(&format!("{}/x.{{log,txt}}", odd.display())).unwrap();
        assert_eq!(pattern.alternatives(), ["x.log", "x.txt"].map(|name| Alternative::Path(odd.join(name))));
    }

    #[test]
    fn a_glob_is_taken_apart_at_its_slashes() {
        let Alternative::Glob { root, steps } = Alternative::new("", "./logs/**/x-?.log").unwrap() else { panic!("no glob") };
        assert_eq!(root, Path::new("."));
        assert_eq!(steps.len(), 3);
        assert_eq!((&steps[0], &steps[1]), (&Step::Name("logs".into()), &Step::AnyDepth));
        assert!(Alternative::new("", "logs/[a").unwrap_err().contains("not a valid glob"));
        assert!(Alternative::new("", "logs/a**").unwrap_err().contains("not a valid glob"));
    }
}
