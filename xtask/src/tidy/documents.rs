//! Rules about documentation: that it is there, and that it points at what is there.

use super::{Finding, Tree};
use crate::workspace::Package;

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

/// The only list of error numbers.
const ERROR_NUMBERS: &str = "host/model/src/error_number.rs";

/// Every error number has a page and is used, every page belongs to a number, and no number is written but where it is declared.
pub(super) fn error_numbers(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(list) = tree.get(ERROR_NUMBERS) else { return };
    let declared: Vec<(usize, &str, &str)> = list.text.lines().enumerate().filter_map(declaration).collect();
    let code = |file: &'_ super::File| tested_apart(&file.path, &file.text).to_owned();
    let elsewhere: Vec<_> =
        tree.with_extension(".rs").filter(|file| file.path.starts_with("host/") && file.path != ERROR_NUMBERS).collect();
    for file in &elsewhere {
        for (number, line) in code(file).lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
            for literal in line.split('"').skip(1).step_by(2).filter(|text| is_error_number(text)) {
                let what = format!("{literal} is written as text");
                findings.push(Finding::new(&file.path, number + 1, what, "declare it in ErrorNumber, and use it by its name"));
            }
        }
    }
    for (line, name, number) in &declared {
        if !tree.has(&format!("docs/errors/{number}.md")) {
            let what = format!("{number} has no page");
            findings.push(Finding::new(ERROR_NUMBERS, *line, what, "write docs/errors/: what happened, what to do"));
        }
        let used = format!("ErrorNumber::{name}");
        if !elsewhere.iter().any(|file| names(&code(file), &used)) {
            let what = format!("nothing uses {number}");
            findings.push(Finding::new(ERROR_NUMBERS, *line, what, "remove it and its page, or use it where the error is made"));
        }
    }
    for file in tree.with_extension(".md") {
        let Some(page) = file.path.strip_prefix("docs/errors/").and_then(|name| name.strip_suffix(".md")) else { continue };
        if is_error_number(page) && !declared.iter().any(|(_, _, number)| *number == page) {
            findings.push(Finding::new(
                &file.path,
                1,
                format!("{page} is no ErrorNumber"),
                "remove the page, or declare the number",
            ));
        }
    }
}

/// `Name = "E0034",` with its line, from 1.
fn declaration((index, line): (usize, &str)) -> Option<(usize, &str, &str)> {
    let (name, number) = line.trim().strip_suffix("\",")?.split_once(" = \"")?;
    is_error_number(number).then_some((index + 1, name, number))
}

/// `E` and four digits.
fn is_error_number(text: &str) -> bool {
    text.len() == 5 && text.starts_with('E') && text[1..].bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a text has a path, and not only one that begins with it.
fn names(text: &str, path: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(path).any(|(at, _)| !goes_on(&text[at + path.len()..]))
}

/// A source file without its tests; nothing of a file of tests.
fn tested_apart<'a>(path: &str, text: &'a str) -> &'a str {
    if path.contains("/tests/") || path.ends_with("/tests.rs") {
        return "";
    }
    text.find("#[cfg(test)]\nmod tests {").map_or(text, |at| &text[..at])
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

/// Folders that a path of this repository begins with.
const FOLDERS: &[&str] =
    &["bench/", "docs/", "examples/", "fuzz/", "guest-sdk/", "host/", "operators/", "sim/", "tests/", "xtask/"];

/// Where the commands of xtask are named.
const XTASK: &str = "xtask/src/main.rs";

/// What the page for people who change the code names is there: files, folders, and commands of xtask.
pub(super) fn names_in_hacking(tree: &Tree, findings: &mut Vec<Finding>) {
    let Some(page) = tree.get("docs/HACKING.md") else { return };
    let usage = tree.get(XTASK).map_or("", |file| file.text.as_str());
    for (number, line) in page.text.lines().enumerate() {
        for path in line.split('`').skip(1).step_by(2).filter(|path| FOLDERS.iter().any(|folder| path.starts_with(folder))) {
            let is_pattern =
                path.contains(|c: char| c.is_ascii_uppercase() || c == ' ') && !path.ends_with(".md") || path.contains("NN");
            if !is_pattern && !tree.has(path.trim_end_matches('/')) {
                let what = format!("there is no {path}");
                findings.push(Finding::new(
                    &page.path,
                    number + 1,
                    what,
                    "name what is there now; the recipe may have changed with it",
                ));
            }
        }
        for rest in line.split("cargo xtask ").skip(1) {
            let command = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
            if !usage.contains(&format!("\n  {command} ")) && !usage.contains(&format!("\n  {command}\n")) {
                let what = format!("xtask has no command {command}");
                findings.push(Finding::new(&page.path, number + 1, what, "`cargo xtask help` names them"));
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
        let package = |folder: &str| Package {
            name: folder.to_string(),
            folder: folder.to_string(),
            version: String::new(),
            dependencies: Vec::new(),
        };
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
    fn error_numbers_are_declared_once_used_and_explained() {
        let list = "    /// A.\n    A = \"E0001\",\n    Ab = \"E0002\",\n    C = \"E0003\",\n";
        let tree = tree(&[
            (ERROR_NUMBERS, list),
            (
                "host/cli/src/a.rs",
                "/// \"E0002\"\nErrorNumber::Ab, \"E00045\" \"SE0006\" \"E0002\"\n#[cfg(test)]\nmod tests { \"E0001\" ErrorNumber::A }",
            ),
            ("host/cli/src/tests/b.rs", "\"E0001\" ErrorNumber::A"),
            ("host/cli/src/c.rs", "(ErrorNumber::C)"),
            ("xtask/src/b.rs", "\"E0009\""),
            ("docs/errors/E0001.md", ""),
            ("docs/errors/E0002.md", ""),
            ("docs/errors/E0007.md", ""),
            ("docs/errors/README.md", ""),
        ]);
        let list = |line: usize| format!("{ERROR_NUMBERS}:{line}");
        assert_eq!(
            places(&tree, error_numbers),
            ["host/cli/src/a.rs:2".to_owned(), list(2), list(4), "docs/errors/E0007.md:1".to_owned()]
        );
    }

    #[test]
    fn a_changelog_needs_its_unreleased_section() {
        assert_eq!(places(&tree(&[("CHANGELOG.md", "# Changelog\n## 0.1\n")]), changelog), ["CHANGELOG.md:1"]);
        assert_eq!(places(&tree(&[]), changelog), ["CHANGELOG.md:1"]);
        assert!(places(&tree(&[("CHANGELOG.md", "## [Unreleased]\n")]), changelog).is_empty());
    }

    #[test]
    fn what_hacking_names_is_there() {
        let text = "`host/a/src/lib.rs` `host/a/` `lib.rs` `host/a/NAME.rs` `docs/errors/E00NN.md`\n`host/gone.rs`\ncargo xtask tidy\ncargo xtask tid\n";
        let tree = tree(&[("docs/HACKING.md", text), ("host/a/src/lib.rs", ""), (XTASK, "\n  tidy      checks\n")]);
        assert_eq!(places(&tree, names_in_hacking), ["docs/HACKING.md:2", "docs/HACKING.md:4"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let text = "[a](b.md) [c](../README.md#top) [d](https://x.example/y) [e](#here)\n[f](gone.md)\n```\n[g](gone.md)\n```\n[h]: gone.md\n[i](../../out)\n[j](..)\n";
        let tree = tree(&[("docs/a.md", text), ("docs/b.md", ""), ("README.md", "[k](docs) [l](/docs/b.md)")]);
        assert_eq!(places(&tree, links), ["docs/a.md:2", "docs/a.md:6", "docs/a.md:7"]);
    }
}
