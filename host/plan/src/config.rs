//! What is wrong with the `config` of an operator by the schema of its component, said at its place.

use weir_model::Description;

use crate::diagnostics::Code;
use crate::problems::Problems;
use crate::schema::{self, Complaint, ConfigSchema, Wrong, joined};
use crate::tree::{Entry, Node, Origin};

/// Checks the configuration of an operator. `name` is how messages call the operator. Gives the schema, unless it cannot be used.
pub(crate) fn check(name: &str, config: &Node, description: &Description, problems: &mut Problems) -> Option<ConfigSchema> {
    let schema = match ConfigSchema::parse(&description.config) {
        Ok(schema) => schema,
        Err(reason) => {
            let message = format!("{name}: what its component says of its configuration cannot be used: {reason}");
            problems.error(Code::Setting, &config.origin, message, None);
            return None;
        }
    };
    for complaint in schema::check(&schema, config) {
        say(name, config, complaint, problems);
    }
    Some(schema)
}

fn say(name: &str, config: &Node, complaint: Complaint, problems: &mut Problems) {
    let Complaint { path, wrong } = complaint;
    let mut steps = vec!["config".to_owned()];
    let (mut node, mut entry): (&Node, Option<&Entry>) = (config, None);
    for index in path {
        (entry, node) = match (node.entries().get(index), node.items().get(index)) {
            (Some(entry), _) => (Some(entry), &entry.node),
            (None, Some(item)) => (None, item),
            (None, None) => return,
        };
        steps.push(entry.map_or_else(|| index.to_string(), |entry| entry.key.clone()));
    }
    let whole = steps.join(".");
    let last = steps.pop().unwrap_or_default();
    // Where what is wrong stands within.
    let within = if steps.is_empty() { name.to_owned() } else { format!("`{}` of {name}", steps.join(".")) };
    let key = entry.map_or(&node.origin, |entry| &entry.key_origin);
    let value = |expected: &str| format!("`{last}` in {within}: expected {expected}, found {}", node.describe());
    let (code, origin, message, hint): (Code, &Origin, String, Option<String>) = match wrong {
        Wrong::Unknown(hint) => (Code::UnknownKey, key, format!("unknown key `{last}` in {within}"), hint),
        Wrong::Misspelt(meant) => {
            let message = format!("unknown key `{last}` in {within}, and `{meant}` is missing");
            (Code::UnknownKey, key, message, Some(format!("did you mean `{meant}`?")))
        }
        Wrong::Missing(missing, expected) => {
            let expected = if expected.is_empty() { String::new() } else { format!(": expected {}", joined(&expected)) };
            (Code::Setting, &node.origin, format!("`{missing}` is missing in `{whole}` of {name}{expected}"), None)
        }
        Wrong::Type(expected) | Wrong::Value(expected) => {
            let unquoted = expected.iter().filter_map(|word| word.strip_prefix('"')?.strip_suffix('"'));
            let meant = node.as_str().and_then(|text| crate::nearest(text, unquoted));
            let hint = meant.map(|meant| format!("did you mean {meant:?}?"));
            (Code::Setting, &node.origin, value(&joined(&expected)), hint)
        }
        Wrong::Other(expected) => (Code::Setting, &node.origin, value(&expected), None),
        Wrong::TooLong => {
            let message = format!("`{whole}` of {name} cannot be checked: it takes too long by the schema of its component");
            (Code::Setting, &node.origin, message, None)
        }
    };
    problems.error(code, origin, message, hint);
}
