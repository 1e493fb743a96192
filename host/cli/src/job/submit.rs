//! `weir job submit`: checks a job here, brings the cluster the components that it lacks, and gives it the job.
//!
//! Which bytes `name@version` stands for: the cluster's, where it has one, and otherwise those of the store of this machine,
//! which are then pushed under that name. Where both have one and they differ, nothing is submitted: the job would not run
//! what was tried here.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use weir_model::{Description, Digest, ErrorNumber};
use weir_plan::ComponentRef;
use weir_protocol::JobSpec;
use weir_protocol::api::{ComponentStatus, JobSubmission};

use super::watch::{self, Until};
use crate::client::{Client, ClusterArgs};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::job_file::{JobFile, JobFileArgs};
use crate::job_spec::{self, FoundComponent};
use crate::store::{self, ComponentStore, short};
use crate::{Native, output};

/// `weir job submit`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    file: JobFileArgs,
    /// Forget what a job of this name processed before, and start over
    #[arg(long)]
    fresh: bool,
    /// Go on although the last checkpoint has state of an operator that the job file no longer names; that state is dropped
    #[arg(long)]
    allow_dropped_state: bool,
    /// Go back to an older checkpoint, where the last is damaged, although a sink cannot take back what it has shown since: those rows
    /// are shown again
    #[arg(long)]
    allow_repeated_output: bool,
    /// An environment variable that the job file may take along; may be given several times [config: env]
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Show how the job is doing until it is over
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

pub(super) fn execute(args: &Args, global: &Global) -> anyhow::Result<ExitCode> {
    let client = Client::new(args.cluster.target_or_local(global)?)?;
    let there = client.components()?;
    let store = store::open(&global.data_dir);
    let find = |component: &ComponentRef, folder: &Path| {
        let described = |digest| client.description(digest);
        find(component, folder, &Places { there: &there, described: &described, store: &store, global })
    };
    // Workers share the folder of the job file, if they share anything.
    let dead_letters = |file: &JobFile| file.folder.join("dead-letter").join(&file.job.name);
    let (mut spec, job, bytes) = job_spec::job_spec(&args.file, &find, &Native::new(), &dead_letters, global)?;
    spec.allow_repeated_output = args.allow_repeated_output;
    weir_worker::check_connectors(&job, Path::new(&spec.job_dir))?;
    variables(&spec, &args.env, client.address(), global)?;
    upload(&client, &spec.components, &bytes, global)?;
    // The cluster goes by its own word.
    spec.components.values_mut().for_each(|pin| pin.description = Description::plain());
    let submission = JobSubmission { spec, fresh: args.fresh, allow_dropped_state: args.allow_dropped_state };
    let after = watch::last_event(&client, &job.name).unwrap_or(0);
    let status = client.submit(&submission)?;
    if args.wait {
        global.note(&format!("{} is submitted", status.name));
        return watch::execute(client, &job.name, after, Until::Over, global);
    }
    super::told(
        &status,
        &format!("is submitted ({}); `weir job show {}` says how it is doing", status.state, status.name),
        global,
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Names the environment variables that go along, and refuses those that the user has not allowed by name. That a job file is
/// submitted does not say that its author may have what its submitter's environment holds.
fn variables(spec: &JobSpec, flags: &[String], address: &str, global: &Global) -> Result<(), Failure> {
    if spec.environment.is_empty() {
        return Ok(());
    }
    let names = |names: &[&String]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    let is_flagged = |name: &&String| flags.contains(name);
    if !spec.environment.keys().all(|name| is_flagged(&name)) {
        let allowed = global.allowed_variables()?;
        let refused: Vec<&String> = spec.environment.keys().filter(|name| !is_flagged(name) && !allowed.contains(name)).collect();
        if !refused.is_empty() {
            let message = format!(
                "{} takes from your environment what you have not allowed: {}; the coordinator at {address} and its workers would get the values",
                spec.file,
                names(&refused)
            );
            let flags = refused.iter().map(|name| format!("--env {name}")).collect::<Vec<_>>().join(" ");
            let hint = format!(
                "if they may have them: {flags}, or `env` in your own weir.toml; `--set` gives a value instead of a variable"
            );
            return Err(Failure::new(ErrorNumber::VariablesNotAllowed, Exit::Refused, message).hint(hint));
        }
    }
    let all: Vec<&String> = spec.environment.keys().collect();
    global.note(&format!("takes along to {address}, with their values: {}", names(&all)));
    Ok(())
}

/// Where components are looked for.
struct Places<'a> {
    /// Those of the cluster, and what it says of one.
    there: &'a [ComponentStatus],
    described: &'a dyn Fn(Digest) -> Result<Option<Description>, Failure>,
    /// Those of this machine.
    store: &'a ComponentStore,
    global: &'a Global,
}

fn find(component: &ComponentRef, folder: &Path, places: &Places<'_>) -> Result<FoundComponent, Failure> {
    let Places { there, described, store, global } = places;
    let here = store::resolve(store, component, folder);
    let ComponentRef::Named { name, version } = component else {
        return job_spec::described(here?, global);
    };
    let cluster = there.iter().find(|other| other.name == *name && other.version == *version);
    match (here, cluster) {
        (Ok(here), Some(cluster)) if here.digest != cluster.digest => {
            let (ours, theirs) = (here.digest.to_string(), cluster.digest.to_string());
            let message = format!(
                "{name}@{version} stands for other bytes on the cluster (digest {}) than in the store of this machine ({})",
                short(&theirs),
                short(&ours)
            );
            let hint = format!(
                "give yours a new version and name that in the job file, or let go of it: weir component rm --local {name}@{version}"
            );
            Err(Failure::new(ErrorNumber::VersionTaken, Exit::Refused, message).hint(hint))
        }
        (_, Some(cluster)) => {
            let reference = format!("{name}@{version}");
            let description = described(cluster.digest)?.ok_or_else(|| {
                let message = format!("the cluster has {reference} by name, but not its bytes");
                Failure::new(ErrorNumber::ComponentMissingOnCluster, Exit::Refused, message)
                    .hint("push the component again; that repairs it")
            })?;
            Ok(FoundComponent { digest: cluster.digest, name: reference, bytes: None, description })
        }
        (Ok(here), None) => job_spec::described(here, global),
        (Err(missing), None) => Err(Failure { message: format!("{}, nor on the cluster", missing.message), ..missing }),
    }
}

/// Pushes what the cluster does not have, under the name the job file has for it.
fn upload(
    client: &Client,
    pins: &BTreeMap<String, weir_protocol::ComponentPin>,
    bytes: &BTreeMap<Digest, Vec<u8>>,
    global: &Global,
) -> Result<(), Failure> {
    for (reference, pin) in pins {
        let Some(bytes) = bytes.get(&pin.digest) else { continue };
        // What has a name is pushed under it even if the bytes are there, so that others find it.
        let name = reference.split_once('@').filter(|_| *reference == pin.name);
        if name.is_none() && client.description(pin.digest)?.is_some() {
            continue;
        }
        let mut progress = Progress::new(&pin.name, bytes.len() as u64, global);
        client.push(bytes, pin.digest, name, &mut |sent| progress.sent(sent))?;
        progress.end();
    }
    Ok(())
}

/// One line about an upload, kept up to date on a terminal.
struct Progress<'a> {
    name: &'a str,
    total: u64,
    shown: Option<u64>,
    global: &'a Global,
}

impl<'a> Progress<'a> {
    fn new(name: &'a str, total: u64, global: &'a Global) -> Progress<'a> {
        Progress { name, total, shown: None, global }
    }

    fn sent(&mut self, sent: u64) {
        let percent = sent * 100 / self.total.max(1);
        if self.global.quiet || !std::io::stderr().is_terminal() || self.shown == Some(percent) {
            return;
        }
        self.shown = Some(percent);
        output::status(&format!("uploading {}: {percent} % of {}", self.name, output::size(self.total)));
    }

    fn end(self) {
        if self.shown.is_some() {
            output::status("");
        }
        self.global.note(&format!("uploaded {} ({})", self.name, output::size(self.total)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[test]
    fn the_clusters_bytes_count_and_others_under_the_same_name_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = ComponentStore::open(folder.path());
        let named = ComponentRef::Named { name: "count".to_owned(), version: "1.0.0".to_owned() };
        let there = |bytes: &[u8]| {
            let (name, version) = ("count".to_owned(), "1.0.0".to_owned());
            [ComponentStatus { name, version, digest: store::digest_of(bytes), size_bytes: 3, pushed_at_ms: 0 }]
        };
        let global = Global::for_tests(folder.path());
        let described = |_| Ok(Some(Description::plain()));
        let find = |there: &[ComponentStatus]| {
            find(&named, folder.path(), &Places { there, described: &described, store: &store, global: &global })
        };
        let missing = find(&[]).unwrap_err();
        assert!(missing.number == "E0020" && missing.message.ends_with("nor on the cluster"), "{missing}");
        let found = find(&there(b"one")).unwrap();
        assert_eq!((found.digest, found.bytes), (store::digest_of(b"one"), None));
        store.push(b"one", "count", "1.0.0").unwrap();
        assert_eq!(find(&there(b"one")).unwrap().bytes, None);
        let failure = find(&[]).unwrap_err();
        assert!(failure.number == "E0022", "what is here alone is looked at before it goes there: {failure}");
        let refused = find(&there(b"two")).unwrap_err();
        assert_eq!((refused.number.as_ref(), refused.exit), ("E0021", Exit::Refused));
    }
}
