//! Settings of a connector as the job file gives them: unknown keys are errors with the nearest valid name, durations and
//! sizes are written as people write them. Values that came through `--set` or the environment may be strings.

use std::time::Duration;

use serde_json::{Map, Value};

use weir_plan::{nearest, parse_duration, parse_size};

use crate::SettingError;

/// The settings of one source or sink.
pub(crate) struct Settings<'a> {
    map: &'a Map<String, Value>,
}

impl<'a> Settings<'a> {
    /// Refuses keys that are not in `known`.
    pub(crate) fn new(what: &str, map: &'a Map<String, Value>, known: &[&str]) -> Result<Settings<'a>, SettingError> {
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(Settings { map }),
            Some(key) => {
                let all = known.join(", ");
                let hint = match nearest(key, known.iter().copied()) {
                    Some(name) => format!("did you mean {name:?}? settings are: {all}"),
                    None if known.is_empty() => "it takes no settings".to_owned(),
                    None => format!("settings are: {all}"),
                };
                Err(SettingError { key: key.clone(), message: format!("{what} has no such setting"), hint: Some(hint) })
            }
        }
    }

    /// A string.
    pub(crate) fn string(&self, key: &str) -> Result<Option<&'a str>, SettingError> {
        match self.map.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, "a string", other)),
        }
    }

    /// A string that must be there and not be empty.
    pub(crate) fn required(&self, key: &str, hint: &str) -> Result<&'a str, SettingError> {
        match self.string(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => Err(error(key, "is empty", Some(hint))),
            None => Err(error(key, "is missing", Some(hint))),
        }
    }

    /// true or false.
    pub(crate) fn bool(&self, key: &str, default: bool) -> Result<bool, SettingError> {
        match self.map.get(key) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(other) => Err(wrong(key, "true or false", other)),
        }
    }

    /// A whole number within bounds.
    pub(crate) fn number(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, SettingError> {
        let expected = format!("a whole number from {least} to {most}");
        let number = match self.map.get(key) {
            None => return Ok(None),
            Some(Value::String(text)) => text.replace('_', "").parse().ok(),
            Some(other) => other.as_u64(),
        };
        match number {
            Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
            _ => Err(wrong(key, &expected, &self.map[key])),
        }
    }

    /// A size: "64KiB", or a number of bytes.
    pub(crate) fn size(&self, key: &str, least: u64, most: u64) -> Result<Option<u64>, SettingError> {
        let size = match self.map.get(key) {
            None => return Ok(None),
            Some(Value::String(text)) => parse_size(text).ok(),
            Some(other) => other.as_u64(),
        };
        match size {
            Some(size) if (least..=most).contains(&size) => Ok(Some(size)),
            _ => Err(wrong(key, &format!("a size from {least} to {most} bytes such as \"64KiB\""), &self.map[key])),
        }
    }

    /// A duration: "500ms".
    pub(crate) fn duration(&self, key: &str) -> Result<Option<Duration>, SettingError> {
        match self.map.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => match parse_duration(text) {
                Ok(duration) => Ok(Some(duration)),
                Err(_) => Err(wrong(key, "a duration such as \"500ms\", \"10s\", \"5m\"", &self.map[key])),
            },
            Some(other) => Err(wrong(key, "a duration with its unit such as \"500ms\", \"10s\", \"5m\"", other)),
        }
    }

    /// One of several names; the first is the default.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<T, SettingError> {
        let Some(text) = self.string(key)? else { return Ok(choices[0].1) };
        choose(key, text, choices)
    }

    /// The value as it is.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }
}

/// The choice that `text` names.
pub(crate) fn choose<T: Copy>(key: &str, text: &str, choices: &[(&str, T)]) -> Result<T, SettingError> {
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    let hint = nearest(text, names.iter().copied()).map(|name| format!("did you mean {name:?}?"));
    Err(SettingError { key: key.to_owned(), message: format!("is {text:?}; expected one of {}", names.join(", ")), hint })
}

/// An error about `key`.
pub(crate) fn error(key: &str, message: impl Into<String>, hint: Option<&str>) -> SettingError {
    SettingError { key: key.to_owned(), message: message.into(), hint: hint.map(str::to_owned) }
}

/// A path in which `~` and `~/...` are the home folder of the user that runs the process. `Err`: what is wrong with it.
pub(crate) fn at_home(path: &str) -> Result<String, String> {
    in_home(path, std::env::var("HOME").ok().as_deref())
}

fn in_home(path: &str, home: Option<&str>) -> Result<String, String> {
    let Some(rest) = path.strip_prefix('~') else { return Ok(path.to_owned()) };
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err("begins with ~ and a name, which only a shell knows; write the folder out".to_owned());
    }
    match home.filter(|home| !home.is_empty()) {
        Some(home) => Ok(format!("{home}{rest}")),
        None => Err("begins with ~, and this process has no HOME; write the folder out".to_owned()),
    }
}

fn wrong(key: &str, expected: &str, found: &Value) -> SettingError {
    error(key, format!("is {found}; expected {expected}"), None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use serde_json::json;

    #[test]
    fn the_home_folder_is_known_and_others_are_refused_with_a_reason() {
        assert_eq!(in_home("~/logs/*.log", Some("/home/me")).unwrap(), "/home/me/logs/*.log");
        assert_eq!(in_home("x~", None).unwrap(), "x~");
        assert!(in_home("~you/x", Some("/home/me")).unwrap_err().contains("write the folder out"));
        assert!(in_home("~/x", None).unwrap_err().contains("HOME"));
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_valid_one() {
        let map = json!({"path": "x", "folow": true});
        let error = Settings::new("a file source", map.as_object().unwrap(), &["path", "follow"]).err().unwrap();
        assert_eq!(error.key, "folow");
        assert!(error.to_string().contains("did you mean \"follow\"?"), "{error}");
        let map = json!({"zzzzzz": 1});
        let error = Settings::new("a file source", map.as_object().unwrap(), &["path", "follow"]).err().unwrap();
        assert!(!error.to_string().contains("did you mean"), "{error}");
    }

    #[test]
    fn values_of_the_wrong_kind_are_refused_with_what_was_expected() {
        let map = json!({"n": -1, "b": "yes", "d": 5, "s": [], "ok": "1_000", "c": "gzp"});
        let settings = Settings::new("x", map.as_object().unwrap(), &["n", "b", "d", "s", "ok", "c"]).unwrap();
        assert!(settings.number("n", 0, 9).unwrap_err().message.contains("from 0 to 9"));
        assert!(settings.bool("b", false).unwrap_err().message.contains("true or false"));
        assert!(settings.duration("d").unwrap_err().message.contains("unit"));
        assert!(settings.string("s").unwrap_err().message.contains("a string"));
        assert_eq!(settings.number("ok", 0, 1_000).unwrap(), Some(1_000));
        assert_eq!(settings.choice("c", &[("none", 0), ("gzip", 1)]).unwrap_err().hint.unwrap(), "did you mean \"gzip\"?");
        assert!(settings.required("missing", "say where").unwrap_err().to_string().contains("say where"));
    }
}
