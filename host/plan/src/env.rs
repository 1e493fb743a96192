//! Environment variables in strings: `${NAME}`, `${NAME:-default}`; `$${` stands for `${` itself.
//!
//! A variable may be long and stand in many places, so what a job's strings become is bounded as a whole, and nothing is copied
//! beyond that.

use weir_model::limits::JOB_STRINGS_BYTES_MAX;

use crate::diagnostics::Code;
use crate::problems::Problems;
use crate::tree::{Data, Document, Node, Origin};

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the variables in all strings of the document. What cannot be replaced is reported and becomes missing.
pub(crate) fn expand(document: &mut Document, env: Lookup<'_>, problems: &mut Problems) {
    let source = document.text.clone();
    let mut left = JOB_STRINGS_BYTES_MAX;
    Expansion { source: &source, env, left: &mut left, problems }.node(&mut document.root);
}

struct Expansion<'a> {
    source: &'a str,
    env: Lookup<'a>,
    /// Bytes that the strings which are still to come may have.
    left: &'a mut usize,
    problems: &'a mut Problems,
}

impl Expansion<'_> {
    fn node(&mut self, node: &mut Node) {
        match &mut node.data {
            Data::Array(items) => items.iter_mut().for_each(|item| self.node(item)),
            Data::Table(entries) => entries.iter_mut().for_each(|entry| self.node(&mut entry.node)),
            Data::String { text, loose } => match expand_text(text, *loose, self.env, *self.left) {
                Ok((text, loose)) => {
                    *self.left -= text.len();
                    node.data = Data::String { text, loose };
                }
                Err(wrong) => {
                    let origin = place_within(&node.origin, self.source, &wrong.at);
                    self.problems.error(Code::Environment, &origin, wrong.message, Some(wrong.hint));
                    node.data = Data::Missing;
                }
            },
            _ => {}
        }
    }
}

struct Wrong {
    /// The text that is wrong.
    at: String,
    message: String,
    hint: String,
}

/// The text with its variables replaced, of `left` bytes at most, and whether it stands for a value of any type: it did
/// before, or had a variable.
fn expand_text(text: &str, loose: bool, env: Lookup<'_>, left: usize) -> Result<(String, bool), Wrong> {
    let (mut expanded, mut replaced, mut rest) = (String::new(), loose, text);
    let too_long = |at: &str| {
        let message = format!("with its variables the job has more than {} KiB of text", JOB_STRINGS_BYTES_MAX >> 10);
        Wrong { at: at.to_owned(), message, hint: "name a file in place of a value that is long".to_owned() }
    };
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            expanded.push_str(&rest[..start - 1]);
            expanded.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        expanded.push_str(&rest[..start]);
        let literal = "write `$${` where the text itself is meant".to_owned();
        let Some(length) = rest[start..].find('}') else {
            let message = "environment variable without a closing `}`".to_owned();
            return Err(Wrong { at: rest[start..].to_owned(), message, hint: literal });
        };
        let at = &rest[start..=start + length];
        let inner = &at[2..at.len() - 1];
        let (name, default) = inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
        if !is_variable_name(name) {
            let message = format!("`{at}` does not name an environment variable");
            return Err(Wrong { at: at.to_owned(), message, hint: literal });
        }
        // As in a shell, a default also stands in for an empty value.
        let value = env(name);
        let value = match (&value, default) {
            (Some(value), None) => value,
            (Some(value), Some(_)) if !value.is_empty() => value,
            (_, Some(default)) => default,
            (None, None) => {
                let message = format!("environment variable `{name}` is not set");
                return Err(Wrong {
                    at: at.to_owned(),
                    message,
                    hint: format!("set it, or give a default: ${{{name}:-default}}"),
                });
            }
        };
        if expanded.len() + value.len() > left {
            return Err(too_long(at));
        }
        expanded.push_str(value);
        replaced = true;
        rest = &rest[start + length + 1..];
    }
    if expanded.len() + rest.len() > left {
        return Err(too_long(text));
    }
    expanded.push_str(rest);
    Ok((expanded, replaced))
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The place of a part of a string within the string's text in the file; the whole string if escapes hide it.
fn place_within(origin: &Origin, source: &str, part: &str) -> Origin {
    match origin {
        Origin::File(span) => match source.get(span.clone()).and_then(|text| text.find(part)) {
            Some(offset) => Origin::File(span.start + offset..span.start + offset + part.len()),
            None => origin.clone(),
        },
        Origin::Flag(_) => origin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<(String, bool), String> {
        let env = |name: &str| match name {
            "HOME" => Some("/home/me".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand_text(text, false, &env, 64).map_err(|wrong| wrong.message)
    }

    #[test]
    fn s135_nothing_is_copied_beyond_what_a_job_may_be() {
        for text in ["${HOME}".repeat(9), "${HOME:-}".repeat(9), "x".repeat(65), format!("{}${{HOME}}", "x".repeat(60))] {
            let wrong = expanded(&text).unwrap_err();
            assert!(wrong.contains("more than 512 KiB of text"), "{text}: {wrong}");
        }
        assert!(expanded(&"${HOME}".repeat(8)).is_ok());
    }

    #[test]
    fn replaces_variables_and_defaults() {
        let cases = [
            ("${HOME}/x", "/home/me/x"),
            ("a${HOME}b${HOME}", "a/home/meb/home/me"),
            ("${NONE:-d}", "d"),
            ("${NONE:-}", ""),
            ("${EMPTY}", ""),
            ("${EMPTY:-d}", "d"),
            ("${HOME:-d}", "/home/me"),
            ("${NONE:-a:-b}", "a:-b"),
        ];
        for (text, expected) in cases {
            assert_eq!(expanded(text), Ok((expected.to_owned(), true)), "{text}");
        }
        assert_eq!(expanded("$${HOME} $5"), Ok(("${HOME} $5".to_owned(), false)));
    }

    #[test]
    fn names_what_is_wrong() {
        assert_eq!(expanded("${NONE}"), Err("environment variable `NONE` is not set".to_owned()));
        assert_eq!(expanded("${HOME"), Err("environment variable without a closing `}`".to_owned()));
        assert_eq!(expanded("${}"), Err("`${}` does not name an environment variable".to_owned()));
        assert_eq!(expanded("${a-b}"), Err("`${a-b}` does not name an environment variable".to_owned()));
    }
}
