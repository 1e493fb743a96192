//! The `config` table of a window operator, and what it means once checked.

use std::borrow::Cow;

use weir_sdk::Span;
use weir_sdk::json::Path;
use weir_sdk::prelude::*;
use weir_sdk::schemars::{Schema, SchemaGenerator, json_schema};

use crate::grid::{Grid, greatest_common_divisor};

/// The output of rows that came too late.
pub(crate) const LATE: u32 = 1;

/// How time is divided, and what is computed over the rows of a window.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Config {
    /// How windows lie in time
    kind: Kind,
    /// Length of a tumbling or sliding window
    size: Option<Span>,
    /// Sliding only: distance between the starts of windows, at most `size`
    slide: Option<Span>,
    /// Session only: the pause that ends a session
    gap: Option<Span>,
    /// What is computed, one or a list
    #[serde(default = "count")]
    #[schemars(extend("default" = "count"))]
    aggregate: OneOrMany,
    /// Path of the number to aggregate; needed unless rows are only counted
    field: Option<Path>,
    /// How that number is taken; `rounded` if this is not given
    numbers: Option<NumberKind>,
    /// How long after its end a window still takes rows
    #[serde(default)]
    allowed_lateness: Span,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// Windows of `size`, side by side.
    Tumbling,
    /// Windows of `size`, one every `slide`.
    Sliding,
    /// Rows with less than `gap` between them.
    Session,
}

/// What is computed over the rows of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Aggregate {
    Count,
    Sum,
    Min,
    Max,
    Mean,
}

/// How the numbers of a field are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NumberKind {
    /// As they are; those with more than 9 digits after the point are rejected.
    Exact,
    /// To 9 digits after the point.
    #[default]
    Rounded,
    /// As doubles: of any size, not exact.
    Float,
}

#[derive(Debug)]
struct OneOrMany(Vec<Aggregate>);

fn count() -> OneOrMany {
    OneOrMany(vec![Aggregate::Count])
}

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Aggregate>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<OneOrMany, D::Error> {
        use serde::de::{IntoDeserializer, SeqAccess, Visitor};
        struct AggregateVisitor;
        impl<'de> Visitor<'de> for AggregateVisitor {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("count, sum, min, max or mean, or a list of them")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany(vec![Aggregate::deserialize(text.into_deserializer())?]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMany, A::Error> {
                let mut aggregates = Vec::new();
                while let Some(aggregate) = items.next_element()? {
                    aggregates.push(aggregate);
                }
                Ok(OneOrMany(aggregates))
            }
        }
        deserializer.deserialize_any(AggregateVisitor)
    }
}

/// How time is divided. All spans are in milliseconds and positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Shape {
    /// Tumbling and sliding windows.
    Fixed(Grid),
    /// Rows with less than `gap` between them.
    Session {
        /// The pause that ends a session.
        gap: i64,
    },
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How time is divided.
    pub(crate) shape: Shape,
    /// What is computed, in the order of the output's fields.
    pub(crate) aggregates: Vec<Aggregate>,
    /// The number in the value that is aggregated; none where only rows are counted.
    pub(crate) field: Option<Path>,
    /// How that number is taken.
    pub(crate) numbers: NumberKind,
    /// How long after its end a window still takes rows, in milliseconds.
    pub(crate) lateness: i64,
}

/// Panes a sliding window may consist of.
const PANES_MAX: i64 = 10_000;

impl Config {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// The key and what is wrong with it.
    pub(crate) fn check(self) -> Result<Plan, Error> {
        let aggregates = self.aggregate.0;
        let fail = |text: String| Err(Error::fail(text));
        if aggregates.is_empty() {
            return fail("config.aggregate: name at least one of count, sum, min, max, mean".to_owned());
        }
        let needs_field = aggregates.iter().any(|&aggregate| aggregate != Aggregate::Count);
        match (&self.field, needs_field) {
            (None, true) => {
                return fail(
                    "config.field: say which number of the value to aggregate, for example field = \"amount\"".to_owned(),
                );
            }
            (Some(_), false) => {
                return fail("config.field: count alone does not look at a field; remove it or add an aggregate".to_owned());
            }
            _ => {}
        }
        if self.numbers.is_some() && !needs_field {
            return fail("config.numbers: count alone does not look at numbers; remove it or add an aggregate".to_owned());
        }
        let positive = |key: &str, span: Option<Span>| match span {
            Some(span) if span.ms() > 0 => Ok(span.ms()),
            Some(_) => Err(Error::fail(format!("config.{key}: must be longer than 0"))),
            None => Err(Error::fail(format!("config: key `{key}` is missing, for example {key} = \"5m\""))),
        };
        let absent = |key: &str, span: Option<Span>, kind: &str| match span {
            Some(_) => Err(Error::fail(format!("config.{key}: has no meaning for a {kind} window"))),
            None => Ok(()),
        };
        let shape = match self.kind {
            Kind::Tumbling => {
                absent("slide", self.slide, "tumbling")?;
                absent("gap", self.gap, "tumbling")?;
                let size = positive("size", self.size)?;
                Shape::Fixed(Grid::new(size, size))
            }
            Kind::Sliding => {
                absent("gap", self.gap, "sliding")?;
                let (size, slide) = (positive("size", self.size)?, positive("slide", self.slide)?);
                if slide > size {
                    return fail(format!(
                        "config.slide: {slide} ms is longer than size ({size} ms): rows between windows would be lost"
                    ));
                }
                if size / greatest_common_divisor(size, slide) > PANES_MAX {
                    return fail(format!(
                        "config.slide: {slide} ms divides {size} ms into more than {PANES_MAX} parts; choose a slide that fits size"
                    ));
                }
                Shape::Fixed(Grid::new(size, slide))
            }
            Kind::Session => {
                absent("size", self.size, "session")?;
                absent("slide", self.slide, "session")?;
                Shape::Session { gap: positive("gap", self.gap)? }
            }
        };
        let numbers = self.numbers.unwrap_or_default();
        Ok(Plan { shape, aggregates, field: self.field, numbers, lateness: self.allowed_lateness.ms() })
    }
}
