//! From a job file on this machine to a job that can go to a coordinator: its text, what it takes from the environment, and
//! which bytes its components are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use weir_model::Digest;
use weir_plan::{ComponentRef, Diagnostics, Job, VertexKind};
use weir_protocol::{ComponentPin, JobSpec};

use crate::Native;
use crate::failure::Failure;
use crate::global::Global;
use crate::job_file::{self, JobFile, JobFileArgs};
use crate::store::{self, ComponentStore};

/// A component that a job names.
#[derive(Debug)]
pub(crate) struct FoundComponent {
    pub(crate) digest: Digest,
    /// `name@version`, or the path of its file as the job file has it.
    pub(crate) name: String,
    /// None where the coordinator has them.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// How components are found: by reference, with the folder of the job file.
pub(crate) type Find<'a> = &'a mut dyn FnMut(&ComponentRef, &Path) -> Result<FoundComponent, Failure>;

/// Finds components in the store of this machine.
pub(crate) fn in_store(store: &ComponentStore) -> impl FnMut(&ComponentRef, &Path) -> Result<FoundComponent, Failure> {
    move |component, folder| {
        let found = store::resolve(store, component, folder)?;
        Ok(FoundComponent { digest: found.digest, name: found.name, bytes: Some(found.bytes) })
    }
}

/// The job of `weir run`: components from the store of this machine, dead letters in the data folder.
pub(crate) fn for_this_process(
    args: &JobFileArgs,
    native: &Native,
    global: &Global,
) -> anyhow::Result<(JobSpec, Job, BTreeMap<Digest, Vec<u8>>)> {
    let store = store::open(&global.data_dir);
    let dead_letters = |file: &JobFile| global.data_dir.join("jobs").join(&file.job.name).join("dead-letter");
    job_spec(args, &mut in_store(&store), native, &dead_letters, global)
}

/// Reads a job file and finds its components. Gives the job as it is submitted, the same as it was read here (without the
/// sink for dead letters; its complaints name the file as the user did), and the bytes of components that were found here.
///
/// `native` operators need no component. `dead_letters` is the folder for dead letters that no sink of the job reads.
///
/// # Errors
/// All that is wrong with the job file, and all components that are not there, at their places.
pub(crate) fn job_spec(
    args: &JobFileArgs,
    find: Find<'_>,
    native: &Native,
    dead_letters: &dyn Fn(&JobFile) -> PathBuf,
    global: &Global,
) -> anyhow::Result<(JobSpec, Job, BTreeMap<Digest, Vec<u8>>)> {
    let file = job_file::load(args, global)?;
    let mut problems = Diagnostics::default();
    let (components, bytes) = components(&file.job, &file.folder, find, native, &mut problems);
    if !problems.is_empty() {
        return Err(problems.into());
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let dead_letters = text(&dead_letters(&file));
    let JobFile { job, path, folder, text: content, overrides, environment } = file;
    let spec = JobSpec {
        file: text(&path),
        text: content,
        overrides,
        environment,
        job_dir: text(&folder),
        dead_letters,
        allow_repeated_output: false,
        components,
    };
    Ok((spec, job, bytes))
}

/// Finds the components of a job, each once: what each reference stands for, and the bytes that were found here. What is
/// missing, or not a component, goes to `problems`.
pub(crate) fn components(
    job: &Job,
    folder: &Path,
    find: Find<'_>,
    native: &Native,
    problems: &mut Diagnostics,
) -> (BTreeMap<String, ComponentPin>, BTreeMap<Digest, Vec<u8>>) {
    let (mut pins, mut bytes) = (BTreeMap::new(), BTreeMap::new());
    for vertex in &job.vertices {
        let VertexKind::Operator(spec) = &vertex.kind else { continue };
        let reference = spec.component.to_string();
        if native.contains_key(&vertex.uid) || pins.contains_key(&reference) {
            continue;
        }
        let mut refused = |message: &str, hint: Option<&str>| {
            problems.extend(job.diagnostic(&vertex.uid, "component", message, hint));
        };
        match find(&spec.component, folder) {
            Err(failure) => refused(&failure.message, failure.hint.as_deref()),
            Ok(found) => {
                if let Some(content) = found.bytes {
                    if let Err(error) = weir_sandbox::inspect(&content) {
                        refused(&format!("{}: {error}", found.name), None);
                        continue;
                    }
                    bytes.insert(found.digest, content);
                }
                pins.insert(reference, ComponentPin { digest: found.digest, name: found.name });
            }
        }
    }
    (pins, bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    const JOB: &str = r#"[job]
name = "try"

[[source]]
id = "rows"
connector = "file"
path = "${WEIR_TEST_JOB_SPEC_UNSET:-in.txt}"

[[operator]]
id = "count"
component = { path = "op.wasm" }
input = { from = "rows", exchange = "hash" }

[[sink]]
id = "out"
connector = "file"
path = "${PATH}"
input = "count"
"#;

    fn component() -> Vec<u8> {
        let text = "(component (instance $lifecycle) (export \"weir:operator/lifecycle@0.1.0\" (instance $lifecycle)))";
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn a_spec_reads_alike_where_nothing_of_this_machine_is_known() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
        std::fs::write(folder.path().join("op.wasm"), component()).unwrap();
        let args = JobFileArgs { path: folder.path().join("job.toml"), set: vec!["job.parallelism=3".to_owned()] };
        let global = Global::for_tests(folder.path());
        let (spec, job, bytes) = for_this_process(&args, &Native::new(), &global).unwrap();
        let sent: JobSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(sent, spec);
        assert_eq!(spec.environment.keys().collect::<Vec<_>>(), ["PATH"], "only what the file names, and is set");
        assert_eq!(spec.job_dir, folder.path().to_str().unwrap());
        let pin = &spec.components[&ComponentRef::Path("op.wasm".to_owned()).to_string()];
        assert_eq!((pin.name.as_str(), &bytes[&pin.digest]), ("op.wasm", &component()));
        let there = spec.load().unwrap();
        assert_eq!((there.name.as_str(), there.parallelism), (job.name.as_str(), 3));
        assert_eq!(there.vertices.len(), job.vertices.len() + 1, "there is a sink for dead letters");
    }
}
