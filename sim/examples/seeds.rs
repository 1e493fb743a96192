//! Runs fresh seeds, of one kind or of all in turn, for a number of runs or of minutes, and says as one JSON line how many went well, what
//! one costs, and what failed. `cargo xtask sim` uses it.
//!
//! ```text
//! seeds [--first SEED] [--runs N | --minutes N] [--profile NAME]
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_sim::{Failed, Profile, cpu_time, run};

struct Wanted {
    first: u64,
    runs: u64,
    time: Option<Duration>,
    profiles: Vec<Profile>,
}

fn wanted() -> Result<Wanted, String> {
    let mut wanted = Wanted { first: 0, runs: u64::MAX, time: None, profiles: Profile::ALL.to_vec() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value}"));
        match name.as_str() {
            "--first" => wanted.first = number()?,
            "--runs" => wanted.runs = number()?,
            "--minutes" => wanted.time = Some(Duration::from_secs(60 * number()?)),
            "--profile" => {
                let found = Profile::ALL.into_iter().find(|profile| format!("{profile:?}") == value);
                wanted.profiles =
                    vec![found.ok_or_else(|| format!("there is no profile {value}; there are {:?}", Profile::ALL))?];
            }
            _ => return Err(format!("there is no option {name}")),
        }
    }
    if wanted.runs == u64::MAX && wanted.time.is_none() {
        return Err("say how many: --runs N or --minutes N".to_owned());
    }
    Ok(wanted)
}

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is what it is for")]
fn main() -> ExitCode {
    let wanted = match wanted() {
        Ok(wanted) => wanted,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let (began, cpu_before) = (Instant::now(), cpu_time());
    let (mut done, mut rows, mut failed) = (0, 0, None::<Failed>);
    while done < wanted.runs && failed.is_none() && wanted.time.is_none_or(|time| began.elapsed() < time) {
        let profile = wanted.profiles[(done % wanted.profiles.len() as u64) as usize];
        match run(wanted.first.wrapping_add(done), profile, None) {
            Ok(ran) => rows += ran.rows,
            Err(found) => failed = Some(found),
        }
        done += 1;
    }
    let cpu = (cpu_time() - cpu_before).as_secs_f64();
    println!(
        "{}",
        serde_json::json!({
            "first": wanted.first,
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
