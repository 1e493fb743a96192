//! The targets.

mod jobs;
mod lines;
mod nodes;
mod requests;
mod uploads;

use crate::Target;

/// Words of everything that is JSON.
const JSON_WORDS: &[&str] =
    &["{", "}", "[", "]", "\"", ":", ",", "null", "true", "\\u0000", "\\ud800", "1e999", "-0", "\u{0}", "\u{202e}", "é"];

/// By how little their senders are trusted.
pub(crate) fn all() -> Vec<Target> {
    let json = |name, run, seeds, bounded| Target { name, run, seeds, words: JSON_WORDS, bounded };
    let binary = |name, run, seeds, bounded| Target { name, run, seeds, words: &[], bounded };
    vec![
        json("report", nodes::report, weir_coordinator::fuzz::reports, 1_500),
        json("peer_message", weir_worker::fuzz::peer_message, weir_worker::fuzz::peer_messages, 3_000),
        json("command", nodes::command, nodes::commands, 1_500),
        binary("component", weir_sandbox::fuzz::component, uploads::components, 1_500),
        binary("images", weir_sandbox::fuzz::images, weir_sandbox::fuzz::chains, 1_500),
        Target { name: "job", run: jobs::job, seeds: jobs::jobs, words: jobs::WORDS, bounded: 3_000 },
        Target { name: "api", run: requests::request, seeds: requests::requests, words: requests::WORDS, bounded: 500 },
        binary("lines", lines::lines, lines::plain, 1_000),
        binary("compressed", lines::lines, lines::compressed, 1_000),
        json("positions", lines::positions, lines::noted, 1_000),
        json("committables", lines::committables, lines::prepared, 1_000),
        json("manifest", weir_storage::fuzz::manifest, weir_storage::fuzz::manifests, 1_000),
        json("log_entry", weir_storage::fuzz::entry, weir_storage::fuzz::entries, 2_000),
        json("json", lines::json, lines::values, 5_000),
        Target { name: "clf", run: lines::clf, seeds: lines::accesses, words: lines::WORDS, bounded: 5_000 },
        Target { name: "times", run: lines::times, seeds: lines::moments, words: lines::WORDS, bounded: 5_000 },
        binary("knock", nodes::knock, nodes::packets, 300),
        binary("hello", weir_transport::fuzz::hello, Vec::new, 5_000),
        binary("channel_header", weir_transport::fuzz::channel_header, Vec::new, 5_000),
        binary("frames", nodes::frames, Vec::new, 5_000),
    ]
}
