//! Reads log lines: JSON, Common and Combined Log Format. See README.md for its configuration.
//!
//! Gives each line the key and, if asked, the event time that are written in it. Keeps no state. A line that is not what
//! it should be is never dropped: it is rejected with the reason, or goes to port 1.

mod clf;
mod config;
#[cfg(test)]
mod tests;
mod time;

use std::borrow::Cow;

use serde::de::IgnoredAny;
use weir_sdk::json::{Path, append_string};
use weir_sdk::prelude::*;

pub use config::Config;
use config::{Format, Malformed, Value};

/// The operator.
#[derive(Debug)]
pub struct Parse {
    config: Config,
}

impl Operator for Parse {
    type Config = Config;

    fn open(config: Config, _: &Context) -> Result<Parse, Error> {
        config.check()?;
        Ok(Parse { config })
    }

    fn process(&mut self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let result = match self.config.format {
            Format::Json => self.json(row, out),
            Format::Common | Format::Combined | Format::Clf => self.clf(row, out),
        };
        match result {
            Err(_) if self.config.malformed == Malformed::Output => {
                out.to(1).emit(row.timestamp, row.key, row.value);
                Ok(())
            }
            result => result,
        }
    }
}

impl Parse {
    fn json(&self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let line = row.value.trim_ascii();
        serde_json::from_slice::<IgnoredAny>(line).map_err(|error| row.reject(format_args!("not JSON: {error}")))?;
        let find = |path: &Path| path.find(line).or_reject("reading the line");
        let key = match &self.config.key {
            None => Cow::Borrowed(row.key),
            Some(path) => match find(path)?.filter(|raw| !raw.is_null()) {
                None => return Err(missing(path)),
                Some(raw) => {
                    raw.scalar().ok_or_else(|| row.reject(format_args!("field `{path}` is an object or array, no key")))?
                }
            },
        };
        let timestamp = match &self.config.event_time {
            None => row.timestamp,
            Some(time) => {
                let text = find(&time.field)?.ok_or_else(|| missing(&time.field))?.scalar();
                self.time(text.as_deref())?
            }
        };
        // Found before anything is written, so that a rejected line leaves nothing behind.
        let field = match &self.config.value {
            Value::Field(path) => Some(find(path)?.ok_or_else(|| missing(path))?),
            _ => None,
        };
        out.to(0).write(timestamp, &key, |bytes| match &self.config.value {
            Value::Line | Value::Fields => bytes.extend_from_slice(line),
            Value::Field(_) => bytes.extend_from_slice(field.map_or(b"null", |raw| raw.bytes())),
            Value::Some(fields) => append_object(bytes, fields, |path, bytes| {
                let raw = path.find(line).ok().flatten();
                bytes.extend_from_slice(raw.map_or(b"null", |raw| raw.bytes()));
            }),
        });
        Ok(())
    }

    fn clf(&self, row: Row<'_>, out: &mut Outputs) -> Result<(), Error> {
        let line = clf::Line::parse(row.value.trim_ascii(), self.config.format)
            .map_err(|problem| row.reject(format_args!("not a log line: {problem}")))?;
        let get = |path: &Path| clf::Field::of(path).and_then(|field| line.get(field));
        let key = match &self.config.key {
            None => row.key,
            Some(path) => get(path).ok_or_else(|| missing(path))?,
        };
        let timestamp = match &self.config.event_time {
            None => row.timestamp,
            Some(time) => self.time(get(&time.field))?,
        };
        out.to(0).write(timestamp, key, |bytes| match &self.config.value {
            Value::Line => bytes.extend_from_slice(row.value),
            Value::Fields => line.append_object(bytes),
            Value::Field(path) => append_clf(&line, path, bytes),
            Value::Some(fields) => append_object(bytes, fields, |path, bytes| append_clf(&line, path, bytes)),
        });
        Ok(())
    }

    fn time(&self, text: Option<&[u8]>) -> Result<Timestamp, Error> {
        let Some(time) = &self.config.event_time else { return Err(Error::fail("no event time is configured")) };
        let text = text.ok_or_else(|| missing(&time.field))?;
        time.format.read(text).ok_or_else(|| {
            let (field, text, example) = (&time.field, String::from_utf8_lossy(text), time.format.example());
            Error::reject(format_args!("field `{field}`: `{text}` is not a time like {example}"))
        })
    }
}

fn missing(path: &Path) -> Error {
    Error::reject(format_args!("field `{path}` is missing"))
}

fn append_clf(line: &clf::Line<'_>, path: &Path, bytes: &mut Vec<u8>) {
    match clf::Field::of(path) {
        Some(field) => line.append_json(field, bytes),
        None => bytes.extend_from_slice(b"null"),
    }
}

/// Appends an object of some fields; `append` appends the value of one.
fn append_object(bytes: &mut Vec<u8>, fields: &[(String, Path)], append: impl Fn(&Path, &mut Vec<u8>)) {
    let mut separator = b'{';
    for (name, path) in fields {
        bytes.push(separator);
        append_string(bytes, name.as_bytes());
        bytes.push(b':');
        append(path, bytes);
        separator = b',';
    }
    bytes.push(b'}');
}

weir_sdk::export!(Parse, stateless);
