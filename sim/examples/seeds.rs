//! Runs fresh seeds, of one kind or of all in turn, for a number of runs or of minutes, and says as one JSON line how many went well, what
//! one costs, and what failed. `cargo xtask sim` uses it.
//!
//! ```text
//! seeds [--first SEED] [--runs N | --minutes N] [--profile NAME]
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_sim::{Failure, Profile, cpu_time, run};

struct Options {
    first: u64,
    runs: u64,
    time: Option<Duration>,
    profiles: Vec<Profile>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { first: 0, runs: u64::MAX, time: None, profiles: Profile::ALL.to_vec() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value}"));
        match name.as_str() {
            "--first" => options.first = number()?,
            "--runs" => options.runs = number()?,
            "--minutes" => options.time = Some(Duration::from_secs(60 * number()?)),
            "--profile" => {
                let found = Profile::ALL.into_iter().find(|profile| format!("{profile:?}") == value);
                options.profiles =
                    vec![found.ok_or_else(|| format!("there is no profile {value}; there are {:?}", Profile::ALL))?];
            }
            _ => return Err(format!("there is no option {name}")),
        }
    }
    if options.runs == u64::MAX && options.time.is_none() {
        return Err("say how many: --runs N or --minutes N".to_owned());
    }
    Ok(options)
}

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what it is for")]
fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let (began, cpu_before) = (Instant::now(), cpu_time());
    let (mut done, mut rows, mut failed) = (0, 0, None::<Failure>);
    while done < options.runs && failed.is_none() && options.time.is_none_or(|time| began.elapsed() < time) {
        let profile = options.profiles[(done % options.profiles.len() as u64) as usize];
        match run(options.first.wrapping_add(done), profile, None) {
            Ok(ran) => rows += ran.rows,
            Err(found) => failed = Some(found),
        }
        done += 1;
    }
    let cpu = (cpu_time() - cpu_before).as_secs_f64();
    println!(
        "{}",
        serde_json::json!({
            "first": options.first,
            "runs": done,
            "rows": rows,
            "cpu_seconds": (cpu * 10.0).round() / 10.0,
            "seeds_per_cpu_minute": (done as f64 * 60.0 / cpu.max(0.001)).round(),
            "failed": failed.as_ref().map(|found| serde_json::json!({
                "seed": found.seed,
                "profile": format!("{:?}", found.profile),
                "wrong": found.wrong,
            })),
        })
    );
    match &failed {
        None => ExitCode::SUCCESS,
        Some(found) => {
            eprintln!("{found}\nreplay: WEIR_SIM_SEED={} cargo nextest run -p weir-sim {}", found.seed, found.profile.test());
            ExitCode::FAILURE
        }
    }
}
