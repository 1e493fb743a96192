//! The data plane between workers: what the network does to frames on their way. Implements the network that executions see
//! ([`weir_worker::Network`]); the world moves the bytes.
//!
//! A channel is one stream: its bytes come in order, as `weir_channel::wire` encodes them, or the connection is lost and nothing
//! comes any more. Different channels overtake each other, and so do announcements, which travel aside. The receiving end takes
//! a frame only when the one before it had room; a sender may have so many bytes on their way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use weir_channel::wire;
use weir_model::{Attempt, Barrier};
use weir_protocol::Execution;
use weir_task::Gate;
use weir_worker::{Inbound, Network, OnLost, Outbound, PeerLost, RoomWake};

use crate::executor::{Call, Calls, ProcessOf, SimWake, Target};
use crate::worker::{name_of, number_of};
use crate::world::{Event, World};

/// Names a channel of an execution.
pub(crate) type WireKey = (Attempt, u32);

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
struct Bell {
    room: Arc<RoomWake>,
    waker: Waker,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Bell {
    fn new(room: Arc<RoomWake>, waker: Waker) -> Bell {
        Bell { room, waker, waiting: None }
    }

    /// What comes from now on is passed on. Whoever calls it looks right afterwards.
    fn arm(&mut self) {
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
struct Writer {
    process: ProcessOf,
    gate: Gate,
    bell: Bell,
    lost: OnLost,
}

/// The end that receives.
struct Reader {
    process: ProcessOf,
    inbound: Inbound,
    bell: Bell,
    lost: OnLost,
}

/// One channel between two workers.
pub(crate) struct Wire {
    pub(crate) from: usize,
    pub(crate) to: usize,
    writer: Option<Writer>,
    reader: Option<Reader>,
    dead: bool,
    flight: VecDeque<Vec<u8>>,
    inbox: VecDeque<Vec<u8>>,
    /// Bytes that were sent and not taken yet.
    outstanding: usize,
    last_us: u64,
    sending: bool,
    receiving: bool,
}

impl Wire {
    fn new(from: usize, to: usize) -> Wire {
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
    fn kill(&mut self) {
        self.dead = true;
        self.flight.clear();
        self.inbox.clear();
    }
}

impl World {
    fn bell(&self, room: Arc<RoomWake>, target: Target) -> Bell {
        let mut bell = Bell::new(room, Waker::from(Arc::new(SimWake { target, woken: self.woken.clone() })));
        bell.arm();
        bell
    }

    /// A worker makes the receiving ends of an execution known.
    pub(crate) fn expect(&mut self, process: ProcessOf, attempt: Attempt, inbound: Vec<Inbound>, lost: &OnLost) {
        for inbound in inbound {
            let key = (attempt, inbound.channel);
            let from = number_of(&inbound.from.worker);
            let bell = self.bell(inbound.room.clone(), Target::Reader(key));
            let wire = self.wires.entry(key).or_insert_with(|| Wire::new(from, process.worker));
            wire.reader = Some(Reader { process, inbound, bell, lost: lost.clone() });
        }
    }

    /// A worker connects the sending ends of an execution. Where nobody expects it, it learns so.
    pub(crate) fn connect_wires(&mut self, process: ProcessOf, attempt: Attempt, outbound: Vec<Outbound>, lost: &OnLost) {
        let mut nobody = Vec::new();
        for outbound in outbound {
            let key = (attempt, outbound.channel);
            let to = number_of(&outbound.to.worker);
            let bell = self.bell(outbound.ready.clone(), Target::Writer(key));
            let mut gate = outbound.gate;
            gate.set_clock(self.clock.clone());
            let wire = self.wires.entry(key).or_insert_with(|| Wire::new(process.worker, to));
            wire.writer = Some(Writer { process, gate, bell, lost: lost.clone() });
            if wire.dead || wire.reader.is_none() {
                wire.kill();
                nobody.push(to);
            }
            self.wake_writer(key);
        }
        nobody.dedup();
        for worker in nobody {
            self.lose(process, worker, lost);
        }
    }

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
        let Some(writer) = wire.writer.as_mut().filter(|_| !wire.dead) else { return };
        writer.bell.arm();
        let announcements = writer.gate.take_announcements();
        let mut frames = Vec::new();
        while wire.outstanding < self.scenario.window_bytes
            && let Some((_, frame)) = writer.gate.poll()
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
        let Some(reader) = wire.reader.as_mut().filter(|_| !wire.dead) else { return };
        reader.bell.arm();
        let sender = &mut reader.inbound.sender;
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
        if let Some(reader) = &wire.reader {
            reader.inbound.announcer.announce(reader.inbound.gate_channel, barrier);
        }
    }

    /// The ends that a worker has of an execution's channels are gone, of all executions where none is named.
    pub(crate) fn drop_wires(&mut self, worker: usize, attempt: Option<Attempt>) {
        let mut lost = Vec::new();
        for (key, wire) in &mut self.wires {
            if attempt.is_some_and(|attempt| attempt != key.0) || (wire.from != worker && wire.to != worker) {
                continue;
            }
            wire.kill();
            if wire.from == worker {
                wire.writer = None;
                lost.extend(wire.reader.as_ref().map(|reader| (key.0, reader.process, reader.lost.clone())));
            } else {
                wire.reader = None;
                lost.extend(wire.writer.as_ref().map(|writer| (key.0, writer.process, writer.lost.clone())));
            }
        }
        self.wires.retain(|_, wire| !wire.dead || wire.writer.is_some() || wire.reader.is_some());
        let mut told = Vec::new();
        for (attempt, process, lost) in lost {
            if !told.contains(&(attempt, process)) {
                told.push((attempt, process));
                self.lose(process, worker, &lost);
            }
        }
    }

    /// The connection between two workers breaks; both notice.
    pub(crate) fn break_data(&mut self, a: usize, b: usize) {
        let mut lost = Vec::new();
        for (key, wire) in &mut self.wires {
            if (wire.from, wire.to) != (a, b) && (wire.from, wire.to) != (b, a) {
                continue;
            }
            wire.kill();
            lost.extend(wire.writer.as_ref().map(|of| (key.0, of.process, wire.to, of.lost.clone())));
            lost.extend(wire.reader.as_ref().map(|of| (key.0, of.process, wire.from, of.lost.clone())));
        }
        let mut told = Vec::new();
        for (attempt, process, peer, lost) in lost {
            if !told.contains(&(attempt, process)) {
                told.push((attempt, process));
                self.lose(process, peer, &lost);
            }
        }
    }

    /// A worker notices after a while that it cannot reach another one.
    fn lose(&mut self, process: ProcessOf, peer: usize, lost: &OnLost) {
        let delay_us = self.random.pick(&[100, 5_000, 200_000, 2_000_000]);
        let delay_us = self.random.below(delay_us);
        self.after(delay_us, Event::PeerLost(process, peer, LostEar(lost.clone())));
    }

    pub(crate) fn peer_lost(&mut self, process: ProcessOf, peer: usize, lost: &LostEar) {
        if self.is_alive(process) {
            (lost.0)(PeerLost { worker: name_of(peer), reason: "simulated".to_owned() });
        }
    }
}

/// Who is told that a peer is lost.
pub(crate) struct LostEar(OnLost);
