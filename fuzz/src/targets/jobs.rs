//! Job files, with flags and variables.

use std::sync::Arc;

use weir_model::{Description, InputPort, OutputPort};
use weir_plan::{ComponentRef, DescriptionError};

pub(super) const WORDS: &[&str] = &[
    "${",
    "}",
    "${A:-",
    "[[",
    "]]",
    "\n",
    "\"",
    "'''",
    "\"\"\"",
    "=",
    ".",
    "99999999999999999999",
    "-1",
    "é\u{1b}\u{202e}",
    "\u{0}",
    "[[operator]]\n",
    "[[sink]]\nid = \"z\"\n",
    "input = ",
    "exchange = \"hash\"",
    "parallelism = 4096",
    "\n[job]\n",
    "${A}${A}",
];

/// A job file. Its first line, if it is a comment, is the value of each variable and of a flag.
pub(super) fn job(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let value = text.lines().next().and_then(|line| line.strip_prefix('#')).unwrap_or("7").to_owned();
    let flags = if value.len() > 3 { vec![("source.a.path".to_owned(), value.clone())] } else { Vec::new() };
    match weir_plan::load("job.toml", &text, &flags, &|name| (name.len() < 3).then(|| value.clone()), &components) {
        Ok(job) => {
            let topology = weir_plan::Topology::new(&job);
            assert!(topology.tasks() > 0 && !job.to_text().is_empty() && !job.to_dot().is_empty());
            format!("{} vertices", job.vertices.len())
        }
        Err(problems) => {
            let shown = problems.to_string();
            assert!(!problems.is_empty() && shown.starts_with("error[E000"), "{shown}");
            // Without the lines of the file that it shows, and without what it quotes of it.
            let told = shown.lines().filter(|line| line.starts_with("error[") || line.contains("= hint:"));
            told.flat_map(|line| line.split(['`', '"']).step_by(2)).collect::<Vec<_>>().join(" ")
        }
    }
}

/// What components say of themselves: those in files have two inputs, and all take a configuration of two keys.
fn components(_: &str, component: &ComponentRef) -> Result<Arc<Description>, DescriptionError> {
    let mut description = Description::plain();
    if matches!(component, ComponentRef::Path(_)) {
        description.inputs = ["left", "right"].map(|name| InputPort { name: name.to_owned(), doc: String::new() }).into();
        description.outputs.push(OutputPort { name: "late".to_owned(), doc: String::new(), keeps_key: true });
    }
    description.config = r#"{ "properties": { "n": { "type": ["string", "integer"], "pattern": "^[0-9]*" }, "k": { "items": { "type": "string" } } },
        "additionalProperties": false }"#
        .to_owned();
    Ok(Arc::new(description))
}

pub(super) fn jobs() -> Vec<Vec<u8>> {
    [
        "#in/*.log\n[job]\nname = \"try\"\nparallelism = 2\nkey_groups = 64\n[job.checkpoint]\ninterval = \"1s\"\nmode = \"exactly-once\"\n\
         [[source]]\nid = \"a\"\nconnector = \"file\"\npath = \"${DIR:-in}/x\"\n\
         [[operator]]\nid = \"b\"\ncomponent = \"count@1.0.0\"\ninput = { from = \"a\", exchange = \"hash\" }\nconfig = { n = \"${N}\", k = [\"${K}\"] }\n\
         [[sink]]\nid = \"c\"\nconnector = \"blackhole\"\ninput = { from = [\"b\", \"dead_letter\"] }\n",
        "[job]\nname = \"x\"\n[[source]]\nid = \"s\"\nconnector = \"generator\"\n[[operator]]\nid = \"o\"\ncomponent = { path = \"o.wasm\" }\n\
         inputs = [{ from = \"s\", as = \"left\" }, { from = \"s\", exchange = \"broadcast\", as = \"right\" }]\nlimits = { memory = \"64MiB\" }\n\
         [[sink]]\nid = \"k\"\nconnector = \"stdout\"\ninput = \"o.late\"\n[[sink]]\nid = \"l\"\nconnector = \"stdout\"\ninput = \"o\"\n",
        "#\njob = { name = \"$${A}é\", \"a.b\" = 1 }\nsource = [{ id = \"a\", x = '''\n${A}\n''' }]\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
