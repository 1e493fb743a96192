//! `weir example`: whole jobs with sample data, which are part of the binary, written to a new folder to be run and changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use weir_model::ErrorNumber;

use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;
use crate::sdk::{EXAMPLES, EmbeddedFile};

/// Commands about examples.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the examples
    Ls,
    /// Write an example's job file and sample data to a new folder
    New {
        /// Its name, as `weir example ls` lists it
        name: String,
        /// The folder to create [default: the example's name, in the current folder]
        dir: Option<PathBuf>,
    },
}

pub(crate) fn execute(command: Command, global: &Global) -> anyhow::Result<()> {
    match command {
        Command::Ls => list(global),
        Command::New { name, dir } => {
            let example = Example::named(&name)?;
            let dir = dir.unwrap_or_else(|| PathBuf::from(example.name));
            example.write(&dir)?;
            example.made(&dir, global)
        }
    }
}

struct Example {
    name: &'static str,
    files: &'static [EmbeddedFile],
}

impl Example {
    fn all() -> impl Iterator<Item = Example> {
        EXAMPLES.iter().map(|(name, files)| Example { name, files })
    }

    fn named(name: &str) -> Result<Example, Failure> {
        Example::all().find(|example| example.name == name).ok_or_else(|| {
            let failure = Failure::new(ErrorNumber::NoSuchName, Exit::Usage, format!("there is no example `{name}`"));
            match weir_plan::nearest(name, EXAMPLES.iter().map(|(name, _)| *name)) {
                Some(near) => failure.hint(format!("did you mean `{near}`?")),
                None => failure.hint("`weir example ls` lists all examples"),
            }
        })
    }

    /// What it does: the first line of its job file, a comment.
    fn about(&self) -> &'static str {
        let job = self.files.iter().find(|(path, _)| *path == "job.toml").map_or("", |(_, text)| text);
        job.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }

    /// Writes its files. A folder that is there already is never written to.
    fn write(&self, dir: &Path) -> Result<(), Failure> {
        let shown = dir.display();
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(|error| not_written(parent, &error))?;
        }
        match fs::create_dir(dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let message = format!("cannot write the example {} to {shown}: there is something at that path", self.name);
                let hint = format!("name a folder that does not exist: weir example new {} DIR", self.name);
                return Err(Failure::new(ErrorNumber::FileInaccessible, Exit::Usage, message).hint(hint));
            }
            Err(error) => return Err(not_written(dir, &error)),
        }
        // In the repository commands are given from its root.
        let here = format!("examples/{}/", self.name);
        self.files.iter().try_for_each(|(path, text)| {
            let path = dir.join(path);
            fs::write(&path, text.replace(&here, "")).map_err(|error| not_written(&path, &error))
        })
    }

    fn made(&self, dir: &Path, global: &Global) -> anyhow::Result<()> {
        let files: Vec<&str> = self.files.iter().map(|(path, _)| *path).collect();
        if global.json {
            return output::print_json(&json!({ "example": self.name, "folder": dir, "files": files }));
        }
        let shown = dir.display();
        global.note(&format!(
            "made {shown}: {}\n\nnext:\n  cd {shown}\n  weir job check job.toml\n  weir run job.toml\n\nREADME.md says what is in the output, \
             and how to run it on your own data",
            files.join(", ")
        ));
        Ok(())
    }
}

fn list(global: &Global) -> anyhow::Result<()> {
    if global.json {
        let line = |example: Example| json!({ "name": example.name, "about": example.about() });
        return output::print_json(&Example::all().map(line).collect::<Vec<_>>());
    }
    let rows: Vec<Vec<String>> =
        Example::all().map(|example| vec![example.name.to_owned(), example.about().to_owned()]).collect();
    output::print(&output::table(&rows))?;
    global.note("\n`weir example new NAME` writes one to a new folder");
    Ok(())
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::new(ErrorNumber::FileInaccessible, Exit::Failed, format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use std::sync::Arc;

    use weir_model::{Description, OutputPort};
    use weir_plan::ComponentRef;

    use super::*;

    /// The operators of examples: those over time have an output for late rows.
    fn windows(_: &str, component: &ComponentRef) -> Result<Arc<Description>, weir_plan::DescriptionError> {
        let mut description = Description::plain();
        if !matches!(component, ComponentRef::Named { name, .. } if name == "parse" || name == "filter" || name == "ledger") {
            description.outputs.push(OutputPort { name: "late".to_owned(), doc: String::new(), keeps_key: true });
        }
        Ok(Arc::new(description))
    }

    #[test]
    fn every_example_is_a_job_that_its_folder_is_enough_for() {
        assert!(Example::all().count() >= 4);
        for example in Example::all() {
            let folder = tempfile::tempdir().unwrap();
            let dir = folder.path().join("a/b");
            example.write(&dir).unwrap();
            let text = fs::read_to_string(dir.join("job.toml")).unwrap();
            let job = weir_plan::load("job.toml", &text, &[], &|_| None, &windows).unwrap();
            assert_eq!(job.name, example.name);
            weir_worker::check_connectors(&job, &dir).unwrap();
            assert!(example.about().len() > 20 && text.starts_with('#'), "{}", example.about());
            let readme = fs::read_to_string(dir.join("README.md")).unwrap();
            assert!(readme.contains("weir run job.toml") && !readme.contains("examples/"), "{}", example.name);
            let size: usize = example.files.iter().map(|(_, text)| text.len()).sum();
            assert!(size < 100 << 10, "{} is {size} bytes of the binary", example.name);
        }
    }

    #[test]
    fn nothing_that_is_there_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let example = Example::named("visitors").unwrap();
        let failure = example.write(folder.path()).unwrap_err();
        assert_eq!((failure.number.as_ref(), failure.exit), ("E0023", Exit::Usage));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let file = folder.path().join("file");
        fs::write(&file, "mine").unwrap();
        assert!(example.write(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        assert!(example.write(&file.join("below")).unwrap_err().message.starts_with("cannot write "));
    }

    #[test]
    fn a_wrong_name_names_the_nearest() {
        let failure = Example::named("pageview").err().unwrap();
        assert_eq!((failure.number.as_ref(), failure.hint.as_deref()), ("E0029", Some("did you mean `pageviews`?")));
    }
}
