//! What requests may cost. What other crates rely on is in `weir_model::limits`.

use std::time::Duration;

use weir_model::limits::COMPONENT_BYTES_MAX;

/// Stands for long times in tests that wait for them.
const SHORT: Duration = Duration::from_secs(1);

/// Connections at a time of those whose requests have passed the rules. More are told to come again.
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// Connections at a time of strangers: no request of theirs has passed the rules yet.
pub(crate) const STRANGERS_MAX: usize = 256;

/// Of these, connections from one address.
pub(crate) const STRANGERS_PER_ADDRESS_MAX: usize = 64;

/// Connections that are ending; beyond, new ones wait in the kernel.
pub(crate) const LEAVING_MAX: usize = 64;

/// Time for a connection to get a request past the rules.
pub(crate) const STRANGER_MAX: Duration = if cfg!(test) { SHORT.saturating_mul(2) } else { Duration::from_secs(20) };

/// Time in which the other end takes nothing of what is sent.
pub(crate) const WRITE_PAUSE_MAX: Duration = if cfg!(test) { SHORT } else { Duration::from_secs(15) };

/// Calls into the cluster at a time, but for those that wait for events.
pub(crate) const CALLS_MAX: usize = 16;

/// Components that are being received at a time.
pub(crate) const UPLOADS_MAX: usize = 4;

/// Requests that wait for events at a time.
pub(crate) const FOLLOWERS_MAX: usize = 64;

/// How long a request waits for its turn before it is told to come again.
pub(crate) const TURN_MAX: Duration = Duration::from_secs(10);

/// Bytes of a request's head.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Header lines of a request.
pub(crate) const HEADERS_MAX: usize = 64;

/// Time for a TLS handshake, and for a head. Also how long an idle connection is kept.
pub(crate) const HEAD_MAX: Duration = if cfg!(test) { SHORT } else { Duration::from_secs(15) };

/// Time without any byte of a body.
pub(crate) const BODY_PAUSE_MAX: Duration = if cfg!(test) { SHORT } else { Duration::from_secs(15) };

/// Time for a whole body.
pub(crate) const BODY_MAX: Duration = Duration::from_secs(600);

/// Longest wait for an event that a request can ask for.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

/// How often a stream of events looks whether anybody still listens.
pub(crate) const FOLLOW_STEP: Duration = Duration::from_secs(1);

/// Time that requests get to end when the server does.
pub(crate) const GOODBYE_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(STRANGERS_PER_ADDRESS_MAX < STRANGERS_MAX, "one address leaves places to others");
const _: () = assert!(FOLLOWERS_MAX < CONNECTIONS_MAX, "followers of events leave connections to others");
const _: () = assert!(UPLOADS_MAX * COMPONENT_BYTES_MAX <= 256 << 20, "uploads hold this many bytes at most");
