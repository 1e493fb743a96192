//! `cargo xtask tidy`: the house rules that a compiler does not check. Each finding names file and line, what is wrong, and what to do.
//!
//! A rule is a function from what is tracked to findings, so each is tested on a sample that breaks it.

mod builds;
mod circles;
mod documents;
mod floors;
mod modules;
mod names;
mod rust;
mod source;
mod text;

use crate::shell;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    file: String,
    /// From 1; 0 where no line can be named.
    line: usize,
    what: String,
    hint: &'static str,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>, hint: &'static str) -> Finding {
        Finding { file: file.to_string(), line, what: what.into(), hint }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    hint: {}", self.file, self.line.max(1), self.what, self.hint)
    }
}

/// A tracked file. Files that are not UTF-8 are known by their path only.
pub(crate) struct File {
    path: String,
    text: String,
}

/// What the rules look at.
pub(crate) struct Tree {
    files: Vec<File>,
    paths: BTreeSet<String>,
}

impl Tree {
    /// The files that git tracks or would track.
    fn load(workspace: &Workspace) -> Result<Tree> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(&workspace.root);
        let mut files = Vec::new();
        for path in shell::read(&mut git)?.split('\0').filter(|path| !path.is_empty()) {
            let full = workspace.root.join(path);
            // Deleted but not yet staged, or a link to a folder.
            if !full.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("cannot read {}", full.display()))?;
            files.push(File { path: path.to_string(), text: String::from_utf8(bytes).unwrap_or_default() });
        }
        Ok(Tree::new(files))
    }

    fn new(mut files: Vec<File>) -> Tree {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        let mut paths = BTreeSet::new();
        for file in &files {
            let mut path = file.path.as_str();
            paths.insert(path.to_string());
            while let Some((folder, _)) = path.rsplit_once('/') {
                paths.insert(folder.to_string());
                path = folder;
            }
        }
        Tree { files, paths }
    }

    fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(move |file| file.path.ends_with(extension))
    }

    /// Whether a file or a folder of that name is tracked.
    fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }
}

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if let Some(argument) = arguments.first() {
        return shell::unknown("tidy", argument);
    }
    let workspace = Workspace::load()?;
    let tree = Tree::load(&workspace)?;
    let mut findings = check(&tree, &workspace);
    builds::once(&workspace, &mut findings)?;
    builds::operators(&workspace, &mut findings)?;
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("tidy: {} files, {} packages, nothing to say", tree.files.len(), workspace.packages.len());
    Ok(())
}

fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    floors::dependencies(&workspace.packages, &mut findings);
    floors::purity(tree, &mut findings);
    circles::circles(tree, &mut findings);
    rust::lengths(tree, &mut findings);
    rust::functions(tree, &mut findings);
    names::participles(tree, &mut findings);
    names::limits(tree, &mut findings);
    rust::unsafety(tree, &mut findings);
    rust::allows(tree, &mut findings);
    rust::leftovers(tree, &mut findings);
    text::leftovers(tree, &mut findings);
    text::places(tree, std::env::var("HOME").ok().as_deref(), &mut findings);
    documents::crates(tree, &workspace.packages, &mut findings);
    documents::error_numbers(tree, &mut findings);
    documents::changelog(tree, &mut findings);
    documents::links(tree, &mut findings);
    documents::names_in_hacking(tree, &mut findings);
    findings
}

#[cfg(test)]
mod samples {
    use super::{File, Finding, Tree};

    /// A tree of these files and contents.
    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        Tree::new(files.iter().map(|(path, text)| File { path: (*path).to_string(), text: (*text).to_string() }).collect())
    }

    /// `file:line` of each finding of a rule.
    pub(super) fn places(tree: &Tree, rule: fn(&Tree, &mut Vec<Finding>)) -> Vec<String> {
        let mut findings = Vec::new();
        rule(tree, &mut findings);
        findings.iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect()
    }
}
