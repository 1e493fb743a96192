//! `input` and `inputs`: what a vertex reads, as written.

use crate::diagnostics::Code;
use crate::job::Exchange;
use crate::problems::Problems;
use crate::reader::Section;
use crate::tree::{Data, Node, Origin};

/// One input of a vertex: a union of outputs of other vertices.
pub(crate) struct InputDraft {
    /// Names of outputs ("parse", "parse.malformed", "dead_letter") with their places.
    pub(crate) from: Vec<(String, Origin)>,
    /// The exchange and where it is written, if it is.
    pub(crate) exchange: Option<(Exchange, Origin)>,
    /// Which input of the component it is, if that is written (`as`), and where.
    pub(crate) name: Option<(String, Origin)>,
    /// Where it begins.
    pub(crate) origin: Origin,
}

const EXCHANGES: [(&str, Exchange); 4] = [
    ("forward", Exchange::Forward),
    ("rebalance", Exchange::Rebalance),
    ("hash", Exchange::Hash),
    ("broadcast", Exchange::Broadcast),
];

const EXPECTED: &str =
    "the name of an output such as \"parse\" or \"parse.malformed\", or a table { from = ..., exchange = ... }";

/// Whose inputs are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Operator,
    Sink,
}

/// Reads `input` or `inputs` of an operator.
pub(crate) fn of_operator(section: &mut Section<'_>, problems: &mut Problems) -> Vec<InputDraft> {
    let (input, inputs) = (section.get("input"), section.get("inputs"));
    match (input, inputs) {
        (Some(_), Some(_)) => {
            let message = format!("{} has both `input` and `inputs`", section.name);
            let hint = "keep one: `input` for a single input, `inputs = [...]` for several".to_owned();
            problems.error(Code::Value, &section.origin_of("inputs"), message, Some(hint));
            Vec::new()
        }
        (Some(node), None) => one(section, "input", node, Reader::Operator, problems).into_iter().collect(),
        (None, Some(node)) => match &node.data {
            Data::Array(items) if !items.is_empty() => {
                items.iter().filter_map(|item| one(section, "inputs", item, Reader::Operator, problems)).collect()
            }
            _ => {
                section.wrong("inputs", node, "an array with one item per input", None, problems);
                Vec::new()
            }
        },
        (None, None) => {
            section.require("input", EXPECTED, problems);
            Vec::new()
        }
    }
}

/// Reads `input` of a sink, which has just one.
pub(crate) fn of_sink(section: &mut Section<'_>, problems: &mut Problems) -> Vec<InputDraft> {
    if section.get("inputs").is_some() {
        let hint = "join several outputs: input = { from = [\"a\", \"b\"] }".to_owned();
        problems.error(Code::Value, &section.origin_of("inputs"), format!("{} has one input", section.name), Some(hint));
        return Vec::new();
    }
    match section.get("input") {
        Some(node) => one(section, "input", node, Reader::Sink, problems).into_iter().collect(),
        None => {
            section.require("input", EXPECTED, problems);
            Vec::new()
        }
    }
}

/// Reports `input` and `inputs` of a source.
pub(crate) fn of_source(section: &mut Section<'_>, problems: &mut Problems) {
    for key in ["input", "inputs"] {
        if section.get(key).is_some() {
            let hint = "a vertex that reads rows of another is an [[operator]] or a [[sink]]".to_owned();
            problems.error(Code::Graph, &section.origin_of(key), format!("{} cannot have an input", section.name), Some(hint));
        }
    }
}

fn one(section: &Section<'_>, key: &'static str, node: &Node, reader: Reader, problems: &mut Problems) -> Option<InputDraft> {
    let origin = node.origin.clone();
    match &node.data {
        Data::String { text, .. } => {
            Some(InputDraft { from: vec![(text.clone(), origin.clone())], exchange: None, name: None, origin })
        }
        Data::Table(_) => {
            let mut table = Section::new(format!("`{key}` of {}", section.name), node);
            let from = table.get("from").map(|node| names(&table, node, problems));
            table.require("from", "the name of an output or an array of such names", problems);
            let exchange = table.choice("exchange", &EXCHANGES, problems).map(|exchange| (exchange, table.origin_of("exchange")));
            let name = match reader {
                Reader::Operator => {
                    let name = table.string("as", "the name of an input of the component", problems);
                    name.map(|name| (name, table.origin_of("as")))
                }
                Reader::Sink => None,
            };
            table.finish(problems);
            from.map(|from| InputDraft { from, exchange, name, origin })
        }
        Data::Missing => None,
        Data::Array(_) if key == "input" => {
            let hint = "a union as one input: input = { from = [\"a\", \"b\"] }; several inputs: inputs = [{ from = \"a\", as = \"...\" }, ...]";
            section.wrong(key, node, EXPECTED, Some(hint.to_owned()), problems);
            None
        }
        _ => {
            section.wrong(key, node, EXPECTED, None, problems);
            None
        }
    }
}

fn names(table: &Section<'_>, node: &Node, problems: &mut Problems) -> Vec<(String, Origin)> {
    let expected = "the name of an output or an array of such names";
    let items = match &node.data {
        Data::Array(items) if !items.is_empty() => items.as_slice(),
        Data::Array(_) => {
            table.wrong("from", node, expected, None, problems);
            &[]
        }
        _ => std::slice::from_ref(node),
    };
    let mut names = Vec::new();
    for item in items {
        match &item.data {
            Data::String { text, .. } => names.push((text.clone(), item.origin.clone())),
            Data::Missing => {}
            _ => table.wrong("from", item, expected, None, problems),
        }
    }
    names
}
