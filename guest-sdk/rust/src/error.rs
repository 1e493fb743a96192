//! The two ways an operator says no: reject one row, or fail the job.

use std::fmt;

/// Why an operator did not do what it was called for.
///
/// A *rejection* concerns one row: the host sends it to the dead-letter output or fails the job, as the job file's
/// `on_error` says. A *failure* always fails the job (which restarts from its last checkpoint, as its restart
/// strategy says).
///
/// `?` turns any `std::error::Error` into a failure; [`OrReject::or_reject`] makes it a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    rejection: bool,
    message: String,
}

impl Error {
    /// This row cannot be processed; go on with the next.
    #[cold]
    pub fn reject(reason: impl fmt::Display) -> Error {
        Error { rejection: true, message: reason.to_string() }
    }

    /// The operator cannot go on.
    #[cold]
    pub fn fail(reason: impl fmt::Display) -> Error {
        Error { rejection: false, message: reason.to_string() }
    }

    /// Whether it concerns one row only.
    pub fn is_rejection(&self) -> bool {
        self.rejection
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn into_message(self) -> String {
        self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// `Error` itself is no `std::error::Error`, which is what makes this conversion possible.
impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Error {
        Error::fail(error)
    }
}

/// Turns an error into a rejection of the row at hand.
pub trait OrReject<T> {
    /// `what` says what was attempted: "reading the amount".
    ///
    /// # Errors
    /// A rejection that holds `what` and the error.
    fn or_reject(self, what: &str) -> Result<T, Error>;
}

impl<T, E: fmt::Display> OrReject<T> for Result<T, E> {
    fn or_reject(self, what: &str) -> Result<T, Error> {
        self.map_err(|error| Error::reject(format_args!("{what}: {error}")))
    }
}

impl<T> OrReject<T> for Option<T> {
    fn or_reject(self, what: &str) -> Result<T, Error> {
        self.ok_or_else(|| Error::reject(what))
    }
}
