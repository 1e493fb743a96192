//! What is measured, and how much of it.

use std::time::Duration;

use weir_model::limits;

/// What carries the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Quic,
    Tcp,
    Tls,
}

impl Link {
    pub(crate) fn named(name: &str) -> Option<Link> {
        [Link::Quic, Link::Tcp, Link::Tls].into_iter().find(|link| link.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Link::Quic => "quic",
            Link::Tcp => "tcp",
            Link::Tls => "tls",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Largest UDP payload; of no effect with TCP.
    pub(crate) packet_bytes_max: u16,
    /// About the size of a frame.
    pub(crate) frame_bytes: usize,
    pub(crate) channels: u32,
    /// How long to send.
    pub(crate) time: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { packet_bytes_max: limits::PACKET_BYTES_MAX, frame_bytes: 1 << 20, channels: 2, time: Duration::from_secs(5) }
    }
}
