//! A condition on one field of a JSON value.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{Deserializer, Error as _, Visitor};
use weir_sdk::Decimal;
use weir_sdk::json::{Malformed, Path, Raw};
use weir_sdk::prelude::*;

/// What must hold for a field: all that is given. A field that is missing or null meets nothing but `exists = false`.
#[derive(Debug, Deserialize)]
pub(crate) struct Condition {
    field: Path,
    eq: Option<Scalar>,
    ne: Option<Scalar>,
    lt: Option<Scalar>,
    le: Option<Scalar>,
    gt: Option<Scalar>,
    ge: Option<Scalar>,
    contains: Option<String>,
    prefix: Option<String>,
    exists: Option<bool>,
}

/// What a field is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scalar {
    Bool(bool),
    Number(Decimal),
    Text(String),
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
                Ok(Scalar::Number(Decimal::from(value)))
            }
            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Scalar, E> {
                number(&value.to_string())
            }
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Scalar, E> {
                number(&value.to_string())
            }
            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }
        }
        fn number<E: serde::de::Error>(text: &str) -> Result<Scalar, E> {
            Decimal::parse(text).map(Scalar::Number).map_err(|error| E::custom(format_args!("{text}: {error}")))
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
    /// If the value is not JSON.
    pub(crate) fn holds(&self, value: &[u8]) -> Result<bool, Malformed> {
        let raw = self.field.find(value)?.filter(|raw| !raw.is_null());
        if self.exists.is_some_and(|exists| exists != raw.is_some()) {
            return Ok(false);
        }
        let Some(raw) = raw else { return Ok(self.exists == Some(false)) };
        let is = |wanted: &Option<Scalar>, accept: fn(Option<Ordering>) -> bool| match wanted {
            Some(wanted) => accept(compare(raw, wanted)),
            None => true,
        };
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

/// How a field compares with a scalar of the same type; `None` if it is of another type.
fn compare(raw: Raw<'_>, wanted: &Scalar) -> Option<Ordering> {
    let first = *raw.bytes().first()?;
    match wanted {
        Scalar::Bool(wanted) => match raw.bytes() {
            b"true" => Some(true.cmp(wanted)),
            b"false" => Some(false.cmp(wanted)),
            _ => None,
        },
        Scalar::Number(wanted) if first != b'"' => Some(Decimal::parse(raw.number()?).ok()?.cmp(wanted)),
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
}
