//! `cargo xtask fuzz` where there is no cargo-fuzz: campaigns in turn, until the time is over. Findings are put into `fuzz/found/`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its standard streams")]

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_fuzz::campaign::{self, Until};
use weir_fuzz::{Target, target, targets};

const USAGE: &str = "usage: weir-fuzz SECONDS SEED [TARGET...]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(Ok(seconds)), Some(Ok(seed))) =
        (arguments.first().map(|text| text.parse::<u64>()), arguments.get(1).map(|text| text.parse::<u64>()))
    else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut chosen: Vec<Target> = Vec::new();
    for name in &arguments[2..] {
        let Some(target) = target(name) else {
            let names: Vec<&str> = targets().iter().map(|target| target.name).collect();
            eprintln!("there is no target {name}; there are {}", names.join(", "));
            return ExitCode::from(2);
        };
        chosen.push(target);
    }
    if chosen.is_empty() {
        chosen = targets();
    }
    // What targets panic with is told at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let each = Duration::from_secs(seconds) / chosen.len().try_into().unwrap_or(1);
    let mut is_clean = true;
    for target in chosen {
        match campaign::run(&target, seed, Until::Time(Instant::now() + each)) {
            Ok(outcome) => {
                println!("{:16} {:>9} inputs, {:>5} different answers", target.name, outcome.tried, outcome.said);
                for finding in outcome.findings {
                    is_clean = false;
                    let place = keep(target.name, &finding.bytes);
                    println!("  FOUND: {}\n  input: {place}", finding.what);
                }
            }
            Err(error) => {
                eprintln!("cannot read the corpus of {}: {error}", target.name);
                return ExitCode::FAILURE;
            }
        }
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Keeps an input. Where, or why it could not be.
fn keep(target: &str, bytes: &[u8]) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    let path = folder.join(format!("{target}-{:016x}", hasher.finish()));
    match std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, bytes)) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("it cannot be kept: {error}"),
    }
}
