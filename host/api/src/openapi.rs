//! The description of the API in OpenAPI 3.1: written by hand beside this file, and tested against routes and shapes.

/// The document.
pub(crate) const TEXT: &str = include_str!("openapi.json");
