//! The floors of docs/ARCHITECTURE.md: who may use whom, and what the pure floors never touch.

use super::source::{beside, code_of, test_files, without_tests};
use super::{Finding, Tree};
use crate::workspace::{Kind, Package};

/// Folder and floor of every host crate that may exist.
const FLOORS: &[(&str, u8)] = &[
    ("host/model", 0),
    ("host/plan", 1),
    ("host/checkpoint", 1),
    ("host/channel", 1),
    ("host/sandbox", 2),
    ("host/state", 2),
    ("host/storage", 2),
    ("host/transport", 2),
    // Below the task that drives sources and sinks; it needs nothing but the model.
    ("host/connectors", 2),
    ("host/task", 3),
    // A master and a worker are on one floor and know each other only by these messages.
    ("host/protocol", 3),
    ("host/worker", 4),
    ("host/master", 4),
    ("host/cluster", 5),
    ("host/coordinator", 6),
    ("host/api", 7),
    ("host/cli", 8),
];
/// The pure crates: the whole protocol must run in a seeded simulator.
const PURE: &[&str] = &["host/model", "host/plan", "host/checkpoint", "host/channel", "host/master", "host/cluster"];
/// Crates that a pure crate may not depend on, because all they offer is forbidden to it.
const IMPURE_CRATES: &[&str] =
    &["tokio", "rand", "getrandom", "fastrand", "object_store", "rustix", "libc", "signal-hook", "wasmtime"];
/// Paths that code of a pure crate may not name.
const IMPURE_PATHS: &[&str] =
    &["std::fs", "std::net", "std::thread", "std::process", "std::env", "Instant::now", "SystemTime::now", "RandomState"];

fn floor(folder: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == folder).map(|(_, floor)| *floor)
}

/// A crate uses only crates on lower floors; operators, the SDK and xtask use no host crate at all. Dev-dependencies are free.
pub(super) fn dependencies(packages: &[Package], findings: &mut Vec<Finding>) {
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let own = floor(&package.folder);
        if own.is_none() && package.folder.starts_with("host/") {
            let what = format!("{} has no floor", package.name);
            findings.push(Finding::new(
                &manifest,
                0,
                what,
                "give it a floor in docs/ARCHITECTURE.md and xtask/src/tidy/floors.rs",
            ));
        }
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind != Kind::Dev) {
            if PURE.contains(&package.folder.as_str()) && IMPURE_CRATES.contains(&dependency.name.as_str()) {
                let what = format!("{} is pure and uses {}", package.name, dependency.name);
                findings.push(Finding::new(
                    &manifest,
                    0,
                    what,
                    "turn it into events in and actions out; the I/O belongs to a higher floor",
                ));
            }
            let Some(used) = packages.iter().find(|other| other.name == dependency.name) else { continue };
            let Some(theirs) = floor(&used.folder) else { continue };
            let is_allowed = match own {
                Some(own) => theirs < own,
                // End-to-end tests, the simulator and bench programs stand outside, above all floors; what runs in the sandbox
                // stands outside, below.
                None => {
                    matches!(package.folder.as_str(), "tests" | "sim" | "fuzz")
                        || (package.folder.starts_with("bench") && !package.folder.starts_with("bench/operators"))
                }
            };
            if !is_allowed {
                let own = own.map_or("outside the floors".to_string(), |own| format!("on floor {own}"));
                let what = format!("{} ({own}) uses {} (floor {theirs})", package.name, used.name);
                findings.push(Finding::new(
                    &manifest,
                    0,
                    what,
                    "a crate uses only crates on lower floors: move the shared part down",
                ));
            }
        }
    }
}

/// No file, clock, randomness or thread in the code of a pure crate; its tests are free.
pub(super) fn purity(tree: &Tree, findings: &mut Vec<Finding>) {
    let pure: Vec<String> = PURE.iter().map(|folder| format!("{folder}/src/")).collect();
    let files = tree.with_extension(".rs").filter(|file| pure.iter().any(|folder| file.path.starts_with(folder)));
    let files: Vec<(&str, String)> = files.map(|file| (file.path.as_str(), code_of(&file.text))).collect();
    let for_tests: Vec<String> = files.iter().flat_map(|(path, code)| test_files(code).map(|name| beside(path, name))).collect();
    for (path, code) in &files {
        if for_tests.iter().any(|module| path.strip_prefix(module).is_some_and(|rest| rest.starts_with(['.', '/']))) {
            continue;
        }
        for (number, line) in without_tests(code).lines().enumerate() {
            for name in IMPURE_PATHS.iter().filter(|name| line.contains(**name)) {
                let what = format!("{name} in a pure crate");
                findings.push(Finding::new(
                    path,
                    number + 1,
                    what,
                    "take the value as an argument; pure crates run in a simulator",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{places, tree};
    use super::*;
    use crate::workspace::Dependency;

    fn package(name: &str, folder: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependencies =
            dependencies.iter().map(|(name, kind)| Dependency { name: (*name).to_string(), kind: *kind }).collect();
        Package { name: name.to_string(), folder: folder.to_string(), version: String::new(), dependencies }
    }

    fn complaints(packages: &[Package]) -> Vec<String> {
        let mut findings = Vec::new();
        dependencies(packages, &mut findings);
        findings.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn using_the_same_or_a_higher_floor_is_found_and_a_lower_one_is_not() {
        let model = package("weir-model", "host/model", &[]);
        let channel = package("weir-channel", "host/channel", &[("weir-model", Kind::Normal)]);
        let plan = package("weir-plan", "host/plan", &[("weir-channel", Kind::Normal), ("weir-model", Kind::Build)]);
        assert_eq!(complaints(&[model.clone(), channel.clone()]), [""; 0]);
        let found = complaints(&[model, channel, plan]);
        assert!(found.len() == 1 && found[0].contains("weir-plan (on floor 1) uses weir-channel (floor 1)"), "{found:?}");
    }

    #[test]
    fn an_operator_that_uses_a_host_crate_is_found_and_an_end_to_end_test_is_not() {
        let model = package("weir-model", "host/model", &[]);
        let operator = package("window", "operators/window", &[("weir-model", Kind::Normal)]);
        let tests = package("weir-tests", "tests", &[("weir-model", Kind::Normal)]);
        assert_eq!(complaints(&[model, operator, tests]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_floor_and_an_impure_dependency_are_found() {
        assert!(complaints(&[package("weir-new", "host/new", &[])])[0].contains("no floor"));
        assert!(complaints(&[package("weir-plan", "host/plan", &[("tokio", Kind::Normal)])])[0].contains("tokio"));
        assert!(complaints(&[package("weir-plan", "host/plan", &[("tokio", Kind::Dev)])]).is_empty());
    }

    #[test]
    fn a_clock_in_pure_code_is_found_but_not_in_its_tests_or_comments() {
        let bad = "fn f() {}\nfn g() { std::time::Instant::now(); }\n";
        let good = "// Instant::now\nfn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        let tree = tree(&[
            ("host/plan/src/a.rs", bad),
            ("host/model/src/b.rs", good),
            ("host/worker/src/c.rs", bad),
            ("host/channel/src/lib.rs", "#[cfg(test)]\nmod simulation;\n"),
            ("host/channel/src/simulation.rs", bad),
        ]);
        assert_eq!(places(&tree, purity), ["host/plan/src/a.rs:2"]);
    }
}
