//! `weir component ...`: from source to a component in the store.

mod build;
pub(crate) mod describe;
mod new;
mod remote;
mod text;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use weir_model::{Description, Digest, ErrorNumber};
use weir_plan::ComponentRef;
use weir_sandbox::Inspection;
use weir_storage::Pushed;

use crate::client::{Client, ClusterArgs};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::sdk::RUST_SDK;

use crate::store::{self, ComponentStore, short};
use crate::{files, output};

/// Commands about components.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Create a crate for a new operator
    New {
        /// The language to write it in
        #[arg(long, default_value = "rust")]
        lang: String,
        /// Its name, or the path of the folder to create, which ends with its name
        name: PathBuf,
    },
    /// Build the operator in a folder into a component
    Build {
        /// The folder of its Cargo.toml
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Where to write the component [default: NAME.wasm in the folder]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Cargo's profile
        #[arg(long, default_value = "release")]
        profile: String,
    },
    /// Check that a file is a component Weir can run
    Check {
        /// The component
        file: PathBuf,
    },
    /// Show what a component says of itself (inputs, outputs, state, configuration), and what it is made of
    Inspect {
        /// The component
        file: PathBuf,
    },
    /// Write out the contract between Weir and its operators, as WIT
    Wit {
        /// A folder for weir.wit [default: to standard output]
        dir: Option<PathBuf>,
    },
    /// Store a component: on the cluster if one is configured, otherwise on this machine
    Push {
        /// The component
        file: PathBuf,
        /// The name to keep it under, instead of the one it carries
        #[arg(long)]
        name: Option<String>,
        /// The version to keep it under, instead of the one it carries
        #[arg(long)]
        version: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// List the stored components: of the cluster if one is configured, otherwise of this machine
    Ls {
        #[command(flatten)]
        place: Place,
    },
    /// Show a stored component: of the cluster if one is configured, otherwise of this machine
    Show {
        /// NAME@VERSION
        component: String,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a stored component: of the cluster if one is configured, otherwise of this machine
    Rm {
        /// NAME@VERSION
        component: String,
        #[command(flatten)]
        place: Place,
    },
}

/// Which store: that of the cluster, if one is configured, and otherwise that of this machine.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// Use the store of this machine, even if a cluster is configured
    #[arg(long, conflicts_with = "coordinator")]
    local: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
}

impl Place {
    /// The cluster; none for this machine.
    fn client(&self, global: &Global) -> Result<Option<Client>, Failure> {
        if self.local {
            return Ok(None);
        }
        self.cluster.configured(global)?.map(Client::new).transpose()
    }
}

pub(crate) fn execute(command: Command, global: &Global) -> anyhow::Result<()> {
    let store = store::open(&global.data_dir);
    match command {
        Command::New { lang, name } => new::execute(&lang, &name, global),
        Command::Build { dir, output, profile } => build::execute(&dir, output.as_deref(), &profile, global),
        Command::Check { file } => check(&file, global),
        Command::Inspect { file } => {
            let (bytes, name) = (files::read(&file, "component")?, file.display().to_string());
            let inspection = inspect(&bytes, &name)?;
            let description = describe::describe(&bytes, &name, global)?;
            if global.json {
                return output::print_json(&with_description(json!(inspection), &description));
            }
            output::print(&text::text(&inspection, &description))
        }
        Command::Wit { dir } => wit(dir.as_deref(), global),
        Command::Push { file, name, version, place } => {
            let component = NamedComponent::of(&file, name, version)?;
            match place.client(global)? {
                Some(client) => remote::push(&client, &component, global),
                None => push(&store, &component, global),
            }
        }
        Command::Ls { place } => match place.client(global)? {
            Some(client) => remote::list(&client, global),
            None => list(&store, global),
        },
        Command::Show { component, place } => match place.client(global)? {
            Some(client) => {
                let (name, version) = parse_name(&component)?;
                remote::show(&client, &name, &version, global)
            }
            None => show(&store, &component, global),
        },
        Command::Rm { component, place } => {
            let (name, version) = parse_name(&component)?;
            if let Some(client) = place.client(global)? {
                return remote::remove(&client, &name, &version, global);
            }
            let removed = store.remove(&name, &version, &|_| false).map_err(Failure::from)?;
            global.note(&format!("removed {}, digest {}", removed.full_name(), short(&removed.digest.to_string())));
            Ok(())
        }
    }
}

/// What a component is made of, or why Weir does not take it.
fn inspect(bytes: &[u8], file: &str) -> Result<Inspection, Failure> {
    weir_sandbox::inspect(bytes).map_err(|error| refused(file, &error))
}

/// What a component is made of with what it says of itself; the schema of its configuration as JSON, not as text.
fn with_description(mut inspection: Value, description: &Description) -> Value {
    let mut described = json!(description);
    if let Ok(schema) = serde_json::from_str(&description.config) {
        described["config"] = schema;
    }
    inspection["description"] = described;
    inspection
}

/// Writes the contract into a folder, or prints it.
fn wit(folder: Option<&Path>, global: &Global) -> anyhow::Result<()> {
    let (_, text) = RUST_SDK.iter().find(|(path, _)| *path == "wit/weir.wit").unwrap_or(&("", ""));
    let Some(folder) = folder else { return output::print(text) };
    let file = folder.join("weir.wit");
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, text));
    written.map_err(|error| {
        let message = format!("cannot write the contract {}: {error}", file.display());
        Failure::new(ErrorNumber::FileInaccessible, Exit::Failed, message)
    })?;
    global.note(&format!("wrote {}; `wit-bindgen` and its like make bindings of it for many languages", file.display()));
    Ok(())
}

fn refused(file: &str, error: &weir_sandbox::SandboxError) -> Failure {
    let text = error.to_string();
    // The sandbox puts its hint behind the last semicolon.
    let (reason, hint) = text.rsplit_once("; ").map_or((text.as_str(), None), |(reason, hint)| (reason, Some(hint)));
    let failure = Failure::new(ErrorNumber::NotAComponent, Exit::Refused, format!("cannot use {file} as a component: {reason}"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn check(file: &Path, global: &Global) -> anyhow::Result<()> {
    let name = file.display().to_string();
    let bytes = files::read(file, "component")?;
    let sandbox = describe::asker(None)?;
    let component = sandbox.take_in(&bytes).map_err(|error| refused(&name, &error))?;
    sandbox.describe(&bytes).map_err(|error| refused(&name, &error))?;
    if global.json {
        return output::print_json(&json!({
            "file": name, "digest": component.digest().to_string(), "name": component.name(), "portable": component.is_portable(),
        }));
    }
    let called = component.name().unwrap_or("without a name");
    output::print(&format!("{name}: good, {called}, digest {}\n", component.digest()))
}

/// A component that is to be pushed.
struct NamedComponent {
    bytes: Vec<u8>,
    name: String,
    version: String,
}

impl NamedComponent {
    /// A component under the name that flags give it, or else that it carries.
    fn of(file: &Path, name: Option<String>, version: Option<String>) -> Result<NamedComponent, Failure> {
        let bytes = files::read(file, "component")?;
        let inspection = inspect(&bytes, &file.display().to_string())?;
        let carried = inspection.name.as_deref().and_then(|name| name.split_once('@'));
        let name = name.or_else(|| carried.map(|(name, _)| name.to_owned()));
        let version = version.or_else(|| carried.map(|(_, version)| version.to_owned()));
        let (Some(name), Some(version)) = (name, version) else {
            let message = format!("cannot push {}: it carries no name and version", file.display());
            let hint = "give them: --name NAME --version VERSION (`weir component build` writes them into what it builds)";
            return Err(Failure::new(ErrorNumber::NoSuchComponent, Exit::Usage, message).hint(hint));
        };
        Ok(NamedComponent { bytes, name, version })
    }

    /// Says that it is there.
    fn pushed(&self, digest: Digest, already: bool, store: &str, global: &Global) -> anyhow::Result<()> {
        let NamedComponent { name, version, .. } = self;
        if global.json {
            let pushed = json!({ "name": name, "version": version, "digest": digest.to_string(), "already_there": already });
            return output::print_json(&pushed);
        }
        let what = if already { "was already there in" } else { "is in" };
        global.note(&format!("{name}@{version} {what} {store}; a job file names it with component = \"{name}@{version}\""));
        output::print(&format!("{name}@{version} {digest}\n"))
    }
}

fn push(store: &ComponentStore, component: &NamedComponent, global: &Global) -> anyhow::Result<()> {
    // A job that named it could not be planned.
    describe::describe(&component.bytes, &format!("{}@{}", component.name, component.version), global)?;
    let pushed = store.push(&component.bytes, &component.name, &component.version).map_err(Failure::from)?;
    component.pushed(pushed.digest(), matches!(pushed, Pushed::AlreadyThere(_)), "the store", global)
}

fn list(store: &ComponentStore, global: &Global) -> anyhow::Result<()> {
    let all = store.list().map_err(Failure::from)?;
    if global.json {
        return output::print_json(&all);
    }
    if all.is_empty() {
        global.note("the component store is empty; `weir component push FILE` puts a component in it");
        return Ok(());
    }
    let mut rows = vec![["NAME", "VERSION", "DIGEST", "SIZE", "PUSHED"].map(str::to_owned).to_vec()];
    for stored in &all {
        let digest = short(&stored.digest.to_string()).to_owned();
        let (size, pushed) = (output::size(stored.size_bytes), stored.pushed_at_ms.map_or("with weir".to_owned(), output::ago));
        rows.push(vec![stored.name.clone(), stored.version.clone(), digest, size, pushed]);
    }
    output::print(&output::table(&rows))
}

fn show(store: &ComponentStore, component: &str, global: &Global) -> anyhow::Result<()> {
    let (name, version) = parse_name(component)?;
    let stored = store.get(&name, &version).map_err(Failure::from)?;
    let found = store::resolve(store, &ComponentRef::Named { name, version }, Path::new(""))?;
    let inspection = inspect(&found.bytes, &found.name)?;
    let description = describe::describe(&found.bytes, &found.name, global)?;
    if global.json {
        return output::print_json(&json!({ "stored": stored, "inspection": with_description(json!(inspection), &description) }));
    }
    let pushed = format!("{}, pushed {}\n", stored.full_name(), output::ago(stored.pushed_at_ms.unwrap_or_default()));
    output::print(&format!("{pushed}{}", text::text(&inspection, &description)))
}

fn parse_name(component: &str) -> Result<(String, String), Failure> {
    match component.split_once('@') {
        Some((name, version)) => Ok((name.to_owned(), version.to_owned())),
        None => Err(Failure::new(
            ErrorNumber::NoSuchComponent,
            Exit::Usage,
            format!("`{component}` does not name a component of the store"),
        )
        .hint(format!("write {component}@VERSION; `weir component ls` lists what there is"))),
    }
}
