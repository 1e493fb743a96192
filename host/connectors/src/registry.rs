//! Connectors by the name that job files use.

use serde_json::{Map, Value};

use weir_plan::nearest;

use crate::settings::error;
use crate::sinks::{BlackholeFactory, FileSinkFactory, StdoutFactory};
use crate::sources::{FileSourceFactory, GeneratorFactory, StdinFactory};
use crate::{Reach, SettingError, SinkFactory, SourceFactory};

/// Names of all sources.
pub const SOURCES: &[&str] = &["file", "generator", "stdin"];

/// Names of all sinks.
pub const SINKS: &[&str] = &["file", "stdout", "blackhole"];

/// The source that `connector` names, which opens what is within reach. Settings are checked; nothing is opened.
pub fn source(connector: &str, settings: &Map<String, Value>, reach: &Reach) -> Result<Box<dyn SourceFactory>, SettingError> {
    Ok(match connector {
        "file" => Box::new(FileSourceFactory::from_settings(settings, reach)?),
        "stdin" => Box::new(StdinFactory::from_settings(settings)?),
        "generator" => Box::new(GeneratorFactory::from_settings(settings)?),
        _ => return Err(unknown("source", connector, SOURCES, SINKS)),
    })
}

/// The sink that `connector` names, which writes what is within reach. Settings are checked; nothing is opened.
pub fn sink(connector: &str, settings: &Map<String, Value>, reach: &Reach) -> Result<Box<dyn SinkFactory>, SettingError> {
    Ok(match connector {
        "file" => Box::new(FileSinkFactory::from_settings(settings, reach)?),
        "stdout" => Box::new(StdoutFactory::from_settings(settings)?),
        "blackhole" => Box::new(BlackholeFactory::from_settings(settings)?),
        _ => return Err(unknown("sink", connector, SINKS, SOURCES)),
    })
}

fn unknown(kind: &str, name: &str, names: &[&str], others: &[&str]) -> SettingError {
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean {near:?}?"),
        None if others.contains(&name) => format!("{name:?} exists, but not as a {kind}"),
        None => format!("a {kind} is one of {}", names.join(", ")),
    };
    error("connector", format!("there is no {kind} {name:?}; expected one of {}", names.join(", ")), Some(&hint))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_unknown_connector_is_named_with_the_nearest() {
        let error = source("genrator", &Map::new(), &Reach::default()).err().unwrap();
        assert!(error.key == "connector" && error.to_string().contains("\"generator\""), "{error}");
        let error = sink("kafka", &Map::new(), &Reach::default()).err().unwrap();
        assert!(error.to_string().contains("file, stdout, blackhole"), "{error}");
        assert!(source("blackhole", &Map::new(), &Reach::default()).err().unwrap().to_string().contains("not as a source"));
    }
}
