//! What can be set about connections.

use std::time::Duration;

use weir_model::limits;

use crate::TransportError;

/// How connections behave. The defaults suit machines of one data centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Largest packet, in bytes of UDP payload. Default [`limits::PACKET_BYTES_MAX`]; 1,200 up to that. Connections find out
    /// how much of it the network carries; larger packets cost less CPU per byte than anything else here saves. Some
    /// networks lose large packets silently for a while after a route has changed: set 1,452 there.
    pub packet_bytes_max: u16,
    /// What a peer may send on one channel before it is read, in bytes. Default 128 KiB; 32 KiB up to
    /// [`limits::STREAM_WINDOW_BYTES_MAX`]. A connection holds at most this times `channels_max`.
    pub channel_window_bytes: u32,
    /// What this side may have sent on one connection without an acknowledgement, in bytes. Default 16 MiB. Should exceed
    /// bandwidth times round-trip time.
    pub send_window_bytes: u64,
    /// Channels a peer may have open on one connection. Default and at most [`limits::CHANNELS_PER_CONNECTION_MAX`].
    pub channels_max: u32,
    /// How often a silent connection is probed. Default 1 s; less than half of `idle_timeout`.
    pub keep_alive: Duration,
    /// After how long without a sign of life a connection is lost. Default 5 s. The lesser of both sides counts.
    pub idle_timeout: Duration,
    /// How long to wait for a peer to answer a connection attempt, with all proofs. Default 10 s.
    pub connect_timeout: Duration,
    /// Assumed round-trip time before one was measured. Default 10 ms. Three times this passes before the first packet is
    /// repeated.
    pub initial_rtt: Duration,
    /// How sending adapts to the network.
    pub congestion: Congestion,
    /// What may be under way before the first acknowledgement, in bytes. Default 256 KiB.
    pub initial_window_bytes: u64,
    /// Buffers of the socket, each way, in bytes. Default 8 MiB. The kernel may give less: that is logged.
    pub socket_buffer_bytes: u32,
}

/// How sending adapts to the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// By loss. The default.
    #[default]
    Cubic,
    /// By loss, more carefully.
    NewReno,
    /// By measured bandwidth. Experimental in quinn.
    Bbr,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            packet_bytes_max: limits::PACKET_BYTES_MAX,
            channel_window_bytes: 128 << 10,
            send_window_bytes: 16 << 20,
            channels_max: limits::CHANNELS_PER_CONNECTION_MAX,
            keep_alive: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(10),
            initial_rtt: Duration::from_millis(10),
            congestion: Congestion::Cubic,
            initial_window_bytes: 256 << 10,
            socket_buffer_bytes: 8 << 20,
        }
    }
}

impl Settings {
    /// Whether every setting is in its range.
    pub(crate) fn check(&self) -> Result<(), TransportError> {
        let within = |name, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(TransportError::Setting { name, value, range: format!("{min} to {max}") })
            }
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        within("packet_bytes_max", self.packet_bytes_max.into(), 1_200, limits::PACKET_BYTES_MAX.into())?;
        within("channel_window_bytes", self.channel_window_bytes.into(), 32 << 10, limits::STREAM_WINDOW_BYTES_MAX.into())?;
        within("send_window_bytes", self.send_window_bytes, 64 << 10, 1 << 30)?;
        within("channels_max", self.channels_max.into(), 1, limits::CHANNELS_PER_CONNECTION_MAX.into())?;
        within("idle_timeout", ms(self.idle_timeout), 100, 600_000)?;
        within("keep_alive", ms(self.keep_alive), 10, ms(self.idle_timeout) / 2)?;
        within("connect_timeout", ms(self.connect_timeout), 100, 600_000)?;
        within("initial_rtt", ms(self.initial_rtt), 1, 10_000)?;
        within("initial_window_bytes", self.initial_window_bytes, 2_400, 64 << 20)?;
        within("socket_buffer_bytes", self.socket_buffer_bytes.into(), 64 << 10, 1 << 30)
    }
}
