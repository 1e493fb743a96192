//! A job on its way: the text of its job file with everything needed to read it alike in every process.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_model::{Description, Digest};
use weir_plan::{ComponentRef, Diagnostics, Job};

/// Which bytes a component reference of a job file stands for. Fixed when the job is submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentPin {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// `name@version`, or the file it came from.
    pub name: String,
    /// What it says of itself. A coordinator goes by its own word for the digest, so whoever submits may leave it out.
    #[serde(default = "Description::plain")]
    pub description: Description,
}

/// The shortest value of a variable that is covered in texts.
const COVERED_BYTES_MIN: usize = 4;

/// A job as it was submitted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Path of the job file where it was submitted: for messages, and to tell jobs of one name apart.
    pub file: String,
    /// Its text.
    pub text: String,
    /// `--set` flags as (dotted key, value), in their order.
    pub overrides: Vec<(String, String)>,
    /// The environment variables that it names.
    pub environment: BTreeMap<String, String>,
    /// Absolute folder that relative paths in it start at. On a cluster, a folder that its workers share.
    pub job_dir: String,
    /// Folder of dead letters that no sink of the job reads.
    pub dead_letters: String,
    /// Whether the job may go back further than its last checkpoint although a sink cannot take back what it has shown since.
    #[serde(default)]
    pub allow_repeated_output: bool,
    /// By component reference, as the job file has it.
    pub components: BTreeMap<String, ComponentPin>,
    /// What operators that run natively say of themselves, by component reference; one that is not here has one input and one output.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub natives: BTreeMap<String, Description>,
}

/// Without values that came from the environment or a flag: whatever is logged or panics shows names only.
impl std::fmt::Debug for JobSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSpec")
            .field("file", &self.file)
            .field("overrides", &self.overrides.iter().map(|(key, _)| key).collect::<Vec<_>>())
            .field("environment", &self.environment.keys().collect::<Vec<_>>())
            .field("job_dir", &self.job_dir)
            .field("components", &self.components)
            .finish_non_exhaustive()
    }
}

impl JobSpec {
    /// A job file and nothing else: no flags, variables or components. Relative paths start at the root.
    pub fn new(file: &str, text: &str) -> JobSpec {
        JobSpec {
            file: file.to_owned(),
            text: text.to_owned(),
            overrides: Vec::new(),
            environment: BTreeMap::new(),
            job_dir: "/".to_owned(),
            dead_letters: "/dead".to_owned(),
            allow_repeated_output: false,
            components: BTreeMap::new(),
            natives: BTreeMap::new(),
        }
    }

    /// Reads and checks the job file by what its components say of themselves, and adds the sink for dead letters. The same
    /// everywhere.
    ///
    /// # Errors
    /// All that is wrong with it, at its places.
    pub fn load(&self) -> Result<Job, Diagnostics> {
        let variable = |name: &str| self.environment.get(name).cloned();
        let describe = |_: &str, component: &ComponentRef| {
            let reference = component.to_string();
            let pinned = self.components.get(&reference).map(|pin| &pin.description);
            let description = pinned.or_else(|| self.natives.get(&reference));
            Ok(Arc::new(description.cloned().unwrap_or_else(Description::plain)))
        };
        let job = weir_plan::load(&self.file, &self.text, &self.overrides, &variable, &describe)?;
        Ok(job.with_dead_letter_sink(&self.dead_letters))
    }

    /// A text about the job for others than its submitter: the name of a variable stands where its value was. A value of fewer than
    /// 4 bytes stays: it is no secret, and it may be in any text.
    pub fn covered(&self, text: &str) -> String {
        let mut values: Vec<(&String, &String)> =
            self.environment.iter().filter(|(_, value)| value.len() >= COVERED_BYTES_MIN).collect();
        // A value may be part of another one.
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        let mut rest = text;
        let mut out = String::with_capacity(text.len());
        while let Some(next) = rest.chars().next() {
            match values.iter().find(|(_, value)| rest.starts_with(value.as_str())) {
                Some((name, value)) => {
                    out.push_str(&format!("${{{name}}}"));
                    rest = &rest[value.len()..];
                }
                None => {
                    out.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s138_names_of_variables_stand_where_their_values_were() {
        let environment = [("PART", "hunter"), ("PASSWORD", "hunter2ü"), ("NAMES", "PASSWORD"), ("N", "8")];
        let spec = JobSpec {
            environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..JobSpec::new("", "")
        };
        for (text, covered) in [
            ("cannot open /d/hunter2ü/8: ühunter", "cannot open /d/${PASSWORD}/8: ü${PART}"),
            ("hunter2ühunter2ü", "${PASSWORD}${PASSWORD}"),
            ("hunter2", "${PART}2"),
            ("", ""),
        ] {
            assert_eq!(spec.covered(text), covered);
        }
    }
}
