//! From a job file on this machine to a job that can go to a coordinator: its text, what it takes from the environment, and
//! which bytes its components are.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_model::{Description, Digest};
use weir_plan::{ComponentRef, DescriptionError, Job};
use weir_protocol::{ComponentPin, JobSpec};

use crate::Native;
use crate::component::describe;
use crate::failure::Failure;
use crate::global::Global;
use crate::job_file::{self, JobFile, JobFileArgs};
use crate::store::{self, ComponentStore, ResolvedComponent};

/// A component that a job names.
#[derive(Debug)]
pub(crate) struct FoundComponent {
    pub(crate) digest: Digest,
    /// `name@version`, or the path of its file as the job file has it.
    pub(crate) name: String,
    /// None where the coordinator has them.
    pub(crate) bytes: Option<Vec<u8>>,
    /// What it says of itself.
    pub(crate) description: Description,
}

/// How components are found: by reference, with the folder of the job file.
pub(crate) type Find<'a> = &'a dyn Fn(&ComponentRef, &Path) -> Result<FoundComponent, Failure>;

/// Finds components in the store of this machine.
pub(crate) fn in_store(
    store: &ComponentStore,
    global: &Global,
) -> impl Fn(&ComponentRef, &Path) -> Result<FoundComponent, Failure> {
    move |component, folder| described(store::resolve(store, component, folder)?, global)
}

/// A component of this machine with what it says of itself.
///
/// # Errors
/// If it is none, or does not say it.
pub(crate) fn described(found: ResolvedComponent, global: &Global) -> Result<FoundComponent, Failure> {
    let ResolvedComponent { bytes, digest, name } = found;
    let description = describe::describe(&bytes, &name, global)?;
    Ok(FoundComponent { digest, name, bytes: Some(bytes), description })
}

/// The components of a job file, each found once.
struct Finder<'a> {
    find: Find<'a>,
    native: &'a Native,
    found: RefCell<BTreeMap<String, Result<FoundComponent, DescriptionError>>>,
}

impl Finder<'_> {
    fn describe(&self, folder: &Path, uid: &str, component: &ComponentRef) -> Result<Arc<Description>, DescriptionError> {
        if self.native.contains_key(uid) {
            return weir_plan::plain(uid, component);
        }
        let mut found = self.found.borrow_mut();
        let found = found.entry(component.to_string()).or_insert_with(|| {
            (self.find)(component, folder).map_err(|failure| DescriptionError { message: failure.message, hint: failure.hint })
        });
        match found {
            Ok(found) => Ok(Arc::new(found.description.clone())),
            Err(undescribed) => Err(undescribed.clone()),
        }
    }
}

/// A job file that was read by its components, and these: what each reference stands for, and the bytes that were found here.
pub(crate) struct JobWithComponents {
    pub(crate) file: JobFile,
    pub(crate) pins: BTreeMap<String, ComponentPin>,
    pub(crate) bytes: BTreeMap<Digest, Vec<u8>>,
}

/// Reads a job file by its components. `native` operators need none.
///
/// # Errors
/// All that is wrong with the job file, and all components that are not there, at their places.
pub(crate) fn read(args: &JobFileArgs, find: Find<'_>, native: &Native, global: &Global) -> anyhow::Result<JobWithComponents> {
    let finder = Finder { find, native, found: RefCell::default() };
    let describe = |folder: &Path, uid: &str, component: &ComponentRef| finder.describe(folder, uid, component);
    let file = job_file::load(args, &describe, global)?;
    let (mut pins, mut bytes) = (BTreeMap::new(), BTreeMap::new());
    for (reference, found) in finder.found.into_inner() {
        let Ok(FoundComponent { digest, name, bytes: content, description }) = found else { continue };
        bytes.extend(content.map(|content| (digest, content)));
        pins.insert(reference, ComponentPin { digest, name, description });
    }
    Ok(JobWithComponents { file, pins, bytes })
}

/// The job of `weir run`: components from the store of this machine, dead letters in the data folder.
pub(crate) fn for_this_process(
    args: &JobFileArgs,
    native: &Native,
    global: &Global,
) -> anyhow::Result<(JobSpec, Job, BTreeMap<Digest, Vec<u8>>)> {
    let store = store::open(&global.data_dir);
    let dead_letters = |file: &JobFile| global.data_dir.join("jobs").join(&file.job.name).join("dead-letter");
    job_spec(args, &in_store(&store, global), native, &dead_letters, global)
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
    let JobWithComponents { file, pins: components, bytes } = read(args, find, native, global)?;
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
        natives: BTreeMap::new(),
    };
    Ok((spec, job, bytes))
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

    #[test]
    fn a_spec_reads_alike_where_nothing_of_this_machine_is_known() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
        let args = JobFileArgs { path: folder.path().join("job.toml"), set: vec!["job.parallelism=3".to_owned()] };
        let global = Global::for_tests(folder.path());
        let find = |component: &ComponentRef, there: &Path| {
            assert_eq!(there, folder.path());
            let (digest, name, bytes) = (store::digest_of(b"op"), component.to_string(), Some(b"op".to_vec()));
            Ok(FoundComponent { digest, name, bytes, description: Description::plain() })
        };
        let dead_letters = |_: &JobFile| PathBuf::from("/dead");
        let (spec, job, bytes) = job_spec(&args, &find, &Native::new(), &dead_letters, &global).unwrap();
        let sent: JobSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(sent, spec);
        assert_eq!(spec.environment.keys().collect::<Vec<_>>(), ["PATH"], "only what the file names, and is set");
        assert_eq!(spec.job_dir, folder.path().to_str().unwrap());
        let pin = &spec.components[&ComponentRef::Path("op.wasm".to_owned()).to_string()];
        assert_eq!((pin.name.as_str(), &bytes[&pin.digest]), ("op.wasm", &b"op".to_vec()));
        let there = spec.load().unwrap();
        assert_eq!((there.name.as_str(), there.parallelism), (job.name.as_str(), 3));
        assert_eq!(there.vertices.len(), job.vertices.len() + 1, "there is a sink for dead letters");
    }
}
