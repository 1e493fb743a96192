//! Collects problems while a job file is read.

use weir_model::limits::JOB_PROBLEMS_MAX;

use crate::diagnostics::{Code, Diagnostic, Diagnostics, Place, Severity};
use crate::tree::{Document, Origin};

/// Problems found so far; of more than the first [`JOB_PROBLEMS_MAX`] of a kind only how many there are.
#[derive(Default)]
pub(crate) struct Problems {
    found: Vec<FoundProblem>,
    /// Errors and warnings beyond.
    more: [usize; 2],
}

struct FoundProblem {
    severity: Severity,
    code: Code,
    origin: Origin,
    message: String,
    hint: Option<String>,
}

impl Problems {
    pub(crate) fn error(&mut self, code: Code, origin: &Origin, message: impl Into<String>, hint: Option<String>) {
        let found = FoundProblem { severity: Severity::Error, code, origin: origin.clone(), message: message.into(), hint };
        self.keep(found);
    }

    pub(crate) fn warning(&mut self, code: Code, origin: &Origin, message: impl Into<String>, hint: Option<String>) {
        let found = FoundProblem { severity: Severity::Warning, code, origin: origin.clone(), message: message.into(), hint };
        self.keep(found);
    }

    fn keep(&mut self, found: FoundProblem) {
        if self.found.iter().filter(|other| other.severity == found.severity).count() < JOB_PROBLEMS_MAX {
            self.found.push(found);
        } else {
            self.more[usize::from(found.severity == Severity::Warning)] += 1;
        }
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.iter().any(|found| found.severity == Severity::Error)
    }

    /// The errors, or the warnings if there is no error; in the order of the file, flags last.
    pub(crate) fn into_result(self, document: &Document) -> Result<Diagnostics, Diagnostics> {
        let failed = self.has_errors();
        let wanted = if failed { Severity::Error } else { Severity::Warning };
        let mut diagnostics: Vec<Diagnostic> = Vec::new();
        for found in self.found.into_iter().filter(|found| found.severity == wanted) {
            let FoundProblem { severity, code, origin, message, hint } = found;
            diagnostics.push(Diagnostic { severity, code, message, place: document.place(&origin), hint });
        }
        diagnostics.sort_by_key(|diagnostic| match &diagnostic.place {
            Place::File { line, column, .. } => (*line, *column),
            Place::Flag(_) => (usize::MAX, 0),
        });
        let more = self.more[usize::from(!failed)];
        if let (1.., Some(last)) = (more, diagnostics.last_mut()) {
            last.message.push_str(&format!(" (and {more} more problems like this or others)"));
        }
        if failed { Err(Diagnostics(diagnostics)) } else { Ok(Diagnostics(diagnostics)) }
    }
}

/// "did you mean `x`?", or the list of what is valid when it is short.
pub(crate) fn suggest(name: &str, candidates: &[&str]) -> Option<String> {
    match crate::nearest(name, candidates.iter().copied()) {
        Some(meant) => Some(format!("did you mean `{meant}`?")),
        None if candidates.is_empty() => None,
        None if candidates.len() <= 12 => Some(format!("valid: {}", candidates.join(", "))),
        None => None,
    }
}
