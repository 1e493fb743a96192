//! The numbers of errors that users see. Each has a page in docs/errors/, which `weir explain` shows.
//!
//! Owns the only list of them: `xtask tidy` finds numbers written elsewhere, and numbers that nothing uses. Never says what a
//! particular error is; its message does, where it is made.

use std::borrow::Cow;
use std::fmt;

macro_rules! error_numbers {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal,)*) => {
        /// The number of a kind of error, such as E0034; what programs and people know it by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorNumber {
            $($(#[doc = $doc])* $name,)*
        }

        impl ErrorNumber {
            /// All numbers, in order.
            pub const ALL: &'static [ErrorNumber] = &[$(ErrorNumber::$name,)*];

            /// `E` and four digits.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ErrorNumber::$name => $number,)*
                }
            }
        }
    };
}

error_numbers! {
    /// The job file is not TOML, or not text.
    JobFileSyntax = "E0001",
    /// A key or table that nothing reads.
    UnknownKey = "E0002",
    /// A value is missing or wrong.
    WrongValue = "E0003",
    /// Vertices and edges make no graph that can run.
    WrongGraph = "E0004",
    /// A variable of the environment is not set.
    EnvironmentUnset = "E0005",
    /// A `--set` names nothing.
    OverrideNamesNothing = "E0006",
    /// A connector or component does not accept a setting.
    SettingRefused = "E0007",
    /// The store has no such component.
    NoSuchComponent = "E0020",
    /// A version stands for other bytes.
    VersionTaken = "E0021",
    /// A file is no component that Weir can run.
    NotAComponent = "E0022",
    /// A file cannot be read or written.
    FileInaccessible = "E0023",
    /// A crate cannot be built into a component.
    ComponentNotBuilt = "E0024",
    /// The component store is damaged.
    StoreDamaged = "E0025",
    /// A flag, a `WEIR_*` variable or `weir.toml` is wrong.
    WrongConfiguration = "E0026",
    /// A new component cannot be made.
    ComponentNotMade = "E0027",
    /// Checkpoints cannot be shown.
    CheckpointsNotShown = "E0028",
    /// There is no error or example of that name.
    NoSuchName = "E0029",
    /// The sandbox does not start.
    SandboxDoesNotStart = "E0030",
    /// Checkpoints cannot be read or written.
    CheckpointStorage = "E0031",
    /// The job does not fit the state it has.
    StateDoesNotFit = "E0032",
    /// No checkpoint can be restored.
    NoCheckpointRestorable = "E0033",
    /// The job failed.
    JobFailed = "E0034",
    /// A worker cannot use what the job file names.
    WorkerCannotUse = "E0035",
    /// The cluster lacks a component.
    ComponentMissingOnCluster = "E0040",
    /// The job is not over.
    JobNotOver = "E0041",
    /// There is no such job.
    NoSuchJob = "E0042",
    /// The job is over, or about to be.
    JobOver = "E0043",
    /// The parallelism cannot be changed.
    NotRescalable = "E0044",
    /// The coordinator cannot use its disk.
    CoordinatorDisk = "E0045",
    /// The coordinator has as many jobs as it takes.
    TooManyJobs = "E0046",
    /// The coordinator is shutting down.
    CoordinatorEnds = "E0047",
    /// There is no such coordinator whose workers could be adopted.
    NothingToAdopt = "E0048",
    /// The coordinator cannot be reached.
    CoordinatorUnreachable = "E0050",
    /// The token is missing or wrong.
    TokenWrong = "E0051",
    /// A request comes from elsewhere than this machine.
    RequestFromElsewhere = "E0052",
    /// The API would not be protected.
    ApiUnprotected = "E0053",
    /// A request cannot be understood.
    MalformedRequest = "E0054",
    /// The coordinator cannot be trusted.
    CoordinatorUntrusted = "E0055",
    /// The API is busy, or failed.
    ApiBusy = "E0056",
    /// A cluster's files cannot be made.
    ClusterFilesNotMade = "E0057",
    /// A coordinator or worker cannot start.
    ProcessDoesNotStart = "E0058",
    /// Who asks may not do this.
    RoleMissing = "E0059",
    /// A token cannot be created or revoked.
    TokenNotChanged = "E0060",
    /// The configuration of the current folder may not say that.
    FolderNotTrusted = "E0070",
    /// The token, or what is sent, would go where it should not.
    TokenStaysHere = "E0071",
    /// A job file takes variables that are not allowed.
    VariablesNotAllowed = "E0072",
}

impl ErrorNumber {
    /// The number with this text, in whatever case.
    pub fn parse(text: &str) -> Option<ErrorNumber> {
        ErrorNumber::ALL.iter().copied().find(|number| number.as_str().eq_ignore_ascii_case(text))
    }
}

impl fmt::Display for ErrorNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<ErrorNumber> for Cow<'static, str> {
    fn from(number: ErrorNumber) -> Cow<'static, str> {
        Cow::Borrowed(number.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_there_is_none_twice() {
        assert!(ErrorNumber::ALL.windows(2).all(|pair| pair[0].as_str() < pair[1].as_str()));
        let is_number = |text: &str| text.len() == 5 && text.starts_with('E') && text[1..].bytes().all(|b| b.is_ascii_digit());
        assert!(ErrorNumber::ALL.iter().all(|number| is_number(number.as_str())));
    }

    #[test]
    fn numbers_are_known_in_any_case() {
        assert_eq!(ErrorNumber::parse("e0034"), Some(ErrorNumber::JobFailed));
        assert_eq!(ErrorNumber::parse("E0034 "), None);
        assert_eq!(ErrorNumber::parse("E9999"), None);
        assert_eq!(format!("[{:>6}]", ErrorNumber::JobFailed), "[ E0034]");
    }
}
