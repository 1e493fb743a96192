//! No files of a crate that need each other in a circle: whoever reads one of them has to read all, and none can be moved or tested
//! alone.

use super::modules::{Modules, Use};
use super::{Finding, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// Crates that the rule looks at: those with a root in these folders.
const HOUSES: &[&str] = &["guest-sdk/", "host/", "operators/", "sim/", "xtask/"];

/// No circle of files inside a crate. A module that declares others, or hands their names on, does not need them for that.
pub(super) fn circles(tree: &Tree, findings: &mut Vec<Finding>) {
    let is_root = |path: &str| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let roots = tree.with_extension(".rs").map(|file| file.path.as_str()).filter(|path| is_root(path));
    for root in roots.filter(|path| HOUSES.iter().any(|house| path.starts_with(house))) {
        let uses = Modules::of(tree, root).uses();
        for circle in &found(&uses) {
            let what = format!("{} files need each other in a circle: {}", circle.len(), ties(&uses, circle));
            let hint = "move what both need into a file below them, or hand it over as an argument";
            findings.push(Finding::new(circle.first().map_or(root, |file| file), 0, what, hint));
        }
    }
}

/// The circles, each as the files that are on it.
fn found(uses: &BTreeSet<Use>) -> Vec<BTreeSet<&str>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in uses {
        next.entry(&one.from).or_default().push(&one.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|file| (*file, reach(&next, file))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (file, to) in &reached {
        if to.contains(file) && !circles.iter().any(|circle| circle.contains(file)) {
            circles.push(to.iter().copied().filter(|other| reached.get(other).is_some_and(|back| back.contains(file))).collect());
        }
    }
    circles
}

/// All that a file needs, directly or through others.
fn reach<'a>(next: &BTreeMap<&'a str, Vec<&'a str>>, file: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = next.get(file).cloned().unwrap_or_default();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(next.get(file).into_iter().flatten());
        }
    }
    reached
}

/// Who takes what from whom on a circle.
fn ties(uses: &BTreeSet<Use>, circle: &BTreeSet<&str>) -> String {
    let mut ties: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for one in uses.iter().filter(|one| circle.contains(one.from.as_str()) && circle.contains(one.to.as_str())) {
        ties.entry((&one.from, &one.to)).or_default().push(&one.name);
    }
    let short = |path: &str| path.split_once("/src/").map_or_else(|| path.to_string(), |(_, rest)| rest.to_string());
    let tie = |((from, to), names): (&(&str, &str), &Vec<&str>)| {
        format!("{} takes {} from {}", short(from), names.join(", "), short(to))
    };
    ties.iter().map(tie).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::samples::{places, tree};
    use super::*;

    const LIB: (&str, &str) = ("host/x/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\n");

    #[test]
    fn files_that_need_each_other_are_found_also_through_a_third() {
        let tree = tree(&[
            LIB,
            ("host/x/src/a.rs", "use crate::b::B;\npub struct A;"),
            ("host/x/src/b.rs", "use crate::c;\npub struct B;\nfn f() { c::g() }"),
            ("host/x/src/c.rs", "use crate::A;\npub fn g() {}"),
        ]);
        assert_eq!(places(&tree, circles), ["host/x/src/a.rs:0"]);
        let mut findings = Vec::new();
        circles(&tree, &mut findings);
        assert!(findings[0].what.contains("c.rs takes A from a.rs"), "{}", findings[0].what);
    }

    #[test]
    fn files_on_top_of_each_other_are_no_circle() {
        let tree = tree(&[
            LIB,
            ("host/x/src/a.rs", "use crate::b::B;\nuse crate::c::g;\npub struct A;"),
            ("host/x/src/b.rs", "use crate::c::g;\npub struct B;"),
            ("host/x/src/c.rs", "pub fn g() {}\n#[cfg(test)]\nmod tests { use crate::A; }"),
        ]);
        assert!(places(&tree, circles).is_empty());
    }
}
