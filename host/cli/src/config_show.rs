//! `weir config show`.

use crate::global::Global;
use crate::output;

/// Commands about configuration.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Show each value and where it comes from: flag, environment, weir.toml or default
    Show,
}

pub(crate) fn execute(command: &Command, global: &Global) -> anyhow::Result<()> {
    let Command::Show = command;
    for refused in global.refused() {
        let hint = refused.hint.map(|hint| format!("\n  = hint: {hint}")).unwrap_or_default();
        global.warn(&format!("warning: {}{hint}", refused.message));
    }
    if global.json {
        let entry = |(key, value, origin): &(&str, String, crate::config::Origin)| {
            ((*key).to_owned(), serde_json::json!({ "value": value, "origin": origin.to_string() }))
        };
        return output::print_json(&global.origins.iter().map(entry).collect::<serde_json::Map<_, _>>());
    }
    let row =
        |(key, value, origin): &(&str, String, crate::config::Origin)| vec![(*key).to_owned(), value.clone(), origin.to_string()];
    output::print(&output::table(&global.origins.iter().map(row).collect::<Vec<_>>()))
}
