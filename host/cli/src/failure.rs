//! Errors as users see them: what was attempted, why it failed, a hint; with a number that docs/errors/ explains, and an
//! exit code.

use std::borrow::Cow;
use std::fmt;
use std::process::ExitCode;

use weir_plan::Diagnostics;

use crate::output::{self, Colour};

/// How the process ends. Scripts rely on these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The job, or what was asked for, failed.
    Failed = 1,
    /// Arguments, configuration or job file are wrong.
    Usage = 2,
    /// The cluster cannot be reached.
    Unreachable = 3,
    /// What was asked for is not allowed: other bytes under a taken version, a component that breaks the rules.
    Refused = 4,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// An error with all that a user needs.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The page in docs/errors/, such as "E0020".
    pub(crate) number: Cow<'static, str>,
    /// How the process ends.
    pub(crate) exit: Exit,
    /// What was attempted and why it failed.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(number: impl Into<Cow<'static, str>>, exit: Exit, message: impl Into<String>) -> Failure {
        Failure { number: number.into(), exit, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)
    }
}

impl std::error::Error for Failure {}

/// Tells the user of an error and gives the exit code.
pub(crate) fn report(error: &anyhow::Error, colour: Colour) -> ExitCode {
    if output::is_closed_pipe(error) {
        return ExitCode::SUCCESS;
    }
    if let Some(problems) = error.downcast_ref::<Diagnostics>() {
        let mut numbers: Vec<&str> = problems.iter().map(|found| found.code.number().as_str()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        output::message(&format!("{problems}\n{}", says_more(&numbers.join(" "))), colour);
        return Exit::Usage.into();
    }
    match error.downcast_ref::<Failure>() {
        Some(failure) => {
            let hint = failure.hint.as_ref().map(|hint| format!("\n  = hint: {hint}")).unwrap_or_default();
            let more = says_more(&failure.number);
            output::message(&format!("error[{}]: {error:#}{hint}\n{more}", failure.number), colour);
            failure.exit.into()
        }
        None => {
            output::message(&format!("error: {error:#}"), colour);
            Exit::Failed.into()
        }
    }
}

/// The last line of an error: where its page is.
fn says_more(numbers: &str) -> String {
    format!("`weir explain {numbers}` says more")
}
