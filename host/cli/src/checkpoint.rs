//! `weir checkpoint ...`: what a job has stored.

use serde_json::{Value, json};
use weir_model::{CheckpointId, ErrorNumber};
use weir_storage::{JobStorage, Manifest, ManifestKind, OperatorState};

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;
use crate::store::short;

/// Commands about checkpoints.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the checkpoints of a job, newest first
    Ls {
        #[command(flatten)]
        job: JobArgs,
    },
    /// Show one checkpoint of a job
    Show {
        #[command(flatten)]
        job: JobArgs,
        /// Its number; the newest if not given
        checkpoint: Option<u64>,
    },
}

/// Which job.
#[derive(clap::Args)]
pub(crate) struct JobArgs {
    /// The job's name, as in its job file
    job: String,
    /// Where the job keeps its checkpoints, if its job file says so
    #[arg(long, value_name = "URL")]
    storage: Option<String>,
}

pub(crate) fn execute(command: Command, global: &Global) -> anyhow::Result<()> {
    match command {
        Command::Ls { job } => list(&job, global),
        Command::Show { job, checkpoint } => show(&job, checkpoint, global),
    }
}

/// The storage of a job, and its checkpoints, of which there is at least one.
fn open(job: &JobArgs, global: &Global) -> Result<(JobStorage, Vec<CheckpointId>), Failure> {
    let root = match &job.storage {
        Some(storage) => storage.clone(),
        None => global.data_dir.join("jobs").to_string_lossy().into_owned(),
    };
    let none = || {
        let failure = Failure::new(
            ErrorNumber::CheckpointsNotShown,
            Exit::Usage,
            format!("there are no checkpoints of a job `{}` in {root}", job.job),
        );
        match nearest_job(&root, &job.job) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint("a job file with `storage` in [job.checkpoint] keeps them elsewhere: name it with --storage"),
        }
    };
    // Opening makes the folder, which looking for something should not.
    if local_folder(&root).is_some_and(|folder| !folder.join(&job.job).is_dir()) {
        return Err(none());
    }
    let failed =
        |error: weir_storage::StorageError| Failure::new(ErrorNumber::CheckpointsNotShown, Exit::Failed, error.to_string());
    let storage = JobStorage::open(&root, &job.job).map_err(failed)?;
    let checkpoints = storage.checkpoints().map_err(failed)?;
    if checkpoints.is_empty() { Err(none()) } else { Ok((storage, checkpoints)) }
}

/// The folder a storage URL names, if it names one.
fn local_folder(root: &str) -> Option<&std::path::Path> {
    let path = root.strip_prefix("file:").unwrap_or(root);
    (!path.contains(':')).then(|| std::path::Path::new(path.strip_prefix("//").unwrap_or(path)))
}

fn nearest_job(root: &str, job: &str) -> Option<String> {
    let entries = std::fs::read_dir(local_folder(root)?).ok()?.flatten();
    let names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    weir_plan::nearest(job, names.iter().map(String::as_str)).map(str::to_owned)
}

fn list(job: &JobArgs, global: &Global) -> anyhow::Result<()> {
    let (storage, checkpoints) = open(job, global)?;
    let mut rows = vec![["CHECKPOINT", "KIND", "COMPLETED", "TOOK", "WRITTEN", "ATTEMPT"].map(str::to_owned).to_vec()];
    let mut documents = Vec::new();
    for id in checkpoints {
        match storage.manifest(id) {
            Ok(manifest) => {
                documents.push(summary(&manifest));
                rows.push(vec![
                    manifest.checkpoint.to_string(),
                    kind(manifest.kind).to_owned(),
                    output::ago(manifest.completed_at_ms),
                    format!("{} ms", manifest.completed_at_ms.saturating_sub(manifest.triggered_at_ms)),
                    output::size(manifest.bytes_written),
                    manifest.attempt.to_string(),
                ]);
            }
            // One damaged checkpoint must not hide the others.
            Err(error) => {
                documents.push(json!({ "checkpoint": id.0, "error": error.to_string() }));
                rows.push(vec![id.to_string(), format!("damaged: {error}")]);
            }
        }
    }
    if global.json { output::print_json(&documents) } else { output::print(&output::table(&rows)) }
}

fn show(job: &JobArgs, checkpoint: Option<u64>, global: &Global) -> anyhow::Result<()> {
    let (storage, checkpoints) = open(job, global)?;
    let id = match checkpoint {
        Some(number) => checkpoints.iter().find(|id| id.0 == number).copied(),
        None => checkpoints.first().copied(),
    };
    let Some(id) = id else {
        let there: Vec<String> = checkpoints.iter().map(ToString::to_string).collect();
        let message = format!("job `{}` has no checkpoint {}", job.job, checkpoint.unwrap_or_default());
        return Err(Failure::new(ErrorNumber::CheckpointsNotShown, Exit::Usage, message)
            .hint(format!("there are: {}", there.join(", ")))
            .into());
    };
    let manifest =
        storage.manifest(id).map_err(|error| Failure::new(ErrorNumber::CheckpointsNotShown, Exit::Failed, error.to_string()))?;
    if global.json { output::print_json(&manifest) } else { output::print(&describe(&manifest)) }
}

fn kind(kind: ManifestKind) -> &'static str {
    match kind {
        ManifestKind::Checkpoint => "checkpoint",
        ManifestKind::Final => "final",
        ManifestKind::Stop => "stop",
        ManifestKind::Savepoint => "savepoint",
    }
}

fn summary(manifest: &Manifest) -> Value {
    json!({
        "checkpoint": manifest.checkpoint,
        "kind": kind(manifest.kind),
        "attempt": manifest.attempt.0,
        "triggered_at_ms": manifest.triggered_at_ms,
        "completed_at_ms": manifest.completed_at_ms,
        "bytes_written": manifest.bytes_written,
        "bytes_needed": needed(manifest.segments()),
    })
}

fn needed<'a>(segments: impl Iterator<Item = &'a weir_storage::Segment>) -> u64 {
    segments.map(|segment| segment.length).sum()
}

fn describe(manifest: &Manifest) -> String {
    let took = manifest.completed_at_ms.saturating_sub(manifest.triggered_at_ms);
    let mut text = format!(
        "checkpoint {} of job {}\n  kind       {}\n  attempt    {}\n  completed  {}, after {took} ms\n  written    {} in {} file(s)\n  \
         needed     {} to restore\n  key groups {}\n",
        manifest.checkpoint,
        manifest.job,
        kind(manifest.kind),
        manifest.attempt,
        output::ago(manifest.completed_at_ms),
        output::size(manifest.bytes_written),
        manifest.files.len(),
        output::size(needed(manifest.segments())),
        manifest.key_groups,
    );
    if let Some(origin) = &manifest.origin {
        text.push_str(&format!("  job file   {origin}\n"));
    }
    for (uid, state) in &manifest.operators {
        text.push_str(&operator(uid, state));
    }
    text
}

fn operator(uid: &str, state: &OperatorState) -> String {
    let mut text = format!("\n{uid}, parallelism {}\n", state.parallelism);
    if let Some(component) = &state.component {
        let name = component.name.as_deref().unwrap_or("a component without a name");
        text.push_str(&format!("  component  {name}, digest {}\n", short(&component.digest)));
    }
    if !state.instances.is_empty() {
        let segments =
            || state.template.iter().chain(state.instances.values().flat_map(|instance| instance.parts.values().flatten()));
        let longest = state.instances.values().map(|instance| instance.memory().len()).max().unwrap_or(0);
        let bytes = output::size(needed(segments()));
        text.push_str(&format!("  images     {} of {bytes}, longest chain {longest}\n", state.instances.len()));
    }
    for (index, subtask) in state.subtasks.iter().enumerate() {
        for (split, position) in &subtask.splits {
            text.push_str(&format!("  subtask {index}  split {split}: {position}\n"));
        }
        if !subtask.committables.is_empty() {
            text.push_str(&format!("  subtask {index}  {} to commit\n", subtask.committables.len()));
        }
    }
    text
}
