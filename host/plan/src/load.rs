//! From text to [`Job`]: the order in which a job file is read and checked.

use std::sync::Arc;

use weir_model::limits::JOB_FILE_BYTES_MAX;

use crate::describe::Describe;
use crate::diagnostics::{Code, Diagnostics};
use crate::job::Job;
use crate::problems::Problems;
use crate::reader::Section;
use crate::tree::{Data, Document, Node, Origin};
use crate::{advice, env, from_toml, graph, overrides, settings, vertices};

/// Reads and checks a job file.
///
/// `file` is its name for messages, `overrides` are the `--set` flags as (dotted key, value) in their order, `env` looks
/// up environment variables, `describe` says what components say of themselves. Relative paths stay as written. All problems that can be found at once are reported at once.
pub fn load(
    file: &str,
    text: &str,
    overrides: &[(String, String)],
    env: &dyn Fn(&str) -> Option<String>,
    describe: Describe<'_>,
) -> Result<Job, Diagnostics> {
    let nothing = Node { origin: Origin::File(0..0), data: Data::Table(Vec::new()) };
    let mut document = Document { file: Arc::from(file), text: Arc::from(text), root: nothing };
    let mut problems = Problems::default();
    if text.len() > JOB_FILE_BYTES_MAX {
        let message = format!("the job file has {} bytes, more than {JOB_FILE_BYTES_MAX}", text.len());
        problems.error(Code::Syntax, &Origin::File(0..0), message, None);
        return Err(problems.into_result(&document).err().unwrap_or_default());
    }
    match from_toml::parse(text, None) {
        Ok(root) => document.root = root,
        Err(error) => {
            let message = format!("this is not TOML: {}", error.message().replace('\n', ", "));
            problems.error(Code::Syntax, &Origin::File(error.span().unwrap_or(0..0)), message, None);
            return Err(problems.into_result(&document).err().unwrap_or_default());
        }
    }
    overrides::apply(&mut document, overrides, &mut problems);
    env::expand(&mut document, env, &mut problems);

    let (settings, drafts) = read(&document, describe, &mut problems);
    let edges = graph::connect(&drafts, settings.key_groups, &mut problems);
    if !problems.has_errors() {
        advice::warn(&drafts, &edges, &mut problems);
    }
    let warnings = problems.into_result(&document)?;
    Ok(Job {
        name: settings.name,
        parallelism: settings.parallelism,
        key_groups: settings.key_groups,
        on_error: settings.on_error,
        checkpoint: settings.checkpoint,
        restart: settings.restart,
        vertices: drafts.into_iter().map(|draft| draft.vertex).collect(),
        edges,
        apart: Default::default(),
        document,
        warnings,
    })
}

fn read(document: &Document, describe: Describe<'_>, problems: &mut Problems) -> (settings::JobSettings, Vec<vertices::Draft>) {
    let mut root = Section::new("the job file", &document.root);
    let nothing = Node { origin: Origin::File(0..0), data: Data::Table(Vec::new()) };
    let settings = match root.get("job") {
        None => {
            let hint = "start with:\n\n    [job]\n    name = \"my-job\"\n".to_owned();
            problems.error(Code::Value, root.origin(), "the table [job] is missing", Some(hint));
            settings::read(Section::new("[job]", &nothing), &mut Problems::default())
        }
        Some(node) if !matches!(node.data, Data::Table(_)) => {
            root.wrong("job", node, "a table [job]", None, problems);
            settings::read(Section::new("[job]", &nothing), &mut Problems::default())
        }
        Some(node) => settings::read(Section::new("[job]", node), problems),
    };
    let drafts = vertices::read(&mut root, &settings, describe, problems);
    root.finish(problems);
    (settings, drafts)
}
