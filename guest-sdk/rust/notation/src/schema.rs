//! What is written by these rules, as JSON Schema says it: for configurations that have a field of JSON or a format of times.

use alloc::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::json::Path;
use crate::time::TimeFormat;

impl JsonSchema for Path {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Path".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "examples": ["user.id", "/user/id"] })
    }
}

impl JsonSchema for TimeFormat {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "TimeFormat".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": TimeFormat::NAMES })
    }
}
