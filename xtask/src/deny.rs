//! `cargo xtask deny`: what the crates we use may be: their licences, where they come from, which are not wanted, which are there twice.
//!
//! Reads `deny.toml`, the file of cargo-deny, and asks cargo which crates there are: seconds, and nothing to install. Advisories need a
//! database that is no package registry: where cargo-deny is installed, it is asked for them; where it is not, or cannot reach them, that is
//! said loudly and nothing fails. What `deny.toml` may say is what is read here; anything else in it is an error, so that no line
//! of it is without effect.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use toml_edit::{DocumentMut, Item};

use crate::shell;
use crate::workspace::Workspace;

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("usage: cargo xtask deny");
    }
    let workspace = Workspace::load()?;
    let path = workspace.root.join("deny.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let rules = Rules::parse(&text).with_context(|| path.display().to_string())?;
    let mut command = workspace.cargo("metadata");
    command.args(["--format-version=1", "--locked"]);
    for target in &rules.targets {
        command.args(["--filter-platform", target]);
    }
    let metadata = serde_json::from_str(&shell::read(&mut command)?).context("cargo metadata gave no JSON")?;
    let crates = crates(&metadata).context("cargo metadata")?;
    let (findings, count) = (rules.check(&crates), crates.len());
    for finding in &findings {
        println!("{finding}");
    }
    advisories(&workspace);
    if findings.is_empty() {
        println!("deny: licences, sources, bans and duplicates of {count} crates are as deny.toml says");
        return Ok(());
    }
    bail!("{} findings; deny.toml says what crates may be, and why", findings.len())
}

/// Known weaknesses, where there is somebody to ask.
fn advisories(workspace: &Workspace) {
    let mut asked = workspace.cargo("deny");
    if !asked.arg("--version").output().is_ok_and(|answer| answer.status.success()) {
        println!("deny: ADVISORIES ARE NOT CHECKED: cargo-deny is not installed (`cargo install cargo-deny --locked`)");
        return;
    }
    let answer = workspace.cargo("deny").args(["check", "advisories"]).output();
    match answer {
        Ok(answer) if answer.status.success() => println!("deny: no advisory is known of any crate"),
        Ok(answer) => {
            println!("deny: ADVISORIES: cargo-deny has found some, or cannot reach them:");
            print!("{}", String::from_utf8_lossy(&answer.stderr));
        }
        Err(error) => println!("deny: ADVISORIES ARE NOT CHECKED: {error}"),
    }
}

/// A crate that something is built with.
struct Crate {
    name: String,
    version: String,
    licence: Option<String>,
    /// The registry or repository; none where it is in this repository.
    source: Option<String>,
    /// Dependencies whose version is `*`.
    wildcards: Vec<String>,
}

fn crates(metadata: &Value) -> Option<Vec<Crate>> {
    let used: BTreeSet<&str> = metadata["resolve"]["nodes"].as_array()?.iter().filter_map(|node| node["id"].as_str()).collect();
    let packages = metadata["packages"].as_array()?.iter();
    packages.filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id))).map(Crate::of).collect()
}

impl Crate {
    fn of(package: &Value) -> Option<Crate> {
        let text = |key: &str| package[key].as_str().map(str::to_owned);
        let wildcards = package["dependencies"].as_array()?.iter();
        let wildcards = wildcards.filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null());
        Some(Crate {
            name: text("name")?,
            version: text("version")?,
            licence: text("license"),
            source: text("source"),
            wildcards: wildcards.filter_map(|dependency| dependency["name"].as_str().map(str::to_owned)).collect(),
        })
    }
}

/// What `deny.toml` says.
struct Rules {
    targets: Vec<String>,
    licences: BTreeSet<String>,
    banned: BTreeMap<String, String>,
    /// `name@version` of those that may be there beside another version.
    beside: BTreeSet<String>,
}

/// Keys that say to cargo-deny what is done here anyway.
const FIXED: &[(&str, &str)] = &[
    ("graph.all-features", "true"),
    ("licenses.version", "2"),
    ("licenses.confidence-threshold", "0.9"),
    ("licenses.private", "{ ignore = true }"),
    ("bans.multiple-versions", "\"deny\""),
    ("bans.wildcards", "\"deny\""),
    ("bans.allow-wildcard-paths", "true"),
    ("advisories.version", "2"),
    ("advisories.yanked", "\"deny\""),
    ("sources.unknown-registry", "\"deny\""),
    ("sources.unknown-git", "\"deny\""),
];

impl Rules {
    fn parse(text: &str) -> Result<Rules> {
        let document: DocumentMut = text.parse()?;
        let mut rules =
            Rules { targets: Vec::new(), licences: BTreeSet::new(), banned: BTreeMap::new(), beside: BTreeSet::new() };
        for (section, table) in document.iter() {
            for (key, item) in table.as_table().with_context(|| format!("{section} is no table"))?.iter() {
                rules.take(&format!("{section}.{key}"), item)?;
            }
        }
        Ok(rules)
    }

    fn take(&mut self, key: &str, item: &Item) -> Result<()> {
        let entries = || item.as_array().with_context(|| format!("{key} is no list")).map(|list| list.iter());
        let texts = || -> Result<Vec<String>> {
            entries()?.map(|value| value.as_str().map(str::to_owned).with_context(|| format!("{key}: no text"))).collect()
        };
        let pairs = |name: &str| -> Result<Vec<(String, String)>> {
            let pair = |value: &toml_edit::Value| {
                let text = |key: &str| value.as_inline_table()?.get(key)?.as_str().map(str::to_owned);
                text(name).zip(text("reason")).with_context(|| format!("{key}: expected {{ {name}, reason }}"))
            };
            entries()?.map(pair).collect()
        };
        match key {
            "graph.targets" => self.targets = texts()?,
            "licenses.allow" => self.licences = texts()?.into_iter().collect(),
            "bans.deny" => self.banned = pairs("name")?.into_iter().collect(),
            "bans.skip" => self.beside = pairs("crate")?.into_iter().map(|(name, _)| name).collect(),
            _ => {
                let value = item.to_string();
                if !FIXED.contains(&(key, value.trim())) {
                    bail!("{key} = {} is not known here (xtask/src/deny.rs)", value.trim());
                }
            }
        }
        Ok(())
    }

    fn check(&self, crates: &[Crate]) -> Vec<String> {
        let mut findings = Vec::new();
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        // All but a few come from cargo's own registry, whatever this machine calls it.
        let registry = usual(crates.iter().filter_map(|used| used.source.as_deref()));
        for used in crates {
            let Crate { name, version, licence, source, wildcards } = used;
            let mut note = |what: String| findings.push(format!("{name} {version}: {what}"));
            if let Some(reason) = self.banned.get(name) {
                note(format!("is not wanted: {reason}"));
            }
            let Some(source) = source else {
                wildcards.iter().for_each(|on| note(format!("takes any version of {on}")));
                continue;
            };
            let is_registry = source.starts_with("registry+") || source.starts_with("sparse+");
            if !is_registry || Some(source.as_str()) != registry {
                note(format!("comes from {source}"));
            }
            match licence {
                None => note("says no licence".to_owned()),
                Some(licence) => match Terms::parse(licence) {
                    Some(terms) if terms.is_met(&self.licences) => {}
                    Some(_) => note(format!("its licence is {licence}")),
                    None => note(format!("its licence cannot be read: {licence}")),
                },
            }
            if !self.beside.contains(&format!("{name}@{version}")) {
                versions.entry(name).or_default().insert(version);
            }
        }
        for (name, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
            let versions: Vec<&str> = versions.into_iter().collect();
            findings.push(format!("{name}: is there as {}", versions.join(" and ")));
        }
        findings
    }
}

/// The most frequent of them.
fn usual<'a>(sources: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    sources.for_each(|source| *counts.entry(source).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(source, _)| source)
}

/// A licence expression of SPDX.
#[derive(Debug, PartialEq)]
enum Terms {
    One(String),
    All(Vec<Terms>),
    Any(Vec<Terms>),
}

impl Terms {
    /// `None`: it is not one. A slash is "or", as it once was.
    fn parse(text: &str) -> Option<Terms> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut at = 0;
        let terms = Terms::any(&words, &mut at)?;
        (at == words.len()).then_some(terms)
    }

    fn any(words: &[&str], at: &mut usize) -> Option<Terms> {
        Terms::several(words, at, "OR", |words, at| Terms::several(words, at, "AND", Terms::one, Terms::All), Terms::Any)
    }

    fn several(
        words: &[&str],
        at: &mut usize,
        joint: &str,
        part: impl Fn(&[&str], &mut usize) -> Option<Terms>,
        join: fn(Vec<Terms>) -> Terms,
    ) -> Option<Terms> {
        let mut parts = vec![part(words, at)?];
        while words.get(*at) == Some(&joint) {
            *at += 1;
            parts.push(part(words, at)?);
        }
        if parts.len() == 1 { parts.pop() } else { Some(join(parts)) }
    }

    fn one(words: &[&str], at: &mut usize) -> Option<Terms> {
        let word = *words.get(*at)?;
        *at += 1;
        match word {
            "(" => {
                let inner = Terms::any(words, at)?;
                *at += 1;
                (words.get(*at - 1) == Some(&")")).then_some(inner)
            }
            ")" | "AND" | "OR" | "WITH" => None,
            name if words.get(*at) == Some(&"WITH") => {
                *at += 2;
                Some(Terms::One(format!("{name} WITH {}", words.get(*at - 1)?)))
            }
            name => Some(Terms::One(name.to_owned())),
        }
    }

    fn is_met(&self, allowed: &BTreeSet<String>) -> bool {
        match self {
            Terms::One(name) => allowed.contains(name),
            Terms::All(parts) => parts.iter().all(|part| part.is_met(allowed)),
            Terms::Any(parts) => parts.iter().any(|part| part.is_met(allowed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        [licenses]
        version = 2
        allow = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"]
        [bans]
        multiple-versions = "deny"
        deny = [{ name = "openssl-sys", reason = "TLS is rustls" }]
        skip = [{ crate = "syn@1.0.0", reason = "of a macro" }]
        [sources]
        unknown-git = "deny"
    "#;

    fn used(name: &str, version: &str, licence: &str) -> Crate {
        let source = Some("registry+https://index".to_owned());
        Crate { name: name.into(), version: version.into(), licence: Some(licence.into()), source, wildcards: Vec::new() }
    }

    #[test]
    fn a_licence_is_met_where_its_terms_are() {
        let rules = Rules::parse(RULES).expect("they are right");
        let met = |text: &str| Terms::parse(text).map(|terms| terms.is_met(&rules.licences));
        for fine in
            ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "ISC AND (GPL-3.0 OR ISC)", "Apache-2.0 WITH LLVM-exception", "(MIT)"]
        {
            assert_eq!(met(fine), Some(true), "{fine}");
        }
        for not in ["GPL-3.0", "MIT AND GPL-3.0", "ISC AND (GPL-3.0 OR LGPL-3.0)", "MIT WITH LLVM-exception", "mit"] {
            assert_eq!(met(not), Some(false), "{not}");
        }
        for broken in ["", "MIT OR", "(MIT", "MIT MIT", "AND", "MIT WITH"] {
            assert_eq!(met(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_is_not_as_the_rules_say_is_found() {
        let rules = Rules::parse(RULES).expect("they are right");
        let check = |crates: &[Crate]| rules.check(crates).join("\n");
        assert_eq!(check(&[used("syn", "1.0.0", "MIT"), used("syn", "2.0.0", "MIT")]), "", "it is allowed beside the other");
        assert_eq!(check(&[used("a", "1.0.0", "MIT"), used("a", "2.0.0", "MIT")]), "a: is there as 1.0.0 and 2.0.0");
        assert_eq!(check(&[used("a", "1.0.0", "GPL-3.0")]), "a 1.0.0: its licence is GPL-3.0");
        assert_eq!(check(&[Crate { licence: None, ..used("a", "1.0.0", "") }]), "a 1.0.0: says no licence");
        assert_eq!(check(&[used("openssl-sys", "1.0.0", "MIT")]), "openssl-sys 1.0.0: is not wanted: TLS is rustls");
        for elsewhere in ["git+https://somewhere", "registry+https://other"] {
            let odd = Crate { source: Some(elsewhere.to_owned()), ..used("a", "1.0.0", "MIT") };
            let found = check(&[used("b", "1.0.0", "MIT"), used("c", "1.0.0", "MIT"), odd]);
            assert_eq!(found, format!("a 1.0.0: comes from {elsewhere}"));
        }
        let own = Crate { source: None, wildcards: vec!["b".to_owned()], ..used("a", "1.0.0", "") };
        assert_eq!(check(&[own]), "a 1.0.0: takes any version of b");
    }

    #[test]
    fn a_line_that_would_have_no_effect_is_refused() {
        for (line, key) in
            [("[bans]\nworkspace-dependencies = true", "bans.workspace-dependencies"), ("[licenses]\nversion = 3", "version = 3")]
        {
            let error = Rules::parse(line).err().map(|error| format!("{error:#}")).unwrap_or_default();
            assert!(error.contains(key), "{line}: {error}");
        }
    }
}
