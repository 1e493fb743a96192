//! Problems found in a job file, shown as a compiler shows them: message, place, the line with a caret, a hint.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weir_model::ErrorNumber;

/// How much a problem matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The job cannot run.
    Error,
    /// The job runs, perhaps not as meant.
    Warning,
}

/// What kind of problem it is. Each has a page in docs/errors/.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The file is not TOML.
    Syntax,
    /// A key or table that nothing reads.
    UnknownKey,
    /// A value is missing, of the wrong type or out of range.
    Value,
    /// Vertices and edges do not make a graph that can run.
    Graph,
    /// An environment variable that the file refers to.
    Environment,
    /// A `--set` that names nothing.
    Override,
    /// A connector or component does not accept a setting.
    Setting,
}

impl Code {
    /// The number under which docs/errors/ explains it.
    pub fn number(self) -> ErrorNumber {
        match self {
            Code::Syntax => ErrorNumber::JobFileSyntax,
            Code::UnknownKey => ErrorNumber::UnknownKey,
            Code::Value => ErrorNumber::WrongValue,
            Code::Graph => ErrorNumber::WrongGraph,
            Code::Environment => ErrorNumber::EnvironmentUnset,
            Code::Override => ErrorNumber::OverrideNamesNothing,
            Code::Setting => ErrorNumber::SettingRefused,
        }
    }
}

/// Where a problem is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the job file.
    File {
        /// The file's name as the caller gave it.
        file: Arc<str>,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Characters the problem spans on that line, at least 1.
        length: usize,
        /// The line's text; of a long line, what is around the problem.
        text: String,
        /// Characters of the line before that text.
        skipped: usize,
    },
    /// In a command-line flag, as given.
    Flag(String),
}

impl Place {
    /// The place of a span of bytes in a text. Spans that reach beyond the text or into a character are cut.
    pub(crate) fn of_span(file: &Arc<str>, text: &str, span: &Range<usize>) -> Place {
        let start = floor_char_boundary(text, span.start);
        let end = floor_char_boundary(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
        let column = text[line_start..start].chars().count() + 1;
        // A long line is shown from a little before the problem.
        let skipped = if column > LINE_SHOWN_CHARS_MAX { column - 40 } else { 0 };
        let line = text[line_start..line_end].trim_end_matches('\r');
        Place::File {
            file: file.clone(),
            line: text[..line_start].matches('\n').count() + 1,
            column,
            length: text[start..end.min(line_end)].chars().count().max(1),
            text: line.chars().skip(skipped).take(LINE_SHOWN_CHARS_MAX).collect(),
            skipped,
        }
    }
}

fn floor_char_boundary(text: &str, index: usize) -> usize {
    let mut index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How much it matters.
    pub severity: Severity,
    /// What kind it is.
    pub code: Code,
    /// What is wrong, with names and values.
    pub message: String,
    /// Where.
    pub place: Place,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The longest part of a source line shown.
const LINE_SHOWN_CHARS_MAX: usize = 160;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.severity {
            Severity::Error => write!(f, "error[{}]: {}", self.code.number(), self.message)?,
            Severity::Warning => write!(f, "warning: {}", self.message)?,
        }
        match &self.place {
            Place::Flag(flag) => write!(f, "\n --> {flag}")?,
            Place::File { file, line, column, length, text, skipped } => {
                let number = line.to_string();
                let margin = " ".repeat(number.len());
                write!(f, "\n{margin}--> {file}:{line}:{column}\n{margin} |\n{number} |")?;
                let shown: String = text.chars().map(printable).collect();
                let before: String = shown.chars().take((column - 1).saturating_sub(*skipped)).collect();
                let carets = (*length).min(shown.chars().count().saturating_sub(before.chars().count())).max(1);
                let blank: String = before.chars().map(|_| ' ').collect();
                write!(f, " {shown}\n{margin} | {blank}{}", "^".repeat(carets))?;
            }
        }
        let margin = match &self.place {
            Place::File { line, .. } => " ".repeat(line.to_string().len()),
            Place::Flag(_) => " ".to_owned(),
        };
        match &self.hint {
            Some(hint) => write!(f, "\n{margin} = hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Control characters would move the caret or the reader's terminal.
fn printable(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// Problems, in the order of the file. An `Err` holds at least one error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds others.
    pub fn extend(&mut self, others: Diagnostics) {
        self.0.extend(others.0);
    }

    /// The problems.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
