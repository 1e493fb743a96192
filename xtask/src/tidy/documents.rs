//! Rules about documentation: that it is there, and that it points at what is there.

use super::{Finding, Tree};
use crate::workspace::Package;
use std::collections::BTreeMap;

/// Every crate says what it is for: a README, or module docs at the top of its root file.
pub(super) fn crates(tree: &Tree, packages: &[Package], findings: &mut Vec<Finding>) {
    for package in packages {
        let in_crate =
            |name: &str| if package.folder.is_empty() { name.to_string() } else { format!("{}/{name}", package.folder) };
        let roots = ["src/lib.rs", "src/main.rs"].map(in_crate);
        let has_docs = roots.iter().filter_map(|root| tree.get(root)).any(|file| file.text.trim_start().starts_with("//!"));
        if !has_docs && tree.get(&in_crate("README.md")).is_none() {
            let what = format!("{} does not say what it is for", package.name);
            findings.push(Finding::new(&roots[0], 1, what, "begin lib.rs or main.rs with //! docs, or add a README.md"));
        }
        let manifest = in_crate("Cargo.toml");
        // What is also built outside this workspace, as the SDK is, spells its lints out.
        let has_lints = |text: &str| ["[lints]\nworkspace = true", "[lints.clippy]"].iter().any(|lints| text.contains(lints));
        if tree.get(&manifest).is_some_and(|file| !has_lints(&file.text)) {
            let what = format!("{} has no lints", package.name);
            findings.push(Finding::new(&manifest, 1, what, "add [lints] with workspace = true"));
        }
    }
}

/// Every error number that the host uses has a page, and every page belongs to a number that is used.
pub(super) fn error_numbers(tree: &Tree, findings: &mut Vec<Finding>) {
    let mut used: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
    for file in tree.with_extension(".rs").filter(|file| file.path.starts_with("host/")) {
        for (number, line) in file.text.lines().enumerate() {
            for code in error_numbers_in(line) {
                used.entry(code).or_insert((&file.path, number + 1));
            }
        }
    }
    for (code, (file, line)) in &used {
        if !tree.has(&format!("docs/errors/{code}.md")) {
            let what = format!("{code} has no page");
            findings.push(Finding::new(file, *line, what, "write docs/errors/: what happened, what to do"));
        }
    }
    for file in tree.with_extension(".md") {
        let Some(code) = file.path.strip_prefix("docs/errors/").and_then(|name| name.strip_suffix(".md")) else { continue };
        if error_numbers_in(code).next() == Some(code) && !used.contains_key(code) {
            findings.push(Finding::new(
                &file.path,
                1,
                format!("nothing uses {code}"),
                "remove the page, or use the number where the error is made",
            ));
        }
    }
}

/// `E` and four digits, standing alone.
fn error_numbers_in(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices('E').filter_map(move |(at, _)| {
        let code = line.get(at..at + 5)?;
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_alone = !is_word(line[..at].chars().next_back()) && !is_word(line[at + 5..].chars().next());
        (is_alone && code[1..].bytes().all(|byte| byte.is_ascii_digit())).then_some(code)
    })
}

/// The changelog is there, with a place for what comes next.
pub(super) fn changelog(tree: &Tree, findings: &mut Vec<Finding>) {
    let text = tree.get("CHANGELOG.md").map_or("", |file| file.text.as_str());
    if !text
        .lines()
        .any(|line| line.trim_start_matches(['#', ' ']).trim_matches(['[', ']']) == "Unreleased" && line.starts_with("## "))
    {
        findings.push(Finding::new(
            "CHANGELOG.md",
            1,
            "no section Unreleased",
            "add `## Unreleased` on top and say what a user will notice",
        ));
    }
}

/// Relative links in Markdown lead to something that is tracked.
pub(super) fn links(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.with_extension(".md") {
        let mut in_code = false;
        for (number, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            for target in if in_code { Vec::new() } else { link_targets(line) } {
                let path = target.split(['#', '?']).next().unwrap_or_default();
                if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                    continue;
                }
                if !resolve(&file.path, path).is_some_and(|path| path.is_empty() || tree.has(&path)) {
                    let what = format!("the link to {target} leads nowhere");
                    findings.push(Finding::new(&file.path, number + 1, what, "links are relative to the file they stand in"));
                }
            }
        }
    }
}

/// The targets of `[text](target)` and of `[text]: target`.
fn link_targets(line: &str) -> Vec<&str> {
    let mut targets: Vec<&str> = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()).collect();
    if let Some((_, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
        targets.push(target.trim());
    }
    targets
}

/// A link's path from the root; nothing if it leaves the repository.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if link.starts_with('/') {
        parts.clear();
    }
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{places, tree};
    use super::*;

    #[test]
    fn a_crate_without_docs_or_without_the_lints_is_found() {
        let package = |folder: &str| Package { name: folder.to_string(), folder: folder.to_string(), dependencies: Vec::new() };
        let lints = "[lints]\nworkspace = true\n";
        let tree = tree(&[
            ("a/src/lib.rs", "//! For this.\n"),
            ("a/Cargo.toml", lints),
            ("b/src/main.rs", "fn main() {}"),
            ("b/Cargo.toml", lints),
            ("c/README.md", "For that."),
            ("c/Cargo.toml", "[package]"),
        ]);
        let mut findings = Vec::new();
        crates(&tree, &["a", "b", "c"].map(package), &mut findings);
        let files: Vec<&str> = findings.iter().map(|finding| finding.file.as_str()).collect();
        assert_eq!(files, ["b/src/lib.rs", "c/Cargo.toml"]);
    }

    #[test]
    fn error_numbers_and_pages_must_match_both_ways() {
        let tree = tree(&[
            ("host/cli/src/a.rs", "\n\"E0001\" E0002 0xE0003 E00045 SE0006\n"),
            ("xtask/src/b.rs", "E0009"),
            ("docs/errors/E0001.md", ""),
            ("docs/errors/E0007.md", ""),
            ("docs/errors/README.md", ""),
        ]);
        assert_eq!(places(&tree, error_numbers), ["host/cli/src/a.rs:2", "docs/errors/E0007.md:1"]);
    }

    #[test]
    fn a_changelog_needs_its_unreleased_section() {
        assert_eq!(places(&tree(&[("CHANGELOG.md", "# Changelog\n## 0.1\n")]), changelog), ["CHANGELOG.md:1"]);
        assert_eq!(places(&tree(&[]), changelog), ["CHANGELOG.md:1"]);
        assert!(places(&tree(&[("CHANGELOG.md", "## [Unreleased]\n")]), changelog).is_empty());
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](b.md) [c](../README.md#top) [d](https://x.example/y) [e](#here)\n[f](gone.md)\n```\n[g](gone.md)\n```\n[h]: gone.md\n[i](../../out)\n[j](..)\n";
        let tree = tree(&[("docs/a.md", text), ("docs/b.md", ""), ("README.md", "[k](docs) [l](/docs/b.md)")]);
        assert_eq!(places(&tree, links), ["docs/a.md:2", "docs/a.md:6", "docs/a.md:7"]);
    }
}
