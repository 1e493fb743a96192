//! What every handler of a request has: the way to the cluster, the rules, and when the server ends.

use tokio::sync::watch;

use crate::access::Rules;
use crate::calls::Calls;

/// What handlers need.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) calls: Calls,
    pub(crate) rules: Rules,
    /// True when the server ends.
    pub(crate) leaving: watch::Receiver<bool>,
}

/// Waits until the server ends: it is shut down, or dropped.
pub(crate) async fn left(leaving: &mut watch::Receiver<bool>) {
    let _ = leaving.wait_for(|leaving| *leaving).await;
}
