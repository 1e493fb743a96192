//! The time at a path of a JSON line, without a tree of the line and without reading past the field.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use weir_model::Timestamp;

use super::EventTimeFormat;

/// The time at `path` of the object `line`. Names that occur twice: the first counts.
pub(super) fn time_at(line: &[u8], path: &[String], format: EventTimeFormat) -> Option<Timestamp> {
    let mut found = None;
    // Finding the field ends the scan with an error on purpose, so the result says nothing.
    let _ = At { path, format, found: &mut found }.deserialize(&mut serde_json::Deserializer::from_slice(line));
    found
}

/// What is at `path` below here.
struct At<'a> {
    path: &'a [String],
    format: EventTimeFormat,
    found: &'a mut Option<Timestamp>,
}

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((name, path)) = self.path.split_first() else { return Err(A::Error::custom("the field is an object")) };
        while let Some(is_wanted) = map.next_key_seed(IsName(name))? {
            if is_wanted {
                map.next_value_seed(At { path, format: self.format, found: self.found })?;
                return Err(A::Error::custom("found"));
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom("the field is a list"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.finish(|format| format.parse(text.as_bytes()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.finish(|format| match format {
            EventTimeFormat::UnixMs => Some(number),
            EventTimeFormat::UnixS => number.checked_mul(1_000),
            EventTimeFormat::Clf | EventTimeFormat::Rfc3339 => None,
        })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => Err(E::custom("out of range")),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        self.finish(|format| {
            let millis = match format {
                EventTimeFormat::UnixMs => number.floor(),
                // To the nearest microsecond first: 0.29 is 290 ms, not 289.
                EventTimeFormat::UnixS => ((number * 1e6).round() / 1e3).floor(),
                EventTimeFormat::Clf | EventTimeFormat::Rfc3339 => return None,
            };
            (millis.abs() < 9e15).then_some(millis as i64)
        })
    }
}

impl At<'_> {
    fn finish<E: Error>(self, time: impl FnOnce(EventTimeFormat) -> Option<Timestamp>) -> Result<(), E> {
        if self.path.is_empty() {
            *self.found = time(self.format);
        }
        Ok(())
    }
}

/// Whether a name is the wanted one.
struct IsName<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for IsName<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for IsName<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}
