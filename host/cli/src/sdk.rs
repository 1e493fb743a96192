//! The guest SDK, the templates of new components, the examples and the pages about errors, as they were when this binary was built.
//!
//! They are part of the binary so that `weir component new` needs nothing but cargo, and `weir explain` no checkout.

/// A file: its path with `/` between parts, and its text.
pub(crate) type EmbeddedFile = (&'static str, &'static str);

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sdk_is_whole_and_stands_alone() {
        let text = |path: &str| RUST_SDK.iter().find(|(known, _)| *known == path).map(|(_, text)| *text);
        for path in ["Cargo.toml", "src/lib.rs", "wit/weir.wit"] {
            assert!(text(path).is_some_and(|text| !text.is_empty()), "{path}");
        }
        let manifest = text("Cargo.toml").unwrap_or_default();
        let inherits = manifest.lines().any(|line| !line.starts_with('#') && line.contains("workspace = true"));
        assert!(!inherits, "outside this workspace there is nothing to inherit from");
    }
}
