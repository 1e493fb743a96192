//! Moves the bytes of channels between workers, in virtual time, and loses them with their connections.

use std::sync::Arc;
use std::task::Waker;

use weir_channel::wire;
use weir_model::{Attempt, Barrier};
use weir_worker::{Inbound, OnLost, Outbound, PeerLost, RoomWake};

use super::{Event, World};
use crate::executor::{SimWake, Target};
use crate::ids::{ProcessOf, WireKey, name_of, number_of};
use crate::network::{Bell, LostEar, Reader, Wire, Writer};

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
