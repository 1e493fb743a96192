//! Rules about every text file.

use super::{Finding, Tree, source::has_word};

/// Written in two parts, so that this file does not break its own rule.
const LEFT_FOR_LATER: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const REGISTRIES: [&str; 6] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("deb.debian", ".org"),
    concat!("proxy.golang", ".org"),
];
const MACHINE_FOLDERS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/ho", "me/")];

/// Nobody's home, as examples have it.
const MADE_UP_HOMES: [&str; 3] = [concat!("/ho", "me/me"), concat!("/ho", "me/you"), concat!("/ho", "me/user")];

/// Files that tools write and people do not edit.
fn is_generated(path: &str) -> bool {
    path.ends_with("Cargo.lock") || path.ends_with("package-lock.json")
}

/// Nothing that was left for later in any text.
pub(super) fn leftovers(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| !is_generated(&file.path)) {
        for (number, line) in file.text.lines().enumerate() {
            for word in LEFT_FOR_LATER.iter().filter(|word| has_word(line, word)) {
                let hint = "do it, or file an issue and say here what is missing";
                findings.push(Finding::new(&file.path, number + 1, format!("{word} left behind"), hint));
            }
        }
    }
}

/// No path of the machine it was written on, no host name of a package registry.
pub(super) fn places(tree: &Tree, home: Option<&str>, findings: &mut Vec<Finding>) {
    for file in tree.files.iter().filter(|file| !is_generated(&file.path)) {
        for (number, line) in file.text.lines().enumerate() {
            let home = home.filter(|home| home.len() > 1).map(|home| format!("{home}/"));
            let folders = MACHINE_FOLDERS.iter().copied().chain(home.as_deref());
            if let Some(folder) = folders.into_iter().find(|folder| starts_a_path(line, folder)) {
                let hint = "use a path relative to the repository, a temporary folder or an environment variable";
                findings.push(Finding::new(&file.path, number + 1, format!("a path of one machine: {folder}..."), hint));
            }
            if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
                let hint = "name the package and its ordinary client; each machine knows its own registry";
                findings.push(Finding::new(&file.path, number + 1, format!("a registry's host name: {host}"), hint));
            }
        }
    }
}

/// Whether an absolute path that begins with `folder` stands in `line`, and not merely a part of a longer path or of a URL.
fn starts_a_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        // A web page may well be called so: in a log line a method stands before it.
        let is_request = ["GET ", "POST ", "HEAD "].iter().any(|method| line[..at].ends_with(method));
        let is_made_up = MADE_UP_HOMES.iter().any(|home| {
            let after = line[at..].strip_prefix(home);
            after.is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        });
        let is_part = before.is_some_and(|c| c.is_alphanumeric() || "._-/*}".contains(c));
        !is_request && !is_made_up && !is_part && after.is_some_and(|c| c.is_alphanumeric() || c == '.')
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{self, tree};
    use super::*;

    #[test]
    fn what_was_left_for_later_is_found_as_a_word() {
        let line = format!("a\n# {}: more\n", LEFT_FOR_LATER[0]);
        let tree = tree(&[("docs/a.md", &line), ("docs/b.md", "the todo list of a user"), ("Cargo.lock", &line)]);
        assert_eq!(samples::places(&tree, leftovers), ["docs/a.md:2"]);
    }

    #[test]
    fn machine_paths_and_registry_hosts_are_found() {
        let home = format!("see {}weir/x\n", MACHINE_FOLDERS[2]);
        let host = format!("\nfrom {}\n", REGISTRIES[1]);
        let fine = format!(
            "a request: GET {}news {}\nexamples{}a, https://a.example{}b",
            MACHINE_FOLDERS[2], MADE_UP_HOMES[0], MACHINE_FOLDERS[1], MACHINE_FOLDERS[1]
        );
        let tree = tree(&[("a.md", &home), ("b.sh", &host), ("c.md", &fine), ("d.rs", "let p = \"/data/me/x\";")]);
        let mut findings = Vec::new();
        places(&tree, Some("/data/me"), &mut findings);
        let found: Vec<String> = findings.iter().map(|finding| format!("{}:{}", finding.file, finding.line)).collect();
        assert_eq!(found, ["a.md:1", "b.sh:2", "d.rs:1"]);
    }
}
