//! What a line looks like, as the job file names it.

use weir_sdk::prelude::*;

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// One JSON value a line.
    Json,
    /// Common Log Format.
    Common,
    /// That with referer and agent.
    Combined,
    /// Either of the two.
    Clf,
    /// That with the virtual host in front.
    Vhost,
}
