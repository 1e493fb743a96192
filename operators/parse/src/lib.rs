//! Reads log lines: JSON, Common and Combined Log Format. See README.md for its configuration.
//!
//! Gives each line the key and, if asked, the event time that are written in it. Keeps no state. A line that is not what
//! it should be is never dropped: it is rejected with the reason, or goes to the output `malformed`. No line makes it fail.

mod clf;
mod config;
mod format;
mod request;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::IgnoredAny;
use weir_sdk::json::{Path, Raw, Shown, append_string};
use weir_sdk::prelude::*;
use weir_sdk::{KEY_BYTES_MAX, Port, VALUE_BYTES_MAX};

pub use config::Config;
use config::{Malformed, Value};
use format::Format;

/// The output of lines that are not what they should be.
const MALFORMED: u32 = 1;

/// Lines up to this length make no value that is too long, whatever has to be escaped in them.
const SHORT_LINE_BYTES_MAX: usize = VALUE_BYTES_MAX / 8;

/// The operator.
#[derive(Debug)]
pub struct Parse {
    config: Config,
}

impl Operator for Parse {
    type Config = Config;

    fn describe() -> Description {
        Description::new("Reads log lines: JSON, Common and Combined Log Format")
            .output("main", "A row for each line, with the key and the time that are written in it")
            .keyed_output("malformed", "Lines that are not what they should be, as they came, with malformed = \"output\"")
            .pure()
    }

    /// What a row keeps is not looked at, unless the other of key and time is new.
    fn columns(&self, _: u32) -> Columns {
        let times =
            if self.config.key.is_some() && self.config.event_time.is_none() { Columns::TIMESTAMPS } else { Columns::NONE };
        let keys = if self.config.event_time.is_some() && self.config.key.is_none() { Columns::KEYS } else { Columns::NONE };
        Columns::VALUES | times | keys
    }

    fn open(config: Config, _: &Context) -> Result<Parse, Error> {
        config.check()?;
        Ok(Parse { config })
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let result = match self.config.format {
            Format::Json => self.json(row, out),
            Format::Common | Format::Combined | Format::Clf | Format::Vhost => self.clf(row, out),
        };
        match result {
            Err(_) if self.config.malformed == Malformed::Output => {
                out.to(MALFORMED).forward(row);
                Ok(())
            }
            result => result,
        }
    }
}

impl Parse {
    fn json(&self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let line = row.present_value()?.trim_ascii();
        if let Err(error) = std::str::from_utf8(line) {
            return Err(row.reject(format_args!("not JSON: not UTF-8 at byte {}", error.valid_up_to())));
        }
        serde_json::from_slice::<IgnoredAny>(line).map_err(|error| row.reject(format_args!("not JSON: {error}")))?;
        let find = |path: &Path| path.find(line).or_reject("reading the line");
        let key = match &self.config.key {
            None => None,
            Some(path) => match find(path)?.filter(|raw| !raw.is_null()) {
                None => return Err(missing(path)),
                Some(raw) => Some(json_key(path, raw)?),
            },
        };
        let timestamp = match &self.config.event_time {
            None => None,
            Some(time) => {
                let path = &time.field;
                let raw = find(path)?.ok_or_else(|| missing(path))?;
                let text = raw.text().map_err(|reason| row.reject(format_args!("field `{path}` {reason}")))?;
                Some(self.time(&text)?)
            }
        };
        // Found before anything is written, so that a rejected line leaves nothing behind.
        let field = match &self.config.value {
            Value::Field(path) => Some(find(path)?.ok_or_else(|| missing(path))?),
            _ => None,
        };
        send(row, key, timestamp, out.to(0), |bytes| match &self.config.value {
            Value::Line | Value::Fields => bytes.extend_from_slice(line),
            Value::Field(_) => bytes.extend_from_slice(field.map_or(b"null", |raw| raw.bytes())),
            Value::Some(fields) => {
                let fields = fields.iter().map(|(name, path)| (name.as_str(), path));
                append_object(bytes, fields, |path, bytes| {
                    let raw = path.find(line).ok().flatten();
                    bytes.extend_from_slice(raw.map_or(b"null", |raw| raw.bytes()));
                });
            }
        })
    }

    fn clf(&self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let text = row.present_value()?.trim_ascii();
        let line = clf::Line::parse(text, self.config.format)
            .map_err(|problem| row.reject(format_args!("not a log line: {problem}")))?;
        let get = |path: &Path| clf::Field::of(path).and_then(|field| line.text(field));
        let key = match &self.config.key {
            None => None,
            Some(path) => Some(checked_key(path, get(path).ok_or_else(|| missing_in(&line, path))?)?),
        };
        let timestamp = match &self.config.event_time {
            None => None,
            Some(time) => Some(self.time(&get(&time.field).ok_or_else(|| missing_in(&line, &time.field))?)?),
        };
        if text.len() > SHORT_LINE_BYTES_MAX {
            self.check_value_bytes(&line)?;
        }
        send(row, key, timestamp, out.to(0), |bytes| match &self.config.value {
            Value::Line => bytes.extend_from_slice(row.value()),
            Value::Fields => append_object(bytes, line.fields(), |field, bytes| line.append_json(field, bytes)),
            Value::Field(path) => append_clf(&line, path, bytes),
            Value::Some(fields) => {
                let fields = fields.iter().map(|(name, path)| (name.as_str(), path));
                append_object(bytes, fields, |path, bytes| append_clf(&line, path, bytes));
            }
        })
    }

    /// Escapes make a text up to six times as long; memory is not for finding out that it is too long.
    #[cold]
    fn check_value_bytes(&self, line: &clf::Line<'_>) -> Result<(), Error> {
        let of = |path: &Path| clf::Field::of(path).map_or(0, |field| line.json_bytes_max(field));
        let bytes: usize = match &self.config.value {
            Value::Line => 0,
            Value::Fields => line.fields().map(|(_, field)| line.json_bytes_max(field)).sum(),
            Value::Field(path) => of(path),
            Value::Some(fields) => fields.iter().map(|(_, path)| of(path)).sum(),
        };
        if bytes <= VALUE_BYTES_MAX {
            return Ok(());
        }
        Err(Error::reject(format_args!(
            "written as JSON the value may have {bytes} bytes; at most {VALUE_BYTES_MAX} are possible"
        )))
    }

    fn time(&self, text: &[u8]) -> Result<Timestamp, Error> {
        let Some(time) = &self.config.event_time else { return Err(Error::fail("no event time is configured")) };
        time.format.read(text).ok_or_else(|| {
            let (field, text, example) = (&time.field, Shown(text), time.format.example());
            Error::reject(format_args!("field `{field}`: `{text}` is not a time like {example}"))
        })
    }
}

/// Sends a value under a row's key and time, or under new ones.
fn send(
    row: Row<'_>,
    key: Option<Cow<'_, [u8]>>,
    timestamp: Option<Timestamp>,
    mut out: Port<'_>,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), Error> {
    match (key, timestamp) {
        (None, None) => out.try_write_value(row, write),
        (Some(key), timestamp) => out.try_write(timestamp.unwrap_or_else(|| row.timestamp()), &key, write),
        (None, Some(timestamp)) => out.try_write_under(timestamp, row.has_key().then(|| row.key()), write),
    }
}

/// The text of a field as a key.
fn json_key<'a>(path: &Path, raw: Raw<'a>) -> Result<Cow<'a, [u8]>, Error> {
    let text = raw.text().map_err(|reason| Error::reject(format_args!("field `{path}` {reason}, no key")))?;
    if text.is_empty() {
        return Err(Error::reject(format_args!("field `{path}` is empty, no key")));
    }
    checked_key(path, text)
}

fn checked_key<'a>(path: &Path, key: Cow<'a, [u8]>) -> Result<Cow<'a, [u8]>, Error> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(key);
    }
    let bytes = key.len();
    Err(Error::reject(format_args!("field `{path}` has {bytes} bytes; as a key at most {KEY_BYTES_MAX} are possible")))
}

fn missing(path: &Path) -> Error {
    Error::reject(format_args!("field `{path}` is missing"))
}

/// A field that a log line does not have.
#[cold]
fn missing_in(line: &clf::Line<'_>, path: &Path) -> Error {
    match line.request_text().filter(|_| clf::Field::of(path).is_some_and(clf::Field::is_of_request)) {
        Some(request) => Error::reject(format_args!("field `{path}` is missing: the request is \"{}\"", Shown(request))),
        None => missing(path),
    }
}

fn append_clf(line: &clf::Line<'_>, path: &Path, bytes: &mut Vec<u8>) {
    match clf::Field::of(path) {
        Some(field) => line.append_json(field, bytes),
        None => bytes.extend_from_slice(b"null"),
    }
}

/// Appends an object of some fields; `append` appends the value of one.
fn append_object<'n, F>(bytes: &mut Vec<u8>, fields: impl IntoIterator<Item = (&'n str, F)>, append: impl Fn(F, &mut Vec<u8>)) {
    bytes.push(b'{');
    let mut is_first = true;
    for (name, field) in fields {
        if !std::mem::replace(&mut is_first, false) {
            bytes.push(b',');
        }
        append_string(bytes, name.as_bytes());
        bytes.push(b':');
        append(field, bytes);
    }
    bytes.push(b'}');
}

weir_sdk::export!(Parse, stateless);
