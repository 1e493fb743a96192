//! Job files for clusters: ledgers, whose output is known to the cent.

use std::fmt::Write;

/// A job that reads the files of `in`, sums up, and writes every sum to `out`; its dead letters go to `bad`.
#[derive(Clone, Debug)]
pub struct LedgerJob {
    /// Its name.
    pub name: &'static str,
    /// Parallelism of all of it.
    pub parallelism: u32,
    /// Lines of `[job.checkpoint]`.
    pub checkpoint: String,
    /// Lines of `[job]`.
    pub job: String,
    /// Lines of its source.
    pub source: String,
    /// Rows find their way to the reading operator in turn, and so lose their order.
    pub rebalance: bool,
    /// The summing operator also gets all rows of the files of `rates`, in every instance.
    pub broadcast: bool,
    /// All sums also go to the standard output of the worker, which may be read slowly.
    pub slow: bool,
}

impl Default for LedgerJob {
    fn default() -> LedgerJob {
        LedgerJob {
            name: "ledger",
            parallelism: 2,
            checkpoint: "interval = \"100ms\"".to_owned(),
            job: "key_groups = 32".to_owned(),
            source: String::new(),
            rebalance: false,
            broadcast: false,
            slow: false,
        }
    }
}

impl LedgerJob {
    /// The job file.
    pub fn text(&self) -> String {
        let LedgerJob { name, parallelism, checkpoint, job, source, .. } = self;
        let reading = if self.rebalance { "{ from = \"log\", exchange = \"rebalance\" }" } else { "\"log\"" };
        let hashed = "{ from = \"parse\", exchange = \"hash\" }";
        let summing = match self.broadcast {
            false => format!("input = {hashed}"),
            true => format!("inputs = [{hashed}, {{ from = \"parse-rates\", exchange = \"broadcast\" }}]"),
        };
        let mut text = format!(
            r#"
[job]
name = "{name}"
parallelism = {parallelism}
on_error = "dead_letter"
{job}

[job.checkpoint]
{checkpoint}

[job.restart]
strategy = "fixed"
delay = "50ms"

[[source]]
id = "log"
connector = "file"
path = "in"
event_time = {{ field = "at", format = "unix-ms" }}
{source}

[[operator]]
id = "parse"
component = "parse@1.2.0"
input = {reading}
config = {{ format = "json", key = "account" }}

[[operator]]
id = "sums"
component = "ledger@1.2.0"
{summing}
config = {{ field = "amount", emit = "each" }}

[[sink]]
id = "out"
connector = "file"
input = "sums"
path = "out"

[[sink]]
id = "bad"
connector = "file"
input = "dead_letter"
path = "bad"
"#
        );
        if self.broadcast {
            let _ = write!(
                text,
                r#"
[[source]]
id = "rates"
connector = "file"
path = "rates"
parallelism = 1
event_time = {{ field = "at", format = "unix-ms" }}

[[operator]]
id = "parse-rates"
component = "parse@1.2.0"
input = "rates"
parallelism = 1
config = {{ format = "json", key = "account" }}
"#
            );
        }
        if self.slow {
            text += "\n[[sink]]\nid = \"slow\"\nconnector = \"stdout\"\ninput = \"sums\"\n";
        }
        text
    }
}
