//! The names of the contract, each with the one version that this host speaks.

/// A name of `wit/weir.wit`'s package, with the version.
macro_rules! name {
    ($name:literal) => {
        concat!("weir:operator/", $name, "@0.2.0")
    };
}

/// What all names begin with.
pub(crate) const PACKAGE: &str = "weir:operator/";
/// What all names of this version end with.
pub(crate) const VERSION: &str = "@0.2.0";
/// What those of the version before end with.
pub(crate) const VERSION_BEFORE: &str = "@0.1.0";

pub(crate) const WORLD: &str = name!("operator");
pub(crate) const TYPES: &str = name!("types");
pub(crate) const LIFECYCLE: &str = name!("lifecycle");
pub(crate) const PORTABLE: &str = name!("portable");
pub(crate) const TIMED: &str = name!("timed");
pub(crate) const OUTPUT: &str = name!("output");
pub(crate) const LOG: &str = name!("log");
pub(crate) const METRICS: &str = name!("metrics");
pub(crate) const AMBIENT: &str = name!("ambient");
pub(crate) const STATE_WRITER: &str = name!("state-writer");
pub(crate) const STORE: &str = name!("store");
pub(crate) const TIMERS: &str = name!("timers");
