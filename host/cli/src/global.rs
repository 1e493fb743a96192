//! Flags that all commands have, and what they come to together with environment and configuration.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format;
use weir_model::ErrorNumber;

use crate::config::{CA, COLOR, COORDINATOR, Config, DATA_DIR, ENV, LOG, Origin, Setting, TOKEN_FILE};
use crate::failure::{Exit, Failure};
use crate::output::{self, Colour};

/// Flags of all commands.
#[derive(clap::Args)]
pub(crate) struct GlobalArgs {
    /// Folder for components, checkpoints and the compile cache [env: WEIR_DATA_DIR]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    data_dir: Option<PathBuf>,
    /// Print results as JSON
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// Print no progress, only results, warnings and errors
    #[arg(long, short, global = true, help_heading = "Global options")]
    quiet: bool,
    /// When to use color: auto, always or never [env: WEIR_COLOR] [default: auto]
    #[arg(long, global = true, value_name = "WHEN", hide_possible_values = true, help_heading = "Global options")]
    color: Option<Colour>,
    /// What to log to standard error, such as "info" or "weir_worker=debug" [env: WEIR_LOG] [default: warn]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Global options")]
    log: Option<String>,
}

/// What a command needs of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// All of it: what is wrong there is an error.
    Everything,
    /// To be shown: the command keeps no data and asks nobody, so a setting that the file of the current folder may not make is
    /// shown as such.
    Sight,
    /// Nothing: the command helps also those whose configuration is broken.
    Nothing,
}

/// What holds for all commands.
pub(crate) struct Global {
    /// Folder for what Weir keeps; absolute, may not exist yet.
    pub(crate) data_dir: PathBuf,
    /// Whether results are to be JSON.
    pub(crate) json: bool,
    /// Whether to keep silent about progress.
    pub(crate) quiet: bool,
    /// When to colour messages.
    pub(crate) colour: Colour,
    log: String,
    config: Config,
    /// Each setting with its value and origin, for `weir config show`.
    pub(crate) origins: Vec<(&'static str, String, Origin)>,
}

impl Global {
    /// What flags, environment and configuration come to.
    ///
    /// # Errors
    /// If one of them is wrong, and the command needs it.
    pub(crate) fn new(args: GlobalArgs, needs: Needs) -> anyhow::Result<Global> {
        let env = |name: &str| std::env::var(name).ok();
        let config = match Config::find(&env) {
            Err(_) if needs == Needs::Nothing => Config::default(),
            found => found?,
        };
        let flag = args.data_dir.map(|path| path.to_string_lossy().into_owned());
        let (data_dir, data_dir_origin) = match config.value(&DATA_DIR, flag, &env) {
            Ok(Some(found)) => found,
            Err(refused) if needs == Needs::Everything => return Err(refused.into()),
            Ok(None) | Err(_) => match default_data_dir(&env) {
                // It keeps nothing.
                Err(_) if needs == Needs::Nothing => ("/".to_owned(), Origin::Default),
                found => (found?.to_string_lossy().into_owned(), Origin::Default),
            },
        };
        let data_dir = std::path::absolute(&data_dir)?;
        let flag = args.color.and_then(|color| color.to_possible_value()).map(|value| value.get_name().to_owned());
        let (color, color_origin) = config.value(&COLOR, flag, &env)?.unwrap_or(("auto".to_owned(), Origin::Default));
        let colour = match Colour::from_str(&color, false) {
            Ok(colour) => colour,
            Err(_) if needs == Needs::Nothing => Colour::Auto,
            Err(_) => {
                let message = format!("`{color}` ({color_origin}) does not say when to use color");
                let failure = Failure::new(ErrorNumber::WrongConfiguration, Exit::Usage, message);
                return Err(failure.hint("valid: auto, always, never").into());
            }
        };
        let (log, log_origin) = config.value(&LOG, args.log, &env)?.unwrap_or(("warn".to_owned(), Origin::Default));
        if needs != Needs::Nothing {
            log_filter(&log, &log_origin)?;
        }
        let mut origins = vec![
            (DATA_DIR.key, data_dir.to_string_lossy().into_owned(), data_dir_origin),
            (COLOR.key, color, color_origin),
            (LOG.key, log.clone(), log_origin),
        ];
        for setting in [&COORDINATOR, &TOKEN_FILE, &CA] {
            let found = config.value(setting, None, &env).unwrap_or_default();
            let (value, origin) = found.unwrap_or(("none".to_owned(), Origin::Default));
            origins.push((setting.key, value, origin));
        }
        Ok(Global { data_dir, json: args.json, quiet: args.quiet, colour, log, config, origins })
    }

    /// What holds where nothing is configured and nothing is shown.
    #[cfg(test)]
    pub(crate) fn for_tests(data_dir: &Path) -> Global {
        let (log, colour) = ("warn".to_owned(), Colour::Never);
        let (data_dir, config) = (data_dir.to_owned(), Config::default());
        Global { data_dir, json: false, quiet: true, colour, log, config, origins: Vec::new() }
    }

    /// A setting that only some commands have: from their flag, the environment or the configuration file.
    ///
    /// # Errors
    /// If the file of the current folder would decide, and may not.
    pub(crate) fn setting(&self, setting: &Setting, flag: Option<String>) -> Result<Option<(String, Origin)>, Failure> {
        self.config.value(setting, flag, &|name| std::env::var(name).ok())
    }

    /// Environment variables that the configuration lets jobs take to a cluster.
    ///
    /// # Errors
    /// If the file of the current folder would decide, and may not.
    pub(crate) fn allowed_variables(&self) -> Result<Vec<String>, Failure> {
        self.config.values(&ENV)
    }

    /// Settings that the file of the current folder makes and may not, for `weir config show`.
    pub(crate) fn refused(&self) -> Vec<Failure> {
        let one = [&DATA_DIR, &COORDINATOR, &TOKEN_FILE, &CA].map(|setting| self.config.value(setting, None, &|_| None).err());
        one.into_iter().chain([self.config.values(&ENV).err()]).flatten().collect()
    }

    /// Sends log lines to standard error.
    pub(crate) fn start_log(&self) {
        let filter = log_filter(&self.log, &Origin::Default).unwrap_or_default();
        // Fields hold what guests, peers and files say: no value moves the cursor, and none begins a line.
        let fields = format::debug_fn(|writer, field, value| {
            let value = format!("{value:?}");
            match field.name() {
                "message" => write!(writer, "{}", output::line(&value)),
                name => write!(writer, "{name}={}", output::line(&value)),
            }
        });
        let lines = tracing_subscriber::fmt().with_env_filter(filter).fmt_fields(fields.delimited(" "));
        let lines = lines.with_writer(std::io::stderr);
        // Only a second call could fail.
        let _ = lines.with_ansi(self.colour.on_stderr()).try_init();
    }

    /// Tells the user something that is not a result, unless they want silence.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            output::message(text, self.colour);
        }
    }

    /// Warns the user: silence is of progress, never of what is wrong.
    pub(crate) fn warn(&self, text: &str) {
        output::message(text, self.colour);
    }
}

fn log_filter(filter: &str, origin: &Origin) -> Result<tracing_subscriber::EnvFilter, Failure> {
    tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        Failure::new(
            ErrorNumber::WrongConfiguration,
            Exit::Usage,
            format!("`{filter}` ({origin}) does not say what to log: {error}"),
        )
        .hint("write a level (error, warn, info, debug, trace), or levels of crates: \"warn,weir_worker=debug\"")
    })
}

fn default_data_dir(env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, Failure> {
    let set = |name| env(name).filter(|value| Path::new(value).is_absolute()).map(PathBuf::from);
    let share = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local").join("share")));
    share.map(|share| share.join("weir")).ok_or_else(|| {
        Failure::new(
            ErrorNumber::WrongConfiguration,
            Exit::Usage,
            "cannot tell where to keep data: neither XDG_DATA_HOME nor HOME is set",
        )
        .hint("name a folder with --data-dir or WEIR_DATA_DIR")
    })
}
