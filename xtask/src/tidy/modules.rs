//! The modules of a crate as its files say them: who declares whom, what each defines and imports. Enough of Rust's name
//! resolution to tell in which file a path ends.
//!
//! Reads tokens, not types: it knows nothing of methods, macros and what is behind a feature.

use super::Tree;
use super::source::{beside, code_of, test_files, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// The modules of one crate, the root first.
pub(super) struct Modules {
    all: Vec<Module>,
}

/// One file.
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    defines: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths in code, outside of `use`.
    paths: Vec<Vec<String>>,
    /// All names in code, outside of `use`.
    words: BTreeSet<String>,
}

/// One name that a `use` brings in; `*` for all.
struct Import {
    path: Vec<String>,
    name: String,
    /// Handed on to other files.
    is_public: bool,
}

/// What a file takes from another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) name: String,
}

impl Modules {
    /// The crate whose root is this file. Modules that are compiled for tests only are left out.
    pub(super) fn of(tree: &Tree, root: &str) -> Modules {
        let mut modules = Modules { all: Vec::new() };
        modules.add(tree, root, None);
        modules
    }

    fn add(&mut self, tree: &Tree, file: &str, parent: Option<usize>) -> Option<usize> {
        let text = &tree.get(file)?.text;
        let code = code_of(text);
        let for_tests: Vec<&str> = test_files(&code).collect();
        let (mut module, declared) = read(without_tests(&code));
        (module.file, module.parent) = (file.to_string(), parent);
        let index = self.all.len();
        self.all.push(module);
        for name in declared.iter().filter(|name| !for_tests.contains(&name.as_str())) {
            let stem = beside(file, name);
            let child =
                [format!("{stem}.rs"), format!("{stem}/mod.rs")].iter().find_map(|path| self.add(tree, path, Some(index)));
            self.all[index].children.extend(child.map(|child| (name.clone(), child)));
        }
        Some(index)
    }

    /// What the files of the crate take from each other, each name once.
    pub(super) fn uses(&self) -> BTreeSet<Use> {
        let mut uses = BTreeSet::new();
        for (index, module) in self.all.iter().enumerate() {
            let is_used = |import: &&Import| !import.is_public || module.words.contains(&import.name);
            let imports = module.imports.iter().filter(is_used).map(|import| &import.path);
            for path in imports.chain(&module.paths) {
                let Some(Place::Module(to)) = self.resolve(index, path, 0) else { continue };
                if to == index || self.is_part_of(index, to) {
                    continue;
                }
                let name = path.last().cloned().unwrap_or_default();
                uses.insert(Use { from: module.file.clone(), to: self.all[to].file.clone(), name });
            }
        }
        uses
    }

    /// Whether a module belongs to another, below the root: what it takes from there is no use of another room.
    fn is_part_of(&self, module: usize, whole: usize) -> bool {
        let mut parent = self.all[module].parent;
        while let Some(at) = parent.filter(|at| *at != 0) {
            if at == whole {
                return true;
            }
            parent = self.all[at].parent;
        }
        false
    }

    /// Where a path ends, as it is meant in module `at`. None if it begins with nothing that the module knows: another crate.
    fn resolve(&self, at: usize, path: &[String], depth: usize) -> Option<Place> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(self.descend(0, rest, depth)),
            "self" => Some(self.descend(at, rest, depth)),
            "super" => {
                let parent = self.all[at].parent?;
                // `super::super::x`.
                let goes_up = rest.first().is_some_and(|next| next == "super");
                if goes_up { self.resolve(parent, rest, depth) } else { Some(self.descend(parent, rest, depth)) }
            }
            _ => self.named(at, first, rest, depth),
        }
    }

    /// What a path means that begins in a module.
    fn descend(&self, at: usize, path: &[String], depth: usize) -> Place {
        path.split_first().and_then(|(first, rest)| self.named(at, first, rest, depth)).unwrap_or(Place::Module(at))
    }

    /// What a name means in a module, and the rest of the path after it.
    fn named(&self, at: usize, name: &str, rest: &[String], depth: usize) -> Option<Place> {
        // Imports can go in a circle.
        if depth > 8 {
            return None;
        }
        let module = &self.all[at];
        if let Some(child) = module.children.get(name) {
            return Some(self.descend(*child, rest, depth + 1));
        }
        if module.defines.contains(name) {
            return Some(Place::Module(at));
        }
        if let Some(import) = module.imports.iter().find(|import| import.name == name) {
            let path: Vec<String> = import.path.iter().chain(rest).cloned().collect();
            return Some(self.resolve(at, &path, depth + 1).unwrap_or(Place::Elsewhere));
        }
        let globs = module.imports.iter().filter(|import| import.name == "*");
        let globs = globs.filter_map(|glob| self.resolve(at, &glob.path, depth + 1)).collect::<Vec<_>>();
        globs.into_iter().find_map(|place| match place {
            Place::Module(target) => self.named(target, name, rest, depth + 1),
            Place::Elsewhere => None,
        })
    }
}

/// Where a path ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Module(usize),
    /// In another crate.
    Elsewhere,
}

/// A module without its place, and the names of the modules that it declares in files of their own.
fn read(code: &str) -> (Module, Vec<String>) {
    let tokens = tokens(code);
    let text = |at: usize| tokens.get(at).copied().unwrap_or_default();
    let mut module = Module {
        file: String::new(),
        parent: None,
        children: BTreeMap::new(),
        defines: BTreeSet::new(),
        imports: Vec::new(),
        paths: Vec::new(),
        words: BTreeSet::new(),
    };
    let mut declared = Vec::new();
    // How many braces are open, and at how many of them a module in this file began.
    let (mut open, mut inline) = (0usize, Vec::<usize>::new());
    let mut at = 0;
    while at < tokens.len() {
        match text(at) {
            "{" => open += 1,
            "}" => {
                open = open.saturating_sub(1);
                if inline.last() == Some(&open) {
                    inline.pop();
                }
            }
            "use" if at == 0 || is_before_item(text(at - 1)) => {
                let is_public = at > 0 && matches!(text(at - 1), "pub" | ")");
                let first = module.imports.len();
                at = read_use(&tokens, at + 1, &mut Vec::new(), is_public, &mut module.imports);
                module.imports[first..].iter_mut().for_each(|import| seen_from_file(&mut import.path, inline.len()));
                continue;
            }
            "mod" if text(at + 2) == ";" => declared.push(text(at + 1).to_string()),
            "mod" if text(at + 2) == "{" => {
                module.defines.insert(text(at + 1).to_string());
                inline.push(open);
            }
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union" => {
                module.defines.insert(text(at + 1).to_string());
            }
            "macro_rules" => {
                module.defines.insert(text(at + 2).to_string());
            }
            word if is_name(word) => {
                module.words.insert(word.to_string());
                let mut path = vec![word.to_string()];
                while text(at + 1) == "::" && is_name(text(at + 2)) {
                    path.push(text(at + 2).to_string());
                    module.words.insert(text(at + 2).to_string());
                    at += 2;
                }
                if path.len() > 1 {
                    seen_from_file(&mut path, inline.len());
                    module.paths.push(path);
                }
            }
            _ => {}
        }
        at += 1;
    }
    (module, declared)
}

/// A path in a module that stands in the middle of a file, so many levels deep, as it would be at the top of the file.
fn seen_from_file(path: &mut Vec<String>, levels: usize) {
    let up = path.iter().take(levels).take_while(|name| *name == "super").count();
    if up > 0 {
        let goes_on_up = path.get(up).is_some_and(|name| name == "super");
        path.splice(..up, (!goes_on_up).then(|| "self".to_string()));
    }
}

/// Whether a token can stand right before an item.
fn is_before_item(token: &str) -> bool {
    matches!(token, "pub" | ")" | ";" | "{" | "}" | "]")
}

/// Reads a tree of `use` from a token on, up to what ends it. Gives where that is.
fn read_use(tokens: &[&str], mut at: usize, prefix: &mut Vec<String>, is_public: bool, imports: &mut Vec<Import>) -> usize {
    let length = prefix.len();
    let text = |at: usize| tokens.get(at).copied().unwrap_or(";");
    loop {
        match text(at) {
            "{" => {
                at += 1;
                while text(at) != "}" && text(at) != ";" {
                    at = read_use(tokens, at, prefix, is_public, imports);
                    at += usize::from(text(at) == ",");
                }
                at += 1;
                break;
            }
            "::" => at += 1,
            "," | "}" | ";" => {
                // `a::{self}` is `a`.
                if prefix.len() > 1 && prefix.last().is_some_and(|last| last == "self") {
                    prefix.pop();
                }
                let name = prefix.last().cloned().unwrap_or_default();
                imports.push(Import { path: prefix.clone(), name, is_public });
                break;
            }
            "as" => {
                imports.push(Import { path: prefix.clone(), name: text(at + 1).to_string(), is_public });
                at += 2;
                break;
            }
            "*" => {
                imports.push(Import { path: prefix.clone(), name: "*".to_string(), is_public });
                at += 1;
                break;
            }
            word => {
                prefix.push(word.to_string());
                at += 1;
            }
        }
    }
    prefix.truncate(length);
    at
}

/// Words, `::`, and every other character on its own.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        if !token.trim().is_empty() {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::samples::tree;
    use super::*;

    fn uses(files: &[(&str, &str)]) -> Vec<String> {
        let modules = Modules::of(&tree(files), "x/src/lib.rs");
        modules.uses().into_iter().map(|found| format!("{} -> {}: {}", &found.from[6..], &found.to[6..], found.name)).collect()
    }

    #[test]
    fn a_path_is_followed_to_the_file_that_defines_its_end() {
        let found = uses(&[
            ("x/src/lib.rs", "mod a;\nmod b;\npub use b::{c::Deep as Far, B};\n"),
            ("x/src/a.rs", "use crate::{B, Far};\nuse std::fmt;\nuse crate::b;\nfn f() { b::c::g(); fmt::x(); crate::b::h() }"),
            ("x/src/b/mod.rs", "pub mod c;\npub struct B;\npub fn h() {}"),
            ("x/src/b/c.rs", "use super::B;\npub struct Deep;\npub fn g() {}"),
        ]);
        let expected =
            ["a.rs -> b/c.rs: Deep", "a.rs -> b/c.rs: g", "a.rs -> b/mod.rs: B", "a.rs -> b/mod.rs: b", "a.rs -> b/mod.rs: h"];
        // `Far` is named as it is imported.
        assert_eq!(found, expected.map(|line| line.replace("Deep", "Far")));
    }

    #[test]
    fn who_declares_or_hands_on_uses_nothing_and_tests_do_not_count() {
        let found = uses(&[
            ("x/src/lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
            ("x/src/a.rs", "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }"),
            ("x/src/b.rs", "pub(crate) use crate::a::A;\npub struct B;\n#[cfg(test)]\nmod tests;"),
            ("x/src/b/tests.rs", "use crate::a::A;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_part_may_use_the_whole_but_not_the_root() {
        let found = uses(&[
            ("x/src/lib.rs", "mod a;\nmod b;\npub struct Root;\npub use other::Foreign;"),
            (
                "x/src/a.rs",
                "mod part;\npub(self) struct Whole;\nfn f() { part::g() }\nmod inline { use super::Whole; fn f() { super::super::Root } }",
            ),
            ("x/src/a/part.rs", "use super::Whole;\npub fn g() {}"),
            ("x/src/b.rs", "use crate::{Root, Foreign};"),
        ]);
        assert_eq!(found, ["a.rs -> a/part.rs: g", "a.rs -> lib.rs: Root", "b.rs -> lib.rs: Root"]);
    }

    #[test]
    fn what_is_handed_on_and_used_counts() {
        let found = uses(&[("x/src/lib.rs", "mod a;\npub use a::A;\npub fn f() -> A { A }\n"), ("x/src/a.rs", "pub struct A;")]);
        assert_eq!(found, ["lib.rs -> a.rs: A"]);
    }
}
