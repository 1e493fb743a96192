//! What can go wrong with stored components, and what the caller can do about it.

use weir_model::ErrorNumber;

/// What a caller can do about a [`ComponentError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentErrorKind {
    /// This is not a name and a version, or there is no such component.
    Unknown,
    /// The name and version stand for other bytes.
    Taken,
    /// The disk did not do it.
    Io,
    /// What is stored is not what was pushed.
    Damaged,
}

/// A component cannot be stored, found or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ComponentError {
    /// What the caller can do.
    pub kind: ComponentErrorKind,
    /// Number of the error's page.
    pub code: ErrorNumber,
    /// What was attempted and why it failed.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl ComponentError {
    pub(super) fn new(kind: ComponentErrorKind, message: String) -> ComponentError {
        let code = match kind {
            ComponentErrorKind::Unknown => ErrorNumber::NoSuchComponent,
            ComponentErrorKind::Taken => ErrorNumber::VersionTaken,
            ComponentErrorKind::Io => ErrorNumber::FileInaccessible,
            ComponentErrorKind::Damaged => ErrorNumber::StoreDamaged,
        };
        ComponentError { kind, code, message, hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> ComponentError {
        self.hint = Some(hint.into());
        self
    }
}
