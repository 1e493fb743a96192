//! Job files with one keyed operator behind `parse`.

/// A job that reads JSON lines, groups them by a field, and writes what one operator makes of each group to `out`.
#[derive(Clone, Copy, Debug)]
pub struct KeyedJob {
    /// Its name.
    pub name: &'static str,
    /// Lines of `[job]` behind the name, and the tables below it.
    pub job: &'static str,
    /// Lines of its source: at least the path.
    pub source: &'static str,
    /// The field to group by.
    pub key: &'static str,
    /// The operator's uid.
    pub uid: &'static str,
    /// Lines of the operator: its component and configuration.
    pub operator: &'static str,
    /// What else is in the job file.
    pub more: &'static str,
}

impl KeyedJob {
    /// The job file.
    pub fn text(&self) -> String {
        let KeyedJob { name, job, source, key, uid, operator, more } = self;
        format!(
            r#"
[job]
name = "{name}"
{job}

[[source]]
id = "log"
connector = "file"
{source}

[[operator]]
id = "parse"
component = "parse@1.2.0"
input = "log"
config = {{ format = "json", key = "{key}" }}

[[operator]]
id = "{uid}"
input = {{ from = "parse", exchange = "hash" }}
{operator}

[[sink]]
id = "out"
connector = "file"
input = "{uid}"
path = "out"
{more}
"#
        )
    }
}
