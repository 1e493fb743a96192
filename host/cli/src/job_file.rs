//! A job file on disk: found, read, checked; with the flags that name it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_model::Description;
use weir_model::ErrorNumber;
use weir_model::limits::JOB_FILE_BYTES_MAX;
use weir_plan::{ComponentRef, DescriptionError, Job};

use crate::failure::{Exit, Failure};
use crate::files;
use crate::global::Global;

/// Flags of all commands that take a job file.
#[derive(clap::Args)]
pub(crate) struct JobFileArgs {
    /// The job file
    #[arg(value_name = "JOB")]
    pub(crate) path: PathBuf,
    /// Set a value of the job file, such as source.log.path=/var/log/access.log; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

/// A job file that has been read and checked.
pub(crate) struct JobFile {
    pub(crate) job: Job,
    /// Its path, absolute.
    pub(crate) path: PathBuf,
    /// Its folder: relative paths in it start here.
    pub(crate) folder: PathBuf,
    pub(crate) text: String,
    /// `--set` flags as (dotted key, value).
    pub(crate) overrides: Vec<(String, String)>,
    /// The environment variables that it names and that are set.
    pub(crate) environment: BTreeMap<String, String>,
}

/// Says what the component of an operator says of itself: by the folder of the job file, the operator's uid, and the reference.
pub(crate) type DescribeThere<'a> = &'a dyn Fn(&Path, &str, &ComponentRef) -> Result<Arc<Description>, DescriptionError>;

/// Reads and checks a job file. What is odd about it but no error is told to the user.
pub(crate) fn load(args: &JobFileArgs, describe: DescribeThere<'_>, global: &Global) -> anyhow::Result<JobFile> {
    let bytes = files::read_bounded(&args.path, "job file", JOB_FILE_BYTES_MAX)?;
    let name = args.path.display().to_string();
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        Failure::new(
            ErrorNumber::JobFileSyntax,
            Exit::Usage,
            format!("cannot read the job file {name}: line {line} is not UTF-8"),
        )
    })?;
    let overrides = args.set.iter().map(|set| parse_set(set)).collect::<Result<Vec<_>, _>>()?;
    let environment = RefCell::new(BTreeMap::new());
    let variable = |name: &str| {
        let value = std::env::var(name).ok()?;
        environment.borrow_mut().insert(name.to_owned(), value.clone());
        Some(value)
    };
    let path = std::path::absolute(&args.path)?;
    let folder = path.parent().unwrap_or(Path::new("/")).to_owned();
    let describe = |uid: &str, component: &ComponentRef| describe(&folder, uid, component);
    let job = weir_plan::load(&name, &text, &overrides, &variable, &describe)?;
    let environment = environment.take();
    if !job.warnings().is_empty() {
        global.warn(&format!("{}\n", job.warnings()));
    }
    Ok(JobFile { job, path, folder, text, overrides, environment })
}

fn parse_set(flag: &str) -> Result<(String, String), Failure> {
    match flag.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err(Failure::new(
            ErrorNumber::OverrideNamesNothing,
            Exit::Usage,
            format!("`--set {flag}` sets nothing: expected KEY=VALUE"),
        )
        .hint("for example --set source.log.path=/var/log/access.log or --set job.parallelism=4")),
    }
}
