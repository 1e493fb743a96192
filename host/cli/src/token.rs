//! `weir token ...`: who may ask a cluster, and for what.
//!
//! Never keeps a token: it is printed, or written into a new file of its own, once.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use weir_api::Token;
use weir_model::ErrorNumber;
use weir_plan::parse_duration;
use weir_protocol::access::{CreatedToken, NewToken, Role, TokenStatus};

use crate::client::{Client, ClusterArgs};
use crate::failure::{Exit, Failure};
use crate::global::Global;
use crate::output;

/// Commands about tokens.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Create a token, and print it: the only time that it is shown
    Create {
        /// Its name, which events show beside what was done with it, such as ci or grafana
        name: String,
        /// What it may: viewer (see everything), operator (and stop, cancel and rescale jobs), submitter (and submit and remove jobs
        /// and components) or admin (and create and revoke tokens)
        #[arg(long)]
        role: Role,
        /// How long it counts, such as 90d [default: until it is revoked]
        #[arg(long, value_name = "DURATION", value_parser = parse)]
        expires: Option<Duration>,
        /// Write it into a new file that only you can read, instead of printing it
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// List the cluster's tokens, without what is secret of them
    Ls {
        #[command(flatten)]
        cluster: ClusterArgs,
    },
    /// Revoke a token: whoever shows it is refused from now on
    Revoke {
        /// Its name
        name: String,
        #[command(flatten)]
        cluster: ClusterArgs,
    },
}

fn parse(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

pub(crate) fn execute(command: Command, global: &Global) -> anyhow::Result<()> {
    let client = |cluster: &ClusterArgs| Client::new(cluster.target_or_local(global)?);
    match command {
        Command::Create { name, role, expires, output, cluster } => {
            let valid_ms = expires.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            create(&client(&cluster)?, &NewToken { name, role, valid_ms }, output, global)
        }
        Command::Ls { cluster } => list(&client(&cluster)?.tokens()?, global),
        Command::Revoke { name, cluster } => {
            client(&cluster)?.revoke_token(&name)?;
            global.note(&format!("token {name} counts no longer"));
            Ok(())
        }
    }
}

fn create(client: &Client, wanted: &NewToken, file: Option<PathBuf>, global: &Global) -> anyhow::Result<()> {
    let not_written = |reason: String| {
        Failure::new(ErrorNumber::FileInaccessible, Exit::Usage, reason)
            .hint("a token goes into a new file only: name another one")
    };
    if let Some(file) = file.as_ref().filter(|file| file.symlink_metadata().is_ok()) {
        return Err(not_written(format!("cannot write a token into {}: it exists", file.display())).into());
    }
    let CreatedToken { token, secret } = client.create_token(wanted)?;
    if let Some(file) = &file {
        let written = Token::new(&secret).map(|token| token.create(file));
        let problem = match written {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error.to_string()),
            None => Some("what the coordinator sent is no token".to_owned()),
        };
        if let Some(problem) = problem {
            // Nobody has it: it must not count.
            client.revoke_token(&token.name)?;
            return Err(not_written(problem).into());
        }
        global.note(&format!("its secret is in {}: WEIR_TOKEN_FILE or --token-file names that file", file.display()));
    }
    global.note(&format!("token {} has the role {} and counts {}", token.name, token.role, expiry(&token)));
    if global.json {
        let secret = file.is_none().then_some(secret);
        return output::print_json(&json!({ "token": token, "secret": secret, "file": file }));
    }
    match file {
        Some(file) => output::print(&format!("{}\n", file.display())),
        None => {
            global.note("this is the only time that it is shown; keep it in a file that only its owner can read");
            output::print(&format!("{secret}\n"))
        }
    }
}

fn expiry(token: &TokenStatus) -> String {
    let Some(end) = token.expires_at_ms else { return "until it is revoked".to_owned() };
    let at = output::time(i64::try_from(end).unwrap_or(i64::MAX));
    if end <= output::now_ms() { format!("expired {at}") } else { format!("until {at}") }
}

fn list(tokens: &[TokenStatus], global: &Global) -> anyhow::Result<()> {
    if global.json {
        return output::print_json(&tokens);
    }
    if tokens.is_empty() {
        global.note("the cluster has no tokens; `weir token create NAME --role ROLE` makes one");
        return Ok(());
    }
    output::print(&table(tokens))
}

fn table(tokens: &[TokenStatus]) -> String {
    let header = ["NAME", "ROLE", "CREATED", "BY", "COUNTS", "LAST USED"].map(str::to_owned).to_vec();
    let rows = tokens.iter().map(|token| {
        let by = token.created_by.as_ref().map_or_else(|| "token file".to_owned(), ToString::to_string);
        let used = token.used_at_ms.map_or_else(|| "never".to_owned(), output::ago);
        vec![token.name.clone(), token.role.to_string(), output::ago(token.created_at_ms), by, expiry(token), used]
    });
    output::table(&std::iter::once(header).chain(rows).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_protocol::access::Person;

    #[test]
    fn a_token_is_one_line_with_all_that_decides_whether_it_is_still_needed() {
        let token = TokenStatus {
            name: "ci".to_owned(),
            role: Role::Submitter,
            created_at_ms: output::now_ms(),
            created_by: Some(Person::User("root".to_owned())),
            expires_at_ms: Some(1_772_406_000_000),
            used_at_ms: None,
        };
        let of_file = TokenStatus { created_by: None, expires_at_ms: None, ..token.clone() };
        let shown = table(&[TokenStatus { expires_at_ms: Some(1_000), ..token.clone() }, of_file]);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("NAME") && lines[0].contains("LAST USED"), "{shown}");
        for part in ["ci", "submitter", "user root", "expired 1970-01-01", "never"] {
            assert!(lines[1].contains(part), "{part} is not in {}", lines[1]);
        }
        assert!(lines[2].contains("token file") && lines[2].contains("until it is revoked"), "{shown}");
    }
}
