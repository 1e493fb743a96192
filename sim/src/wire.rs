//! Channels between workers: what the network does to frames on their way.
//!
//! A channel is one stream: its bytes come in order, as `weir_channel::wire` encodes them, or the connection is lost and nothing
//! comes any more. Different channels overtake each other, and so do announcements, which travel aside. The receiving end takes
//! a frame only when the one before it had room; a sender may have so many bytes on their way.

use std::collections::VecDeque;

use weir_channel::wire;
use weir_model::{Attempt, Barrier};
use weir_task::{Announcer, Gate, Sender};

use crate::world::{Event, World};

/// Names a channel of an execution.
pub(crate) type WireKey = (Attempt, usize);

/// One channel between two workers.
pub(crate) struct Wire {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// Where the sending task puts its frames.
    pub(crate) gate: Option<Gate>,
    /// Puts frames into the receiving task's gate.
    pub(crate) sender: Option<Sender>,
    pub(crate) announcer: Option<Announcer>,
    pub(crate) gate_channel: usize,
    pub(crate) connected: bool,
    pub(crate) dead: bool,
    flight: VecDeque<Vec<u8>>,
    inbox: VecDeque<Vec<u8>>,
    /// Bytes that were sent and not taken yet.
    outstanding: usize,
    last_us: u64,
    sending: bool,
    receiving: bool,
}

impl Wire {
    pub(crate) fn new(from: usize, to: usize) -> Wire {
        Wire {
            from,
            to,
            gate: None,
            sender: None,
            announcer: None,
            gate_channel: 0,
            connected: false,
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

impl World {
    /// The writer of a channel should look.
    pub(crate) fn wake_writer(&mut self, key: WireKey) {
        if let Some(wire) = self.wires.get_mut(&key)
            && !std::mem::replace(&mut wire.sending, true)
        {
            let delay_us = self.random.below(50);
            self.after(delay_us, Event::WireSend(key));
        }
    }

    /// The reader of a channel should look.
    pub(crate) fn wake_reader(&mut self, key: WireKey, delay_us: u64) {
        if let Some(wire) = self.wires.get_mut(&key)
            && !std::mem::replace(&mut wire.receiving, true)
        {
            self.after(delay_us, Event::WireReceive(key));
        }
    }

    pub(crate) fn wire_send(&mut self, key: WireKey) {
        let Some(wire) = self.wires.get_mut(&key) else { return };
        wire.sending = false;
        if wire.dead || !wire.connected {
            return;
        }
        let Some(gate) = &mut wire.gate else { return };
        let announcements = gate.take_announcements();
        let mut frames = Vec::new();
        while wire.outstanding < self.scenario.window_bytes
            && let Some((_, frame)) = gate.poll()
        {
            match wire::encode_to_vec(&frame) {
                Ok(bytes) => {
                    wire.outstanding += bytes.len();
                    frames.push(bytes);
                }
                Err(error) => self.outside.complain(format!("a frame cannot be encoded: {error}")),
            }
        }
        let (from, to) = (wire.from, wire.to);
        for barrier in announcements {
            let at_us = self.arrival(from, to, self.scenario.network_us);
            self.seen.announced += 1;
            self.at(at_us, Event::WireAnnounce(key, barrier));
        }
        for bytes in frames {
            let at_us = self.arrival(from, to, self.scenario.network_us);
            let Some(wire) = self.wires.get_mut(&key) else { return };
            // In order within the stream.
            wire.last_us = wire.last_us.max(at_us);
            wire.flight.push_back(bytes);
            let at_us = wire.last_us;
            self.at(at_us, Event::WireArrive(key));
        }
    }

    pub(crate) fn wire_arrive(&mut self, key: WireKey) {
        let Some(wire) = self.wires.get_mut(&key).filter(|wire| !wire.dead) else { return };
        if let Some(bytes) = wire.flight.pop_front() {
            wire.inbox.push_back(bytes);
            let delay_us = self.random.below(30);
            self.wake_reader(key, delay_us);
        }
    }

    pub(crate) fn wire_receive(&mut self, key: WireKey) {
        let Some(wire) = self.wires.get_mut(&key) else { return };
        wire.receiving = false;
        if wire.dead {
            return;
        }
        let Some(sender) = &mut wire.sender else { return };
        let mut taken = 0;
        while sender.flush()
            && let Some(bytes) = wire.inbox.pop_front()
        {
            taken += bytes.len();
            match wire::decode_all(&bytes) {
                Ok(frames) => frames.into_iter().for_each(|frame| sender.send(frame)),
                Err(error) => self.outside.complain(format!("a frame cannot be decoded: {error}")),
            }
        }
        if taken > 0 {
            wire.outstanding -= taken;
            let delay_us = self.random.delay_us(self.scenario.network_us);
            if !std::mem::replace(&mut wire.sending, true) {
                self.after(delay_us, Event::WireSend(key));
            }
        }
    }

    pub(crate) fn wire_announce(&mut self, key: WireKey, barrier: Barrier) {
        let Some(wire) = self.wires.get_mut(&key).filter(|wire| !wire.dead) else { return };
        if let Some(announcer) = &wire.announcer {
            announcer.announce(wire.gate_channel, barrier);
        }
    }

    /// The ends that a worker has of an execution's channels are gone, of all executions where none is named.
    pub(crate) fn drop_wires(&mut self, worker: usize, attempt: Option<Attempt>) {
        let mut peers = Vec::new();
        for (key, wire) in &mut self.wires {
            if attempt.is_some_and(|attempt| attempt != key.0) || (wire.from != worker && wire.to != worker) {
                continue;
            }
            wire.kill();
            if wire.from == worker {
                wire.gate = None;
            } else {
                (wire.sender, wire.announcer) = (None, None);
            }
            let peer = (if wire.from == worker { wire.to } else { wire.from }, key.0);
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        self.wires.retain(|_, wire| !wire.dead || wire.gate.is_some() || wire.sender.is_some());
        for (peer, attempt) in peers {
            let delay_us = self.random.pick(&[100, 5_000, 200_000, 2_000_000]);
            let delay_us = self.random.below(delay_us);
            self.tell_peer_lost(peer, attempt, delay_us);
        }
    }

    /// The connection between two workers breaks; both notice.
    pub(crate) fn break_data(&mut self, a: usize, b: usize) {
        let between = |wire: &Wire| (wire.from, wire.to) == (a, b) || (wire.from, wire.to) == (b, a);
        let mut attempts = Vec::new();
        for (key, wire) in self.wires.iter_mut().filter(|(_, wire)| between(wire)) {
            wire.kill();
            if !attempts.contains(&key.0) {
                attempts.push(key.0);
            }
        }
        for attempt in attempts {
            for end in [a, b] {
                let delay_us = self.random.below(50_000);
                self.tell_peer_lost(end, attempt, delay_us);
            }
        }
    }

    fn tell_peer_lost(&mut self, worker: usize, attempt: Attempt, delay_us: u64) {
        let incarnation = self.workers[worker].incarnation;
        self.after(delay_us, Event::PeerLost { worker, incarnation, attempt });
    }
}
