//! Numbers about connections and endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A connection, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionMetrics {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Packets that had to be repeated.
    pub lost_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of UDP payload sent.
    pub sent_bytes: u64,
    /// Bytes of UDP payload received.
    pub received_bytes: u64,
    /// Bytes that may be under way.
    pub congestion_window_bytes: u64,
    /// Times the network was found congested.
    pub congestion_events: u64,
    /// Packet size in use.
    pub packet_bytes: u16,
}

impl ConnectionMetrics {
    pub(crate) fn of(connection: &quinn::Connection) -> ConnectionMetrics {
        let stats = connection.stats();
        ConnectionMetrics {
            rtt: stats.path.rtt,
            lost_packets: stats.path.lost_packets,
            sent_packets: stats.path.sent_packets,
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
            congestion_window_bytes: stats.path.cwnd,
            congestion_events: stats.path.congestion_events,
            packet_bytes: stats.path.current_mtu,
        }
    }
}

/// An endpoint, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointMetrics {
    /// Connections now, to and from peers, that have said hello.
    pub connections: usize,
    /// Connections from peers that were accepted.
    pub accepted: u64,
    /// Attempts of peers that know the cluster, but were refused: certificate, version, hello.
    pub refused: u64,
    /// Attempts that could not be read: of another cluster, or garbage that looks like an attempt.
    pub strangers: u64,
    /// Attempts that were not looked at because too many others were being dealt with.
    pub busy: u64,
    /// Size of the socket's receive buffer.
    pub receive_buffer_bytes: usize,
    /// Size of the socket's send buffer.
    pub send_buffer_bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) strangers: AtomicU64,
    pub(crate) busy: AtomicU64,
}

impl Counters {
    pub(crate) fn metrics(&self, [receive_buffer_bytes, send_buffer_bytes]: [usize; 2]) -> EndpointMetrics {
        EndpointMetrics {
            connections: self.connections.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            strangers: self.strangers.load(Ordering::Relaxed),
            busy: self.busy.load(Ordering::Relaxed),
            receive_buffer_bytes,
            send_buffer_bytes,
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
