//! A coordinator of another origin, with the same authority behind its certificate, that workers find as well for a time: whoever runs
//! something stays with the one that leads it.

use weir_cluster::Machine;
use weir_storage::{JobLog, Writer};

use super::coordinator::settings;
use super::{Event, World};
use crate::coordinator::{Process, STRANGERS, epoch};
use crate::ids::ProcessId;

/// How long it is there at most, in microseconds.
const STAY_US: u64 = 3_000_000;

impl World {
    /// A stranger starts, with nothing on its disk.
    pub(super) fn stranger(&mut self) {
        if self.coordinator.stranger.is_some() {
            return;
        }
        self.seen.strangers += 1;
        let id = STRANGERS + self.seen.strangers;
        let mut said = Vec::new();
        let machine = Machine::new(settings(id), self.cluster_now(), Vec::new(), &mut said);
        let log = JobLog::new(self.open_storage(), Writer { epoch: epoch(id), nonce: id });
        self.coordinator.processes.insert(id, Process::new(machine, log));
        self.coordinator.stranger = Some(id);
        self.carry_out(id, said);
        // Connections break, and whoever connects again finds one or the other.
        for worker in 0..self.workers.len() {
            if self.random.percent(60) {
                self.break_control(worker);
            }
        }
        let delay_us = self.random.below(STAY_US);
        self.after(delay_us, Event::StrangerLeaves(id));
    }

    /// It ends, and those that had joined it look for another.
    pub(super) fn stranger_leaves(&mut self, id: ProcessId) {
        self.coordinator.stranger = None;
        let Some(process) = self.coordinator.processes.remove(&id) else { return };
        for (session, worker) in process.links {
            if self.workers[worker].session.take_if(|of| *of == session).is_some() {
                self.connect_soon(worker, 20_000);
            }
        }
    }

    /// Where a worker that connects now gets to.
    pub(super) fn found_by_worker(&mut self) -> Option<ProcessId> {
        let stranger = self.coordinator.stranger.filter(|_| self.random.percent(50));
        stranger.or(self.coordinator.current)
    }
}
