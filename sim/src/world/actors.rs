//! What workers ask for, done; and the turns of their actors: whose is next, what a turn costs, and what dies over it.

use weir_task::Turn;
use weir_worker::executor::{PlaceRole, StepRun};

use super::{Event, World};
use crate::executor::{Call, SimActor, Target};
use crate::ids::{ActorId, ProcessOf};
use crate::scenario::Fault;

impl World {
    pub(crate) fn is_alive(&self, process: ProcessOf) -> bool {
        let of = &self.workers[process.worker];
        of.alive && of.incarnation == process.incarnation
    }

    /// Does what workers have asked for.
    pub(crate) fn answer_calls(&mut self) {
        loop {
            let asked = std::mem::take(&mut *self.asked.lock());
            if asked.is_empty() {
                return;
            }
            for (process, call) in asked.into_iter() {
                if self.is_alive(process) {
                    self.answer(process, call);
                }
            }
        }
    }

    fn answer(&mut self, process: ProcessOf, call: Call) {
        match call {
            Call::Step { place, step } => {
                self.log(|| format!("worker {}: step {}", process.worker, place.name));
                let delay_us = self.random.delay_us(2_000);
                self.after(delay_us, Event::Step(process, step));
            }
            Call::Start { id, place, actor } => {
                let actor = SimActor { process, role: place.role, actor, next: None, busy_until_us: 0 };
                self.actors.insert(id, actor);
                let delay_us = self.random.delay_us(1_000);
                self.schedule_turn(id, delay_us);
            }
            Call::Report(report) => self.say(process.worker, report),
            Call::Expect { attempt, inbound, lost } => self.expect(process, attempt, inbound, &lost),
            Call::Connect { attempt, outbound, lost } => self.connect_wires(process, attempt, outbound, &lost),
            Call::Close { attempt } => self.drop_wires(process.worker, Some(attempt)),
        }
    }

    /// A step runs, unless its storage or files hang.
    pub(crate) fn step(&mut self, process: ProcessOf, step: StepRun) {
        if !self.is_alive(process) {
            return;
        }
        if let Some(until_us) = self.hangs_until(process.worker) {
            return self.at(until_us + 1, Event::Step(process, step));
        }
        step();
    }

    pub(crate) fn schedule_turn(&mut self, id: ActorId, delay_us: u64) {
        let (now_us, number) = (self.clock.now_us(), self.next_number());
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let at_us = (now_us + delay_us).max(actor.busy_until_us);
        if actor.next.is_some_and(|(next_us, _)| next_us <= at_us) {
            return;
        }
        actor.next = Some((at_us, number));
        self.at(at_us, Event::Turn(id, number));
    }

    /// An actor has its turn. What stores takes as long as the disk, and hangs with it.
    pub(crate) fn turn(&mut self, id: ActorId, number: u64) {
        let (clock, started_us) = (self.clock.clone(), self.clock.now_us());
        let Some(sim) = self.actors.get(&id).filter(|sim| sim.next.is_some_and(|(_, next)| next == number)) else { return };
        let (process, stores) = (sim.process, !matches!(sim.role, PlaceRole::Task(_)));
        let reads = matches!(sim.role, PlaceRole::Fill(_));
        let hangs_until_us = self.hangs_until(process.worker).filter(|_| stores);
        let Some(sim) = self.actors.get_mut(&id) else { return };
        sim.next = None;
        if let Some(until_us) = hangs_until_us {
            let delay_us = until_us + 1 - started_us;
            return self.schedule_turn(id, delay_us);
        }
        let turn = sim.actor.turn();
        let spent_us = clock.now_us() - started_us;
        sim.busy_until_us = clock.now_us() + 1;
        let word = match turn {
            Turn::Go => 1,
            Turn::Wait(None) => 2,
            Turn::Wait(Some(time)) => 3 + time.as_micros() as u64,
            Turn::Over => 0,
        };
        self.trace.note(&[word, spent_us]);
        let disk_us = self.disk_us();
        match turn {
            Turn::Go => {
                // What is stored goes to the disk in larger pieces; an instance's images come by themselves.
                let waits_for_disk = reads || stores && self.random.below(6) == 0;
                let delay_us = if waits_for_disk { self.random.delay_us(disk_us) } else { 1 + self.random.below(40) };
                self.schedule_turn(id, delay_us);
            }
            Turn::Wait(Some(time)) => self.schedule_turn(id, time.as_micros() as u64 + 1),
            Turn::Wait(None) => {}
            Turn::Over => drop(self.actors.remove(&id)),
        }
        if stores && self.step_fault(Fault::WorkerCrash, process.worker) {
            self.log(|| format!("worker {} died over a snapshot", process.worker));
        }
    }

    /// Somebody has something for it.
    pub(crate) fn wake(&mut self, target: Target) {
        match target {
            Target::Actor(id) => {
                let stores = self.actors.get(&id).is_some_and(|sim| !matches!(sim.role, PlaceRole::Task(_)));
                let usual_us = if stores { self.disk_us() } else { 0 };
                let delay_us = 1 + self.random.below(60) + if usual_us > 0 { self.random.delay_us(usual_us) } else { 0 };
                self.schedule_turn(id, delay_us);
            }
            Target::Writer(key) => self.wake_writer(key),
            Target::Reader(key) => {
                let delay_us = 1 + self.random.below(60);
                self.wake_reader(key, delay_us);
            }
        }
    }

    /// All that ran in a worker's process is gone.
    pub(crate) fn drop_actors(&mut self, worker: usize) {
        self.actors.retain(|_, sim| sim.process.worker != worker);
    }
}
