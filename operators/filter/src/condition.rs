//! A condition on one field of a JSON value.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserializer, Error as _, Visitor};
use weir_sdk::json::{Malformed, NoText, Number, Path, Raw};
use weir_sdk::prelude::*;
use weir_sdk::schemars::{Schema, SchemaGenerator, json_schema};

/// What must hold for a field: all that is given. A field that is missing or null meets nothing but `exists = false`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Condition {
    /// Path of the field in the value
    field: Path,
    /// It is equal to this
    eq: Option<Scalar>,
    /// It is not equal to this
    ne: Option<Scalar>,
    /// It is less than this
    #[schemars(extend("type" = ORDERED))]
    lt: Option<Scalar>,
    /// It is at most this
    #[schemars(extend("type" = ORDERED))]
    le: Option<Scalar>,
    /// It is greater than this
    #[schemars(extend("type" = ORDERED))]
    gt: Option<Scalar>,
    /// It is at least this
    #[schemars(extend("type" = ORDERED))]
    ge: Option<Scalar>,
    /// Its text has this in it
    contains: Option<String>,
    /// Its text begins with this
    prefix: Option<String>,
    /// It is there and not null, or is not
    exists: Option<bool>,
}

/// Types that have an order.
const ORDERED: [&str; 3] = ["string", "number", "null"];

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scalar {
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
}

impl JsonSchema for Scalar {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Scalar".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct ScalarVisitor;
        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number, true or false")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar::Bool(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value.to_string()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar::Number(value.to_string()))
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Scalar, E> {
                if !value.is_finite() {
                    return Err(E::custom("expected a number that is finite"));
                }
                // The shortest text that means this number: 0.1 is a tenth here, as it is in the job file.
                Ok(Scalar::Number(value.to_string()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(ScalarVisitor).map_err(D::Error::custom)
    }
}

impl Condition {
    /// Checks what the types cannot say.
    pub(crate) fn check(&self) -> Result<(), String> {
        let ordered = [("lt", &self.lt), ("le", &self.le), ("gt", &self.gt), ("ge", &self.ge)];
        if let Some((name, _)) = ordered.iter().find(|(_, scalar)| matches!(scalar, Some(Scalar::Bool(_)))) {
            return Err(format!("{name} compares numbers or texts, not true and false"));
        }
        let texts = self.contains.is_some() || self.prefix.is_some();
        let scalars = self.eq.is_some() || self.ne.is_some() || ordered.iter().any(|(_, scalar)| scalar.is_some());
        if !texts && !scalars && self.exists.is_none() {
            return Err(format!("say what `{}` must be: eq, ne, lt, le, gt, ge, contains, prefix or exists", self.field));
        }
        Ok(())
    }

    /// Whether it holds for a value.
    ///
    /// # Errors
    /// If the value is not JSON, or a text is asked for that is none.
    pub(crate) fn holds(&self, value: &[u8]) -> Result<bool, Unreadable> {
        let raw = self.field.find(value)?.filter(|raw| !raw.is_null());
        if self.exists.is_some_and(|exists| exists != raw.is_some()) {
            return Ok(false);
        }
        let Some(raw) = raw else { return Ok(self.exists == Some(false)) };
        let is = |wanted: &Option<Scalar>, accept: fn(Option<Ordering>) -> bool| match wanted {
            Some(wanted) => accept(compare(raw, wanted)),
            None => true,
        };
        // What a text is compared with must be looked at: no row is dropped because it could not be read.
        if raw.bytes().first() == Some(&b'"') && self.looks_at_text() {
            raw.text().map_err(|reason| Unreadable::Text(self.field.clone(), reason))?;
        }
        let text = |wanted: &Option<String>, accept: fn(&[u8], &[u8]) -> bool| match wanted {
            Some(wanted) => raw.scalar().is_some_and(|text| accept(&text, wanted.as_bytes())),
            None => true,
        };
        Ok(is(&self.eq, |order| order == Some(Ordering::Equal))
            && is(&self.ne, |order| order != Some(Ordering::Equal))
            && is(&self.lt, |order| order == Some(Ordering::Less))
            && is(&self.le, |order| matches!(order, Some(Ordering::Less | Ordering::Equal)))
            && is(&self.gt, |order| order == Some(Ordering::Greater))
            && is(&self.ge, |order| matches!(order, Some(Ordering::Greater | Ordering::Equal)))
            && text(&self.contains, |text, part| part.is_empty() || text.windows(part.len()).any(|window| window == part))
            && text(&self.prefix, |text, part| text.starts_with(part)))
    }
}

impl Condition {
    fn looks_at_text(&self) -> bool {
        let scalars = [&self.eq, &self.ne, &self.lt, &self.le, &self.gt, &self.ge];
        self.contains.is_some() || self.prefix.is_some() || scalars.iter().any(|scalar| matches!(scalar, Some(Scalar::Text(_))))
    }
}

/// Why a condition cannot be looked at.
#[derive(Debug)]
pub(crate) enum Unreadable {
    Json(Malformed),
    Text(Path, NoText),
}

impl From<Malformed> for Unreadable {
    fn from(error: Malformed) -> Unreadable {
        Unreadable::Json(error)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Json(error) => error.fmt(f),
            Unreadable::Text(field, reason) => write!(f, "field `{field}` {reason}"),
        }
    }
}

/// How a field compares with a scalar of the same type; `None` if it is of another type.
fn compare(raw: Raw<'_>, wanted: &Scalar) -> Option<Ordering> {
    let first = *raw.bytes().first()?;
    match wanted {
        Scalar::Bool(wanted) => match raw.bytes() {
            b"true" => Some(true.cmp(wanted)),
            b"false" => Some(false.cmp(wanted)),
            _ => None,
        },
        Scalar::Number(wanted) if first != b'"' => Some(Number::parse(raw.bytes())?.cmp(&Number::parse(wanted.as_bytes())?)),
        Scalar::Text(wanted) if first == b'"' => Some((*raw.scalar()?).cmp(wanted.as_bytes())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn holds(condition: &str) -> bool {
        let condition: Condition = weir_sdk::config::read(condition).unwrap();
        condition.check().unwrap();
        condition.holds(br#"{"n":0.10,"t":"grape","b":false,"z":null,"o":{"i":3}}"#).unwrap()
    }

    #[test]
    fn conditions_compare_by_type() {
        for condition in [
            r#"{"field":"n","eq":0.1}"#,
            r#"{"field":"n","ne":0.2}"#,
            r#"{"field":"n","lt":1,"gt":0}"#,
            r#"{"field":"n","le":0.1,"ge":0.1}"#,
            r#"{"field":"t","eq":"grape","contains":"rap","prefix":"gr"}"#,
            r#"{"field":"t","gt":"apple"}"#,
            r#"{"field":"t","ne":5}"#,
            r#"{"field":"b","eq":false}"#,
            r#"{"field":"o.i","ge":3}"#,
            r#"{"field":"o","exists":true}"#,
            r#"{"field":"z","exists":false}"#,
            r#"{"field":"missing","exists":false}"#,
        ] {
            assert!(holds(condition), "{condition}");
        }
        for condition in [
            r#"{"field":"n","eq":"0.1"}"#,
            r#"{"field":"t","lt":5}"#,
            r#"{"field":"t","contains":"grapes"}"#,
            r#"{"field":"b","eq":true}"#,
            r#"{"field":"missing","ne":1}"#,
            r#"{"field":"z","exists":true}"#,
            r#"{"field":"n","exists":false}"#,
            r#"{"field":"o","eq":"x"}"#,
        ] {
            assert!(!holds(condition), "{condition}");
        }
    }

    fn compares(number: &str, condition: &str) -> bool {
        let condition: Condition = weir_sdk::config::read(&format!("{{\"field\":\"n\",{condition}}}")).unwrap();
        condition.holds(format!("{{\"n\":{number}}}").as_bytes()).unwrap()
    }

    #[test]
    fn a1_numbers_compare_exactly_however_they_are_written() {
        for (number, condition) in [
            ("0.30000000000000004", r#""gt":0"#),
            ("0.30000000000000004", r#""gt":0.3"#),
            ("0.30000000000000004", r#""eq":0.30000000000000004"#),
            ("0.30000000000000004", r#""lt":0.3000000000000001"#),
            ("1e40", r#""gt":5"#),
            ("1e40", r#""eq":1e40"#),
            ("1e400", r#""gt":1e308"#),
            ("-1e400", r#""lt":-1e308"#),
            ("1e-400", r#""gt":0,"lt":1e-308"#),
            ("1e99999999999999999999", r#""gt":1e308"#),
            ("1e-99999999999999999999", r#""gt":0"#),
            ("-0", r#""eq":0,"ge":0,"le":0"#),
            ("-0.0e5", r#""eq":0"#),
            ("1E+2", r#""eq":100"#),
            ("100e-2", r#""eq":1"#),
            ("9007199254740993", r#""gt":9007199254740992"#),
            ("18446744073709551616", r#""gt":18446744073709551615"#),
            ("0.1", r#""eq":0.1"#),
            ("0.1000000000000000055511151231257827", r#""gt":0.1"#),
        ] {
            assert!(compares(number, condition), "{number} {condition}");
        }
        for (number, condition) in [
            ("0.30000000000000004", r#""le":0.3"#),
            ("1e40", r#""le":5"#),
            ("-0", r#""lt":0"#),
            ("9007199254740993", r#""eq":9007199254740992"#),
        ] {
            assert!(!compares(number, condition), "{number} {condition}");
        }
    }

    proptest::proptest! {
        /// Against arithmetic with 128 bits.
        #[test]
        fn any_two_decimals_compare_as_their_values_do(
            (a, ap, az) in (-1_000_000i64..1_000_000, 0u32..12, 0usize..3), (b, bp, bz) in (-1_000_000i64..1_000_000, 0u32..12, 0usize..3),
        ) {
            let text = |digits: i64, places: u32, zeros: usize| {
                let (whole, rest) = (digits.unsigned_abs() / 10u64.pow(places), digits.unsigned_abs() % 10u64.pow(places));
                let sign = if digits < 0 { "-" } else { "" };
                match (places, zeros) {
                    (0, zeros) => format!("{sign}{whole}e{zeros}"),
                    (places, 0) => format!("{digits}e-{places}"),
                    (places, zeros) => format!("{sign}{whole}.{rest:0width$}{}", "0".repeat(zeros), width = places as usize),
                }
            };
            let value = |digits: i64, places: u32, zeros: usize| {
                i128::from(digits) * 10i128.pow(12 - places) * if places == 0 { 10i128.pow(zeros as u32) } else { 1 }
            };
            let (left, right) = (text(a, ap, az), text(b, bp, bz));
            let order = Number::parse(left.as_bytes()).unwrap().cmp(&Number::parse(right.as_bytes()).unwrap());
            proptest::prop_assert_eq!(order, value(a, ap, az).cmp(&value(b, bp, bz)), "{} {}", left, right);
        }
    }
}
