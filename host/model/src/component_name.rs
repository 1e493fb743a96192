//! What a component may be called: one rule for job files, stores and people who push.

/// Whether a text may be the name of a component.
pub fn is_component_name(text: &str) -> bool {
    is_component_version(text) && !text.contains('+')
}

/// Whether a text may be the version of a component.
pub fn is_component_version(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || ['.', '_', '-', '+'].contains(&c))
}
