//! `[job]`, `[job.checkpoint]`, `[job.restart]`.

use std::time::Duration;

use weir_model::limits::{KEY_GROUPS_DEFAULT, KEY_GROUPS_MAX, PARALLELISM_MAX};

use crate::diagnostics::Code;
use crate::job::{CheckpointMode, CheckpointSettings, OnError, RestartSettings};
use crate::problems::Problems;
use crate::reader::Section;

/// What `[job]` says.
pub(crate) struct JobSettings {
    pub(crate) name: String,
    pub(crate) parallelism: u32,
    pub(crate) key_groups: u16,
    pub(crate) on_error: OnError,
    pub(crate) checkpoint: CheckpointSettings,
    pub(crate) restart: RestartSettings,
}

/// The words of `on_error`.
pub(crate) const ON_ERROR: [(&str, OnError); 2] = [("fail", OnError::Fail), ("dead_letter", OnError::DeadLetter)];

/// What a name may look like, for messages.
pub(crate) const NAME_EXPECTED: &str = "letters, digits, `_` and `-`, starting with a letter or digit, 64 at most";

/// Whether a text may name a job, vertex or output. Names become parts of file names and of dotted references.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

pub(crate) fn read(mut job: Section<'_>, problems: &mut Problems) -> JobSettings {
    let expected = format!("a name of {NAME_EXPECTED}");
    job.require("name", &expected, problems);
    let name = job.string("name", &expected, problems);
    if let (Some(name), Some(node)) = (&name, job.get("name"))
        && !is_name(name)
    {
        job.wrong("name", node, &expected, None, problems);
    }
    let settings = JobSettings {
        name: name.unwrap_or_default(),
        parallelism: job.number("parallelism", 1..=PARALLELISM_MAX, problems).unwrap_or(1),
        key_groups: job
            .number("key_groups", 1..=u32::from(KEY_GROUPS_MAX), problems)
            .and_then(|groups| u16::try_from(groups).ok())
            .unwrap_or(KEY_GROUPS_DEFAULT),
        on_error: job.choice("on_error", &ON_ERROR, problems).unwrap_or(OnError::DeadLetter),
        checkpoint: job
            .section("checkpoint", "[job.checkpoint]".to_owned(), problems)
            .map_or_else(CheckpointSettings::default, |section| checkpoint(section, problems)),
        restart: job
            .section("restart", "[job.restart]".to_owned(), problems)
            .map_or_else(RestartSettings::default, |section| restart(section, problems)),
    };
    job.finish(problems);
    settings
}

impl Default for CheckpointSettings {
    fn default() -> CheckpointSettings {
        CheckpointSettings {
            interval: Some(Duration::from_secs(10)),
            mode: CheckpointMode::ExactlyOnce,
            unaligned_after: Some(Duration::from_secs(1)),
            timeout: Duration::from_mins(10),
            min_pause: Duration::ZERO,
            tolerable_failures: 3,
            retained: 3,
            storage: None,
        }
    }
}

const MODES: [(&str, CheckpointMode); 2] =
    [("exactly-once", CheckpointMode::ExactlyOnce), ("at-least-once", CheckpointMode::AtLeastOnce)];

fn checkpoint(mut section: Section<'_>, problems: &mut Problems) -> CheckpointSettings {
    let default = CheckpointSettings::default();
    let interval = match section.duration_or("interval", "off", problems) {
        Some(Some(interval)) => section.above_zero("interval", interval, ", or \"off\"", problems).map(Some),
        other => other,
    };
    let settings = CheckpointSettings {
        interval: interval.unwrap_or(default.interval),
        mode: section.choice("mode", &MODES, problems).unwrap_or(default.mode),
        unaligned_after: section.duration_or("unaligned_after", "never", problems).unwrap_or(default.unaligned_after),
        timeout: section.duration_above_zero("timeout", problems).unwrap_or(default.timeout),
        min_pause: section.duration("min_pause", problems).unwrap_or(default.min_pause),
        tolerable_failures: section.number("tolerable_failures", 0..=u32::MAX, problems).unwrap_or(default.tolerable_failures),
        retained: section.number("retained", 1..=1_000, problems).unwrap_or(default.retained),
        storage: section.string("storage", "a URL or path such as \"file:./checkpoints\"", problems),
    };
    if settings.storage.as_deref().is_some_and(|storage| storage.trim().is_empty()) {
        let message = format!("`storage` in {} is empty", section.name);
        let hint = "leave the key out to keep checkpoints in the data directory".to_owned();
        problems.error(Code::Value, &section.origin_of("storage"), message, Some(hint));
    }
    let at_least_once = settings.mode == CheckpointMode::AtLeastOnce;
    if at_least_once && section.get("unaligned_after").is_some() && settings.unaligned_after.is_some() {
        let message = "`unaligned_after` has no effect with mode = \"at-least-once\": no barrier ever waits there";
        problems.warning(Code::Value, &section.origin_of("unaligned_after"), message, None);
    }
    section.finish(problems);
    settings
}

impl Default for RestartSettings {
    fn default() -> RestartSettings {
        RestartSettings::Exponential {
            initial: RESTART_INITIAL,
            max: Duration::from_secs(30),
            multiplier: 2.0,
            reset_after: Duration::from_mins(10),
            jitter: 0.1,
        }
    }
}

#[derive(Clone, Copy)]
enum StrategyName {
    None,
    Fixed,
    FailureRate,
    Exponential,
}

const STRATEGIES: [(&str, StrategyName); 4] = [
    ("none", StrategyName::None),
    ("fixed", StrategyName::Fixed),
    ("failure-rate", StrategyName::FailureRate),
    ("exponential", StrategyName::Exponential),
];

/// First delay of the default strategy: a job that lost a worker should go on at once, one that fails again soon waits longer.
const RESTART_INITIAL: Duration = Duration::from_millis(50);

/// The keys of all strategies. Those of another one than the chosen are no error, so that `--set
/// job.restart.strategy=none` works on any job; they are warned about.
const RESTART_KEYS: [&str; 9] = ["delay", "attempts", "failures", "per", "initial", "max", "multiplier", "reset_after", "jitter"];

fn restart(mut section: Section<'_>, problems: &mut Problems) -> RestartSettings {
    let name = section.choice("strategy", &STRATEGIES, problems).unwrap_or(StrategyName::Exponential);
    let second = Duration::from_secs(1);
    let settings = match name {
        StrategyName::None => RestartSettings::None,
        StrategyName::Fixed => RestartSettings::Fixed {
            delay: section.duration("delay", problems).unwrap_or(second),
            attempts: section.number("attempts", 1..=u32::MAX, problems),
        },
        StrategyName::FailureRate => RestartSettings::FailureRate {
            failures: section.number("failures", 1..=u32::MAX, problems).unwrap_or(3),
            per: section.duration_above_zero("per", problems).unwrap_or(Duration::from_mins(10)),
            delay: section.duration("delay", problems).unwrap_or(second),
        },
        StrategyName::Exponential => exponential(&mut section, problems),
    };
    let chosen = STRATEGIES[name as usize].0;
    let ignored: Vec<_> = section.unknown().filter(|entry| RESTART_KEYS.contains(&entry.key.as_str())).collect();
    for entry in ignored {
        let message = format!("`{}` in {} has no effect with the strategy \"{chosen}\"", entry.key, section.name);
        problems.warning(Code::Value, &entry.key_origin, message, None);
    }
    for entry in section.unknown().filter(|entry| !RESTART_KEYS.contains(&entry.key.as_str())) {
        let message = format!("unknown key `{}` in {}", entry.key, section.name);
        problems.error(Code::UnknownKey, &entry.key_origin, message, crate::problems::suggest(&entry.key, section.known_keys()));
    }
    settings
}

fn exponential(section: &mut Section<'_>, problems: &mut Problems) -> RestartSettings {
    let initial = section.duration_above_zero("initial", problems).unwrap_or(RESTART_INITIAL);
    let max = section.duration_above_zero("max", problems);
    if let Some(max) = max
        && max < initial
    {
        let (initial, max) = (crate::format_duration(initial), crate::format_duration(max));
        let message = format!("`max` in {} is \"{max}\", less than `initial`, \"{initial}\"", section.name);
        problems.error(Code::Value, &section.origin_of("max"), message, None);
    }
    RestartSettings::Exponential {
        initial,
        max: max.unwrap_or(Duration::from_secs(30).max(initial)),
        multiplier: section.float("multiplier", 1.0..=100.0, problems).unwrap_or(2.0),
        reset_after: section.duration("reset_after", problems).unwrap_or(Duration::from_mins(10)),
        jitter: section.float("jitter", 0.0..=1.0, problems).unwrap_or(0.1),
    }
}
