//! The data plane between workers: what the network does to frames on their way. Implements the network that executions see
//! ([`weir_worker::Network`]); the world moves the bytes (`world/wires.rs`).
//!
//! A channel is one stream: its bytes come in order, as `weir_channel::wire` encodes them, or the connection is lost and nothing
//! comes any more. Different channels overtake each other, and so do announcements, which travel aside. The receiving end takes
//! a frame only when the one before it had room; a sender may have so many bytes on their way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use weir_protocol::Execution;
use weir_task::Gate;
use weir_worker::{Inbound, Network, OnLost, Outbound, RoomWake};

use crate::executor::{Call, Calls};
use crate::ids::ProcessOf;

/// The network, as one worker's process sees it.
pub(crate) struct SimNetwork {
    pub(crate) calls: Calls,
}

impl Network for SimNetwork {
    fn expect(&self, execution: &Execution, inbound: Vec<Inbound>, lost: OnLost) -> Result<(), String> {
        self.calls.add(Call::Expect { attempt: execution.attempt, inbound, lost });
        Ok(())
    }

    fn connect(&self, execution: &Execution, outbound: Vec<Outbound>, lost: OnLost) -> Result<(), String> {
        self.calls.add(Call::Connect { attempt: execution.attempt, outbound, lost });
        Ok(())
    }

    fn close(&self, execution: &Execution) {
        self.calls.add(Call::Close { attempt: execution.attempt });
    }

    fn counts(&self, _: &Execution) -> (u64, u64) {
        (0, 0)
    }
}

/// Waits for a wake-up of one end of a channel, and passes it on.
pub(crate) struct Bell {
    room: Arc<RoomWake>,
    waker: Waker,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Bell {
    pub(crate) fn new(room: Arc<RoomWake>, waker: Waker) -> Bell {
        Bell { room, waker, waiting: None }
    }

    /// What comes from now on is passed on. Whoever calls it looks right afterwards.
    pub(crate) fn arm(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        loop {
            let room = self.room.clone();
            let waiting = self.waiting.get_or_insert_with(|| Box::pin(async move { room.woken().await }));
            if waiting.as_mut().poll(&mut context).is_pending() {
                return;
            }
            self.waiting = None;
        }
    }
}

/// The end that sends: what the sending task has put into the channel.
pub(crate) struct Writer {
    pub(crate) process: ProcessOf,
    pub(crate) gate: Gate,
    pub(crate) bell: Bell,
    pub(crate) lost: OnLost,
}

/// The end that receives.
pub(crate) struct Reader {
    pub(crate) process: ProcessOf,
    pub(crate) inbound: Inbound,
    pub(crate) bell: Bell,
    pub(crate) lost: OnLost,
}

/// One channel between two workers.
pub(crate) struct Wire {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) writer: Option<Writer>,
    pub(crate) reader: Option<Reader>,
    pub(crate) dead: bool,
    pub(crate) flight: VecDeque<Vec<u8>>,
    pub(crate) inbox: VecDeque<Vec<u8>>,
    /// Bytes that were sent and not taken yet.
    pub(crate) outstanding: usize,
    pub(crate) last_us: u64,
    pub(crate) sending: bool,
    pub(crate) receiving: bool,
}

impl Wire {
    pub(crate) fn new(from: usize, to: usize) -> Wire {
        Wire {
            from,
            to,
            writer: None,
            reader: None,
            dead: false,
            flight: VecDeque::new(),
            inbox: VecDeque::new(),
            outstanding: 0,
            last_us: 0,
            sending: false,
            receiving: false,
        }
    }

    /// Nothing comes any more.
    pub(crate) fn kill(&mut self) {
        self.dead = true;
        self.flight.clear();
        self.inbox.clear();
    }
}

/// Who is told that a peer is lost.
pub(crate) struct LostEar(pub(crate) OnLost);
