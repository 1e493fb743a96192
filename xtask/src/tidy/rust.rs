//! Rules about Rust files.

use super::source::{code_of, has_word, without_tests};
use super::{Finding, Tree};

const LINES_MAX: usize = 700;
/// Lines of a function: what can be seen whole.
const FUNCTION_LINES_MAX: usize = 70;
/// Functions that are longer, by file and name. Each gets shorter, none is added.
const LONG: &[(&str, &str)] =
    &[("host/cluster/src/chronicle.rs", "of_notice"), ("sim/src/scenario.rs", "job_file"), ("sim/src/scenario.rs", "new")];
/// The one crate that may hold unsafe code: memory images and page tracking.
const UNSAFE_HOMES: [&str; 2] = ["host/sandbox/", "guest-sdk/rust/src/scratch.rs"];

/// Lints that tests switch off without a word.
const FREE_IN_TESTS: [&str; 4] = ["clippy::unwrap_used", "clippy::expect_used", "clippy::print_stdout", "clippy::print_stderr"];

/// No file longer than a person reads in one go.
pub(super) fn lengths(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.with_extension(".rs") {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            let what = format!("{lines} lines; the limit is {LINES_MAX}");
            findings.push(Finding::new(&file.path, LINES_MAX + 1, what, "split it by what its parts own"));
        }
    }
}

/// No function longer than what can be seen whole. Tests tell a story from top to bottom, and may be longer.
pub(super) fn functions(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.with_extension(".rs").filter(|file| !is_test(&file.path)) {
        let code = code_of(&file.text);
        for (line, name, lines) in bodies(without_tests(&code)).filter(|(_, _, lines)| *lines > FUNCTION_LINES_MAX) {
            if LONG.contains(&(file.path.as_str(), name)) {
                continue;
            }
            let what = format!("{name} has {lines} lines; the limit is {FUNCTION_LINES_MAX}");
            findings.push(Finding::new(&file.path, line, what, "give its steps names: a function each"));
        }
    }
}

/// Whether a file is of tests only.
pub(super) fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.starts_with("tests/")
}

/// First line, name and number of lines of each function that has a body.
fn bodies(code: &str) -> impl Iterator<Item = (usize, &str, usize)> {
    let starts = code.match_indices("fn ").filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    starts.filter_map(|(at, _)| {
        let name = code[at + 3..].split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())?;
        let opens = at + code[at..].find(['{', ';'])?;
        let mut depth = 0usize;
        let length = code[opens..].find(|c| {
            depth = match c {
                '{' => depth + 1,
                '}' => depth.saturating_sub(1),
                _ => depth,
            };
            depth == 0
        })?;
        let lines = code[at..opens + length].matches('\n').count() + 1;
        Some((code[..at].matches('\n').count() + 1, name, lines))
    })
}

/// Unsafe code lives in one crate of the host, and in one file of what guests are built from, which lends their memory out.
pub(super) fn unsafety(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.with_extension(".rs").filter(|file| !UNSAFE_HOMES.iter().any(|home| file.path.starts_with(home))) {
        for (number, line) in code_of(&file.text).lines().enumerate() {
            // `#[unsafe(no_mangle)]` states a fact about a symbol; it opens no block.
            if has_word(line, "unsafe") && !line.contains("#[unsafe(") {
                let hint = "only host/sandbox may; find a safe crate, or move the code there";
                findings.push(Finding::new(&file.path, number + 1, "unsafe code outside the sandbox crate", hint));
            }
        }
    }
}

/// Whoever switches a lint off says why. Tests may unwrap and print without a word.
pub(super) fn allows(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.with_extension(".rs") {
        let code = code_of(&file.text);
        let lines: Vec<&str> = file.text.lines().collect();
        for start in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for (at, _) in code.match_indices(start) {
                let end = code[at..].find(")]").map_or(code.len(), |length| at + length);
                let inside = &code[at + start.len()..end];
                let number = code[..at].matches('\n').count();
                let is_free =
                    |lint: &str| FREE_IN_TESTS.contains(&lint) || (lint == "missing_docs" && file.path.contains("/tests/"));
                let is_for_tests = inside.split(',').all(|lint| is_free(lint.trim()));
                let has_comment = lines.get(number).is_some_and(|line| line.contains("//"))
                    || number > 0 && lines.get(number - 1).is_some_and(|line| line.trim_start().starts_with("// "));
                if !is_for_tests && !has_comment && !has_word(inside, "reason") {
                    let what = format!("{inside} is switched off without a reason");
                    findings.push(Finding::new(&file.path, number + 1, what, "write it: #[allow(lint, reason = \"...\")]"));
                }
            }
        }
    }
}

/// Nothing that was left for later in code.
pub(super) fn leftovers(tree: &Tree, findings: &mut Vec<Finding>) {
    for file in tree.with_extension(".rs") {
        for (number, line) in code_of(&file.text).lines().enumerate() {
            for name in ["dbg!", "todo!", "unimplemented!"].iter().filter(|name| line.contains(**name)) {
                findings.push(Finding::new(
                    &file.path,
                    number + 1,
                    format!("{name} left in the code"),
                    "remove it, or build what is missing",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{places, tree};
    use super::*;

    #[test]
    fn a_file_over_the_limit_is_found_and_one_at_the_limit_is_not() {
        let tree =
            tree(&[("a.rs", &"//\n".repeat(LINES_MAX)), ("b.rs", &"//\n".repeat(LINES_MAX + 1)), ("c.md", &"\n".repeat(9999))]);
        assert_eq!(places(&tree, lengths), [format!("b.rs:{}", LINES_MAX + 1)]);
    }

    #[test]
    fn a_function_over_the_limit_is_found_whatever_its_text_holds() {
        let body = |lines: usize| format!("fn f() {{\n{}}}\n", "    g('{', \"}\"); // }\n".repeat(lines - 2));
        let both = format!("trait T {{ fn h(); }}\n{}{}", body(FUNCTION_LINES_MAX), body(FUNCTION_LINES_MAX + 1));
        let tree = tree(&[("a.rs", &both), ("a/tests/b.rs", &both), ("c.rs", &format!("#[cfg(test)]\nmod tests {{ {both} }}"))]);
        assert_eq!(places(&tree, functions), [format!("a.rs:{}", FUNCTION_LINES_MAX + 2)]);
    }

    #[test]
    fn unsafe_is_found_outside_the_sandbox_only_and_only_in_code() {
        let tree = tree(&[
            ("host/task/src/a.rs", "// unsafe is fine here\nunsafe { f() }\n"),
            ("host/sandbox/src/b.rs", "unsafe { f() }"),
            ("host/task/src/c.rs", "#![deny(unsafe_code)]\nlet s = \"unsafe\";\n#[unsafe(no_mangle)]\n"),
        ]);
        assert_eq!(places(&tree, unsafety), ["host/task/src/a.rs:2"]);
    }

    #[test]
    fn an_allow_needs_a_reason_or_a_comment() {
        let tree = tree(&[
            ("a.rs", "fn f() {}\n#[allow(dead_code)]\nfn g() {}"),
            ("b.rs", "#[allow(dead_code, reason = \"called by the guest\")]\nfn g() {}"),
            ("c.rs", "// The guest calls it.\n#[allow(dead_code)]\nfn g() {}"),
            ("d.rs", "#![allow(clippy::unwrap_used)]"),
            ("x/tests/it/main.rs", "#![allow(clippy::unwrap_used, missing_docs)]"),
            ("e.rs", "#[expect(clippy::too_many_arguments)]\nfn h() {}"),
        ]);
        assert_eq!(places(&tree, allows), ["a.rs:2", "e.rs:1"]);
    }

    #[test]
    fn leftovers_are_found_in_code_and_not_in_strings() {
        let tree = tree(&[("a.rs", "fn f() {\n    dbg!(1);\n}\n"), ("b.rs", "let s = \"dbg!\"; // todo!")]);
        assert_eq!(places(&tree, leftovers), ["a.rs:2"]);
    }
}
