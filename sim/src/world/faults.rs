//! What goes wrong, and when it does.

use super::{Event, World};
use crate::scenario::Fault;

/// A connection over which nothing is heard for this long is lost.
const SILENCE_US: u64 = 2_000_000;

/// One byte of so many has changed: more than the fixed part of what is read before tasks run, less than an image.
const ROT_STRIDE: usize = 509;

impl World {
    /// With some luck, a process dies right now. Says whether the one that asks did.
    pub(crate) fn step_fault(&mut self, fault: Fault, worker: usize) -> bool {
        if self.step_faults == 0 || !self.random.percent(6) {
            return false;
        }
        self.step_faults -= 1;
        if self.random.percent(50) {
            match fault {
                Fault::CoordinatorCrash => self.crash_coordinator(),
                _ => self.crash_worker(worker),
            }
            return true;
        }
        let victim = self.random.below(self.workers.len() as u64) as usize;
        self.after(0, Event::Crash(victim));
        false
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        let worker = self.random.below(self.workers.len() as u64) as usize;
        let other = self.random.below(self.workers.len() as u64) as usize;
        self.log(|| format!("fault: {fault:?} at {worker}, {other}"));
        match fault {
            Fault::WorkerCrash => self.crash_worker(worker),
            Fault::CoordinatorCrash => self.crash_coordinator(),
            Fault::DataLost => self.break_data(worker, other),
            Fault::ControlLost => self.break_control(worker),
            Fault::Partition => self.partition(worker),
            Fault::DiskFails => {
                let percent = self.random.pick(&[3, 15, 60]);
                self.disk.set_failing(percent);
                let delay_us = self.random.between(10_000, 800_000);
                self.after(delay_us, Event::DiskHeals);
            }
            Fault::DiskSlow => {
                self.disk_slow = true;
                let delay_us = self.random.between(10_000, 800_000);
                self.after(delay_us, Event::DiskFast);
            }
            Fault::Stop | Fault::Cancel | Fault::Rescale => self.wish(fault),
            Fault::Hang => {
                let length_us = self.random.pick(&[200_000, 8_000_000, 40_000_000]);
                self.hangs_until_us = self.now_us() + 1 + self.random.below(length_us);
            }
            Fault::WorkerStuck => self.stick(worker),
            Fault::SecondCoordinator => self.second_coordinator(),
            Fault::Stranger => self.stranger(),
            Fault::DamageOnce => self.disk.damage_reads(1 + other as u64),
            Fault::DamageForGood => self.damage_newest(),
        }
    }

    /// A file of the newest checkpoint is lost, or bytes of it change, where there is an older one; and everything ends before another is complete. What
    /// is lost is missed before anything is restored, what has changed when it is read: of images, while tasks run.
    fn damage_newest(&mut self) {
        if self.scenario.retained < 2 || self.whole.len() < 2 {
            return;
        }
        let newest = self.whole.pop().map_or_else(Vec::new, |(_, files)| files);
        // The one before is all there is to go back to until others are complete.
        self.whole = self.whole.pop().into_iter().collect();
        if newest.is_empty() {
            return;
        }
        let at = self.random.below(newest.len() as u64) as usize;
        match self.now_us % 3 {
            0 => self.disk.lose(&newest[at]),
            _ => newest.iter().for_each(|file| self.disk.rot(file, ROT_STRIDE)),
        }
        self.seen.damaged += 1;
        self.crash_coordinator();
        (0..self.workers.len()).for_each(|worker| self.crash_worker(worker));
    }

    pub(super) fn break_control(&mut self, worker: usize) {
        if let Some(session) = self.workers[worker].session.take() {
            let delay_us = self.random.below(50_000);
            self.after(delay_us, Event::SessionOver(worker, session));
            self.connect_soon(worker, 20_000);
        }
    }

    /// A node is cut off from another, in one direction or both, for a time.
    fn partition(&mut self, node: usize) {
        self.seen.partitions += 1;
        let mut other = self.random.below(self.workers.len() as u64 + 1) as usize;
        if other == node {
            other = self.coordinator_node();
        }
        let length_us = self.random.pick(&[20_000, 300_000, 1_500_000, 3_000_000, 10_000_000]);
        let until_us = self.now_us + 1 + self.random.below(length_us);
        let both = self.random.percent(50);
        self.partitions.push((node, other, until_us));
        if both || self.random.percent(50) {
            self.partitions.push((other, node, until_us));
        }
        if until_us - self.now_us < SILENCE_US {
            return;
        }
        // Too long for the connections, whichever direction it is.
        if other == self.coordinator_node() {
            if let Some(session) = self.workers[node].session {
                self.after(SILENCE_US, Event::SessionOver(node, session));
            }
        } else {
            self.after(SILENCE_US, Event::DataLost(node, other));
        }
    }
}
