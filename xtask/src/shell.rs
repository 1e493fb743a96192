//! Running other programs, and the small change of a command line. A program that fails is named with its arguments.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// The arguments of one command, taken one by one; what is left at the end is an error.
pub(crate) struct Arguments<'a> {
    rest: std::slice::Iter<'a, String>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(arguments: &'a [String]) -> Self {
        Arguments { rest: arguments.iter() }
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next().map(String::as_str)
    }

    /// The value that must follow the flag `name`.
    pub(crate) fn value(&mut self, name: &str) -> Result<&'a str> {
        self.next().with_context(|| format!("{name} needs a value"))
    }
}

/// The error for an argument that a command does not know.
pub(crate) fn unknown<T>(command: &str, argument: &str) -> Result<T> {
    bail!("`cargo xtask {command}` does not know the argument `{argument}`; see `cargo xtask help`")
}

/// cargo, the one that runs us if one does.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A command as a person would type it.
pub(crate) fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Says what is run on stderr, runs it on our own streams, and fails if it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("+ {}", display(command));
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{}`", display(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", display(command));
    }
    Ok(())
}

/// Runs a command quietly and gives its stdout; its stderr goes into the error.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{}`", display(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{}", display(command), output.status, stderr.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed something that is not UTF-8", display(command)))
}

/// Whether a command can be run and succeeds. Its output is thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_named_with_its_arguments_and_its_stderr() {
        let error = read(Command::new("sh").args(["-c", "echo no room >&2; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains("no room") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_flag_without_its_value_is_an_error() {
        let words = ["--data-dir".to_string()];
        let mut arguments = Arguments::new(&words);
        assert_eq!(arguments.next(), Some("--data-dir"));
        assert!(arguments.value("--data-dir").unwrap_err().to_string().contains("--data-dir"));
    }
}
