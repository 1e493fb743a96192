//! `[[source]]`, `[[operator]]`, `[[sink]]`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use weir_model::limits::{
    CALL_DEADLINE_MS_DEFAULT, INSTANCE_MEMORY_BYTES_DEFAULT, INSTANCE_MEMORY_BYTES_MAX, JOB_VERTICES_MAX,
    OPERATOR_MEMORY_BYTES_MAX, PARALLELISM_MAX,
};
use weir_model::{Description, OutputPort, is_component_name, is_component_version};

use crate::config;
use crate::describe::{Describe, DescriptionError};
use crate::diagnostics::Code;
use crate::input::{self, InputDraft};
use crate::job::{
    ComponentRef, EventTimeSpec, LimitsSpec, MaxAhead, OperatorSpec, SinkSpec, SourceSpec, Vertex, VertexKind, WatermarkSpec,
};
use crate::problems::Problems;
use crate::reader::Section;
use crate::schema::ConfigSchema;
use crate::settings::{JobSettings, NAME_EXPECTED, ON_ERROR, is_name};
use crate::tree::{Data, Node, Origin};

/// The reference that stands for the rejected rows of all operators.
pub(crate) const DEAD_LETTER: &str = "dead_letter";

/// A vertex as written, its inputs not yet resolved.
pub(crate) struct Draft {
    pub(crate) vertex: Vertex,
    pub(crate) inputs: Vec<InputDraft>,
    /// Where its table begins.
    pub(crate) origin: Origin,
    /// Of an operator: it is known what its component says of itself.
    pub(crate) is_described: bool,
    /// Of an operator: outputs that get no rows by its configuration, by number.
    pub(crate) idle_outputs: Vec<u32>,
    /// Where its id is written.
    pub(crate) id: Origin,
    /// Where its parallelism is written, if it is.
    pub(crate) parallelism: Option<Origin>,
    /// Of a source: `watermark.delay` is written.
    pub(crate) is_delay_set: bool,
}

impl Draft {
    /// How messages call it.
    pub(crate) fn name(&self) -> String {
        let kind = match self.vertex.kind {
            VertexKind::Source(_) => "source",
            VertexKind::Operator(_) => "operator",
            VertexKind::Sink(_) => "sink",
        };
        match self.vertex.uid.as_str() {
            "" => format!("the {kind} without an id"),
            uid => format!("{kind} `{uid}`"),
        }
    }

    /// Names of the outputs others can read.
    pub(crate) fn output_names(&self) -> Vec<&str> {
        match &self.vertex.kind {
            VertexKind::Source(_) => vec!["main"],
            VertexKind::Operator(spec) => spec.description.outputs.iter().map(|output| output.name.as_str()).collect(),
            VertexKind::Sink(_) => Vec::new(),
        }
    }
}

/// Reads all vertices, in the order sources, operators, sinks.
pub(crate) fn read(root: &mut Section<'_>, job: &JobSettings, describe: Describe<'_>, problems: &mut Problems) -> Vec<Draft> {
    let surroundings = Surroundings { job, describe };
    let mut drafts: Vec<Draft> = Vec::new();
    for (kind, read_one) in [("source", source as ReadOne), ("operator", operator), ("sink", sink)] {
        let Some(node) = root.get(kind) else { continue };
        let all_tables = node.items().iter().all(|item| matches!(item.data, Data::Table(_)));
        if !matches!(node.data, Data::Array(_)) || !all_tables {
            root.wrong(kind, node, &format!("tables written as [[{kind}]]"), None, problems);
            continue;
        }
        let room = JOB_VERTICES_MAX - drafts.len();
        if let Some(beyond) = node.items().get(room) {
            let message = format!("a job has {JOB_VERTICES_MAX} sources, operators and sinks at most");
            problems.error(Code::Value, &beyond.origin, message, None);
        }
        for (index, table) in node.items().iter().enumerate().take(room) {
            let name = match table.get("id").and_then(Node::as_str) {
                Some(id) => format!("{kind} `{id}`"),
                None => format!("[[{kind}]] number {}", index + 1),
            };
            drafts.push(read_one(Section::new(name, table), &surroundings, problems));
        }
    }
    report_same_ids(&drafts, problems);
    drafts
}

/// What vertices are read by, beside their tables.
struct Surroundings<'a> {
    job: &'a JobSettings,
    describe: Describe<'a>,
}

type ReadOne = fn(Section<'_>, &Surroundings<'_>, &mut Problems) -> Draft;

fn report_same_ids(drafts: &[Draft], problems: &mut Problems) {
    for (index, draft) in drafts.iter().enumerate() {
        let earlier = drafts[..index].iter().find(|earlier| earlier.vertex.uid == draft.vertex.uid);
        if let Some(earlier) = earlier.filter(|earlier| !earlier.vertex.uid.is_empty()) {
            let message = format!("the id of {} is already that of {}", draft.name(), earlier.name());
            let hint = "state belongs to an id, so each is used once in a job".to_owned();
            problems.error(Code::Value, &draft.id, message, Some(hint));
        }
    }
}

/// Id and parallelism, which all vertices have.
struct Common {
    uid: String,
    id: Origin,
    parallelism: u32,
    parallelism_origin: Option<Origin>,
}

fn common(section: &mut Section<'_>, job: &JobSettings, problems: &mut Problems) -> Common {
    let expected = format!("an id of {NAME_EXPECTED}");
    section.require("id", &expected, problems);
    let uid = section.string("id", &expected, problems);
    if let (Some(uid), Some(node)) = (&uid, section.get("id")) {
        if !is_name(uid) {
            section.wrong("id", node, &expected, None, problems);
        } else if uid == DEAD_LETTER {
            let hint = "this name stands for the rows that operators could not process".to_owned();
            problems.error(Code::Value, &node.origin, format!("the id `{DEAD_LETTER}` is reserved"), Some(hint));
        }
    }
    let parallelism = section.number("parallelism", 1..=PARALLELISM_MAX, problems);
    Common {
        uid: uid.unwrap_or_default(),
        id: section.origin_of("id"),
        parallelism: parallelism.unwrap_or(job.parallelism),
        parallelism_origin: parallelism.map(|_| section.origin_of("parallelism")),
    }
}

impl Common {
    fn draft(self, kind: VertexKind, inputs: Vec<InputDraft>, origin: Origin) -> Draft {
        Draft {
            vertex: Vertex { uid: self.uid, parallelism: self.parallelism, kind },
            inputs,
            origin,
            is_described: true,
            idle_outputs: Vec::new(),
            id: self.id,
            parallelism: self.parallelism_origin,
            is_delay_set: false,
        }
    }
}

fn source(mut section: Section<'_>, surroundings: &Surroundings<'_>, problems: &mut Problems) -> Draft {
    let common = common(&mut section, surroundings.job, problems);
    let origin = section.origin().clone();
    let connector = connector(&mut section, problems);
    let event_time = section.json_table("event_time", problems).map(|settings| EventTimeSpec { settings });
    let mut is_delay_set = false;
    let mut watermark = WatermarkSpec { delay: Duration::ZERO, idle_after: None, max_ahead: MaxAhead::Unset };
    if let Some(mut table) = section.section("watermark", format!("`watermark` of {}", section.name), problems) {
        let delay = table.duration("delay", problems);
        is_delay_set = delay.is_some();
        watermark.delay = delay.unwrap_or_default();
        watermark.idle_after = table.duration_above_zero("idle_after", problems);
        watermark.max_ahead = match table.duration_or("max_ahead", "off", problems) {
            None => MaxAhead::Unset,
            Some(None) => MaxAhead::Off,
            Some(Some(ahead)) => MaxAhead::Of(ahead),
        };
        table.finish(problems);
    }
    input::of_source(&mut section, problems);
    let settings = section.rest(problems);
    let kind = VertexKind::Source(SourceSpec { connector, settings, event_time, watermark });
    Draft { is_delay_set, ..common.draft(kind, Vec::new(), origin) }
}

fn sink(mut section: Section<'_>, surroundings: &Surroundings<'_>, problems: &mut Problems) -> Draft {
    let common = common(&mut section, surroundings.job, problems);
    let origin = section.origin().clone();
    let connector = connector(&mut section, problems);
    let inputs = input::of_sink(&mut section, problems);
    let settings = section.rest(problems);
    common.draft(VertexKind::Sink(SinkSpec { connector, settings }), inputs, origin)
}

fn connector(section: &mut Section<'_>, problems: &mut Problems) -> String {
    let expected = "the name of a connector, such as \"file\"";
    section.require("connector", expected, problems);
    section.string("connector", expected, problems).unwrap_or_default()
}

fn operator(mut section: Section<'_>, surroundings: &Surroundings<'_>, problems: &mut Problems) -> Draft {
    let common = common(&mut section, surroundings.job, problems);
    let origin = section.origin().clone();
    let component = component(&mut section, problems);
    let inputs = input::of_operator(&mut section, problems);
    let description = describe(&section, &common, &component, surroundings.describe, problems);
    let config = Value::Object(section.json_table("config", problems).unwrap_or_default());
    let schema = description.as_deref().and_then(|description| check_config(&mut section, description, problems));
    let call = Duration::from_millis(CALL_DEADLINE_MS_DEFAULT);
    let mut limits = LimitsSpec { memory_bytes: INSTANCE_MEMORY_BYTES_DEFAULT, memory_total_bytes: None, call };
    if let Some(mut table) = section.section("limits", format!("`limits` of {}", section.name), problems) {
        limits.memory_bytes = table.size("memory", 64 << 10..=INSTANCE_MEMORY_BYTES_MAX, problems).unwrap_or(limits.memory_bytes);
        limits.memory_total_bytes = table.size("memory_total", 64 << 10..=OPERATOR_MEMORY_BYTES_MAX, problems);
        limits.call = table.duration_above_zero("call", problems).unwrap_or(limits.call);
        table.finish(problems);
    }
    let on_error = section.choice("on_error", &ON_ERROR, problems).unwrap_or(surroundings.job.on_error);
    report_outputs(&mut section, &common.uid, description.as_deref(), problems);
    section.finish(problems);
    let is_described = description.is_some();
    let description = description.unwrap_or_else(|| Arc::new(Description::plain()));
    let idle_outputs = schema.map(|schema| idle_outputs(&description, &schema, &config)).unwrap_or_default();
    let spec = OperatorSpec { component, config, limits, on_error, description };
    Draft { is_described, idle_outputs, ..common.draft(VertexKind::Operator(spec), inputs, origin) }
}

/// Checks the configuration by the component's schema, which it gives if it can be used.
fn check_config(section: &mut Section<'_>, description: &Description, problems: &mut Problems) -> Option<ConfigSchema> {
    let nothing = Node { origin: section.origin().clone(), data: Data::Table(Vec::new()) };
    let config = section.get("config").unwrap_or(&nothing);
    // What is no table has been reported.
    if !matches!(config.data, Data::Table(_)) {
        return None;
    }
    config::check(&section.name, config, description, problems)
}

/// Outputs that get no rows: those that the configuration has a key for, by their name, which does not say `"output"`.
fn idle_outputs(description: &Description, schema: &ConfigSchema, config: &Value) -> Vec<u32> {
    let outputs = (0..).zip(&description.outputs);
    let idle = outputs
        .filter(|(_, output)| schema.has_key(&output.name) && config.get(&output.name).and_then(Value::as_str) != Some("output"));
    idle.map(|(port, _)| port).collect()
}

const COMPONENT_EXPECTED: &str = "\"name@version\" from the component store, or { path = \"my_op.wasm\" }";

fn component(section: &mut Section<'_>, problems: &mut Problems) -> ComponentRef {
    let unreadable = ComponentRef::Path(String::new());
    section.require("component", COMPONENT_EXPECTED, problems);
    let Some(node) = section.get("component") else { return unreadable };
    match &node.data {
        Data::String { text, .. } => {
            if let Some(reference) = text.split_once('@').and_then(|(name, version)| named(name, version)) {
                return reference;
            }
            let hint = if text.ends_with(".wasm") || text.contains('/') {
                format!("a file: component = {{ path = {text:?} }}")
            } else if text.contains('@') {
                "name and version are of letters, digits and `.`, `_`, `-`, `+`".to_owned()
            } else {
                format!("say the version: \"{text}@VERSION\" (see `weir component ls`)")
            };
            section.wrong("component", node, COMPONENT_EXPECTED, Some(hint), problems);
            unreadable
        }
        Data::Table(_) => {
            let mut table = Section::new(format!("`component` of {}", section.name), node);
            table.require("path", "the path of a component's file", problems);
            let path = table.string("path", "the path of a component's file", problems).unwrap_or_default();
            table.finish(problems);
            ComponentRef::Path(path)
        }
        _ => {
            section.wrong("component", node, COMPONENT_EXPECTED, None, problems);
            unreadable
        }
    }
}

fn named(name: &str, version: &str) -> Option<ComponentRef> {
    (is_component_name(name) && is_component_version(version))
        .then(|| ComponentRef::Named { name: name.to_owned(), version: version.to_owned() })
}

/// What the component says of itself, and whether anybody knows it.
fn describe(
    section: &Section<'_>,
    common: &Common,
    component: &ComponentRef,
    describe: Describe<'_>,
    problems: &mut Problems,
) -> Option<Arc<Description>> {
    // What is no reference has been reported.
    if matches!(component, ComponentRef::Path(path) if path.is_empty()) {
        return None;
    }
    match describe(&common.uid, component) {
        Ok(description) => Some(description),
        Err(DescriptionError { message, hint }) => {
            problems.error(Code::Setting, &section.origin_of("component"), format!("{}: {message}", section.name), hint);
            None
        }
    }
}

/// Reports the list of outputs that job files had before components said which they have.
fn report_outputs(section: &mut Section<'_>, uid: &str, description: Option<&Description>, problems: &mut Problems) {
    let Some(node) = section.get("outputs") else { return };
    let message = format!("`outputs` of {} is over: a component says itself which outputs it has", section.name);
    let hint = description.map(|description| {
        let reference = |(port, output): (usize, &OutputPort)| {
            let reference = if port == 0 { uid.to_owned() } else { format!("{uid}.{}", output.name) };
            match node.items().get(port).and_then(Node::as_str) {
                Some(before) if port > 0 && before != output.name => format!("`{reference}` (`{before}` here)"),
                _ => format!("`{reference}`"),
            }
        };
        let outputs: Vec<String> = description.outputs.iter().enumerate().map(reference).collect();
        format!("take the line out; what reads from this operator names {}", outputs.join(", "))
    });
    problems.error(Code::UnknownKey, &section.origin_of("outputs"), message, hint);
}
