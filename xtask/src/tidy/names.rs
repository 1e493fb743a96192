//! Rules about names: a type is a thing, and things have nouns.

use super::rust::is_test;
use super::source::{code_of, without_tests};
use super::{Finding, Tree};

/// Nouns that look like participles.
const NOUNS: &[&str] =
    &["Seed", "Setting", "Finding", "Embed", "Heading", "Reading", "Tracking", "Hashing", "Feed", "String", "Ring", "Bed"];

/// Participles that end in nothing that gives them away.
const IRREGULAR: &[&str] = &[
    "Begun", "Built", "Drawn", "Fallen", "Found", "Given", "Gone", "Heard", "Held", "Kept", "Known", "Led", "Left", "Lost",
    "Made", "Met", "Said", "Seen", "Sent", "Shown", "Spoken", "Taken", "Told", "Written",
];

/// Files whose types keep such names until they are touched next. None is added.
const KNOWN: &[&str] = &[
    "host/api/src/answer.rs",
    "host/api/src/paced.rs",
    "host/api/src/routes.rs",
    "host/api/src/tls.rs",
    "host/checkpoint/src/machine.rs",
    "host/connectors/src/api.rs",
    "host/coordinator/src/master/storekeeper.rs",
    "host/master/src/deploy.rs",
    "host/master/src/deployed.rs",
    "host/master/src/ended.rs",
    "host/master/src/ending.rs",
    "host/master/src/fits.rs",
    "host/master/src/requests.rs",
    "host/master/src/run.rs",
    "host/master/src/words.rs",
    "host/protocol/src/report.rs",
    "host/storage/src/components.rs",
    "host/storage/src/log/job_log.rs",
    "host/storage/src/log/trash.rs",
    "host/transport/src/endpoint/mod.rs",
    "host/transport/src/ids.rs",
    "host/worker/src/execution/build.rs",
    "host/worker/src/execution/prepare.rs",
    "host/worker/src/execution/restore.rs",
    "host/worker/src/execution/voice.rs",
    "host/worker/src/network/quic/links.rs",
    "host/worker/src/persist/persister.rs",
    "host/worker/src/persist/queue.rs",
    "host/worker/src/persist/snapshot.rs",
    "host/worker/src/worker.rs",
];

/// No type is called by a participle alone: `Said` and `Kept` say what has become of something, and not of what.
pub(super) fn participles(tree: &Tree, findings: &mut Vec<Finding>) {
    let is_house = |path: &str| ["host/", "sim/", "xtask/"].iter().any(|house| path.starts_with(house));
    let files = tree.with_extension(".rs").filter(|file| is_house(&file.path) && !is_test(&file.path));
    for file in files.filter(|file| !KNOWN.contains(&file.path.as_str())) {
        let code = code_of(&file.text);
        for (number, line) in without_tests(&code).lines().enumerate() {
            if let Some(name) = type_name(line).filter(|name| is_participle(name)) {
                let hint = "name the thing: `Kept` is a `Receipt`, `Said` an `Answer`, `Built` are `Tasks`";
                findings.push(Finding::new(&file.path, number + 1, format!("the type {name} is called by a participle"), hint));
            }
        }
    }
}

/// Where limits are.
const LIMITS: [&str; 3] = ["host/model/src/limits.rs", "host/api/src/limits.rs", "host/master/src/limits.rs"];

/// A limit that other crates know is where all such limits are, beside those that it has to fit to.
pub(super) fn limits(tree: &Tree, findings: &mut Vec<Finding>) {
    let files = tree.with_extension(".rs").filter(|file| file.path.starts_with("host/") && !is_test(&file.path));
    for file in files.filter(|file| !LIMITS.contains(&file.path.as_str())) {
        for (number, line) in code_of(&file.text).lines().enumerate() {
            let name = line.trim_start().strip_prefix("pub const ").and_then(|rest| rest.split(':').next());
            if let Some(name) = name.filter(|name| ["_MAX", "_TIMEOUT", "_TIMEOUT_MS"].iter().any(|end| name.ends_with(end))) {
                let hint = "move it to host/model/src/limits.rs, with an assertion of how it relates to others";
                findings.push(Finding::new(&file.path, number + 1, format!("the limit {name} stands alone"), hint));
            }
        }
    }
}

/// The type that a line defines.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    let kind = words.find(|word| !matches!(*word, "pub" | "crate" | "super" | "self" | "in"))?;
    matches!(kind, "struct" | "enum" | "type" | "trait").then(|| words.next()).flatten()
}

fn is_participle(name: &str) -> bool {
    let is_one_word = name.chars().skip(1).all(|c| c.is_ascii_lowercase());
    let looks_so = (name.ends_with("ed") || name.ends_with("ing")) && name.len() > 4;
    is_one_word && !NOUNS.contains(&name) && (looks_so || IRREGULAR.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{places, tree};
    use super::*;

    #[test]
    fn a_public_limit_is_found_where_no_other_is() {
        let text = "pub const ROWS_MAX: usize = 1;\npub(crate) const OWN_MAX: usize = 1;\nconst OTHER_MAX: u8 = 1;\npub const NAME: &str = \"\";\n";
        let tree = tree(&[("host/a/src/b.rs", text), (LIMITS[0], text), ("sim/src/c.rs", text)]);
        assert_eq!(places(&tree, limits), ["host/a/src/b.rs:1"]);
    }

    #[test]
    fn a_type_called_by_a_participle_is_found_and_a_noun_with_one_is_not() {
        let text = "pub(crate) struct Said;\nstruct StoredComponent;\nenum Ending {\n}\nstruct Seed;\nfn f() -> Kept {}\ntype Row = Kept;\n";
        let tree = tree(&[("host/a/src/b.rs", text), ("host/a/src/tests/c.rs", text), ("operators/a/src/lib.rs", text)]);
        assert_eq!(places(&tree, participles), ["host/a/src/b.rs:1", "host/a/src/b.rs:3"]);
    }
}
